/* parallelize_gated_test.c - a block as those of Llama: heads of queries that share keys and
 * values, and a gated layer of two halves in one, cut over ranks and by tokens: as one process. */
#include "testing/cut_ranks.h"

#define DEPTH 2
#define HEADS 6
#define KV_HEADS 3
#define WIDTH (DEPTH * HEADS)
#define GATED 7
#define BATCH 2
#define TOKENS 5
#define STEPS 4
#define ALL 900

typedef struct block {
    tri_module *norm1, *q, *k, *v, *o, *norm2, *gate_up, *down;
} block;

/* [N, T, width] -> [N, heads, T, depth]: of so many heads as are here. */
static tri_tensor *to_heads(tri_tensor *x)
{
    const int64_t shape[4] = {tri_tensor_size(x, 0), tri_tensor_size(x, 1),
                              tri_tensor_size(x, 2) / DEPTH, DEPTH};

    return tri_transpose(tri_reshape(x, shape, 4), 1, 2);
}

static tri_tensor *forward(tri_module *self, tri_tensor *x)
{
    block *b = tri_module_data(self);
    const tri_attention_options shared = {.is_causal = true, .enable_gqa = true};
    tri_tensor *y = tri_forward(b->norm1, x), *q = tri_forward(b->q, y), *half[2];

    y = tri_attention(to_heads(q), to_heads(tri_forward(b->k, y)), to_heads(tri_forward(b->v, y)),
                      &shared);
    y = tri_reshape(tri_transpose(y, 1, 2),
                    TRI_SHAPE(tri_tensor_size(q, 0), tri_tensor_size(q, 1), tri_tensor_size(q, 2)));
    x = tri_add(x, tri_forward(b->o, y));
    y = tri_forward(b->gate_up, tri_forward(b->norm2, x));
    for (int i = 0; i < 2; i++)
        half[i] = tri_narrow(y, -1, i * tri_tensor_size(y, -1) / 2, tri_tensor_size(y, -1) / 2);
    return tri_add(x, tri_forward(b->down, tri_mul(tri_silu(half[0]), half[1])));
}

static tri_module *add_linear(tri_module *self, const char *name, int64_t in, int64_t out)
{
    return tri_module_add_child(self, name,
                                tri_nn_linear(in, out, &(tri_nn_linear_options){.no_bias = true}));
}

static tri_module *build_block(uint64_t seed)
{
    tri_module *self;
    block *b;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    self = tri_module_simple("block", sizeof(block), forward);
    b = tri_module_data(self);
    b->norm1 = tri_module_add_child(self, "norm1", tri_nn_rms_norm(TRI_SHAPE(WIDTH), NULL));
    b->q = add_linear(self, "q", WIDTH, WIDTH);
    b->k = add_linear(self, "k", WIDTH, (int64_t)KV_HEADS * DEPTH);
    b->v = add_linear(self, "v", WIDTH, (int64_t)KV_HEADS * DEPTH);
    b->o = add_linear(self, "o", WIDTH, WIDTH);
    b->norm2 = tri_module_add_child(self, "norm2", tri_nn_rms_norm(TRI_SHAPE(WIDTH), NULL));
    b->gate_up = add_linear(self, "gate_up", WIDTH, (int64_t)2 * GATED);
    b->down = add_linear(self, "down", GATED, WIDTH);
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return self;
}

static tri_tensor *wave(double phase)
{
    double data[BATCH * TOKENS * WIDTH];

    for (int i = 0; i < BATCH * TOKENS * WIDTH; i++)
        data[i] = sin(1.7 * i + phase);
    return tri_tensor_from(TRI_SHAPE(BATCH, TOKENS, WIDTH), TRI_DTYPE_F64, data);
}

static tri_status train(tri_module *net, double *weights, double *loss)
{
    tri_optimizer *opt = tri_adamw(net, 0.02, NULL);
    tri_tensor *x = wave(0), *y = wave(1);
    bool is_whole[ALL];
    tri_status status = TRI_OK;

    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_tensor *l = tri_keep(tri_mse_loss(tri_forward(net, x), y, NULL));

        tri_backward(l);
        (void)tri_clip_grad_norm(opt, 0.3);
        status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_item_status(l, loss);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    if (status == TRI_OK)
        status = put(net, weights, is_whole);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    return status;
}

typedef struct job {
    bool by_tokens;
    double want[ALL], loss;
} job;

static const char *train_rank(rank_env *env)
{
    const job *j = env->arg;
    const int64_t group_width = (int64_t)HEADS / KV_HEADS * DEPTH;
    const tri_parallel_value between = j->by_tokens ? TRI_SHARDED_SEQUENCE : TRI_WHOLE;
    const tri_parallel_rule rules[] = {
        {.module = "norm1", .style = TRI_SEQUENCE, .input = TRI_WHOLE, .output = between},
        /* heads of queries go with those of the keys that they share */
        {.module = "q", .style = TRI_COLWISE, .block = group_width, .input = between},
        {.module = "k", .style = TRI_COLWISE, .block = DEPTH, .input = between},
        {.module = "v", .style = TRI_COLWISE, .block = DEPTH, .input = between},
        {.module = "o", .style = TRI_ROWWISE, .block = group_width},
        {.module = "norm2", .style = TRI_SEQUENCE, .input = TRI_WHOLE, .output = between},
        {.module = "gate_up", .style = TRI_COLWISE, .parts = 2, .input = between},
        {.module = "down", .style = TRI_ROWWISE}};
    tri_module *net = build_block(env->rank == 0 ? 3 : 40);
    tri_group *group = NULL;
    double got[ALL], loss;
    const char *wrong;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, rules, 8));
    memcpy(got, j->want, sizeof(got));
    RANK_TRY(env, train(net, got, &loss));
    wrong = far_from(env, "loss", &loss, &j->loss, 1);
    if (wrong == NULL)
        wrong = far_from(env, "weight", got, j->want, ALL);
    tri_module_destroy(net);
    tri_group_unref(group);
    return wrong;
}

static void shared_keys_and_gated_layers_train_as_one_process(void **state)
{
    static job j;
    tri_module *net = build_block(3);

    (void)state;
    CHECK_OK(train(net, j.want, &j.loss));
    tri_module_destroy(net);
    for (int size = 2; size <= 3; size++) {
        for (int k = 0; k < 2; k++) {
            j.by_tokens = k == 1;
            run_threads(size, &(tri_group_options){.engine = "shm"}, train_rank, &j);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shared_keys_and_gated_layers_train_as_one_process),
};

TEST_MAIN(tests)
