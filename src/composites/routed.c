/*
 * routed.c - several engines as one, for a group whose user names engines by operation and size: a
 * call goes to the engine of the first rule that fits, else to the group's own. Each engine numbers
 * the calls that it gets, and memory is the own engine's.
 */
#include <string.h>

#include "base/alloc.h"
#include "group/form/choose.h"
#include "group/group_internal.h"
#include "os/clock.h"

#define LOOK_NS TRII_NS_PER_MS /* between two looks at the engines that are not waited for */

typedef struct mixed_child {
    const trii_engine *engine;
    void *self;
    uint64_t seq;
} mixed_child;

typedef struct mixed {
    int rank;
    trii_fault *fault;
    trii_choice choice;
    int n;
    mixed_child children[1 + TRII_RULES]; /* the own one first */
    int rule_child[TRII_RULES];           /* which one a rule means */
    trii_op nothing;                      /* for looks: engines finish what is theirs */
} mixed;

/* Chosen once: an engine's thread shortens the call of a receive when its message comes. */
static mixed_child *choose(mixed *m, trii_op *op)
{
    int rule = trii_choice_rule(&m->choice, &op->call);

    op->route = rule >= 0 ? m->rule_child[rule] : 0;
    return &m->children[op->route];
}

static const mixed_child *child_of(const mixed *m, const trii_op *op)
{
    return &m->children[op->route];
}

static void mixed_abort(void *self)
{
    mixed *m = self;

    for (int i = 0; i < m->n; i++)
        m->children[i].engine->abort(m->children[i].self);
}

static tri_status take(mixed *m, trii_op *op, bool run)
{
    mixed_child *c = choose(m, op);

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
        op->call.seq = ++c->seq;
    return run && c->engine->run != NULL ? c->engine->run(c->self, op)
                                         : c->engine->submit(c->self, op);
}

static tri_status mixed_submit(void *self, trii_op *op)
{
    return take(self, op, false);
}

static tri_status mixed_run(void *self, trii_op *op)
{
    return take(self, op, true);
}

static void mixed_progress(void *self, trii_op *op, int64_t until_ns)
{
    mixed *m = self;
    const mixed_child *c = child_of(m, op);

    do {
        int64_t look = trii_now_ns() + LOOK_NS;

        c->engine->progress(c->self, op, until_ns < look ? until_ns : look);
        if (trii_fault_status(m->fault) != TRI_OK)
            mixed_abort(m);
        if (trii_op_status(op) != TRI_INPROGRESS)
            return;
        for (int i = 0; i < m->n; i++) {
            const mixed_child *other = &m->children[i];

            if (other != c)
                other->engine->progress(other->self, &m->nothing, 0);
        }
    } while (until_ns != 0 && trii_now_ns() < until_ns);
}

static bool mixed_withdraw(void *self, trii_op *op)
{
    const mixed_child *c = child_of(self, op);

    return c->engine->withdraw(c->self, op);
}

static void mixed_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    const mixed_child *c = child_of(self, op);

    c->engine->describe_wait(c->self, op, text, size);
}

static void mixed_say(void *self, const trii_op *op)
{
    const mixed_child *c = child_of(self, op);

    if (c->engine->say != NULL)
        c->engine->say(c->self, op);
}

static tri_status mixed_alloc(void *self, size_t bytes, void **p_out)
{
    const mixed_child *own = ((mixed *)self)->children;

    if (own->engine->alloc != NULL)
        return own->engine->alloc(own->self, bytes, p_out);
    return trii_group_heap(bytes, p_out);
}

static void mixed_free(void *self, void *p)
{
    const mixed_child *own = ((mixed *)self)->children;

    if (own->engine->free != NULL)
        own->engine->free(own->self, p);
    else
        trii_free(p);
}

static void *mixed_alloc_room(void *self)
{
    const mixed_child *own = ((mixed *)self)->children;

    return own->engine->alloc_room != NULL ? own->engine->alloc_room(own->self) : NULL;
}

static trii_loss mixed_loss(void *self, int rank)
{
    const mixed *m = self;
    trii_loss most = TRII_LOSS_NONE;

    for (int i = 0; i < m->n; i++) {
        const trii_engine *engine = m->children[i].engine;
        trii_loss loss =
            engine->loss != NULL ? engine->loss(m->children[i].self, rank) : TRII_LOSS_NONE;

        most = loss > most ? loss : most;
    }
    return most;
}

static void mixed_sever(void *self, uint32_t draw, bool half)
{
    mixed *m = self;
    const mixed_child *c = &m->children[draw % (uint32_t)m->n];

    if (c->engine->sever != NULL)
        c->engine->sever(c->self, draw, half);
}

static void mixed_leave(void *self)
{
    const mixed *m = self;

    for (int i = m->n - 1; i >= 0; i--) {
        if (m->children[i].engine->leave != NULL)
            m->children[i].engine->leave(m->children[i].self);
    }
}

static void mixed_destroy(void *self)
{
    mixed *m = self;

    for (int i = m->n - 1; i >= 0; i--)
        m->children[i].engine->destroy(m->children[i].self);
    trii_free(m);
}

const trii_engine trii_engine_mixed = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = "mixed",
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .to_self = true,
    .alloc = mixed_alloc,
    .free = mixed_free,
    .alloc_room = mixed_alloc_room,
    .submit = mixed_submit,
    .run = mixed_run,
    .progress = mixed_progress,
    .describe_wait = mixed_describe_wait,
    .abort = mixed_abort,
    .destroy = mixed_destroy,
    .leave = mixed_leave,
    .sever = mixed_sever,
    .withdraw = mixed_withdraw,
    .loss = mixed_loss,
    .say = mixed_say,
};

/* --- making ---------------------------------------------------------------------------------- */

/* All ranks must say the same: else their calls would go different ways. */
static tri_status compare_texts(const char *text, const trii_group_args *args)
{
    char *first = NULL;
    tri_status st = TRI_OK;

    if (args->rank == 0)
        st = tri_store_set(args->store, "rules", text, strlen(text));
    else
        st = tri_store_get(args->store, "rules", trii_group_left_ms(args), (void **)&first, NULL);
    if (st == TRI_OK && first != NULL && strcmp(first, text) != 0)
        st = TRII_FAIL(TRI_ERR_INVALID_ARG,
                       "engine (tri_group_options or TRI_ENGINE): rank 0 says \"%s\", rank %d says "
                       "\"%s\"",
                       first, args->rank, text);
    tri_store_free(first);
    return trii_group_agree(args, "same rules", st);
}

/* The engine of this name, made if it is the first of it. */
static tri_status make_child(mixed *m, const char *name, tri_store *store, trii_group_args *args,
                             int *child_out)
{
    mixed_child *c = &m->children[m->n];
    tri_store *own = NULL;
    char key[16];
    tri_status st;

    for (int i = 0; i < m->n && *name != '\0'; i++) {
        if (strcmp(m->children[i].engine->name, name) == 0) {
            *child_out = i;
            return TRI_OK;
        }
    }
    if (*name == '\0' && m->n > 0) { /* auto, as the group's own */
        *child_out = 0;
        return m->choice.engine[0] == '\0'
                   ? TRI_OK
                   : TRII_FAIL(TRI_ERR_INVALID_ARG,
                               "engine (tri_group_options or TRI_ENGINE): a rule cannot mean auto "
                               "where the group's engine is named");
    }
    snprintf(key, sizeof(key), "mixed/%d", m->n);
    st = trii_group_view(key, store, &own);
    if (st != TRI_OK)
        return st;
    st = trii_engine_make(*name != '\0' ? name : NULL, own, args, &c->engine, &c->self);
    tri_store_unref(own);
    if (st == TRI_OK && c->engine->on_device) {
        st = TRII_FAIL(TRI_ERR_UNSUPPORTED,
                       "engine %s: what is in a device's memory needs a group of its own",
                       c->engine->name);
        c->engine->destroy(c->self);
    }
    if (st == TRI_OK)
        *child_out = m->n++;
    return st;
}

tri_status trii_mixed_make(const trii_choice *choice, const char *text, tri_store *store,
                           trii_group_args *args, void **self_out)
{
    const trii_collective nothing = {.kind = TRII_KIND_BARRIER};
    mixed *m = trii_alloc(1, sizeof(*m), "engines of a group");
    tri_status st;
    int own = 0;

    args->store = store;
    st = trii_group_agree(args, TRII_MIXED_STEP, m != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    if (st == TRI_OK)
        st = compare_texts(text, args);
    if (m == NULL || st != TRI_OK) {
        trii_free(m);
        return st != TRI_OK ? st : TRI_ERR_NO_MEMORY;
    }
    m->rank = args->rank;
    m->fault = args->fault;
    m->choice = *choice;
    m->nothing.call = nothing;
    atomic_init(&m->nothing.status, TRI_INPROGRESS);
    st = make_child(m, choice->engine, store, args, &own);
    for (int i = 0; i < choice->n_rules && st == TRI_OK; i++)
        st = make_child(m, choice->rules[i].engine, store, args, &m->rule_child[i]);
    if (st != TRI_OK) {
        mixed_destroy(m);
        return st;
    }
    *self_out = m;
    return TRI_OK;
}
