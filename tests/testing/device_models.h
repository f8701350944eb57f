/*
 * device_models.h - models that a test runs on the device and with the reference kernels, forward
 * and backward, and compares. Tests only.
 *
 * f32 kernels add in another order than the reference, which adds in f64: differences up to
 * TOLERANCE of the largest element are accepted, Winograd 10 times that.
 *
 * The same models run in bf16, where reference and kernels round in different places, so there the
 * whole result is compared, by its norm. A ReLU or a maximum near a tie could go either way and
 * hide a wrong kernel in a wide tolerance: so the images and matrices of these runs are small
 * integers, which a first product keeps exactly, and every decision after it is the same on both
 * sides.
 */
#ifndef TEST_DEVICE_MODELS_H
#define TEST_DEVICE_MODELS_H

#include <math.h>

#include <trireme/ops.h>

#include "train/device/cpu/cpu_parallel.h"
#include "base/alloc.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

#define TOLERANCE 2e-5
#define MAX_ELEMS 400000
#define MAX_LEAVES 8

#define TOLERANCE_BF16 0.005      /* one operation: a rounding is at most 0.004 */
#define TOLERANCE_BF16_MODEL 0.01 /* several, one after the other */

static bool in_bf16;
static bool threads_are_set; /* by the test */
static uint32_t random_state;

static float random_float(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)((int)(random_state >> 8) % 20001 - 10000) / 5000;
}

typedef enum leaf_kind {
    LEAF_NOISE,    /* in [-2, 2] */
    LEAF_POSITIVE, /* in [0.5, 2.5]: variances */
    LEAF_INTEGERS, /* -3 .. 3 in f32 and bf16 alike */
    LEAF_SIGNS,    /* -1, 0, 1 */
    LEAF_FAR       /* -8 or 8: what it is added to has its sign */
} leaf_kind;

static float random_leaf(leaf_kind kind)
{
    float x = random_float();

    switch (kind) {
    case LEAF_POSITIVE:
        return fabsf(x) + 0.5f;
    case LEAF_INTEGERS:
        return rintf(x * 1.7f);
    case LEAF_SIGNS:
        return rintf(x * 0.7f);
    case LEAF_FAR:
        return x < 0 ? -8 : 8;
    default:
        return x;
    }
}

static tri_tensor *noise_of(const int64_t *shape, int ndim, leaf_kind kind)
{
    int64_t n = 1;
    float *data;
    tri_tensor *tensor;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    data = malloc((size_t)n * sizeof(float) + 1);
    for (int64_t i = 0; i < n; i++)
        data[i] = random_leaf(kind);
    tensor = tri_tensor_from(shape, ndim, TRI_DTYPE_F32, data);
    free(data);
    tri_requires_grad(tensor, true);
    return tensor;
}

static tri_tensor *noise(const int64_t *shape, int ndim)
{
    return noise_of(shape, ndim, LEAF_NOISE);
}

/* A model: made from leaves (x first), returns the tensor whose weighted sum is differentiated. */
typedef struct model {
    const char *name;
    int n_leaves;
    int64_t shape[MAX_LEAVES][4];
    int ndim[MAX_LEAVES];
    leaf_kind kind[MAX_LEAVES];
    tri_tensor *(*build)(tri_tensor *const *leaves, const void *options);
    const void *options;
    double tolerance; /* 0 = TOLERANCE */
    double tolerance_bf16;
    bool dropped;  /* once more, with a result that nobody keeps */
    bool all_bf16; /* parameters too are rounded for a run in bf16 */
} model;

typedef struct outcome {
    float *data[2 * MAX_LEAVES + 2];
    int64_t n[2 * MAX_LEAVES + 2];
    int count;
} outcome;

static void read_out(outcome *o, tri_tensor *tensor)
{
    int64_t n = tri_tensor_numel(tensor);

    o->n[o->count] = n;
    o->data[o->count] = malloc((size_t)n * sizeof(float) + 1);
    CHECK_OK(tri_tensor_copy_out(tensor, o->data[o->count], (size_t)n * sizeof(float)));
    o->count++;
}

/* The model's result; in bf16 with images (what has x's shape) rounded beforehand. */
static tri_tensor *apply(const model *m, tri_tensor *const *leaves)
{
    tri_tensor *in[MAX_LEAVES], *y;

    if (!in_bf16)
        return m->build(leaves, m->options);
    for (int i = 0; i < m->n_leaves; i++) {
        bool like_x = m->ndim[i] == m->ndim[0] &&
                      memcmp(m->shape[i], m->shape[0], (size_t)m->ndim[0] * sizeof(int64_t)) == 0;

        in[i] = like_x || m->all_bf16 ? tri_cast(leaves[i], TRI_DTYPE_BF16) : leaves[i];
    }
    tri_autocast_begin(TRI_DTYPE_BF16);
    y = m->build(in, m->options);
    tri_autocast_end();
    assert_int_equal(tri_tensor_dtype(y), TRI_DTYPE_BF16);
    return tri_cast(y, TRI_DTYPE_F32);
}

static leaf_kind kind_of(const model *m, int i)
{
    if (!in_bf16 || m->kind[i] != LEAF_NOISE || m->ndim[i] < 2)
        return m->kind[i];
    return i == 0 ? LEAF_INTEGERS : LEAF_SIGNS;
}

/* Value and gradients, twice: the second run finds weights in the layout of the first. If the
 * value is dropped, nobody but the gradients needs it, and the plan may leave it out. */
static outcome run(const model *m, bool drop)
{
    outcome o = {.count = 0};
    tri_tensor *leaves[MAX_LEAVES];

    random_state = 1;
    for (int i = 0; i < m->n_leaves; i++)
        leaves[i] = noise_of(m->shape[i], m->ndim[i], kind_of(m, i));
    for (int round = 0; round < 2; round++) {
        tri_tensor *y = apply(m, leaves), *w;
        int64_t shape[4];

        for (int d = 0; d < tri_tensor_ndim(y); d++)
            shape[d] = tri_tensor_size(y, d);
        CHECK_OK(tri_tensor_status(y));
        w = noise(shape, tri_tensor_ndim(y));
        tri_requires_grad(w, false);
        if (!drop)
            tri_keep(y);
        tri_backward(tri_sum(tri_mul(y, w), NULL, 0, false));
        CHECK_OK(drop ? tri_step_end_status() : tri_run());
        if (round == 1) {
            if (!drop)
                read_out(&o, y);
            for (int i = 0; i < m->n_leaves; i++) {
                if (tri_grad(leaves[i]) != NULL)
                    read_out(&o, tri_grad(leaves[i]));
                read_out(&o, leaves[i]);
            }
        }
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(w);
    }
    for (int i = 0; i < m->n_leaves; i++)
        tri_tensor_unref(leaves[i]);
    return o;
}

/* The model's results and gradients have the same bits on 1, 2, 3 and 8 threads. */
static inline void check_bits_of_threads(const model *m)
{
    static const int threads[4] = {1, 2, 3, 8};
    outcome first = {.count = 0};

    trii_executor_set(NULL);
    for (int i = 0; i < 4; i++) {
        outcome o;

        trii_parallel_set_threads(threads[i]);
        o = run(m, false);
        assert_true(i == 0 || o.count == first.count);
        for (int k = 0; k < o.count && i > 0; k++) {
            assert_memory_equal(o.data[k], first.data[k], (size_t)o.n[k] * sizeof(float));
            free(o.data[k]);
        }
        if (i == 0)
            first = o;
    }
    assert_true(first.count > 0);
    for (int k = 0; k < first.count; k++)
        free(first.data[k]);
}

static void check_norm(const model *m, int k, const float *planned, const float *eager, int64_t n)
{
    double tolerance = m->tolerance_bf16 > 0 ? m->tolerance_bf16 : TOLERANCE_BF16;
    double difference = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        double a = (double)planned[i], b = (double)eager[i];

        difference += (a - b) * (a - b);
        size += b * b;
    }
    if (!(sqrt(difference) <= tolerance * sqrt(size) + 1e-6))
        fail_msg("%s in bf16: result %d of %lld elements is off by %.3g of its norm %.3g", m->name,
                 k, (long long)n, sqrt(difference / size), sqrt(size));
}

static void check_outcome(const model *m, const outcome *planned, const outcome *eager)
{
    double tolerance = m->tolerance > 0 ? m->tolerance : TOLERANCE;

    assert_int_equal(planned->count, eager->count);
    for (int k = 0; k < planned->count; k++) {
        double largest = 0;

        assert_int_equal(planned->n[k], eager->n[k]);
        if (in_bf16)
            check_norm(m, k, planned->data[k], eager->data[k], planned->n[k]);
        for (int64_t i = 0; i < planned->n[k]; i++)
            largest = fmax(largest, fabs((double)eager->data[k][i]));
        for (int64_t i = 0; i < planned->n[k] && !in_bf16; i++) {
            double a = (double)planned->data[k][i], b = (double)eager->data[k][i];

            if (!(fabs(a - b) <= tolerance * (largest + 1e-3)))
                fail_msg("%s: result %d, element %lld of %lld: %.9g instead of %.9g (largest %g)",
                         m->name, k, (long long)i, (long long)planned->n[k], a, b, largest);
        }
        free(planned->data[k]);
    }
}

/* On one thread, which shows ThreadSanitizer nothing, and on two, if nobody has said how many. */
static void check_run(const model *m, bool drop)
{
    outcome planned, eager;

    trii_executor_set(&trii_executor_reference);
    eager = run(m, drop);
    trii_executor_set(NULL);
    for (int threads = TEST_SANITIZED || threads_are_set ? 2 : 1; threads <= 2; threads++) {
        if (!threads_are_set) {
            trii_parallel_set_threads(threads);
            trii_step_release(); /* plans of another number of threads */
        }
        planned = run(m, drop);
        check_outcome(m, &planned, &eager);
    }
    for (int k = 0; k < eager.count; k++)
        free(eager.data[k]);
}

static void check_model(const model *m)
{
    check_run(m, false);
    if (m->dropped)
        check_run(m, true);
}

#endif
