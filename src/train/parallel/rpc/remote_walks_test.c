/*
 * remote_walks_test.c - several walks back through one forward of a remote module, and walks that
 * leave the gradients of parameters alone, against one process; also under TRI_EAGER=1.
 */
#include <stdlib.h>

#include "train/parallel/rpc/remote_internal.h"
#include "testing/remote_workers.h"

#define WIDTH 6
#define STEPS 3

/* One module here, and its copy on worker 1, each with an optimizer. */
typedef struct pair {
    remote_workers r;
    tri_module *here, *there, *remote;
    tri_optimizer *sgd_here, *sgd_there;
    tri_remote_optimizer *opt;
    tri_tensor *x;
} pair;

static void pair_begin(pair *p)
{
    remote_begin(&p->r, 2, NULL);
    p->here =
        tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_batch_norm1d(WIDTH, NULL));
    p->there =
        tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_batch_norm1d(WIDTH, NULL));
    remote_copy_state(p->here, p->there);
    p->sgd_here = tri_sgd(p->here, 0.1, NULL);
    p->sgd_there = tri_sgd(p->there, 0.1, NULL);
    CHECK_OK(tri_remote_serve(p->r.w.rpc[1], "net", p->there, p->sgd_there, NULL));
    p->remote = tri_remote_module(p->r.w.rpc[0], "w1/net", NULL);
    p->opt = tri_remote_optimizer_of(NULL, &p->remote, 1, NULL);
    p->x = remote_tensor((int64_t[]){4, WIDTH}, 2, TRI_DTYPE_F32, 3);
    tri_requires_grad(p->x, true);
}

static void pair_end(pair *p)
{
    tri_remote_optimizer_destroy(p->opt);
    tri_module_destroy(p->remote);
    CHECK_OK(tri_remote_withdraw(p->r.w.rpc[1], "net"));
    tri_optimizer_destroy(p->sgd_here);
    tri_optimizer_destroy(p->sgd_there);
    tri_module_destroy(p->here);
    tri_module_destroy(p->there);
    tri_tensor_unref(p->x);
    remote_end(&p->r);
}

/* The same step here and there leaves the same bits, running statistics too. */
static void compare(void (*walk)(tri_module *net, tri_tensor *x))
{
    for (int eager = 0; eager < 2; eager++) {
        pair p;

        if (eager != 0)
            assert_int_equal(setenv("TRI_EAGER", "1", 1), 0);
        pair_begin(&p);
        for (int step = 0; step < STEPS; step++) {
            walk(p.here, p.x);
            CHECK_OK(tri_optimizer_step(p.sgd_here));
            tri_step_end();
            walk(p.remote, p.x);
            CHECK_OK(tri_remote_optimizer_step(p.opt));
            tri_step_end();
            remote_expect_equal_state(p.here, p.there);
            tri_step_end();
        }
        pair_end(&p);
    }
    assert_int_equal(unsetenv("TRI_EAGER"), 0);
}

static void one_loss(tri_module *net, tri_tensor *x)
{
    tri_backward(remote_loss(tri_tanh(tri_forward(net, x))));
}

static void a_step_of_one_loss_repeats(void **state)
{
    (void)state;
    compare(one_loss);
}

/* The loss, too, so that the graph is gone through twice. */
static void ask_for_gradients(tri_module *net, tri_tensor *x)
{
    tri_tensor *loss = remote_loss(tri_tanh(tri_forward(net, x))), *grad = NULL;

    CHECK_OK(tri_gradients(&loss, 1, &x, 1, &(tri_gradients_options){.keep_graph = true}, &grad));
    tri_backward(tri_add(loss, remote_loss(tri_forward(net, tri_add(x, grad)))));
}

static void gradients_that_are_asked_for_are_no_part_of_the_update(void **state)
{
    (void)state;
    compare(ask_for_gradients);
}

static void two_losses(tri_module *net, tri_tensor *x)
{
    tri_tensor *y = tri_forward(net, x), *z = tri_forward(net, tri_tanh(y));

    tri_backward(remote_loss(tri_tanh(y)));
    tri_backward(remote_loss(tri_tanh(z)));
    tri_backward(tri_mean(tri_tanh(y), NULL, 0, false));
}

static void losses_share_a_forward(void **state)
{
    (void)state;
    compare(two_losses);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_of_one_loss_repeats),
    cmocka_unit_test(gradients_that_are_asked_for_are_no_part_of_the_update),
    cmocka_unit_test(losses_share_a_forward),
};

TEST_MAIN(tests)
