/* parallelize_files_test.c - checkpoints of networks that are cut over ranks: on other numbers of
 * ranks, cut otherwise and not at all, with the bits that were saved. */
#include "testing/cut_ranks.h"
#include "testing/scratch.h"

#define STEPS 3
#define MOST (4 * NUMBERS)

typedef struct job {
    char folder[256];
    const tri_parallel_rule *rules;
    int n_rules;
    bool is_saved;         /* there is a checkpoint, which is restored; else one is saved */
    double saved[MOST];    /* parameters and states */
    double after[NUMBERS]; /* parameters, so many steps later */
} job;

static tri_status train(tri_module *net, tri_optimizer *opt)
{
    tri_tensor *x = rows(0, ROWS, IN), *y = rows(0, ROWS, OUT);
    tri_status status = TRI_OK;

    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_backward(tri_mse_loss(tri_forward(net, x), y, NULL));
        (void)tri_clip_grad_norm(opt, 0.5);
        status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

/* What is here of parameters and states. */
static tri_status put_all(tri_module *net, tri_optimizer *opt, double *whole)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        whole += put_tensor(tri_module_state(net, i).tensor, whole, &status);
    for (int64_t i = 0; i < tri_optimizer_state_count(opt); i++) {
        tri_tensor *t = tri_optimizer_state(opt, i).tensor;

        if (tri_tensor_dtype(t) == TRI_DTYPE_F64)
            whole += put_tensor(t, whole, &status);
    }
    return status;
}

static const char *go_on(rank_env *env, tri_group *group)
{
    job *j = env->arg;
    tri_module *net = build(j->is_saved ? 70 : 3);
    tri_optimizer *opt;
    tri_checkpoint *checkpoint = NULL;
    double got[MOST];
    bool is_whole[NUMBERS];
    const char *wrong = NULL;

    if (j->n_rules > 0)
        RANK_TRY(env, tri_parallelize(net, group, j->rules, j->n_rules));
    opt = tri_adamw(net, 0.02, NULL);
    memcpy(got, j->saved, sizeof(got));
    if (!j->is_saved) {
        RANK_TRY(env, train(net, opt));
        RANK_TRY(env,
                 tri_checkpoint_save(j->folder, net, opt, &(tri_checkpoint_info){.step = 3}, NULL));
    } else {
        RANK_TRY(env, tri_checkpoint_open(j->folder, &checkpoint));
        RANK_TRY(env, tri_checkpoint_restore(checkpoint, net, opt));
        tri_checkpoint_close(checkpoint);
        RANK_TRY(env, put_all(net, opt, got));
        if (memcmp(got, j->saved, sizeof(got)) != 0)
            wrong = RANK_FAIL(env, "rank %d of %d has not what was saved", env->rank, env->size);
    }
    if (wrong == NULL) {
        RANK_TRY(env, train(net, opt));
        memcpy(got, j->after, sizeof(j->after));
        RANK_TRY(env, put(net, got, is_whole));
        if (j->is_saved)
            wrong = far_from(env, "weight", got, j->after, NUMBERS);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    return wrong;
}

static const char *go_on_rank(rank_env *env)
{
    tri_group *group = NULL;
    const char *wrong;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    wrong = go_on(env, group);
    tri_group_unref(group);
    return wrong;
}

/* By one process: what the checkpoint has, and the steps after it. */
static void read_alone(job *j)
{
    tri_module *net = build(80);
    tri_optimizer *opt = tri_adamw(net, 0.02, NULL);
    tri_checkpoint *checkpoint = NULL;
    bool is_whole[NUMBERS];

    CHECK_OK(tri_checkpoint_open(j->folder, &checkpoint));
    CHECK_OK(tri_checkpoint_restore(checkpoint, net, opt));
    tri_checkpoint_close(checkpoint);
    CHECK_OK(put_all(net, opt, j->saved));
    CHECK_OK(train(net, opt));
    CHECK_OK(put(net, j->after, is_whole));
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    j->is_saved = true;
}

static const tri_parallel_rule others[] = {
    {.module = "0", .style = TRI_ROWWISE, .input = TRI_WHOLE},
    {.module = "2", .style = TRI_COLWISE, .output = TRI_WHOLE}};

static void checkpoints_move_between_cuts(void **state)
{
    const tri_group_options shm = {.engine = "shm"};
    static job j;

    (void)state;
    for (int size = 1; size <= 3; size++) {
        scratch s;

        scratch_begin(&s);
        j = (job){.rules = pairs, .n_rules = 4};
        snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
        run_threads(size, &shm, go_on_rank, &j);
        read_alone(&j);
        for (int again = 1; again <= 4; again++)
            run_threads(again, &shm, go_on_rank, &j);
        j.rules = others;
        j.n_rules = 2;
        run_threads(3, &shm, go_on_rank, &j);
        j.n_rules = 0;
        run_threads(1, &shm, go_on_rank, &j);
        scratch_end(&s);
    }
}

/* --- with replicas -------------------------------------------------------- */

static const char *newest_is(rank_env *env, int64_t step)
{
    const job *j = env->arg;
    tri_checkpoint *checkpoint = NULL;
    int64_t found;

    RANK_TRY(env, tri_checkpoint_open(j->folder, &checkpoint));
    found = tri_checkpoint_step(checkpoint);
    tri_checkpoint_close(checkpoint);
    return found == step ? NULL : RANK_FAIL(env, "the newest is %d", (int)found);
}

/* Without a question who is first; a failure of those that write is that of all. */
static const char *save_by_all(rank_env *env, tri_module *model)
{
    const job *j = env->arg;
    const tri_checkpoint_save_options all = {.all_ranks = true};
    tri_checkpoint_writer *writer = NULL;
    const char *wrong;
    char below[300];

    RANK_TRY(env,
             tri_checkpoint_save(j->folder, model, NULL, &(tri_checkpoint_info){.step = 2}, &all));
    wrong = newest_is(env, 2);
    if (wrong != NULL)
        return wrong;
    RANK_TRY(env, tri_checkpoint_writer_create(j->folder, &writer));
    RANK_TRY(env, tri_checkpoint_writer_save(writer, model, NULL, &(tri_checkpoint_info){.step = 3},
                                             &all));
    RANK_TRY(env, tri_checkpoint_writer_wait(writer));
    tri_checkpoint_writer_destroy(writer);
    RANK_TRY(env, ranks_meet(env, "written", -1));
    wrong = newest_is(env, 3);
    if (wrong != NULL)
        return wrong;
    snprintf(below, sizeof(below), "%s/step-%012d/manifest.json/run", j->folder, 3);
    RANK_FAILS(env,
               tri_checkpoint_save(below, model, NULL, &(tri_checkpoint_info){.step = 4}, &all),
               TRI_ERR_IO, "manifest.json");
    return NULL;
}

static const char *replica_rank(rank_env *env)
{
    job *j = env->arg;
    tri_mesh *mesh = NULL;
    tri_module *model = build(3);
    const tri_checkpoint_info info = {.step = 1};
    tri_checkpoint *checkpoint = NULL;
    double before[NUMBERS] = {0}, got[NUMBERS] = {0};
    bool is_whole[NUMBERS];
    char path[300];
    const char *wrong;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"data", "tensor"}, &mesh));
    RANK_TRY(env, tri_parallelize(model, tri_mesh_group(mesh, "tensor"), pairs, 4));
    model = tri_ddp(model, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
    RANK_TRY(env, put(model, before, is_whole));
    if (tri_mesh_coordinate(mesh, "data") == 0)
        RANK_TRY(env, tri_checkpoint_save(j->folder, model, NULL, &info, NULL));
    else
        RANK_FAILS(env, tri_checkpoint_save(j->folder, model, NULL, &info, NULL),
                   TRI_ERR_INVALID_ARG, "first along the other axis");
    RANK_TRY(env, ranks_meet(env, "saved", -1));
    RANK_TRY(env, tri_checkpoint_open(j->folder, &checkpoint));
    RANK_TRY(env, tri_checkpoint_restore(checkpoint, model, NULL));
    tri_checkpoint_close(checkpoint);
    RANK_TRY(env, put(model, got, is_whole));
    wrong = save_by_all(env, model);
    if (wrong != NULL)
        return wrong;
    /* both groups write one file, with the same bytes */
    snprintf(path, sizeof(path), "%s.safetensors", j->folder);
    for (int again = 0; again < 3; again++)
        RANK_TRY(env, tri_save(model, path));
    RANK_TRY(env, tri_load(model, path, NULL));
    RANK_TRY(env, ranks_meet(env, "loaded", -1));
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return memcmp(got, before, sizeof(got)) == 0 ? NULL : RANK_FAIL(env, "it has other values");
}

static void one_replica_saves_and_all_restore(void **state)
{
    static job j;
    scratch s;

    (void)state;
    scratch_begin(&s);
    snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
    run_threads(4, &(tri_group_options){.engine = "shm"}, replica_rank, &j);
    scratch_end(&s);
}

/* --- files of whole tensors ----------------------------------------------- */

typedef struct file_job {
    char path[256], narrow[256]; /* the second in f32 */
    uint64_t hash, saved;        /* of what is cut, and of what is saved then */
    double whole[NUMBERS];
} file_job;

static const char *whole_rank(rank_env *env)
{
    file_job *j = env->arg;
    tri_group *group = NULL;
    tri_module *net = build(3);
    tri_optimizer *opt;
    double got[NUMBERS];
    bool is_whole[NUMBERS];
    uint64_t hash, loaded;
    tri_tensor *x = rows(0, ROWS, IN);
    const tri_state_source wrong = {
        .name = "0.weight", .dtype = TRI_DTYPE_F64, .ndim = 2, .shape = {4, IN}, .data = got};

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, pairs, 4));
    RANK_TRY(env, tri_module_hash(net, &hash));
    if (hash != j->hash)
        return RANK_FAIL(env, "rank %d of %d: another hash", env->rank, env->size);
    /* training pends when it is saved, and loaded */
    opt = tri_sgd(net, 0.1, NULL);
    tri_backward(tri_mean(tri_square(tri_forward(net, x)), NULL, 0, false));
    RANK_TRY(env, tri_optimizer_step(opt));
    RANK_TRY(env, tri_save(net, j->path));
    RANK_TRY(env, tri_module_hash(net, &hash));
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);

    net = build(9);
    RANK_TRY(env, tri_parallelize(net, group, pairs, 4));
    RANK_TRY(env, tri_load(net, j->path, NULL));
    RANK_TRY(env, tri_module_hash(net, &loaded));
    if (hash != loaded)
        return RANK_FAIL(env, "rank %d of %d: it is not what was saved", env->rank, env->size);
    if (env->rank == 0)
        j->saved = hash;
    RANK_TRY(env, tri_load(net, j->narrow, &(tri_load_options){.convert = true}));
    memcpy(got, j->whole, sizeof(got));
    RANK_TRY(env, put(net, got, is_whole));
    if (memcmp(got, j->whole, sizeof(got)) != 0)
        return RANK_FAIL(env, "rank %d of %d: converted numbers differ", env->rank, env->size);
    RANK_FAILS(env, tri_load(net, env->rank == env->size - 1 ? "/no/such/file" : j->path, NULL),
               TRI_ERR_NOT_FOUND, "/no/such/file");
    RANK_FAILS(env, tri_module_load(net, &wrong, 1, &(tri_load_options){.partial = true}),
               TRI_ERR_INVALID_ARG, "0.weight is f64[7, 5] in the model, f64[4, 5]");
    tri_tensor_unref(x);
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

static void files_of_whole_tensors_know_no_ranks(void **state)
{
    static file_job j;
    scratch s;
    bool is_whole[NUMBERS];

    (void)state;
    scratch_begin(&s);
    for (int size = 1; size <= 3; size++) {
        tri_module *net = build(3), *narrow;
        uint64_t hash;

        snprintf(j.path, sizeof(j.path), "%s", scratch_path(&s, "whole.safetensors"));
        snprintf(j.narrow, sizeof(j.narrow), "%s", scratch_path(&s, "narrow.safetensors"));
        CHECK_OK(tri_module_hash(net, &j.hash));
        narrow = tri_nn_sequential(
            tri_nn_linear(IN, 7, NULL), tri_nn_tanh(), tri_nn_linear(7, 6, NULL),
            tri_nn_layer_norm(TRI_SHAPE(6), NULL), tri_nn_dropout(0.25), tri_nn_linear(6, 5, NULL),
            tri_nn_tanh(), tri_nn_linear(5, OUT, &(tri_nn_linear_options){.no_bias = true}));
        CHECK_OK(tri_save(narrow, j.narrow));
        CHECK_OK(tri_load(net, j.narrow, &(tri_load_options){.convert = true}));
        CHECK_OK(put(net, j.whole, is_whole));
        run_threads(size, &(tri_group_options){.engine = "shm"}, whole_rank, &j);
        CHECK_OK(tri_load(net, j.path, NULL)); /* by one process */
        CHECK_OK(tri_module_hash(net, &hash));
        assert_true(hash == j.saved);
        tri_module_destroy(net);
        tri_module_destroy(narrow);
    }
    scratch_end(&s);
}

/* As after training with rows or seeds of its own, by mistake. */
static const char *drifting_rank(rank_env *env)
{
    const double values[6] = {env->rank}; /* of parameters that are whole */
    tri_group *group = NULL;
    tri_module *net = build(3);
    uint64_t hash = 7;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, pairs, 4));
    RANK_TRY(env, tri_tensor_copy_in(tri_module_find(net, "2.bias"), values, sizeof(values)));
    RANK_TRY(env, tri_tensor_copy_in(tri_module_find(net, "3.bias"), values, sizeof(values)));
    RANK_FAILS(env, tri_module_hash(net, &hash), TRI_ERR_MISMATCH,
               "module_hash: 2.bias of rank 1 differs from rank 0's in its bits");
    if (hash != 7)
        return RANK_FAIL(env, "rank %d of %d: it has a hash", env->rank, env->size);
    RANK_TRY(env, tri_barrier(group, NULL)); /* the group goes on */
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

static void a_hash_of_replicas_that_differ_is_refused(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm"}, drifting_rank, NULL);
}

/* --- what outlives its module --------------------------------------------- */

static const char *outliving_rank(rank_env *env)
{
    job *j = env->arg;
    tri_module *net = build(3), *other = build(4);
    tri_group *group = NULL;
    tri_optimizer *opt;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, pairs, 4));
    opt = tri_adamw(net, 0.02, NULL);
    RANK_TRY(env, train(net, opt));
    tri_module_destroy(net);
    tri_group_unref(group);
    RANK_TRY(env, tri_checkpoint_save(j->folder, other, opt, &(tri_checkpoint_info){0}, NULL));
    tri_optimizer_destroy(opt);
    tri_module_destroy(other);
    return NULL;
}

static void an_optimizer_outlives_its_module(void **state)
{
    static job j;
    scratch s;

    (void)state;
    scratch_begin(&s);
    snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
    run_threads(2, &(tri_group_options){.engine = "shm"}, outliving_rank, &j);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_optimizer_outlives_its_module),
    cmocka_unit_test(files_of_whole_tensors_know_no_ranks),
    cmocka_unit_test(a_hash_of_replicas_that_differ_is_refused),
    cmocka_unit_test(checkpoints_move_between_cuts),
    cmocka_unit_test(one_replica_saves_and_all_restore),
};

TEST_MAIN(tests)
