/*
 * tp_tutorial.c - PyTorch's tutorial "Large Scale Transformer model training with Tensor Parallel":
 * a Llama 2 whose layers are cut over the workers of a host (tensor, sequence and loss parallel),
 * and whose copies share the batch, and divide the parameters of their parts between them (FSDP).
 *
 *     torchrun --nnodes 1 --nproc-per-node 4 fsdp_tp_example.py      becomes
 *     trirun --nnodes 1 --nproc-per-node 4 build/bin/tp_tutorial
 *
 * tensor_parallel_example.c is the smaller program that the tutorial begins with. The loss is the
 * tutorial's cross entropy (its program sums the output), and rank 0 prints it: the same for any
 * mesh, but for the last digits; one worker, too (--tp_size=1).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "../command_line.h"

#define NORM_EPS 1e-5
#define MULTIPLE_OF 256
#define THETA 10000.0

static struct settings {
    int64_t tp_size, num_iterations, batch_size, seqlen;
    int64_t dim, n_layers, n_heads, vocab_size;
    double lr;
} settings = {.tp_size = 2,
              .num_iterations = 10,
              .batch_size = 8,
              .seqlen = 256,
              .dim = 256,
              .n_layers = 2,
              .n_heads = 16,
              .vocab_size = 32000,
              .lr = 3e-3};

/* --- Llama 2 -------------------------------------------------------------- */

static int64_t head_dim(void)
{
    return settings.dim / settings.n_heads;
}

static tri_module *linear(int64_t in, int64_t out)
{
    return tri_nn_linear(in, out, &(tri_nn_linear_options){.no_bias = true});
}

static tri_module *rms_norm(void)
{
    return tri_nn_rms_norm(TRI_SHAPE(settings.dim),
                           &(tri_nn_rms_norm_options){.eps = TRI_SET(NORM_EPS)});
}

typedef struct attention {
    tri_module *wq, *wk, *wv, *wo;
    tri_tensor *cos, *sin; /* [tokens, 1, head_dim / 2, 1] */
} attention;

/* x [N, T, heads, head_dim]: turns each pair of numbers by an angle that grows with the place. */
static tri_tensor *apply_rotary_emb(const attention *a, tri_tensor *x)
{
    int64_t n = tri_tensor_size(x, 0), t = tri_tensor_size(x, 1), heads = tri_tensor_size(x, 2);
    tri_tensor *part[2], *turned[2];

    x = tri_reshape(x, TRI_SHAPE(n, t, heads, head_dim() / 2, 2));
    tri_split(x, TRI_SHAPE(1, 1), -1, part);
    turned[0] = tri_sub(tri_mul(part[0], a->cos), tri_mul(part[1], a->sin));
    turned[1] = tri_add(tri_mul(part[0], a->sin), tri_mul(part[1], a->cos));
    return tri_reshape(tri_concat(turned, 2, -1), TRI_SHAPE(n, t, heads, head_dim()));
}

/* The number of heads is not said: it is that of this worker, by the width of what wq gives. (The
 * tutorial sets attn_layer.n_heads.) */
static tri_tensor *attention_forward(tri_module *self, tri_tensor *x)
{
    attention *a = tri_module_data(self);
    tri_tensor *q = tri_forward(a->wq, x), *k = tri_forward(a->wk, x), *v = tri_forward(a->wv, x);
    int64_t n = tri_tensor_size(q, 0), t = tri_tensor_size(q, 1), heads, width;

    width = tri_tensor_size(q, 2);
    heads = width / head_dim();
    q = apply_rotary_emb(a, tri_reshape(q, TRI_SHAPE(n, t, heads, head_dim())));
    k = apply_rotary_emb(a, tri_reshape(k, TRI_SHAPE(n, t, heads, head_dim())));
    v = tri_reshape(v, TRI_SHAPE(n, t, heads, head_dim()));
    x = tri_attention(tri_transpose(q, 1, 2), tri_transpose(k, 1, 2), tri_transpose(v, 1, 2),
                      &(tri_attention_options){.is_causal = true});
    return tri_forward(a->wo, tri_reshape(tri_transpose(x, 1, 2), TRI_SHAPE(n, t, width)));
}

/* of: cos or sin. */
static tri_tensor *precompute_freqs(double (*of)(double))
{
    int64_t half = head_dim() / 2;
    float *angles = malloc((size_t)(settings.seqlen * half) * sizeof(*angles));
    tri_tensor *freqs;

    if (angles == NULL)
        options_refuse("--seqlen: no memory");
    for (int64_t t = 0; t < settings.seqlen; t++)
        for (int64_t i = 0; i < half; i++)
            angles[t * half + i] =
                (float)of((double)t / pow(THETA, 2.0 * (double)i / (double)head_dim()));
    freqs = tri_tensor_from(TRI_SHAPE(settings.seqlen, 1, half, 1), TRI_DTYPE_F32, angles);
    free(angles);
    return freqs;
}

static tri_module *attention_create(void)
{
    tri_module *self = tri_module_simple("Attention", sizeof(attention), attention_forward);
    attention *a = tri_module_data(self);
    int64_t dim = settings.dim;

    a->wq = tri_module_add_child(self, "wq", linear(dim, dim));
    a->wk = tri_module_add_child(self, "wk", linear(dim, dim));
    a->wv = tri_module_add_child(self, "wv", linear(dim, dim));
    a->wo = tri_module_add_child(self, "wo", linear(dim, dim));
    a->cos = tri_module_add_buffer(self, "freqs_cos", precompute_freqs(cos));
    a->sin = tri_module_add_buffer(self, "freqs_sin", precompute_freqs(sin));
    return self;
}

typedef struct feed_forward {
    tri_module *w1, *w2, *w3;
} feed_forward;

static tri_tensor *feed_forward_forward(tri_module *self, tri_tensor *x)
{
    feed_forward *f = tri_module_data(self);

    return tri_forward(f->w2, tri_mul(tri_silu(tri_forward(f->w1, x)), tri_forward(f->w3, x)));
}

static tri_module *feed_forward_create(void)
{
    tri_module *self = tri_module_simple("FeedForward", sizeof(feed_forward), feed_forward_forward);
    feed_forward *f = tri_module_data(self);
    int64_t hidden = 2 * 4 * settings.dim / 3;

    hidden = (hidden + MULTIPLE_OF - 1) / MULTIPLE_OF * MULTIPLE_OF;
    f->w1 = tri_module_add_child(self, "w1", linear(settings.dim, hidden));
    f->w2 = tri_module_add_child(self, "w2", linear(hidden, settings.dim));
    f->w3 = tri_module_add_child(self, "w3", linear(settings.dim, hidden));
    return self;
}

typedef struct transformer_block {
    tri_module *attention, *feed_forward, *attention_norm, *ffn_norm;
} transformer_block;

static tri_tensor *transformer_block_forward(tri_module *self, tri_tensor *x)
{
    transformer_block *b = tri_module_data(self);
    tri_tensor *h = tri_add(x, tri_forward(b->attention, tri_forward(b->attention_norm, x)));

    return tri_add(h, tri_forward(b->feed_forward, tri_forward(b->ffn_norm, h)));
}

static tri_module *transformer_block_create(void)
{
    tri_module *self =
        tri_module_simple("TransformerBlock", sizeof(transformer_block), transformer_block_forward);
    transformer_block *b = tri_module_data(self);

    b->attention = tri_module_add_child(self, "attention", attention_create());
    b->feed_forward = tri_module_add_child(self, "feed_forward", feed_forward_create());
    b->attention_norm = tri_module_add_child(self, "attention_norm", rms_norm());
    b->ffn_norm = tri_module_add_child(self, "ffn_norm", rms_norm());
    return self;
}

/* Initial values as in the original: narrower where residuals add up. */
static void init_weights(tri_module *model)
{
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_state_entry e = tri_module_state(model, i);
        double std = 0.02;
        int layer = 0;

        if (tri_tensor_ndim(e.tensor) != 2)
            continue; /* norms are ones, and angles are no weights */
        (void)sscanf(e.name, "layers.%d", &layer);
        if (strstr(e.name, ".wo.") != NULL || strstr(e.name, ".w2.") != NULL ||
            strstr(e.name, ".w3.") != NULL)
            std /= sqrt(2.0 * (layer + 1));
        if (strncmp(e.name, "output", 6) == 0)
            std = 1 / sqrt((double)settings.dim);
        if (strncmp(e.name, "tok", 3) == 0)
            std = 1;
        TRI_TRY(tri_init_normal(e.tensor, 0, std));
    }
}

static tri_module *transformer_create(void)
{
    tri_module *model = tri_nn_sequential_of(0, NULL), *layers = tri_nn_sequential_of(0, NULL);
    char name[16];

    tri_module_add_child(model, "tok_embeddings",
                         tri_nn_embedding(settings.vocab_size, settings.dim, NULL));
    tri_module_add_child(model, "layers", layers);
    for (int64_t i = 0; i < settings.n_layers; i++) {
        snprintf(name, sizeof(name), "%d", (int)i);
        tri_module_add_child(layers, name, transformer_block_create());
    }
    tri_module_add_child(model, "norm", rms_norm());
    tri_module_add_child(model, "output", linear(settings.dim, settings.vocab_size));
    init_weights(model);
    return model;
}

/* --- the plan ------------------------------------------------------------- */

/* Norms have a part of the tokens each; before attention and the feed-forward layers tokens are
 * gathered, and scattered after them. The scores stay in parts, for the loss. */
static void parallelize(tri_module *model, tri_group *tp)
{
    const tri_parallel_rule plan[] = {
        {.module = "tok_embeddings", .style = TRI_ROWWISE, .output = TRI_SHARDED_SEQUENCE},
        {.module = "norm", .style = TRI_SEQUENCE},
        {.module = "output", .style = TRI_COLWISE, .input = TRI_SHARDED_SEQUENCE},
        {.module = "layers.*.attention_norm", .style = TRI_SEQUENCE},
        {.module = "layers.*.attention",
         .style = TRI_PREPARE,
         .input = TRI_SHARDED_SEQUENCE,
         .wanted_input = TRI_WHOLE},
        {.module = "layers.*.attention.wq", .style = TRI_COLWISE, .block = head_dim()},
        {.module = "layers.*.attention.wk", .style = TRI_COLWISE, .block = head_dim()},
        {.module = "layers.*.attention.wv", .style = TRI_COLWISE, .block = head_dim()},
        {.module = "layers.*.attention.wo",
         .style = TRI_ROWWISE,
         .block = head_dim(),
         .output = TRI_SHARDED_SEQUENCE},
        {.module = "layers.*.ffn_norm", .style = TRI_SEQUENCE},
        {.module = "layers.*.feed_forward",
         .style = TRI_PREPARE,
         .input = TRI_SHARDED_SEQUENCE,
         .wanted_input = TRI_WHOLE},
        {.module = "layers.*.feed_forward.w1", .style = TRI_COLWISE},
        {.module = "layers.*.feed_forward.w2",
         .style = TRI_ROWWISE,
         .output = TRI_SHARDED_SEQUENCE},
        {.module = "layers.*.feed_forward.w3", .style = TRI_COLWISE},
    };

    TRI_TRY(tri_parallelize(model, tp, plan, (int)(sizeof(plan) / sizeof(plan[0]))));
}

/* --- training ------------------------------------------------------------- */

/* A pseudo-random word for each index (splitmix64). */
static uint64_t random_at(uint64_t index)
{
    uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Samples of an iteration, [n, seqlen]; which: inputs or labels. The numbers are those of the
 * samples, on whatever worker. */
static tri_tensor *draw(int64_t first, int64_t n, int which)
{
    int64_t *tokens = malloc((size_t)(n * settings.seqlen) * sizeof(*tokens));
    tri_tensor *batch;

    if (tokens == NULL)
        options_refuse("--batch_size: no memory");
    for (int64_t k = 0; k < n * settings.seqlen; k++)
        tokens[k] = (int64_t)(random_at((uint64_t)(2 * (first * settings.seqlen + k) + which)) %
                              (uint64_t)settings.vocab_size);
    batch = tri_tensor_from(TRI_SHAPE(n, settings.seqlen), TRI_DTYPE_I64, tokens);
    free(tokens);
    return batch;
}

/* One iteration; the loss of the whole batch. The workers of a "tp" group have the same samples. */
static double train(tri_module *model, tri_optimizer *optimizer, const tri_mesh *mesh, int i)
{
    int64_t part = settings.batch_size / tri_mesh_size(mesh, "dp");
    int64_t first = settings.batch_size * i + part * tri_mesh_coordinate(mesh, "dp");
    tri_tensor *inp = draw(first, part, 0), *labels = draw(first, part, 1), *pred, *loss;
    double sum;

    pred = tri_forward(model, inp);
    loss = tri_keep(tri_dist_cross_entropy(
        tri_reshape(pred, TRI_SHAPE(-1, tri_tensor_size(pred, 2))), tri_flatten(labels, 0),
        settings.vocab_size, tri_mesh_group(mesh, "tp"), NULL));
    tri_backward(loss);
    TRI_TRY(tri_optimizer_step(optimizer));
    sum = tri_item(loss);
    TRI_TRY(tri_step_end_status());
    tri_tensor_unref(inp);
    tri_tensor_unref(labels);
    TRI_TRY(tri_all_reduce(tri_mesh_group(mesh, "dp"), &sum, &sum, 1, TRI_DTYPE_F64, TRI_REDOP_AVG,
                           NULL));
    return sum;
}

static void parse_options(int argc, char **argv)
{
    static const char usage[] = "usage: trirun --nproc-per-node N tp_tutorial [options]\n\n"
                                "Trains a Llama 2 that is cut over the workers.";
    const option options[] = {
        {.name = "--tp_size",
         .integer = &settings.tp_size,
         .min = 1,
         .help = "workers that share layers (2)"},
        {.name = "--num_iterations", .integer = &settings.num_iterations, .help = "(10)"},
        {.name = "--batch_size", .integer = &settings.batch_size, .min = 1, .help = "(8)"},
        {.name = "--seqlen", .integer = &settings.seqlen, .min = 1, .help = "(256)"},
        {.name = "--dim", .integer = &settings.dim, .min = 2, .help = "(256)"},
        {.name = "--n_layers", .integer = &settings.n_layers, .min = 1, .help = "(2)"},
        {.name = "--n_heads", .integer = &settings.n_heads, .min = 1, .help = "(16)"},
        {.name = "--vocab_size", .integer = &settings.vocab_size, .min = 1, .help = "(32000)"},
        {.name = "--lr", .number = &settings.lr, .help = "(0.003)"},
    };

    options_parse(argc, argv, usage, options);
    if (settings.dim % (2 * settings.n_heads) != 0)
        options_refuse("--dim: must be a multiple of twice --n_heads");
}

int main(int argc, char **argv)
{
    tri_mesh *device_mesh;
    tri_module *model, *model_2d;
    tri_optimizer *optimizer;
    int64_t dp_size;

    parse_options(argc, argv);
    TRI_TRY(tri_init(NULL));
    if (tri_world_size() % settings.tp_size != 0)
        options_refuse("--tp_size %lld: does not divide the %d workers",
                       (long long)settings.tp_size, tri_world_size());
    dp_size = tri_world_size() / settings.tp_size;
    if (settings.batch_size % dp_size != 0)
        options_refuse("--batch_size %lld: must be a multiple of the %lld copies of the model",
                       (long long)settings.batch_size, (long long)dp_size);
    printf("Starting 2D (FSDP + TP) example on rank %d.\n", tri_rank());
    TRI_TRY(tri_mesh_create(NULL, TRI_SHAPE(dp_size, settings.tp_size),
                            (const char *[]){"dp", "tp"}, &device_mesh));

    tri_manual_seed(0); /* though rank 0's values count */
    model = transformer_create();
    parallelize(model, tri_mesh_group(device_mesh, "tp"));
    model_2d =
        tri_fully_shard(model, &(tri_zero_options){.group = tri_mesh_group(device_mesh, "dp")});
    optimizer = tri_adamw(model_2d, settings.lr, NULL);

    for (int i = 0; i < settings.num_iterations; i++) {
        double loss = train(model_2d, optimizer, device_mesh, i);

        if (tri_rank() == 0)
            printf("2D iter %d complete, loss %.4f\n", i, loss);
    }
    if (tri_rank() == 0)
        printf("2D training successfully completed!\n");
    tri_optimizer_destroy(optimizer);
    tri_module_destroy(model_2d);
    tri_mesh_destroy(device_mesh);
    tri_finalize();
    return 0;
}
