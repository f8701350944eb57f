/*
 * gpt2.c - GPT-2 from layers and operations.
 */
#include <trireme/models.h>

#include <math.h>
#include <string.h>

#include "models/model_parts.h"

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
        return self; /* a failed module: its users get the error */
    c->weight = trii_model_parameter(self, "weight", TRI_SHAPE(in, out));
    c->bias = trii_model_parameter(self, "bias", TRI_SHAPE(out));
    return self;
}

/* Attention. qkv [N, T, 3 C]: queries, keys and values, each of C / width heads -> [N, T, C]. Of a
 * network that is cut over ranks (tri_parallelize) that are this rank's heads. Each position looks
 * at itself and those before it. */
static tri_tensor *attend(tri_tensor *qkv, int64_t width)
{
    int64_t n = tri_tensor_size(qkv, 0), t = tri_tensor_size(qkv, 1);
    int64_t c = tri_tensor_size(qkv, 2) / 3, heads = c / width;
    tri_tensor *part[3], *y;

    tri_split(qkv, TRI_SHAPE(c, c, c), -1, part);
    for (int i = 0; i < 3; i++) /* [N, T, C] -> [N, heads, T, width] */
        part[i] = tri_transpose(tri_reshape(part[i], TRI_SHAPE(n, t, heads, width)), 1, 2);
    y = tri_attention(part[0], part[1], part[2], &(tri_attention_options){.is_causal = true});
    return tri_reshape(tri_transpose(y, 1, 2), TRI_SHAPE(n, t, c));
}

typedef struct block {
    tri_module *ln_1, *c_attn, *c_proj, *dropout, *ln_2, *mlp;
    int64_t head_width;
} block;

static tri_tensor *block_forward(tri_module *self, tri_tensor *x)
{
    block *b = tri_module_data(self);
    tri_tensor *y = attend(tri_forward(b->c_attn, tri_forward(b->ln_1, x)), b->head_width);

    x = tri_add(x, tri_forward(b->dropout, tri_forward(b->c_proj, y)));
    return tri_add(x, tri_forward(b->mlp, tri_forward(b->ln_2, x)));
}

static tri_module *block_create(const tri_model_gpt2_options *opt)
{
    tri_module *self = tri_module_simple("GPT2Block", sizeof(block), block_forward), *attn;
    block *b = tri_module_data(self);
    int64_t c = opt->width;

    if (b == NULL)
        return self;
    b->head_width = c / opt->heads;
    b->ln_1 = tri_module_add_child(self, "ln_1", tri_nn_layer_norm(TRI_SHAPE(c), NULL));
    /* used in the names of blocks */
    attn = tri_module_add_child(self, "attn", tri_nn_sequential_of(0, NULL));
    b->c_attn = tri_module_add_child(attn, "c_attn", conv1d_create(c, 3 * c));
    b->c_proj = tri_module_add_child(attn, "c_proj", conv1d_create(c, c));
    b->dropout = tri_module_add_child(attn, "dropout", tri_nn_dropout(opt->dropout));
    b->ln_2 = tri_module_add_child(self, "ln_2", tri_nn_layer_norm(TRI_SHAPE(c), NULL));
    b->mlp = tri_module_add_child(self, "mlp", tri_nn_sequential_of(0, NULL));
    tri_module_add_child(b->mlp, "c_fc", conv1d_create(c, 4 * c));
    tri_module_add_child(b->mlp, "act", tri_nn_gelu(TRI_GELU_TANH));
    tri_module_add_child(b->mlp, "c_proj", conv1d_create(4 * c, c));
    tri_module_add_child(b->mlp, "dropout", tri_nn_dropout(opt->dropout));
    return self;
}

typedef struct gpt {
    tri_module *wte, *wpe, *drop, *h, *ln_f;
} gpt;

static tri_tensor *gpt_forward(tri_module *self, tri_tensor *tokens)
{
    gpt *g = tri_module_data(self);
    tri_tensor *places = tri_module_find(g->wpe, "weight"), *x;
    int64_t context = tri_tensor_size(places, 0);

    if (tri_tensor_status(tokens) == TRI_OK &&
        (tri_tensor_ndim(tokens) != 2 || tri_tensor_size(tokens, 1) > context))
        return trii_model_refused(
            tri_module_fail(
                NULL, TRI_ERR_INVALID_ARG,
                "tri_model_gpt2: tokens %s: must be [N, T], T at most the context, %lld",
                tri_tensor_shape_text(tokens), (long long)context),
            tokens);
    x = tri_forward(g->wte, tokens);
    x = tri_add(x, tri_narrow(places, 0, 0, tri_tensor_size(tokens, 1)));
    x = tri_forward(g->ln_f, tri_forward(g->h, tri_forward(g->drop, x)));
    return tri_nn_embedding_scores(g->wte, x);
}

/* NULL if the sizes are right; else a failed module. */
static tri_module *check(const tri_model_gpt2_options *opt)
{
    const trii_model_size sizes[] = {{"layers", opt->layers},
                                     {"width", opt->width},
                                     {"heads", opt->heads},
                                     {"context", opt->context},
                                     {"vocabulary", opt->vocabulary}};
    tri_module *wrong = trii_model_reserved("tri_model_gpt2_options", opt->reserved,
                                            (int)(sizeof(opt->reserved) / sizeof(*opt->reserved)));

    if (wrong == NULL)
        wrong = trii_model_check("tri_model_gpt2", sizes, 5);
    if (wrong == NULL && opt->width % opt->heads != 0)
        wrong = tri_module_fail(NULL, TRI_ERR_INVALID_ARG,
                                "tri_model_gpt2: width %lld is not a multiple of heads %lld",
                                (long long)opt->width, (long long)opt->heads);
    return wrong;
}

/* opt has been checked. */
static tri_module *gpt2_create(const tri_model_gpt2_options *opt)
{
    tri_module *self = tri_module_simple("GPT2", sizeof(gpt), gpt_forward);
    gpt *g = tri_module_data(self);

    if (g == NULL)
        return self;
    g->wte = tri_module_add_child(self, "wte", tri_nn_embedding(opt->vocabulary, opt->width, NULL));
    g->wpe = tri_module_add_child(self, "wpe", tri_nn_embedding(opt->context, opt->width, NULL));
    g->drop = tri_module_add_child(self, "drop", tri_nn_dropout(opt->dropout));
    g->h = tri_module_add_child(self, "h", tri_nn_sequential_of(0, NULL));
    for (int64_t i = 0; i < opt->layers; i++)
        trii_model_child(g->h, "", i, block_create(opt));
    g->ln_f = tri_module_add_child(self, "ln_f", tri_nn_layer_norm(TRI_SHAPE(opt->width), NULL));
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

tri_module *tri_model_gpt2(const tri_model_gpt2_options *opt)
{
    tri_module *wrong;

    if (opt == NULL)
        return tri_module_fail(NULL, TRI_ERR_INVALID_ARG, "tri_model_gpt2: opt is NULL");
    wrong = check(opt);
    return wrong != NULL ? wrong : gpt2_create(opt);
}

const char *tri_model_gpt2_rename(const char *name, char *room, void *arg)
{
    (void)room, (void)arg;
    if (name == NULL || strstr(name, ".attn.bias") != NULL ||
        strstr(name, ".attn.masked_bias") != NULL || strcmp(name, "lm_head.weight") == 0)
        return NULL;
    return strncmp(name, "transformer.", 12) == 0 ? name + 12 : name;
}
