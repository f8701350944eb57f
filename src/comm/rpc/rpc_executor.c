/*
 * rpc_executor.c - the threads that run handlers which may block. They start when a request finds
 * none idle; a handler that waits lends its place, so that calls which come back are run.
 *
 * One that waits for something else than a call says nothing: while a request has had no place for
 * a millisecond, the timer asks the system which handlers sleep, and one that sleeps twice in a row
 * has lent its place, too. Those that compute keep theirs, however long they take.
 */

#include "base/err.h"
#include "base/log.h"
#include "os/proc.h"
#include "comm/rpc/rpc_internal.h"

#define LOOK_NS TRII_NS_PER_MS
#define LOOK_MOST_NS (64 * LOOK_NS)

/* Every thread waits in a handler, and what it waits for may be in the queue. */
static void name_waiting(const tri_rpc *rpc, char *line, size_t size)
{
    size_t used = (size_t)snprintf(line, size,
                                   "%d handlers wait (max_threads): ", rpc->n_lent + rpc->n_asleep);
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

/* When it is looked at why the first of the queue has no place. */
static int64_t next_look_ns(const tri_rpc *rpc)
{
    int64_t at_ns = rpc->queue->came_ns + LOOK_NS;

    return at_ns > rpc->look_ns ? at_ns : rpc->look_ns;
}

static void arm_look(tri_rpc *rpc)
{
    rpc_arm(rpc, next_look_ns(rpc));
}

static bool has_place(const tri_rpc *rpc)
{
    return rpc->n_active - rpc->n_asleep < rpc->options.threads;
}

/* Somebody for the first of the queue. */
static void staff(tri_rpc *rpc)
{
    trii_thread thread;
    char line[360] = "";
    tri_status status = TRI_ERR_STATE;

    if (rpc->queue == NULL || rpc->stop || rpc->empties_queue)
        return;
    if (!has_place(rpc)) {
        arm_look(rpc);
        return;
    }
    if (rpc->n_active - rpc->n_asleep + rpc->n_coming >= rpc->options.threads)
        return; /* the thread that comes looks for the next one */
    if (rpc->n_idle > 0) {
        rpc->n_idle--;
        rpc->n_coming++;
        trii_cond_signal(&rpc->work);
        return;
    }
    if (rpc->n_threads < rpc->options.max_threads) {
        rpc_use(rpc);
        rpc->n_threads++;
        status = trii_thread_start(&thread, "tri-rpc", executor_main, rpc);
        if (status == TRI_OK) {
            rpc->n_coming++;
            trii_thread_detach(&thread);
            return;
        }
        snprintf(line, sizeof(line), "%.300s", tri_last_error());
        TRII_LOG(TRII_LOG_WARN, "rpc", "%s", line);
        rpc->n_threads--;
        rpc_drop_use(rpc);
    }
    if (rpc->n_lent < rpc->n_threads) {
        arm_look(rpc);
        return;
    }
    if (line[0] == '\0')
        name_waiting(rpc, line, sizeof(line));
    fail_queue(rpc, status, line);
}

/* A thread is here: the one that was called, or one that woke by itself before it. Then the one
 * that was called counts as idle when it comes. */
static void comes(tri_rpc *rpc)
{
    if (rpc->n_coming > 0)
        rpc->n_coming--;
    else
        rpc->n_idle--;
}

/* It does not sleep, or has something to show for it. */
static void is_awake(tri_rpc *rpc, rpc_place *place)
{
    rpc->n_asleep -= place->asleep;
    place->asleep = place->dozes = false;
}

static void executor_main(void *arg)
{
    tri_rpc *rpc = arg;
    rpc_place place = {.thread = (int)trii_thread_id()}, **at = &rpc->places;

    rpc_lock(rpc);
    comes(rpc);
    place.next = rpc->places;
    rpc->places = &place;
    while (!rpc->stop) {
        tri_rpc_request *request = rpc->queue;

        if (request == NULL || !has_place(rpc)) {
            staff(rpc); /* no more than that it is looked why */
            rpc->n_idle++;
            (void)rpc_sleep(rpc, &rpc->work, TRII_NO_DEADLINE);
            comes(rpc);
            continue;
        }
        rpc->queue = request->next;
        if (rpc->queue == NULL)
            rpc->queue_end = &rpc->queue;
        request->next = NULL;
        request->queued = false;
        rpc->n_active++;
        place.request = request;
        staff(rpc); /* this thread may have been the idle one for several */
        rpc->up->run(request, false, &place);
        place.request = NULL;
        is_awake(rpc, &place);
        rpc->n_active--;
    }
    while (*at != &place)
        at = &(*at)->next;
    *at = place.next;
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

void rpc_executor_lend(tri_rpc *rpc, rpc_place *place)
{
    is_awake(rpc, place);
    place->lent = true;
    rpc->n_active--;
    rpc->n_lent++;
    staff(rpc);
}

void rpc_executor_return(tri_rpc *rpc, rpc_place *place)
{
    place->lent = false;
    rpc->n_active++;
    rpc->n_lent--;
}

static bool is_looked_at(const rpc_place *place)
{
    return place->request != NULL && !place->lent && !place->asleep;
}

/* True: its thread sleeps, and has lent its place from now on if it did the last time. The system
 * is asked without the lock, for which a handler may wait that would seem asleep. */
static bool sleeps(tri_rpc *rpc, rpc_place *place)
{
    int64_t started_ns = place->request->started_ns;
    int thread = place->thread;
    char state;

    trii_mutex_unlock(&rpc->lock);
    state = trii_proc_state(thread);
    trii_mutex_lock(&rpc->lock);
    if (rpc->stop || !is_looked_at(place) || place->request->started_ns != started_ns)
        return false; /* it may be gone, or runs another one, or waits for a call */
    if (state != 'S' && state != 'D') {
        place->dozes = false;
        return false;
    }
    place->asleep = place->dozes;
    place->dozes = true;
    rpc->n_asleep += place->asleep;
    return true;
}

int64_t rpc_executor_look(tri_rpc *rpc, int64_t now_ns)
{
    int64_t youngest_ns = 8 * LOOK_MOST_NS, at_ns;

    if (rpc->queue == NULL)
        return TRII_NO_DEADLINE;
    at_ns = next_look_ns(rpc);
    if (now_ns < at_ns)
        return at_ns;
    rpc->look_ns = now_ns + LOOK_NS; /* for who asks meanwhile */
    for (rpc_place *p = rpc->places; p != NULL; p = p->next) {
        int64_t age_ns;

        if (!is_looked_at(p))
            continue;
        age_ns = now_ns - p->request->started_ns;
        if (age_ns >= LOOK_NS && sleeps(rpc, p))
            age_ns = 0; /* it is looked at again soon, or another one has its place */
        youngest_ns = age_ns < youngest_ns ? age_ns : youngest_ns;
        if (rpc->stop)
            return TRII_NO_DEADLINE; /* else places stay where they are */
    }
    if (youngest_ns > 8 * LOOK_NS) /* all compute for long */
        rpc->look_ns = now_ns + youngest_ns / 8;
    staff(rpc);
    return rpc->look_ns;
}

bool rpc_executor_is_stuck(const tri_rpc *rpc, char *line, size_t size)
{
    if (rpc->n_threads < rpc->options.max_threads || rpc->n_lent + rpc->n_asleep < rpc->n_threads)
        return false;
    name_waiting(rpc, line, size);
    return true;
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
