/* pipeline_replicas_errors_test.c - pipelines side by side under tri_ddp: what is wrapped wrongly
 * is refused, and a rank that fails ends all of them. */
#include "testing/pipeline_ranks.h"

/* Two pipelines of two stages. */
static const char *with_replicas(rank_env *env,
                                 const char *(*check)(rank_env *env, tri_group *stages,
                                                      tri_group *data))
{
    tri_mesh *mesh = NULL;
    const char *wrong;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"data", "pipeline"}, &mesh));
    wrong = check(env, tri_mesh_group(mesh, "pipeline"), tri_mesh_group(mesh, "data"));
    tri_mesh_destroy(mesh);
    return wrong;
}

static const pipeline_job two_stages = {.options = {.n_microbatches = 4}, .stages = 2, .rows = 8};

static tri_tensor *empty_loss(void *arg)
{
    (void)arg;
    return NULL;
}

static tri_status no_update(void *arg)
{
    (void)arg;
    return TRI_OK;
}

static const char *wrap_wrongly(rank_env *env, tri_group *stages, tri_group *data)
{
    tri_tensor *x = pipeline_batch(0, 8, PIPELINE_WIDTH), *y = pipeline_batch(0, 8, PIPELINE_OUT);
    tri_module *pipe = pipeline_make(&two_stages, stages), *model;

    RANK_FAILS(
        env,
        tri_parallelize(pipe, data, &(tri_parallel_rule){.module = "0", .style = TRI_COLWISE}, 1),
        TRI_ERR_STATE, "the module is a pipeline: cut the network before tri_pipeline");
    model = tri_ddp(pipe, &(tri_ddp_options){.group = stages});
    RANK_FAILS(env, tri_module_status(model), TRI_ERR_INVALID_ARG,
               "is in a stage of a pipeline, of which other ranks of this group have other stages");
    tri_module_destroy(model);
    pipe = pipeline_make(&two_stages, stages);
    model = tri_ddp(pipe, &(tri_ddp_options){.group = data});
    RANK_TRY(env, tri_module_status(model));
    RANK_FAILS(env, tri_ddp_join(model, empty_loss, no_update, NULL, NULL), TRI_ERR_UNSUPPORTED,
               "the pipeline would need rows");
    RANK_FAILS(env, tri_tensor_status(tri_pipeline_step(pipe, x, y, pipeline_mse, NULL)),
               TRI_ERR_INVALID_ARG, "give tri_pipeline_step that model");
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static const char *wrap(rank_env *env)
{
    return with_replicas(env, wrap_wrongly);
}

static void replicas_are_those_of_one_stage(void **state)
{
    (void)state;
    run_threads(4, NULL, wrap, NULL);
}

/* The first rank of all gives no batch: all four end, and nothing is updated. */
static const char *fail_one(rank_env *env, tri_group *stages, tri_group *data)
{
    tri_tensor *x = pipeline_batch(0, 8, PIPELINE_WIDTH), *y = pipeline_batch(0, 8, PIPELINE_OUT);
    tri_module *model =
        tri_ddp(pipeline_make(&two_stages, stages), &(tri_ddp_options){.group = data});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    uint64_t before, after;
    tri_status status;

    RANK_TRY(env, pipeline_hash(model, &before));
    RANK_TRY(env, ranks_meet(env, "made", -1)); /* a group that ends is not being made any more */
    (void)tri_pipeline_step(model, env->rank == 0 ? NULL : x, y, pipeline_mse, NULL);
    status = tri_optimizer_step(opt);
    /* over three groups the line may be too long for the reason of the first */
    if (status == TRI_OK || (strstr(tri_last_error(), "x is NULL") == NULL &&
                             strstr(tri_last_error(), "aborted the group") == NULL))
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(status),
                         tri_last_error());
    tri_step_end();
    RANK_TRY(env, pipeline_hash(model, &after));
    if (before != after)
        return RANK_FAIL(env, "rank %d has updated its stage", env->rank);
    RANK_TRY(env, ranks_meet(env, "failed", -1));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static const char *fail_with_replicas(rank_env *env)
{
    return with_replicas(env, fail_one);
}

static void a_rank_that_fails_ends_all_replicas(void **state)
{
    (void)state;
    run_threads(4, &(tri_group_options){.timeout_ms = 20000}, fail_with_replicas, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(replicas_are_those_of_one_stage),
    cmocka_unit_test(a_rank_that_fails_ends_all_replicas),
};

TEST_MAIN(tests)
