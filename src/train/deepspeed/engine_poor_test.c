/* engine_poor_test.c - a rank that has no memory while an engine is made, trains, saves or loads:
 * wherever it was, all ranks fail at once with the reason, and nothing is lost. */
#include "base/alloc.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/engine_ranks.h"

enum { WATCHDOG_S = 50 };

typedef enum place { MADE, TRAINED, TRAINED_AGAIN, SAVED, LOADED } place;

typedef struct torture {
    place where;
    const char *config;
    int poor; /* the rank without memory */
    const char *folder;
} torture;

/* The poor rank: how many allocations there were at the place that is tested. */
static long calls;

static void begin_failing(const rank_env *env, place now, int n)
{
    const torture *t = env->arg;

    if (t->where != now || env->rank != t->poor)
        return;
    calls = trii_alloc_calls();
    trii_alloc_fail_at(n);
}

static void end_failing(const rank_env *env, place now)
{
    const torture *t = env->arg;

    trii_alloc_fail_at(0);
    if (t->where == now && env->rank == t->poor)
        calls = trii_alloc_calls() - calls;
}

static tri_status use(const rank_env *env, const rank *r, tri_engine *e, int n)
{
    const torture *t = env->arg;
    tri_status status = TRI_OK;
    double loss;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        begin_failing(env, i == 0 ? TRAINED : TRAINED_AGAIN, n);
        status = engine_micro_step(e, r, i, &loss);
        end_failing(env, i == 0 ? TRAINED : TRAINED_AGAIN);
    }
    if (status == TRI_OK && t->where == LOADED && n == 0) /* which the others load, too */
        status = tri_engine_save_checkpoint(e, t->folder, "a", NULL, 0);
    begin_failing(env, t->where == SAVED ? SAVED : LOADED, n);
    if (status == TRI_OK && t->where == SAVED)
        status = tri_engine_save_checkpoint(e, t->folder, "a", NULL, 0);
    if (status == TRI_OK && t->where == LOADED)
        status = tri_engine_load_checkpoint(e, t->folder, NULL, NULL);
    end_failing(env, t->where == SAVED ? SAVED : LOADED);
    return status;
}

/* None fails by its deadline. All do, or none does; but what fails on one rank after the last time
 * that an update communicates its peers hear when it leaves. */
static const char *run_once(rank_env *env, int n)
{
    const torture *t = env->arg;
    const bool alike = t->where != TRAINED && t->where != TRAINED_AGAIN;
    char key[32], line[512];
    rank r = {.index = env->rank, .size = env->size};
    tri_store *view = NULL;
    tri_engine *e = NULL;
    tri_status status;
    int64_t n_failed = 0;

    snprintf(key, sizeof(key), "poor/%d", n);
    RANK_TRY(env, tri_store_prefix(key, env->store, &view));
    RANK_TRY(env, tri_group_create(view, env->rank, env->size, env->options, &r.group));
    begin_failing(env, MADE, n);
    status = engine_make(&r, t->config, &e);
    end_failing(env, MADE);
    if (status == TRI_OK)
        status = use(env, &r, e, n);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    tri_step_end();
    tri_engine_destroy(e);
    if (!alike)
        tri_group_unref(r.group);
    if (status == TRI_ERR_GROUP_TIMEOUT || status == TRI_ERR_TIMEOUT || (n == 0 && status < 0))
        return RANK_FAIL(env, "rank %d, allocation %d: %s", env->rank, n, line);
    RANK_TRY(env, tri_store_add(view, "failed", status != TRI_OK, &n_failed));
    snprintf(key, sizeof(key), "n%d", n);
    RANK_TRY(env, ranks_meet(env, key, -1));
    RANK_TRY(env, tri_store_add(view, "failed", 0, &n_failed));
    if (alike && n_failed != 0 && n_failed != env->size)
        return RANK_FAIL(env, "rank %d, allocation %d: %d failed, here %s: %s", env->rank, n,
                         (int)n_failed, tri_status_name(status), line);
    if (alike)
        tri_group_unref(r.group);
    tri_store_unref(view);
    return NULL;
}

static const char *each_allocation_fails(rank_env *env)
{
    const char *failure = run_once(env, 0);
    int64_t most = 0;

    if (failure != NULL)
        return failure;
    RANK_TRY(env, tri_store_add(env->store, "most", calls, &most));
    RANK_TRY(env, ranks_meet(env, "most", -1));
    RANK_TRY(env, tri_store_add(env->store, "most", 0, &most));
    if (most == 0)
        return RANK_FAIL(env, "nothing was allocated");
    for (int n = 1; n <= most && failure == NULL; n++)
        failure = run_once(env, n);
    return failure;
}

#define CONFIG(stage, more)                                                                        \
    "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_clipping\": 1,"                            \
    " \"optimizer\": {\"type\": \"Adam\"}, \"zero_optimization\": {\"stage\": " #stage             \
    ", \"stage3_param_persistence_threshold\": 0}" more "}"
#define F16 ", \"fp16\": {\"enabled\": true}"

static void suffer(place where, int size, const char *config, int poor)
{
    const tri_group_options options = {.engine = size > 1 ? "shm" : NULL, .timeout_ms = 5000};
    torture t = {.where = where, .config = config, .poor = poor};
    scratch s;

    scratch_begin(&s);
    t.folder = s.dir;
    run_processes(size, &options, each_allocation_fails, &t, NULL, WATCHDOG_S);
    scratch_end(&s);
}

static void one_rank_alone_hears_of_it(void **state)
{
    (void)state;
    for (place where = MADE; where <= LOADED; where++)
        suffer(where, 1, CONFIG(0, F16), 0);
}

static void all_hear_of_it_when_an_engine_is_made(void **state)
{
    (void)state;
    suffer(MADE, 2, CONFIG(0, F16), 1);
    suffer(MADE, 2, CONFIG(2, ""), 1);
    suffer(MADE, 2, CONFIG(3, ""), 0);
}

static void all_hear_of_it_in_a_step(void **state)
{
    (void)state;
    suffer(TRAINED, 2, CONFIG(0, F16), 1);
    suffer(TRAINED, 2, CONFIG(3, F16), 1);
    suffer(TRAINED_AGAIN, 2, CONFIG(0, F16), 1);
    suffer(TRAINED_AGAIN, 2, CONFIG(2, ""), 1);
}

static void all_hear_of_it_in_a_save(void **state)
{
    (void)state;
    suffer(SAVED, 2, CONFIG(0, F16), 0);
    suffer(SAVED, 2, CONFIG(0, F16), 1);
    suffer(SAVED, 2, CONFIG(3, ""), 0);
    suffer(SAVED, 2, CONFIG(3, ""), 1);
}

static void all_hear_of_it_in_a_load(void **state)
{
    (void)state;
    suffer(LOADED, 2, CONFIG(0, F16), 0);
    suffer(LOADED, 2, CONFIG(3, ""), 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_rank_alone_hears_of_it),
    cmocka_unit_test(all_hear_of_it_when_an_engine_is_made),
    cmocka_unit_test(all_hear_of_it_in_a_step),
    cmocka_unit_test(all_hear_of_it_in_a_save),
    cmocka_unit_test(all_hear_of_it_in_a_load),
};

TEST_MAIN(tests)
