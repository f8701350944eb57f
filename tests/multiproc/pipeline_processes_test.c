/* pipeline_processes_test.c - the ranks of a pipeline as processes, over shared memory and over
 * sockets; one of them is killed while the others wait for its gradients. */
#include "testing/pipeline_ranks.h"

/* Each process compares with itself alone, since the parent of a fork has no threads. */
static const char *train_and_compare(rank_env *env)
{
    pipeline_job job = {.options = {.n_microbatches = 4, .schedule = TRI_PIPELINE_INTERLEAVED},
                        .stages = 4,
                        .rows = 10,
                        .steps = 4};
    pipeline_result *want = calloc(1, sizeof(*want));
    const char *wrong;

    if (want == NULL)
        return "no memory";
    pipeline_one_process(&job, want);
    job.want = want;
    env->arg = &job;
    wrong = pipeline_rank(env);
    free(want);
    return wrong;
}

static void processes_train_as_one(void **state)
{
    (void)state;
    run_processes(2, &(tri_group_options){.engine = "shm"}, train_and_compare, NULL, NULL, 60);
    run_processes(2, &(tri_group_options){.engine = "tcp"}, train_and_compare, NULL, NULL, 60);
}

/* Only the last rank calls it. */
static tri_tensor *loss_of_a_victim(tri_tensor *output, tri_tensor *target, void *arg)
{
    int *calls = arg;

    if (++*calls == 7) /* the third micro-batch of the second step */
        raise(SIGKILL);
    return tri_mse_loss(output, target, NULL);
}

static const char *train_until_one_dies(rank_env *env)
{
    const pipeline_job job = {.options = {.n_microbatches = 4}, .stages = env->size, .rows = 8};
    tri_tensor *x = pipeline_batch(0, 8, PIPELINE_WIDTH), *y = pipeline_batch(0, 8, PIPELINE_OUT);
    tri_group *group = NULL;
    tri_module *pipe;
    tri_optimizer *opt;
    uint64_t before = 0, after = 0;
    int calls = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    pipe = pipeline_make(&job, group);
    opt = tri_sgd(pipe, 0.1, NULL);
    for (int step = 0; step < 2; step++) {
        RANK_TRY(env, pipeline_hash(pipe, &before));
        (void)tri_pipeline_step(pipe, x, y, loss_of_a_victim, &calls);
        if (step == 0)
            RANK_TRY(env, tri_optimizer_step(opt));
        else
            RANK_FAILS(env, tri_optimizer_step(opt), TRI_ERR_PEER_LOST, "rank 2");
        tri_step_end();
    }
    RANK_TRY(env, pipeline_hash(pipe, &after));
    if (before != after)
        return RANK_FAIL(env, "rank %d has updated", env->rank);
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_group_unref(group);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static void a_rank_that_is_killed_is_named(void **state)
{
    const rank_end ends[3] = {{0}, {0}, {.signal = SIGKILL}};

    (void)state;
    run_processes(3, &(tri_group_options){.engine = "shm", .timeout_ms = 30000},
                  train_until_one_dies, NULL, ends, 60);
    run_processes(3, &(tri_group_options){.engine = "tcp", .timeout_ms = 30000},
                  train_until_one_dies, NULL, ends, 60);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(processes_train_as_one),
    cmocka_unit_test(a_rank_that_is_killed_is_named),
};

TEST_MAIN(tests)
