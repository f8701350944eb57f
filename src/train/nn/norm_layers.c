/*
 * norm_layers.c - layer_norm and rms_norm: rows of a given shape, with a weight of that shape.
 */
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/option.h"
#include "train/nn/module.h"

typedef struct row_norm {
    tri_tensor *weight, *bias; /* each may be NULL */
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    tri_opt eps;
} row_norm;

static void rms_norm_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out)
{
    const row_norm *layer = tri_module_data(self);

    if (trii_one_to_one(self, n_in, out, n_out))
        out[0] = trii_row_norm_with(self, in[0], layer->weight, NULL);
}

static void layer_norm_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                               int n_out)
{
    const row_norm *layer = tri_module_data(self);

    if (trii_one_to_one(self, n_in, out, n_out))
        out[0] = trii_row_norm_with(self, in[0], layer->weight, layer->bias);
}

tri_tensor *trii_row_norm_with(const tri_module *module, tri_tensor *x, tri_tensor *weight,
                               tri_tensor *bias)
{
    const row_norm *layer = module->data;

    return module->type->forward == rms_norm_forward
               ? tri_rms_norm(x, layer->ndim, weight, layer->eps)
               : tri_layer_norm(x, layer->ndim, weight, bias, trii_option(layer->eps, 1e-5));
}

bool trii_row_norm_of(const tri_module *module, tri_tensor **weight_out, tri_tensor **bias_out)
{
    const row_norm *layer = module->data;

    if (module->type->forward != layer_norm_forward && module->type->forward != rms_norm_forward)
        return false;
    *weight_out = layer->weight;
    *bias_out = layer->bias;
    return true;
}

/* "(768,)", "(4, 6)", as Python writes a tuple. */
static const char *tuple_text(const row_norm *layer, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "(");

    for (int d = 0; d < layer->ndim && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, d > 0 ? ", %lld" : "%lld",
                                 (long long)layer->shape[d]);
    if (used < bytes)
        snprintf(text + used, bytes - used, layer->ndim == 1 ? ",)" : ")");
    return text;
}

static int layer_norm_repr(tri_module *self, char *text, size_t bytes)
{
    const row_norm *layer = tri_module_data(self);
    char eps[TRII_FLOAT_TEXT], shape[TRI_MAX_DIMS * 24];

    return snprintf(text, bytes, "%s, eps=%s, elementwise_affine=%s, bias=%s",
                    tuple_text(layer, shape, sizeof(shape)),
                    trii_float_text(trii_option(layer->eps, 1e-5), eps),
                    layer->weight != NULL ? "True" : "False",
                    layer->bias != NULL ? "True" : "False");
}

static int rms_norm_repr(tri_module *self, char *text, size_t bytes)
{
    const row_norm *layer = tri_module_data(self);
    double eps_value = trii_option(layer->eps, -1.0); /* the default depends on the input's dtype */
    char eps[TRII_FLOAT_TEXT], shape[TRI_MAX_DIMS * 24];

    return snprintf(text, bytes, "%s, eps=%s, elementwise_affine=%s",
                    tuple_text(layer, shape, sizeof(shape)),
                    eps_value < 0.0 ? "None" : trii_float_text(eps_value, eps),
                    layer->weight != NULL ? "True" : "False");
}

static tri_status check_row(const char *label, const int64_t *shape, int ndim, tri_opt given)
{
    const double eps = trii_option(given, 0);

    if (ndim < 1 || ndim > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_%s: a row of %d dimensions, 1 to %d are allowed",
                         label, ndim, TRI_MAX_DIMS);
    if (shape == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_%s: shape is NULL", label);
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 1)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_%s: shape[%d] is %lld: must be at least 1",
                             label, d, (long long)shape[d]);
    }
    if (!(eps >= 0.0 && eps <= DBL_MAX))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_%s: eps %g must be at least 0", label, eps);
    return TRI_OK;
}

static tri_module *row_norm_new(const tri_module_class *type, const int64_t *shape, int ndim,
                                tri_opt eps, bool weight, bool bias)
{
    tri_module *self = tri_module_create(type);
    row_norm *layer = tri_module_data(self);
    tri_status status = TRI_OK;

    if (tri_module_status(self) < 0)
        return self;
    layer->ndim = ndim;
    memcpy(layer->shape, shape, (size_t)ndim * sizeof(int64_t));
    layer->eps = eps;
    if (weight) {
        layer->weight = tri_module_add_parameter(self, "weight", trii_parameter_new(shape, ndim));
        status = tri_init_constant(layer->weight, 1.0);
    }
    if (status == TRI_OK && bias) {
        layer->bias = tri_module_add_parameter(self, "bias", trii_parameter_new(shape, ndim));
        status = tri_tensor_status(layer->bias);
    }
    if (status != TRI_OK)
        trii_module_fail(self, status);
    return self;
}

tri_module *tri_nn_layer_norm(const int64_t *shape, int ndim, const tri_nn_layer_norm_options *opt)
{
    static const tri_module_class type = {.name = "LayerNorm",
                                          .size = sizeof(row_norm),
                                          .forward = layer_norm_forward,
                                          .extra_repr = layer_norm_repr};
    const tri_nn_layer_norm_options o = opt != NULL ? *opt : (tri_nn_layer_norm_options){0};
    tri_status status = TRII_CHECK_RESERVED(tri_nn_layer_norm_options, opt);

    if (status == TRI_OK)
        status = check_row("layer_norm", shape, ndim, o.eps);
    if (status != TRI_OK)
        return trii_module_failed(status);
    return row_norm_new(&type, shape, ndim, o.eps, !o.no_elementwise_affine,
                        !o.no_elementwise_affine && !o.no_bias);
}

tri_module *tri_nn_rms_norm(const int64_t *shape, int ndim, const tri_nn_rms_norm_options *opt)
{
    static const tri_module_class type = {.name = "RMSNorm",
                                          .size = sizeof(row_norm),
                                          .forward = rms_norm_forward,
                                          .extra_repr = rms_norm_repr};
    const tri_nn_rms_norm_options o = opt != NULL ? *opt : (tri_nn_rms_norm_options){0};
    tri_status status = TRII_CHECK_RESERVED(tri_nn_rms_norm_options, opt);

    if (status == TRI_OK)
        status = check_row("rms_norm", shape, ndim, o.eps);
    if (status != TRI_OK)
        return trii_module_failed(status);
    return row_norm_new(&type, shape, ndim, o.eps, !o.no_elementwise_affine, false);
}
