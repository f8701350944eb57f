/* zero_poor_test.c - a rank that has no memory while the ranks of a divided model meet, in a step,
 * or where parameters are made whole: its peers hear of it at once, wherever it was. */
#include <trireme/trireme.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/scratch.h"

enum { WATCHDOG_S = 50, WIDTH = 3 };

typedef enum place { MADE, TRAINED, TRAINED_AGAIN, OPENED, HASHED, SAVED, LOADED, KEPT } place;

typedef struct torture {
    place where;
    int stage;
    bool mesh;
    int poor; /* the rank without memory */
    const char *folder;
} torture;

/* The poor rank: how many allocations there were at the place that is tested; 0: it has not been
 * there. */
static long calls;
static bool counting;

/* n: which of them fails; 0 = none. */
static void begin_failing(const rank_env *env, place now, int n)
{
    const torture *t = env->arg;

    if (t->where != now || env->rank != t->poor)
        return;
    counting = true;
    calls = trii_alloc_calls();
    trii_alloc_fail_at(n);
}

static void end_failing(void)
{
    trii_alloc_fail_at(0);
    if (counting)
        calls = trii_alloc_calls() - calls;
    counting = false;
}

static tri_status pass(tri_module *model, tri_optimizer *opt)
{
    tri_tensor *x = tri_ones(TRI_SHAPE(2, WIDTH), TRI_DTYPE_F32);
    tri_status status;

    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    status = tri_optimizer_step(opt);
    return status == TRI_OK ? tri_step_end_status() : status;
}

static tri_status open_and_close(tri_module *model)
{
    tri_status status = tri_unshard_begin(model);

    return status == TRI_OK ? tri_unshard_end(model) : status;
}

static tri_status use_at(const torture *t, tri_module *model, tri_optimizer *opt)
{
    char file[256], folder[256];
    uint64_t hash;

    snprintf(file, sizeof(file), "%s/whole.safetensors", t->folder);
    snprintf(folder, sizeof(folder), "%s/checkpoints", t->folder);
    switch (t->where) {
    case OPENED:
        return open_and_close(model);
    case HASHED:
        return tri_module_hash(model, &hash);
    case SAVED:
        return tri_save(model, file);
    case LOADED:
        return tri_load(model, file, NULL);
    case KEPT:
        return tri_checkpoint_save(folder, model, opt, &(tri_checkpoint_info){.step = 1}, NULL);
    default:
        return TRI_OK;
    }
}

static tri_status use(const rank_env *env, tri_module *model, tri_optimizer *opt, int n)
{
    const torture *t = env->arg;
    torture before = *t;
    tri_status status = tri_optimizer_status(opt);

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        begin_failing(env, i == 0 ? TRAINED : TRAINED_AGAIN, n);
        status = pass(model, opt);
        end_failing();
    }
    before.where = SAVED;
    if (status == TRI_OK && t->where == LOADED)
        status = use_at(&before, model, opt);
    if (status == TRI_OK && t->where > TRAINED_AGAIN) {
        begin_failing(env, t->where, n);
        status = use_at(t, model, opt);
        end_failing();
    }
    return status;
}

typedef struct made {
    tri_mesh *mesh;
    tri_module *model;
    tri_optimizer *opt;
} made;

static tri_status run(const rank_env *env, tri_group *group, int n, made *m)
{
    const torture *t = env->arg;
    tri_module *net =
        tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_linear(WIDTH, 1, NULL));
    tri_zero_options options = {
        .stage = t->stage, .bucket_cap_bytes = 8, .first_bucket_bytes = 8, .prefetch = -1};
    tri_status status = TRI_OK;

    options.group = t->mesh ? NULL : group;
    if (t->mesh)
        status = tri_mesh_create(group, (int64_t[]){2, 1}, 2, (const char *[]){"a", "b"}, &m->mesh);
    options.mesh = m->mesh;
    begin_failing(env, MADE, n);
    m->model = tri_zero(net, &options);
    end_failing();
    m->opt = tri_sgd(m->model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    return status == TRI_OK ? use(env, m->model, m->opt, n) : status;
}

/* All ranks fail, none by its deadline or since another has left, or none does. */
static const char *run_once(rank_env *env, int n)
{
    char key[32], line[256];
    tri_store *view = NULL;
    tri_group *group = NULL;
    made m = {NULL, NULL, NULL};
    tri_status status;
    int64_t n_failed = 0;

    snprintf(key, sizeof(key), "poor/%d", n);
    RANK_TRY(env, tri_store_prefix(key, env->store, &view));
    RANK_TRY(env, tri_group_create(view, env->rank, env->size, env->options, &group));
    status = run(env, group, n, &m);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (status == TRI_ERR_GROUP_TIMEOUT || status == TRI_ERR_TIMEOUT || (n == 0 && status < 0))
        return RANK_FAIL(env, "rank %d, allocation %d: %s", env->rank, n, line);
    RANK_TRY(env, tri_store_add(view, "failed", status != TRI_OK, &n_failed));
    snprintf(key, sizeof(key), "n%d", n);
    RANK_TRY(env, ranks_meet(env, key, -1));
    RANK_TRY(env, tri_store_add(view, "failed", 0, &n_failed));
    if (n_failed != 0 && n_failed != env->size)
        return RANK_FAIL(env, "rank %d, allocation %d: %d failed, here %s: %s", env->rank, n,
                         (int)n_failed, tri_status_name(status), line);
    tri_step_end();
    tri_optimizer_destroy(m.opt);
    tri_module_destroy(m.model);
    tri_mesh_destroy(m.mesh);
    tri_group_unref(group);
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

static void suffer(place where, int stage, bool mesh, int poor)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 5000};
    torture t = {.where = where, .stage = stage, .mesh = mesh, .poor = poor};
    scratch s;

    scratch_begin(&s);
    t.folder = s.dir;
    run_processes(2, &options, each_allocation_fails, &t, NULL, WATCHDOG_S);
    scratch_end(&s);
}

static void all_hear_of_a_rank_without_memory_when_a_model_is_made(void **state)
{
    (void)state;
    suffer(MADE, 1, false, 1);
    suffer(MADE, 3, false, 1);
}

static void all_hear_of_one_when_a_model_over_a_mesh_is_made(void **state)
{
    (void)state;
    suffer(MADE, 1, true, 1);
    suffer(MADE, 3, true, 1);
}

static void all_hear_of_one_in_a_step(void **state)
{
    (void)state;
    suffer(TRAINED, 1, false, 1);
    suffer(TRAINED, 2, false, 1);
    suffer(TRAINED, 3, false, 1);
    suffer(TRAINED, 3, true, 1);
    suffer(TRAINED_AGAIN, 1, false, 1);
    suffer(TRAINED_AGAIN, 3, false, 1);
}

static void all_hear_of_one_when_parameters_are_made_whole(void **state)
{
    (void)state;
    suffer(OPENED, 3, false, 1);
    suffer(HASHED, 3, false, 1);
}

static void all_hear_of_one_when_a_model_is_saved_and_loaded(void **state)
{
    (void)state;
    suffer(SAVED, 3, false, 1);
    suffer(SAVED, 3, false, 0); /* which copies and writes */
    suffer(LOADED, 3, false, 1);
    suffer(KEPT, 1, false, 0);
    suffer(KEPT, 3, false, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_hear_of_a_rank_without_memory_when_a_model_is_made),
    cmocka_unit_test(all_hear_of_one_when_a_model_over_a_mesh_is_made),
    cmocka_unit_test(all_hear_of_one_in_a_step),
    cmocka_unit_test(all_hear_of_one_when_parameters_are_made_whole),
    cmocka_unit_test(all_hear_of_one_when_a_model_is_saved_and_loaded),
};

TEST_MAIN(tests)
