/*
 * device_rows_test.c - what the device computes of rows, against the reference kernels: products,
 * losses, chains of element-wise operations, softmax and normalisation.
 */
#include "base/dtype.h"
#include "train/device/cpu/cpu_parallel.h"
#include "testing/device_models.h"
#include "testing/lone_exchange.h"

/* --- products and losses -------------------------------------------------- */

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

static void check_products(size_t first, size_t end)
{
    /* around where products go to the library: a depth of 2048, 2^21 multiplications */
    static const int64_t sizes[][3] = {{20, 10, 5},     {1, 1, 1},       {7, 33, 19},
                                       {64, 70, 130},   {1, 2048, 3},    {2, 2049, 1},
                                       {1, 1, 2053},    {127, 129, 128}, {128, 128, 128},
                                       {131, 127, 127}, {300, 257, 40}};

    for (size_t i = first; i < end; i++) {
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

static void products(void **state)
{
    (void)state;
    check_products(0, 11);
}

static void products_on_several_threads(void **state)
{
    (void)state;
    threads_are_set = true;
    for (int threads = 3; threads <= 8; threads += 5) {
        trii_parallel_set_threads(threads);
        check_products(5, 8);
    }
}

static tri_tensor *target_of_losses;

static tri_tensor *build_loss(tri_tensor *const *l, const void *options)
{
    const tri_cross_entropy_options opt = {.label_smoothing = options != NULL ? 0.1 : 0};
    tri_tensor *loss = tri_cross_entropy(l[0], target_of_losses, &opt);

    return tri_add(loss, tri_mse_loss(l[0], l[1], NULL));
}

static void losses(void **state)
{
    int64_t rows[4] = {1, 37, 64, 63}, classes[4] = {3, 10, 1200, 33};

    (void)state;
    for (int i = 0; i < 4; i++) {
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
            target_of_losses = tri_tensor_from(&rows[i], 1, TRI_DTYPE_I64, target);
            check_model(&m);
            tri_tensor_unref(target_of_losses);
        }
    }
}

static void a_wrong_target_is_named(void **state)
{
    const int64_t rows = 2, target[2] = {0, 3};
    tri_tensor *x = noise((int64_t[]){2, 3}, 2),
               *t = tri_tensor_from(&rows, 1, TRI_DTYPE_I64, target);
    float loss;

    (void)state;
    CHECK_FAILS(tri_tensor_copy_out(tri_keep(tri_cross_entropy(x, t, NULL)), &loss, sizeof(loss)),
                TRI_ERR_INVALID_ARG, "target 3 of row 1");
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(t);
}

/* --- element-wise chains with broadcasting -------------------------------- */

static tri_tensor *build_chain(tri_tensor *const *l, const void *options)
{
    tri_tensor *a = tri_add(l[0], l[1]);                                /* [.., 1, W] */
    tri_tensor *b = tri_mul(tri_tanh(a), tri_sigmoid(l[2]));            /* [C, 1, 1] */
    tri_tensor *c = tri_maximum(tri_exp(tri_mul_scalar(b, 0.5)), l[3]); /* a number */

    (void)options;
    c = tri_div(tri_sub(c, b), tri_add_scalar(tri_square(a), 1));
    return tri_add(tri_add(tri_gelu(c, TRI_GELU_ERF), tri_gelu(a, TRI_GELU_TANH)),
                   tri_silu(tri_neg(tri_abs(b))));
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
            CHECK_OK(tri_tensor_copy_out(y[i], got[eager] + i * n, (size_t)n * sizeof(float)));
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

/* Also where nothing but the chain reads it. */
static void a_cast_to_bf16_rounds(void **state)
{
    enum { N_ELEMENTS = 5003 };
    static float wide[N_ELEMENTS], got[2][N_ELEMENTS];
    const int64_t n = N_ELEMENTS;

    (void)state;
    for (int kept = 0; kept < 2; kept++) { /* the rounded value is a result, too */
        tri_tensor *x, *y;

        random_state = 1;
        x = noise(&n, 1);
        CHECK_OK(tri_tensor_copy_out(x, wide, sizeof(wide)));
        y = tri_cast(x, TRI_DTYPE_BF16);
        if (kept != 0)
            tri_keep(y);
        y = tri_keep(tri_neg(tri_cast(y, TRI_DTYPE_F32)));
        CHECK_OK(tri_tensor_copy_out(y, got[kept], sizeof(got[kept])));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
        for (int i = 0; i < N_ELEMENTS; i++)
            assert_true(got[kept][i] == -trii_bf16_to_f32(trii_f32_to_bf16(wide[i])));
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

/* One chain of [rows, cols] with operands that broadcast. In bf16 all in between stays f32: the
 * reference computes in f32 with operands that were rounded. */
static void run_chain(int64_t rows, int64_t cols, bool bf16, bool reference, float *result)
{
    tri_tensor *x[4], *in[4], *y;

    random_state = 5;
    x[0] = noise((int64_t[]){rows, cols}, 2);
    x[1] = noise(&cols, 1);
    x[2] = noise((int64_t[]){rows, 1}, 2);
    x[3] = noise(NULL, 0);
    for (int i = 0; i < 4; i++) {
        tri_requires_grad(x[i], false);
        in[i] = bf16 ? tri_cast(x[i], TRI_DTYPE_BF16) : x[i];
        in[i] = bf16 && reference ? tri_cast(in[i], TRI_DTYPE_F32) : in[i];
    }
    y = tri_leaky_relu(tri_add(tri_mul(in[0], in[1]), in[2]), 0.3);
    y = tri_sub(tri_maximum(tri_mul_scalar(y, 0.7), in[3]), in[0]);
    y = tri_keep(tri_cast(y, TRI_DTYPE_F32));
    CHECK_OK(tri_tensor_copy_out(y, result, (size_t)(rows * cols) * sizeof(float)));
    CHECK_OK(tri_step_end_status());
    for (int i = 0; i < 4; i++)
        tri_tensor_unref(x[i]);
}

/* Lengths around the blocks of a chain and of threads. */
static void check_lengths(bool bf16)
{
    static const int64_t shapes[][2] = {{1, 1},     {1, 1023},   {1, 1024},    {1025, 1},
                                        {9973, 1},  {1, 9973},   {4095, 1},    {1, 4096},
                                        {17, 241},  {3, 1024},   {5, 5003},    {1024, 32},
                                        {32769, 1}, {127, 1031}, {6, 1 << 16}, {1031, 1009}};

    for (size_t s = 0; s < TRII_COUNT_OF(shapes); s++) {
        int64_t n = shapes[s][0] * shapes[s][1];
        float *want = malloc((size_t)n * sizeof(*want)), *got = malloc((size_t)n * sizeof(*got));

        trii_executor_set(&trii_executor_reference);
        run_chain(shapes[s][0], shapes[s][1], bf16, true, want);
        trii_executor_set(NULL);
        for (int threads = 1; threads <= 8; threads += threads == 3 ? 5 : 1) {
            trii_parallel_set_threads(threads);
            run_chain(shapes[s][0], shapes[s][1], bf16, false, got);
            for (int64_t i = 0; i < n; i++) {
                if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
                    fail_msg("[%d, %d] on %d threads, element %d: %.9g instead of %.9g",
                             (int)shapes[s][0], (int)shapes[s][1], threads, (int)i, (double)got[i],
                             (double)want[i]);
            }
        }
        free(want);
        free(got);
    }
}

static void chains_of_every_length(void **state)
{
    (void)state;
    check_lengths(false);
}

static void bf16_chains_of_every_length(void **state)
{
    (void)state;
    check_lengths(true);
}

/* --- softmax, gradients of activations, normalisation of rows ------------- */

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
    const tri_batch_norm_args args = {.weight = l[1],
                                      .bias = l[2],
                                      .training = true,
                                      .momentum = TRI_SET(0.1),
                                      .eps = TRI_SET(1e-5)};
    tri_tensor *y = options != NULL ? trii_batch_norm_shared(l[0], &args, options)
                                    : tri_batch_norm(l[0], &args);

    return tri_relu(y);
}

static void normalisation_of_rows(void **state)
{
    (void)state;
    for (int64_t channels = 1; channels < 70; channels = channels * 2 + 1 + (channels == 7)) {
        for (int k = 0; k < 4; k++) {
            const int ndim = 2 + k / 2;
            const model m = {.name = ndim == 2 ? "batch_norm of rows" : "batch_norm of lines",
                             .n_leaves = 3,
                             .shape = {{37, channels, 9}, {channels}, {channels}},
                             .ndim = {ndim, 1, 1},
                             .build = build_row_norm,
                             .options = k % 2 == 1 ? &lone_exchange : NULL};

            check_model(&m);
        }
    }
}

/* --- bf16 ----------------------------------------------------------------- */

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
        cmocka_unit_test(products_on_several_threads),
        cmocka_unit_test(losses),
        cmocka_unit_test(a_wrong_target_is_named),
        cmocka_unit_test(numbers_have_the_bits_of_the_reference),
        cmocka_unit_test(a_cast_to_bf16_rounds),
        cmocka_unit_test(chains),
        cmocka_unit_test(chains_portable),
        cmocka_unit_test(chains_of_every_length),
        cmocka_unit_test(bf16_chains_of_every_length),
        cmocka_unit_test(softmax_of_rows),
        cmocka_unit_test(normalisation_of_rows),
        cmocka_unit_test(bf16_products),
        cmocka_unit_test(bf16_chains),
        cmocka_unit_test(bf16_chains_avx2),
        cmocka_unit_test(bf16_chains_portable),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
