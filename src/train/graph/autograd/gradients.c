/*
 * gradients.c - tri_gradients: gradients of any values, returned as values. The tensors' own
 * gradients do not change, and parallel strategies do not take part.
 */
#include "base/option.h"
#include "train/graph/autograd/backward.h"
#include "train/graph/ops/rules.h"
#include "train/graph/step/retired.h"

typedef struct request {
    trii_backward b;
    tri_tensor *const *inputs;
    int m;
    const tri_gradients_options *opt;
} request;

static tri_status check_input(const request *q, int i)
{
    const trii_value *value = &q->b.step->values[q->b.inputs[i]];
    const tri_tensor *input = q->inputs[i];
    char text[TRII_TYPE_TEXT];

    if (trii_is_handle(input) ? value->requires_grad : input->requires_grad)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "inputs[%d] (%s) requires no gradient%s", i,
                     trii_type_text(&value->type, text),
                     trii_is_handle(input) ? ", nor does anything that it was made of"
                                           : " (tri_requires_grad)");
}

static tri_status resolve_inputs(const request *q)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < q->m && status == TRI_OK; i++) {
        if (q->inputs[i] == NULL)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "inputs[%d] is NULL", i);
        else
            status = trii_resolve(q->b.step, q->inputs[i], &q->b.inputs[i]);
        if (status != TRI_OK)
            return status;
        q->b.inputs[i] = trii_value_first(q->b.step, q->b.inputs[i]);
        status = check_input(q, i);
    }
    return status;
}

/* Whether the gradient of this value belongs to the input: a tensor may have been written in the
 * step, and its gradient then includes that of its earlier contents. */
static bool belongs(const request *q, int i, trii_vid v)
{
    const tri_tensor *input = q->inputs[i];

    return v == q->b.inputs[i] ||
           (!trii_is_handle(input) && trii_backward_owner(&q->b.step->values[v]) == input);
}

/* leads[v]: value v depends on an input, or on another rank. */
static void mark_leads(const request *q, int32_t *leads)
{
    const trii_step *s = q->b.step;

    for (trii_vid v = 0; v < q->b.n_values; v++) {
        const trii_value *value = &s->values[v];
        const trii_node *node = value->node >= 0 ? &s->nodes[value->node] : NULL;

        /* values from another rank, which waits for their gradients */
        leads[v] = node != NULL && trii_node_leads_elsewhere(node) && node->requires_grad;
        for (int i = 0; i < q->m && leads[v] == 0; i++)
            leads[v] = belongs(q, i, v);
        for (int k = 0; node != NULL && k < node->n_in && leads[v] == 0; k++) {
            trii_vid in = s->in_ids[node->first_in + k];

            leads[v] = in != TRII_NO_VALUE && leads[trii_value_first(s, in)] != 0;
        }
    }
}

/* The gradient of input i: NO_VALUE if the outputs do not depend on it; zeros if they do, but every
 * operation between them gives none. */
static tri_status gradient_of(const request *q, int i, trii_vid *grad_out)
{
    bool reached = false;
    tri_status status = TRI_OK;
    trii_attrs attrs;

    *grad_out = TRII_NO_VALUE;
    for (trii_vid v = 0; v < q->b.n_values && status == TRI_OK; v++) {
        if (!belongs(q, i, v))
            continue;
        reached = reached || q->b.grads[v] == TRII_REACHED;
        if (q->b.grads[v] < 0)
            continue;
        status = *grad_out == TRII_NO_VALUE
                     ? TRI_OK
                     : trii_rec2(q->b.step, &trii_op_add, *grad_out, q->b.grads[v], grad_out);
        if (*grad_out == TRII_NO_VALUE)
            *grad_out = q->b.grads[v];
    }
    if (status != TRI_OK || *grad_out != TRII_NO_VALUE || !reached)
        return status;
    trii_fill_attrs(trii_type_of(q->b.step, q->b.inputs[i]), 0, &attrs);
    return trii_record_values(q->b.step, &trii_op_fill, NULL, 0, &attrs, grad_out);
}

static tri_status take(const request *q)
{
    const trii_recorder *r = trii_recorder_of(q->b.step);

    for (int i = 0; i < q->m; i++) {
        trii_vid grad;
        char text[TRII_TYPE_TEXT];
        tri_status status = gradient_of(q, i, &grad);

        if (status != TRI_OK)
            return status;
        if (grad == TRII_NO_VALUE && !q->opt->allow_unused)
            return TRII_FAIL(
                TRI_ERR_INVALID_ARG,
                "the outputs do not depend on inputs[%d] (%s); with allow_unused its gradient is "
                "NULL",
                i, trii_type_text(&q->b.step->values[q->b.inputs[i]].type, text));
        q->b.inputs[i] = grad;
        if (grad != TRII_NO_VALUE && r->eager)
            q->b.step->values[grad].keep = true; /* it cannot be kept later */
    }
    return TRI_OK;
}

static tri_status record(request *q, trii_step *step, const trii_roots *roots)
{
    tri_status status = trii_backward_open(&q->b, step, roots);

    if (status == TRI_OK && (q->m < 0 || (q->m > 0 && q->inputs == NULL)))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%d inputs%s", q->m,
                           q->inputs == NULL ? " at NULL" : "");
    if (status == TRI_OK)
        status = resolve_inputs(q);
    if (status == TRI_OK)
        status = trii_backward_room(&q->b);
    if (status != TRI_OK)
        return status;
    q->b.keep_graph = q->opt->keep_graph || q->opt->create_graph;
    mark_leads(q, q->b.scratch);
    trii_backward_mark(&q->b, q->b.scratch);
    status = trii_backward_seed(&q->b, TRII_NO_VALUE);
    if (status == TRI_OK)
        status = trii_backward_walk(&q->b);
    return status == TRI_OK ? take(q) : status;
}

static tri_status run(request *q, trii_step *step, const trii_roots *roots)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_backward_mode mode;
    tri_status status = trii_backward_enter(r, q->opt->create_graph, &mode);

    if (status != TRI_OK)
        return status;
    r->scopes.for_inputs = true;
    status = record(q, step, roots);
    if (status != TRI_OK)
        trii_backward_forget(step);
    trii_backward_leave(r, &mode);
    return status == TRI_OK ? trii_step_eager(step) : status;
}

tri_status tri_gradients(tri_tensor *const *outputs, int n, tri_tensor *const *inputs, int m,
                         const tri_gradients_options *opt, tri_tensor **grads_out)
{
    static const tri_gradients_options defaults;
    request q = {.inputs = inputs, .m = m, .opt = opt != NULL ? opt : &defaults};
    const trii_roots roots = {.call = "tri_gradients",
                              .takes_seeds = true,
                              .outputs = outputs,
                              .seeds = q.opt->seeds,
                              .n = n,
                              .n_inputs = m > 0 ? m : 0};
    trii_step *step = trii_step_current();
    trii_site site = trii_site_last();
    tri_status status = TRI_ERR_NO_MEMORY;

    if (step != NULL)
        status = TRII_CHECK_RESERVED(tri_gradients_options, opt);
    if (status == TRI_OK && m > 0 && grads_out == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "grads_out is NULL");
    if (status == TRI_OK)
        status = run(&q, step, &roots);
    if (status != TRI_OK && site.file != NULL)
        return TRII_FAIL_CTX(status, "tri_gradients at %s:%d", site.file, site.line);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "tri_gradients");
    for (int i = 0; i < m; i++)
        grads_out[i] = q.b.inputs[i] != TRII_NO_VALUE ? trii_handle(step, q.b.inputs[i]) : NULL;
    return TRI_OK;
}
