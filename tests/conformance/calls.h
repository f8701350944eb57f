/*
 * calls.h - the conformance suite's script: a list of collectives that every rank runs in the
 * same order, each compared bit for bit with the scalar reference. Tests only.
 *
 * Inputs are made from (call, rank, index), so every rank can compute what all others put in.
 */
#ifndef TEST_CALLS_H
#define TEST_CALLS_H

#include <math.h>

#include "base/dtype.h"
#include "group/reduce/reduce.h"
#include "testing/check.h"
#include "testing/ranks.h"

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

static inline uint32_t mix(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du;

    h = (h ^ (h >> 15)) * 0x2c1b3c6du;
    h = (h ^ (h >> 12)) * 0x297a2d39u;
    return h ^ (h >> 15);
}

/* Floats of very different sizes, so that another order of a sum shows; now and then a NaN, an
 * infinity, a zero of either sign. */
static inline float test_float(uint32_t h)
{
    static const float scales[9] = {0.0625f, 0.125f, 0.25f, 0.5f, 1, 2, 4, 8, 16};

    switch (h % 257) {
    case 0:
        return NAN;
    case 1:
        return INFINITY;
    case 2:
        return -0.0f;
    case 3:
        return 0.0f;
    default:
        return (float)(int32_t)h / 2147483648.0f * scales[(h >> 3) % 9];
    }
}

/* Elements [first, first + count) of what a rank puts into a call. */
static inline void fill_part(void *p, size_t first, size_t count, tri_dtype dtype, unsigned key,
                             int rank)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t h = mix(key, (uint32_t)rank, (uint32_t)(first + i));
        uint64_t wide = (uint64_t)h << 32 | mix(h, key, 7);

        switch (dtype) {
        case TRI_DTYPE_F16:
            ((uint16_t *)p)[i] = trii_f32_to_f16(test_float(h));
            break;
        case TRI_DTYPE_BF16:
            ((uint16_t *)p)[i] = trii_f32_to_bf16(test_float(h));
            break;
        case TRI_DTYPE_F32:
            ((float *)p)[i] = test_float(h);
            break;
        case TRI_DTYPE_F64:
            ((double *)p)[i] = (double)test_float(h) * 1.00000000123;
            break;
        case TRI_DTYPE_BOOL:
            ((uint8_t *)p)[i] = (uint8_t)(h % 3 == 0);
            break;
        default:
            memcpy((char *)p + i * tri_dtype_size(dtype), &wide, tri_dtype_size(dtype));
            break;
        }
    }
}

static inline void fill(void *p, size_t count, tri_dtype dtype, unsigned key, int rank)
{
    fill_part(p, 0, count, dtype, key, rank);
}

static inline bool is_nan(const void *p, size_t i, tri_dtype dtype)
{
    switch (dtype) {
    case TRI_DTYPE_F16:
        return isnan(trii_f16_to_f32(((const uint16_t *)p)[i]));
    case TRI_DTYPE_BF16:
        return isnan(trii_bf16_to_f32(((const uint16_t *)p)[i]));
    case TRI_DTYPE_F32:
        return isnan(((const float *)p)[i]);
    case TRI_DTYPE_F64:
        return isnan(((const double *)p)[i]);
    default:
        return false;
    }
}

/* Index of the first element whose bits differ (a NaN equals any NaN), or count. */
static inline size_t first_difference(const void *a, const void *b, size_t count, tri_dtype dtype)
{
    size_t size = tri_dtype_size(dtype);

    if (count == 0 || memcmp(a, b, count * size) == 0)
        return count;
    for (size_t i = 0; i < count; i++) {
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) != 0 &&
            !(is_nan(a, i, dtype) && is_nan(b, i, dtype)))
            return i;
    }
    return count;
}

/* What an all_reduce must give in elements [first, first + count). */
static inline void expect_reduce(const runner *run, void *out, size_t first, size_t count,
                                 tri_dtype dtype, tri_redop op)
{
    size_t bytes = count * tri_dtype_size(dtype);
    const void *src[RANKS_MAX];
    char *all = malloc(bytes * (size_t)run->env->size + 1);

    for (int r = 0; r < run->env->size; r++) {
        fill_part(all + bytes * (size_t)r, first, count, dtype, run->key, r);
        src[r] = all + bytes * (size_t)r;
    }
    trii_reduce_scalar(src, run->env->size, out, count, dtype, op);
    free(all);
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
    N_CALL_KINDS
} call_kind;

/* One collective in one of its variants: bit 0 in place, 1 arena, 2 asynchronous. */
static inline const char *run_call(runner *run, call_kind kind, size_t count, tri_dtype dtype,
                                   tri_redop op, unsigned variant)
{
    static const char *const names[] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter"};
    rank_env *env = run->env;
    size_t p = (size_t)env->size, bytes = count * tri_dtype_size(dtype);
    size_t n_src = kind == REDUCE_SCATTER ? count * p : count;
    size_t n_dst = kind == ALL_GATHER ? count * p : count;
    bool in_place = (variant & 1) != 0 || kind == BROADCAST, arena = (variant & 2) != 0;
    int root = (int)(run->key % p);
    pending *slot = &run->slots[run->n_pending];
    tri_work **work = (variant & 4) != 0 ? &slot->work : NULL;
    char *src, *dst;

    memset(slot, 0, sizeof(*slot));
    run->key++;
    snprintf(slot->what, sizeof(slot->what), "%s of %zu %s, %s, %s, %s, %s", names[kind], count,
             tri_dtype_name(dtype), tri_redop_name(op), in_place ? "in place" : "apart",
             arena ? "arena" : "heap", work != NULL ? "async" : "blocking");
    if (in_place && kind == ALL_GATHER) {
        dst = take(run, bytes * p, arena, &slot->own_dst);
        src = dst + bytes * (size_t)env->rank;
    } else {
        src = take(run, n_src * tri_dtype_size(dtype), arena, &slot->own_src);
        dst = !in_place ? take(run, n_dst * tri_dtype_size(dtype), arena, &slot->own_dst)
              : kind == REDUCE_SCATTER ? src + bytes * (size_t)env->rank
                                       : src;
    }
    if (!in_place)
        memset(dst, 0xa5, n_dst * tri_dtype_size(dtype));
    fill(src, n_src, dtype, run->key, env->rank);
    slot->dst = dst;
    slot->dtype = dtype;
    slot->count = n_dst;
    slot->expected = malloc(n_src * tri_dtype_size(dtype) + n_dst * tri_dtype_size(dtype) + 1);
    switch (kind) {
    case ALL_REDUCE:
        expect_reduce(run, slot->expected, 0, count, dtype, op);
        RANK_TRY(env, tri_all_reduce(run->group, src, dst, count, dtype, op, work));
        break;
    case BROADCAST:
        fill(slot->expected, count, dtype, run->key, root);
        if (env->rank != root)
            memset(dst, 0xa5, bytes);
        RANK_TRY(env, tri_broadcast(run->group, dst, count, dtype, root, work));
        break;
    case ALL_GATHER:
        for (int r = 0; r < env->size; r++)
            fill((char *)slot->expected + bytes * (size_t)r, count, dtype, run->key, r);
        RANK_TRY(env, tri_all_gather(run->group, src, dst, count, dtype, work));
        break;
    default:
        expect_reduce(run, slot->expected, count * (size_t)env->rank, count, dtype, op);
        RANK_TRY(env, tri_reduce_scatter(run->group, src, dst, count, dtype, op, work));
        break;
    }
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
        for (int op = 0; op < (what->all_ops ? TRI_REDOP_COUNT : 1) && failure == NULL; op++) {
            if (trii_reduce_check(dtype, (tri_redop)op) != TRI_OK)
                continue;
            for (int kind = 0; kind < N_CALL_KINDS && failure == NULL; kind++) {
                bool reduces = kind == ALL_REDUCE || kind == REDUCE_SCATTER;

                if ((op > 0 && !reduces) ||
                    (what->moves_only && kind != ALL_REDUCE && kind != BROADCAST))
                    continue;
                for (unsigned variant = 0; variant < 8 && failure == NULL; variant++)
                    failure = run_call(run, (call_kind)kind, *count, dtype, (tri_redop)op, variant);
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
