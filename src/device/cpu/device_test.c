/*
 * device_test.c - what the device computes, against the reference kernels: whole steps forward and
 * backward, for each instruction set and several thread counts.
 *
 * f32 kernels add in another order than the reference, which adds in f64: differences up to
 * TOLERANCE of the largest element are accepted, Winograd 10 times that.
 *
 * The same models run in bf16, where reference and kernels round in different places: a ReLU or
 * maximum near a tie may go either way, so there the whole result is compared, by its norm.
 */
#include <math.h>

#include <trireme/ops.h>

#include "base/alloc.h"
#include "device/cpu/cpu_parallel.h"
#include "graph/step.h"
#include "testing/check.h"

#define TOLERANCE 2e-5
#define MAX_ELEMS 400000
#define MAX_LEAVES 8

#define TOLERANCE_BF16 0.02 /* a rounding is at most 0.004 */
/* Where a ReLU or a maximum decides otherwise for one element in 100, that is a tenth of the norm.
 */
#define TOLERANCE_BF16_TIES 0.3

static bool in_bf16;
static uint32_t random_state;

static float random_float(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)((int)(random_state >> 8) % 20001 - 10000) / 5000;
}

static tri_tensor *noise(const int64_t *shape, int ndim)
{
    int64_t n = 1;
    float *data;
    tri_tensor *tensor;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    data = malloc((size_t)n * sizeof(float) + 1);
    for (int64_t i = 0; i < n; i++)
        data[i] = random_float();
    tensor = tri_tensor_from(TRI_DTYPE_F32, shape, ndim, data);
    free(data);
    tri_requires_grad(tensor, true);
    return tensor;
}

/* A model: made from leaves (x first), returns the tensor whose weighted sum is differentiated. */
typedef struct model {
    const char *name;
    int n_leaves;
    int64_t shape[MAX_LEAVES][4];
    int ndim[MAX_LEAVES];
    tri_tensor *(*build)(tri_tensor *const *leaves, const void *options);
    const void *options;
    double tolerance; /* 0 = TOLERANCE */
    double tolerance_bf16;
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
    CHECK_OK(tri_copy_out(tensor, o->data[o->count], (size_t)n * sizeof(float)));
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

/* Value and gradients, twice: the second run finds weights in the layout of the first. */
static outcome run(const model *m)
{
    outcome o = {.count = 0};
    tri_tensor *leaves[MAX_LEAVES];

    random_state = 1;
    for (int i = 0; i < m->n_leaves; i++)
        leaves[i] = noise(m->shape[i], m->ndim[i]);
    for (int round = 0; round < 2; round++) {
        tri_tensor *y = tri_keep(apply(m, leaves)), *w;
        int64_t shape[4];

        for (int d = 0; d < tri_tensor_ndim(y); d++)
            shape[d] = tri_tensor_size(y, d);
        CHECK_OK(tri_tensor_status(y));
        w = noise(shape, tri_tensor_ndim(y));
        tri_requires_grad(w, false);
        tri_backward(tri_sum(tri_mul(y, w), NULL, 0, false));
        CHECK_OK(tri_run());
        if (round == 1) {
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

static void check_model(const model *m)
{
    outcome planned, eager;
    double tolerance = m->tolerance > 0 ? m->tolerance : TOLERANCE;

    trii_executor_set(NULL);
    planned = run(m);
    trii_executor_set(&trii_executor_reference);
    eager = run(m);
    trii_executor_set(NULL);
    assert_int_equal(planned.count, eager.count);
    for (int k = 0; k < planned.count; k++) {
        double largest = 0;

        assert_int_equal(planned.n[k], eager.n[k]);
        if (in_bf16)
            check_norm(m, k, planned.data[k], eager.data[k], planned.n[k]);
        for (int64_t i = 0; i < planned.n[k]; i++)
            largest = fmax(largest, fabs((double)eager.data[k][i]));
        for (int64_t i = 0; i < planned.n[k] && !in_bf16; i++) {
            double a = (double)planned.data[k][i], b = (double)eager.data[k][i];

            if (!(fabs(a - b) <= tolerance * (largest + 1e-3)))
                fail_msg("%s: result %d, element %lld of %lld: %.9g instead of %.9g (largest %g)",
                         m->name, k, (long long)i, (long long)planned.n[k], a, b, largest);
        }
        free(planned.data[k]);
        free(eager.data[k]);
    }
}

/* --- convolution ------------------------------------------------------------------------------ */

static tri_tensor *build_conv(tri_tensor *const *l, const void *options)
{
    const tri_conv2d_options *opt = options;

    return tri_conv2d(l[0], l[1], opt->padding[0] % 2 == 1 ? NULL : l[2], opt);
}

static void check_conv(int64_t n, int64_t c, int64_t h, int64_t o, int64_t k, int stride, int pad,
                       int dilation, int groups)
{
    const tri_conv2d_options opt = {{stride, stride}, {pad, pad}, {dilation, dilation}, groups};
    char name[128];
    model m = {.name = name,
               .n_leaves = 3,
               .shape = {{n, c, h, h + 1}, {o, c / groups, k, k}, {o}},
               .ndim = {4, 4, 1},
               .build = build_conv,
               .options = &opt,
               .tolerance = 20 * TOLERANCE};

    snprintf(name, sizeof(name),
             "conv %lldx%lldx%lld -> %lld, kernel %lld stride %d pad %d "
             "dilation %d groups %d",
             (long long)n, (long long)c, (long long)h, (long long)o, (long long)k, stride, pad,
             dilation, groups);
    check_model(&m);
}

static void check_convs(void)
{
    check_conv(2, 1, 9, 16, 3, 1, 1, 1, 1);
    check_conv(2, 3, 12, 16, 7, 2, 3, 1, 1);
    check_conv(2, 16, 8, 32, 3, 1, 1, 1, 1);
    check_conv(1, 32, 7, 16, 3, 2, 1, 1, 1);
    check_conv(2, 16, 6, 48, 1, 1, 0, 1, 1);
    check_conv(2, 16, 7, 32, 1, 2, 0, 1, 1);
    check_conv(2, 5, 6, 7, 3, 1, 0, 1, 1);   /* no blocks fit */
    check_conv(2, 16, 6, 10, 3, 1, 2, 2, 1); /* one side only; rows that no window reaches */
    check_conv(1, 32, 6, 32, 3, 1, 1, 1, 2);
    check_conv(1, 16, 6, 16, 3, 1, 1, 1, 16);
    check_conv(1, 64, 10, 64, 3, 1, 1, 1, 1); /* Winograd on AVX-512 */
    check_conv(3, 64, 1, 16, 1, 1, 0, 1, 1);
}

static void convolutions(void **state)
{
    (void)state;
    check_convs();
}

static void convolutions_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    check_convs();
}

static void convolutions_portable(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    check_convs();
}

static void convolutions_on_two_threads(void **state)
{
    (void)state;
    trii_parallel_set_threads(2);
    check_convs();
}

/* --- normalisation ---------------------------------------------------------------------------- */

typedef struct norm_options {
    bool residual, relu, conv, eval;
} norm_options;

/* leaves: x, weight, bias, running mean, running var, residual, conv weight */
static tri_tensor *build_norm(tri_tensor *const *l, const void *options)
{
    const norm_options *opt = options;
    const tri_batch_norm_args args = {.weight = l[1],
                                      .bias = l[2],
                                      .running_mean = l[3],
                                      .running_var = l[4],
                                      .training = !opt->eval,
                                      .momentum = 0.1,
                                      .eps = 1e-5};
    const tri_conv2d_options same = {.padding = {1, 1}};
    tri_tensor *x = opt->conv ? tri_conv2d(l[0], l[6], NULL, &same) : l[0], *y;

    tri_requires_grad(l[3], false);
    tri_requires_grad(l[4], false);
    if (opt->eval)
        x = tri_batch_norm(tri_square(x), &args); /* a positive variance is not needed: eps */
    else
        x = tri_batch_norm(x, &args);
    y = opt->residual ? tri_add(x, l[5]) : x;
    if (opt->relu)
        y = tri_relu(y);
    return opt->conv && !opt->eval ? tri_conv2d(y, l[6], NULL, &same) : y;
}

static void check_norms(void)
{
    for (int variant = 0; variant < 16; variant++) {
        const norm_options opt = {
            .residual = variant & 1, .relu = variant & 2, .conv = variant & 4, .eval = variant & 8};

        for (int channels = 5; channels <= 32; channels += 11) {
            char name[64];
            model m = {.name = name,
                       .n_leaves = 7,
                       .shape = {{3, channels, 7, 5},
                                 {channels},
                                 {channels},
                                 {channels},
                                 {channels},
                                 {3, channels, 7, 5},
                                 {channels, channels, 3, 3}},
                       .ndim = {4, 1, 1, 1, 1, 4, 4},
                       .build = build_norm,
                       .options = &opt,
                       .tolerance = 20 * TOLERANCE,
                       .tolerance_bf16 = opt.relu ? TOLERANCE_BF16_TIES : 0};

            if (opt.eval)
                continue; /* a negative running variance is no input: its own case below */
            snprintf(name, sizeof(name), "norm variant %d, %d channels", variant, channels);
            check_model(&m);
        }
    }
}

static void normalisation(void **state)
{
    (void)state;
    check_norms();
}

static void normalisation_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    check_norms();
}

static void normalisation_portable(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    check_norms();
}

static void normalisation_on_two_threads(void **state)
{
    (void)state;
    trii_parallel_set_threads(2);
    check_norms();
}

static tri_tensor *build_eval(tri_tensor *const *l, const void *options)
{
    const tri_batch_norm_args args = {
        .weight = l[1], .bias = l[2], .running_mean = l[3], .running_var = l[4], .eps = 5};
    tri_tensor *y = tri_batch_norm(l[0], &args);

    (void)options;
    for (int i = 0; i < 5; i++)
        tri_requires_grad(l[i], i < 3);
    return tri_relu(y);
}

static void evaluation(void **state)
{
    const model m = {.name = "batch_norm_eval",
                     .n_leaves = 5,
                     .shape = {{3, 16, 7, 5}, {16}, {16}, {16}, {16}},
                     .ndim = {4, 1, 1, 1, 1},
                     .build = build_eval};

    (void)state;
    check_model(&m);
}

/* --- pooling -----------------------------------------------------------------------------------
 */

typedef struct pool_options {
    int kind, kernel, stride, pad;
    bool ceil_mode, exclude, conv;
} pool_options;

static tri_tensor *build_pool(tri_tensor *const *l, const void *options)
{
    const pool_options *o = options;
    const tri_pool2d_options opt = {
        {o->stride, o->stride}, {o->pad, o->pad}, o->ceil_mode, o->exclude};
    tri_tensor *x = o->conv ? tri_relu(tri_conv2d(l[0], l[1], NULL, NULL)) : l[0], *y;

    switch (o->kind) {
    case 0:
        y = tri_max_pool2d(x, o->kernel, o->kernel, &opt);
        break;
    case 1:
        y = tri_avg_pool2d(x, o->kernel, o->kernel, &opt);
        break;
    case 2:
        y = tri_adaptive_avg_pool2d(x, o->kernel, o->kernel);
        break;
    default:
        y = tri_adaptive_max_pool2d(x, o->kernel, o->kernel);
        break;
    }
    return o->conv ? tri_flatten(y, 1) : y;
}

static void check_pools(void)
{
    static const pool_options all[] = {
        {0, 2, 2, 0, false, false, false}, {0, 3, 2, 1, false, false, false},
        {0, 3, 2, 1, true, false, false},  {1, 2, 2, 0, false, false, false},
        {1, 3, 2, 1, false, true, false},  {1, 3, 2, 1, true, false, false},
        {2, 1, 0, 0, false, false, false}, {2, 4, 0, 0, false, false, false},
        {2, 3, 0, 0, false, false, false}, {3, 1, 0, 0, false, false, false},
        {3, 2, 0, 0, false, false, false}};

    for (size_t i = 0; i < TRII_COUNT_OF(all); i++) {
        for (int conv = 0; conv < 2; conv++) {
            pool_options opt = all[i];
            char name[64];
            model m = {.name = name,
                       .n_leaves = 2,
                       .shape = {{2, 16, 8, 12}, {32, 16, 1, 1}},
                       .ndim = {4, 4},
                       .build = build_pool,
                       .options = &opt,
                       .tolerance_bf16 = conv != 0 ? TOLERANCE_BF16_TIES : 0};

            opt.conv = conv != 0;
            snprintf(name, sizeof(name), "pool %zu, blocked %d", i, conv);
            check_model(&m);
        }
    }
}

static void pooling(void **state)
{
    (void)state;
    check_pools();
}

static void pooling_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    check_pools();
}

static void pooling_on_two_threads(void **state)
{
    (void)state;
    trii_parallel_set_threads(2);
    check_pools();
}

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
    for (size_t i = 0; i < TRII_COUNT_OF(sizes); i++) {
        int64_t n = sizes[i][0], a = sizes[i][1], b = sizes[i][2];
        const model mlp = {.name = "mlp",
                           .n_leaves = 4,
                           .shape = {{n, a}, {b, a}, {b}, {a, b}},
                           .ndim = {2, 2, 1, 2},
                           .build = build_mlp,
                           .tolerance_bf16 = TOLERANCE_BF16_TIES,
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

static void check_chains(void)
{
    const model m = {.name = "chain",
                     .n_leaves = 4,
                     .shape = {{4, 6, 30, 41}, {41}, {6, 1, 1}, {1}},
                     .ndim = {4, 1, 3, 1},
                     .build = build_chain,
                     .tolerance_bf16 = 0.05,
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

/* leaves: x, weights of two convolutions, weight and bias of the normalisation, of the end */
static tri_tensor *build_small_network(tri_tensor *const *l, const void *options)
{
    const tri_batch_norm_args args = {
        .weight = l[3], .bias = l[4], .training = true, .momentum = 0.1, .eps = 1e-5};
    const tri_conv2d_options same = {.padding = {1, 1}};
    tri_tensor *x = tri_relu(tri_batch_norm(tri_conv2d(l[0], l[1], NULL, &same), &args));

    (void)options;
    x = tri_add(x, tri_relu(tri_batch_norm(tri_conv2d(x, l[2], NULL, &same), &args)));
    x = tri_flatten(tri_adaptive_max_pool2d(tri_max_pool2d(x, 2, 2, NULL), 1, 1), 1);
    return tri_linear(x, l[5], l[6]);
}

/* Many windows over each pixel: their gradients must not be rounded one by one. */
static void check_overlapping_windows(void)
{
    static const pool_options many = {1, 15, 1, 0, false, false, false};
    const model m = {.name = "overlapping windows",
                     .n_leaves = 2,
                     .shape = {{1, 16, 29, 29}, {32, 16, 1, 1}},
                     .ndim = {4, 4},
                     .build = build_pool,
                     .options = &many,
                     .tolerance_bf16 = 0.004};

    check_model(&m);
}

static void check_all_in_bf16(void)
{
    const model network = {
        .name = "network",
        .n_leaves = 7,
        .shape = {{4, 3, 12, 14}, {32, 3, 3, 3}, {32, 32, 3, 3}, {32}, {32}, {10, 32}, {10}},
        .ndim = {4, 4, 4, 1, 1, 2, 1},
        .build = build_small_network,
        .tolerance_bf16 = TOLERANCE_BF16_TIES};

    in_bf16 = true;
    check_convs();
    check_norms();
    check_pools();
    check_overlapping_windows();
    check_chains();
    check_model(&network);
}

static void bf16(void **state)
{
    (void)state;
    check_all_in_bf16();
}

static void bf16_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    check_all_in_bf16();
}

static void bf16_portable(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    check_all_in_bf16();
}

static void bf16_on_two_threads(void **state)
{
    (void)state;
    trii_parallel_set_threads(2);
    check_all_in_bf16();
}

static void bf16_products(void **state)
{
    in_bf16 = true;
    products(state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(convolutions_avx2),
        cmocka_unit_test(convolutions_portable),
        cmocka_unit_test(convolutions_on_two_threads),
        cmocka_unit_test(normalisation),
        cmocka_unit_test(normalisation_avx2),
        cmocka_unit_test(normalisation_portable),
        cmocka_unit_test(normalisation_on_two_threads),
        cmocka_unit_test(evaluation),
        cmocka_unit_test(pooling),
        cmocka_unit_test(pooling_avx2),
        cmocka_unit_test(pooling_on_two_threads),
        cmocka_unit_test(products),
        cmocka_unit_test(losses),
        cmocka_unit_test(a_wrong_target_is_named),
        cmocka_unit_test(chains),
        cmocka_unit_test(chains_portable),
        cmocka_unit_test(chains_on_two_threads),
        cmocka_unit_test(softmax_of_rows),
        cmocka_unit_test(normalisation_of_rows),
        cmocka_unit_test(bf16),
        cmocka_unit_test(bf16_avx2),
        cmocka_unit_test(bf16_portable),
        cmocka_unit_test(bf16_on_two_threads),
        cmocka_unit_test(bf16_products),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
