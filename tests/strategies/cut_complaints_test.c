/*
 * cut_complaints_test.c - what users of other systems have had to complain of when the network
 * itself was cut over ranks, into stages or layer by layer, and what they get here. Each case names
 * the issues; owner/name#n is https://github.com/owner/name/issues/n.
 *
 * Clipping over stages and parts, norms under sequence parallelism, skip connections, and parts in
 * checkpoints have tests of their own beside their code.
 */
/* ctest: start=first */
#include "cut_training.h"
#include "train/graph/step/host_op.h"
#include "train/graph/step/step.h"

static const struct {
    tri_pipeline_schedule schedule;
    int stages_per_rank;
} schedules[] = {{TRI_PIPELINE_1F1B, 1},        {TRI_PIPELINE_GPIPE, 1},
                 {TRI_PIPELINE_INTERLEAVED, 2}, {TRI_PIPELINE_LOOPED_BFS, 2},
                 {TRI_PIPELINE_ZERO_BUBBLE, 1}, {TRI_PIPELINE_ZBV, 2}};

/* --- batches -------------------------------------------------------------- */

/* pytorch/pytorch#126600, deepspeedai/DeepSpeed#3195, pytorch/torchtitan#775: batches that do not
 * divide, sequences of another length, or fewer samples than micro-batches hang, or are cut to the
 * first one's size. */
static void batches_may_have_any_size_in_each_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(schedules); i++) {
        train((training){.w = {.pipeline = 2,
                               .stages_per_rank = schedules[i].stages_per_rank,
                               .microbatches = 4,
                               .schedule = schedules[i].schedule},
                         .steps = 6,
                         .shape = {{8, 2}, {3, 5}, {1, 1}, {11, 3}, {2, 7}, {8, 2}}});
    }
    train((training){.w = {.pipeline = 4, .microbatches = 3},
                     .steps = 4,
                     .shape = {{7, 1}, {1, 2}, {2, 1}, {100, 2}}});
    train((training){.w = {.tensor = 3}, .steps = 4, .shape = {{7, 1}, {1, 2}, {2, 1}, {100, 2}}});
}

static const char *give_another_width(rank_env *env)
{
    static const training t = {.steps = 1, .shape = {{4, 2}}};
    tri_module *stages[2];
    tri_tensor *x = batch_of(&t, 0, 0, 4, IN), *y = batch_of(&t, 0, 0, 4, OUT);
    tri_group *group = NULL;
    tri_module *pipe;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    trii_mutex_lock(&drawing);
    tri_set_default_dtype(TRI_DTYPE_F64);
    stages[0] = tri_nn_linear(IN, 8, NULL);
    stages[1] = tri_nn_linear(7, OUT, NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    pipe = tri_pipeline(stages, 2, &(tri_pipeline_options){.group = group, .n_microbatches = 2});
    (void)tri_pipeline_step(pipe, x, y, mean_square, NULL);
    if (tri_run() == TRI_OK || strstr(tri_last_error(), "[2, 2, 8]") == NULL ||
        strstr(tri_last_error(), "[3, 7]") == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    tri_step_end();
    tri_module_destroy(pipe);
    tri_group_unref(group);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

/* The same issues: and the others hang. */
static void a_stage_that_takes_another_shape_ends_all_with_both_shapes(void **state)
{
    (void)state;
    run_threads(2, NULL, give_another_width, NULL);
}

/* --- who divides ---------------------------------------------------------- */

/* pytorch/pytorch#155903, ByteDance-Seed/VeOmni#1079, verl-project/verl-SpeCo#29: rates are off by
 * the number of ranks, of micro-batches or of tensor-parallel ranks, of which each has to be
 * divided by somewhere. A plain update with a large rate shows any factor. */
static void nobody_divides_by_ranks_or_micro_batches(void **state)
{
    static const int shape[][2] = {{6, 2}, {6, 2}, {6, 2}};
    training t = {.steps = TEST_SANITIZED ? 2 : 3};

    (void)state;
    memcpy(t.shape, shape, sizeof(shape));
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        for (int m = 1; m <= 6; m += m < 3 ? 1 : 3) {
            t.w = (way){.pipeline = ranks, .microbatches = m};
            train(t);
        }
        if (ranks <= HEADS) {
            t.w = (way){.tensor = ranks};
            train(t);
        }
    }
    t.w = (way){.data = 2, .tensor = 2};
    train(t);
    t.w = (way){.tensor = 2, .pipeline = 2, .microbatches = 3};
    train(t);
}

/* --- recomputation -------------------------------------------------------- */

/* Collectives of one step. */
typedef struct traffic {
    int gathers, scatters; /* of tokens */
    int parameters;        /* gathers of them */
} traffic;

typedef struct counting {
    way w;
    traffic forward, all;
} counting;

static traffic traffic_now(void)
{
    const trii_step *step = trii_step_current();
    traffic t = {0};

    for (int32_t i = 0; i < step->n_nodes; i++) {
        const char *name = step->nodes[i].host != NULL ? step->nodes[i].host->kind->name : "";

        t.gathers += strcmp(name, "all_gather") == 0;
        t.scatters += strcmp(name, "reduce_scatter") == 0;
        t.parameters += strstr(name, "parameters of a bucket") != NULL;
    }
    return t;
}

static const char *count_traffic(rank_env *env)
{
    static const training t = {.shape = {{4, 2}}};
    counting *c = env->arg;
    const char *units[] = {"*"};
    tri_module *net = net_create(&c->w);
    tri_tensor *x = batch_of(&t, 0, 0, 4, IN), *loss;
    tri_mesh *mesh;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"data", "tensor"}, &mesh));
    RANK_TRY(env, cut_layers(net, tri_mesh_group(mesh, "tensor"), true));
    net = tri_fully_shard(net, &(tri_zero_options){.group = tri_mesh_group(mesh, "data"),
                                                   .units = units,
                                                   .n_units = 1,
                                                   .prefetch = -1});
    loss = tri_mean(tri_forward(net, x), NULL, 0, false);
    if (env->rank == 0)
        c->forward = traffic_now();
    tri_backward(loss);
    if (env->rank == 0)
        c->all = traffic_now();
    RANK_TRY(env, tri_step_end_status());
    tri_module_destroy(net);
    tri_mesh_destroy(mesh);
    tri_tensor_unref(x);
    return NULL;
}

/* pytorch/pytorch#105635, #175406, NVIDIA-NeMo/Automodel#3373: what a recomputed block gathers is
 * gathered again for its forward and once more for its gradients. Here both read one: parameters
 * are gathered as often as without recomputation, and tokens are kept. */
static void recomputation_gathers_nothing_twice(void **state)
{
    static counting kept, again = {.w.recompute = true};

    (void)state;
    run_threads(4, NULL, count_traffic, &kept);
    run_threads(4, NULL, count_traffic, &again);
    assert_int_equal(kept.forward.gathers, 2 * BLOCKS);
    assert_int_equal(again.all.gathers, kept.all.gathers);
    assert_int_equal(again.all.scatters, kept.all.scatters);
    assert_int_equal(kept.forward.parameters, BLOCKS + 2);
    assert_int_equal(kept.all.parameters, 2 * BLOCKS + 2);
    assert_int_equal(again.all.parameters, kept.all.parameters);
}

/* --- zero bubble ---------------------------------------------------------- */

/* pytorch/pytorch#180952, #136766: weights that serve twice, as the norms of blocks here, are
 * counted twice where the backward is in two parts, and recomputation does not go with it. */
static void weights_that_serve_twice_train_once_in_every_schedule(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(schedules); i++) {
        for (int recompute = 0; recompute < 2; recompute++)
            train((training){.w = {.pipeline = 2,
                                   .stages_per_rank = schedules[i].stages_per_rank,
                                   .microbatches = 4,
                                   .schedule = schedules[i].schedule,
                                   .recompute = recompute == 1},
                             .steps = 3,
                             .shape = {{8, 2}, {8, 2}, {5, 1}}});
    }
}

/* --- messages ------------------------------------------------------------- */

/* Rank 0 receives first what rank 1 can only send once it has got something later from it. */
static const char *receive_early(rank_env *env)
{
    enum { MESSAGES = 4 };
    tri_group *group = NULL;
    tri_tensor *early, *sum;
    double got = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    if (env->rank == 0) {
        early = tri_dist_recv(TRI_SHAPE(3), TRI_DTYPE_F64, false, 1, 9, group);
        for (int i = 0; i < MESSAGES; i++)
            (void)tri_keep(
                tri_dist_send(tri_full(TRI_SHAPE(3), i + 1, TRI_DTYPE_F64), 1, i, group));
        sum = tri_sum(early, NULL, 0, false);
    } else {
        sum = tri_zeros(TRI_SHAPE(3), TRI_DTYPE_F64);
        for (int i = 0; i < MESSAGES; i++)
            sum = tri_add(sum, tri_dist_recv(TRI_SHAPE(3), TRI_DTYPE_F64, false, 0, i, group));
        (void)tri_keep(tri_dist_send(sum, 0, 9, group));
        sum = tri_sum(sum, NULL, 0, false);
    }
    sum = tri_keep(sum);
    RANK_TRY(env, tri_run());
    RANK_TRY(env, tri_item_status(sum, &got));
    tri_step_end();
    tri_group_unref(group);
    return got == 30 ? NULL : RANK_FAIL(env, "rank %d: %g", env->rank, got);
}

/* pytorch/pytorch#188833: a receive that comes early in the order holds back others. */
static void a_receive_that_comes_early_holds_back_nothing(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm", .timeout_ms = 20000}, receive_early, NULL);
    run_threads(2, &(tri_group_options){.engine = "tcp", .timeout_ms = 20000}, receive_early, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(batches_may_have_any_size_in_each_step),
    cmocka_unit_test(a_stage_that_takes_another_shape_ends_all_with_both_shapes),
    cmocka_unit_test(nobody_divides_by_ranks_or_micro_batches),
    cmocka_unit_test(recomputation_gathers_nothing_twice),
    cmocka_unit_test(weights_that_serve_twice_train_once_in_every_schedule),
    cmocka_unit_test(a_receive_that_comes_early_holds_back_nothing),
};

TEST_MAIN(tests)
