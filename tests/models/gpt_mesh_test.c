/* gpt_mesh_test.c - the GPT of the examples on meshes of three axes: layers cut over ranks, in
 * stages of a pipeline, with replicas that share the optimizer; against one process, and
 * checkpoints that move between meshes. */
#include "../../examples/gpt_network.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/scratch.h"
#include "testing/train_ranks.h"
#include "train/nn/module.h"

enum { CONTEXT = 4, WORDS = 11, BATCH = 12, M = 2, TRAINED = 3, AFTER = 10, SEED = 5 };

typedef struct mesh_job {
    int data, pipeline, tensor; /* sizes of the mesh */
    int zero;                   /* stage of tri_zero; 0: tri_ddp */
    double dropout;
    const char *from, *to; /* what is restored first; where the checkpoint is saved; NULL: none */
    const char *file;      /* of the whole network, which is saved with it */
    uint64_t hash;         /* of it, as one process has it */
    uint64_t averages;     /* the same of its averages */
    int first, n;          /* steps */
    double losses[TRAINED + AFTER];
} mesh_job;

static trii_mutex drawing = TRII_MUTEX_INITIALIZER; /* the seed is the process's */

static gpt_options options_of(const mesh_job *j)
{
    return (gpt_options){.layers = 2,
                         .width = 8,
                         .heads = 2,
                         .context = CONTEXT,
                         .vocabulary = WORDS,
                         .dropout = j->dropout};
}

static tri_module *build(const mesh_job *j)
{
    const gpt_options options = options_of(j);
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(SEED);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = gpt_create(&options);
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

/* Rows of the batch of a step, which is the same whatever the mesh; shift 1: the words to guess. */
static tri_tensor *rows_of(int step, int first, int n, int shift)
{
    int64_t words[BATCH * CONTEXT];

    for (int i = 0; i < n * CONTEXT; i++) {
        int at = first * (CONTEXT + 1) + i / CONTEXT * (CONTEXT + 1) + i % CONTEXT + shift;

        words[i] = (7 * at * at + 3 * at + 5 * step) % WORDS;
    }
    return tri_tensor_from(TRI_SHAPE(n, CONTEXT), TRI_DTYPE_I64, words);
}

static tri_tensor *loss_fn(tri_tensor *scores, tri_tensor *next, void *arg)
{
    (void)arg;
    return tri_cross_entropy(tri_reshape(scores, TRI_SHAPE(-1, WORDS)), tri_flatten(next, 0), NULL);
}

static tri_optimizer *optimize(tri_module *model)
{
    return tri_adamw(model, 0.02, NULL);
}

/* Averages, which a checkpoint has beside the rest. */
typedef struct averages {
    tri_ema *ema;
    tri_state_entry entries[64];
    tri_checkpoint_extra extra;
} averages;

static tri_status averages_begin(averages *a, tri_module *model)
{
    tri_status status = tri_ema_create(model, 0.7, &a->ema);

    a->extra = (tri_checkpoint_extra){
        .name = "ema", .entries = a->entries, .n = tri_ema_state_count(a->ema)};
    for (int64_t i = 0; i < a->extra.n && i < (int64_t)TRII_COUNT_OF(a->entries); i++)
        a->entries[i] = tri_ema_state(a->ema, i);
    return status;
}

static tri_status averages_hash(const averages *a, tri_module *model, uint64_t *hash_out)
{
    tri_status status = tri_ema_swap(a->ema);

    if (status == TRI_OK)
        status = tri_module_hash(model, hash_out);
    return status == TRI_OK ? tri_ema_swap(a->ema) : status;
}

static tri_status restore(const char *folder, tri_module *model, tri_optimizer *opt,
                          const averages *a)
{
    tri_checkpoint *checkpoint = NULL;
    tri_status status = tri_checkpoint_open(folder, &checkpoint);

    if (status == TRI_OK)
        status = tri_checkpoint_restore(checkpoint, model, opt);
    if (status == TRI_OK)
        status = tri_checkpoint_restore_extra(checkpoint, "ema", a->entries, a->extra.n);
    tri_checkpoint_close(checkpoint);
    return status;
}

/* --- one process ---------------------------------------------------------- */

/* Forward and backward of a micro-batch; its share of the loss. */
static double add_gradients(tri_module *model, int step, int first, int n)
{
    tri_tensor *x = rows_of(step, first, n, 0), *y = rows_of(step, first, n, 1);
    tri_tensor *loss = loss_fn(tri_forward(model, x), y, NULL);
    double share;

    loss = tri_keep(tri_mul_scalar(loss, (double)n / BATCH));
    tri_backward(loss);
    share = tri_item(loss);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return share;
}

/* All micro-batches of all coordinates along "data", each of which has its stream of random
 * numbers. */
static void train_alone(mesh_job *j, tri_module *model, tri_optimizer *opt)
{
    int each = BATCH / j->data;

    for (int s = j->first; s < j->first + j->n; s++) {
        j->losses[s] = 0;
        for (int d = 0; d < j->data; d++) {
            tri_rng_state_set(&(tri_rng){.seed = SEED, .stream = (uint64_t)d, .step = s});
            for (int i = 0; i < M; i++)
                j->losses[s] += add_gradients(model, s, d * each + i * (each / M), each / M);
            tri_step_end();
        }
        (void)tri_clip_grad_norm(opt, 0.05);
        CHECK_OK(tri_optimizer_step(opt));
        CHECK_OK(tri_step_end_status());
    }
}

static void one_process(mesh_job *j)
{
    tri_module *model = build(j);
    tri_optimizer *opt = optimize(model);

    train_alone(j, model, opt);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
}

/* --- a rank --------------------------------------------------------------- */

static tri_status train_step(tri_module *model, tri_optimizer *opt, int step, int first, int n,
                             double *loss_out)
{
    tri_tensor *x = rows_of(step, first, n, 0), *y = rows_of(step, first, n, 1);
    tri_tensor *loss = tri_pipeline_step(model, x, y, loss_fn, NULL);
    tri_status status;

    (void)tri_clip_grad_norm(opt, 0.05);
    status = update_and_read(opt, loss, loss_out);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static const char *train(rank_env *env, tri_group *data, tri_module *model, tri_optimizer *opt,
                         tri_ema *ema)
{
    const mesh_job *j = env->arg;
    int rows = BATCH / j->data;

    for (int s = j->first; s < j->first + j->n; s++) {
        double loss = 0;

        RANK_TRY(env, train_step(model, opt, s, rows * tri_group_rank(data), rows, &loss));
        RANK_TRY(env, tri_ema_update(ema));
        loss /= j->data;
        RANK_TRY(env, tri_all_reduce(data, &loss, &loss, 1, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL));
        if (!(fabs(loss - j->losses[s]) <= 1e-9))
            return RANK_FAIL(env, "rank %d of %d: loss %d is %.17g, not %.17g", env->rank,
                             env->size, s, loss, j->losses[s]);
    }
    return NULL;
}

/* By a thread where parameters are divided. */
static tri_status save(const mesh_job *j, tri_module *model, tri_optimizer *opt, const averages *a)
{
    const tri_checkpoint_info info = {.step = TRAINED, .extras = &a->extra, .n_extras = 1};
    tri_checkpoint_writer *writer = NULL;
    tri_status status;

    if (j->zero < 3)
        return tri_checkpoint_save(j->to, model, opt, &info, NULL);
    status = tri_checkpoint_writer_create(j->to, &writer);
    if (status == TRI_OK)
        status = tri_checkpoint_writer_save(writer, model, opt, &info, NULL);
    if (status == TRI_OK)
        status = tri_checkpoint_writer_wait(writer);
    tri_checkpoint_writer_destroy(writer);
    return status;
}

/* What was restored is saved before it is trained. */
static const char *go_on(rank_env *env, tri_mesh *mesh, tri_module *model, tri_optimizer *opt)
{
    const mesh_job *j = env->arg;
    bool saves = j->to != NULL && (j->zero > 0 || tri_mesh_coordinate(mesh, "data") == 0);
    averages a;
    const char *wrong;
    uint64_t hash;

    RANK_TRY(env, averages_begin(&a, model));
    if (j->from != NULL) {
        RANK_TRY(env, restore(j->from, model, opt, &a));
        RANK_TRY(env, tri_module_hash(model, &hash));
        if (hash != j->hash)
            return RANK_FAIL(env, "rank %d of %d: another hash", env->rank, env->size);
        RANK_TRY(env, averages_hash(&a, model, &hash));
        if (hash != j->averages)
            return RANK_FAIL(env, "rank %d of %d: other averages", env->rank, env->size);
        if (saves)
            RANK_TRY(env, save(j, model, opt, &a));
        if (saves && (j->pipeline > 1 || tri_mesh_coordinate(mesh, "data") == 0))
            RANK_TRY(env, tri_save(model, j->file));
    }
    wrong = train(env, tri_mesh_group(mesh, "data"), model, opt, a.ema);
    if (wrong == NULL && j->from == NULL && saves)
        RANK_TRY(env, save(j, model, opt, &a));
    tri_ema_destroy(a.ema);
    return wrong;
}

static const char *mesh_rank(rank_env *env)
{
    const mesh_job *j = env->arg;
    const gpt_options options = options_of(j);
    tri_mesh *mesh = NULL;
    tri_module *model = build(j);
    tri_optimizer *opt;
    const char *wrong;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(j->data, j->pipeline, j->tensor),
                            (const char *[]){"data", "pipeline", "tensor"}, &mesh));
    gpt_cut_layers(model, &options, tri_mesh_group(mesh, "tensor"));
    model = gpt_cut_stages(model, &options, tri_mesh_group(mesh, "pipeline"), M);
    model = replicate(model, tri_mesh_group(mesh, "data"), j->zero);
    RANK_TRY(env, tri_module_status(model));
    opt = optimize(model);
    wrong = go_on(env, mesh, model, opt);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
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

/* --- cases ---------------------------------------------------------------- */

static void every_product_of_axes_trains_as_one_process(void **state)
{
    static mesh_job j = {.data = 1, .n = 4};

    (void)state;
    one_process(&j);
    run(&j, 1, 2, 2, 0);
    run(&j, 2, 2, 2, 0);
    run(&j, 2, 2, 2, 2);
    run(&j, 2, 2, 2, 3);
}

static void replicas_drop_by_streams_of_their_own(void **state)
{
    static mesh_job j = {.data = 2, .dropout = 0.2, .n = 4};

    (void)state;
    one_process(&j);
    run(&j, 2, 2, 2, 1);
}

/* Of all parameters, of all that the optimizer knows of them, too, and of the averages, as one
 * process reads it. */
static void hash_checkpoint(const char *folder, uint64_t *net_out, uint64_t *all_out,
                            uint64_t *averages_out)
{
    const mesh_job j = {.data = 1};
    tri_module *model = build(&j);
    tri_optimizer *opt = optimize(model);
    averages a;

    CHECK_OK(averages_begin(&a, model));
    CHECK_OK(restore(folder, model, opt, &a));
    CHECK_OK(averages_hash(&a, model, averages_out));
    tri_ema_destroy(a.ema);
    CHECK_OK(tri_module_hash(model, net_out));
    assert_true(*net_out != *averages_out);
    *all_out = *net_out;
    assert_in_range(tri_optimizer_state_count(opt), 2 * tri_module_state_count(model), 1000);
    for (int64_t i = 0; i < tri_optimizer_state_count(opt); i++) {
        tri_state_entry e = tri_optimizer_state(opt, i);

        CHECK_OK(trii_hash_entry(&e, all_out));
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
}

static void check_saved(const mesh_job *j, uint64_t want)
{
    tri_module *model = build(j);
    uint64_t hash, all, averaged;

    hash_checkpoint(j->to, &hash, &all, &averaged);
    assert_true(averaged == j->averages);
    assert_true(hash == j->hash);
    assert_true(all == want);
    CHECK_OK(tri_load(model, j->file, NULL));
    CHECK_OK(tri_module_hash(model, &hash));
    assert_true(hash == j->hash);
    tri_module_destroy(model);
}

static void checkpoints_move_between_meshes(void **state)
{
    static const struct {
        int data, pipeline, tensor, zero;
    } meshes[] = {{1, 1, 1, 0}, {2, 1, 1, 1}, {1, 2, 2, 0}, {3, 1, 2, 1}, {2, 2, 2, 3}};
    static mesh_job j = {.data = 1, .n = TRAINED + AFTER};
    char saved[256], again[256], file[300];
    uint64_t all;
    scratch s;

    (void)state;
    scratch_begin(&s);
    snprintf(saved, sizeof(saved), "%s", scratch_path(&s, "saved"));
    one_process(&j);
    j.n = TRAINED;
    j.to = saved;
    run(&j, 2, 2, 2, 1);
    hash_checkpoint(saved, &j.hash, &all, &j.averages);
    j.from = saved;
    j.to = again;
    j.file = file;
    j.first = TRAINED;
    j.n = AFTER;
    for (size_t k = 0; k < TRII_COUNT_OF(meshes); k++) {
        snprintf(again, sizeof(again), "%.200s-%zu", saved, k);
        snprintf(file, sizeof(file), "%s.safetensors", again);
        run(&j, meshes[k].data, meshes[k].pipeline, meshes[k].tensor, meshes[k].zero);
        check_saved(&j, all);
    }
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_product_of_axes_trains_as_one_process),
    cmocka_unit_test(replicas_drop_by_streams_of_their_own),
    cmocka_unit_test(checkpoints_move_between_meshes),
};

TEST_MAIN(tests)
