/*
 * pipeline_costs.c - what the modules of a sequence cost, for cuts where stages take equally long:
 * the floating-point operations of their forwards. They are counted and not timed, so that all
 * ranks, and all runs, cut at the same modules; those of backwards are in proportion.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/step/type.h"
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_internal.h"

/* More than any module has, and the sum of all modules is an int64_t. */
#define MOST_COST 1e15

static double cost_of_node(const trii_step *step, const trii_node *node)
{
    const trii_type *out = &step->values[node->first_out].type, *in[TRII_MAX_INPUTS];

    if (node->op->op_class == TRII_CLASS_VIEW || node->op->op_class == TRII_CLASS_HOST)
        return 0;
    if (node->op->flops == NULL)
        return (double)trii_type_numel(out);
    for (int i = 0; i < node->n_in; i++) {
        trii_vid id = step->in_ids[node->first_in + i];

        in[i] = id >= 0 ? &step->values[id].type : NULL;
    }
    return node->op->flops(in, node->n_in, out);
}

static tri_status count_modules(tri_module *const *modules, int n, tri_tensor *x, int64_t *costs)
{
    trii_step *step = trii_step_current();

    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < n; i++) {
        int32_t first = step->n_nodes;
        double cost = 0;
        tri_status status;

        x = tri_forward(modules[i], x);
        status = tri_tensor_status(x);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "options.example");
        for (int32_t k = first; k < step->n_nodes; k++)
            cost += cost_of_node(step, &step->nodes[k]);
        costs[i] = (int64_t)(cost < MOST_COST ? cost : MOST_COST);
    }
    /* Messages of modules that are cut over ranks pass here, where all ranks are, and not when one
     * of them runs the step and its peers wait for it elsewhere. */
    return trii_step_run(step);
}

/* --- in evaluation, which leaves no traces -------------------------------- */

static int count_below(const tri_module *module)
{
    int n = 1;

    for (int i = 0; i < module->n_children; i++)
        n += count_below(module->children[i]);
    return n;
}

/* Sets all modes to false, which `modes` gets, or to what it has. Returns how many. */
static int exchange_modes(tri_module *module, bool *modes, bool restore)
{
    int n = 1;

    if (!restore)
        modes[0] = module->training;
    module->training = restore && modes[0];
    for (int i = 0; i < module->n_children; i++)
        n += exchange_modes(module->children[i], modes + n, restore);
    return n;
}

tri_status trii_pipeline_costs(tri_module *net, tri_module *const *modules, int n,
                               tri_tensor *example, int64_t *costs_out)
{
    bool *modes = trii_alloc((size_t)count_below(net), sizeof(*modes), "stages");
    tri_status status;

    if (modes == NULL)
        return TRI_ERR_NO_MEMORY;
    (void)exchange_modes(net, modes, false);
    tri_no_grad_begin();
    status = count_modules(modules, n, example, costs_out);
    tri_no_grad_end();
    (void)exchange_modes(net, modes, true);
    trii_free(modes);
    return status;
}
