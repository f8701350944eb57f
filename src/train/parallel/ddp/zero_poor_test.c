/* zero_poor_test.c - a rank that has no memory while the ranks of a divided model meet, in a step,
 * or where parameters are made whole: its peers hear of it at once, wherever it was. */
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/poor_rank.h"
#include "testing/scratch.h"

enum { WATCHDOG_S = 50, WIDTH = 3 };

typedef enum place {
    MADE,
    TRAINED,
    TRAINED_AGAIN,
    UPDATED,
    OPENED,
    HASHED,
    SAVED,
    LOADED,
    KEPT
} place;

typedef struct torture {
    place where;
    int stage;
    bool mesh;
    int poor; /* the rank without memory */
    const char *folder;
} torture;

static void fail_at(const rank_env *env, place now)
{
    const torture *t = env->arg;

    poor_begin(t->where == now && env->rank == t->poor);
}

/* An update of what has run, as where a program reads its loss before it, fails while no collective
 * pends that would tell the others. */
static tri_status pass(const rank_env *env, tri_module *model, tri_optimizer *opt)
{
    tri_tensor *x = tri_ones(TRI_SHAPE(2, WIDTH), TRI_DTYPE_F32);
    tri_status status = TRI_OK;

    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    if (((const torture *)env->arg)->where == UPDATED)
        status = tri_run();
    fail_at(env, UPDATED);
    if (status == TRI_OK)
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

static tri_status use(const rank_env *env, tri_module *model, tri_optimizer *opt)
{
    const torture *t = env->arg;
    torture before = *t;
    tri_status status = tri_optimizer_status(opt);

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        fail_at(env, i == 0 ? TRAINED : TRAINED_AGAIN);
        status = pass(env, model, opt);
        poor_end();
    }
    before.where = SAVED;
    if (status == TRI_OK && t->where == LOADED)
        status = use_at(&before, model, opt);
    if (status == TRI_OK && t->where > UPDATED) {
        fail_at(env, t->where);
        status = use_at(t, model, opt);
        poor_end();
    }
    return status;
}

static struct {
    tri_mesh *mesh;
    tri_module *model;
    tri_optimizer *opt;
} made;

static tri_status run(rank_env *env, tri_group *group)
{
    const torture *t = env->arg;
    tri_module *net =
        tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_linear(WIDTH, 1, NULL));
    tri_zero_options options = {
        .stage = t->stage, .bucket_cap_bytes = 8, .first_bucket_bytes = 8, .prefetch = -1};
    tri_status status = TRI_OK;

    options.group = t->mesh ? NULL : group;
    if (t->mesh)
        status =
            tri_mesh_create(group, (int64_t[]){2, 1}, 2, (const char *[]){"a", "b"}, &made.mesh);
    options.mesh = made.mesh;
    fail_at(env, MADE);
    made.model = tri_zero(net, &options);
    poor_end();
    made.opt = tri_sgd(made.model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    return status == TRI_OK ? use(env, made.model, made.opt) : status;
}

static void clean(void)
{
    tri_step_end();
    tri_optimizer_destroy(made.opt);
    tri_module_destroy(made.model);
    tri_mesh_destroy(made.mesh);
    memset(&made, 0, sizeof(made));
}

static const char *each_allocation_fails(rank_env *env)
{
    return poor_each(env, &(poor_work){.run = run, .clean = clean});
}

static void suffer(place where, int stage, bool mesh, int poor)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 20000};
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
    suffer(UPDATED, 1, false, 1);
    suffer(UPDATED, 3, false, 1);
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
