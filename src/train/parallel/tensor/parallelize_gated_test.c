/* parallelize_gated_test.c - a block as those of Llama: heads of queries that share keys and
 * values, and a gated layer of two halves in one, cut over ranks and by tokens: as one process.
 * Where there are fewer heads of keys than ranks, ranks have copies, which count once. */
#include "testing/cut_ranks.h"
#include "testing/scratch.h"

#define DEPTH 2
#define HEADS 12
#define WIDTH (DEPTH * HEADS)
#define GATED 7
#define BATCH 2
#define TOKENS 5
#define STEPS 3
#define ALL 2300

typedef struct block {
    tri_module *norm1, *q, *k, *v, *o, *norm2, *gate_up, *down;
} block;

/* [N, T, width] -> [N, heads, T, depth]: of so many heads as are here. */
static tri_tensor *to_heads(tri_tensor *x)
{
    const int64_t shape[4] = {tri_tensor_size(x, 0), tri_tensor_size(x, 1),
                              tri_tensor_size(x, 2) / DEPTH, DEPTH};

    return tri_transpose(tri_reshape(x, shape, 4), 1, 2);
}

static tri_tensor *forward(tri_module *self, tri_tensor *x)
{
    block *b = tri_module_data(self);
    const tri_attention_options shared = {.is_causal = true, .enable_gqa = true};
    tri_tensor *y = tri_forward(b->norm1, x), *q = tri_forward(b->q, y), *half[2];

    y = tri_attention(to_heads(q), to_heads(tri_forward(b->k, y)), to_heads(tri_forward(b->v, y)),
                      &shared);
    y = tri_reshape(tri_transpose(y, 1, 2),
                    TRI_SHAPE(tri_tensor_size(q, 0), tri_tensor_size(q, 1), tri_tensor_size(q, 2)));
    x = tri_add(x, tri_forward(b->o, y));
    y = tri_forward(b->gate_up, tri_forward(b->norm2, x));
    for (int i = 0; i < 2; i++)
        half[i] = tri_narrow(y, -1, i * tri_tensor_size(y, -1) / 2, tri_tensor_size(y, -1) / 2);
    return tri_add(x, tri_forward(b->down, tri_mul(tri_silu(half[0]), half[1])));
}

static tri_module *add_linear(tri_module *self, const char *name, int64_t in, int64_t out)
{
    return tri_module_add_child(self, name,
                                tri_nn_linear(in, out, &(tri_nn_linear_options){.no_bias = true}));
}

static tri_module *build_block(uint64_t seed, int kv_heads)
{
    tri_module *self;
    block *b;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    self = tri_module_simple("block", sizeof(block), forward);
    b = tri_module_data(self);
    b->norm1 = tri_module_add_child(self, "norm1", tri_nn_rms_norm(TRI_SHAPE(WIDTH), NULL));
    b->q = add_linear(self, "q", WIDTH, WIDTH);
    b->k = add_linear(self, "k", WIDTH, (int64_t)kv_heads * DEPTH);
    b->v = add_linear(self, "v", WIDTH, (int64_t)kv_heads * DEPTH);
    b->o = add_linear(self, "o", WIDTH, WIDTH);
    b->norm2 = tri_module_add_child(self, "norm2", tri_nn_rms_norm(TRI_SHAPE(WIDTH), NULL));
    b->gate_up = add_linear(self, "gate_up", WIDTH, (int64_t)2 * GATED);
    b->down = add_linear(self, "down", GATED, WIDTH);
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return self;
}

static tri_tensor *wave(double phase)
{
    double data[BATCH * TOKENS * WIDTH];

    for (int i = 0; i < BATCH * TOKENS * WIDTH; i++)
        data[i] = sin(1.7 * i + phase);
    return tri_tensor_from(TRI_SHAPE(BATCH, TOKENS, WIDTH), TRI_DTYPE_F64, data);
}

static tri_tensor *mse(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_mse_loss(output, target, NULL);
}

/* loss: of the last step, and the norms of all */
static tri_status train(tri_module *net, tri_optimizer *opt, double loss[1 + STEPS])
{
    tri_tensor *x = wave(0), *y = wave(1);
    tri_status status = TRI_OK;

    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        bool piped = net->stages != NULL;
        tri_tensor *l = tri_keep(piped ? tri_pipeline_step(net, x, y, mse, NULL)
                                       : mse(tri_forward(net, x), y, NULL));
        tri_tensor *norm;

        if (!piped)
            tri_backward(l);
        norm = tri_keep(tri_clip_grad_norm(opt, 0.3));
        status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_item_status(l, &loss[0]);
        if (status == TRI_OK)
            status = tri_item_status(norm, &loss[1 + s]);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

typedef struct job {
    bool by_tokens, piped;
    int kv_heads, stage; /* of tri_zero */
    char folder[256], file[256];
    double want[ALL], loss[1 + STEPS]; /* of one process */
    double go_on[ALL], after[1 + STEPS];
    double part[4][WIDTH * DEPTH]; /* k's, of each rank */
    uint64_t hash;
} job;

static tri_module *build_two(uint64_t seed, int kv_heads)
{
    tri_module *first = build_block(seed, kv_heads);

    return tri_nn_sequential(first, build_block(seed + 1, kv_heads));
}

/* Heads of queries go with those of the keys that they share: where these are fewer than ranks,
 * each rank has as many, else as many groups of them. */
static tri_status cut_block(tri_module *net, tri_group *group, const job *j)
{
    const int64_t each = tri_group_size(group) > j->kv_heads ? 1 : HEADS / j->kv_heads;
    const tri_parallel_value between = j->by_tokens ? TRI_SHARDED_SEQUENCE : TRI_WHOLE;
    const bool is_two = tri_module_submodule(net, "norm1") == NULL;
    tri_parallel_rule rules[] = {
        {.module = "norm1", .style = TRI_SEQUENCE, .input = TRI_WHOLE, .output = between},
        {.module = "q", .style = TRI_COLWISE, .block = each * DEPTH, .input = between},
        {.module = "k", .style = TRI_COLWISE, .block = DEPTH, .input = between},
        {.module = "v", .style = TRI_COLWISE, .block = DEPTH, .input = between},
        {.module = "o", .style = TRI_ROWWISE, .block = each * DEPTH},
        {.module = "norm2", .style = TRI_SEQUENCE, .input = TRI_WHOLE, .output = between},
        {.module = "gate_up", .style = TRI_COLWISE, .parts = 2, .input = between},
        {.module = "down", .style = TRI_ROWWISE}};
    static const char *const of_two[] = {"*.norm1", "*.q",     "*.k",       "*.v",
                                         "*.o",     "*.norm2", "*.gate_up", "*.down"};

    for (int i = 0; i < 8 && is_two; i++)
        rules[i].module = of_two[i];
    return tri_parallelize(net, group, rules, 8);
}

/* Trains, saves in both ways, and goes on from what the checkpoint has. */
static const char *train_rank(rank_env *env)
{
    job *j = env->arg;
    tri_module *net = build_block(env->rank == 0 ? 3 : 40, j->kv_heads);
    tri_optimizer *opt;
    tri_group *group = NULL;
    double got[ALL], loss[1 + STEPS];
    bool is_whole[ALL];
    uint64_t hash;
    const char *wrong;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, cut_block(net, group, j));
    opt = tri_adamw(net, 0.02, NULL);
    memcpy(got, j->want, sizeof(got));
    RANK_TRY(env, train(net, opt, loss));
    RANK_TRY(env, put(net, got, is_whole));
    wrong = far_from(env, "loss or norm", loss, j->loss, 1 + STEPS);
    if (wrong == NULL)
        wrong = far_from(env, "weight", got, j->want, ALL);
    RANK_TRY(env, tri_tensor_copy_out(tri_module_state(net, 2).tensor, j->part[env->rank],
                                      trii_tensor_bytes(tri_module_state(net, 2).tensor)));
    if (j->folder[0] != '\0') {
        RANK_TRY(env, tri_save(net, j->file));
        RANK_TRY(env, tri_module_hash(net, &hash));
        RANK_TRY(env, tri_checkpoint_save(j->folder, net, opt,
                                          &(tri_checkpoint_info){.step = STEPS}, NULL));
        if (env->rank == 0)
            j->hash = hash;
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_group_unref(group);
    return wrong;
}

/* On any number of ranks, cut or not. */
static tri_status restore(tri_module *net, const job *j, double *weights, double *loss)
{
    tri_optimizer *opt = tri_adamw(net, 0.02, NULL);
    tri_checkpoint *checkpoint = NULL;
    bool is_whole[ALL];
    tri_status status = tri_checkpoint_open(j->folder, &checkpoint);

    if (status == TRI_OK)
        status = tri_checkpoint_restore(checkpoint, net, opt);
    tri_checkpoint_close(checkpoint);
    if (status == TRI_OK)
        status = train(net, opt, loss);
    if (status == TRI_OK)
        status = put(net, weights, is_whole);
    tri_optimizer_destroy(opt);
    return status;
}

static const char *restore_rank(rank_env *env)
{
    job *j = env->arg;
    tri_module *net = build_block(50, j->kv_heads);
    tri_group *group = NULL;
    double got[ALL], loss[1 + STEPS];
    uint64_t hash;
    const char *wrong;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, cut_block(net, group, j));
    RANK_TRY(env, tri_load(net, j->file, NULL));
    RANK_TRY(env, tri_module_hash(net, &hash));
    memcpy(got, j->go_on, sizeof(got));
    RANK_TRY(env, restore(net, j, got, loss));
    wrong = hash != j->hash ? RANK_FAIL(env, "it is not what was saved")
                            : far_from(env, "loss or norm", loss, j->after, 1 + STEPS);
    if (wrong == NULL)
        wrong = far_from(env, "weight", got, j->go_on, ALL);
    tri_module_destroy(net);
    tri_group_unref(group);
    return wrong;
}

static void train_alone(job *j)
{
    tri_module *net = build_block(3, j->kv_heads);
    tri_optimizer *opt = tri_adamw(net, 0.02, NULL);
    bool is_whole[ALL];

    CHECK_OK(train(net, opt, j->loss));
    CHECK_OK(put(net, j->want, is_whole));
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

/* Bytes of k's weight in the files of four ranks. */
static size_t bytes_of_keys(const char *folder)
{
    tri_checkpoint *checkpoint = NULL;
    size_t bytes = 0;

    CHECK_OK(tri_checkpoint_open(folder, &checkpoint));
    for (int r = 0; r < 4; r++) {
        const tri_safetensors_entry *entry;
        tri_safetensors *file = NULL;
        char path[512];

        snprintf(path, sizeof(path), "%s/pieces.rank%d.safetensors",
                 tri_checkpoint_path(checkpoint), r);
        CHECK_OK(tri_safetensors_open(path, &file));
        entry = tri_safetensors_find(file, "model/k.weight");
        bytes += entry != NULL ? entry->bytes : 0;
        tri_safetensors_close(file);
    }
    tri_checkpoint_close(checkpoint);
    return bytes;
}

/* What the ranks have saved. */
static void read_alone(job *j)
{
    tri_module *net = build_block(60, j->kv_heads);
    uint64_t hash;

    assert_int_equal(bytes_of_keys(j->folder), sizeof(double) * WIDTH * DEPTH * j->kv_heads);
    CHECK_OK(tri_load(net, j->file, NULL));
    CHECK_OK(tri_module_hash(net, &hash));
    assert_true(hash == j->hash);
    CHECK_OK(restore(net, j, j->go_on, j->after));
    tri_module_destroy(net);
}

static void run(job *j, int size)
{
    scratch s;

    scratch_begin(&s);
    snprintf(j->folder, sizeof(j->folder), "%s", scratch_path(&s, "run"));
    snprintf(j->file, sizeof(j->file), "%s", scratch_path(&s, "file"));
    run_threads(size, &(tri_group_options){.engine = "shm"}, train_rank, j);
    read_alone(j);
    run_threads(j->kv_heads == 1 ? 4 : 2, &(tri_group_options){.engine = "shm"}, restore_rank, j);
    scratch_end(&s);
}

static void shared_keys_and_gated_layers_train_as_one_process(void **state)
{
    static job j;

    (void)state;
    j.kv_heads = 3;
    train_alone(&j);
    for (int size = 2; size <= 3; size++) {
        for (int k = 0; k < 2; k++) {
            j.by_tokens = k == 1;
            run_threads(size, &(tri_group_options){.engine = "shm"}, train_rank, &j);
        }
    }
}

static void fewer_heads_of_keys_than_ranks_are_copied(void **state)
{
    static job j;

    (void)state;
    for (int heads = 1; heads <= 2; heads++) {
        j = (job){.kv_heads = heads, .by_tokens = heads == 2};
        train_alone(&j);
        run(&j, 4);
        for (int r = 0; r < 4; r++)
            assert_memory_equal(j.part[r], j.part[heads == 1 ? 0 : r & 2], sizeof(j.part[r]));
    }
}

/* --- with another axis of the mesh ---------------------------------------- */

static const char *mesh_rank(rank_env *env)
{
    job *j = env->arg;
    tri_module *net = j->piped ? build_two(3, 1) : build_block(3, 1);
    tri_mesh *mesh = NULL;
    tri_optimizer *opt;
    double loss[1 + STEPS];
    uint64_t hash;
    const char *wrong;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"outer", "tensor"}, &mesh));
    RANK_TRY(env, cut_block(net, tri_mesh_group(mesh, "tensor"), j));
    net = j->piped
              ? tri_pipeline_split(net, (const char *[]){"1"}, 2,
                                   &(tri_pipeline_options){.group = tri_mesh_group(mesh, "outer"),
                                                           .n_microbatches = 2,
                                                           .schedule = TRI_PIPELINE_ZERO_BUBBLE})
              : tri_zero(net, &(tri_zero_options){.group = tri_mesh_group(mesh, "outer"),
                                                  .stage = j->stage});
    opt = tri_adamw(net, 0.02, NULL);
    RANK_TRY(env, train(net, opt, loss));
    wrong = far_from(env, "loss or norm", loss, j->loss, 1 + STEPS);
    RANK_TRY(env, tri_module_hash(net, &hash));
    RANK_TRY(env,
             tri_checkpoint_save(j->folder, net, opt, &(tri_checkpoint_info){.step = STEPS}, NULL));
    if (env->rank == 0)
        j->hash = hash;
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_mesh_destroy(mesh);
    return wrong;
}

static void copies_count_once_beside_replicas_and_stages(void **state)
{
    static job j;
    scratch s;

    (void)state;
    for (int k = 1; k <= 3; k++) {
        tri_module *net;
        tri_optimizer *opt;
        tri_checkpoint *checkpoint = NULL;
        uint64_t hash;

        j = (job){.piped = k == 1, .stage = k, .kv_heads = 1};
        net = j.piped ? build_two(3, 1) : build_block(3, 1);
        opt = tri_adamw(net, 0.02, NULL);
        scratch_begin(&s);
        snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
        CHECK_OK(train(net, opt, j.loss));
        run_threads(4, &(tri_group_options){.engine = "shm"}, mesh_rank, &j);
        CHECK_OK(tri_checkpoint_open(j.folder, &checkpoint));
        CHECK_OK(tri_checkpoint_restore(checkpoint, net, opt));
        tri_checkpoint_close(checkpoint);
        CHECK_OK(tri_module_hash(net, &hash));
        assert_true(hash == j.hash);
        tri_optimizer_destroy(opt);
        tri_module_destroy(net);
        scratch_end(&s);
    }
}

/* --- what is refused ------------------------------------------------------ */

static const char *refused_rank(rank_env *env)
{
    const int ranks = env->size;
    tri_module *net = build_block(3, 2);
    const tri_parallel_rule keys = {.module = "k", .style = TRI_COLWISE, .block = DEPTH};
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    if (ranks == 3) {
        RANK_FAILS(env, tri_parallelize(net, group, &keys, 1), TRI_ERR_INVALID_ARG,
                   "k: 2 blocks of 2 outputs are fewer than 3 ranks, which do not share them "
                   "evenly: 4 ranks would have copies, and up to 2 a part each");
    } else { /* its queries are 3 on each rank, but not in blocks of 2 heads */
        const tri_parallel_rule uneven[] = {
            keys, {.module = "q", .style = TRI_COLWISE, .block = (int64_t)2 * DEPTH}};
        tri_parallel_rule whole = keys;

        whole.output = TRI_WHOLE;
        RANK_FAILS(env, tri_parallelize(net, group, uneven, 2), TRI_ERR_INVALID_ARG,
                   "q, beside k, of which ranks have copies, has 6 blocks of 4 outputs");
        RANK_FAILS(env, tri_parallelize(net, group, &whole, 1), TRI_ERR_INVALID_ARG,
                   "k: 2 blocks of 2 outputs are fewer than 4 ranks");
    }
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

static void copies_that_would_not_fit_are_refused(void **state)
{
    (void)state;
    for (int size = 3; size <= 4; size++)
        run_threads(size, &(tri_group_options){.engine = "shm"}, refused_rank, NULL);
}

/* 3 heads of keys, 2 of them on the first of two ranks, and 12 of queries, 6 on each. */
static const char *parted_rank(rank_env *env)
{
    const bool is_beside = *(bool *)env->arg;
    tri_module *net = build_block(3, 3);
    tri_tensor *x = wave(0), *y;
    tri_parallel_rule rules[] = {
        {.module = "q", .style = TRI_COLWISE, .block = is_beside ? DEPTH : 0},
        {.module = "k", .style = TRI_COLWISE, .block = DEPTH},
        {.module = "v", .style = TRI_COLWISE, .block = DEPTH},
        {.module = "o", .style = TRI_ROWWISE}};
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    if (is_beside) {
        RANK_FAILS(env, tri_parallelize(net, group, rules, 4), TRI_ERR_INVALID_ARG,
                   "q is cut in blocks of 2, and k, beside it, in blocks of 2: heads of queries "
                   "would meet others than those of keys that they share. Blocks of 8");
    } else {
        RANK_TRY(env, tri_parallelize(net, group, rules, 4));
        y = tri_keep(tri_forward(net, x));
        RANK_FAILS(env, tri_tensor_status(y), TRI_ERR_INVALID_ARG,
                   ".block 8, the width of all heads that share one");
        tri_tensor_unref(y);
    }
    tri_tensor_unref(x);
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

static void queries_without_their_keys_are_refused(void **state)
{
    bool is_beside[2] = {false, true};

    (void)state;
    for (int i = 0; i < 2; i++)
        run_threads(2, &(tri_group_options){.engine = "shm"}, parted_rank, &is_beside[i]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shared_keys_and_gated_layers_train_as_one_process),
    cmocka_unit_test(fewer_heads_of_keys_than_ranks_are_copied),
    cmocka_unit_test(copies_count_once_beside_replicas_and_stages),
    cmocka_unit_test(copies_that_would_not_fit_are_refused),
    cmocka_unit_test(queries_without_their_keys_are_refused),
};

TEST_MAIN(tests)
