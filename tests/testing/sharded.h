/*
 * sharded.h - parameters of which each rank updates a piece, made by hand, and beside them whole
 * ones with the same values: what becomes of the first must be what becomes of the second, to the
 * bit. Tests only.
 */
#ifndef TEST_SHARDED_H
#define TEST_SHARDED_H

#include "testing/ddp_ranks.h"
#include "train/dist/unit.h"
#include "train/tensor/sharing.h"

#define PARAMS 6
#define LARGEST 20500

static const struct {
    tri_dtype dtype;
    int ndim;
    int64_t shape[3];
} sharded_shapes[PARAMS] = {
    {TRI_DTYPE_F32, 1, {1}},    {TRI_DTYPE_F32, 2, {123, 70}}, {TRI_DTYPE_F32, 1, {4096}},
    {TRI_DTYPE_F64, 1, {9000}}, {TRI_DTYPE_F32, 2, {0, 5}},    {TRI_DTYPE_F32, 3, {5, 41, 100}},
};

/* How the blocks of a parameter are divided between the ranks. */
typedef enum cut { EVENLY, ALL_TO_FIRST, ALL_TO_LAST, IN_TURN, UNEVENLY, CUTS } cut;

typedef struct sharded {
    trii_unit unit; /* without buckets */
    trii_unit_param listed[PARAMS];
    trii_placed placed[PARAMS];
    tri_tensor *params[PARAMS], *whole[PARAMS];
    int64_t start[PARAMS], count[PARAMS]; /* of all of them, divided or not */
} sharded;

static inline int64_t sharded_bound(cut how, int i, int64_t blocks, int r, int size)
{
    switch (how) {
    case EVENLY:
        return r * blocks / size;
    case ALL_TO_FIRST:
        return r > 0 ? blocks : 0;
    case ALL_TO_LAST:
        return r < size ? 0 : blocks;
    case IN_TURN: /* each parameter is one rank's */
        return r > i % size ? blocks : 0;
    default: /* one block each, and the last rank has the rest */
        return r == size || r > blocks ? blocks : r;
    }
}

/* Numbers of both signs and several magnitudes. */
static inline double sharded_number(uint64_t seed, int64_t k)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + (uint64_t)k * 0xbf58476d1ce4e5b9u;

    x = (x ^ x >> 30) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return ldexp((double)(int64_t)(x >> 11) - 0x1p52, -52 - (int)(x % 9));
}

static inline tri_tensor *sharded_numbers(int i, uint64_t seed)
{
    static _Thread_local double wide[LARGEST];
    static _Thread_local float narrow[LARGEST];
    int64_t n = 1;

    for (int d = 0; d < sharded_shapes[i].ndim; d++)
        n *= sharded_shapes[i].shape[d];
    for (int64_t k = 0; k < n; k++)
        narrow[k] = (float)(wide[k] = sharded_number(seed * PARAMS + (uint64_t)i, k));
    return tri_tensor_from(sharded_shapes[i].shape, sharded_shapes[i].ndim, sharded_shapes[i].dtype,
                           sharded_shapes[i].dtype == TRI_DTYPE_F64 ? (void *)wide : narrow);
}

/* undivided: bit i = parameter i stays whole on all ranks. */
static inline tri_status sharded_make(sharded *s, const rank *r, cut how, unsigned undivided)
{
    *s = (sharded){
        .unit = {
            .call = "tri_zero", .group = r->group, .rank = r->index, .size = r->size, .id = 1}};
    s->unit.params = s->listed;
    for (int i = 0; i < PARAMS; i++) {
        int64_t n, blocks, end;

        s->params[i] = sharded_numbers(i, 1);
        s->whole[i] = sharded_numbers(i, 1);
        n = s->count[i] = tri_tensor_numel(s->params[i]);
        tri_requires_grad(s->params[i], true);
        tri_requires_grad(s->whole[i], true);
        if ((undivided >> i & 1) != 0)
            continue;
        blocks = (n + TRII_PIECE_BLOCK - 1) / TRII_PIECE_BLOCK;
        s->start[i] = sharded_bound(how, i, blocks, r->index, r->size) * TRII_PIECE_BLOCK;
        end = sharded_bound(how, i, blocks, r->index + 1, r->size) * TRII_PIECE_BLOCK;
        s->start[i] = s->start[i] < n ? s->start[i] : n;
        s->count[i] = (end < n ? end : n) - s->start[i];
        s->placed[i] = (trii_placed){.unit = &s->unit,
                                     .tensor = s->params[i],
                                     .name = "p",
                                     .index = i,
                                     .start = s->start[i]};
        TRY(trii_tensor_range(s->params[i], s->start[i], TRI_SHAPE(s->count[i]),
                              &s->placed[i].piece));
        s->params[i]->placed = &s->placed[i];
    }
    return TRI_OK;
}

static inline void sharded_destroy(sharded *s)
{
    for (int i = 0; i < PARAMS; i++) {
        s->params[i]->placed = NULL;
        tri_tensor_unref(s->placed[i].piece);
        tri_tensor_unref(s->params[i]);
        tri_tensor_unref(s->whole[i]);
    }
}

static inline tri_status sharded_bind(trii_step *step, tri_tensor *value, tri_tensor *to)
{
    trii_vid id;

    TRY(trii_resolve(step, tri_mul_scalar(value, 1), &id));
    TRY(trii_grad_prepare(to));
    return trii_grad_bind(step, id, to);
}

/* The whole parameter gets these numbers as its gradient, and the piece its range of them.
 * overflows: the last of them, of an f32, is infinite. */
static inline tri_status sharded_grad_of(sharded *s, int i, uint64_t seed, bool overflows)
{
    trii_step *step = trii_step_current();
    tri_tensor *grad = sharded_numbers(i, seed), *part;
    int64_t n = tri_tensor_numel(grad);

    if (overflows)
        ((float *)trii_tensor_data(grad))[n - 1] = INFINITY;
    TRY(sharded_bind(step, grad, s->whole[i]));
    part = s->placed[i].piece != NULL
               ? tri_narrow(tri_reshape(grad, &n, 1), 0, s->start[i], s->count[i])
               : grad;
    TRY(sharded_bind(step, part, trii_home(s->params[i])));
    tri_tensor_unref(grad);
    return TRI_OK;
}

static inline tri_status sharded_grad(sharded *s, int i, uint64_t seed)
{
    return sharded_grad_of(s, i, seed, false);
}

/* `part` has the bits of the range of `whole` that begins at `start`. */
static inline tri_status sharded_same(tri_tensor *whole, tri_tensor *part, int64_t start,
                                      const char *what, int i)
{
    static _Thread_local double a[LARGEST], b[LARGEST];
    size_t size = tri_dtype_size(tri_tensor_dtype(whole));
    int64_t n = tri_tensor_numel(part);

    TRY(tri_tensor_copy_out(whole, a, (size_t)tri_tensor_numel(whole) * size));
    TRY(tri_tensor_copy_out(part, b, (size_t)n * size));
    if (n > 0 && memcmp((const char *)a + (size_t)start * size, b, (size_t)n * size) != 0)
        return TRII_FAIL(TRI_ERR_MISMATCH, "%s of parameter %d: other bits", what, i);
    return TRI_OK;
}

static inline tri_status sharded_check_params(sharded *s)
{
    for (int i = 0; i < PARAMS; i++)
        TRY(sharded_same(s->whole[i], trii_home(s->params[i]), s->start[i], "contents", i));
    return TRI_OK;
}

#endif
