/* parallel_vit_test.c - a vision transformer whose heads, layers and classes are cut over ranks
 * (tri_parallelize) trains as one process does. */
#include <math.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/train_ranks.h"

#define ROWS 2
#define SIZE 4
#define CLASSES 5
#define STEPS 6

static trii_mutex drawing = TRII_MUTEX_INITIALIZER; /* the seed is the process's */

static tri_module *build(uint64_t seed)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_model_vit(&(tri_model_vit_options){
        .size = SIZE, .patch = 2, .width = 8, .depth = 2, .heads = 4, .classes = CLASSES});
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_status train(tri_module *net, tri_group *group, double *losses)
{
    static const int64_t classes[ROWS] = {3, 1};
    double data[ROWS * 3 * SIZE * SIZE];
    tri_optimizer *opt = tri_sgd(net, 0.2, NULL);
    tri_tensor *x, *y = tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, classes);
    tri_status status = TRI_OK;

    for (int i = 0; i < ROWS * 3 * SIZE * SIZE; i++)
        data[i] = sin(1.1 * i);
    x = tri_tensor_from(TRI_SHAPE(ROWS, 3, SIZE, SIZE), TRI_DTYPE_F64, data);
    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_tensor *scores = tri_forward(net, x);
        tri_tensor *loss = group != NULL ? tri_dist_cross_entropy(scores, y, CLASSES, group, NULL)
                                         : tri_cross_entropy(scores, y, NULL);

        loss = tri_keep(loss);
        tri_backward(loss);
        status = update_and_read(opt, loss, &losses[s]);
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    return status;
}

static const char *vit_rank(rank_env *env)
{
    static const tri_parallel_rule rules[] = {
        {.module = "encoder.layers.*.self_attention", .style = TRI_HEADS},
        {.module = "encoder.layers.*.mlp.0", .style = TRI_COLWISE},
        {.module = "encoder.layers.*.mlp.3", .style = TRI_ROWWISE},
        {.module = "heads.head", .style = TRI_COLWISE}};
    const double *want = env->arg;
    tri_module *net = build(3);
    tri_group *group = NULL;
    double losses[STEPS];
    const char *wrong = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, rules, 4));
    RANK_TRY(env, train(net, group, losses));
    for (int s = 0; s < STEPS && wrong == NULL; s++) {
        if (!(fabs(losses[s] - want[s]) <= 1e-9))
            wrong = RANK_FAIL(env, "rank %d of %d: loss %d is %.12g, not %.12g", env->rank,
                              env->size, s, losses[s], want[s]);
    }
    tri_module_destroy(net);
    tri_group_unref(group);
    return wrong;
}

static void images_over_ranks_train_as_one_process(void **state)
{
    double want[STEPS];
    tri_module *net = build(3);

    (void)state;
    CHECK_OK(train(net, NULL, want));
    tri_module_destroy(net);
    assert_true(want[STEPS - 1] < want[0]);
    for (int size = 1; size <= 4; size++)
        run_threads(size, &(tri_group_options){.engine = "shm"}, vit_rank, want);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(images_over_ranks_train_as_one_process),
};

TEST_MAIN(tests)
