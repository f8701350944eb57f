/*
 * ddp_steady_test.c - once its plans are made, a data-parallel step allocates nothing:
 * small and large buckets, batch normalisation's buffers, momentum. (What oneDNN allocates within
 * its primitives is not counted.)
 */
#include "base/alloc.h"
#include "testing/ddp_ranks.h"

#define WARM_UP 10
#define MEASURED 100
/* Memory that an engine keeps for calls under way grows when a large one first comes into a place
 * where only small ones were: a few times, by chance late. */
#define WINDOWS 10
#define SIDE 8
#define CLASSES 8 /* the last weights are more than what a bucket sends without a handle */

typedef struct steady {
    const char *engine;
    long calls[2]; /* of trii_alloc, before and after: rank 0's, while the others wait */
} steady;

static steady now;

static tri_status one_step(tri_module *model, tri_optimizer *opt, tri_tensor *x, tri_tensor *y)
{
    tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);
    double value;

    tri_backward(loss);
    TRY(tri_optimizer_step(opt));
    value = tri_item(loss);
    TRY(tri_step_end_status());
    return isfinite(value) ? TRI_OK : TRI_ERR_NAN;
}

/* All ranks are between two steps when rank 0 reads the counter. */
static tri_status read_calls(const rank *r, tri_group *group, long *calls_out)
{
    TRY(tri_barrier(group, NULL));
    if (r->index == 0)
        *calls_out = trii_alloc_calls();
    return tri_barrier(group, NULL);
}

static tri_status steps(rank *r, tri_group *group, tri_module *model)
{
    tri_tensor *x = tri_tensor_create((int64_t[]){4, 3, SIDE, SIDE}, 4, TRI_DTYPE_F32);
    tri_tensor *y = tri_tensor_create((int64_t[]){4, CLASSES}, 2, TRI_DTYPE_F32);
    tri_optimizer *opt = tri_sgd(model, 0.01, &(tri_sgd_options){.momentum = 0.9});
    tri_status status = tri_module_status(model);

    for (int k = 0; k < WARM_UP && status == TRI_OK; k++)
        status = one_step(model, opt, x, y);
    for (int window = 0; window < WINDOWS && status == TRI_OK; window++) {
        if (window > 0 && now.calls[0] == now.calls[1])
            break;
        status = read_calls(r, group, &now.calls[0]);
        for (int k = 0; k < MEASURED && status == TRI_OK; k++)
            status = one_step(model, opt, x, y);
        if (status == TRI_OK)
            status = read_calls(r, group, &now.calls[1]);
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    return status;
}

static tri_status body(rank *r)
{
    const tri_group_options options = {.engine = now.engine};
    tri_group *group = NULL;
    tri_module *net, *model;
    tri_status status;

    TRY(tri_group_create(r->store, r->index, r->size, &options, &group));
    trii_mutex_lock(&drawing);
    net = tri_nn_sequential(tri_nn_conv2d(3, 16, 3, NULL), tri_nn_batch_norm2d(16, NULL),
                            tri_nn_relu(), tri_nn_flatten(1),
                            tri_nn_linear(16 * (SIDE - 2) * (SIDE - 2), CLASSES, NULL));
    trii_mutex_unlock(&drawing);
    model = tri_ddp(net, &(tri_ddp_options){
                             .group = group, .first_bucket_bytes = 1, .bucket_cap_bytes = 20000});
    status = steps(r, group, model);
    tri_module_destroy(model);
    tri_group_unref(group);
    return status;
}

static void check(const char *engine)
{
    static rank ranks[2];

    now = (steady){.engine = engine};
    ranks_succeed(ranks, 2, body, NULL);
    assert_true(now.calls[0] > 0);
    assert_int_equal(now.calls[1] - now.calls[0], 0);
}

static void steps_over_shm_allocate_nothing(void **state)
{
    (void)state;
    check("shm");
}

static void steps_over_tcp_allocate_nothing(void **state)
{
    (void)state;
    check("tcp");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_over_shm_allocate_nothing),
        cmocka_unit_test(steps_over_tcp_allocate_nothing),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
