/*
 * shared_unit.h - a unit whose memory two parameters and a shard share, for tests of what a step
 * makes of it.
 */
#ifndef TEST_SHARED_UNIT_H
#define TEST_SHARED_UNIT_H

#include <trireme/trireme.h>

#include "testing/check.h"
#include "train/graph/step/recorder.h"
#include "train/tensor/sharing.h"

/* Floats of a unit that is updated where it lies, and of one that is small enough to wait for the
 * end of the step. */
#define LARGE 16384
#define SMALL 512

/* A unit, the parameters in it, and a shard that has the end of the first and the begin of the
 * second. */
typedef struct unit {
    int64_t n;
    tri_tensor *flat, *a, *b, *shard;
} unit;

/* TRI_EAGER=1: each operation runs when it is recorded, without a plan, so nothing ever pends. */
static inline bool is_eager(void)
{
    return trii_recorder_of(trii_step_current())->eager;
}

static inline tri_tensor *range(tri_tensor *whole, int64_t first, int64_t n)
{
    tri_tensor *part = NULL;

    CHECK_OK(trii_tensor_range(whole, first, TRI_SHAPE(n), &part));
    return part;
}

/* All elements are `value`. */
static inline void fill(tri_tensor *t, float value)
{
    size_t n = (size_t)tri_tensor_numel(t);
    float *data = malloc(n * sizeof(*data));

    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        data[i] = value;
    CHECK_OK(tri_tensor_copy_in(t, data, n * sizeof(*data)));
    free(data);
}

static inline unit make_unit(int64_t n, float value)
{
    unit u = {.n = n, .flat = tri_tensor_create(TRI_SHAPE(n), TRI_DTYPE_F32)};

    u.a = range(u.flat, 0, n / 2);
    u.b = range(u.flat, n / 2, n / 2);
    u.shard = range(u.flat, n / 4, n / 2);
    fill(u.flat, value);
    return u;
}

static inline void free_unit(const unit *u)
{
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(u->flat);
    tri_tensor_unref(u->a);
    tri_tensor_unref(u->b);
    tri_tensor_unref(u->shard);
}

/* The n parts of a value, all of one size, have these elements. */
static inline void expect(tri_tensor *t, const float *want, size_t n)
{
    size_t size = (size_t)tri_tensor_numel(t);
    float *data = malloc(size * sizeof(*data));

    assert_non_null(data);
    CHECK_OK(tri_tensor_copy_out(t, data, size * sizeof(*data)));
    for (size_t i = 0; i < size; i++) {
        if (data[i] != want[i * n / size])
            fail_msg("element %zu is %g, not %g", i, (double)data[i], (double)want[i * n / size]);
    }
    free(data);
}

#define EXPECT(t, ...)                                                                             \
    expect(t, (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

static inline void leave_in(tri_tensor *value, tri_tensor *tensor)
{
    trii_vid id = TRII_NO_VALUE;

    CHECK_OK(trii_resolve(trii_step_current(), value, &id));
    CHECK_OK(trii_bind(trii_step_current(), id, tensor));
}

static inline tri_tensor *plus(tri_tensor *t, double x)
{
    return tri_keep(tri_add_scalar(t, x));
}

#endif
