/*
 * hierarchy_messages.c - send and recv: between ranks of a host through shared memory, else through
 * the engine that has all ranks. A message goes as it is, with the peer's number on the host. A
 * receive from any rank is posted to both engines: the one that finds a message first wins the
 * receive, and the other's is cancelled later, since no engine is called from another one's
 * callback.
 */
#include <string.h>

#include "base/alloc.h"
#include "composites/hierarchy/hierarchy.h"
#include "os/clock.h"

/* --- from any rank -------------------------------------------------------- */

/* A receive from any rank that both engines have; NULL = it is none, or a flat one. */
static hierarchy_any *any_of(const hierarchy *h, const trii_op *op)
{
    bool both = op->call.kind == TRII_KIND_RECV_ANY && h->children[HIERARCHY_IN].self != NULL;

    return both ? (hierarchy_any *)(uintptr_t)op->scratch[0] : NULL;
}

static void end_whole(hierarchy_any *a, tri_status status, const char *why)
{
    trii_op *whole = a->whole;

    trii_op_finish(whole, status, why);
}

/* One of the two has ended: in a callback of its engine. */
static void half_ended(hierarchy_any *a, const trii_op *op, bool near)
{
    hierarchy *h = a->h;
    const trii_fault *fault = &h->children[near ? HIERARCHY_IN : HIERARCHY_FLAT].fault;
    tri_status status = trii_op_status(op);
    int nobody = 0;

    if (op->call.root >= 0 && trii_fault_status(fault) == TRI_OK) { /* it had a message */
        a->whole->call.root = near ? trii_rank_name(op->call.names, op->call.root) : op->call.root;
        a->whole->call.count = op->call.count;
        a->whole->call.bytes = op->call.bytes;
        end_whole(a, status, op->error);
    } else if (status == TRI_OK || trii_fault_status(fault) != TRI_OK) {
        /* with a message chosen it is won already */
        if (op->call.root >= 0 || atomic_compare_exchange_strong(&a->won, &nobody, 1))
            end_whole(a, status, op->error);
    } else if (atomic_fetch_add(&a->no_sender_left, 1) == 1 &&
               atomic_compare_exchange_strong(&a->won, &nobody, 1)) {
        trii_fault_raise(h->fault, status,
                         "rank %d waits for a message, and every rank left the group", h->rank);
        end_whole(a, status, "every rank left the group");
    }
    atomic_store(near ? &a->near_done : &a->far_done, true);
}

static void near_ended(trii_op *op)
{
    half_ended((hierarchy_any *)((char *)op - offsetof(hierarchy_any, near)), op, true);
}

static void far_ended(trii_op *op)
{
    half_ended((hierarchy_any *)((char *)op - offsetof(hierarchy_any, far)), op, false);
}

/* Guard: mutex. Takes the half back that got no message, once the other one has it. */
static void take_back(hierarchy *h, hierarchy_any *a)
{
    hierarchy_child *in = &h->children[HIERARCHY_IN], *flat = &h->children[HIERARCHY_FLAT];

    if (!atomic_load(&a->near_done) && atomic_load(&a->far_done) &&
        in->engine->cancel_recv(in->self, &a->near)) {
        atomic_fetch_sub(&h->n_near, 1);
        atomic_store(&a->near_done, true);
    }
    if (!atomic_load(&a->far_done) && atomic_load(&a->near_done) &&
        flat->engine->cancel_recv(flat->self, &a->far))
        atomic_store(&a->far_done, true);
}

void hierarchy_message_sweep(hierarchy *h)
{
    for (hierarchy_any **link = &h->anys; *link != NULL;) {
        hierarchy_any *a = *link;

        if (atomic_load(&a->won) != 0)
            take_back(h, a);
        if (a->users == 0 && atomic_load(&a->near_done) && atomic_load(&a->far_done)) {
            *link = a->next;
            trii_free(a);
        } else {
            link = &a->next;
        }
    }
}

void hierarchy_message_fini(hierarchy *h)
{
    while (h->anys != NULL) {
        hierarchy_any *a = h->anys;

        h->anys = a->next;
        trii_free(a);
    }
}

/* A failure means that the operation was not taken. */
static tri_status post_halves(hierarchy *h, hierarchy_any *a)
{
    hierarchy_child *in = &h->children[HIERARCHY_IN], *flat = &h->children[HIERARCHY_FLAT];
    tri_status status = in->engine->submit(in->self, &a->near);
    int nobody = 0;

    if (status != TRI_OK) {
        atomic_fetch_sub(&h->n_near, 1);
        atomic_store(&a->near_done, true);
    } else if (!trii_op_is_won(&a->near)) {
        status = flat->engine->submit(flat->self, &a->far);
        if (status == TRI_OK)
            return TRI_OK;
        if (!atomic_compare_exchange_strong(&a->won, &nobody, 1)) {
            status = TRI_OK; /* the other one has a message */
        } else if (in->engine->cancel_recv(in->self, &a->near)) {
            atomic_fetch_sub(&h->n_near, 1);
            atomic_store(&a->near_done, true);
        }
    }
    atomic_store(&a->far_done, true);
    return status;
}

static tri_status submit_any(hierarchy *h, trii_op *op)
{
    hierarchy_any *a = trii_alloc(1, sizeof(*a), "receive from any rank");
    tri_status status;

    if (a == NULL)
        return TRI_ERR_NO_MEMORY;
    a->h = h;
    a->whole = op;
    trii_op_init(&a->near, &op->call);
    a->near.call.from = NULL;
    a->near.call.temporary = NULL;
    a->near.call.won = &a->won;
    a->far = a->near;
    a->near.call.names = h->layout.by_host + h->layout.host_at[h->layout.host];
    a->near.finished = near_ended;
    a->near.counted = &h->n_near;
    a->far.finished = far_ended;
    op->scratch[0] = (uintptr_t)a;
    atomic_fetch_add(&h->n_near, 1);
    trii_mutex_lock(&h->mutex);
    hierarchy_message_sweep(h);
    a->users = 1; /* until both engines have it */
    a->next = h->anys;
    h->anys = a;
    trii_mutex_unlock(&h->mutex);
    status = post_halves(h, a);
    trii_mutex_lock(&h->mutex);
    a->users--;
    trii_mutex_unlock(&h->mutex);
    return status;
}

/* --- all messages --------------------------------------------------------- */

tri_status hierarchy_message_submit(hierarchy *h, trii_op *op)
{
    const hierarchy_layout *l = &h->layout;
    hierarchy_child *in = &h->children[HIERARCHY_IN], *flat = &h->children[HIERARCHY_FLAT];
    tri_status status;

    if (op->call.kind == TRII_KIND_RECV_ANY && in->self != NULL)
        return submit_any(h, op);
    if (op->call.kind == TRII_KIND_RECV_ANY || in->self == NULL ||
        !hierarchy_is_near(h, op->call.root))
        return flat->engine->submit(flat->self, op);
    op->call.root = l->local_of[op->call.root];
    op->call.names = l->by_host + l->host_at[l->host];
    op->counted = &h->n_near;
    atomic_fetch_add(&h->n_near, 1);
    status = in->engine->submit(in->self, op);
    if (status != TRI_OK) {
        atomic_fetch_sub(&h->n_near, 1);
        op->call.root = trii_rank_name(op->call.names, op->call.root);
        op->call.names = NULL;
    }
    return status;
}

void hierarchy_message_progress(hierarchy *h, trii_op *op, int64_t until_ns)
{
    const hierarchy_child *in = &h->children[HIERARCHY_IN], *flat = &h->children[HIERARCHY_FLAT];
    hierarchy_any *a = any_of(h, op);
    const hierarchy_child *on = a != NULL || op->call.names != NULL ? in : flat;
    trii_op *part = a != NULL ? &a->near : op;
    bool busy = a != NULL, first = true;

    trii_mutex_lock(&h->mutex);
    while (trii_op_status(op) == TRI_INPROGRESS && (first || trii_now_ns() < until_ns)) {
        int64_t moment = trii_now_ns() + (busy ? HIERARCHY_MIXED_NS : HIERARCHY_LOOK_NS);

        first = false;
        if (a != NULL)
            a->users++;
        if (a != NULL && atomic_load(&a->near_done)) { /* only another host has one for us */
            on = flat;
            part = &a->far;
        }
        trii_mutex_unlock(&h->mutex);
        on->engine->progress(on->self, part, moment < until_ns ? moment : until_ns);
        trii_mutex_lock(&h->mutex);
        if (a != NULL)
            a->users--;
        if (!h->driving)
            hierarchy_look(h);
        busy = (a != NULL && on == in) || h->first != NULL ||
               (on == flat && atomic_load(&h->n_near) > 0);
    }
    (void)hierarchy_check_faults(h); /* a child's is the group's */
    hierarchy_message_sweep(h);
    trii_mutex_unlock(&h->mutex);
}

bool hierarchy_message_cancel_recv(hierarchy *h, trii_op *op)
{
    const hierarchy_child *on =
        &h->children[op->call.names != NULL ? HIERARCHY_IN : HIERARCHY_FLAT];

    return on->engine->cancel_recv(on->self, op);
}

void hierarchy_message_describe(hierarchy *h, trii_op *op, char *text, size_t size)
{
    const hierarchy_child *on =
        &h->children[op->call.names != NULL ? HIERARCHY_IN : HIERARCHY_FLAT];

    if (op->call.kind == TRII_KIND_RECV_ANY)
        snprintf(text, size, "any rank to send the message");
    else
        on->engine->describe_wait(on->self, op, text, size);
}
