/*
 * travel.c - the collectives of a step while they run: start when the operands are complete,
 * poll between kernels, wait before the first reader. They start in record order on every rank, so
 * they always match.
 */
#include <math.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "group/world.h"
#include "parallel/ddp/ddp.h"

#define POLLS_PER_LOOK 16
#define BLOCKING_BYTES ((size_t)16 << 10)

/* --- life ----------------------------------------------------------------------------------- */

/* The step in which it is recorded may belong to any thread, and end after the model. */
static void travel_release(trii_host_op *op)
{
    trii_travel *t = (trii_travel *)op;

    if (atomic_fetch_sub(&t->owners, 1) > 1)
        return;
    tri_group_unref(t->left);
    trii_free(t);
}

static void drop_work(trii_travel *t)
{
    tri_work_destroy(t->work);
    tri_work_destroy(t->map_work);
    t->work = NULL;
    t->map_work = NULL;
}

tri_status trii_travel_take(trii_ddp *ddp, trii_travel **list, trii_step *step,
                            trii_travel **travel_out)
{
    trii_travel *t = *list;
    uint64_t number = 0;

    /* Those of a step that ended without running them are free as well. */
    while (t != NULL && atomic_load(&t->owners) > 1 &&
           (t->state != TRII_TRAVEL_FREE || t->generation != step->generation)) {
        t = t->next;
        number++;
    }
    if (t == NULL) {
        trii_travel **end = list;

        t = trii_alloc(1, sizeof(*t), "ddp collective");
        if (t == NULL)
            return TRI_ERR_NO_MEMORY;
        atomic_init(&t->owners, 1);
        t->ddp = ddp;
        t->op.group = (uint64_t)(uintptr_t)ddp->group;
        t->op.identity = ddp->id << 33 | (uint64_t)ddp->rebuilt << 32 | number << 16;
        while (*end != NULL)
            end = &(*end)->next;
        *end = t;
    }
    if (atomic_load(&t->owners) == 1) {
        atomic_store(&t->owners, 2);
        trii_host_op_give(step, &t->op);
    }
    drop_work(t);
    t->state = TRII_TRAVEL_RECORDED;
    t->site = trii_site_last();
    t->generation = step->generation;
    *travel_out = t;
    return TRI_OK;
}

static tri_status orphan_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    (void)op;
    (void)buffers;
    return TRII_FAIL(TRI_ERR_STATE, "the DDP model was destroyed while a step was pending");
}

static tri_status orphan_poll(trii_host_op *op)
{
    (void)op;
    return TRI_OK;
}

static tri_status orphan_wait(trii_host_op *op, int64_t for_ns)
{
    (void)op;
    (void)for_ns;
    return TRI_OK;
}

static void orphan_abort(trii_host_op *op, const char *why)
{
    trii_travel *t = (trii_travel *)op;

    if (t->left != NULL)
        tri_group_abort(t->left, why);
}

/* What is left of a model that is gone. */
static const trii_host_kind orphan_kind = {.name = "tri_ddp (a model that is gone)",
                                           .in_place = true,
                                           .start = orphan_start,
                                           .poll = orphan_poll,
                                           .wait = orphan_wait,
                                           .abort = orphan_abort,
                                           .release = travel_release};

void trii_travels_free(trii_travel *list)
{
    while (list != NULL) {
        trii_travel *next = list->next;

        drop_work(list);
        if (list->state != TRII_TRAVEL_FREE && list->op.kind->abort != NULL)
            list->left = tri_group_ref(list->ddp->group);
        list->ddp = NULL;
        list->op.kind = &orphan_kind;
        travel_release(&list->op);
        list = next;
    }
}

static void travel_abort(trii_host_op *op, const char *why)
{
    trii_travel *t = (trii_travel *)op;

    if (t->state != TRII_TRAVEL_FREE)
        tri_group_abort(t->ddp->group, why);
}

static tri_status explain(tri_status st, const char *line)
{
    return TRII_FAIL(st, "%s%s", line,
                     st == TRI_ERR_MISMATCH
                         ? " (a model of tri_ddp communicates when it is made or verified, in each "
                           "forward in training mode and each backward: all ranks do these, or "
                           "none)"
                         : "");
}

tri_status trii_ddp_called(tri_status st)
{
    return st < 0 ? explain(st, tri_last_error()) : st;
}

/* The operation's failure as this thread's error, or its success. */
static tri_status work_ended(tri_work **work_io, tri_status st)
{
    if (st < 0)
        st = explain(st, tri_work_error(*work_io));
    tri_work_destroy(*work_io);
    *work_io = NULL;
    return st;
}

static tri_status work_poll(tri_work **work_io)
{
    tri_status st;

    if (*work_io == NULL)
        return TRI_OK;
    st = trii_work_poll(*work_io);
    return st == TRI_INPROGRESS ? st : work_ended(work_io, st);
}

static tri_status work_wait(tri_work **work_io, int64_t for_ns)
{
    tri_status st;

    if (*work_io == NULL)
        return TRI_OK;
    st = trii_work_wait_for(*work_io, for_ns);
    return st == TRI_INPROGRESS ? st : work_ended(work_io, st);
}

/* Ranks may use different parameters: the operands do not count. */
static tri_status travel_compare(trii_host_op *op, const char *what, const char *where)
{
    const trii_travel *t = (trii_travel *)op;
    char text[64];

    (void)what;
    if (t->bucket != NULL)
        (void)snprintf(text, sizeof(text), "%s %d", op->kind->name, t->bucket->index);
    else if (t->block != NULL)
        (void)snprintf(text, sizeof(text), "%s %d", op->kind->name, t->block->first);
    else
        (void)snprintf(text, sizeof(text), "%s", op->kind->name);
    return trii_ddp_called(trii_group_compare_order(t->ddp->group, text, where));
}

/* --- the header ----------------------------------------------------------------------------- */

/* Its calls are those of the forward or backward that recorded it, wherever the step runs: where
 * the ranks disagree that is the line to look at. */
static void blame_site(const trii_travel *t)
{
    if (t->site.file != NULL)
        tri_site_set(t->site.file, t->site.line);
}

static tri_status header_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_travel *t = (trii_travel *)op;
    trii_ddp *ddp = t->ddp;

    blame_site(t);
    for (int i = 0; i < t->n; i++)
        t->out[i] = buffers->out[i];
    t->divisor = (double)t->fixed + (ddp->valued_epoch == t->epoch ? ddp->local_valued : 0);
    ddp->local_valued = 0;
    if (t->valued) {
        t->divisor += *(const double *)buffers->in[t->n];
        memmove(buffers->out[t->n], buffers->in[t->n], sizeof(double)); /* which nobody reads */
    }
    t->sums[0] = t->divisor;
    t->sums[1] = (t->vote_stop ? 1 : 0) + (t->unused ? 0x1p32 : 0);
    t->sums[2] = (double)t->count;
    t->state = TRII_TRAVEL_STARTED;
    return trii_ddp_called(
        tri_all_reduce(ddp->group, t->sums, t->sums, 3, TRI_DTYPE_F64, TRI_REDOP_SUM, &t->work));
}

static tri_status header_done(trii_travel *t)
{
    double weight = t->sums[0] > 0 ? t->divisor / t->sums[0] : 0.0;

    for (int i = 0; i < t->n; i++) {
        if (t->out_bytes[i] == sizeof(float))
            *(float *)t->out[i] = (float)weight;
        else
            *(double *)t->out[i] = weight;
    }
    t->ddp->sample_count = (int64_t)t->sums[2];
    t->ddp->stopped = fmod(t->sums[1], 0x1p32) != 0;
    t->state = TRII_TRAVEL_FREE;
    return TRI_OK;
}

static tri_status header_poll(trii_host_op *op)
{
    trii_travel *t = (trii_travel *)op;
    tri_status st;

    /* A few bytes that arrive by themselves: looking after every kernel would cost more. */
    if (t->state == TRII_TRAVEL_STARTED && ++t->n_polls % POLLS_PER_LOOK != 0)
        return TRI_INPROGRESS;
    st = t->state == TRII_TRAVEL_STARTED ? work_poll(&t->work) : TRI_OK;

    return st == TRI_OK && t->state == TRII_TRAVEL_STARTED ? header_done(t) : st;
}

static tri_status header_wait(trii_host_op *op, int64_t for_ns)
{
    trii_travel *t = (trii_travel *)op;
    tri_status st = t->state == TRII_TRAVEL_STARTED ? work_wait(&t->work, for_ns) : TRI_OK;

    return st == TRI_OK && t->state == TRII_TRAVEL_STARTED ? header_done(t) : st;
}

static const trii_host_kind header_kind = {.name = "tri_ddp (numbers of samples)",
                                           .in_place = true,
                                           .start = header_start,
                                           .poll = header_poll,
                                           .wait = header_wait,
                                           .abort = travel_abort,
                                           .release = travel_release,
                                           .compare = travel_compare};

void trii_travel_is_header(trii_travel *t)
{
    t->op.kind = &header_kind;
    t->op.any_layout = true; /* scalars */
}

/* --- counts ----------------------------------------------------------------------------------- */

static tri_status count_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_travel *t = (trii_travel *)op;
    trii_ddp *ddp = t->ddp;

    if (ddp->valued_epoch != t->epoch)
        ddp->local_valued = 0;
    ddp->valued_epoch = t->epoch;
    ddp->local_valued += *(const double *)buffers->in[0];
    memmove(buffers->out[0], buffers->in[0], sizeof(double));
    t->state = TRII_TRAVEL_FREE;
    return TRI_OK;
}

static tri_status count_done(trii_host_op *op)
{
    (void)op;
    return TRI_OK;
}

static tri_status count_wait(trii_host_op *op, int64_t for_ns)
{
    (void)op;
    (void)for_ns;
    return TRI_OK;
}

static const trii_host_kind count_kind = {.name = "tri_ddp (samples of all)",
                                          .in_place = true,
                                          .start = count_start,
                                          .poll = count_done,
                                          .wait = count_wait,
                                          .release = travel_release};

void trii_travel_is_count(trii_travel *t)
{
    t->op.kind = &count_kind;
    t->op.identity |= UINT64_C(0x4000);
    t->op.any_layout = true; /* a scalar */
}

/* --- buckets -------------------------------------------------------------------------------- */

static void *place_of(const trii_ddp_param *param)
{
    return (char *)param->bucket->storage->data + param->offset;
}

/* Gradients that are not in place get there; parameters without one count as zeros. */
static void fill_bucket(trii_travel *t, const trii_host_buffers *buffers)
{
    trii_ddp *ddp = t->ddp;
    int n_copied = 0;

    for (int i = 0; i < t->n; i++) {
        const trii_ddp_param *param;

        t->out[i] = buffers->out[i];
        if (t->item[i] < 0)
            continue;
        param = &ddp->params[t->item[i]];
        t->out_bytes[i] = param->bytes;
        if (buffers->in[i] != place_of(param)) {
            memcpy(place_of(param), buffers->in[i], param->bytes);
            n_copied++;
        }
    }
    if (TRII_UNLIKELY(n_copied > 0))
        TRII_LOG(TRII_LOG_DEBUG, "ddp", "bucket %d: %d of %d gradients were not made in place",
                 t->bucket->index, n_copied, t->n);
    for (int i = 0; i < t->bucket->n_params; i++) {
        const trii_ddp_param *param = &ddp->params[t->bucket->params[i]];

        if (!param->used_here)
            memset(place_of(param), 0, param->bytes);
    }
}

/* Which parameters any rank used: only if some rank left one unused, which all know from the
 * header, which is complete; behind the last bucket, so that it has its place in the order. */
static tri_status send_map(trii_travel *t)
{
    trii_ddp *ddp = t->ddp;

    if (t->header->sums[1] < 0x1p32)
        return TRI_OK;
    for (int i = 0; i < ddp->n_params; i++)
        ddp->map[i] = ddp->params[i].used_here;
    return trii_ddp_called(tri_all_reduce(ddp->group, ddp->map, ddp->map, (size_t)ddp->n_params,
                                          TRI_DTYPE_U8, TRI_REDOP_BOR, &t->map_work));
}

static tri_status bucket_send(trii_travel *t, const trii_host_buffers *buffers, tri_work **work_out)
{
    trii_ddp_bucket *bucket = t->bucket;
    void *data = bucket->storage->data;
    tri_status st;

    blame_site(t);
    fill_bucket(t, buffers);
    t->state = TRII_TRAVEL_STARTED;
    st = trii_ddp_called(tri_all_reduce(t->ddp->group, data, data,
                                        bucket->bytes / tri_dtype_size(bucket->dtype),
                                        bucket->dtype, TRI_REDOP_SUM, work_out));
    return st == TRI_OK && t->last ? send_map(t) : st;
}

static tri_status bucket_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_travel *t = (trii_travel *)op;

    return bucket_send(t, buffers, &t->work);
}

static tri_status bucket_done(trii_travel *t)
{
    for (int i = 0; i < t->n; i++) {
        const trii_ddp_param *param;

        if (t->item[i] < 0)
            continue;
        param = &t->ddp->params[t->item[i]];
        if (t->out[i] != place_of(param))
            memcpy(t->out[i], place_of(param), param->bytes);
    }
    if (t->last && t->pass == t->ddp->open_pass)
        t->ddp->open_step = 0;
    t->state = TRII_TRAVEL_FREE;
    return TRI_OK;
}

static tri_status bucket_poll(trii_host_op *op)
{
    trii_travel *t = (trii_travel *)op;
    tri_status st;

    if (t->state != TRII_TRAVEL_STARTED)
        return TRI_OK;
    st = work_poll(&t->work);
    if (st == TRI_OK)
        st = work_poll(&t->map_work);
    return st == TRI_OK ? bucket_done(t) : st;
}

static tri_status bucket_wait(trii_host_op *op, int64_t for_ns)
{
    trii_travel *t = (trii_travel *)op;
    tri_status st;

    if (t->state != TRII_TRAVEL_STARTED)
        return TRI_OK;
    st = work_wait(&t->work, for_ns);
    if (st == TRI_OK)
        st = work_wait(&t->map_work, for_ns);
    return st == TRI_OK ? bucket_done(t) : st;
}

/* Nothing is left to overlap with: a small one is done without a work handle. */
static tri_status bucket_run(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_travel *t = (trii_travel *)op;
    tri_work *batch = trii_batch_set(NULL); /* without a handle it blocks, whatever it begins */
    tri_status st = bucket_send(t, buffers, t->bucket->bytes <= BLOCKING_BYTES ? NULL : &t->work);

    trii_batch_set(batch);
    return st == TRI_OK ? bucket_wait(op, INT64_MAX) : st;
}

static const trii_host_kind bucket_kind = {.name = "tri_ddp (gradients)",
                                           .in_place = true,
                                           .start = bucket_start,
                                           .poll = bucket_poll,
                                           .wait = bucket_wait,
                                           .run = bucket_run,
                                           .abort = travel_abort,
                                           .release = travel_release,
                                           .compare = travel_compare};

void trii_travel_is_bucket(trii_travel *t)
{
    t->op.kind = &bucket_kind;
    t->op.any_layout = t->ddp->any_layout;
}

/* --- buffers -------------------------------------------------------------------------------- */

/* Rank 0's values into the block, or the block's values to where they belong. */
static void copy_block(trii_travel *t, void *const *operands, bool in)
{
    char *data = t->block->storage->data;

    for (int i = 0; i < t->n; i++) {
        const trii_ddp_buffer *buffer = &t->ddp->buffers[t->item[i]];
        char *place = data + buffer->offset;

        if (operands[i] != place)
            memcpy(in ? place : operands[i], in ? operands[i] : place, buffer->bytes);
    }
}

static tri_status block_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_travel *t = (trii_travel *)op;

    blame_site(t);
    for (int i = 0; i < t->n; i++)
        t->out[i] = buffers->out[i];
    if (t->ddp->rank == 0)
        copy_block(t, buffers->in, true);
    t->state = TRII_TRAVEL_STARTED;
    return trii_ddp_called(tri_broadcast(t->ddp->group, t->block->storage->data, t->block->bytes,
                                         TRI_DTYPE_U8, 0, &t->work));
}

static tri_status block_done(trii_travel *t)
{
    copy_block(t, t->out, false);
    t->state = TRII_TRAVEL_FREE;
    return TRI_OK;
}

static tri_status block_poll(trii_host_op *op)
{
    trii_travel *t = (trii_travel *)op;
    tri_status st = t->state == TRII_TRAVEL_STARTED ? work_poll(&t->work) : TRI_OK;

    return st == TRI_OK && t->state == TRII_TRAVEL_STARTED ? block_done(t) : st;
}

static tri_status block_wait(trii_host_op *op, int64_t for_ns)
{
    trii_travel *t = (trii_travel *)op;
    tri_status st = t->state == TRII_TRAVEL_STARTED ? work_wait(&t->work, for_ns) : TRI_OK;

    return st == TRI_OK && t->state == TRII_TRAVEL_STARTED ? block_done(t) : st;
}

static const trii_host_kind block_kind = {.name = "tri_ddp (buffers)",
                                          .in_place = true,
                                          .start = block_start,
                                          .poll = block_poll,
                                          .wait = block_wait,
                                          .abort = travel_abort,
                                          .release = travel_release,
                                          .compare = travel_compare};

void trii_travel_is_block(trii_travel *t)
{
    t->op.kind = &block_kind;
    t->op.any_layout = false;
}
