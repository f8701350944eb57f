/* ddp_poor_test.c - a rank that has no memory while the ranks of a model meet, or in a pass: its
 * peers hear of it at once, wherever it was. */
#include <trireme/trireme.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "testing/ranks.h"

enum { MOST = 2000, WATCHDOG_S = 50, WIDTH = 3 };

typedef enum place { MADE, TRAINED, REGROUPED, UNFROZEN, VERIFIED, SENT } place;

/* Turns it on for rank 1 at the place that is tested. */
static void fail_at(const rank_env *env, place now, int n)
{
    if (*(const place *)env->arg == now && env->rank == 1)
        trii_alloc_fail_at(n);
}

static tri_status pass(tri_module *model)
{
    tri_tensor *x = tri_ones(TRI_SHAPE(2, WIDTH), TRI_DTYPE_F32);

    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    return tri_step_end_status();
}

static tri_status step(tri_module *model)
{
    tri_tensor *x = tri_ones(TRI_SHAPE(2, WIDTH), TRI_DTYPE_F32), *y = tri_forward(model, x);

    trii_alloc_fail_at(0);
    tri_backward(tri_mean(y, NULL, 0, false));
    return tri_step_end_status();
}

/* Of two losses in a step: the first, whose forward was recorded before memory was out, goes back
 * as well. */
static tri_status step_of_two(const rank_env *env, tri_module *model, tri_tensor *frozen, int n)
{
    tri_tensor *x = tri_ones(TRI_SHAPE(2, WIDTH), TRI_DTYPE_F32), *before = tri_forward(model, x);
    tri_tensor *after;

    tri_requires_grad(frozen, true);
    fail_at(env, UNFROZEN, n);
    after = tri_forward(model, x);
    trii_alloc_fail_at(0);
    tri_backward(tri_mean(before, NULL, 0, false));
    tri_backward(tri_mean(after, NULL, 0, false));
    return tri_step_end_status();
}

static tri_status train(rank_env *env, tri_group *group, int n)
{
    tri_module *first = tri_nn_linear(WIDTH, WIDTH, NULL);
    tri_module *net = tri_nn_sequential(first, tri_nn_linear(WIDTH, 1, NULL)), *model;
    tri_tensor *frozen = tri_module_state(first, 0).tensor;
    tri_status status;

    tri_requires_grad(frozen, false);
    fail_at(env, MADE, n);
    model = tri_ddp(net, &(tri_ddp_options){.group = group});
    trii_alloc_fail_at(0);
    status = tri_module_status(model);
    if (status == TRI_OK) {
        fail_at(env, TRAINED, n);
        status = pass(model);
        trii_alloc_fail_at(0);
    }
    if (status == TRI_OK) {
        fail_at(env, REGROUPED, n);
        status = step(model);
    }
    if (status == TRI_OK) {
        status = step_of_two(env, model, frozen, n);
    }
    if (status == TRI_OK) {
        fail_at(env, VERIFIED, n);
        status = tri_ddp_verify(model, true);
        trii_alloc_fail_at(0);
    }
    if (status == TRI_OK) {
        fail_at(env, SENT, n);
        status = tri_module_broadcast(net, group, 0);
        trii_alloc_fail_at(0);
    }
    tri_step_end();
    tri_module_destroy(model);
    return status;
}

/* All ranks fail, none by its deadline, or none does. */
static const char *train_once(rank_env *env, int n, bool *over_out)
{
    char key[32];
    tri_store *view = NULL;
    tri_group *group = NULL;
    tri_status status;
    int64_t n_failed = 0;

    snprintf(key, sizeof(key), "poor/%d", n);
    RANK_TRY(env, tri_store_prefix(key, env->store, &view));
    RANK_TRY(env, tri_group_create(view, env->rank, env->size, env->options, &group));
    status = train(env, group, n);
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
    bool over = false;

    for (int n = 1; n < MOST && !over && failure == NULL; n++)
        failure = train_once(env, n, &over);
    return failure != NULL || over ? failure : RANK_FAIL(env, "%d allocations or more", MOST);
}

static void torture(place where)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 5000};

    run_processes(2, &options, each_allocation_fails, &where, NULL, WATCHDOG_S);
}

static void all_hear_of_a_rank_without_memory_when_a_model_is_made(void **state)
{
    (void)state;
    torture(MADE);
}

static void all_hear_of_one_in_its_first_pass(void **state)
{
    (void)state;
    torture(TRAINED);
}

static void all_hear_of_one_when_gradients_are_regrouped(void **state)
{
    (void)state;
    torture(REGROUPED);
}

static void all_hear_of_one_when_a_parameter_was_unfrozen(void **state)
{
    (void)state;
    torture(UNFROZEN);
}

static void all_hear_of_one_when_replicas_are_compared(void **state)
{
    (void)state;
    torture(VERIFIED);
}

static void all_hear_of_one_when_a_module_is_sent(void **state)
{
    (void)state;
    torture(SENT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_hear_of_a_rank_without_memory_when_a_model_is_made),
    cmocka_unit_test(all_hear_of_one_in_its_first_pass),
    cmocka_unit_test(all_hear_of_one_when_gradients_are_regrouped),
    cmocka_unit_test(all_hear_of_one_when_a_parameter_was_unfrozen),
    cmocka_unit_test(all_hear_of_one_when_replicas_are_compared),
    cmocka_unit_test(all_hear_of_one_when_a_module_is_sent),
};

TEST_MAIN(tests)
