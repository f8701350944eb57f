/*
 * remote_recompute_test.c - remote modules in parts of a step that are computed again for backward,
 * here or at their owners: the bits of one process, and results that go from owner to owner.
 */
#include "testing/remote_layers.h"
#include "testing/remote_served.h"

#define STEPS 3

/* Modules "a" of w1 and "b" of w2, and the same here. */
typedef struct chain {
    remote_workers r;
    tri_module *here[2], *there[2], *remote[2];
    trii_served *served[2];
    tri_tensor *x, *rx;
} chain;

static void chain_begin(chain *c, tri_module *(*make)(void))
{
    remote_begin(&c->r, 3, NULL);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "a" : "b";
        char path[16];

        c->here[i] = make();
        c->there[i] = make();
        remote_copy_state(c->here[i], c->there[i]);
        CHECK_OK(tri_remote_serve(c->r.w.rpc[i + 1], name, c->there[i], NULL, NULL));
        c->served[i] = served_as(&c->r, i + 1, name);
        snprintf(path, sizeof(path), "w%d/%s", i + 1, name);
        c->remote[i] = tri_remote_module(c->r.w.rpc[0], path, NULL);
    }
    c->x = input(4);
    c->rx = input(4);
}

static void chain_end(chain *c)
{
    tri_step_end();
    for (int i = 0; i < 2; i++) {
        served_await(c->served[i], served_stays, 0);
        served_await(c->served[i], served_graphs, 0);
    }
    for (int i = 0; i < 2; i++) {
        tri_module_destroy(c->remote[i]);
        CHECK_OK(tri_remote_withdraw(c->r.w.rpc[i + 1], i == 0 ? "a" : "b"));
        tri_module_destroy(c->here[i]);
        tri_module_destroy(c->there[i]);
    }
    tri_tensor_unref(c->x);
    tri_tensor_unref(c->rx);
    remote_end(&c->r);
}

/* --- here ----------------------------------------------------------------- */

static atomic_int n_forwards; /* here and at the owners */

static tri_tensor *counted_forward(tri_module *self, tri_tensor *x)
{
    atomic_fetch_add(&n_forwards, 1);
    return tri_tanh(tri_forward(tri_module_submodule(self, "net"), x));
}

static tri_module *counted(void)
{
    tri_module *self = tri_module_simple("Counted", 0, counted_forward);

    (void)tri_module_add_child(self, "net", linear_with(2));
    CHECK_OK(tri_module_status(self));
    return self;
}

/* Which of both modules, perhaps with operations of this worker, are computed again together. */
typedef enum { BOTH, BOTH_AND_MORE, FIRST, SECOND, EACH, N_PARTS } parts;

static tri_tensor *forward_in(parts p, tri_module *const m[2], tri_tensor *x)
{
    tri_tensor *y;

    if (p != SECOND)
        tri_recompute_begin();
    if (p == BOTH_AND_MORE)
        x = tri_tanh(x);
    y = tri_forward(m[0], x);
    if (p == BOTH_AND_MORE)
        y = tri_add(y, tri_sigmoid(y));
    if (p == FIRST || p == EACH)
        tri_recompute_end();
    if (p == SECOND || p == EACH)
        tri_recompute_begin();
    y = tri_forward(m[1], y);
    if (p == BOTH_AND_MORE)
        y = tri_tanh(y);
    if (p != FIRST)
        tri_recompute_end();
    return y;
}

/* run: also between the forward and the backward, so that what the latter needs must be kept. */
static void compare(chain *c, parts p, bool run)
{
    for (int s = 0; s < STEPS; s++) {
        int forwards = atomic_load(&n_forwards), reads[2];
        tri_tensor *y, *ry;

        for (int i = 0; i < 2; i++)
            reads[i] = served_count(c->served[i], served_reads);
        y = forward_in(p, c->here, c->x);
        ry = forward_in(p, c->remote, c->rx);
        if (run)
            CHECK_OK(tri_run());
        tri_backward(remote_loss(y));
        tri_backward(remote_loss(ry));
        CHECK_OK(tri_run());
        remote_expect_equal(tri_grad(c->x), tri_grad(c->rx));
        tri_step_end();
        for (int i = 0; i < 2; i++) /* what the program may still look at comes here */
            assert_int_equal(served_count(c->served[i], served_reads) - reads[i],
                             p != BOTH_AND_MORE && (!run || i == 1));
        if (s > 0) /* in the first step owners also say which types their results have */
            assert_int_equal(atomic_load(&n_forwards) - forwards, 4);
    }
}

static void parts_that_are_computed_again_call_nobody_twice(void **state)
{
    chain c;

    (void)state;
    chain_begin(&c, counted);
    for (int run = 0; run < 2; run++) {
        for (parts p = BOTH; p < N_PARTS; p++)
            compare(&c, p, run);
    }
    chain_end(&c);
}

/* --- at the owners -------------------------------------------------------- */

static tri_module *recomputed(void)
{
    tri_module *net =
        tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_batch_norm1d(WIDTH, NULL),
                          tri_nn_tanh(), tri_nn_dropout(0.3), tri_nn_linear(WIDTH, WIDTH, NULL));

    tri_module_set_recompute(net, true);
    return net;
}

static void owners_compute_again_what_they_serve(void **state)
{
    chain c;

    (void)state;
    chain_begin(&c, recomputed);
    for (int s = 0; s < STEPS; s++) {
        tri_tensor *y, *ry;

        tri_manual_seed(7);
        y = tri_forward(c.here[1], tri_forward(c.here[0], c.x));
        tri_backward(remote_loss(y));
        CHECK_OK(tri_run());
        tri_step_end();
        tri_manual_seed(7);
        ry = tri_forward(c.remote[1], tri_forward(c.remote[0], c.rx));
        tri_backward(remote_loss(ry));
        CHECK_OK(tri_run());
        remote_expect_equal(tri_grad(c.x), tri_grad(c.rx));
        tri_step_end();
        for (int i = 0; i < 2; i++)
            remote_expect_equal_state(c.here[i], c.there[i]);
        tri_step_end();
    }
    chain_end(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parts_that_are_computed_again_call_nobody_twice),
    cmocka_unit_test(owners_compute_again_what_they_serve),
};

TEST_MAIN(tests)
