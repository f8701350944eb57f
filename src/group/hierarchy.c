/*
 * hierarchy.c - two child engines as one: ranks of a host meet in shared memory, and what leaves a
 * host leaves it once. Three groups: `local` (the ranks of this host), `cross` (the rank of each
 * host that has our number in its host) and `flat` (everybody, over tcp).
 *
 *                 stage 0              stage 1              stage 2
 *   all_reduce    local: sum of the    cross: all_reduce    local: all slices to all
 *                 own slice            of the slice
 *   all_gather    cross: own parts     local: all parts     own memory: into rank order
 *   broadcast     cross, where the     local
 *                 root's number is
 *   barrier       local                cross
 *
 * So every rank sends its slice over a connection of its own. Other calls, and sends and receives,
 * go through `flat`. Sums keep the canonical order where the tree over all ranks is the tree over
 * hosts of the trees inside them: hosts with 2^n ranks each; for other numbers reductions are flat.
 * f16 and bf16 travel as f32 and are rounded once.
 *
 * Staged calls run one after the other, so that every rank makes the calls of a child in the same
 * order. Whoever waits drives them, one thread for all.
 */
#include "group/hierarchy.h"

#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/param.h"
#include "group/front.h"
#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"

#define LOOK_NS (10 * TRII_NS_PER_MS) /* between two looks at the faults of the other children */

enum { LOCAL, CROSS, FLAT, N_CHILDREN };

typedef struct child {
    const trii_engine *engine;
    void *self; /* NULL = none */
    uint64_t seq;
    trii_fault fault;
    char name[TRII_GROUP_NAME];
} child;

typedef struct hierarchy {
    int rank, size;
    int n_hosts, host, local_size, local_rank;
    bool tree_fits; /* the canonical tree is one over hosts */
    trii_fault *fault;
    child children[N_CHILDREN];
    size_t *places; /* [local_size + 1]: the slices of an all_reduce */

    trii_mutex mutex;
    trii_cond turn;  /* the driver has left, or a call is over */
    bool driving;    /* guard: mutex, as all below */
    trii_op *queue;  /* staged calls; the first runs */
    trii_op inner;   /* its stage's call to a child */
    child *inner_on; /* NULL = none is under way */
    int stage;       /* the next */
    char *wide;      /* memory of the running call */
    size_t wide_bytes;
} hierarchy;

/* --- faults -------------------------------------------------------------------------------- */

/* A child's line counts ranks in its own way. */
static void raise_from(hierarchy *h, const child *c)
{
    tri_status status = trii_fault_status(&c->fault);
    int lost = atomic_load(&c->fault.lost_rank); /* + 1 */

    if (lost > 0 && c == &h->children[LOCAL])
        lost += h->host * h->local_size;
    else if (lost > 0 && c == &h->children[CROSS])
        lost = (lost - 1) * h->local_size + h->local_rank + 1;
    atomic_store(&h->fault->lost_rank, lost);
    if (c == &h->children[FLAT])
        trii_fault_raise(h->fault, status, "%s", c->fault.text);
    else if (c == &h->children[LOCAL])
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
    for (int i = 0; i < N_CHILDREN; i++) {
        child *c = &h->children[i];

        if (c->self == NULL)
            continue;
        trii_fault_raise(&c->fault, status, "%s", h->fault->text);
        c->engine->abort(c->self);
    }
}

/* What has failed in a child, or was raised from outside, fails everything. True if failed. */
static bool check_faults(hierarchy *h)
{
    static const int order[N_CHILDREN] = {FLAT, LOCAL, CROSS}; /* flat has the best words */
    bool failed = trii_fault_status(h->fault) != TRI_OK;
    bool all = true;

    for (int i = 0; i < N_CHILDREN; i++) {
        const child *c = &h->children[order[i]];
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

/* --- stages ---------------------------------------------------------------------------------- */

static bool is_half(tri_dtype dtype)
{
    return dtype == TRI_DTYPE_F16 || dtype == TRI_DTYPE_BF16;
}

static bool is_staged(const hierarchy *h, trii_kind kind)
{
    return kind == TRII_KIND_BROADCAST || kind == TRII_KIND_ALL_GATHER ||
           kind == TRII_KIND_BARRIER || (kind == TRII_KIND_ALL_REDUCE && h->tree_fits);
}

static tri_status obtain(hierarchy *h, size_t bytes)
{
    if (bytes <= h->wide_bytes)
        return TRI_OK;
    trii_free(h->wide);
    h->wide_bytes = 0;
    h->wide = trii_alloc_aligned(64, bytes, "hierarchy");
    if (h->wide == NULL)
        return TRI_ERR_NO_MEMORY;
    h->wide_bytes = bytes;
    return TRI_OK;
}

/* Guard: mutex. The child's end of it is seen by its status. */
static tri_status post_inner(hierarchy *h, int which, const trii_collective *call)
{
    child *c = &h->children[which];
    tri_status st;

    trii_op_init(&h->inner, call);
    h->inner.call.seq = ++c->seq;
    h->inner_on = c;
    st = c->engine->submit(c->self, &h->inner);
    if (st != TRI_OK) {
        h->inner_on = NULL;
        trii_fault_raise(&c->fault, st, "%s", tri_last_error());
    }
    return st;
}

static void widen(const void *src, float *dst, size_t count, tri_dtype dtype)
{
    const uint16_t *from = src;

    for (size_t i = 0; i < count; i++)
        dst[i] = dtype == TRI_DTYPE_F16 ? trii_f16_to_f32(from[i]) : trii_bf16_to_f32(from[i]);
}

/* The own slice is summed: the mean, and the rounding of low precision. */
static void finish_slice(const hierarchy *h, const trii_collective *call, char *slice, size_t count,
                         void *dst)
{
    bool avg = call->op == TRI_REDOP_AVG;
    float p = (float)h->size;
    float *f = (float *)(void *)slice;
    double *d = (double *)(void *)slice;

    for (size_t i = 0; i < count && avg; i++) {
        if (call->dtype == TRI_DTYPE_F64)
            d[i] /= (double)h->size;
        else
            f[i] /= p;
    }
    for (size_t i = 0; i < count && is_half(call->dtype); i++)
        ((uint16_t *)dst)[i] =
            call->dtype == TRI_DTYPE_F16 ? trii_f32_to_f16(f[i]) : trii_f32_to_bf16(f[i]);
}

static tri_status stage_all_reduce(hierarchy *h, const trii_collective *call)
{
    bool half = is_half(call->dtype);
    size_t size = half ? sizeof(float) : tri_dtype_size(call->dtype);
    size_t own = call->count * (size_t)h->local_rank / (size_t)h->local_size;
    size_t end = call->count * ((size_t)h->local_rank + 1) / (size_t)h->local_size;
    char *to = half ? h->wide : call->dst;
    trii_collective inner = *call;

    inner.dtype = half ? TRI_DTYPE_F32 : call->dtype;
    inner.op = call->op == TRI_REDOP_AVG ? TRI_REDOP_SUM : call->op;
    inner.temporary = NULL;
    switch (h->stage) {
    case 0:
        if (half && obtain(h, (call->count + 1) * sizeof(float)) != TRI_OK)
            return TRI_ERR_NO_MEMORY;
        to = half ? h->wide : call->dst;
        if (half)
            widen(call->src, (float *)(void *)to, call->count, call->dtype);
        for (int r = 0; r <= h->local_size; r++)
            h->places[r] = call->count * (size_t)r / (size_t)h->local_size;
        inner.kind = TRII_KIND_REDUCE_SCATTER_V;
        inner.src = half ? to : call->src;
        inner.dst = end > own ? to + own * size : NULL;
        inner.bytes = call->count * size;
        inner.src_parts = h->places;
        return post_inner(h, LOCAL, &inner);
    case 1:
        inner.src = inner.dst = end > own ? to + own * size : NULL;
        inner.count = end - own;
        inner.bytes = inner.count * size;
        return post_inner(h, CROSS, &inner);
    case 2:
        if (end > own)
            finish_slice(h, call, to + own * size, end - own,
                         (char *)call->dst + own * tri_dtype_size(call->dtype));
        inner.kind = TRII_KIND_ALL_GATHER_V;
        inner.dtype = call->dtype;
        inner.op = TRI_REDOP_SUM;
        inner.src =
            end > own ? (char *)call->dst + own * tri_dtype_size(call->dtype) : (char *)call->dst;
        inner.dst = call->dst;
        inner.bytes = call->bytes;
        inner.dst_parts = h->places;
        return post_inner(h, LOCAL, &inner);
    default:
        return TRI_OK;
    }
}

/* [local][host] as it came, [host][local] as it is wanted. */
static void into_rank_order(const hierarchy *h, const trii_collective *call, const char *from)
{
    for (int r = 0; r < h->size && call->bytes > 0; r++) {
        int place = r % h->local_size * h->n_hosts + r / h->local_size;

        memcpy((char *)call->dst + (size_t)r * call->bytes, from + (size_t)place * call->bytes,
               call->bytes);
    }
}

static tri_status stage_all_gather(hierarchy *h, const trii_collective *call)
{
    size_t hosts = (size_t)h->n_hosts;
    trii_collective inner = *call;

    switch (h->stage) {
    case 0:
        if (obtain(h, call->bytes * (hosts + (size_t)h->size) + 1) != TRI_OK)
            return TRI_ERR_NO_MEMORY;
        inner.dst = h->wide;
        return post_inner(h, CROSS, &inner);
    case 1:
        inner.src = h->wide;
        inner.dst = h->wide + call->bytes * hosts;
        inner.count = call->count * hosts;
        inner.bytes = call->bytes * hosts;
        return post_inner(h, LOCAL, &inner);
    case 2:
        into_rank_order(h, call, h->wide + call->bytes * hosts);
        return TRI_OK;
    default:
        return TRI_OK;
    }
}

static tri_status stage_broadcast(hierarchy *h, const trii_collective *call)
{
    trii_collective inner = *call;

    if (h->stage == 0) {
        inner.root = call->root / h->local_size;
        return call->root % h->local_size == h->local_rank ? post_inner(h, CROSS, &inner) : TRI_OK;
    }
    inner.root = call->root % h->local_size;
    return post_inner(h, LOCAL, &inner);
}

static int last_stage(trii_kind kind)
{
    return kind == TRII_KIND_BROADCAST || kind == TRII_KIND_BARRIER ? 1 : 2;
}

static tri_status next_stage(hierarchy *h, const trii_collective *call)
{
    switch (call->kind) {
    case TRII_KIND_ALL_REDUCE:
        return stage_all_reduce(h, call);
    case TRII_KIND_ALL_GATHER:
        return stage_all_gather(h, call);
    case TRII_KIND_BROADCAST:
        return stage_broadcast(h, call);
    default:
        return post_inner(h, h->stage == 0 ? LOCAL : CROSS, call);
    }
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
        if (h->stage <= last_stage(op->call.kind)) {
            tri_status st = next_stage(h, &op->call);

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
    const child *flat = &h->children[FLAT];
    trii_op **at = &h->queue;
    tri_status st = TRI_OK;

    trii_mutex_lock(&h->mutex);
    if (check_faults(h)) {
        st = TRII_FAIL(trii_fault_status(h->fault), "%s", h->fault->text);
    } else if (is_staged(h, op->call.kind)) {
        op->next = NULL;
        while (*at != NULL)
            at = &(*at)->next;
        *at = op;
        advance(h);
    }
    trii_mutex_unlock(&h->mutex);
    if (st != TRI_OK || is_staged(h, op->call.kind))
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
    const child *flat = &h->children[FLAT];

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

    if (!is_staged(h, op->call.kind)) {
        progress_flat(h, op, until_ns);
        return;
    }
    trii_mutex_lock(&h->mutex);
    for (bool again = true; again;) {
        const child *on;

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
    const child *flat = &h->children[FLAT];
    const child *on;
    char inner[300] = "nobody";
    bool first;

    if (!is_staged(h, op->call.kind)) {
        flat->engine->describe_wait(flat->self, op, text, size);
        return;
    }
    trii_mutex_lock(&h->mutex);
    on = h->inner_on;
    first = h->queue == op;
    if (on != NULL)
        on->engine->describe_wait(on->self, &h->inner, inner, sizeof(inner));
    trii_mutex_unlock(&h->mutex);
    if (on == &h->children[LOCAL])
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
    const child *local = &((hierarchy *)self)->children[LOCAL];

    return local->engine->alloc(local->self, bytes, p_out);
}

static void hierarchy_free(void *self, void *p)
{
    const child *local = &((hierarchy *)self)->children[LOCAL];

    local->engine->free(local->self, p);
}

/* --- life ------------------------------------------------------------------------------------ */

static void release(hierarchy *h)
{
    for (int i = N_CHILDREN - 1; i >= 0; i--) {
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
    if (h->queue != NULL) { /* the front has raised why */
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
    static const char *const engines[N_CHILDREN] = {"shm", "tcp", "tcp"};
    child *c = &h->children[which];
    trii_group_args its = *args;
    char key[40];
    tri_status st;

    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (strcmp((*e)->name, engines[which]) == 0)
            c->engine = *e;
    }
    if (c->engine == NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "engine hierarchy: it needs %s", engines[which]);
    if (which == FLAT)
        snprintf(key, sizeof(key), "flat");
    else
        snprintf(key, sizeof(key), "%s/%d", which == LOCAL ? "local" : "cross",
                 which == LOCAL ? h->host : h->local_rank);
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
                              create_child(h, args, LOCAL, h->local_rank, h->local_size));
    if (st == TRI_OK && h != NULL)
        st = create_child(h, args, FLAT, args->rank, args->size); /* agrees */
    if (st == TRI_OK && h != NULL)
        st = trii_group_agree(args, "cross", create_child(h, args, CROSS, h->host, h->n_hosts));
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
