/* grad_scaler_test.c - what a gradient scaler leaves out, keeps, and refuses. How the scale moves
 * is compared with PyTorch's in tests/golden/grad_scaler_golden_test.c. */
#include <math.h>

#include <trireme/device.h>
#include <trireme/optim.h>

#include "base/compiler.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

#define TENSORS 40 /* more than one update takes */

typedef tri_optimizer *(*maker)(const tri_param_group *group);

static tri_optimizer *sgd(const tri_param_group *group)
{
    return tri_sgd_of(group, 1, 0.1, NULL);
}

static tri_optimizer *sgd_momentum(const tri_param_group *group)
{
    return tri_sgd_of(group, 1, 0.1,
                      &(tri_sgd_options){.momentum = 0.9, .nesterov = true, .weight_decay = 0.01});
}

static tri_optimizer *adam(const tri_param_group *group)
{
    return tri_adam_of(group, 1, 0.01, NULL);
}

static tri_optimizer *adamw_amsgrad(const tri_param_group *group)
{
    return tri_adamw_of(group, 1, 0.01, &(tri_adam_options){.amsgrad = true, .maximize = true});
}

static tri_optimizer *rmsprop(const tri_param_group *group)
{
    return tri_rmsprop_of(group, 1, 0.01,
                          &(tri_rmsprop_options){.momentum = 0.9, .centered = true});
}

static tri_optimizer *adagrad(const tri_param_group *group)
{
    return tri_adagrad_of(group, 1, 0.01, NULL);
}

static const maker makers[] = {sgd, sgd_momentum, adam, adamw_amsgrad, rmsprop, adagrad};

typedef struct problem {
    tri_tensor *p[TENSORS];
    tri_optimizer *opt;
    tri_grad_scaler *scaler; /* NULL: none */
} problem;

/* Sizes 0, 1 and many; on `devices` devices in turn. */
static problem problem_create(maker make, tri_dtype dtype, int devices, bool scaled)
{
    problem q = {.scaler = NULL};

    for (int i = 0; i < TENSORS; i++) {
        int64_t n = i == 0 ? 40009 : i == 1 ? 0 : i;

        tri_device_begin(TRI_CPU(i % devices));
        q.p[i] = tri_tensor_create(&n, 1, dtype);
        tri_device_end();
        CHECK_OK(tri_init_constant(q.p[i], 0.5 + 0.25 * i));
        tri_requires_grad(q.p[i], true);
    }
    q.opt = make(&(tri_param_group){.params = q.p, .n_params = TENSORS});
    CHECK_OK(tri_optimizer_status(q.opt));
    if (scaled)
        CHECK_OK(tri_grad_scaler_create(NULL, &q.scaler));
    return q;
}

static void problem_destroy(problem *q)
{
    tri_grad_scaler_destroy(q->scaler);
    tri_optimizer_destroy(q->opt);
    for (int i = 0; i < TENSORS; i++)
        tri_tensor_unref(q->p[i]);
}

/* Each parameter's mean of squares; that of `bad` times infinity (-1: none). */
static void record_loss(const problem *q, int bad)
{
    tri_tensor *loss = NULL;

    for (int i = 0; i < TENSORS; i++) {
        tri_tensor *part = tri_sum(tri_square(q->p[i]), NULL, 0, false);

        part = tri_to(tri_mul_scalar(part, i == bad ? INFINITY : 0.125), TRI_CPU(0));
        loss = loss == NULL ? part : tri_add(loss, part);
    }
    tri_backward(q->scaler != NULL ? tri_grad_scaler_scale(q->scaler, loss) : loss);
}

static void train_step(const problem *q, int bad)
{
    record_loss(q, bad);
    if (q->scaler == NULL) {
        CHECK_OK(tri_optimizer_step(q->opt));
    } else {
        CHECK_OK(tri_grad_scaler_step(q->scaler, q->opt));
        CHECK_OK(tri_grad_scaler_update(q->scaler));
    }
    tri_optimizer_zero_grad(q->opt);
    CHECK_OK(tri_step_end_status());
}

/* Bits of the parameters and of all that the optimizer keeps; room for them as well. */
static size_t bits_of(const problem *q, char *to, size_t room)
{
    int64_t n_state = tri_optimizer_state_count(q->opt);
    size_t at = 0;

    for (int64_t i = 0; i < TENSORS + n_state; i++) {
        tri_tensor *t = i < TENSORS ? q->p[i] : tri_optimizer_state(q->opt, i - TENSORS).tensor;
        size_t bytes = (size_t)tri_tensor_numel(t) * tri_dtype_size(tri_tensor_dtype(t));

        assert_true(at + bytes <= room);
        if (bytes > 0)
            CHECK_OK(tri_tensor_copy_out(t, to + at, bytes));
        at += bytes;
    }
    return at;
}

#define ROOM ((size_t)4 << 20)

/* Of each optimizer, and what follows is what would have been without the step. */
static void check_skips(tri_dtype dtype, int devices)
{
    char *before = malloc(ROOM), *after = malloc(ROOM), *without = malloc(ROOM);

    for (size_t m = 0; m < TRII_COUNT_OF(makers); m++) {
        static const int bad_ones[] = {-1, 0, -1, 39, 7, -1};
        problem q = problem_create(makers[m], dtype, devices, true);
        problem plain = problem_create(makers[m], dtype, devices, false);
        size_t bytes;

        for (size_t s = 0; s < TRII_COUNT_OF(bad_ones); s++) {
            bytes = bits_of(&q, before, ROOM);
            train_step(&q, bad_ones[s]);
            assert_int_equal(bits_of(&q, after, ROOM), bytes);
            if (bad_ones[s] < 0)
                train_step(&plain, -1);
            assert_int_equal(memcmp(before, after, bytes) == 0, bad_ones[s] >= 0);
        }
        assert_int_equal(bits_of(&plain, without, ROOM), bytes);
        assert_memory_equal(after, without, bytes);
        assert_true(tri_grad_scaler_current_scale(q.scaler) == 65536 / 8);
        CHECK_OK(tri_step_end_status());
        problem_destroy(&q);
        problem_destroy(&plain);
    }
    free(before);
    free(after);
    free(without);
}

static void a_skipped_update_leaves_all_bits(void **state)
{
    (void)state;
    check_skips(TRI_DTYPE_F32, 1);
    check_skips(TRI_DTYPE_F64, 1);
}

static void a_skipped_update_by_the_reference_kernels(void **state)
{
    (void)state;
    trii_executor_set(&trii_executor_reference);
    check_skips(TRI_DTYPE_F32, 1);
    trii_executor_set(NULL);
}

static void a_skipped_update_on_three_devices(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    check_skips(TRI_DTYPE_F32, 3);
}

static tri_tensor *one_param(float value)
{
    tri_tensor *p = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, (float[]){value, 2 * value});

    tri_requires_grad(p, true);
    return p;
}

static float first_of(tri_tensor *tensor)
{
    float values[2] = {NAN, NAN};

    CHECK_OK(tri_tensor_copy_out(tensor, values, sizeof(values)));
    return values[0];
}

static tri_tensor *square_loss(tri_tensor *p, double factor)
{
    return tri_mul_scalar(tri_sum(tri_square(p), NULL, 0, false), factor);
}

/* The gradients themselves: by value, over a list, and with the norm before clipping. */
static void unscaled_gradients_can_be_seen_and_clipped(void **state)
{
    tri_tensor *p = one_param(3), *norm;
    tri_optimizer *opt = tri_sgd_of(&(tri_param_group){.params = &p, .n_params = 1}, 1, 1, NULL);
    tri_grad_scaler *scaler;

    (void)state;
    CHECK_OK(tri_grad_scaler_create(NULL, &scaler));
    tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, 1)));
    assert_true(first_of(tri_grad(p)) == 6 * 65536);
    tri_grad_scaler_unscale(scaler, opt);
    assert_true(first_of(tri_grad(p)) == 6);
    norm = tri_clip_grad_norm_of(&p, 1, sqrt(180) / 2);
    CHECK_NEAR(tri_item(norm), sqrt(180), 1e-5);
    CHECK_NEAR(first_of(tri_grad(p)), 3, 1e-5);
    CHECK_OK(tri_grad_scaler_step(scaler, opt));
    CHECK_OK(tri_grad_scaler_update(scaler));
    CHECK_NEAR(first_of(p), 0, 1e-5);
    CHECK_OK(tri_step_end_status());
    /* what is infinite is told, and not stepped by */
    tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, INFINITY)));
    tri_grad_scaler_unscale(scaler, opt);
    norm = tri_keep(tri_clip_grad_norm(opt, 1));
    CHECK_OK(tri_grad_scaler_step(scaler, opt));
    CHECK_OK(tri_grad_scaler_update(scaler));
    assert_false(isfinite(tri_item(norm)));
    CHECK_NEAR(first_of(p), 0, 1e-5);
    assert_true(tri_grad_scaler_current_scale(scaler) == 32768);
    CHECK_OK(tri_step_end_status());
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_tensor_unref(p);
}

static void an_overflow_in_one_of_several_backwards(void **state)
{
    tri_tensor *p = one_param(3);
    tri_optimizer *opt = tri_adam_of(&(tri_param_group){.params = &p, .n_params = 1}, 1, 1, NULL);
    tri_grad_scaler *scaler;

    (void)state;
    CHECK_OK(tri_grad_scaler_create(&(tri_grad_scaler_options){.growth_interval = 1}, &scaler));
    for (int bad = 0; bad < 4; bad++) {
        float before = first_of(p);

        for (int m = 0; m < 3; m++) { /* in steps of their own */
            tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, m == bad ? INFINITY : 1)));
            CHECK_OK(tri_step_end_status());
        }
        CHECK_OK(tri_grad_scaler_step(scaler, opt));
        CHECK_OK(tri_grad_scaler_update(scaler));
        tri_optimizer_zero_grad(opt);
        CHECK_OK(tri_step_end_status());
        assert_int_equal(first_of(p) == before, bad < 3);
    }
    assert_true(tri_grad_scaler_current_scale(scaler) == 65536 / 8 * 2);
    CHECK_OK(tri_step_end_status());
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_tensor_unref(p);
}

static void without_gradients_nothing_is_updated(void **state)
{
    tri_tensor *p = one_param(3);
    tri_optimizer *opt = tri_adam_of(&(tri_param_group){.params = &p, .n_params = 1}, 1, 1, NULL);
    tri_grad_scaler *scaler;

    (void)state;
    CHECK_OK(tri_grad_scaler_create(NULL, &scaler));
    CHECK_OK(tri_grad_scaler_step(scaler, opt));
    CHECK_OK(tri_grad_scaler_update(scaler));
    CHECK_OK(tri_step_end_status());
    assert_true(first_of(p) == 3 && tri_grad_scaler_current_scale(scaler) == 65536);
    CHECK_OK(tri_step_end_status());
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_tensor_unref(p);
}

/* The scale grows to what f32 has, and no further. */
static void the_scale_stays_finite(void **state)
{
    const tri_grad_scaler_options options = {
        .init_scale = TRI_SET(1), .growth_factor = TRI_SET(1e30), .growth_interval = 1};
    tri_tensor *p = one_param(0);
    tri_optimizer *opt = sgd(&(tri_param_group){.params = &p, .n_params = 1});
    tri_grad_scaler *scaler;

    (void)state;
    CHECK_OK(tri_grad_scaler_create(&options, &scaler));
    for (int s = 0; s < 3; s++) {
        tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, 1)));
        CHECK_OK(tri_grad_scaler_step(scaler, opt));
        CHECK_OK(tri_grad_scaler_update(scaler));
        CHECK_OK(tri_step_end_status());
        assert_true(tri_grad_scaler_current_scale(scaler) == (double)1e30f);
        CHECK_OK(tri_step_end_status());
    }
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_tensor_unref(p);
}

/* PyTorch's becomes 0 after 166 halvings of 65536, and the next finite step divides by it. */
static void a_scale_that_has_shrunk_often_can_still_be_divided_by(void **state)
{
    tri_tensor *p = one_param(3);
    tri_optimizer *opt = sgd(&(tri_param_group){.params = &p, .n_params = 1});
    tri_grad_scaler *scaler;

    (void)state;
    CHECK_OK(tri_grad_scaler_create(&(tri_grad_scaler_options){.backoff_factor = TRI_SET(1e-3)},
                                    &scaler));
    for (int s = 0; s < 24; s++) {
        tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, s < 23 ? INFINITY : 1)));
        CHECK_OK(tri_grad_scaler_step(scaler, opt));
        CHECK_OK(tri_grad_scaler_update(scaler));
        tri_optimizer_zero_grad(opt);
        CHECK_OK(tri_step_end_status());
    }
    assert_true(tri_grad_scaler_current_scale(scaler) > 0);
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(first_of(p), 3 - 0.1 * 6, 1e-5);
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_tensor_unref(p);
}

/* An allocator gives the memory of an optimizer to the next one. */
static void another_optimizer_at_the_same_address_has_not_stepped(void **state)
{
    tri_tensor *p = one_param(3);
    const tri_param_group group = {.params = &p, .n_params = 1};
    tri_grad_scaler *scaler;

    (void)state;
    CHECK_OK(tri_grad_scaler_create(NULL, &scaler));
    for (int i = 0; i < 20; i++) {
        tri_optimizer *opt = sgd(&group);

        tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, 1)));
        CHECK_OK(tri_grad_scaler_step(scaler, opt));
        tri_optimizer_zero_grad(opt);
        CHECK_OK(tri_step_end_status());
        tri_optimizer_destroy(opt);
    }
    CHECK_OK(tri_grad_scaler_update(scaler));
    CHECK_OK(tri_step_end_status());
    tri_grad_scaler_destroy(scaler);
    tri_tensor_unref(p);
}

static void wrong_orders_are_named(void **state)
{
    tri_tensor *p = one_param(3);
    tri_optimizer *opt = sgd(&(tri_param_group){.params = &p, .n_params = 1});
    tri_grad_scaler *scaler;

    (void)state;
    CHECK_OK(tri_grad_scaler_create(NULL, &scaler));
    CHECK_FAILS(tri_grad_scaler_update(scaler), TRI_ERR_STATE, "no optimizer has stepped");
    CHECK_OK(tri_step_end_status());
    /* twice */
    tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, 0.125)));
    tri_grad_scaler_unscale(scaler, opt);
    tri_grad_scaler_unscale(scaler, opt);
    CHECK_FAILS(tri_grad_scaler_step(scaler, opt), TRI_ERR_STATE, "was unscaled already");
    tri_step_end();
    /* that step has failed: nothing was unscaled */
    tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, 0.125)));
    tri_grad_scaler_unscale(scaler, opt);
    CHECK_OK(tri_grad_scaler_step(scaler, opt));
    CHECK_NEAR(first_of(p), 3 - 0.1 * 0.75, 1e-6);
    CHECK_FAILS(tri_grad_scaler_step(scaler, opt), TRI_ERR_STATE, "a second time before");
    tri_step_end();
    CHECK_OK(tri_grad_scaler_update(scaler));
    CHECK_OK(tri_step_end_status());
    /* after a clip */
    tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, 0.125)));
    tri_clip_grad_value(opt, 1);
    tri_grad_scaler_unscale(scaler, opt);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "clipped before: unscale them first");
    tri_optimizer_zero_grad(opt);
    /* unscaled in one step, used in the next */
    tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, 0.125)));
    tri_grad_scaler_unscale(scaler, opt);
    CHECK_OK(tri_step_end_status());
    CHECK_FAILS(tri_grad_scaler_step(scaler, opt), TRI_ERR_STATE, "in a step that has ended since");
    tri_step_end();
    CHECK_OK(tri_grad_scaler_update(scaler));
    tri_optimizer_zero_grad(opt);
    tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, 0.125)));
    CHECK_OK(tri_grad_scaler_step(scaler, opt));
    CHECK_OK(tri_grad_scaler_update(scaler));
    CHECK_OK(tri_step_end_status());
    CHECK_FAILS(tri_grad_scaler_step(scaler, NULL), TRI_ERR_INVALID_ARG, "optimizer is NULL");
    CHECK_FAILS(tri_grad_scaler_step(NULL, opt), TRI_ERR_INVALID_ARG, "scaler is NULL");
    CHECK_FAILS(tri_grad_scaler_update(NULL), TRI_ERR_INVALID_ARG, "scaler is NULL");
    CHECK_FAILS(tri_tensor_status(tri_grad_scaler_scale(NULL, p)), TRI_ERR_INVALID_ARG,
                "scaler is NULL");
    tri_step_end();
    tri_grad_scaler_unscale(scaler, NULL);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "optimizer is NULL");
    assert_true(isnan(tri_grad_scaler_current_scale(NULL)));
    tri_grad_scaler_destroy(scaler);
    tri_grad_scaler_destroy(NULL);
    tri_optimizer_destroy(opt);
    tri_tensor_unref(p);
}

static void bad_options_are_refused(void **state)
{
    const struct {
        tri_grad_scaler_options options;
        const char *text;
    } bad[] = {
        {{.init_scale = TRI_SET(-1)}, "init_scale -1: it must be finite and above 0"},
        {{.init_scale = TRI_SET(INFINITY)}, "init_scale inf"},
        {{.init_scale = TRI_SET(1e300)}, "init_scale 1e+300"},
        {{.init_scale = TRI_SET(0)}, "init_scale 0"},
        {{.growth_factor = TRI_SET(1)}, "growth_factor 1: it must be finite and above 1"},
        {{.growth_factor = TRI_SET(NAN)}, "growth_factor nan"},
        {{.backoff_factor = TRI_SET(1)}, "backoff_factor 1: it must be between 0 and 1"},
        {{.backoff_factor = TRI_SET(-0.5)}, "backoff_factor -0.5"},
        {{.growth_interval = -3}, "growth_interval -3: it must be at least 1"},
    };
    tri_grad_scaler *scaler;

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(bad); i++) {
        CHECK_FAILS(tri_grad_scaler_create(&bad[i].options, &scaler), TRI_ERR_INVALID_ARG,
                    bad[i].text);
        assert_null(scaler);
    }
    CHECK_FAILS(tri_grad_scaler_create(NULL, NULL), TRI_ERR_INVALID_ARG, "scaler_out is NULL");
}

static void a_disabled_one_does_nothing(void **state)
{
    tri_tensor *p = one_param(3), *loss;
    tri_optimizer *opt = sgd(&(tri_param_group){.params = &p, .n_params = 1});
    tri_grad_scaler *scaler;

    (void)state;
    CHECK_OK(tri_grad_scaler_create(&(tri_grad_scaler_options){.disabled = true}, &scaler));
    assert_int_equal(tri_grad_scaler_state_count(scaler), 0);
    assert_true(tri_grad_scaler_current_scale(scaler) == 1);
    loss = square_loss(p, 1);
    assert_ptr_equal(tri_grad_scaler_scale(scaler, loss), loss);
    tri_backward(loss);
    tri_grad_scaler_unscale(scaler, opt);
    CHECK_OK(tri_grad_scaler_step(scaler, opt));
    CHECK_OK(tri_grad_scaler_update(scaler));
    CHECK_NEAR(first_of(p), 3 - 0.1 * 6, 1e-6);
    CHECK_OK(tri_step_end_status());
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_tensor_unref(p);
}

/* --- a model -------------------------------------------------------------- */

enum { SAMPLES = 64, FEATURES = 16 };

/* The loss after some steps; in f16 of gradients that would all be 0 without the scale. */
static double train_model(bool half, double shrink)
{
    tri_module *net;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(SAMPLES, FEATURES), TRI_DTYPE_F32);
    tri_tensor *y = tri_tensor_create(TRI_SHAPE(SAMPLES, 1), TRI_DTYPE_F32), *loss = NULL;
    tri_grad_scaler *scaler;
    tri_optimizer *opt;
    double last = NAN;

    tri_manual_seed(11);
    CHECK_OK(tri_init_normal(x, 0, 1));
    CHECK_OK(tri_init_uniform(y, -1, 1));
    net = tri_nn_sequential(tri_nn_linear(FEATURES, 64, NULL), tri_nn_relu(),
                            tri_nn_linear(64, 1, NULL));
    opt = tri_adam(net, 0.01, &(tri_adam_options){.eps = TRI_SET(1e-16)});
    CHECK_OK(tri_grad_scaler_create(
        &(tri_grad_scaler_options){
            .disabled = !half, .init_scale = TRI_SET(65536.0 * 65536 * 16), .growth_interval = 10},
        &scaler));
    for (int s = 0; s < 120; s++) {
        if (half)
            tri_autocast_begin(TRI_DTYPE_F16);
        loss = tri_forward(net, x);
        if (half)
            tri_autocast_end();
        assert_int_equal(tri_tensor_dtype(loss), half ? TRI_DTYPE_F16 : TRI_DTYPE_F32);
        loss = tri_keep(tri_mse_loss(tri_cast(loss, TRI_DTYPE_F32), y, NULL));
        tri_backward(tri_grad_scaler_scale(scaler, tri_mul_scalar(loss, shrink)));
        CHECK_OK(tri_grad_scaler_step(scaler, opt));
        CHECK_OK(tri_grad_scaler_update(scaler));
        last = tri_item(loss);
        CHECK_OK(tri_step_end_status());
    }
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return last;
}

static void a_model_in_f16_learns_as_in_f32(void **state)
{
    double wide = train_model(false, 1e-6), half = train_model(true, 1e-6);

    (void)state;
    assert_true(wide < 0.05);
    assert_true(half < 0.05);
}

static void another_scaler_goes_on_from_the_state(void **state)
{
    static const int bad[] = {0, 0, 1, 0, 0, 0, 1, 0, 0, 0};
    const tri_grad_scaler_options options = {.growth_interval = 3};
    double scales[2][10];

    (void)state;
    for (int round = 0; round < 2; round++) {
        tri_tensor *p = one_param(3);
        tri_optimizer *opt = sgd(&(tri_param_group){.params = &p, .n_params = 1});
        tri_grad_scaler *scaler;

        CHECK_OK(tri_grad_scaler_create(&options, &scaler));
        for (int s = 0; s < 10; s++) {
            tri_backward(tri_grad_scaler_scale(scaler, square_loss(p, bad[s] ? INFINITY : 1e-3)));
            CHECK_OK(tri_grad_scaler_step(scaler, opt));
            CHECK_OK(tri_grad_scaler_update(scaler));
            tri_optimizer_zero_grad(opt);
            CHECK_OK(tri_step_end_status());
            scales[round][s] = tri_grad_scaler_current_scale(scaler);
            CHECK_OK(tri_step_end_status());
            if (round == 1) {
                float scale;
                int64_t tracker;

                assert_string_equal(tri_grad_scaler_state(scaler, 0).name, "scale");
                assert_string_equal(tri_grad_scaler_state(scaler, 1).name, "growth_tracker");
                assert_null(tri_grad_scaler_state(scaler, 2).tensor);
                CHECK_OK(tri_tensor_copy_out(tri_grad_scaler_state(scaler, 0).tensor, &scale, 4));
                CHECK_OK(tri_tensor_copy_out(tri_grad_scaler_state(scaler, 1).tensor, &tracker, 8));
                tri_grad_scaler_destroy(scaler);
                CHECK_OK(tri_grad_scaler_create(&options, &scaler));
                CHECK_OK(tri_tensor_copy_in(tri_grad_scaler_state(scaler, 0).tensor, &scale, 4));
                CHECK_OK(tri_tensor_copy_in(tri_grad_scaler_state(scaler, 1).tensor, &tracker, 8));
            }
            assert_true(scales[round][s] == scales[0][s]);
        }
        tri_grad_scaler_destroy(scaler);
        tri_optimizer_destroy(opt);
        tri_tensor_unref(p);
    }
    assert_true(scales[0][9] == 65536 && scales[0][6] == 32768 && scales[0][5] == 65536);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_skipped_update_leaves_all_bits),
    cmocka_unit_test(a_skipped_update_by_the_reference_kernels),
    cmocka_unit_test(a_skipped_update_on_three_devices),
    cmocka_unit_test(unscaled_gradients_can_be_seen_and_clipped),
    cmocka_unit_test(an_overflow_in_one_of_several_backwards),
    cmocka_unit_test(without_gradients_nothing_is_updated),
    cmocka_unit_test(the_scale_stays_finite),
    cmocka_unit_test(a_scale_that_has_shrunk_often_can_still_be_divided_by),
    cmocka_unit_test(another_optimizer_at_the_same_address_has_not_stepped),
    cmocka_unit_test(wrong_orders_are_named),
    cmocka_unit_test(bad_options_are_refused),
    cmocka_unit_test(a_disabled_one_does_nothing),
    cmocka_unit_test(a_model_in_f16_learns_as_in_f32),
    cmocka_unit_test(another_scaler_goes_on_from_the_state),
};

TEST_MAIN(tests)
