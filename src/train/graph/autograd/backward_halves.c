/*
 * backward_halves.c - a walk back in two halves: the first goes where other workers wait for the
 * gradient, the second does the rest, later (zero bubble pipelines).
 *
 * A value is on the way if it depends on a message, or on one of the values at which the walk
 * stops. The first half records the gradients of these. It puts off those of other operands where
 * the rule records each operand's gradient on its own (products and convolutions, whose gradients
 * of weights are half of the work); rules that make all gradients in one kernel are called once, in
 * the first half. A bias stays there, too: its gradient is a sum that is fused with what gives its
 * terms, and under autocast adds them before they are rounded to 16 bits.
 *
 * Both halves add up what comes to a value in the order of one walk, last reader first: where the
 * first half has put off one reader of a value, or the second half has one anyway, earlier readers
 * of that value are put off as well. So the bits are those of one walk.
 *
 * Nothing is recorded twice, regions that are computed again neither: the first half leaves its
 * gradients and copies to the second (trii_backward_rest).
 */
#include "base/alloc.h"
#include "train/graph/autograd/backward.h"
#include "train/graph/step/retired.h"

static bool leads_on(const trii_backward *b, const trii_node *node)
{
    if (!node->requires_grad)
        return false;
    if (trii_node_leads_elsewhere(node))
        return true;
    for (int i = 0; i < node->n_in; i++) {
        trii_vid in = trii_backward_operand(b, node, i);

        if (in != TRII_NO_VALUE && b->ways[in] == TRII_WAY_ON)
            return true;
    }
    return false;
}

static bool is_reached(const trii_backward *b, const trii_node *node)
{
    for (int o = 0; o < node->n_out; o++)
        if (b->grads[node->first_out + o] != TRII_UNREACHED)
            return true;
    return false;
}

void trii_backward_find_ways(trii_backward *b)
{
    const trii_step *s = b->step;

    for (int32_t v = 0; v < b->n_values; v++)
        b->ways[v] = TRII_WAY_OFF;
    for (int k = 0; k < b->n_stops; k++)
        if (s->values[b->stops[k]].requires_grad)
            b->ways[b->stops[k]] = TRII_WAY_ON;
    for (int32_t n = 0; n <= b->last_node; n++) {
        const trii_node *node = &s->nodes[n];
        bool on = leads_on(b, node);

        for (int o = 0; o < node->n_out && on; o++)
            b->ways[node->first_out + o] = TRII_WAY_ON;
        if (on || !node->requires_grad || !is_reached(b, node))
            continue;
        for (int i = 0; i < node->n_in; i++) { /* the second half adds to these */
            trii_vid in = trii_backward_operand(b, node, i);

            if (in != TRII_NO_VALUE && b->ways[in] == TRII_WAY_OFF)
                b->ways[in] = TRII_WAY_PUT_OFF;
        }
    }
}

bool trii_backward_is_on_the_way(const trii_backward *b)
{
    for (int k = 0; k < b->roots->n; k++)
        if (b->ways[b->outputs[k]] == TRII_WAY_ON)
            return true;
    return false;
}

#define BIAS 2 /* of these operations, which operand it is */

/* Its rule records each operand's gradient on its own. */
static bool is_divided(const trii_node *node)
{
    return node->op->gradient == TRII_GRADIENT_linear ||
           node->op->gradient == TRII_GRADIENT_matmul || node->op->gradient == TRII_GRADIENT_conv;
}

uint64_t trii_backward_put_off(const trii_backward *b, const trii_node *node, bool *needs)
{
    bool divided = is_divided(node);
    uint64_t left = 0;

    for (int i = 0; i < node->n_in; i++) {
        trii_vid in = trii_backward_operand(b, node, i);

        if (!needs[i] || b->ways[in] == TRII_WAY_ON ||
            ((!divided || i == BIAS) && b->ways[in] != TRII_WAY_PUT_OFF))
            continue;
        b->ways[in] = TRII_WAY_PUT_OFF;
        left |= UINT64_C(1) << i;
        needs[i] = false;
    }
    return left;
}

/* --- what is left --------------------------------------------------------- */

void trii_backward_rest_free(trii_backward_rest *rest)
{
    trii_free(rest->values);
    trii_free(rest->nodes);
    *rest = (trii_backward_rest){.last_node = -1};
}

tri_status trii_backward_leave_node(trii_backward_rest *rest, int32_t node, uint64_t operands)
{
    void *array = rest->nodes;
    tri_status status = trii_grow(&array, &rest->cap_nodes, rest->n_nodes + 1, sizeof(*rest->nodes),
                                  "gradients of weights");

    rest->nodes = array;
    if (status == TRI_OK)
        rest->nodes[rest->n_nodes++] = (trii_rest_node){.node = node, .operands = operands};
    return status;
}

static bool is_copied(const trii_backward *b, int32_t v)
{
    return b->region != 0 && b->copies[v] >= 0;
}

/* Its gradient goes on in another walk. */
static bool is_stop(const trii_backward *b, int32_t v)
{
    for (int k = 0; k < b->n_stops; k++)
        if (b->stops[k] == v)
            return true;
    return false;
}

tri_status trii_backward_leave_values(const trii_backward *b, trii_backward_rest *rest)
{
    int32_t n = 0;

    for (int32_t v = 0; v < b->n_values; v++)
        n += b->grads[v] != TRII_UNREACHED || is_copied(b, v);
    rest->values = trii_alloc((size_t)n, sizeof(*rest->values), "gradients of weights");
    if (rest->values == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t v = 0; v < b->n_values; v++)
        if (b->grads[v] != TRII_UNREACHED || is_copied(b, v))
            rest->values[rest->n_values++] =
                (trii_rest_value){.value = v,
                                  .grad = is_stop(b, v) ? TRII_UNREACHED : b->grads[v],
                                  .copy = is_copied(b, v) ? b->copies[v] : TRII_NO_VALUE,
                                  .way = b->ways[v]};
    rest->last_node = b->last_node;
    rest->region = b->region;
    return TRI_OK;
}

void trii_backward_take_reached(trii_backward *b, const trii_backward_rest *rest)
{
    for (int32_t v = 0; v < b->n_values; v++) {
        b->grads[v] = TRII_UNREACHED;
        b->copies[v] = TRII_NO_VALUE;
        b->ways[v] = TRII_WAY_OFF;
    }
    for (int32_t k = 0; k < rest->n_values; k++) {
        const trii_rest_value *left = &rest->values[k];

        if (left->grad != TRII_UNREACHED)
            b->grads[left->value] = TRII_REACHED;
        b->copies[left->value] = left->copy;
        b->ways[left->value] = left->way;
    }
    b->last_node = rest->last_node;
    b->region = rest->region;
}

void trii_backward_take_grads(trii_backward *b, const trii_backward_rest *rest)
{
    for (int32_t k = 0; k < rest->n_values; k++)
        b->grads[rest->values[k].value] = rest->values[k].grad;
}
