/*
 * remote_frames.c - types as they travel (remote_internal.h has the frames), checked before
 * anything is made of them.
 */
#include "base/dtype.h"
#include "base/err.h"
#include "parallel/rpc/remote_internal.h"

tri_status trii_remote_refuse(const char *what)
{
    return TRII_FAIL(TRI_ERR_FORMAT, "a damaged message: %s", what);
}

void trii_remote_type_put(trii_remote_type *to, const trii_type *type)
{
    memset(to, 0, sizeof(*to));
    to->dtype = (int32_t)type->dtype;
    to->ndim = type->ndim;
    for (int d = 0; d < type->ndim; d++)
        to->shape[d] = type->shape[d];
}

tri_status trii_remote_type_get(const trii_remote_type *from, trii_type *type_out)
{
    tri_status status;

    *type_out = (trii_type){.dtype = (tri_dtype)from->dtype, .ndim = from->ndim};
    if (from->dtype == TRI_DTYPE_NONE && from->ndim == 0)
        return TRI_OK;
    if (from->dtype < 0 || tri_dtype_size((tri_dtype)from->dtype) == 0 || from->ndim < 0 ||
        from->ndim > TRI_MAX_DIMS)
        return trii_remote_refuse("a type that does not exist");
    for (int d = 0; d < from->ndim; d++) {
        if (from->shape[d] < 0)
            return trii_remote_refuse("a negative size");
        type_out->shape[d] = from->shape[d];
    }
    status = trii_type_check(type_out);
    return status == TRI_OK ? TRI_OK : trii_remote_refuse("a type that is too large");
}

tri_status trii_remote_types_get(const tri_rpc_message *m, size_t head, uint32_t n, int first_part,
                                 trii_type *types_out)
{
    int part = first_part;

    if (n > TRI_REMOTE_TENSORS || m->bytes < head || m->bytes - head < n * sizeof(trii_remote_type))
        return trii_remote_refuse("it ends within its types");
    for (uint32_t i = 0; i < n; i++) {
        trii_remote_type type;
        tri_status status;

        memcpy(&type, (const char *)m->data + head + i * sizeof(type), sizeof(type));
        status = trii_remote_type_get(&type, &types_out[i]);
        if (status != TRI_OK)
            return status;
        if (first_part < 0 || types_out[i].dtype == TRI_DTYPE_NONE)
            continue;
        if (part >= m->n_parts || m->parts[part].bytes != trii_type_bytes(&types_out[i]))
            return trii_remote_refuse("a tensor of another size than its type");
        part++;
    }
    if (first_part >= 0 && part != m->n_parts)
        return trii_remote_refuse("more tensors than types");
    return TRI_OK;
}
