/*
 * rpc_ref.c - objects, references to them, and who holds what.
 *
 * The owner counts, for each worker, how many references to an object it has sent there, and gives
 * up its own use of the object at 0. A holder says how many it has dropped, so that a drop which
 * crosses another reference on its way is harmless.
 *
 * A gives C a reference to an object of B: A tells B (HOLD), which counts it for C, and keeps its
 * own hold until B has said so (HELD). C may call at once, and its DROP may come before A's HOLD:
 * the count passes below 0 then. C may be unknown to B; if C ends before B has a connection with
 * it, A tells B (GONE); if A ends first, B connects to C, to hear of its end itself.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/option.h"
#include "comm/rpc/rpc_internal.h"

typedef struct rpc_intro {
    struct rpc_intro *next;
    uint64_t number;
    tri_rpc_ref *ref;
} rpc_intro;

/* --- objects -------------------------------------------------------------- */

rpc_object *rpc_object_at(tri_rpc *rpc, uint64_t id)
{
    uint32_t index = (uint32_t)id - 1;

    if (index >= (uint32_t)rpc->n_objects || rpc->objects[index] == NULL ||
        rpc->objects[index]->id != id)
        return NULL;
    return rpc->objects[index];
}

tri_status rpc_object_add(tri_rpc *rpc, rpc_object *object)
{
    int i = 0;
    tri_status status = TRI_OK;

    while (i < rpc->n_objects && rpc->objects[i] != NULL)
        i++;
    if (i == rpc->n_objects) {
        int room = rpc->object_room;

        status = trii_array_grow(&rpc->objects, &rpc->object_room, i, 16, sizeof(rpc_object *),
                                 "objects");
        if (status == TRI_OK && rpc->object_room != room) {
            uint32_t *ages =
                trii_realloc(rpc->object_ages, (size_t)rpc->object_room, sizeof(*ages), "objects");

            if (ages == NULL) {
                rpc->object_room = room;
                return TRI_ERR_NO_MEMORY;
            }
            rpc->object_ages = ages;
        }
        if (status != TRI_OK)
            return status;
        rpc->object_ages[i] = 0;
        rpc->n_objects++;
    }
    object->id = (uint64_t)++rpc->object_ages[i] << 32 | ((uint32_t)i + 1);
    rpc->objects[i] = object;
    return TRI_OK;
}

void rpc_object_unuse(tri_rpc *rpc, rpc_object *object)
{
    if (--object->users > 0)
        return;
    rpc->objects[(uint32_t)object->id - 1] = NULL;
    object->after = rpc->after_objects;
    rpc->after_objects = object;
}

rpc_object *rpc_object_named(const tri_rpc *rpc, const char *name)
{
    for (int i = 0; i < rpc->n_objects; i++) {
        rpc_object *object = rpc->objects[i];

        if (object != NULL && object->name != NULL && strcmp(object->name, name) == 0)
            return object;
    }
    return NULL;
}

/* --- references ----------------------------------------------------------- */

tri_rpc_ref *rpc_ref_make(tri_rpc *rpc, rpc_peer *peer, rpc_object *local, uint64_t object)
{
    tri_rpc_ref *ref = trii_alloc(1, sizeof(*ref), "reference");

    if (ref == NULL)
        return NULL;
    ref->rpc = rpc;
    rpc_use(rpc);
    ref->peer = peer;
    ref->local = local;
    ref->object = object;
    ref->users = 1;
    ref->waiting.end = &ref->waiting.first;
    snprintf(ref->owner, sizeof(ref->owner), "%s", peer != NULL ? peer->name : rpc->name);
    if (peer != NULL)
        rpc_peer_use(peer);
    if (local != NULL)
        local->users++;
    return ref;
}

void rpc_ref_unuse(tri_rpc_ref *ref)
{
    tri_rpc *rpc = ref->rpc;
    tri_rpc_call *maker = ref->maker;

    if (--ref->users > 0)
        return;
    if (maker != NULL) {
        ref->maker = NULL;
        maker->promise = NULL;
        rpc->up->call_unuse(maker);
    }
    if (ref->peer != NULL && ref->holds > 0)
        rpc_send_kind(ref->peer, RPC_DROP, 0, ref->object, ref->holds);
    if (ref->peer != NULL)
        rpc_peer_unuse(ref->peer);
    if (ref->local != NULL)
        rpc_object_unuse(rpc, ref->local);
    if (ref->error != NULL && !ref->told)
        TRII_LOG(TRII_LOG_WARN, "rpc", "nobody has looked at a reference that failed: %s",
                 ref->error);
    trii_free(ref->name);
    trii_free(ref->error);
    trii_free(ref);
    rpc_drop_use(rpc);
}

/* Whether what was called on the promise, where it was made, is run there. */
static bool is_made_there(const tri_rpc_ref *promise, const rpc_peer *where)
{
    uint64_t owner = promise->peer != NULL ? promise->peer->incarnation : promise->rpc->incarnation;

    return where != NULL && where->incarnation == owner;
}

/* What was called on it, on its way: it fails as the promise does. */
static void fail_piped(tri_rpc_ref *promise)
{
    tri_rpc *rpc = promise->rpc;

    for (int i = 0; i < rpc->n_calls; i++) {
        tri_rpc_call *call = rpc->calls[i];

        if (call->users == 0 || !call->piped || call->to != promise || call->state != RPC_CALL_SENT)
            continue;
        call->users++; /* its peer may be lost over that */
        rpc_send_kind(call->peer, RPC_CANCEL, (uint64_t)call->generation << 32 | call->slot, 0, 0);
        rpc->up->call_fail(call, promise);
        rpc->up->call_unuse(call);
    }
}

/* What fails with a promise makes others fail: a chain of any length takes no more of the stack. */
static void go_on(tri_rpc *rpc)
{
    tri_rpc_ref *promise;

    if (rpc->resolves)
        return;
    rpc->resolves = true;
    while ((promise = rpc->resolved) != NULL) {
        rpc->resolved = promise->next;
        if (rpc->resolved == NULL)
            rpc->resolved_end = &rpc->resolved;
        if (promise->status < 0 && promise->n_piped > 0)
            fail_piped(promise);
        rpc->up->submit_waiting(promise);
        rpc->up->submit_replies(promise);
        rpc_ref_unuse(promise);
    }
    rpc->resolves = false;
}

void rpc_promise_resolve(tri_rpc_ref *promise, tri_rpc_call *call)
{
    tri_rpc_ref *there = call->status == TRI_OK ? call->reply.message.refs[0] : NULL;

    call->promise = NULL;
    promise->maker = NULL;
    promise->users++;
    if (there != NULL) {
        promise->peer = there->peer;
        promise->local = there->local;
        promise->object = there->object;
        memcpy(promise->owner, there->owner, sizeof(promise->owner));
        promise->holds = there->holds; /* they move; in the reply is the promise */
        there->holds = 0;
        ((tri_rpc_ref **)(uintptr_t)call->reply.message.refs)[0] = promise;
        promise->users++;
        if (promise->peer != NULL)
            rpc_peer_use(promise->peer);
        if (promise->local != NULL)
            promise->local->users++;
    } else {
        memcpy(promise->owner, call->peer != NULL ? call->peer->name : call->to->owner,
               sizeof(promise->owner));
        promise->status = call->status;
        promise->error = trii_strdup(call->error != NULL ? call->error : "no memory", "error line");
        call->read = true;
    }
    if (promise->n_piped > 0 && there != NULL)
        promise->drains = promise->drains || !is_made_there(promise, call->peer);
    if (there != NULL)
        rpc_ref_unuse(there);
    call->rpc->up->call_unuse(call);
    promise->next = NULL;
    *promise->rpc->resolved_end = promise;
    promise->rpc->resolved_end = &promise->next;
    go_on(promise->rpc);
}

tri_rpc_ref *tri_rpc_ref_ref(tri_rpc_ref *ref)
{
    if (ref == NULL || rpc_is_parents(ref->rpc))
        return ref;
    rpc_lock(ref->rpc);
    ref->users++;
    rpc_unlock(ref->rpc);
    return ref;
}

void tri_rpc_ref_unref(tri_rpc_ref *ref)
{
    tri_rpc *rpc;

    if (ref == NULL || rpc_is_parents(ref->rpc))
        return;
    rpc = ref->rpc;
    rpc_use(rpc);
    rpc_lock(rpc);
    rpc_ref_unuse(ref);
    rpc_unlock(rpc);
    rpc_unuse(rpc);
}

void *tri_rpc_ref_object(const tri_rpc_ref *ref)
{
    void *object;

    if (ref == NULL || rpc_is_parents(ref->rpc))
        return NULL;
    rpc_lock(ref->rpc);
    object = ref->local != NULL ? ref->local->object : NULL;
    rpc_unlock(ref->rpc);
    return object;
}

const char *tri_rpc_ref_owner(const tri_rpc_ref *ref)
{
    const char *name = "";

    if (ref == NULL || rpc_is_parents(ref->rpc))
        return name;
    rpc_lock(ref->rpc);
    if (ref->maker == NULL && ref->status == TRI_OK)
        name = ref->owner;
    rpc_unlock(ref->rpc);
    return name;
}

static tri_status read_failure(const tri_rpc_ref *ref)
{
    ((tri_rpc_ref *)(uintptr_t)ref)->told = true;
    return TRII_FAIL(ref->status, "%s", ref->error != NULL ? ref->error : "no memory");
}

tri_status tri_rpc_ref_status(const tri_rpc_ref *ref)
{
    tri_status status = trii_need(ref, "rpc_ref_status", "ref");

    if (status == TRI_OK)
        status = rpc_check_process(ref->rpc, "rpc_ref_status");
    if (status != TRI_OK)
        return status;
    rpc_lock(ref->rpc);
    if (ref->maker != NULL)
        status = TRI_INPROGRESS;
    else if (ref->status < 0)
        status = read_failure(ref);
    else if (ref->peer != NULL && ref->peer->state == RPC_PEER_LOST && ref->name == NULL)
        status = TRII_FAIL(TRI_ERR_PEER_LOST, "%s", ref->peer->why);
    rpc_unlock(ref->rpc);
    return status;
}

/* --- holds ---------------------------------------------------------------- */

static void stop_holding(rpc_peer *peer)
{
    if (peer->holds != NULL || !peer->is_held)
        return;
    peer->is_held = false;
    rpc_peer_unuse(peer);
}

/* The caller uses the peer. */
static void count_hold(rpc_peer *peer, uint64_t id, int64_t change)
{
    rpc_hold **at = &peer->holds, *hold;
    rpc_object *object = rpc_object_at(peer->rpc, id);

    if (peer->state == RPC_PEER_LOST)
        return;

    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    hold = *at;
    if (hold == NULL) {
        hold = trii_alloc(1, sizeof(*hold), "reference");
        if (hold == NULL) {
            rpc_peer_lose(peer, false, "no memory for its references");
            return;
        }
        hold->id = id;
        *at = hold;
        peer->n_void_holds++;
        if (!peer->is_held) {
            peer->is_held = true;
            rpc_peer_use(peer);
        }
    }
    hold->count += change;
    if (hold->count > 0 && hold->object == NULL && object != NULL) {
        hold->object = object;
        object->users++;
        peer->n_void_holds--;
    }
    if (hold->count > 0 && hold->object != NULL)
        return;
    object = hold->object;
    hold->object = NULL;
    peer->n_void_holds += object != NULL ? 1 : 0;
    if (hold->count >= 0) {
        for (at = &peer->holds; *at != hold;)
            at = &(*at)->next;
        *at = hold->next;
        trii_free(hold);
        peer->n_void_holds--;
    }
    if (object != NULL)
        rpc_object_unuse(peer->rpc, object);
    stop_holding(peer);
    if (peer->n_void_holds > RPC_MAX_VOID_HOLDS)
        rpc_peer_lose(peer, false, "it drops references to %d objects that it does not hold",
                      peer->n_void_holds);
}

static void drop_holds(rpc_peer *peer)
{
    while (peer->holds != NULL) {
        rpc_hold *hold = peer->holds;

        peer->holds = hold->next;
        if (hold->object != NULL)
            rpc_object_unuse(peer->rpc, hold->object);
        trii_free(hold);
    }
    stop_holding(peer);
}

static void introduce(rpc_peer *to, tri_rpc_ref *ref)
{
    tri_rpc *rpc = ref->rpc;
    unsigned char frame[sizeof(rpc_header) + sizeof(rpc_wire_ref)];
    rpc_wire_ref wire = {.incarnation = to->incarnation};
    rpc_header h = {.magic = RPC_MAGIC,
                    .kind = RPC_HOLD,
                    .n_refs = 1,
                    .bytes = sizeof(wire),
                    .object = ref->object};
    rpc_intro *intro;

    if (ref->peer->state == RPC_PEER_LOST)
        return; /* it would never answer */
    intro = trii_alloc(1, sizeof(*intro), "reference");
    if (intro != NULL) {
        intro->number = ++rpc->n_intros;
        intro->ref = ref;
        ref->users++;
        intro->next = rpc->intros;
        rpc->intros = intro;
        h.call = intro->number;
    } /* else it is held as long as we hold it */
    to->is_introduced = true;
    snprintf(wire.name, sizeof(wire.name), "%s", to->name);
    memcpy(frame, &h, sizeof(h));
    memcpy(frame + sizeof(h), &wire, sizeof(wire));
    rpc_send(ref->peer, frame, sizeof(frame), 0);
}

void rpc_ref_write(rpc_peer *to, tri_rpc_ref *ref, rpc_wire_ref *wire)
{
    const tri_rpc *rpc = ref->rpc;

    wire->object = ref->local != NULL ? ref->local->id : ref->object;
    wire->incarnation = ref->peer != NULL ? ref->peer->incarnation : rpc->incarnation;
    snprintf(wire->name, sizeof(wire->name), "%s", ref->peer != NULL ? ref->peer->name : rpc->name);
    if (wire->object == 0 || (wire->incarnation == to->incarnation && ref->local == NULL))
        return;
    if (ref->local != NULL)
        count_hold(to, ref->local->id, 1);
    else if (ref->peer != NULL)
        introduce(to, ref);
}

/* A reference to an own object came from ourselves: the hold that it had on its way goes. It was
 * written to the other end of the connection. */
static void arrive(const rpc_peer *from, const rpc_object *object)
{
    for (rpc_peer *peer = from->rpc->peers; peer != NULL; peer = peer->next) {
        if (peer == from || peer->incarnation != from->rpc->incarnation ||
            peer->mirror == from->mirror || peer->state == RPC_PEER_LOST)
            continue;
        rpc_peer_use(peer);
        count_hold(peer, object->id, -1);
        rpc_peer_unuse(peer);
        return;
    }
}

/* Of one of our own. */
static tri_rpc_ref *read_own(const rpc_peer *from, const rpc_wire_ref *wire)
{
    tri_rpc *rpc = from->rpc;
    rpc_object *object = wire->object != 0 ? rpc_object_at(rpc, wire->object) : NULL;
    tri_rpc_ref *ref = rpc_ref_make(rpc, NULL, object, object != NULL ? object->id : 0);

    if (ref != NULL && object == NULL && wire->object != 0) {
        ref->status = TRI_ERR_STATE;
        ref->error = trii_strdup("the object has been released", "error line");
    }
    if (object != NULL && from->incarnation == rpc->incarnation)
        arrive(from, object);
    return ref;
}

tri_status rpc_ref_read(rpc_peer *from, const rpc_wire_ref *wire, tri_rpc_ref **ref_out)
{
    rpc_peer *owner;
    tri_status status;

    if (wire->incarnation == from->rpc->incarnation) {
        *ref_out = read_own(from, wire);
        return *ref_out != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    status = rpc_peer_told(from, wire, &owner);
    if (status != TRI_OK)
        return status;
    *ref_out = rpc_ref_make(from->rpc, owner, NULL, wire->object);
    if (*ref_out == NULL)
        return TRI_ERR_NO_MEMORY;
    (*ref_out)->holds = wire->object != 0 ? 1 : 0;
    if (wire->object == 0)
        (*ref_out)->name = trii_strdup(owner->name, "worker");
    return TRI_OK;
}

void rpc_on_hold(rpc_peer *peer, const rpc_header *h, rpc_source *source)
{
    rpc_wire_ref wire;
    rpc_peer *holder;

    if (h->n_refs != 1 || h->bytes < sizeof(wire)) {
        rpc_peer_lose(peer, false, "it introduces nobody");
        return;
    }
    rpc_source_copy(source, &wire, sizeof(wire));
    wire.name[RPC_NAME - 1] = '\0';
    if (wire.incarnation == peer->rpc->incarnation || rpc_object_at(peer->rpc, h->object) == NULL) {
        rpc_peer_lose(peer, false, "it introduces nobody, or to nothing");
        return;
    }
    if (rpc_peer_told(peer, &wire, &holder) != TRI_OK) {
        rpc_peer_lose_by_error(peer);
        return;
    }
    rpc_peer_use(holder);
    count_hold(holder, h->object, 1);
    rpc_peer_unuse(holder);
    rpc_send_kind(peer, RPC_HELD, h->call, 0, 0);
}

void rpc_on_held(rpc_peer *peer, const rpc_header *h)
{
    for (rpc_intro **at = &peer->rpc->intros; *at != NULL; at = &(*at)->next) {
        rpc_intro *intro = *at;

        if (intro->number != h->call || intro->ref->peer != peer)
            continue;
        *at = intro->next;
        rpc_ref_unuse(intro->ref);
        trii_free(intro);
        return;
    }
}

void rpc_refs_lose(rpc_peer *peer)
{
    drop_holds(peer);
    for (rpc_intro **at = &peer->rpc->intros; *at != NULL;) {
        rpc_intro *intro = *at;

        if (intro->ref->peer != peer) {
            at = &intro->next;
            continue;
        }
        *at = intro->next;
        rpc_ref_unuse(intro->ref);
        trii_free(intro);
    }
    for (rpc_peer *p = peer->rpc->peers; p != NULL && peer->rpc->state == RPC_STATE_ON;) {
        bool orphaned = p->state == RPC_PEER_KNOWN && p->holds != NULL && !p->is_promised;

        if (orphaned)
            peer->rpc->up->connect_later(p); /* may lose it, and others */
        p = orphaned ? peer->rpc->peers : p->next;
    }
}

void rpc_on_drop(rpc_peer *peer, const rpc_header *h)
{
    if (h->chain == 0 || h->chain > INT32_MAX)
        rpc_peer_lose(peer, false, "it drops %" PRIu64 " references", h->chain);
    else
        count_hold(peer, h->object, -(int64_t)h->chain);
}

void rpc_on_gone(rpc_peer *peer, const rpc_header *h)
{
    for (rpc_peer *p = peer->rpc->peers; p != NULL; p = p->next) {
        if (p->incarnation != h->object || p->state != RPC_PEER_KNOWN || p == peer)
            continue;
        rpc_peer_use(p);
        rpc_peer_lose(p, false, "%s has lost it", peer->name);
        rpc_peer_unuse(p);
        return;
    }
}

/* Replies that the program still has, which keep their memory. Tensors keep those of the library's
 * own functions. */
static void log_replies(const tri_rpc *rpc)
{
    const tri_rpc_call *last = NULL;
    int n = 0;

    for (int i = 0; i < rpc->n_calls; i++) {
        const tri_rpc_call *call = rpc->calls[i];

        if (!call->lent || strncmp(call->function->name, "remote.", 7) == 0)
            continue;
        n++;
        if (last == NULL || call->began_ns > last->began_ns)
            last = call;
    }
    if (n > 0)
        TRII_LOG(TRII_LOG_WARN, "rpc",
                 "replies have not been freed (tri_rpc_message_free): %d, the last of %s, "
                 "called at %s:%d",
                 n, last->function->name, last->site.file != NULL ? last->site.file : "?",
                 last->site.line);
}

void rpc_log_holds(tri_rpc *rpc)
{
    log_replies(rpc);
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next) {
        for (const rpc_hold *hold = p->holds; hold != NULL; hold = hold->next) {
            if (hold->object != NULL)
                TRII_LOG(TRII_LOG_INFO, "rpc", "%s leaves, and %s holds its object %s%s%s",
                         rpc->name, p->name,
                         hold->object->type->name != NULL ? hold->object->type->name : "",
                         hold->object->name != NULL ? " " : "",
                         hold->object->name != NULL ? hold->object->name : "");
        }
    }
}
