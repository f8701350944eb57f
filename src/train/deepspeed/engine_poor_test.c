/* engine_poor_test.c - a rank that has no memory while an engine is made, trains, saves or loads:
 * wherever it was, all ranks fail at once with the reason, and nothing is lost. */
#include "testing/check.h"
#include "testing/engine_ranks.h"
#include "testing/poor_rank.h"

enum { WATCHDOG_S = 50 };

typedef enum place { MADE, TRAINED, TRAINED_AGAIN, SAVED, LOADED } place;

typedef struct torture {
    place where;
    const char *config;
    int poor; /* the rank without memory */
    const char *folder;
} torture;

static void fail_at(const rank_env *env, place now)
{
    const torture *t = env->arg;

    poor_begin(t->where == now && env->rank == t->poor);
}

static tri_status use(const rank_env *env, const rank *r, tri_engine *e)
{
    const torture *t = env->arg;
    tri_status status = TRI_OK;
    double loss;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        fail_at(env, i == 0 ? TRAINED : TRAINED_AGAIN);
        status = engine_micro_step(e, r, i, &loss);
        poor_end();
    }
    if (status == TRI_OK && t->where == LOADED && poor_at == 0) /* which the others load, too */
        status = tri_engine_save_checkpoint(e, t->folder, "a", NULL, 0);
    if (status != TRI_OK || t->where < SAVED)
        return status;
    fail_at(env, t->where);
    return t->where == SAVED ? tri_engine_save_checkpoint(e, t->folder, "a", NULL, 0)
                             : tri_engine_load_checkpoint(e, t->folder, NULL, NULL);
}

static tri_engine *engine;

static tri_status run(rank_env *env, tri_group *group)
{
    const torture *t = env->arg;
    rank r = {.index = env->rank, .size = env->size, .group = group};
    tri_status status;

    fail_at(env, MADE);
    status = engine_make(&r, t->config, &engine);
    poor_end();
    return status == TRI_OK ? use(env, &r, engine) : status;
}

static void clean(void)
{
    tri_step_end();
    tri_engine_destroy(engine);
    engine = NULL;
}

/* What fails on one rank after the last time that an update communicates its peers hear when it
 * leaves. */
static const char *each_allocation_fails(rank_env *env)
{
    const torture *t = env->arg;

    return poor_each(env, &(poor_work){.run = run,
                                       .clean = clean,
                                       .alone = t->where == TRAINED || t->where == TRAINED_AGAIN});
}

#define CONFIG(stage, more)                                                                        \
    "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_clipping\": 1,"                            \
    " \"optimizer\": {\"type\": \"Adam\"}, \"zero_optimization\": {\"stage\": " #stage             \
    ", \"stage3_param_persistence_threshold\": 0}" more "}"
#define F16 ", \"fp16\": {\"enabled\": true}"

static void suffer(place where, int size, const char *config, int poor)
{
    const tri_group_options options = {.engine = size > 1 ? "shm" : NULL, .timeout_ms = 20000};
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
