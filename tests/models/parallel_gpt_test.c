/* parallel_gpt_test.c - GPT-2 whose heads and layers are cut over ranks (tri_parallelize) trains as
 * one process does, and its checkpoints move between numbers of ranks. */
#include <math.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/scratch.h"
#include "testing/train_ranks.h"

#define ROWS 3
#define TOKENS 5
#define VOCABULARY 11
#define HEADS 4
#define WIDTH 12
#define STEPS 10

static trii_mutex drawing = TRII_MUTEX_INITIALIZER; /* the seed is the process's */

typedef struct job {
    const tri_parallel_rule *rules;
    int n_rules;
    bool cut_scores;
    char folder[256]; /* "": no checkpoint */
    bool is_saved;
    double losses[2 * STEPS];
} job;

static tri_module *build(uint64_t seed)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_model_gpt2(&(tri_model_gpt2_options){.layers = 2,
                                                   .width = WIDTH,
                                                   .heads = HEADS,
                                                   .context = 6,
                                                   .vocabulary = VOCABULARY,
                                                   .dropout = 0.1});
    tri_set_default_dtype(TRI_DTYPE_F32);
    tri_manual_seed(11);
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_tensor *tokens(int shift)
{
    int64_t data[ROWS * TOKENS];

    for (int i = 0; i < ROWS * TOKENS; i++)
        data[i] = (7 * (i + shift) * (i + shift) + i) % VOCABULARY;
    return tri_tensor_from(TRI_SHAPE(ROWS, TOKENS), TRI_DTYPE_I64, data);
}

/* cut_over: NULL, or scores are cut over this group. */
static tri_status train(tri_module *net, tri_optimizer *opt, tri_group *cut_over, double *losses)
{
    tri_tensor *x = tokens(0), *y = tokens(1);
    tri_status status = TRI_OK;

    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_tensor *logits = tri_reshape(tri_forward(net, x), TRI_SHAPE(ROWS * TOKENS, -1));
        tri_tensor *loss;

        loss = cut_over == NULL
                   ? tri_cross_entropy(logits, tri_flatten(y, 0), NULL)
                   : tri_dist_cross_entropy(logits, tri_flatten(y, 0), VOCABULARY, cut_over, NULL);
        loss = tri_keep(loss);

        tri_backward(loss);
        (void)tri_clip_grad_norm(opt, 0.7);
        status = update_and_read(opt, loss, &losses[s]);
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static const tri_parallel_rule rules[] = {
    {.module = "h.*.attn.c_attn", .style = TRI_COLWISE, .parts = 3, .block = WIDTH / HEADS},
    {.module = "h.*.attn.c_proj", .style = TRI_ROWWISE, .block = WIDTH / HEADS},
    {.module = "h.*.mlp.c_fc", .style = TRI_COLWISE},
    {.module = "h.*.mlp.c_proj", .style = TRI_ROWWISE}};

/* Also of the table of words, which the head shares, and by tokens where layers are whole. */
static const tri_parallel_rule all[] = {
    {.module = "wte", .style = TRI_ROWWISE},
    {.module = "drop", .style = TRI_SEQUENCE, .input = TRI_WHOLE},
    {.module = "h.*.ln_*", .style = TRI_SEQUENCE},
    {.module = "h.*.*.dropout", .style = TRI_SEQUENCE},
    {.module = "h.*.attn.c_attn",
     .style = TRI_COLWISE,
     .parts = 3,
     .block = WIDTH / HEADS,
     .input = TRI_SHARDED_SEQUENCE},
    {.module = "h.*.attn.c_proj",
     .style = TRI_ROWWISE,
     .block = WIDTH / HEADS,
     .output = TRI_SHARDED_SEQUENCE},
    {.module = "h.*.mlp.c_fc", .style = TRI_COLWISE, .input = TRI_SHARDED_SEQUENCE},
    {.module = "h.*.mlp.c_proj", .style = TRI_ROWWISE, .output = TRI_SHARDED_SEQUENCE},
    {.module = "ln_f", .style = TRI_SEQUENCE, .output = TRI_WHOLE}};
#define N_ALL 9

static const char *compare(rank_env *env, const double *got, const double *want)
{
    for (int s = 0; s < STEPS; s++) {
        if (!(fabs(got[s] - want[s]) <= 1e-9))
            return RANK_FAIL(env, "rank %d of %d: loss %d is %.12g, not %.12g", env->rank,
                             env->size, s, got[s], want[s]);
    }
    return NULL;
}

static const char *gpt_rank(rank_env *env)
{
    job *j = env->arg;
    tri_module *net = build(env->rank == 0 ? 3 : 9);
    tri_group *group = NULL;
    tri_optimizer *opt;
    tri_checkpoint *checkpoint = NULL;
    double losses[STEPS];
    const char *wrong = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, j->rules, j->n_rules));
    opt = tri_adamw(net, 0.02, NULL);
    if (!j->is_saved) {
        RANK_TRY(env, train(net, opt, j->cut_scores ? group : NULL, losses));
        wrong = compare(env, losses, j->losses);
    }
    if (wrong == NULL && j->folder[0] != '\0' && !j->is_saved)
        RANK_TRY(env,
                 tri_checkpoint_save(j->folder, net, opt, &(tri_checkpoint_info){.step = 1}, NULL));
    if (j->is_saved) {
        RANK_TRY(env, tri_checkpoint_open(j->folder, &checkpoint));
        RANK_TRY(env, tri_checkpoint_restore(checkpoint, net, opt));
        tri_checkpoint_close(checkpoint);
        RANK_TRY(env, train(net, opt, j->cut_scores ? group : NULL, losses));
        wrong = compare(env, losses, j->losses + STEPS);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_group_unref(group);
    return wrong;
}

static void one_process(job *j)
{
    tri_module *net = build(3);
    tri_optimizer *opt = tri_adamw(net, 0.02, NULL);

    *j = (job){.rules = rules, .n_rules = 4};
    CHECK_OK(train(net, opt, NULL, j->losses));
    CHECK_OK(train(net, opt, NULL, j->losses + STEPS));
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

static void heads_over_ranks_train_as_one_process(void **state)
{
    static job j;

    (void)state;
    one_process(&j);
    for (int size = 1; size <= 4; size++)
        run_threads(size, &(tri_group_options){.engine = "shm"}, gpt_rank, &j);
}

static void the_table_of_words_is_cut_with_the_head(void **state)
{
    static job j;

    (void)state;
    one_process(&j);
    j.rules = all;
    j.n_rules = N_ALL;
    j.cut_scores = true;
    for (int size = 2; size <= 3; size++)
        run_threads(size, &(tri_group_options){.engine = "shm"}, gpt_rank, &j);
}

/* --- who reads what is cut ------------------------------------------------ */

static tri_tensor *reads_its_child(tri_module *self, tri_tensor *x)
{
    tri_module *child = tri_module_submodule(self, "child");

    return tri_add(tri_forward(child, x),
                   tri_sum(tri_module_find(child, "weight"), NULL, 0, false));
}

static const char *reading_rank(rank_env *env)
{
    tri_module *net = tri_module_simple("reads", 0, reads_its_child);
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, 6), TRI_DTYPE_F32), *y, *weight;
    tri_group *group = NULL;
    float number;

    tri_module_add_child(net, "child", tri_nn_linear(6, 4, NULL));
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group,
                                  &(tri_parallel_rule){
                                      .module = "child", .style = TRI_COLWISE, .output = TRI_WHOLE},
                                  1));
    y = tri_forward(net, x);
    RANK_FAILS(env, tri_tensor_status(y), TRI_ERR_UNSUPPORTED, "one rank's part of a parameter");
    tri_step_end();
    weight = tri_module_find(net, "child.weight"); /* a program may look at it */
    RANK_TRY(env, tri_tensor_copy_out(tri_sum(weight, NULL, 0, false), &number, sizeof(number)));
    RANK_TRY(env, tri_step_end_status());
    y = tri_forward(tri_module_submodule(net, "child"), x);
    RANK_TRY(env, tri_tensor_status(y));
    RANK_TRY(env, tri_step_end_status());
    RANK_TRY(env, ranks_meet(env, "end", -1));
    tri_tensor_unref(x);
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

static void a_forward_does_not_take_a_part_for_the_whole(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm"}, reading_rank, NULL);
}

/* Whole tensors of the checkpoint, as one process reads them. */
static uint64_t hash_of(const char *folder)
{
    tri_module *net = build(77);
    tri_checkpoint *checkpoint = NULL;
    uint64_t hash;

    CHECK_OK(tri_checkpoint_open(folder, &checkpoint));
    CHECK_OK(tri_checkpoint_restore(checkpoint, net, NULL));
    CHECK_OK(tri_module_hash(net, &hash));
    tri_checkpoint_close(checkpoint);
    tri_module_destroy(net);
    return hash;
}

static const char *save_again_rank(rank_env *env)
{
    job *j = env->arg;
    tri_module *net = build(5);
    tri_group *group = NULL;
    tri_checkpoint *checkpoint = NULL;
    char folder[300];

    snprintf(folder, sizeof(folder), "%s-%d", j->folder, env->size);
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, rules, 4));
    RANK_TRY(env, tri_checkpoint_open(j->folder, &checkpoint));
    RANK_TRY(env, tri_checkpoint_restore(checkpoint, net, NULL));
    tri_checkpoint_close(checkpoint);
    RANK_TRY(env, tri_checkpoint_save(folder, net, NULL, &(tri_checkpoint_info){.step = 1}, NULL));
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

static void checkpoints_of_heads_move(void **state)
{
    const tri_group_options shm = {.engine = "shm"};
    static job j;
    scratch s;
    uint64_t hash;

    (void)state;
    scratch_begin(&s);
    one_process(&j);
    snprintf(j.folder, sizeof(j.folder), "%s", scratch_path(&s, "run"));
    run_threads(3, &shm, gpt_rank, &j);
    j.is_saved = true;
    run_threads(2, &shm, gpt_rank, &j);
    run_threads(1, &shm, gpt_rank, &j);
    hash = hash_of(j.folder);
    for (int size = 1; size <= 4; size++) {
        char folder[300];

        run_threads(size, &shm, save_again_rank, &j);
        snprintf(folder, sizeof(folder), "%s-%d", j.folder, size);
        assert_true(hash_of(folder) == hash);
    }
    scratch_end(&s);
}

static const char *refused_rank(rank_env *env)
{
    tri_module *net = build(3);
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_FAILS(env,
               tri_parallelize(net, group,
                               (tri_parallel_rule[]){{.module = "h.0.attn.c_attn",
                                                      .style = TRI_COLWISE,
                                                      .parts = 3,
                                                      .block = WIDTH / 2}},
                               1),
               TRI_ERR_INVALID_ARG, "2 blocks of 6 outputs are fewer than 3 ranks");
    RANK_FAILS(env,
               tri_parallelize(net, group,
                               (tri_parallel_rule[]){
                                   {.module = "h.0.attn.c_attn", .style = TRI_COLWISE, .parts = 5}},
                               1),
               TRI_ERR_INVALID_ARG, "36 outputs are not 5 parts of blocks of 1");
    RANK_FAILS(env,
               tri_parallelize(net, group,
                               (tri_parallel_rule[]){{.module = "h.0.attn.c_attn",
                                                      .style = TRI_COLWISE,
                                                      .parts = 3,
                                                      .output = TRI_WHOLE}},
                               1),
               TRI_ERR_INVALID_ARG, "only outputs that stay cut are in parts");
    RANK_FAILS(env,
               tri_parallelize(net, group,
                               (tri_parallel_rule[]){
                                   {.module = "h.0.mlp.c_proj", .style = TRI_ROWWISE, .parts = 3}},
                               1),
               TRI_ERR_INVALID_ARG, "only outputs that stay cut are in parts");
    RANK_FAILS(env,
               tri_parallelize(net, group,
                               (tri_parallel_rule[]){
                                   {.module = "h.0.mlp.c_fc", .style = TRI_COLWISE, .block = -1}},
                               1),
               TRI_ERR_INVALID_ARG, "neither may be negative");
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

static void parts_and_blocks_must_fit(void **state)
{
    (void)state;
    run_threads(3, &(tri_group_options){.engine = "shm"}, refused_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(heads_over_ranks_train_as_one_process),
    cmocka_unit_test(the_table_of_words_is_cut_with_the_head),
    cmocka_unit_test(a_forward_does_not_take_a_part_for_the_whole),
    cmocka_unit_test(checkpoints_of_heads_move),
    cmocka_unit_test(parts_and_blocks_must_fit),
};

TEST_MAIN(tests)
