/* parallelize_sequence_test.c - norms, dropout and residuals on a part of the tokens of each rank:
 * values have the bits that they have without that, and training is that of one process. */
/* ctest: also=TRI_CHECK=order */
#include "testing/cut_ranks.h"
#include "train/graph/step/recorder.h"

#define WORDS 11
#define WIDTH 8
#define BATCH 2
#define LENGTH 7
#define STEPS 4
#define LOGITS (BATCH * LENGTH * WORDS)
#define ALL 900

/* --- the network ---------------------------------------------------------- */

typedef struct block {
    tri_module *embed, *drop0, *norm1, *attention, *norm2, *up, *cut, *down, *drop1, *norm3, *head;
} block;

static tri_tensor *forward(tri_module *self, tri_tensor *words)
{
    block *b = tri_module_data(self);
    tri_tensor *x = tri_forward(b->drop0, tri_forward(b->embed, words)), *y;

    x = tri_add(x, tri_forward(b->attention, tri_forward(b->norm1, x)));
    y = tri_tanh(tri_forward(b->up, tri_forward(b->norm2, x)));
    y = tri_forward(b->down, tri_forward(b->cut, y));
    x = tri_add(x, tri_forward(b->drop1, y));
    return tri_forward(b->head, tri_forward(b->norm3, x));
}

static tri_module *build_block(uint64_t seed)
{
    const tri_nn_multihead_attention_options causal = {.is_causal = true, .dropout = 0.2};
    tri_module *self;
    block *b;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    self = tri_module_simple("block", sizeof(block), forward);
    b = tri_module_data(self);
    b->embed = tri_module_add_child(self, "embed", tri_nn_embedding(WORDS, WIDTH, NULL));
    b->drop0 = tri_module_add_child(self, "drop0", tri_nn_dropout(0.1));
    b->norm1 = tri_module_add_child(self, "norm1", tri_nn_layer_norm(TRI_SHAPE(WIDTH), NULL));
    b->attention =
        tri_module_add_child(self, "attention", tri_nn_multihead_attention(WIDTH, 4, &causal));
    b->norm2 = tri_module_add_child(self, "norm2", tri_nn_rms_norm(TRI_SHAPE(WIDTH), NULL));
    b->up = tri_module_add_child(self, "up", tri_nn_linear(WIDTH, 10, NULL));
    b->cut = tri_module_add_child(self, "cut", tri_nn_dropout(0.3));
    b->down = tri_module_add_child(self, "down", tri_nn_linear(10, WIDTH, NULL));
    b->drop1 = tri_module_add_child(self, "drop1", tri_nn_dropout(0.1));
    b->norm3 = tri_module_add_child(self, "norm3", tri_nn_layer_norm(TRI_SHAPE(WIDTH), NULL));
    b->head = tri_module_add_child(self, "head", tri_nn_linear(WIDTH, WORDS, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    tri_manual_seed(11);
    trii_mutex_unlock(&drawing);
    return self;
}

static const tri_parallel_rule by_tokens[] = {
    {.module = "embed", .style = TRI_ROWWISE, .output = TRI_SHARDED_SEQUENCE},
    {.module = "norm*", .style = TRI_SEQUENCE},
    {.module = "drop*", .style = TRI_SEQUENCE},
    {.module = "cut", .style = TRI_COLWISE},
    {.module = "attention",
     .style = TRI_HEADS,
     .input = TRI_SHARDED_SEQUENCE,
     .output = TRI_SHARDED_SEQUENCE},
    {.module = "up", .style = TRI_COLWISE, .input = TRI_SHARDED_SEQUENCE},
    {.module = "down", .style = TRI_ROWWISE, .output = TRI_SHARDED_SEQUENCE},
    {.module = "head", .style = TRI_COLWISE, .input = TRI_SHARDED_SEQUENCE, .output = TRI_WHOLE}};
#define N_BY_TOKENS 8

static const tri_parallel_rule whole[] = {
    {.module = "embed", .style = TRI_ROWWISE},
    {.module = "attention", .style = TRI_HEADS},
    {.module = "up", .style = TRI_COLWISE},
    {.module = "cut", .style = TRI_COLWISE},
    {.module = "down", .style = TRI_ROWWISE},
    {.module = "head", .style = TRI_COLWISE, .output = TRI_WHOLE}};
#define N_WHOLE 6

static tri_tensor *words(int first, int n, int length, int shift)
{
    int64_t data[BATCH * LENGTH];

    for (int i = 0; i < n * length; i++) {
        int64_t at = first * length + i + shift;

        data[i] = (5 * at * at + 3 * at + 1) % WORDS;
    }
    return tri_tensor_from(TRI_SHAPE(n, length), TRI_DTYPE_I64, data);
}

static tri_tensor *loss_of(tri_module *model, tri_tensor *x, tri_tensor *y)
{
    return tri_cross_entropy(tri_reshape(tri_forward(model, x), TRI_SHAPE(-1, WORDS)),
                             tri_flatten(y, 0), NULL);
}

/* --- as one process ------------------------------------------------------- */

typedef struct job {
    int length, n_data; /* n_data 0: no mesh, with two ranks along the other axis else */
    bool is_sharded;    /* along data: stage 3 of ZeRO */
    double want[ALL], losses[STEPS];
    double got[RANKS_MAX][ALL];
    bool is_whole[ALL];
} job;

/* Each step adds up the gradients of two passes over all rows. */
static tri_status train(const job *j, tri_module *model, int first, int n, double *losses)
{
    tri_optimizer *opt = tri_sgd(model, 0.5, &(tri_sgd_options){.momentum = 0.9});
    tri_tensor *x = words(first, n, j->length, 0), *y = words(first, n, j->length, 1);
    tri_status status = TRI_OK;

    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_tensor *loss = tri_keep(loss_of(model, x, y));

        if (j->n_data > 0)
            tri_ddp_no_sync_begin(model);
        tri_backward(loss);
        if (j->n_data > 0)
            tri_ddp_no_sync_end(model);
        tri_backward(loss_of(model, x, y));
        (void)tri_clip_grad_norm(opt, 0.7);
        status = update_and_read(opt, loss, &losses[s]);
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    return status;
}

static const char *train_rank(rank_env *env)
{
    job *j = env->arg;
    tri_group *world = NULL, *tensor;
    tri_mesh *mesh = NULL;
    tri_module *model = build_block(env->rank == 0 ? 3 : 40);
    double losses[STEPS], *got = j->got[env->rank];
    bool is_whole[ALL] = {false};
    const char *wrong = NULL;
    int data = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &world));
    tensor = world;
    if (j->n_data > 0) {
        RANK_TRY(env, tri_mesh_create(world, TRI_SHAPE(j->n_data, 2),
                                      (const char *[]){"data", "tensor"}, &mesh));
        tensor = tri_mesh_group(mesh, "tensor");
        data = tri_mesh_coordinate(mesh, "data");
    }
    RANK_TRY(env, tri_parallelize(model, tensor, by_tokens, N_BY_TOKENS));
    tri_module_train(model, j->n_data == 0); /* dropout is of another stream on each rank of data */
    if (mesh != NULL)
        model =
            j->is_sharded
                ? tri_fully_shard(model, &(tri_zero_options){.group = tri_mesh_group(mesh, "data")})
                : tri_ddp(model, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
    RANK_TRY(env, train(j, model, data, mesh != NULL ? 1 : BATCH, losses));
    if (mesh == NULL)
        wrong = far_from(env, "loss", losses, j->losses, STEPS);
    memcpy(got, j->want, sizeof(j->want));
    RANK_TRY(env, put(model, got, is_whole));
    if (env->rank == 0)
        memcpy(j->is_whole, is_whole, sizeof(is_whole));
    if (wrong == NULL)
        wrong = far_from(env, "weight", got, j->want, ALL);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    tri_group_unref(world);
    return wrong;
}

static void train_on(job *j, int least, int most)
{
    tri_module *net = build_block(3);
    bool is_whole[ALL];
    int n_data = j->n_data;

    tri_module_train(net, n_data == 0);
    j->n_data = 0;
    CHECK_OK(train(j, net, 0, BATCH, j->losses));
    j->n_data = n_data;
    CHECK_OK(put(net, j->want, is_whole));
    tri_module_destroy(net);
    for (int size = least; size <= most; size++) {
        run_threads(size, &(tri_group_options){.engine = "shm"}, train_rank, j);
        for (int i = 0; i < ALL; i++) { /* the same bits of what all ranks have */
            for (int r = 1; r < size && j->is_whole[i]; r++)
                assert_memory_equal(&j->got[r][i], &j->got[0][i], sizeof(double));
        }
    }
}

static void parts_of_sequences_train_as_one_process(void **state)
{
    static job j;

    (void)state;
    j = (job){.length = LENGTH};
    train_on(&j, 2, 4);
    j = (job){.length = 1}; /* where most ranks have none */
    train_on(&j, 3, 3);
}

static void replicas_add_norms_up_once(void **state)
{
    static job j;

    (void)state;
    for (int k = 0; k < 2; k++) {
        j = (job){.length = LENGTH, .n_data = 2, .is_sharded = k == 1};
        train_on(&j, 4, 4);
    }
}

/* --- bits ----------------------------------------------------------------- */

static const char *bits_rank(rank_env *env)
{
    tri_group *group = NULL;
    double got[2][LOGITS + 1];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int length = LENGTH - 1; length <= LENGTH; length++) {
        for (int k = 0; k < 2; k++) {
            tri_module *model = build_block(3);
            tri_tensor *x = words(0, BATCH, length, 0), *y = words(0, BATCH, length, 1);
            tri_tensor *few = words(0, BATCH, length - 4, 0); /* in the same step */
            size_t bytes = sizeof(double) * (size_t)(BATCH * length * WORDS);

            RANK_TRY(env, tri_parallelize(model, group, k == 0 ? whole : by_tokens,
                                          k == 0 ? N_WHOLE : N_BY_TOKENS));
            RANK_TRY(env, tri_tensor_copy_out(tri_forward(model, x), got[k], bytes));
            RANK_TRY(env, tri_item_status(tri_add(loss_of(model, x, y), loss_of(model, few, few)),
                                          &got[k][LOGITS]));
            RANK_TRY(env, tri_step_end_status());
            tri_tensor_unref(few);
            tri_tensor_unref(x);
            tri_tensor_unref(y);
            tri_module_destroy(model);
        }
        for (int i = 0; i < BATCH * length * WORDS; i++) {
            if (memcmp(&got[0][i], &got[1][i], sizeof(double)) != 0)
                return RANK_FAIL(env, "logit %d of %d tokens is %.17g, not %.17g", i, length,
                                 got[1][i], got[0][i]);
        }
        if (memcmp(&got[0][LOGITS], &got[1][LOGITS], sizeof(double)) != 0)
            return RANK_FAIL(env, "the loss has other bits");
    }
    tri_group_unref(group);
    return NULL;
}

static void values_have_the_bits_of_whole_sequences(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        run_threads(size, &(tri_group_options){.engine = "shm"}, bits_rank, NULL);
}

/* --- masks ---------------------------------------------------------------- */

#define N_MASK (3 * 8 * 12)

static void draw(const int64_t *shape, tri_dtype dtype, const trii_random_part *part, double *to)
{
    tri_tensor *ones = tri_full(shape, 3, 1, dtype), *y;

    tri_manual_seed(7);
    trii_recorder_of(trii_step_current())->scopes.random_part = part;
    y = tri_cast(tri_dropout(ones, 0.4, true), TRI_DTYPE_F64);
    trii_recorder_of(trii_step_current())->scopes.random_part = NULL;
    CHECK_OK(tri_tensor_copy_out(y, to, sizeof(double) * (size_t)(shape[0] * shape[1] * shape[2])));
    CHECK_OK(tri_step_end_status());
}

/* Of 8 tokens, or 12 features, the third one and so on; blocks of the mask are of four elements. */
static void masks_are_those_of_the_whole(void **state)
{
    static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BF16};
    static const trii_random_part parts[] = {
        {.dim = 1, .parts = 1, .whole = 8, .start = 2, .n = 3},
        {.dim = -1, .parts = 1, .whole = 12, .start = 4, .n = 8},
        {.dim = -1, .parts = 1, .whole = 12, .start = 3, .n = 2},
        {.dim = -1, .parts = 3, .whole = 4, .start = 1, .n = 2},
        {.dim = 1, .parts = 1, .whole = 8, .start = 8, .n = 0}};
    static double all[N_MASK], part[N_MASK];

    (void)state;
    for (int d = 0; d < 3; d++) {
        draw((const int64_t[]){3, 8, 12}, dtypes[d], NULL, all);
        for (int k = 0; k < 5; k++) {
            const trii_random_part *p = &parts[k];
            int64_t n = p->parts * p->n, length = p->dim == 1 ? n : 8, width = p->dim == 1 ? 12 : n;

            draw((const int64_t[]){3, length, width}, dtypes[d], p, part);
            for (int64_t i = 0; i < 3 * length * width; i++) {
                int64_t b = i / (length * width), t = i / width % length, f = i % width;
                int64_t *at = p->dim == 1 ? &t : &f;

                *at = *at / p->n * p->whole + p->start + *at % p->n;
                assert_true(part[i] == all[(b * 8 + t) * 12 + f]);
            }
        }
    }
}

/* --- values on their way in and out --------------------------------------- */

/* What it gets, times two: of this rank's part. */
static tri_tensor *twice(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_mul_scalar(x, 2);
}

static const char *prepared_rank(rank_env *env)
{
    static const tri_parallel_value layouts[] = {TRI_WHOLE, TRI_SHARDED, TRI_SHARDED_SEQUENCE};
    tri_group *group = NULL;
    double data[2 * 5 * 6], got[2 * 5 * 6];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int i = 0; i < 60; i++)
        data[i] = 1 + i;
    for (int k = 0; k < 3; k++) {
        tri_module *own = tri_module_simple("twice", 0, twice);
        tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 5, 6), TRI_DTYPE_F64, data);
        tri_tensor *y;

        tri_requires_grad(x, true);
        RANK_TRY(env, tri_parallelize(own, group,
                                      (tri_parallel_rule[]){{.module = "",
                                                             .style = TRI_PREPARE,
                                                             .input = TRI_WHOLE,
                                                             .wanted_input = layouts[k],
                                                             .output = layouts[k],
                                                             .wanted_output = TRI_WHOLE}},
                                      1));
        y = tri_keep(tri_forward(own, x));
        tri_backward(tri_sum(tri_mul(y, x), NULL, 0, false));
        RANK_TRY(env, tri_tensor_copy_out(y, got, sizeof(got)));
        for (int i = 0; i < 60; i++) {
            if (got[i] != 2 * data[i])
                return RANK_FAIL(env, "layout %d: %g, not %g", k, got[i], 2 * data[i]);
        }
        RANK_TRY(env, tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
        for (int i = 0; i < 60; i++) {
            if (got[i] != 4 * data[i])
                return RANK_FAIL(env, "layout %d: a gradient of %g, not %g", k, got[i],
                                 4 * data[i]);
        }
        RANK_TRY(env, tri_step_end_status());
        tri_tensor_unref(x);
        tri_module_destroy(own);
    }
    tri_group_unref(group);
    return NULL;
}

static void inputs_and_outputs_are_prepared(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++)
        run_threads(size, &(tri_group_options){.engine = "shm"}, prepared_rank, NULL);
}

/* --- what is refused ------------------------------------------------------ */

static const char *refused_rank(rank_env *env)
{
    const struct {
        tri_parallel_rule rule;
        const char *why;
    } wrong[] = {
        {{.module = "up", .style = TRI_SEQUENCE}, "a Linear has parameters or buffers"},
        {{.module = "norm1", .style = TRI_SEQUENCE, .input = TRI_SHARDED}, "TRI_SEQUENCE takes"},
        {{.module = "norm1", .style = TRI_SEQUENCE, .wanted_input = TRI_WHOLE}, "TRI_PREPARE's"},
        {{.module = "norm1", .style = TRI_SEQUENCE, .dim = TRI_SET(9)}, "dim 9: tensors have"},
        {{.module = "up", .style = TRI_COLWISE, .output = TRI_SHARDED_SEQUENCE},
         "is what TRI_COLWISE takes and TRI_ROWWISE gives"},
        {{.module = "down", .style = TRI_ROWWISE, .input = TRI_SHARDED_SEQUENCE},
         "is what TRI_COLWISE takes and TRI_ROWWISE gives"},
        {{.module = "embed", .style = TRI_COLWISE, .output = TRI_SHARDED_SEQUENCE},
         "gives TRI_SHARDED or TRI_WHOLE"},
        {{.module = "up", .style = TRI_PREPARE}, "says what comes and what is wanted"},
        {{.module = "up", .style = TRI_PREPARE, .input = TRI_WHOLE}, "says what comes"},
    };
    tri_group *group = NULL, *again = NULL;
    tri_module *net = build_block(3);
    tri_tensor *x, *y;
    double number;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        RANK_FAILS(env, tri_parallelize(net, group, &wrong[i].rule, 1), TRI_ERR_INVALID_ARG,
                   wrong[i].why);
    RANK_FAILS(
        env,
        tri_parallelize(net, group,
                        (tri_parallel_rule[]){
                            {.module = "norm1", .style = TRI_SEQUENCE, .dim = TRI_SET(env->rank)}},
                        1),
        TRI_ERR_MISMATCH, "norm1 by tokens");
    tri_module_destroy(net);
    /* where tokens are: the collective that such a value goes into gives up its group */
    for (int k = 0; k < 2; k++) {
        RANK_TRY(env, tri_group_split(group, 0, 0, NULL, &again));
        net = build_block(3);
        RANK_TRY(env, tri_parallelize(net, again, by_tokens, N_BY_TOKENS));
        x = tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_I64, (int64_t[]){1, 2, 3});
        y = words(0, 1, k == 0 ? 4 : 5, 0);
        if (k == 1) { /* two lengths in a step, one of which is uneven */
            (void)tri_forward(net, y);
            tri_tensor_unref(y);
            y = words(0, 1, 6, 0);
        }
        RANK_FAILS(
            env,
            tri_item_status(tri_sum(tri_forward(net, k == 0 ? x : y), NULL, 0, false), &number),
            k == 0 ? TRI_ERR_INVALID_ARG : TRI_ERR_UNSUPPORTED,
            k == 0 ? "no dimension 1 of tokens before its last" : "sequences of 5 and of 6 tokens");
        tri_step_end();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
        tri_module_destroy(net);
        tri_group_unref(again);
    }
    RANK_TRY(env, ranks_meet(env, "end", -1));
    tri_group_unref(group);
    return NULL;
}

static void what_is_no_sequence_is_refused(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm"}, refused_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parts_of_sequences_train_as_one_process),
    cmocka_unit_test(replicas_add_norms_up_once),
    cmocka_unit_test(values_have_the_bits_of_whole_sequences),
    cmocka_unit_test(masks_are_those_of_the_whole),
    cmocka_unit_test(inputs_and_outputs_are_prepared),
    cmocka_unit_test(what_is_no_sequence_is_refused),
};

TEST_MAIN(tests)
