/*
 * copy.c - the operations that copy: within a device, and to another one, the only operation whose
 * result is on another device than its operands. Recording itself needs them: what is bound to a
 * tensor and has run already is copied, and so are parameters into a replica.
 */
#include "train/graph/record/record.h"
#include "train/tensor/device_list.h"

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

const trii_graph_op trii_op_copy = {
    .name = "copy",
    .precision = TRII_PRECISION_ANY,
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = copy_shape,
    .gradient = TRII_GRADIENT_pass,
    .reference = copy_reference,
};

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
    return trii_record_plain(step, &trii_op_to, x, &attrs, out);
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
    .gradient = TRII_GRADIENT_to,
    .reference = to_reference,
};
