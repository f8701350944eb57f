/*
 * loss_scale.c - the decisions of a gradient scaler, as values of the step: whether gradients are
 * finite, the factor that unscales them, and the scale of the next loss. As PyTorch's
 * _amp_foreach_non_finite_check_and_unscale_ and _amp_update_scale_. Recorded by
 * train/optim/grad_scaler.c.
 */
#include <math.h>

#include "train/graph/ops/rules.h"

/* in total? (f64: squares of all gradients, finite if all are; absent: there are none), scale; out
 * found (1: not finite, else 0), the scale's inverse in f32, and that in f64. */
static tri_status loss_unscale_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                     trii_type *out, int *n_out)
{
    (void)attrs;
    if (n_in != 2 || (in[0] != NULL && in[0]->dtype != TRI_DTYPE_F64) ||
        in[1]->dtype != TRI_DTYPE_F32)
        return TRII_FAIL(TRI_ERR_INTERNAL, "loss_unscale: wrong operands");
    *n_out = 3;
    trii_type_scalar(&out[0], TRI_DTYPE_F32);
    trii_type_scalar(&out[1], TRI_DTYPE_F32);
    trii_type_scalar(&out[2], TRI_DTYPE_F64);
    return trii_rule_shape(in[1], "the scale", 0, NULL);
}

static tri_status loss_unscale_reference(const trii_kernel_args *args)
{
    double total = args->in[0].data != NULL ? *(const double *)args->in[0].data : 0;
    float inverse = (float)(1 / (double)*(const float *)args->in[1].data);

    *(float *)args->out[0].data = isfinite(total) ? 0.0f : 1.0f;
    *(float *)args->out[1].data = inverse;
    *(double *)args->out[2].data = (double)inverse;
    return TRI_OK;
}

const trii_graph_op trii_op_loss_unscale = {
    .name = "loss_unscale",
    .optional = 1 << 0,
    .shape = loss_unscale_shape,
    .reference = loss_unscale_reference,
};

/* in scale, updates since it last changed, left? (i64: how many more have to be left out until it
 * becomes smaller), found ..; out the same. */
static tri_status loss_rescale_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                     trii_type *out, int *n_out)
{
    if (n_in < 3 || attrs->n_i != 3 || attrs->n_f != 3 || in[0]->dtype != TRI_DTYPE_F32 ||
        in[1]->dtype != TRI_DTYPE_I64)
        return TRII_FAIL(TRI_ERR_INTERNAL, "loss_rescale: wrong attributes or operands");
    *n_out = n_in;
    for (int i = 0; i < n_in; i++) {
        if (in[i]->ndim != 0 ||
            (i > 1 && in[i]->dtype != TRI_DTYPE_F32 && (i > 2 || in[i]->dtype != TRI_DTYPE_I64)))
            return TRII_FAIL(TRI_ERR_INTERNAL, "loss_rescale: wrong operands");
        trii_type_scalar(&out[i], in[i]->dtype);
    }
    return TRI_OK;
}

/* The scale never grows to infinity, and never shrinks to what has no finite inverse, or below the
 * least that is given. */
static tri_status loss_rescale_reference(const trii_kernel_args *args)
{
    float scale = *(const float *)args->in[0].data;
    int64_t tracker = *(const int64_t *)args->in[1].data, left = 1;
    const int first = args->iattr[1] > 1 ? 3 : 2;
    bool found = false;

    if (first == 3)
        left = *(const int64_t *)args->in[2].data;
    for (int i = first; i < args->n_in; i++)
        found = found || *(const float *)args->in[i].data > 0;
    if (found && left > 1) {
        left--;
        tracker = 0;
    } else if (found) {
        float smaller = (float)fmax((double)scale * args->fattr[1], args->fattr[2]);

        scale = smaller >= TRII_LEAST_LOSS_SCALE ? smaller : scale;
        tracker = 0;
    } else if (++tracker >= args->iattr[0]) {
        float larger = (float)((double)scale * args->fattr[0]);

        scale = isfinite(larger) ? larger : scale;
        tracker = 0;
        left = args->iattr[1];
    } else if (args->iattr[2] != 0) {
        left = args->iattr[1];
    }
    *(float *)args->out[0].data = scale;
    *(int64_t *)args->out[1].data = tracker;
    if (first == 3)
        *(int64_t *)args->out[2].data = left;
    for (int i = first; i < args->n_in; i++)
        *(float *)args->out[i].data = -1;
    return TRI_OK;
}

const trii_graph_op trii_op_loss_rescale = {
    .name = "loss_rescale",
    .shape = loss_rescale_shape,
    .reference = loss_rescale_reference,
};
