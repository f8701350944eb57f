/* pipeline_updates_test.c - a rank that trains its stage and has no optimizer is named in the log,
 * once; ranks that have reasons not to update are not. */
#include "testing/logged.h"
#include "testing/pipeline_ranks.h"

typedef struct loop {
    int lone;       /* the rank without an optimizer; -1: none, -2: all */
    bool is_frozen; /* its stage is */
    int passes;     /* before each update, each in a step of its own */
    bool evaluates; /* in between */
} loop;

static const char *run_loop(rank_env *env)
{
    const loop *l = env->arg;
    const pipeline_job job = {.options = {.n_microbatches = 2}, .stages = 3, .rows = 4};
    bool updates = l->lone != -2 && env->rank != l->lone;
    pipeline_own own;

    RANK_TRY(env, pipeline_begin(env, &job, &own));
    for (int64_t i = 0; i < tri_module_state_count(own.pipe) && l->is_frozen && !updates; i++)
        tri_requires_grad(tri_module_state(own.pipe, i).tensor, false);
    if (updates)
        own.opt = tri_sgd(own.pipe, 0.1, NULL);
    for (int step = 0; step < 6; step++) {
        for (int pass = 0; pass < l->passes; pass++) {
            (void)tri_pipeline_step(own.pipe, own.x, own.y, pipeline_mse, NULL);
            if (updates && pass == l->passes - 1)
                RANK_TRY(env, tri_optimizer_step(own.opt));
            RANK_TRY(env, tri_step_end_status());
        }
        TRI_NO_GRAD
        {
            if (l->evaluates)
                (void)tri_pipeline_step(own.pipe, own.x, own.y, pipeline_mse, NULL);
        }
        RANK_TRY(env, tri_step_end_status());
    }
    pipeline_end(&own);
    return NULL;
}

static void run(loop l)
{
    run_threads(3, &(tri_group_options){.engine = "shm"}, run_loop, &l);
}

static void a_rank_without_an_optimizer_is_named_once(void **state)
{
    logged l;

    (void)state;
    logged_begin(&l);
    for (int lone = 0; lone < 3; lone++) {
        char part[80], *text, *at;

        snprintf(part, sizeof(part), "rank %d of the pipeline trains its stages", lone);
        run((loop){.lone = lone, .passes = 1});
        text = logged_read(&l);
        at = strstr(text, part);
        assert_non_null(at);
        assert_null(strstr(at + 1, part));
        free(text);
    }
    logged_end(&l);
}

static void ranks_that_have_reasons_not_to_update_are_not(void **state)
{
    logged l;

    (void)state;
    logged_begin(&l);
    run((loop){.lone = -1, .passes = 4, .evaluates = true});
    run((loop){.lone = 1, .is_frozen = true, .passes = 1, .evaluates = true});
    run((loop){.lone = -2, .passes = 1});
    logged_expect_nothing(&l);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_without_an_optimizer_is_named_once),
    cmocka_unit_test(ranks_that_have_reasons_not_to_update_are_not),
};

TEST_MAIN(tests)
