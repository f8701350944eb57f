/*
 * host_run.c - communication while a plan runs; called by run.c and queue_run.c on the thread that
 * runs the plan.
 *
 * An operation starts when its entry is reached, its operands are complete and the one before it in
 * its group has started. It is polled between kernels, and waited for. Waiting for one operation
 * also progresses all others: a peer may need one of those before it does its part of this one.
 */
#include <string.h>

#include "base/err.h"
#include "train/plan/queue_progress.h"
#include "train/plan/plan.h"

/* How long a wait blocks in one operation while operations of other groups are under way: short at
 * first, then long enough for sleeping to pay. */
#define SLICE_NS 20000
#define MAX_SLICE_NS 500000
/* The same while other queues may fail. */
#define QUEUES_SLICE_NS 10000000

void trii_hosts_begin(trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    for (int32_t h = 0; h < plan->n_hosts; h++) {
        trii_plan_host *host = &plan->hosts[h];

        host->op = step->nodes[segment->first_node + host->node].host;
        host->state = TRII_HOST_IDLE;
    }
}

/* --- one operation -------------------------------------------------------- */

static TRII_NOINLINE tri_status failed(trii_plan_host *host, const trii_step *step,
                                       const trii_segment *segment, tri_status status)
{
    host->state = TRII_HOST_DONE;
    return trii_node_failed(step, segment->first_node + host->node, status);
}

static tri_status finish_op(trii_plan_host *host, const trii_step *step,
                            const trii_segment *segment, tri_status status)
{
    if (TRII_UNLIKELY(status < 0))
        return failed(host, step, segment, status);
    host->state = status == TRI_INPROGRESS ? TRII_HOST_RUNNING : TRII_HOST_DONE;
    return TRI_OK;
}

/* The one before it in its group has started, or is complete if that one must run alone. */
static bool is_next(const trii_plan *plan, const trii_plan_host *host)
{
    const trii_plan_host *before;

    if (host->before < 0)
        return true;
    before = &plan->hosts[host->before];
    return before->state >=
           (TRII_UNLIKELY(before->op->holds_back) ? TRII_HOST_DONE : TRII_HOST_RUNNING);
}

static bool may_start(const trii_plan *plan, const trii_plan_host *host)
{
    if (!is_next(plan, host))
        return false;
    for (int32_t k = 0; k < host->n_needs; k++) {
        if (plan->hosts[host->needs[k]].state != TRII_HOST_DONE)
            return false;
    }
    return TRII_LIKELY(plan->n_queues == 1) || trii_queues_passed(plan, host->start);
}

static tri_status start(trii_plan_host *host, const trii_step *step, const trii_segment *segment,
                        bool alone)
{
    const trii_host_kind *kind = host->op->kind;
    tri_status status = trii_host_check(step, segment->first_node + host->node);

    if (status == TRI_OK && alone && kind->run != NULL)
        return finish_op(host, step, segment, kind->run(host->op, &host->buffers));
    if (status == TRI_OK)
        status = kind->start(host->op, &host->buffers);
    return finish_op(host, step, segment, status == TRI_OK ? TRI_INPROGRESS : status);
}

/* --- all of them ---------------------------------------------------------- */

tri_status trii_host_arrives(trii_plan *plan, int32_t h, const trii_step *step,
                             const trii_segment *segment, int32_t *n_running)
{
    trii_plan_host *host = &plan->hosts[h];
    bool alone = host->at_once && *n_running == 0;

    host->state = TRII_HOST_ARMED;
    ++*n_running;
    return may_start(plan, host) ? start(host, step, segment, alone) : TRI_OK;
}

tri_status trii_hosts_poll(trii_plan *plan, const trii_step *step, const trii_segment *segment,
                           int32_t *n_running)
{
    int32_t running = 0;

    /* operations that one waits for stand before it */
    for (int32_t h = 0; h < plan->n_hosts; h++) {
        trii_plan_host *host = &plan->hosts[h];
        tri_status status = TRI_OK;

        if (host->state == TRII_HOST_ARMED && may_start(plan, host))
            status = start(host, step, segment, false);
        else if (host->state == TRII_HOST_RUNNING)
            status = finish_op(host, step, segment, host->op->kind->poll(host->op));
        if (TRII_UNLIKELY(status != TRI_OK))
            return status;
        running += host->state == TRII_HOST_ARMED || host->state == TRII_HOST_RUNNING;
    }
    *n_running = running;
    return TRI_OK;
}

/* The operation that keeps this one from completing: itself, or the first operation under way that
 * must end before it can start; NULL: there is none. */
static trii_plan_host *obstacle(trii_plan *plan, trii_plan_host *host)
{
    if (host->state == TRII_HOST_RUNNING)
        return host;
    for (int32_t h = 0; h < plan->n_hosts; h++) {
        if (plan->hosts[h].state == TRII_HOST_RUNNING)
            return &plan->hosts[h];
    }
    return NULL;
}

/* Nothing is under way: the first that has not started lacks only what other queues make. */
static tri_status wait_for_queues(const trii_plan *plan)
{
    int32_t h = 0;

    while (h < plan->n_hosts && plan->hosts[h].state != TRII_HOST_ARMED)
        h++;
    if (plan->n_queues == 1 || h == plan->n_hosts)
        return TRII_FAIL(TRI_ERR_INTERNAL, "plan: communication that nothing will start");
    return trii_queues_wait(plan, plan->hosts[h].start);
}

/* Whether waiting for one progresses the other. */
static bool moves(const trii_host_op *op, const trii_host_op *other)
{
    return op->kind->wait_any ? other->kind->wait_any
                              : other->group == op->group && !other->apart && !op->apart;
}

/* Whether waiting for it progresses everything that is under way: it all belongs to its group, or
 * its wait ends when any of them has. */
static bool moves_all(const trii_plan *plan, const trii_plan_host *host)
{
    for (int32_t h = 0; h < plan->n_hosts; h++) {
        const trii_plan_host *other = &plan->hosts[h];

        if ((other->state == TRII_HOST_ARMED && !host->op->kind->wait_any) ||
            (other->state == TRII_HOST_RUNNING && other != host && !moves(host->op, other->op)))
            return false;
    }
    return true;
}

/* What was waited for before may be an operand of others: they start now, so that their owners work
 * meanwhile. */
static tri_status start_armed(trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    tri_status status = TRI_OK;

    for (int32_t h = 0; h < plan->n_hosts && status == TRI_OK; h++) {
        trii_plan_host *host = &plan->hosts[h];

        if (host->state == TRII_HOST_ARMED && may_start(plan, host))
            status = start(host, step, segment, false);
    }
    return status;
}

tri_status trii_host_wait(trii_plan *plan, int32_t h, const trii_step *step,
                          const trii_segment *segment, int32_t *n_running)
{
    trii_plan_host *host = &plan->hosts[h];
    int64_t slice_ns = SLICE_NS;
    tri_status status = TRI_OK;

    if (host->state != TRII_HOST_DONE)
        status = start_armed(plan, step, segment);
    while (host->state != TRII_HOST_DONE && status == TRI_OK) {
        trii_plan_host *first = obstacle(plan, host);

        if (first == NULL) { /* the value that it comes after is complete: it may start now */
            status = trii_hosts_poll(plan, step, segment, n_running);
            if (status == TRI_OK && host->state == TRII_HOST_ARMED && obstacle(plan, host) == NULL)
                status = wait_for_queues(plan);
        } else {
            bool all = (first == host || first->op->kind->wait_any) && moves_all(plan, first);
            int64_t alone_ns = plan->n_queues == 1 ? INT64_MAX : QUEUES_SLICE_NS;

            status = finish_op(first, step, segment,
                               first->op->kind->wait(first->op, all ? alone_ns : slice_ns));
            slice_ns = slice_ns * 2 < MAX_SLICE_NS ? slice_ns * 2 : MAX_SLICE_NS;
        }
        if (status == TRI_OK && host->state != TRII_HOST_DONE)
            status = trii_hosts_poll(plan, step, segment, n_running);
        if (status == TRI_OK && host->state != TRII_HOST_DONE && plan->n_queues > 1)
            status = trii_queues_check(plan);
    }
    return status;
}

/* The buffers are ours, so nothing may still write to them when we return. Peers may wait for
 * operations that will never start here; without an abort they would wait until the deadline, and
 * so would we. */
void trii_hosts_stop(trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    char line[TRII_ERR_BYTES];

    strncpy(line, tri_last_error(), sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    trii_hosts_abort(step, segment, line);
    for (int32_t h = 0; h < plan->n_hosts; h++) {
        trii_plan_host *host = &plan->hosts[h];

        if (host->state == TRII_HOST_RUNNING) {
            tri_status dropped = host->op->kind->wait(host->op, INT64_MAX);

            (void)dropped; /* the first failure is the cause */
        }
        host->state = TRII_HOST_DONE;
    }
    trii_err_set("%s", line);
}
