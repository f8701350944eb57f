/*
 * lstm_layer.c - lstm: weights of all layers and directions, by torch's names.
 */
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/nn/module.h"

typedef struct lstm {
    tri_nn_lstm_options opt;
    int64_t input_size, hidden_size;
    int n_weights;
    tri_tensor **weights; /* [n_weights], as tri_lstm takes them */
} lstm;

static void lstm_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    const lstm *l = tri_module_data(self);
    tri_lstm_options opt = {.num_layers = l->opt.num_layers,
                            .no_bias = l->opt.no_bias,
                            .batch_first = l->opt.batch_first,
                            .bidirectional = l->opt.bidirectional,
                            .training = self->training,
                            .dropout = l->opt.dropout};
    tri_tensor *all[3];

    if ((n_in != 1 && n_in != 3) || (n_out != 1 && n_out != 3)) {
        trii_forward_refused(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                       "%s takes x, or x, h0 and c0, to y, or to y, h_n and c_n, "
                                       "not %d inputs to %d outputs",
                                       self->type->name, n_in, n_out),
                             out, n_out);
        return;
    }
    if (n_in == 3) {
        opt.h0 = in[1];
        opt.c0 = in[2];
    }
    tri_lstm(in[0], l->weights, l->n_weights, &opt, all);
    for (int i = 0; i < n_out; i++)
        out[i] = all[i];
}

static void lstm_destroy(tri_module *self)
{
    lstm *l = tri_module_data(self);

    trii_free(l->weights);
}

static int lstm_repr(tri_module *self, char *text, size_t bytes)
{
    const lstm *l = tri_module_data(self);
    char layers[32] = "", dropout[16 + TRII_FLOAT_TEXT] = "", number[TRII_FLOAT_TEXT];

    if (l->opt.num_layers != 1)
        snprintf(layers, sizeof(layers), ", num_layers=%d", l->opt.num_layers);
    if (l->opt.dropout != 0)
        snprintf(dropout, sizeof(dropout), ", dropout=%s", trii_float_text(l->opt.dropout, number));
    return snprintf(text, bytes, "%lld, %lld%s%s%s%s%s", (long long)l->input_size,
                    (long long)l->hidden_size, layers, l->opt.no_bias ? ", bias=False" : "",
                    l->opt.batch_first ? ", batch_first=True" : "", dropout,
                    l->opt.bidirectional ? ", bidirectional=True" : "");
}

/* Weight i in the order of tri_lstm: "weight_ih_l0", .., "bias_hh_l1_reverse". */
static tri_tensor *add_weight(tri_module *self, int i)
{
    static const char *const kinds[4] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const lstm *l = tri_module_data(self);
    int directions = l->opt.bidirectional ? 2 : 1, each = l->opt.no_bias ? 2 : 4, kind = i % each;
    int layer = i / each / directions;
    bool reverse = i / each % directions == 1;
    int64_t inputs = layer == 0 ? l->input_size : directions * l->hidden_size;
    int64_t shape[2] = {4 * l->hidden_size, kind == 0 ? inputs : l->hidden_size};
    char name[64];

    snprintf(name, sizeof(name), "%s_l%d%s", kinds[kind], layer, reverse ? "_reverse" : "");
    return tri_module_add_parameter(self, name, trii_parameter_new(shape, kind < 2 ? 2 : 1));
}

/* torch's reset_parameters. */
static tri_status add_weights(tri_module *self)
{
    lstm *l = tri_module_data(self);
    double bound = 1 / sqrt((double)l->hidden_size);
    tri_status status = TRI_OK;

    l->n_weights = l->opt.num_layers * (l->opt.bidirectional ? 2 : 1) * (l->opt.no_bias ? 2 : 4);
    l->weights = trii_alloc((size_t)l->n_weights, sizeof(tri_tensor *), "list of weights");
    if (l->weights == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < l->n_weights && status == TRI_OK; i++) {
        l->weights[i] = add_weight(self, i);
        status = tri_init_uniform(l->weights[i], -bound, bound);
    }
    return status;
}

tri_module *tri_nn_lstm(int64_t input_size, int64_t hidden_size, const tri_nn_lstm_options *opt)
{
    static const tri_module_class type = {.name = "LSTM",
                                          .size = sizeof(lstm),
                                          .forward = lstm_forward,
                                          .destroy = lstm_destroy,
                                          .extra_repr = lstm_repr};
    tri_nn_lstm_options o = opt != NULL ? *opt : (tri_nn_lstm_options){0};
    const char *wrong = NULL;
    tri_module *self;
    lstm *l;
    tri_status status = TRII_CHECK_RESERVED(tri_nn_lstm_options, opt);

    if (status != TRI_OK)
        return trii_module_failed(status);
    o.num_layers = o.num_layers == 0 ? 1 : o.num_layers;
    if (input_size < 1 || hidden_size < 1)
        wrong = "both must be at least 1";
    else if (hidden_size > INT64_MAX / 8)
        wrong = "hidden_size is too large";
    else if (o.num_layers < 1 || o.num_layers > 1024)
        wrong = "num_layers must be in [1, 1024]";
    else if (!(o.dropout >= 0 && o.dropout <= 1))
        wrong = "dropout must be in [0, 1]";
    if (wrong != NULL)
        return trii_module_failed(TRII_FAIL(
            TRI_ERR_INVALID_ARG, "nn_lstm(%lld, %lld), num_layers %d, dropout %g: %s",
            (long long)input_size, (long long)hidden_size, o.num_layers, o.dropout, wrong));
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    l = tri_module_data(self);
    l->opt = o;
    l->input_size = input_size;
    l->hidden_size = hidden_size;
    status = add_weights(self);
    if (status != TRI_OK)
        trii_module_fail(self, status);
    return self;
}
