/*
 * hierarchy_messages.c - send and recv: between ranks of a host through shared memory, else through
 * the engine that has all ranks. A message goes as it is, with the peer's number on the host. A
 * receive from any rank is posted to both engines: the one that finds a message first wins the
 * receive, and the other's is cancelled later, since no engine is called from another one's
 * callback.
 */
#include <string.h>

#include "base/alloc.h"
#include "comm/composites/hierarchy/hierarchy.h"
#include "os/clock.h"

/* --- from any rank -------------------------------------------------------- */

/* A receive from any rank that is posted to both engines; NULL: op is none, or only a flat one. */
static hierarchy_any *any_of(const hierarchy *h, const trii_op *op)
{
    bool both = op->call.kind == TRII_KIND_RECV_ANY && h->children[HIERARCHY_IN].self != NULL;

    return both ? (hierarchy_any *)(uintptr_t)op->scratch[0] : NULL;
}

/* One of the two has ended. Called from within its engine. */
static void half_ended(trii_op *op)
{
    hierarchy_half *half = (hierarchy_half *)((char *)op - offsetof(hierarchy_half, op));
    hierarchy_any *a = half->any;
    bool failed = trii_fault_status(&half->on->fault) != TRI_OK;
    tri_status status = trii_op_status(op);
    int nobody = 0;

    if (op->peer >= 0 && !failed) { /* it had a message */
        a->whole->peer = trii_rank_name(op->names, op->peer);
        a->whole->count = op->count;
        a->whole->bytes = op->bytes;
        trii_op_finish(a->whole, status, op->error);
    } else if (status == TRI_OK || failed) {
        /* if it had chosen a message, the receive is won already */
        if (op->peer >= 0 || atomic_compare_exchange_strong(&a->won, &nobody, 1))
            trii_op_finish(a->whole, status, op->error);
    } else if (atomic_fetch_add(&a->no_sender_left, 1) == 1 &&
               atomic_compare_exchange_strong(&a->won, &nobody, 1)) {
        trii_fault_raise(a->fault, status,
                         "rank %d waits for a message, and every rank left the group", a->rank);
        trii_op_finish(a->whole, status, "every rank left the group");
    }
    atomic_store(&half->done, true);
}

/* Its engine has not taken it, or has given it back. */
static void drop(hierarchy_half *half)
{
    if (half->op.counted != NULL)
        atomic_fetch_sub(half->op.counted, 1);
    atomic_store(&half->done, true);
}

static void take_back(hierarchy_half *half)
{
    if (half->on->engine->cancel_recv(half->on->self, &half->op))
        drop(half);
}

/* Guard: mutex. The half that got no message is taken back once the other one has it. */
void hierarchy_message_sweep(hierarchy *h)
{
    for (hierarchy_any **link = &h->anys; *link != NULL;) {
        hierarchy_any *a = *link;

        for (int i = 0; i < 2 && atomic_load(&a->won) != 0; i++) {
            if (!atomic_load(&a->halves[i].done) && atomic_load(&a->halves[!i].done))
                take_back(&a->halves[i]);
        }
        if (a->users == 0 && atomic_load(&a->halves[0].done) && atomic_load(&a->halves[1].done)) {
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

static tri_status post_half(hierarchy_half *half)
{
    return half->on->engine->submit(half->on->self, &half->op, false);
}

/* A failure means that the operation was not taken. */
static tri_status post_halves(hierarchy_any *a)
{
    hierarchy_half *near = &a->halves[0], *far = &a->halves[1];
    tri_status status = post_half(near);
    int nobody = 0;

    if (status != TRI_OK) {
        drop(near);
    } else if (!trii_op_is_won(&near->op)) {
        status = post_half(far);
        if (status == TRI_OK)
            return TRI_OK;
        if (!atomic_compare_exchange_strong(&a->won, &nobody, 1))
            status = TRI_OK; /* the other one has a message */
        else
            take_back(near);
    }
    drop(far);
    return status;
}

static tri_status submit_any(hierarchy *h, trii_op *op)
{
    hierarchy_any *a = trii_alloc(1, sizeof(*a), "receive from any rank");
    tri_status status;

    if (a == NULL)
        return TRI_ERR_NO_MEMORY;
    a->rank = h->rank;
    a->fault = h->fault;
    a->whole = op;
    for (int i = 0; i < 2; i++) {
        hierarchy_half *half = &a->halves[i];

        half->any = a;
        half->on = &h->children[i == 0 ? HIERARCHY_IN : HIERARCHY_FLAT];
        trii_op_init(&half->op, &op->call);
        half->op.made.from = NULL; /* the whole's is written at its end */
        half->op.won = &a->won;
        half->op.finished = half_ended;
    }
    a->halves[0].op.names = h->layout.by_host + h->layout.host_at[h->layout.host];
    a->halves[0].op.counted = &h->n_near;
    op->scratch[0] = (uintptr_t)a;
    atomic_fetch_add(&h->n_near, 1);
    trii_mutex_lock(&h->mutex);
    hierarchy_message_sweep(h);
    a->users = 1; /* until both engines have it */
    a->next = h->anys;
    h->anys = a;
    trii_mutex_unlock(&h->mutex);
    status = post_halves(a);
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
        return flat->engine->submit(flat->self, op, false);
    op->peer = l->local_of[op->call.root];
    op->names = l->by_host + l->host_at[l->host];
    op->counted = &h->n_near;
    atomic_fetch_add(&h->n_near, 1);
    status = in->engine->submit(in->self, op, false);
    if (status != TRI_OK) {
        atomic_fetch_sub(&h->n_near, 1);
        op->peer = op->call.root;
        op->names = NULL;
    }
    return status;
}

/* Which child has a message that only one of them has. */
static hierarchy_child *child_of(hierarchy *h, const trii_op *op)
{
    return &h->children[op->names != NULL ? HIERARCHY_IN : HIERARCHY_FLAT];
}

void hierarchy_message_progress(hierarchy *h, trii_op *op, int64_t until_ns)
{
    hierarchy_any *a = any_of(h, op);
    const hierarchy_child *in = &h->children[HIERARCHY_IN];
    const hierarchy_child *on = a != NULL ? in : child_of(h, op);
    trii_op *part = a != NULL ? &a->halves[0].op : op;
    bool busy = a != NULL, first = true;

    trii_mutex_lock(&h->mutex);
    while (trii_op_status(op) == TRI_INPROGRESS && (first || trii_now_ns() < until_ns)) {
        int64_t moment = trii_now_ns() + (busy ? HIERARCHY_MIXED_NS : HIERARCHY_LOOK_NS);

        first = false;
        if (a != NULL)
            a->users++;
        if (a != NULL && atomic_load(&a->halves[0].done)) { /* now only from another host */
            on = a->halves[1].on;
            part = &a->halves[1].op;
        }
        trii_mutex_unlock(&h->mutex);
        on->engine->progress(on->self, part, moment < until_ns ? moment : until_ns);
        trii_mutex_lock(&h->mutex);
        if (a != NULL)
            a->users--;
        if (!h->driving)
            hierarchy_look(h);
        busy = (a != NULL && on == in) || h->first != NULL ||
               (on != in && atomic_load(&h->n_near) > 0);
    }
    (void)hierarchy_check_faults(h); /* a child's is the group's */
    hierarchy_message_sweep(h);
    trii_mutex_unlock(&h->mutex);
}

bool hierarchy_message_cancel_recv(void *self, trii_op *op)
{
    const hierarchy_child *on = child_of(self, op);

    return on->engine->cancel_recv(on->self, op);
}

void hierarchy_message_describe(hierarchy *h, trii_op *op, char *text, size_t size)
{
    const hierarchy_child *on = child_of(h, op);

    if (op->call.kind == TRII_KIND_RECV_ANY)
        snprintf(text, size, "any rank to send the message");
    else
        on->engine->describe_wait(on->self, op, text, size);
}
