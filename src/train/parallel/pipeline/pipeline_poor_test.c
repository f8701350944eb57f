/* pipeline_poor_test.c - a rank that has no memory while a network is cut, or in a step of a
 * pipeline: its peers hear of it at once, wherever it was. */
#include <trireme/trireme.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "testing/ranks.h"

enum { MOST = 4000, UNTIL_GROUPS = 30, TO_SPARE = 10, WATCHDOG_S = 50, WIDTH = 4, ROWS = 3 };

typedef enum place { SPLIT, STEPPED, CUT } place;

typedef struct poor_job {
    place where;
    int rank; /* without memory */
} poor_job;

/* Turns it on for one rank at the place that is tested. */
static void fail_at(const rank_env *env, place now, int n)
{
    const poor_job *j = env->arg;

    if (j->where == now && env->rank == j->rank)
        trii_alloc_fail_at(n);
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

static tri_status step_through(const rank_env *env, tri_group *group, int n)
{
    const tri_pipeline_options options = {
        .group = group, .n_microbatches = 2, .schedule = TRI_PIPELINE_ZERO_BUBBLE};
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(ROWS, WIDTH), TRI_DTYPE_F32), *loss;
    tri_module *pipe = build();
    tri_optimizer *opt;
    tri_status status;
    double number;

    fail_at(env, SPLIT, n);
    pipe = tri_pipeline_split(pipe, (const char *[]){"3"}, 2, &options);
    trii_alloc_fail_at(0);
    status = tri_module_status(pipe);
    opt = tri_sgd(pipe, 0.1, NULL);
    if (status == TRI_OK) {
        fail_at(env, STEPPED, n);
        loss = tri_pipeline_step(pipe, x, x, mse, NULL);
        trii_alloc_fail_at(0);
        status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_item_status(loss, &number);
    }
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_tensor_unref(x);
    return status;
}

static tri_status cut(const rank_env *env, tri_group *group, int n)
{
    static const tri_parallel_rule rules[] = {{.module = "0", .style = TRI_COLWISE},
                                              {.module = "1", .style = TRI_ROWWISE}};
    tri_module *net =
        tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_linear(WIDTH, WIDTH, NULL));
    tri_status status;

    fail_at(env, CUT, n);
    status = tri_parallelize(net, group, rules, 2);
    trii_alloc_fail_at(0);
    tri_module_destroy(net);
    return status;
}

/* All ranks fail, none by its deadline, or none does. */
static const char *train_once(rank_env *env, int n, bool *over_out)
{
    const poor_job *j = env->arg;
    char key[32];
    tri_store *view = NULL;
    tri_group *group = NULL;
    tri_status status;
    int64_t n_failed = 0;

    snprintf(key, sizeof(key), "poor/%d", n);
    RANK_TRY(env, tri_store_prefix(key, env->store, &view));
    RANK_TRY(env, tri_group_create(view, env->rank, env->size, env->options, &group));
    status = j->where == CUT ? cut(env, group, n) : step_through(env, group, n);
    if (status == TRI_ERR_GROUP_TIMEOUT || status == TRI_ERR_TIMEOUT)
        return RANK_FAIL(env, "rank %d, allocation %d: %s", env->rank, n, tri_last_error());
    RANK_TRY(env, tri_store_add(view, "failed", status != TRI_OK, &n_failed));
    snprintf(key, sizeof(key), "n%d", n);
    RANK_TRY(env, ranks_meet(env, key, -1));
    RANK_TRY(env, tri_store_add(view, "failed", 0, &n_failed));
    if (n_failed != 0 && n_failed != env->size)
        return RANK_FAIL(env, "rank %d, allocation %d: %d failed, here %s: %s", env->rank, n,
                         (int)n_failed, tri_status_name(status), tri_last_error());
    *over_out = n_failed == 0;
    tri_group_unref(group);
    tri_store_unref(view);
    return NULL;
}

static const char *each_allocation_fails(rank_env *env)
{
    const char *failure = NULL;
    const poor_job *j = env->arg;
    /* a rank without memory in tri_group_split is missed at the deadline only */
    int n = 1, in_a_row = 0, most = j->where == SPLIT ? UNTIL_GROUPS : MOST;

    /* some do without what they do not get */
    for (; n < most && in_a_row < TO_SPARE && failure == NULL; n++) {
        bool over = false;

        failure = train_once(env, n, &over);
        in_a_row = over ? in_a_row + 1 : 0;
    }
    return failure != NULL || n < MOST ? failure : RANK_FAIL(env, "%d allocations or more", MOST);
}

static void torture(place where, int rank)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 5000};
    poor_job job = {.where = where, .rank = rank};

    run_processes(2, &options, each_allocation_fails, &job, NULL, WATCHDOG_S);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_hear_of_a_rank_without_memory_when_a_pipeline_is_made),
    cmocka_unit_test(all_hear_of_the_first_one_in_a_step),
    cmocka_unit_test(all_hear_of_the_last_one_in_a_step),
    cmocka_unit_test(all_hear_of_one_when_layers_are_cut),
};

TEST_MAIN(tests)
