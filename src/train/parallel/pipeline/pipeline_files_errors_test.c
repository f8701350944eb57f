/* pipeline_files_errors_test.c - files of pipelines that one rank cannot write or read: all ranks
 * hear of it, and what is there stays. */
#include "testing/pipeline_ranks.h"
#include "testing/scratch.h"
#include "train/parallel/pipeline/pipeline_internal.h"
#include "train/tensor/persistent.h"

static tri_module *build(void)
{
    tri_module *stages[6];

    pipeline_stages(stages, 6, true);
    return tri_nn_sequential_of(6, stages);
}

static tri_optimizer *optimize(tri_module *model)
{
    return tri_adamw(model, 0.05, NULL);
}

static const char *failing_rank(rank_env *env)
{
    const char *folder = env->arg;
    const tri_checkpoint_info info = {.step = 1};
    tri_checkpoint_writer *writer = NULL;
    tri_group *group = NULL;
    tri_module *model;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    model = tri_pipeline_split(build(), NULL, 2, &(tri_pipeline_options){.group = group});
    RANK_TRY(env, tri_checkpoint_writer_create(folder, &writer));
    RANK_FAILS(env,
               tri_checkpoint_writer_save(env->rank == 0 ? writer : NULL, model, NULL, &info, NULL),
               TRI_ERR_INVALID_ARG, "writer");
    RANK_TRY(env, tri_checkpoint_writer_save(writer, model, NULL, &info, NULL));
    RANK_FAILS(env, tri_checkpoint_writer_save(writer, model, NULL, &info, NULL), TRI_ERR_IO,
               ": a file of that name exists");
    if (strncmp(tri_last_error(), "rank 0: create folder", 21) != 0)
        return RANK_FAIL(env, "the rank is named again: %s", tri_last_error());
    tri_checkpoint_writer_destroy(writer);
    tri_module_destroy(model);
    tri_group_unref(group);
    return NULL;
}

/* The folder is a file. */
static void writers_tell_all_ranks_of_a_failure(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(2, &(tri_group_options){.engine = "shm"}, failing_rank,
                (void *)(uintptr_t)scratch_file(&s, "run", "", 0));
    scratch_end(&s);
}

/* Two pipelines of two stages, of which the first one writes. */
static const char *replica_rank(rank_env *env)
{
    const tri_checkpoint_save_options all = {.all_ranks = true};
    const tri_checkpoint_info info = {.step = 1};
    tri_checkpoint_writer *writer = NULL;
    tri_mesh *mesh = NULL;
    tri_module *model;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"data", "pipeline"}, &mesh));
    model = tri_pipeline_split(build(), NULL, 2,
                               &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline")});
    model = tri_ddp(model, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
    RANK_TRY(env, tri_checkpoint_writer_create(env->arg, &writer));
    for (int i = 0; i < 2; i++) {
        RANK_TRY(env, tri_checkpoint_writer_save(writer, model, NULL, &info, &all));
        RANK_FAILS(env, tri_checkpoint_writer_wait(writer), TRI_ERR_IO,
                   ": a file of that name exists");
        RANK_FAILS(
            env, /* on all of them */
            tri_checkpoint_writer_save(env->rank == 3 ? NULL : writer, model, NULL, &info, &all),
            TRI_ERR_INVALID_ARG, "writer");
    }
    tri_checkpoint_writer_destroy(writer);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void replicas_that_do_not_write_hear_how_it_ends(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(4, &(tri_group_options){.engine = "shm", .timeout_ms = 20000}, replica_rank,
                (void *)(uintptr_t)scratch_file(&s, "run", "", 0));
    scratch_end(&s);
}

/* Of two pipelines whose layers are cut in two, the first writes, and only with its first parts:
 * the second parts give theirs to them. */
static const char *giving_rank(rank_env *env)
{
    const tri_parallel_rule rule = {.module = "0.0", .style = TRI_COLWISE, .output = TRI_WHOLE};
    const tri_checkpoint_save_options all = {.all_ranks = true};
    tri_checkpoint_writer *writer = NULL;
    tri_mesh *mesh = NULL;
    tri_module *model = build();

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2, 2), (const char *[]){"data", "pipeline", "tensor"},
                            &mesh));
    RANK_TRY(env, tri_parallelize(model, tri_mesh_group(mesh, "tensor"), &rule, 1));
    model = tri_pipeline_split(model, NULL, 2,
                               &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline")});
    model = tri_ddp(model, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
    RANK_TRY(env, tri_checkpoint_writer_create(env->arg, &writer));
    for (int i = 0; i < 2; i++) {
        const tri_checkpoint_info info = {.step = i};

        RANK_TRY(env, tri_checkpoint_writer_save(writer, model, NULL, &info, &all));
    }
    RANK_TRY(env, tri_checkpoint_writer_wait(writer));
    tri_checkpoint_writer_destroy(writer);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void replicas_of_ranks_that_only_give_save_again(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(8, &(tri_group_options){.engine = "shm", .timeout_ms = 20000}, giving_rank,
                (void *)(uintptr_t)scratch_path(&s, "run"));
    scratch_end(&s);
}

/* Files that one rank cannot write, or of which one has nothing to send: all ranks hear of it, and
 * what is there stays. */
static const char *stopped_rank(rank_env *env)
{
    const char *path = env->arg;
    trii_held held = {0};
    tri_group *group = NULL;
    tri_module *model;
    tri_tensor *weight;
    uint64_t hash[2];
    char beyond[300];

    snprintf(beyond, sizeof(beyond), "%s/beyond", path);
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    model = tri_pipeline_split(build(), NULL, 3, &(tri_pipeline_options){.group = group});
    RANK_TRY(env, tri_save(model, path));
    RANK_TRY(env, tri_module_hash(model, &hash[0]));
    for (int i = 0; i < 2; i++) {
        RANK_FAILS(env, (i == 0 ? tri_save : tri_torch_save)(model, beyond), TRI_ERR_IO, "rank 0");
        weight = tri_module_state(model, 0).tensor;
        held.tensor = weight; /* it says that others have the rest */
        weight->held = env->rank == 1 ? &held : NULL;
        RANK_FAILS(env, (i == 0 ? tri_save : tri_torch_save)(model, path), TRI_ERR_UNSUPPORTED,
                   "rank 1: tri_save: nothing makes");
        weight->held = NULL;
    }
    RANK_TRY(env, tri_load(model, path, NULL));
    RANK_TRY(env, tri_module_hash(model, &hash[1]));
    if (hash[0] != hash[1])
        return RANK_FAIL(env, "rank %d: the file is not what was saved last", env->rank);
    RANK_TRY(env, tri_save(model, path));
    tri_module_destroy(model);
    tri_group_unref(group);
    return NULL;
}

static void files_that_cannot_be_written_are_told_of(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(3, &(tri_group_options){.engine = "shm", .timeout_ms = 20000}, stopped_rank,
                (void *)(uintptr_t)scratch_path(&s, "file.safetensors"));
    assert_int_equal(scratch_count(s.dir), 1);
    scratch_end(&s);
}

static tri_status save_or_restore(int way, const char *folder, tri_checkpoint_writer *writer,
                                  tri_module *model, tri_optimizer *opt)
{
    const tri_checkpoint_info info = {.step = 1};
    tri_checkpoint *checkpoint = NULL;
    tri_status status;

    if (way == 0)
        return tri_checkpoint_save(folder, model, opt, &info, NULL);
    if (way == 1)
        return tri_checkpoint_writer_save(writer, model, opt, &info, NULL);
    status = tri_checkpoint_writer_wait(writer);
    if (status == TRI_OK)
        status = tri_checkpoint_open(folder, &checkpoint);
    if (status == TRI_OK)
        status = tri_checkpoint_restore(checkpoint, model, opt);
    tri_checkpoint_close(checkpoint);
    return status;
}

/* Two stages, of which the first has a layer that is cut. */
static tri_module *stages_of(const tri_mesh *mesh)
{
    tri_module *net = build();
    const tri_parallel_rule rule = {.module = "0.0", .style = TRI_COLWISE, .output = TRI_WHOLE};

    if (tri_parallelize(net, tri_mesh_group(mesh, "tensor"), &rule, 1) != TRI_OK) {
        tri_module_destroy(net);
        return NULL;
    }
    return tri_pipeline_split(net, NULL, 2,
                              &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline")});
}

/* The first rank of the last stage, of which nothing is cut, gives an optimizer of another model,
 * or none. */
static const char *mistaken_rank(rank_env *env)
{
    const char *folder = env->arg;
    bool mistakes = env->rank == env->size / 2;
    tri_checkpoint_writer *writer = NULL;
    tri_mesh *mesh = NULL;
    tri_module *model, *others[2];
    tri_optimizer *opt, *wrong[3] = {NULL}, *other_kind;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, env->size / 2),
                            (const char *[]){"pipeline", "tensor"}, &mesh));
    model = stages_of(mesh);
    RANK_TRY(env, tri_module_status(model));
    others[0] = stages_of(mesh);
    others[1] = build();
    opt = optimize(model);
    other_kind = tri_sgd(model, 0.05, &(tri_sgd_options){.momentum = 0.9});
    for (int i = 0; i < 2; i++)
        wrong[i] = optimize(others[i]);
    RANK_TRY(env, tri_checkpoint_writer_create(folder, &writer));
    for (int way = 0; way < 3; way++) {
        RANK_TRY(env, save_or_restore(way, folder, writer, model, opt));
        for (int i = 0; i < 3; i++)
            RANK_FAILS(env, save_or_restore(way, folder, writer, model, mistakes ? wrong[i] : opt),
                       i < 2 ? TRI_ERR_INVALID_ARG : TRI_ERR_MISMATCH,
                       i < 2 ? "not of this pipeline" : "some ranks give no optimizer");
    }
    RANK_FAILS(env, save_or_restore(2, folder, writer, model, mistakes ? other_kind : opt),
               TRI_ERR_FORMAT, "no tensor");
    RANK_TRY(env, save_or_restore(2, folder, writer, model, opt)); /* the groups go on */
    tri_checkpoint_writer_destroy(writer);
    tri_optimizer_destroy(opt);
    tri_optimizer_destroy(other_kind);
    for (int i = 0; i < 2; i++) {
        tri_optimizer_destroy(wrong[i]);
        tri_module_destroy(others[i]);
    }
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void optimizers_of_other_models_are_refused_on_all_ranks(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        scratch s;

        scratch_begin(&s);
        run_threads(ranks, &(tri_group_options){.engine = "shm", .timeout_ms = 10000},
                    mistaken_rank, (void *)(uintptr_t)scratch_path(&s, "run"));
        scratch_end(&s);
    }
}

/* Arguments that one rank alone has wrong, of two pipelines that have each a part of one layer. */
static const char *without_rank(rank_env *env)
{
    const tri_checkpoint_info info = {.step = 1};
    tri_mesh *mesh = NULL;
    tri_module *model;
    uint64_t hash;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"pipeline", "tensor"}, &mesh));
    model = stages_of(mesh);
    RANK_TRY(env, tri_module_status(model));
    for (int mistaken = 1; mistaken < 3; mistaken++) { /* of either stage */
        const char *path = env->rank == mistaken ? NULL : env->arg;

        RANK_FAILS(env, tri_module_hash(model, env->rank == mistaken ? NULL : &hash),
                   TRI_ERR_INVALID_ARG, "hash_out is NULL");
        RANK_FAILS(env, tri_save(model, path), TRI_ERR_INVALID_ARG, "path is NULL");
        RANK_FAILS(env, tri_torch_save(model, path), TRI_ERR_INVALID_ARG, "path is NULL");
        RANK_FAILS(env, tri_checkpoint_save(path, model, NULL, &info, NULL), TRI_ERR_INVALID_ARG,
                   "folder is NULL");
    }
    RANK_TRY(env, tri_module_hash(model, &hash)); /* the groups go on */
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void arguments_that_one_rank_lacks_are_told_of(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(4, &(tri_group_options){.engine = "shm", .timeout_ms = 20000}, without_rank,
                (void *)(uintptr_t)scratch_path(&s, "run"));
    scratch_end(&s);
}

/* Whatever the others do meanwhile, a rank that calls one of these waits for them. */
static tri_status call_alone(int way, const char *folder, tri_checkpoint_writer *writer,
                             tri_module *model, const char **call_out)
{
    static const char *const calls[] = {"tri_checkpoint_save",
                                        "tri_checkpoint_writer_save",
                                        "tri_checkpoint_restore",
                                        "tri_module_hash",
                                        "tri_save",
                                        "tri_torch_save"};
    uint64_t hash;

    *call_out = calls[way];
    if (way < 3)
        return save_or_restore(way, folder, writer, model, NULL);
    if (way == 3)
        return tri_module_hash(model, &hash);
    return way == 4 ? tri_save(model, folder) : tri_torch_save(model, folder);
}

static const char *lone_rank(rank_env *env)
{
    const char *folder = env->arg, *call;
    tri_checkpoint_writer *writer = NULL;
    tri_group *group = NULL;
    char meeting[9];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_checkpoint_writer_create(folder, &writer));
    for (int way = 0; way < 6; way++) {
        tri_module *model =
            tri_pipeline_split(build(), NULL, 2, &(tri_pipeline_options){.group = group});

        RANK_TRY(env, save_or_restore(0, folder, writer, model, NULL));
        tri_group_set_timeout(trii_pipeline_of(model)->group, 50);
        if (env->rank == 0 &&
            (call_alone(way, folder, writer, model, &call) != TRI_ERR_GROUP_TIMEOUT ||
             strncmp(tri_last_error(), call, strlen(call)) != 0 ||
             strstr(tri_last_error(), "(pipeline_files_errors_test.c:") == NULL ||
             strstr(tri_last_error(), " for rank 1") == NULL))
            return RANK_FAIL(env, "%s: %s", call, tri_last_error());
        snprintf(meeting, sizeof(meeting), "alone%d", way);
        RANK_TRY(env, ranks_meet(env, meeting, -1));
        tri_module_destroy(model);
    }
    tri_checkpoint_writer_destroy(writer);
    tri_group_unref(group);
    return NULL;
}

static void a_rank_that_calls_alone_names_call_and_line(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(2, &(tri_group_options){.engine = "shm"}, lone_rank,
                (void *)(uintptr_t)scratch_path(&s, "run"));
    scratch_end(&s);
}

static const char *rank_of_a_part(rank_env *env)
{
    static const char whose[] = "rank 1 (world rank 2): ";
    const tri_checkpoint_info info = {.step = 1};
    tri_group *group = NULL, *part = NULL;
    tri_module *model;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_group_split(group, env->rank > 0, env->rank, NULL, &part));
    if (env->rank > 0) {
        model = tri_pipeline_split(build(), NULL, 2, &(tri_pipeline_options){.group = part});
        RANK_FAILS(env,
                   tri_checkpoint_save(env->arg, model, NULL, env->rank == 2 ? NULL : &info, NULL),
                   TRI_ERR_INVALID_ARG, "info is NULL");
        if (strstr(tri_last_error(), whose) == NULL ||
            strstr(strstr(tri_last_error(), whose) + strlen(whose), "rank ") != NULL)
            return RANK_FAIL(env, "%s", tri_last_error());
        tri_module_destroy(model);
    }
    tri_group_unref(part);
    tri_group_unref(group);
    return NULL;
}

static void ranks_of_a_part_of_the_world_are_named_by_both_numbers(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(3, &(tri_group_options){.engine = "shm"}, rank_of_a_part,
                (void *)(uintptr_t)scratch_path(&s, "run"));
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(writers_tell_all_ranks_of_a_failure),
    cmocka_unit_test(replicas_that_do_not_write_hear_how_it_ends),
    cmocka_unit_test(replicas_of_ranks_that_only_give_save_again),
    cmocka_unit_test(files_that_cannot_be_written_are_told_of),
    cmocka_unit_test(optimizers_of_other_models_are_refused_on_all_ranks),
    cmocka_unit_test(arguments_that_one_rank_lacks_are_told_of),
    cmocka_unit_test(a_rank_that_calls_alone_names_call_and_line),
    cmocka_unit_test(ranks_of_a_part_of_the_world_are_named_by_both_numbers),
};

TEST_MAIN(tests)
