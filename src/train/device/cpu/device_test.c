/*
 * device_test.c - what the device computes of images, against the reference kernels: whole steps
 * forward and backward, for each instruction set and several thread counts, in f32 and bf16.
 */
#include "train/device/cpu/cpu_parallel.h"
#include "testing/device_models.h"
#include "testing/lone_exchange.h"

/* --- convolution ---------------------------------------------------------- */

static tri_tensor *build_conv(tri_tensor *const *l, const void *options)
{
    const tri_conv_options *opt = options;

    return tri_conv(l[0], l[1], opt->padding[0] % 2 == 1 ? NULL : l[2], opt);
}

static void check_conv(int64_t n, int64_t c, int64_t h, int64_t o, int64_t k, int stride, int pad,
                       int dilation, int groups)
{
    const tri_conv_options opt = {.stride = {stride, stride},
                                  .padding = {pad, pad},
                                  .dilation = {dilation, dilation},
                                  .groups = groups};
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
    check_conv(2, 64, 10, 64, 3, 1, 1, 1, 1); /* Winograd on AVX-512 */
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

/* --- normalisation -------------------------------------------------------- */

typedef struct norm_options {
    bool residual, relu, conv, eval, pooled;
    bool wide;   /* the windows of the convolutions */
    bool shared; /* in the parts between which ranks exchange statistics */
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
                                      .momentum = TRI_SET(0.1),
                                      .eps = TRI_SET(1e-5)};
    const tri_conv_options same = {.padding = {opt->wide ? 1 : 0, opt->wide ? 1 : 0}};
    tri_tensor *x = opt->conv ? tri_conv(l[0], l[6], NULL, &same) : l[0], *y;

    tri_requires_grad(l[3], false);
    tri_requires_grad(l[4], false);
    x = opt->shared ? trii_batch_norm_shared(x, &args, &lone_exchange) : tri_batch_norm(x, &args);
    y = opt->residual ? tri_add(x, l[5]) : x;
    if (opt->relu)
        y = tri_relu(y);
    if (opt->pooled) /* its gradient is a kernel of its own, and the ReLU's joins the norm's */
        return tri_flatten(tri_adaptive_avg_pool(y, TRI_SHAPE(1, 1)), 1);
    return opt->conv ? tri_conv(y, l[6], NULL, &same) : y;
}

static void check_norms_by(void (*check)(const model *m), bool conv)
{
    for (int variant = 0; variant < 64; variant++) {
        for (int channels = 5; channels <= 32; channels += 11) {
            const norm_options opt = {.residual = variant & 1,
                                      .relu = variant & 2,
                                      .conv = variant & 4,
                                      .eval = variant & 8,
                                      .pooled = variant & 16,
                                      .wide = channels == 16,
                                      .shared = variant & 32};
            const int window = opt.wide ? 3 : 1;
            char name[64];
            model m = {.name = name,
                       .n_leaves = 7,
                       .shape = {{3, channels, 7, 5},
                                 {channels},
                                 {channels},
                                 {channels},
                                 {channels},
                                 {3, channels, 7, 5},
                                 {channels, channels, window, window}},
                       .ndim = {4, 1, 1, 1, 1, 4, 4},
                       .kind = {[4] = LEAF_POSITIVE, [5] = LEAF_FAR},
                       .dropped = opt.pooled,
                       .build = build_norm,
                       .options = &opt,
                       .tolerance = 20 * TOLERANCE,
                       .tolerance_bf16 = opt.conv ? TOLERANCE_BF16_MODEL : 0};

            snprintf(name, sizeof(name), "norm variant %d, %d channels", variant, channels);
            if ((conv || !opt.conv) && (channels == 16 || !opt.pooled) && !(opt.eval && opt.shared))
                check(&m);
        }
    }
}

static void check_norms(void)
{
    check_norms_by(check_model, true);
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

/* --- pooling -------------------------------------------------------------- */

typedef struct pool_options {
    int kind, kernel, stride, pad;
    bool ceil_mode, exclude, conv;
} pool_options;

static tri_tensor *build_pool(tri_tensor *const *l, const void *options)
{
    const pool_options *o = options;
    const tri_pool_options opt = {.kernel = {o->kernel, o->kernel},
                                  .stride = {o->stride, o->stride},
                                  .padding = {o->pad, o->pad},
                                  .ceil_mode = o->ceil_mode,
                                  .exclude_padding = o->exclude};
    tri_tensor *x = o->conv ? tri_relu(tri_conv(l[0], l[1], NULL, NULL)) : l[0], *y;

    switch (o->kind) {
    case 0:
        y = tri_max_pool(x, &opt);
        break;
    case 1:
        y = tri_avg_pool(x, &opt);
        break;
    case 2:
        y = tri_adaptive_avg_pool(x, TRI_SHAPE(o->kernel, o->kernel));
        break;
    default:
        y = tri_adaptive_max_pool(x, TRI_SHAPE(o->kernel, o->kernel));
        break;
    }
    return o->conv ? tri_flatten(y, 1) : y;
}

static void check_pools_by(void (*check)(const model *m), int orders)
{
    static const pool_options all[] = {
        {0, 2, 2, 0, false, false, false}, {0, 3, 2, 1, false, false, false},
        {0, 3, 2, 1, true, false, false},  {1, 2, 2, 0, false, false, false},
        {1, 3, 2, 1, false, true, false},  {1, 3, 2, 1, true, false, false},
        {2, 1, 0, 0, false, false, false}, {2, 4, 0, 0, false, false, false},
        {2, 3, 0, 0, false, false, false}, {3, 1, 0, 0, false, false, false},
        {3, 2, 0, 0, false, false, false}, {0, 3, 1, 1, false, false, false},
        {0, 2, 3, 0, false, false, false}, {1, 1, 3, 0, false, false, false},
        {2, 5, 0, 0, false, false, false}, {3, 5, 0, 0, false, false, false},
        {2, 9, 0, 0, false, false, false}};

    for (size_t i = 0; i < TRII_COUNT_OF(all); i++) {
        for (int conv = 0; conv < orders; conv++) {
            pool_options opt = all[i];
            char name[64];
            model m = {.name = name,
                       .n_leaves = 2,
                       .shape = {{2, 16, 8, 12}, {32, 16, 1, 1}},
                       .ndim = {4, 4},
                       .build = build_pool,
                       .options = &opt,
                       .tolerance_bf16 = conv != 0 ? TOLERANCE_BF16_MODEL : 0};

            opt.conv = conv != 0;
            snprintf(name, sizeof(name), "pool %zu, blocked %d", i, conv);
            check(&m);
        }
    }
}

static void check_pools(void)
{
    check_pools_by(check_model, 2);
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

/* --- bf16 ----------------------------------------------------------------- */

/* leaves: x, weights of two convolutions, weight and bias of the normalisation, of the end */
static tri_tensor *build_small_network(tri_tensor *const *l, const void *options)
{
    const tri_batch_norm_args args = {.weight = l[3],
                                      .bias = l[4],
                                      .training = true,
                                      .momentum = TRI_SET(0.1),
                                      .eps = TRI_SET(1e-5)};
    const tri_conv_options same = {.padding = {1, 1}};
    tri_tensor *x = tri_relu(tri_batch_norm(tri_conv(l[0], l[1], NULL, &same), &args));

    (void)options;
    x = tri_add(x, tri_relu(tri_batch_norm(tri_conv(x, l[2], NULL, &same), &args)));
    x = tri_flatten(tri_adaptive_max_pool(tri_max_pool(x, &(tri_pool_options){.kernel = {2, 2}}),
                                          TRI_SHAPE(1, 1)),
                    1);
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
        .tolerance_bf16 = TOLERANCE_BF16_MODEL};

    in_bf16 = true;
    check_convs();
    check_norms();
    check_pools();
    check_overlapping_windows();
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

/* --- threads (without convolutions, whose sums may vary with them) -------- */

/* The plan's results have the same bits on one thread and on more than there is work for. */
static void check_threads(const model *m)
{
    outcome alone, several;

    trii_parallel_set_threads(1);
    trii_step_release(); /* plans of another number of threads */
    alone = run(m, false);
    for (int threads = 2; threads <= 8; threads += threads == 2 ? 1 : 5) {
        trii_parallel_set_threads(threads);
        trii_step_release();
        several = run(m, false);
        for (int k = 0; k < alone.count; k++) {
            if (memcmp(alone.data[k], several.data[k], (size_t)alone.n[k] * sizeof(float)) != 0)
                fail_msg("%s: result %d has other bits on %d threads", m->name, k, threads);
            free(several.data[k]);
        }
    }
    for (int k = 0; k < alone.count; k++)
        free(alone.data[k]);
}

static void any_threads_give_the_same_bits(void **state)
{
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) {
        in_bf16 = narrow != 0;
        check_norms_by(check_threads, false);
        check_pools_by(check_threads, 1);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(convolutions_avx2),
        cmocka_unit_test(convolutions_portable),
        cmocka_unit_test(normalisation),
        cmocka_unit_test(normalisation_avx2),
        cmocka_unit_test(normalisation_portable),
        cmocka_unit_test(pooling),
        cmocka_unit_test(pooling_avx2),
        cmocka_unit_test(bf16),
        cmocka_unit_test(bf16_avx2),
        cmocka_unit_test(bf16_portable),
        cmocka_unit_test(any_threads_give_the_same_bits),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
