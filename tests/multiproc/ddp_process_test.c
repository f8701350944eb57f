/*
 * ddp_process_test.c - data-parallel training by real processes: replicas never drift apart,
 * whatever each process reads, splits and computes with; a death is named.
 */
#include <math.h>
#include <stdlib.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"

#define BATCH 6
#define SIZE 10
#define CLASSES 4

static tri_module *network(void)
{
    const tri_nn_conv2d_options same = {.padding = 1, .no_bias = true};

    tri_manual_seed(4);
    return tri_nn_sequential(tri_nn_conv2d(3, 16, 3, &same), tri_nn_batch_norm2d(16, NULL),
                             tri_nn_relu(), tri_nn_max_pool2d(2, NULL),
                             tri_nn_conv2d(16, 32, 3, &same), tri_nn_batch_norm2d(32, NULL),
                             tri_nn_relu(), tri_nn_adaptive_avg_pool2d(1, 1), tri_nn_flatten(1),
                             tri_nn_linear(32, CLASSES, NULL));
}

typedef struct trainer {
    tri_group *group;
    tri_module *model;
    tri_optimizer *opt;
    tri_tensor *x, *y;
    unsigned seed;
} trainer;

static tri_status trainer_init(trainer *t, rank_env *env)
{
    tri_status st = tri_group_create(env->store, env->rank, env->size, env->options, &t->group);

    if (st != TRI_OK)
        return st;
    t->model = tri_ddp(
        network(),
        &(tri_ddp_options){.group = t->group, .bucket_cap_bytes = 4096, .first_bucket_bytes = 512});
    t->opt = tri_sgd(t->model, 0.05,
                     &(tri_sgd_options){.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4});
    t->x = tri_tensor_create((int64_t[]){BATCH, 3, SIZE, SIZE}, 4, TRI_DTYPE_F32);
    t->y = tri_tensor_create((int64_t[]){BATCH}, 1, TRI_DTYPE_I64);
    t->seed = 17u + (unsigned)env->rank;
    return tri_optimizer_status(t->opt);
}

static void trainer_fini(trainer *t)
{
    tri_tensor_unref(t->x);
    tri_tensor_unref(t->y);
    tri_optimizer_destroy(t->opt);
    tri_module_destroy(t->model);
    tri_group_unref(t->group);
}

static tri_status next_batch(trainer *t)
{
    float x[BATCH * 3 * SIZE * SIZE];
    int64_t y[BATCH];
    tri_status st;

    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++) {
        t->seed = t->seed * 1664525u + 1013904223u;
        x[i] = (float)(t->seed >> 8) / (float)(1 << 23) - 1.0f;
    }
    for (int i = 0; i < BATCH; i++) {
        t->seed = t->seed * 1664525u + 1013904223u;
        y[i] = (int64_t)((t->seed >> 16) % CLASSES);
    }
    st = tri_tensor_copy_in(t->x, x, sizeof(x));
    return st == TRI_OK ? tri_tensor_copy_in(t->y, y, sizeof(y)) : st;
}

/* `read`: 0 never, 1 after the step, 2 between forward and backward, which splits the plan. */
static tri_status train_step(trainer *t, int read)
{
    tri_tensor *loss;
    tri_status st = next_batch(t);

    if (st != TRI_OK)
        return st;
    loss = tri_cross_entropy(tri_forward(t->model, t->x), t->y, NULL);
    if (read == 2 && isnan(tri_item(tri_keep(loss))))
        return TRI_ERR_NAN;
    tri_backward(loss);
    st = tri_optimizer_step(t->opt);
    if (st == TRI_OK && read == 1 && isnan(tri_item(loss)))
        return TRI_ERR_NAN;
    if (st != TRI_OK)
        return st;
    return tri_step_end_status();
}

/* --- replicas never drift ------------------------------------------------- */

static const char *train_differently(rank_env *env)
{
    trainer t;

    if (env->rank == 1)
        setenv("TRI_ISA", "portable", 1);
    setenv("TRI_NUM_THREADS", env->rank == 2 ? "2" : "1", 1);
    RANK_TRY(env, trainer_init(&t, env));
    for (int step = 0; step < 100; step++)
        RANK_TRY(env, train_step(&t, env->rank == 0 ? 1 + step % 2 : 0));
    RANK_TRY(env, tri_ddp_verify(t.model, false));
    trainer_fini(&t);
    return NULL;
}

static void replicas_never_drift(void **state)
{
    (void)state;
    run_processes(2, NULL, train_differently, NULL, NULL, 50);
}

static void three_replicas_never_drift(void **state)
{
    (void)state;
    run_processes(3, NULL, train_differently, NULL, NULL, 50);
}

/* --- a death -------------------------------------------------------------- */

static const char *rank_1_dies(rank_env *env)
{
    trainer t;

    setenv("TRI_NUM_THREADS", "1", 1);
    RANK_TRY(env, trainer_init(&t, env));
    for (int step = 0; step < 5; step++)
        RANK_TRY(env, train_step(&t, 0));
    RANK_TRY(env, ranks_meet(env, "trained", -1));
    if (env->rank == 1)
        raise(SIGKILL);
    RANK_FAILS(env, train_step(&t, 0), TRI_ERR_PEER_LOST, "rank 1");
    RANK_FAILS(env, tri_step_end_status(), TRI_ERR_PEER_LOST, "rank 1");
    RANK_FAILS(env, train_step(&t, 0), TRI_ERR_PEER_LOST, "rank 1");
    RANK_FAILS(env, tri_step_end_status(), TRI_ERR_PEER_LOST, "rank 1");
    trainer_fini(&t);
    return NULL;
}

static void a_rank_killed_in_training_is_named(void **state)
{
    const rank_end ends[] = {{0}, {.signal = SIGKILL}, {0}};

    (void)state;
    run_processes(3, NULL, rank_1_dies, NULL, ends, 50);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_never_drift),
        cmocka_unit_test(three_replicas_never_drift),
        cmocka_unit_test(a_rank_killed_in_training_is_named),
    };

    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
