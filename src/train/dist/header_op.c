/*
 * header_op.c - what is exchanged before the gradients of a backward pass: each rank's
 * weight, votes to stop, and who has run out of data. Also what replaces it in passes that send
 * nothing.
 */
#include <math.h>
#include <string.h>

#include <trireme/group.h>

#include "base/err.h"
#include "train/dist/unit_collective.h"

#define POLLS_PER_LOOK 16

/* --- the header ----------------------------------------------------------- */

/* What an earlier pass of the step, or for the same update, has said is still said by this one. */
static bool votes_stop(const trii_unit_coll *t)
{
    const trii_unit *unit = t->unit;

    return t->vote_stop || (unit->stopped && (t->held || unit->stopped_in == t->generation));
}

/* What a loss divides by, as the step has counted it. */
static double counted(double divisor)
{
    if (divisor == 0)
        trii_nan_check_without_rows();
    return divisor;
}

static tri_status header_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_unit_coll *t = (trii_unit_coll *)op;
    trii_unit *unit = t->unit;

    trii_unit_coll_blame(t);
    for (int i = 0; i < t->n; i++)
        t->out[i] = buffers->out[i];
    t->divisor = (double)t->fixed;
    if (t->use != TRII_HEADER_CHECK) {
        t->divisor += unit->tally.valued_epoch == t->epoch ? unit->tally.local_valued : 0;
        unit->tally.local_valued = 0;
    }
    if (t->valued) {
        t->divisor += counted(*(const double *)buffers->in[t->n]);
        memmove(buffers->out[t->n], buffers->in[t->n], sizeof(double)); /* which nobody reads */
    }
    if (t->divisor == 0 && t->use == TRII_HEADER_AVERAGE)
        trii_nan_check_without_rows();
    t->sums[0] = t->divisor;
    t->sums[1] = (votes_stop(t) ? 1 : 0) + (t->throws ? 0x1p16 : 0) + (t->unused ? 0x1p32 : 0);
    t->sums[2] = (double)t->count;
    for (int w = 0; w < TRII_JOINED_WORDS(unit->size); w++)
        t->sums[3 + w] = 0;
    if (t->joined)
        t->sums[3 + unit->rank / TRII_JOINED_BITS] =
            (double)(UINT64_C(1) << unit->rank % TRII_JOINED_BITS);
    t->state = TRII_UNIT_COLL_STARTED;
    unit->volume.header += (int64_t)trii_unit_header_count(unit);
    return trii_unit_passed(unit, tri_all_reduce(unit->group, t->sums, t->sums,
                                                 trii_unit_header_count(unit), TRI_DTYPE_F64,
                                                 TRI_REDOP_SUM, &t->work));
}

static bool has_joined(const trii_unit_coll *t, int rank)
{
    return (uint64_t)t->sums[3 + rank / TRII_JOINED_BITS] >> rank % TRII_JOINED_BITS & 1;
}

static tri_status fail_early(const trii_unit_coll *t)
{
    char ranks[TRII_ERR_BYTES / 4] = "";
    size_t used = 0;

    for (int r = 0; r < t->unit->size && used < sizeof(ranks); r++)
        if (has_joined(t, r))
            used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, "%s%d",
                                     used > 0 ? ", " : "", r);
    return TRII_FAIL(TRI_ERR_MISMATCH,
                     "%s: no data left on %s %s, and others have some "
                     "(throw_on_early_termination of tri_ddp_join)",
                     t->unit->call, t->unit->n_joined > 1 ? "ranks" : "rank", ranks);
}

/* Some rank has no data any more. */
static TRII_NOINLINE tri_status count_joined(const trii_unit_coll *t, bool throws)
{
    trii_unit *unit = t->unit;
    int last = 0; /* that has data */

    for (int r = 0; r < unit->size; r++) {
        if (has_joined(t, r))
            unit->n_joined++;
        else
            last = r;
    }
    if (unit->n_joined < unit->size)
        unit->source = has_joined(t, 0) ? last : 0;
    return throws && unit->n_joined < unit->size ? fail_early(t) : TRI_OK;
}

static TRII_NOINLINE tri_status refuse_uneven(const trii_unit_coll *t)
{
    return TRII_FAIL(
        TRI_ERR_INVALID_ARG,
        "tri_backward at %s:%d reaches other models or tensors than this one of %s, and "
        "what ranks share (SyncBatchNorm, tri_dist_*), whose gradients are sums over ranks: that "
        "goes with batches of one size, and this rank's loss is the mean of %g, of %g of all %d "
        "ranks. Call tri_backward for one model at a time, and tri_gradients for inputs",
        t->site.file != NULL ? t->site.file : "?", t->site.line, t->unit->call, t->divisor,
        t->sums[0], t->unit->size);
}

/* What the ranks sent besides their weights. */
static tri_status take_news(const trii_unit_coll *t)
{
    trii_unit *unit = t->unit;
    uint64_t ranks = (uint64_t)t->sums[1];
    double joined = 0;

    unit->n_joined = 0;
    for (int w = 0; w < TRII_JOINED_WORDS(unit->size); w++)
        joined += t->sums[3 + w];
    unit->tally.sample_count = (int64_t)t->sums[2];
    unit->stopped = (ranks & 0xffff) != 0;
    unit->stopped_in = t->generation;
    return TRII_UNLIKELY(joined > 0) ? count_joined(t, (ranks >> 16 & 0xffff) != 0) : TRI_OK;
}

static tri_status header_done(trii_unit_coll *t)
{
    double weight = t->sums[0] > 0 ? t->divisor / t->sums[0] : 1.0 / t->unit->size;
    tri_status status = t->use == TRII_HEADER_AVERAGE ? take_news(t) : TRI_OK;

    if (status == TRI_OK && TRII_UNLIKELY(t->even) &&
        fabs(t->divisor * t->unit->size - t->sums[0]) > 1e-9 * t->sums[0])
        status = refuse_uneven(t);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < t->n; i++) {
        if (t->out_bytes[i] == sizeof(float))
            *(float *)t->out[i] = (float)weight;
        else
            *(double *)t->out[i] = weight;
    }
    t->state = TRII_UNIT_COLL_FREE;
    return TRI_OK;
}

static tri_status header_go_on(trii_unit_coll *t, int64_t for_ns)
{
    tri_status status = t->state == TRII_UNIT_COLL_STARTED
                            ? trii_unit_coll_work(t->unit, &t->work, for_ns)
                            : TRI_OK;

    return status == TRI_OK && t->state == TRII_UNIT_COLL_STARTED ? header_done(t) : status;
}

static tri_status header_poll(trii_host_op *op)
{
    trii_unit_coll *t = (trii_unit_coll *)op;

    /* A few bytes that arrive by themselves: looking after every kernel would cost more. */
    if (t->state == TRII_UNIT_COLL_STARTED && ++t->n_polls % POLLS_PER_LOOK != 0)
        return TRI_INPROGRESS;
    return header_go_on(t, 0);
}

static tri_status header_wait(trii_host_op *op, int64_t for_ns)
{
    return header_go_on((trii_unit_coll *)op, for_ns);
}

static const trii_host_kind header_kind = {.name = "numbers of samples",
                                           .in_place = true,
                                           .start = header_start,
                                           .poll = header_poll,
                                           .wait = header_wait,
                                           .abort = trii_unit_coll_abort,
                                           .release = trii_unit_coll_release,
                                           .compare = trii_unit_coll_compare};

void trii_unit_coll_is_header(trii_unit_coll *t)
{
    t->op.kind = &header_kind;
    t->op.any_layout = true; /* scalars */
}

/* --- counts --------------------------------------------------------------- */

static tri_status count_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_unit_coll *t = (trii_unit_coll *)op;
    trii_unit *unit = t->unit;

    if (unit->tally.valued_epoch != t->epoch)
        unit->tally.local_valued = 0;
    unit->tally.valued_epoch = t->epoch;
    unit->tally.local_valued += counted(*(const double *)buffers->in[0]);
    memmove(buffers->out[0], buffers->in[0], sizeof(double));
    t->state = TRII_UNIT_COLL_FREE;
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

static const trii_host_kind count_kind = {.name = "samples of all",
                                          .in_place = true,
                                          .start = count_start,
                                          .poll = count_done,
                                          .wait = count_wait,
                                          .release = trii_unit_coll_release};

void trii_unit_coll_is_count(trii_unit_coll *t)
{
    t->op.kind = &count_kind;
    t->op.identity |= UINT64_C(0x4000);
    t->op.any_layout = true; /* a scalar */
}
