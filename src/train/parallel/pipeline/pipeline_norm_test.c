/* pipeline_norm_test.c - what is over all gradients of a network, where its stages are on several
 * ranks: clips by their norm, scaled losses, averages of parameters. */
/* ctest: also=TRI_EAGER=1 */
#include "testing/pipeline_ranks.h"

enum { ROWS = 8, M = 4, STEPS = 4 };

typedef struct norm_job {
    int stages, bare; /* bare: this stage has no parameters; -1: all have */
    tri_pipeline_schedule schedule;
    bool scaled, of_list; /* the loss is scaled; the clip is of a list of tensors */
    int overflow;         /* the step in which this rank has a gradient that is inf; -1: none */
    int overflow_rank;
    /* of one process */
    double norm[STEPS], scale[STEPS];
    tri_module *model;
    tri_ema *ema;
} norm_job;

static void build(const norm_job *j, tri_module **stages)
{
    pipeline_stages(stages, j->stages, true);
    if (j->bare < 0)
        return;
    tri_module_destroy(stages[j->bare]);
    stages[j->bare] = tri_nn_sequential(tri_nn_tanh());
}

static tri_tensor *loss_of(tri_tensor *output, tri_tensor *target, void *arg)
{
    tri_tensor *loss = tri_mse_loss(output, target, NULL);

    return arg != NULL ? tri_grad_scaler_scale(arg, loss) : loss;
}

/* Of the parameters of a module, which may be none. */
static tri_tensor *clip_list(tri_module *model)
{
    tri_tensor *params[64];
    int n = 0;

    for (int64_t i = 0; i < tri_module_state_count(model) && n < 64; i++)
        if (tri_module_state(model, i).parameter)
            params[n++] = tri_module_state(model, i).tensor;
    return tri_clip_grad_norm_of(params, n, 0.05);
}

/* One gradient overflows, that of the first parameter here. */
static tri_status overflow(tri_module *model)
{
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_tensor *grad = tri_grad(tri_module_state(model, i).tensor);

        if (grad != NULL)
            return tri_init_constant(grad, HUGE_VAL);
    }
    return TRI_OK;
}

/* Between the last backward and the end of the step. */
static tri_status update(const norm_job *j, int step, bool here, tri_module *model,
                         tri_optimizer *opt, tri_grad_scaler *scaler, double *norm_out)
{
    tri_tensor *norm = NULL;
    tri_status status = step == j->overflow ? tri_run() : TRI_OK;

    if (status == TRI_OK && here && step == j->overflow)
        status = overflow(model);
    if (status != TRI_OK)
        return status;
    if (j->scaled)
        tri_grad_scaler_unscale(scaler, opt);
    norm = tri_keep(j->of_list ? clip_list(model) : tri_clip_grad_norm(opt, 0.05));
    status = j->scaled ? tri_grad_scaler_step(scaler, opt) : tri_optimizer_step(opt);
    if (status == TRI_OK && j->scaled)
        status = tri_grad_scaler_update(scaler);
    if (status == TRI_OK)
        status = tri_item_status(norm, norm_out);
    return status == TRI_OK ? tri_step_end_status() : status;
}

static tri_grad_scaler *make_scaler(const norm_job *j)
{
    tri_grad_scaler *scaler = NULL;

    if (j->scaled && tri_grad_scaler_create(&(tri_grad_scaler_options){.init_scale = TRI_SET(1024),
                                                                       .growth_interval = 2},
                                            &scaler) != TRI_OK)
        return NULL;
    return scaler;
}

/* One process that accumulates the same micro-batches. */
static void one_process(norm_job *j)
{
    tri_module *stages[PIPELINE_STAGES], *model;
    tri_grad_scaler *scaler = make_scaler(j);
    tri_optimizer *opt;

    build(j, stages);
    model = tri_nn_sequential_of(j->stages, stages);
    opt = tri_adamw(model, 0.05, NULL);
    CHECK_OK(tri_ema_create(model, 0.9, &j->ema));
    for (int s = 0; s < STEPS; s++) {
        tri_tensor *x = pipeline_batch(s, ROWS, PIPELINE_WIDTH);
        tri_tensor *y = pipeline_batch(s, ROWS, PIPELINE_OUT);

        for (int i = 0; i < M; i++)
            tri_backward(tri_mul_scalar(
                loss_of(tri_forward(model, tri_narrow(x, 0, i * (ROWS / M), ROWS / M)),
                        tri_narrow(y, 0, i * (ROWS / M), ROWS / M), scaler),
                1.0 / M));
        CHECK_OK(update(j, s, true, model, opt, scaler, &j->norm[s]));
        j->scale[s] = j->scaled ? tri_grad_scaler_current_scale(scaler) : 1;
        CHECK_OK(tri_ema_update(j->ema));
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    j->model = model;
    tri_optimizer_destroy(opt);
    tri_grad_scaler_destroy(scaler);
}

static void forget_one_process(norm_job *j)
{
    tri_ema_destroy(j->ema);
    tri_module_destroy(j->model);
}

/* Whether a tensor has the bits of one process's. */
static bool is_equal(tri_tensor *got, tri_tensor *want)
{
    double a[PIPELINE_WIDTH * PIPELINE_WIDTH], b[PIPELINE_WIDTH * PIPELINE_WIDTH];
    size_t bytes = (size_t)tri_tensor_numel(got) * sizeof(*a);

    return tri_tensor_dtype(got) != TRI_DTYPE_F64 ||
           (want != NULL && tri_tensor_copy_out(got, a, bytes) == TRI_OK &&
            tri_tensor_copy_out(want, b, bytes) == TRI_OK && memcmp(a, b, bytes) == 0);
}

static const char *differs(rank_env *env, tri_module *pipe, tri_ema *ema)
{
    const norm_job *j = env->arg;
    const char *wrong = NULL;

    trii_mutex_lock(&pipeline_writing); /* one rank at a time reads what one process has */
    for (int64_t i = 0; i < tri_module_state_count(pipe) && wrong == NULL; i++) {
        tri_state_entry e = tri_module_state(pipe, i);

        if (!is_equal(e.tensor, tri_module_find(j->model, e.name)))
            wrong = RANK_FAIL(env, "rank %d of %d: %s differs", env->rank, env->size, e.name);
    }
    for (int64_t i = 0; i < tri_ema_state_count(ema) && wrong == NULL; i++) {
        tri_state_entry e = tri_ema_state(ema, i);
        int64_t k = 0;

        while (strcmp(tri_ema_state(j->ema, k).name, e.name) != 0)
            k++;
        if (!is_equal(e.tensor, tri_ema_state(j->ema, k).tensor))
            wrong = RANK_FAIL(env, "rank %d of %d: average of %s differs", env->rank, env->size,
                              e.name);
    }
    trii_mutex_unlock(&pipeline_writing);
    return wrong;
}

static const char *norm_rank(rank_env *env)
{
    const norm_job *j = env->arg;
    tri_module *stages[PIPELINE_STAGES], *pipe;
    tri_grad_scaler *scaler = make_scaler(j);
    tri_group *group = NULL;
    tri_optimizer *opt;
    tri_ema *ema = NULL;
    const char *wrong;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    build(j, stages);
    pipe = tri_pipeline(
        stages, j->stages,
        &(tri_pipeline_options){.group = group, .n_microbatches = M, .schedule = j->schedule});
    opt = tri_adamw(pipe, 0.05, NULL);
    RANK_TRY(env, tri_optimizer_status(opt));
    RANK_TRY(env, tri_ema_create(pipe, 0.9, &ema));
    for (int s = 0; s < STEPS; s++) {
        tri_tensor *x = pipeline_batch(s, ROWS, PIPELINE_WIDTH);
        tri_tensor *y = pipeline_batch(s, ROWS, PIPELINE_OUT);
        double norm = -1;

        (void)tri_pipeline_step(pipe, x, y, loss_of, scaler);
        RANK_TRY(env, update(j, s, env->rank == j->overflow_rank, pipe, opt, scaler, &norm));
        if (memcmp(&norm, &j->norm[s], sizeof(norm)) != 0)
            return RANK_FAIL(env, "rank %d of %d: norm %d is %.17g, not %.17g", env->rank,
                             env->size, s, norm, j->norm[s]);
        if (j->scaled && tri_grad_scaler_current_scale(scaler) != j->scale[s])
            return RANK_FAIL(env, "rank %d of %d: scale %d is %g, not %g", env->rank, env->size, s,
                             tri_grad_scaler_current_scale(scaler), j->scale[s]);
        RANK_TRY(env, tri_ema_update(ema));
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    wrong = differs(env, pipe, ema);
    tri_ema_destroy(ema);
    tri_optimizer_destroy(opt);
    tri_grad_scaler_destroy(scaler);
    tri_module_destroy(pipe);
    tri_group_unref(group);
    return wrong;
}

static void compare(norm_job j, int ranks)
{
    one_process(&j);
    assert_true(j.norm[0] > 0.05); /* it clips */
    run_threads(ranks, &(tri_group_options){.engine = ranks > 1 ? "shm" : "self"}, norm_rank, &j);
    forget_one_process(&j);
}

static const norm_job plain = {.stages = 2, .bare = -1, .overflow = -1};

static void the_norm_is_that_of_one_process(void **state)
{
    norm_job j = plain;

    (void)state;
    compare(j, 2);
    j.stages = 4;
    compare(j, 4);
    j.of_list = true;
    compare(j, 4);
    j.schedule = TRI_PIPELINE_INTERLEAVED; /* stages 0, 2 and 1, 3: their order is the model's */
    compare(j, 2);
    compare(j, 1);
}

static void a_rank_without_parameters_takes_part(void **state)
{
    norm_job j = plain;

    (void)state;
    j.stages = 3;
    j.bare = 1;
    compare(j, 3);
    j.scaled = true;
    compare(j, 3);
}

static void a_scaled_loss_is_scaled_for_all(void **state)
{
    norm_job j = plain;

    (void)state;
    j.stages = 3;
    j.scaled = true;
    compare(j, 3);
    j.overflow = 1;
    one_process(&j);
    assert_true(j.scale[1] < j.scale[0]);
    for (j.overflow_rank = 0; j.overflow_rank < 3; j.overflow_rank++)
        run_threads(3, &(tri_group_options){.engine = "shm"}, norm_rank, &j);
    forget_one_process(&j);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_norm_is_that_of_one_process),
    cmocka_unit_test(a_rank_without_parameters_takes_part),
    cmocka_unit_test(a_scaled_loss_is_scaled_for_all),
};

TEST_MAIN(tests)
