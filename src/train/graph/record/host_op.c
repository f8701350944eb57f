/*
 * host_op.c - records host operations (step/host_op.h). Called by traffic/ and parallel/, which
 * bring the kinds.
 */
#include "train/graph/step/host_op.h"

#include "train/graph/record/record.h"
#include "train/graph/step/recorder.h"
#include "train/tensor/device_memory.h"

static tri_status check_values(const trii_step *step, const trii_host_op *op, const char *what,
                               const trii_vid *ids, int n)
{
    for (int i = 0; i < n; i++) {
        const trii_value *value = ids[i] != TRII_NO_VALUE ? &step->values[ids[i]] : NULL;
        char text[TRII_VALUE_TEXT], name[TRII_OP_TEXT];

        if (value != NULL && value->state == TRII_VALUE_FAILED)
            return trii_failure_get(step->recorder, value);
        if (value == NULL || value->state == TRII_VALUE_DROPPED)
            return TRII_FAIL(TRI_ERR_STATE, "%s: %s %d (%s) %s", trii_host_text(op, name), what, i,
                             value == NULL ? "NULL" : trii_value_text(step, ids[i], text),
                             value == NULL ? "is missing"
                                           : "was not kept when the step ran (tri_keep keeps a "
                                             "value), or was overwritten since");
    }
    return TRI_OK;
}

static tri_status check_call(const trii_step *step, const trii_host_op *op,
                             const trii_host_call *call, int n_out)
{
    char name[TRII_OP_TEXT];
    tri_status status;

    if (call->n_in < 0 || call->n_in > TRII_MAX_INPUTS || n_out < 1 || n_out > TRII_MAX_OUTPUTS ||
        call->n_after < 0 || call->n_after > TRII_MAX_INPUTS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "host operation %s: %d operands after %d others, %d results; 0 to %d, 0 "
                         "to %d and 1 to %d are allowed",
                         trii_host_text(op, name), call->n_in, call->n_after, n_out,
                         TRII_MAX_INPUTS, TRII_MAX_INPUTS, TRII_MAX_OUTPUTS);
    if (step->n_nodes >= TRII_STEP_MAX_NODES)
        return TRII_FAIL(TRI_ERR_STATE,
                         "this step has %d operations already: call tri_step_end after each step",
                         step->n_nodes);
    status = check_values(step, op, "operand", call->in, call->n_in);
    for (int o = 0; o < n_out && call->out != NULL && status == TRI_OK; o++)
        status = trii_type_check(&call->out[o].type);
    return status;
}

/* Nodes that have run are complete, whether their results were kept or not. */
static tri_status pending_of(const trii_step *step, const trii_host_op *op,
                             const trii_host_call *call, trii_vid *after, int *n_out)
{
    int n = 0;

    for (int i = 0; i < call->n_after; i++) {
        trii_vid id = call->after[i];

        if (id == TRII_NO_VALUE || step->values[id].state == TRII_VALUE_FAILED) {
            tri_status status = check_values(step, op, "what it comes after,", &id, 1);

            if (status != TRI_OK)
                return status;
        }
        if (step->values[id].state == TRII_VALUE_PENDING)
            after[n++] = id;
    }
    *n_out = n;
    return TRI_OK;
}

static bool is_elsewhere(const trii_type *type)
{
    return !trii_is_host(type->device);
}

/* Operands that lie in a device's own memory are copied to the host's. */
static tri_status bring_operands(trii_step *step, const trii_host_call *call, trii_vid *here)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < call->n_in && status == TRI_OK; i++) {
        here[i] = call->in[i];
        if (TRII_UNLIKELY(is_elsewhere(&step->values[here[i]].type)))
            status = trii_record_to(step, call->in[i], TRI_CPU(0), &here[i]);
    }
    return status;
}

/* The types of the results as the operation makes them: on the host. */
static void describe_results(const trii_step *step, const trii_host_call *call, trii_type *out,
                             int n_out, uint64_t *requires_grad_out)
{
    for (int o = 0; o < n_out; o++) {
        trii_type_copy(&out[o],
                       call->out != NULL ? &call->out[o].type : &step->values[call->in[o]].type);
        if (TRII_UNLIKELY(is_elsewhere(&out[o])))
            out[o].device = TRI_CPU(0);
        if (call->out != NULL)
            *requires_grad_out |= (uint64_t)call->out[o].requires_grad << o;
    }
}

/* And copied to where they are wanted. */
static tri_status send_results(trii_step *step, const trii_host_call *call, int32_t first,
                               int n_out, trii_vid *out_ids)
{
    tri_status status = TRI_OK;

    for (int o = 0; o < n_out && status == TRI_OK; o++) {
        const trii_type *type =
            call->out != NULL ? &call->out[o].type : &step->values[call->in[o]].type;

        out_ids[o] = first + o;
        if (TRII_UNLIKELY(is_elsewhere(type)))
            status = trii_record_to(step, first + o, type->device, &out_ids[o]);
    }
    return status;
}

static tri_status append_new(trii_step *step, const trii_host_call *call, const trii_vid *in,
                             int n_out, trii_host_node *host, int32_t *first)
{
    trii_type out[TRII_MAX_OUTPUTS];

    describe_results(step, call, out, n_out, &host->requires_grad);
    *first = step->n_values;
    return trii_node_append(step, &trii_op_host, in, call->n_in, NULL, host, out, n_out);
}

/* In a step that has failed, and so will run nothing more. */
static TRII_NOINLINE void abort_at_once(const trii_step *step, trii_host_op *op)
{
    const trii_recorder *r = step->recorder;

    if (op->kind->abort != NULL)
        op->kind->abort(op, r->failures.line != NULL ? r->failures.line : "out of memory");
}

/* Takes room for it, no more than is reserved for a gradient rule, so that the rule's node does not
 * move. */
static tri_status reserve(trii_step *step, const trii_host_call *call, int n_out)
{
    return trii_step_reserve(step, 1 + (call->n_in + call->n_after + n_out) / TRII_RESERVE_VALUES);
}

/* The last step recorded the same here, so it is checked already, operand by operand. */
static bool repeats(trii_step *step, const trii_host_call *call, trii_host_node *host,
                    trii_vid *after)
{
    return host->like_operands && call->n_after <= TRII_MAX_INPUTS &&
           reserve(step, call, call->n_in) == TRI_OK &&
           pending_of(step, host->op, call, after, &host->n_after) == TRI_OK &&
           trii_host_repeats(step, call->in, call->n_in, host);
}

static tri_status append_checked(trii_step *step, const trii_host_call *call, trii_host_node *host,
                                 trii_vid *after, int n_out, int32_t *first)
{
    trii_vid in[TRII_MAX_INPUTS];
    tri_status status = check_call(step, host->op, call, n_out);

    if (status == TRI_OK)
        status = bring_operands(step, call, in);
    if (status == TRI_OK)
        status = reserve(step, call, n_out);
    if (status == TRI_OK)
        status = pending_of(step, host->op, call, after, &host->n_after);
    if (status == TRI_OK && trii_host_repeats(step, in, call->n_in, host))
        return trii_host_repeat(step, host, first);
    return status == TRI_OK ? append_new(step, call, in, n_out, host, first) : status;
}

tri_status trii_record_host(trii_step *step, trii_host_op *op, const trii_host_call *call,
                            trii_vid *out_ids)
{
    trii_vid after[TRII_MAX_INPUTS];
    trii_host_node host = {.op = op, .after = after, .like_operands = call->out == NULL};
    int n_out = call->out != NULL ? call->n_out : call->n_in;
    int32_t first = 0;
    tri_status status;

    if (TRII_LIKELY(repeats(step, call, &host, after)))
        status = trii_host_repeat(step, &host, &first);
    else
        status = append_checked(step, call, &host, after, n_out, &first);
    if (op->kind->stays != NULL)
        trii_recorder_of(step)->pending.any_stays = true;
    if (TRII_UNLIKELY(status == TRI_OK && step->failed != TRI_OK))
        abort_at_once(step, op);
    return status == TRI_OK ? send_results(step, call, first, n_out, out_ids) : status;
}

tri_status trii_record_host_like(trii_step *step, trii_host_op *op, const trii_vid *in, int n,
                                 trii_vid *out_ids)
{
    const trii_host_call call = {.in = in, .n_in = n};

    return trii_record_host(step, op, &call, out_ids);
}
