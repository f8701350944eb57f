/*
 * half.c - the pass that lets plans compute on 16 bits in f32; ir.c calls it while it builds.
 *
 * f16 is a type to store numbers in: no kernel computes in it. A node that reads f16 gets f32, a
 * node that makes f16 leaves f32, and casts stand around it, which devices fuse like any other
 * element-wise operation. So every kernel of f32 is one of f16 as well, and each operation rounds
 * once, as the reference kernels do. bf16 has kernels of its own (see
 * train/graph/record/precision.c), except for the nodes that the device does not support on it:
 * those are treated the same way. Without AVX-512 oneDNN computes convolutions on bf16 in plain
 * loops: a step of resnet18 took more than 100 s, and takes 2.7 s with casts (f32: 2.65 s).
 */
#include "base/dtype.h"
#include "train/graph/ops/table.h"
#include "train/plan/ir.h"

typedef struct widening {
    trii_ir *ir;
    const trii_device_ops *device;
    trii_ir_node *nodes; /* with the casts among them */
    int32_t n_nodes;
} widening;

/* Which 16-bit types the node must not see. */
typedef struct hidden {
    bool f16, bf16;
} hidden;

static bool is_hidden(const trii_ir *ir, int32_t value, hidden h)
{
    tri_dtype dtype = value >= 0 ? ir->values[value].type.dtype : TRI_DTYPE_NONE;

    return (h.f16 && dtype == TRI_DTYPE_F16) || (h.bf16 && dtype == TRI_DTYPE_BF16);
}

/* Nodes that move elements, or bring them elsewhere, take any type. */
static bool computes(const trii_ir_node *node)
{
    return node->op->precision != TRII_PRECISION_ANY && node->op->op_class != TRII_CLASS_HOST &&
           node->op->op_class != TRII_CLASS_TRANSFER;
}

static hidden hidden_from(const widening *w, const trii_ir_node *node)
{
    bool f16 = computes(node);

    return (hidden){.f16 = f16, .bf16 = f16 && !w->device->supports(w->ir, node)};
}

/* How many casts the nodes need at most. */
static int64_t count_casts(const widening *w)
{
    const trii_ir *ir = w->ir;
    int64_t n = 0;

    for (int32_t k = 0; k < ir->n_nodes; k++) {
        const trii_ir_node *node = &ir->nodes[k];
        hidden h = hidden_from(w, node);

        for (int32_t i = 0; i < node->n_in; i++)
            n += is_hidden(ir, node->in[i], h);
        for (int32_t o = 0; o < node->n_out; o++)
            n += is_hidden(ir, node->out[o], h);
    }
    return n;
}

/* The value with its type widened to f32; -1 when memory is out. */
static int32_t add_wide(trii_ir *ir, int32_t value)
{
    trii_type type = ir->values[value].type;

    type.dtype = TRI_DTYPE_F32;
    return trii_ir_add_value(ir, &type);
}

static tri_status add_cast(widening *w, const trii_ir_node *beside, int32_t from, int32_t to)
{
    trii_ir_node *cast = &w->nodes[w->n_nodes++];
    int64_t *iattr = trii_pool_alloc(w->ir->pool, 1, sizeof(*iattr));

    *cast = (trii_ir_node){.op = &trii_op_cast,
                           .source = beside->source,
                           .n_in = 1,
                           .n_out = 1,
                           .in = trii_pool_alloc(w->ir->pool, 1, sizeof(int32_t)),
                           .out = trii_pool_alloc(w->ir->pool, 1, sizeof(int32_t)),
                           .iattr = iattr,
                           .n_i = 1,
                           .random = -1,
                           .group = -1,
                           .region = beside->region,
                           .part = beside->part};
    if (iattr == NULL || cast->in == NULL || cast->out == NULL)
        return TRI_ERR_NO_MEMORY;
    iattr[0] = w->ir->values[to].type.dtype;
    cast->in[0] = from;
    cast->out[0] = to;
    return TRI_OK;
}

/* An operand that the node reads twice is widened once. */
static tri_status widen_operands(widening *w, trii_ir_node *node, hidden h)
{
    tri_status status = TRI_OK;

    for (int32_t i = 0; i < node->n_in && status == TRI_OK; i++) {
        int32_t narrow = node->in[i], wide;

        if (!is_hidden(w->ir, narrow, h))
            continue;
        wide = add_wide(w->ir, narrow);
        if (wide < 0)
            return TRI_ERR_NO_MEMORY;
        status = add_cast(w, node, narrow, wide);
        w->nodes[w->n_nodes - 1].takes_stored = true;
        for (int32_t k = i; k < node->n_in; k++)
            node->in[k] = node->in[k] == narrow ? wide : node->in[k];
    }
    return status;
}

static tri_status round_results(widening *w, trii_ir_node *node, hidden h)
{
    tri_status status = TRI_OK;

    for (int32_t o = 0; o < node->n_out && status == TRI_OK; o++) {
        int32_t narrow = node->out[o];

        if (!is_hidden(w->ir, narrow, h))
            continue;
        node->out[o] = add_wide(w->ir, narrow);
        if (node->out[o] < 0)
            return TRI_ERR_NO_MEMORY;
        status = add_cast(w, node, node->out[o], narrow);
    }
    return status;
}

tri_status trii_ir_widen(trii_ir *ir, const trii_device_ops *device)
{
    widening w = {.ir = ir, .device = device};
    int64_t casts = count_casts(&w);
    tri_status status = TRI_OK;

    if (casts == 0)
        return TRI_OK;
    w.nodes = trii_pool_alloc(ir->pool, (size_t)(ir->n_nodes + casts), sizeof(*w.nodes));
    if (w.nodes == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t k = 0; k < ir->n_nodes && status == TRI_OK; k++) {
        trii_ir_node *node = &ir->nodes[k];
        hidden h = hidden_from(&w, node);
        int32_t at;

        status = widen_operands(&w, node, h);
        at = w.n_nodes++;
        if (status == TRI_OK)
            status = round_results(&w, node, h);
        w.nodes[at] = *node;
    }
    if (status != TRI_OK)
        return status;
    ir->nodes = w.nodes;
    ir->n_nodes = w.n_nodes;
    for (int32_t k = 0; k < ir->n_nodes; k++) {
        for (int32_t o = 0; o < ir->nodes[k].n_out; o++)
            ir->values[ir->nodes[k].out[o]].node = k;
    }
    return TRI_OK;
}
