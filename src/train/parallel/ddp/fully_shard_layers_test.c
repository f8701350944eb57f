/* fully_shard_layers_test.c - layers that look at their parameters, or read them in other ways than
 * linear ones do, train under tri_fully_shard to the bits of tri_ddp. */
#include "testing/ddp_ranks.h"

typedef struct layered {
    tri_module *(*build)(void);
    int64_t shape[4];
    int ndim;
} layered;

static tri_module *an_lstm(void)
{
    return tri_nn_lstm(4, 8, &(tri_nn_lstm_options){.num_layers = 2});
}

static tri_module *a_cnn(void)
{
    return tri_nn_sequential(tri_nn_conv2d(2, 16, 3, NULL), tri_nn_batch_norm2d(16, NULL),
                             tri_nn_relu(), tri_nn_conv2d(16, 4, 1, NULL), tri_nn_flatten(1));
}

static tri_module *norms(void)
{
    return tri_nn_sequential(
        tri_nn_linear(4, 32, NULL), tri_nn_layer_norm((int64_t[]){32}, 1, NULL),
        tri_nn_linear(32, 32, NULL), tri_nn_rms_norm((int64_t[]){32}, 1, NULL));
}

static const layered kinds[] = {
    {an_lstm, {3, 2, 4}, 3}, {a_cnn, {2, 2, 6, 6}, 4}, {norms, {3, 4}, 2}};

static tri_status train_layers(rank *r, const layered *kind, tri_module *model)
{
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);
    float data[2 * 2 * 6 * 6];
    tri_tensor *x = tri_tensor_create(kind->shape, kind->ndim, TRI_DTYPE_F32);

    TRY(tri_optimizer_status(opt));
    for (int i = 0; i < (int)TRII_COUNT_OF(data); i++)
        data[i] = (float)((i * 37 + 11 * r->index) % 17) / 8 - 1;
    TRY(tri_tensor_copy_in(x, data, (size_t)tri_tensor_numel(x) * sizeof(float)));
    for (int i = 0; i < STEPS; i++) {
        tri_tensor *out[3] = {NULL};

        tri_forward_n(model, &x, 1, out, kind->build == an_lstm ? 3 : 1);
        tri_backward(tri_mean(tri_mul(out[0], out[0]), NULL, 0, false));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        tri_step_end();
    }
    TRY(tri_module_hash(model, &r->hash));
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static tri_module *build(const layered *kind)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(3);
    net = kind->build();
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_status layers_whole(rank *r)
{
    const layered *kind = r->arg;

    return train_layers(r, kind, tri_ddp(build(kind), &(tri_ddp_options){.group = r->group}));
}

static tri_status layers_sharded(rank *r)
{
    const layered *kind = r->arg;

    return train_layers(r, kind,
                        tri_fully_shard(build(kind), &(tri_zero_options){.group = r->group,
                                                                         .bucket_cap_bytes = 64,
                                                                         .first_bucket_bytes = 64,
                                                                         .prefetch = -1}));
}

static void layers_of_all_kinds_have_the_bits_of_ddp(void **state)
{
    static rank whole[2], ranks[2];

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(kinds); k++) {
        ranks_succeed(whole, 2, layers_whole, &kinds[k]);
        ranks_succeed(ranks, 2, layers_sharded, &kinds[k]);
        assert_int_equal(ranks[0].hash, whole[0].hash);
        assert_int_equal(ranks[1].hash, whole[1].hash);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(layers_of_all_kinds_have_the_bits_of_ddp),
};

TEST_MAIN(tests)
