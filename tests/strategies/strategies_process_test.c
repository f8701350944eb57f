/*
 * strategies_process_test.c - every two strategies together on four ranks that are processes, one
 * composition after the other in the same group, against rank 0 alone.
 */
/* ctest: timeout=120 */
#include "every_pair.h"
#include "strategies.h"

#define RANKS 4

typedef struct work {
    job j;
    result alone;
    double sums[MAX_STEPS];
} work;

static const char *compare(rank_env *env, work *w, tri_group *group)
{
    static char text[512];
    const job *j = &w->j;

    memcpy(w->sums, j->ranks[env->rank].losses, sizeof(w->sums));
    JOB_TRY(env, j,
            tri_all_reduce(group, w->sums, w->sums, MAX_STEPS, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL));
    if (env->rank != 0)
        return NULL;
    JOB_TRY(env, j, train_alone(j->k, &j->c, &w->alone));
    return difference(j, w->sums, &j->ranks[0], &w->alone, text, sizeof(text));
}

static bool goes(const int *level)
{
    return division_goes(RANKS, level[7], level[8], level[6]);
}

static const char *ranks_main(rank_env *env)
{
    const kind *k = env->arg;
    int placements = k->parts != NULL ? N_PLACEMENTS : ONE_LAYER;
    static pairs p = {.n_factors = 9,
                      .levels = {0, N_GATHERINGS, N_UPDATINGS, 2, 2, 2, 2, STAGES + 1, 2},
                      .goes = goes};
    const char *failure = NULL;
    tri_group *group = NULL;
    work *w = calloc(1, sizeof(*w));
    int level[PAIRS_FACTORS];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, NULL, &group));
    RANK_TRY(env, tri_cpu_devices_set(MAX_DEVICES));
    p.levels[0] = placements;
    while (failure == NULL && pairs_next(&p, 700, level)) {
        w->j = (job){.k = k,
                     .c = composition_that_goes(k, (composition){.ranks = RANKS,
                                                                 .place = (placement)level[0],
                                                                 .gather = (gathering)level[1],
                                                                 .update = (updating)level[2],
                                                                 .recompute = level[3],
                                                                 .uneven = level[4],
                                                                 .small_buckets = level[5],
                                                                 .hook = level[6] ? sum_hook : NULL,
                                                                 .zero = level[7],
                                                                 .replicas = level[8] ? 2 : 0})};
        composition_text(k, &w->j.c, w->j.name, sizeof(w->j.name));
        failure = train_rank(env, group, &w->j);
        if (failure == NULL)
            failure = compare(env, w, group);
    }
    tri_step_end();
    tri_group_unref(group);
    free(w);
    return failure;
}

static void processes_train_as_one_does(void **state)
{
    (void)state;
    run_processes(RANKS, NULL, ranks_main, (void *)(uintptr_t)&mlp, NULL, 100);
}

static void processes_share_statistics(void **state)
{
    (void)state;
    run_processes(RANKS, NULL, ranks_main, (void *)(uintptr_t)&sync_norm, NULL, 100);
}

static void processes_have_statistics_of_their_own(void **state)
{
    (void)state;
    run_processes(RANKS, NULL, ranks_main, (void *)(uintptr_t)&batch_norm, NULL, 100);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(processes_train_as_one_does),
    cmocka_unit_test(processes_share_statistics),
    cmocka_unit_test(processes_have_statistics_of_their_own),
};

TEST_MAIN(tests)
