/*
 * linear_layer.c - linear; and what layers with a weight and a bias share.
 */
#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "base/option.h"
#include "train/graph/step/cut_features.h"
#include "train/nn/module.h"
#include "train/tensor/persistent.h"

/* Registers "weight" and, unless without, "bias", with torch's reset_parameters of linear and
 * convolution layers: kaiming_uniform(sqrt 5) and uniform within 1/sqrt(fan in). */
void trii_add_weight_and_bias(tri_module *self, const int64_t *shape, int ndim, bool bias,
                              tri_tensor **weight_out, tri_tensor **bias_out)
{
    double fan_in = 1.0;
    tri_status status;

    for (int d = 1; d < ndim; d++)
        fan_in *= (double)shape[d];
    *weight_out = tri_module_add_parameter(self, "weight", trii_parameter_new(shape, ndim));
    status = tri_init_kaiming_uniform(*weight_out, sqrt(5.0), TRI_FAN_IN);
    *bias_out = NULL;
    if (status == TRI_OK && bias) {
        double bound = fan_in > 0.0 ? 1.0 / sqrt(fan_in) : 0.0;

        *bias_out = tri_module_add_parameter(self, "bias", trii_parameter_new(shape, 1));
        status = tri_init_uniform(*bias_out, -bound, bound);
    }
    if (status != TRI_OK)
        trii_module_fail(self, status);
}

typedef struct linear {
    tri_tensor *weight, *bias;
} linear;

/* What an earlier layer has left cut (tri_parallelize) reaches a layer that no rule names. */
static tri_tensor *check_whole(const linear *layer, tri_tensor *x)
{
    const trii_cut_features cut = trii_cut_features_now();
    int64_t wanted;

    if (cut.parts == 0 || x == NULL || tri_tensor_status(x) != TRI_OK || tri_tensor_ndim(x) < 1)
        return x;
    wanted = tri_tensor_size(layer->weight, 1);
    if (tri_tensor_size(x, -1) == wanted || tri_tensor_size(x, -1) != cut.parts * cut.n)
        return x;
    return trii_forward_failed(TRII_FAIL(
        TRI_ERR_INVALID_ARG,
        "x has %lld features, this rank's part of the %lld of a layer that is TRI_COLWISE, "
        "and the weight takes %lld: make this layer TRI_ROWWISE, or give that one .output "
        "= TRI_WHOLE",
        (long long)(cut.parts * cut.n), (long long)(cut.parts * cut.whole), (long long)wanted));
}

static void linear_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    linear *layer = tri_module_data(self);

    if (trii_one_to_one(self, n_in, out, n_out))
        out[0] = tri_linear(check_whole(layer, in[0]), layer->weight, layer->bias);
}

static int linear_repr(tri_module *self, char *text, size_t bytes)
{
    const linear *layer = tri_module_data(self);

    return snprintf(text, bytes, "in_features=%lld, out_features=%lld, bias=%s",
                    (long long)tri_tensor_size(layer->weight, 1),
                    (long long)tri_tensor_size(layer->weight, 0),
                    layer->bias != NULL ? "True" : "False");
}

tri_module *tri_nn_linear(int64_t in_features, int64_t out_features,
                          const tri_nn_linear_options *opt)
{
    static const tri_module_class type = {.name = "Linear",
                                          .size = sizeof(linear),
                                          .forward = linear_forward,
                                          .extra_repr = linear_repr};
    const int64_t shape[2] = {out_features, in_features};
    bool bias = opt == NULL || !opt->no_bias;
    tri_status status = TRII_CHECK_RESERVED(tri_nn_linear_options, opt);
    tri_module *self;
    linear *layer;

    if (status != TRI_OK)
        return trii_module_failed(status);
    if (in_features < 1 || out_features < 1)
        return trii_module_failed(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                            "nn_linear(%lld, %lld): %s must be at least 1",
                                            (long long)in_features, (long long)out_features,
                                            in_features < 1 ? "in_features" : "out_features"));
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    layer = tri_module_data(self);
    trii_add_weight_and_bias(self, shape, 2, bias, &layer->weight, &layer->bias);
    return self;
}
