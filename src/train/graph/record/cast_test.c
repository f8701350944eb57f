/* cast_test.c - tri_cast between every two element types; what rounds, wraps and overflows is what
 * PyTorch makes of it. */
#include <math.h>

#include <trireme/ops.h>

#include "testing/check.h"
#include "train/graph/step/step.h"

static const tri_dtype types[] = {TRI_DTYPE_BOOL, TRI_DTYPE_U8,  TRI_DTYPE_I8,  TRI_DTYPE_I16,
                                  TRI_DTYPE_I32,  TRI_DTYPE_I64, TRI_DTYPE_F16, TRI_DTYPE_BF16,
                                  TRI_DTYPE_F32,  TRI_DTYPE_F64};
#define N_TYPES (sizeof(types) / sizeof(types[0]))
#define N 4

static tri_tensor *of(const double *values, tri_dtype dtype)
{
    tri_tensor *x = tri_tensor_from((int64_t[]){N}, 1, TRI_DTYPE_F64, values);
    tri_tensor *y = tri_cast(x, dtype);

    tri_tensor_unref(x); /* the step holds it */
    return y;
}

static void check(tri_tensor *x, const double *want, const char *what)
{
    double got[N];

    CHECK_OK(tri_tensor_copy_out(tri_keep(tri_cast(x, TRI_DTYPE_F64)), got, sizeof(got)));
    for (int i = 0; i < N; i++) {
        if (got[i] != want[i])
            fail_msg("%s: element %d is %g instead of %g", what, i, got[i], want[i]);
    }
    CHECK_OK(tri_step_end_status());
}

static void every_type_becomes_every_other(void **state)
{
    const double small[N] = {0, 1, 3, 100}, truth[N] = {0, 1, 1, 1};

    (void)state;
    for (size_t from = 0; from < N_TYPES; from++) {
        for (size_t to = 0; to < N_TYPES; to++) {
            char what[64];

            snprintf(what, sizeof(what), "%s to %s", tri_dtype_name(types[from]),
                     tri_dtype_name(types[to]));
            check(tri_cast(of(small, types[from]), types[to]), from == 0 || to == 0 ? truth : small,
                  what);
        }
    }
}

static void what_does_not_fit_rounds_wraps_or_overflows(void **state)
{
    const double x[N] = {-1, 300.9, 70000, -129};

    (void)state;
    check(of(x, TRI_DTYPE_I8), (const double[]){-1, 44, 112, 127}, "i8");
    check(of(x, TRI_DTYPE_U8), (const double[]){255, 44, 112, 127}, "u8");
    check(of(x, TRI_DTYPE_I16), (const double[]){-1, 300, 4464, -129}, "i16");
    check(of(x, TRI_DTYPE_F16), (const double[]){-1, 301, INFINITY, -129}, "f16");
    check(of((const double[]){0.1, 2049, 65519, -0x1p-25}, TRI_DTYPE_F16),
          (const double[]){0.0999755859375, 2048, 65504, -0.0}, "rounded to f16");
}

/* Through f16 and back, as gradients of what is stored in it go. */
static void a_gradient_comes_back_through_f16(void **state)
{
    tri_tensor *x = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_F32, (const float[]){3, 4});
    float g[2];

    (void)state;
    tri_requires_grad(x, true);
    tri_backward(
        tri_sum(tri_square(tri_cast(tri_cast(x, TRI_DTYPE_F16), TRI_DTYPE_F32)), NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), g, sizeof(g)));
    assert_true(g[0] == 6 && g[1] == 8);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

static void other_types_are_refused_by_name(void **state)
{
    const double x[N] = {0};

    (void)state;
    CHECK_FAILS(tri_tensor_status(of(x, TRI_DTYPE_F8_E4M3)), TRI_ERR_UNSUPPORTED,
                "from f64 to f8_e4m3: supported are bool, the integers from u8 to i64, f16, bf16, "
                "f32 and f64");
    tri_step_end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_type_becomes_every_other),
    cmocka_unit_test(what_does_not_fit_rounds_wraps_or_overflows),
    cmocka_unit_test(a_gradient_comes_back_through_f16),
    cmocka_unit_test(other_types_are_refused_by_name),
};

TEST_MAIN(tests)
