/*
 * ddp_wrapped_test.c - a network over memory of the user's: its parameters and buffers stay there,
 * and the numbers are those of a network that has its own.
 */
/* ctest: also=TRI_CHECK=order */
#include "base/err.h"
#include "testing/ddp_ranks.h"

/* Where a user keeps his network. */
typedef struct own_memory {
    _Alignas(64) double weight[IN * OUT], mean[IN], var[IN];
    int64_t epoch[1];
} own_memory;

static own_memory memory_of[2];

typedef struct normed {
    tri_tensor *weight, *mean, *var, *epoch;
} normed;

static tri_tensor *normed_forward(tri_module *self, tri_tensor *x)
{
    normed *n = tri_module_data(self);

    tri_batch_norm_args norm = {
        .running_mean = n->mean, .running_var = n->var, .training = tri_module_is_training(self)};

    return tri_matmul(tri_batch_norm(x, &norm), n->weight);
}

/* Wrapped or not; both start from the same values. */
static tri_tensor *tensor_of(bool wrapped, tri_dtype dtype, const int64_t *shape, int ndim,
                             void *own)
{
    return wrapped ? tri_tensor_wrap(shape, ndim, dtype, own, NULL, NULL)
                   : tri_tensor_from(shape, ndim, dtype, own);
}

static tri_module *normed_create(int index, bool wrapped)
{
    tri_module *net = tri_module_simple("normed", sizeof(normed), normed_forward);
    normed *n = tri_module_data(net);
    own_memory *own = &memory_of[index];

    memset(own, 0, sizeof(*own));
    for (int i = 0; i < IN * OUT; i++)
        own->weight[i] = y_data[i] * (1 + index);
    for (int i = 0; i < IN; i++)
        own->var[i] = 1;
    own->epoch[0] = 10 + index;
    n->weight = tri_module_add_parameter(
        net, "weight", tensor_of(wrapped, TRI_DTYPE_F64, TRI_SHAPE(IN, OUT), own->weight));
    n->mean = tri_module_add_buffer(net, "mean",
                                    tensor_of(wrapped, TRI_DTYPE_F64, TRI_SHAPE(IN), own->mean));
    n->var = tri_module_add_buffer(net, "var",
                                   tensor_of(wrapped, TRI_DTYPE_F64, TRI_SHAPE(IN), own->var));
    n->epoch = tri_module_add_buffer(net, "epoch",
                                     tensor_of(wrapped, TRI_DTYPE_I64, TRI_SHAPE(1), own->epoch));
    return net;
}

/* Whether what the model holds is what the user sees, without asking the model. */
static tri_status check_memory(const normed *n, const own_memory *own, int64_t epoch)
{
    if (tri_data(n->weight) != own->weight || tri_data(n->mean) != own->mean ||
        tri_data(n->var) != own->var || tri_data(n->epoch) != own->epoch)
        return TRII_FAIL(TRI_ERR_INTERNAL, "a tensor has left its memory");
    if (own->epoch[0] != epoch)
        return TRII_FAIL(TRI_ERR_INTERNAL, "epoch %d", (int)own->epoch[0]);
    return own->mean[0] != 0 && own->var[0] != 1
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INTERNAL, "the statistics of the user are those of the start");
}

static tri_status train_normed(rank *r)
{
    bool wrapped = *(const bool *)r->arg;
    tri_module *net = normed_create(r->index, wrapped);
    normed *n = tri_module_data(net);
    tri_module *model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, r->index * 5, 5), *y = rows_of(y_data, OUT, 0, 5);

    TRY(tri_module_status(model));
    for (int step = 0; step < STEPS; step++) {
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        if (wrapped)
            TRY(check_memory(n, &memory_of[r->index], 10));
    }
    if (wrapped && r->index == 0)
        memory_of[0].epoch[0] = 77; /* the user writes where he may */
    else if (r->index == 0)
        TRY(tri_tensor_copy_in(n->epoch, &(const int64_t){77}, sizeof(int64_t)));
    TRY(tri_ddp_sync_buffers(model));
    TRY(tri_ddp_verify(model, true));
    if (wrapped)
        TRY(check_memory(n, &memory_of[r->index], 77));
    TRY(take_weights(r, model));
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void parameters_and_buffers_stay_in_memory_of_the_users(void **state)
{
    static rank with[2], without[2];

    (void)state;
    make_data();
    ranks_succeed(with, 2, train_normed, &(const bool){true});
    ranks_succeed(without, 2, train_normed, &(const bool){false});
    assert_true(with[0].hash == without[0].hash);
    assert_true(with[1].hash == without[0].hash);
    assert_memory_equal(with[0].weights, without[0].weights, sizeof(with[0].weights));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parameters_and_buffers_stay_in_memory_of_the_users),
};

TEST_MAIN(tests)
