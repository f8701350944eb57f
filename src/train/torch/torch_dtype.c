/*
 * torch_dtype.c - see torch_dtype.h. Names: torch/storage.py and
 * torch/csrc/utils/tensor_dtypes.cpp.
 */
#include "train/torch/torch_dtype.h"

#include <string.h>

#include "base/compiler.h"

static const trii_torch_dtype dtypes[] = {
    {"float32", "FloatStorage", TRI_DTYPE_F32, 4},
    {"float64", "DoubleStorage", TRI_DTYPE_F64, 8},
    {"float16", "HalfStorage", TRI_DTYPE_F16, 2},
    {"bfloat16", "BFloat16Storage", TRI_DTYPE_BF16, 2},
    {"int64", "LongStorage", TRI_DTYPE_I64, 8},
    {"int32", "IntStorage", TRI_DTYPE_I32, 4},
    {"int16", "ShortStorage", TRI_DTYPE_I16, 2},
    {"int8", "CharStorage", TRI_DTYPE_I8, 1},
    {"uint8", "ByteStorage", TRI_DTYPE_U8, 1},
    {"bool", "BoolStorage", TRI_DTYPE_BOOL, 1},
    {"float8_e4m3fn", NULL, TRI_DTYPE_F8_E4M3, 1},
    {"float8_e5m2", NULL, TRI_DTYPE_F8_E5M2, 1},
    {"complex64", "ComplexFloatStorage", TRI_DTYPE_NONE, 8},
    {"complex128", "ComplexDoubleStorage", TRI_DTYPE_NONE, 16},
    {"complex32", NULL, TRI_DTYPE_NONE, 4},
    {"uint16", NULL, TRI_DTYPE_NONE, 2},
    {"uint32", NULL, TRI_DTYPE_NONE, 4},
    {"uint64", NULL, TRI_DTYPE_NONE, 8},
    {"float8_e4m3fnuz", NULL, TRI_DTYPE_NONE, 1},
    {"float8_e5m2fnuz", NULL, TRI_DTYPE_NONE, 1},
    {"float8_e8m0fnu", NULL, TRI_DTYPE_NONE, 1},
    {"float4_e2m1fn_x2", NULL, TRI_DTYPE_NONE, 1},
    {"bits8", NULL, TRI_DTYPE_NONE, 1},
    {"bits16", NULL, TRI_DTYPE_NONE, 2},
    {"bits1x8", NULL, TRI_DTYPE_NONE, 1},
    {"bits2x4", NULL, TRI_DTYPE_NONE, 1},
    {"bits4x2", NULL, TRI_DTYPE_NONE, 1},
    {"qint8", "QInt8Storage", TRI_DTYPE_NONE, 1},
    {"quint8", "QUInt8Storage", TRI_DTYPE_NONE, 1},
    {"qint32", "QInt32Storage", TRI_DTYPE_NONE, 4},
    {"quint4x2", "QUInt4x2Storage", TRI_DTYPE_NONE, 1},
    {"quint2x4", "QUInt2x4Storage", TRI_DTYPE_NONE, 1},
};

const trii_torch_dtype *trii_torch_dtype_named(const char *name)
{
    static const char prefix[] = "torch.";

    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
        return NULL;
    for (size_t i = 0; i < TRII_COUNT_OF(dtypes); i++)
        if (strcmp(dtypes[i].name, name + sizeof(prefix) - 1) == 0)
            return &dtypes[i];
    return NULL;
}

const trii_torch_dtype *trii_torch_dtype_of_storage(const char *class_name)
{
    const char *dot = strrchr(class_name, '.');

    if (strncmp(class_name, "torch.", 6) != 0 || dot == NULL)
        return NULL;
    for (size_t i = 0; i < TRII_COUNT_OF(dtypes); i++)
        if (dtypes[i].storage != NULL && strcmp(dtypes[i].storage, dot + 1) == 0)
            return &dtypes[i];
    return NULL;
}

const trii_torch_dtype *trii_torch_dtype_of(tri_dtype dtype)
{
    for (size_t i = 0; i < TRII_COUNT_OF(dtypes); i++)
        if (dtypes[i].dtype == dtype && dtype != TRI_DTYPE_NONE)
            return &dtypes[i];
    return NULL;
}
