/*
 * chain_operand.c - blocks of operands that are repeated or strided.
 */
#include "train/device/cpu/chain_operand.h"

#include "base/dtype.h"
#include "train/device/cpu/kernels.h"

#define FEW 4096 /* elements that stay in the first-level cache, wherever in a view they lie */

/* The dimensions of the chain's shape, neighbours merged. */
static void find_dims(const trii_type *in, const trii_layout *layout, const trii_type *shape,
                      trii_chain_operand *o)
{
    trii_strides plain;
    int shift = shape->ndim - in->ndim;

    trii_strides_plain(in, &plain);
    for (int d = 0; d < shape->ndim; d++) {
        const int64_t *strides = layout != NULL ? layout->strides : plain.stride;
        bool repeats = d < shift || in->shape[d - shift] == 1;
        int64_t stride = repeats ? 0 : strides[d - shift];
        int last = o->n_dims - 1;

        if (shape->shape[d] == 1)
            continue;
        if (last >= 0 && o->stride[last] == stride * shape->shape[d]) {
            o->size[last] *= shape->shape[d];
        } else {
            o->size[++last] = shape->shape[d];
            o->n_dims++;
        }
        o->stride[last] = stride;
    }
}

void trii_chain_operand_of(const trii_type *in, const trii_layout *layout, const trii_type *shape,
                           trii_chain_operand *o)
{
    int d;

    *o = (trii_chain_operand){.repeat = 1,
                              .period = 1,
                              .half = trii_dtype_is_half(in->dtype) ? in->dtype : TRI_DTYPE_NONE};
    find_dims(in, layout, shape, o);
    d = o->n_dims - 1;
    if (d >= 0 && o->stride[d] == 0)
        o->repeat = o->size[d--];
    if (d >= 0 && o->stride[d] == 1)
        o->period = o->size[d--];
    if (d >= 0 && o->stride[d] == 0)
        d--;
    if (d < 0)
        o->n_dims = 0;
    if (o->period == 1)
        o->repeat = 1;
}

bool trii_chain_operand_is_near(const trii_chain_operand *o)
{
    int64_t n = 1;

    for (int d = 0; d < o->n_dims; d++)
        n *= o->stride[d] != 0 ? o->size[d] : 1;
    return o->n_dims == 0 || o->stride[o->n_dims - 1] == 0 || o->stride[o->n_dims - 1] == 1 ||
           n <= FEW;
}

static void widen(tri_dtype half, float *d, const uint16_t *narrow, int64_t n)
{
    const trii_cpu_kernels *kernels = trii_cpu_kernels_get();

    if (half == TRI_DTYPE_F16)
        kernels->from_f16(d, narrow, (size_t)n);
    else
        kernels->from_bf16(d, narrow, (size_t)n);
}

static void round_to(tri_dtype half, uint16_t *narrow, const float *d, int64_t n)
{
    const trii_cpu_kernels *kernels = trii_cpu_kernels_get();

    if (half == TRI_DTYPE_F16)
        kernels->to_f16(narrow, d, (size_t)n);
    else
        kernels->to_bf16(narrow, d, (size_t)n);
}

/* --- repeated ------------------------------------------------------------- */

static void load_repeated(float *d, const void *operand, int64_t begin, int64_t n,
                          const trii_chain_operand *o)
{
    int64_t i = 0, at = begin / o->repeat % o->period, left = o->repeat - begin % o->repeat;
    const uint16_t *narrow = operand;
    const float *x = operand;

    if (o->repeat == 1 && o->period > 1) {
        while (i < n) {
            int64_t run = o->period - at < n - i ? o->period - at : n - i;

            if (o->half != TRI_DTYPE_NONE)
                widen(o->half, d + i, narrow + at, run);
            else
                memcpy(d + i, x + at, (size_t)run * sizeof(float));
            i += run;
            at = 0;
        }
        return;
    }
    if (o->period == 1)
        left = n;
    while (i < n) {
        int64_t end = i + left < n ? i + left : n;
        float v = o->half != TRI_DTYPE_NONE ? trii_half_to_f32(o->half, narrow[at]) : x[at];

        for (; i < end; i++)
            d[i] = v;
        at = at + 1 == o->period ? 0 : at + 1;
        left = o->repeat;
    }
}

/* --- strided -------------------------------------------------------------- */

/* A position in the walk through the dimensions. */
typedef struct place {
    int64_t at[TRI_MAX_DIMS], offset;
} place;

static place place_of(const trii_chain_operand *o, int64_t index)
{
    place p = {.offset = 0};

    for (int d = o->n_dims - 1; d >= 0; d--) {
        p.at[d] = index % o->size[d];
        index /= o->size[d];
        p.offset += p.at[d] * o->stride[d];
    }
    return p;
}

/* Moves on by `run` elements, which end a row or lie within one. */
static void advance(const trii_chain_operand *o, place *p, int64_t run)
{
    int d = o->n_dims - 1;

    p->at[d] += run;
    p->offset += run * o->stride[d];
    while (p->at[d] == o->size[d] && d > 0) {
        p->offset += o->stride[d - 1] - o->size[d] * o->stride[d];
        p->at[d] = 0;
        p->at[--d]++;
    }
}

static void load_run(float *d, const void *operand, int64_t offset, int64_t stride, int64_t n,
                     tri_dtype half)
{
    const uint16_t *narrow = (const uint16_t *)operand + offset;
    const float *x = (const float *)operand + offset;

    if (half != TRI_DTYPE_NONE && stride == 1) {
        widen(half, d, narrow, n);
    } else if (half != TRI_DTYPE_NONE) {
        for (int64_t i = 0; i < n; i++)
            d[i] = trii_half_to_f32(half, narrow[i * stride]);
    } else if (stride == 1) {
        memcpy(d, x, (size_t)n * sizeof(float));
    } else {
        for (int64_t i = 0; i < n; i++)
            d[i] = x[i * stride];
    }
}

static void store_run(void *result, const float *d, int64_t offset, int64_t stride, int64_t n,
                      tri_dtype half)
{
    uint16_t *narrow = (uint16_t *)result + offset;
    float *y = (float *)result + offset;

    if (half != TRI_DTYPE_NONE && stride == 1) {
        round_to(half, narrow, d, n);
    } else if (half != TRI_DTYPE_NONE) {
        for (int64_t i = 0; i < n; i++)
            narrow[i * stride] = trii_f32_to_half(half, d[i]);
    } else if (stride == 1) {
        memcpy(y, d, (size_t)n * sizeof(float));
    } else {
        for (int64_t i = 0; i < n; i++)
            y[i * stride] = d[i];
    }
}

void trii_chain_operand_load(float *d, const void *operand, int64_t begin, int64_t n,
                             const trii_chain_operand *o)
{
    int last = o->n_dims - 1;
    place p;

    if (o->n_dims == 0) {
        load_repeated(d, operand, begin, n, o);
        return;
    }
    p = place_of(o, begin);
    while (n > 0) {
        int64_t run = o->size[last] - p.at[last];

        run = run < n ? run : n;
        load_run(d, operand, p.offset, o->stride[last], run, o->half);
        d += run;
        n -= run;
        advance(o, &p, run);
    }
}

void trii_chain_operand_store(void *result, const float *d, int64_t begin, int64_t n,
                              const trii_chain_operand *o)
{
    int last = o->n_dims - 1;
    place p;

    if (o->n_dims == 0) { /* plain */
        store_run(result, d, begin, 1, n, o->half);
        return;
    }
    p = place_of(o, begin);
    while (n > 0) {
        int64_t run = o->size[last] - p.at[last];

        run = run < n ? run : n;
        store_run(result, d, p.offset, o->stride[last], run, o->half);
        d += run;
        n -= run;
        advance(o, &p, run);
    }
}
