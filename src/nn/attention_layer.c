/*
 * attention_layer.c - multihead_attention: three projections in one weight, attention, one more.
 */
#include <string.h>

#include "base/err.h"
#include "nn/module.h"

typedef struct multihead_attention {
    tri_tensor *in_proj_weight, *in_proj_bias;
    tri_module *out_proj;
    int64_t embed_dim, heads;
    double dropout;
    bool causal;
} multihead_attention;

/* Rows first, ..., first + n - 1 (in sizes of embed_dim) of the joint projection. */
static tri_tensor *project(const multihead_attention *m, tri_tensor *x, int64_t first, int64_t n)
{
    tri_tensor *weight = m->in_proj_weight, *bias = m->in_proj_bias;

    if (n < 3) {
        weight = tri_narrow(weight, 0, first * m->embed_dim, n * m->embed_dim);
        bias = bias != NULL ? tri_narrow(bias, 0, first * m->embed_dim, n * m->embed_dim) : NULL;
    }
    return tri_linear(x, weight, bias);
}

/* [N, T, C] -> [N, heads, T, C / heads] */
static tri_tensor *to_heads(const multihead_attention *m, tri_tensor *x)
{
    const int64_t shape[4] = {tri_tensor_size(x, 0), tri_tensor_size(x, 1), m->heads,
                              m->embed_dim / m->heads};

    return tri_transpose(tri_reshape(x, shape, 4), 1, 2);
}

static tri_status check_inputs(const multihead_attention *m, tri_tensor *const *in, int n_in)
{
    for (int i = 0; i < n_in; i++) {
        tri_status st = tri_tensor_status(in[i]);

        if (st < 0)
            return st;
        if (tri_tensor_ndim(in[i]) != 3 || tri_tensor_size(in[i], 2) != m->embed_dim)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "input %d of %d dimensions and %lld features: [N, T, %lld] is "
                             "expected",
                             i, tri_tensor_ndim(in[i]), (long long)tri_tensor_size(in[i], -1),
                             (long long)m->embed_dim);
    }
    return TRI_OK;
}

static void attention_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                              int n_out)
{
    const multihead_attention *m = tri_module_data(self);
    tri_tensor *part[3], *y;
    tri_status st;

    if ((n_in != 1 && n_in != 3) || n_out != 1)
        st = TRII_FAIL(TRI_ERR_INVALID_ARG,
                       "%s takes 1 input, or query, key and value, to 1 output, not %d to %d",
                       self->type->name, n_in, n_out);
    else
        st = check_inputs(m, in, n_in);
    for (int i = 0; i < n_out && st < 0; i++)
        out[i] = trii_forward_failed(st);
    if (st < 0)
        return;
    if (n_in == 1) {
        tri_split(project(m, in[0], 0, 3), TRI_SHAPE(m->embed_dim, m->embed_dim, m->embed_dim), -1,
                  part);
    } else {
        for (int i = 0; i < 3; i++)
            part[i] = project(m, in[i], i, 1);
    }
    for (int i = 0; i < 3; i++)
        part[i] = to_heads(m, part[i]);
    y = tri_attention(part[0], part[1], part[2],
                      &(tri_attention_options){.is_causal = m->causal,
                                               .dropout_p = self->training ? m->dropout : 0.0});
    y = tri_reshape(tri_transpose(y, 1, 2),
                    TRI_SHAPE(tri_tensor_size(in[0], 0), tri_tensor_size(in[0], 1), m->embed_dim));
    out[0] = tri_forward(m->out_proj, y);
}

/* torch's reset_parameters: Xavier for the joint weight, zeros for both biases. */
static tri_status add_projections(tri_module *self, bool bias)
{
    multihead_attention *m = tri_module_data(self);
    const int64_t c = m->embed_dim, shape[2] = {3 * c, c};
    tri_tensor *out_bias;
    tri_status st;

    m->in_proj_weight = tri_module_parameter(self, "in_proj_weight", trii_parameter_new(shape, 2));
    if (bias)
        m->in_proj_bias = tri_module_parameter(self, "in_proj_bias", trii_parameter_new(shape, 1));
    m->out_proj = tri_module_child(self, "out_proj",
                                   tri_nn_linear(c, c, &(tri_nn_linear_options){.no_bias = !bias}));
    st = tri_init_xavier_uniform(m->in_proj_weight, 1.0);
    if (st == TRI_OK && bias)
        st = tri_tensor_status(m->in_proj_bias);
    out_bias = tri_module_find(m->out_proj, "bias");
    return st == TRI_OK && out_bias != NULL ? tri_init_constant(out_bias, 0.0) : st;
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
    tri_status st;

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
    m->dropout = o.dropout;
    m->causal = o.is_causal;
    st = add_projections(self, !o.no_bias);
    if (st < 0)
        trii_module_fail(self, st);
    return self;
}
