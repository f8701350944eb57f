/*
 * hierarchy.c - two child engines as one: ranks of a host meet in shared memory, and what leaves a
 * host leaves it once. Three groups: `local` (the ranks of this host), `cross` (the rank of each
 * host that has our number in its host) and `flat` (everybody, over tcp).
 *
 * Some calls go in stages, which are in hierarchy_stages.c: every rank sends its slice over a
 * connection of its own. Other calls, and sends and receives, go through `flat`. Sums keep the
 * canonical order where the tree over all ranks is the tree over hosts of the trees inside them:
 * hosts with 2^n ranks each; for other numbers reductions are flat.
 * f16 and bf16 travel as f32 and are rounded once.
 *
 * Staged calls run one after the other, so that every rank makes the calls of a child in the same
 * order. Whoever waits drives them, one thread for all.
 */
#include "group/hierarchy.h"

#include <string.h>

#include "base/alloc.h"
#include "base/param.h"
#include "os/clock.h"
#include "os/socket.h"

#define LOOK_NS (10 * TRII_NS_PER_MS) /* between two looks at the faults of the other children */

/* --- faults -------------------------------------------------------------------------------- */

/* A child's line counts ranks in its own way. */
static void raise_from(hierarchy *h, const hierarchy_child *c)
{
    tri_status status = trii_fault_status(&c->fault);
    int lost = atomic_load(&c->fault.lost_rank); /* + 1 */

    if (lost > 0 && c == &h->children[HIERARCHY_LOCAL])
        lost += h->host * h->local_size;
    else if (lost > 0 && c == &h->children[HIERARCHY_CROSS])
        lost = (lost - 1) * h->local_size + h->local_rank + 1;
    atomic_store(&h->fault->lost_rank, lost);
    if (c == &h->children[HIERARCHY_FLAT])
        trii_fault_raise(h->fault, status, "%s", c->fault.text);
    else if (c == &h->children[HIERARCHY_LOCAL])
        trii_fault_raise(h->fault, status, "among ranks %d to %d, of one host, counted from 0: %s",
                         h->host * h->local_size, (h->host + 1) * h->local_size - 1, c->fault.text);
    else
        trii_fault_raise(h->fault, status,
                         "among ranks %d, %d, ..., one of each host, counted from 0: %s",
                         h->local_rank, h->local_rank + h->local_size, c->fault.text);
}

static void abort_children(hierarchy *h)
{
    tri_status status;

    while ((status = trii_fault_status(h->fault)) == TRI_OK)
        trii_thread_yield(); /* another thread is just writing it */
    for (int i = 0; i < HIERARCHY_CHILDREN; i++) {
        hierarchy_child *c = &h->children[i];

        if (c->self == NULL)
            continue;
        trii_fault_raise(&c->fault, status, "%s", h->fault->text);
        c->engine->abort(c->self);
    }
}

/* What has failed in a child, or was raised from outside, fails everything. True if failed. */
static bool check_faults(hierarchy *h)
{
    static const int order[HIERARCHY_CHILDREN] = {HIERARCHY_FLAT, HIERARCHY_LOCAL,
                                                  HIERARCHY_CROSS}; /* flat has the best words */
    bool failed = trii_fault_status(h->fault) != TRI_OK;
    bool all = true;

    for (int i = 0; i < HIERARCHY_CHILDREN; i++) {
        const hierarchy_child *c = &h->children[order[i]];
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

/* --- driving --------------------------------------------------------------------------------- */

/* Guard: mutex. Everything staged ends with the group's failure, once the children let go. */
static void finish_all(hierarchy *h)
{
    tri_status status = trii_fault_status(h->fault);

    if (h->inner_on != NULL && trii_op_status(&h->inner) == TRI_INPROGRESS)
        return;
    h->inner_on = NULL;
    while (h->queue != NULL) {
        trii_op *op = h->queue;

        h->queue = op->next;
        trii_op_finish(op, status, h->fault->text);
    }
    trii_cond_broadcast(&h->turn);
}

/* Guard: mutex. Does what can be done now without a child. */
static void advance(hierarchy *h)
{
    while (h->queue != NULL) {
        trii_op *op = h->queue;

        if (check_faults(h)) {
            finish_all(h);
            return;
        }
        if (h->inner_on != NULL && trii_op_status(&h->inner) == TRI_INPROGRESS)
            return;
        if (h->inner_on != NULL && trii_op_status(&h->inner) != TRI_OK) {
            trii_fault_raise(&h->inner_on->fault, trii_op_status(&h->inner), "%s", h->inner.error);
            continue;
        }
        h->inner_on = NULL;
        if (h->stage <= hierarchy_last_stage(op->call.kind)) {
            tri_status st = hierarchy_next_stage(h, &op->call);

            h->stage++;
            if (st != TRI_OK)
                trii_fault_raise(h->fault, st, "rank %d: %s", h->rank, tri_last_error());
            continue;
        }
        h->queue = op->next;
        h->stage = 0;
        trii_op_finish(op, TRI_OK, NULL);
        trii_cond_broadcast(&h->turn);
    }
}

static tri_status hierarchy_submit(void *self, trii_op *op)
{
    hierarchy *h = self;
    const hierarchy_child *flat = &h->children[HIERARCHY_FLAT];
    trii_op **at = &h->queue;
    tri_status st = TRI_OK;

    trii_mutex_lock(&h->mutex);
    if (check_faults(h)) {
        st = TRII_FAIL(trii_fault_status(h->fault), "%s", h->fault->text);
    } else if (hierarchy_is_staged(h, op->call.kind)) {
        op->next = NULL;
        while (*at != NULL)
            at = &(*at)->next;
        *at = op;
        advance(h);
    }
    trii_mutex_unlock(&h->mutex);
    if (st != TRI_OK || hierarchy_is_staged(h, op->call.kind))
        return st;
    return flat->engine->submit(flat->self, op);
}

static int64_t sooner(int64_t until_ns)
{
    int64_t look = trii_now_ns() + LOOK_NS;

    return until_ns < look ? until_ns : look;
}

static void progress_flat(hierarchy *h, trii_op *op, int64_t until_ns)
{
    const hierarchy_child *flat = &h->children[HIERARCHY_FLAT];

    do {
        flat->engine->progress(flat->self, op, until_ns == 0 ? 0 : sooner(until_ns));
        if (trii_op_status(op) != TRI_INPROGRESS)
            break;
        trii_mutex_lock(&h->mutex);
        (void)check_faults(h);
        advance(h);
        trii_mutex_unlock(&h->mutex);
    } while (until_ns != 0 && trii_now_ns() < until_ns);
    trii_mutex_lock(&h->mutex);
    (void)check_faults(h); /* the flat child's is the group's */
    trii_mutex_unlock(&h->mutex);
}

static void hierarchy_progress(void *self, trii_op *op, int64_t until_ns)
{
    hierarchy *h = self;

    if (!hierarchy_is_staged(h, op->call.kind)) {
        progress_flat(h, op, until_ns);
        return;
    }
    trii_mutex_lock(&h->mutex);
    for (bool again = true; again;) {
        const hierarchy_child *on;

        again = until_ns != 0;
        if (!h->driving)
            advance(h);
        if (trii_op_status(op) != TRI_INPROGRESS)
            break;
        on = h->inner_on;
        if (h->driving || on == NULL) {
            if (again)
                (void)trii_cond_wait_until(&h->turn, &h->mutex, sooner(until_ns));
        } else {
            h->driving = true;
            trii_mutex_unlock(&h->mutex);
            on->engine->progress(on->self, &h->inner, until_ns == 0 ? 0 : sooner(until_ns));
            trii_mutex_lock(&h->mutex);
            h->driving = false;
            advance(h);
            trii_cond_broadcast(&h->turn);
        }
        again = again && trii_op_status(op) == TRI_INPROGRESS && trii_now_ns() < until_ns;
    }
    trii_mutex_unlock(&h->mutex);
}

static void hierarchy_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    hierarchy *h = self;
    const hierarchy_child *flat = &h->children[HIERARCHY_FLAT];
    const hierarchy_child *on;
    char inner[300] = "nobody";
    bool first;

    if (!hierarchy_is_staged(h, op->call.kind)) {
        flat->engine->describe_wait(flat->self, op, text, size);
        return;
    }
    trii_mutex_lock(&h->mutex);
    on = h->inner_on;
    first = h->queue == op;
    if (on != NULL)
        on->engine->describe_wait(on->self, &h->inner, inner, sizeof(inner));
    trii_mutex_unlock(&h->mutex);
    if (on == &h->children[HIERARCHY_LOCAL])
        snprintf(text, size, "%samong ranks %d to %d, of one host, counted from 0: %s",
                 first ? "" : "an earlier call, ", h->host * h->local_size,
                 (h->host + 1) * h->local_size - 1, inner);
    else
        snprintf(text, size, "%samong ranks %d, %d, ..., one of each host, counted from 0: %s",
                 first ? "" : "an earlier call, ", h->local_rank, h->local_rank + h->local_size,
                 inner);
}

static void hierarchy_abort(void *self)
{
    hierarchy *h = self;

    if (trii_fault_status(h->fault) == TRI_OK)
        return; /* somebody is just writing it, and will come here */
    abort_children(h);
    trii_mutex_lock(&h->mutex);
    if (!h->driving)
        advance(h);
    trii_cond_broadcast(&h->turn);
    trii_mutex_unlock(&h->mutex);
}

static tri_status hierarchy_alloc(void *self, size_t bytes, void **p_out)
{
    const hierarchy_child *local = &((hierarchy *)self)->children[HIERARCHY_LOCAL];

    return local->engine->alloc(local->self, bytes, p_out);
}

static void hierarchy_free(void *self, void *p)
{
    const hierarchy_child *local = &((hierarchy *)self)->children[HIERARCHY_LOCAL];

    local->engine->free(local->self, p);
}

/* --- life ------------------------------------------------------------------------------------ */

static void release(hierarchy *h)
{
    for (int i = HIERARCHY_CHILDREN - 1; i >= 0; i--) {
        if (h->children[i].self != NULL)
            h->children[i].engine->destroy(h->children[i].self);
    }
    trii_cond_fini(&h->turn);
    trii_mutex_fini(&h->mutex);
    trii_free(h->wide);
    trii_free(h->places);
    trii_free(h);
}

static void hierarchy_destroy(void *self)
{
    hierarchy *h = self;

    trii_mutex_lock(&h->mutex);
    if (h->queue != NULL) {
        trii_fault_raise(h->fault, TRI_ERR_ABORTED, "rank %d left the group during a call",
                         h->rank);
        abort_children(h);
        while (h->queue != NULL) {
            if (h->inner_on != NULL)
                h->inner_on->engine->progress(h->inner_on->self, &h->inner, sooner(INT64_MAX));
            advance(h);
        }
    }
    trii_mutex_unlock(&h->mutex);
    release(h);
}

/* Which host a rank is on: all that share a loopback interface share memory too. TRI_HOSTS
 * pretends: host numbers of the ranks, "0,0,1,1". */
static void host_of(int rank, char text_out[96])
{
    const char *pretended = trii_param_text(TRII_PARAM_HOSTS);

    for (int r = 0; r < rank && pretended != NULL; r++) {
        pretended = strchr(pretended, ',');
        pretended = pretended != NULL ? pretended + 1 : NULL;
    }
    if (pretended != NULL)
        snprintf(text_out, 96, "%.*s", (int)strcspn(pretended, ","), pretended);
    else
        trii_socket_network_id(text_out);
}

/* The layout: hosts one after the other, of one number of ranks, at least 2 and 2. */
static tri_status read_layout(hierarchy *h, const trii_group_args *args)
{
    char mine[96], key[32], first[96] = "";
    int n = 1;
    tri_status st;

    host_of(args->rank, mine);
    snprintf(key, sizeof(key), "host/%d", args->rank);
    st = tri_store_set(args->store, key, mine, strlen(mine));
    for (int r = 0; r < args->size && st == TRI_OK; r++) {
        char *host = NULL;

        snprintf(key, sizeof(key), "host/%d", r);
        st = tri_store_get(args->store, key, trii_group_left_ms(args), (void **)&host, NULL);
        if (st != TRI_OK)
            break;
        if (r == 0)
            snprintf(first, sizeof(first), "%s", host);
        else if (n == r && strcmp(host, first) == 0)
            n++;
        tri_store_free(host);
    }
    if (st != TRI_OK)
        return st;
    if (n < 2 || n == args->size || args->size % n != 0)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "engine hierarchy: the first host has %d of %d ranks; it needs several "
                         "hosts with as many ranks each, at least 2",
                         n, args->size);
    h->local_size = n;
    h->n_hosts = args->size / n;
    h->host = args->rank / n;
    h->local_rank = args->rank % n;
    h->tree_fits = (n & (n - 1)) == 0;
    return TRI_OK;
}

/* The ranks of a block of local_size are on one host, others on others. */
static tri_status check_blocks(const hierarchy *h, const trii_group_args *args)
{
    char mine[96], key[32];
    tri_status st = TRI_OK;

    host_of(args->rank, mine);
    for (int r = 0; r < args->size && st == TRI_OK; r++) {
        char *host = NULL;

        snprintf(key, sizeof(key), "host/%d", r);
        st = tri_store_get(args->store, key, trii_group_left_ms(args), (void **)&host, NULL);
        if (st == TRI_OK && (strcmp(host, mine) == 0) != (r / h->local_size == h->host))
            st = TRII_FAIL(TRI_ERR_UNSUPPORTED,
                           "engine hierarchy: rank %d is not where a layout of %d ranks on each "
                           "host has it",
                           r, h->local_size);
        if (host != NULL)
            tri_store_free(host);
    }
    return st;
}

static tri_status create_child(hierarchy *h, const trii_group_args *args, int which, int rank,
                               int size)
{
    static const char *const engines[HIERARCHY_CHILDREN] = {"shm", "tcp", "tcp"};
    hierarchy_child *c = &h->children[which];
    trii_group_args its = *args;
    char key[40];
    tri_status st;

    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (strcmp((*e)->name, engines[which]) == 0)
            c->engine = *e;
    }
    if (c->engine == NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "engine hierarchy: it needs %s", engines[which]);
    if (which == HIERARCHY_FLAT)
        snprintf(key, sizeof(key), "flat");
    else
        snprintf(key, sizeof(key), "%s/%d", which == HIERARCHY_LOCAL ? "local" : "cross",
                 which == HIERARCHY_LOCAL ? h->host : h->local_rank);
    snprintf(c->name, sizeof(c->name), "%.15s/%s", args->name, key);
    its.name = c->name;
    its.rank = rank;
    its.size = size;
    its.fault = &c->fault;
    st = tri_store_prefix(key, args->store, &its.store);
    if (st != TRI_OK)
        return st;
    st = c->engine->create(&its, &c->self);
    tri_store_unref(its.store);
    return st;
}

static tri_status hierarchy_create(const trii_group_args *args, void **self_out)
{
    hierarchy *h = NULL;
    tri_status st = TRI_OK;

    if (args->size < 4)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "engine hierarchy: a group of %d, it needs several hosts with at least 2 "
                         "ranks each",
                         args->size);
    h = trii_alloc(1, sizeof(*h), "hierarchy");
    if (h == NULL)
        st = TRI_ERR_NO_MEMORY;
    else {
        h->rank = args->rank;
        h->size = args->size;
        h->fault = args->fault;
        trii_mutex_init(&h->mutex);
        trii_cond_init(&h->turn);
        st = read_layout(h, args);
        if (st == TRI_OK)
            st = check_blocks(h, args);
        if (st == TRI_OK) {
            h->places = trii_alloc((size_t)h->local_size + 1, sizeof(*h->places), "hierarchy");
            st = h->places != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
        }
    }
    st = trii_group_agree(args, "layout", st);
    if (st == TRI_OK && h != NULL)
        st = trii_group_agree(args, "local",
                              create_child(h, args, HIERARCHY_LOCAL, h->local_rank, h->local_size));
    if (st == TRI_OK && h != NULL)
        st = create_child(h, args, HIERARCHY_FLAT, args->rank, args->size); /* agrees */
    if (st == TRI_OK && h != NULL)
        st = trii_group_agree(args, "cross",
                              create_child(h, args, HIERARCHY_CROSS, h->host, h->n_hosts));
    if (st != TRI_OK) {
        if (h != NULL)
            release(h);
        return st;
    }
    *self_out = h;
    return TRI_OK;
}

const trii_engine trii_engine_hierarchy = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = "hierarchy",
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .create = hierarchy_create,
    .alloc = hierarchy_alloc,
    .free = hierarchy_free,
    .submit = hierarchy_submit,
    .progress = hierarchy_progress,
    .describe_wait = hierarchy_describe_wait,
    .abort = hierarchy_abort,
    .destroy = hierarchy_destroy,
};
