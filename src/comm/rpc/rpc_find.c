/*
 * rpc_find.c - names become references: a worker that is connected, and its object. References that
 * were found by name are found again when their worker has been lost and another call is made.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"

#define PAUSE_MS                                                                                   \
    10 /* between two looks at a name whose worker does not answer; twice as long each time */
#define PAUSE_MAX_MS 200
#define NEAREST_MS 100 /* of the wait for an object, to ask at its end which others there are */
#define STORE_MS 1000  /* of one wait in the store; then it is seen that this worker has left */

/* --- objects by name ------------------------------------------------------ */

/* NULL: it has none, or there is no object. */
static const char *object_at(const tri_rpc *rpc, int i)
{
    return rpc->objects[i] != NULL ? rpc->objects[i]->name : NULL;
}

/* Asked by tri_rpc_find: "name" of an object; kept until there is one. After "name" and '?' the
 * answer comes at once: without a reference, the names that are most like it, in words. */
static tri_status run_find(tri_rpc_request *request, void *unused)
{
    tri_rpc *rpc = request->rpc;
    const tri_rpc_message *in = tri_rpc_request_message(request);
    const char *name = in->data;
    bool at_once = in->bytes > 1 && name[in->bytes - 1] == '?';
    size_t bytes = at_once ? in->bytes - 1 : in->bytes;
    char nearest[RPC_NEAREST];
    tri_rpc_ref *ref = NULL;
    rpc_object *object;
    tri_status status;

    (void)unused;
    if (bytes == 0 || bytes > RPC_NAME || name[bytes - 1] != '\0')
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the name of an object is damaged");
    rpc_lock(rpc);
    object = rpc_object_named(rpc, name);
    if (object != NULL) {
        ref = rpc_ref_make(rpc, NULL, object, object->id);
    } else if (at_once) {
        rpc_name_nearest(rpc, rpc->n_objects, object_at, name, nearest);
    } else {
        request->next = rpc->finds;
        rpc->finds = request;
    }
    rpc_unlock(rpc);
    if (object == NULL && at_once)
        return tri_rpc_reply(request,
                             &(tri_rpc_message){.data = nearest, .bytes = strlen(nearest) + 1});
    if (object == NULL)
        return TRI_INPROGRESS;
    if (ref == NULL)
        return TRI_ERR_NO_MEMORY;
    status = tri_rpc_reply(request, &(tri_rpc_message){.refs = &ref, .n_refs = 1});
    tri_rpc_ref_unref(ref);
    return status;
}

const tri_rpc_function rpc_find_function = {
    .name = "trireme.find", .max_request = RPC_NAME + 1, .flags = TRI_RPC_INLINE, .run = run_find};

static void answer_finds(tri_rpc *rpc, rpc_object *object)
{
    tri_rpc_request **at = &rpc->finds;

    while (*at != NULL) {
        tri_rpc_request *request = *at;
        const char *name = request->in.message.data;
        tri_rpc_ref *ref;

        if (strcmp(name, object->name) != 0) {
            at = &request->next;
            continue;
        }
        ref = rpc_ref_make(rpc, NULL, object, object->id);
        if (ref == NULL)
            return;
        *at = request->next;
        request->next = NULL;
        rpc_answer_with(request, ref);
        rpc_ref_unuse(ref);
        at = &rpc->finds; /* where its caller was lost over that, others of it have gone, too */
    }
}

bool rpc_forget_find(tri_rpc_request *request)
{
    tri_rpc_request **at = &request->rpc->finds;

    if (request->function != &rpc_find_function || request->running)
        return false;
    while (*at != NULL && *at != request)
        at = &(*at)->next;
    if (*at != NULL)
        *at = request->next;
    return true;
}

tri_status tri_rpc_own(tri_rpc *rpc, const char *name, const tri_rpc_object *type, void *object,
                       tri_rpc_ref **ref_out)
{
    rpc_object *o;
    tri_rpc_ref *ref = NULL;
    tri_status status = rpc_resolve(&rpc, "rpc_own");

    if (status == TRI_OK)
        status = trii_need(type, "rpc_own", "type");
    if (status == TRI_OK)
        status = trii_need(ref_out, "rpc_own", "ref_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_rpc_object, type);
    if (status == TRI_OK && name != NULL)
        status = rpc_check_name(name, "rpc_own");
    if (status != TRI_OK)
        return status;
    o = trii_alloc(1, sizeof(*o), "object");
    if (o == NULL)
        return TRI_ERR_NO_MEMORY;
    o->type = type;
    o->object = object;
    o->queue_end = &o->queue;
    o->name = name != NULL ? trii_strdup(name, "object") : NULL;
    if (name != NULL && o->name == NULL) {
        trii_free(o);
        return TRI_ERR_NO_MEMORY;
    }
    rpc_lock(rpc);
    if (rpc->state != RPC_STATE_ON)
        status = TRII_FAIL(TRI_ERR_STATE, "rpc_own: worker %s is leaving", rpc->name);
    else if (name != NULL && rpc_object_named(rpc, name) != NULL)
        status = TRII_FAIL(TRI_ERR_STATE, "rpc_own: %s has an object %s already", rpc->name, name);
    if (status == TRI_OK)
        status = rpc_object_add(rpc, o);
    if (status == TRI_OK) {
        o->users = name != NULL ? 1 : 0;
        ref = rpc_ref_make(rpc, NULL, o, o->id);
        if (ref == NULL) {
            rpc->objects[(uint32_t)o->id - 1] = NULL;
            status = TRI_ERR_NO_MEMORY;
        }
    }
    if (status == TRI_OK && name != NULL)
        answer_finds(rpc, o);
    rpc_unlock(rpc);
    if (status != TRI_OK) {
        trii_free(o->name);
        trii_free(o);
        return status;
    }
    *ref_out = ref;
    return TRI_OK;
}

/* --- workers -------------------------------------------------------------- */

/* A worker that can be reached, used once; its record may be of one that has died. */
static tri_status look_once(tri_rpc *rpc, const char *name, bool wait, int64_t deadline_ns,
                            rpc_peer **peer_out)
{
    char record[640];
    rpc_address a;
    rpc_peer *peer;
    int64_t slice_ns;
    tri_status status;

    rpc_lock(rpc);
    status = rpc_check_on(rpc);
    peer = rpc_peer_named(rpc, name);
    if (peer != NULL && peer->state == RPC_PEER_UP) {
        rpc_peer_use(peer);
        rpc_unlock(rpc);
        *peer_out = peer;
        return TRI_OK;
    }
    rpc_unlock(rpc);
    if (status != TRI_OK)
        return status;
    slice_ns = trii_deadline_ms(STORE_MS);
    status =
        rpc_read_record(rpc, name, wait, slice_ns < deadline_ns ? slice_ns : deadline_ns, record);
    if (status == TRI_OK)
        status = rpc_parse_record(record, &a);
    if (status != TRI_OK)
        return status;
    rpc_lock(rpc);
    status = rpc_check_on(rpc);
    peer = status == TRI_OK ? rpc_peer_of(rpc, name, a.incarnation) : NULL;
    if (peer != NULL) {
        rpc_peer_use(peer);
        if (peer->state == RPC_PEER_KNOWN) /* else a thread that connects reads it */
            snprintf(peer->record, sizeof(peer->record), "%s", record);
    }
    rpc_unlock(rpc);
    if (peer == NULL)
        return status != TRI_OK ? status : TRI_ERR_NO_MEMORY;
    status = rpc_connect(peer, deadline_ns);
    if (status != TRI_OK) {
        rpc_lock(rpc);
        rpc_peer_unuse(peer);
        rpc_unlock(rpc);
        return status;
    }
    *peer_out = peer;
    return TRI_OK;
}

static const char *member_at(const tri_rpc *rpc, int i)
{
    return rpc->names[i];
}

/* Nobody of another name comes to a closed set that has met. */
static bool is_closed_to(tri_rpc *rpc, const char *name)
{
    bool closed;

    rpc_lock(rpc);
    closed = rpc->size > 0 && rpc->has_met_all;
    rpc_unlock(rpc);
    for (int i = 0; i < rpc->size && closed; i++)
        closed = strcmp(rpc->names[i], name) != 0;
    return closed;
}

static tri_status no_member(const tri_rpc *rpc, const char *name)
{
    char nearest[RPC_NEAREST];

    rpc_name_nearest(rpc, rpc->size, member_at, name, nearest);
    return TRII_FAIL(TRI_ERR_NOT_FOUND, "no worker %s; %s%s", name, nearest,
                     rpc->size == 1 ? " (was it started without a launcher?)" : "");
}

static tri_status look_for_worker(tri_rpc *rpc, const char *name, bool wait, int64_t deadline_ns,
                                  rpc_peer **peer_out)
{
    int64_t pause_ms = PAUSE_MS, next;
    bool closed = wait && is_closed_to(rpc, name);
    tri_status status;

    wait = wait && !closed;
    for (;;) {
        status = look_once(rpc, name, wait, deadline_ns, peer_out);
        if (wait && status == TRI_ERR_TIMEOUT && trii_now_ns() < deadline_ns)
            continue; /* it has looked for STORE_MS */
        if (closed && status == TRI_ERR_NOT_FOUND)
            return no_member(rpc, name);
        if (!wait || (status != TRI_ERR_NOT_FOUND && status != TRI_ERR_PEER_LOST &&
                      status != TRI_ERR_UNSUPPORTED))
            return status;
        next = trii_now_ns() + pause_ms * TRII_NS_PER_MS;
        if (next >= deadline_ns)
            return TRII_FAIL(TRI_ERR_TIMEOUT, "%s", tri_last_error());
        trii_sleep_until(next); /* a store tells nobody of a change */
        pause_ms = 2 * pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
    }
}

/* At least 1, also of a deadline that has passed. */
static int64_t left_ms(int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - trii_now_ns();

    if (deadline_ns == TRII_NO_DEADLINE)
        return TRI_FOREVER;
    return left_ns > 0 ? left_ns / TRII_NS_PER_MS + 1 : 1;
}

/* The object has not come: which ones there are, unless it is there now. */
static tri_status ask_nearest(tri_rpc_ref *worker, const char *object, int64_t began_ns,
                              int64_t deadline_ns, tri_rpc_message *reply)
{
    const tri_rpc_call_options o = {.timeout_ms = left_ms(deadline_ns)};
    const char *names;
    char text[RPC_NAME + 2];
    size_t bytes = (size_t)snprintf(text, sizeof(text), "%s", object) + 1;
    double waited = (double)(trii_now_ns() - began_ns) / 1e9;

    text[bytes] = '?';
    if ((tri_rpc_sync)(worker, &rpc_find_function,
                       &(tri_rpc_message){.data = text, .bytes = bytes + 1}, &o, reply) != TRI_OK)
        return TRII_FAIL(TRI_ERR_TIMEOUT, "no object %s on worker %s (waited %.3g s)", object,
                         worker->owner, waited);
    if (reply->n_refs > 0)
        return TRI_OK;
    names = reply->data;
    if (reply->bytes == 0 || names[reply->bytes - 1] != '\0')
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "worker %s sends damaged names: does it run another build of the library?",
                         worker->owner);
    return TRII_FAIL(TRI_ERR_TIMEOUT, "no object %s on worker %s (waited %.3g s); %s", object,
                     worker->owner, waited, names);
}

static tri_status look_for_object(tri_rpc *rpc, rpc_peer *peer, const char *object,
                                  int64_t deadline_ns, tri_rpc_ref **ref_out)
{
    int64_t began_ns = trii_now_ns(), left = left_ms(deadline_ns);
    int64_t reserve = left / 10 < NEAREST_MS ? left / 10 : NEAREST_MS;
    const tri_rpc_call_options o = {.timeout_ms = left == TRI_FOREVER ? left : left - reserve};
    const tri_rpc_message in = {.data = object, .bytes = strlen(object) + 1};
    tri_rpc_message reply = {0};
    tri_rpc_ref *worker;
    tri_status status = TRI_OK;

    rpc_lock(rpc);
    worker = rpc_ref_make(rpc, peer->incarnation == rpc->incarnation ? NULL : peer, NULL, 0);
    rpc_unlock(rpc);
    if (worker == NULL)
        return TRI_ERR_NO_MEMORY;
    status = (tri_rpc_sync)(worker, &rpc_find_function, &in, &o, &reply);
    if (status == TRI_ERR_TIMEOUT)
        status = ask_nearest(worker, object, began_ns, deadline_ns, &reply);
    if (status == TRI_OK && reply.n_refs != 1)
        status = TRII_FAIL(TRI_ERR_FORMAT, "worker %s answers without a reference", peer->name);
    if (status == TRI_OK) {
        rpc_lock(rpc);
        *ref_out = reply.refs[0];
        (*ref_out)->users++;
        rpc_unlock(rpc);
    }
    tri_rpc_message_free(&reply);
    tri_rpc_ref_unref(worker);
    return status;
}

tri_status rpc_look_up(tri_rpc *rpc, const char *name, bool wait, int64_t deadline_ns,
                       tri_rpc_ref **ref_out)
{
    const char *slash = strchr(name, '/');
    char worker[RPC_NAME];
    tri_rpc_ref *ref = NULL;
    rpc_peer *peer = NULL;
    tri_status status;

    snprintf(worker, sizeof(worker), "%.*s", slash != NULL ? (int)(slash - name) : RPC_NAME, name);
    status = look_for_worker(rpc, worker, wait, deadline_ns, &peer);
    if (status != TRI_OK)
        return status;
    if (slash != NULL)
        status = look_for_object(rpc, peer, slash + 1, deadline_ns, &ref);
    rpc_lock(rpc);
    if (status == TRI_OK && slash == NULL) {
        ref = rpc_ref_make(rpc, peer->incarnation == rpc->incarnation ? NULL : peer, NULL, 0);
        status = ref != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status == TRI_OK) {
        trii_free(ref->name);
        ref->name = trii_strdup(name, "reference");
        status = ref->name != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status != TRI_OK && ref != NULL)
        rpc_ref_unuse(ref);
    rpc_peer_unuse(peer);
    rpc_unlock(rpc);
    if (status == TRI_OK)
        *ref_out = ref;
    return status;
}

tri_status tri_rpc_find(tri_rpc *rpc, const char *name, tri_rpc_ref **ref_out)
{
    const char *slash;
    char worker[RPC_NAME] = "";
    int64_t deadline_ns;
    trii_loop *loop;
    tri_status status = rpc_resolve(&rpc, "rpc_find");

    if (status == TRI_OK)
        status = trii_need_text(name, "rpc_find", "name");
    if (status == TRI_OK)
        status = trii_need(ref_out, "rpc_find", "ref_out");
    if (status == TRI_OK)
        status = rpc_may_block("rpc_find");
    if (status != TRI_OK)
        return status;
    slash = strchr(name, '/');
    if (slash != NULL && slash - name < RPC_NAME)
        snprintf(worker, sizeof(worker), "%.*s", (int)(slash - name), name);
    status = rpc_check_name(slash != NULL ? worker : name, "rpc_find");
    if (status == TRI_OK && slash != NULL)
        status = rpc_check_name(slash + 1, "rpc_find");
    if (status != TRI_OK)
        return status;
    deadline_ns = trii_deadline_ms(rpc->options.timeout_ms);
    if (rpc_running != NULL && rpc_running->request != NULL &&
        rpc_running->request->deadline_ns < deadline_ns)
        deadline_ns = rpc_running->request->deadline_ns;
    loop = rpc_stay_begin(rpc);
    status = rpc_look_up(rpc, name, true, deadline_ns, ref_out);
    rpc_stay_end(rpc, loop);
    return status == TRI_OK ? status : TRII_FAIL_CTX(status, "rpc_find: %.130s", name);
}

/* --- again ---------------------------------------------------------------- */

/* Locked: the reference leads to where `found` does. */
static void redirect(tri_rpc_ref *ref, tri_rpc_ref *found)
{
    if (ref->peer != NULL)
        rpc_peer_unuse(ref->peer);
    ref->peer = found->peer;
    if (ref->peer != NULL)
        rpc_peer_use(ref->peer);
    ref->object = found->object;
    ref->holds = found->holds;
    found->holds = 0;
}

/* Locked: as long as the calls that are there wait, but long enough to connect. */
static int64_t last_deadline_ns(const tri_rpc_ref *ref)
{
    int64_t last_ns = trii_deadline_ms(STORE_MS);
    int64_t most_ns = trii_deadline_ms(ref->rpc->options.timeout_ms);

    for (const tri_rpc_call *call = ref->waiting.first; call != NULL; call = call->next) {
        if (call->state == RPC_CALL_DEFERRED && call->deadline_ns > last_ns)
            last_ns = call->deadline_ns;
    }
    return last_ns < most_ns ? last_ns : most_ns;
}

/* Locked: those that may not wait for a worker that may never come, unless that is there and only
 * its object is not (TIMEOUT). True: some are left. */
static bool fail_impatient(tri_rpc_ref *ref, tri_status status, const char *why)
{
    bool left = false;

    for (tri_rpc_call *call = ref->waiting.first; call != NULL; call = call->next) {
        if (call->state != RPC_CALL_DEFERRED)
            continue;
        if ((status == TRI_ERR_TIMEOUT || (call->function->flags & TRI_RPC_IDEMPOTENT) != 0) &&
            ref->rpc->state == RPC_STATE_ON)
            left = true;
        else
            rpc_call_end(call, TRI_ERR_PEER_LOST, "before it was sent: %s", why);
    }
    return left;
}

static void revive_main(void *arg)
{
    tri_rpc_ref *ref = arg;
    tri_rpc *rpc = ref->rpc;
    int64_t pause_ms = PAUSE_MS;
    bool again = true;

    while (again) {
        char why[RPC_TEXT];
        tri_rpc_ref *found = NULL;
        int64_t deadline_ns;
        tri_status status;

        rpc_lock(rpc);
        deadline_ns = last_deadline_ns(ref);
        rpc_unlock(rpc);
        status = rpc_look_up(rpc, ref->name, false, deadline_ns, &found);
        rpc_lock(rpc);
        snprintf(why, sizeof(why), "%s%s", tri_last_error(),
                 rpc->state == RPC_STATE_ON
                     ? "; call again, or let it be TRI_RPC_IDEMPOTENT, which waits"
                     : "");
        if (status == TRI_OK)
            redirect(ref, found);
        again = status != TRI_OK && fail_impatient(ref, status, why);
        if (!again) {
            ref->revives = false;
            rpc_submit_waiting(ref);
        }
        if (found != NULL)
            rpc_ref_unuse(found);
        rpc_unlock(rpc);
        if (!again)
            break;
        trii_sleep_until(trii_now_ns() + pause_ms * TRII_NS_PER_MS);
        pause_ms = 2 * pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
    }
    rpc_lock(rpc);
    rpc_ref_unuse(ref);
    rpc_unlock(rpc);
}

void rpc_revive(tri_rpc_ref *ref, tri_rpc_call *call)
{
    if (!ref->revives) {
        if (rpc_start_job(ref->rpc, revive_main, ref) != TRI_OK) {
            rpc_call_end(call, TRI_ERR_PEER_LOST, "before it was sent: %s", tri_last_error());
            return;
        }
        ref->users++;
        ref->revives = true;
    }
    rpc_call_submit(call); /* which waits in the reference */
}
