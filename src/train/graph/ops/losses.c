/*
 * losses.c - the mean of squared errors, and how many rows are right.
 */
#include "train/graph/ops/rules.h"

/* --- mse_loss ------------------------------------------------------------- */

static tri_status mse_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                            trii_type *out, int *n_out)
{
    tri_status status = trii_rule_float(in[0], "input");

    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_scalar(out, in[0]->dtype);
    if (status == TRI_OK)
        status = trii_rule_same_dtype(in[0], in[1]);
    return status == TRI_OK ? trii_rule_shape(in[1], "target", in[0]->ndim, in[0]->shape) : status;
}

static tri_status mse_kernel(const trii_kernel_args *args)
{
    const double *a = args->in[0].data, *b = args->in[1].data;
    int64_t n = trii_type_numel(args->in[0].type);
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    *(double *)args->out[0].data = sum / (double)n;
    return TRI_OK;
}

static tri_status mse_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, mse_kernel);
}

const trii_graph_op trii_op_mse_loss = {
    .name = "mse_loss",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = mse_shape,
    .gradient = TRII_GRADIENT_mse_loss,
    .reference = mse_reference,
};

#define MSE_BACKWARD(T, suffix)                                                                    \
    static void mse_backward_##suffix(int64_t n, void *out, const void *const *in,                 \
                                      const int64_t *stride, const trii_kernel_args *args)         \
    {                                                                                              \
        T *y = out;                                                                                \
        const T *g = in[0], *a = in[1], *b = in[2];                                                \
                                                                                                   \
        for (int64_t k = 0; k < n; k++)                                                            \
            y[k] = (T)((double)g[k * stride[0]] * args->fattr[0] *                                 \
                       ((double)a[k * stride[1]] - (double)b[k * stride[2]]));                     \
    }
MSE_BACKWARD(float, f32)
MSE_BACKWARD(double, f64)

static tri_status mse_backward_reference(const trii_kernel_args *args)
{
    return trii_walk(args, mse_backward_f32, mse_backward_f64, NULL);
}

const trii_graph_op trii_op_mse_loss_backward = {
    .name = "mse_loss_backward",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = trii_shape_broadcast_float,
    .gradient = TRII_GRADIENT_mse_loss_backward,
    .reference = mse_backward_reference,
};

/* --- count_correct -------------------------------------------------------- */

static tri_status check_logits(const trii_type *logits, const trii_type *target)
{
    tri_status status = trii_rule_float(logits, "logits");

    if (status == TRI_OK)
        status = trii_rule_ndim(logits, 2, "logits");
    if (status == TRI_OK)
        status = trii_rule_index(target, "target");
    return status == TRI_OK ? trii_rule_shape(target, "target", 1, &logits->shape[0]) : status;
}

static tri_status count_correct_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                      trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_scalar(out, TRI_DTYPE_I64);
    return check_logits(in[0], in[1]);
}

static tri_status count_correct_kernel(const trii_kernel_args *args)
{
    int64_t rows = args->in[0].type->shape[0], classes = args->in[0].type->shape[1], count = 0;
    const int64_t *target = args->in[1].data;

    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)args->in[0].data + r * classes;
        int64_t best = 0;

        for (int64_t k = 1; k < classes; k++) {
            if (x[best] == x[best] && !(x[k] <= x[best]))
                best = k;
        }
        count += classes > 0 && best == target[r];
    }
    *(int64_t *)args->out[0].data = count;
    return TRI_OK;
}

static tri_status count_correct_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, count_correct_kernel);
}

const trii_graph_op trii_op_count_correct = {
    .name = "count_correct",
    .shape = count_correct_shape,
    .reference = count_correct_reference,
};

tri_tensor *tri_count_correct(tri_tensor *logits, tri_tensor *target)
{
    return trii_record(&trii_op_count_correct, (tri_tensor *const[]){logits, target}, 2, NULL);
}
