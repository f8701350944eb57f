/*
 * whole_tensor.c - tensors of which ranks have parts (trii_tensor_is_cut), put together and cut
 * again, for files of whole tensors and for hashes. One tensor at a time has memory as a whole.
 */
#include <assert.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/persistent.h"

size_t trii_whole_bytes(const tri_tensor *tensor)
{
    const int64_t *shape = trii_whole_shape(tensor);
    size_t bytes = tri_dtype_size(tensor->dtype);

    for (int d = 0; d < tensor->ndim; d++)
        bytes *= (size_t)shape[d];
    return bytes;
}

static trii_runs runs_of_whole(const trii_held *held)
{
    trii_piece all = {.ndim = held->ndim};

    memcpy(all.size, held->shape, sizeof(all.size));
    return trii_piece_runs(&all, held->shape, held->ndim);
}

tri_status trii_whole_collect(tri_tensor *tensor, void *plain, tri_status status)
{
    const trii_held *held = tensor->held;
    trii_runs own = trii_piece_runs(&held->piece, held->shape, held->ndim);
    trii_runs all = runs_of_whole(held);
    size_t bytes = trii_whole_bytes(tensor), own_bytes = trii_tensor_bytes(tensor);
    void *room = NULL, *part = NULL;

    if (status == TRI_OK) {
        room = plain != NULL ? plain : trii_alloc(1, bytes, "a whole tensor");
        part = trii_alloc(1, own_bytes, "part of a tensor");
        status = room != NULL && part != NULL ? tri_tensor_copy_out(tensor, part, own_bytes)
                                              : TRI_ERR_NO_MEMORY;
    }
    status = trii_ranks_agree(held->group, status);
    if (status == TRI_OK) {
        assert(room != NULL); /* this rank has succeeded, too */
        /* each byte is one rank's, and 0 at the others: their sum is it */
        memset(room, 0, bytes);
        if (!held->is_copy)
            trii_piece_copy(&own, part, &all, room, tri_dtype_size(tensor->dtype));
        status = tri_all_reduce(held->group, room, room, bytes, TRI_DTYPE_U8, TRI_REDOP_SUM, NULL);
    }
    if (room != plain)
        trii_free(room);
    trii_free(part);
    return status;
}

tri_status trii_whole_take(tri_tensor *tensor, const void *plain)
{
    const trii_held *held = tensor->held;
    trii_runs own = trii_piece_runs(&held->piece, held->shape, held->ndim);
    trii_runs all = runs_of_whole(held);
    size_t bytes = trii_tensor_bytes(tensor);
    void *part = trii_alloc(1, bytes, "part of a tensor");
    tri_status status = TRI_ERR_NO_MEMORY;

    if (part != NULL) {
        trii_piece_copy(&all, plain, &own, part, tri_dtype_size(tensor->dtype));
        status = tri_tensor_copy_in(tensor, part, bytes);
    }
    trii_free(part);
    return status;
}
