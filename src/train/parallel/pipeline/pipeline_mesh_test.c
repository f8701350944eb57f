/* pipeline_mesh_test.c - meshes of three axes: layers cut over ranks, in stages of a pipeline, with
 * replicas that share the optimizer; against one process, and checkpoints that move between
 * meshes. */
#include "testing/cut_ranks.h"
#include "testing/scratch.h"

enum { WIDTH = 6, BATCH = 12, M = 2, TRAINED = 3, AFTER = 10, CELLS = WIDTH * WIDTH };

typedef struct mesh_job {
    char folder[256];
    int data, pipeline, tensor; /* sizes of the mesh */
    int zero;                   /* stage of tri_zero; 0: tri_ddp */
    bool is_saved;              /* there is a checkpoint, which is restored; else one is saved */
    double losses[TRAINED + AFTER];
    tri_module *model; /* what one process has restored, with its optimizer */
    tri_optimizer *opt;
} mesh_job;

static trii_mutex reading = TRII_MUTEX_INITIALIZER; /* what one process has */

/* Four blocks, of which each takes and gives whole values. */
static tri_module *build_blocks(void)
{
    tri_module *blocks[4];

    trii_mutex_lock(&drawing);
    tri_manual_seed(5);
    tri_set_default_dtype(TRI_DTYPE_F64);
    for (int b = 0; b < 4; b++)
        blocks[b] = tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_tanh(),
                                      tri_nn_linear(WIDTH, b == 3 ? OUT : WIDTH, NULL),
                                      tri_nn_layer_norm(TRI_SHAPE(b == 3 ? OUT : WIDTH), NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return tri_nn_sequential_of(4, blocks);
}

static const tri_parallel_rule cuts[] = {{.module = "*.0", .style = TRI_COLWISE},
                                         {.module = "*.2", .style = TRI_ROWWISE}};

static tri_tensor *rows_of(int step, int first, int n, int width)
{
    double data[BATCH * WIDTH];

    for (int i = 0; i < n * width; i++)
        data[i] = sin(1.3 * (first * width + i) + 0.7 * step + width);
    return tri_tensor_from(TRI_SHAPE(n, width), TRI_DTYPE_F64, data);
}

static tri_tensor *mse(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_mse_loss(output, target, NULL);
}

/* One step with rows of the batch, which is the same whatever the mesh. */
static tri_status train_step(tri_module *model, tri_optimizer *opt, int step, int first, int n,
                             bool plain, double *loss_out)
{
    tri_tensor *x = rows_of(step, first, n, WIDTH), *y = rows_of(step, first, n, OUT), *loss;
    tri_status status;

    if (plain) {
        loss = tri_keep(tri_mse_loss(tri_forward(model, x), y, NULL));
        tri_backward(loss);
    } else {
        loss = tri_pipeline_step(model, x, y, mse, NULL);
    }
    (void)tri_clip_grad_norm(opt, 0.05);
    status = tri_optimizer_step(opt);
    if (status == TRI_OK)
        status = tri_item_status(loss, loss_out);
    if (status == TRI_OK)
        status = tri_step_end_status();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static const char *train_steps(rank_env *env, tri_group *data, tri_module *model,
                               tri_optimizer *opt, int first, int n)
{
    const mesh_job *j = env->arg;
    int rows = BATCH / j->data;

    for (int s = first; s < first + n; s++) {
        double loss = 0;

        RANK_TRY(env, train_step(model, opt, s, rows * tri_group_rank(data), rows, false, &loss));
        loss /= j->data;
        RANK_TRY(env, tri_all_reduce(data, &loss, &loss, 1, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL));
        if (fabs(loss - j->losses[s]) > 1e-9)
            return RANK_FAIL(env, "rank %d of %d: loss %d is %.17g, not %.17g", env->rank,
                             env->size, s, loss, j->losses[s]);
    }
    return NULL;
}

/* Whether what is here of a tensor has the bits of the whole one. */
static const char *part_differs(rank_env *env, const char *name, tri_tensor *got, tri_tensor *want)
{
    double whole[CELLS], part[CELLS], here[CELLS];
    size_t bytes = (size_t)tri_tensor_numel(got) * sizeof(*part);
    trii_piece all = {.ndim = want->ndim};
    trii_runs from, to;

    memcpy(all.size, want->shape, sizeof(all.size));
    from = trii_piece_runs(&all, want->shape, want->ndim);
    to = got->held != NULL ? trii_piece_runs(&got->held->piece, want->shape, want->ndim) : from;
    RANK_TRY(env, tri_tensor_copy_out(got, here, bytes));
    RANK_TRY(env, tri_tensor_copy_out(want, whole, trii_tensor_bytes(want)));
    trii_piece_copy(&from, whole, &to, part, sizeof(double));
    return memcmp(part, here, bytes) == 0
               ? NULL
               : RANK_FAIL(env, "rank %d of %d: %s is not what was saved", env->rank, env->size,
                           name);
}

static const char *check_restored(rank_env *env, tri_module *model, tri_optimizer *opt)
{
    const mesh_job *j = env->arg;
    const char *wrong = NULL;

    trii_mutex_lock(&reading);
    for (int64_t i = 0; i < tri_module_state_count(model) && wrong == NULL; i++) {
        tri_state_entry e = tri_module_state(model, i);

        wrong = part_differs(env, e.name, e.tensor, tri_module_find(j->model, e.name));
    }
    for (int64_t i = 0; i < tri_optimizer_state_count(opt) && j->zero == 0 && wrong == NULL; i++) {
        tri_state_entry e = tri_optimizer_state(opt, i);

        for (int64_t k = 0; k < tri_optimizer_state_count(j->opt) && wrong == NULL; k++)
            if (strcmp(e.name, tri_optimizer_state(j->opt, k).name) == 0 &&
                tri_tensor_dtype(e.tensor) == TRI_DTYPE_F64)
                wrong = part_differs(env, e.name, e.tensor, tri_optimizer_state(j->opt, k).tensor);
    }
    trii_mutex_unlock(&reading);
    return wrong;
}

static const char *go_on(rank_env *env, tri_mesh *mesh, tri_module *model, tri_optimizer *opt)
{
    mesh_job *j = env->arg;
    tri_group *data = tri_mesh_group(mesh, "data");
    tri_checkpoint *checkpoint = NULL;
    const char *wrong;

    if (!j->is_saved) {
        wrong = train_steps(env, data, model, opt, 0, TRAINED);
        if (wrong == NULL && j->folder[0] != '\0')
            RANK_TRY(env, tri_checkpoint_save(j->folder, model, opt,
                                              &(tri_checkpoint_info){.step = TRAINED}, NULL));
        return wrong;
    }
    RANK_TRY(env, tri_checkpoint_open(j->folder, &checkpoint));
    RANK_TRY(env, tri_checkpoint_restore(checkpoint, model, opt));
    tri_checkpoint_close(checkpoint);
    wrong = check_restored(env, model, opt);
    return wrong == NULL ? train_steps(env, data, model, opt, TRAINED, AFTER) : wrong;
}

static const char *mesh_rank(rank_env *env)
{
    const mesh_job *j = env->arg;
    tri_group *world = NULL;
    tri_mesh *mesh = NULL;
    tri_module *model = build_blocks();
    tri_optimizer *opt;
    const char *wrong;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &world));
    RANK_TRY(env, tri_mesh_create(world, TRI_SHAPE(j->data, j->pipeline, j->tensor),
                                  (const char *[]){"data", "pipeline", "tensor"}, &mesh));
    RANK_TRY(env, tri_parallelize(model, tri_mesh_group(mesh, "tensor"), cuts, 2));
    model = tri_pipeline_split(
        model, NULL, j->pipeline,
        &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline"), .n_microbatches = M});
    model = j->zero > 0 ? tri_zero(model, &(tri_zero_options){.group = tri_mesh_group(mesh, "data"),
                                                              .stage = j->zero})
                        : tri_ddp(model, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
    RANK_TRY(env, tri_module_status(model));
    opt = tri_adamw(model, 0.02, NULL);
    wrong = go_on(env, mesh, model, opt);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    tri_group_unref(world);
    return wrong;
}

static void run(mesh_job *j, int data, int pipeline, int tensor, int zero)
{
    j->data = data;
    j->pipeline = pipeline;
    j->tensor = tensor;
    j->zero = zero;
    run_threads(data * pipeline * tensor, &(tri_group_options){.engine = "shm"}, mesh_rank, j);
}

static void one_process(mesh_job *j)
{
    tri_module *model = build_blocks();
    tri_optimizer *opt = tri_adamw(model, 0.02, NULL);

    for (int s = 0; s < TRAINED + AFTER; s++)
        CHECK_OK(train_step(model, opt, s, 0, BATCH, true, &j->losses[s]));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
}

static void every_product_of_axes_trains_as_one_process(void **state)
{
    static mesh_job j;

    (void)state;
    one_process(&j);
    run(&j, 1, 2, 2, 0);
    run(&j, 2, 2, 2, 0);
    for (int zero = 1; zero <= 2; zero++)
        run(&j, 2, 2, 2, zero);
}

static void checkpoints_move_between_meshes(void **state)
{
    static mesh_job j;
    tri_checkpoint *checkpoint = NULL;
    scratch s;

    (void)state;
    scratch_begin(&s);
    snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
    one_process(&j);
    run(&j, 2, 2, 2, 1);
    j.model = build_blocks();
    j.opt = tri_adamw(j.model, 0.02, NULL);
    CHECK_OK(tri_checkpoint_open(j.folder, &checkpoint));
    CHECK_OK(tri_checkpoint_restore(checkpoint, j.model, j.opt));
    tri_checkpoint_close(checkpoint);
    j.is_saved = true;
    run(&j, 1, 1, 1, 0);
    run(&j, 2, 1, 1, 1);
    run(&j, 1, 2, 2, 0);
    run(&j, 3, 1, 2, 1);
    run(&j, 2, 2, 2, 1);
    tri_optimizer_destroy(j.opt);
    tri_module_destroy(j.model);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_product_of_axes_trains_as_one_process),
    cmocka_unit_test(checkpoints_move_between_meshes),
};

TEST_MAIN(tests)
