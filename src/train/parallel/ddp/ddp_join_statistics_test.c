/*
 * ddp_join_statistics_test.c - ranks with different numbers of batches: the statistics of batch
 * norm, shared by all ranks or each rank's own, are of the ranks that have data.
 */
/* ctest: also=TRI_CHECK=order */
#include "testing/ddp_join.h"

/* The statistics are those of the ranks that have data; a last pass without any counts nowhere. */
static void batch_norm_over_all_ranks_is_one_process(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}, .norm = true}, 2, 1e-11);
    check(&(plan){.steps = {MOST, 1, 3}, .norm = true}, 3, 1e-11);
}

/* Whose running statistics all have before the next pass, and in the end. */
static int source_of(const plan *p, int step)
{
    int source = MAX_RANKS - 1;

    while (source > 0 && p->steps[source] <= step)
        source--;
    return p->steps[0] > step ? 0 : source;
}

/* The statistics of one process that has the batches of the sources. */
static void take_statistics(const plan *p, double *weights, int *n_out)
{
    tri_module *net = build(p, NULL);
    rank r = {0};

    int each = p->per_update > 0 ? p->per_update : 1, passes = each * longest(p);

    for (int pass = 0; pass < passes + MORE; pass++) {
        int step = pass < passes ? pass / each : 0;
        int source = pass < passes ? source_of(p, step) : 0;
        const trainer t = {.p = p, .model = net, .from = source, .to = source + 1};
        tri_tensor *loss = loss_of_step(&t, step);

        CHECK_OK(tri_tensor_status(loss));
        CHECK_OK(tri_step_end_status());
    }
    CHECK_OK(take_buffers(&r, net));
    memcpy(weights, r.weights, (size_t)r.n_weights * sizeof(*weights));
    *n_out = r.n_weights;
    tri_module_destroy(net);
}

static void running_statistics_are_of_ranks_that_have_data(void **state)
{
    static const plan plans[] = {{.steps = {1, 4}, .plain_norm = true},
                                 {.steps = {4, 2}, .plain_norm = true},
                                 {.steps = {1, 3, 4}, .plain_norm = true},
                                 {.steps = {2, 4, 1}, .plain_norm = true},
                                 {.steps = {0, 3, 3}, .plain_norm = true},
                                 {.steps = {0, 0}, .plain_norm = true},
                                 {.steps = {1, 3, 2}, .plain_norm = true, .per_update = 2}};

    (void)state;
    make_data();
    for (size_t i = 0; i < TRII_COUNT_OF(plans); i++) {
        static rank ranks[MAX_RANKS];
        int size = plans[i].steps[2] > 0 ? 3 : 2, n;
        double wanted[WEIGHTS];

        take_statistics(&plans[i], wanted, &n);
        assert_true(n == 2 * IN + 1);
        ranks_succeed(ranks, size, train, &plans[i]);
        for (int r = 0; r < size; r++)
            for (int k = 0; k < n; k++)
                if (!(fabs(ranks[r].weights[k] - wanted[k]) < 1e-12))
                    fail_msg("plan %zu, rank %d, statistic %d: %g instead of %g", i, r, k,
                             ranks[r].weights[k], wanted[k]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(batch_norm_over_all_ranks_is_one_process),
    cmocka_unit_test(running_statistics_are_of_ranks_that_have_data),
};

TEST_MAIN(tests)
