/* pipeline_files_test.c - checkpoints of pipelines: on other numbers of stages, with replicas that
 * share the optimizer, and by one process, with the bits that were saved. */
#include "testing/pipeline_shared.h"
#include "testing/scratch.h"

enum { M = 2, ROWS = 8, STEPS = 3, STAGES = 6 };

typedef struct shape {
    int ranks, cuts; /* of the pipeline; stages */
    int data, zero;  /* replicas, which share the optimizer by this stage; 0: by tri_ddp */
    tri_pipeline_schedule schedule;
} shape;

typedef struct file_job {
    char folder[256];
    shape at;
    bool shared;       /* the first stage and the last but one have one weight */
    bool is_saved;     /* there is a checkpoint, which is restored; else one is saved, */
    bool by_writer;    /* by a thread */
    tri_module *model; /* of one process: what was saved */
    tri_optimizer *opt;
    pipeline_result *after; /* parameters, so many steps later */
} file_job;

static void share(tri_module **stages)
{
    tri_tensor *weight =
        tri_tensor_create(TRI_SHAPE(PIPELINE_WIDTH, PIPELINE_WIDTH), TRI_DTYPE_F64);
    double values[PIPELINE_WIDTH * PIPELINE_WIDTH];

    for (int i = 0; i < PIPELINE_WIDTH * PIPELINE_WIDTH; i++)
        values[i] = 0.5 * sin(2.1 * i);
    CHECK_OK(tri_tensor_copy_in(weight, values, sizeof(values)));
    for (int s = 0; s < 2; s++) {
        tri_module_destroy(stages[s == 0 ? 0 : STAGES - 2]);
        stages[s == 0 ? 0 : STAGES - 2] = pipeline_sharer(weight);
    }
    tri_tensor_unref(weight);
}

static tri_module *build(bool shared)
{
    tri_module *stages[STAGES];

    pipeline_stages(stages, STAGES, true);
    if (shared)
        share(stages);
    return tri_nn_sequential_of(STAGES, stages);
}

static tri_optimizer *optimize(tri_module *model)
{
    return tri_adamw(model, 0.05, NULL);
}

static tri_status train(tri_module *model, tri_optimizer *opt, bool plain, int first)
{
    tri_status status = TRI_OK;

    for (int s = first; s < first + STEPS && status == TRI_OK; s++) {
        tri_tensor *x = pipeline_batch(s, ROWS, PIPELINE_WIDTH);
        tri_tensor *y = pipeline_batch(s, ROWS, PIPELINE_OUT);

        for (int i = 0; i < M && plain; i++)
            tri_backward(tri_mul_scalar(
                tri_mse_loss(tri_forward(model, tri_narrow(x, 0, i * (ROWS / M), ROWS / M)),
                             tri_narrow(y, 0, i * (ROWS / M), ROWS / M), NULL),
                1.0 / M));
        if (!plain)
            (void)tri_pipeline_step(model, x, y, pipeline_mse, NULL);
        (void)tri_clip_grad_norm(opt, 0.05);
        status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    return status;
}

/* The mesh, and this rank's stages of the network. */
static tri_status make(rank_env *env, const shape *at, bool shared, tri_mesh **mesh_out,
                       tri_module **model_out)
{
    tri_pipeline_options options = {.n_microbatches = M, .schedule = at->schedule};
    tri_status status = rank_mesh(env, TRI_SHAPE(at->data, at->ranks),
                                  (const char *[]){"data", "pipeline"}, mesh_out);

    if (status != TRI_OK)
        return status;
    options.group = tri_mesh_group(*mesh_out, "pipeline");
    *model_out = tri_pipeline_split(build(shared), NULL, at->cuts, &options);
    if (at->data > 1)
        *model_out = replicate(*model_out, tri_mesh_group(*mesh_out, "data"), at->zero);
    return tri_module_status(*model_out);
}

static const char *bits_differ(rank_env *env, const char *name, tri_tensor *got, tri_tensor *want)
{
    char a[PIPELINE_WIDTH * PIPELINE_WIDTH * 8], b[sizeof(a)];
    size_t bytes = (size_t)tri_tensor_numel(got) * tri_dtype_size(tri_tensor_dtype(got));

    RANK_TRY(env, tri_tensor_copy_out(got, a, bytes));
    RANK_TRY(env, tri_tensor_copy_out(want, b, bytes));
    return memcmp(a, b, bytes) == 0 ? NULL
                                    : RANK_FAIL(env, "rank %d of %d: %s is not what was saved",
                                                env->rank, env->size, name);
}

/* What this rank has of what was saved; states only where it has all of them. */
static const char *check_restored(rank_env *env, tri_module *model, tri_optimizer *opt)
{
    const file_job *j = env->arg;
    const char *wrong = NULL;

    trii_mutex_lock(&pipeline_writing);
    for (int64_t i = 0; i < tri_module_state_count(model) && wrong == NULL; i++) {
        tri_state_entry e = tri_module_state(model, i);

        wrong = bits_differ(env, e.name, e.tensor, tri_module_find(j->model, e.name));
    }
    for (int64_t i = 0; i < tri_optimizer_state_count(opt) && wrong == NULL && j->at.zero == 0;
         i++) {
        tri_state_entry e = tri_optimizer_state(opt, i);

        for (int64_t k = 0; k < tri_optimizer_state_count(j->opt) && wrong == NULL; k++)
            if (strcmp(e.name, tri_optimizer_state(j->opt, k).name) == 0 &&
                strcmp(e.name, "step") != 0)
                wrong = bits_differ(env, e.name, e.tensor, tri_optimizer_state(j->opt, k).tensor);
    }
    trii_mutex_unlock(&pipeline_writing);
    return wrong;
}

/* Averages after one update, which are the parameters. */
typedef struct averages {
    tri_ema *ema;
    tri_state_entry entries[PIPELINE_ENTRIES];
    tri_checkpoint_extra extra;
} averages;

static tri_status averages_begin(averages *a, tri_module *model)
{
    tri_status status = tri_ema_create(model, 0.5, &a->ema);

    a->extra = (tri_checkpoint_extra){
        .name = "ema", .entries = a->entries, .n = tri_ema_state_count(a->ema)};
    for (int64_t i = 0; i < a->extra.n && i < PIPELINE_ENTRIES; i++)
        a->entries[i] = tri_ema_state(a->ema, i);
    return status;
}

/* A tensor of the program's own, which the first rank of each pipeline lists, and of two. */
typedef struct own_tensors {
    tri_tensor *tensors[2];
    tri_state_entry entries[2];
    tri_checkpoint_extra extra;
} own_tensors;

static tri_status own_begin(own_tensors *o, int n, double value)
{
    static const char *const names[2] = {"first", "second"};
    tri_status status = TRI_OK;

    for (int i = 0; i < 2; i++) {
        o->tensors[i] = tri_tensor_create(TRI_SHAPE(i + 1), TRI_DTYPE_F64);
        o->entries[i] = (tri_state_entry){.name = names[i], .tensor = o->tensors[i]};
        if (status == TRI_OK)
            status = tri_init_constant(o->tensors[i], value);
    }
    o->extra = (tri_checkpoint_extra){.name = "own", .entries = o->entries, .n = n};
    return status;
}

static void own_end(const own_tensors *o)
{
    for (int i = 0; i < 2; i++)
        tri_tensor_unref(o->tensors[i]);
}

/* So many of them, where pipelines have saved them. */
static tri_status own_restore(const tri_checkpoint *checkpoint, int n)
{
    own_tensors o;
    tri_status status = own_begin(&o, n, 0);

    if (status == TRI_OK && tri_checkpoint_has(checkpoint, "own"))
        status = tri_checkpoint_restore_extra(checkpoint, "own", o.entries, n);
    for (int i = 0; i < n && status == TRI_OK && tri_checkpoint_has(checkpoint, "own"); i++) {
        double values[2] = {0, 0};

        status = tri_tensor_copy_out(o.tensors[i], values, sizeof(double) * (size_t)(i + 1));
        if (status == TRI_OK && values[i] != 7)
            status = TRI_ERR_STATE;
    }
    own_end(&o);
    return status;
}

/* What is saved is what was there at the call, though training goes on. */
static const char *save_behind(rank_env *env, tri_module *model, tri_optimizer *opt,
                               const tri_checkpoint_info *info)
{
    const file_job *j = env->arg;
    tri_checkpoint_writer *writer = NULL;

    RANK_TRY(env, tri_checkpoint_writer_create(j->folder, &writer));
    for (int i = 0; i < 2; i++) /* in a group that is there already */
        RANK_TRY(env, tri_checkpoint_writer_save(writer, model, opt, info, NULL));
    RANK_TRY(env, train(model, opt, false, STEPS));
    RANK_TRY(env, tri_checkpoint_writer_wait(writer));
    tri_checkpoint_writer_destroy(writer);
    return NULL;
}

static const char *save_here(rank_env *env, tri_mesh *mesh, tri_module *model, tri_optimizer *opt)
{
    const file_job *j = env->arg;
    averages a;
    own_tensors own;
    tri_checkpoint_extra extras[2];
    tri_checkpoint_info info = {.step = STEPS, .extras = extras, .n_extras = 2};
    const char *wrong = NULL;

    RANK_TRY(env, train(model, opt, false, 0));
    RANK_TRY(env, averages_begin(&a, model));
    RANK_TRY(env, tri_ema_update(a.ema));
    RANK_TRY(env, own_begin(&own, tri_mesh_coordinate(mesh, "pipeline") == 0 ? 2 : 0, 7));
    extras[0] = a.extra;
    extras[1] = own.extra;
    if (j->at.zero == 0 && tri_mesh_coordinate(mesh, "data") > 0)
        RANK_FAILS(env, tri_checkpoint_save(j->folder, model, opt, &info, NULL),
                   TRI_ERR_INVALID_ARG, "first along the other axis");
    else if (j->by_writer)
        wrong = save_behind(env, model, opt, &info);
    else
        RANK_TRY(env, tri_checkpoint_save(j->folder, model, opt, &info, NULL));
    if (wrong == NULL && j->at.zero == 0 && !j->by_writer) {
        RANK_TRY(env, tri_checkpoint_save(j->folder, model, opt, &info,
                                          &(tri_checkpoint_save_options){.all_ranks = true}));
    }
    tri_ema_destroy(a.ema);
    own_end(&own);
    return wrong;
}

static const char *restore_here(rank_env *env, tri_module *model, tri_optimizer *opt)
{
    const file_job *j = env->arg;
    pipeline_result *own = calloc(1, sizeof(*own));
    tri_checkpoint *checkpoint = NULL;
    averages a;
    const char *wrong;

    RANK_TRY(env, tri_checkpoint_open(j->folder, &checkpoint));
    RANK_TRY(env, tri_checkpoint_restore(checkpoint, model, opt));
    RANK_TRY(env, averages_begin(&a, model));
    RANK_TRY(env, tri_checkpoint_restore_extra(checkpoint, "ema", a.entries, a.extra.n));
    RANK_TRY(env, own_restore(checkpoint, env->rank % 3));
    tri_checkpoint_close(checkpoint);
    wrong = check_restored(env, model, opt);
    RANK_TRY(env, tri_ema_swap(a.ema));
    if (wrong == NULL)
        wrong = check_restored(env, model, opt);
    RANK_TRY(env, tri_ema_swap(a.ema));
    tri_ema_destroy(a.ema);
    if (wrong != NULL)
        return wrong;
    RANK_TRY(env, train(model, opt, false, STEPS));
    RANK_TRY(env, pipeline_read(model, own));
    trii_mutex_lock(&pipeline_writing);
    wrong = pipeline_differs(env, own, j->after, 1e-9);
    trii_mutex_unlock(&pipeline_writing);
    free(own);
    return wrong;
}

static const char *file_rank(rank_env *env)
{
    const file_job *j = env->arg;
    tri_mesh *mesh = NULL;
    tri_module *model;
    tri_optimizer *opt;
    const char *wrong;

    RANK_TRY(env, make(env, &j->at, j->shared, &mesh, &model));
    opt = optimize(model);
    wrong = j->is_saved ? restore_here(env, model, opt) : save_here(env, mesh, model, opt);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return wrong;
}

static void run(file_job *j, shape at)
{
    j->at = at;
    run_threads(at.data * at.ranks, &(tri_group_options){.engine = "shm"}, file_rank, j);
}

/* By one process: what the checkpoint has, and the steps after it. */
static void read_alone(file_job *j)
{
    tri_checkpoint *checkpoint = NULL;
    tri_module *model = build(j->shared);
    tri_optimizer *opt = optimize(model);
    averages a;
    uint64_t hash[2];

    j->model = build(j->shared);
    j->opt = optimize(j->model);
    CHECK_OK(tri_checkpoint_open(j->folder, &checkpoint));
    CHECK_OK(tri_checkpoint_restore(checkpoint, j->model, j->opt));
    CHECK_OK(tri_checkpoint_restore(checkpoint, model, opt));
    CHECK_OK(averages_begin(&a, j->model));
    CHECK_OK(tri_checkpoint_restore_extra(checkpoint, "ema", a.entries, a.extra.n));
    CHECK_OK(own_restore(checkpoint, 2));
    CHECK_OK(tri_module_hash(j->model, &hash[0]));
    CHECK_OK(tri_ema_swap(a.ema));
    CHECK_OK(tri_module_hash(j->model, &hash[1]));
    assert_int_equal(hash[0], hash[1]);
    assert_int_equal(tri_item(a.entries[a.extra.n - 1].tensor), 1);
    tri_ema_destroy(a.ema);
    tri_checkpoint_close(checkpoint);
    CHECK_OK(train(model, opt, true, STEPS));
    CHECK_OK(pipeline_read(model, j->after));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    j->is_saved = true;
}

static void forget(file_job *j)
{
    tri_optimizer_destroy(j->opt);
    tri_module_destroy(j->model);
    j->model = NULL;
}

static const shape shapes[] = {
    {.ranks = 2, .cuts = 2, .data = 1},
    {.ranks = 2, .cuts = 4, .data = 1, .schedule = TRI_PIPELINE_INTERLEAVED},
    {.ranks = 2, .cuts = 2, .data = 2},
    {.ranks = 2, .cuts = 2, .data = 2, .zero = 1},
};

static void checkpoints_move_between_numbers_of_stages(void **state)
{
    scratch s;

    (void)state;
    for (size_t k = 1; k < TRII_COUNT_OF(shapes); k++) {
        file_job j = {.after = pipeline_result_new(), .by_writer = k % 2 == 1};

        scratch_begin(&s);
        snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
        run(&j, shapes[k]);
        read_alone(&j);
        run(&j, shapes[(k + 1) % TRII_COUNT_OF(shapes)]);
        run(&j, (shape){.ranks = 3, .cuts = 3, .data = 1});
        forget(&j);
        free(j.after);
        scratch_end(&s);
    }
}

/* --- files of whole networks ---------------------------------------------- */

typedef struct whole_job {
    char folder[256];
    shape at;
    bool shared;
    uint64_t hash; /* of one process */
} whole_job;

static const char *save_whole(rank_env *env, tri_module *model)
{
    const whole_job *j = env->arg;
    char path[300];

    snprintf(path, sizeof(path), "%s/stages.safetensors", j->folder);
    RANK_TRY(env, tri_save(model, path));
    snprintf(path, sizeof(path), "%s/stages.pt", j->folder);
    RANK_TRY(env, tri_torch_save(model, path));
    RANK_TRY(env, ranks_meet(env, "saved", -1)); /* replicas leave writing to the first ones */
    return NULL;
}

static const char *whole_rank(rank_env *env)
{
    const whole_job *j = env->arg;
    char path[300];
    tri_mesh *mesh = NULL;
    tri_module *model;
    tri_optimizer *opt;
    const char *wrong;
    uint64_t hash = 0;

    RANK_TRY(env, make(env, &j->at, j->shared, &mesh, &model));
    wrong = save_whole(env, model);
    if (wrong != NULL)
        return wrong;
    snprintf(path, sizeof(path), "%s/stages.pt", j->folder);
    opt = optimize(model);
    RANK_TRY(env, train(model, opt, false, 0));
    RANK_TRY(env, tri_load(model, path, NULL));
    RANK_TRY(env, tri_module_hash(model, &hash));
    if (hash != j->hash)
        return RANK_FAIL(env, "rank %d of %d: another hash than one process", env->rank, env->size);
    snprintf(path, sizeof(path), "%s/more.safetensors", j->folder);
    RANK_FAILS(env, tri_load(model, path, NULL), TRI_ERR_FORMAT, "unexpected: 6.bias, 6.weight");
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void files_are_equal(const char *folder, const char *one, const char *other)
{
    static char contents[2][40000];
    size_t n[2];

    for (int i = 0; i < 2; i++) {
        char path[300];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", folder, i == 0 ? one : other);
        file = fopen(path, "rb");
        assert_non_null(file);
        n[i] = fread(contents[i], 1, sizeof(contents[i]), file);
        fclose(file);
    }
    assert_in_range(n[0], 1, sizeof(contents[0]) - 1);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(contents[0], contents[1], n[0]);
}

static void compare_whole(const char *folder, shape at, bool shared)
{
    whole_job j = {.at = at, .shared = shared};
    tri_module *model = build(shared);
    char path[300];

    snprintf(j.folder, sizeof(j.folder), "%s", folder);
    CHECK_OK(tri_module_hash(model, &j.hash));
    snprintf(path, sizeof(path), "%s/one.safetensors", folder);
    CHECK_OK(tri_save(model, path));
    snprintf(path, sizeof(path), "%s/one.pt", folder);
    CHECK_OK(tri_torch_save(model, path));
    tri_module_add_child(model, "6", tri_nn_linear(1, 1, NULL));
    snprintf(path, sizeof(path), "%s/more.safetensors", folder);
    CHECK_OK(tri_save(model, path));
    tri_module_destroy(model);
    run_threads(at.data * at.ranks, &(tri_group_options){.engine = "shm"}, whole_rank, &j);
    files_are_equal(folder, "one.safetensors", "stages.safetensors");
    files_are_equal(folder, "one.pt", "stages.pt");
}

static void files_and_hashes_are_those_of_one_process(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    compare_whole(s.dir, (shape){.ranks = 3, .cuts = 3, .data = 1}, false);
    compare_whole(s.dir, shapes[1], true);
    compare_whole(s.dir, shapes[2], false);
    compare_whole(s.dir, (shape){.ranks = 2, .cuts = 2, .data = 2, .zero = 3}, false);
    scratch_end(&s);
}

static void shared_parameters_are_saved_once(void **state)
{
    file_job j = {.after = pipeline_result_new(), .shared = true};
    scratch s;

    (void)state;
    scratch_begin(&s);
    snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
    run(&j, shapes[0]);
    read_alone(&j);
    run(&j, (shape){.ranks = 3, .cuts = 3, .data = 1});
    run(&j, shapes[1]);
    forget(&j);
    free(j.after);
    scratch_end(&s);
}

/* What one process saves, stages load. */
static void stages_load_what_one_process_saves(void **state)
{
    file_job j = {.after = pipeline_result_new(), .model = build(false)};
    averages a;
    tri_checkpoint_info info = {.step = STEPS, .extras = &a.extra, .n_extras = 1};
    scratch s;

    (void)state;
    scratch_begin(&s);
    snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
    j.opt = optimize(j.model);
    CHECK_OK(train(j.model, j.opt, true, 0));
    CHECK_OK(averages_begin(&a, j.model));
    CHECK_OK(tri_ema_update(a.ema));
    CHECK_OK(tri_checkpoint_save(j.folder, j.model, j.opt, &info, NULL));
    tri_ema_destroy(a.ema);
    forget(&j);
    read_alone(&j);
    run(&j, shapes[0]);
    run(&j, shapes[3]);
    forget(&j);
    free(j.after);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(checkpoints_move_between_numbers_of_stages),
    cmocka_unit_test(shared_parameters_are_saved_once),
    cmocka_unit_test(stages_load_what_one_process_saves),
    cmocka_unit_test(files_and_hashes_are_those_of_one_process),
};

TEST_MAIN(tests)
