/*
 * ddp_hooks_test.c - communication hooks under a model: those that round, PowerSGD and the
 * program's own, against training without one.
 */
/* ctest: also=TRI_CHECK=order */
#include <string.h>

#include "base/err.h"
#include "train/parallel/ddp/ddp.h"
#include "testing/ddp_ranks.h"

/* How a test trains. */
typedef struct plan {
    tri_bucket_hook hook;
    const tri_power_sgd_options *power;
    tri_dtype dtype;
    bool one_bucket;
    int micro; /* backward passes of a step, all synchronised unless no_sync; 0 = 1 */
    bool no_sync;
    bool skips; /* rank 1 leaves the last layer unused in steps 1 and 3 */
    bool each;  /* buckets end one by one */
} plan;

/* Whether all buckets were sent before the averages of any came. */
static bool ended_together(tri_module *model)
{
    trii_ddp *ddp = trii_ddp_of(model);

    for (int b = 0; b < ddp->unit.averager.n_buckets; b++)
        if (ddp->unit.buckets[b].ends == NULL)
            return false;
    return true;
}

/* The rows of one array as a tensor of the type. */
static tri_tensor *typed_rows(tri_dtype dtype, const double *data, int width, int first, int n)
{
    float narrow[ROWS * IN];

    if (dtype == TRI_DTYPE_F64)
        return rows_of(data, width, first, n);
    for (int i = 0; i < n * width; i++)
        narrow[i] = (float)data[first * width + i];
    return tri_tensor_from((int64_t[]){n, width}, 2, TRI_DTYPE_F32, narrow);
}

static tri_module *net_of(tri_dtype dtype)
{
    tri_module *net;

    if (dtype == TRI_DTYPE_F64)
        return mlp(1);
    trii_mutex_lock(&drawing);
    tri_manual_seed(1);
    net = tri_nn_sequential(tri_nn_linear(IN, 8, NULL), tri_nn_relu(), tri_nn_linear(8, 8, NULL),
                            tri_nn_relu(), tri_nn_linear(8, OUT, NULL));
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_status take_all(rank *r, tri_module *model)
{
    r->n_weights = 0;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_tensor *t = tri_module_state(model, i).tensor;
        int n = (int)tri_tensor_numel(t);
        float narrow[WEIGHTS];

        if (tri_tensor_dtype(t) == TRI_DTYPE_F64) {
            TRY(tri_tensor_copy_out(t, r->weights + r->n_weights, (size_t)n * sizeof(double)));
        } else {
            TRY(tri_tensor_copy_out(t, narrow, (size_t)n * sizeof(float)));
            for (int k = 0; k < n; k++)
                r->weights[r->n_weights + k] = (double)narrow[k];
        }
        r->n_weights += n;
    }
    return tri_module_hash(model, &r->hash);
}

/* Rows of micro-batch m of the rank: unequal parts. */
static void rows_for(const rank *r, int m, int micro, int *first, int *n)
{
    int from = ROWS * r->index * (r->index + 1) / (r->size * (r->size + 1));
    int to = ROWS * (r->index + 1) * (r->index + 2) / (r->size * (r->size + 1));

    *n = (to - from) / micro;
    *first = from + m * *n;
}

static tri_status train_step(rank *r, const plan *p, tri_module *model, tri_optimizer *opt,
                             int step)
{
    int micro = p->micro > 0 ? p->micro : 1;

    for (int m = 0; m < micro; m++) {
        bool local = p->no_sync && m < micro - 1;
        int first, n;
        tri_tensor *x, *y;

        rows_for(r, m, micro, &first, &n);
        x = typed_rows(p->dtype, x_data, IN, first, n);
        y = typed_rows(p->dtype, y_data, OUT, first, n);
        if (local)
            tri_ddp_no_sync_begin(model);
        if (p->skips && r->index == 1 && step % 2 == 1) { /* the first layer only */
            tri_tensor *out = tri_forward(model, x);

            (void)out;
            tri_backward(
                tri_mean(tri_forward(tri_module_submodule(model, "0"), x), NULL, 0, false));
        } else {
            tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        }
        if (local)
            tri_ddp_no_sync_end(model);
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    TRY(tri_optimizer_step(opt));
    return tri_step_end_status();
}

static tri_status train(rank *r)
{
    const plan *p = r->arg;
    tri_ddp_options options = {.group = r->group, .hook = p->hook};
    tri_power_sgd *power = NULL;
    tri_module *model;
    tri_optimizer *opt;

    if (!p->one_bucket) {
        options.bucket_cap_bytes = 200;
        options.first_bucket_bytes = 1;
    }
    if (p->power != NULL)
        TRY(tri_power_sgd_create(p->power, &power));
    options.hook_state = power;
    model = tri_ddp(net_of(p->dtype), &options);
    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int step = 0; step < STEPS; step++)
        TRY(train_step(r, p, model, opt, step));
    TRY(r->size > 1 ? tri_ddp_verify(model, true) : TRI_OK);
    if (p->hook != NULL && ended_together(model) == p->each)
        return TRII_FAIL(TRI_ERR_INTERNAL, "buckets %s", p->each ? "ended together" : "did not");
    TRY(take_all(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_power_sgd_destroy(power);
    return TRI_OK;
}

/* Largest difference of weights between the plans; all ranks of each have the same bits. */
static double distance(const plan *a, const plan *b, int size)
{
    static rank left[MAX_RANKS], right[MAX_RANKS];
    double most = 0;

    make_data();
    ranks_succeed(left, size, train, a);
    ranks_succeed(right, size, train, b);
    assert_true(left[0].n_weights > 100 && left[0].n_weights == right[0].n_weights);
    for (int i = 1; i < size; i++) {
        assert_true(left[i].hash == left[0].hash);
        assert_true(right[i].hash == right[0].hash);
    }
    for (int i = 0; i < left[0].n_weights; i++)
        most = fmax(most, fabs(left[0].weights[i] - right[0].weights[i]));
    return most;
}

/* --- hooks that round ----------------------------------------------------- */

static void hooks_of_16_bits_are_close_to_none(void **state)
{
    static const tri_dtype types[2] = {TRI_DTYPE_F64, TRI_DTYPE_F32};

    (void)state;
    for (int i = 0; i < 8; i++) {
        const plan none = {.dtype = types[i & 1],
                           .one_bucket = i & 2,
                           .micro = i == 6 ? 2 : 1,
                           .no_sync = i == 6,
                           .skips = i == 4};
        plan p = none;
        double f16, bf16;

        p.each = true;
        p.hook = tri_bucket_hook_f16;
        f16 = distance(&p, &none, i & 4 ? 3 : 2);
        p.hook = tri_bucket_hook_bf16;
        bf16 = distance(&p, &none, i & 4 ? 3 : 2);
        assert_true(f16 > 0.0 && f16 < 1e-3);
        assert_true(bf16 > 0.0 && bf16 < 1e-2);
    }
}

/* Convolutions whose weights lie in an order of their own from the second step on. */
static tri_status train_cnn(rank *r)
{
    const tri_nn_conv2d_options padded = {.padding = 1, .no_bias = true};
    const tri_bucket_hook *hook = r->arg;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, 16, 8, 8), TRI_DTYPE_F32);
    tri_module *model, *net;
    tri_optimizer *opt;

    trii_mutex_lock(&drawing);
    tri_manual_seed(2 + (uint64_t)r->index);
    TRY(tri_init_uniform(x, -1, 1));
    tri_manual_seed(1);
    net = tri_nn_sequential(tri_nn_conv2d(16, 16, 3, &padded), tri_nn_relu(),
                            tri_nn_conv2d(16, 16, 3, &padded), tri_nn_adaptive_avg_pool2d(1, 1));
    trii_mutex_unlock(&drawing);
    model = tri_ddp(
        net, &(tri_ddp_options){
                 .group = r->group, .first_bucket_bytes = 1, .bucket_cap_bytes = 1, .hook = *hook});
    opt = tri_sgd(model, 0.1, NULL);
    for (int step = 0; step < STEPS; step++) {
        tri_backward(tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_verify(model, true));
    for (int k = 0; k < 2; k++) {
        float weights[16 * 16 * 9];

        if (k == 1 && tri_module_state(model, k).tensor->layout == NULL)
            return TRII_FAIL(TRI_ERR_INTERNAL, "the weights lie in plain order");
        TRY(tri_tensor_copy_out(tri_module_state(model, k).tensor, weights, sizeof(weights)));
        for (int i = 0; i < WEIGHTS / 2; i++)
            r->weights[r->n_weights++] = (double)weights[i * 9];
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    return TRI_OK;
}

static void gradients_of_convolutions_are_rounded_as_they_lie(void **state)
{
    const tri_bucket_hook hooks[3] = {NULL, tri_bucket_hook_f16, tri_bucket_hook_bf16};
    static rank ranks[3][2];

    (void)state;
    for (int h = 0; h < 3; h++) {
        double most = 0;

        run_ranks(ranks[h], 2, train_cnn, &hooks[h]);
        check_ranks(ranks[h], 2);
        assert_int_equal(ranks[h][0].n_weights, WEIGHTS);
        for (int i = 0; i < WEIGHTS; i++)
            most = fmax(most, fabs(ranks[h][0].weights[i] - ranks[0][0].weights[i]));
        assert_true(h == 0 ? most == 0.0 : most > 0.0 && most < 1e-4);
    }
}

/* --- one of the program's ------------------------------------------------- */

/* A plain sum in three collectives, one after the other, so that what is out of order would meet
 * one of another size. */
static tri_status sum_in_thirds(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    size_t from = bucket->count * (size_t)stage / 3, to = bucket->count * (size_t)(stage + 1) / 3;
    size_t size = tri_dtype_size(bucket->dtype);
    char *data = (char *)bucket->data + from * size;

    (void)state;
    if (stage == 3 || (stage == 1 && bucket->index == 1 && bucket->n_buckets > 2))
        return TRI_OK; /* that one is over early, below */
    if (stage == 0 && bucket->index == 1 && bucket->n_buckets > 2)
        to = bucket->count;
    return tri_all_reduce(bucket->group, data, data, to - from, bucket->dtype, TRI_REDOP_SUM,
                          work_out);
}

static void a_hook_in_stages_has_the_bits_of_a_sum(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const plan none = {.dtype = i & 4 ? TRI_DTYPE_F64 : TRI_DTYPE_F32,
                           .one_bucket = i == 5,
                           .micro = i & 1 ? 2 : 1,
                           .no_sync = i & 2};
        plan p = none;

        p.hook = sum_in_thirds;
        if (distance(&p, &none, i == 2 || i == 7 ? 3 : 2) != 0.0)
            fail_msg("plan %d", i);
    }
}

static void a_hook_in_stages_takes_unused_parameters_along(void **state)
{
    const plan none = {.dtype = TRI_DTYPE_F64, .skips = true};
    plan p = none;

    (void)state;
    p.hook = sum_in_thirds;
    assert_true(distance(&p, &none, 2) == 0.0);
}

static void eager_mode_has_the_bits_of_a_sum_too(void **state)
{
    const plan none = {.dtype = TRI_DTYPE_F64};
    plan p = none;

    (void)state;
    assert_int_equal(setenv("TRI_EAGER", "1", 1), 0);
    p.hook = sum_in_thirds;
    assert_true(distance(&p, &none, 2) == 0.0);
}

/* --- PowerSGD ------------------------------------------------------------- */

static void power_sgd_of_full_rank_is_close_to_none(void **state)
{
    const tri_power_sgd_options power = {
        .rank = 8, .start_pass = TRI_SET(0), .min_rate = TRI_SET(1e-3)};
    const plan none = {.dtype = TRI_DTYPE_F32};
    plan p = none;

    (void)state;
    p.hook = tri_bucket_hook_power_sgd;
    p.power = &power;
    assert_true(distance(&p, &none, 2) < 1e-4);
    assert_true(distance(&p, &none, 3) < 1e-4);
}

static void power_sgd_starts_with_plain_averages(void **state)
{
    const tri_power_sgd_options late = {0},
                                soon = {.start_pass = TRI_SET(3), .min_rate = TRI_SET(1e-3)};
    const plan none = {.dtype = TRI_DTYPE_F32};
    plan p = none;

    (void)state;
    p.hook = tri_bucket_hook_power_sgd;
    p.power = &late;
    assert_true(distance(&p, &none, 2) == 0.0);
    p.power = &soon;
    assert_true(distance(&p, &none, 2) > 1e-6);
}

/* The same training with plain buffers: a replica, whose gradients a reducer averages. */
static tri_status train_with_reducer(rank *r)
{
    const plan *p = r->arg;
    tri_module *net = net_of(p->dtype);
    tri_optimizer *opt = tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = 0.9});
    tri_power_sgd *power = NULL;
    tri_reducer *reducer = NULL;
    int n_grads = (int)tri_module_state_count(net);

    TRY(tri_power_sgd_create(p->power, &power));
    TRY(tri_reducer_create(
        &(tri_reducer_options){.group = r->group, .hook = p->hook, .hook_state = power}, &reducer));
    for (int g = 0; g < n_grads; g++) {
        tri_tensor *t = tri_module_state(net, g).tensor;
        const tri_reducer_grad grad = {
            .count = (size_t)tri_tensor_numel(t),
            .rows = tri_tensor_ndim(t) == 2 ? (size_t)tri_tensor_size(t, 0) : 0};

        TRY(tri_reducer_add(reducer, &grad, NULL));
    }
    TRY(tri_reducer_commit(reducer));
    for (int step = 0; step < STEPS; step++) {
        int first, n;
        tri_tensor *x, *y;

        rows_for(r, 0, 1, &first, &n);
        x = typed_rows(p->dtype, x_data, IN, first, n);
        y = typed_rows(p->dtype, y_data, OUT, first, n);
        tri_backward(tri_mse_loss(tri_forward(net, x), y, NULL));
        TRY(tri_reducer_begin(reducer, n));
        for (int g = n_grads - 1; g >= 0; g--) {
            tri_tensor *t = tri_grad(tri_module_state(net, g).tensor);

            TRY(tri_tensor_copy_out(t, tri_reducer_data(reducer, g),
                                    (size_t)tri_tensor_numel(t) * sizeof(float)));
            TRY(tri_reducer_ready(reducer, g));
        }
        TRY(tri_reducer_finish(reducer));
        for (int g = 0; g < n_grads; g++) {
            tri_tensor *t = tri_grad(tri_module_state(net, g).tensor);

            TRY(tri_tensor_copy_in(t, tri_reducer_data(reducer, g),
                                   (size_t)tri_tensor_numel(t) * sizeof(float)));
        }
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    TRY(take_all(r, net));
    tri_reducer_destroy(reducer);
    tri_power_sgd_destroy(power);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    return TRI_OK;
}

/* What it keeps of a gradient - what was lost, its factors - stays with the gradient, also when
 * buckets get their final order after the first pass. */
static void power_sgd_keeps_what_it_does_with_plain_buffers(void **state)
{
    const tri_power_sgd_options options[] = {
        {.start_pass = TRI_SET(0), .min_rate = TRI_SET(1e-3)},
        {.start_pass = TRI_SET(0), .min_rate = TRI_SET(1e-3), .rank = 2, .no_feedback = true},
        {.start_pass = TRI_SET(0), .min_rate = TRI_SET(1e-3), .rank = 2, .no_warm_start = true},
        {.start_pass = TRI_SET(2), .min_rate = TRI_SET(1e-3)}};
    static rank model[3], plain[3];

    (void)state;
    make_data();
    for (size_t i = 0; i < TRII_COUNT_OF(options); i++) {
        const plan p = {
            .hook = tri_bucket_hook_power_sgd, .dtype = TRI_DTYPE_F32, .power = &options[i]};
        int size = i == 0 ? 3 : 2;

        ranks_succeed(model, size, train, &p);
        ranks_succeed(plain, size, train_with_reducer, &p);
        for (int k = 0; k < model[0].n_weights; k++)
            if (!(fabs(model[0].weights[k] - plain[0].weights[k]) < 1e-5))
                fail_msg("case %zu: weight %d is %.7g with a model, %.7g with plain buffers", i, k,
                         model[0].weights[k], plain[0].weights[k]);
    }
}

/* --- mistakes ------------------------------------------------------------- */

typedef struct failure {
    int stage;
    tri_status given, expected;
} failure;

static tri_status fails_late(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    const rank *r = state;
    const failure *f = r->arg;

    if (r->index == 1 && bucket->pass == 2 && bucket->index == 1 && stage == f->stage)
        return f->given;
    return stage > 1 ? TRI_OK
                     : tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count,
                                      bucket->dtype, TRI_REDOP_SUM, work_out);
}

static tri_status train_until_it_fails(rank *r)
{
    const plan p = {.dtype = TRI_DTYPE_F64};
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group,
                                                           .bucket_cap_bytes = 200,
                                                           .first_bucket_bytes = 1,
                                                           .hook = fails_late,
                                                           .hook_state = r});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_status status = tri_module_status(model);
    int step = 0;

    while (status == TRI_OK && step < STEPS)
        status = train_step(r, &p, model, opt, step++);
    r->n_weights = step;
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

/* What is not done is no end of a stage either. */
static void a_hook_that_fails_fails_all_ranks(void **state)
{
    static rank ranks[3];
    failure f[2] = {{.given = TRI_ERR_UNSUPPORTED, .expected = TRI_ERR_UNSUPPORTED},
                    {.given = TRI_INPROGRESS, .expected = TRI_ERR_INVALID_ARG}};

    (void)state;
    make_data();
    for (int k = 0; k < 6; k++) {
        failure *now = &f[k / 3];
        char text[64];

        now->stage = k % 3;
        snprintf(text, sizeof(text), "the hook of bucket 1 returned %s in stage %d",
                 tri_status_name(now->given), now->stage);
        run_ranks(ranks, 3, train_until_it_fails, now);
        for (int i = 0; i < 3; i++) {
            int late = i != 1; /* their own averages may have been complete */

            assert_true(ranks[i].n_weights >= 3 && ranks[i].n_weights <= 3 + late);
            assert_int_equal(ranks[i].status, late ? TRI_ERR_ABORTED : now->expected);
            assert_non_null(strstr(ranks[i].line, text));
        }
    }
}

static tri_status make_unlike(rank *r)
{
    tri_module *model =
        tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group,
                                           .hook = r->index == 1 ? tri_bucket_hook_bf16
                                                                 : tri_bucket_hook_f16});
    tri_status status = tri_module_status(model);

    tri_module_destroy(model);
    return status;
}

static void ranks_with_other_hooks_are_named(void **state)
{
    static rank ranks[2];

    (void)state;
    run_ranks(ranks, 2, make_unlike, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_MISMATCH);
        assert_non_null(strstr(ranks[i].line, "rank 1 has options"));
        assert_non_null(strstr(ranks[i].line, "bf16"));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hooks_of_16_bits_are_close_to_none),
    cmocka_unit_test(gradients_of_convolutions_are_rounded_as_they_lie),
    cmocka_unit_test(a_hook_in_stages_has_the_bits_of_a_sum),
    cmocka_unit_test(a_hook_in_stages_takes_unused_parameters_along),
    cmocka_unit_test(eager_mode_has_the_bits_of_a_sum_too),
    cmocka_unit_test(power_sgd_of_full_rank_is_close_to_none),
    cmocka_unit_test(power_sgd_starts_with_plain_averages),
    cmocka_unit_test(power_sgd_keeps_what_it_does_with_plain_buffers),
    cmocka_unit_test(a_hook_that_fails_fails_all_ranks),
    cmocka_unit_test(ranks_with_other_hooks_are_named),
};

TEST_MAIN(tests)
