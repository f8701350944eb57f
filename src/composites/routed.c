/*
 * routed.c - several engines as one, for a group whose user names engines by operation and size: a
 * call goes to the engine of the first rule that fits, else to the group's own. Each engine numbers
 * the calls that it gets, and memory is the own engine's. engine_make.c makes the children.
 */
#include "composites/composites.h"

#include <string.h>

#include "base/alloc.h"
#include "group/form/choose.h"
#include "os/clock.h"

#define LOOK_NS TRII_NS_PER_MS /* between two looks at the engines that are not waited for */

typedef struct routed {
    int rank;
    trii_fault *fault;
    trii_choice choice;
    int n;
    trii_child children[1 + TRII_RULES]; /* the own one first */
    uint64_t seq[1 + TRII_RULES];        /* of the last collective of each */
    int of_rule[TRII_RULES];             /* which child a rule means */
    trii_op nothing;                     /* for looks: engines finish what is theirs */
} routed;

/* Chosen once: an engine's thread shortens the call of a receive when its message comes. */
static const trii_child *choose(routed *m, trii_op *op)
{
    int rule = trii_choice_rule(&m->choice, &op->call);

    op->route = rule >= 0 ? m->of_rule[rule] : 0;
    return &m->children[op->route];
}

static const trii_child *child_of(const routed *m, const trii_op *op)
{
    return &m->children[op->route];
}

static void routed_abort(void *self)
{
    routed *m = self;

    for (int i = 0; i < m->n; i++)
        m->children[i].engine->abort(m->children[i].self);
}

static tri_status take(routed *m, trii_op *op, bool run)
{
    const trii_child *c = choose(m, op);

    if (!trii_kind_in(op->call.kind, c->engine->kinds))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: engine %s, which a rule of tri_group_options or TRI_ENGINE names, "
                         "does not have it",
                         trii_kind_name(op->call.kind), c->engine->name);
    if (op->call.kind != TRII_KIND_RECV_ANY && trii_kind_in(op->call.kind, TRII_KINDS_PAIR) &&
        op->call.root == m->rank && !c->engine->to_self)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: peer %d is this rank itself, and engine %s, which a rule of "
                         "tri_group_options or TRI_ENGINE names, has no messages to oneself",
                         trii_kind_name(op->call.kind), m->rank, c->engine->name);
    if (!trii_kind_in(op->call.kind, TRII_KINDS_PAIR))
        op->call.seq = ++m->seq[op->route];
    return run && c->engine->run != NULL ? c->engine->run(c->self, op)
                                         : c->engine->submit(c->self, op);
}

static tri_status routed_submit(void *self, trii_op *op)
{
    return take(self, op, false);
}

static tri_status routed_run(void *self, trii_op *op)
{
    return take(self, op, true);
}

static void routed_progress(void *self, trii_op *op, int64_t until_ns)
{
    routed *m = self;
    const trii_child *c = child_of(m, op);

    do {
        int64_t look = trii_now_ns() + LOOK_NS;

        c->engine->progress(c->self, op, until_ns < look ? until_ns : look);
        if (trii_fault_status(m->fault) != TRI_OK)
            routed_abort(m);
        if (trii_op_status(op) != TRI_INPROGRESS)
            return;
        for (int i = 0; i < m->n; i++) {
            const trii_child *other = &m->children[i];

            if (other != c)
                other->engine->progress(other->self, &m->nothing, 0);
        }
    } while (until_ns != 0 && trii_now_ns() < until_ns);
}

static bool routed_cancel_recv(void *self, trii_op *op)
{
    const trii_child *c = child_of(self, op);

    return c->engine->cancel_recv(c->self, op);
}

static void routed_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    const trii_child *c = child_of(self, op);

    c->engine->describe_wait(c->self, op, text, size);
}

static void routed_announce_wait(void *self, const trii_op *op)
{
    const trii_child *c = child_of(self, op);

    if (c->engine->announce_wait != NULL)
        c->engine->announce_wait(c->self, op);
}

static tri_status routed_alloc(void *self, size_t bytes, void **p_out)
{
    const trii_child *own = ((routed *)self)->children;

    if (own->engine->alloc != NULL)
        return own->engine->alloc(own->self, bytes, p_out);
    return trii_group_heap(bytes, p_out);
}

static void routed_free(void *self, void *p)
{
    const trii_child *own = ((routed *)self)->children;

    if (own->engine->free != NULL)
        own->engine->free(own->self, p);
    else
        trii_free(p);
}

static void *routed_alloc_room(void *self)
{
    const trii_child *own = ((routed *)self)->children;

    return own->engine->alloc_room != NULL ? own->engine->alloc_room(own->self) : NULL;
}

static trii_loss routed_loss(void *self, int rank)
{
    const routed *m = self;
    trii_loss most = TRII_LOSS_NONE;

    for (int i = 0; i < m->n; i++) {
        const trii_engine *engine = m->children[i].engine;
        trii_loss loss =
            engine->loss != NULL ? engine->loss(m->children[i].self, rank) : TRII_LOSS_NONE;

        most = loss > most ? loss : most;
    }
    return most;
}

static void routed_disconnect(void *self, uint32_t draw, bool half)
{
    routed *m = self;
    const trii_child *c = &m->children[draw % (uint32_t)m->n];

    if (c->engine->disconnect != NULL)
        c->engine->disconnect(c->self, draw, half);
}

static void routed_leave(void *self)
{
    const routed *m = self;

    for (int i = m->n - 1; i >= 0; i--) {
        if (m->children[i].engine->leave != NULL)
            m->children[i].engine->leave(m->children[i].self);
    }
}

static void routed_destroy(void *self)
{
    routed *m = self;

    for (int i = m->n - 1; i >= 0; i--)
        m->children[i].engine->destroy(m->children[i].self);
    trii_free(m);
}

static const trii_engine routed_table = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = "mixed", /* what tri_group_engine promises */
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .to_self = true,
    .alloc = routed_alloc,
    .free = routed_free,
    .alloc_room = routed_alloc_room,
    .submit = routed_submit,
    .run = routed_run,
    .progress = routed_progress,
    .describe_wait = routed_describe_wait,
    .abort = routed_abort,
    .destroy = routed_destroy,
    .leave = routed_leave,
    .disconnect = routed_disconnect,
    .cancel_recv = routed_cancel_recv,
    .loss = routed_loss,
    .announce_wait = routed_announce_wait,
};

void *trii_routed_alloc(void)
{
    return trii_alloc(1, sizeof(routed), "engines of a group");
}

void trii_routed_init(void *self, const trii_group_args *args, const trii_choice *choice,
                      const int *of_rule, const trii_child *children, int n_children,
                      trii_child *routed_out)
{
    routed *m = self;

    m->rank = args->rank;
    m->fault = args->fault;
    m->choice = *choice;
    memcpy(m->of_rule, of_rule, sizeof(m->of_rule));
    memcpy(m->children, children, (size_t)n_children * sizeof(*children));
    m->n = n_children;
    m->nothing.call.kind = TRII_KIND_BARRIER;
    atomic_init(&m->nothing.status, TRI_INPROGRESS);
    *routed_out = (trii_child){.engine = &routed_table, .self = m};
}
