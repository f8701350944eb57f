/*
 * self.c - the engine of a group of one: every collective is a copy.
 *
 * The smallest thing that satisfies group/engine.h; a new engine starts as a copy of it.
 */
#include "engines/self/self.h"

#include <string.h>

/* Nothing to keep: any address will do. */
static char self_state;

static tri_status self_create(const trii_group_args *args, void **self_out)
{
    if (args->size != 1)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "engine self: a group of %d, only 1 works",
                         args->size);
    *self_out = &self_state;
    return TRI_OK;
}

static tri_status self_submit(void *self, trii_op *op)
{
    const trii_collective *call = &op->call;
    size_t bytes = call->bytes;

    (void)self;
    if (call->kind == TRII_KIND_ALL_TO_ALL_V)
        bytes = call->src_parts[1] * tri_dtype_size(call->dtype);
    /* The reduction over one rank is its value, avg too. */
    if (call->src != call->dst && bytes > 0)
        memcpy(call->dst, call->src, bytes);
    trii_op_finish(op, TRI_OK, NULL);
    return TRI_OK;
}

static void self_progress(void *self, trii_op *op, int64_t until_ns)
{
    (void)self, (void)op, (void)until_ns; /* all was done by submit */
}

static void self_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    (void)self, (void)op;
    snprintf(text, size, "nobody");
}

static void self_end(void *self)
{
    (void)self;
}

const trii_engine trii_engine_self = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = "self",
    .kinds = TRII_KINDS_COLLECTIVE,
    .create = self_create,
    .submit = self_submit,
    .progress = self_progress,
    .describe_wait = self_describe_wait,
    .abort = self_end,
    .destroy = self_end,
};
