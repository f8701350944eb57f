/*
 * rpc_base.c - what all files of this room need of a worker: its lock, what is put aside for the
 * time without it, threads that wait, names.
 */
/* build: hot */
#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/forked.h"
#include "os/futex.h"
#include "comm/rpc/rpc_internal.h"

_Thread_local rpc_run *rpc_running;
_Atomic(tri_rpc *) rpc_own;

/* --- small things --------------------------------------------------------- */

void rpc_lock(tri_rpc *rpc)
{
    trii_mutex_lock(&rpc->lock);
}

void rpc_unuse(tri_rpc *rpc)
{
    if (atomic_fetch_sub(&rpc->users, 1) == 1)
        rpc->up->free(rpc);
}

void rpc_use(tri_rpc *rpc)
{
    (void)atomic_fetch_add_explicit(&rpc->users, 1, memory_order_relaxed);
}

void rpc_changed(tri_rpc *rpc)
{
    if (rpc->n_changed_waiters > 0)
        trii_cond_broadcast(&rpc->changed);
}

RPC_COLD void rpc_peers_changed(tri_rpc *rpc)
{
    rpc_changed(rpc);
    if (rpc->joiner != NULL)
        rpc_kick(rpc->joiner);
}

static bool has_put_aside(const tri_rpc *rpc)
{
    return rpc->after_calls != NULL || rpc->after_objects != NULL ||
           (rpc->after_events != NULL && !rpc->tells);
}

RPC_COLD bool rpc_sleep(tri_rpc *rpc, trii_cond *cond, int64_t deadline_ns)
{
    bool in_time = true;

    if (has_put_aside(rpc)) {
        rpc_unlock(rpc);
        rpc_lock(rpc);
        return true;
    }
    rpc->n_changed_waiters++;
    in_time = trii_cond_wait_until(cond, &rpc->lock, deadline_ns);
    rpc->n_changed_waiters--;
    return in_time;
}

RPC_COLD tri_status rpc_check_name(const char *name, const char *call)
{
    size_t n = name != NULL ? strnlen(name, RPC_NAME) : 0;
    bool right = n > 0 && n < RPC_NAME;

    for (size_t i = 0; i < n && right; i++)
        right = isalnum((unsigned char)name[i]) || strchr("-_:.", name[i]) != NULL;
    if (right)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s: \"%.40s\" is not a name: 1 to %d letters, digits and -_:.", call,
                     name != NULL ? name : "(NULL)", TRI_RPC_MAX_NAME);
}

/* --- what the program is told --------------------------------------------- */

typedef struct rpc_told {
    struct rpc_told *next;
    tri_rpc_event_kind kind;
    char worker[RPC_NAME], text[RPC_TEXT];
} rpc_told;

RPC_COLD void rpc_tell(tri_rpc *rpc, tri_rpc_event_kind kind, const char *worker, const char *text)
{
    rpc_told **at = &rpc->after_events, *told;

    if (rpc->options.event == NULL || rpc->state == RPC_STATE_OFF)
        return;
    told = trii_alloc(1, sizeof(*told), "event");
    if (told == NULL) {
        TRII_LOG(TRII_LOG_WARN, "rpc", "an event is not told, no memory: %s", text);
        return;
    }
    told->kind = kind;
    snprintf(told->worker, sizeof(told->worker), "%s", worker);
    snprintf(told->text, sizeof(told->text), "%s", text);
    while (*at != NULL)
        at = &(*at)->next;
    *at = told;
}

RPC_COLD static void run_put_aside(tri_rpc *rpc)
{
    rpc_run run = {rpc_running, rpc, NULL, true, NULL};
    tri_rpc_call *calls = rpc->after_calls, *call;
    rpc_object *objects = rpc->after_objects, *object;
    rpc_told *events = NULL, *told;
    bool tells = !rpc->tells && rpc->after_events != NULL; /* one thread does, in their order */

    rpc->after_calls = NULL;
    rpc->after_calls_end = &rpc->after_calls;
    rpc->after_objects = NULL;
    if (tells) {
        events = rpc->after_events;
        rpc->after_events = NULL;
        rpc->tells = true;
    }
    trii_mutex_unlock(&rpc->lock);
    rpc_running = &run;
    while ((told = events) != NULL) {
        const tri_rpc_event event = {
            .kind = told->kind, .worker = told->worker, .text = told->text};

        events = told->next;
        rpc->options.event(rpc, &event, rpc->options.arg);
        trii_free(told);
    }
    for (call = calls; call != NULL; call = call->after)
        call->done(call, call->arg);
    while ((object = objects) != NULL) {
        objects = object->after;
        if (object->type->release != NULL)
            object->type->release(object->object);
        trii_free(object->name);
        trii_free(object);
    }
    rpc_running = run.outer;
    trii_mutex_lock(&rpc->lock);
    if (tells) {
        rpc->tells = false;
        rpc_changed(rpc);
    }
    while ((call = calls) != NULL) {
        calls = call->after;
        call->after = NULL;
        if (!call->handle && call->status < 0)
            call->read = true; /* by its done */
        rpc->up->call_unuse(call);
    }
}

void rpc_unlock(tri_rpc *rpc)
{
    while (has_put_aside(rpc))
        run_put_aside(rpc);
    trii_mutex_unlock(&rpc->lock);
}

RPC_COLD tri_status rpc_check_on(const tri_rpc *rpc)
{
    return rpc->state != RPC_STATE_OFF
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_ABORTED, "worker %s has left: %s", rpc->name, rpc->why);
}

/* Locked; unlocks. A thread that waits for them in tri_rpc_destroy finds nothing in use then. */
RPC_COLD void rpc_thread_ends(tri_rpc *rpc, int *count)
{
    bool last;

    while (has_put_aside(rpc))
        run_put_aside(rpc);
    --*count;
    rpc_changed(rpc);
    last = atomic_load(&rpc->users) == 1;
    if (!last)
        rpc_drop_use(rpc);
    trii_mutex_unlock(&rpc->lock);
    if (last)
        rpc_unuse(rpc);
}

/* --- waking --------------------------------------------------------------- */

void rpc_kick(rpc_waiter *waiter)
{
    int was = atomic_exchange(&waiter->kicked, 1);

    if (was == 2)
        trii_futex_wake_all(&waiter->kicked);
    else if (was == 3)
        trii_wakeup_signal(waiter->peer->poke_fd);
    if (waiter->peer != NULL && waiter->peer->in != NULL &&
        atomic_load(&waiter->peer->in->sleep) == RPC_BY_FUTEX &&
        atomic_exchange(&waiter->peer->in->sleep, RPC_LOOKS) == RPC_BY_FUTEX)
        trii_futex_wake_all(&waiter->peer->in->sleep);
}

RPC_COLD void rpc_kick_readers(const rpc_peer *peer)
{
    for (rpc_waiter *w = peer->rpc->waiters; w != NULL; w = w->next) {
        if (w->peer == peer)
            rpc_kick(w);
    }
}

void rpc_rouse(rpc_waiter *waiter)
{
    int asleep = 2;

    if (atomic_compare_exchange_strong(&waiter->kicked, &asleep, 0))
        trii_futex_wake_all(&waiter->kicked);
}

void rpc_arm(tri_rpc *rpc, int64_t at_ns)
{
    int64_t there = atomic_load(&rpc->timer_ns);

    while (at_ns < there) {
        if (atomic_compare_exchange_weak(&rpc->timer_ns, &there, at_ns)) {
            trii_wakeup_signal(rpc->kick_fd);
            return;
        }
    }
}

/* --- whose it is ---------------------------------------------------------- */

bool rpc_is_parents(const tri_rpc *rpc)
{
    return rpc->fork_level != atomic_load_explicit(&trii_fork_level, memory_order_relaxed);
}

tri_status rpc_check_process(const tri_rpc *rpc, const char *call)
{
    if (TRII_LIKELY(!rpc_is_parents(rpc)))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_STATE, "%s: worker %s belongs to the process that forked this one",
                     call, rpc->name);
}

RPC_COLD tri_status rpc_resolve(tri_rpc **rpc_io, const char *call)
{
    if (*rpc_io == NULL && rpc_running != NULL) /* others call before tri_rpc_init has returned */
        *rpc_io = rpc_running->rpc;
    if (*rpc_io == NULL)
        *rpc_io = atomic_load(&rpc_own);
    if (*rpc_io == NULL)
        return TRII_FAIL(TRI_ERR_STATE, "%s: this process is not a worker (tri_rpc_init)", call);
    return rpc_check_process(*rpc_io, call);
}
