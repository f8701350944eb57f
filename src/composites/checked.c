/*
 * checked.c - an engine that does not notice calls that do not match, with another one, the guard,
 * that does. Before a call begins, the ranks compare what they call over the guard, an engine of
 * this library: by a barrier in the name of the call, or by a message without bytes. If they
 * disagree, the group fails with the line that shm and tcp have, before the engine could hang or
 * write where it must not. TRI_CHECK_CALLS asks for it; engine_make.c makes both engines.
 *
 * A call begins when all ranks have posted it, and collectives begin in order, so the engine
 * overlaps less with the caller's computations. A receive from any rank becomes one from the rank
 * whose message comes first, so engines that lack it have it here.
 */
#include "composites/composites.h"

#include <string.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/thread.h"

#define LOOK_NS TRII_NS_PER_MS /* between two looks at the engine that is not waited for */

/* A call that has not begun. */
typedef struct checked_call {
    struct checked_call *next;
    trii_op guard_op; /* the guard's */
    trii_op *whole;   /* the caller's; NULL = it has begun */
    int users;        /* threads that wait for guard_op */
} checked_call;

typedef struct checked {
    trii_engine table; /* as the engine's, with our functions */
    const trii_engine *engine, *guard;
    void *self, *guard_self;
    int rank;
    trii_fault *fault;
    trii_mutex mutex;
    checked_call *calls; /* guard: mutex, as the next; in order */
    uint64_t seq;
} checked;

static bool is_message(const trii_op *op)
{
    return trii_kind_in(op->call.kind, TRII_KINDS_PAIR);
}

static void checked_abort(void *self)
{
    checked *c = self;

    c->guard->abort(c->guard_self);
    c->engine->abort(c->self);
}

/* Guard: mutex. Frees what nobody looks at any more. */
static void free_ended_calls(checked *c)
{
    for (checked_call **link = &c->calls; *link != NULL;) {
        checked_call *call = *link;

        if (call->whole == NULL && call->users == 0 &&
            trii_op_status(&call->guard_op) != TRI_INPROGRESS) {
            *link = call->next;
            trii_free(call);
        } else {
            link = &call->next;
        }
    }
}

static void fail_call(checked_call *call, tri_status status, const char *why)
{
    trii_op *whole = call->whole;

    call->whole = NULL;
    trii_op_finish(whole, status, why);
}

/* All ranks have come: the call itself. */
static void begin_call(checked *c, checked_call *call)
{
    trii_op *whole = call->whole;
    tri_status st;

    if (whole->call.kind == TRII_KIND_RECV_ANY) {
        whole->call.kind = TRII_KIND_RECV;
        whole->call.root = call->guard_op.call.root;
    }
    if (whole->call.kind == TRII_KIND_RECV) { /* as long as the message is */
        whole->call.count = call->guard_op.call.count;
        whole->call.bytes = whole->call.count * tri_dtype_size(whole->call.dtype);
    }
    call->whole = NULL;
    st = c->engine->submit(c->self, whole);
    if (st != TRI_OK) {
        char why[TRII_ERR_BYTES];

        snprintf(why, sizeof(why), "%s", tri_last_error());
        trii_fault_raise(c->fault, st, "rank %d: %s", c->rank, why);
        trii_op_finish(whole, st, why);
    }
}

/* Guard: mutex. Begins what can be begun, or ends all with the group's failure. */
static void advance(checked *c)
{
    bool blocked = false; /* collectives begin one after the other */

    for (checked_call *call = c->calls; call != NULL; call = call->next) {
        tri_status st = trii_op_status(&call->guard_op);

        if (call->whole == NULL || (blocked && !is_message(call->whole)))
            continue;
        if (st == TRI_OK && trii_fault_status(c->fault) == TRI_OK)
            begin_call(c, call);
        else if (st < 0 && is_message(call->whole) && trii_fault_status(c->fault) == TRI_OK)
            fail_call(call, st, call->guard_op.error); /* there is no room for the message */
        else if (!is_message(call->whole))
            blocked = true;
    }
    if (trii_fault_status(c->fault) != TRI_OK) {
        checked_abort(c);
        for (checked_call *call = c->calls; call != NULL; call = call->next) {
            c->guard->progress(c->guard_self, &call->guard_op, 0);
            if (call->whole != NULL)
                fail_call(call, trii_fault_status(c->fault), c->fault->text);
        }
    }
    free_ended_calls(c);
}

static tri_status checked_submit(void *self, trii_op *op)
{
    checked *c = self;
    checked_call *call = trii_alloc(1, sizeof(*call), "call to compare"), **at = &c->calls;
    trii_collective probe = {.kind = TRII_KIND_BARRIER, .piece_of = &op->call};
    tri_status st;

    if (call == NULL)
        return TRI_ERR_NO_MEMORY;
    if (is_message(op)) { /* of so many elements, and no bytes */
        probe = op->call;
        probe.src = probe.dst = NULL;
        probe.bytes = 0;
        probe.from = NULL;
        probe.temporary = NULL;
    }
    probe.site = op->call.site;
    trii_op_init(&call->guard_op, &probe);
    call->guard_op.call.seq = op->call.seq;
    call->whole = op;
    trii_mutex_lock(&c->mutex);
    st = trii_fault_status(c->fault);
    if (st != TRI_OK)
        (void)TRII_FAIL(st, "%s", c->fault->text);
    if (st == TRI_OK && !is_message(op))
        call->guard_op.call.seq = ++c->seq;
    if (st == TRI_OK)
        st = c->guard->submit(c->guard_self, &call->guard_op);
    if (st != TRI_OK) {
        trii_free(call);
    } else {
        while (*at != NULL)
            at = &(*at)->next;
        *at = call;
        advance(c);
    }
    trii_mutex_unlock(&c->mutex);
    return st;
}

static checked_call *call_of(checked *c, const trii_op *whole)
{
    checked_call *call = c->calls;

    while (call != NULL && call->whole != whole)
        call = call->next;
    return call;
}

static void checked_progress(void *self, trii_op *op, int64_t until_ns)
{
    checked *c = self;

    trii_mutex_lock(&c->mutex);
    do {
        int64_t moment = trii_now_ns() + LOOK_NS;
        checked_call *call = call_of(c, op);

        moment = moment < until_ns ? moment : until_ns;
        if (call != NULL)
            call->users++;
        trii_mutex_unlock(&c->mutex);
        if (call != NULL)
            c->guard->progress(c->guard_self, &call->guard_op, moment);
        else
            c->engine->progress(c->self, op, moment);
        trii_mutex_lock(&c->mutex);
        if (call != NULL)
            call->users--;
        for (call = c->calls; call != NULL; call = call->next)
            c->guard->progress(c->guard_self, &call->guard_op, 0);
        advance(c);
    } while (trii_op_status(op) == TRI_INPROGRESS && trii_now_ns() < until_ns);
    trii_mutex_unlock(&c->mutex);
}

static void checked_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    checked *c = self;
    checked_call *call;

    trii_mutex_lock(&c->mutex);
    call = call_of(c, op);
    if (call != NULL)
        c->guard->describe_wait(c->guard_self, &call->guard_op, text, size);
    else
        c->engine->describe_wait(c->self, op, text, size);
    trii_mutex_unlock(&c->mutex);
}

static tri_status checked_alloc(void *self, size_t bytes, void **p_out)
{
    const checked *c = self;

    return c->engine->alloc(c->self, bytes, p_out);
}

static void checked_free(void *self, void *p)
{
    const checked *c = self;

    c->engine->free(c->self, p);
}

static void *checked_alloc_room(void *self)
{
    const checked *c = self;

    return c->engine->alloc_room(c->self);
}

static trii_loss checked_loss(void *self, int rank)
{
    const checked *c = self;

    return c->guard->loss != NULL ? c->guard->loss(c->guard_self, rank) : TRII_LOSS_NONE;
}

static void checked_disconnect(void *self, uint32_t draw, bool half)
{
    const checked *c = self;

    c->guard->disconnect(c->guard_self, draw, half);
}

static void checked_leave(void *self)
{
    checked *c = self;

    trii_mutex_lock(&c->mutex);
    if (call_of(c, NULL) != c->calls) {
        for (checked_call *call = c->calls; call != NULL; call = call->next) {
            if (call->whole != NULL)
                trii_fault_raise(c->fault, TRI_ERR_ABORTED, "rank %d left the group during a call",
                                 c->rank);
        }
    }
    advance(c);
    trii_mutex_unlock(&c->mutex);
    if (c->engine->leave != NULL)
        c->engine->leave(c->self);
    c->guard->leave(c->guard_self);
}

static void checked_destroy(void *self)
{
    checked *c = self;

    checked_leave(c);
    c->engine->destroy(c->self);
    c->guard->destroy(c->guard_self);
    while (c->calls != NULL) {
        checked_call *call = c->calls;

        c->calls = call->next;
        trii_free(call);
    }
    trii_mutex_fini(&c->mutex);
    trii_free(c);
}

void *trii_checked_alloc(void)
{
    return trii_alloc(1, sizeof(checked), "comparing engine");
}

void trii_checked_init(void *self, const trii_group_args *args, trii_child engine, trii_child guard,
                       trii_child *checked_out)
{
    checked *c = self;

    c->engine = engine.engine;
    c->self = engine.self;
    c->guard = guard.engine;
    c->guard_self = guard.self;
    c->rank = args->rank;
    c->fault = args->fault;
    trii_mutex_init(&c->mutex);
    c->table = (trii_engine){
        .abi = TRII_ENGINE_ABI,
        .size = sizeof(trii_engine),
        .name = c->engine->name,
        .kinds = c->engine->kinds | 1u << TRII_KIND_RECV_ANY,
        .alloc = c->engine->alloc != NULL ? checked_alloc : NULL,
        .free = c->engine->free != NULL ? checked_free : NULL,
        .alloc_room = c->engine->alloc_room != NULL ? checked_alloc_room : NULL,
        .submit = checked_submit,
        .progress = checked_progress,
        .describe_wait = checked_describe_wait,
        .abort = checked_abort,
        .destroy = checked_destroy,
        .leave = checked_leave,
        .disconnect = checked_disconnect,
        .loss = checked_loss,
        .on_device = c->engine->on_device,
    };
    *checked_out = (trii_child){.engine = &c->table, .self = c};
}
