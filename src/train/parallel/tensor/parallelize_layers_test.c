/* parallelize_layers_test.c - embeddings by words and by columns, attention by heads, and cross
 * entropy of scores that are cut: as one process. */
/* ctest: also=TRI_CHECK=order */
#include "testing/cut_ranks.h"

#define WORDS 11
#define WIDTH 8
#define HEADS 4
#define BATCH 3
#define LENGTH 4
#define STEPS 4

typedef struct tiny {
    tri_module *embed, *attention, *norm, *head;
} tiny;

typedef struct job {
    const tri_parallel_rule *rules;
    int n_rules;
    bool is_cut; /* scores are */
    tri_reduction reduction;
    tri_opt ignore;
    double smoothing;
    bool weighs; /* classes weigh differently */
    int n_data;  /* 0: no mesh, with two ranks along the other axis else */
    double want[NUMBERS + 100], losses[STEPS];
} job;

/* --- the network ---------------------------------------------------------- */

static tri_tensor *forward(tri_module *self, tri_tensor *words)
{
    tiny *t = tri_module_data(self);
    tri_tensor *x = tri_forward(t->embed, words);

    x = tri_add(x, tri_forward(t->attention, x));
    return tri_forward(t->head, tri_forward(t->norm, x));
}

static tri_module *build_tiny(uint64_t seed)
{
    const tri_embedding_options padding = {.padding_idx = TRI_SET(2)};
    const tri_nn_multihead_attention_options causal = {.is_causal = true};
    tri_module *self;
    tiny *t;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    self = tri_module_simple("tiny", sizeof(tiny), forward);
    t = tri_module_data(self);
    t->embed = tri_module_add_child(self, "embed", tri_nn_embedding(WORDS, WIDTH, &padding));
    t->attention =
        tri_module_add_child(self, "attention", tri_nn_multihead_attention(WIDTH, HEADS, &causal));
    t->norm = tri_module_add_child(self, "norm", tri_nn_layer_norm(TRI_SHAPE(WIDTH), NULL));
    t->head = tri_module_add_child(self, "head", tri_nn_linear(WIDTH, WORDS, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return self;
}

/* Rows first, .. of the batch, shifted by one for targets. */
static tri_tensor *words(int first, int n, int shift)
{
    int64_t data[BATCH * LENGTH];

    for (int i = 0; i < n * LENGTH; i++) {
        int64_t at = first * LENGTH + i + shift;

        data[i] = (5 * at * at + 3 * at + 1) % WORDS;
    }
    return tri_tensor_from(TRI_SHAPE(n, LENGTH), TRI_DTYPE_I64, data);
}

static tri_tensor *loss_of(const job *j, tri_tensor *logits, tri_tensor *target, tri_group *group)
{
    double weights[WORDS];
    tri_cross_entropy_options opt = {
        .ignore_index = j->ignore, .reduction = j->reduction, .label_smoothing = j->smoothing};
    tri_tensor *loss;

    for (int i = 0; i < WORDS; i++)
        weights[i] = 0.3 + 0.2 * i;
    if (j->weighs)
        opt.weight = tri_tensor_from(TRI_SHAPE(WORDS), TRI_DTYPE_F64, weights);

    logits = tri_reshape(logits, TRI_SHAPE(-1, tri_tensor_size(logits, -1)));
    target = tri_flatten(target, 0);
    loss = group != NULL && j->is_cut ? tri_dist_cross_entropy(logits, target, WORDS, group, &opt)
                                      : tri_cross_entropy(logits, target, &opt);
    tri_tensor_unref(opt.weight);
    return j->reduction == TRI_REDUCTION_NONE ? tri_sum(tri_mul_scalar(loss, 0.1), NULL, 0, false)
                                              : loss;
}

static tri_status train(const job *j, tri_module *model, tri_group *group, int first, int n,
                        double *losses)
{
    tri_optimizer *opt = tri_sgd(model, j->reduction == TRI_REDUCTION_SUM ? 0.02 : 0.3, NULL);
    tri_tensor *x = words(first, n, 0), *y = words(first, n, 1);
    tri_status status = TRI_OK;

    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_tensor *loss = tri_keep(loss_of(j, tri_forward(model, x), y, group));

        tri_backward(loss);
        status = update_and_read(opt, loss, &losses[s]);
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    return status;
}

/* --- as one process ------------------------------------------------------- */

static const char *train_rank(rank_env *env)
{
    job *j = env->arg;
    tri_group *world = NULL, *tensor;
    tri_mesh *mesh = NULL;
    tri_module *model = build_tiny(env->rank == 0 ? 3 : 40);
    double losses[STEPS], got[NUMBERS + 100];
    bool is_whole[NUMBERS + 100];
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
    RANK_TRY(env, tri_parallelize(model, tensor, j->rules, j->n_rules));
    if (mesh != NULL) {
        model = tri_ddp(model, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
        RANK_TRY(env, train(j, model, tensor, data * 2, data == 0 ? 2 : 1, losses));
    } else {
        RANK_TRY(env, train(j, model, tensor, 0, BATCH, losses));
        wrong = far_from(env, "loss", losses, j->losses, STEPS);
    }
    memcpy(got, j->want, sizeof(got));
    RANK_TRY(env, put(model, got, is_whole));
    if (wrong == NULL)
        wrong = far_from(env, "weight", got, j->want, NUMBERS + 100);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    tri_group_unref(world);
    return wrong;
}

static void train_on(job *j, int least, int most)
{
    tri_module *net = build_tiny(3);
    bool is_whole[NUMBERS + 100];

    CHECK_OK(train(j, net, NULL, 0, BATCH, j->losses));
    CHECK_OK(put(net, j->want, is_whole));
    tri_module_destroy(net);
    for (int size = least; size <= most; size++)
        run_threads(size, &(tri_group_options){.engine = "shm"}, train_rank, j);
}

static void embeddings_train_as_one_process(void **state)
{
    static const tri_parallel_rule by_words[] = {{.module = "embed", .style = TRI_ROWWISE}};
    static const tri_parallel_rule by_columns[] = {
        {.module = "embed", .style = TRI_COLWISE, .output = TRI_WHOLE}};
    static job j;

    (void)state;
    j = (job){.rules = by_words, .n_rules = 1};
    train_on(&j, 1, 4);
    j = (job){.rules = by_columns, .n_rules = 1};
    train_on(&j, 2, 3);
}

static void heads_train_as_one_process(void **state)
{
    static const tri_parallel_rule rules[] = {{.module = "attention", .style = TRI_HEADS}};
    static job j;

    (void)state;
    j = (job){.rules = rules, .n_rules = 1};
    train_on(&j, 1, 4);
}

static const tri_parallel_rule all[] = {{.module = "embed", .style = TRI_ROWWISE},
                                        {.module = "attention", .style = TRI_HEADS},
                                        {.module = "head", .style = TRI_COLWISE}};

static void scores_that_are_cut_have_the_loss_of_whole_ones(void **state)
{
    static const struct {
        tri_reduction reduction;
        int ignored; /* -1: none */
        double smoothing;
        bool weighs;
    } cases[] = {{TRI_REDUCTION_MEAN, -1, 0, false},  {TRI_REDUCTION_MEAN, 0, 0, false},
                 {TRI_REDUCTION_SUM, 1, 0, false},    {TRI_REDUCTION_NONE, 1, 0, false},
                 {TRI_REDUCTION_MEAN, 1, 0.2, false}, {TRI_REDUCTION_MEAN, 1, 0, true},
                 {TRI_REDUCTION_SUM, -1, 0.2, true},  {TRI_REDUCTION_NONE, 1, 0.2, true}};
    static job j;

    (void)state;
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        j = (job){.rules = all,
                  .n_rules = 3,
                  .is_cut = true,
                  .reduction = cases[k].reduction,
                  .ignore = cases[k].ignored >= 0 ? TRI_SET(cases[k].ignored) : TRI_DEFAULT,
                  .smoothing = cases[k].smoothing,
                  .weighs = cases[k].weighs};
        train_on(&j, k == 0 ? 2 : 3, k == 0 ? 4 : 3);
    }
}

/* Of which each rank of the data has another number of ignored targets. */
static void replicas_count_the_samples_of_scores_that_are_cut(void **state)
{
    static job j;

    (void)state;
    j = (job){.rules = all, .n_rules = 3, .is_cut = true, .ignore = TRI_SET(1), .n_data = 2};
    train_on(&j, 4, 4);
}

/* --- bits, and what is refused -------------------------------------------- */

static const char *bits_rank(rank_env *env)
{
    static const tri_parallel_rule rule = {.module = "", .style = TRI_ROWWISE};
    tri_group *group = NULL;
    tri_module *whole, *cut;
    tri_tensor *x = words(0, BATCH, 0), *wrong = NULL;
    double want[BATCH * LENGTH * WIDTH], got[BATCH * LENGTH * WIDTH];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    trii_mutex_lock(&drawing);
    tri_set_default_dtype(TRI_DTYPE_F64);
    tri_manual_seed(1);
    whole = tri_nn_embedding(WORDS, WIDTH, NULL);
    tri_manual_seed(1);
    cut = tri_nn_embedding(WORDS, WIDTH, NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    RANK_TRY(env, tri_parallelize(cut, group, &rule, 1));
    RANK_TRY(env, tri_tensor_copy_out(tri_forward(whole, x), want, sizeof(want)));
    RANK_TRY(env, tri_tensor_copy_out(tri_forward(cut, x), got, sizeof(got)));
    tri_step_end();
    if (memcmp(want, got, sizeof(got)) != 0)
        return RANK_FAIL(env, "words have other bits");
    RANK_TRY(env, ranks_meet(env, "bits", -1));
    wrong = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, (const int64_t[]){WORDS});
    if (tri_tensor_copy_out(tri_forward(cut, wrong), got, WIDTH * sizeof(double)) == TRI_OK)
        return RANK_FAIL(env, "a word that there is not was found");
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "end", -1));
    tri_tensor_unref(wrong);
    tri_tensor_unref(x);
    tri_module_destroy(whole);
    tri_module_destroy(cut);
    tri_group_unref(group);
    return NULL;
}

static void words_have_the_bits_of_one_process(void **state)
{
    (void)state;
    run_threads(3, &(tri_group_options){.engine = "shm"}, bits_rank, NULL);
}

/* What gives parts of the features: of 7, of which two ranks have 4 and 3. */
static const tri_parallel_rule givers[] = {
    {.module = "0", .style = TRI_COLWISE},
    {.module = "0", .style = TRI_ROWWISE, .output = TRI_SHARDED},
    {.module = "1", .style = TRI_ROWWISE, .input = TRI_WHOLE, .output = TRI_SHARDED},
    {.module = "1", .style = TRI_PREPARE, .output = TRI_WHOLE, .wanted_output = TRI_SHARDED}};

typedef struct masks {
    int giver;
    double want[BATCH * LENGTH * 2];
} masks;

static tri_module *build_masked(int giver)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(3);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(tri_nn_embedding(WORDS, 7, NULL),
                            giver < 2 ? tri_nn_identity() : tri_nn_linear(7, 7, NULL),
                            tri_nn_dropout(0.5), tri_nn_linear(7, 2, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    tri_manual_seed(11);
    trii_mutex_unlock(&drawing);
    return net;
}

static const char *masks_rank(rank_env *env)
{
    const masks *m = env->arg;
    const tri_parallel_rule rules[] = {givers[m->giver],
                                       {.module = "2", .style = TRI_COLWISE},
                                       {.module = "3", .style = TRI_ROWWISE}};
    tri_module *net = build_masked(m->giver);
    tri_tensor *x = words(0, BATCH, 0);
    double got[BATCH * LENGTH * 2];
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, rules, 3));
    RANK_TRY(env, tri_tensor_copy_out(tri_forward(net, x), got, sizeof(got)));
    tri_step_end();
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return far_from(env, "result", got, m->want, BATCH * LENGTH * 2);
}

static void masks_of_features_are_those_of_one_process(void **state)
{
    (void)state;
    for (int k = 0; k < (int)TRII_COUNT_OF(givers); k++) {
        masks m = {.giver = k};
        tri_module *net = build_masked(k);
        tri_tensor *x = words(0, BATCH, 0);

        CHECK_OK(tri_tensor_copy_out(tri_forward(net, x), m.want, sizeof(m.want)));
        tri_step_end();
        tri_module_destroy(net);
        tri_tensor_unref(x);
        run_threads(2, &(tri_group_options){.engine = "shm"}, masks_rank, &m);
    }
}

static const char *refused_rank(rank_env *env)
{
    static const tri_parallel_rule wrong[][2] = {
        {{.module = "head", .style = TRI_HEADS}},
        {{.module = "attention", .style = TRI_COLWISE}},
        {{.module = "attention", .style = TRI_HEADS}},
        {{.module = "attention", .style = TRI_HEADS, .block = 2}},
        {{.module = "attention", .style = TRI_HEADS},
         {.module = "attention.out_proj", .style = TRI_ROWWISE}},
        {{.module = "embed", .style = TRI_ROWWISE, .input = TRI_SHARDED}},
        {{.module = "embed", .style = TRI_HEADS}}};
    static const char *const why[] = {"a Linear has no heads",
                                      "a MultiheadAttention cannot be cut by columns",
                                      "4 blocks of 2 outputs are fewer than 5 ranks",
                                      "leave them out",
                                      "both name attention.out_proj",
                                      "takes whole indices",
                                      "a Embedding has no heads"};
    const tri_cross_entropy_options smooth = {.label_smoothing = 1.1};
    tri_group *group = NULL, *other = NULL;
    tri_tensor *logits = tri_tensor_create(TRI_SHAPE(2, 3), TRI_DTYPE_F32);
    tri_tensor *target = tri_tensor_create(TRI_SHAPE(2), TRI_DTYPE_I64), *loss;
    tri_module *net = build_tiny(3);

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int i = 0; i < 7; i++)
        RANK_FAILS(env, tri_parallelize(net, group, wrong[i], wrong[i][1].module != NULL ? 2 : 1),
                   TRI_ERR_INVALID_ARG, why[i]);
    tri_module_destroy(net);
    for (int i = 0; i < 4; i++) { /* each aborts its group */
        RANK_TRY(env, tri_group_split(group, env->rank, 0, NULL, &other));
        loss = i == 0   ? tri_dist_cross_entropy(logits, target, 3, other, &smooth)
               : i == 1 ? tri_dist_cross_entropy(logits, target, 4, other, NULL)
               : i == 2 ? tri_dist_cross_entropy(logits, logits, 3, other, NULL)
                        : tri_dist_cross_entropy(NULL, target, 3, other, NULL);
        RANK_FAILS(env, tri_tensor_status(loss), TRI_ERR_INVALID_ARG,
                   i == 0   ? "label_smoothing"
                   : i == 1 ? "this rank's part of 4 classes"
                   : i == 2 ? "must be i64"
                            : "logits is NULL");
        tri_step_end();
        tri_group_unref(other);
    }
    RANK_TRY(env, ranks_meet(env, "end", -1));
    tri_tensor_unref(logits);
    tri_tensor_unref(target);
    tri_group_unref(group);
    return NULL;
}

static void other_layers_and_losses_are_refused(void **state)
{
    (void)state;
    run_threads(5, &(tri_group_options){.engine = "shm"}, refused_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(embeddings_train_as_one_process),
    cmocka_unit_test(heads_train_as_one_process),
    cmocka_unit_test(scores_that_are_cut_have_the_loss_of_whole_ones),
    cmocka_unit_test(replicas_count_the_samples_of_scores_that_are_cut),
    cmocka_unit_test(words_have_the_bits_of_one_process),
    cmocka_unit_test(masks_of_features_are_those_of_one_process),
    cmocka_unit_test(other_layers_and_losses_are_refused),
};

TEST_MAIN(tests)
