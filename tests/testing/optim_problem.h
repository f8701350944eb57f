/*
 * optim_problem.h - the small problem on which optimisers are compared with PyTorch: a linear layer
 * of 3 to 2, four samples (nn_golden.py, optim_golden.py).
 */
#ifndef TEST_OPTIM_PROBLEM_H
#define TEST_OPTIM_PROBLEM_H

#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/nn_golden.h"

typedef struct problem {
    tri_module *net;
    tri_tensor *x, *y;
} problem;

static inline tri_tensor *tensor_of(tri_dtype dtype, int64_t rows, int64_t cols,
                                    const double *values)
{
    const int64_t shape[2] = {rows, cols};
    float narrow[16];

    for (int i = 0; i < rows * cols; i++)
        narrow[i] = (float)values[i];
    return tri_tensor_from(shape, 2, dtype,
                           dtype == TRI_DTYPE_F64 ? (const void *)values : (const void *)narrow);
}

static inline problem problem_create(tri_dtype dtype)
{
    problem p;
    float w[6], b[2];
    bool wide = dtype == TRI_DTYPE_F64;

    for (int i = 0; i < 6; i++)
        w[i] = (float)golden_sgd_w[i];
    for (int i = 0; i < 2; i++)
        b[i] = (float)golden_sgd_b[i];
    tri_set_default_dtype(dtype);
    p.net = tri_nn_linear(3, 2, NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    CHECK_OK(tri_module_load(
        p.net,
        (tri_state_source[]){{.name = "weight",
                              .dtype = dtype,
                              .ndim = 2,
                              .shape = {2, 3},
                              .data = wide ? (const void *)golden_sgd_w : (const void *)w},
                             {.name = "bias",
                              .dtype = dtype,
                              .ndim = 1,
                              .shape = {2},
                              .data = wide ? (const void *)golden_sgd_b : (const void *)b}},
        2, NULL));
    p.x = tensor_of(dtype, 4, 3, golden_sgd_x);
    p.y = tensor_of(dtype, 4, 2, golden_sgd_y);
    return p;
}

static inline void problem_destroy(problem *p)
{
    tri_module_destroy(p->net);
    tri_tensor_unref(p->x);
    tri_tensor_unref(p->y);
}

static inline double one_step(problem *p, tri_optimizer *opt)
{
    tri_tensor *loss = tri_mse_loss(tri_forward(p->net, p->x), p->y, NULL);
    double value;

    tri_backward(loss);
    CHECK_OK(tri_optimizer_step(opt));
    value = tri_item(loss);
    tri_step_end();
    return value;
}

static inline void check_near(const double *got, const double *wanted, int n, double bound)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - wanted[i]) <= bound * fmax(1.0, fabs(wanted[i]))))
            fail_msg("element %d: %.17g instead of %.17g", i, got[i], wanted[i]);
}

/* The parameter's elements, of either dtype, as double. */
static inline void read_param(tri_module *net, const char *name, double *out, size_t n)
{
    tri_tensor *param = tri_module_find(net, name);
    float narrow[16];

    assert_true(n <= 16);
    if (tri_tensor_dtype(param) == TRI_DTYPE_F64) {
        CHECK_OK(tri_tensor_copy_out(param, out, n * sizeof(double)));
        return;
    }
    CHECK_OK(tri_tensor_copy_out(param, narrow, n * sizeof(float)));
    for (size_t i = 0; i < n; i++)
        out[i] = (double)narrow[i];
}

#endif
