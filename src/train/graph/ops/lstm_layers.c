/*
 * lstm_layers.c - tri_lstm: layers on top of each other, in one direction or both, each a
 * projection of its inputs (tri_linear) and the recurrence (lstm.c).
 */
#include <inttypes.h>

#include "base/option.h"
#include "train/graph/ops/rules.h"

#define MOST_LAYERS 1024

/* A call whose arguments have been checked. */
typedef struct lstm {
    tri_tensor *const *weights;
    tri_lstm_options opt;
    int layers, directions, each; /* weights of a layer in one direction */
    int64_t rows, hidden;
    bool batched;
} lstm;

/* --- what is refused ------------------------------------------------------ */

static tri_status check_tensor(const tri_tensor *tensor, const char *name, int number, int ndim,
                               const int64_t *shape)
{
    char which[24] = "", has[TRII_TYPE_TEXT], want[TRII_TYPE_TEXT];
    trii_type type, wanted = {.ndim = ndim};
    bool same;

    if (number >= 0)
        snprintf(which, sizeof(which), "[%d]", number);
    if (tensor == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s%s is NULL", name, which);
    if (tri_tensor_ndim(tensor) < 0)
        return tri_tensor_status(tensor);
    type = (trii_type){.dtype = tri_tensor_dtype(tensor), .ndim = tri_tensor_ndim(tensor)};
    same = type.ndim == ndim;
    for (int d = 0; d < type.ndim; d++)
        type.shape[d] = tri_tensor_size(tensor, d);
    for (int d = 0; d < ndim && same; d++)
        same = type.shape[d] == shape[d];
    if (same)
        return TRI_OK;
    wanted.dtype = type.dtype;
    for (int d = 0; d < ndim; d++)
        wanted.shape[d] = shape[d];
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s%s is %s, not %s", name, which,
                     trii_type_text(&type, has), trii_type_text(&wanted, want));
}

static tri_status check_x(lstm *l, const tri_tensor *x)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : 0;

    if (x == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "x is NULL");
    if (ndim < 0)
        return tri_tensor_status(x);
    if (ndim != 2 && ndim != 3)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "x has %d dimensions: %s, or [T, features]", ndim,
                         l->opt.batch_first ? "[N, T, features]" : "[T, N, features]");
    l->batched = ndim == 3;
    l->rows = l->batched ? tri_tensor_size(x, l->opt.batch_first ? 0 : 1) : 1;
    if (tri_tensor_size(x, l->batched && l->opt.batch_first ? 1 : 0) < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "x has no time steps");
    return TRI_OK;
}

static tri_status check_weights(lstm *l, const tri_tensor *x, int n_weights)
{
    int want = l->layers * l->directions * l->each;

    if (l->weights == NULL || n_weights != want)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%d weights%s: %d layers, %d directions and %s take %d", n_weights,
                         l->weights == NULL ? " at NULL" : "", l->layers, l->directions,
                         l->each == 4 ? "biases" : "no biases", want);
    for (int i = 0; i < n_weights; i++) {
        tri_tensor *w = l->weights[i];
        int layer = i / (l->directions * l->each);
        int64_t inputs;
        tri_status status;

        if (i == 0 && w != NULL && tri_tensor_ndim(w) == 2)
            l->hidden = tri_tensor_size(w, 0) / 4;
        if (i == 0 && l->hidden < 1)
            l->hidden = 1;
        inputs = layer == 0 ? tri_tensor_size(x, -1) : l->hidden * l->directions;
        status = check_tensor(w, "weights", i, i % l->each < 2 ? 2 : 1,
                              (int64_t[]){4 * l->hidden, i % l->each == 0 ? inputs : l->hidden});
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

static tri_status check_state(const lstm *l)
{
    int64_t shape[3] = {(int64_t)l->layers * l->directions, l->rows, l->hidden};
    int ndim = l->batched ? 3 : 2;
    tri_status status;

    if (l->opt.h0 == NULL && l->opt.c0 == NULL)
        return TRI_OK;
    if (!l->batched)
        shape[1] = l->hidden;
    status = check_tensor(l->opt.h0, "h0", -1, ndim, shape);
    return status == TRI_OK ? check_tensor(l->opt.c0, "c0", -1, ndim, shape) : status;
}

static tri_status check(lstm *l, const tri_tensor *x, int n_weights, const tri_lstm_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED(tri_lstm_options, opt);

    if (status != TRI_OK)
        return status;
    l->opt = opt != NULL ? *opt : (tri_lstm_options){0};
    l->layers = l->opt.num_layers == 0 ? 1 : l->opt.num_layers;
    l->directions = l->opt.bidirectional ? 2 : 1;
    l->each = l->opt.no_bias ? 2 : 4;
    if (l->layers < 1 || l->layers > MOST_LAYERS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d layers: 1 to %d are allowed", l->layers,
                         MOST_LAYERS);
    if (!(l->opt.dropout >= 0 && l->opt.dropout <= 1))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "dropout is %g, not in [0, 1]", l->opt.dropout);
    status = check_x(l, x);
    if (status == TRI_OK)
        status = check_weights(l, x, n_weights);
    return status == TRI_OK ? check_state(l) : status;
}

/* --- what is recorded ----------------------------------------------------- */

/* One direction of one layer, number k of all: x [T, N, ..] -> [T, N, H]; last[2] are h and c after
 * the last step, [1, N, H]. */
static tri_tensor *run_layer(const lstm *l, tri_tensor *x, int k, tri_tensor *last[2])
{
    tri_tensor *const *w = l->weights + k * l->each;
    tri_tensor *bias = l->each == 4 ? tri_add(w[2], w[3]) : NULL, *in[4] = {NULL}, *y, *cells;
    int64_t at = k % l->directions == 1 ? 0 : tri_tensor_size(x, 0) - 1;
    trii_attrs attrs;

    in[0] = tri_linear(x, w[0], bias);
    in[1] = w[1];
    if (l->opt.h0 != NULL) {
        in[2] = tri_select(l->opt.h0, 0, k);
        in[3] = tri_select(l->opt.c0, 0, k);
        if (!l->batched) {
            in[2] = tri_unsqueeze(in[2], 0);
            in[3] = tri_unsqueeze(in[3], 0);
        }
    }
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = k % l->directions;
    y = trii_record(&trii_op_lstm_layer, in, 4, &attrs);
    cells = trii_handle_output(y, 1);
    last[0] = tri_narrow(y, 0, at, 1);
    last[1] = tri_narrow(cells, 0, at, 1);
    return y;
}

static void run(const lstm *l, tri_tensor *x, tri_tensor *out[3])
{
    tri_tensor *last[2][2], *y[2] = {NULL, NULL};

    if (!l->batched)
        x = tri_unsqueeze(x, 1);
    else if (l->opt.batch_first)
        x = tri_transpose(x, 0, 1);
    for (int layer = 0; layer < l->layers; layer++) {
        if (layer > 0)
            x = tri_dropout(x, l->opt.dropout, l->opt.training);
        for (int d = 0; d < l->directions; d++) {
            y[d] = run_layer(l, x, layer * l->directions + d, last[d]);
            for (int s = 0; s < 2; s++)
                out[1 + s] = layer + d == 0
                                 ? last[d][s]
                                 : tri_concat((tri_tensor *[]){out[1 + s], last[d][s]}, 2, 0);
        }
        x = l->directions == 2 ? tri_concat(y, 2, 2) : y[0];
    }
    if (!l->batched) {
        x = tri_squeeze(x, TRI_SHAPE(1));
        out[1] = tri_squeeze(out[1], TRI_SHAPE(1));
        out[2] = tri_squeeze(out[2], TRI_SHAPE(1));
    } else if (l->opt.batch_first) {
        x = tri_transpose(x, 0, 1);
    }
    out[0] = x;
}

void tri_lstm(tri_tensor *x, tri_tensor *const *weights, int n_weights, const tri_lstm_options *opt,
              tri_tensor **out)
{
    trii_step *step = trii_step_current();
    lstm l = {.weights = weights};
    tri_status status;

    if (out == NULL) {
        if (step != NULL)
            trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_lstm: out is NULL"));
        return;
    }
    status = step != NULL ? check(&l, x, n_weights, opt) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK) {
        run(&l, x, out);
        return;
    }
    out[0] = out[1] = out[2] = trii_handle_refused(step, "lstm", &x, 1, status);
}
