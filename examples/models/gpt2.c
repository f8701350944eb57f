/*
 * gpt2.c - GPT-2 from operations: every layer is a module of this file.
 */
#include "gpt2.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A weight, and a bias or NULL: of products, norms and tables. */
typedef struct layer {
    tri_tensor *weight, *bias;
} layer;

static void conv1d_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    layer *l = tri_module_data(self);

    (void)n_in, (void)n_out;
    out[0] = tri_add(tri_matmul(in[0], l->weight), l->bias);
}

static void norm_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    layer *l = tri_module_data(self);

    (void)n_in, (void)n_out;
    out[0] = tri_layer_norm(in[0], 1, l->weight, l->bias, 0);
}

static void table_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                          int n_out)
{
    layer *l = tri_module_data(self);

    (void)n_in, (void)n_out;
    out[0] = tri_embedding(l->weight, in[0], NULL);
}

static const tri_module_class conv1d = {"conv1d", sizeof(layer), conv1d_forward, NULL};
static const tri_module_class norm = {"layer_norm", sizeof(layer), norm_forward, NULL};
static const tri_module_class table = {"embedding", sizeof(layer), table_forward, NULL};

/* weight [rows, cols], drawn with a deviation of std, of a norm ones [cols]; bias [cols], zeros. */
static tri_module *layer_create(const tri_module_class *type, const gpt_options *opt, int64_t rows,
                                int64_t cols, double std)
{
    tri_module *self = tri_module_create(type);
    layer *l = tri_module_data(self);
    tri_dtype dtype = opt->dtype == TRI_DTYPE_NONE ? TRI_DTYPE_F32 : opt->dtype;
    tri_tensor *weight;
    tri_status status;

    if (l == NULL)
        return self; /* a failed module: whoever uses it gets the error */
    weight = type == &norm ? tri_tensor_create(dtype, TRI_SHAPE(cols))
                           : tri_tensor_create(dtype, TRI_SHAPE(rows, cols));
    status = type == &norm ? tri_init_constant(weight, 1) : tri_init_normal(weight, 0, std);
    (void)status; /* then the weight has failed, too, and with it the module */
    l->weight = tri_module_parameter(self, "weight", weight);
    if (type != &table)
        l->bias = tri_module_parameter(self, "bias", tri_tensor_create(dtype, TRI_SHAPE(cols)));
    return self;
}

/* x + attention(ln_1(x)), then + mlp(ln_2(x)) */
typedef struct block {
    tri_module *ln_1, *attn, *ln_2, *mlp;
} block;

typedef struct part { /* attn or mlp */
    tri_module *first, *c_proj;
    int64_t heads;
    double dropout;
} part;

static tri_tensor *dropped(tri_module *self, tri_tensor *x, double p)
{
    return p > 0 ? tri_dropout(x, p, tri_module_is_training(self)) : x;
}

static void attn_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    part *a = tri_module_data(self);
    int64_t n = tri_tensor_size(in[0], 0), t = tri_tensor_size(in[0], 1);
    int64_t c = tri_tensor_size(in[0], 2);
    tri_tensor *qkv[3], *y;

    (void)n_in, (void)n_out;
    tri_split(tri_forward(a->first, in[0]), TRI_SHAPE(c, c, c), -1, qkv);
    for (int i = 0; i < 3; i++) /* [N, T, C] -> [N, heads, T, C / heads] */
        qkv[i] = tri_transpose(tri_reshape(qkv[i], TRI_SHAPE(n, t, a->heads, c / a->heads)), 1, 2);
    y = tri_attention(qkv[0], qkv[1], qkv[2],
                      &(tri_attention_options){
                          .is_causal = true,
                          .dropout_p = tri_module_is_training(self) ? a->dropout : 0,
                      });
    y = tri_reshape(tri_transpose(y, 1, 2), TRI_SHAPE(n, t, c));
    out[0] = dropped(self, tri_forward(a->c_proj, y), a->dropout);
}

static void mlp_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                        int n_out)
{
    part *m = tri_module_data(self);

    (void)n_in, (void)n_out;
    out[0] = tri_forward(m->c_proj, tri_gelu(tri_forward(m->first, in[0]), TRI_GELU_TANH));
    out[0] = dropped(self, out[0], m->dropout);
}

static void block_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                          int n_out)
{
    block *b = tri_module_data(self);
    tri_tensor *x = tri_add(in[0], tri_forward(b->attn, tri_forward(b->ln_1, in[0])));

    (void)n_in, (void)n_out;
    out[0] = tri_add(x, tri_forward(b->mlp, tri_forward(b->ln_2, x)));
}

static tri_module *part_create(const gpt_options *opt, bool attention)
{
    static const tri_module_class attn = {"attention", sizeof(part), attn_forward, NULL};
    static const tri_module_class mlp = {"mlp", sizeof(part), mlp_forward, NULL};
    tri_module *self = tri_module_create(attention ? &attn : &mlp);
    part *p = tri_module_data(self);
    int64_t c = opt->width, inner = attention ? c : 4 * c;

    if (p == NULL)
        return self;
    p->heads = opt->heads;
    p->dropout = opt->dropout;
    p->first = tri_module_child(self, attention ? "c_attn" : "c_fc",
                                layer_create(&conv1d, opt, c, attention ? 3 * c : 4 * c, 0.02));
    /* what is added 2 layers times */
    p->c_proj = tri_module_child(
        self, "c_proj",
        layer_create(&conv1d, opt, inner, c, 0.02 / sqrt(2.0 * (double)opt->layers)));
    return self;
}

static tri_module *block_create(const gpt_options *opt)
{
    static const tri_module_class type = {"block", sizeof(block), block_forward, NULL};
    tri_module *self = tri_module_create(&type);
    block *b = tri_module_data(self);

    if (b == NULL)
        return self;
    b->ln_1 = tri_module_child(self, "ln_1", layer_create(&norm, opt, 0, opt->width, 0));
    b->attn = tri_module_child(self, "attn", part_create(opt, true));
    b->ln_2 = tri_module_child(self, "ln_2", layer_create(&norm, opt, 0, opt->width, 0));
    b->mlp = tri_module_child(self, "mlp", part_create(opt, false));
    return self;
}

typedef struct gpt {
    tri_module *wte, *wpe, *h, *ln_f;
    double dropout;
} gpt;

static tri_tensor *weight_of(tri_module *layer_module)
{
    return ((layer *)tri_module_data(layer_module))->weight;
}

static void gpt_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                        int n_out)
{
    gpt *g = tri_module_data(self);
    tri_tensor *wte = weight_of(g->wte), *wpe = weight_of(g->wpe), *x;

    (void)n_in, (void)n_out;
    x = tri_add(tri_forward(g->wte, in[0]), tri_narrow(wpe, 0, 0, tri_tensor_size(in[0], 1)));
    x = tri_forward(g->ln_f, tri_forward(g->h, dropped(self, x, g->dropout)));
    out[0] = tri_linear(x, wte, NULL); /* the head is the table of tokens */
}

tri_module *gpt_create(const gpt_options *opt)
{
    static const tri_module_class type = {"gpt", sizeof(gpt), gpt_forward, NULL};
    tri_module *self = tri_module_create(&type), *blocks[256];
    gpt *g = tri_module_data(self);
    int n = opt->layers > 256 ? 256 : (int)opt->layers;

    if (g == NULL)
        return self;
    g->dropout = opt->dropout;
    g->wte =
        tri_module_child(self, "wte", layer_create(&table, opt, opt->vocabulary, opt->width, 0.02));
    g->wpe =
        tri_module_child(self, "wpe", layer_create(&table, opt, opt->context, opt->width, 0.02));
    for (int i = 0; i < n; i++)
        blocks[i] = block_create(opt);
    g->h = tri_module_child(self, "h", tri_sequential_of(n, blocks));
    g->ln_f = tri_module_child(self, "ln_f", layer_create(&norm, opt, 0, opt->width, 0));
    return self;
}

/* --- published weights ------------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

const char *gpt_name(const char *name)
{
    if (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
        strcmp(name, "lm_head.weight") == 0)
        return NULL;
    return strncmp(name, "transformer.", 12) == 0 ? name + 12 : name;
}

tri_status gpt_load(tri_module *module, const char *path)
{
    tri_safetensors *file;
    tri_state_source *sources;
    tri_status status = tri_safetensors_open(path, &file);
    int64_t n = 0;

    if (status != TRI_OK)
        return status;
    sources = calloc((size_t)tri_safetensors_count(file) + 1, sizeof(*sources));
    for (int64_t i = 0; sources != NULL && i < tri_safetensors_count(file); i++) {
        const tri_safetensors_entry *e = tri_safetensors_get(file, i);
        tri_state_source *s = &sources[n];

        if (gpt_name(e->name) == NULL)
            continue;
        *s = (tri_state_source){.name = gpt_name(e->name), .dtype = e->dtype, .ndim = e->ndim};
        memcpy(s->shape, e->shape, sizeof(s->shape));
        s->data = e->data;
        n++;
    }
    status = sources != NULL ? tri_module_load(module, sources, n, NULL) : TRI_ERR_NO_MEMORY;
    free(sources);
    tri_safetensors_close(file);
    return status;
}
