/*
 * remote_rules_test.c - remote modules that call others, that fail, that are called by several
 * workers, and whose owner or caller dies.
 */
#include "parallel/rpc/remote_internal.h"
#include "testing/remote_workers.h"

#define WIDTH 6

static tri_module *linear_with(int seed)
{
    tri_module *net = tri_nn_linear(WIDTH, WIDTH, NULL);
    tri_tensor *weight = remote_tensor((int64_t[]){WIDTH, WIDTH}, 2, TRI_DTYPE_F32, seed);
    size_t bytes;
    char *data = remote_bytes(weight, &bytes);

    CHECK_OK(tri_tensor_copy_in(tri_module_find(net, "weight"), data, bytes));
    free(data);
    tri_tensor_unref(weight);
    return net;
}

static tri_tensor *input(int seed)
{
    tri_tensor *x = remote_tensor((int64_t[]){4, WIDTH}, 2, TRI_DTYPE_F32, seed);

    tri_requires_grad(x, true);
    return x;
}

static tri_tensor *loss_of(tri_tensor *y)
{
    return tri_mean(tri_square(y), NULL, 0, false);
}

static int sessions_of(const trii_served *s)
{
    int n = 0;

    trii_mutex_lock(&((trii_served *)(uintptr_t)s)->lock);
    for (const trii_session *session = s->sessions; session != NULL; session = session->next)
        n++;
    trii_mutex_unlock(&((trii_served *)(uintptr_t)s)->lock);
    return n;
}

static trii_served *served_as(const remote_workers *r, int i, const char *name)
{
    char path[64];
    tri_rpc_ref *ref = NULL;
    trii_served *served;

    snprintf(path, sizeof(path), "w%d/%s", i, name);
    CHECK_OK(tri_rpc_find(r->w.rpc[i], path, &ref));
    served = tri_rpc_ref_object(ref);
    tri_rpc_ref_unref(ref);
    return served;
}

static void wait_for_sessions(const trii_served *s, int expected)
{
    int64_t deadline = trii_deadline_ms(20000);

    while (sessions_of(s) != expected && trii_now_ns() < deadline)
        trii_thread_yield();
    assert_int_equal(sessions_of(s), expected);
}

/* --- calls within calls --------------------------------------------------- */

static tri_tensor *both_forward(tri_module *self, tri_tensor *x)
{
    tri_tensor *y = tri_forward(tri_module_submodule(self, "far"), x);

    return tri_forward(tri_module_submodule(self, "near"), tri_tanh(y));
}

/* far, then near. */
static tri_module *both(tri_module *far, tri_module *near)
{
    tri_module *self = tri_module_simple("Both", 0, both_forward);

    (void)tri_module_add_child(self, "far", far);
    (void)tri_module_add_child(self, "near", near);
    CHECK_OK(tri_module_status(self));
    return self;
}

static void modules_on_three_workers_have_the_bits_of_one_process(void **state)
{
    tri_module *here, *middle, *last, *remote;
    tri_tensor *x, *rx;
    remote_workers r;

    (void)state;
    remote_begin(&r, 4, NULL);
    here = both(both(linear_with(1), linear_with(2)), linear_with(3));
    last = linear_with(1);
    CHECK_OK(tri_remote_serve(r.w.rpc[3], "last", last, NULL, NULL));
    middle = both(tri_remote_module(r.w.rpc[2], "w3/last", NULL), linear_with(2));
    CHECK_OK(tri_remote_serve(r.w.rpc[2], "middle", middle, NULL, NULL));
    remote = both(tri_remote_module(r.w.rpc[0], "w2/middle", NULL), linear_with(3));
    /* the bias of both is random: one for all */
    remote_copy_state(last, tri_module_submodule(here, "far.far"));
    remote_copy_state(tri_module_submodule(middle, "near"), tri_module_submodule(here, "far.near"));
    remote_copy_state(tri_module_submodule(remote, "near"), tri_module_submodule(here, "near"));
    x = input(4);
    rx = input(4);
    for (int step = 0; step < 3; step++) {
        tri_tensor *y = tri_keep(tri_forward(here, x)), *ry = tri_keep(tri_forward(remote, rx));

        CHECK_OK(tri_tensor_status(ry));
        tri_backward(loss_of(y));
        tri_backward(loss_of(ry));
        CHECK_OK(tri_run());
        remote_expect_equal(y, ry);
        remote_expect_equal(tri_grad(x), tri_grad(rx));
        remote_expect_equal(tri_grad(tri_module_find(here, "near.weight")),
                            tri_grad(tri_module_find(remote, "near.weight")));
        tri_step_end();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(rx);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[2], "middle"));
    tri_module_destroy(middle);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[3], "last"));
    tri_module_destroy(last);
    tri_module_destroy(here);
    remote_end(&r);
}

static void a_module_that_calls_itself_through_another_worker_is_refused(void **state)
{
    tri_module *one, *two, *remote;
    tri_tensor *x;
    remote_workers r;

    (void)state;
    remote_begin(&r, 3, NULL);
    one = both(tri_remote_module(r.w.rpc[1], "w2/two", NULL), linear_with(1));
    two = both(tri_remote_module(r.w.rpc[2], "w1/one", NULL), linear_with(2));
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "one", one, NULL, NULL));
    CHECK_OK(tri_remote_serve(r.w.rpc[2], "two", two, NULL, NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/one", NULL);
    x = input(4);
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_STATE,
                "one calls itself through another worker");
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "one"));
    CHECK_OK(tri_remote_withdraw(r.w.rpc[2], "two"));
    tri_module_destroy(one);
    tri_module_destroy(two);
    remote_end(&r);
}

/* A module that ends its own service. */
static tri_rpc *own_rpc;

static tri_tensor *withdraw_forward(tri_module *self, tri_tensor *x)
{
    (void)self;
    CHECK_FAILS(tri_remote_withdraw(own_rpc, "net"), TRI_ERR_STATE, "net waits for this call");
    return tri_tanh(x);
}

static void a_module_does_not_withdraw_itself(void **state)
{
    tri_module *net, *remote;
    tri_tensor *x;
    remote_workers r;

    (void)state;
    remote_begin(&r, 2, NULL);
    own_rpc = r.w.rpc[1];
    net = tri_module_simple("Withdraw", 0, withdraw_forward);
    CHECK_OK(tri_remote_serve(own_rpc, "net", net, NULL, NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    x = input(4);
    CHECK_OK(tri_tensor_status(tri_forward(remote, x)));
    CHECK_OK(tri_run());
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(own_rpc, "net"));
    tri_module_destroy(net);
    remote_end(&r);
}

/* --- failures ------------------------------------------------------------- */

static void an_error_of_the_owner_comes_with_its_line(void **state)
{
    const int64_t at[] = {3, 11};
    tri_module *net, *table, *remote, *rows;
    tri_tensor *x, *i, *y;
    remote_workers r;

    (void)state;
    remote_begin(&r, 2, NULL);
    net = linear_with(1);
    table = tri_nn_embedding(10, 4, NULL);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "table", table, NULL, NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    rows = tri_remote_module(r.w.rpc[0], "w1/table", NULL);
    x = remote_tensor((int64_t[]){2, 3}, 2, TRI_DTYPE_F32, 1);
    i = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_I64, at);
    /* what is known when it is recorded */
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_INVALID_ARG, "w1");
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_INVALID_ARG, "[2, 3]");
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_INVALID_ARG,
                "remote_rules_test.c");
    tri_step_end();
    /* and what is known when it runs */
    y = tri_forward(rows, i);
    CHECK_OK(tri_tensor_status(y));
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "w1");
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "11");
    tri_step_end();
    /* the next step is as good as any */
    tri_tensor_unref(i);
    i = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_I64, at);
    y = tri_forward(rows, i);
    tri_backward(loss_of(y));
    CHECK_OK(tri_run());
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(i);
    tri_module_destroy(remote);
    tri_module_destroy(rows);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "table"));
    tri_module_destroy(net);
    tri_module_destroy(table);
    remote_end(&r);
}

static const tri_rpc_object thing = {.name = "thing"};

static void what_is_not_served_is_refused(void **state)
{
    tri_module *net, *remote;
    tri_rpc_ref *ref = NULL;
    tri_tensor *x;
    remote_workers r;
    int object = 0;

    (void)state;
    remote_begin(&r, 2, NULL);
    net = linear_with(1);
    x = input(1);
    CHECK_OK(tri_rpc_own(r.w.rpc[1], "thing", &thing, &object, &ref));
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    CHECK_FAILS(tri_remote_serve(r.w.rpc[1], "again", net, NULL, NULL), TRI_ERR_STATE,
                "served already, as net");
    remote = tri_remote_module(r.w.rpc[0], "w1/thing", NULL);
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_NOT_FOUND,
                "not a remote module");
    tri_module_destroy(remote);
    remote = tri_remote_module(r.w.rpc[0], "w1", NULL);
    CHECK_FAILS(tri_module_status(remote), TRI_ERR_INVALID_ARG, "ps/table");
    tri_module_destroy(remote);
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    (void)tri_forward(remote, x);
    CHECK_OK(tri_run());
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    CHECK_FAILS(tri_remote_withdraw(r.w.rpc[1], "net"), TRI_ERR_NOT_FOUND, "net");
    (void)tri_forward(remote, x);
    CHECK_FAILS(tri_run(), TRI_ERR_NOT_FOUND, "not served any more");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_NOT_FOUND,
                "not served any more");
    tri_step_end();
    tri_module_destroy(remote);
    tri_tensor_unref(x);
    tri_module_destroy(net);
    tri_rpc_ref_unref(ref);
    remote_end(&r);
}

/* A worker is the same by its handle and, in a handler of it, by NULL. */
static tri_module *to_serve;

static tri_status run_serve(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_remote_serve(NULL, "net", to_serve, NULL, NULL);
}

static void a_withdrawn_name_may_be_served_again(void **state)
{
    static const tri_rpc_function serve = {.name = "serve", .run = run_serve};
    tri_module *nets[3], *remote;
    tri_rpc_ref *owner;
    tri_tensor *x;
    remote_workers r;

    (void)state;
    remote_begin(&r, 2, NULL);
    worker_serve(&r.w, 1, &serve);
    owner = worker_find(&r.w, 0, "w1");
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    x = input(1);
    for (int i = 0; i < 3; i++) {
        tri_tensor *y, *here;

        to_serve = nets[i] = linear_with(i + 1);
        CHECK_OK(tri_rpc_sync(owner, &serve, NULL, NULL, NULL));
        CHECK_FAILS(tri_remote_serve(r.w.rpc[1], "net", nets[0], NULL, NULL), TRI_ERR_STATE, "net");
        if (i > 0) { /* the forward's session was with the last one */
            (void)tri_forward(remote, x);
            CHECK_FAILS(tri_run(), TRI_ERR_NOT_FOUND, "not served any more");
            tri_step_end();
        }
        y = tri_tensor_clone(tri_forward(remote, x));
        CHECK_OK(tri_run());
        CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
        here = tri_tensor_clone(tri_forward(nets[i], x));
        remote_expect_equal(y, here);
        tri_step_end();
        tri_tensor_unref(y);
        tri_tensor_unref(here);
    }
    tri_module_destroy(remote);
    tri_tensor_unref(x);
    tri_rpc_ref_unref(owner);
    for (int i = 0; i < 3; i++)
        tri_module_destroy(nets[i]);
    remote_end(&r);
}

static void an_owner_keeps_only_so_many_graphs(void **state)
{
    tri_module *net, *remote;
    tri_tensor *x;
    remote_workers r;

    (void)state;
    remote_begin(&r, 2, NULL);
    net = linear_with(1);
    x = input(1);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL,
                              &(tri_remote_serve_options){.max_graphs = 3}));
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < 3; i++)
            (void)tri_forward(remote, x);
        CHECK_OK(tri_run());
        (void)tri_forward(remote, x);
        CHECK_FAILS(tri_run(), TRI_ERR_STATE, "max_graphs");
        tri_step_end();
    }
    tri_module_destroy(remote);
    tri_tensor_unref(x);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    tri_module_destroy(net);
    remote_end(&r);
}

/* --- deaths --------------------------------------------------------------- */

/* A function that waits, in forward or backward, until the test lets it go on. */
static atomic_int reached, may_go, waits_in_backward;

static void wait_here(void)
{
    int64_t deadline = trii_deadline_ms(20000);

    atomic_store(&reached, 1);
    while (atomic_load(&may_go) == 0 && trii_now_ns() < deadline)
        trii_thread_yield();
}

static tri_status slow_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    out[0].data = NULL;
    return TRI_OK;
}

static tri_status slow_forward(const tri_function_call *call)
{
    if (atomic_load(&waits_in_backward) == 0)
        wait_here();
    memcpy(call->out[0].data, call->in[0].data, 4 * WIDTH * sizeof(float));
    return TRI_OK;
}

static tri_status slow_backward(const tri_function_call *call)
{
    if (atomic_load(&waits_in_backward) == 1)
        wait_here();
    memcpy(call->grad_in[0].data, call->grad_out[0].data, 4 * WIDTH * sizeof(float));
    return TRI_OK;
}

static const tri_function_class slow_class = {.name = "slow",
                                              .shape = slow_shape,
                                              .forward = slow_forward,
                                              .backward = slow_backward,
                                              .backward_without_in = true,
                                              .backward_without_out = true};

static tri_tensor *slow(tri_module *self, tri_tensor *x)
{
    tri_tensor *y = NULL;

    (void)self;
    tri_function_apply(&slow_class, NULL, &x, 1, &y, 1);
    return y;
}

static void aborter(void *arg)
{
    worker_wait_for(&reached, 1);
    tri_rpc_abort(arg, "killed");
}

static void slow_begin(bool in_backward)
{
    atomic_store(&reached, 0);
    atomic_store(&may_go, 0);
    atomic_store(&waits_in_backward, in_backward);
}

static void the_death_of_an_owner_ends_what_waits_for_it(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        tri_module *net, *remote;
        trii_thread thread;
        remote_workers r;
        tri_status status;
        tri_tensor *x;

        remote_begin(&r, 2, NULL);
        slow_begin(k == 1);
        net = tri_module_simple("Slow", 0, slow);
        x = input(1);
        CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
        remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
        tri_backward(loss_of(tri_forward(remote, x)));
        CHECK_OK(trii_thread_start(&thread, "abort", aborter, r.w.rpc[1]));
        CHECK_FAILS(tri_run(), TRI_ERR_PEER_LOST, "w1");
        assert_int_equal(atomic_load(&may_go), 0);
        trii_thread_join(&thread);
        tri_step_end();
        CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_PEER_LOST, "w1");
        tri_step_end();
        atomic_store(&may_go, 1);
        tri_module_destroy(remote);
        tri_tensor_unref(x);
        status = tri_remote_withdraw(r.w.rpc[1], "net"); /* it ends with its worker, or has */
        assert_true(status == TRI_OK || status == TRI_ERR_NOT_FOUND);
        tri_module_destroy(net);
        tri_rpc_abort(r.w.rpc[0], "end");
        trii_step_release();
        r.w.blocks = r.blocks;
        workers_destroy(&r.w);
    }
}

/* By a module whose calls have so long. */
static tri_status forward_within(int64_t ms, tri_rpc *rpc, tri_tensor *x)
{
    tri_module *remote =
        tri_remote_module(rpc, "w1/net", &(tri_remote_module_options){.timeout_ms = ms});
    tri_status status;
    char text[512];

    (void)tri_forward(remote, x);
    status = tri_run();
    snprintf(text, sizeof(text), "%s", tri_last_error());
    tri_step_end();
    tri_module_destroy(remote);
    return status == TRI_OK ? status : tri_status_fail(status, "%s", text);
}

static void a_call_ends_at_its_deadline(void **state)
{
    tri_module *net, *remote;
    remote_workers r;
    tri_tensor *x;
    int64_t ms;

    (void)state;
    remote_begin(&r, 2, NULL);
    slow_begin(false);
    net = tri_module_simple("Slow", 0, slow);
    x = input(1);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    CHECK_FAILS_WITHIN(ms, forward_within(ms, r.w.rpc[0], x), TRI_ERR_TIMEOUT,
                       "remote.forward on w1");
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    atomic_store(&may_go, 1);
    tri_backward(loss_of(tri_forward(remote, x)));
    CHECK_OK(tri_run());
    tri_step_end();
    tri_module_destroy(remote);
    tri_tensor_unref(x);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    tri_module_destroy(net);
    remote_end(&r);
}

static void what_a_dead_caller_had_is_dropped(void **state)
{
    tri_module *net, *remote;
    trii_served *served;
    remote_workers r;
    tri_tensor *x;

    (void)state;
    remote_begin(&r, 2, NULL);
    net = linear_with(1);
    x = input(1);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    served = served_as(&r, 1, "net");
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    for (int i = 0; i < 3; i++)
        (void)tri_forward(remote, x);
    CHECK_OK(tri_run());
    assert_int_equal(sessions_of(served), 1);
    tri_rpc_abort(r.w.rpc[0], "killed");
    wait_for_sessions(served, 0);
    tri_step_end();
    tri_module_destroy(remote);
    tri_tensor_unref(x);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    tri_module_destroy(net);
    tri_rpc_abort(r.w.rpc[1], "end");
    trii_step_release();
    r.w.blocks = r.blocks;
    workers_destroy(&r.w);
}

/* --- damaged requests ----------------------------------------------------- */

/* A forward of [4, WIDTH], or what damage makes of it. */
typedef struct request {
    union {
        trii_remote_forward forward;
        trii_remote_backward backward;
        trii_remote_release release;
    } head;
    trii_remote_type type;
} request;

static size_t make_request(trii_remote_kind kind, uint64_t call, request *q)
{
    const trii_type type = {.dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {4, WIDTH}};
    size_t head = sizeof(q->head.forward);

    memset(q, 0, sizeof(*q));
    if (kind == TRII_REMOTE_RELEASE) {
        q->head.release = (trii_remote_release){TRII_REMOTE_MAGIC, kind, 1, {call}};
        return sizeof(q->head.release);
    }
    if (kind == TRII_REMOTE_BACKWARD) {
        q->head.backward = (trii_remote_backward){
            .magic = TRII_REMOTE_MAGIC, .kind = kind, .call = call, .present = 1, .n_types = 1};
        head = sizeof(q->head.backward);
    } else {
        q->head.forward = (trii_remote_forward){.magic = TRII_REMOTE_MAGIC,
                                                .kind = kind,
                                                .call = call,
                                                .n_types = 1,
                                                .n_results = 1,
                                                .requires_grad = 1};
    }
    trii_remote_type_put((trii_remote_type *)(void *)((char *)q + head), &type);
    return head + sizeof(trii_remote_type);
}

static tri_status send_request(tri_rpc_ref *session, trii_remote_kind kind, const request *q,
                               size_t bytes, size_t part_bytes)
{
    static const float x[8 * WIDTH] = {1, 2, 3};
    const tri_rpc_part part = {x, part_bytes};

    return tri_rpc_sync(
        session, trii_remote_functions[kind],
        &(tri_rpc_message){.data = q,
                           .bytes = bytes,
                           .parts = &part,
                           .n_parts =
                               kind == TRII_REMOTE_TYPES || kind == TRII_REMOTE_RELEASE ? 0 : 1},
        NULL, NULL);
}

static void damaged_requests_are_refused(void **state)
{
    static const trii_remote_kind kinds[] = {TRII_REMOTE_FORWARD, TRII_REMOTE_BACKWARD,
                                             TRII_REMOTE_TYPES, TRII_REMOTE_RELEASE};
    static request q;
    const size_t whole = 4 * WIDTH * sizeof(float);
    tri_module *net, *remote;
    tri_rpc_ref *session = NULL;
    remote_workers r;
    uint32_t random = 1;

    (void)state;
    remote_begin(&r, 2, NULL);
    net = linear_with(1);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    CHECK_OK(trii_remote_session(trii_remote_of(remote), &session, NULL));
    for (uint64_t n = 1; n < 400; n++) {
        trii_remote_kind kind = kinds[n % TRII_COUNT_OF(kinds)];
        size_t bytes = make_request(kind, n, &q);

        if (n % 3 == 0) {
            random = random * 1664525u + 1013904223u;
            bytes = random % bytes; /* cut off */
        }
        for (int k = 0; k < 4 && n % 3 != 0; k++) {
            random = random * 1664525u + 1013904223u;
            ((unsigned char *)&q)[(random >> 8) % bytes] ^= (unsigned char)(1u << (random >> 29));
        }
        if (send_request(session, kind, &q, bytes, n % 5 == 0 ? whole - 4 : whole) < 0)
            assert_true(tri_last_error()[0] != '\0');
    }
    /* as it should be, it still works */
    CHECK_OK(send_request(session, TRII_REMOTE_FORWARD, &q,
                          make_request(TRII_REMOTE_FORWARD, 1000, &q), whole));
    CHECK_OK(send_request(session, TRII_REMOTE_BACKWARD, &q,
                          make_request(TRII_REMOTE_BACKWARD, 1000, &q), whole));
    CHECK_FAILS(send_request(session, TRII_REMOTE_BACKWARD, &q,
                             make_request(TRII_REMOTE_BACKWARD, 1000, &q), whole),
                TRI_ERR_STATE, "has been dropped");
    tri_rpc_ref_unref(session);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    tri_module_destroy(net);
    remote_end(&r);
}

/* --- several callers ------------------------------------------------------ */

#define CALLS 40

typedef struct caller {
    tri_rpc *rpc;
    trii_thread thread;
    tri_status status;
    char error[512];
    float losses[CALLS];
} caller;

static tri_status call_often(caller *c, tri_module *net)
{
    tri_status status = TRI_OK;

    for (int step = 0; step < CALLS && status == TRI_OK; step++) {
        float data[4 * WIDTH];
        tri_tensor *x, *loss;
        double value = 0;

        for (int i = 0; i < 4 * WIDTH; i++)
            data[i] = (float)remote_spread(i, step);
        x = tri_tensor_from((int64_t[]){4, WIDTH}, 2, TRI_DTYPE_F32, data);
        tri_requires_grad(x, true);
        loss = loss_of(tri_forward(net, tri_forward(net, x)));
        tri_backward(loss);
        status = tri_item_status(loss, &value);
        c->losses[step] = (float)value;
        if (status == TRI_OK)
            status = tri_step_end_status();
        tri_tensor_unref(x);
    }
    return status;
}

static void caller_main(void *arg)
{
    caller *c = arg;
    tri_module *remote = tri_remote_module(c->rpc, "w1/net", NULL);

    c->status = call_often(c, remote);
    if (c->status != TRI_OK)
        snprintf(c->error, sizeof(c->error), "%s", tri_last_error());
    tri_step_end();
    tri_module_destroy(remote);
    trii_step_release();
}

static void several_callers_share_a_module(void **state)
{
    caller callers[4], here = {0};
    remote_workers r;
    tri_module *net;

    (void)state;
    remote_begin(&r, 5, NULL);
    net = linear_with(1);
    CHECK_OK(call_often(&here, net));
    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        assert_non_null(tri_grad(tri_module_state(net, i).tensor));
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    for (int k = 0; k < 4; k++) {
        callers[k] = (caller){.rpc = r.w.rpc[k == 1 ? 4 : k]};
        CHECK_OK(trii_thread_start(&callers[k].thread, "caller", caller_main, &callers[k]));
    }
    for (int k = 0; k < 4; k++) {
        trii_thread_join(&callers[k].thread);
        if (callers[k].status != TRI_OK)
            fail_msg("%s", callers[k].error);
        assert_memory_equal(callers[k].losses, here.losses, sizeof(here.losses));
    }
    wait_for_sessions(served_as(&r, 1, "net"), 0);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    tri_module_destroy(net);
    remote_end(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(modules_on_three_workers_have_the_bits_of_one_process),
    cmocka_unit_test(a_module_that_calls_itself_through_another_worker_is_refused),
    cmocka_unit_test(a_module_does_not_withdraw_itself),
    cmocka_unit_test(an_error_of_the_owner_comes_with_its_line),
    cmocka_unit_test(what_is_not_served_is_refused),
    cmocka_unit_test(a_withdrawn_name_may_be_served_again),
    cmocka_unit_test(an_owner_keeps_only_so_many_graphs),
    cmocka_unit_test(the_death_of_an_owner_ends_what_waits_for_it),
    cmocka_unit_test(a_call_ends_at_its_deadline),
    cmocka_unit_test(what_a_dead_caller_had_is_dropped),
    cmocka_unit_test(damaged_requests_are_refused),
    cmocka_unit_test(several_callers_share_a_module),
};

TEST_MAIN(tests)
