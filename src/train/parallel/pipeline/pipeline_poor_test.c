/* pipeline_poor_test.c - a rank that has no memory while a network is cut, in a step of a pipeline,
 * or while ranks save what they share: its peers hear of it at once, wherever it was. */
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/poor_rank.h"
#include "testing/scratch.h"

enum { WATCHDOG_S = 50, WIDTH = 4, ROWS = 3 };

typedef enum place { SPLIT, STEPPED, CUT, COPIED, SAVED } place;

typedef struct poor_job {
    place where;
    int rank; /* without memory */
    char folder[256];
} poor_job;

static void fail_at(const rank_env *env, place now)
{
    const poor_job *j = env->arg;

    poor_begin(j->where == now && env->rank == j->rank);
}

static tri_tensor *by_shared(tri_module *self, tri_tensor *x)
{
    return tri_tanh(tri_linear(x, tri_module_find(self, "shared"), NULL));
}

static tri_module *sharer(tri_tensor *weight)
{
    tri_module *self = tri_module_simple("Sharer", 1, by_shared);

    tri_module_add_parameter(self, "shared", tri_tensor_ref(weight));
    return self;
}

/* Stages share a weight, and what one has saved another takes. */
static tri_module *build(void)
{
    tri_tensor *weight = tri_tensor_create(TRI_SHAPE(WIDTH, WIDTH), TRI_DTYPE_F32);
    tri_module *net = tri_nn_sequential(sharer(weight), tri_nn_skip_save("first"),
                                        tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_dropout(0.5),
                                        sharer(weight), tri_nn_skip_take("first", TRI_SKIP_ADD));

    tri_tensor_unref(weight);
    return net;
}

static tri_tensor *mse(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_mse_loss(output, target, NULL);
}

static tri_module *made;
static tri_optimizer *opt;

static tri_status step_through(const rank_env *env, tri_group *group)
{
    const tri_pipeline_options options = {
        .group = group, .n_microbatches = 2, .schedule = TRI_PIPELINE_ZERO_BUBBLE};
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(ROWS, WIDTH), TRI_DTYPE_F32), *loss;
    tri_module *net = build();
    tri_status status;
    double number;

    fail_at(env, SPLIT);
    made = tri_pipeline_split(net, (const char *[]){"3"}, 2, &options);
    poor_end();
    status = tri_module_status(made);
    opt = tri_sgd(made, 0.1, NULL);
    if (status == TRI_OK) {
        fail_at(env, STEPPED);
        loss = tri_pipeline_step(made, x, x, mse, NULL);
        poor_end();
        status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_item_status(loss, &number);
    }
    tri_tensor_unref(x);
    return status;
}

static tri_status cut(const rank_env *env, tri_group *group)
{
    static const tri_parallel_rule rules[] = {{.module = "0", .style = TRI_COLWISE},
                                              {.module = "1", .style = TRI_ROWWISE}};

    made = tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_linear(WIDTH, WIDTH, NULL));
    fail_at(env, CUT);
    return tri_parallelize(made, group, rules, 2);
}

/* Of six ranks three each have a copy of one layer, and two of the other. */
static tri_status copy(const rank_env *env, tri_group *group)
{
    static const tri_parallel_rule rules[] = {{.module = "0", .style = TRI_COLWISE, .block = 3},
                                              {.module = "1", .style = TRI_COLWISE, .block = 2}};
    tri_status status;

    made = tri_nn_sequential(tri_nn_linear(1, 6, NULL), tri_nn_linear(1, 6, NULL));
    fail_at(env, COPIED);
    status = tri_parallelize(made, group, rules, 2);
    /* ranks that went on to the next group without this one: as bad as if they had waited */
    return status == TRI_ERR_MISMATCH && strstr(tri_last_error(), "a call that fails") == NULL
               ? TRI_ERR_TIMEOUT
               : status;
}

/* Of replicas that are cut each has ranges of the optimizer's state. */
static tri_status save(const rank_env *env, tri_group *group)
{
    static const tri_parallel_rule rules[] = {{.module = "0", .style = TRI_COLWISE},
                                              {.module = "1", .style = TRI_ROWWISE}};
    const poor_job *j = env->arg;
    tri_mesh *mesh = NULL;
    tri_status status =
        tri_mesh_create(group, TRI_SHAPE(2, 2), (const char *[]){"data", "tensor"}, &mesh);

    made = tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_linear(WIDTH, WIDTH, NULL));
    if (status == TRI_OK)
        status = tri_parallelize(made, tri_mesh_group(mesh, "tensor"), rules, 2);
    made = tri_zero(made, &(tri_zero_options){.group = tri_mesh_group(mesh, "data")});
    opt = tri_adam(made, 0.1, NULL);
    tri_mesh_destroy(mesh);
    if (status == TRI_OK)
        status = tri_optimizer_status(opt);
    if (status != TRI_OK)
        return status;
    fail_at(env, SAVED);
    return tri_checkpoint_save(j->folder, made, opt, &(tri_checkpoint_info){.step = 1}, NULL);
}

static tri_status train(rank_env *env, tri_group *group)
{
    const poor_job *j = env->arg;

    if (j->where == SAVED)
        return save(env, group);

    if (j->where == COPIED)
        return copy(env, group);
    return j->where == CUT ? cut(env, group) : step_through(env, group);
}

static void clean(void)
{
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(made);
}

static const char *each_allocation_fails(rank_env *env)
{
    return poor_each(env, &(poor_work){.run = train, .clean = clean});
}

static void torture(place where, int rank)
{
    static const int ranks[] = {[SPLIT] = 2, [STEPPED] = 2, [CUT] = 2, [COPIED] = 6, [SAVED] = 4};
    const tri_group_options options = {.engine = "shm", .timeout_ms = 20000};
    poor_job job = {.where = where, .rank = rank};

    scratch s;

    scratch_begin(&s);
    snprintf(job.folder, sizeof(job.folder), "%s", scratch_path(&s, "run"));
    run_processes(ranks[where], &options, each_allocation_fails, &job, NULL, WATCHDOG_S);
    scratch_end(&s);
}

static void all_hear_of_a_rank_without_memory_when_a_pipeline_is_made(void **state)
{
    (void)state;
    torture(SPLIT, 1);
}

static void all_hear_of_the_first_one_in_a_step(void **state)
{
    (void)state;
    torture(STEPPED, 0);
}

static void all_hear_of_the_last_one_in_a_step(void **state)
{
    (void)state;
    torture(STEPPED, 1);
}

static void all_hear_of_one_when_layers_are_cut(void **state)
{
    (void)state;
    torture(CUT, 1);
}

static void all_hear_of_one_when_ranks_have_copies(void **state)
{
    (void)state;
    torture(COPIED, 3);
}

static void all_hear_of_one_in_a_save_of_ranges_of_parts(void **state)
{
    (void)state;
    torture(SAVED, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_hear_of_a_rank_without_memory_when_a_pipeline_is_made),
    cmocka_unit_test(all_hear_of_the_first_one_in_a_step),
    cmocka_unit_test(all_hear_of_the_last_one_in_a_step),
    cmocka_unit_test(all_hear_of_one_when_layers_are_cut),
    cmocka_unit_test(all_hear_of_one_when_ranks_have_copies),
    cmocka_unit_test(all_hear_of_one_in_a_save_of_ranges_of_parts),
};

TEST_MAIN(tests)
