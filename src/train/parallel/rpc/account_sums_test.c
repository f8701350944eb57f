/*
 * account_sums_test.c - the gradients of a step, which arrive in whatever order, have the bits of
 * one process, and touch nothing else.
 */
#include "train/plan/plan.h"
#include "testing/account_owner.h"

/* The same by an account: a process goes back from the last batch of a pass to its first. `turn`:
 * backwards arrive in another order. */
static uint64_t hash_by_account(rule r, int steps, const int *passes, int n_passes, int turn)
{
    owner o;
    uint64_t hash;

    owner_begin_with(&o, r, TRI_REMOTE_COPY);
    for (int step = 0; step < steps; step++) {
        trii_remote_key key = key_of("t0", step + 1, 0);
        struct {
            trii_remote_order order;
            int batch;
        } all[BATCHES];
        int n = 0;

        for (int p = 0; p < n_passes; p++) {
            int first = n;

            for (int i = 0; i < passes[p]; i++, n++) {
                all[n].order = (trii_remote_order){.seq = (uint32_t)n, .pass = (uint32_t)p};
                all[n].batch = step * BATCHES + first + passes[p] - 1 - i;
            }
        }
        for (int i = 0; i < n; i++) {
            int k = turn > 0 ? (i * 3 + turn) % n : i; /* 3 divides no n here */

            CHECK_OK(owner_add_ordered(&o, &key, &all[k].order, all[k].batch));
        }
        owner_update(&o, &key, (uint64_t)n);
    }
    hash = hash_of(o.net);
    owner_end(&o);
    return hash;
}

static void a_step_has_the_bits_of_one_process(void **state)
{
    static const int one[] = {1}, four[] = {4}, passes[] = {2, 1, 2};

    (void)state;
    for (rule r = SGD; r <= ADAM; r++) {
        assert_true(hash_by_account(r, 3, one, 1, 0) == hash_of_one_process(r, 3, one, 1));
        assert_true(hash_by_account(r, 3, four, 1, 0) == hash_of_one_process(r, 3, four, 1));
        assert_true(hash_by_account(r, 3, passes, 3, 0) == hash_of_one_process(r, 3, passes, 3));
    }
}

static void the_order_of_arrival_changes_no_bit(void **state)
{
    static const int five[] = {5}, passes[] = {2, 3, 2};
    uint64_t in_order = hash_by_account(ADAM, 2, five, 1, 0);
    uint64_t of_passes = hash_by_account(ADAM, 2, passes, 3, 0);

    (void)state;
    assert_true(in_order != of_passes);
    for (int turn = 1; turn < 5; turn++) {
        assert_true(hash_by_account(ADAM, 2, five, 1, turn) == in_order);
        assert_true(hash_by_account(ADAM, 2, passes, 3, turn) == of_passes);
    }
}

/* Backwards that come through other workers, in any order among direct ones. */
static void nested_backwards_are_added_in_their_own_order(void **state)
{
    static const trii_remote_order orders[6] = {
        {.seq = 0},
        {.seq = 1},
        {.seq = 0, .n_nested = 1, .nested = {0}},
        {.seq = 0, .n_nested = 1, .nested = {1}},
        {.seq = 0, .n_nested = 2, .nested = {1, 0}},
        {.seq = 0, .module = 1, .n_nested = 1, .nested = {0}},
    };
    static const int turns[4][6] = {
        {0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {2, 0, 5, 1, 4, 3}, {4, 1, 3, 5, 0, 2}};
    uint64_t hash = 0;

    (void)state;
    for (int t = 0; t < 4; t++) {
        trii_remote_key key = key_of("t0", 1, 0);
        owner o;

        owner_begin(&o);
        for (int i = 0; i < 6; i++)
            CHECK_OK(owner_add_ordered(&o, &key, &orders[turns[t][i]], turns[t][i]));
        owner_update(&o, &key, 2); /* direct ones */
        assert_true(t == 0 || hash_of(o.net) == hash);
        hash = hash_of(o.net);
        owner_end(&o);
    }
}

static void parameters_show_no_gradient_and_keep_their_own(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    tri_tensor *x = batch_data(9, IN), *y = batch_data(9, 1);
    float own[IN * HIDDEN], after[IN * HIDDEN];
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(owner_add(&o, &key, 0, 0));
    owner_update(&o, &key, 1);
    for (int i = 0; i < o.n; i++)
        assert_null(tri_grad(o.params[i]));
    tri_backward(loss_of(o.net, x, y));
    CHECK_OK(tri_run());
    CHECK_OK(tri_tensor_copy_out(tri_grad(o.params[0]), own, sizeof(own)));
    tri_step_end();
    key = key_of("t0", 2, 0);
    CHECK_OK(owner_add(&o, &key, 0, 0));
    owner_update(&o, &key, 1);
    CHECK_OK(tri_tensor_copy_out(tri_grad(o.params[0]), after, sizeof(after)));
    assert_memory_equal(own, after, sizeof(own));
    tri_step_end();
    owner_end(&o);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

/* A parameter that the loss does not reach stays as it is, momentum too. */
static void parameters_without_a_gradient_stay_as_they_are(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    float before[HIDDEN * IN], after[HIDDEN * IN];
    graph g;
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(tri_tensor_copy_out(o.params[0], before, sizeof(before)));
    graph_forward(&o, &g, 0);
    CHECK_OK(graph_backward(&o, &g, &key, &(trii_remote_order){.seq = 0}, 0));
    graph_end(&g);
    owner_update(&o, &key, 1);
    CHECK_OK(tri_tensor_copy_out(o.params[0], after, sizeof(after)));
    assert_memory_equal(before, after, sizeof(before));
    CHECK_OK(tri_tensor_copy_out(o.params[1], after, HIDDEN * sizeof(float)));
    tri_step_end();
    owner_end(&o);
}

static void a_gradient_is_written_where_the_last_pass_had_its_own(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    owner o;

    (void)state;
    owner_begin(&o);
    for (uint32_t pass = 0; pass < 4; pass++) {
        CHECK_OK(owner_add_ordered(&o, &key, &(trii_remote_order){.seq = pass, .pass = pass},
                                   (int)pass));
        assert_int_equal(trii_plan_stats_get().copied_bytes, 0);
    }
    owner_end(&o);
}

/* Several backwards of one graph, between which others write the sums. */
static void a_graph_that_is_kept_adds_more_than_once(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    uint64_t hash;
    graph g[2];
    owner o;

    (void)state;
    owner_begin(&o);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_OK(owner_add(&o, &key, i, (int)i % 2));
    owner_update(&o, &key, 4);
    hash = hash_of(o.net);
    owner_end(&o);
    owner_begin(&o);
    graph_forward(&o, &g[0], 0);
    graph_forward(&o, &g[1], 1);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_OK(graph_backward(&o, &g[i % 2], &key, &(trii_remote_order){.seq = i}, -1));
    owner_update(&o, &key, 4);
    assert_true(hash_of(o.net) == hash);
    key = key_of("t0", 2, 0); /* the sums have been used since, and begin again */
    CHECK_OK(graph_backward(&o, &g[0], &key, &(trii_remote_order){.seq = 0}, -1));
    owner_update(&o, &key, 1);
    graph_end(&g[0]);
    graph_end(&g[1]);
    owner_end(&o);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_has_the_bits_of_one_process),
    cmocka_unit_test(the_order_of_arrival_changes_no_bit),
    cmocka_unit_test(nested_backwards_are_added_in_their_own_order),
    cmocka_unit_test(parameters_show_no_gradient_and_keep_their_own),
    cmocka_unit_test(parameters_without_a_gradient_stay_as_they_are),
    cmocka_unit_test(a_gradient_is_written_where_the_last_pass_had_its_own),
    cmocka_unit_test(a_graph_that_is_kept_adds_more_than_once),
};

TEST_MAIN(tests)
