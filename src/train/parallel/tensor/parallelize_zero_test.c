/* parallelize_zero_test.c - ZeRO around networks that are cut: the bits of DDP, with clipping, a
 * scaler and averages; checkpoints that move to other meshes and back. */
#include "testing/cut_ranks.h"
#include "testing/scratch.h"

#define HIDDEN 2100 /* parts have several blocks, which are what ZeRO divides */
#define STEPS 3
#define WIDE 8
#define WEIGHTS (HIDDEN * (IN + 1) + WIDE * HIDDEN + WIDE + 2 * WIDE + WIDE * OUT + OUT)
#define MOST (4 * WEIGHTS + 10)

typedef struct job {
    char folder[256];     /* "": nothing is saved */
    bool is_saved;        /* there is a checkpoint, which is restored; else one is saved */
    int n_data, n_tensor; /* of the mesh */
    int stage;            /* of ZeRO; 0: DDP */
    double want[WEIGHTS]; /* of one process */
    double state[MOST];   /* parameters, states and averages: of DDP, or what was saved */
    bool is_known;        /* the state is */
    double got[RANKS_MAX][MOST];
} job;

static tri_module *build_wide(uint64_t seed)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(
        tri_nn_linear(IN, HIDDEN, NULL), tri_nn_tanh(), tri_nn_linear(HIDDEN, WIDE, NULL),
        tri_nn_layer_norm(TRI_SHAPE(WIDE), NULL), tri_nn_linear(WIDE, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

/* What trains a model. */
typedef struct trainer {
    tri_module *model;
    tri_optimizer *opt;
    tri_ema *ema;
    tri_grad_scaler *scaler;
} trainer;

static tri_status begin(trainer *t, tri_module *model)
{
    *t = (trainer){.model = model, .opt = tri_adamw(model, 0.02, NULL)};
    if (tri_optimizer_status(t->opt) != TRI_OK)
        return tri_optimizer_status(t->opt);
    if (tri_ema_create(model, 0.8, &t->ema) != TRI_OK)
        return TRI_ERR_STATE;
    return tri_grad_scaler_create(&(tri_grad_scaler_options){.init_scale = TRI_SET(64)},
                                  &t->scaler);
}

static void end(trainer *t)
{
    tri_grad_scaler_destroy(t->scaler);
    tri_ema_destroy(t->ema);
    tri_optimizer_destroy(t->opt);
    tri_module_destroy(t->model);
}

static tri_status train(const trainer *t, int first, int n)
{
    tri_tensor *x = rows(first, n, IN), *y = rows(first, n, OUT);
    tri_status status = TRI_OK;

    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_backward(
            tri_grad_scaler_scale(t->scaler, tri_mse_loss(tri_forward(t->model, x), y, NULL)));
        tri_grad_scaler_unscale(t->scaler, t->opt);
        (void)tri_clip_grad_norm(t->opt, 0.5);
        status = tri_grad_scaler_step(t->scaler, t->opt);
        if (status == TRI_OK)
            status = tri_grad_scaler_update(t->scaler);
        if (status == TRI_OK)
            status = tri_ema_update(t->ema);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

/* What is here of parameters, states and averages. */
static tri_status put_all(const trainer *t, double *whole)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(t->model); i++)
        whole += put_tensor(tri_module_state(t->model, i).tensor, whole, &status);
    for (int64_t i = 0; i < tri_optimizer_state_count(t->opt); i++) {
        tri_tensor *s = tri_optimizer_state(t->opt, i).tensor;

        if (tri_tensor_dtype(s) == TRI_DTYPE_F64)
            whole += put_tensor(s, whole, &status);
    }
    for (int64_t i = 0; i < tri_ema_state_count(t->ema); i++) {
        tri_tensor *s = tri_ema_state(t->ema, i).tensor;

        if (tri_tensor_dtype(s) == TRI_DTYPE_F64)
            whole += put_tensor(s, whole, &status);
    }
    return status;
}

static tri_status save(const trainer *t, const char *folder)
{
    tri_state_entry entries[16];
    tri_checkpoint_extra extra = {
        .name = "ema", .entries = entries, .n = tri_ema_state_count(t->ema)};

    for (int64_t i = 0; i < extra.n; i++)
        entries[i] = tri_ema_state(t->ema, i);
    return tri_checkpoint_save(
        folder, t->model, t->opt,
        &(tri_checkpoint_info){.step = STEPS, .extras = &extra, .n_extras = 1}, NULL);
}

static tri_status restore(const trainer *t, const char *folder)
{
    tri_state_entry entries[16];
    tri_checkpoint *c = NULL;
    int64_t n = tri_ema_state_count(t->ema);
    tri_status status = tri_checkpoint_open(folder, &c);

    for (int64_t i = 0; i < n; i++)
        entries[i] = tri_ema_state(t->ema, i);
    if (status == TRI_OK)
        status = tri_checkpoint_restore(c, t->model, t->opt);
    if (status == TRI_OK)
        status = tri_checkpoint_restore_extra(c, "ema", entries, n);
    tri_checkpoint_close(c);
    return status;
}

/* --- ranks ---------------------------------------------------------------- */

static tri_status make(rank_env *env, const job *j, trainer *t, tri_mesh **mesh)
{
    const tri_parallel_rule rules[] = {{.module = "0", .style = TRI_COLWISE},
                                       {.module = "2", .style = TRI_ROWWISE},
                                       {.module = "3",
                                        .style = TRI_SEQUENCE,
                                        .dim = TRI_SET(0),
                                        .input = TRI_WHOLE,
                                        .output = TRI_WHOLE}};
    tri_module *model = build_wide(env->rank == 0 ? 3 : 40);
    tri_status status =
        rank_mesh(env, TRI_SHAPE(j->n_data, j->n_tensor), (const char *[]){"data", "tensor"}, mesh);

    if (status == TRI_OK)
        status = tri_parallelize(model, tri_mesh_group(*mesh, "tensor"), rules, 3);
    if (status != TRI_OK)
        return status;
    model = replicate(model, tri_mesh_group(*mesh, "data"), j->stage);
    status = tri_module_status(model);
    return status == TRI_OK ? begin(t, model) : status;
}

static const char *rank(rank_env *env)
{
    job *j = env->arg;
    tri_mesh *mesh = NULL;
    double *got = j->got[env->rank];
    int data;
    trainer t;

    RANK_TRY(env, make(env, j, &t, &mesh));
    data = tri_mesh_coordinate(mesh, "data");
    if (j->is_saved)
        RANK_TRY(env, restore(&t, j->folder));
    else
        RANK_TRY(env, train(&t, data * 4, j->n_data == 1 ? ROWS : data == 0 ? 4 : 2));
    memcpy(got, j->state, sizeof(j->state));
    RANK_TRY(env, put_all(&t, got));
    if (j->is_known) {
        for (int i = 0; i < MOST; i++) {
            if (memcmp(&got[i], &j->state[i], sizeof(double)) != 0)
                return RANK_FAIL(env, "rank %d, stage %d: number %d is %.17g, not %.17g", env->rank,
                                 j->stage, i, got[i], j->state[i]);
        }
    }
    if (!j->is_saved && j->folder[0] != '\0')
        RANK_TRY(env, save(&t, j->folder));
    end(&t);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void run(job *j, int n_data, int n_tensor, int stage)
{
    j->n_data = n_data;
    j->n_tensor = n_tensor;
    j->stage = stage;
    run_threads(n_data * n_tensor, &(tri_group_options){.engine = "shm"}, rank, j);
}

/* All ranks' parts, which the ranks of a tensor group have of what is cut. */
static void gather_state(job *j, int size)
{
    double before[MOST];

    memcpy(before, j->state, sizeof(before));
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < MOST; i++) {
            if (memcmp(&j->got[r][i], &before[i], sizeof(double)) != 0)
                j->state[i] = j->got[r][i];
        }
    }
    j->is_known = true;
}

static void parts_have_the_bits_of_ddp(void **state)
{
    static job j;
    trainer t;

    (void)state;
    memset(&j, 0, sizeof(j));
    CHECK_OK(begin(&t, build_wide(3)));
    CHECK_OK(train(&t, 0, ROWS));
    CHECK_OK(put_all(&t, j.state));
    memcpy(j.want, j.state, sizeof(j.want));
    end(&t);
    run(&j, 2, 2, 0);
    gather_state(&j, 4);
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(fabs(j.state[i] - j.want[i]) <= 1e-9 * (1 + fabs(j.want[i])));
    for (int stage = 1; stage <= 3; stage++)
        run(&j, 2, 2, stage);
    j.is_known = false;
    for (int ranks = 4; ranks <= 8; ranks *= 2) { /* of one batch */
        run(&j, 1, ranks, 0);
        for (int r = 0; r < ranks; r++) {
            for (int i = 0; i < WEIGHTS; i++)
                assert_true(fabs(j.got[r][i] - j.want[i]) <= 1e-9 * (1 + fabs(j.want[i])));
        }
    }
}

static void checkpoints_move_to_other_meshes(void **state)
{
    static const struct {
        int n_data, n_tensor, stage;
    } others[] = {{2, 2, 2}, {2, 2, 3}, {1, 8, 1}, {3, 2, 1}, {2, 1, 1}, {2, 2, 0}};
    static job j;
    scratch s;
    trainer t;

    (void)state;
    for (int stage = 1; stage <= 3; stage++) {
        scratch_begin(&s);
        memset(&j, 0, sizeof(j));
        snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
        run(&j, 2, 2, stage);
        gather_state(&j, 4);
        j.is_saved = true;
        CHECK_OK(begin(&t, build_wide(50))); /* one process */
        CHECK_OK(restore(&t, j.folder));
        CHECK_OK(put_all(&t, j.got[0]));
        assert_memory_equal(j.got[0], j.state, sizeof(j.state));
        end(&t);
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && stage == 1; i++)
            run(&j, others[i].n_data, others[i].n_tensor, others[i].stage);
        scratch_end(&s);
    }
}

/* --- stage 3 -------------------------------------------------------------- */

typedef struct file_job {
    const job *mesh;
    char path[256];
    uint64_t hash;
} file_job;

static const char *file_rank(rank_env *env)
{
    const file_job *j = env->arg;
    const char *path = env->rank == 3 ? "/no/such/file" : j->path;
    tri_mesh *mesh = NULL;
    tri_tensor *weight;
    trainer t;
    uint64_t hash;

    RANK_TRY(env, make(env, j->mesh, &t, &mesh));
    weight = tri_module_find(t.model, "2.weight");
    RANK_TRY(env, tri_module_hash(t.model, &hash));
    if (hash != j->hash)
        return RANK_FAIL(env, "rank %d: another hash", env->rank);
    RANK_TRY(env, tri_save(t.model, j->path));
    RANK_FAILS(env, tri_load(t.model, path, NULL), TRI_ERR_NOT_FOUND, "/no/such/file");
    RANK_TRY(env, tri_load(t.model, j->path, NULL));
    RANK_FAILS(env, tri_tensor_copy_out(weight, &hash, 0), TRI_ERR_STATE, "tri_unshard_begin");
    /* its part is whole then, and written */
    RANK_TRY(env, tri_unshard_begin(t.model));
    if (tri_tensor_numel(weight) != HIDDEN * WIDE / 2 || !trii_tensor_is_cut(weight))
        return RANK_FAIL(env, "rank %d: it has %lld elements", env->rank,
                         (long long)tri_tensor_numel(weight));
    RANK_TRY(env, tri_init_constant(weight, 0));
    RANK_TRY(env, tri_unshard_end(t.model));
    RANK_TRY(env, tri_module_hash(t.model, &hash));
    if (hash == j->hash)
        return RANK_FAIL(env, "rank %d: what was written is lost", env->rank);
    RANK_TRY(env, tri_load(t.model, j->path, NULL));
    RANK_TRY(env, tri_module_hash(t.model, &hash));
    if (hash != j->hash)
        return RANK_FAIL(env, "rank %d: it is not what was saved", env->rank);
    end(&t);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void ranges_of_parts_are_files_of_whole_tensors(void **state)
{
    static job mesh;
    static file_job j;
    tri_module *net = build_wide(3);
    uint64_t hash;
    scratch s;

    (void)state;
    mesh.n_data = mesh.n_tensor = 2;
    mesh.stage = 3;
    j.mesh = &mesh;
    scratch_begin(&s);
    snprintf(j.path, sizeof(j.path), "%s", scratch_path(&s, "whole.safetensors"));
    CHECK_OK(tri_module_hash(net, &j.hash));
    run_threads(4, &(tri_group_options){.engine = "shm"}, file_rank, &j);
    tri_module_destroy(net);
    net = build_wide(9);
    CHECK_OK(tri_load(net, j.path, NULL));
    CHECK_OK(tri_module_hash(net, &hash));
    assert_true(hash == j.hash);
    tri_module_destroy(net);
    scratch_end(&s);
}

/* --- options -------------------------------------------------------------- */

/* What a program does beside plain steps. */
typedef struct way {
    tri_zero_options options; /* of stage 3; in stage 1 the same without what is stage 3's */
    bool no_sync, autocast;
} way;

typedef struct way_job {
    way how;
    int stage;
    uint64_t want[2][2]; /* after an accumulated and a plain step: parameters, and averages */
} way_job;

static tri_module *build_narrow(void)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(3);
    net = tri_nn_sequential(tri_nn_linear(IN, HIDDEN, NULL), tri_nn_tanh(),
                            tri_nn_linear(HIDDEN, WIDE, NULL), tri_nn_linear(WIDE, OUT, NULL));
    trii_mutex_unlock(&drawing);
    return net;
}

static void pass(const way *how, const trainer *t, int first)
{
    tri_tensor *x = rows(first, 2, IN), *y = rows(first, 2, OUT), *out = NULL;

    if (how->autocast)
        TRI_AUTOCAST(TRI_DTYPE_BF16)
        {
            out = tri_forward(t->model, tri_cast(x, TRI_DTYPE_F32));
        }
    else
        out = tri_forward(t->model, tri_cast(x, TRI_DTYPE_F32));
    tri_backward(tri_mse_loss(tri_cast(out, TRI_DTYPE_F64), y, NULL));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static tri_status hashes(const trainer *t, uint64_t hash[2])
{
    tri_status status = tri_module_hash(t->model, &hash[0]);

    if (status == TRI_OK)
        status = tri_ema_swap(t->ema);
    if (status == TRI_OK)
        status = tri_module_hash(t->model, &hash[1]);
    return status == TRI_OK ? tri_ema_swap(t->ema) : status;
}

static const char *way_rank(rank_env *env)
{
    way_job *j = env->arg;
    const way *how = &j->how;
    tri_zero_options options = {.stage = 1};
    tri_mesh *mesh = NULL;
    tri_module *model = build_narrow();
    trainer t;
    int data;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"data", "tensor"}, &mesh));
    data = tri_mesh_coordinate(mesh, "data");
    RANK_TRY(env, tri_parallelize(model, tri_mesh_group(mesh, "tensor"),
                                  (tri_parallel_rule[]){{.module = "0", .style = TRI_COLWISE},
                                                        {.module = "2", .style = TRI_ROWWISE}},
                                  2));
    if (j->stage == 3)
        options = how->options;
    options.group = tri_mesh_group(mesh, "data");
    RANK_TRY(env, begin(&t, tri_zero(model, &options)));
    for (int s = 0; s < 2; s++) {
        uint64_t hash[2];

        if (how->no_sync && s == 0) {
            tri_ddp_no_sync_begin(t.model);
            pass(how, &t, 2 - data);
            tri_ddp_no_sync_end(t.model);
        }
        pass(how, &t, 2 * data);
        (void)tri_clip_grad_norm(t.opt, 0.05);
        RANK_TRY(env, tri_optimizer_step(t.opt));
        RANK_TRY(env, tri_ema_update(t.ema));
        RANK_TRY(env, tri_step_end_status());
        RANK_TRY(env, hashes(&t, hash));
        if (j->stage == 1 && env->rank == 0)
            memcpy(j->want[s], hash, sizeof(hash));
        else if (j->stage == 3 && memcmp(j->want[s], hash, sizeof(hash)) != 0)
            return RANK_FAIL(env, "rank %d, step %d: %s of stage 3 are not those of stage 1",
                             env->rank, s, hash[0] != j->want[s][0] ? "parameters" : "averages");
    }
    end(&t);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void options_of_stage_3_keep_the_bits_of_stage_1(void **state)
{
    static const way ways[] = {
        {.options = {.stage = 3, .keep_below = 100}},
        {.options = {.stage = 3, .keep_below = 100}, .no_sync = true},
        {.options = {.stage = 3, .gather_dtype = TRI_DTYPE_BF16}, .autocast = true},
        {.options = {.stage = 3, .gather_dtype = TRI_DTYPE_BF16, .keep_after_forward = true},
         .autocast = true,
         .no_sync = true}};

    (void)state;
    for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
        way_job j = {.how = ways[k]};

        for (j.stage = 1; j.stage <= 3; j.stage += 2)
            run_threads(4, &(tri_group_options){.engine = "shm"}, way_rank, &j);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(options_of_stage_3_keep_the_bits_of_stage_1),
    cmocka_unit_test(ranges_of_parts_are_files_of_whole_tensors),
    cmocka_unit_test(parts_have_the_bits_of_ddp),
    cmocka_unit_test(checkpoints_move_to_other_meshes),
};

TEST_MAIN(tests)
