/*
 * buffers.c - running statistics: before a synchronised forward in training, one rank (rank 0 while
 * it has data, unit.source) broadcasts its buffers to all. They lie together in the group's arena,
 * so that one broadcast suffices; buffers in memory of the user (tri_tensor_wrap) or of a device
 * stay where they are and are copied.
 */
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "train/parallel/ddp/ddp.h"
#include "train/tensor/device_memory.h"

#define PLACE_ALIGN ((size_t)64)

static int count_buffers(tri_module *net)
{
    int n = 0;

    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        n += !tri_module_state(net, i).parameter;
    return n;
}

/* Blocks of at most so many buffers as a host operation has operands. */
static tri_status make_block(trii_ddp *ddp, int first)
{
    trii_ddp_block *block = &ddp->blocks[ddp->n_blocks++];
    tri_status status;

    block->first = first;
    for (; block->n < TRII_UNIT_ITEMS && first + block->n < ddp->n_buffers; block->n++) {
        trii_ddp_buffer *buffer = &ddp->buffers[first + block->n];

        buffer->bytes = trii_tensor_bytes(buffer->tensor);
        buffer->offset = block->bytes;
        block->bytes += (buffer->bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
    }
    status = trii_unit_storage_create(trii_unit_parts(&ddp->unit), block->bytes, &block->storage);
    for (int b = first; b < first + block->n && status == TRI_OK; b++)
        if (!ddp->buffers[b].tensor->stays_plain && trii_is_host(ddp->buffers[b].tensor->device))
            status =
                trii_tensor_move(ddp->buffers[b].tensor, block->storage, ddp->buffers[b].offset);
    return status;
}

tri_status trii_ddp_buffers_make(trii_ddp *ddp)
{
    int n = count_buffers(ddp->net);
    tri_status status = TRI_OK;

    if (n == 0)
        return TRI_OK;
    ddp->buffers = trii_alloc((size_t)n, sizeof(*ddp->buffers), "buffers of a model");
    ddp->blocks =
        trii_alloc((size_t)n / TRII_UNIT_ITEMS + 1, sizeof(*ddp->blocks), "buffers of a model");
    if (ddp->buffers == NULL || ddp->blocks == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < tri_module_state_count(ddp->net); i++) {
        tri_state_entry entry = tri_module_state(ddp->net, i);

        if (!entry.parameter)
            ddp->buffers[ddp->n_buffers++].tensor = tri_tensor_ref(entry.tensor);
    }
    for (int first = 0; first < n && status == TRI_OK; first += TRII_UNIT_ITEMS)
        status = make_block(ddp, first);
    return status;
}

/* --- a broadcast ---------------------------------------------------------- */

/* The source's values into the block, or the block's values to where they belong. */
static void copy_block(trii_unit_coll *t, void *const *operands, bool in)
{
    const trii_ddp *ddp = (const trii_ddp *)t->unit;
    const trii_ddp_block *block = t->load;
    char *data = block->storage->data;

    for (int i = 0; i < t->n; i++) {
        const trii_ddp_buffer *buffer = &ddp->buffers[t->item[i]];
        char *in_block = data + buffer->offset;

        if (operands[i] != in_block)
            memcpy(in ? in_block : operands[i], in ? operands[i] : in_block, buffer->bytes);
    }
}

static tri_status block_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_unit_coll *t = (trii_unit_coll *)op;
    const trii_ddp_block *block = t->load;

    trii_unit_coll_blame(t);
    for (int i = 0; i < t->n; i++)
        t->out[i] = buffers->out[i];
    if (t->unit->rank == t->unit->source)
        copy_block(t, buffers->in, true);
    t->state = TRII_UNIT_COLL_STARTED;
    t->unit->volume.buffer_bytes += (int64_t)block->bytes;
    return trii_unit_passed(t->unit,
                            tri_broadcast(t->unit->group, block->storage->data, block->bytes,
                                          TRI_DTYPE_U8, t->unit->source, &t->work));
}

static tri_status block_done(trii_unit_coll *t)
{
    copy_block(t, t->out, false);
    t->state = TRII_UNIT_COLL_FREE;
    return TRI_OK;
}

static tri_status block_wait(trii_host_op *op, int64_t for_ns)
{
    trii_unit_coll *t = (trii_unit_coll *)op;
    tri_status status = t->state == TRII_UNIT_COLL_STARTED
                            ? trii_unit_coll_work(t->unit, &t->work, for_ns)
                            : TRI_OK;

    return status == TRI_OK && t->state == TRII_UNIT_COLL_STARTED ? block_done(t) : status;
}

static tri_status block_poll(trii_host_op *op)
{
    return block_wait(op, 0);
}

static const trii_host_kind block_kind = {.name = "buffers",
                                          .in_place = true,
                                          .start = block_start,
                                          .poll = block_poll,
                                          .wait = block_wait,
                                          .abort = trii_unit_coll_abort,
                                          .release = trii_unit_coll_release,
                                          .compare = trii_unit_coll_compare};

static void is_block(trii_unit_coll *t)
{
    t->op.kind = &block_kind;
    t->op.any_layout = false;
}

static tri_status record_block(trii_ddp *ddp, trii_step *step, int index)
{
    trii_ddp_block *block = &ddp->blocks[index];
    trii_vid in[TRII_UNIT_ITEMS + 1], out[TRII_UNIT_ITEMS + 1];
    /* The source is known when the last header is there. */
    const trii_host_call call = {.in = in,
                                 .n_in = block->n,
                                 .after = &ddp->unit.last_weight,
                                 .n_after = ddp->unit.last_generation == step->generation};
    trii_unit_coll *t;
    tri_status status = trii_unit_coll_take(&ddp->unit, &block->colls, step, &t);

    if (status != TRI_OK)
        return status;
    is_block(t);
    t->load = block;
    t->place = block->first;
    t->n = 0;
    t->op.identity |= UINT64_C(0x8000) + (uint64_t)index;
    for (int b = block->first; b < block->first + block->n && status == TRI_OK; b++) {
        t->item[t->n] = b;
        status = trii_resolve(step, ddp->buffers[b].tensor, &in[t->n++]);
    }
    if (status == TRI_OK)
        status = trii_record_host(step, &t->op, &call, out);
    for (int i = 0; i < t->n && status == TRI_OK; i++)
        status = trii_bind(step, out[i], ddp->buffers[t->item[i]].tensor);
    return status;
}

tri_status trii_ddp_buffers_record(trii_ddp *ddp, trii_step *step)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < ddp->n_blocks && status == TRI_OK; i++)
        status = record_block(ddp, step, i);
    return status;
}

void trii_ddp_buffers_free(trii_ddp *ddp)
{
    for (int i = 0; i < ddp->n_buffers; i++)
        tri_tensor_unref(ddp->buffers[i].tensor);
    for (int i = 0; i < ddp->n_blocks; i++) {
        trii_unit_colls_free(ddp->blocks[i].colls);
        trii_storage_unref(ddp->blocks[i].storage);
    }
    trii_free(ddp->buffers);
    trii_free(ddp->blocks);
}
