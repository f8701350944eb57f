/*
 * hierarchy_sum.c - the canonical tree over all ranks, of what their hosts have summed of it.
 */
#include "base/alloc.h"
#include "base/dtype.h"
#include "base/float_env.h"
#include "comm/composites/hierarchy/hierarchy.h"
#include "comm/group/reduce/reduce.h"

/* A piece of the vector. */
typedef struct sum {
    hierarchy *h;
    size_t at, count, elem;
    tri_dtype dtype;
    tri_redop op;
} sum;

static const char *partial_at(const sum *s, int i)
{
    return s->h->from[i] + s->at * s->elem;
}

static bool all_alone(const hierarchy_layout *l, int first, int n)
{
    for (int r = first; r < first + n; r++) {
        if (l->partial_of[r] < 0 || l->partial_ranks[l->partial_of[r]] != 1)
            return false;
    }
    return true;
}

/* The node over ranks [first, first + n): where it is, in `to` (NULL: the room at this depth) if it
 * had to be summed. */
static const char *node(const sum *s, int first, int n, int depth, char *to)
{
    const hierarchy_layout *l = &s->h->layout;
    const void **src = s->h->sources;
    const char *left, *right;
    int half, whole = l->partial_of[first];

    if (whole >= 0 && l->partial_ranks[whole] == n)
        return partial_at(s, whole);
    if (to == NULL)
        to = s->h->sum_room + (size_t)depth * HIERARCHY_SUM_BYTES;
    if (all_alone(l, first, n)) {
        for (int i = 0; i < n; i++)
            src[i] = partial_at(s, l->partial_of[first + i]);
        trii_reduce(src, n, to, s->count, s->dtype, s->op);
        return to;
    }
    half = trii_reduce_split(n);
    left = node(s, first, half, depth + 1, NULL);
    right = node(s, first + half, n - half, depth + 2, NULL);
    src[0] = left;
    src[1] = right;
    trii_reduce(src, 2, to, s->count, s->dtype, s->op);
    return to;
}

void hierarchy_sum(hierarchy *h, char *dst, size_t count, tri_dtype dtype, tri_redop op)
{
    sum s = {.h = h, .elem = tri_dtype_size(dtype), .dtype = dtype, .op = op};
    size_t most = HIERARCHY_SUM_BYTES / s.elem;

    for (; s.at < count; s.at += s.count) {
        s.count = count - s.at < most ? count - s.at : most;
        (void)node(&s, 0, h->size, 0, dst + s.at * s.elem);
    }
}

void hierarchy_finish(const trii_collective *call, int size, char *src, size_t count, void *dst)
{
    bool avg = call->op == TRI_REDOP_AVG;
    float *f = (float *)(void *)src;
    double *d = (double *)(void *)src;
    uint64_t env = trii_float_env_enter();

    for (size_t i = 0; i < count && avg; i++) {
        if (call->dtype == TRI_DTYPE_F64)
            d[i] /= (double)size;
        else
            f[i] /= (float)size;
    }
    if (trii_dtype_is_half(call->dtype))
        trii_narrow(f, dst, count, call->dtype);
    trii_float_env_leave(env);
}
