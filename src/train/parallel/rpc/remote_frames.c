/*
 * remote_frames.c - types as they travel (remote_internal.h has the frames), checked before
 * anything is made of them.
 */
#include <string.h>

#include "base/dtype.h"
#include "base/err.h"
#include "train/parallel/rpc/remote_internal.h"

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
                                 uint64_t elsewhere, trii_type *types_out)
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
        if (first_part < 0 || types_out[i].dtype == TRI_DTYPE_NONE || (elsewhere >> i & 1) != 0)
            continue;
        if (part >= m->n_parts || m->parts[part].bytes != trii_type_bytes(&types_out[i]))
            return trii_remote_refuse("a tensor of another size than its type");
        part++;
    }
    if (first_part >= 0 && part != m->n_parts)
        return trii_remote_refuse("more tensors than types");
    return TRI_OK;
}

int trii_remote_count(uint64_t bits)
{
    int n = 0;

    for (; bits != 0; bits &= bits - 1)
        n++;
    return n;
}

tri_status trii_remote_sources_get(const tri_rpc_message *m, size_t head, uint32_t n,
                                   uint64_t elsewhere, const trii_type *types,
                                   trii_remote_source *sources_out)
{
    size_t n_sources = (size_t)trii_remote_count(elsewhere);
    const char *from = (const char *)m->data + head;

    if (elsewhere >> n != 0 || m->bytes < head ||
        m->bytes - head < n_sources * sizeof(trii_remote_source))
        return trii_remote_refuse("it ends within its sources");
    for (uint32_t i = 0; i < n; i++) {
        trii_remote_source *source = &sources_out[i];

        if ((elsewhere >> i & 1) == 0)
            continue;
        memcpy(source, from, sizeof(*source));
        from += sizeof(*source);
        if (source->magic != TRII_REMOTE_MAGIC || types[i].dtype == TRI_DTYPE_NONE)
            return trii_remote_refuse("a source");
    }
    return TRI_OK;
}
