/*
 * gpt_network.h - the network of gpt.c, written so that it can be cut in both ways: it is a
 * sequence of modules, which tri_pipeline_split deals out to workers, and its blocks are made of
 * layers that tri_parallelize cuts.
 *
 * It is GPT-2, but for the head, which has weights of its own (in GPT-2 they are those of the
 * words, so that the first stage and the last would share them). tri_model_gpt2 is the published
 * network.
 */
#ifndef EXAMPLES_GPT_NETWORK_H
#define EXAMPLES_GPT_NETWORK_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

/* width is a multiple of heads. */
typedef struct gpt_options {
    int64_t layers, width, heads, context, vocabulary;
    double dropout;
} gpt_options;

/* --- words ---------------------------------------------------------------- */

typedef struct gpt_words {
    tri_module *wte, *wpe, *dropout;
} gpt_words;

/* Tokens i64 [N, context] -> [N, context, width]. */
static tri_tensor *gpt_words_forward(tri_module *self, tri_tensor *tokens)
{
    gpt_words *w = tri_module_data(self);
    tri_tensor *places = tri_module_find(w->wpe, "weight");

    return tri_forward(w->dropout, tri_add(tri_forward(w->wte, tokens), places));
}

static tri_module *gpt_words_create(const gpt_options *opt)
{
    tri_module *self = tri_module_simple("Words", sizeof(gpt_words), gpt_words_forward);
    gpt_words *w = tri_module_data(self);

    w->wte = tri_module_add_child(self, "wte", tri_nn_embedding(opt->vocabulary, opt->width, NULL));
    w->wpe = tri_module_add_child(self, "wpe", tri_nn_embedding(opt->context, opt->width, NULL));
    w->dropout = tri_module_add_child(self, "dropout", tri_nn_dropout(opt->dropout));
    return self;
}

/* --- blocks --------------------------------------------------------------- */

typedef struct gpt_block {
    tri_module *ln_1, *qkv, *proj, *dropout, *ln_2, *mlp;
    int64_t head; /* its width */
} gpt_block;

/* How many heads there are says the width of what `qkv` gives: a worker may have some of them. */
static tri_tensor *gpt_attend(const gpt_block *b, tri_tensor *x)
{
    tri_tensor *qkv = tri_forward(b->qkv, x), *part[3], *y;
    int64_t n = tri_tensor_size(qkv, 0), t = tri_tensor_size(qkv, 1);
    int64_t width = tri_tensor_size(qkv, 2) / 3;

    tri_split(qkv, TRI_SHAPE(width, width, width), -1, part);
    for (int i = 0; i < 3; i++)
        part[i] =
            tri_transpose(tri_reshape(part[i], TRI_SHAPE(n, t, width / b->head, b->head)), 1, 2);
    y = tri_attention(part[0], part[1], part[2], &(tri_attention_options){.is_causal = true});
    return tri_forward(b->proj, tri_reshape(tri_transpose(y, 1, 2), TRI_SHAPE(n, t, width)));
}

static tri_tensor *gpt_block_forward(tri_module *self, tri_tensor *x)
{
    gpt_block *b = tri_module_data(self);

    x = tri_add(x, tri_forward(b->dropout, gpt_attend(b, tri_forward(b->ln_1, x))));
    return tri_add(x, tri_forward(b->mlp, tri_forward(b->ln_2, x)));
}

static tri_module *gpt_block_create(const gpt_options *opt)
{
    tri_module *self = tri_module_simple("Block", sizeof(gpt_block), gpt_block_forward);
    gpt_block *b = tri_module_data(self);
    int64_t w = opt->width;

    b->head = w / opt->heads;
    b->ln_1 = tri_module_add_child(self, "ln_1", tri_nn_layer_norm(TRI_SHAPE(w), NULL));
    b->qkv = tri_module_add_child(self, "qkv", tri_nn_linear(w, 3 * w, NULL));
    b->proj = tri_module_add_child(self, "proj", tri_nn_linear(w, w, NULL));
    b->dropout = tri_module_add_child(self, "dropout", tri_nn_dropout(opt->dropout));
    b->ln_2 = tri_module_add_child(self, "ln_2", tri_nn_layer_norm(TRI_SHAPE(w), NULL));
    b->mlp = tri_module_add_child(self, "mlp", tri_nn_sequential_of(0, NULL));
    tri_module_add_child(b->mlp, "fc", tri_nn_linear(w, 4 * w, NULL));
    tri_module_add_child(b->mlp, "act", tri_nn_gelu(TRI_GELU_TANH));
    tri_module_add_child(b->mlp, "proj", tri_nn_linear(4 * w, w, NULL));
    tri_module_add_child(b->mlp, "dropout", tri_nn_dropout(opt->dropout));
    return self;
}

/* --- all of it ------------------------------------------------------------ */

/* Smaller where residuals add up; norms are as they are. */
static void gpt_init(tri_module *net, int64_t layers)
{
    for (int64_t i = 0; i < tri_module_state_count(net); i++) {
        tri_state_entry e = tri_module_state(net, i);
        bool adds = strstr(e.name, "proj.") != NULL;

        if (strstr(e.name, "ln_") != NULL)
            continue;
        if (strstr(e.name, ".bias") != NULL)
            TRI_TRY(tri_init_constant(e.tensor, 0));
        else
            TRI_TRY(tri_init_normal(e.tensor, 0, adds ? 0.02 / sqrt(2 * (double)layers) : 0.02));
    }
}

/* "words", "block0", "block1", .., "ln_f", "head": tokens i64 [N, context] -> logits [N, context,
 * vocabulary]. */
static tri_module *gpt_create(const gpt_options *opt)
{
    tri_module *net = tri_nn_sequential_of(0, NULL);
    char name[32];

    tri_module_add_child(net, "words", gpt_words_create(opt));
    for (int64_t i = 0; i < opt->layers; i++) {
        snprintf(name, sizeof(name), "block%lld", (long long)i);
        tri_module_add_child(net, name, gpt_block_create(opt));
    }
    tri_module_add_child(net, "ln_f", tri_nn_layer_norm(TRI_SHAPE(opt->width), NULL));
    tri_module_add_child(net, "head", tri_nn_linear(opt->width, opt->vocabulary, NULL));
    gpt_init(net, opt->layers);
    return net;
}

/* --- cutting it ----------------------------------------------------------- */

/* Heads, and what is between the two layers that follow, are divided among the workers of a group;
 * the rest is the same on all. */
static void gpt_cut_layers(tri_module *net, const gpt_options *opt, tri_group *group)
{
    int64_t head = opt->width / opt->heads;
    const tri_parallel_rule rules[] = {
        {.module = "block*.qkv", .style = TRI_COLWISE, .parts = 3, .block = head},
        {.module = "block*.proj", .style = TRI_ROWWISE, .block = head},
        {.module = "block*.mlp.fc", .style = TRI_COLWISE},
        {.module = "block*.mlp.proj", .style = TRI_ROWWISE},
    };

    TRI_TRY(tri_parallelize(net, group, rules, 4));
}

/* A stage for each worker of a group, each with as many blocks, but for one. */
static tri_module *gpt_cut_stages(tri_module *own_net, const gpt_options *opt, tri_group *group,
                                  int microbatches)
{
    enum { MOST = 64 };
    char names[MOST][32];
    const char *cuts[MOST];
    int n = tri_group_size(group);

    for (int s = 1; s < n && s < MOST; s++) {
        snprintf(names[s], sizeof(names[s]), "block%lld", (long long)(opt->layers * s / n));
        cuts[s - 1] = names[s];
    }
    return tri_pipeline_split(
        own_net, cuts, n, &(tri_pipeline_options){.group = group, .n_microbatches = microbatches});
}

#endif
