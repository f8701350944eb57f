/*
 * calls.h - the conformance suite's script: a list of collectives that every rank runs in the
 * same order, each compared bit for bit with the scalar reference. Tests only.
 */
#ifndef TEST_CALLS_H
#define TEST_CALLS_H

#include "conformance/inputs.h"
#include "comm/group/group_internal.h"
#include "comm/group/reduce/reduce.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/reduce_scalar.h"

#define CALLS_IN_FLIGHT 6

typedef struct script {
    const size_t *counts;    /* ends with SIZE_MAX */
    const tri_dtype *dtypes; /* ends with NONE */
    bool all_ops;            /* else sum only */
    bool moves_only;         /* broadcast and point to point: the engine has no more */
} script;

typedef struct pending {
    tri_work *work;
    void *dst, *expected;
    void *own_src, *own_dst; /* heap, NULL if in the arena */
    size_t count;
    tri_dtype dtype;
    char what[120];
} pending;

typedef struct runner {
    rank_env *env;
    tri_group *group;
    char *arena;
    size_t arena_bytes, arena_used;
    unsigned key; /* of the current call */
    void *ring_expected;
    pending slots[CALLS_IN_FLIGHT];
    int n_pending;
} runner;

/* premul_sum: every rank has another factor. */
static inline float factor_of(int rank)
{
    return 0.25f + 0.37f * (float)rank;
}

static inline void scale_part(void *p, size_t count, tri_dtype dtype, float factor)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t *half = (uint16_t *)p + i;

        if (dtype == TRI_DTYPE_F64)
            ((double *)p)[i] *= (double)factor;
        else if (dtype == TRI_DTYPE_F32)
            ((float *)p)[i] *= factor;
        else if (dtype == TRI_DTYPE_F16)
            *half = trii_f32_to_f16(trii_f16_to_f32(*half) * factor);
        else
            *half = trii_f32_to_bf16(trii_bf16_to_f32(*half) * factor);
    }
}

/* What an all_reduce must give in elements [first, first + count). */
static inline void expect_reduce(const runner *run, void *out, size_t first, size_t count,
                                 tri_dtype dtype, tri_redop op)
{
    size_t bytes = count * tri_dtype_size(dtype);
    bool scaled = op == TRII_REDOP_PREMUL_SUM;
    const void *src[RANKS_MAX];
    void *own[RANKS_MAX] = {NULL};

    for (int r = 0; r < run->env->size; r++) {
        src[r] = scaled ? NULL : part_in_pool(first, count, dtype, run->key, r);
        if (src[r] != NULL)
            continue;
        src[r] = own[r] = malloc(bytes + 1);
        fill_part(own[r], first, count, dtype, run->key, r);
        if (scaled)
            scale_part(own[r], count, dtype, factor_of(r));
    }
    reduce_scalar(src, run->env->size, out, count, dtype, scaled ? TRI_REDOP_SUM : op);
    for (int r = 0; r < run->env->size; r++)
        free(own[r]);
}

/* Memory for a buffer: from the arena if asked for and there is room, else from the heap. */
static inline void *take(runner *run, size_t bytes, bool arena, void **heap_out)
{
    size_t rounded = (bytes + 127) / 64 * 64;
    char *p;

    *heap_out = NULL;
    if (arena && run->arena_used + rounded <= run->arena_bytes) {
        p = run->arena + run->arena_used;
        run->arena_used += rounded;
        return p;
    }
    /* Off alignment by an element of the largest type. */
    *heap_out = malloc(bytes + 8);
    return (char *)*heap_out + 8;
}

static inline const char *finish(runner *run, pending *p)
{
    rank_env *env = run->env;
    size_t at;

    if (p->work != NULL) {
        RANK_TRY(env, tri_work_wait(p->work, 0));
        tri_work_destroy(p->work);
        p->work = NULL;
    }
    at = first_difference(p->dst, p->expected, p->count, p->dtype);
    if (at < p->count)
        return RANK_FAIL(env, "rank %d of %d: %s: element %zu of %zu differs", env->rank, env->size,
                         p->what, at, p->count);
    free(p->expected);
    free(p->own_src);
    free(p->own_dst);
    return NULL;
}

/* Waits for what is in flight, the newest first. */
static inline const char *drain(runner *run)
{
    while (run->n_pending > 0) {
        const char *failure = finish(run, &run->slots[--run->n_pending]);

        if (failure != NULL)
            return failure;
    }
    run->arena_used = 0;
    return NULL;
}

typedef enum call_kind {
    ALL_REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    REDUCE,
    GATHER,
    SCATTER,
    ALL_TO_ALL,
    ALL_GATHER_V,
    REDUCE_SCATTER_V,
    ALL_TO_ALL_V,
    N_CALL_KINDS
} call_kind;

#define IS_IN(kind, ...) ((1u << (kind) & (__VA_ARGS__)) != 0)
#define REDUCING (1u << ALL_REDUCE | 1u << REDUCE_SCATTER | 1u << REDUCE | 1u << REDUCE_SCATTER_V)

/* A collective that is being put together. */
typedef struct a_call {
    call_kind kind;
    size_t count;
    tri_dtype dtype;
    tri_redop op;
    int root;
    bool in_place;
    size_t src_counts[RANKS_MAX], dst_counts[RANKS_MAX]; /* of the parts that this rank has */
    size_t n_src, n_dst, own_at;                         /* elements; of our part in the larger */
    char *src, *dst;
} a_call;

/* Sizes of parts, from nothing to count and a bit; for all_to_all_v of what `from` sends. */
static inline size_t part_size(const a_call *c, int from, int to)
{
    switch (c->kind) {
    case ALL_GATHER_V:
    case REDUCE_SCATTER_V:
    case ALL_TO_ALL_V:
        switch ((from + 2 * to) % 3) {
        case 0:
            return 0;
        case 1:
            return c->count;
        default:
            return c->count / 2 + 1;
        }
    default:
        return c->count;
    }
}

static inline void call_sizes(const rank_env *env, a_call *c)
{
    bool whole_src = IS_IN(c->kind, 1u << REDUCE_SCATTER | 1u << SCATTER | 1u << ALL_TO_ALL |
                                        1u << REDUCE_SCATTER_V | 1u << ALL_TO_ALL_V);
    bool whole_dst = IS_IN(c->kind, 1u << ALL_GATHER | 1u << GATHER | 1u << ALL_TO_ALL |
                                        1u << ALL_GATHER_V | 1u << ALL_TO_ALL_V);
    bool all_to_all = c->kind == ALL_TO_ALL_V;

    c->n_src = c->n_dst = c->own_at = 0;
    for (int r = 0; r < env->size; r++) {
        c->src_counts[r] = part_size(c, all_to_all ? env->rank : 0, r);
        c->dst_counts[r] = part_size(c, all_to_all ? r : 0, all_to_all ? env->rank : r);
        c->own_at += r < env->rank ? c->src_counts[r] : 0;
        c->n_src += whole_src ? c->src_counts[r] : 0;
        c->n_dst += whole_dst ? c->dst_counts[r] : 0;
    }
    c->n_src = whole_src ? c->n_src : c->src_counts[env->rank];
    c->n_dst = whole_dst ? c->n_dst : c->dst_counts[env->rank];
}

static inline tri_status post_call(tri_group *g, const rank_env *env, const a_call *c,
                                   tri_work **work)
{
    bool scaled = c->op == TRII_REDOP_PREMUL_SUM, at_root = env->rank == c->root;
    float factor = factor_of(env->rank);

    switch (c->kind) {
    case ALL_REDUCE:
        return scaled
                   ? tri_all_reduce_premul_sum(g, c->src, c->dst, c->count, c->dtype, factor, work)
                   : tri_all_reduce(g, c->src, c->dst, c->count, c->dtype, c->op, work);
    case BROADCAST:
        return tri_broadcast(g, c->dst, c->count, c->dtype, c->root, work);
    case ALL_GATHER:
        return tri_all_gather(g, c->src, c->dst, c->count, c->dtype, work);
    case REDUCE_SCATTER:
        return scaled ? tri_reduce_scatter_premul_sum(g, c->src, c->dst, c->count, c->dtype, factor,
                                                      work)
                      : tri_reduce_scatter(g, c->src, c->dst, c->count, c->dtype, c->op, work);
    case REDUCE:
        return scaled ? tri_reduce_premul_sum(g, c->src, at_root ? c->dst : NULL, c->count,
                                              c->dtype, factor, c->root, work)
                      : tri_reduce(g, c->src, at_root ? c->dst : NULL, c->count, c->dtype, c->op,
                                   c->root, work);
    case GATHER:
        return tri_gather(g, c->src, at_root ? c->dst : NULL, c->count, c->dtype, c->root, work);
    case SCATTER:
        return tri_scatter(g, at_root ? c->src : NULL, c->dst, c->count, c->dtype, c->root, work);
    case ALL_TO_ALL:
        return tri_all_to_all(g, c->src, c->dst, c->count, c->dtype, work);
    case ALL_GATHER_V:
        return tri_all_gather_v(g, c->src, c->dst, c->dst_counts, c->dtype, work);
    case REDUCE_SCATTER_V:
        return scaled
                   ? tri_reduce_scatter_v_premul_sum(g, c->src, c->dst, c->src_counts, c->dtype,
                                                     factor, work)
                   : tri_reduce_scatter_v(g, c->src, c->dst, c->src_counts, c->dtype, c->op, work);
    default:
        return tri_all_to_all_v(g, c->src, c->src_counts, c->dst, c->dst_counts, c->dtype, work);
    }
}

/* What dst must hold: from the inputs of all ranks. */
static inline void expect_call(const runner *run, const a_call *c, char *out)
{
    const rank_env *env = run->env;
    size_t size = tri_dtype_size(c->dtype);

    switch (c->kind) {
    case ALL_REDUCE:
    case REDUCE:
        expect_reduce(run, out, 0, c->count, c->dtype, c->op);
        return;
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_V:
        expect_reduce(run, out, c->own_at, c->n_dst, c->dtype, c->op);
        return;
    case BROADCAST:
        fill(out, c->count, c->dtype, run->key, c->root);
        return;
    case SCATTER:
        fill_part(out, c->own_at, c->count, c->dtype, run->key, c->root);
        return;
    default:
        break;
    }
    for (int r = 0; r < env->size; r++) {
        size_t at = 0;

        for (int to = 0; to < env->rank && IS_IN(c->kind, 1u << ALL_TO_ALL | 1u << ALL_TO_ALL_V);
             to++)
            at += part_size(c, r, to);
        fill_part(out, at, c->dst_counts[r], c->dtype, run->key, r);
        out += c->dst_counts[r] * size;
    }
}

/* Buffers: apart, or in place as the call allows. */
static inline void call_buffers(runner *run, a_call *c, pending *slot, bool arena)
{
    size_t size = tri_dtype_size(c->dtype);
    bool larger_dst = c->n_dst > c->n_src;

    c->src =
        take(run, (larger_dst && c->in_place ? c->n_dst : c->n_src) * size, arena, &slot->own_src);
    c->dst = c->src;
    if (!c->in_place)
        c->dst = take(run, c->n_dst * size, arena, &slot->own_dst);
    else if (larger_dst)
        c->src += c->own_at * size;
    else if (c->n_src > c->n_dst)
        c->dst += c->own_at * size;
    if (!c->in_place)
        memset(c->dst, 0xa5, c->n_dst * size);
    fill(c->src, c->n_src, c->dtype, run->key, run->env->rank);
}

/* One collective in one of its variants: bit 0 in place, 1 arena, 2 asynchronous. */
static inline const char *run_call(runner *run, call_kind kind, size_t count, tri_dtype dtype,
                                   tri_redop op, unsigned variant)
{
    static const char *const names[] = {
        "all_reduce", "broadcast",  "all_gather",   "reduce_scatter",   "reduce",      "gather",
        "scatter",    "all_to_all", "all_gather_v", "reduce_scatter_v", "all_to_all_v"};
    rank_env *env = run->env;
    pending *slot = &run->slots[run->n_pending];
    tri_work **work = (variant & 4) != 0 ? &slot->work : NULL;
    bool arena = (variant & 2) != 0;
    a_call c = {.kind = kind, .count = count, .dtype = dtype, .op = op};

    if ((variant & 1) != 0 && IS_IN(kind, 1u << ALL_TO_ALL | 1u << ALL_TO_ALL_V))
        return NULL;
    memset(slot, 0, sizeof(*slot));
    c.root = (int)(run->key++ % (unsigned)env->size);
    c.in_place = (variant & 1) != 0 || kind == BROADCAST;
    snprintf(slot->what, sizeof(slot->what), "%s of %zu %s, %s, %s, %s, %s", names[kind], count,
             tri_dtype_name(dtype), tri_redop_name(op), c.in_place ? "in place" : "apart",
             arena ? "arena" : "heap", work != NULL ? "async" : "blocking");
    call_sizes(env, &c);
    call_buffers(run, &c, slot, arena);
    slot->dst = c.dst;
    slot->dtype = dtype;
    slot->count = c.n_dst;
    if (IS_IN(kind, 1u << REDUCE | 1u << GATHER) && env->rank != c.root) {
        slot->count = 0; /* nothing comes here */
    } else {
        slot->expected = malloc(c.n_dst * tri_dtype_size(dtype) + 1);
        expect_call(run, &c, slot->expected);
    }
    if (kind == BROADCAST && env->rank != c.root)
        memset(c.dst, 0xa5, count * tri_dtype_size(dtype));
    RANK_TRY(env, post_call(run->group, env, &c, work));
    if (work == NULL)
        return finish(run, slot);
    return ++run->n_pending == CALLS_IN_FLIGHT ? drain(run) : NULL;
}

/* Everybody sends to the next rank and receives from the one before, two tags crossed. */
static inline const char *run_ring(runner *run, size_t count, tri_dtype dtype, bool arena)
{
    rank_env *env = run->env;
    int next = (env->rank + 1) % env->size, before = (env->rank + env->size - 1) % env->size;
    size_t bytes = count * tri_dtype_size(dtype), at;
    void *heap[4];
    char *out[2], *in[2];
    tri_work *work[4];

    if (env->size == 1)
        return NULL;
    run->key++;
    run->ring_expected = realloc(run->ring_expected, bytes + 1);
    for (int tag = 0; tag < 2; tag++) {
        out[tag] = take(run, bytes, arena, &heap[tag]);
        in[tag] = take(run, bytes, arena, &heap[2 + tag]);
        fill(out[tag], count, dtype, run->key + 1000 * (unsigned)tag, env->rank);
        RANK_TRY(env, tri_send(run->group, out[tag], count, dtype, next, tag, &work[tag]));
    }
    for (int tag = 1; tag >= 0; tag--)
        RANK_TRY(env, tri_recv(run->group, in[tag], count, dtype, before, tag, &work[2 + tag]));
    for (int i = 3; i >= 0; i--) {
        RANK_TRY(env, tri_work_wait(work[i], 0));
        tri_work_destroy(work[i]);
    }
    for (int tag = 0; tag < 2; tag++) {
        fill(run->ring_expected, count, dtype, run->key + 1000 * (unsigned)tag, before);
        at = first_difference(in[tag], run->ring_expected, count, dtype);
        if (at < count)
            return RANK_FAIL(env, "rank %d of %d: recv of %zu %s, tag %d: element %zu differs",
                             env->rank, env->size, count, tri_dtype_name(dtype), tag, at);
    }
    for (int i = 0; i < 4; i++)
        free(heap[i]);
    return drain(run);
}

static inline const char *run_dtype(runner *run, const script *what, tri_dtype dtype)
{
    const char *failure = NULL;

    for (const size_t *count = what->counts; *count != SIZE_MAX && failure == NULL; count++) {
        for (int i = 0; i < (what->all_ops ? TRII_REDOPS + 1 : 1) && failure == NULL; i++) {
            tri_redop op = i < TRII_REDOPS ? (tri_redop)i : TRII_REDOP_PREMUL_SUM;

            if (op == TRII_REDOP_PREMUL_SUM ? !trii_dtype_is_float(dtype)
                                            : trii_reduction_check(dtype, op) != TRI_OK)
                continue;
            for (int kind = 0; kind < N_CALL_KINDS && failure == NULL; kind++) {
                if ((op > 0 && !IS_IN(kind, REDUCING)) ||
                    (what->moves_only && kind != ALL_REDUCE && kind != BROADCAST))
                    continue;
                for (unsigned variant = 0; variant < 8 && failure == NULL; variant++)
                    failure = run_call(run, (call_kind)kind, *count, dtype, op, variant);
            }
        }
        if (failure == NULL)
            failure = drain(run);
        for (int arena = 0; arena < 2 && failure == NULL; arena++)
            failure = run_ring(run, *count, dtype, arena != 0);
    }
    return failure;
}

/* The whole script on one group; `arg` of the environment is the script. */
static inline const char *run_script(rank_env *env)
{
    const script *what = env->arg;
    runner *run = calloc(1, sizeof(*run));
    const char *failure = NULL;

    run->env = env;
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &run->group));
    run->arena_bytes = (size_t)3 << 20;
    run->arena = tri_group_alloc(run->group, run->arena_bytes);
    if (run->arena == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    for (const tri_dtype *d = what->dtypes; *d != TRI_DTYPE_NONE && failure == NULL; d++)
        failure = run_dtype(run, what, *d);
    if (failure == NULL)
        RANK_TRY(env, tri_barrier(run->group, NULL));
    tri_group_free(run->group, run->arena);
    tri_group_unref(run->group);
    free(run->ring_expected);
    free(run);
    return failure;
}

#endif
