/*
 * hierarchy.c - child engines as one: ranks of a host meet in shared memory, and what leaves a host
 * leaves it once. See hierarchy.h for the children, hierarchy_stages.c for what calls make of them.
 *
 * Calls are begun in order, on every child in the same one, and several are under way at a time.
 * Whoever waits drives them, one thread for all: it helps the children of this host along itself,
 * and what is between hosts is moved by the process's control thread meanwhile.
 */
#include "composites/hierarchy/hierarchy.h"

#include <string.h>

#include "base/alloc.h"
#include "os/clock.h"

/* --- faults -------------------------------------------------------------------------------- */

static void raise_from(hierarchy *h, const hierarchy_child *c)
{
    int lost = atomic_load(&c->fault.lost_rank); /* + 1 */

    if (lost > 0 && lost <= h->size)
        atomic_store(&h->fault->lost_rank, lost);
    trii_fault_raise(h->fault, trii_fault_status(&c->fault), "%s", c->fault.text);
}

static void abort_children(hierarchy *h)
{
    tri_status status = trii_fault_settled(h->fault);

    for (int i = 0; i < HIERARCHY_CHILDREN; i++) {
        hierarchy_child *c = &h->children[i];

        if (c->self == NULL)
            continue;
        trii_fault_raise(&c->fault, status, "%s", h->fault->text);
        c->engine->abort(c->self);
    }
}

/* What has failed in a child, or was raised from outside, fails everything. True if failed. */
bool hierarchy_check_faults(hierarchy *h)
{
    bool failed = trii_fault_status(h->fault) != TRI_OK;
    bool all = true;

    for (int i = HIERARCHY_CHILDREN - 1; i >= 0; i--) { /* flat has the best words */
        const hierarchy_child *c = &h->children[i];
        bool fault = c->self != NULL && trii_fault_status(&c->fault) != TRI_OK;

        if (fault && !failed)
            raise_from(h, c);
        failed = failed || fault;
        all = all && (c->self == NULL || fault);
    }
    if (failed && !all)
        abort_children(h);
    return failed;
}

/* --- calls under way (guard: mutex) ---------------------------------------------------------- */

static bool is_under_way(const hierarchy_child *on, const trii_op *op)
{
    return on != NULL && trii_op_status(op) == TRI_INPROGRESS;
}

static hierarchy_child *notice_on(hierarchy *h, const hierarchy_call *c)
{
    return c->noticed ? &h->children[HIERARCHY_IN] : NULL;
}

static tri_status post(hierarchy_child *child, trii_op *op, const trii_collective *piece,
                       const trii_op *whole)
{
    tri_status st;

    trii_op_init(op, piece);
    op->call.piece_of = trii_collective_whole(&whole->call);
    op->call.temporary = NULL;
    op->call.from = NULL;
    op->call.seq = ++child->seq;
    st = child->engine->submit(child->self, op);
    if (st != TRI_OK)
        trii_fault_raise(&child->fault, st, "%s", tri_last_error());
    return st;
}

tri_status hierarchy_post(hierarchy *h, hierarchy_call *c, int child, const trii_collective *piece)
{
    tri_status st = post(&h->children[child], &c->inner, piece, c->op);

    if (st == TRI_OK)
        c->inner_on = &h->children[child];
    return st;
}

/* So that ranks of this host notice if they make different calls, of which some begin here and
 * some elsewhere. Nobody waits for it but the end. */
static tri_status notice(hierarchy *h, hierarchy_call *c)
{
    const trii_collective piece = {.kind = TRII_KIND_BARRIER, .site = c->op->call.site};
    tri_status st = TRI_OK;

    if (h->layout.local_size > 1) {
        st = post(&h->children[HIERARCHY_IN], &c->notice, &piece, c->op);
        c->noticed = st == TRI_OK;
    }
    return st;
}

static void begin_stage(hierarchy *h, hierarchy_call *c)
{
    tri_status st = hierarchy_next_stage(h, c);

    if (st == TRI_OK && c->stage == HIERARCHY_IN && c->inner_on == NULL)
        st = notice(h, c);
    c->stage++;
    if (st != TRI_OK)
        trii_fault_raise(h->fault, st, "rank %d: %s", h->rank, tri_last_error());
}

/* Ends what a child has done, begins what can be begun. False if nothing could be done. */
static bool step(hierarchy *h, hierarchy_call *c, const hierarchy_call *before)
{
    if (is_under_way(c->inner_on, &c->inner))
        return false;
    if (c->inner_on != NULL && trii_op_status(&c->inner) != TRI_OK)
        trii_fault_raise(&c->inner_on->fault, trii_op_status(&c->inner), "%s", c->inner.error);
    c->inner_on = NULL;
    if (hierarchy_check_faults(h))
        return false;
    if (c->stage == HIERARCHY_STAGES ||
        (before != NULL && before->stage <= c->stage && c->stage <= HIERARCHY_OUT))
        return false;
    begin_stage(h, c);
    return true;
}

static hierarchy_call *free_call(hierarchy *h)
{
    for (int i = 0; i < HIERARCHY_CALLS; i++) {
        if (h->calls[i].op == NULL)
            return &h->calls[i];
    }
    return NULL;
}

/* Queued calls get room; *last: behind which. */
static void begin_queued(hierarchy *h)
{
    hierarchy_call **at = &h->first, *c;

    while (*at != NULL)
        at = &(*at)->next;
    while (h->queue != NULL && (c = free_call(h)) != NULL) {
        c->op = h->queue;
        h->queue = c->op->next;
        c->next = NULL;
        c->stage = 0;
        c->inner_on = NULL;
        c->noticed = false;
        *at = c;
        at = &c->next;
    }
}

static void end_call(hierarchy *h, hierarchy_call **link, tri_status status)
{
    hierarchy_call *c = *link;
    trii_op *op = c->op;

    *link = c->next;
    c->op = NULL;
    trii_op_finish(op, status, status != TRI_OK ? h->fault->text : NULL);
}

/* Everything ends with the group's failure, as far as the children let go. */
static void finish_all(hierarchy *h)
{
    tri_status status = trii_fault_status(h->fault);

    for (hierarchy_call **link = &h->first; *link != NULL;) {
        hierarchy_call *c = *link;
        hierarchy_child *in = notice_on(h, c);

        if (is_under_way(c->inner_on, &c->inner))
            c->inner_on->engine->progress(c->inner_on->self, &c->inner, 0);
        if (is_under_way(in, &c->notice))
            in->engine->progress(in->self, &c->notice, 0);
        if (is_under_way(c->inner_on, &c->inner) || is_under_way(in, &c->notice))
            link = &c->next;
        else
            end_call(h, link, status);
    }
    while (h->queue != NULL && h->first == NULL) {
        trii_op *op = h->queue;

        h->queue = op->next;
        trii_op_finish(op, status, h->fault->text);
    }
    trii_cond_broadcast(&h->turn);
}

/* Does what can be done now without a child. While a thread drives, what it looks at stays as it
 * is: only calls that it does not know yet begin. */
static void advance(hierarchy *h)
{
    bool did = true, ended = false;

    while (did && !hierarchy_check_faults(h)) {
        const hierarchy_call *before = NULL;

        did = false;
        begin_queued(h);
        for (hierarchy_call **link = &h->first; *link != NULL;) {
            hierarchy_call *c = *link;

            while (!(h->driving && c->inner_on != NULL) && step(h, c, before))
                did = true;
            if (!h->driving && c->stage == HIERARCHY_STAGES && c->inner_on == NULL &&
                !is_under_way(notice_on(h, c), &c->notice)) {
                end_call(h, link, TRI_OK);
                did = ended = true;
            } else {
                before = c;
                link = &c->next;
            }
        }
    }
    if (hierarchy_check_faults(h) && !h->driving)
        finish_all(h);
    else if (ended)
        trii_cond_broadcast(&h->turn);
}

/* --- waiting --------------------------------------------------------------------------------- */

static int64_t sooner(int64_t until_ns, int64_t moment_ns)
{
    int64_t look = trii_now_ns() + moment_ns;

    return until_ns < look ? until_ns : look;
}

static bool is_local(const hierarchy *h, const hierarchy_child *child)
{
    return child == &h->children[HIERARCHY_IN] || child == &h->children[HIERARCHY_OUT];
}

/* What the driver has to look after: the oldest calls of children here and elsewhere. */
typedef struct duty {
    hierarchy_child *near, *far;
    trii_op *near_op, *far_op;
    int n_far;
} duty;

static void note(const hierarchy *h, duty *d, hierarchy_child *on, trii_op *op)
{
    if (!is_under_way(on, op))
        return;
    if (!is_local(h, on)) {
        d->n_far++;
        d->far_op = d->far == NULL ? op : d->far_op;
        d->far = d->far == NULL ? on : d->far;
    } else if (d->near == NULL) {
        d->near = on;
        d->near_op = op;
    }
}

static duty duty_of(hierarchy *h)
{
    duty d = {0};

    for (hierarchy_call *c = h->first; c != NULL; c = c->next) {
        note(h, &d, c->inner_on, &c->inner);
        note(h, &d, notice_on(h, c), &c->notice);
    }
    return d;
}

/* Now and then: what others say, of calls for which nothing is under way there. */
static void listen(hierarchy *h)
{
    if (h->first == NULL || trii_now_ns() < h->listen_ns)
        return;
    h->listen_ns = trii_now_ns() + HIERARCHY_LISTEN_NS;
    for (int i = 0; i < HIERARCHY_CHILDREN; i++) {
        const hierarchy_child *child = &h->children[i];

        if (child->self != NULL && !is_local(h, child))
            child->engine->progress(child->self, h->first->op, 0);
    }
}

/* Guard: mutex. One look at every child that has something to do. */
void hierarchy_look(hierarchy *h)
{
    hierarchy_child *in = &h->children[HIERARCHY_IN];

    for (hierarchy_call *c = h->first; c != NULL; c = c->next) {
        if (is_under_way(c->inner_on, &c->inner))
            c->inner_on->engine->progress(c->inner_on->self, &c->inner, 0);
        if (c->noticed && is_under_way(in, &c->notice))
            in->engine->progress(in->self, &c->notice, 0);
    }
    if (atomic_load(&h->n_near) > 0) /* the operation does not matter for a look */
        in->engine->progress(in->self, &h->calls[0].inner, 0);
    listen(h);
    advance(h);
}

/* Guard: mutex, given back meanwhile. Helps what is under way along, for a moment at most. */
static void drive(hierarchy *h, int64_t until_ns)
{
    duty d = duty_of(h);
    bool mixed = d.n_far > 1 || atomic_load(&h->n_near) > 0;

    if (d.near == NULL && d.far == NULL) { /* it ended since the last look */
        hierarchy_look(h);
        return;
    }
    h->driving = true;
    trii_mutex_unlock(&h->mutex);
    if (d.near != NULL)
        d.near->engine->progress(
            d.near->self, d.near_op,
            sooner(until_ns, d.far != NULL ? HIERARCHY_MIXED_NS : HIERARCHY_LOOK_NS));
    if (d.far != NULL && d.near == NULL)
        d.far->engine->progress(d.far->self, d.far_op,
                                sooner(until_ns, mixed ? HIERARCHY_MIXED_NS : HIERARCHY_LOOK_NS));
    trii_mutex_lock(&h->mutex);
    h->driving = false;
    hierarchy_look(h);
    trii_cond_broadcast(&h->turn);
}

static tri_status hierarchy_submit(void *self, trii_op *op)
{
    hierarchy *h = self;
    trii_op **at = &h->queue;
    tri_status st = TRI_OK;

    trii_mutex_lock(&h->mutex);
    if (hierarchy_check_faults(h)) {
        st = TRII_FAIL(trii_fault_status(h->fault), "%s", h->fault->text);
    } else if (!trii_kind_in(op->call.kind, TRII_KINDS_PAIR)) {
        op->next = NULL;
        while (*at != NULL)
            at = &(*at)->next;
        *at = op;
        advance(h);
    }
    trii_mutex_unlock(&h->mutex);
    if (st != TRI_OK || !trii_kind_in(op->call.kind, TRII_KINDS_PAIR))
        return st;
    return hierarchy_message_submit(h, op);
}

static void hierarchy_progress(void *self, trii_op *op, int64_t until_ns)
{
    hierarchy *h = self;

    if (trii_kind_in(op->call.kind, TRII_KINDS_PAIR)) {
        hierarchy_message_progress(h, op, until_ns);
        return;
    }
    trii_mutex_lock(&h->mutex);
    if (!h->driving)
        hierarchy_look(h);
    while (until_ns != 0 && trii_op_status(op) == TRI_INPROGRESS && trii_now_ns() < until_ns) {
        if (h->driving)
            (void)trii_cond_wait_until(&h->turn, &h->mutex, sooner(until_ns, HIERARCHY_LOOK_NS));
        else
            drive(h, until_ns);
    }
    trii_mutex_unlock(&h->mutex);
}

static void hierarchy_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    hierarchy *h = self;
    hierarchy_call *c;
    char inner[300] = "nobody";

    if (trii_kind_in(op->call.kind, TRII_KINDS_PAIR)) {
        hierarchy_message_describe(h, op, text, size);
        return;
    }
    trii_mutex_lock(&h->mutex);
    c = h->first;
    while (c != NULL && c->op != op)
        c = c->next;
    c = c != NULL && (c->inner_on != NULL || c->noticed) ? c : h->first;
    if (c != NULL && is_under_way(c->inner_on, &c->inner))
        c->inner_on->engine->describe_wait(c->inner_on->self, &c->inner, inner, sizeof(inner));
    else if (c != NULL && is_under_way(notice_on(h, c), &c->notice))
        notice_on(h, c)->engine->describe_wait(notice_on(h, c)->self, &c->notice, inner,
                                               sizeof(inner));
    snprintf(text, size, "%s%s%s",
             c != NULL && c->op != op ? "an earlier call, which waits for " : "", inner,
             c != NULL && (c->inner_on == &h->children[HIERARCHY_CROSS] ||
                           c->inner_on == &h->children[HIERARCHY_BACK])
                 ? "; or for a rank of the same host"
                 : "");
    trii_mutex_unlock(&h->mutex);
}

/* What the others hear is the call that holds this one up. */
static void hierarchy_say(void *self, const trii_op *op)
{
    hierarchy *h = self;
    const hierarchy_child *flat = &h->children[HIERARCHY_FLAT];

    trii_mutex_lock(&h->mutex);
    if (h->first != NULL && !trii_kind_in(op->call.kind, TRII_KINDS_PAIR))
        op = h->first->op;
    flat->engine->say(flat->self, op);
    trii_mutex_unlock(&h->mutex);
}

static void hierarchy_abort(void *self)
{
    hierarchy *h = self;

    if (trii_fault_status(h->fault) == TRI_OK)
        return; /* somebody is just writing it, and will come here */
    abort_children(h);
    trii_mutex_lock(&h->mutex);
    advance(h);
    trii_cond_broadcast(&h->turn);
    trii_mutex_unlock(&h->mutex);
}

/* A rank that is alone on its host has no child that shares memory. */
static tri_status hierarchy_alloc(void *self, size_t bytes, void **p_out)
{
    const hierarchy_child *in = &((hierarchy *)self)->children[HIERARCHY_IN];

    if (in->self != NULL)
        return in->engine->alloc(in->self, bytes, p_out);
    return trii_group_heap(bytes, p_out);
}

static void hierarchy_free(void *self, void *p)
{
    const hierarchy_child *in = &((hierarchy *)self)->children[HIERARCHY_IN];

    if (in->self != NULL)
        in->engine->free(in->self, p);
    else
        trii_free(p);
}

/* Ranks of a host agree, hosts do not. */
static void *hierarchy_alloc_room(void *self)
{
    return ((hierarchy *)self)->alloc_room;
}

/* FLAT has everybody, and knows of each process. */
static trii_loss hierarchy_loss(void *self, int rank)
{
    const hierarchy *h = self;
    const hierarchy_child *flat = &h->children[HIERARCHY_FLAT];

    return flat->engine->loss(flat->self, rank);
}

static void hierarchy_sever(void *self, uint32_t draw, bool half)
{
    const hierarchy_child *flat = &((hierarchy *)self)->children[HIERARCHY_FLAT];

    flat->engine->sever(flat->self, draw, half);
}

/* --- life ------------------------------------------------------------------------------------ */

static void release(hierarchy *h)
{
    hierarchy_message_sweep(h);
    for (int i = HIERARCHY_CHILDREN - 1; i >= 0; i--) {
        if (h->children[i].self != NULL)
            h->children[i].engine->destroy(h->children[i].self);
    }
    for (int i = 0; i < HIERARCHY_CALLS; i++)
        trii_free(h->calls[i].memory);
    trii_free(h->calls[0].columns); /* and all others' */
    hierarchy_message_fini(h);
    trii_free(h->sources);
    trii_free(h->from);
    trii_free(h->sum_room);
    trii_free(h->alloc_room);
    hierarchy_layout_fini(&h->layout);
    trii_cond_fini(&h->turn);
    trii_mutex_fini(&h->mutex);
    trii_free(h);
}

static void hierarchy_leave(void *self)
{
    hierarchy *h = self;

    trii_mutex_lock(&h->mutex);
    if (h->first != NULL || h->queue != NULL) {
        trii_fault_raise(h->fault, TRI_ERR_ABORTED, "rank %d left the group during a call",
                         h->rank);
        abort_children(h);
        while (h->first != NULL || h->queue != NULL) {
            drive(h, INT64_MAX);
            advance(h);
        }
    }
    trii_mutex_unlock(&h->mutex);
    hierarchy_message_sweep(h);
    for (int i = HIERARCHY_CHILDREN - 1; i >= 0; i--) {
        if (h->children[i].self != NULL)
            h->children[i].engine->leave(h->children[i].self);
    }
}

static void hierarchy_destroy(void *self)
{
    hierarchy_leave(self);
    release(self);
}

/* Its place among the children: its ranks, its key in the store; size 0: this rank is not in it. */
static void place_child(const hierarchy *h, int which, trii_group_args *its, char key[24])
{
    static const char *const names[HIERARCHY_CHILDREN] = {"in", "cross", "back", "out", "flat"};
    const hierarchy_layout *l = &h->layout;

    if (which == HIERARCHY_FLAT) {
        its->rank = h->rank;
        its->size = h->size;
        snprintf(key, 24, "%s", names[which]);
    } else if (which == HIERARCHY_IN || which == HIERARCHY_OUT) {
        its->rank = l->local_rank;
        its->size = l->local_size > 1 ? l->local_size : 0;
        its->names = l->by_host + l->host_at[l->host];
        snprintf(key, 24, "%s/%d", names[which], l->host);
    } else {
        its->rank = l->host;
        its->size = l->column >= 0 ? l->n_hosts : 0;
        its->names = l->column_ranks;
        snprintf(key, 24, "%s/%d", names[which], l->column);
    }
}

static tri_status create_child(hierarchy *h, const trii_group_args *args, int which)
{
    static const char *const engines[HIERARCHY_CHILDREN] = {"shm", "tcp", "tcp", "shm", "tcp"};
    hierarchy_child *c = &h->children[which];
    trii_group_args its = *args;
    char key[24];
    tri_status st;

    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (strcmp((*e)->name, engines[which]) == 0)
            c->engine = *e;
    }
    if (c->engine == NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "engine hierarchy: it needs %s", engines[which]);
    place_child(h, which, &its, key);
    if (its.size == 0)
        return TRI_OK;
    snprintf(c->name, sizeof(c->name), "%.15s/%s", args->name, key);
    its.name = c->name;
    its.fault = &c->fault;
    st = tri_store_prefix(key, args->store, &its.store);
    if (st != TRI_OK)
        return st;
    st = c->engine->create(&its, &c->self);
    tri_store_unref(its.store);
    return st;
}

static tri_status allocate(hierarchy *h)
{
    size_t n = (size_t)h->size + 1;
    size_t *places = trii_alloc(4 * n * HIERARCHY_CALLS, sizeof(*places), "hierarchy");

    h->calls[0].columns = places;
    h->sources = trii_alloc(n, sizeof(*h->sources), "hierarchy");
    h->from = trii_alloc(n, sizeof(*h->from), "hierarchy");
    h->sum_room = trii_alloc_aligned(64, HIERARCHY_SUM_BYTES * HIERARCHY_SUM_DEPTH, "hierarchy");
    h->alloc_room = trii_alloc((size_t)h->size, TRII_ALLOC_ROOM, "hierarchy");
    if (places == NULL || h->sources == NULL || h->from == NULL || h->sum_room == NULL ||
        h->alloc_room == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < HIERARCHY_CALLS; i++, places += 4 * n) {
        h->calls[i].columns = places;
        h->calls[i].pieces = places + n;
        h->calls[i].src_at = places + 2 * n;
        h->calls[i].dst_at = places + 3 * n;
    }
    return TRI_OK;
}

static tri_status hierarchy_create(const trii_group_args *args, void **self_out)
{
    hierarchy *h;
    tri_status st;

    if (args->size < 3)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "engine hierarchy: a group of %d; it needs several hosts, and one with "
                         "several ranks",
                         args->size);
    h = trii_alloc(1, sizeof(*h), "hierarchy");
    if (h == NULL) { /* which the others have to be told */
        st = hierarchy_layout_init(NULL, args, TRI_ERR_NO_MEMORY);
        return trii_group_agree(args, "layout", st);
    }
    h->rank = args->rank;
    h->size = args->size;
    h->fault = args->fault;
    trii_mutex_init(&h->mutex);
    trii_cond_init(&h->turn);
    st = hierarchy_layout_init(&h->layout, args, allocate(h));
    st = trii_group_agree(args, "layout", st);
    if (st == TRI_OK)
        st = trii_group_agree(args, "in", create_child(h, args, HIERARCHY_IN));
    if (st == TRI_OK)
        st = trii_group_agree(args, "out", create_child(h, args, HIERARCHY_OUT));
    if (st == TRI_OK)
        st = create_child(h, args, HIERARCHY_FLAT); /* agrees */
    if (st == TRI_OK)
        st = trii_group_agree(args, "cross", create_child(h, args, HIERARCHY_CROSS));
    if (st == TRI_OK)
        st = trii_group_agree(args, "back", create_child(h, args, HIERARCHY_BACK));
    if (st != TRI_OK) {
        release(h);
        return st;
    }
    if (h->children[HIERARCHY_OUT].self != NULL)
        h->children[HIERARCHY_OUT].engine->adopt(h->children[HIERARCHY_OUT].self,
                                                 h->children[HIERARCHY_IN].self);
    *self_out = h;
    return TRI_OK;
}

static bool hierarchy_withdraw(void *self, trii_op *op)
{
    return hierarchy_message_withdraw(self, op);
}

const trii_engine trii_engine_hierarchy = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = "hierarchy",
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .to_self = true,
    .create = hierarchy_create,
    .alloc = hierarchy_alloc,
    .free = hierarchy_free,
    .alloc_room = hierarchy_alloc_room,
    .submit = hierarchy_submit,
    .progress = hierarchy_progress,
    .describe_wait = hierarchy_describe_wait,
    .abort = hierarchy_abort,
    .destroy = hierarchy_destroy,
    .leave = hierarchy_leave,
    .sever = hierarchy_sever,
    .withdraw = hierarchy_withdraw,
    .loss = hierarchy_loss,
    .say = hierarchy_say,
};
