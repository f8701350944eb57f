/*
 * joining_gradient.c - gradients of joining and splitting.
 */
#include "train/graph/gradients/gradient_rules.h"

tri_status trii_grad_concat(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    trii_vid first = TRII_NO_VALUE;
    tri_status status = trii_record_values(step, &trii_op_split, g, 1, &node->attrs, &first);

    for (int i = 0; i < node->n_in && status == TRI_OK; i++)
        grad_in[i] = needs[i] ? first + i : TRII_NO_VALUE;
    return status;
}

/* Parts without a gradient have one of zeros. */
tri_status trii_grad_split(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    trii_vid parts[TRII_MAX_OUTPUTS];
    tri_status status = TRI_OK;

    (void)needs;
    for (int o = 0; o < node->n_out && status == TRI_OK; o++) {
        parts[o] = g[o];
        if (g[o] != TRII_NO_VALUE)
            continue;
        status = trii_rec_zeros(step, trii_type_of(step, node->first_out + o), &parts[o]);
    }
    if (status != TRI_OK)
        return status;
    return trii_record_values(step, &trii_op_concat, parts, node->n_out, &node->attrs, &grad_in[0]);
}
