/*
 * forked_model_test.c - a child of fork that goes on with its parent's model of tri_ddp or tri_zero
 * is told that the group is its parent's, whose training goes on; also where no threads compute.
 */
/* ctest: also=TRI_EAGER=1 */
#include <sys/wait.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"

static const tri_group_options shm_options = {.engine = "shm", .timeout_ms = 20000};

static tri_status train(tri_module *model, tri_optimizer *opt, tri_tensor *x)
{
    tri_status st;

    tri_backward(tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false));
    st = tri_optimizer_step(opt);
    return st == TRI_OK ? tri_step_end_status() : st;
}

/* 0: told so. */
static int go_on(tri_module *model, tri_optimizer *opt, tri_tensor *x, bool zero)
{
    alarm(20);
    return train(model, opt, x) == TRI_ERR_STATE &&
                   strstr(tri_last_error(), zero ? "tri_zero: this is a child of fork()"
                                                 : "tri_ddp: this is a child of fork()") != NULL
               ? 0
               : 1;
}

static const char *train_and_fork(rank_env *env)
{
    const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 4), TRI_DTYPE_F32, ones);
    const bool *zero = env->arg;
    tri_group *group = NULL;
    tri_module *model;
    tri_optimizer *opt;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    model = *zero ? tri_zero(tri_nn_linear(4, 3, NULL), &(tri_zero_options){.group = group})
                  : tri_ddp(tri_nn_linear(4, 3, NULL), &(tri_ddp_options){.group = group});
    RANK_TRY(env, tri_module_status(model));
    opt = tri_sgd(model, 0.1, NULL);
    for (int step = 0; step < 4; step++) {
        int status = -1;
        pid_t child = env->rank == 1 && step > 0 ? fork() : -1;

        if (child == 0)
            _exit(go_on(model, opt, x, *zero));
        if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
            return RANK_FAIL(env, "the child ended with %#x", (unsigned)status);
        RANK_TRY(env, train(model, opt, x));
    }
    RANK_TRY(env, tri_ddp_verify(model, true));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void a_child_that_trains_on_is_told(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++)
        run_processes(2, &shm_options, train_and_fork, &(bool){zero != 0}, NULL, 60);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_child_that_trains_on_is_told),
};

TEST_MAIN(tests)
