/*
 * attention_layer.c - multihead_attention: three projections in one weight, attention, one more.
 */
#include <math.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/option.h"
#include "train/graph/step/type.h"
#include "train/nn/module.h"

typedef struct multihead_attention {
    tri_tensor *in_proj_weight, *in_proj_bias;
    tri_module *out_proj;
    int64_t embed_dim, heads;
    int64_t width; /* of all heads that are here: embed_dim, unless others are on other ranks */
    double dropout;
    bool causal;
} multihead_attention;

/* Rows first, ..., first + n - 1 (in units of the width) of the joint projection. */
static tri_tensor *project(const multihead_attention *m, tri_tensor *x, int64_t first, int64_t n)
{
    tri_tensor *weight = m->in_proj_weight, *bias = m->in_proj_bias;

    if (n < 3) {
        weight = tri_narrow(weight, 0, first * m->width, n * m->width);
        bias = bias != NULL ? tri_narrow(bias, 0, first * m->width, n * m->width) : NULL;
    }
    return tri_linear(x, weight, bias);
}

/* [N, T, C] -> [N, heads, T, C / heads] */
static tri_tensor *to_heads(const multihead_attention *m, tri_tensor *x)
{
    const int64_t shape[4] = {tri_tensor_size(x, 0), tri_tensor_size(x, 1), m->heads,
                              m->width / m->heads};

    return tri_transpose(tri_reshape(x, shape, 4), 1, 2);
}

/* As trii_type_text. */
static const char *text_of(const tri_tensor *x, char text[TRII_TYPE_TEXT])
{
    trii_type type = {.dtype = tri_tensor_dtype(x), .ndim = tri_tensor_ndim(x)};

    for (int d = 0; d < type.ndim; d++)
        type.shape[d] = tri_tensor_size(x, d);
    return trii_type_text(&type, text);
}

static tri_status check_inputs(const multihead_attention *m, tri_tensor *const *in, int n_in)
{
    static const char *const names[3] = {"query", "key", "value"};
    char text[TRII_TYPE_TEXT];

    for (int i = 0; i < n_in && i < 3; i++) {
        const char *name = n_in == 1 ? "x" : names[i];
        tri_status status = in[i] != NULL ? tri_tensor_status(in[i])
                                          : TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is NULL", name);

        if (status != TRI_OK)
            return status;
        if (tri_tensor_ndim(in[i]) != 3 || tri_tensor_size(in[i], 2) != m->embed_dim)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is %s, not [N, %s, %lld]", name,
                             text_of(in[i], text), n_in > 1 && i > 0 ? "S" : "T",
                             (long long)m->embed_dim);
    }
    for (int i = 1; i < n_in && i < 3; i++) {
        char other[TRII_TYPE_TEXT];
        bool of_key = i == 2 && tri_tensor_size(in[2], 1) != tri_tensor_size(in[1], 1);

        if (of_key || tri_tensor_size(in[i], 0) != tri_tensor_size(in[0], 0))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is %s, but %s is %s: their %s differ",
                             names[i], text_of(in[i], text), of_key ? "key" : "query",
                             text_of(in[of_key ? 1 : 0], other), of_key ? "lengths" : "batches");
    }
    return TRI_OK;
}

/* --- masks ---------------------------------------------------------------- */

static bool is_bool(const tri_tensor *mask)
{
    return tri_tensor_dtype(mask) == TRI_DTYPE_BOOL;
}

static tri_status check_mask(const tri_tensor *mask, const char *name, bool fits, const char *shape)
{
    char text[TRII_TYPE_TEXT];

    if (tri_tensor_status(mask) < 0)
        return tri_tensor_status(mask);
    if (!is_bool(mask) && !trii_dtype_is_float(tri_tensor_dtype(mask)))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s is %s: bool (true: not looked at), or numbers that are added", name,
                         text_of(mask, text));
    return fits ? TRI_OK
                : TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is %s, not %s", name, text_of(mask, text),
                            shape);
}

/* Turns key_padding_mask [N, S] and attn_mask [T, S] or [N heads, T, S], either of which may be
 * absent, into what tri_attention takes: there true means the opposite. */
static tri_status mask_of(const multihead_attention *m, tri_tensor *const *in, int n_in,
                          tri_tensor **mask_out)
{
    tri_tensor *padding = n_in > 3 ? in[3] : NULL, *attn = n_in > 4 ? in[4] : NULL;
    int64_t n = tri_tensor_size(in[0], 0), t = tri_tensor_size(in[0], 1);
    int64_t s = tri_tensor_size(in[n_in > 1 ? 1 : 0], 1), heads = 1;
    char shape[128];
    tri_status status = TRI_OK;

    *mask_out = NULL;
    if (padding != NULL) {
        snprintf(shape, sizeof(shape), "[%lld, %lld] (N, S)", (long long)n, (long long)s);
        status = check_mask(padding, "key_padding_mask",
                            tri_tensor_ndim(padding) == 2 && tri_tensor_size(padding, 0) == n &&
                                tri_tensor_size(padding, 1) == s,
                            shape);
        if (status != TRI_OK)
            return status;
        padding = tri_reshape(padding, TRI_SHAPE(n, 1, 1, s));
    }
    if (attn != NULL) {
        bool each = tri_tensor_ndim(attn) == 3;

        snprintf(shape, sizeof(shape), "[%lld, %lld] (T, S) or [%lld, %lld, %lld] (N heads, T, S)",
                 (long long)t, (long long)s, (long long)n * m->heads, (long long)t, (long long)s);
        status = check_mask(
            attn, "attn_mask",
            (each ? tri_tensor_size(attn, 0) == n * m->heads : tri_tensor_ndim(attn) == 2) &&
                tri_tensor_size(attn, -2) == t && tri_tensor_size(attn, -1) == s,
            shape);
        if (status != TRI_OK)
            return status;
        heads = each ? m->heads : 1;
        attn = tri_reshape(attn, TRI_SHAPE(each ? n : 1, heads, t, s));
    }
    if (padding == NULL || attn == NULL)
        *mask_out = padding != NULL ? padding : attn;
    else if (is_bool(padding) && is_bool(attn))
        *mask_out = tri_logical_or(padding, attn);
    else if (!is_bool(padding) && !is_bool(attn))
        *mask_out = tri_add(padding, attn);
    else
        *mask_out = tri_masked_fill(tri_expand(is_bool(attn) ? padding : attn, /* the numbers */
                                               TRI_SHAPE(n, heads, t, s)),
                                    is_bool(attn) ? attn : padding, -(double)INFINITY);
    if (*mask_out != NULL && is_bool(*mask_out))
        *mask_out = tri_logical_not(*mask_out);
    return TRI_OK;
}

/* --- the module ----------------------------------------------------------- */

static tri_tensor *attend(tri_module *self, tri_tensor *const *in, int n_in)
{
    const multihead_attention *m = tri_module_data(self);
    tri_tensor *part[3], *mask = NULL, *y;
    tri_status status = check_inputs(m, in, n_in);

    if (status == TRI_OK)
        status = mask_of(m, in, n_in, &mask);
    if (status != TRI_OK)
        return trii_forward_failed(status);
    if (n_in == 1 || (in[0] == in[1] && in[1] == in[2])) {
        tri_split(project(m, in[0], 0, 3), TRI_SHAPE(m->width, m->width, m->width), -1, part);
    } else {
        for (int i = 0; i < 3; i++)
            part[i] = project(m, in[i], i, 1);
    }
    for (int i = 0; i < 3; i++)
        part[i] = to_heads(m, part[i]);
    y = tri_attention(part[0], part[1], part[2],
                      &(tri_attention_options){.attn_mask = mask,
                                               .is_causal = m->causal,
                                               .dropout_p = self->training ? m->dropout : 0.0});
    y = tri_reshape(tri_transpose(y, 1, 2),
                    TRI_SHAPE(tri_tensor_size(in[0], 0), tri_tensor_size(in[0], 1), m->width));
    return tri_forward(m->out_proj, y);
}

static void attention_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                              int n_out)
{
    if ((n_in == 1 || (n_in >= 3 && n_in <= 5)) && n_out == 1) {
        out[0] = attend(self, in, n_in);
        return;
    }
    trii_forward_refused(
        TRII_FAIL(TRI_ERR_INVALID_ARG,
                  "%s takes 1 input, or query, key, value, key_padding_mask and attn_mask (the "
                  "masks may be left out), to 1 output, not %d to %d",
                  self->type->name, n_in, n_out),
        out, n_out);
}

bool trii_attention_of(const tri_module *module, trii_attention *attention_out)
{
    const multihead_attention *m = module->data;

    if (module->type->forward != attention_forward)
        return false;
    *attention_out = (trii_attention){.heads = m->heads,
                                      .head_width = m->width / m->heads,
                                      .weight = m->in_proj_weight,
                                      .bias = m->in_proj_bias};
    return true;
}

void trii_attention_keep(tri_module *module, int64_t heads)
{
    multihead_attention *m = module->data;

    m->width = m->width / m->heads * heads;
    m->heads = heads;
}

/* torch's reset_parameters: Xavier for the joint weight, zeros for both biases. */
static tri_status add_projections(tri_module *self, bool bias)
{
    multihead_attention *m = tri_module_data(self);
    const int64_t c = m->embed_dim, shape[2] = {3 * c, c};
    tri_tensor *out_bias;
    tri_status status;

    m->in_proj_weight =
        tri_module_add_parameter(self, "in_proj_weight", trii_parameter_new(shape, 2));
    if (bias)
        m->in_proj_bias =
            tri_module_add_parameter(self, "in_proj_bias", trii_parameter_new(shape, 1));
    m->out_proj = tri_module_add_child(
        self, "out_proj", tri_nn_linear(c, c, &(tri_nn_linear_options){.no_bias = !bias}));
    status = tri_init_xavier_uniform(m->in_proj_weight, 1.0);
    if (status == TRI_OK && bias)
        status = tri_tensor_status(m->in_proj_bias);
    out_bias = tri_module_find(m->out_proj, "bias");
    return status == TRI_OK && out_bias != NULL ? tri_init_constant(out_bias, 0.0) : status;
}

tri_module *tri_nn_multihead_attention(int64_t embed_dim, int64_t num_heads,
                                       const tri_nn_multihead_attention_options *opt)
{
    static const tri_module_class type = {.name = "MultiheadAttention",
                                          .size = sizeof(multihead_attention),
                                          .forward = attention_forward};
    const tri_nn_multihead_attention_options o =
        opt != NULL ? *opt : (tri_nn_multihead_attention_options){0};
    const char *wrong = NULL;
    tri_module *self;
    multihead_attention *m;
    tri_status status = TRII_CHECK_RESERVED(tri_nn_multihead_attention_options, opt);

    if (status != TRI_OK)
        return trii_module_failed(status);
    if (embed_dim < 1 || num_heads < 1)
        wrong = "both must be at least 1";
    else if (embed_dim > INT64_MAX / 3)
        wrong = "embed_dim is too large";
    else if (embed_dim % num_heads != 0)
        wrong = "embed_dim must be a multiple of num_heads";
    else if (!(o.dropout >= 0.0 && o.dropout < 1.0))
        wrong = "dropout must be in [0, 1)";
    if (wrong != NULL)
        return trii_module_failed(
            TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_multihead_attention(%lld, %lld), dropout %g: %s",
                      (long long)embed_dim, (long long)num_heads, o.dropout, wrong));
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    m = tri_module_data(self);
    m->embed_dim = embed_dim;
    m->heads = num_heads;
    m->width = embed_dim;
    m->dropout = o.dropout;
    m->causal = o.is_causal;
    status = add_projections(self, !o.no_bias);
    if (status != TRI_OK)
        trii_module_fail(self, status);
    return self;
}
