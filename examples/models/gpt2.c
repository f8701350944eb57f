/*
 * gpt2.c - GPT-2 from layers and operations.
 */
#include "gpt2.h"

#include <math.h>
#include <string.h>

#include "parts.h"

/* Hugging Face's Conv1D: a linear layer whose weight is [in, out]. */
typedef struct conv1d {
    tri_tensor *weight, *bias;
} conv1d;

static tri_tensor *conv1d_forward(tri_module *self, tri_tensor *x)
{
    conv1d *c = tri_module_data(self);

    return tri_add(tri_matmul(x, c->weight), c->bias);
}

static tri_module *conv1d_create(int64_t in, int64_t out)
{
    tri_module *self = tri_module_simple("Conv1D", sizeof(conv1d), conv1d_forward);
    conv1d *c = tri_module_data(self);

    if (c == NULL)
        return self; /* a failed module: whoever uses it gets the error */
    c->weight = parameter(self, "weight", TRI_SHAPE(in, out));
    c->bias = parameter(self, "bias", TRI_SHAPE(out));
    return self;
}

typedef struct block {
    tri_module *ln_1, *c_attn, *c_proj, *dropout, *ln_2, *mlp;
    int64_t heads;
} block;

static tri_tensor *block_forward(tri_module *self, tri_tensor *x)
{
    block *b = tri_module_data(self);
    tri_tensor *y = attend(tri_forward(b->c_attn, tri_forward(b->ln_1, x)), b->heads, true);

    x = tri_add(x, tri_forward(b->dropout, tri_forward(b->c_proj, y)));
    return tri_add(x, tri_forward(b->mlp, tri_forward(b->ln_2, x)));
}

static tri_module *block_create(const gpt_options *opt)
{
    tri_module *self = tri_module_simple("GPT2Block", sizeof(block), block_forward), *attn;
    block *b = tri_module_data(self);
    int64_t c = opt->width;

    if (b == NULL)
        return self;
    b->heads = opt->heads;
    b->ln_1 = tri_module_child(self, "ln_1", tri_nn_layer_norm(TRI_SHAPE(c), NULL));
    /* used in the names of blocks */
    attn = tri_module_child(self, "attn", tri_sequential_of(0, NULL));
    b->c_attn = tri_module_child(attn, "c_attn", conv1d_create(c, 3 * c));
    b->c_proj = tri_module_child(attn, "c_proj", conv1d_create(c, c));
    b->dropout = tri_module_child(attn, "dropout", tri_nn_dropout(opt->dropout));
    b->ln_2 = tri_module_child(self, "ln_2", tri_nn_layer_norm(TRI_SHAPE(c), NULL));
    b->mlp = tri_module_child(self, "mlp", tri_sequential_of(0, NULL));
    tri_module_child(b->mlp, "c_fc", conv1d_create(c, 4 * c));
    tri_module_child(b->mlp, "act", tri_nn_gelu(TRI_GELU_TANH));
    tri_module_child(b->mlp, "c_proj", conv1d_create(4 * c, c));
    tri_module_child(b->mlp, "dropout", tri_nn_dropout(opt->dropout));
    return self;
}

typedef struct gpt {
    tri_module *wte, *wpe, *drop, *h, *ln_f;
} gpt;

static tri_tensor *gpt_forward(tri_module *self, tri_tensor *tokens)
{
    gpt *g = tri_module_data(self);
    tri_tensor *places = tri_module_find(g->wpe, "weight");
    tri_tensor *x = tri_forward(g->wte, tokens);

    x = tri_add(x, tri_narrow(places, 0, 0, tri_tensor_size(tokens, 1)));
    x = tri_forward(g->ln_f, tri_forward(g->h, tri_forward(g->drop, x)));
    /* the head shares the token table */
    return tri_linear(x, tri_module_find(g->wte, "weight"), NULL);
}

tri_module *gpt_create(const gpt_options *opt)
{
    tri_module *self = tri_module_simple("GPT2", sizeof(gpt), gpt_forward);
    gpt *g = tri_module_data(self);

    if (g == NULL)
        return self;
    g->wte = tri_module_child(self, "wte", tri_nn_embedding(opt->vocabulary, opt->width, NULL));
    g->wpe = tri_module_child(self, "wpe", tri_nn_embedding(opt->context, opt->width, NULL));
    g->drop = tri_module_child(self, "drop", tri_nn_dropout(opt->dropout));
    g->h = tri_module_child(self, "h", tri_sequential_of(0, NULL));
    for (int64_t i = 0; i < opt->layers; i++)
        numbered_child(g->h, "", i, block_create(opt));
    g->ln_f = tri_module_child(self, "ln_f", tri_nn_layer_norm(TRI_SHAPE(opt->width), NULL));
    /* smaller where residuals add up */
    for (int64_t i = 0; i < tri_module_state_count(self); i++) {
        tri_state_entry e = tri_module_state(self, i);
        bool adds = strstr(e.name, "c_proj") != NULL;
        double std = adds ? 0.02 / sqrt(2 * (double)opt->layers) : 0.02;

        if (tri_tensor_ndim(e.tensor) == 2 && tri_init_normal(e.tensor, 0, std) < 0)
            break; /* no memory: the weight carries the error */
    }
    return self;
}

const char *gpt_rename(const char *name, char *room, void *arg)
{
    (void)room, (void)arg;
    if (strstr(name, ".attn.bias") != NULL || strstr(name, ".attn.masked_bias") != NULL ||
        strcmp(name, "lm_head.weight") == 0)
        return NULL;
    return strncmp(name, "transformer.", 12) == 0 ? name + 12 : name;
}
