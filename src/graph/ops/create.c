/*
 * create.c - operations without operands, and the plain copy.
 */
#include <string.h>

#include "graph/ops/rules.h"

void trii_fill_attrs(const trii_type *type, double value, trii_attrs *attrs)
{
    attrs->n_i = 2 + type->ndim;
    attrs->i[0] = type->dtype;
    attrs->i[1] = type->device;
    for (int d = 0; d < type->ndim; d++)
        attrs->i[2 + d] = type->shape[d];
    attrs->n_f = 1;
    attrs->f[0] = value;
}

/* i: dtype, device, sizes.. */
static tri_status created_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                trii_type *out, int *n_out)
{
    (void)in;
    (void)n_in;
    out[0].dtype = (tri_dtype)attrs->i[0];
    out[0].device = (tri_device)attrs->i[1];
    out[0].ndim = attrs->n_i - 2;
    for (int d = 0; d < out[0].ndim; d++)
        out[0].shape[d] = attrs->i[2 + d];
    *n_out = 1;
    return trii_rule_float(&out[0], "the new tensor");
}

static tri_status fill_reference(const trii_kernel_args *args)
{
    int64_t n = trii_type_numel(args->out[0].type);

    if (args->out[0].type->dtype == TRI_DTYPE_F32) {
        float *y = args->out[0].data;

        for (int64_t i = 0; i < n; i++)
            y[i] = (float)args->fattr[0];
    } else {
        double *y = args->out[0].data;

        for (int64_t i = 0; i < n; i++)
            y[i] = args->fattr[0];
    }
    return TRI_OK;
}

const trii_op trii_op_fill = {
    .name = "fill",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = created_shape,
    .reference = fill_reference,
};

static tri_status copy_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    trii_type_copy(&out[0], in[0]);
    *n_out = 1;
    return TRI_OK;
}

static tri_status copy_reference(const trii_kernel_args *args)
{
    size_t bytes = trii_type_bytes(args->out[0].type);

    if (bytes > 0)
        memcpy(args->out[0].data, args->in[0].data, bytes);
    return TRI_OK;
}

static tri_status copy_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    (void)step;
    (void)node;
    (void)needs;
    grad_in[0] = g[0];
    return TRI_OK;
}

const trii_op trii_op_copy = {
    .name = "copy",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = copy_shape,
    .grad = copy_grad,
    .reference = copy_reference,
};
