/*
 * number_bits_test.c - sums, losses and updates have the same bits for every instruction set and
 * number of threads. This program runs itself, with settings from the environment, and compares
 * what it prints.
 * ctest: tsan=no
 */
#include <math.h>

#include <trireme/ops.h>
#include <trireme/optim.h>

#include "testing/check.h"
#include "testing/spawn.h"

#define PRINT "--print"

/* --- what the child prints ------------------------------------------------ */

static void print_result(tri_tensor *y)
{
    static uint32_t bits[4096];
    int64_t n = tri_tensor_numel(y);

    if (n > 4096 || tri_tensor_copy_out(y, bits, (size_t)n * sizeof(bits[0])) != TRI_OK)
        printf("failed: %s", tri_last_error());
    for (int64_t i = 0; i < n; i++)
        printf("%08x\n", bits[i]);
}

static float *random_floats(int64_t n)
{
    float *x = malloc((size_t)n * sizeof(*x));
    uint32_t state = 11;

    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = ((float)(state >> 8) / 8388608.0f - 1) * 0.98351276f;
    }
    return x;
}

/* Large numbers that cancel: what is left depends on the order of every addition. */
static void order_of_sums(void)
{
    static const int64_t sizes[][3] = {{500003, 1, 1}, {5003, 12, 1}, {3001, 2, 67}, {101, 5, 401}};

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        int64_t rows = sizes[s][0], cols = sizes[s][1], inner = sizes[s][2], row = cols * inner;
        float *x = random_floats(rows * row);
        tri_tensor *t;

        for (int64_t i = 0; i < rows * row; i++)
            x[i] = ldexpf(x[i], (int)(i * 7919 % 60));
        for (int64_t i = 0; i < rows / 2; i++) {
            for (int64_t j = 0; j < row; j++)
                x[(rows - 1 - i) * row + j] = -x[i * row + j];
        }
        t = tri_tensor_from(sizes[s], 3, TRI_DTYPE_F32, x);
        print_result(tri_keep(tri_sum(t, TRI_SHAPE(0, 2), false)));
        print_result(tri_keep(tri_sum(t, TRI_SHAPE(0), false)));
        print_result(tri_keep(tri_sum(tri_sum(t, TRI_SHAPE(0, 1), true), NULL, 0, false)));
        print_result(tri_keep(tri_mean(t, NULL, 0, false)));
        tri_step_end();
        tri_tensor_unref(t);
        free(x);
    }
}

static void losses_of(int64_t rows, int64_t classes, double smoothing)
{
    const tri_cross_entropy_options opt = {.label_smoothing = smoothing};
    float *x = random_floats(2 * rows * classes);
    int64_t *target = malloc((size_t)rows * sizeof(*target)), shape[2] = {rows, classes};
    tri_tensor *a, *b, *t, *loss;

    for (int64_t i = 0; i < rows; i++)
        target[i] = i * 7 % classes;
    a = tri_tensor_from(shape, 2, TRI_DTYPE_F32, x);
    b = tri_tensor_from(shape, 2, TRI_DTYPE_F32, x + rows * classes);
    t = tri_tensor_from(&rows, 1, TRI_DTYPE_I64, target);
    tri_requires_grad(a, true);
    loss = tri_keep(tri_cross_entropy(a, t, &opt));
    tri_backward(loss);
    if (tri_run() != TRI_OK)
        printf("failed: %s", tri_last_error());
    print_result(loss);
    print_result(tri_keep(tri_sum(tri_square(tri_grad(a)), TRI_SHAPE(0), false)));
    print_result(tri_keep(tri_mse_loss(a, b, NULL)));
    print_result(tri_keep(tri_cast(tri_count_correct(a, t), TRI_DTYPE_F32)));
    print_result(tri_keep(tri_sum(tri_softmax(a, 1), TRI_SHAPE(0), false)));
    tri_step_end();
    tri_tensor_unref(a);
    tri_tensor_unref(b);
    tri_tensor_unref(t);
    free(target);
    free(x);
}

/* Updates by gradients that are the same everywhere, clipped by their norm. */
static void updates_of(tri_optimizer *(*make)(const tri_param_group *group), tri_dtype dtype)
{
    static const int64_t sizes[] = {1, 0, 5003, 300007, 4096, 17};
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    tri_tensor *params[N], *factors[N], *norm;
    tri_optimizer *opt;

    for (int i = 0; i < N; i++) {
        float *x = random_floats(2 * sizes[i] + 1);

        params[i] = tri_tensor_create(&sizes[i], 1, dtype);
        for (int64_t k = 0; k < sizes[i]; k++)
            x[k] = ldexpf(x[k], (int)(k * 7919 % 30) - 20);
        factors[i] = tri_tensor_from(&sizes[i], 1, TRI_DTYPE_F32, x);
        tri_requires_grad(params[i], true);
        free(x);
    }
    opt = make(&(tri_param_group){.params = params, .n_params = N});
    for (int step = 0; step < 3; step++) {
        tri_tensor *loss = NULL;

        for (int i = 0; i < N; i++) {
            tri_tensor *term =
                tri_sum(tri_mul(params[i], tri_cast(factors[i], dtype)), NULL, 0, false);

            loss = loss != NULL ? tri_add(loss, term) : term;
        }
        tri_backward(loss);
        norm = tri_clip_grad_norm(opt, 10);
        if (tri_optimizer_step(opt) != TRI_OK)
            printf("failed: %s", tri_last_error());
        printf("%.17g\n", tri_item(norm));
        tri_step_end();
    }
    for (int i = 0; i < N; i++) {
        int64_t n = sizes[i] < 4096 ? sizes[i] : 4096, rest = sizes[i] / (n > 0 ? n : 1);
        tri_tensor *all = tri_cast(params[i], TRI_DTYPE_F32);

        print_result(tri_keep(tri_sum(all, NULL, 0, false)));
        if (n * rest == sizes[i])
            print_result(tri_keep(all));
        tri_step_end();
        tri_tensor_unref(params[i]);
        tri_tensor_unref(factors[i]);
    }
    tri_optimizer_destroy(opt);
}

static tri_optimizer *make_adamw(const tri_param_group *group)
{
    return tri_adamw_of(group, 1, 0.1, &(tri_adam_options){.amsgrad = true});
}

static tri_optimizer *make_rmsprop(const tri_param_group *group)
{
    return tri_rmsprop_of(group, 1, 0.1, &(tri_rmsprop_options){.centered = true});
}

static tri_optimizer *make_adagrad(const tri_param_group *group)
{
    return tri_adagrad_of(group, 1, 0.1, &(tri_adagrad_options){.weight_decay = 0.1});
}

static tri_optimizer *make_sgd(const tri_param_group *group)
{
    return tri_sgd_of(group, 1, 0.1, &(tri_sgd_options){.momentum = 0.9, .nesterov = true});
}

static int print_all(void)
{
    updates_of(make_adamw, TRI_DTYPE_F32);
    updates_of(make_adamw, TRI_DTYPE_F64);
    updates_of(make_rmsprop, TRI_DTYPE_F32);
    updates_of(make_adagrad, TRI_DTYPE_F32);
    updates_of(make_sgd, TRI_DTYPE_F32);
    order_of_sums();
    losses_of(1, 2, 0);
    losses_of(9973, 10, 0);
    losses_of(67, 1009, 0.1);
    return 0;
}

/* --- the test ------------------------------------------------------------- */

static void start(spawn *s, const char *isa, const char *threads)
{
    const char *argv[] = {"/proc/self/exe", PRINT, NULL};
    char isa_is[64], threads_are[64];
    const char *env[] = {isa_is, threads_are, NULL};

    snprintf(isa_is, sizeof(isa_is), "TRI_ISA=%s", isa);
    snprintf(threads_are, sizeof(threads_are), "TRI_NUM_THREADS=%s", threads);
    spawn_start(s, argv, env);
    assert_int_equal(spawn_wait(s), 0);
    assert_null(strstr(SPAWN_OUT(s), "failed"));
}

static void sums_losses_and_updates_have_the_same_bits_everywhere(void **state)
{
    static const char *const isa[] = {"portable", "avx2", "avx512"};
    static const char *const threads[] = {"1", "2", "3", "8"};
    spawn first;

    (void)state; /* under tsan, which is slow and looks for races, only what is most apart */
    start(&first, "portable", "1");
    assert_true(strlen(SPAWN_OUT(&first)) > 9000);
    for (size_t i = 0; i < sizeof(isa) / sizeof(isa[0]); i++) {
        for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++) {
            size_t same = 0;
            spawn s;

            if (TEST_SANITIZED && (i == 1 || t % 2 == 0))
                continue;
            start(&s, isa[i], threads[t]);
            while (SPAWN_OUT(&s)[same] != 0 && SPAWN_OUT(&s)[same] == SPAWN_OUT(&first)[same])
                same++;
            if (strcmp(SPAWN_OUT(&s), SPAWN_OUT(&first)) != 0)
                fail_msg("result %zu with %s on %s threads: %.8s instead of %.8s", same / 9, isa[i],
                         threads[t], SPAWN_OUT(&s) + same / 9 * 9,
                         SPAWN_OUT(&first) + same / 9 * 9);
            spawn_free(&s);
        }
    }
    spawn_free(&first);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_losses_and_updates_have_the_same_bits_everywhere),
    };

    if (argc == 2 && strcmp(argv[1], PRINT) == 0)
        return print_all();
    return test_main(argc, argv, tests, 1);
}
