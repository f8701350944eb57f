/*
 * strategies_errors_test.c - what does not compose says with which and why; a rank with another
 * model, group or strategy is named with what differs.
 */
#include "strategies.h"

/* --- what does not compose ------------------------------------------------ */

static tri_module *layer(void)
{
    return tri_nn_sequential(tri_nn_linear(4, 4, NULL), tri_nn_relu());
}

static void refused(tri_module *model, const char *words)
{
    CHECK_FAILS(tri_module_status(model), TRI_ERR_INVALID_ARG, words);
    tri_module_destroy(model);
}

static void data_parallel_goes_into_no_other(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    refused(tri_data_parallel(tri_data_parallel(layer(), NULL), NULL),
            "tri_data_parallel: the network has a DataParallel inside (itself), which would cut "
            "each piece again");
    refused(tri_data_parallel(tri_nn_sequential(layer(), tri_data_parallel(layer(), NULL)), NULL),
            "tri_data_parallel: the network has a DataParallel inside (1)");
}

static void ddp_goes_around_data_parallel(void **state)
{
    tri_module *model;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    refused(tri_data_parallel(tri_ddp(layer(), NULL), NULL),
            "tri_data_parallel: the network has a DistributedDataParallel inside (itself), which "
            "would run once for each device: put it around tri_data_parallel");
    refused(tri_data_parallel(tri_nn_sequential(tri_ddp(layer(), NULL), layer()), NULL),
            "a DistributedDataParallel inside (0)");
    model = tri_ddp(tri_nn_sequential(layer(), tri_data_parallel(layer(), NULL)), NULL);
    CHECK_OK(tri_module_status(model));
    tri_module_destroy(model);
    tri_finalize();
}

/* What a program looks at is often the optimizer, lines later. */
static void an_error_names_the_line_of_its_call(void **state)
{
    static const char *const calls[] = {"tri_ddp", "tri_zero", "tri_fully_shard", "tri_pipeline",
                                        "tri_pipeline_split"};
    tri_module *models[5];
    int first = __LINE__ + 1;
    models[0] = tri_ddp(NULL, NULL);
    models[1] = tri_zero(NULL, NULL);
    models[2] = tri_fully_shard(NULL, NULL);
    models[3] = tri_pipeline(NULL, 1, NULL);
    models[4] = tri_pipeline_split(NULL, NULL, 1, NULL);

    (void)state;
    for (int i = 0; i < 5; i++) {
        tri_optimizer *opt = tri_sgd(models[i], 0.1, NULL);
        char line[200];

        (void)snprintf(line, sizeof(line), "%s at %s:%d: own_", calls[i], __FILE__, first + i);
        CHECK_FAILS(tri_optimizer_status(opt), TRI_ERR_INVALID_ARG, line);
        assert_true(strncmp(tri_last_error(), line, strlen(line)) == 0); /* once */
        tri_optimizer_destroy(opt);
        tri_module_destroy(models[i]);
    }
    tri_finalize();
}

static void a_parameter_is_averaged_once(void **state)
{
    tri_module *model, *net = layer();
    tri_tensor *weight;

    (void)state;
    refused(tri_ddp(tri_ddp(layer(), NULL), NULL),
            ": the network has a model of tri_ddp inside (itself), whose gradients are "
            "averaged already");
    refused(tri_ddp(tri_nn_sequential(layer(), tri_ddp(layer(), NULL)), NULL),
            ": the network has a model of tri_ddp inside (1)");
    model = tri_nn_sequential(tri_ddp(layer(), NULL), tri_ddp(layer(), NULL)); /* side by side */
    CHECK_OK(tri_module_status(model));
    tri_module_destroy(model);
    model = tri_ddp(layer(), NULL);
    weight = tri_module_find(model, "0.weight");
    tri_module_add_parameter(net, "shared", tri_tensor_ref(weight));
    refused(tri_ddp(net, NULL), ": shared is trained by another model of tri_ddp");
    tri_requires_grad(weight, false);
    net = layer();
    tri_module_add_parameter(net, "shared", tri_tensor_ref(weight));
    tri_requires_grad(weight, false);
    net = tri_ddp(net, NULL);
    CHECK_OK(tri_module_status(net));
    tri_module_destroy(net);
    tri_module_destroy(model);
    tri_finalize();
}

static void data_parallel_cuts_no_network_on_several_devices(void **state)
{
    tri_module *net = layer(), *model;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(6, 4), TRI_DTYPE_F32);

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    net = tri_nn_sequential(net, layer());
    CHECK_OK(tri_module_to(tri_module_submodule(net, "1"), TRI_CPU(1)));
    model = tri_data_parallel(net, NULL);
    CHECK_FAILS(
        tri_tensor_status(tri_forward(model, x)), TRI_ERR_INVALID_ARG,
        "1.0.weight lies on cpu:1, and device_ids[0] is cpu:0: tri_module_to moves the network "
        "there; one that spans several devices cannot be copied to each");
    tri_step_end();
    tri_module_destroy(model);
    tri_tensor_unref(x);
}

/* --- ranks that differ ---------------------------------------------------- */

typedef enum other { NOTHING, COLLECTIVES, GROUP } other;

typedef struct unlike {
    const kind *k[2];
    composition c[2];
    other second; /* what rank 1 does instead */
    const char *words[2];
} unlike;

static const char *go_alone(rank_env *env, const unlike *u, tri_group *group, tri_status *st)
{
    double one = 1;
    tri_group *alone = NULL;
    tri_module *model;

    if (u->second == COLLECTIVES) {
        *st = tri_all_reduce(group, &one, &one, 1, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL);
        return NULL;
    }
    RANK_TRY(env,
             tri_group_create(env->store, 0, 1, &(tri_group_options){.name = "alone"}, &alone));
    model = tri_ddp(mlp_build(), &(tri_ddp_options){.group = alone});
    *st = tri_module_status(model);
    tri_module_destroy(model);
    tri_group_unref(alone);
    return NULL;
}

static const char *unlike_main(rank_env *env)
{
    const unlike *u = env->arg;
    const char *words = u->words[env->rank];
    tri_group *group = NULL;
    job *j = calloc(1, sizeof(*j));
    const char *failure = NULL, *said = NULL;
    tri_status st = TRI_OK;

    *j = (job){.k = u->k[env->rank], .c = u->c[env->rank], .name = "ranks that differ"};
    RANK_TRY(env, tri_group_create(env->store, env->rank, 2, NULL, &group));
    if (u->second == GROUP) /* of calls that nobody else makes, however long one waits */
        tri_group_set_timeout(group, 200);
    if (env->rank == 1 && u->second != NOTHING) {
        failure = go_alone(env, u, group, &st);
        said = tri_last_error();
    } else {
        said = train_rank(env, group, j);
        st = said != NULL ? TRI_ERR_MISMATCH : TRI_OK;
    }
    if (failure == NULL && (st == TRI_OK) != (words == NULL))
        failure = RANK_FAIL(env, "rank %d: %s", env->rank, tri_status_name(st));
    else if (failure == NULL && words != NULL && strstr(said, words) == NULL) {
        fprintf(stderr, "rank %d: %s\n", env->rank, said);
        failure = RANK_FAIL(env, "that does not contain \"%s\"", words);
    }
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "end", -1));
    tri_group_unref(group);
    free(j);
    return failure;
}

static const composition two_ranks = {.ranks = 2};

static void expect_both(const kind *a, const composition *ca, const kind *b, const composition *cb,
                        const char *words)
{
    unlike u = {.k = {a, b}, .c = {*ca, *cb}, .words = {words, words}};

    run_threads(2, NULL, unlike_main, &u);
}

static void another_model_is_named(void **state)
{
    (void)state;
    expect_both(&mlp, &two_ranks, &gpt, &two_ranks,
                "rank 1 has wte.weight f64[11, 8], rank 0 has 0.0.weight f64[12, 16]");
    expect_both(&batch_norm, &two_ranks, &sync_norm, &two_ranks,
                "rank 1 has 0.2.weight in a SyncBatchNorm, rank 0 has 0.2.weight in a BatchNorm2d");
}

static void another_strategy_is_named(void **state)
{
    const composition hook = {.ranks = 2, .hook = sum_hook},
                      small = {.ranks = 2, .small_buckets = true};
    unlike u = {
        .k = {&mlp, &mlp},
        .c = {two_ranks, two_ranks},
        .second = COLLECTIVES,
        .words = {"rank 1 calls all_reduce #1 of 1 f64", "rank 0 calls all_reduce #1 of 1 "}};

    (void)state;
    expect_both(&mlp, &two_ranks, &mlp, &hook, "a hook");
    expect_both(&mlp, &small, &mlp, &two_ranks,
                "rank 1 has options: buckets of 1048576 and 26214400 bytes, rank 0 has options: "
                "buckets of 256 "
                "and 600 bytes");
    run_threads(2, NULL, unlike_main, &u);
}

static void other_settings_are_found_by_verify(void **state)
{
    const composition adamw = {.ranks = 2, .update = ADAMW},
                      clipped = {.ranks = 2, .update = SGD_CLIP};

    (void)state;
    expect_both(&mlp, &two_ranks, &mlp, &adamw,
                "0.0.weight f64[12, 16] of rank 1 differs from rank 0's in its bits");
    expect_both(&gpt, &two_ranks, &gpt, &clipped,
                "wte.weight f64[11, 8] of rank 1 differs from rank 0's in its bits");
}

static void another_group_is_waited_for_by_name(void **state)
{
    unlike u = {
        .k = {&mlp, &mlp}, .c = {two_ranks, two_ranks}, .second = GROUP, .words = {"rank 1", NULL}};

    (void)state;
    run_threads(2, NULL, unlike_main, &u);
}

/* Of three ranks the last has a group without rank 0. */
static const char *apart_main(rank_env *env)
{
    static const int ranks[2] = {1, 2};
    tri_group *group = NULL, *part = NULL;
    tri_module *model;
    const char *failure = NULL;
    bool last = env->rank == 2;

    RANK_TRY(env, tri_group_create(env->store, env->rank, 3, NULL, &group));
    RANK_TRY(env, tri_group_new(group, ranks, 2, NULL, &part));
    tri_group_set_timeout(last ? part : group, 2000);
    model = tri_ddp(mlp_build(), &(tri_ddp_options){.group = last ? part : group});
    if (tri_module_status(model) == TRI_OK ||
        strstr(tri_last_error(), last ? ": over a group of 2, in which this is rank 1: "
                                      : ": over a group of 3, in which this is rank ") == NULL ||
        strstr(tri_last_error(), last ? " for rank 0 " : " for rank 2 ") == NULL ||
        (last && strstr(tri_last_error(), "all ranks of its group do these") == NULL))
        failure = RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    tri_module_destroy(model);
    RANK_TRY(env, ranks_meet(env, "end", -1));
    tri_group_unref(part);
    tri_group_unref(group);
    return failure;
}

static void a_group_without_some_is_told_by_numbers(void **state)
{
    (void)state;
    run_threads(3, NULL, apart_main, NULL);
}

/* Of two ranks, rank 1 is not listed: it must not train with the world instead. */
static const char *outside_main(rank_env *env)
{
    static const int ranks[1] = {0};
    tri_group *group = NULL, *part = NULL;
    tri_module *model = mlp_build();
    tri_status expected = env->rank == 0 ? TRI_OK : TRI_ERR_INVALID_ARG;
    const char *failure = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, 2, NULL, &group));
    RANK_TRY(env, tri_group_new(group, ranks, 1, NULL, &part));
    if (tri_module_broadcast(model, part, 0) != expected)
        failure = RANK_FAIL(env, "rank %d: broadcast: %s", env->rank, tri_last_error());
    model = tri_ddp(model, &(tri_ddp_options){.group = part});
    if (tri_module_status(model) != expected ||
        (env->rank == 1 && strstr(tri_last_error(), ": options.group: this process is not a "
                                                    "member of the group") == NULL))
        failure = RANK_FAIL(env, "rank %d: tri_ddp: %s", env->rank, tri_last_error());
    tri_module_destroy(model);
    model = tri_nn_sync_batch_norm(3, &(tri_nn_sync_batch_norm_options){.group = part});
    if (tri_tensor_status(tri_forward(model, tri_ones(TRI_SHAPE(4, 3), TRI_DTYPE_F32))) != expected)
        failure = RANK_FAIL(env, "rank %d: SyncBatchNorm: %s", env->rank, tri_last_error());
    tri_step_end();
    tri_module_destroy(model);
    RANK_TRY(env, ranks_meet(env, "end", -1));
    tri_group_unref(part);
    tri_group_unref(group);
    return failure;
}

static void a_rank_outside_the_group_is_refused(void **state)
{
    (void)state;
    run_threads(2, NULL, outside_main, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(data_parallel_goes_into_no_other),
    cmocka_unit_test(ddp_goes_around_data_parallel),
    cmocka_unit_test(an_error_names_the_line_of_its_call),
    cmocka_unit_test(a_parameter_is_averaged_once),
    cmocka_unit_test(data_parallel_cuts_no_network_on_several_devices),
    cmocka_unit_test(another_model_is_named),
    cmocka_unit_test(another_strategy_is_named),
    cmocka_unit_test(other_settings_are_found_by_verify),
    cmocka_unit_test(another_group_is_waited_for_by_name),
    cmocka_unit_test(a_group_without_some_is_told_by_numbers),
    cmocka_unit_test(a_rank_outside_the_group_is_refused),
};

TEST_MAIN(tests)
