/*
 * pipeline_tutorial.c - PyTorch's tutorial "Introduction to Distributed Pipeline Parallelism": a
 * transformer that is cut into as many stages as there are workers, and one step of it.
 *
 *     torchrun --nnodes 1 --nproc_per_node 2 pipelining_tutorial.py      becomes
 *     trirun --nnodes 1 --nproc_per_node 2 build/bin/pipeline_tutorial
 *
 * The last worker prints the loss of each micro-batch. Any number of workers up to the number of
 * layers prints the same; the original has two. So do both ways to cut the model, by hand or by the
 * names of the modules with which stages begin (--split), and all schedules (--schedule).
 *
 * Two things are not as there: the original attends across the samples of a batch, since its layers
 * are not batch_first, and here the tokens of a sample look at each other, so that micro-batches
 * change nothing. And it has dropout, so that its losses are others each time. Batches are smaller
 * than its 32 x 500 tokens, of which a worker of one core has for a minute (--tokens=500).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "../command_line.h"

enum { MOST_STAGES = 64, MOST_MICROBATCHES = 64 };

static struct model_args {
    int64_t dim, n_layers, n_heads, vocab_size, hidden;
    int64_t samples, tokens, num_microbatches;
    const char *schedule, *split;
} model_args = {.dim = 512,
                .n_layers = 8,
                .n_heads = 8,
                .vocab_size = 10000,
                .hidden = 2048,
                .samples = 32,
                .tokens = 25,
                .num_microbatches = 4,
                .schedule = "gpipe",
                .split = "manual"};

/* --- the model ------------------------------------------------------------ */

/* torch's TransformerDecoderLayer, called as there: the memory is the input. */
typedef struct decoder_layer {
    tri_module *self_attn, *multihead_attn, *linear1, *linear2, *norm[3];
} decoder_layer;

static tri_tensor *decoder_layer_forward(tri_module *self, tri_tensor *x)
{
    decoder_layer *l = tri_module_data(self);
    tri_tensor *memory = x, *y;

    x = tri_forward(l->norm[0], tri_add(x, tri_forward(l->self_attn, x)));
    tri_forward_n(l->multihead_attn, (tri_tensor *[]){x, memory, memory}, 3, &y, 1);
    x = tri_forward(l->norm[1], tri_add(x, y));
    y = tri_forward(l->linear2, tri_relu(tri_forward(l->linear1, x)));
    return tri_forward(l->norm[2], tri_add(x, y));
}

static tri_module *decoder_layer_create(void)
{
    static const char *const norms[] = {"norm1", "norm2", "norm3"};
    tri_module *self =
        tri_module_simple("TransformerDecoderLayer", sizeof(decoder_layer), decoder_layer_forward);
    decoder_layer *l = tri_module_data(self);
    int64_t dim = model_args.dim, heads = model_args.n_heads, hidden = model_args.hidden;

    l->self_attn =
        tri_module_add_child(self, "self_attn", tri_nn_multihead_attention(dim, heads, NULL));
    l->multihead_attn =
        tri_module_add_child(self, "multihead_attn", tri_nn_multihead_attention(dim, heads, NULL));
    l->linear1 = tri_module_add_child(self, "linear1", tri_nn_linear(dim, hidden, NULL));
    l->linear2 = tri_module_add_child(self, "linear2", tri_nn_linear(hidden, dim, NULL));
    for (int i = 0; i < 3; i++)
        l->norm[i] = tri_module_add_child(self, norms[i], tri_nn_layer_norm(TRI_SHAPE(dim), NULL));
    return self;
}

/* Layers first .. end - 1, what comes before the first layer, and what comes after the last. */
static tri_module *transformer_create(int64_t first, int64_t end)
{
    tri_module *net = tri_nn_sequential_of(0, NULL);
    char name[32];

    if (first == 0)
        tri_module_add_child(net, "tok_embeddings",
                             tri_nn_embedding(model_args.vocab_size, model_args.dim, NULL));
    for (int64_t i = first; i < end; i++) {
        snprintf(name, sizeof(name), "layers_%lld", (long long)i);
        tri_module_add_child(net, name, decoder_layer_create());
    }
    if (end == model_args.n_layers) {
        tri_module_add_child(net, "norm", tri_nn_layer_norm(TRI_SHAPE(model_args.dim), NULL));
        tri_module_add_child(net, "output",
                             tri_nn_linear(model_args.dim, model_args.vocab_size, NULL));
    }
    return net;
}

/* --- step 1: partition it ------------------------------------------------- */

/* The layer with which stage s begins. */
static int64_t layer_of(int s, int num_stages)
{
    return model_args.n_layers * s / num_stages;
}

/* Every worker makes all stages from one seed, so that the weights are those of one model; it keeps
 * its own. */
static tri_module *manual_model_split(int num_stages, const tri_pipeline_options *options)
{
    tri_module *stages[MOST_STAGES];

    for (int s = 0; s < num_stages; s++)
        stages[s] = transformer_create(layer_of(s, num_stages), layer_of(s + 1, num_stages));
    return tri_pipeline(stages, num_stages, options);
}

/* The original's tracer: the model is written as one, and cut before "layers.4". */
static tri_module *model_split_by_names(int num_stages, const tri_pipeline_options *options)
{
    static char names[MOST_STAGES][32];
    const char *split_spec[MOST_STAGES];

    for (int s = 1; s < num_stages; s++) {
        snprintf(names[s], sizeof(names[s]), "layers_%lld", (long long)layer_of(s, num_stages));
        split_spec[s - 1] = names[s];
    }
    return tri_pipeline_split(transformer_create(0, model_args.n_layers), split_spec, num_stages,
                              options);
}

/* --- step 2: the main execution ------------------------------------------- */

/* What a worker of the last stage sees; the original's list `losses`. */
typedef struct losses {
    tri_tensor *of[MOST_MICROBATCHES];
    int n;
} losses;

static tri_tensor *tokenwise_loss_fn(tri_tensor *outputs, tri_tensor *targets, void *arg)
{
    losses *l = arg;
    tri_tensor *loss = tri_cross_entropy(tri_reshape(outputs, TRI_SHAPE(-1, model_args.vocab_size)),
                                         tri_flatten(targets, 0), NULL);

    l->of[l->n++] = tri_keep(loss); /* the step has not run yet */
    return loss;
}

static const struct {
    const char *name;
    tri_pipeline_schedule schedule;
    int stages_per_worker;
} schedules[] = {{"gpipe", TRI_PIPELINE_GPIPE, 1},
                 {"1f1b", TRI_PIPELINE_1F1B, 1},
                 {"interleaved", TRI_PIPELINE_INTERLEAVED, 2},
                 {"looped_bfs", TRI_PIPELINE_LOOPED_BFS, 2}};

/* The index of --schedule. */
static int find_schedule(void)
{
    int n = (int)(sizeof(schedules) / sizeof(schedules[0]));

    for (int i = 0; i < n; i++)
        if (strcmp(schedules[i].name, model_args.schedule) == 0)
            return i;
    options_refuse("--schedule %s: must be gpipe, 1f1b, interleaved or looped_bfs",
                   model_args.schedule);
}

static void parse_options(int argc, char **argv)
{
    static const char usage[] = "usage: trirun --nproc-per-node N pipeline_tutorial [options]\n\n"
                                "One step of a transformer that is cut into stages.";
    const option options[] = {
        {.name = "--dim", .integer = &model_args.dim, .min = 1, .help = "(512)"},
        {.name = "--n_layers", .integer = &model_args.n_layers, .min = 1, .help = "(8)"},
        {.name = "--n_heads", .integer = &model_args.n_heads, .min = 1, .help = "(8)"},
        {.name = "--vocab_size", .integer = &model_args.vocab_size, .min = 1, .help = "(10000)"},
        {.name = "--hidden", .integer = &model_args.hidden, .min = 1, .help = "(2048)"},
        {.name = "--samples", .integer = &model_args.samples, .min = 1, .help = "(32)"},
        {.name = "--tokens", .integer = &model_args.tokens, .min = 1, .help = "of each (25)"},
        {.name = "--num_microbatches",
         .integer = &model_args.num_microbatches,
         .min = 1,
         .max = MOST_MICROBATCHES,
         .help = "(4)"},
        {.name = "--schedule",
         .text = &model_args.schedule,
         .value = "NAME",
         .help = "gpipe, 1f1b, interleaved, looped_bfs (gpipe)"},
        {.name = "--split",
         .text = &model_args.split,
         .value = "HOW",
         .help = "manual, or names: a model that is cut before some (manual)"},
    };

    options_parse(argc, argv, usage, options);
    if (strcmp(model_args.split, "manual") != 0 && strcmp(model_args.split, "names") != 0)
        options_refuse("--split %s: must be manual or names", model_args.split);
    if (model_args.dim % model_args.n_heads != 0)
        options_refuse("--dim: must be a multiple of --n_heads");
}

int main(int argc, char **argv)
{
    tri_tensor *x, *y;
    losses l = {.n = 0};
    tri_module *pipe;
    int schedule, num_stages;

    parse_options(argc, argv);
    schedule = find_schedule();
    TRI_TRY(tri_init(NULL));
    num_stages = tri_world_size() * schedules[schedule].stages_per_worker;
    if (num_stages > model_args.n_layers || num_stages > MOST_STAGES)
        options_refuse("%d stages need as many layers (--n_layers, at most %d)", num_stages,
                       MOST_STAGES);

    tri_manual_seed(0);
    /* dummy data */
    x = tri_keep(tri_ones(TRI_SHAPE(model_args.samples, model_args.tokens), TRI_DTYPE_I64));
    y = tri_keep(tri_randint(0, model_args.vocab_size,
                             TRI_SHAPE(model_args.samples, model_args.tokens), TRI_DTYPE_I64));

    const tri_pipeline_options options = {.n_microbatches = (int)model_args.num_microbatches,
                                          .schedule = schedules[schedule].schedule};
    pipe = strcmp(model_args.split, "manual") == 0 ? manual_model_split(num_stages, &options)
                                                   : model_split_by_names(num_stages, &options);
    TRI_TRY(tri_module_status(pipe));

    /* The first worker's x and the last one's targets count. */
    (void)tri_pipeline_step(pipe, x, y, tokenwise_loss_fn, &l);
    TRI_TRY(tri_run()); /* forward and backward; an optimizer's step would run them as well */
    if (tri_rank() == tri_world_size() - 1) {
        printf("losses: [");
        for (int i = 0; i < l.n; i++)
            printf("%s%.4f", i == 0 ? "" : ", ", tri_item(l.of[i]));
        printf("]\n");
    }
    tri_step_end();
    tri_module_destroy(pipe);
    tri_finalize();
    return 0;
}
