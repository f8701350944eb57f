/* ddp_devices_test.c - data-parallel training of a model whose halves lie on two devices: the bits
 * of the same model on one, and the numbers of one process on the whole batch. */
/* ctest: also=TRI_CHECK=order */
#include "testing/ddp_ranks.h"

typedef struct plan {
    tri_device second; /* of the second half; the first lies on cpu:0 */
    bool back;         /* the model's result comes back to cpu:0, and the loss with it */
    bool norm;         /* batch norm, with buffers, in the second half */
    bool no_sync;      /* two micro-batches, of which the first is not averaged */
    double clip;       /* 0 = none */
    bool clip_list;    /* of a list, with DDP's gradients in their buckets */
    tri_bucket_hook hook;
    int parts[MAX_RANKS + 1];
} plan;

typedef struct halves {
    tri_module *first, *second;
    const plan *p;
} halves;

static void halves_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    const halves *h = tri_module_data(self);
    tri_tensor *x = tri_to(tri_forward(h->first, in[0]), h->p->second);

    (void)n_in;
    (void)n_out;
    if (h->p->norm)
        x = tri_reshape(x, TRI_SHAPE(-1, 8, 1, 1));
    x = tri_forward(h->second, x);
    out[0] = h->p->back ? tri_to(x, TRI_CPU(0)) : x;
}

static tri_module *build(const plan *p)
{
    static const tri_module_class type = {
        .name = "Halves", .size = sizeof(halves), .forward = halves_forward};
    tri_module *self = tri_module_create(&type);
    halves *h = tri_module_data(self);

    trii_mutex_lock(&drawing);
    tri_manual_seed(3);
    tri_set_default_dtype(TRI_DTYPE_F64);
    h->p = p;
    h->first = tri_module_add_child(self, "first",
                                    tri_nn_sequential(tri_nn_linear(IN, 8, NULL), tri_nn_tanh()));
    h->second = tri_module_add_child(
        self, "second",
        p->norm ? tri_nn_sequential(tri_nn_batch_norm2d(8, NULL), tri_nn_flatten(1),
                                    tri_nn_linear(8, OUT, NULL))
                : tri_nn_sequential(tri_nn_linear(8, 8, NULL), tri_nn_tanh(),
                                    tri_nn_linear(8, OUT, NULL)));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return self;
}

static tri_status update(const plan *p, tri_module *model, tri_optimizer *opt)
{
    tri_tensor *params[8];
    int n = 0;
    double norm;

    if (p->clip > 0 && p->clip_list) {
        for (int64_t i = 0; i < tri_module_state_count(model); i++) {
            if (tri_module_state(model, i).parameter)
                params[n++] = tri_module_state(model, i).tensor;
        }
        TRY(tri_item_status(tri_clip_grad_norm_of(params, n, p->clip), &norm));
    } else if (p->clip > 0) {
        (void)tri_clip_grad_norm(opt, 2 * p->clip); /* one more before the last */
        TRY(tri_item_status(tri_clip_grad_norm(opt, p->clip), &norm));
    }
    return tri_optimizer_step(opt);
}

static tri_status train(rank *r)
{
    const plan *p = r->arg;
    int n = p->parts[r->index + 1] - p->parts[r->index], micro = p->no_sync ? 2 : 1;
    tri_tensor *x[2], *y[2];
    tri_module *net = build(p), *model;
    tri_optimizer *opt;
    tri_status status;

    TRY(tri_module_to(tri_module_submodule(net, "second"), p->second));
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group,
                                            .hook = p->hook,
                                            .first_bucket_bytes = 256,
                                            .bucket_cap_bytes = 512});
    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int m = 0; m < micro; m++) {
        x[m] = rows_of(x_data, IN, p->parts[r->index] + m * (n / micro), n / micro);
        y[m] = rows_of(y_data, OUT, p->parts[r->index] + m * (n / micro), n / micro);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int m = 0; m < micro; m++) {
            tri_tensor *out;

            if (p->no_sync && m == 0)
                tri_ddp_no_sync_begin(model);
            out = tri_forward(model, x[m]);
            tri_backward(tri_mse_loss(out, tri_to(y[m], tri_tensor_device(out)), NULL));
            if (p->no_sync && m == 0)
                tri_ddp_no_sync_end(model);
        }
        TRY(update(p, model, opt));
        TRY(tri_step_end_status());
    }
    status = r->size > 1 ? tri_ddp_verify(model, !p->norm) : TRI_OK;
    if (status == TRI_OK)
        status = take_weights(r, model);
    for (int m = 0; m < micro; m++) {
        tri_tensor_unref(x[m]);
        tri_tensor_unref(y[m]);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

/* On two devices, with the loss on either: as on one. */
static void check(plan p, int size)
{
    static rank alone[MAX_RANKS], ranks[MAX_RANKS];
    plan one = p;

    CHECK_OK(tri_cpu_devices_set(2));
    make_data();
    for (int i = 0; i <= size; i++)
        p.parts[i] = one.parts[i] = i * ROWS / size;
    one.second = TRI_CPU(0);
    p.second = TRI_CPU(1);
    ranks_succeed(alone, size, train, &one);
    assert_true(alone[0].n_weights > 70);
    for (int back = 0; back < 2; back++) {
        p.back = back == 1;
        ranks_succeed(ranks, size, train, &p);
        for (int i = 0; i < size; i++) {
            assert_true(ranks[i].hash == alone[i].hash);
            assert_memory_equal(ranks[i].weights, alone[i].weights,
                                (size_t)ranks[i].n_weights * sizeof(double));
        }
    }
}

static void halves_on_two_devices_train_as_on_one(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++)
        check((plan){0}, size);
}

static void buffers_of_both_devices_are_kept_equal(void **state)
{
    (void)state;
    check((plan){.norm = true}, 1);
    check((plan){.norm = true}, 2);
}

static void gradients_that_gather_get_their_weight_late(void **state)
{
    (void)state;
    check((plan){.no_sync = true}, 1);
    check((plan){.no_sync = true}, 2);
}

static void the_norm_is_that_of_both_devices(void **state)
{
    (void)state;
    for (int size = 1; size <= 2; size++) {
        check((plan){.clip = 0.05}, size);
        check((plan){.clip = 0.05, .clip_list = true}, size);
        check((plan){.clip = 0.05, .no_sync = true}, size);
    }
}

static void hooks_get_gradients_of_both_devices(void **state)
{
    (void)state;
    check((plan){.hook = tri_bucket_hook_bf16}, 2);
    check((plan){.hook = tri_bucket_hook_f16, .no_sync = true}, 3);
}

static void ranks_are_one_process_on_the_whole_batch(void **state)
{
    static rank one[1], ranks[2];
    plan whole = {.second = TRI_CPU(1), .clip = 0.05, .parts = {0, ROWS}}, half = whole;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    make_data();
    half.parts[1] = ROWS / 2;
    half.parts[2] = ROWS;
    ranks_succeed(one, 1, train, &whole);
    ranks_succeed(ranks, 2, train, &half);
    for (int i = 0; i < one[0].n_weights; i++)
        CHECK_NEAR(ranks[0].weights[i], one[0].weights[i], 1e-12);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(halves_on_two_devices_train_as_on_one),
    cmocka_unit_test(buffers_of_both_devices_are_kept_equal),
    cmocka_unit_test(gradients_that_gather_get_their_weight_late),
    cmocka_unit_test(the_norm_is_that_of_both_devices),
    cmocka_unit_test(hooks_get_gradients_of_both_devices),
    cmocka_unit_test(ranks_are_one_process_on_the_whole_batch),
};

TEST_MAIN(tests)
