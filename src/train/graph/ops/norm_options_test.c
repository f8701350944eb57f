/* norm_options_test.c - an option of an operation that is not given is the default, and a 0 is a 0.
 */
#include <math.h>

#include <trireme/ops.h>

#include "train/graph/step/step.h"
#include "testing/check.h"

#define N 4

/* Rows of one channel: 1, 2, 3, 4, or all the same. */
static tri_tensor *rows(bool constant)
{
    float x[N];

    for (int i = 0; i < N; i++)
        x[i] = constant ? 2.0f : 1.0f + (float)i;
    return tri_tensor_from((int64_t[]){N, 1}, 2, TRI_DTYPE_F32, x);
}

typedef struct normed {
    float y[N], mean, var; /* and the running statistics */
} normed;

static normed norm(bool constant, tri_batch_norm_args args)
{
    tri_tensor *x = rows(constant);
    normed out;

    args.running_mean = tri_tensor_create((int64_t[]){1}, 1, TRI_DTYPE_F32);
    args.running_var = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_F32, &(const float){1});
    args.training = true;
    CHECK_OK(tri_tensor_copy_out(tri_batch_norm(x, &args), out.y, sizeof(out.y)));
    CHECK_OK(tri_tensor_copy_out(args.running_mean, &out.mean, sizeof(out.mean)));
    CHECK_OK(tri_tensor_copy_out(args.running_var, &out.var, sizeof(out.var)));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(args.running_mean);
    tri_tensor_unref(args.running_var);
    tri_tensor_unref(x);
    return out;
}

static void batch_norm_without_options_is_pytorchs(void **state)
{
    normed given =
        norm(false, (tri_batch_norm_args){.momentum = TRI_SET(0.1), .eps = TRI_SET(1e-5)});
    normed none = norm(false, (tri_batch_norm_args){.training = true});
    normed constant = norm(true, (tri_batch_norm_args){.training = true});

    (void)state;
    assert_memory_equal(&none, &given, sizeof(none));
    CHECK_NEAR(none.mean, 0.25f, 1e-6);
    CHECK_NEAR(none.var, 0.9f + 0.1f * 5 / 3, 1e-6);
    for (int i = 0; i < N; i++)
        CHECK_NEAR(constant.y[i], 0, 0); /* and not NaN */
}

static void a_real_zero_is_to_be_had(void **state)
{
    normed still = norm(false, (tri_batch_norm_args){.momentum = TRI_SET(0)});
    normed bare = norm(false, (tri_batch_norm_args){.eps = TRI_SET(0)});

    (void)state;
    CHECK_NEAR(still.mean, 0, 0);
    CHECK_NEAR(still.var, 1, 0);
    CHECK_NEAR(bare.y[3], 1.5f / sqrtf(1.25f), 1e-7);
}

static void batch_norm_refuses_what_is_no_number(void **state)
{
    const tri_batch_norm_args wrong[] = {{.training = true, .eps = TRI_SET(-1e-5)},
                                         {.training = true, .eps = TRI_SET((double)NAN)},
                                         {.training = true, .momentum = TRI_SET((double)INFINITY)}};
    tri_tensor *x = rows(false);

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_FAILS(tri_tensor_status(tri_batch_norm(x, &wrong[i])), TRI_ERR_INVALID_ARG,
                    "tri_batch_norm: momentum ");
    CHECK_FAILS(tri_tensor_status(tri_batch_norm(x, NULL)), TRI_ERR_INVALID_ARG, "batch_norm");
    tri_step_end();
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(batch_norm_without_options_is_pytorchs),
    cmocka_unit_test(a_real_zero_is_to_be_had),
    cmocka_unit_test(batch_norm_refuses_what_is_no_number),
};

TEST_MAIN(tests)
