/*
 * remote_direct_test.c - results that only other remote calls read go from owner to owner.
 */
#include "testing/remote_served.h"

#define WIDTH 6

typedef struct pair {
    remote_workers r;
    tri_module *here[2], *there[2], *remote[2];
    trii_served *served[2];
    tri_tensor *x, *rx;
} pair;

static tri_module *layer(int seed, int width)
{
    tri_manual_seed((uint64_t)seed);
    return tri_nn_linear(width, width, NULL);
}

/* Kernels of which like other layouts than those that travel. */
static tri_module *image_layer(int seed, int width)
{
    tri_manual_seed((uint64_t)seed);
    return tri_nn_sequential(tri_nn_conv2d(width, width, 3, &(tri_nn_conv2d_options){.padding = 1}),
                             tri_nn_batch_norm2d(width, NULL), tri_nn_relu());
}

/* More than remote_tensor makes. */
static tri_tensor *rows(int n, int width, int side)
{
    int elements = n * width * side * side;
    float *data = malloc((size_t)elements * sizeof(*data));
    tri_tensor *x;

    assert_non_null(data);
    for (int i = 0; i < elements; i++)
        data[i] = (float)remote_spread(i, 1);
    x = tri_tensor_from((int64_t[]){n, width, side, side}, side > 1 ? 4 : 2, TRI_DTYPE_F32, data);
    free(data);
    tri_requires_grad(x, true);
    return x;
}

/* Layers "a" of worker w1 and "b" of w1 or w2. */
static void pair_begin_of(pair *p, int second, tri_module *(*make)(int seed, int width), int width,
                          int side)
{
    char name[16];

    remote_begin(&p->r, 3, NULL);
    for (int i = 0; i < 2; i++) {
        p->here[i] = make(i, width);
        p->there[i] = make(i, width);
    }
    snprintf(name, sizeof(name), "w%d/b", second);
    CHECK_OK(tri_remote_serve(p->r.w.rpc[1], "a", p->there[0], NULL, NULL));
    CHECK_OK(tri_remote_serve(p->r.w.rpc[second], "b", p->there[1], NULL, NULL));
    p->served[0] = served_as(&p->r, 1, "a");
    p->served[1] = served_as(&p->r, second, "b");
    p->remote[0] = tri_remote_module(p->r.w.rpc[0], "w1/a", NULL);
    p->remote[1] = tri_remote_module(p->r.w.rpc[0], name, NULL);
    p->x = rows(width < 100 ? 4 : 100, width, side);
    p->rx = rows(width < 100 ? 4 : 100, width, side);
}

static void pair_begin(pair *p, int second, int width)
{
    pair_begin_of(p, second, layer, width, 1);
}

static void pair_end(pair *p, int second)
{
    tri_step_end();
    for (int i = 0; i < 2; i++)
        served_await(p->served[i], served_stays, 0);
    for (int i = 0; i < 2; i++)
        tri_module_destroy(p->remote[i]);
    tri_tensor_unref(p->x);
    tri_tensor_unref(p->rx);
    CHECK_OK(tri_remote_withdraw(p->r.w.rpc[1], "a"));
    CHECK_OK(tri_remote_withdraw(p->r.w.rpc[second], "b"));
    for (int i = 0; i < 2; i++) {
        tri_module_destroy(p->here[i]);
        tri_module_destroy(p->there[i]);
    }
    remote_end(&p->r);
}

/* reads: of each owner's results by the other one, in a step. */
static void compare_reads(int second, tri_module *(*make)(int seed, int width), int width, int side,
                          int reads)
{
    const int steps = TEST_SANITIZED && width > 1000 ? 1 : 3; /* of some 16 MiB each */
    pair p;

    pair_begin_of(&p, second, make, width, side);
    for (int step = 1; step <= steps; step++) {
        tri_tensor *y = tri_keep(tri_forward(p.here[1], tri_forward(p.here[0], p.x)));
        tri_tensor *ry = tri_keep(tri_forward(p.remote[1], tri_forward(p.remote[0], p.rx)));

        tri_backward(remote_loss(y));
        tri_backward(remote_loss(ry));
        CHECK_OK(tri_run());
        remote_expect_equal(y, ry);
        remote_expect_equal(tri_grad(p.x), tri_grad(p.rx));
        tri_step_end();
        assert_int_equal(served_count(p.served[0], served_reads), step * reads);
        assert_int_equal(served_count(p.served[1], served_reads), step * reads);
    }
    pair_end(&p, second);
}

static void compare_chains(int second, tri_module *(*make)(int seed, int width), int width,
                           int side)
{
    compare_reads(second, make, width, side, 1);
}

static void a_chain_of_owners_passes_results_and_gradients_on(void **state)
{
    (void)state;
    compare_chains(2, layer, WIDTH, 1);
}

static void large_results_are_passed_on(void **state)
{
    (void)state;
    compare_chains(2, layer, 300, 1); /* more than is copied by who receives */
}

static tri_module *pointwise(int seed, int width)
{
    (void)seed;
    (void)width;
    return tri_nn_tanh();
}

static void very_large_results_are_passed_on(void **state)
{
    (void)state;
    compare_chains(2, pointwise, (1 << 22) / 100 + 1, 1);
}

/* Every value comes to the caller then. */
static void modes_that_look_at_every_value_pass_nothing_on(void **state)
{
    static const char *const modes[][2] = {{"TRI_CHECK", "nan"}, {"TRI_EAGER", "1"}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        trii_step_release();
        assert_int_equal(setenv(modes[i][0], modes[i][1], 1), 0);
        compare_reads(2, layer, WIDTH, 1, 0);
        trii_step_release();
        assert_int_equal(unsetenv(modes[i][0]), 0);
    }
}

/* What kernels note of sizes stays for the life of the process. */
static void run_alone(tri_module *(*make)(int seed, int width), int width, int side)
{
    tri_module *layers[] = {make(0, width), make(1, width)};
    tri_tensor *x = rows(4, width, side);

    for (int n = 1; n <= 2; n++) {
        tri_tensor *y = tri_forward(layers[0], x);

        tri_backward(remote_loss(n == 2 ? tri_forward(layers[1], y) : y));
        CHECK_OK(tri_run());
        tri_step_end();
    }
    tri_tensor_unref(x);
    for (int i = 0; i < 2; i++)
        tri_module_destroy(layers[i]);
}

static void layouts_of_kernels_change_no_bits(void **state)
{
    (void)state;
    run_alone(image_layer, 16, 9);
    compare_chains(2, image_layer, 16, 9);
    compare_chains(1, image_layer, 16, 9);
}

static void modules_of_one_owner_pass_results_on(void **state)
{
    (void)state;
    compare_chains(1, layer, WIDTH, 1);
}

static void what_the_caller_reads_is_fetched(void **state)
{
    tri_tensor *y, *ry;
    pair p;

    (void)state;
    pair_begin(&p, 2, WIDTH);
    y = tri_keep(tri_forward(p.here[0], p.x));
    ry = tri_keep(tri_forward(p.remote[0], p.rx));
    tri_backward(remote_loss(tri_forward(p.here[1], y)));
    tri_backward(remote_loss(tri_forward(p.remote[1], ry)));
    CHECK_OK(tri_run());
    remote_expect_equal(y, ry);
    remote_expect_equal(tri_grad(p.x), tri_grad(p.rx));
    assert_int_equal(served_count(p.served[0], served_reads), 0);
    assert_int_equal(served_count(p.served[1], served_reads), 1);
    pair_end(&p, 2);
}

static void a_result_with_two_readers_stays_for_both(void **state)
{
    tri_tensor *y, *ry;
    pair p;

    (void)state;
    pair_begin(&p, 2, WIDTH);
    y = tri_forward(p.here[0], p.x);
    ry = tri_forward(p.remote[0], p.rx);
    tri_backward(remote_loss(tri_add(tri_forward(p.here[1], y), tri_forward(p.here[0], y))));
    tri_backward(remote_loss(tri_add(tri_forward(p.remote[1], ry), tri_forward(p.remote[0], ry))));
    CHECK_OK(tri_run());
    remote_expect_equal(tri_grad(p.x), tri_grad(p.rx));
    assert_int_equal(served_count(p.served[0], served_reads), 2);
    assert_int_equal(served_count(p.served[1], served_reads), 0);
    pair_end(&p, 2);
}

static void without_gradients_results_are_passed_on(void **state)
{
    tri_tensor *y, *ry, *unused;
    pair p;

    (void)state;
    pair_begin(&p, 2, WIDTH);
    tri_no_grad_begin();
    y = tri_keep(tri_forward(p.here[1], tri_forward(p.here[0], p.x)));
    ry = tri_keep(tri_forward(p.remote[1], tri_forward(p.remote[0], p.rx)));
    unused = tri_forward(p.remote[0], p.rx);
    CHECK_OK(tri_tensor_status(unused));
    tri_no_grad_end();
    CHECK_OK(tri_run());
    remote_expect_equal(y, ry);
    assert_int_equal(served_count(p.served[0], served_reads), 1);
    assert_int_equal(served_count(p.served[0], served_stays), 0);
    pair_end(&p, 2);
}

/* --- functions of two operands -------------------------------------------- */

static tri_status first_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    out[0].data = NULL;
    return TRI_OK;
}

/* The worker that it gets as its object ends here. */
static void first_record(const void *data, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out, void *object)
{
    (void)data;
    (void)n_in;
    (void)n_out;
    out[0] = tri_tanh(in[0]);
    if (object != NULL)
        tri_rpc_abort(object, "end");
}

static const tri_remote_function first = {
    .name = "first", .shape = first_shape, .record = first_record};

static void overwrite_record(const void *data, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out, void *object)
{
    static const float ones[4 * WIDTH] = {1};

    (void)data;
    (void)n_in;
    (void)n_out;
    CHECK_FAILS(tri_tensor_copy_in(in[0], ones, sizeof(ones)), TRI_ERR_INVALID_ARG,
                "an operand of a remote call is not written");
    out[0] = tri_tanh(in[0]);
    ++*(int *)object;
}

static const tri_remote_function overwrite = {
    .name = "overwrite", .shape = first_shape, .record = overwrite_record};

/* The first lies in the request, the second in the memory of the module that made it. */
static void operands_are_not_overwritten(void **state)
{
    tri_tensor *in, *out, *expected;
    int n_calls = 0;
    pair p;

    (void)state;
    pair_begin(&p, 2, WIDTH);
    CHECK_OK(tri_remote_serve_function(p.r.w.rpc[1], &overwrite, &n_calls, NULL));
    for (int made_there = 0; made_there < 2; made_there++) {
        in = made_there != 0 ? tri_forward(p.remote[0], p.rx) : p.rx;
        expected = tri_keep(tri_tanh(made_there != 0 ? tri_forward(p.here[0], p.x) : p.x));
        tri_remote_apply(p.r.w.rpc[0], "w1", &overwrite, NULL, &in, 1, &out, 1);
        tri_backward(remote_loss(tri_keep(out)));
        CHECK_OK(tri_run());
        remote_expect_equal(out, expected);
        tri_step_end();
    }
    assert_int_equal(n_calls, 2);
    CHECK_OK(tri_remote_withdraw(p.r.w.rpc[1], "overwrite"));
    pair_end(&p, 2);
}

/* It has no gradient of its own, and its backward may come after that of the layer. */
static void a_reader_without_gradients_keeps_the_result(void **state)
{
    tri_tensor *ry, *rz, *loss, *grad, *in[2];
    pair p;

    (void)state;
    pair_begin(&p, 2, WIDTH);
    CHECK_OK(tri_remote_serve_function(p.r.w.rpc[2], &first, NULL, NULL));
    for (int step = 0; step < 20; step++) {
        ry = tri_forward(p.remote[0], p.rx);
        loss = remote_loss(tri_forward(p.remote[1], ry));
        grad = NULL;
        CHECK_OK(tri_gradients(&loss, 1, &p.rx, 1, NULL, &grad));
        tri_no_grad_begin(); /* what it reads is complete after the backward of the layer */
        in[0] = ry;
        in[1] = grad;
        tri_remote_apply(p.r.w.rpc[0], "w2", &first, NULL, in, 2, &rz, 1);
        (void)tri_keep(rz);
        tri_no_grad_end();
        CHECK_OK(tri_run());
        CHECK_OK(tri_tensor_status(rz));
        tri_step_end();
    }
    CHECK_OK(tri_remote_withdraw(p.r.w.rpc[2], "first"));
    pair_end(&p, 2);
}

static void gradients_that_are_not_reached_are_zeros(void **state)
{
    tri_tensor *y, *ry, *in[2];
    pair p;

    (void)state;
    pair_begin(&p, 2, WIDTH);
    CHECK_OK(tri_remote_serve_function(p.r.w.rpc[2], &first, NULL, NULL));
    in[0] = tri_forward(p.remote[1], p.rx);
    in[1] = tri_forward(p.remote[0], p.rx);
    tri_remote_apply(p.r.w.rpc[0], "w2", &first, NULL, in, 2, &ry, 1);
    y = tri_tanh(tri_forward(p.here[1], p.x));
    tri_backward(remote_loss(y));
    tri_backward(remote_loss(ry));
    CHECK_OK(tri_run());
    remote_expect_equal(tri_grad(p.x), tri_grad(p.rx));
    assert_int_equal(served_count(p.served[0], served_reads), 1);
    tri_step_end();
    CHECK_OK(tri_remote_withdraw(p.r.w.rpc[2], "first"));
    pair_end(&p, 2);
}

/* A reply that lies in the memory of its maker takes of the window until it is released, and inputs
 * stay until their backward. */
static void more_inputs_than_a_window_wait_for_their_backward(void **state)
{
    const tri_rpc_options narrow = {.window_bytes = 256 << 10};
    tri_tensor *x, *y, *sum = NULL;
    remote_workers r;

    (void)state;
    remote_begin(&r, 3, &narrow);
    x = rows(50, 400, 1);
    for (int i = 1; i < 3; i++)
        CHECK_OK(tri_remote_serve_function(r.w.rpc[i], &first, NULL, NULL));
    for (int i = 0; i < 20; i++) {
        tri_remote_apply(r.w.rpc[0], "w1", &first, NULL, &x, 1, &y, 1);
        tri_remote_apply(r.w.rpc[0], "w2", &first, NULL, &y, 1, &y, 1);
        y = remote_loss(y);
        sum = sum != NULL ? tri_add(sum, y) : y;
    }
    tri_backward(sum);
    CHECK_OK(tri_run());
    tri_step_end();
    tri_tensor_unref(x);
    for (int i = 1; i < 3; i++)
        CHECK_OK(tri_remote_withdraw(r.w.rpc[i], "first"));
    remote_end(&r);
}

/* --- frames --------------------------------------------------------------- */

typedef struct request {
    trii_remote_forward head;
    trii_remote_type type;
    trii_remote_source source;
} request;

static tri_status send_forward(tri_rpc_ref *session, const request *q, tri_rpc_ref *ref,
                               int *n_parts_out)
{
    static const float x[4 * WIDTH] = {1, 2, 3};
    const tri_rpc_part part = {x, sizeof(x)};
    bool has_source = q->head.elsewhere != 0;
    tri_rpc_message reply;
    tri_status status = tri_rpc_sync(
        session, trii_remote_functions[TRII_REMOTE_FORWARD],
        &(tri_rpc_message){.data = q,
                           .bytes = has_source ? sizeof(*q) : offsetof(request, source),
                           .parts = &part,
                           .n_parts = has_source ? 0 : 1,
                           .refs = &ref,
                           .n_refs = ref != NULL ? 1 : 0},
        NULL, &reply);

    if (status != TRI_OK)
        return status;
    *n_parts_out = reply.n_parts;
    tri_rpc_message_free(&reply);
    return TRI_OK;
}

static tri_status fetch(tri_rpc_ref *from, const trii_remote_source *source, size_t bytes)
{
    return tri_rpc_sync(from, &trii_remote_fetch,
                        &(tri_rpc_message){.data = source, .bytes = bytes}, NULL, NULL);
}

static void sources_are_checked(void **state)
{
    const trii_type type = {.dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {4, WIDTH}};
    request q = {.head = {.magic = TRII_REMOTE_MAGIC,
                          .kind = TRII_REMOTE_FORWARD,
                          .call = 1,
                          .flags = TRII_REMOTE_NO_GRAD,
                          .n_types = 1,
                          .n_results = 1,
                          .unsent = 1,
                          .stay = 1}};
    trii_remote_source wrong;
    tri_rpc_ref *session[2] = {NULL, NULL}, *found;
    uint64_t number = 0;
    int n_parts = -1;
    pair p;

    (void)state;
    pair_begin(&p, 2, WIDTH);
    for (int i = 1; i >= 0; i--)
        CHECK_OK(trii_remote_session(trii_remote_of(p.remote[i]), &session[i], &number));
    found = trii_remote_of(p.remote[0])->found;
    trii_remote_type_put(&q.type, &type);
    CHECK_OK(send_forward(session[0], &q, NULL, &n_parts));
    assert_int_equal(n_parts, 0);
    assert_int_equal(served_count(p.served[0], served_stays), 1);

    q.source = (trii_remote_source){.magic = TRII_REMOTE_MAGIC, .session = number, .number = 1};
    CHECK_FAILS(fetch(found, &q.source, sizeof(q.source) - 1), TRI_ERR_FORMAT, "fetch");
    for (int k = 0; k < 3; k++) {
        wrong = q.source;
        wrong.session ^= k == 0;
        wrong.number ^= k == 1;
        wrong.result ^= k == 2;
        CHECK_FAILS(fetch(found, &wrong, sizeof(wrong)), TRI_ERR_STATE, "has been dropped");
    }
    CHECK_OK(fetch(found, &q.source, sizeof(q.source)));

    q.head.unsent = q.head.stay = 0;
    q.head.elsewhere = 1;
    CHECK_FAILS(send_forward(session[1], &q, NULL, &n_parts), TRI_ERR_STATE, "nobody has said");
    q.source.flags = TRII_REMOTE_WITH_REF;
    CHECK_FAILS(send_forward(session[1], &q, NULL, &n_parts), TRI_ERR_FORMAT, "fewer references");
    CHECK_OK(send_forward(session[1], &q, found, &n_parts));
    assert_int_equal(n_parts, 1);
    q.source.flags = TRII_REMOTE_LAST;
    CHECK_OK(send_forward(session[1], &q, NULL, &n_parts));
    CHECK_FAILS(send_forward(session[1], &q, NULL, &n_parts), TRI_ERR_STATE, "has been dropped");
    q.head.elsewhere = 2;
    CHECK_FAILS(send_forward(session[1], &q, NULL, &n_parts), TRI_ERR_FORMAT, "damaged");
    for (int i = 0; i < 2; i++)
        tri_rpc_ref_unref(session[i]);
    pair_end(&p, 2);
}

/* --- deaths --------------------------------------------------------------- */

static void an_owner_that_dies_with_a_result_is_named(void **state)
{
    tri_tensor *x, *in[2], *out;
    tri_module *net, *remote;
    remote_workers r;
    tri_status status;

    (void)state;
    remote_begin(&r, 3, NULL);
    net = layer(1, WIDTH);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "a", net, NULL, NULL));
    CHECK_OK(tri_remote_serve_function(r.w.rpc[2], &first, r.w.rpc[1], NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/a", NULL);
    x = rows(4, WIDTH, 1);
    tri_no_grad_begin(); /* else a gradient may be wanted later, and the results are kept */
    out = tri_forward(remote, x);
    tri_remote_apply(r.w.rpc[0], "w2", &first, NULL, &out, 1, &in[0], 1); /* ends w1 */
    in[1] = out;
    tri_remote_apply(r.w.rpc[0], "w2", &first, NULL, in, 2, &out, 1);
    tri_no_grad_end();
    (void)tri_keep(out);
    CHECK_FAILS(tri_run(), TRI_ERR_PEER_LOST, "w1");
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[2], "first"));
    status = tri_remote_withdraw(r.w.rpc[1], "a"); /* it ends with its worker, or has */
    assert_true(status == TRI_OK || status == TRI_ERR_NOT_FOUND);
    tri_module_destroy(net);
    remote_end_without_leaving(&r);
}

static void what_a_dead_caller_left_is_dropped(void **state)
{
    tri_tensor *x, *y;
    tri_module *net, *remote;
    trii_served *served;
    remote_workers r;

    (void)state;
    remote_begin(&r, 3, NULL);
    net = layer(1, WIDTH);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "a", net, NULL, NULL));
    CHECK_OK(tri_remote_serve_function(r.w.rpc[2], &first, NULL, NULL));
    served = served_as(&r, 1, "a");
    remote = tri_remote_module(r.w.rpc[0], "w1/a", NULL);
    x = rows(4, WIDTH, 1);
    tri_no_grad_begin();
    y = tri_forward(remote, x);
    for (int i = 0; i < 2; i++) {
        tri_tensor *out;

        tri_remote_apply(r.w.rpc[0], "w2", &first, NULL, &y, 1, &out, 1);
        CHECK_OK(tri_tensor_status(out));
    }
    tri_no_grad_end();
    CHECK_OK(tri_run());
    assert_int_equal(served_count(served, served_reads), 2);
    assert_int_equal(served_count(served, served_stays), 1); /* neither reader is the last one */
    tri_rpc_abort(r.w.rpc[0], "killed");
    served_await(served, served_stays, 0);
    tri_step_end();
    tri_module_destroy(remote);
    tri_tensor_unref(x);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[2], "first"));
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "a"));
    tri_module_destroy(net);
    for (int i = 1; i < 3; i++)
        tri_rpc_abort(r.w.rpc[i], "end");
    remote_end_without_leaving(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_chain_of_owners_passes_results_and_gradients_on),
    cmocka_unit_test(large_results_are_passed_on),
    cmocka_unit_test(very_large_results_are_passed_on),
    cmocka_unit_test(modes_that_look_at_every_value_pass_nothing_on),
    cmocka_unit_test(layouts_of_kernels_change_no_bits),
    cmocka_unit_test(modules_of_one_owner_pass_results_on),
    cmocka_unit_test(what_the_caller_reads_is_fetched),
    cmocka_unit_test(a_result_with_two_readers_stays_for_both),
    cmocka_unit_test(without_gradients_results_are_passed_on),
    cmocka_unit_test(operands_are_not_overwritten),
    cmocka_unit_test(a_reader_without_gradients_keeps_the_result),
    cmocka_unit_test(gradients_that_are_not_reached_are_zeros),
    cmocka_unit_test(more_inputs_than_a_window_wait_for_their_backward),
    cmocka_unit_test(sources_are_checked),
    cmocka_unit_test(an_owner_that_dies_with_a_result_is_named),
    cmocka_unit_test(what_a_dead_caller_left_is_dropped),
};

TEST_MAIN(tests)
