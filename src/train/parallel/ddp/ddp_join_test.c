/*
 * ddp_join_test.c - ranks with different numbers of batches: gradients and updates as of one
 * process that has at each step what the ranks have together.
 */
/* ctest: also=TRI_CHECK=order */
#include "testing/ddp_join.h"

static void uneven_numbers_of_batches_are_one_process(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}}, 2, 1e-12);
    check(&(plan){.steps = {MOST, 3}}, 2, 1e-12);
    check(&(plan){.steps = {0, MOST, 3}}, 3, 1e-12);
    check(&(plan){.steps = {4, 4, 4}}, 3, 1e-12);
}

static void an_update_may_take_several_passes(void **state)
{
    (void)state;
    check(&(plan){.steps = {1, 3}, .per_update = 2}, 2, 1e-12);
    check(&(plan){.steps = {0, 2, 3}, .per_update = 3}, 3, 1e-12);
}

static void an_average_that_waits_for_its_update_outlives_the_last_pass(void **state)
{
    (void)state;
    check(&(plan){.steps = {3, 3}, .waits = true}, 2, 1e-12);
    check(&(plan){.steps = {1, 1, 1}, .waits = true}, 3, 1e-12);
    check(&(plan){.steps = {2, 2}, .waits = true, .hook = counted}, 2, 1e-12);
    check(&(plan){.steps = {2, 2}, .waits = true, .norm = true}, 2, 1e-11);
    check(&(plan){.steps = {2, 2}, .waits = true, .scaled = true}, 2, 1e-12);
}

/* Gradients that were not averaged yet are data: of a rank that joins with others or after all. */
static void what_no_sync_has_left_is_averaged(void **state)
{
    (void)state;
    check(&(plan){.steps = {3, MOST}, .kept = true}, 2, 1e-12);
    check(&(plan){.steps = {3, 2, 2}, .kept = true}, 3, 1e-12);
    check(&(plan){.steps = {3, 3}, .kept = true, .hook = counted}, 2, 1e-12);
}

/* What they make of no rows at all is not sent. */
static void gradients_of_nothing_are_zeros(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}, .scaled = true}, 2, 1e-12);
    check(&(plan){.steps = {2, MOST}, .scaled = true, .hook = counted}, 2, 1e-12);
}

static void under_a_check_for_nan_as_well(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_CHECK", "nan", 1), 0);
    check(&(plan){.steps = {1, 3}, .nan_check = true}, 2, 1e-12);
    check(&(plan){.steps = {1, 3}, .scaled = true, .norm = true}, 2, 1e-11);
}

static void nobody_has_a_batch(void **state)
{
    (void)state;
    check(&(plan){.steps = {0, 0}}, 2, 0.0);
    check(&(plan){.steps = {0, 0}, .norm = true}, 2, 0.0);
}

static void hooks_go_on_with_who_is_left(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}, .hook = tri_bucket_hook_f16}, 2, 1e-3);
}

/* It would count in what a hook keeps. */
static void a_pass_without_any_data_is_not_shown_to_hooks(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}, .hook = counted}, 2, 1e-12);
    check(&(plan){.steps = {2, 2, 2}, .hook = counted}, 3, 1e-12);
}

/* --- votes ---------------------------------------------------------------- */

/* Rank 0 is in the join when rank 1 votes: it has to leave with the others. */
static tri_status vote(rank *r)
{
    const plan p = {.steps = {0, MOST, MOST}};
    trainer t = {.p = &p, .from = r->index, .to = r->index + 1};

    t.model = tri_ddp(build(&p, r->group), &(tri_ddp_options){.group = r->group});
    TRY(tri_module_status(t.model));
    t.opt = tri_sgd(t.model, 0.05, NULL);
    for (int step = 0; step < p.steps[r->index] && !tri_ddp_is_stopped(t.model); step++) {
        if (r->index == 1 && step == 1)
            tri_ddp_vote_stop(t.model);
        tri_backward(loss_of_step(&t, step));
        TRY(update(&t));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_join(t.model, loss_of_nothing, update, &t, NULL));
    if (!tri_ddp_is_stopped(t.model) || t.updates != 2 ||
        tri_ddp_sample_count(t.model) != count_rows(1, 1) + count_rows(2, 1))
        return TRII_FAIL(TRI_ERR_INTERNAL, "%d updates, %lld samples%s", t.updates,
                         (long long)tri_ddp_sample_count(t.model),
                         tri_ddp_is_stopped(t.model) ? "" : ", not stopped");
    TRY(tri_ddp_verify(t.model, true));
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return TRI_OK;
}

static void a_vote_is_known_behind_the_join(void **state)
{
    static rank ranks[3];

    (void)state;
    make_data();
    ranks_succeed(ranks, 3, vote, NULL);
}

/* Of sums the mean is over ranks that have data: with one left that is its own. */
static tri_status join_at_once(rank *r)
{
    const plan p = {.steps = {0, MOST}, .unseen = true};
    rank mine = *r;

    mine.arg = &p;
    TRY(train(&mine));
    memcpy(r->weights, mine.weights, sizeof(r->weights));
    r->n_weights = mine.n_weights;
    return TRI_OK;
}

static void a_rank_that_has_joined_weighs_nothing(void **state)
{
    static rank one[1], ranks[2];

    (void)state;
    make_data();
    ranks_succeed(one, 1, join_at_once, NULL);
    ranks_succeed(ranks, 2, join_at_once, NULL);
    for (int i = 0; i < one[0].n_weights; i++)
        CHECK_NEAR(ranks[0].weights[i], one[0].weights[i], 1e-12);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(uneven_numbers_of_batches_are_one_process),
    cmocka_unit_test(an_update_may_take_several_passes),
    cmocka_unit_test(an_average_that_waits_for_its_update_outlives_the_last_pass),
    cmocka_unit_test(what_no_sync_has_left_is_averaged),
    cmocka_unit_test(gradients_of_nothing_are_zeros),
    cmocka_unit_test(under_a_check_for_nan_as_well),
    cmocka_unit_test(nobody_has_a_batch),
    cmocka_unit_test(hooks_go_on_with_who_is_left),
    cmocka_unit_test(a_pass_without_any_data_is_not_shown_to_hooks),
    cmocka_unit_test(a_vote_is_known_behind_the_join),
    cmocka_unit_test(a_rank_that_has_joined_weighs_nothing),
};

TEST_MAIN(tests)
