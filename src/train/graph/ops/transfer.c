/*
 * transfer.c - copies a tensor to another device: the only operation whose result is on another
 * device than its operands.
 */
#include <string.h>

#include "train/graph/ops/rules.h"
#include "train/tensor/device_list.h"

/* i: device */
static tri_status to_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                           trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    out->device = (tri_device)attrs->i[0];
    return trii_device_check(out->device);
}

tri_status trii_record_to(trii_step *step, trii_vid x, tri_device device, trii_vid *out)
{
    trii_attrs attrs;

    if (step->values[x].type.device == device) {
        *out = x;
        return TRI_OK;
    }
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = device;
    return trii_record_values(step, &trii_op_to, &x, 1, &attrs, out);
}

static tri_status to_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                          const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_record_to(step, grad_out[0],
                          trii_type_of(step, trii_node_in(step, node, 0))->device, &grad_in[0]);
}

static tri_status to_reference(const trii_kernel_args *args)
{
    size_t bytes = trii_type_bytes(args->out[0].type);

    if (bytes > 0)
        memcpy(args->out[0].data, args->in[0].data, bytes);
    return TRI_OK;
}

const trii_graph_op trii_op_to = {
    .name = "to",
    .op_class = TRII_CLASS_TRANSFER,
    .precision = TRII_PRECISION_ANY,
    .shape = to_shape,
    .grad = to_grad,
    .reference = to_reference,
};

tri_tensor *(tri_to)(tri_tensor *x, tri_device device)
{
    trii_attrs attrs;

    if (x != NULL && tri_tensor_device(x) == device)
        return x;
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = device;
    return trii_record(&trii_op_to, &x, 1, &attrs);
}
