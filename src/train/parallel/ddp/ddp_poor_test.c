/* ddp_poor_test.c - a rank that has no memory while the ranks of a model meet, or in a pass: its
 * peers hear of it at once, wherever it was. */
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/poor_rank.h"

enum { WATCHDOG_S = 50, WIDTH = 3 };

typedef enum place { MADE, TRAINED, REGROUPED, UNFROZEN, VERIFIED, SENT } place;

static void fail_at(const rank_env *env, place now)
{
    poor_begin(*(const place *)env->arg == now && env->rank == 1);
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

    poor_end();
    tri_backward(tri_mean(y, NULL, 0, false));
    return tri_step_end_status();
}

/* Of two losses in a step: the first, whose forward was recorded before memory was out, goes back
 * as well. */
static tri_status step_of_two(const rank_env *env, tri_module *model, tri_tensor *frozen)
{
    tri_tensor *x = tri_ones(TRI_SHAPE(2, WIDTH), TRI_DTYPE_F32), *before = tri_forward(model, x);
    tri_tensor *after;

    tri_requires_grad(frozen, true);
    fail_at(env, UNFROZEN);
    after = tri_forward(model, x);
    poor_end();
    tri_backward(tri_mean(before, NULL, 0, false));
    tri_backward(tri_mean(after, NULL, 0, false));
    return tri_step_end_status();
}

static tri_module *model;

static tri_status train(rank_env *env, tri_group *group)
{
    tri_module *first = tri_nn_linear(WIDTH, WIDTH, NULL);
    tri_module *net = tri_nn_sequential(first, tri_nn_linear(WIDTH, 1, NULL));
    tri_tensor *frozen = tri_module_state(first, 0).tensor;
    tri_status status;

    tri_requires_grad(frozen, false);
    fail_at(env, MADE);
    model = tri_ddp(net, &(tri_ddp_options){.group = group});
    poor_end();
    status = tri_module_status(model);
    if (status == TRI_OK) {
        fail_at(env, TRAINED);
        status = pass(model);
        poor_end();
    }
    if (status == TRI_OK) {
        fail_at(env, REGROUPED);
        status = step(model);
    }
    if (status == TRI_OK)
        status = step_of_two(env, model, frozen);
    if (status == TRI_OK) {
        fail_at(env, VERIFIED);
        status = tri_ddp_verify(model, true);
        poor_end();
    }
    if (status == TRI_OK) {
        fail_at(env, SENT);
        status = tri_module_broadcast(net, group, 0);
        poor_end();
    }
    return status;
}

static void clean(void)
{
    tri_step_end();
    tri_module_destroy(model);
}

static const char *each_allocation_fails(rank_env *env)
{
    return poor_each(env, &(poor_work){.run = train, .clean = clean});
}

static void torture(place where)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

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
