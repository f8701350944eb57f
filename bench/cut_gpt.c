/*
 * cut_gpt.c - what a training step costs of a GPT that is cut over workers of one thread each;
 * bench/pipeline.sh and bench/tensor_parallel.sh start it, as each rank of a group.
 *
 *     bench_cut_gpt pipeline|gpipe|zero_bubble|zbv|tensor LAYERS [ROUNDS [STEPS]]
 *     bench_cut_gpt ddp|zero1|zero2|zero3 LAYERS [ROUNDS [STEPS]]
 *
 * Prints "of_bound cut own alone mib": milliseconds of a step of the network that is cut; of a step
 * where each worker trains a whole one of its own, beside the others, which is what the machine can
 * do; and where one worker does so while the others sleep. of_bound is which share of the speed of
 * whole networks, all workers together, is left to the one that is cut; for a pipeline, of what its
 * bubble leaves, m / (m + p - 1) with m micro-batches and p workers. Of ROUNDS (5) rounds of all
 * three, STEPS (2) steps each, the medians; times are of the slowest rank. mib: the most memory
 * that a rank has had by the end of two steps of the first network, when there is no other yet.
 *
 * ddp and zero1 to zero3 cut the batch instead.
 *
 * The GPT has a width of 384, 6 heads, and a context of 256 of 256 tokens, the batch 8 texts;
 * AdamW. For pipelines the head has weights of its own, and there are 8 micro-batches, in whole
 * networks as well: one after the other, and then one update.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "timing.h"

enum { VOCABULARY = 256, BATCH = 8, MOST_CONTEXT = 256, MOST_ROUNDS = 64 };

static int width = 384, heads = 6, context = 256;

typedef struct task {
    bool stages, data;
    int zero; /* with data: the stage of tri_zero, or tri_ddp */
    tri_pipeline_schedule schedule;
    int64_t layers;
    tri_tensor *x, *y;
    int64_t tokens[BATCH * MOST_CONTEXT + 1];
} task;

/* A network that is trained: cut, or whole on each worker. */
typedef struct replica {
    tri_module *net;
    tri_optimizer *opt;
    bool pipeline, data;
} replica;

/* --- a GPT that is a sequence --------------------------------------------- */

typedef struct words {
    tri_module *wte, *wpe;
} words;

static tri_tensor *words_forward(tri_module *self, tri_tensor *tokens)
{
    words *w = tri_module_data(self);

    return tri_add(tri_forward(w->wte, tokens), tri_module_find(w->wpe, "weight"));
}

static tri_module *words_create(void)
{
    tri_module *self = tri_module_simple("Words", sizeof(words), words_forward);
    words *w = tri_module_data(self);

    w->wte = tri_module_add_child(self, "wte", tri_nn_embedding(VOCABULARY, width, NULL));
    w->wpe = tri_module_add_child(self, "wpe", tri_nn_embedding(context, width, NULL));
    return self;
}

typedef struct block {
    tri_module *ln_1, *qkv, *proj, *ln_2, *mlp;
} block;

static tri_tensor *block_forward(tri_module *self, tri_tensor *x)
{
    block *b = tri_module_data(self);
    int64_t n = tri_tensor_size(x, 0);
    tri_tensor *qkv = tri_forward(b->qkv, tri_forward(b->ln_1, x)), *part[3], *y;

    tri_split(qkv, TRI_SHAPE(width, width, width), -1, part);
    for (int i = 0; i < 3; i++)
        part[i] =
            tri_transpose(tri_reshape(part[i], TRI_SHAPE(n, context, heads, width / heads)), 1, 2);
    y = tri_attention(part[0], part[1], part[2], &(tri_attention_options){.is_causal = true});
    y = tri_reshape(tri_transpose(y, 1, 2), TRI_SHAPE(n, context, width));
    x = tri_add(x, tri_forward(b->proj, y));
    return tri_add(x, tri_forward(b->mlp, tri_forward(b->ln_2, x)));
}

static tri_module *block_create(void)
{
    tri_module *self = tri_module_simple("Block", sizeof(block), block_forward);
    block *b = tri_module_data(self);

    b->ln_1 = tri_module_add_child(self, "ln_1", tri_nn_layer_norm(TRI_SHAPE(width), NULL));
    b->qkv = tri_module_add_child(self, "qkv", tri_nn_linear(width, 3 * width, NULL));
    b->proj = tri_module_add_child(self, "proj", tri_nn_linear(width, width, NULL));
    b->ln_2 = tri_module_add_child(self, "ln_2", tri_nn_layer_norm(TRI_SHAPE(width), NULL));
    b->mlp = tri_module_add_child(self, "mlp",
                                  tri_nn_sequential(tri_nn_linear(width, 4 * width, NULL),
                                                    tri_nn_gelu(TRI_GELU_TANH),
                                                    tri_nn_linear(4 * width, width, NULL)));
    return self;
}

/* Words, blocks, head. */
static tri_module *sequence_create(int64_t layers)
{
    tri_module *net = tri_nn_sequential(words_create());
    char name[16];

    for (int64_t i = 1; i <= layers + 1; i++) {
        snprintf(name, sizeof(name), "%d", (int)i);
        tri_module_add_child(net, name,
                             i <= layers
                                 ? block_create()
                                 : tri_nn_sequential(tri_nn_layer_norm(TRI_SHAPE(width), NULL),
                                                     tri_nn_linear(width, VOCABULARY, NULL)));
    }
    return net;
}

/* --- training ------------------------------------------------------------- */

static void make_data(task *t)
{
    uint32_t state = 1;

    t->x = tri_tensor_create(TRI_SHAPE(BATCH, context), TRI_DTYPE_I64);
    t->y = tri_tensor_create(TRI_SHAPE(BATCH, context), TRI_DTYPE_I64);
    for (int i = 0; i <= BATCH * context; i++) {
        state = state * 1664525u + 1013904223u;
        t->tokens[i] = state >> 24;
    }
}

static tri_module *cut_layers(tri_module *net)
{
    TRI_TRY(tri_parallelize(
        net, NULL,
        (tri_parallel_rule[]){
            {.module = "h.*.attn.c_attn", .style = TRI_COLWISE, .parts = 3, .block = width / heads},
            {.module = "h.*.attn.c_proj", .style = TRI_ROWWISE, .block = width / heads},
            {.module = "h.*.mlp.c_fc", .style = TRI_COLWISE},
            {.module = "h.*.mlp.c_proj", .style = TRI_ROWWISE}},
        4));
    return net;
}

/* Stage s begins with block 1 + layers s / p. */
static tri_module *cut_stages(const task *t, tri_module *own_net)
{
    char names[32][8];
    const char *cuts[32];
    int p = tri_world_size() < 16 ? tri_world_size() : 16;

    p = t->schedule == TRI_PIPELINE_ZBV ? 2 * p : p; /* stages */
    for (int s = 1; s < p; s++) {
        snprintf(names[s - 1], sizeof(names[0]), "%d", (int)(1 + t->layers * s / p));
        cuts[s - 1] = names[s - 1];
    }
    return tri_pipeline_split(
        own_net, cuts, p,
        &(tri_pipeline_options){.n_microbatches = BATCH, .schedule = t->schedule});
}

static replica replica_of(const task *t, bool cut)
{
    replica r = {.pipeline = cut && t->stages, .data = cut && t->data};
    char name[64];

    tri_manual_seed(1);
    snprintf(name, sizeof(name), "gpt:%d,%d,%d,%d,%d", (int)t->layers, width, heads, context,
             VOCABULARY);
    r.net = t->stages ? sequence_create(t->layers) : tri_model_by_name(name, 0);
    if (r.data && t->zero > 0)
        r.net = tri_zero(r.net, &(tri_zero_options){.stage = t->zero});
    else if (r.data)
        r.net = tri_ddp(r.net, NULL);
    else if (cut)
        r.net = t->stages ? cut_stages(t, r.net) : cut_layers(r.net);
    TRI_TRY(tri_module_status(r.net));
    r.opt = tri_adamw(r.net, 3e-4, &(tri_adam_options){.weight_decay = TRI_SET(0.1)});
    return r;
}

static tri_tensor *loss_fn(tri_tensor *logits, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_cross_entropy(tri_reshape(logits, TRI_SHAPE(-1, VOCABULARY)), tri_flatten(target, 0),
                             NULL);
}

static void step(const task *t, const replica *r)
{
    const size_t bytes = (size_t)(BATCH * context) * sizeof(int64_t);
    int pieces = t->stages ? BATCH : 1, rows = BATCH / pieces, first = 0;

    TRI_TRY(tri_tensor_copy_in(t->x, t->tokens, bytes));
    TRI_TRY(tri_tensor_copy_in(t->y, t->tokens + 1, bytes));
    if (r->pipeline)
        (void)tri_pipeline_step(r->net, t->x, t->y, loss_fn, NULL);
    if (r->data) {
        rows = BATCH / tri_world_size();
        first = tri_rank() * rows;
    }
    for (int i = 0; i < pieces && !r->pipeline; i++) {
        tri_tensor *logits = tri_forward(r->net, tri_narrow(t->x, 0, first + i * rows, rows));
        tri_tensor *target = tri_narrow(t->y, 0, first + i * rows, rows);

        tri_backward(tri_mul_scalar(loss_fn(logits, target, NULL), 1.0 / pieces));
    }
    TRI_TRY(tri_optimizer_step(r->opt));
    TRI_TRY(tri_step_end_status());
}

/* --- measuring ------------------------------------------------------------ */

static double worst(double mine)
{
    double all;

    TRI_TRY(tri_all_reduce(NULL, &mine, &all, 1, TRI_DTYPE_F64, TRI_REDOP_MAX, NULL));
    return all;
}

/* Of one step, where all begin together and n follow each other; ranks from `ranks` on wait. */
static double steps_ms(const task *t, const replica *r, int ranks, int n)
{
    double begin, mine;

    TRI_TRY(tri_barrier(NULL, NULL));
    begin = now_us();
    for (int i = 0; i < n && tri_rank() < ranks; i++)
        step(t, r);
    mine = (now_us() - begin) / 1e3 / n;
    return worst(tri_rank() < ranks ? mine : 0);
}

static double peak_mib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    double kib = 0;

    while (file != NULL && kib == 0 && fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, "VmHWM: %lf kB", &kib);
    if (file != NULL)
        fclose(file);
    return kib / 1024;
}

static void measure(const task *t, int rounds, int steps)
{
    static double cut_ms[MOST_ROUNDS], own_ms[MOST_ROUNDS], alone_ms[MOST_ROUNDS], of[MOST_ROUNDS];
    replica cut = replica_of(t, true), own;
    int p = tri_world_size();
    double mib, bound = t->stages ? (double)p * BATCH / (BATCH + p - 1) : p;

    (void)steps_ms(t, &cut, p, 2);
    mib = worst(peak_mib());
    own = replica_of(t, false);
    (void)steps_ms(t, &own, p, 2);
    for (int i = 0; i < rounds; i++) {
        cut_ms[i] = steps_ms(t, &cut, p, steps);
        own_ms[i] = steps_ms(t, &own, p, steps);
        alone_ms[i] = steps_ms(t, &own, 1, steps);
        of[i] = own_ms[i] / cut_ms[i] / bound;
    }
    if (tri_rank() == 0)
        printf("%.4f %.3f %.3f %.3f %.0f\n", median(of, rounds), median(cut_ms, rounds),
               median(own_ms, rounds), median(alone_ms, rounds), mib);
    tri_optimizer_destroy(cut.opt);
    tri_module_destroy(cut.net);
    tri_optimizer_destroy(own.opt);
    tri_module_destroy(own.net);
}

static int number(int argc, char **argv, int i, int fallback)
{
    return argc > i ? (int)strtol(argv[i], NULL, 10) : fallback;
}

/* pipeline: 1F1B. */
static bool find_schedule(const char *name, tri_pipeline_schedule *schedule_out)
{
    static const struct {
        const char *name;
        tri_pipeline_schedule schedule;
    } known[] = {{"pipeline", TRI_PIPELINE_1F1B},
                 {"gpipe", TRI_PIPELINE_GPIPE},
                 {"zero_bubble", TRI_PIPELINE_ZERO_BUBBLE},
                 {"zbv", TRI_PIPELINE_ZBV}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i].name) == 0) {
            *schedule_out = known[i].schedule;
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    static task t;
    const char *what = argc > 1 ? argv[1] : "";
    int rounds = number(argc, argv, 3, 5), steps = number(argc, argv, 4, 2);

    if (getenv("GPT_SIZE") != NULL && strcmp(getenv("GPT_SIZE"), "small") == 0) {
        width = 128;
        heads = 4;
        context = 64;
    }
    t.layers = number(argc, argv, 2, 0);
    t.zero = strncmp(what, "zero", 4) == 0 ? (int)strtol(what + 4, NULL, 10) : 0;
    t.data = strcmp(what, "ddp") == 0 || (t.zero >= 1 && t.zero <= 3);
    t.stages = !t.data && strcmp(what, "tensor") != 0;
    if ((t.stages && !find_schedule(what, &t.schedule)) || t.layers < 1 || rounds < 1 ||
        rounds > MOST_ROUNDS || steps < 1) {
        fprintf(stderr,
                "usage: %s pipeline|gpipe|zero_bubble|zbv|tensor|ddp|zero1..3 LAYERS [ROUNDS "
                "[STEPS]]\n",
                argv[0]);
        return 2;
    }
    TRI_TRY(tri_init(NULL));
    make_data(&t);
    measure(&t, rounds, steps);
    tri_tensor_unref(t.x);
    tri_tensor_unref(t.y);
    tri_finalize();
    return 0;
}
