/* pipeline_errors_test.c - ranks that differ, calls that are refused, and ranks that are lost: all
 * ranks end, with the reason. */
#include "testing/pipeline_ranks.h"
#include "train/parallel/pipeline/pipeline_internal.h"

/* What differs between the ranks of one case. */
typedef struct mistake {
    pipeline_job job;
    int rank; /* which has it */
    tri_status status[4];
    const char *part[4]; /* of the error line; NULL: the rank's call succeeds */
} mistake;

static const pipeline_job two_stages = {.options = {.n_microbatches = 4}, .stages = 2, .rows = 8};

/* The call has to end in this way; what it returned. */
static const char *check_end(rank_env *env, const mistake *m, tri_status status)
{
    const char *part = m->part[env->rank];

    if (status == TRI_ERR_ABORTED) /* or PEER_LOST, whichever is seen first */
        status = TRI_ERR_PEER_LOST;
    if (part == NULL && status == TRI_OK)
        return NULL;
    if (part == NULL || status != m->status[env->rank] || strstr(tri_last_error(), part) == NULL)
        return RANK_FAIL(env, "rank %d: %s: %s; not %s: %s", env->rank, tri_status_name(status),
                         tri_last_error(), tri_status_name(m->status[env->rank]),
                         part != NULL ? part : "");
    return NULL;
}

/* --- making it ------------------------------------------------------------ */

static const char *make_differently(rank_env *env)
{
    const mistake *m = env->arg;
    pipeline_job job = m->job;
    tri_group *group = NULL;
    tri_module *pipe;
    const char *wrong;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    if (env->rank != m->rank)
        job = two_stages;
    pipe = pipeline_make(&job, group);
    wrong = check_end(env, m, tri_module_status(pipe));
    if (wrong == NULL) /* the group goes on */
        RANK_TRY(env, tri_barrier(group, NULL));
    tri_module_destroy(pipe);
    tri_group_unref(group);
    return wrong;
}

static void expect_difference(tri_pipeline_options options, int stages, const char *part)
{
    mistake m = {.job = {.options = options, .stages = stages, .rows = 8},
                 .rank = 1,
                 .status = {TRI_ERR_MISMATCH, TRI_ERR_MISMATCH},
                 .part = {part, part}};

    run_threads(2, NULL, make_differently, &m);
}

static void ranks_that_differ_are_named(void **state)
{
    (void)state;
    expect_difference((tri_pipeline_options){.n_microbatches = 6}, 2,
                      "rank 1 has schedule 1f1b with 2 stages and 6 micro-batches; "
                      "rank 0 has schedule 1f1b with 2 stages and 4 micro-batches");
    expect_difference((tri_pipeline_options){.n_microbatches = 4, .schedule = TRI_PIPELINE_GPIPE},
                      2, "rank 1 has schedule gpipe");
    expect_difference(
        (tri_pipeline_options){.n_microbatches = 4, .schedule = TRI_PIPELINE_LOOPED_BFS}, 4,
        "rank 1 has schedule looped_bfs with 4 stages");
}

static void a_rank_that_fails_by_itself_is_named(void **state)
{
    mistake m = {.job = {.options = {.n_microbatches = 4}, .stages = 3, .rows = 8},
                 .rank = 1,
                 .status = {TRI_ERR_MISMATCH, TRI_ERR_INVALID_ARG},
                 .part = {"rank 1 has a call that fails (3 stages over 2 ranks",
                          "3 stages over 2 ranks: all ranks have equally many, such as 2"}};

    (void)state;
    run_threads(2, NULL, make_differently, &m);
}

/* Rank 1 does not know that its head is the weight of stage 0, since it has not built that. */
static const char *share_a_weight(rank_env *env)
{
    tri_module *stages[2] = {tri_nn_identity(), tri_nn_identity()};
    tri_tensor *weight = tri_tensor_create(TRI_SHAPE(2, 3), TRI_DTYPE_F32);
    tri_group *group = NULL;
    tri_module *pipe;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    tri_module_add_parameter(stages[0], "weight", tri_tensor_ref(weight));
    tri_module_add_parameter(stages[1], "head", weight);
    if (env->rank == 1) {
        tri_module_destroy(stages[0]);
        stages[0] = NULL;
    }
    pipe = tri_pipeline(stages, 2, &(tri_pipeline_options){.group = group});
    RANK_FAILS(env, tri_module_status(pipe), TRI_ERR_MISMATCH,
               "rank 1 has schedule 1f1b with 2 stages and 2 micro-batches; rank 0 has schedule "
               "1f1b with 2 stages, which share 1 parameters, and 2 micro-batches");
    tri_module_destroy(pipe);
    tri_group_unref(group);
    return NULL;
}

static void a_tensor_that_one_rank_does_not_share_is_refused(void **state)
{
    (void)state;
    run_threads(2, NULL, share_a_weight, NULL);
}

static void check_refused(tri_module *pipe, tri_status status, const char *part)
{
    CHECK_FAILS(tri_module_status(pipe), status, part);
    tri_module_destroy(pipe);
}

static tri_module *one_stage(void)
{
    return tri_nn_linear(3, 2, NULL);
}

static void stages_and_options_are_checked(void **state)
{
    tri_group *group = NULL;
    tri_pipeline_options o = {.n_microbatches = 2};
    tri_module *stage = one_stage();
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_group_create(store, 0, 1, NULL, &group));
    o.group = group;
    check_refused(tri_pipeline(NULL, 1, &o), TRI_ERR_INVALID_ARG, "own_stages is NULL");
    check_refused(tri_pipeline((tri_module *[]){NULL}, 1, &o), TRI_ERR_INVALID_ARG,
                  "stage 0 is NULL on rank 0, whose it is");
    check_refused(tri_pipeline((tri_module *[]){NULL}, 0, &o), TRI_ERR_INVALID_ARG,
                  "0 stages: 1 to 1024 are allowed");
    o.n_microbatches = -1;
    check_refused(tri_pipeline((tri_module *[]){one_stage()}, 1, &o), TRI_ERR_INVALID_ARG,
                  "-1 micro-batches");
    o.n_microbatches = 0; /* as many as ranks */
    check_refused(tri_pipeline((tri_module *[]){one_stage()}, 1, &o), TRI_OK, "");
    o.schedule = TRI_PIPELINE_ZBV;
    check_refused(tri_pipeline((tri_module *[]){one_stage()}, 1, &o), TRI_ERR_INVALID_ARG,
                  "schedule zbv has two a rank, 2 in all");
    o.schedule = TRI_PIPELINE_INTERLEAVED;
    check_refused(tri_pipeline((tri_module *[]){stage, stage}, 2, &o), TRI_ERR_INVALID_ARG,
                  "module 1 is in the list twice");
    o.schedule = TRI_PIPELINE_GPIPE;
    check_refused(
        tri_pipeline((tri_module *[]){tri_ddp(one_stage(), &(tri_ddp_options){.group = group})}, 1,
                     &o),
        TRI_ERR_UNSUPPORTED, "stage 0 is DistributedDataParallel, or has one inside");
    check_refused(tri_data_parallel(tri_pipeline((tri_module *[]){one_stage()}, 1, &o), NULL),
                  TRI_ERR_UNSUPPORTED, "the network is a pipeline");
    o.reserved[0] = 1;
    check_refused(tri_pipeline((tri_module *[]){one_stage()}, 1, &o), TRI_ERR_INVALID_ARG,
                  "reserved[0] is not 0");
    tri_group_unref(group);
    tri_store_unref(store);
}

/* --- steps ---------------------------------------------------------------- */

static tri_tensor *no_mean(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_square(tri_sub(output, target));
}

static tri_tensor *no_loss(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)output, (void)target, (void)arg;
    return NULL;
}

enum {
    NO_X,
    NO_ROWS,
    NO_TARGET,
    OTHER_ROWS,
    NO_FUNCTION,
    NO_MEAN,
    NO_LOSS,
    OTHER_CALL,
    OTHER_MODE,
    WRONG_X
};

static const char *step_wrongly(rank_env *env)
{
    const mistake *m = env->arg;
    const int what = m->job.steps;
    const pipeline_job job = {.options = {.n_microbatches = 4}, .stages = env->size, .rows = 8};
    tri_tensor *narrow = pipeline_batch(0, 8, 2), *none, *loss;
    const char *wrong;
    pipeline_own own;
    uint64_t before, after;

    RANK_TRY(env, pipeline_begin(env, &job, &own));
    RANK_TRY(env, tri_module_status(own.pipe));
    RANK_TRY(env, pipeline_hash(own.pipe, &before));
    own.opt = tri_sgd(own.pipe, 0.1, NULL);
    none = tri_tensor_create(TRI_SHAPE(0, PIPELINE_WIDTH), TRI_DTYPE_F64);
    if (what == OTHER_CALL && env->rank == m->rank)
        tri_no_grad_begin();
    if (what == OTHER_MODE && env->rank == m->rank)
        tri_module_train(own.pipe, false);
    loss = tri_pipeline_step(own.pipe,
                             what == NO_X      ? NULL
                             : what == NO_ROWS ? none
                             : what == WRONG_X ? narrow
                                               : own.x,
                             what == NO_TARGET    ? NULL
                             : what == OTHER_ROWS ? none
                                                  : own.y,
                             what == NO_FUNCTION ? NULL
                             : what == NO_MEAN   ? no_mean
                             : what == NO_LOSS   ? no_loss
                                                 : pipeline_mse,
                             NULL);
    if (what == OTHER_CALL && env->rank == m->rank)
        tri_no_grad_end();
    /* a rank that others wait for later has recorded all of it */
    wrong = tri_tensor_status(loss) == TRI_OK || env->rank != m->rank
                ? check_end(env, m, tri_optimizer_step(own.opt))
                : check_end(env, m, tri_tensor_status(loss));
    if (wrong == NULL && tri_optimizer_step(own.opt) == TRI_OK)
        wrong = RANK_FAIL(env, "rank %d: an update after it succeeded", env->rank);
    tri_step_end();
    RANK_TRY(env, pipeline_hash(own.pipe, &after));
    if (wrong == NULL && before != after)
        wrong = RANK_FAIL(env, "rank %d has updated", env->rank);
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    pipeline_end(&own);
    tri_tensor_unref(narrow);
    tri_tensor_unref(none);
    return wrong;
}

/* Rank `rank` of three fails with the line, and the others get it. */
static void expect_failure(int what, int rank, tri_status status, const char *part)
{
    mistake m = {.job = {.steps = what}, .rank = rank};

    for (int r = 0; r < 3; r++) {
        m.status[r] = r == rank ? status : TRI_ERR_PEER_LOST;
        m.part[r] = part;
    }
    run_threads(3, &(tri_group_options){.timeout_ms = 20000}, step_wrongly, &m);
}

static void a_rank_that_is_refused_ends_the_others_with_its_line(void **state)
{
    (void)state;
    expect_failure(NO_X, 0, TRI_ERR_INVALID_ARG, "x is NULL on rank 0, which has the first stage");
    expect_failure(NO_ROWS, 0, TRI_ERR_INVALID_ARG, "x has no rows");
    expect_failure(NO_TARGET, 2, TRI_ERR_INVALID_ARG,
                   "target is NULL on rank 2, which has the last stage");
    expect_failure(NO_FUNCTION, 2, TRI_ERR_INVALID_ARG, "loss is NULL");
    expect_failure(OTHER_ROWS, 2, TRI_ERR_INVALID_ARG, "target has no rows");
    expect_failure(NO_MEAN, 2, TRI_ERR_INVALID_ARG, "the loss function returned 6 elements");
    expect_failure(NO_LOSS, 2, TRI_ERR_INVALID_ARG, "the loss function returned NULL");
    expect_failure(WRONG_X, 0, TRI_ERR_INVALID_ARG, "stage 0, micro-batch 0");
    expect_failure(OTHER_CALL, 1, TRI_ERR_MISMATCH,
                   "rank 1 calls tri_pipeline_step without gradients, rank 0 tri_pipeline_step");
    expect_failure(OTHER_MODE, 1, TRI_ERR_MISMATCH,
                   "the pipeline is in evaluation mode on rank 1, in training mode on rank 0");
}

static const char *forward_with_gradients(rank_env *env)
{
    tri_module *other = tri_nn_tanh();
    pipeline_own own;
    tri_status status;

    RANK_TRY(env, pipeline_begin(env, &two_stages, &own));
    tri_backward(tri_pipeline_step(own.pipe, own.x, own.y, pipeline_mse, NULL));
    status = tri_step_end_status();
    if (status != TRI_ERR_ABORTED) /* the other rank was earlier, and ended the step of this one */
        RANK_FAILS(env, status, TRI_ERR_INVALID_ARG, "");
    if (strstr(tri_last_error(), "tri_pipeline_step, which has done the backward itself") == NULL)
        return RANK_FAIL(env, "%s", tri_last_error());
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    RANK_FAILS(env, tri_tensor_status(tri_forward(own.pipe, own.x)), TRI_ERR_STATE,
               "the forward of a pipeline has no gradients: put it in TRI_NO_GRAD { }");
    tri_step_end();
    RANK_FAILS(env, tri_tensor_status(tri_pipeline_step(other, own.x, own.x, pipeline_mse, NULL)),
               TRI_ERR_INVALID_ARG, "the module is a Tanh; tri_pipeline makes pipelines");
    tri_step_end();
    pipeline_end(&own);
    tri_module_destroy(other);
    return NULL;
}

static void what_has_no_gradients_says_so(void **state)
{
    (void)state;
    run_threads(2, NULL, forward_with_gradients, NULL);
}

/* Rank 0 alone forgets it: the other one waits for its shapes. */
static const char *forget_no_grad(rank_env *env)
{
    const char *wrong;
    pipeline_own own;

    RANK_TRY(env, pipeline_begin(env, &two_stages, &own));
    if (env->rank == 1)
        tri_no_grad_begin();
    wrong = check_end(env, env->arg, tri_tensor_status(tri_forward(own.pipe, own.x)));
    if (env->rank == 1)
        tri_no_grad_end();
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    pipeline_end(&own);
    return wrong;
}

static void a_forward_that_one_rank_is_refused_ends_all(void **state)
{
    const char *line = "the forward of a pipeline has no gradients";
    mistake m = {.status = {TRI_ERR_STATE, TRI_ERR_PEER_LOST}, .part = {line, line}};

    (void)state;
    run_threads(2, &(tri_group_options){.timeout_ms = 10000}, forget_no_grad, &m);
}

/* Outputs in two parts come over the border to a layer that would take them for one. */
static const char *take_parts(rank_env *env)
{
    static const tri_parallel_rule rules[] = {{.module = "0", .style = TRI_COLWISE, .parts = 2},
                                              {.module = "2", .style = TRI_ROWWISE}};
    const mistake *m = env->arg;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(4, 3), TRI_DTYPE_F32);
    tri_tensor *y = tri_tensor_create(TRI_SHAPE(4, 2), TRI_DTYPE_F32);
    tri_mesh *mesh = NULL;
    tri_module *net =
        tri_nn_sequential(tri_nn_linear(3, 8, NULL), tri_nn_tanh(), tri_nn_linear(8, 2, NULL));
    tri_tensor *loss;
    const char *wrong;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"pipeline", "tensor"}, &mesh));
    RANK_TRY(env, tri_parallelize(net, tri_mesh_group(mesh, "tensor"), rules, 2));
    net = tri_pipeline_split(net, (const char *[]){"2"}, 2,
                             &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline")});
    RANK_TRY(env, tri_module_status(net));
    loss = tri_pipeline_step(net, x, y, pipeline_mse, NULL);
    wrong =
        check_end(env, m, tri_tensor_status(loss) == TRI_OK ? tri_run() : tri_tensor_status(loss));
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    tri_module_destroy(net);
    tri_mesh_destroy(mesh);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return wrong;
}

static void parts_of_several_are_noticed_over_the_border(void **state)
{
    const char *line = "this rank's part of each of several parts";
    mistake m = {
        .status = {TRI_ERR_PEER_LOST, TRI_ERR_PEER_LOST, TRI_ERR_INVALID_ARG, TRI_ERR_INVALID_ARG},
        .part = {line, line, line, line}};

    (void)state;
    run_threads(4, &(tri_group_options){.timeout_ms = 10000}, take_parts, &m);
}

/* Rank 1 has a bound that is none, when the pass itself has run. */
static const char *clip_wrongly(rank_env *env)
{
    const mistake *m = env->arg;
    const char *wrong;
    pipeline_own own;
    double loss;

    RANK_TRY(env, pipeline_begin(env, &two_stages, &own));
    own.opt = tri_sgd(own.pipe, 0.1, NULL);
    RANK_TRY(env,
             tri_item_status(tri_pipeline_step(own.pipe, own.x, own.y, pipeline_mse, NULL), &loss));
    RANK_TRY(env, ranks_meet(env, "ran", -1));
    (void)tri_clip_grad_norm(own.opt, env->rank == m->rank ? -1 : 1);
    wrong = check_end(env, m, tri_optimizer_step(own.opt));
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    pipeline_end(&own);
    return wrong;
}

static void a_bound_that_one_rank_has_wrong_ends_all(void **state)
{
    const char *line = "max_norm -1: it must be 0 or more";
    mistake m = {
        .rank = 1, .status = {TRI_ERR_PEER_LOST, TRI_ERR_INVALID_ARG}, .part = {line, line}};

    (void)state;
    run_threads(2, &(tri_group_options){.timeout_ms = 20000}, clip_wrongly, &m);
}

/* A norm is over one network. */
static const char *clip(rank_env *env)
{
    tri_tensor *beside = tri_tensor_create(TRI_SHAPE(3), TRI_DTYPE_F32);
    pipeline_own own;

    RANK_TRY(env, pipeline_begin(env, &two_stages, &own));
    tri_requires_grad(beside, true);
    own.opt = tri_sgd_of(
        (tri_param_group[]){{.model = own.pipe}, {.params = &beside, .n_params = 1}}, 2, 0.1, NULL);
    (void)tri_pipeline_step(own.pipe, own.x, own.y, pipeline_mse, NULL);
    tri_backward(tri_sum(tri_square(beside), NULL, 0, false));
    /* a rank that still waits for the other's note would get that one's failure */
    RANK_TRY(env, ranks_meet(env, "recorded", -1));
    (void)tri_clip_grad_norm(own.opt, 1);
    RANK_FAILS(env, tri_optimizer_step(own.opt), TRI_ERR_UNSUPPORTED,
               "is in no stage of the pipeline that has others");
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    pipeline_end(&own);
    tri_tensor_unref(beside);
    return NULL;
}

static void a_norm_over_other_parameters_is_refused(void **state)
{
    (void)state;
    run_threads(2, NULL, clip, NULL);
}

/* Its norm would be of this rank's stages. */
static const char *update_by_an_earlier_one(rank_env *env)
{
    tri_tensor *x = pipeline_batch(0, 8, PIPELINE_WIDTH), *y = pipeline_batch(0, 8, PIPELINE_OUT);
    tri_module *stages[2], *net, *pipe;
    tri_group *group = NULL;
    tri_optimizer *opt;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    pipeline_build(&two_stages, stages);
    net = tri_nn_sequential_of(2, stages);
    opt = tri_sgd(net, 0.1, NULL);
    pipe = tri_pipeline_split(net, (const char *const[]){"1"}, 2,
                              &(tri_pipeline_options){.group = group, .n_microbatches = 4});
    (void)tri_pipeline_step(pipe, x, y, pipeline_mse, NULL);
    RANK_TRY(env, ranks_meet(env, "recorded", -1));
    if (*(const bool *)env->arg)
        (void)tri_clip_grad_norm(opt, 1);
    RANK_FAILS(env, tri_optimizer_step(opt), TRI_ERR_STATE,
               "was made before tri_pipeline or tri_pipeline_split divided its network");
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_group_unref(group);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static void an_optimizer_of_the_network_before_is_refused(void **state)
{
    bool clips = false;

    (void)state;
    run_threads(2, NULL, update_by_an_earlier_one, &clips);
    clips = true;
    run_threads(2, NULL, update_by_an_earlier_one, &clips);
}

/* Rank 1 alone has batch norm, in its stage. */
static const char *share_statistics(rank_env *env)
{
    const char *wrong;
    pipeline_own own;

    RANK_TRY(env, pipeline_begin(env, &two_stages, &own));
    (void)tri_convert_sync_batch_norm(own.pipe, own.group);
    own.opt = tri_sgd(own.pipe, 0.1, NULL);
    (void)tri_pipeline_step(own.pipe, own.x, own.y, pipeline_mse, NULL);
    wrong = check_end(env, env->arg, tri_optimizer_step(own.opt));
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    pipeline_end(&own);
    return wrong;
}

static void statistics_over_other_stages_are_refused(void **state)
{
    const char *line = "SyncBatchNorm shares its statistics over ranks of this pipeline";
    mistake m = {.status = {TRI_ERR_PEER_LOST, TRI_ERR_INVALID_ARG}, .part = {line, line}};

    (void)state;
    run_threads(2, &(tri_group_options){.timeout_ms = 10000}, share_statistics, &m);
}

/* --- ranks that are lost -------------------------------------------------- */

/* Rank 1 of three goes after a step. */
static const char *leave_early(rank_env *env)
{
    const pipeline_job job = {.options = {.n_microbatches = 4}, .stages = env->size, .rows = 8};
    pipeline_own own;
    double loss;

    RANK_TRY(env, pipeline_begin(env, &job, &own));
    own.opt = tri_sgd(own.pipe, 0.1, NULL);
    RANK_TRY(env, pipeline_train(&job, own.pipe, own.opt, 0, &loss));
    if (env->rank != 1)
        RANK_FAILS(env, pipeline_train(&job, own.pipe, own.opt, 1, &loss), TRI_ERR_PEER_LOST,
                   "rank 1");
    pipeline_end(&own);
    return NULL;
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    run_threads(3, &(tri_group_options){.timeout_ms = 20000}, leave_early, NULL);
}

/* Rank 1 does not come: the others name it at the deadline. */
static const char *stay_away(rank_env *env)
{
    const pipeline_job job = {.options = {.n_microbatches = 2}, .stages = env->size, .rows = 8};
    pipeline_own own;
    double loss;

    RANK_TRY(env, pipeline_begin(env, &job, &own));
    own.opt = tri_sgd(own.pipe, 0.1, NULL);
    RANK_TRY(env, ranks_meet(env, "made", -1));
    if (env->rank == 0) {
        tri_group_set_timeout(trii_pipeline_of(own.pipe)->group, 200);
        RANK_FAILS(env, pipeline_train(&job, own.pipe, own.opt, 0, &loss), TRI_ERR_GROUP_TIMEOUT,
                   "rank 1");
    }
    RANK_TRY(env, ranks_meet(env, "waited", -1));
    pipeline_end(&own);
    return NULL;
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.timeout_ms = 20000}, stay_away, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_that_differ_are_named),
    cmocka_unit_test(a_rank_that_fails_by_itself_is_named),
    cmocka_unit_test(stages_and_options_are_checked),
    cmocka_unit_test(a_tensor_that_one_rank_does_not_share_is_refused),
    cmocka_unit_test(a_rank_that_is_refused_ends_the_others_with_its_line),
    cmocka_unit_test(what_has_no_gradients_says_so),
    cmocka_unit_test(a_forward_that_one_rank_is_refused_ends_all),
    cmocka_unit_test(parts_of_several_are_noticed_over_the_border),
    cmocka_unit_test(a_bound_that_one_rank_has_wrong_ends_all),
    cmocka_unit_test(a_norm_over_other_parameters_is_refused),
    cmocka_unit_test(an_optimizer_of_the_network_before_is_refused),
    cmocka_unit_test(statistics_over_other_stages_are_refused),
    cmocka_unit_test(a_rank_that_leaves_is_named),
    cmocka_unit_test(a_rank_that_does_not_come_is_named),
};

TEST_MAIN(tests)
