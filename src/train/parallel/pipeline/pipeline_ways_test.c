/* pipeline_ways_test.c - pipelines beside the plain way: evaluation, frozen stages, stages that
 * only their rank builds, and several passes for an update. */
/* ctest: also=TRI_EAGER=1 */
#include "testing/pipeline_ranks.h"

enum { ROWS = 8 };

static const pipeline_job plain = {.options = {.n_microbatches = 4}, .stages = 3, .rows = ROWS};

static tri_module *one_network(const pipeline_job *job)
{
    tri_module *stages[PIPELINE_STAGES];

    pipeline_stages(stages, job->stages, true);
    return tri_nn_sequential_of(job->stages, stages);
}

/* --- evaluation ----------------------------------------------------------- */

typedef struct evaluation {
    double out[ROWS * PIPELINE_OUT], loss;
} evaluation;

static const char *evaluate_rank(rank_env *env)
{
    const evaluation *want = env->arg;
    const bool is_last = env->rank == env->size - 1;
    tri_tensor *out, *loss;
    pipeline_own own;
    double got[ROWS * PIPELINE_OUT], loss_got = 0;

    RANK_TRY(env, pipeline_begin(env, &plain, &own));
    tri_module_train(own.pipe, false);
    TRI_NO_GRAD out = tri_forward(own.pipe, env->rank == 0 ? own.x : NULL);
    TRI_NO_GRAD loss = tri_pipeline_step(own.pipe, own.x, own.y, pipeline_mse, NULL);
    RANK_TRY(env, tri_item_status(loss, &loss_got));
    if (fabs(loss_got - want->loss) > 1e-12)
        return RANK_FAIL(env, "rank %d: loss %.17g, not %.17g", env->rank, loss_got, want->loss);
    if (is_last)
        RANK_TRY(env, tri_tensor_copy_out(out, got, sizeof(got)));
    else if (tri_tensor_numel(out) != 0)
        return RANK_FAIL(env, "rank %d has a result", env->rank);
    for (int i = 0; is_last && i < ROWS * PIPELINE_OUT; i++)
        if (fabs(got[i] - want->out[i]) > 1e-12)
            return RANK_FAIL(env, "result %d is %.17g, not %.17g", i, got[i], want->out[i]);
    for (int64_t i = 0; i < tri_module_state_count(own.pipe); i++)
        if (tri_grad(tri_module_state(own.pipe, i).tensor) != NULL)
            return RANK_FAIL(env, "rank %d has a gradient", env->rank);
    RANK_TRY(env, tri_step_end_status());
    pipeline_end(&own);
    return NULL;
}

static void evaluation_is_that_of_one_process(void **state)
{
    tri_module *net = one_network(&plain);
    tri_tensor *x = pipeline_batch(0, ROWS, PIPELINE_WIDTH);
    tri_tensor *y = pipeline_batch(0, ROWS, PIPELINE_OUT), *out;
    evaluation want;

    (void)state;
    tri_module_train(net, false);
    TRI_NO_GRAD
    {
        out = tri_forward(net, x);
        want.loss = tri_item(tri_mse_loss(out, y, NULL));
        CHECK_OK(tri_tensor_copy_out(tri_forward(net, x), want.out, sizeof(want.out)));
    }
    tri_step_end();
    run_threads(3, NULL, evaluate_rank, &want);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

/* --- stages --------------------------------------------------------------- */

typedef struct way {
    bool frozen;    /* the first stage */
    bool only_own;  /* each rank builds its own stage alone */
    int passes;     /* for one update */
    bool recompute; /* all stages are computed again for their backwards */
    bool reads;     /* rank 0 alone reads each loss: the others must run the pass, too */
    tri_pipeline_schedule schedule;
    double want[2]; /* losses of two updates */
} way;

static tri_module *build(const way *w, rank_env *env, tri_group *group)
{
    tri_module *stages[PIPELINE_STAGES];
    tri_pipeline_options options = plain.options;

    options.group = group;
    options.schedule = w->schedule;
    pipeline_stages(stages, plain.stages, true);
    if (w->frozen)
        tri_module_requires_grad(stages[0], false);
    for (int s = 0; s < plain.stages && w->recompute; s++)
        tri_module_set_recompute(stages[s], true);
    for (int s = 0; s < plain.stages && w->only_own; s++) {
        if (s == env->rank)
            continue;
        tri_module_destroy(stages[s]);
        stages[s] = NULL;
    }
    return tri_pipeline(stages, plain.stages, &options);
}

static const char *train_in_a_way(rank_env *env)
{
    const way *w = env->arg;
    tri_tensor *x = pipeline_batch(0, ROWS, PIPELINE_WIDTH);
    tri_tensor *y = pipeline_batch(0, ROWS, PIPELINE_OUT);
    tri_group *group = NULL;
    tri_module *pipe;
    tri_optimizer *opt;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    pipe = build(w, env, group);
    opt = tri_sgd(pipe, 0.1, NULL);
    for (int step = 0; step < 2; step++) {
        tri_tensor *loss = NULL;
        double got = 0;

        for (int i = 0; i < w->passes; i++) {
            loss = tri_pipeline_step(pipe, x, y, pipeline_mse, NULL);
            if (w->reads && env->rank == 0)
                RANK_TRY(env, tri_item_status(loss, &got));
        }
        RANK_TRY(env, update_and_read(opt, loss, &got));
        if (fabs(got - w->want[step]) > 1e-12)
            return RANK_FAIL(env, "rank %d, loss %d: %.17g, not %.17g", env->rank, step, got,
                             w->want[step]);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_group_unref(group);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static void compare_schedule(way w, tri_pipeline_schedule schedule)
{
    tri_module *net = one_network(&plain);
    tri_tensor *x = pipeline_batch(0, ROWS, PIPELINE_WIDTH);
    tri_tensor *y = pipeline_batch(0, ROWS, PIPELINE_OUT);
    tri_optimizer *opt;
    int m = plain.options.n_microbatches;

    w.schedule = schedule;
    if (w.frozen)
        tri_module_requires_grad(tri_module_submodule(net, "0"), false);
    opt = tri_sgd(net, 0.1, NULL);
    for (int step = 0; step < 2; step++) {
        tri_tensor *total = NULL;

        for (int i = 0; i < m * w.passes; i++) {
            int first = i % m * (ROWS / m);
            tri_tensor *loss = tri_mse_loss(tri_forward(net, tri_narrow(x, 0, first, ROWS / m)),
                                            tri_narrow(y, 0, first, ROWS / m), NULL);

            loss = tri_mul_scalar(loss, 1.0 / m);
            tri_backward(loss);
            TRI_NO_GRAD total = i % m == 0 ? loss : tri_add(total, loss);
        }
        total = tri_keep(total);
        CHECK_OK(tri_optimizer_step(opt));
        w.want[step] = tri_item(total);
        tri_step_end();
    }
    run_threads(plain.stages, NULL, train_in_a_way, &w);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void compare_way(way w)
{
    compare_schedule(w, TRI_PIPELINE_1F1B);
    compare_schedule(w, TRI_PIPELINE_ZERO_BUBBLE);
}

static void a_frozen_first_stage_gets_no_gradients(void **state)
{
    (void)state;
    compare_way((way){.frozen = true, .passes = 1});
}

static void a_rank_may_build_its_own_stage_alone(void **state)
{
    (void)state;
    compare_way((way){.only_own = true, .passes = 1});
}

static void stages_may_be_computed_again(void **state)
{
    (void)state;
    compare_way((way){.recompute = true, .passes = 1});
}

/* --- 16 bits -------------------------------------------------------------- */

/* What comes from the stage before. */
static void look_at_input(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                          void *arg)
{
    (void)self, (void)n_in, (void)out, (void)n_out;
    *(tri_dtype *)arg = tri_tensor_dtype(in[0]);
}

static const char *lowered_rank(rank_env *env)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(4, 8), TRI_DTYPE_F32);
    tri_module *stages[2];
    tri_group *group = NULL;
    tri_dtype came = TRI_DTYPE_NONE;
    tri_module *pipe;
    tri_optimizer *opt;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    trii_mutex_lock(&pipeline_drawing);
    for (int s = 0; s < 2; s++)
        stages[s] = tri_nn_linear(8, 8, NULL);
    trii_mutex_unlock(&pipeline_drawing);
    RANK_TRY(env, tri_module_add_forward_pre_hook(stages[1], look_at_input, &came, NULL));
    pipe = tri_pipeline(stages, 2, &(tri_pipeline_options){.group = group});
    opt = tri_sgd(pipe, 0.1, NULL);
    TRI_AUTOCAST(TRI_DTYPE_BF16)
    (void)tri_pipeline_step(pipe, x, x, pipeline_mse, NULL);
    RANK_TRY(env, tri_optimizer_step(opt));
    RANK_TRY(env, tri_step_end_status());
    if (env->rank == 1 && came != TRI_DTYPE_BF16)
        return RANK_FAIL(env, "messages are of %s", tri_dtype_name(came));
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_group_unref(group);
    tri_tensor_unref(x);
    return NULL;
}

static void messages_under_autocast_have_16_bits(void **state)
{
    (void)state;
    run_threads(2, NULL, lowered_rank, NULL);
}

static void passes_add_up(void **state)
{
    (void)state;
    compare_way((way){.passes = 2});
    compare_way((way){.passes = 3, .reads = true});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(evaluation_is_that_of_one_process),
    cmocka_unit_test(a_frozen_first_stage_gets_no_gradients),
    cmocka_unit_test(a_rank_may_build_its_own_stage_alone),
    cmocka_unit_test(stages_may_be_computed_again),
    cmocka_unit_test(messages_under_autocast_have_16_bits),
    cmocka_unit_test(passes_add_up),
};

TEST_MAIN(tests)
