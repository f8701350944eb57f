/* engine_scale_test.c - fp16's loss scale with DeepSpeed's hysteresis and minimum, updates that are
 * skipped, a short last group, and calls out of order. */
#include "testing/engine_ranks.h"

#define CONFIG(k, more)                                                                            \
    "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": " #k                 \
    ", \"gradient_clipping\": 0, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": "         \
    "0.1}}" more "}"

/* --- the scale ------------------------------------------------------------ */

/* DeepSpeed's DynamicLossScaler (deepspeed/runtime/fp16/loss_scaler.py). */
typedef struct theirs {
    double scale, min;
    int hysteresis, left, window, iteration, last_overflow;
    bool consecutive;
} theirs;

static void theirs_update(theirs *t, bool overflow)
{
    if (overflow) {
        if (t->hysteresis == 1 || t->left == 1)
            t->scale = fmax(t->scale / 2, t->min);
        else
            t->left--;
        t->last_overflow = t->iteration;
    } else {
        if (t->consecutive)
            t->left = t->hysteresis;
        if ((t->iteration - t->last_overflow) % t->window == 0) {
            if (!t->consecutive)
                t->left = t->hysteresis;
            t->scale *= 2;
        }
    }
    t->iteration++;
}

/* One micro-batch whose loss is multiplied by a factor. */
static tri_status step_with(tri_engine *e, const rank *r, int step, double factor)
{
    tri_tensor *x, *y;
    tri_status status;

    engine_batch(r, step, &x, &y);
    tri_engine_backward(
        e, tri_mul_scalar(tri_cross_entropy(tri_engine_forward(e, x), y, NULL), factor));
    status = tri_engine_step(e);
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static void the_scale_moves_as_deepspeeds(void **state)
{
    static const struct {
        const char *config;
        theirs start;
    } cases[] = {
        {CONFIG(1, ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 5,"
                   " \"loss_scale_window\": 3}"),
         {.scale = 32, .min = 1, .hysteresis = 2, .window = 3}},
        {CONFIG(1, ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 5, \"hysteresis\": 3,"
                   " \"loss_scale_window\": 4, \"consecutive_hysteresis\": true}"),
         {.scale = 32, .min = 1, .hysteresis = 3, .window = 4, .consecutive = true}},
        {CONFIG(1, ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 5, \"hysteresis\": 1,"
                   " \"loss_scale_window\": 2}"),
         {.scale = 32, .min = 1, .hysteresis = 1, .window = 2}},
    };
    static const char overflows[] = "x..x.xx....xx.x...xx..";

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        theirs t = cases[i].start;
        int64_t skipped = 0;
        lone_engine l;

        t.left = t.hysteresis;
        t.last_overflow = -1;
        lone_engine_begin(&l, cases[i].config);
        for (int step = 0; overflows[step] != '\0'; step++) {
            const bool bad = overflows[step] == 'x';

            assert_true(tri_engine_loss_scale(l.e) == t.scale);
            theirs_update(&t, bad);
            CHECK_OK(step_with(l.e, &l.r, step, bad ? INFINITY : 1));
            skipped += bad;
            assert_true(tri_engine_was_step_applied(l.e) == !bad);
            assert_int_equal(tri_engine_skipped_steps(l.e), skipped);
            assert_int_equal(tri_engine_global_steps(l.e), step + 1);
            assert_int_equal(tri_engine_global_samples(l.e), 4 * (step + 1));
        }
        lone_engine_end(&l);
    }
}

static void a_scale_that_cannot_become_smaller_is_an_error(void **state)
{
    lone_engine l;

    (void)state;
    lone_engine_begin(&l, CONFIG(1, ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 2, "
                                    "\"min_loss_scale\": 3}"));
    CHECK_OK(step_with(l.e, &l.r, 0, INFINITY)); /* of two */
    CHECK_OK(step_with(l.e, &l.r, 1, INFINITY));
    assert_true(tri_engine_loss_scale(l.e) == 3);
    assert_int_equal(step_with(l.e, &l.r, 2, INFINITY), TRI_ERR_NAN);
    assert_non_null(strstr(tri_last_error(), "fp16.min_loss_scale allows, 3"));
    lone_engine_end(&l);
}

static void a_fixed_scale_stays_and_bf16_skips_too(void **state)
{
    static const char *const configs[] = {
        CONFIG(1, ", \"fp16\": {\"enabled\": true, \"loss_scale\": 128}"),
        CONFIG(1, ", \"bf16\": {\"enabled\": true}")};
    lone_engine l;

    (void)state;
    for (int i = 0; i < 2; i++) {
        lone_engine_begin(&l, configs[i]);
        for (int step = 0; step < 6; step++) {
            CHECK_OK(step_with(l.e, &l.r, step, step % 2 == 0 ? INFINITY : 1));
            assert_true(tri_engine_loss_scale(l.e) == (i == 0 ? 128 : 1));
        }
        assert_int_equal(tri_engine_skipped_steps(l.e), 3);
        lone_engine_end(&l);
    }
}

/* The schedule stands still while updates are skipped. */
static void a_skipped_update_does_not_move_the_schedule(void **state)
{
    lone_engine l;
    double lr;

    (void)state;
    lone_engine_begin(&l, CONFIG(1, ", \"bf16\": {\"enabled\": true}, \"scheduler\": {\"type\": "
                                    "\"WarmupLR\", \"params\": {\"warmup_type\": \"linear\", "
                                    "\"warmup_num_steps\": 10, \"warmup_max_lr\": 1}}"));
    assert_true(tri_engine_lr(l.e) == 0);
    CHECK_OK(step_with(l.e, &l.r, 0, 1));
    CHECK_OK(step_with(l.e, &l.r, 1, 1));
    lr = tri_engine_lr(l.e);
    assert_true(lr == 0.1);
    CHECK_OK(step_with(l.e, &l.r, 2, INFINITY));
    assert_true(tri_engine_lr(l.e) == lr);
    CHECK_OK(step_with(l.e, &l.r, 3, 1));
    assert_true(tri_engine_lr(l.e) == 0.2);
    lone_engine_end(&l);
}

/* --- groups of micro-batches ---------------------------------------------- */

typedef struct job {
    const char *config;
    int micro_steps;
    bool flush;
    _Atomic int64_t samples; /* the same on each rank */
    uint64_t hash[MAX_RANKS];
    float weights[MAX_RANKS][64];
} job;

static tri_status copy_weights(tri_engine *e, float *to)
{
    tri_state_entry first = tri_module_state(tri_engine_module(e), 0);
    tri_status status;

    TRY(tri_unshard_begin(tri_engine_module(e)));
    status = tri_tensor_copy_out(first.tensor, to,
                                 (size_t)tri_tensor_numel(first.tensor) * sizeof(float));
    TRY(tri_unshard_end(tri_engine_module(e)));
    return status;
}

static tri_status run(tri_engine *e, rank *r, void *arg)
{
    job *j = arg;

    for (int step = 0; step < j->micro_steps; step++)
        TRY(step_with(e, r, step, 1));
    if (j->flush) {
        TRY(tri_engine_flush(e));
        tri_step_end();
    }
    j->samples = tri_engine_global_samples(e);
    TRY(tri_module_hash(tri_engine_module(e), &j->hash[r->index]));
    return copy_weights(e, j->weights[r->index]);
}

static void run_job(job *j, int size)
{
    rank ranks[MAX_RANKS];

    run_engines(ranks, size, j->config, run, j);
    check_ranks(ranks, size);
    for (int r = 1; r < size; r++)
        assert_true(j->hash[r] == j->hash[0]);
}

#define ZERO(stage)                                                                                \
    ", \"zero_optimization\": {\"stage\": " #stage ", \"stage3_param_persistence_threshold\": 0}"

/* Two of four micro-batches, flushed, are a group of two. */
static void a_short_last_group_is_the_mean_of_what_it_has(void **state)
{
    static const char *const fours[] = {CONFIG(4, ZERO(0)), CONFIG(4, ZERO(1)), CONFIG(4, ZERO(2)),
                                        CONFIG(4, ZERO(3))};
    job whole = {.config = CONFIG(2, ""), .micro_steps = 2};

    (void)state;
    for (int size = 1; size <= 3; size++) {
        job shorts[4];

        run_job(&whole, size);
        for (int stage = 0; stage < 4; stage++) {
            shorts[stage] = (job){.config = fours[stage], .micro_steps = 2, .flush = true};
            run_job(&shorts[stage], size);
            assert_int_equal(shorts[stage].samples, 2 * ENGINE_BATCH * size);
            assert_true(shorts[stage].hash[0] == shorts[0].hash[0]);
            for (int i = 0; i < 8 * FIT_IN; i++)
                assert_true(fabsf(shorts[stage].weights[0][i] - whole.weights[0][i]) < 1e-6F);
        }
    }
}

/* Its gradients are divided by the scale, too. */
static void a_short_last_group_in_f16(void **state)
{
    job whole = {.config = CONFIG(1, ", \"fp16\": {\"enabled\": true}"), .micro_steps = 1};
    job flushed = {
        .config = CONFIG(3, ", \"fp16\": {\"enabled\": true}"), .micro_steps = 1, .flush = true};

    (void)state;
    run_job(&whole, 2);
    run_job(&flushed, 2);
    for (int i = 0; i < 8 * FIT_IN; i++)
        assert_true(fabsf(flushed.weights[0][i] - whole.weights[0][i]) < 1e-4F);
}

/* The mean over micro-batches and ranks is that of one batch. */
static void accumulation_is_the_mean_over_micro_batches(void **state)
{
    lone_engine l;

    (void)state;
    lone_engine_begin(&l, CONFIG(3, ""));
    for (int step = 0; step < 7; step++) {
        assert_true(tri_engine_is_gradient_accumulation_boundary(l.e) == (step % 3 == 2));
        CHECK_OK(step_with(l.e, &l.r, step, 1));
        assert_int_equal(tri_engine_micro_steps(l.e), step + 1);
        assert_int_equal(tri_engine_global_steps(l.e), (step + 1) / 3);
    }
    assert_true(tri_engine_global_grad_norm(l.e) > 0);
    lone_engine_end(&l);
}

/* managed_gradient_accumulation false: the program decides when to call step. */
static void each_step_updates_where_the_program_accumulates(void **state)
{
    lone_engine l;

    (void)state;
    lone_engine_begin(&l, CONFIG(3, ", \"managed_gradient_accumulation\": false"));
    for (int step = 0; step < 4; step++) {
        assert_true(tri_engine_is_gradient_accumulation_boundary(l.e));
        CHECK_OK(step_with(l.e, &l.r, step, 1));
        assert_int_equal(tri_engine_global_steps(l.e), step + 1);
    }
    lone_engine_end(&l);
}

/* Gradients that are sent as bf16 are near those of f32, and not the same. */
static void gradients_are_sent_as_the_file_says(void **state)
{
    job plain = {.config = CONFIG(1, ""), .micro_steps = 4};
    job halves = {.config = CONFIG(1, ", \"communication_data_type\": \"bf16\""), .micro_steps = 4};
    float most = 0;

    (void)state;
    run_job(&plain, 2);
    run_job(&halves, 2);
    assert_true(plain.hash[0] != halves.hash[0]);
    for (int i = 0; i < 8 * FIT_IN; i++)
        most = fmaxf(most, fabsf(plain.weights[0][i] - halves.weights[0][i]));
    assert_true(most < 1e-2F);
}

static void a_step_without_backward_is_refused(void **state)
{
    lone_engine l;

    (void)state;
    lone_engine_begin(&l, CONFIG(1, ""));
    assert_int_equal(tri_engine_step(l.e), TRI_ERR_STATE);
    assert_non_null(strstr(tri_last_error(), "no tri_engine_backward since the last call"));
    CHECK_OK(step_with(l.e, &l.r, 0, 1));
    CHECK_OK(tri_engine_flush(l.e)); /* of nothing */
    assert_int_equal(tri_engine_global_steps(l.e), 1);
    lone_engine_end(&l);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_scale_moves_as_deepspeeds),
    cmocka_unit_test(a_scale_that_cannot_become_smaller_is_an_error),
    cmocka_unit_test(a_fixed_scale_stays_and_bf16_skips_too),
    cmocka_unit_test(a_skipped_update_does_not_move_the_schedule),
    cmocka_unit_test(a_short_last_group_is_the_mean_of_what_it_has),
    cmocka_unit_test(a_short_last_group_in_f16),
    cmocka_unit_test(accumulation_is_the_mean_over_micro_batches),
    cmocka_unit_test(each_step_updates_where_the_program_accumulates),
    cmocka_unit_test(gradients_are_sent_as_the_file_says),
    cmocka_unit_test(a_step_without_backward_is_refused),
};

TEST_MAIN(tests)
