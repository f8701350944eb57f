/* pipeline_gpt_test.c - GPT as a sequence whose head is the table of words, cut at names over two
 * and four ranks: it trains as one process, with and without recomputation of its blocks. */
#include <math.h>

#include <trireme/pipeline.h>
#include <trireme/trireme.h>

#include "train/plan/plan.h"
#include "testing/check.h"
#include "testing/ranks.h"

enum { ROWS = 5, TOKENS = 12, VOCABULARY = 11, WIDTH = 8, HEADS = 2, LAYERS = 4, M = 3, STEPS = 4 };

typedef struct gpt_job {
    const char *const *cuts;
    bool recompute;
    tri_pipeline_schedule schedule;
    double losses[STEPS], norms[STEPS];
} gpt_job;

static trii_mutex drawing = TRII_MUTEX_INITIALIZER; /* the seed and the dtype are the process's */

/* --- the network ---------------------------------------------------------- */

static tri_tensor *words_forward(tri_module *self, tri_tensor *tokens)
{
    return tri_add(tri_embedding(tokens, tri_module_find(self, "weight"), NULL),
                   tri_module_find(self, "places"));
}

static tri_tensor *head_forward(tri_module *self, tri_tensor *x)
{
    return tri_linear(x, tri_module_find(self, "weight"), NULL);
}

static tri_tensor *block_forward(tri_module *self, tri_tensor *x)
{
    tri_tensor *qkv =
        tri_forward(tri_module_submodule(self, "qkv"), tri_layer_norm(x, 1, NULL, NULL, 1e-5));
    tri_tensor *part[3];

    tri_split(qkv, TRI_SHAPE(WIDTH, WIDTH, WIDTH), -1, part);
    for (int i = 0; i < 3; i++)
        part[i] =
            tri_transpose(tri_reshape(part[i], TRI_SHAPE(-1, TOKENS, HEADS, WIDTH / HEADS)), 1, 2);
    qkv = tri_attention(part[0], part[1], part[2], &(tri_attention_options){.is_causal = true});
    x = tri_add(x, tri_reshape(tri_transpose(qkv, 1, 2), TRI_SHAPE(-1, TOKENS, WIDTH)));
    return tri_add(x, tri_forward(tri_module_submodule(self, "mlp"), x));
}

static tri_module *block(bool recompute)
{
    tri_module *self = tri_module_simple("Block", 1, block_forward);

    tri_module_add_child(self, "qkv", tri_nn_linear(WIDTH, 3 * WIDTH, NULL));
    tri_module_add_child(self, "mlp",
                         tri_nn_sequential(tri_nn_layer_norm(TRI_SHAPE(WIDTH), NULL),
                                           tri_nn_linear(WIDTH, 4 * WIDTH, NULL),
                                           tri_nn_gelu(TRI_GELU_TANH),
                                           tri_nn_linear(4 * WIDTH, WIDTH, NULL)));
    if (recompute)
        tri_module_set_recompute(self, true);
    return self;
}

/* "words", "h.0" to "h.3", "ln_f", "head", whose weight is that of the words. */
static tri_module *build(bool recompute)
{
    tri_module *net = tri_nn_sequential_of(0, NULL), *words, *blocks[LAYERS], *head;
    tri_tensor *table, *places;

    trii_mutex_lock(&drawing);
    tri_manual_seed(7);
    tri_set_default_dtype(TRI_DTYPE_F64);
    table = tri_tensor_create(TRI_SHAPE(VOCABULARY, WIDTH), TRI_DTYPE_F64);
    places = tri_tensor_create(TRI_SHAPE(TOKENS, WIDTH), TRI_DTYPE_F64);
    CHECK_OK(tri_init_normal(table, 0, 0.3));
    CHECK_OK(tri_init_normal(places, 0, 0.3));
    words = tri_module_add_child(net, "words", tri_module_simple("Words", 1, words_forward));
    tri_module_add_parameter(words, "weight", tri_tensor_ref(table));
    tri_module_add_parameter(words, "places", places);
    for (int i = 0; i < LAYERS; i++)
        blocks[i] = block(recompute);
    tri_module_add_child(net, "h", tri_nn_sequential_of(LAYERS, blocks));
    tri_module_add_child(net, "ln_f", tri_nn_layer_norm(TRI_SHAPE(WIDTH), NULL));
    head = tri_module_add_child(net, "head", tri_module_simple("Head", 1, head_forward));
    tri_module_add_parameter(head, "weight", table);
    tri_set_default_dtype(TRI_DTYPE_F32);
    tri_manual_seed(7);
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_tensor *tokens(int step, int shift)
{
    int64_t data[ROWS * TOKENS];

    for (int i = 0; i < ROWS * TOKENS; i++)
        data[i] = (7 * (i + shift) * (i + step) + i) % VOCABULARY;
    return tri_tensor_from(TRI_SHAPE(ROWS, TOKENS), TRI_DTYPE_I64, data);
}

static tri_tensor *loss_of(tri_tensor *logits, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_cross_entropy(tri_reshape(logits, TRI_SHAPE(-1, VOCABULARY)), tri_flatten(target, 0),
                             NULL);
}

/* --- training ------------------------------------------------------------- */

/* The micro-batches of a step, one after the other. */
static tri_tensor *alone(tri_module *net, tri_tensor *x, tri_tensor *y)
{
    tri_tensor *total = NULL;

    for (int i = 0, first = 0; i < M; i++) {
        int n = ROWS / M + (i < ROWS % M);
        tri_tensor *loss =
            loss_of(tri_forward(net, tri_narrow(x, 0, first, n)), tri_narrow(y, 0, first, n), NULL);

        loss = tri_mul_scalar(loss, (double)n / ROWS);
        tri_backward(loss);
        TRI_NO_GRAD total = total == NULL ? loss : tri_add(total, loss);
        first += n;
    }
    return total;
}

static tri_status train(tri_module *net, bool is_pipeline, double *losses, double *norms)
{
    tri_optimizer *opt = tri_adamw(net, 0.02, NULL);
    tri_status status = TRI_OK;

    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_tensor *x = tokens(s, 0), *y = tokens(s, 1), *norm;
        tri_tensor *loss =
            is_pipeline ? tri_pipeline_step(net, x, y, loss_of, NULL) : alone(net, x, y);

        loss = tri_keep(loss);
        norm = tri_keep(tri_clip_grad_norm(opt, 0.7));
        status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_item_status(loss, &losses[s]);
        if (status == TRI_OK)
            status = tri_item_status(norm, &norms[s]);
        if (status == TRI_OK)
            status = tri_step_end_status();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    tri_optimizer_destroy(opt);
    return status;
}

static const char *gpt_rank(rank_env *env)
{
    const gpt_job *j = env->arg;
    double losses[STEPS], norms[STEPS];
    tri_group *group = NULL;
    tri_module *pipe;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    pipe = tri_pipeline_split(
        build(j->recompute), j->cuts, env->size,
        &(tri_pipeline_options){.group = group, .n_microbatches = M, .schedule = j->schedule});
    RANK_TRY(env, tri_module_status(pipe));
    RANK_TRY(env, train(pipe, true, losses, norms));
    for (int s = 0; s < STEPS; s++)
        if (!(fabs(losses[s] - j->losses[s]) < 1e-9 && fabs(norms[s] - j->norms[s]) < 1e-9))
            return RANK_FAIL(env,
                             "rank %d of %d: step %d has loss %.17g and norm %.17g, not %.17g "
                             "and %.17g",
                             env->rank, env->size, s, losses[s], norms[s], j->losses[s],
                             j->norms[s]);
    tri_module_destroy(pipe);
    tri_group_unref(group);
    return NULL;
}

/* What the steps of two ranks need that keep all micro-batches. */
static size_t bytes_of_two(gpt_job *j, bool recompute)
{
    static const char *const cut[] = {"h.2"};

    j->cuts = cut;
    j->recompute = recompute;
    j->schedule = TRI_PIPELINE_GPIPE;
    trii_plan_release(); /* what others have compiled */
    run_threads(2, &(tri_group_options){.engine = "shm"}, gpt_rank, j);
    return trii_plan_stats_get().arena_bytes;
}

static void a_tied_head_trains_as_in_one_process(void **state)
{
    static const char *const cuts[] = {"h.1", "h.2", "h.3"};
    gpt_job j = {.cuts = cuts};
    tri_module *net = build(false);
    size_t plain, less;

    (void)state;
    CHECK_OK(train(net, false, j.losses, j.norms));
    tri_module_destroy(net);
    run_threads(4, &(tri_group_options){.engine = "shm"}, gpt_rank, &j);
    plain = bytes_of_two(&j, false);
    less = bytes_of_two(&j, true);
    if (less * 2 > plain)
        fail_msg("%zu bytes with recomputation of the blocks, %zu without", less, plain);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_tied_head_trains_as_in_one_process),
};

TEST_MAIN(tests)
