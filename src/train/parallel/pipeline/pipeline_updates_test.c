/* pipeline_updates_test.c - a rank that trains its stage and has no optimizer, or one of another
 * rate, is named in the log, once; ranks that have reasons for it are not. Norms must be equal. */
#include "testing/logged.h"
#include "testing/pipeline_ranks.h"

typedef struct loop {
    int lone;       /* the rank without an optimizer; -1: none, -2: all */
    bool is_frozen; /* its stage is */
    int passes;     /* before each update, each in a step of its own */
    bool evaluates; /* in between */
    double rate;    /* of rank 2; 0: that of the others */
    bool groups;    /* of parameters, two */
} loop;

static tri_optimizer *optimizer_of(const loop *l, tri_module *pipe, double rate)
{
    tri_tensor *params[8];
    int n = 0;

    for (int64_t i = 0; i < tri_module_state_count(pipe); i++)
        if (tri_module_state(pipe, i).parameter)
            params[n++] = tri_module_state(pipe, i).tensor;
    return l->groups ? tri_sgd_of((tri_param_group[]){{.params = params, .n_params = 1},
                                                      {.params = params + 1, .n_params = n - 1}},
                                  2, rate, NULL)
                     : tri_sgd(pipe, rate, NULL);
}

static const char *run_loop(rank_env *env)
{
    const loop *l = env->arg;
    const pipeline_job job = {.options = {.n_microbatches = 2}, .stages = 3, .rows = 4};
    bool updates = l->lone != -2 && env->rank != l->lone;
    double rate = env->rank == 2 && l->rate != 0 ? l->rate : 0.1;
    pipeline_own own;

    RANK_TRY(env, pipeline_begin(env, &job, &own));
    for (int64_t i = 0; i < tri_module_state_count(own.pipe) && l->is_frozen && !updates; i++)
        tri_requires_grad(tri_module_state(own.pipe, i).tensor, false);
    if (updates)
        own.opt = optimizer_of(l, own.pipe, rate);
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

static void a_rank_of_another_rate_is_named_once(void **state)
{
    static const char part[] = "rank 1 of the pipeline updates its stages at a rate of 0.1, rank 2 "
                               "at 0.2";
    char *text, *at;
    logged l;

    (void)state;
    logged_begin(&l);
    run((loop){.lone = -1, .passes = 2, .evaluates = true, .rate = 0.2});
    text = logged_read(&l);
    at = strstr(text, part);
    assert_non_null(at);
    assert_null(strstr(at + strlen(part), "at a rate of"));
    free(text);
    logged_end(&l);
}

/* The second step's clip differs on rank 1, whose norm is given, and the third ends. */
static const char *clip_unlike(rank_env *env)
{
    const pipeline_job job = {.options = {.n_microbatches = 2}, .stages = 2, .rows = 4};
    const double *other = env->arg;
    const char *failure = NULL;
    pipeline_own own;
    tri_status status = TRI_OK;
    char part[128];
    int step = 0;

    snprintf(
        part, sizeof(part),
        "rank 0 of the pipeline has clipped its gradients to a norm of 1, rank 1 to %g: ", *other);
    RANK_TRY(env, pipeline_begin(env, &job, &own));
    own.opt = tri_sgd(own.pipe, 0.1, NULL);
    for (; step < 4 && status == TRI_OK; step++) {
        (void)tri_pipeline_step(own.pipe, own.x, own.y, pipeline_mse, NULL);
        (void)tri_clip_grad_norm(own.opt, env->rank == 1 && step > 0 ? *other : 1);
        status = tri_optimizer_step(own.opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    if (status == TRI_OK || (env->rank == 1 && status != TRI_ERR_MISMATCH) || step != 3 ||
        strstr(tri_last_error(), part) == NULL)
        failure = RANK_FAIL(env, "rank %d, step %d: %s: %s", env->rank, step,
                            tri_status_name(status), tri_last_error());
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    tri_step_end();
    pipeline_end(&own);
    return failure;
}

static void norms_that_differ_end_the_pipeline(void **state)
{
    double norms[] = {2, 0};

    (void)state;
    for (int i = 0; i < 2; i++)
        run_threads(2, &(tri_group_options){.timeout_ms = 20000}, clip_unlike, &norms[i]);
}

static void ranks_that_have_reasons_not_to_update_are_not(void **state)
{
    logged l;

    (void)state;
    logged_begin(&l);
    run((loop){.lone = -1, .passes = 4, .evaluates = true});
    run((loop){.lone = 1, .is_frozen = true, .passes = 1, .evaluates = true});
    run((loop){.lone = -2, .passes = 1});
    run((loop){.lone = -1, .passes = 1, .rate = 0.2, .groups = true});
    logged_expect_nothing(&l);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_without_an_optimizer_is_named_once),
    cmocka_unit_test(a_rank_of_another_rate_is_named_once),
    cmocka_unit_test(norms_that_differ_end_the_pipeline),
    cmocka_unit_test(ranks_that_have_reasons_not_to_update_are_not),
};

TEST_MAIN(tests)
