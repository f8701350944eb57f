/*
 * ddp_join.c - ranks that run out of data before the others: they take part with empty batches.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/parallel/ddp/ddp.h"

static int count_holders(const trii_ddp *ddp)
{
    return 2 * ddp->unit.n_placed;
}

/* What may have a gradient: parameters, and this rank's pieces of them. NULL: there is no piece. */
static tri_tensor *holder(const trii_ddp *ddp, int i)
{
    const trii_placed *placed = &ddp->unit.placed[i / 2];

    return i % 2 == 0 ? placed->tensor : placed->piece;
}

/* Contents of all buffers, and of gradients that wait for an update, as they were before a pass:
 * the last one has no batch at all, and none of it may be counted. */
static size_t kept_bytes(const trii_ddp *ddp)
{
    size_t bytes = 0;

    for (int i = 0; i < ddp->n_buffers; i++)
        bytes += trii_tensor_bytes(ddp->buffers[i].tensor);
    for (int i = 0; i < count_holders(ddp); i++)
        bytes += holder(ddp, i) != NULL ? trii_tensor_bytes(holder(ddp, i)) : 0;
    return bytes;
}

static tri_status copy_one(tri_tensor *tensor, char **memory_io, bool back)
{
    size_t bytes = trii_tensor_bytes(tensor);
    char *memory = *memory_io;

    *memory_io += bytes;
    return back ? tri_tensor_copy_in(tensor, memory, bytes)
                : tri_tensor_copy_out(tensor, memory, bytes);
}

/* Forward and backward on an empty batch, until its averages are there. */
static tri_status empty_pass(trii_ddp *ddp, tri_tensor *(*loss)(void *arg), void *arg)
{
    trii_step *step = trii_step_current();
    tri_tensor *mine;
    bool check;
    tri_status status = TRI_OK;

    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    check = trii_nan_check_set(step, false); /* the mean of no rows is NaN */
    ddp->unit.n_joined = 0;                  /* a loss that is not the model's leaves it */
    ddp->unit.joined = true;
    ddp->unit.header = NULL;
    mine = loss(arg);
    if (ddp->unit.header == NULL)
        tri_backward(mine);
    else
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "ddp_join: loss calls tri_backward, which the join does with its result");
    ddp->unit.joined = false;
    if (status == TRI_OK)
        status = trii_step_run(step);
    (void)trii_nan_check_set(step, check);
    return status;
}

/* What a last pass must leave as it was. */
typedef struct before {
    char *memory;  /* [kept_bytes] */
    bool *waiting; /* [count_holders]: has a gradient, whose contents follow those of the buffers */
    bool stopped;
    int64_t sample_count;
} before;

static tri_status make_before(const trii_ddp *ddp, before *b)
{
    b->memory = trii_alloc(1, kept_bytes(ddp), "buffers and gradients of a model");
    b->waiting =
        trii_alloc((size_t)count_holders(ddp), sizeof(*b->waiting), "gradients of a model");
    return b->memory != NULL && b->waiting != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static tri_status note(trii_ddp *ddp, before *b)
{
    trii_step *step = trii_step_current();
    char *memory = b->memory;
    tri_status status = step != NULL ? trii_unit_settle(&ddp->unit, step) : TRI_ERR_NO_MEMORY;

    b->stopped = ddp->unit.stopped;
    b->sample_count = ddp->unit.tally.sample_count;
    for (int i = 0; i < ddp->n_buffers && status == TRI_OK; i++)
        status = copy_one(ddp->buffers[i].tensor, &memory, false);
    for (int i = 0; i < count_holders(ddp) && status == TRI_OK; i++) {
        tri_tensor *param = holder(ddp, i);

        b->waiting[i] = param != NULL && trii_has_grad(param);
        if (b->waiting[i])
            status = copy_one(param->grad, &memory, false);
    }
    return status;
}

/* No rank had a batch: it leaves nothing, but votes. */
static tri_status undo(trii_ddp *ddp, const before *b)
{
    char *memory = b->memory;
    tri_status status = TRI_OK;

    for (int i = 0; i < count_holders(ddp); i++)
        if (holder(ddp, i) != NULL)
            trii_grad_clear(holder(ddp, i));
    tri_step_end();
    ddp->unit.stopped = ddp->unit.stopped || b->stopped;
    ddp->unit.tally.sample_count = b->sample_count;
    for (int i = 0; i < ddp->n_buffers && status == TRI_OK; i++)
        status = copy_one(ddp->buffers[i].tensor, &memory, true);
    for (int i = 0; i < count_holders(ddp) && status == TRI_OK; i++) {
        if (!b->waiting[i])
            continue;
        status = copy_one(holder(ddp, i)->grad, &memory, true);
        if (status == TRI_OK)
            trii_grad_publish(holder(ddp, i), true);
    }
    return status;
}

/* Neither batches nor gradients of tri_ddp_no_sync_begin that wait to be averaged, on any rank. */
static bool nobody_has_data(const trii_ddp *ddp)
{
    return ddp->unit.n_joined == ddp->unit.size && ddp->unit.tally.sample_count == 0;
}

static tri_status call_update(tri_status (*update)(void *arg), void *arg)
{
    tri_status status = update(arg);

    return status <= 0 ? status
                       : TRII_FAIL(TRI_ERR_INVALID_ARG, "ddp_join: update returned %s",
                                   tri_status_name(status));
}

static tri_status join(trii_ddp *ddp, tri_tensor *(*loss)(void *arg),
                       tri_status (*update)(void *arg), void *arg)
{
    before b = {0};
    tri_status status = make_before(ddp, &b);

    while (status == TRI_OK) {
        status = note(ddp, &b);
        if (status == TRI_OK)
            status = empty_pass(ddp, loss, arg);
        if (status == TRI_OK && ddp->unit.n_joined == 0)
            status =
                TRII_FAIL(TRI_ERR_INVALID_ARG,
                          "ddp_join: the loss that the function gave is not one of the model in "
                          "training mode, with synchronisation");
        if (status == TRI_OK && nobody_has_data(ddp))
            break;
        if (status == TRI_OK)
            status = call_update(update, arg);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    if (status == TRI_OK)
        status = undo(ddp, &b);
    trii_free(b.memory);
    trii_free(b.waiting);
    return status;
}

/* In stage 3 each pass of the others gathers; this rank cannot know of those that average nothing,
 * and either waits or is told (ABORTED) that another has waited for it. */
static tri_status explain(const trii_unit *unit, tri_status status)
{
    char line[TRII_ERR_BYTES];

    if (unit->stage != 3 || (status != TRI_ERR_GROUP_TIMEOUT && status != TRI_ERR_MISMATCH &&
                             status != TRI_ERR_ABORTED))
        return status;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    return TRII_FAIL(status,
                     "ddp_join (in stage 3 loss also makes the passes of the others' loops between "
                     "tri_ddp_no_sync_begin and tri_ddp_no_sync_end): %s",
                     line);
}

tri_status tri_ddp_join(tri_module *model, tri_tensor *(*loss)(void *arg),
                        tri_status (*update)(void *arg), void *arg, const tri_ddp_join_options *opt)
{
    trii_ddp *ddp;
    tri_status status = trii_ddp_need(model, "ddp_join", &ddp);

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_ddp_join_options, opt);
    if (status == TRI_OK && loss == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "ddp_join: loss is NULL");
    if (status == TRI_OK && update == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "ddp_join: update is NULL");
    if (status == TRI_OK && tri_module_unwrapped(ddp->net)->stages != NULL)
        status = TRII_FAIL(TRI_ERR_UNSUPPORTED,
                           "ddp_join: the pipeline would need rows of which there are none: end "
                           "all replicas with the last batch that each of them has");
    if (status != TRI_OK || ddp->unit.group == NULL)
        return status;
    ddp->unit.throws = opt != NULL && opt->throw_on_early_termination;
    status = explain(&ddp->unit, join(ddp, loss, update, arg));
    if (status == TRI_OK && !ddp->options.no_buffer_sync)
        status = tri_ddp_sync_buffers(model);
    ddp->unit.source = 0;
    return status != TRI_OK ? trii_unit_tell(&ddp->unit, status) : status;
}
