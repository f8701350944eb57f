/*
 * row_norm_test.c - layer and rms normalisation and their gradients against the reference kernels.
 */
#include "testing/device_models.h"

typedef struct norm_case {
    int n_dims;
    bool rms, no_weight, no_bias;
} norm_case;

static tri_tensor *build_norm(tri_tensor *const *l, const void *options)
{
    const norm_case *c = options;
    tri_tensor *w = c->no_weight ? NULL : l[1];

    return c->rms ? tri_rms_norm(l[0], c->n_dims, w, TRI_DEFAULT)
                  : tri_layer_norm(l[0], c->n_dims, w, c->no_bias ? NULL : l[2], 1e-5);
}

static model model_of(const norm_case *c, int64_t rows, int64_t n)
{
    model m = {.name = c->rms ? "rms_norm" : "layer_norm",
               .n_leaves = 3,
               .shape = {{rows, n}, {n}, {n}},
               .ndim = {2, 1, 1},
               .build = build_norm,
               .options = c,
               .tolerance_bf16 = TOLERANCE_BF16_MODEL,
               .tolerance = 5 * TOLERANCE};

    if (c->n_dims == 2) { /* [rows, 2, n / 2] */
        for (int i = 0; i < 3; i++) {
            int64_t *shape = m.shape[i] + m.ndim[i]++ - 1;

            shape[0] = 2;
            shape[1] = n / 2;
        }
    }
    return m;
}

static const norm_case cases[] = {
    {.n_dims = 1},
    {.n_dims = 2},
    {.n_dims = 1, .no_bias = true},
    {.n_dims = 1, .no_weight = true},
    {.n_dims = 1, .no_weight = true, .no_bias = true},
    {.n_dims = 1, .rms = true},
    {.n_dims = 2, .rms = true},
    {.n_dims = 1, .rms = true, .no_weight = true},
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static void rows_of_every_length(void **state)
{
    static const int64_t sizes[][2] = {{1, 4}, {3, 16}, {130, 34}, {7, 2050}, {2, 4098}, {1000, 6}};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t k = 0; k < N_CASES; k++) {
            const model m = model_of(&cases[k], sizes[i][0], sizes[i][1]);

            check_model(&m);
        }
    }
}

static void bf16_rows_are_computed_in_f32(void **state)
{
    static const int64_t sizes[][2] = {{3, 16}, {130, 34}, {2, 4096}, {2, 4098}};

    (void)state;
    in_bf16 = true;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const model layer = model_of(&cases[0], sizes[i][0], sizes[i][1]);
        const model rms = model_of(&cases[5], sizes[i][0], sizes[i][1]);

        check_model(&layer);
        check_model(&rms);
    }
    in_bf16 = false;
}

static void a_far_mean_costs_no_digits(void **state)
{
    enum { N = 5000 };
    static float x[N], y[N];
    tri_tensor *t;
    double sum = 0, squares = 0;

    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = 4096 + (float)(i % 2);
    t = tri_tensor_from(TRI_SHAPE(1, N), TRI_DTYPE_F32, x);
    CHECK_OK(tri_tensor_copy_out(tri_keep(tri_layer_norm(t, 1, NULL, NULL, 1e-5)), y, sizeof(y)));
    for (int i = 0; i < N; i++) {
        sum += (double)y[i];
        squares += (double)y[i] * (double)y[i];
    }
    CHECK_NEAR(sum / N, 0, 1e-6);
    CHECK_NEAR(squares / N, 1, 1e-4);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(t);
}

static void every_number_of_threads_has_the_same_bits(void **state)
{
    const model m = model_of(&cases[0], 333, 386);

    (void)state;
    check_bits_of_threads(&m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_of_every_length),
    cmocka_unit_test(bf16_rows_are_computed_in_f32),
    cmocka_unit_test(a_far_mean_costs_no_digits),
    cmocka_unit_test(every_number_of_threads_has_the_same_bits),
};

TEST_MAIN(tests)
