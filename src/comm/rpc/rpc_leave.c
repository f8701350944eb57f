/*
 * rpc_leave.c - tri_rpc_join, in which a worker serves until nobody needs it, and tri_rpc_leave.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"

#define BYE_MS 2000 /* for the others to take it */

/* --- the end -------------------------------------------------------------- */

void rpc_end_calls(tri_rpc *rpc, const char *why)
{
    for (int i = 0; i < rpc->n_calls; i++) {
        tri_rpc_call *call = rpc->calls[i];

        if (call->users > 0 && call->state != RPC_CALL_NEW)
            rpc_call_end(call, TRI_ERR_ABORTED, "worker %s has left: %s", rpc->name, why);
    }
}

void rpc_end_all(tri_rpc *rpc, const char *why)
{
    rpc_peer *p;

    if (rpc->state == RPC_STATE_OFF)
        return;
    rpc->state = RPC_STATE_OFF;
    snprintf(rpc->why, sizeof(rpc->why), "%s", why);
    rpc_end_calls(rpc, why);
    do {
        p = rpc->peers;
        while (p != NULL && p->state == RPC_PEER_LOST)
            p = p->next;
        if (p != NULL) {
            rpc_peer_use(p);
            rpc_peer_lose(p, false, "this worker has left");
            rpc_peer_unuse(p);
        }
    } while (p != NULL);
    for (int i = 0; i < rpc->n_objects; i++) {
        rpc_object *object = rpc->objects[i];

        if (object != NULL && object->name != NULL) {
            trii_free(object->name);
            object->name = NULL;
            rpc_object_unuse(rpc, object);
        }
    }
    rpc_executor_stop(rpc);
    if (rpc->n_requests > 0) { /* kept, or still running */
        rpc->has_requests = true;
        rpc_use(rpc);
    }
    rpc_peers_changed(rpc);
}

/* --- what is unfinished --------------------------------------------------- */

/* Locked: own calls, as a text; "" if there are none. Returns its length. */
static size_t name_calls(const tri_rpc *rpc, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < rpc->n_calls && used < size / 2; i++) {
        const tri_rpc_call *call = rpc->calls[i];

        if (call->users > 0 && call->state != RPC_CALL_OVER && call->state != RPC_CALL_NEW)
            used += (size_t)snprintf(text + used, size - used, "%scall %.60s on %.60s",
                                     used > 0 ? ", " : "", call->function->name, call->to->owner);
    }
    return used;
}

/* And requests of others. */
static void unfinished(const tri_rpc *rpc, char *text, size_t size)
{
    size_t used = name_calls(rpc, text, size);

    for (const rpc_peer *p = rpc->peers; p != NULL && used < size / 2; p = p->next) {
        for (const tri_rpc_request *r = p->requests; r != NULL && used < size / 2; r = r->of_peer) {
            if (r->function != NULL)
                used += (size_t)snprintf(text + used, size - used, "%srequest %.60s of %.60s",
                                         used > 0 ? ", " : "", r->function->name, p->name);
        }
    }
    if (rpc->n_beyond > 0 && used == 0) /* else it may be what goes on for those */
        snprintf(text, size, "work of requests that were answered (%d)", rpc->n_beyond);
}

/* --- join ----------------------------------------------------------------- */

/* Locked: the name of a worker that has to leave or join first; "": no call has been made in the
 * open set yet, so it waits for a first client; NULL: there is none. */
static const char *waited_for(const tri_rpc *rpc)
{
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next) {
        bool is_unmet = p->is_member && p->state < RPC_PEER_UP; /* it has not answered yet */

        if (!p->mirror && p->incarnation != rpc->incarnation && !p->joined &&
            (p->state == RPC_PEER_UP || is_unmet))
            return p->name;
    }
    return rpc->options.open && !rpc->has_parted && !rpc->has_called ? "" : NULL;
}

/* TIMEOUT: the store does not answer. */
static tri_status meet(tri_rpc *rpc, const char *name, int64_t deadline_ns)
{
    tri_rpc_ref *ref;
    char record[640];
    tri_status status = rpc_look_up(rpc, name, false, rpc_member_deadline(deadline_ns), &ref);

    if (status == TRI_OK)
        tri_rpc_ref_unref(ref);
    if (status != TRI_ERR_TIMEOUT)
        return TRI_OK;
    status = rpc_read_record(rpc, name, false, deadline_ns, record);
    if (status == TRI_OK)
        rpc_meet_later(rpc, name, record);
    return status;
}

static bool is_on(tri_rpc *rpc)
{
    bool on;

    rpc_lock(rpc);
    on = rpc->state == RPC_STATE_ON;
    rpc_unlock(rpc);
    return on;
}

/* Connects those of an open set who have come by now and whom we have not met: they are waited for,
 * and those that cannot be reached are not. *n_out: how many had come. TIMEOUT: the store does not
 * answer. Not locked. */
static tri_status meet_rest(tri_rpc *rpc, int64_t deadline_ns, int64_t *n_out)
{
    char name[RPC_NAME];
    int64_t i = 0;
    tri_status status;

    do {
        status = rpc_read_member(rpc, ++i, deadline_ns, name, n_out);
        if (name[0] != '\0' && strcmp(name, rpc->name) != 0)
            status = meet(rpc, name, deadline_ns);
    } while (i < *n_out && status != TRI_ERR_TIMEOUT && trii_now_ns() < deadline_ns && is_on(rpc));
    return status;
}

static void say(tri_rpc *rpc, int kind)
{
    for (rpc_peer *p = rpc->peers, *next; p != NULL; p = next) {
        rpc_peer_use(p);
        if (p->state == RPC_PEER_UP) {
            p->said_bye = p->said_bye || kind == RPC_BYE;
            rpc_send_kind(p, kind, 0, 0, 0);
        }
        next = p->next;
        rpc_peer_unuse(p);
    }
}

/* Locked. A worker says that it is in tri_rpc_join only when its own calls have ended, except those
 * that it makes for others: a callee that left before would fail them. */
static tri_status end_own_calls(tri_rpc *rpc, rpc_waiter *w, int64_t deadline_ns,
                                int64_t timeout_ms)
{
    char text[300];

    while (rpc->n_open > 0 && rpc->state == RPC_STATE_ON && trii_now_ns() < deadline_ns)
        rpc_watch_all(rpc, w, deadline_ns);
    if (rpc->n_open == 0 || rpc->state != RPC_STATE_ON)
        return TRI_OK;
    (void)name_calls(rpc, text, sizeof(text));
    return TRII_FAIL(TRI_ERR_TIMEOUT, "rpc_join: unfinished after %" PRId64 " ms: %s", timeout_ms,
                     text);
}

/* Locked. *name_out: a worker that has neither left nor joined by then; NULL: there is none, as far
 * as is known: TIMEOUT if the store did not say who has come. */
static tri_status wait_for_others(tri_rpc *rpc, rpc_waiter *w, int64_t deadline_ns,
                                  const char **name_out)
{
    int64_t n_met, n = 0;
    bool again;
    tri_status status = TRI_OK;

    do {
        n_met = n;
        if (rpc->options.open) { /* and again: some may have come meanwhile */
            rpc_unlock(rpc);
            status = meet_rest(rpc, deadline_ns, &n);
            rpc_lock(rpc);
        }
        again = n != n_met || status == TRI_ERR_TIMEOUT;
        while (waited_for(rpc) != NULL && rpc->state == RPC_STATE_ON &&
               trii_now_ns() < deadline_ns) {
            rpc_watch_all(rpc, w, deadline_ns);
            again = true;
        }
    } while (again && rpc->state == RPC_STATE_ON && trii_now_ns() < deadline_ns);
    *name_out = waited_for(rpc);
    return status == TRI_ERR_TIMEOUT ? TRII_FAIL_CTX(status, "rpc_join") : TRI_OK;
}

/* The worker, and how long, of a call that waits for all handlers; rpc_stay_end is called after it.
 */
static tri_status begin(tri_rpc **rpc_io, const char *call, int64_t *timeout_ms,
                        int64_t *deadline_ns_out, trii_loop **loop_out)
{
    tri_status status = rpc_resolve(rpc_io, call);

    if (status == TRI_OK)
        status = rpc_may_block(call);
    if (status != TRI_OK)
        return status;
    if (rpc_running != NULL && rpc_running->rpc == *rpc_io)
        return TRII_FAIL(TRI_ERR_STATE, "%s: called by a handler, which it would wait for", call);
    if (*timeout_ms == 0)
        *timeout_ms = (*rpc_io)->options.timeout_ms;
    *deadline_ns_out = trii_deadline_ms(*timeout_ms);
    *loop_out = rpc_stay_begin(*rpc_io);
    return TRI_OK;
}

static tri_status join(tri_rpc *rpc, int64_t timeout_ms, int64_t deadline_ns)
{
    rpc_waiter w = {0};
    const char *name = NULL;
    char text[RPC_NAME];
    tri_status status;

    rpc_lock(rpc);
    if (rpc->joiner != NULL || rpc->state != RPC_STATE_ON) {
        status =
            TRII_FAIL(TRI_ERR_STATE, "rpc_join: %s",
                      rpc->joiner != NULL ? "another thread is in it" : "this worker has left");
        rpc_unlock(rpc);
        return status;
    }
    rpc->joiner = &w;
    status = end_own_calls(rpc, &w, deadline_ns, timeout_ms);
    if (status == TRI_OK) {
        rpc->joined = true;
        say(rpc, RPC_JOINED);
        status = wait_for_others(rpc, &w, deadline_ns, &name);
        if (rpc->state == RPC_STATE_OFF)
            status = TRII_FAIL(TRI_ERR_ABORTED, "rpc_join: %s", rpc->why);
    }
    rpc->joiner = NULL;
    snprintf(text, sizeof(text), "%s", name != NULL ? name : "");
    rpc_unlock(rpc);
    if (status == TRI_OK && name != NULL)
        status = TRII_FAIL(TRI_ERR_TIMEOUT, "rpc_join: %s%s within %" PRId64 " ms", text,
                           text[0] != '\0' ? " has neither left nor joined"
                                           : "nobody has called this worker or was called by it",
                           timeout_ms);
    return status;
}

tri_status tri_rpc_join(tri_rpc *rpc, int64_t timeout_ms)
{
    trii_loop *loop;
    int64_t deadline_ns;
    tri_status status = begin(&rpc, "rpc_join", &timeout_ms, &deadline_ns, &loop);

    if (status != TRI_OK)
        return status;
    status = join(rpc, timeout_ms, deadline_ns);
    rpc_stay_end(rpc, loop);
    return status;
}

/* --- leave ---------------------------------------------------------------- */

/* What lies in shared memory is read after we have gone; of tcp, the peer closes its end first. */
static bool all_told(const tri_rpc *rpc)
{
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next) {
        if (p->state == RPC_PEER_UP && (p->in == NULL || p->out_first != NULL))
            return false;
    }
    return true;
}

static tri_status leave(tri_rpc *rpc, int64_t timeout_ms, int64_t deadline_ns)
{
    char text[300];
    int64_t bye_ns;
    tri_status told, status = TRI_OK;

    rpc_lock(rpc);
    if (rpc->state != RPC_STATE_ON) {
        rpc_unlock(rpc);
        return TRII_FAIL(TRI_ERR_STATE, "rpc_leave: worker %s has left already", rpc->name);
    }
    rpc->state = RPC_STATE_LEAVING;
    say(rpc, RPC_LEAVING);
    while (rpc->finds != NULL) {
        tri_rpc_request *r = rpc->finds;

        rpc->finds = r->next;
        rpc_request_fail(r, TRI_ERR_STATE, "worker %s is leaving", rpc->name);
    }
    for (unfinished(rpc, text, sizeof(text));
         text[0] != '\0' && rpc_sleep(rpc, &rpc->changed, deadline_ns);)
        unfinished(rpc, text, sizeof(text));
    if (text[0] != '\0')
        status = TRI_ERR_TIMEOUT;
    rpc_end_calls(rpc, "it left without waiting");
    rpc_log_holds(rpc);
    say(rpc, RPC_BYE);
    bye_ns = trii_deadline_ms(BYE_MS);
    while (!all_told(rpc) && rpc_sleep(rpc, &rpc->changed, bye_ns))
        ;
    rpc_end_all(rpc,
                status == TRI_OK ? "by tri_rpc_leave or tri_rpc_fini" : "it left without waiting");
    rpc_unlock(rpc);
    told = rpc_unpublish(rpc, deadline_ns);
    /* last: `done` and `event`, and what could not be sent, have had lines of their own */
    if (status != TRI_OK)
        return TRII_FAIL(status, "rpc_leave: unfinished after %" PRId64 " ms: %s", timeout_ms,
                         text);
    return told == TRI_ERR_TIMEOUT ? TRII_FAIL_CTX(told, "rpc_leave") : TRI_OK;
}

tri_status tri_rpc_leave(tri_rpc *rpc, int64_t timeout_ms)
{
    trii_loop *loop;
    int64_t deadline_ns;
    tri_status status = begin(&rpc, "rpc_leave", &timeout_ms, &deadline_ns, &loop);

    if (status != TRI_OK)
        return status;
    status = leave(rpc, timeout_ms, deadline_ns);
    rpc_stay_end(rpc, loop);
    return status;
}
