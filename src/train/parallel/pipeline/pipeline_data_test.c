/* pipeline_data_test.c - pipelines with replicas, by tri_ddp and tri_zero over another axis of a
 * mesh, against one process that accumulates the micro-batches of all of them. */
#include "testing/pipeline_ranks.h"

enum { M = 3, STEPS = 3, MOST_DATA = 3 };

typedef struct data_job {
    int data, stages; /* sizes of the mesh */
    int bare;         /* this stage has no parameters; -1: all have */
    int zero;         /* stage of tri_zero; 0: tri_ddp */
    int passes;       /* for one update */
    tri_pipeline_schedule schedule;
    int per_rank; /* stages of each rank; 0: 1 */
    bool norm;    /* batch norm in some stages */
    int rows[MOST_DATA];
    pipeline_result *want; /* of one process; its losses: [step * data + coordinate] */
    double norms[STEPS];
} data_job;

static int all_stages(const data_job *j)
{
    return j->stages * (j->per_rank > 0 ? j->per_rank : 1);
}

static void build(const data_job *j, tri_module **stages)
{
    pipeline_stages(stages, all_stages(j), j->norm);
    if (j->bare < 0)
        return;
    tri_module_destroy(stages[j->bare]);
    stages[j->bare] = tri_nn_sequential(tri_nn_tanh());
}

/* Another batch for each step, pass and data coordinate. */
static int number_of(const data_job *j, int step, int pass, int data)
{
    return (step * j->passes + pass) * j->data + data;
}

static void one_process(data_job *j)
{
    tri_module *stages[PIPELINE_STAGES], *model;
    tri_optimizer *opt;
    int all = 0;

    for (int d = 0; d < j->data; d++)
        all += j->rows[d];
    build(j, stages);
    model = tri_nn_sequential_of(all_stages(j), stages);
    opt = tri_adamw(model, 0.05, NULL);
    for (int s = 0; s < STEPS; s++) {
        tri_tensor *norm;

        for (int k = 0; k < j->passes * j->data; k++) {
            int d = k % j->data, n = j->rows[d];
            int batch = number_of(j, s, k / j->data, d);
            tri_tensor *x = pipeline_batch(batch, n, PIPELINE_WIDTH);
            tri_tensor *y = pipeline_batch(batch, n, PIPELINE_OUT), *total = NULL;

            for (int i = 0, first = 0; i < M; i++) {
                int part = n / M + (i < n % M);
                tri_tensor *loss = tri_mse_loss(tri_forward(model, tri_narrow(x, 0, first, part)),
                                                tri_narrow(y, 0, first, part), NULL);

                tri_backward(tri_mul_scalar(loss, (double)part / all));
                TRI_NO_GRAD
                {
                    loss = tri_mul_scalar(loss, (double)part / n);
                    total = total == NULL ? loss : tri_add(total, loss);
                }
                first += part;
            }
            j->want->loss[s * j->data + d] = tri_item(total);
            tri_tensor_unref(x);
            tri_tensor_unref(y);
        }
        norm = tri_keep(tri_clip_grad_norm(opt, 0.05));
        CHECK_OK(tri_optimizer_step(opt));
        j->norms[s] = tri_item(norm);
        tri_step_end();
    }
    CHECK_OK(pipeline_read(model, j->want));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
}

static const char *train_step(rank_env *env, tri_module *model, tri_optimizer *opt, int step,
                              int data)
{
    const data_job *j = env->arg;
    tri_tensor *loss = NULL, *norm;
    double got = 0, length = 0;

    for (int pass = 0; pass < j->passes; pass++) {
        int batch = number_of(j, step, pass, data);
        tri_tensor *x = pipeline_batch(batch, j->rows[data], PIPELINE_WIDTH);
        tri_tensor *y = pipeline_batch(batch, j->rows[data], PIPELINE_OUT);

        if (pass < j->passes - 1)
            tri_ddp_no_sync_begin(model);
        loss = tri_pipeline_step(model, x, y, pipeline_mse, NULL);
        if (pass < j->passes - 1)
            tri_ddp_no_sync_end(model);
        RANK_TRY(env, tri_tensor_status(loss));
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    norm = tri_keep(tri_clip_grad_norm(opt, 0.05));
    RANK_TRY(env, tri_optimizer_step(opt));
    RANK_TRY(env, tri_item_status(loss, &got));
    RANK_TRY(env, tri_item_status(norm, &length));
    RANK_TRY(env, tri_step_end_status());
    if (fabs(got - j->want->loss[step * j->data + data]) > 1e-9)
        return RANK_FAIL(env, "rank %d of %d: loss %d is %.17g, not %.17g", env->rank, env->size,
                         step, got, j->want->loss[step * j->data + data]);
    if (fabs(length - j->norms[step]) > 1e-9)
        return RANK_FAIL(env, "rank %d of %d: norm %d is %.17g, not %.17g", env->rank, env->size,
                         step, length, j->norms[step]);
    return NULL;
}

/* Gradients are sent once a step, whatever the number of micro-batches and passes. */
static const char *check_volume(rank_env *env, tri_module *model)
{
    const data_job *j = env->arg;
    int64_t n = 0;
    tri_ddp_volume_stats volume;

    for (int64_t i = 0; i < tri_module_state_count(model) && j->data > 1; i++)
        n += STEPS * ((tri_tensor_numel(tri_module_state(model, i).tensor) + 7) / 8 * 8);
    RANK_TRY(env, tri_ddp_volume(model, &volume));
    return (j->zero > 0 ? volume.reduce_scatter : volume.all_reduce) == n
               ? NULL
               : RANK_FAIL(env, "rank %d of %d has sent %lld and %lld numbers, not %lld", env->rank,
                           env->size, (long long)volume.all_reduce,
                           (long long)volume.reduce_scatter, (long long)n);
}

static const char *data_rank(rank_env *env)
{
    const data_job *j = env->arg;
    pipeline_result *own = calloc(1, sizeof(*own));
    tri_module *stages[PIPELINE_STAGES], *model;
    tri_mesh *mesh = NULL;
    tri_optimizer *opt;
    const char *wrong = NULL;
    int samples = 0;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(j->data, j->stages),
                            (const char *[]){"data", "pipeline"}, &mesh));
    build(j, stages);
    model = tri_pipeline(stages, all_stages(j),
                         &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline"),
                                                 .n_microbatches = M,
                                                 .schedule = j->schedule});
    model = replicate(model, tri_mesh_group(mesh, "data"), j->zero);
    RANK_TRY(env, tri_module_status(model));
    opt = tri_adamw(model, 0.05, NULL);
    for (int s = 0; s < STEPS && wrong == NULL; s++)
        wrong = train_step(env, model, opt, s, tri_mesh_coordinate(mesh, "data"));
    if (wrong == NULL)
        wrong = check_volume(env, model);
    if (wrong != NULL)
        return wrong;
    RANK_TRY(env, tri_ddp_verify(model, false));
    for (int d = 0; d < j->data; d++)
        samples += j->passes * j->rows[d];
    if (tri_module_parameter_count(model) > 0 && tri_ddp_sample_count(model) != samples)
        return RANK_FAIL(env, "rank %d: %lld samples, not %d", env->rank,
                         (long long)tri_ddp_sample_count(model), samples);
    if (j->zero < 3)
        RANK_TRY(env, pipeline_read(model, own));
    trii_mutex_lock(&pipeline_writing);
    wrong = pipeline_differs(env, own, j->want, 1e-9);
    trii_mutex_unlock(&pipeline_writing);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    free(own);
    return wrong;
}

static void compare(data_job j)
{
    j.want = pipeline_result_new();
    one_process(&j);
    run_threads(j.data * j.stages, &(tri_group_options){.engine = "shm"}, data_rank, &j);
    free(j.want);
}

static const data_job plain = {.data = 2, .stages = 2, .bare = -1, .passes = 1, .rows = {6, 4, 5}};

static void replicas_are_averaged_by_their_rows(void **state)
{
    data_job j = plain;

    (void)state;
    compare(j);
    j.data = 3;
    j.schedule = TRI_PIPELINE_GPIPE;
    compare(j);
    j.data = 1;
    compare(j);
    j.data = 2;
    j.stages = 1;
    j.per_rank = 2;
    j.schedule = TRI_PIPELINE_INTERLEAVED;
    compare(j);
    j.stages = 2;
    compare(j);
    j.schedule = TRI_PIPELINE_ZBV;
    compare(j);
}

static void passes_add_up_before_they_are_averaged(void **state)
{
    data_job j = plain;

    (void)state;
    j.passes = 2;
    compare(j);
    j.zero = 2;
    compare(j);
}

static void a_stage_without_parameters_averages_nothing(void **state)
{
    data_job j = plain;

    (void)state;
    j.stages = 3;
    j.bare = 1;
    compare(j);
    j.zero = 1;
    compare(j);
}

static void replicas_share_the_optimizer(void **state)
{
    data_job j = plain;

    (void)state;
    for (j.zero = 1; j.zero <= 3; j.zero++)
        compare(j);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(replicas_are_averaged_by_their_rows),
    cmocka_unit_test(passes_add_up_before_they_are_averaged),
    cmocka_unit_test(a_stage_without_parameters_averages_nothing),
    cmocka_unit_test(replicas_share_the_optimizer),
};

TEST_MAIN(tests)
