/*
 * strategies_test.c - every strategy, and every two of them together, train as one process does:
 * DDP and the stages of ZeRO on 1, 2, 4, 6 and 8 ranks (threads) and none, over one axis and over
 * a mesh of two (HSDP), DataParallel, a network on two devices,
 * accumulation with and without no_sync, recomputation, clipping, SGD and AdamW, uneven shares.
 */
/* ctest: start=first timeout=120 */
#include "every_pair.h"
#include "strategies.h"

/* Of the order of accesses 6 and 8 show no more. */
static const int rank_counts[] = {0, 1, 2, 4, 6, 8};
#define RANK_COUNTS (TEST_SANITIZED ? 4 : (int)TRII_COUNT_OF(rank_counts))

/* --- one composition ------------------------------------------------------ */

static const char *rank_main(rank_env *env)
{
    job *j = env->arg;
    tri_group *group = NULL;
    const char *failure;

    if (j->c.ranks > 0)
        JOB_TRY(env, j, tri_group_create(env->store, env->rank, env->size, NULL, &group));
    failure = train_rank(env, group, j);
    tri_step_end();
    tri_group_unref(group);
    return failure;
}

static void compare(const job *j, const result *alone)
{
    double losses[MAX_STEPS] = {0};
    char text[512];
    const char *differs;
    int ranks = j->c.ranks > 0 ? j->c.ranks : 1;

    for (int r = 0; r < ranks; r++) {
        for (int s = 0; s < STEPS; s++)
            losses[s] += j->ranks[r].losses[s];
        if (j->ranks[r].hash != j->ranks[0].hash)
            fail_msg("%s: rank %d has other bits than rank 0", j->name, r);
    }
    differs = difference(j, losses, &j->ranks[0], alone, text, sizeof(text));
    if (differs != NULL)
        fail_msg("%s", differs);
}

static void check(const kind *k, const composition *c)
{
    static job j;
    static result whole[N_UPDATINGS], parts;
    static bool done[N_UPDATINGS];
    bool own = k->random || k->statistics || k->shared || c->join;
    result *alone = own ? &parts : &whole[c->update];

    j = (job){.k = k, .c = *c};
    composition_text(k, c, j.name, sizeof(j.name));
    if (own || !done[c->update])
        CHECK_OK(train_alone(k, c, alone));
    done[c->update] |= !own; /* one kind of model a process */
    assert_true(TEST_SANITIZED || c->join || alone->losses[STEPS - 1] < alone->losses[0]);
    run_threads(c->ranks > 0 ? c->ranks : 1, NULL, rank_main, &j);
    compare(&j, alone);
}

/* --- pairs of strategies -------------------------------------------------- */

static composition composition_of(const kind *k, const int *level)
{
    composition c = composition_that_goes(k, (composition){.ranks = rank_counts[level[0]],
                                                           .place = (placement)level[1],
                                                           .gather = (gathering)level[2],
                                                           .update = (updating)level[3],
                                                           .recompute = level[4],
                                                           .uneven = level[5],
                                                           .small_buckets = level[6],
                                                           .hook = level[7] ? sum_hook : NULL,
                                                           .join = level[8],
                                                           .zero = level[9],
                                                           .replicas = level[10] ? 2 : 0});

    if (c.ranks == 0 || c.place == TWO_GROUPS || k->statistics) /* of one model, by empty batches */
        c.join = false;
    if (c.join && (c.gather == TWO_BATCHES || k->shared)) /* a pass is a step of who has joined */
        c.gather = ONE_BATCH;
    if (c.join && c.zero > 2 && c.gather == NO_SYNC) /* who has joined would gather less often */
        c.gather = ONE_BATCH;
    return c;
}

static bool goes(const int *level)
{
    return division_goes(rank_counts[level[0]], level[9], level[10], level[7]);
}

static void check_pairs(const kind *k, int from)
{
    static pairs p;
    int level[PAIRS_FACTORS], n = 0, placements = k->parts != NULL ? N_PLACEMENTS : ONE_LAYER;

    p = (pairs){.n_factors = 11,
                .levels = {RANK_COUNTS, placements, N_GATHERINGS, N_UPDATINGS, 2, 2, 2, 2, 2,
                           STAGES + 1, 2},
                .goes = goes};
    CHECK_OK(tri_cpu_devices_set(MAX_DEVICES));
    while (pairs_next(&p, from, level)) {
        composition c = composition_of(k, level);

        check(k, &c);
        n++;
    }
    assert_true(n >= RANK_COUNTS * placements);
}

static void an_mlp_trains_as_on_the_whole_batch(void **state)
{
    (void)state;
    check_pairs(&mlp, 0);
}

static void a_gpt_trains_as_on_the_whole_batch(void **state)
{
    (void)state;
    check_pairs(&gpt, 500);
}

static void dropout_trains_as_parts_one_after_the_other(void **state)
{
    (void)state;
    check_pairs(&dropout, 1000);
}

static void batch_norm_trains_as_parts_one_after_the_other(void **state)
{
    (void)state;
    check_pairs(&batch_norm, 1500);
}

static void shared_statistics_train_as_on_the_whole_batch(void **state)
{
    (void)state;
    check_pairs(&sync_norm, 2000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_mlp_trains_as_on_the_whole_batch),
    cmocka_unit_test(a_gpt_trains_as_on_the_whole_batch),
    cmocka_unit_test(dropout_trains_as_parts_one_after_the_other),
    cmocka_unit_test(batch_norm_trains_as_parts_one_after_the_other),
    cmocka_unit_test(shared_statistics_train_as_on_the_whole_batch),
};

TEST_MAIN(tests)
