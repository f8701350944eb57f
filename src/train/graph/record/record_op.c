/*
 * record_op.c - records operations. Public functions of operations call trii_record, gradient rules
 * trii_record_values. plain.c checks operands and appends the node; run/segment.c runs it later.
 */
#include "train/graph/step/step.h"

#include "base/dtype.h"
#include "train/graph/record/record.h"
#include "train/graph/step/retired.h"

static inline bool any_is_renewable(const trii_step *step, const trii_vid *in, int n_in)
{
    for (int i = 0; i < n_in; i++)
        if (in[i] != TRII_NO_VALUE && trii_value_is_renewable(&step->values[in[i]]))
            return true;
    return false;
}

/* With operands that have been retired: made again. */
static TRII_NOINLINE tri_status record_renewed(trii_step *step, const trii_graph_op *op,
                                               const trii_vid *in, int n_in,
                                               const trii_attrs *attrs, trii_vid *first_out)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_vid renewed[TRII_MAX_INPUTS];
    tri_status status = TRI_OK;

    trii_operands_begin(r);
    for (int i = 0; i < n_in && status == TRI_OK; i++) {
        renewed[i] = in[i];
        if (in[i] != TRII_NO_VALUE)
            status = trii_value_renew(step, &renewed[i]);
    }
    if (status == TRI_OK)
        status = trii_record_values(step, op, renewed, n_in, attrs, first_out);
    trii_operands_end(r);
    return status;
}

tri_status trii_record_values(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                              int n_in, const trii_attrs *attrs, trii_vid *first_out)
{
    trii_operands operands;
    trii_type wide[TRII_MAX_INPUTS];
    trii_vid fitted[TRII_MAX_INPUTS];
    tri_status status;

    if (TRII_LIKELY(trii_node_repeats(step, op, in, n_in, attrs)))
        return trii_node_repeat(step, attrs, first_out);
    if (TRII_UNLIKELY(n_in <= TRII_MAX_INPUTS && any_is_renewable(step, in, n_in)))
        return record_renewed(step, op, in, n_in, attrs, first_out);
    operands.narrow = TRI_DTYPE_NONE;
    status = trii_operands_check(step, op, in, n_in, attrs, &operands);
    if (TRII_UNLIKELY(status == TRI_OK && trii_precision_matters(step, op, operands.types, n_in))) {
        status = trii_precision_fit(step, op, in, n_in, fitted, &operands.narrow);
        in = fitted;
        for (int i = 0; i < n_in && status == TRI_OK; i++) {
            if (in[i] == TRII_NO_VALUE)
                continue;
            trii_type_copy(&wide[i], &step->values[in[i]].type);
            if (trii_dtype_is_half(wide[i].dtype))
                wide[i].dtype = TRI_DTYPE_F32;
            operands.types[i] = &wide[i];
        }
    }
    if (TRII_UNLIKELY(status != TRI_OK))
        return status;
    return trii_operands_record(step, op, in, n_in, attrs, &operands, first_out);
}

tri_tensor *trii_record(const trii_graph_op *op, tri_tensor *const *in, int n_in,
                        const trii_attrs *attrs)
{
    trii_step *step = trii_step_current();
    trii_vid ids[TRII_MAX_INPUTS];
    trii_vid first = TRII_NO_VALUE;
    tri_status status = TRI_OK;

    if (TRII_UNLIKELY(step == NULL))
        return trii_tensor_no_memory();
    if (TRII_UNLIKELY(n_in > TRII_MAX_INPUTS))
        status = TRII_FAIL(TRI_ERR_INTERNAL, "%d inputs", n_in);
    trii_operands_begin(trii_recorder_of(step));
    for (int i = 0; i < n_in && status == TRI_OK; i++) {
        ids[i] = TRII_NO_VALUE;
        if (in[i] != NULL)
            status = trii_resolve(step, in[i], &ids[i]);
    }
    if (TRII_LIKELY(status == TRI_OK))
        status = trii_record_values(step, op, ids, n_in, attrs, &first);
    trii_operands_end(trii_recorder_of(step));
    if (TRII_UNLIKELY(status != TRI_OK))
        return trii_handle_refused(step, op->name, in, n_in, status);
    return trii_handle_recorded(step, first);
}

tri_tensor *trii_handle_recorded(trii_step *step, trii_vid id)
{
    if (TRII_UNLIKELY(trii_recorder_of(step)->eager)) {
        tri_status status = trii_step_eager(step);

        if (status != TRI_OK && step->values[id].state != TRII_VALUE_FAILED)
            return trii_handle_failed(step, status); /* an earlier failure of the step */
    }
    return trii_handle(step, id);
}

tri_status trii_step_eager(trii_step *step)
{
    trii_recorder *r = trii_recorder_of(step);

    if (!r->eager || r->scopes.deferred > 0)
        return TRI_OK;
    return trii_step_catch_up(step);
}

void trii_step_only_record(trii_step *step)
{
    trii_recorder_of(step)->scopes.deferred++;
}
