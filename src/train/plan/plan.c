/*
 * plan.c - compiles a segment: ir.c, fuse.c, layout.c, the device's kernels, schedule.c, in this
 * order, a pass a file. Called by cache.c when no plan has the segment's key. docs/ARCHITECTURE.md
 * follows a convolution through all of them.
 */
#include "train/plan/plan.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/clock.h"
#include "train/plan/ir.h"
#include "train/plan/trace.h"

/* Live nodes with floats, and random ones, in the order in which the ir numbered them. */
static tri_status list_scalars(trii_plan *plan, const trii_ir *ir, int32_t n_f, int32_t n_random)
{
    int32_t n_f_nodes = 0;

    plan->f = trii_pool_alloc(&plan->pool, (size_t)n_f, sizeof(*plan->f));
    plan->f_node = trii_pool_alloc(&plan->pool, (size_t)ir->n_nodes, sizeof(*plan->f_node));
    plan->random = trii_pool_alloc(&plan->pool, (size_t)n_random, sizeof(*plan->random));
    plan->random_node = trii_pool_alloc(&plan->pool, (size_t)n_random, sizeof(int32_t));
    if (plan->f == NULL || plan->f_node == NULL || plan->random == NULL ||
        plan->random_node == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t n = 0; n < ir->n_nodes; n++) {
        if (ir->nodes[n].dead)
            continue;
        if (ir->nodes[n].n_f > 0)
            plan->f_node[n_f_nodes++] = ir->nodes[n].source;
        if (ir->nodes[n].random >= 0)
            plan->random_node[ir->nodes[n].random] = ir->nodes[n].source;
    }
    plan->n_f_nodes = n_f_nodes;
    plan->n_random = n_random;
    return TRI_OK;
}

static tri_status list_adoptions(trii_plan *plan, const trii_ir *ir, const trii_layout **adopt)
{
    int32_t n = 0;

    for (int32_t v = 0; v < ir->n_values; v++)
        n += ir->values[v].input >= 0 && adopt[v] != NULL;
    plan->adoptions = trii_pool_alloc(&plan->pool, (size_t)n, sizeof(*plan->adoptions));
    if (plan->adoptions == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t v = 0; v < ir->n_values; v++) {
        if (ir->values[v].input >= 0 && adopt[v] != NULL)
            plan->adoptions[plan->n_adoptions++] = (trii_adoption){ir->values[v].input, adopt[v]};
    }
    return TRI_OK;
}

/* The plan owns the kernels, even if compiling stopped half-way. */
static tri_status take_kernels(trii_plan *plan, const trii_ir *ir)
{
    plan->kernels = trii_pool_alloc(&plan->pool, (size_t)ir->n_groups, sizeof(*plan->kernels));
    for (int32_t g = 0; g < ir->n_groups; g++) {
        if (ir->groups[g]->kernel == NULL)
            continue;
        if (plan->kernels != NULL)
            plan->kernels[plan->n_kernels++] = ir->groups[g]->kernel;
        else
            ir->groups[g]->kernel->destroy(ir->groups[g]->kernel);
    }
    return plan->kernels != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

/* Four independent hashes, so that multiplications overlap. */
uint64_t trii_plan_hash(const trii_segment *segment)
{
    const uint64_t *w = segment->key;
    size_t n = segment->n_key;
    const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t h[4] = {n, 1, 2, 3}, all;
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        for (size_t j = 0; j < 4; j++) {
            h[j] = (h[j] ^ w[i + j]) * k;
            h[j] ^= h[j] >> 29;
        }
    }
    for (; i < n; i++) {
        h[0] = (h[0] ^ w[i]) * k;
        h[0] ^= h[0] >> 29;
    }
    all = h[0];
    for (size_t j = 1; j < 4; j++)
        all = ((all << 23 | all >> 41) ^ h[j]) * k;
    return all ^ all >> 32;
}

static tri_status copy_key(trii_plan *plan, const trii_segment *segment)
{
    uint64_t *key = trii_pool_alloc(&plan->pool, segment->n_key, sizeof(*key));

    if (key == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(key, segment->key, segment->n_key * sizeof(*key));
    plan->key = key;
    plan->n_key = segment->n_key;
    plan->hash = trii_plan_hash(segment);
    return TRI_OK;
}

static bool needs_kernel(const trii_graph_op *op)
{
    return op->op_class != TRII_CLASS_VIEW && op->op_class != TRII_CLASS_JOIN &&
           op->op_class != TRII_CLASS_HOST && op->op_class != TRII_CLASS_TRANSFER;
}

/* So that no device is asked for a kernel that it lacks. */
static tri_status check_supported(const trii_ir *ir, const trii_step *step,
                                  const trii_segment *segment, const trii_device_ops *device)
{
    for (int32_t n = 0; n < ir->n_nodes; n++) {
        const trii_ir_node *node = &ir->nodes[n];
        const trii_type *type;

        if (node->dead || !needs_kernel(node->op) || device->supports(ir, node))
            continue;
        type = &ir->values[node->out[0]].type;
        return trii_node_failed(step, segment->first_node + node->source,
                                TRII_FAIL(TRI_ERR_UNSUPPORTED,
                                          "%s has no kernel for %s of %s: bring the operands to "
                                          "the host (tri_to) and compute there",
                                          tri_device_text(type->device), node->op->name,
                                          tri_dtype_name(type->dtype)));
    }
    return TRI_OK;
}

static tri_status create_queues(trii_plan *plan)
{
    tri_status status = TRI_OK;

    for (int32_t l = 0; l < plan->n_queues && status == TRI_OK; l++) {
        trii_plan_queue *queue = &plan->queues[l];

        queue->trivial.device = queue->device;
        if (queue->ops->queue_create != NULL)
            status = queue->ops->queue_create(queue->device, queue->n_events, &queue->queue);
        else
            queue->queue = &queue->trivial;
    }
    return status;
}

static tri_status compile(trii_plan *plan, trii_ir *ir, const trii_step *step,
                          const trii_segment *segment, const trii_device_ops *device)
{
    int32_t n_f = 0, n_random = 0;
    const trii_layout **adopt = NULL;
    tri_status status = copy_key(plan, segment), taken;

    if (status == TRI_OK)
        status = trii_ir_build(ir, step, segment, device, &n_f, &n_random);
    if (status == TRI_OK)
        status = check_supported(ir, step, segment, device);
    for (int32_t v = 0; status == TRI_OK && plan->keeps_plain && v < ir->n_values; v++)
        ir->values[v].stays_plain |= ir->values[v].persistent && ir->values[v].layout == NULL;
    if (status == TRI_OK)
        status = list_scalars(plan, ir, n_f, n_random);
    if (status == TRI_OK)
        status = trii_ir_fuse(ir, device);
    if (status == TRI_OK) {
        adopt = trii_pool_alloc(ir->pool, (size_t)ir->n_values, sizeof(*adopt));
        status =
            adopt != NULL ? trii_ir_layouts(ir, step, segment, device, adopt) : TRI_ERR_NO_MEMORY;
    }
    if (status != TRI_OK)
        return status;
    status = trii_ir_compile(ir, step, segment, device);
    taken = take_kernels(plan, ir);
    if (status == TRI_OK)
        status = taken;
    if (status == TRI_OK)
        status = list_adoptions(plan, ir, adopt);
    if (status == TRI_OK)
        status = trii_plan_schedule(plan, ir, step, segment);
    if (status == TRI_OK)
        status = create_queues(plan);
    plan->traced = trii_trace_wanted();
    if (status == TRI_OK && (plan->traced || trii_log_enabled(TRII_LOG_TRACE, "plan"))) {
        plan->times = trii_pool_alloc(&plan->pool, (size_t)plan->n_entries, sizeof(*plan->times));
        status = plan->times != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    return status;
}

tri_status trii_plan_create(const trii_step *step, const trii_segment *segment,
                            const trii_device_ops *device, bool keep_plain, trii_plan **plan_out)
{
    int64_t begin = trii_now_ns();
    uint64_t compiled = trii_compiled_here();
    trii_pool pool = {0};
    trii_ir ir = {.pool = &pool};
    trii_plan *plan = trii_alloc(1, sizeof(*plan), "plan");
    tri_status status;

    if (plan == NULL)
        return TRI_ERR_NO_MEMORY;
    plan->keeps_plain = keep_plain;
    status = compile(plan, &ir, step, segment, device);
    if (status == TRI_OK) {
        trii_plan_log(plan, &ir, (double)(trii_now_ns() - begin) / (double)TRII_NS_PER_MS,
                      trii_compiled_here() - compiled);
        *plan_out = plan;
    } else {
        trii_plan_destroy(plan);
    }
    trii_pool_fini(&pool);
    return status;
}

void trii_plan_forget_outputs(trii_plan *plan)
{
    for (int32_t o = 0; plan->output != NULL && o < plan->outputs.n; o++) {
        for (int i = 0; i < TRII_OUTPUT_STORAGES; i++) {
            trii_storage_unref(plan->output[o].storages[i]);
            plan->output[o].storages[i] = NULL;
        }
    }
    plan->held_bytes = 0;
}

void trii_plan_destroy(trii_plan *plan)
{
    if (plan == NULL)
        return;
    for (int32_t k = 0; k < plan->n_kernels; k++)
        plan->kernels[k]->destroy(plan->kernels[k]);
    for (int32_t l = 0; l < plan->n_queues; l++) {
        if (plan->queues[l].queue != NULL && plan->queues[l].ops->queue_destroy != NULL)
            plan->queues[l].ops->queue_destroy(plan->queues[l].queue);
    }
    trii_plan_forget_outputs(plan);
    trii_pool_fini(&plan->pool);
    trii_free(plan);
}
