/*
 * remote_workers.h - workers that are threads of a test and serve modules to each other. Tests
 * only.
 */
#ifndef TEST_REMOTE_WORKERS_H
#define TEST_REMOTE_WORKERS_H

#include <trireme/trireme.h>

#include "train/graph/step/step.h"
#include "testing/rpc_workers.h"

static inline double remote_spread(int64_t i, int seed)
{
    return (double)((i * 37 + seed * 101) % 199 - 99) / 97;
}

/* A loss whose gradient is no constant. */
static inline tri_tensor *remote_loss(tri_tensor *y)
{
    return tri_mean(tri_square(y), NULL, 0, false);
}

/* Any of the floating-point types. */
static inline tri_tensor *remote_tensor(const int64_t *shape, int ndim, tri_dtype dtype, int seed)
{
    int64_t n = 1;
    double data[4096];
    tri_tensor *exact, *tensor;

    for (int k = 0; k < ndim; k++)
        n *= shape[k];
    assert_true(n <= 4096);
    for (int64_t i = 0; i < n; i++)
        data[i] = remote_spread(i, seed);
    exact = tri_tensor_from(shape, ndim, TRI_DTYPE_F64, data);
    tensor = tri_tensor_clone(tri_cast(exact, dtype));
    CHECK_OK(tri_tensor_status(tensor));
    tri_step_end();
    tri_tensor_unref(exact);
    return tensor;
}

static inline char *remote_bytes(tri_tensor *tensor, size_t *bytes_out)
{
    char *data;

    CHECK_OK(tri_tensor_status(tensor));
    *bytes_out = (size_t)tri_tensor_numel(tensor) * tri_dtype_size(tri_tensor_dtype(tensor));
    data = malloc(*bytes_out + 1);
    assert_non_null(data);
    CHECK_OK(tri_tensor_copy_out(tensor, data, *bytes_out));
    return data;
}

static inline void remote_expect_equal(tri_tensor *a, tri_tensor *b)
{
    size_t a_bytes, b_bytes;
    char *x = remote_bytes(a, &a_bytes), *y = remote_bytes(b, &b_bytes);

    assert_int_equal(tri_tensor_dtype(a), tri_tensor_dtype(b));
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(x, y, a_bytes);
    free(x);
    free(y);
}

/* Gives `to` the parameters and buffers of `from`. */
static inline void remote_copy_state(tri_module *from, tri_module *to)
{
    assert_int_equal(tri_module_state_count(from), tri_module_state_count(to));
    for (int64_t i = 0; i < tri_module_state_count(from); i++) {
        size_t bytes;
        char *data = remote_bytes(tri_module_state(from, i).tensor, &bytes);

        CHECK_OK(tri_tensor_copy_in(tri_module_state(to, i).tensor, data, bytes));
        free(data);
    }
}

static inline void remote_expect_equal_state(tri_module *a, tri_module *b)
{
    for (int64_t i = 0; i < tri_module_state_count(a); i++)
        remote_expect_equal(tri_module_state(a, i).tensor, tri_module_state(b, i).tensor);
}

typedef struct remote_workers {
    workers w;
    long blocks;
} remote_workers;

static inline void remote_begin(remote_workers *r, int n, const tri_rpc_options *opt)
{
    trii_step_release();
    r->blocks = trii_alloc_live();
    workers_begin(&r->w, n, opt);
}

/* After everything that the test has made is gone. */
static inline void remote_end(remote_workers *r)
{
    trii_step_release();
    r->w.blocks = r->blocks;
    workers_end(&r->w);
}

/* The same where a worker has been aborted, for which the others would wait. */
static inline void remote_end_without_leaving(remote_workers *r)
{
    trii_step_release();
    r->w.blocks = r->blocks;
    workers_destroy(&r->w);
}

#endif
