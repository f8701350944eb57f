/*
 * rpc_executor.c - the threads that run handlers which may block. They start when a request finds
 * none idle; a handler that waits lends its place, so that calls which come back are run.
 */

#include "base/err.h"
#include "base/log.h"
#include "rpc/rpc_internal.h"

/* Every thread waits in a handler, and what it waits for may be in the queue. */
static void name_waiting(const tri_rpc *rpc, char *line, size_t size)
{
    size_t used = (size_t)snprintf(line, size, "%d handlers wait (max_threads): ", rpc->n_lent);
    bool first = true;

    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next) {
        for (const tri_rpc_request *r = p->requests; r != NULL && used < size - 80;
             r = r->of_peer) {
            if (r->running)
                used += (size_t)snprintf(line + used, size - used, "%s%.40s <- %.30s",
                                         first ? "" : ", ", r->function->name, p->name);
            first = first && !r->running;
        }
    }
}

static void fail_queue(tri_rpc *rpc, tri_status status, const char *line)
{
    rpc->empties_queue = true; /* the next of a serial object comes in meanwhile */
    while (rpc->queue != NULL) {
        tri_rpc_request *request = rpc->queue;

        rpc->queue = request->next;
        if (rpc->queue == NULL)
            rpc->queue_end = &rpc->queue;
        request->next = NULL;
        request->queued = false;
        rpc->up->fail(request, status, line);
    }
    rpc->empties_queue = false;
}

static void executor_main(void *arg);

/* Somebody for the first of the queue. */
static void staff(tri_rpc *rpc)
{
    trii_thread thread;
    char line[360] = "";
    tri_status status = TRI_ERR_STATE;

    if (rpc->queue == NULL || rpc->n_active >= rpc->options.threads || rpc->stop ||
        rpc->empties_queue)
        return;
    if (rpc->n_idle > 0) {
        trii_cond_signal(&rpc->work);
        return;
    }
    if (rpc->n_threads < rpc->options.max_threads) {
        rpc_use(rpc);
        rpc->n_threads++;
        status = trii_thread_start(&thread, "tri-rpc", executor_main, rpc);
        if (status == TRI_OK) {
            trii_thread_detach(&thread);
            return;
        }
        snprintf(line, sizeof(line), "%.300s", tri_last_error());
        TRII_LOG(TRII_LOG_WARN, "rpc", "%s", line);
        rpc->n_threads--;
        rpc_drop_use(rpc);
    }
    if (rpc->n_lent < rpc->n_threads)
        return;
    if (line[0] == '\0')
        name_waiting(rpc, line, sizeof(line));
    fail_queue(rpc, status, line);
}

static void executor_main(void *arg)
{
    tri_rpc *rpc = arg;

    rpc_lock(rpc);
    while (!rpc->stop) {
        tri_rpc_request *request = rpc->queue;

        if (request == NULL || rpc->n_active >= rpc->options.threads) {
            rpc->n_idle++;
            (void)rpc_sleep(rpc, &rpc->work, TRII_NO_DEADLINE);
            rpc->n_idle--;
            continue;
        }
        rpc->queue = request->next;
        if (rpc->queue == NULL)
            rpc->queue_end = &rpc->queue;
        request->next = NULL;
        request->queued = false;
        rpc->n_active++;
        staff(rpc); /* this thread may have been the idle one for several */
        rpc->up->run(request, false, true);
        rpc->n_active--;
    }
    rpc_thread_ends(rpc, &rpc->n_threads);
}

void rpc_execute(tri_rpc_request *request)
{
    tri_rpc *rpc = request->rpc;

    request->queued = true;
    request->next = NULL;
    *rpc->queue_end = request;
    rpc->queue_end = &request->next;
    if (rpc->stop && !rpc->empties_queue)
        fail_queue(rpc, TRI_ERR_ABORTED, "the worker has left");
    else
        staff(rpc);
}

void rpc_executor_stop(tri_rpc *rpc)
{
    rpc->stop = true;
    trii_cond_broadcast(&rpc->work);
    if (!rpc->empties_queue)
        fail_queue(rpc, TRI_ERR_ABORTED, "the worker has left");
}

void rpc_executor_lend(tri_rpc *rpc)
{
    rpc->n_active--;
    rpc->n_lent++;
    staff(rpc);
}

void rpc_executor_return(tri_rpc *rpc)
{
    rpc->n_active++;
    rpc->n_lent--;
}

bool rpc_executor_remove(tri_rpc_request *request)
{
    tri_rpc *rpc = request->rpc;
    tri_rpc_request **at = &rpc->queue;

    while (*at != NULL && *at != request)
        at = &(*at)->next;
    if (*at == NULL)
        return false;
    *at = request->next;
    if (*at == NULL)
        rpc->queue_end = at;
    request->next = NULL;
    request->queued = false;
    return true;
}
