/*
 * device_rows_test.c - what the device computes of rows, against the reference kernels: products,
 * losses, chains of element-wise operations, softmax and normalisation.
 */
#include "device/cpu/cpu_parallel.h"
#include "testing/device_models.h"

/* --- products and losses -----------------------------------------------------------------------
 */

static tri_tensor *build_mlp(tri_tensor *const *l, const void *options)
{
    (void)options;
    return tri_linear(tri_relu(tri_linear(l[0], l[1], l[2])), l[3], NULL);
}

static tri_tensor *build_matmul(tri_tensor *const *l, const void *options)
{
    (void)options;
    return tri_matmul(tri_matmul(l[0], l[1]), l[2]);
}

static void products(void **state)
{
    static const int64_t sizes[][3] = {{20, 10, 5},   {1, 1, 1},      {7, 33, 19},
                                       {64, 70, 130}, {300, 257, 90}, {512, 512, 64}};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(sizes) - TEST_TSAN; i++) {
        int64_t n = sizes[i][0], a = sizes[i][1], b = sizes[i][2];
        const model mlp = {.name = "mlp",
                           .n_leaves = 4,
                           .shape = {{n, a}, {b, a}, {b}, {a, b}},
                           .ndim = {2, 2, 1, 2},
                           .build = build_mlp,
                           .tolerance_bf16 = TOLERANCE_BF16_MODEL,
                           .tolerance = 10 * TOLERANCE};
        const model batched = {.name = "batched matmul",
                               .n_leaves = 3,
                               .shape = {{3, n, a}, {3, a, b}, {b, 8}},
                               .ndim = {3, 3, 2},
                               .build = build_matmul,
                               .tolerance = 10 * TOLERANCE};

        check_model(&mlp);
        check_model(&batched);
    }
}

static tri_tensor *target_of_losses;

static tri_tensor *build_loss(tri_tensor *const *l, const void *options)
{
    const tri_cross_entropy_options opt = {.label_smoothing = options != NULL ? 0.1 : 0};
    tri_tensor *loss = tri_cross_entropy(l[0], target_of_losses, &opt);

    return tri_add(loss, tri_mse_loss(l[0], l[1]));
}

static void losses(void **state)
{
    int64_t rows[3] = {1, 37, 64}, classes[3] = {3, 10, 1200};

    (void)state;
    for (int i = 0; i < 3; i++) {
        for (int smooth = 0; smooth < 2; smooth++) {
            int64_t target[64];
            const model m = {.name = "losses",
                             .n_leaves = 2,
                             .shape = {{rows[i], classes[i]}, {rows[i], classes[i]}},
                             .ndim = {2, 2},
                             .build = build_loss,
                             .options = smooth ? "smooth" : NULL};

            for (int64_t r = 0; r < rows[i]; r++)
                target[r] = r * 7 % classes[i];
            target_of_losses = tri_tensor_from(TRI_DTYPE_I64, &rows[i], 1, target);
            check_model(&m);
            tri_tensor_unref(target_of_losses);
        }
    }
}

static void a_wrong_target_is_named(void **state)
{
    const int64_t rows = 2, target[2] = {0, 3};
    tri_tensor *x = noise((int64_t[]){2, 3}, 2),
               *t = tri_tensor_from(TRI_DTYPE_I64, &rows, 1, target);
    float loss;

    (void)state;
    CHECK_FAILS(tri_copy_out(tri_keep(tri_cross_entropy(x, t, NULL)), &loss, sizeof(loss)),
                TRI_ERR_INVALID_ARG, "target 3 of row 1");
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(t);
}

/* --- element-wise chains with broadcasting ------------------------------------------------------
 */

static tri_tensor *build_chain(tri_tensor *const *l, const void *options)
{
    tri_tensor *a = tri_add(l[0], l[1]);                                /* [.., 1, W] */
    tri_tensor *b = tri_mul(tri_tanh(a), tri_sigmoid(l[2]));            /* [C, 1, 1] */
    tri_tensor *c = tri_maximum(tri_exp(tri_mul_scalar(b, 0.5)), l[3]); /* a number */

    (void)options;
    c = tri_div(tri_sub(c, b), tri_add_scalar(tri_square(a), 1));
    return tri_add(tri_gelu(c), tri_silu(tri_neg(tri_abs(b))));
}

/* One operation with a number each: bits of the reference kernels, which are PyTorch's. */
static void numbers_have_the_bits_of_the_reference(void **state)
{
    enum { N_ELEMENTS = 100003 };
    static float got[2][4 * N_ELEMENTS];
    const int64_t n = N_ELEMENTS;

    (void)state;
    for (int eager = 0; eager < 2; eager++) {
        tri_tensor *x, *y[4];

        trii_executor_set(eager != 0 ? &trii_executor_reference : NULL);
        random_state = 1;
        x = noise(&n, 1);
        tri_requires_grad(x, false);
        y[0] = tri_keep(tri_mul_scalar(x, 0.1));
        y[1] = tri_keep(tri_add_scalar(x, 0.1));
        y[2] = tri_keep(tri_leaky_relu(x, 0.1));
        y[3] = tri_keep(tri_sqrt(tri_square(x)));
        for (int i = 0; i < 4; i++)
            CHECK_OK(tri_copy_out(y[i], got[eager] + i * n, (size_t)n * sizeof(float)));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
    trii_executor_set(NULL);
    for (int64_t i = 0; i < 4 * n; i++) {
        if (memcmp(&got[0][i], &got[1][i], sizeof(float)) != 0)
            fail_msg("operation %d: %.9g instead of %.9g", (int)(i / n), (double)got[0][i],
                     (double)got[1][i]);
    }
}

static void check_chains(void)
{
    const model m = {.name = "chain",
                     .n_leaves = 4,
                     .shape = {{4, 6, 30, 41}, {41}, {6, 1, 1}, {1}},
                     .ndim = {4, 1, 3, 1},
                     .build = build_chain,
                     .tolerance_bf16 = TOLERANCE_BF16_MODEL,
                     .all_bf16 = true};

    check_model(&m);
}

static void chains(void **state)
{
    (void)state;
    check_chains();
}

static void chains_portable(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    check_chains();
}

static void chains_on_two_threads(void **state)
{
    (void)state;
    trii_parallel_set_threads(2);
    check_chains();
}

/* --- softmax, gradients of activations, normalisation of rows -----------------------------------
 */

static tri_tensor *build_softmax(tri_tensor *const *l, const void *options)
{
    const int *variant = options;

    return *variant == 0 ? tri_softmax(l[0], -1) : tri_log_softmax(l[0], -1);
}

static void softmax_of_rows(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        for (int64_t n = 1; n <= 1100; n = n * 3 + 7) {
            const model m = {.name = variant == 0 ? "softmax" : "log_softmax",
                             .n_leaves = 1,
                             .shape = {{2, 5, n}},
                             .ndim = {3},
                             .build = build_softmax,
                             .options = &variant};

            check_model(&m);
        }
    }
}

static tri_tensor *build_row_norm(tri_tensor *const *l, const void *options)
{
    const tri_batch_norm_args args = {
        .weight = l[1], .bias = l[2], .training = true, .momentum = 0.1, .eps = 1e-5};
    tri_tensor *y = tri_batch_norm(l[0], &args);

    (void)options;
    return tri_relu(y);
}

static void normalisation_of_rows(void **state)
{
    (void)state;
    for (int64_t channels = 1; channels < 70; channels = channels * 2 + 1 + (channels == 7)) {
        for (int ndim = 2; ndim <= 3; ndim++) {
            const model m = {.name = ndim == 2 ? "batch_norm of rows" : "batch_norm of lines",
                             .n_leaves = 3,
                             .shape = {{37, channels, 9}, {channels}, {channels}},
                             .ndim = {ndim, 1, 1},
                             .build = build_row_norm};

            check_model(&m);
        }
    }
}

/* --- bf16 ------------------------------------------------------------------------------------- */

static void bf16_products(void **state)
{
    in_bf16 = true;
    products(state);
}

static void bf16_chains(void **state)
{
    (void)state;
    in_bf16 = true;
    check_chains();
}

static void bf16_chains_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    in_bf16 = true;
    check_chains();
}

static void bf16_chains_portable(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    in_bf16 = true;
    check_chains();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(losses),
        cmocka_unit_test(a_wrong_target_is_named),
        cmocka_unit_test(numbers_have_the_bits_of_the_reference),
        cmocka_unit_test(chains),
        cmocka_unit_test(chains_portable),
        cmocka_unit_test(chains_on_two_threads),
        cmocka_unit_test(softmax_of_rows),
        cmocka_unit_test(normalisation_of_rows),
        cmocka_unit_test(bf16_products),
        cmocka_unit_test(bf16_chains),
        cmocka_unit_test(bf16_chains_avx2),
        cmocka_unit_test(bf16_chains_portable),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
