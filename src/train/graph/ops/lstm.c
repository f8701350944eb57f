/*
 * lstm.c - one layer of an LSTM in one direction, over all of a sequence, from the projection of
 * its inputs on; and the kernel of its gradient, which gradients/lstm_gradient.c records.
 *
 *   a = gx[t] + h[t-1] W'              its quarters: a_i, a_f, a_g, a_o
 *   i, f, o = sigmoid of theirs        g = tanh(a_g)
 *   c[t] = f c[t-1] + i g              h[t] = o tanh(c[t])
 *
 * In the other direction t - 1 is t + 1. The time steps are one operation because each needs the
 * one before: as operations of their own they would be 35 times as many nodes, and products too
 * small for all threads. The projection, and the gradient of W, are products over all time steps,
 * and so operations of their own.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/graph/ops/lstm.h"
#include "train/graph/ops/rules.h"

/* --- forward -------------------------------------------------------------- */

/* in gx [T, N, 4 H], W [4 H, H], h0? c0? [N, H]; i: 1 = backwards in time; out h, c [T, N, H], and
 * i, f, g, o [T, N, 4 H] */
static tri_status layer_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    const trii_type *gx = in[0], *w = in[1];
    tri_status status = trii_rule_float(gx, "gates");
    int64_t hidden;

    (void)attrs;
    *n_out = 3;
    if (status == TRI_OK)
        status = trii_rule_ndim(gx, 3, "gates");
    if (status == TRI_OK)
        status = trii_rule_ndim(w, 2, "weight_hh");
    if (status != TRI_OK)
        return status;
    hidden = w->shape[1];
    status = trii_rule_same_dtype(gx, w);
    if (status == TRI_OK && (w->shape[0] != 4 * hidden || gx->shape[2] != 4 * hidden))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "weight_hh is [%" PRId64 ", %" PRId64 "], the gates are of %" PRId64
                           ": both must be 4 times the hidden size",
                           w->shape[0], hidden, gx->shape[2]);
    if (status == TRI_OK && gx->shape[0] < 1)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "the sequence has no time steps");
    for (int k = 2; k < n_in && status == TRI_OK; k++) {
        if (in[k] == NULL)
            continue;
        status = trii_rule_same_dtype(gx, in[k]);
        if (status == TRI_OK)
            status =
                trii_rule_shape(in[k], k == 2 ? "h0" : "c0", 2, (int64_t[]){gx->shape[1], hidden});
    }
    if (status != TRI_OK)
        return status;
    for (int k = 0; k < 3; k++) {
        trii_type_copy(&out[k], gx);
        out[k].shape[2] = k < 2 ? hidden : 4 * hidden;
    }
    return TRI_OK;
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static tri_status layer_kernel(const trii_kernel_args *args)
{
    const trii_type *type = args->out[0].type;
    trii_lstm_sequence s = {type->shape[0], type->shape[1], type->shape[2], args->iattr[0] != 0};
    int64_t n = s.rows * s.hidden;
    const double *gx = args->in[0].data, *w = args->in[1].data;
    const double *h = args->in[2].data, *c = args->in[3].data; /* of the time step before */
    double *y = args->out[0].data, *cells = args->out[1].data, *gates = args->out[2].data;

    for (int64_t k = 0; k < s.steps; k++) {
        int64_t t = trii_lstm_time(&s, k);

        for (int64_t e = 0; e < n; e++) {
            int64_t row = e / s.hidden, unit = e % s.hidden, at = (t * s.rows + row) * 4 * s.hidden;
            double a[4];

            for (int64_t q = 0; q < 4; q++) {
                int64_t out = q * s.hidden + unit;

                a[q] = gx[at + out];
                for (int64_t j = 0; j < s.hidden && h != NULL; j++)
                    a[q] += h[row * s.hidden + j] * w[out * s.hidden + j];
                a[q] = q == 2 ? tanh(a[q]) : logistic(a[q]);
                gates[at + out] = a[q];
            }
            cells[t * n + e] = a[1] * (c != NULL ? c[e] : 0) + a[0] * a[2];
            y[t * n + e] = a[3] * tanh(cells[t * n + e]);
        }
        h = y + t * n;
        c = cells + t * n;
    }
    return TRI_OK;
}

static tri_status layer_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, layer_kernel);
}

/* --- backward ------------------------------------------------------------- */

/* in gh? gc? (of all time steps; one is there) W gates c c0?; i: as above, 1 = dh0 and dc0; out
 * dgx, dh0 and dc0 if wanted */
static tri_status backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    tri_status status = trii_rule_float(in[3], "gates");

    (void)n_in;
    *n_out = attrs->i[1] != 0 ? 3 : 1;
    trii_type_copy(&out[0], in[3]);
    for (int k = 1; k < *n_out; k++) {
        trii_type_copy(&out[k], in[4]);
        out[k].ndim = 2;
        out[k].shape[0] = in[4]->shape[1];
        out[k].shape[1] = in[4]->shape[2];
    }
    return status;
}

static tri_status backward_kernel(const trii_kernel_args *args)
{
    const trii_type *type = args->in[4].type;
    trii_lstm_sequence s = {type->shape[0], type->shape[1], type->shape[2], args->iattr[0] != 0};
    int64_t n = s.rows * s.hidden;
    const double *gh = args->in[0].data, *gc = args->in[1].data, *w = args->in[2].data;
    const double *gates = args->in[3].data, *cells = args->in[4].data, *c0 = args->in[5].data;
    double *da = args->out[0].data, *state, *dh, *dc;

    state = trii_work_take(args, (size_t)(2 * n), sizeof(*state));
    if (state == NULL)
        return TRI_ERR_NO_MEMORY;
    dh = state; /* what later time steps want */
    dc = state + n;
    for (int64_t k = s.steps - 1; k >= 0; k--) {
        int64_t t = trii_lstm_time(&s, k);
        const double *before = k > 0 ? cells + trii_lstm_time(&s, k - 1) * n : c0;

        for (int64_t e = 0; e < n; e++) {
            int64_t at = (t * s.rows + e / s.hidden) * 4 * s.hidden + e % s.hidden;
            const double *a = gates + at;
            double i = a[0], f = a[s.hidden], g = a[2 * s.hidden], o = a[3 * s.hidden];
            double c = tanh(cells[t * n + e]);
            double h_all = dh[e] + (gh != NULL ? gh[t * n + e] : 0);
            double c_all = dc[e] + (gc != NULL ? gc[t * n + e] : 0) + h_all * o * (1 - c * c);

            da[at] = c_all * g * i * (1 - i);
            da[at + s.hidden] = c_all * (before != NULL ? before[e] : 0) * f * (1 - f);
            da[at + 2 * s.hidden] = c_all * i * (1 - g * g);
            da[at + 3 * s.hidden] = h_all * c * o * (1 - o);
            dc[e] = c_all * f;
        }
        for (int64_t e = 0; e < n; e++) {
            const double *a = da + (t * s.rows + e / s.hidden) * 4 * s.hidden;

            dh[e] = 0;
            for (int64_t out = 0; out < 4 * s.hidden; out++)
                dh[e] += a[out] * w[out * s.hidden + e % s.hidden];
        }
    }
    if (args->iattr[1] != 0) {
        memcpy(args->out[1].data, dh, (size_t)n * sizeof(*dh));
        memcpy(args->out[2].data, dc, (size_t)n * sizeof(*dc));
    }
    trii_work_return(args, state);
    return TRI_OK;
}

static tri_status backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, backward_kernel);
}

const trii_graph_op trii_op_lstm_layer_backward = {
    .name = "lstm_layer_backward",
    .optional = 1 << 0 | 1 << 1 | 1 << 5,
    .shape = backward_shape,
    .reference = backward_reference,
};

static double layer_flops(const trii_type *const *in, int n_in, const trii_type *out)
{
    (void)n_in;
    (void)out;
    return 2 * (double)trii_type_numel(in[0]) * (double)in[1]->shape[1];
}

const trii_graph_op trii_op_lstm_layer = {
    .name = "lstm_layer",
    .optional = 1 << 2 | 1 << 3,
    .shape = layer_shape,
    .gradient = TRII_GRADIENT_lstm_layer,
    .reference = layer_reference,
    .flops = layer_flops,
};
