/* guarded_faults_test.c - each call of a device fails once, wherever it comes in a step over
 * several devices: the step fails with that line, no queue waits for what was never recorded, and
 * the next step has the bits of one that nothing happened to. */
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/guarded.h"
#include "train/plan/plan.h"

enum { STAGES = 4, WIDTH = 5, ROWS = 3 };

typedef struct pipeline {
    tri_module *stages[STAGES];
    tri_optimizer *optimizers[STAGES];
} pipeline;

static const tri_device places[STAGES] = {TRI_CUDA(0), TRI_CUDA(1), TRI_CPU(0), TRI_CUDA(0)};

static pipeline build(void)
{
    pipeline p;

    tri_manual_seed(3);
    for (int s = 0; s < STAGES; s++) {
        p.stages[s] = tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_tanh());
        CHECK_OK(tri_module_to(p.stages[s], places[s]));
        p.optimizers[s] = tri_sgd(p.stages[s], 0.1, NULL);
        CHECK_OK(tri_optimizer_status(p.optimizers[s]));
    }
    return p;
}

static void destroy(pipeline *p)
{
    for (int s = 0; s < STAGES; s++) {
        tri_optimizer_destroy(p->optimizers[s]);
        tri_module_destroy(p->stages[s]);
    }
}

/* One step of two batches. */
static tri_status train(const pipeline *p, double *loss_out)
{
    static const float data[ROWS * WIDTH] = {0.5f, -1, 0.25f, 2, -0.125f, 1, -0.5f};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(ROWS, WIDTH), TRI_DTYPE_F32, data), *loss = NULL;
    tri_status status = TRI_OK, end;

    for (int batch = 0; batch < 2; batch++) {
        tri_tensor *y = tri_mul_scalar(x, batch + 1);

        for (int s = 0; s < STAGES; s++)
            y = tri_forward(p->stages[s], tri_to(y, places[s]));
        loss = tri_keep(tri_mean(tri_square(y), NULL, 0, false));
        tri_backward(loss);
    }
    for (int s = 0; s < STAGES && status == TRI_OK; s++)
        status = tri_optimizer_step(p->optimizers[s]);
    if (status == TRI_OK)
        status = tri_item_status(loss, loss_out);
    end = tri_step_end_status(); /* the same line */
    tri_tensor_unref(x);
    return status == TRI_OK ? end : status;
}

static double train_twice(void)
{
    pipeline p = build();
    double loss = 0;

    for (int i = 0; i < 2; i++)
        CHECK_OK(train(&p, &loss));
    destroy(&p);
    return loss;
}

static void a_step_in_which_any_call_fails_fails_with_it_and_the_next_is_whole(void **state)
{
    double want;

    (void)state;
    guarded_register();
    want = train_twice();
    for (int call = 0; call < GUARDED_CALLS; call++) {
        bool failed = true;
        int n = 0;

        while (failed) {
            pipeline p = build();
            double loss;
            tri_status status;

            trii_plan_release(); /* all is compiled and made again */
            guarded_fail((guarded_call)call, ++n);
            status = train(&p, &loss);
            failed = guarded_failed();
            guarded_fail((guarded_call)call, 0);
            assert_int_equal(status != TRI_OK, failed);
            if (failed && strstr(tri_last_error(), "failed on cuda:") == NULL)
                fail_msg("call %d, %d: %s", call, n, tri_last_error());
            destroy(&p);
            assert_true(train_twice() == want); /* with the plans of the step that failed */
        }
        assert_true(n > 1);
    }
    trii_plan_release();
    assert_int_equal(guarded_bytes(0) + guarded_bytes(1), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_in_which_any_call_fails_fails_with_it_and_the_next_is_whole),
};

TEST_MAIN(tests)
