/*
 * ddp_local_test.c - what a rank of data-parallel training does on its own: skip a bad batch,
 * evaluate, be the only one.
 */
#include "base/err.h"
#include "testing/ddp_ranks.h"

/* Gradients of rows [first, first + n) under no_sync or not, as a step of its own. `bad`: a target
 * that is no class, which the loss finds when it runs. */
static tri_status micro_batch(tri_module *model, int first, int n, bool local, bool bad)
{
    int64_t labels[ROWS] = {0};
    tri_tensor *x = rows_of(x_data, IN, first, n), *t, *loss;
    tri_status st = TRI_OK;

    labels[n - 1] = bad ? OUT : 1;
    t = tri_tensor_from(TRI_DTYPE_I64, (int64_t[]){n}, 1, labels);
    if (local)
        tri_no_sync_begin(model);
    loss = tri_cross_entropy(tri_forward(model, x), t, NULL);
    tri_backward(loss);
    if (local)
        tri_no_sync_end(model);
    if (bad) {
        if (tri_run() != TRI_ERR_INVALID_ARG)
            st = TRI_ERR_INTERNAL;
        tri_step_end();
    } else if (local) {
        st = tri_step_end_status();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(t);
    return st;
}

/* Rank 0 has a bad micro-batch among its three, and goes on. */
static tri_status train_with_a_bad_batch(rank *r)
{
    const bool *has_bad = r->arg;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    int64_t count = 0;

    for (int step = 0; step < 3; step++) {
        TRY(micro_batch(model, 0, 3, true, false));
        if (r->index == 0 && *has_bad)
            TRY(micro_batch(model, 3, 5, true, true));
        TRY(micro_batch(model, 8, 2 + r->index, false, false));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        count += tri_ddp_sample_count(model);
    }
    TRY(tri_ddp_verify(model, true));
    TRY(take_weights(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return count == (3 + 2 + 3 + 3) * 3 ? TRI_OK
                                        : TRII_FAIL(TRI_ERR_INTERNAL, "%d samples", (int)count);
}

static void a_bad_micro_batch_leaves_nothing_behind(void **state)
{
    static rank with[2], without[2];

    (void)state;
    make_data();
    run_ranks(with, 2, train_with_a_bad_batch, &(const bool){true});
    check_ranks(with, 2);
    run_ranks(without, 2, train_with_a_bad_batch, &(const bool){false});
    check_ranks(without, 2);
    assert_true(with[0].hash == without[0].hash);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_bad_micro_batch_leaves_nothing_behind),
};

TEST_MAIN(tests)
