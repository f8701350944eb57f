/*
 * account_versions_test.c - which parameters a backward reads that another trainer has updated
 * since its forward.
 */
#include "base/alloc.h"
#include "testing/account_owner.h"

/* Gradients of batch 1, whose forward was before the update with batch 0, and whose backward is
 * after it. */
static tri_status race(owner *o, tri_remote_versions versions, double *sum_out)
{
    trii_remote_key key = key_of("t0", 1, 0), late = key_of("t1", 1, 0);
    graph g;
    tri_status status;

    owner_begin_with(o, SGD, versions);
    graph_forward(o, &g, 1);
    CHECK_OK(owner_add(o, &key, 0, 0));
    owner_update(o, &key, 1);
    status = graph_backward(o, &g, &late, &(trii_remote_order){.seq = 0}, -1);
    *sum_out = 0;
    if (status == TRI_OK) {
        CHECK_OK(owner_prepare(o, &late, 1));
        for (int i = 0; i < o->n; i++) {
            trii_account *account = trii_account_find(o->accounts, &late);

            *sum_out += (i + 1) * total_of(account->total->tensor[i]);
        }
        tri_step_end();
        CHECK_OK(owner_commit(o, &late));
    }
    graph_end(&g);
    return status;
}

/* The same without the other trainer; renewed: with its update before the forward. */
static double gradients_alone(bool updated)
{
    trii_remote_key key = key_of("t0", 1, 0), late = key_of("t1", 1, 0);
    double sum = 0;
    owner o;

    owner_begin_with(&o, SGD, TRI_REMOTE_COPY);
    if (updated) {
        CHECK_OK(owner_add(&o, &key, 0, 0));
        owner_update(&o, &key, 1);
    }
    CHECK_OK(owner_add(&o, &late, 0, 1));
    CHECK_OK(owner_prepare(&o, &late, 1));
    for (int i = 0; i < o.n; i++) {
        trii_account *account = trii_account_find(o.accounts, &late);

        sum += (i + 1) * total_of(account->total->tensor[i]);
    }
    tri_step_end();
    owner_end(&o);
    return sum;
}

static void a_graph_keeps_the_parameters_that_it_has_read(void **state)
{
    double sum;
    owner o;

    (void)state;
    CHECK_OK(race(&o, TRI_REMOTE_COPY, &sum));
    assert_true(sum == gradients_alone(false));
    assert_true(sum != gradients_alone(true));
    owner_end(&o);
}

static void a_graph_may_read_the_new_parameters(void **state)
{
    double sum;
    owner o;

    (void)state;
    CHECK_OK(race(&o, TRI_REMOTE_STALE, &sum));
    assert_true(sum != gradients_alone(false)); /* the new weights, the old activations */
    owner_end(&o);
}

static void a_graph_may_be_refused(void **state)
{
    double sum;
    owner o;

    (void)state;
    CHECK_FAILS(race(&o, TRI_REMOTE_REFUSE, &sum), TRI_ERR_STATE, "has overwritten");
    owner_end(&o);
}

static void old_parameters_live_as_long_as_their_graphs(void **state)
{
    graph g[3];
    long live = 0;
    owner o;

    (void)state;
    owner_begin(&o);
    for (int step = 1; step <= 30; step++) {
        trii_remote_key key = key_of("t0", step, 0);

        for (int i = 0; i < 3; i++)
            graph_forward(&o, &g[i], i);
        CHECK_OK(owner_add(&o, &key, 0, 0));
        owner_update(&o, &key, 1);
        for (int i = 0; i < 3; i++)
            graph_end(&g[i]);
        if (step == 15)
            live = trii_alloc_live();
        assert_true(step <= 15 || trii_alloc_live() == live);
    }
    owner_end(&o);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_graph_keeps_the_parameters_that_it_has_read),
    cmocka_unit_test(a_graph_may_read_the_new_parameters),
    cmocka_unit_test(a_graph_may_be_refused),
    cmocka_unit_test(old_parameters_live_as_long_as_their_graphs),
};

TEST_MAIN(tests)
