/* pipeline_tokens_test.c - sequences of which each rank of a stage has a part that goes on to the
 * next stage: its ranks know how many tokens there are in all, whatever the number of ranks. */
#include "testing/cut_ranks.h"
#include "testing/train_ranks.h"

enum { WIDTH = 4, INNER = 5, BATCH = 4, TOKENS_MOST = 8, STEPS = 4, STAGES = 3 };

typedef struct tokens_job {
    int tensor; /* ranks of a stage */
    double losses[STEPS];
} tokens_job;

/* The stage in the middle cuts nothing itself. */
static tri_module *build_layers(void)
{
    tri_module *parts[STAGES];

    trii_mutex_lock(&drawing);
    tri_manual_seed(5);
    tri_set_default_dtype(TRI_DTYPE_F64);
    parts[0] = tri_nn_sequential(tri_nn_linear(WIDTH, INNER, NULL), tri_nn_tanh(),
                                 tri_nn_linear(INNER, WIDTH, NULL));
    parts[1] = tri_nn_sequential(tri_nn_tanh());
    parts[2] = tri_nn_sequential(tri_nn_layer_norm(TRI_SHAPE(WIDTH), NULL),
                                 tri_nn_linear(WIDTH, INNER, NULL), tri_nn_tanh(),
                                 tri_nn_linear(INNER, WIDTH, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return tri_nn_sequential_of(STAGES, parts);
}

static const tri_parallel_rule by_tokens[] = {
    {.module = "0.0", .style = TRI_COLWISE},
    {.module = "0.2", .style = TRI_ROWWISE, .output = TRI_SHARDED_SEQUENCE},
    {.module = "2.0", .style = TRI_SEQUENCE},
    {.module = "2.1", .style = TRI_COLWISE, .input = TRI_SHARDED_SEQUENCE},
    {.module = "2.3", .style = TRI_ROWWISE}};

static tri_tensor *mse(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_mse_loss(output, target, NULL);
}

/* Steps have sequences of different lengths. */
static tri_status train(tri_module *model, bool plain, double *losses)
{
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_status status = TRI_OK;

    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        double data[BATCH * TOKENS_MOST * WIDTH];
        tri_tensor *x, *loss;

        for (int i = 0; i < BATCH * TOKENS_MOST * WIDTH; i++)
            data[i] = sin(1.3 * i + 0.7 * s);
        x = tri_tensor_from(TRI_SHAPE(BATCH, TOKENS_MOST - s, WIDTH), TRI_DTYPE_F64, data);
        loss = plain ? tri_keep(mse(tri_forward(model, x), x, NULL))
                     : tri_pipeline_step(model, x, x, mse, NULL);
        if (plain)
            tri_backward(loss);
        status = update_and_read(opt, loss, &losses[s]);
        tri_tensor_unref(x);
    }
    tri_optimizer_destroy(opt);
    return status;
}

static const char *tokens_rank(rank_env *env)
{
    const tokens_job *j = env->arg;
    tri_mesh *mesh = NULL;
    tri_module *model = build_layers();
    double losses[STEPS];
    const char *wrong;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(STAGES, j->tensor),
                            (const char *[]){"pipeline", "tensor"}, &mesh));
    RANK_TRY(env, tri_parallelize(model, tri_mesh_group(mesh, "tensor"), by_tokens, 5));
    model = tri_pipeline_split(
        model, (const char *[]){"1", "2"}, STAGES,
        &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline"), .n_microbatches = 2});
    RANK_TRY(env, train(model, false, losses));
    wrong = far_from(env, "loss", losses, j->losses, STEPS);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return wrong;
}

static void later_stages_know_how_many_tokens_there_are(void **state)
{
    tokens_job j = {.tensor = 2};
    tri_module *net = build_layers();

    (void)state;
    CHECK_OK(train(net, true, j.losses));
    tri_module_destroy(net);
    for (j.tensor = 2; j.tensor <= 3; j.tensor++)
        run_threads(STAGES * j.tensor, &(tri_group_options){.engine = "shm"}, tokens_rank, &j);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(later_stages_know_how_many_tokens_there_are),
};

TEST_MAIN(tests)
