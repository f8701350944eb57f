/*
 * account_update_test.c - updates from accounts of gradients: once, whole or not at all, and of no
 * step that was given up.
 */
#include "base/alloc.h"
#include "testing/account_owner.h"

static void what_is_not_complete_is_refused_and_changes_nothing(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0), unknown = key_of("t9", 3, 0);
    uint64_t before;
    owner o;

    (void)state;
    owner_begin(&o);
    before = hash_of(o.net);
    CHECK_FAILS(owner_prepare(&o, &key, 1), TRI_ERR_STATE, "gradients of 0 of 1 backwards of t0");
    CHECK_FAILS(owner_commit(&o, &unknown), TRI_ERR_STATE, "no gradients of t9 are ready");
    CHECK_OK(owner_add(&o, &key, 0, 0));
    CHECK_FAILS(owner_commit(&o, &key), TRI_ERR_STATE, "no gradients of t0 are ready");
    CHECK_FAILS(owner_prepare(&o, &key, 2), TRI_ERR_STATE, "gradients of 1 of 2 backwards of t0");
    CHECK_OK(owner_add(&o, &key, 2, 0)); /* the second one is missing */
    CHECK_FAILS(owner_prepare(&o, &key, 3), TRI_ERR_STATE, "gradients of 1 of 3 backwards of t0");
    CHECK_FAILS(owner_add(&o, &key, 2, 0), TRI_ERR_INVALID_ARG, "backward 2 of a step came twice");
    CHECK_FAILS(owner_prepare(&o, &key, 3), TRI_ERR_INVALID_ARG, "backward 2 of a step came twice");
    assert_true(hash_of(o.net) == before);
    owner_end(&o);
}

static void a_step_that_nothing_reaches_changes_nothing(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    uint64_t before;
    owner o;

    (void)state;
    owner_begin(&o);
    before = hash_of(o.net);
    owner_update(&o, &key, 0);
    assert_true(hash_of(o.net) == before);
    assert_int_equal(trii_accounts_last_step(o.accounts, "t0", 7, 1), 1);
    owner_end(&o);
}

static void a_repeated_commit_updates_once(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0), again = key_of("t0", 1, 1);
    trii_remote_updated reply;
    uint64_t once;
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(owner_add(&o, &key, 0, 0));
    owner_update(&o, &key, 1);
    once = hash_of(o.net);
    CHECK_OK(owner_ask(&o, TRII_REMOTE_COMMIT, &key, 0, &reply));
    assert_int_equal(reply.done, 1);
    /* another owner was lost, so that the trainer repeats the step */
    assert_false(trii_account_wants(o.accounts, &again));
    CHECK_OK(owner_add(&o, &again, 0, 0));
    CHECK_OK(owner_ask(&o, TRII_REMOTE_PREPARE, &again, 1, &reply));
    assert_int_equal(reply.done, 1);
    CHECK_OK(owner_ask(&o, TRII_REMOTE_COMMIT, &again, 0, &reply));
    assert_int_equal(reply.done, 1);
    assert_true(hash_of(o.net) == once);
    /* the same of a trainer whose connection was gone in between */
    trii_accounts_forget(o.accounts, "t0", 7);
    CHECK_OK(owner_ask(&o, TRII_REMOTE_COMMIT, &again, 0, &reply));
    assert_int_equal(reply.done, 1);
    assert_true(hash_of(o.net) == once);
    key = key_of("t0", 2, 0);
    assert_true(trii_account_wants(o.accounts, &key));
    owner_end(&o);
}

static void a_later_attempt_takes_nothing_of_an_earlier_one(void **state)
{
    trii_remote_key first = key_of("t0", 1, 0), second = key_of("t0", 1, 1);
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(owner_add(&o, &first, 0, 5));
    CHECK_OK(owner_drop(&o, &first));
    CHECK_OK(owner_add(&o, &first, 1, 6)); /* under way when the trainer gave up */
    CHECK_FAILS(owner_prepare(&o, &first, 2), TRI_ERR_STATE, "t0 has given up the step");
    CHECK_OK(owner_add(&o, &second, 0, 0));
    CHECK_OK(owner_add(&o, &first, 2, 7));
    assert_false(trii_account_wants(o.accounts, &first));
    owner_update(&o, &second, 1);
    assert_true(hash_of(o.net) == hash_of_one_process(MOMENTUM, 1, (int[]){1}, 1));
    owner_end(&o);
}

static void a_backward_that_fails_is_why_the_step_is_refused(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(owner_add(&o, &key, 0, 0));
    trii_account_spoil(o.accounts, &key, tri_status_fail(TRI_ERR_NAN, "a NaN for this test"));
    assert_non_null(strstr(tri_last_error(), "a NaN for this test"));
    assert_false(trii_account_wants(o.accounts, &key));
    CHECK_OK(owner_add(&o, &key, 1, 0));
    CHECK_FAILS(owner_prepare(&o, &key, 2), TRI_ERR_NAN, "a NaN for this test");
    owner_end(&o);
}

static void the_gradients_of_a_lost_trainer_go(void **state)
{
    trii_remote_key lost = key_of("t0", 1, 0), other = key_of("t1", 1, 0);
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(owner_add(&o, &lost, 0, 3));
    CHECK_OK(owner_add(&o, &other, 0, 0));
    trii_accounts_forget(o.accounts, "t0", 8); /* another start of it */
    CHECK_OK(owner_prepare(&o, &lost, 1));
    trii_accounts_forget(o.accounts, "t0", 7);
    CHECK_FAILS(owner_commit(&o, &lost), TRI_ERR_STATE, "no gradients of t0 are ready");
    owner_update(&o, &other, 1);
    assert_true(hash_of(o.net) == hash_of_one_process(MOMENTUM, 1, (int[]){1}, 1));
    owner_end(&o);
}

static void trainers_that_come_and_go_cost_no_memory_for_ever(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    long live = 0;
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(owner_add(&o, &key, 0, 0));
    owner_update(&o, &key, 1);
    for (int i = 0; i < 3000; i++) {
        char name[16];

        snprintf(name, sizeof(name), "n%d", i);
        key = key_of(name, 1, 0);
        owner_update(&o, &key, 0);
        if (i == 1500)
            live = trii_alloc_live();
        assert_true(i <= 1500 || trii_alloc_live() == live);
    }
    owner_end(&o);
}

static void steps_use_the_same_memory(void **state)
{
    long live = 0;
    owner o;

    (void)state;
    owner_begin(&o);
    for (int step = 1; step <= 40; step++) {
        trii_remote_key key = key_of("t0", step, 0), other = key_of("t1", step, 0);

        CHECK_OK(owner_add(&o, &key, 1, 0));
        CHECK_OK(owner_add(&o, &other, 0, 0));
        CHECK_OK(owner_add(&o, &key, 0, 0));
        owner_update(&o, &key, 2);
        CHECK_OK(owner_drop(&o, &other));
        if (step == 20)
            live = trii_alloc_live();
        assert_true(step <= 20 || trii_alloc_live() == live);
    }
    owner_end(&o);
}

/* --- what an update says besides ------------------------------------------ */

typedef struct long_request {
    trii_account_request request;
    trii_account_member members[5];
} long_request;

static tri_status send(owner *o, trii_remote_kind kind, long_request *r, trii_remote_updated *reply)
{
    r->request.head.magic = TRII_REMOTE_MAGIC;
    r->request.head.kind = kind;
    return trii_account_update(o->accounts, &r->request.head,
                               sizeof(r->request) + r->request.n_members * sizeof(r->members[0]),
                               reply);
}

static void the_rate_and_a_factor_come_with_the_update(void **state)
{
    long_request r = {0};
    trii_remote_updated reply;
    float before[HIDDEN], after[HIDDEN], grad[HIDDEN];
    const trii_account *account;
    double squares = 0;
    owner o;

    (void)state;
    owner_begin_with(&o, SGD, TRI_REMOTE_COPY);
    r.request.head.key = key_of("t0", 1, 0);
    r.request.head.n_backwards = 1;
    r.request.flags = TRII_ACCOUNT_LR | TRII_ACCOUNT_NORM;
    r.request.lr = 0.5;
    CHECK_OK(owner_add(&o, &r.request.head.key, 0, 0));
    CHECK_OK(send(&o, TRII_REMOTE_PREPARE, &r, &reply));
    account = trii_account_find(o.accounts, &r.request.head.key);
    for (int i = 0; i < o.n; i++) {
        tri_tensor *g = account->total->tensor[i];

        squares += total_of(tri_mul(g, g));
    }
    tri_step_end();
    CHECK_NEAR(reply.squares, squares, 1e-6 * squares);
    CHECK_OK(tri_tensor_copy_out(o.params[1], before, sizeof(before)));
    CHECK_OK(tri_tensor_copy_out(account->total->tensor[1], grad, sizeof(grad)));
    tri_step_end();
    r.request.factor[0] = r.request.factor[1] = 0.25;
    CHECK_OK(send(&o, TRII_REMOTE_COMMIT, &r, &reply));
    CHECK_OK(tri_tensor_copy_out(o.params[1], after, sizeof(after)));
    tri_step_end();
    for (int i = 0; i < HIDDEN; i++)
        CHECK_NEAR(after[i], before[i] - 0.5f * (0.25f * grad[i]), 1e-7);
    assert_true(tri_optimizer_lr(o.opt) == 0.5);
    r.request.head.key = key_of("t0", 2, 0);
    r.request.head.n_backwards = 0;
    r.request.lr = (double)NAN;
    CHECK_FAILS(send(&o, TRII_REMOTE_PREPARE, &r, &reply), TRI_ERR_INVALID_ARG, "learning rate");
    CHECK_OK(tri_optimizer_status(o.opt));
    owner_end(&o);
}

static void accounts_of_several_trainers_become_one_update(void **state)
{
    static const double weights[5] = {0.125, 0.25, 0.125, 0.25, 0.25};
    long_request r = {0};
    trii_remote_updated reply;
    float sum = 0, parts[5];
    owner o;

    (void)state;
    owner_begin_with(&o, SGD, TRI_REMOTE_COPY);
    r.request.n_members = 5;
    for (int i = 4; i >= 0; i--) {
        char name[8];
        trii_account *account;

        snprintf(name, sizeof(name), "t%d", i);
        r.members[i] = (trii_account_member){key_of(name, i + 1, 0), 1, weights[i]};
        CHECK_OK(owner_add(&o, &r.members[i].key, 0, i));
        account = trii_account_find(o.accounts, &r.members[i].key);
        CHECK_OK(tri_tensor_copy_out(account->pass->tensor[3], &parts[i], sizeof(float)));
        parts[i] *= (float)weights[i];
        tri_step_end();
    }
    r.request.head.key = r.members[0].key;
    CHECK_OK(send(&o, TRII_REMOTE_PREPARE, &r, &reply));
    CHECK_OK(tri_tensor_copy_out(trii_account_find(o.accounts, &r.members[0].key)->total->tensor[3],
                                 &sum, sizeof(sum)));
    tri_step_end();
    assert_true(sum == ((parts[0] + parts[1]) + (parts[2] + parts[3])) + parts[4]);
    CHECK_OK(send(&o, TRII_REMOTE_COMMIT, &r, &reply));
    for (int i = 0; i < 5; i++)
        assert_int_equal(trii_accounts_last_step(o.accounts, r.members[i].key.trainer, 7, 1),
                         i + 1);
    CHECK_OK(send(&o, TRII_REMOTE_COMMIT, &r, &reply));
    assert_int_equal(reply.done, 1);
    r.request.n_members = 2;
    r.members[1] = r.members[0];
    r.members[0].key.step = r.members[1].key.step = 9 * TRII_ACCOUNT_FIRST;
    r.members[0].n_backwards = r.members[1].n_backwards = 0;
    CHECK_FAILS(send(&o, TRII_REMOTE_PREPARE, &r, &reply), TRI_ERR_FORMAT, "damaged");
    owner_end(&o);
}

static void damaged_requests_are_refused(void **state)
{
    long_request r = {0};
    trii_remote_updated reply;
    owner o;

    (void)state;
    owner_begin(&o);
    r.request.head.kind = TRII_REMOTE_PREPARE;
    r.request.head.key = key_of("t0", 1, 0);
    for (size_t bytes = 0; bytes < sizeof(r.request) + sizeof(r.members[0]); bytes++) {
        if (bytes == sizeof(r.request.head) || bytes == sizeof(r.request))
            continue;
        CHECK_FAILS(trii_account_update(o.accounts, &r.request.head, bytes, &reply), TRI_ERR_FORMAT,
                    "damaged");
    }
    r.request.n_members = 1;
    CHECK_FAILS(trii_account_update(o.accounts, &r.request.head, sizeof(r.request), &reply),
                TRI_ERR_FORMAT, "damaged");
    memset(r.request.head.key.trainer, 'x', sizeof(r.request.head.key.trainer));
    CHECK_FAILS(trii_account_update(o.accounts, &r.request.head, sizeof(r.request.head), &reply),
                TRI_ERR_FORMAT, "damaged");
    owner_end(&o);
}

/* --- without memory ------------------------------------------------------- */

/* Whatever fails, parameters are those of before or of the update, and the next attempt works. */
static void without_memory_the_update_is_whole_or_none(void **state)
{
    uint64_t before, after;
    owner o;
    bool failed = true;

    (void)state;
    after = hash_of_one_process(MOMENTUM, 1, (int[]){2}, 1);
    for (long n = 1; failed; n += TEST_SANITIZED ? 7 : 1) {
        trii_remote_key key = key_of("t0", 1, 0), again = key_of("t0", 1, 1);
        graph g[3];
        tri_status status;

        trii_step_release(); /* plans, so that they are made again */
        owner_begin(&o);
        before = hash_of(o.net);
        for (int i = 0; i < 3; i++)
            graph_forward(&o, &g[i], i);
        trii_alloc_fail_at(n);
        status = graph_backward(&o, &g[0], &key, &(trii_remote_order){.seq = 1}, -1);
        if (status == TRI_OK)
            status = graph_backward(&o, &g[1], &key, &(trii_remote_order){.seq = 0}, -1);
        if (status == TRI_OK)
            status = owner_prepare(&o, &key, 2);
        if (status == TRI_OK)
            status = owner_commit(&o, &key); /* the third graph has read the parameters */
        trii_alloc_fail_at(0);
        failed = status != TRI_OK;
        assert_true(hash_of(o.net) == (failed ? before : after));
        if (failed) {
            assert_int_equal(status, TRI_ERR_NO_MEMORY);
            CHECK_OK(owner_add(&o, &again, 0, 1));
            CHECK_OK(owner_add(&o, &again, 1, 0));
            owner_update(&o, &again, 2);
            assert_true(hash_of(o.net) == after);
        }
        for (int i = 0; i < 3; i++)
            graph_end(&g[i]);
        owner_end(&o);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_not_complete_is_refused_and_changes_nothing),
    cmocka_unit_test(a_step_that_nothing_reaches_changes_nothing),
    cmocka_unit_test(a_repeated_commit_updates_once),
    cmocka_unit_test(a_later_attempt_takes_nothing_of_an_earlier_one),
    cmocka_unit_test(a_backward_that_fails_is_why_the_step_is_refused),
    cmocka_unit_test(the_gradients_of_a_lost_trainer_go),
    cmocka_unit_test(trainers_that_come_and_go_cost_no_memory_for_ever),
    cmocka_unit_test(steps_use_the_same_memory),
    cmocka_unit_test(the_rate_and_a_factor_come_with_the_update),
    cmocka_unit_test(accounts_of_several_trainers_become_one_update),
    cmocka_unit_test(damaged_requests_are_refused),
    cmocka_unit_test(without_memory_the_update_is_whole_or_none),
};

TEST_MAIN(tests)
