/*
 * function_gradient.c - gradients of users' functions (trireme/function.h).
 */
#include "train/graph/gradients/gradient_rules.h"
#include "train/graph/ops/function_op.h"

#define MOST TRI_FUNCTION_TENSORS

/* Only called with create_graph. */
tri_status trii_grad_apply_backward(trii_step *step, const trii_node *node, const trii_vid *g,
                                    const bool *needs, trii_vid *grad_in)
{
    (void)step;
    (void)g;
    (void)needs;
    (void)grad_in;
    return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                     "%s has no record, which gradients of gradients need (function.h)",
                     trii_function_class_of(node->attrs.i)->name);
}

/* What a gradient rule needs of the node, which recording may move in memory. */
typedef struct rule {
    trii_step *step;
    const tri_function_class *class;
    const void *data;
    int n_in, n_out;
    trii_vid in[MOST], out[MOST], grad_out[MOST];
    const bool *needs;
    trii_vid *grad_in;
} rule;

/* Results that nothing depends on have a gradient of zeros; results that cannot have one, none. */
static tri_status complete(rule *q)
{
    tri_status status = TRI_OK;

    for (int o = 0; o < q->n_out && status == TRI_OK; o++) {
        if (o >= q->n_out - q->class->saved ||
            !trii_dtype_is_float(trii_type_of(q->step, q->out[o])->dtype))
            q->grad_out[o] = TRII_NO_VALUE;
        else if (q->grad_out[o] == TRII_NO_VALUE)
            status = trii_rec_zeros(q->step, trii_type_of(q->step, q->out[o]), &q->grad_out[o]);
    }
    return status;
}

static tri_status compute(const rule *q)
{
    trii_vid in[3 * MOST], first = TRII_NO_VALUE;
    trii_attrs attrs;
    int n = 0, k = 0;
    int64_t wanted = 0;
    tri_status status;

    for (int i = 0; i < q->n_in; i++)
        wanted |= (int64_t)q->needs[i] << i;
    for (int o = 0; o < q->n_out; o++)
        wanted |= (int64_t)(q->grad_out[o] != TRII_NO_VALUE) << (MOST + o);
    for (int i = 0; i < q->n_in && !q->class->backward_without_in; i++)
        in[n++] = q->in[i];
    for (int o = 0; o < q->n_out && !q->class->backward_without_out; o++)
        in[n++] = q->out[o];
    for (int o = 0; o < q->n_out; o++) {
        if (q->grad_out[o] != TRII_NO_VALUE)
            in[n++] = q->grad_out[o];
    }
    trii_function_begin_attrs(&attrs, q->class, q->n_in, q->n_out, wanted);
    trii_function_put_data(&attrs, q->data);
    for (int i = 0; i < q->n_in; i++) {
        const trii_type *type = trii_type_of(q->step, q->in[i]);

        if (q->needs[i])
            trii_function_put_type(&attrs, k++, type->dtype, type->ndim, type->shape);
    }
    if (attrs.n_i > TRII_MAX_IATTRS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "gradients of %d dimensions altogether: at most %d are allowed",
                         attrs.n_i - TRII_FUNCTION_SIZES, TRII_MAX_IATTRS - TRII_FUNCTION_SIZES);
    status = trii_record_values(q->step, &trii_op_apply_backward, in, n, &attrs, &first);
    for (int i = 0; i < q->n_in && status == TRI_OK; i++) {
        if (q->needs[i])
            q->grad_in[i] = first++;
    }
    return status;
}

static tri_status take_recorded(const rule *q, int i, tri_tensor *grad)
{
    const trii_type *want, *have;
    char text[2][TRII_TYPE_TEXT];
    tri_status status = trii_resolve(q->step, grad, &q->grad_in[i]);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "grad_in[%d]", i);
    want = trii_type_of(q->step, q->in[i]); /* after what may move them */
    have = trii_type_of(q->step, q->grad_in[i]);
    if (have->dtype == want->dtype && trii_type_same_shape(have, want))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "grad_in[%d] is %s, but in[%d] %s", i,
                     trii_type_text(have, text[0]), i, trii_type_text(want, text[1]));
}

static tri_status record(const rule *q)
{
    tri_tensor *in[MOST], *out[MOST], *grad_out[MOST], *grad_in[MOST] = {NULL};
    const tri_function_graph graph = {.data = q->data,
                                      .n_in = q->n_in,
                                      .n_out = q->n_out,
                                      .in = in,
                                      .out = out,
                                      .grad_out = grad_out,
                                      .needs = q->needs,
                                      .grad_in = grad_in};
    tri_status status;

    for (int i = 0; i < q->n_in; i++)
        in[i] = trii_handle(q->step, q->in[i]);
    for (int o = 0; o < q->n_out; o++) {
        out[o] = trii_handle(q->step, q->out[o]);
        grad_out[o] = q->grad_out[o] != TRII_NO_VALUE ? trii_handle(q->step, q->grad_out[o]) : NULL;
    }
    trii_function_expect_reason();
    status = q->class->record(&graph);
    for (int i = 0; i < q->n_in && status == TRI_OK; i++) {
        if (q->needs[i] && grad_in[i] != NULL)
            status = take_recorded(q, i, grad_in[i]);
    }
    if (status == TRI_OK)
        return TRI_OK;
    return trii_function_failed_in(status, "record", q->class);
}

tri_status trii_grad_apply(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    rule q = {.step = step,
              .class = trii_function_class_of(node->attrs.i),
              .data = trii_function_data_of(node->attrs.f),
              .n_in = node->n_in,
              .n_out = node->n_out,
              .needs = needs,
              .grad_in = grad_in};
    bool again = trii_step_creates_graph(step);
    tri_status status;

    if (q.class->backward == NULL && q.class->record == NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s has neither backward nor record", q.class->name);
    for (int i = 0; i < q.n_in; i++)
        q.in[i] = trii_node_in(step, node, i);
    for (int o = 0; o < q.n_out; o++) {
        q.out[o] = node->first_out + o;
        q.grad_out[o] = g[o];
    }
    status = complete(&q);
    if (status != TRI_OK)
        return status;
    if (q.class->record != NULL && (again || q.class->backward == NULL))
        return record(&q);
    return compute(&q);
}
