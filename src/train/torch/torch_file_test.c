/* torch_file_test.c - files of torch.save of several versions and protocols: tensors and values;
 * damaged and foreign ones. Golden files: tests/golden/make_torch_files.py. */
/* ctest: threads=none */
#include <inttypes.h>

#include <trireme/torch_file.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "testing/scratch.h"
#include "testing/torch_files.h"

static void expect_shape(tri_torch_file *file, const char *name, int ndim, int64_t a, int64_t b)
{
    const tri_torch_tensor *t = tri_torch_find(file, name);

    assert_non_null(t);
    assert_int_equal(t->ndim, ndim);
    if (ndim > 0)
        assert_int_equal(t->shape[0], a);
    if (ndim > 1)
        assert_int_equal(t->shape[1], b);
}

/* --- tensors and values --------------------------------------------------- */

static void expect_state(const char *name)
{
    tri_torch_file *file;

    CHECK_OK(tri_torch_open(golden_path(name), &file));
    assert_int_equal(tri_torch_count(file), 2);
    assert_string_equal(tri_torch_at(file, 0)->name, "weight");
    assert_null(tri_torch_at(file, 2));
    assert_null(tri_torch_at(file, -1));
    assert_null(tri_torch_find(file, "weigh"));
    expect_shape(file, "weight", 2, 2, 3);
    expect_f32(file, "weight", 1, NULL, 6);
    expect_f32(file, "bias", 2, NULL, 2);
    tri_torch_close(file);
}

static void state_dictionaries_are_read(void **state)
{
    long live = trii_alloc_live();

    (void)state;
    expect_state("state-2.13.pth");
    expect_state("state-legacy-2.13.pth");
    expect_state("state-legacy-protocol3-2.13.pth");
    expect_state("state-legacy-protocol4-2.13.pth");
    expect_state("state-legacy-protocol5-2.13.pth");
    expect_state("state-1.13.pth");
    expect_state("state-legacy-1.13.pth");
    expect_state("unchecked-2.13.pth");
    assert_int_equal(trii_alloc_live(), live);
}

static const struct {
    const char *name;
    tri_dtype dtype;
    size_t size;
} types[] = {{"float32", TRI_DTYPE_F32, 4},
             {"float64", TRI_DTYPE_F64, 8},
             {"float16", TRI_DTYPE_F16, 2},
             {"bfloat16", TRI_DTYPE_BF16, 2},
             {"int64", TRI_DTYPE_I64, 8},
             {"int32", TRI_DTYPE_I32, 4},
             {"int16", TRI_DTYPE_I16, 2},
             {"int8", TRI_DTYPE_I8, 1},
             {"uint8", TRI_DTYPE_U8, 1},
             {"bool", TRI_DTYPE_BOOL, 1},
             {"float8_e4m3fn", TRI_DTYPE_F8_E4M3, 1},
             {"float8_e5m2", TRI_DTYPE_F8_E5M2, 1},
             {"uint16", TRI_DTYPE_NONE, 2},
             {"uint32", TRI_DTYPE_NONE, 4},
             {"uint64", TRI_DTYPE_NONE, 8},
             {"complex64", TRI_DTYPE_NONE, 8}};

/* The number that an element is, of the types that hold those of the golden files exactly. */
static double number_at(const char *type, const void *data, int i)
{
    const char *at = data;
    union {
        float f;
        double d;
        uint16_t h;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
        uint32_t u32;
    } v = {.i64 = 0};
    size_t size = 0;

    for (size_t k = 0; k < TRII_COUNT_OF(types); k++)
        if (strcmp(types[k].name, type) == 0)
            size = types[k].size;
    memcpy(&v, at + (size_t)i * size, size);
    if (strcmp(type, "float32") == 0 || strcmp(type, "complex64") == 0)
        return (double)v.f;
    if (strcmp(type, "float64") == 0)
        return v.d;
    if (strcmp(type, "float16") == 0)
        return (double)trii_f16_to_f32(v.h);
    if (strcmp(type, "bfloat16") == 0)
        return (double)trii_bf16_to_f32(v.h);
    if (strcmp(type, "int8") == 0)
        return v.i8;
    if (strcmp(type, "int16") == 0)
        return v.i16;
    if (strcmp(type, "int32") == 0)
        return v.i32;
    return (double)v.i64; /* not negative */
}

static void expect_types(tri_torch_file *file)
{
    for (int k = 0; k < (int)TRII_COUNT_OF(types); k++) {
        const char *type = types[k].name;
        const tri_torch_tensor *t;
        char name[64], data[64];

        snprintf(name, sizeof(name), "types.%s", type);
        t = tri_torch_find(file, name);
        assert_non_null(t);
        assert_int_equal(t->dtype, types[k].dtype);
        assert_string_equal(t->type_name, type);
        assert_int_equal(t->bytes, 3 * types[k].size);
        CHECK_OK(read_named(file, name, data, 3 * types[k].size));
        for (int i = 0; i < 3 && strncmp(type, "float8", 6) != 0; i++) {
            int v = value_of(k, i);
            bool is_signed = types[k].dtype != TRI_DTYPE_U8 && type[0] != 'u';

            CHECK_NEAR(number_at(type, data, i),
                       strcmp(type, "bool") == 0 ? v > 0
                       : is_signed               ? v
                                                 : abs(v),
                       0);
        }
    }
}

static void expect_values(const tri_torch_value *root)
{
    const tri_torch_value *v;

    assert_int_equal(root->kind, TRI_TORCH_DICT);
    assert_int_equal(tri_torch_item(root, "epoch")->integer, 3);
    assert_string_equal(tri_torch_item(root, "arch")->text, "größe");
    CHECK_NEAR(tri_torch_item(root, "best")->real, 0.5, 0);
    assert_int_equal(tri_torch_item(root, "negative")->integer, -70000);
    v = tri_torch_item(root, "huge"); /* no number of 64 bits */
    assert_int_equal(v->kind, TRI_TORCH_BYTES);
    assert_int_equal(v->bytes, 11);
    v = tri_torch_item(root, "flag");
    assert_int_equal(v->kind, TRI_TORCH_BOOL);
    assert_int_equal(v->integer, 1);
    assert_int_equal(tri_torch_item(root, "none")->kind, TRI_TORCH_NONE);
    v = tri_torch_item(root, "bytes");
    assert_int_equal(v->kind, TRI_TORCH_BYTES);
    assert_int_equal(v->bytes, 2);
    assert_memory_equal(v->text, "\0\xff", 2);
    v = tri_torch_item(root, "set");
    assert_int_equal(v->kind, TRI_TORCH_SET);
    assert_int_equal(v->n, 1);
    v = tri_torch_item(root, "device");
    assert_int_equal(v->kind, TRI_TORCH_OBJECT);
    assert_string_equal(v->text, "torch.device");
    assert_string_equal(v->arguments->items[0]->text, "cpu");
    assert_string_equal(tri_torch_item(root, "dtype")->text, "torch.bfloat16");
    v = tri_torch_item(root, "size");
    assert_int_equal(v->kind, TRI_TORCH_TUPLE);
    assert_int_equal(v->items[1]->integer, 6);
    v = tri_torch_item(root, "pair");
    CHECK_NEAR(v->items[0]->real, 1.5, 0);
    assert_string_equal(v->items[1]->text, "x");
    assert_null(tri_torch_item(root, "no"));
    assert_null(tri_torch_item(v, "x"));
    v = tri_torch_item(tri_torch_item(root, "state_dict"), "parameter");
    assert_int_equal(v->kind, TRI_TORCH_TENSOR);
    assert_true(v->tensor->requires_grad);
    assert_string_equal(v->tensor->name, "state_dict.parameter");
}

static void expect_everything(const char *name)
{
    static const int64_t turned[] = {0, 6, 12, 18, 1, 7,  13, 19, 2, 8,  14, 20,
                                     3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23};
    static const int64_t part[] = {6, 8, 10, 12, 14, 16}, spread[] = {0, 0, 0};
    tri_torch_file *file;
    const tri_torch_tensor *plain, *tied;

    CHECK_OK(tri_torch_open(golden_path(name), &file));
    expect_values(tri_torch_root(file));
    expect_types(file);
    plain = tri_torch_find(file, "state_dict.plain");
    tied = tri_torch_find(file, "state_dict.tied");
    assert_string_equal(plain->storage, tied->storage);
    assert_int_equal(plain->file_offset, tied->file_offset);
    expect_f32(file, "state_dict.plain", 20, NULL, 24);
    expect_f32(file, "state_dict.tied", 20, NULL, 24);
    expect_shape(file, "state_dict.turned", 2, 6, 4);
    expect_f32(file, "state_dict.turned", 20, turned, 24);
    expect_shape(file, "state_dict.part", 2, 2, 3);
    expect_f32(file, "state_dict.part", 20, part, 6);
    expect_f32(file, "state_dict.spread", 20, spread, 3);
    expect_shape(file, "state_dict.empty", 2, 0, 4);
    CHECK_OK(read_named(file, "state_dict.empty", NULL, 0));
    expect_shape(file, "state_dict.scalar", 0, 0, 0);
    expect_f32(file, "state_dict.parameter", 21, NULL, 3);
    expect_f32(file, "list.0", 22, NULL, 2);
    expect_f32(file, "5", 23, NULL, 1);
    tri_torch_close(file);
}

static void every_kind_of_value_is_read_in_every_protocol(void **state)
{
    long live = trii_alloc_live();

    (void)state;
    expect_everything("everything-2.13.pth");
    expect_everything("everything-legacy-2.13.pth");
    expect_everything("everything-protocol3-2.13.pth");
    expect_everything("everything-protocol4-2.13.pth");
    expect_everything("everything-protocol5-2.13.pth");
    assert_int_equal(trii_alloc_live(), live);
}

static void a_tensor_can_be_all_of_a_file(void **state)
{
    tri_torch_file *file;
    tri_tensor *t;
    float data[24];

    (void)state;
    CHECK_OK(tri_torch_open(golden_path("alone-2.13.pth"), &file));
    assert_int_equal(tri_torch_count(file), 1);
    expect_f32(file, "tensor", 20, NULL, 24);
    t = tri_torch_tensor_named(file, "tensor");
    CHECK_OK(tri_tensor_status(t));
    CHECK_OK(tri_tensor_copy_out(t, data, sizeof(data)));
    CHECK_NEAR(data[23], (float)value_of(20, 23), 0);
    tri_tensor_unref(t);
    t = tri_torch_tensor_named(file, "tenso");
    CHECK_FAILS(tri_tensor_status(t), TRI_ERR_NOT_FOUND, "no tensor tenso");
    tri_tensor_unref(t);
    CHECK_FAILS(tri_torch_read(file, 0, data, 95), TRI_ERR_INVALID_ARG,
                "room for 95 bytes, tensor tensor has 96");
    tri_torch_close(file);
}

static void tensors_of_views_and_of_other_types(void **state)
{
    tri_torch_file *file;
    tri_tensor *t;
    float data[24];

    (void)state;
    CHECK_OK(tri_torch_open(golden_path("everything-2.13.pth"), &file));
    t = tri_torch_tensor_named(file, "state_dict.turned");
    CHECK_OK(tri_tensor_copy_out(t, data, sizeof(data)));
    CHECK_NEAR(data[1], (float)value_of(20, 6), 0);
    tri_tensor_unref(t);
    t = tri_torch_tensor_named(file, "types.complex64");
    CHECK_FAILS(tri_tensor_status(t), TRI_ERR_UNSUPPORTED,
                "tensor types.complex64 is of complex64");
    tri_tensor_unref(t);
    tri_torch_close(file);
}

/* --- refused files -------------------------------------------------------- */

static void refuse(const char *name, tri_status want, const char *text)
{
    long live = trii_alloc_live();
    tri_torch_file *file = NULL;

    CHECK_FAILS(tri_torch_open(golden_path(name), &file), want, text);
    assert_null(file);
    assert_int_equal(trii_alloc_live(), live);
}

static void programs_are_refused(void **state)
{
    (void)state;
    refuse(
        "whole-2.13.pth", TRI_ERR_UNSUPPORTED,
        "an object of class torch.nn.modules.linear.Linear, whose code is in a program: save its "
        "state_dict() instead");
    refuse("script-2.13.pth", TRI_ERR_UNSUPPORTED, "a program of TorchScript");
    refuse("../make_torch_files.py", TRI_ERR_FORMAT, "not a file of torch.save");
    refuse("none.pth", TRI_ERR_NOT_FOUND, "none.pth");
    refuse("../torch", TRI_ERR_IO, "torch");
    CHECK_FAILS(tri_torch_open(NULL, &(tri_torch_file *){NULL}), TRI_ERR_INVALID_ARG, "path");
    tri_torch_close(NULL);
}

/* Whether a file has the tensors of another, name for name and bit for bit. */
static bool same_tensors(tri_torch_file *a, tri_torch_file *b, tri_status *status_out)
{
    bool same = tri_torch_count(a) == tri_torch_count(b);

    for (int64_t i = 0; same && i < tri_torch_count(a); i++) {
        const tri_torch_tensor *x = tri_torch_at(a, i), *y = tri_torch_at(b, i);
        char left[256], right[256];

        same = strcmp(x->name, y->name) == 0 && strcmp(x->type_name, y->type_name) == 0 &&
               x->ndim == y->ndim && memcmp(x->shape, y->shape, sizeof(x->shape)) == 0;
        if (!same)
            return false;
        assert_true(x->bytes <= sizeof(left));
        CHECK_OK(tri_torch_read(a, i, left, (size_t)x->bytes));
        *status_out = tri_torch_read(b, i, right, (size_t)y->bytes);
        if (*status_out != TRI_OK)
            return false;
        same = memcmp(left, right, (size_t)x->bytes) == 0;
    }
    return same;
}

/* A damaged file has the tensors of the whole one, or fails with an offset. */
static void expect_told(tri_torch_file *whole, const memory_file *m, const unsigned char *data,
                        size_t bytes, size_t at)
{
    tri_torch_file *file = NULL;
    tri_status status = open_bytes(m, data, bytes, &file);

    if (status == TRI_OK && same_tensors(whole, file, &status)) {
        tri_torch_close(file);
        return;
    }
    tri_torch_close(file);
    if (status == TRI_OK || strstr(tri_last_error(), m->path) == NULL)
        fail_msg("byte %zu: %s", at, status == TRI_OK ? "other tensors" : tri_last_error());
}

static void damage_is_told_or_does_no_harm(void **state)
{
    static const char *const names[] = {"state-2.13.pth", "state-1.13.pth", "everything-2.13.pth"};
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    for (size_t k = 0; k < TRII_COUNT_OF(names); k++) {
        size_t n;
        unsigned char *bytes = (unsigned char *)scratch_read(golden_path(names[k]), &n);
        tri_torch_file *whole;
        long live;

        CHECK_OK(tri_torch_open(golden_path(names[k]), &whole));
        live = trii_alloc_live();
        for (size_t i = 0; i < n; i++) {
            bytes[i] ^= (unsigned char)(1u << i % 8);
            expect_told(whole, &m, bytes, n, i);
            bytes[i] ^= (unsigned char)(1u << i % 8);
            bytes[i] ^= 0xff;
            expect_told(whole, &m, bytes, n, i);
            bytes[i] ^= 0xff;
            expect_told(whole, &m, bytes, i, i); /* cut off */
        }
        assert_int_equal(trii_alloc_live(), live);
        tri_torch_close(whole);
        free(bytes);
    }
    memory_file_end(&m);
}

/* Every tensor of a damaged file can be asked for. */
static void read_all(tri_torch_file *file)
{
    for (int64_t i = 0; i < tri_torch_count(file); i++) {
        const tri_torch_tensor *t = tri_torch_at(file, i);
        char data[256];

        if (t->refused != NULL)
            CHECK_FAILS(tri_torch_read(file, i, NULL, 0), TRI_ERR_UNSUPPORTED, t->refused);
        else if (t->bytes <= sizeof(data))
            CHECK_OK(tri_torch_read(file, i, data, (size_t)t->bytes));
    }
}

/* Legacy files have no checksums: a wrong number cannot be told, but nothing else may happen. */
static void damaged_legacy_files_do_no_harm(void **state)
{
    static const char *const names[] = {"everything-legacy-2.13.pth", "odd-tensors-legacy-2.13.pth",
                                        "state-legacy-protocol5-2.13.pth"};
    long live = trii_alloc_live();
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    for (size_t k = 0; k < TRII_COUNT_OF(names); k++) {
        size_t n;
        unsigned char *bytes = (unsigned char *)scratch_read(golden_path(names[k]), &n);

        for (size_t i = 0; i < n; i++) {
            tri_torch_file *file = NULL;

            if (open_bytes(&m, bytes, i, &file) == TRI_OK)
                fail_msg("a file of %zu of %zu bytes is read", i, n);
            bytes[i] ^= 0xff;
            if (open_bytes(&m, bytes, n, &file) == TRI_OK) {
                read_all(file);
                tri_torch_close(file);
            }
            bytes[i] ^= 0xff;
        }
        free(bytes);
    }
    memory_file_end(&m);
    assert_int_equal(trii_alloc_live(), live);
}

static void an_allocation_that_fails_leaves_nothing(void **state)
{
    static const char *const names[] = {"everything-2.13.pth", "everything-legacy-2.13.pth",
                                        "odd-tensors-2.13.pth"};
    long live = trii_alloc_live();

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(names); k++) {
        tri_status status = TRI_ERR_NO_MEMORY;

        for (long n = 1; status != TRI_OK; n++) {
            tri_torch_file *file = NULL;

            trii_alloc_fail_at(n);
            status = tri_torch_open(golden_path(names[k]), &file);
            trii_alloc_fail_at(0);
            assert_true(status == TRI_OK || status == TRI_ERR_NO_MEMORY);
            tri_torch_close(file);
            assert_int_equal(trii_alloc_live(), live);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(state_dictionaries_are_read),
    cmocka_unit_test(every_kind_of_value_is_read_in_every_protocol),
    cmocka_unit_test(a_tensor_can_be_all_of_a_file),
    cmocka_unit_test(tensors_of_views_and_of_other_types),
    cmocka_unit_test(programs_are_refused),
    cmocka_unit_test(damage_is_told_or_does_no_harm),
    cmocka_unit_test(damaged_legacy_files_do_no_harm),
    cmocka_unit_test(an_allocation_that_fails_leaves_nothing),
};
TEST_MAIN(tests)
