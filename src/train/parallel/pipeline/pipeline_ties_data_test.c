/* pipeline_ties_data_test.c - stages of several ranks that share parameters, where each stage has
 * replicas (tri_ddp, tri_zero), against one process; and their checkpoints. */
#include "testing/pipeline_shared.h"
#include "testing/scratch.h"

enum { DATA = 3, RANKS = 2, M = 4, STEPS = 2, PASSES = 2 };

/* Of the replicas: fewer than micro-batches, too. */
static const int rows[DATA] = {5, 3, 4};

typedef struct way {
    int zero; /* stage of tri_zero; 0: tri_ddp */
    int stages;
    tri_pipeline_schedule schedule;
} way;

static const way ways[] = {
    {.zero = 0, .stages = 2, .schedule = TRI_PIPELINE_1F1B},
    {.zero = 1, .stages = 4, .schedule = TRI_PIPELINE_INTERLEAVED},
    {.zero = 2, .stages = 4, .schedule = TRI_PIPELINE_ZBV},
    {.zero = 3, .stages = 2, .schedule = TRI_PIPELINE_ZERO_BUBBLE},
};

typedef struct results {
    pipeline_result *after;  /* STEPS */
    pipeline_result *beyond; /* and one more */
    double norms[STEPS + 1];
} results;

typedef struct ties_job {
    const char *folder;
    results of[5]; /* [stages] */
    bool is_saved; /* one process has saved what ranks begin with */
} ties_job;

static pipeline_job job_of(const way *w)
{
    return (pipeline_job){.options = {.n_microbatches = M, .schedule = w->schedule},
                          .stages = w->stages,
                          .build = pipeline_share};
}

static tri_optimizer *optimize(tri_module *model)
{
    return tri_adamw(model, 0.02, NULL);
}

static int number_of(int step, int pass, int data)
{
    return (step * PASSES + pass) * DATA + data;
}

/* --- one process ---------------------------------------------------------- */

static double step_alone(tri_module *net, tri_optimizer *opt, int step)
{
    tri_tensor *norm;
    double length;

    for (int k = 0; k < PASSES * DATA; k++) {
        int d = k % DATA, batch = number_of(step, k / DATA, d);
        tri_tensor *x = pipeline_batch(batch, rows[d], PIPELINE_WIDTH);
        tri_tensor *y = pipeline_batch(batch, rows[d], PIPELINE_OUT);

        tri_backward(tri_mul_scalar(tri_mse_loss(tri_forward(net, x), y, NULL),
                                    (double)rows[d] / (rows[0] + rows[1] + rows[2])));
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    norm = tri_keep(tri_clip_grad_norm(opt, 0.1));
    CHECK_OK(tri_optimizer_step(opt));
    length = tri_item(norm);
    tri_step_end();
    return length;
}

static tri_module *build_alone(int stages)
{
    const pipeline_job job = job_of(&(way){.stages = stages});
    tri_module *own[PIPELINE_STAGES];

    pipeline_build(&job, own);
    return tri_nn_sequential_of(stages, own);
}

static void train_alone(ties_job *j, int stages)
{
    results *r = &j->of[stages];
    tri_module *net = build_alone(stages);
    tri_optimizer *opt = optimize(net);
    char folder[256];

    r->after = pipeline_result_new();
    r->beyond = pipeline_result_new();
    for (int s = 0; s < STEPS; s++)
        r->norms[s] = step_alone(net, opt, s);
    CHECK_OK(pipeline_read(net, r->after));
    snprintf(folder, sizeof(folder), "%s/alone%d", j->folder, stages);
    CHECK_OK(tri_checkpoint_save(folder, net, opt, &(tri_checkpoint_info){.step = STEPS}, NULL));
    r->norms[STEPS] = step_alone(net, opt, STEPS);
    CHECK_OK(pipeline_read(net, r->beyond));
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

static void same_values(const pipeline_result *got, pipeline_result *want)
{
    for (int i = 0; i < got->n; i++) {
        int at = pipeline_entry(want, got->entries[i].name);

        for (int k = 0; k < got->entries[i].numel; k++)
            assert_true(fabs(got->entries[i].values[k] - want->entries[at].values[k]) < 1e-9);
    }
}

/* What ranks have saved. */
static void go_on_alone(const ties_job *j, const way *w, int number)
{
    pipeline_result *got = pipeline_result_new();
    tri_module *net = build_alone(w->stages);
    tri_optimizer *opt = optimize(net);
    tri_checkpoint *checkpoint = NULL;
    char folder[256];

    snprintf(folder, sizeof(folder), "%s/way%d", j->folder, number);
    CHECK_OK(tri_checkpoint_open(folder, &checkpoint));
    CHECK_OK(tri_checkpoint_restore(checkpoint, net, opt));
    tri_checkpoint_close(checkpoint);
    (void)step_alone(net, opt, STEPS);
    CHECK_OK(pipeline_read(net, got));
    same_values(got, j->of[w->stages].beyond);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    free(got);
}

/* --- ranks ---------------------------------------------------------------- */

static const char *step_here(rank_env *env, tri_module *model, tri_optimizer *opt, int step,
                             int data, double want)
{
    double length = 0;
    tri_tensor *norm;

    for (int pass = 0; pass < PASSES; pass++) {
        int batch = number_of(step, pass, data);
        tri_tensor *x = pipeline_batch(batch, rows[data], PIPELINE_WIDTH);
        tri_tensor *y = pipeline_batch(batch, rows[data], PIPELINE_OUT);

        if (pass < PASSES - 1)
            tri_ddp_no_sync_begin(model);
        RANK_TRY(env, tri_tensor_status(tri_pipeline_step(model, x, y, pipeline_mse, NULL)));
        if (pass < PASSES - 1)
            tri_ddp_no_sync_end(model);
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    norm = tri_keep(tri_clip_grad_norm(opt, 0.1));
    RANK_TRY(env, tri_optimizer_step(opt));
    RANK_TRY(env, tri_item_status(norm, &length));
    RANK_TRY(env, tri_step_end_status());
    if (!(fabs(length - want) <= 1e-9))
        return RANK_FAIL(env, "rank %d: norm %d is %.17g, not %.17g", env->rank, step, length,
                         want);
    return NULL;
}

/* Of the parameters that several ranks have: the same bits on all that have them. */
static const char *copies_differ(rank_env *env, tri_module *model, tri_group *world)
{
    uint64_t own[2] = {0, 0}, all[2 * DATA * RANKS], seen[2] = {0, 0};

    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        const tri_state_entry e = tri_module_state(model, i);
        const char *at = strstr(e.name, ".shared"); /* of the ends "N.0", of the others "N.1" */
        double values[PIPELINE_WIDTH * PIPELINE_WIDTH];

        if (at == NULL)
            continue;
        RANK_TRY(env, tri_tensor_copy_out(e.tensor, values, sizeof(values)));
        own[at[-1] == '1'] = trii_hash(TRII_HASH_SEED, values, sizeof(values));
    }
    RANK_TRY(env, tri_all_gather(world, own, all, 2, TRI_DTYPE_I64, NULL));
    for (int k = 0; k < 2 * DATA * RANKS; k++) {
        if (all[k] != 0 && seen[k % 2] != 0 && all[k] != seen[k % 2])
            return RANK_FAIL(env, "rank %d has other bits of the %s", k / 2,
                             k % 2 == 0 ? "ends" : "others");
        seen[k % 2] = all[k] != 0 ? all[k] : seen[k % 2];
    }
    return NULL;
}

static const char *check(rank_env *env, tri_module *model, tri_group *world, pipeline_result *want)
{
    pipeline_result *own = calloc(1, sizeof(*own));
    const char *wrong;

    RANK_TRY(env, tri_unshard_begin(model));
    RANK_TRY(env, pipeline_read(model, own));
    wrong = copies_differ(env, model, world);
    RANK_TRY(env, tri_unshard_end(model));
    trii_mutex_lock(&pipeline_writing);
    if (wrong == NULL)
        wrong = pipeline_differs(env, own, want, 1e-9);
    trii_mutex_unlock(&pipeline_writing);
    free(own);
    return wrong;
}

/* Trains, and saves where there is nothing yet; else goes on with what one process has saved. */
static const char *begin(rank_env *env, int number, tri_module *model, tri_optimizer *opt, int data)
{
    const ties_job *j = env->arg;
    const way *w = &ways[number];
    tri_checkpoint *checkpoint = NULL;
    const char *wrong = NULL;
    char folder[256];

    if (j->is_saved) {
        snprintf(folder, sizeof(folder), "%s/alone%d", j->folder, w->stages);
        RANK_TRY(env, tri_checkpoint_open(folder, &checkpoint));
        RANK_TRY(env, tri_checkpoint_restore(checkpoint, model, opt));
        tri_checkpoint_close(checkpoint);
        return NULL;
    }
    for (int s = 0; s < STEPS && wrong == NULL; s++)
        wrong = step_here(env, model, opt, s, data, j->of[w->stages].norms[s]);
    if (wrong != NULL)
        return wrong;
    snprintf(folder, sizeof(folder), "%s/way%d", j->folder, number);
    if (w->zero > 0 || data == 0)
        RANK_TRY(env, tri_checkpoint_save(folder, model, opt, &(tri_checkpoint_info){.step = STEPS},
                                          NULL));
    return NULL;
}

static const char *train_way(rank_env *env, int number, tri_group *world, tri_mesh *mesh)
{
    const ties_job *j = env->arg;
    const way *w = &ways[number];
    const pipeline_job job = job_of(w);
    tri_group *data = tri_mesh_group(mesh, "data");
    tri_module *model = pipeline_make(&job, tri_mesh_group(mesh, "pipeline"));
    tri_optimizer *opt;
    const char *wrong;

    model = replicate(model, data, w->zero);
    RANK_TRY(env, tri_module_status(model));
    opt = optimize(model);
    wrong = begin(env, number, model, opt, tri_group_rank(data));
    if (wrong == NULL)
        wrong = check(env, model, world, j->of[w->stages].after);
    if (wrong == NULL)
        wrong =
            step_here(env, model, opt, STEPS, tri_group_rank(data), j->of[w->stages].norms[STEPS]);
    if (wrong == NULL)
        wrong = check(env, model, world, j->of[w->stages].beyond);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return wrong;
}

static const char *ties_rank(rank_env *env)
{
    tri_group *world = NULL;
    tri_mesh *mesh = NULL;
    const char *wrong = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &world));
    RANK_TRY(env, tri_mesh_create(world, TRI_SHAPE(DATA, RANKS),
                                  (const char *[]){"data", "pipeline"}, &mesh));
    for (int k = 0; k < (int)TRII_COUNT_OF(ways) && wrong == NULL; k++) {
        wrong = train_way(env, k, world, mesh);
        if (wrong != NULL)
            tri_group_abort(world, wrong);
    }
    tri_mesh_destroy(mesh);
    tri_group_unref(world);
    return wrong;
}

static void replicas_average_what_copies_have_added(void **state)
{
    const tri_group_options options = {.engine = "shm"};
    scratch s;
    ties_job j = {.folder = NULL};

    (void)state;
    scratch_begin(&s);
    j.folder = s.dir;
    train_alone(&j, 2);
    train_alone(&j, 4);
    run_threads(DATA * RANKS, &options, ties_rank, &j);
    for (int k = 0; k < (int)TRII_COUNT_OF(ways); k++)
        go_on_alone(&j, &ways[k], k);
    j.is_saved = true;
    run_threads(DATA * RANKS, &options, ties_rank, &j);
    for (int n = 2; n <= 4; n += 2) {
        free(j.of[n].after);
        free(j.of[n].beyond);
    }
    scratch_end(&s);
}

/* --- refused -------------------------------------------------------------- */

static const char *compressing_rank(rank_env *env)
{
    const pipeline_job job = job_of(&ways[0]);
    tri_mesh *mesh = NULL;
    tri_module *model;
    tri_tensor *x = pipeline_batch(0, 2, PIPELINE_WIDTH), *y = pipeline_batch(0, 2, PIPELINE_OUT);

    RANK_TRY(env,
             rank_mesh(env, TRI_SHAPE(DATA, RANKS), (const char *[]){"data", "pipeline"}, &mesh));
    model = tri_ddp(pipeline_make(&job, tri_mesh_group(mesh, "pipeline")),
                    &(tri_ddp_options){.group = tri_mesh_group(mesh, "data"),
                                       .hook = tri_bucket_hook_power_sgd});
    RANK_TRY(env, tri_module_status(model));
    RANK_TRY(env, ranks_meet(env, "made", -1)); /* the first one that is refused ends the group */
    /* By itself, or told by another that was first. */
    if (tri_tensor_status(tri_pipeline_step(model, x, y, pipeline_mse, NULL)) == TRI_OK ||
        strstr(tri_last_error(), "PowerSGD") == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    tri_step_end();
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static void a_hook_that_would_part_the_copies_is_refused(void **state)
{
    (void)state;
    run_threads(DATA * RANKS, &(tri_group_options){.engine = "shm"}, compressing_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(replicas_average_what_copies_have_added),
    cmocka_unit_test(a_hook_that_would_part_the_copies_is_refused),
};

TEST_MAIN(tests)
