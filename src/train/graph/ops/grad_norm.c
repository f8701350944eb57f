/*
 * grad_norm.c - the norm over many gradients, and the factor by which clipping scales them.
 * Recorded by train/optim/clip.c. Replicas must agree on it to the bit, so the order of the sum is
 * that of every device (train/device/cpu/sum_tree.h): blocks of 4,096 elements in 32 accumulators
 * of f64, and a balanced tree over accumulators and blocks of one tensor; then tensor by tensor.
 */
#include <math.h>

#include "train/graph/ops/rules.h"

#define BLOCK 4096
#define LANES 32

/* in (a total, if i[0] is 1) x.., i: has_total; out f64: total + the squares of all x. */
static tri_status square_sum_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                   trii_type *out, int *n_out)
{
    tri_status status = TRI_OK;

    if (attrs->n_i != 1)
        return TRII_FAIL(TRI_ERR_INTERNAL, "square_sum: wrong attributes");
    for (int i = attrs->i[0] != 0; i < n_in && status == TRI_OK; i++)
        status = trii_rule_float(in[i], "the gradient");
    *n_out = 1;
    trii_type_scalar(&out[0], TRI_DTYPE_F64);
    return status;
}

static double tree(double *x, int64_t n)
{
    for (; n > 1; n = (n + 1) / 2) {
        for (int64_t i = 0; i < n / 2; i++)
            x[i] = x[2 * i] + x[2 * i + 1];
        if (n % 2 != 0)
            x[n / 2] = x[n - 1];
    }
    return x[0];
}

static double block_of(const trii_array *x, int64_t begin, int64_t end)
{
    double lanes[LANES] = {0};

    for (int64_t i = begin; i < end; i++) {
        double v = x->type->dtype == TRI_DTYPE_F64 ? ((const double *)x->data)[i]
                                                   : (double)((const float *)x->data)[i];

        lanes[(i - begin) % LANES] += v * v;
    }
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    }
    return lanes[0];
}

static tri_status square_sum_reference(const trii_kernel_args *args)
{
    int first = args->iattr[0] != 0;
    double total = first != 0 ? *(const double *)args->in[0].data : 0;

    for (int k = first; k < args->n_in; k++) {
        int64_t n = trii_type_numel(args->in[k].type), blocks = (n + BLOCK - 1) / BLOCK;
        double *partial;

        if (blocks == 0)
            continue;
        partial = trii_work_take(args, (size_t)blocks, sizeof(*partial));
        if (partial == NULL)
            return TRI_ERR_NO_MEMORY;
        for (int64_t b = 0; b < blocks; b++)
            partial[b] = block_of(&args->in[k], b * BLOCK, b + 1 < blocks ? (b + 1) * BLOCK : n);
        total += tree(partial, blocks);
        trii_work_return(args, partial);
    }
    *(double *)args->out[0].data = total;
    return TRI_OK;
}

const trii_graph_op trii_op_square_sum = {
    .name = "square_sum",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = square_sum_shape,
    .reference = square_sum_reference,
};

/* in total (f64), i: dtype, f: max_norm; out norm, factor of that dtype, as clip_grad_norm_. */
static tri_status clip_factor_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                    trii_type *out, int *n_out)
{
    (void)n_in;
    if (attrs->n_i != 1 || attrs->n_f != 1 || in[0]->dtype != TRI_DTYPE_F64)
        return TRII_FAIL(TRI_ERR_INTERNAL, "clip_factor: wrong attributes or operands");
    *n_out = 2;
    trii_type_scalar(&out[0], (tri_dtype)attrs->i[0]);
    trii_type_scalar(&out[1], (tri_dtype)attrs->i[0]);
    return trii_rule_float(&out[0], "the factor");
}

static tri_status clip_factor_reference(const trii_kernel_args *args)
{
    double norm = sqrt(*(const double *)args->in[0].data);

    if (args->out[0].type->dtype == TRI_DTYPE_F64) {
        double factor = args->fattr[0] / (norm + 1e-6);

        *(double *)args->out[0].data = norm;
        *(double *)args->out[1].data = factor > 1 ? 1 : factor; /* NaN stays */
    } else {
        float factor = (float)args->fattr[0] / ((float)norm + 1e-6f);

        *(float *)args->out[0].data = (float)norm;
        *(float *)args->out[1].data = factor > 1 ? 1 : factor;
    }
    return TRI_OK;
}

const trii_graph_op trii_op_clip_factor = {
    .name = "clip_factor",
    .shape = clip_factor_shape,
    .reference = clip_factor_reference,
};
