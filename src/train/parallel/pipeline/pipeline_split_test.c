/* pipeline_split_test.c - a network that is cut into stages, by names and by parameters. */
#include "testing/pipeline_ranks.h"
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_internal.h"

#define STAGES 3

typedef struct cut_job {
    tri_module *(*network)(void);
    const char *const *cuts;
    bool by_example;
    int steps;
    const char *sizes; /* modules of each rank, "0 1; 2; 3 4" */
    double want[4];    /* losses */
} cut_job;

/* Linear layers of 42, 42 and 21 numbers, with tanh between them. */
static tri_module *network(void)
{
    tri_module *net;

    trii_mutex_lock(&pipeline_drawing);
    tri_manual_seed(3);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(tri_nn_linear(PIPELINE_WIDTH, PIPELINE_WIDTH, NULL), tri_nn_tanh(),
                            tri_nn_linear(PIPELINE_WIDTH, PIPELINE_WIDTH, NULL), tri_nn_tanh(),
                            tri_nn_linear(PIPELINE_WIDTH, PIPELINE_OUT, NULL), tri_nn_tanh());
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&pipeline_drawing);
    return net;
}

/* The same, with all but the ends in sequences inside: "0", "body.0", "body.1.0" and "body.1.1",
 * "body.2", "head". */
static tri_module *deep_network(void)
{
    tri_module *net = tri_nn_sequential_of(0, NULL), *layers[3], *body;

    trii_mutex_lock(&pipeline_drawing);
    tri_manual_seed(3);
    tri_set_default_dtype(TRI_DTYPE_F64);
    for (int i = 0; i < 3; i++)
        layers[i] = tri_nn_linear(PIPELINE_WIDTH, i < 2 ? PIPELINE_WIDTH : PIPELINE_OUT, NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&pipeline_drawing);
    tri_module_add_child(net, "0", layers[0]);
    body = tri_module_add_child(net, "body", tri_nn_sequential_of(0, NULL));
    tri_module_add_child(body, "0", tri_nn_tanh());
    tri_module_add_child(body, "1", tri_nn_sequential(layers[1], tri_nn_tanh()));
    tri_module_add_child(body, "2", layers[2]);
    tri_module_add_child(net, "head", tri_nn_tanh());
    return net;
}

static const char *children_of(tri_module *pipe, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < tri_module_child_count(pipe) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? " " : "",
                                 tri_module_name(tri_module_child(pipe, i)));
    return text;
}

static const char *cut_rank(rank_env *env)
{
    const cut_job *job = env->arg;
    tri_tensor *x = pipeline_batch(0, 8, PIPELINE_WIDTH), *y = pipeline_batch(0, 8, PIPELINE_OUT);
    tri_pipeline_options options = {.n_microbatches = 4, .example = job->by_example ? x : NULL};
    tri_module *pipe, *whole;
    tri_optimizer *opt;
    char names[64], want[64], *part = want;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &options.group));
    pipe = tri_pipeline_split(job->network(), job->cuts, STAGES, &options);
    RANK_TRY(env, tri_module_status(pipe));
    snprintf(want, sizeof(want), "%s", job->sizes);
    for (int r = 0; r < env->rank; r++)
        part = strchr(part, ';') + 2;
    if (strchr(part, ';') != NULL)
        *strchr(part, ';') = '\0';
    if (strcmp(children_of(pipe, names, sizeof(names)), part) != 0)
        return RANK_FAIL(env, "rank %d has modules %s, not %s", env->rank, names, part);
    whole = job->network();
    for (int64_t i = 0; i < tri_module_state_count(pipe); i++)
        if (tri_module_find(whole, tri_module_state(pipe, i).name) == NULL)
            return RANK_FAIL(env, "rank %d has %s", env->rank, tri_module_state(pipe, i).name);
    tri_module_destroy(whole);
    opt = tri_module_parameter_count(pipe) > 0 ? tri_sgd(pipe, 0.1, NULL) : NULL;
    for (int step = 0; step < job->steps; step++) {
        tri_tensor *loss = tri_pipeline_step(pipe, x, y, pipeline_mse, NULL);
        double got = 0;

        RANK_TRY(env, opt != NULL ? tri_optimizer_step(opt) : tri_run());
        RANK_TRY(env, tri_item_status(loss, &got));
        RANK_TRY(env, tri_step_end_status());
        if (!(fabs(got - job->want[step]) <= 1e-9))
            return RANK_FAIL(env, "loss %d is %.17g, not %.17g", step, got, job->want[step]);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_group_unref(options.group);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static void expect_job(cut_job job)
{
    tri_tensor *x = pipeline_batch(0, 8, PIPELINE_WIDTH), *y = pipeline_batch(0, 8, PIPELINE_OUT);
    tri_module *net = network();
    tri_optimizer *opt = tri_sgd(net, 0.1, NULL);

    for (int step = 0; step < job.steps; step++) {
        tri_tensor *loss = tri_mse_loss(tri_forward(net, x), y, NULL);

        tri_backward(loss);
        CHECK_OK(tri_optimizer_step(opt));
        job.want[step] = tri_item(loss);
        tri_step_end();
    }
    run_threads(STAGES, NULL, cut_rank, &job);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void expect_cut_of(tri_module *(*make)(void), const char *const *cuts, const char *sizes)
{
    expect_job((cut_job){.network = make, .cuts = cuts, .steps = 3, .sizes = sizes});
}

static void expect_cut(const char *const *cuts, const char *sizes)
{
    expect_cut_of(network, cuts, sizes);
}

static void sequences_inside_are_cut_too(void **state)
{
    (void)state;
    expect_cut_of(deep_network, (const char *const[]){"body", "body.1.1"}, "0; body; body head");
    expect_cut_of(deep_network, (const char *const[]){"body.1", "head"}, "0 body; body; head");
    expect_cut_of(deep_network, NULL, "0 body; body; body head");
    /* in the first step, with what the example has recorded of modules that are not here */
    expect_job((cut_job){.network = deep_network,
                         .by_example = true,
                         .steps = 3,
                         .sizes = "0 body; body; body head"});
}

static void a_network_is_cut_at_names(void **state)
{
    (void)state;
    expect_cut((const char *const[]){"2", "4"}, "0 1; 2 3; 4 5");
    expect_cut((const char *const[]){"1", "5"}, "0; 1 2 3 4; 5"); /* the last has no parameters */
}

static void a_network_is_cut_where_parameters_are_equal(void **state)
{
    (void)state;
    expect_cut(NULL, "0 1; 2 3; 4 5");
}

/* 7 | 1 1 1 1 | 1 1 1: the largest is as small as it can be, whatever the others are. */
static void no_cut_has_a_smaller_largest_stage(void **state)
{
    static const int widths[] = {5, 1, 1, 2, 1, 4, 1, 3};
    enum { MODULES = sizeof(widths) / sizeof(widths[0]) };
    tri_module *list[MODULES];
    int64_t weights[MODULES], best;

    (void)state;
    for (int i = 0; i < MODULES; i++)
        weights[i] = 1 + widths[i];
    for (int stages = 1; stages <= MODULES; stages++) {
        tri_group *group = NULL;
        tri_store *store = NULL;
        tri_module *pipe;

        CHECK_OK(tri_store_hash(&store));
        CHECK_OK(tri_group_create(store, 0, 1, NULL, &group));
        for (int i = 0; i < MODULES; i++)
            list[i] = tri_nn_linear(widths[i], 1, NULL);
        best = INT64_MAX;
        for (unsigned cuts = 0; cuts < 1u << (MODULES - 1); cuts++) {
            int64_t sum = 0, largest = 0;

            if (__builtin_popcount(cuts) != stages - 1)
                continue;
            for (int i = 0; i < MODULES; i++) {
                sum += weights[i];
                largest = sum > largest ? sum : largest;
                if ((cuts >> i & 1) != 0)
                    sum = 0;
            }
            best = largest < best ? largest : best;
        }
        pipe = tri_pipeline_split(
            tri_nn_sequential_of(MODULES, list), NULL, stages,
            &(tri_pipeline_options){.group = group, .schedule = TRI_PIPELINE_LOOPED_BFS});
        CHECK_OK(tri_module_status(pipe));
        assert_int_equal(tri_module_child_count(pipe), MODULES);
        for (int s = 0; s < stages; s++) {
            int64_t sum = 0;
            const trii_pipeline *p = trii_pipeline_of(pipe);

            assert_true(p->first[s + 1] > p->first[s]);
            for (int i = p->first[s]; i < p->first[s + 1]; i++)
                sum += weights[i];
            assert_true(sum <= best);
        }
        tri_module_destroy(pipe);
        tri_group_unref(group);
        tri_store_unref(store);
    }
}

/* --- refused -------------------------------------------------------------- */

static void refuse(tri_group *group, tri_module *net, const char *const *cuts, int stages,
                   const char *part)
{
    tri_module *pipe = tri_pipeline_split(
        net, cuts, stages,
        &(tri_pipeline_options){.group = group, .schedule = TRI_PIPELINE_LOOPED_BFS});

    CHECK_FAILS(tri_module_status(pipe), TRI_ERR_INVALID_ARG, part);
    tri_module_destroy(pipe);
}

static void cuts_are_checked(void **state)
{
    tri_group *group = NULL;
    tri_store *store = NULL;
    tri_module *outer;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_group_create(store, 0, 1, NULL, &group));
    refuse(group, NULL, NULL, 2, "own_net is NULL");
    refuse(group, tri_nn_linear(2, 2, NULL), NULL, 1, "the network is a Linear");
    refuse(group, network(), NULL, 7, "7 stages of a network of 6 modules");
    refuse(group, network(), NULL, 0, "0 stages of a network of 6 modules");
    refuse(group, tri_nn_sequential_of(0, NULL), NULL, 1, "1 stages of a network of 0 modules");
    refuse(group, network(), (const char *const[]){"9"}, 2,
           "no module of the network is called \"9\" (\"0\" to \"5\")");
    refuse(group, deep_network(), (const char *const[]){"body.2.weight"}, 2,
           "\"body.2.weight\" is inside of \"body.2\", which is a Linear: only a "
           "tri_nn_sequential is cut inside");
    refuse(group, network(), (const char *const[]){"0"}, 2,
           "stage 1 cannot begin with \"0\", since the stage before begins with \"0\"");
    refuse(group, network(), (const char *const[]){"3", "2"}, 3, "stage 2 cannot begin with \"2\"");
    refuse(group, network(), (const char *const[]){NULL}, 2, "cuts[0] is NULL");
    outer = network();
    tri_module_add_buffer(outer, "mean", tri_tensor_create(TRI_SHAPE(1), TRI_DTYPE_F32));
    refuse(group, outer, NULL, 2, "the network has mean of its own, which no stage would have");
    outer = tri_nn_sequential(network());
    refuse(group, tri_module_child(outer, 0), NULL, 2, "a part of another module");
    CHECK_OK(tri_module_status(outer));
    tri_module_destroy(outer);
    tri_group_unref(group);
    tri_store_unref(store);
}

static void what_the_network_computes_again_its_modules_do(void **state)
{
    tri_module *net = network(), *pipe;
    tri_group *group = NULL;
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_group_create(store, 0, 1, NULL, &group));
    tri_module_set_recompute(net, true);
    pipe = tri_pipeline_split(
        net, NULL, 2, &(tri_pipeline_options){.group = group, .schedule = TRI_PIPELINE_LOOPED_BFS});
    CHECK_OK(tri_module_status(pipe));
    for (int i = 0; i < tri_module_child_count(pipe); i++)
        assert_true(tri_module_child(pipe, i)->recompute);
    tri_module_destroy(pipe);
    tri_group_unref(group);
    tri_store_unref(store);
}

/* An optimizer of the network instead of the pipeline: refused, and nothing freed is read. */
static void expect_refused(tri_group *group, int stages, tri_status wanted, const char *line)
{
    tri_module *net = network();
    tri_module *pipe = tri_pipeline_split(
        net, NULL, stages,
        &(tri_pipeline_options){.group = group, .schedule = TRI_PIPELINE_LOOPED_BFS});
    tri_optimizer *opt = tri_adamw(net, 1e-3, NULL);

    CHECK_FAILS(tri_optimizer_status(opt), wanted, line);
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
}

static void a_network_that_was_taken_apart_is_refused(void **state)
{
    tri_group *group = NULL;
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_group_create(store, 0, 1, NULL, &group));
    expect_refused(group, 2, TRI_ERR_STATE,
                   "tri_pipeline_split has taken this network apart: use the module that it "
                   "returned");
    expect_refused(group, 7, TRI_ERR_INVALID_ARG, "7 stages of a network of 6 modules");
    tri_group_unref(group);
    tri_store_unref(store);
}

static const char *cut_differently(rank_env *env)
{
    tri_group *group = NULL;
    tri_module *pipe;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    pipe = tri_pipeline_split(network(), (const char *const[]){env->rank == 0 ? "2" : "3"}, 2,
                              &(tri_pipeline_options){.group = group});
    RANK_FAILS(env, tri_module_status(pipe), TRI_ERR_MISMATCH, ", cut at other modules; rank 0");
    tri_module_destroy(pipe);
    tri_group_unref(group);
    return NULL;
}

static void ranks_that_cut_differently_are_named(void **state)
{
    (void)state;
    run_threads(2, NULL, cut_differently, NULL);
}

/* --- by operations -------------------------------------------------------- */

/* Most parameters are in module 4, most operations in module 0. */
static tri_module *image_network(void)
{
    return tri_nn_sequential(tri_nn_conv2d(1, 4, 3, NULL), tri_nn_batch_norm2d(4, NULL),
                             tri_nn_max_pool2d(2, NULL), tri_nn_flatten(1),
                             tri_nn_linear(4 * 4 * 4, 16, NULL), tri_nn_dropout(0.5),
                             tri_nn_linear(16, 16, NULL));
}

static int first_of_stage_1(tri_group *group, tri_tensor *example)
{
    tri_module *pipe = tri_pipeline_split(
        image_network(), NULL, 2,
        &(tri_pipeline_options){
            .group = group, .schedule = TRI_PIPELINE_LOOPED_BFS, .example = example});
    tri_tensor *mean = tri_module_find(pipe, "1.running_mean");
    float means[4];
    int first;

    CHECK_OK(tri_module_status(pipe));
    first = trii_pipeline_of(pipe)->first[1];
    CHECK_OK(tri_step_end_status());
    assert_true(tri_module_is_training(tri_module_submodule(pipe, "5")));
    CHECK_OK(tri_tensor_copy_out(mean, means, sizeof(means)));
    assert_true(means[0] == 0);
    tri_module_destroy(pipe);
    return first;
}

static void a_network_is_cut_where_operations_are_equal(void **state)
{
    tri_tensor *image = tri_tensor_create(TRI_SHAPE(2, 1, 10, 10), TRI_DTYPE_F32);
    tri_tensor *wrong = tri_tensor_create(TRI_SHAPE(2, 3, 10, 10), TRI_DTYPE_F32);
    tri_group *group = NULL;
    tri_store *store = NULL;
    tri_module *pipe;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_group_create(store, 0, 1, NULL, &group));
    assert_int_equal(first_of_stage_1(group, NULL), 6);
    assert_int_equal(first_of_stage_1(group, image), 1);
    pipe = tri_pipeline_split(image_network(), NULL, 2,
                              &(tri_pipeline_options){.group = group,
                                                      .schedule = TRI_PIPELINE_LOOPED_BFS,
                                                      .example = wrong});
    CHECK_FAILS(tri_module_status(pipe), TRI_ERR_INVALID_ARG, ": options.example: 0: tri_conv");
    tri_step_end();
    tri_module_destroy(pipe);
    tri_tensor_unref(image);
    tri_tensor_unref(wrong);
    tri_group_unref(group);
    tri_store_unref(store);
}

/* Messages of the example's forward wait for no later call of the other rank. */
static const char *count_cut_layers(rank_env *env)
{
    static const tri_parallel_rule rules[] = {{.module = "0", .style = TRI_COLWISE},
                                              {.module = "2", .style = TRI_ROWWISE}};
    tri_tensor *x = pipeline_batch(0, 2, PIPELINE_WIDTH);
    tri_module *pipe = network();
    tri_mesh *mesh = NULL;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(1, 2), (const char *[]){"pipeline", "tensor"}, &mesh));
    RANK_TRY(env, tri_parallelize(pipe, tri_mesh_group(mesh, "tensor"), rules, 2));
    pipe = tri_pipeline_split(
        pipe, NULL, 1,
        &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline"), .example = x});
    RANK_TRY(env, tri_module_status(pipe));
    if (env->rank == 0)
        RANK_TRY(env, tri_run());
    RANK_TRY(env, ranks_meet(env, "ran", -1));
    RANK_TRY(env, tri_step_end_status());
    tri_module_destroy(pipe);
    tri_mesh_destroy(mesh);
    tri_tensor_unref(x);
    return NULL;
}

static void an_example_leaves_no_messages(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.timeout_ms = 20000}, count_cut_layers, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_network_is_cut_at_names),
    cmocka_unit_test(a_network_is_cut_where_parameters_are_equal),
    cmocka_unit_test(a_network_is_cut_where_operations_are_equal),
    cmocka_unit_test(an_example_leaves_no_messages),
    cmocka_unit_test(sequences_inside_are_cut_too),
    cmocka_unit_test(no_cut_has_a_smaller_largest_stage),
    cmocka_unit_test(cuts_are_checked),
    cmocka_unit_test(a_network_that_was_taken_apart_is_refused),
    cmocka_unit_test(what_the_network_computes_again_its_modules_do),
    cmocka_unit_test(ranks_that_cut_differently_are_named),
};

TEST_MAIN(tests)
