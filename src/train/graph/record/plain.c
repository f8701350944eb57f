/*
 * plain.c - checks the operands of an operation and appends its node, with the precision that the
 * operands have. record_op.c casts operands before, where that is needed; operations that run in
 * any precision (casts and copies, which recording makes by itself: cast.c, copy.c) need nothing of
 * it.
 *
 * Structures are filled field by field: clearing them would cost more than all the rest.
 */
#include "train/graph/record/record.h"

static tri_status look_at_operands(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                                   int n_in, const trii_type **types, tri_device *device_out)
{
    tri_device device = 0;
    int first = -1;

    if (step->n_nodes >= TRII_STEP_MAX_NODES)
        return TRII_FAIL(TRI_ERR_STATE,
                         "this step has %d operations already: call tri_step_end after each step",
                         step->n_nodes);
    for (int i = 0; i < n_in; i++) {
        const trii_value *value;
        char text[TRII_VALUE_TEXT];

        types[i] = NULL;
        if (in[i] == TRII_NO_VALUE) {
            if (i >= 8 || (op->optional >> i & 1) == 0)
                return TRII_FAIL(TRI_ERR_INVALID_ARG, "argument %d is NULL" TRII_WHENCE_NULL, i);
            continue;
        }
        value = &step->values[in[i]];
        if (TRII_UNLIKELY(value->state >= TRII_VALUE_DROPPED)) {
            if (value->state == TRII_VALUE_FAILED)
                return trii_failure_get(trii_recorder_of(step), value);
            return TRII_FAIL(TRI_ERR_STATE,
                             "argument %d (%s) was not kept when the step ran (tri_keep keeps a "
                             "value), or was overwritten since",
                             i, trii_value_text(step, in[i], text));
        }
        types[i] = &value->type;
        if (TRII_UNLIKELY(first >= 0 && value->type.device != device))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "argument %d lies on %s, argument %d on %s: tri_to copies a tensor "
                             "to another device",
                             first, tri_device_text(device), i,
                             tri_device_text(value->type.device));
        if (first < 0) {
            device = value->type.device;
            first = i;
        }
    }
    *device_out = device;
    return TRI_OK;
}

tri_status trii_operands_check(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                               int n_in, const trii_attrs *attrs, trii_operands *operands)
{
    tri_status status;

    if (TRII_UNLIKELY(n_in > TRII_MAX_INPUTS))
        return TRII_FAIL(TRI_ERR_INTERNAL, "%s: %d inputs", op->name, n_in);
    if (TRII_UNLIKELY(attrs != NULL &&
                      (attrs->n_i > TRII_MAX_IATTRS || attrs->n_f > TRII_MAX_FATTRS)))
        return TRII_FAIL(TRI_ERR_INTERNAL, "%s: %d integer and %d real attributes", op->name,
                         attrs->n_i, attrs->n_f);
    status = trii_step_reserve(step, 1);
    return status == TRI_OK
               ? look_at_operands(step, op, in, n_in, operands->types, &operands->device)
               : status;
}

tri_status trii_operands_record(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                                int n_in, const trii_attrs *attrs, const trii_operands *operands,
                                trii_vid *first_out)
{
    static const trii_attrs no_attrs;
    trii_type out[TRII_MAX_OUTPUTS];
    int n_out = 0;
    tri_status status =
        op->shape(operands->types, n_in, attrs != NULL ? attrs : &no_attrs, out, &n_out);

    for (int o = 0; o < n_out && status == TRI_OK; o++)
        status = trii_type_check(&out[o]);
    if (TRII_UNLIKELY(status != TRI_OK))
        return status;
    for (int o = 0; o < n_out && n_in > 0 && op->op_class != TRII_CLASS_TRANSFER; o++)
        out[o].device = operands->device;
    for (int o = 0; o < n_out && operands->narrow != TRI_DTYPE_NONE; o++) {
        if ((op->activations_out >> o & 1) != 0)
            out[o].dtype = operands->narrow;
    }
    status = trii_node_append(step, op, in, n_in, attrs, NULL, out, n_out);
    if (TRII_LIKELY(status == TRI_OK))
        *first_out = step->n_values - n_out;
    return status;
}

tri_status trii_record_plain(trii_step *step, const trii_graph_op *op, trii_vid in,
                             const trii_attrs *attrs, trii_vid *out)
{
    trii_operands operands;
    tri_status status;

    if (trii_node_repeats(step, op, &in, 1, attrs))
        return trii_node_repeat(step, attrs, out);
    operands.narrow = TRI_DTYPE_NONE;
    status = trii_operands_check(step, op, &in, 1, attrs, &operands);
    return status == TRI_OK ? trii_operands_record(step, op, &in, 1, attrs, &operands, out)
                            : status;
}
