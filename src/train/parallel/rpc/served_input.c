/*
 * served_input.c - operands of a served module: parts of a request where they lie, and zeros for a
 * question about types alone.
 */
#include "base/alloc.h"
#include "os/pages.h"
#include "train/parallel/rpc/remote_internal.h"

tri_tensor *trii_remote_wrap(const trii_type *type, const tri_rpc_part *part)
{
    if (part->bytes == 0)
        return tri_tensor_create(type->shape, type->ndim, type->dtype);
    return tri_tensor_wrap(type->shape, type->ndim, type->dtype, (void *)(uintptr_t)part->data,
                           NULL, NULL);
}

typedef struct untouched {
    void *data;
    size_t bytes;
} untouched;

static void untouched_free(void *arg)
{
    untouched *u = arg;

    trii_pages_free(u->data, u->bytes);
    trii_free(u);
}

tri_tensor *trii_remote_untouched(const trii_type *type)
{
    untouched *u = trii_alloc(1, sizeof(*u), "input");
    tri_tensor *tensor;
    tri_status status = TRI_ERR_NO_MEMORY;

    if (u == NULL)
        return trii_tensor_failed(status);
    u->bytes = trii_type_bytes(type);
    status = trii_pages_alloc(u->bytes, &u->data);
    if (status != TRI_OK) {
        trii_free(u);
        return trii_tensor_failed(status);
    }
    tensor = tri_tensor_wrap(type->shape, type->ndim, type->dtype, u->data, untouched_free, u);
    if (tri_tensor_status(tensor) != TRI_OK)
        untouched_free(u);
    return tensor;
}
