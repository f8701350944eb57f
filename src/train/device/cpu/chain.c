/*
 * chain.c - element-wise operations, fused: a small program that runs block by block, so that a
 * chain of any length reads and writes memory once. Called by cpu_device.c for groups of kind
 * CHAIN.
 *
 * Operands that are smaller than the result are broadcast by filling a block: element i of the
 * result reads element (i / repeat) % period, or, for views, where strides say (chain_operand.c).
 * Operands in bf16 or f16 are widened into a block, results rounded from one. Between the nodes of
 * a chain values stay f32, except after a cast of the program's own to 16 bits, which rounds.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "train/device/cpu/chain_operand.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/type.h"

#define BLOCK 1024 /* elements: the blocks of a usual chain stay in the first-level cache */
#define MAX_BUFFERS (TRII_GROUP_NODES + 32) /* temporaries and filled operands */
/* Elements of all buffers of a thread, on its stack: with more than 16 buffers blocks are
 * smaller. */
#define POOL (16 * BLOCK)
#define LINE 16 /* elements: buffers begin with a cache line */
#define MAX_OPERANDS 3
#define GRAIN 16384 /* elements per thread at least */

static const struct {
    const trii_graph_op *op;
    trii_ew_code code;
} codes[] = {
#define TRII_EW_KERNEL(name) {&trii_op_##name, TRII_EW_##name},
#include "train/graph/step/elementwise.def"
    {&trii_op_mse_loss_backward, TRII_EW_mse_loss_backward},
    {&trii_op_fill, TRII_EW_fill},
    {&trii_op_copy, TRII_EW_copy},
    {&trii_op_cast, TRII_EW_copy}, /* between f32, bf16 and f16 */
};

/* The instruction for the operation, or TRII_EW_COUNT. */
static trii_ew_code code_of(const trii_graph_op *op)
{
    for (size_t i = 0; i < TRII_COUNT_OF(codes); i++) {
        if (codes[i].op == op)
            return codes[i].code;
    }
    return TRII_EW_COUNT;
}

/* A cast between f16, in which nothing computes (train/plan/half.c), and another type that chains
 * know. */
static bool moves_f16(const trii_ir *ir, const trii_ir_node *node)
{
    tri_dtype from, to;

    if (node->op != &trii_op_cast && node->op != &trii_op_copy)
        return false;
    from = trii_in_type(ir, node, 0)->dtype;
    to = trii_out_type(ir, node, 0)->dtype;
    return (trii_dtype_is_half(from) || from == TRI_DTYPE_F32) &&
           (trii_dtype_is_half(to) || to == TRI_DTYPE_F32);
}

bool trii_cpu_chains(const trii_ir *ir, const trii_ir_node *node)
{
    if (node->n_out != 1 || node->n_in > MAX_OPERANDS || code_of(node->op) == TRII_EW_COUNT ||
        !(trii_node_computes_f32(ir, node) || moves_f16(ir, node)))
        return false;
    for (int i = 0; i < node->n_in; i++) {
        if (!trii_has_in(node, i))
            return false;
    }
    return true;
}

static const trii_type *chain_type(const trii_ir *ir, const trii_group *group)
{
    return trii_out_type(ir, &ir->nodes[group->nodes[0]], 0);
}

/* Strided operands are read in place unless their elements are far apart. Returns whether one of
 * them has an order that others would have to follow. */
static bool take_strided(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                         trii_layouts *want)
{
    bool ordered = false;

    for (int i = 0; i < group->n_in; i++) {
        trii_chain_operand o;

        if (have[i] == NULL || have[i]->strides == NULL)
            continue;
        trii_chain_operand_of(&ir->values[group->in[i]].type, have[i], chain_type(ir, group), &o);
        want->in[i] = trii_chain_operand_is_near(&o) ? have[i] : NULL;
        ordered = ordered || o.period != 1 || o.n_dims > 0;
    }
    return ordered;
}

/* An order of dimensions, for elements of each type. */
typedef struct order {
    const trii_layout *f32, *bf16, *f16;
} order;

static const trii_layout *layout_in(const order *o, const trii_type *type)
{
    return type->dtype == TRI_DTYPE_F32 ? o->f32 : type->dtype == TRI_DTYPE_BF16 ? o->bf16 : o->f16;
}

/* The order of a layout; false: plain, since memory is out. */
static bool order_of(const trii_layout *layout, order *o)
{
    *o = (order){0};
    if (layout == NULL)
        return false;
    *o = (order){.f32 = trii_cpu_layout_for(TRI_DTYPE_F32, layout),
                 .bf16 = trii_cpu_layout_for(TRI_DTYPE_BF16, layout),
                 .f16 = trii_cpu_layout_for(TRI_DTYPE_F16, layout)};
    return o->f32 != NULL && o->bf16 != NULL && o->f16 != NULL;
}

/* The layout for operands of the result's shape: that of persistent state if there is one, else the
 * first that is not plain. NULL: plain, since some operand is broadcast (a single number does not
 * count). */
static const trii_layout *common_layout(const trii_ir *ir, const trii_group *group,
                                        const trii_layout *const *have)
{
    const trii_type *type = chain_type(ir, group);
    const trii_layout *layout = NULL;

    for (int i = 0; i < group->n_in; i++) {
        const trii_ir_value *value = &ir->values[group->in[i]];

        if (have[i] != NULL && have[i]->strides != NULL)
            continue;
        if (!trii_type_same_shape(&value->type, type)) {
            if (trii_type_numel(&value->type) != 1)
                return NULL;
        } else if (have[i] != NULL && (layout == NULL || value->persistent) &&
                   have[i]->bytes == trii_type_bytes(&value->type)) {
            layout = have[i];
        }
    }
    return layout;
}

/* Gives all operands of the result's shape one order, except views. */
void trii_cpu_chain_layouts(const trii_ir *ir, const trii_group *group,
                            const trii_layout *const *have, trii_layouts *want)
{
    const trii_type *type = chain_type(ir, group);
    bool strided_order = take_strided(ir, group, have, want), ordered;
    order all;

    ordered = order_of(strided_order ? NULL : common_layout(ir, group, have), &all);
    for (int i = 0; i < group->n_in && ordered; i++) {
        const trii_type *in = &ir->values[group->in[i]].type;
        bool strided = have[i] != NULL && have[i]->strides != NULL;

        if (!strided && trii_type_same_shape(in, type))
            want->in[i] = layout_in(&all, in);
    }
    for (int o = 0; o < group->n_out; o++) {
        const trii_type *out = &ir->values[group->out[o]].type;
        trii_chain_operand part;

        want->out[o] = ordered ? layout_in(&all, out) : NULL;
        if (ordered || group->out_layout[o] == NULL)
            continue;
        trii_chain_operand_of(out, group->out_layout[o], type, &part);
        want->out[o] = trii_chain_operand_is_near(&part) ? group->out_layout[o] : NULL;
    }
}

/* --- the program ---------------------------------------------------------- */

typedef struct instr {
    trii_ew_fn fn;
    uint8_t src[MAX_OPERANDS], dst; /* registers */
    int32_t f;                      /* first scalar in the run's block */
} instr;

/* A register is a pointer to the current block: of an input, an output or a buffer. */
#define MAX_REGS 96

typedef struct chain {
    trii_kernel base;
    char name[120];
    int64_t n;
    int64_t block, stride; /* elements of a block; from one buffer to the next */
    int n_in, n_out, n_instr, n_filled, n_temps;
    trii_chain_operand filled[MAX_BUFFERS]; /* each filled operand */
    uint8_t filled_in[MAX_BUFFERS];
    bool filled_once[MAX_BUFFERS];       /* the same in every block */
    bool out_buffered[TRII_GROUP_NODES]; /* rounded or strided */
    trii_chain_operand out[TRII_GROUP_NODES];
    instr program[TRII_GROUP_NODES];
    uint64_t in_place[TRII_GROUP_NODES];
} chain;
/* Registers: [0, n_in) inputs, then n_out outputs, then the buffers: filled, temporaries. */

typedef struct chain_run {
    const chain *c;
    void *const *args;
    const double *f;
} chain_run;

static void chain_range(void *ctx, int64_t begin, int64_t end)
{
    const chain_run *run = ctx;
    const chain *c = run->c;
    float pool[POOL] __attribute__((aligned(64))), *buffer = pool;
    float *regs[MAX_REGS];
    int operands = c->n_in + c->n_out;

    for (int k = 0; k < c->n_filled + c->n_temps; k++, buffer += c->stride)
        regs[operands + k] = buffer;
    for (int o = 0; o < c->n_out; o++) {
        if (c->out_buffered[o]) {
            regs[c->n_in + o] = buffer;
            buffer += c->stride;
        }
    }
    for (int64_t i = begin; i < end; i += c->block) {
        int64_t n = end - i < c->block ? end - i : c->block;

        for (int r = 0; r < operands; r++) {
            if (r < c->n_in || !c->out_buffered[r - c->n_in])
                regs[r] = (float *)run->args[r] + i; /* unused where the input is filled */
        }
        for (int k = 0; k < c->n_filled; k++) {
            if (i == begin || !c->filled_once[k])
                /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): set above, where k is less */
                trii_chain_operand_load(regs[operands + k], run->args[c->filled_in[k]], i, n,
                                        &c->filled[k]);
        }
        for (int k = 0; k < c->n_instr; k++) {
            const instr *p = &c->program[k];

            p->fn(regs[p->dst], regs[p->src[0]], regs[p->src[1]], regs[p->src[2]], (size_t)n,
                  run->f + p->f);
        }
        for (int o = 0; o < c->n_out; o++) {
            if (c->out_buffered[o])
                trii_chain_operand_store(run->args[c->n_in + o], regs[c->n_in + o], i, n,
                                         &c->out[o]);
        }
    }
}

static tri_status chain_run_kernel(const trii_kernel *kernel, void *const *args,
                                   const trii_run *run)
{
    const chain *c = (const chain *)kernel;
    chain_run ctx = {c, args, run->f};

    if (c->n <= GRAIN) {
        chain_range(&ctx, 0, c->n);
        return TRI_OK;
    }
    trii_parallel_for(c->n, GRAIN, chain_range, &ctx);
    return TRI_OK;
}

/* --- compiling ------------------------------------------------------------ */

typedef struct compile {
    const trii_ir *ir;
    const trii_group *group;
    chain *c;
    int reg[TRII_GROUP_NODES];      /* of each node's result */
    int last_use[TRII_GROUP_NODES]; /* the instruction that reads it last */
    int in_reg[TRII_GROUP_VALUES];  /* for each input */
    int in_last[TRII_GROUP_VALUES];
    int out_instr[TRII_GROUP_NODES]; /* the instruction that writes output o */
} compile;

/* Number of the node in the group that makes the value; -1 = from outside. */
static int inner_node(const compile *k, int32_t value)
{
    for (int n = 0; n < k->group->n_nodes; n++) {
        if (k->ir->nodes[k->group->nodes[n]].out[0] == value)
            return n;
    }
    return -1;
}

static void find_uses(compile *k)
{
    for (int n = 0; n < k->group->n_nodes; n++) {
        const trii_ir_node *node = &k->ir->nodes[k->group->nodes[n]];

        k->last_use[n] = n;
        for (int i = 0; i < node->n_in; i++) {
            int inner = inner_node(k, node->in[i]);

            if (inner >= 0)
                k->last_use[inner] = n;
            else
                k->in_last[trii_group_in(k->group, node->in[i])] = n;
        }
    }
}

/* Inputs are read in place, or through a filled block. False: too many buffers. */
static bool place_inputs(compile *k)
{
    const trii_type *type = chain_type(k->ir, k->group);
    chain *c = k->c;

    for (int i = 0; i < k->group->n_in; i++) {
        const trii_type *in = &k->ir->values[k->group->in[i]].type;
        const trii_layout *layout = k->group->in_layout[i];
        bool strided = layout != NULL && layout->strides != NULL;
        trii_chain_operand b;

        k->in_reg[i] = i;
        trii_chain_operand_of(in, strided ? layout : NULL, type, &b);
        if (b.n_dims == 0 && b.period == c->n && b.repeat == 1 && b.half == TRI_DTYPE_NONE)
            continue;
        if (c->n_filled == MAX_BUFFERS)
            return false;
        k->in_reg[i] = c->n_in + c->n_out + c->n_filled;
        c->filled[c->n_filled] = b;
        c->filled_in[c->n_filled++] = (uint8_t)i;
    }
    return true;
}

/* Once it is known how many buffers there are. */
static void choose_block(chain *c)
{
    int64_t n_buffers = c->n_filled + c->n_temps, most = BLOCK;

    for (int o = 0; o < c->n_out; o++)
        n_buffers += c->out_buffered[o];
    if (n_buffers * BLOCK > POOL)
        most = POOL / n_buffers / LINE * LINE;
    c->stride = most;
    c->block = most;
    for (int f = 0; f < c->n_filled; f++) {
        const trii_chain_operand *b = &c->filled[f];

        /* Whole periods in a block: the block is then filled only once. */
        if (b->n_dims == 0 && b->repeat == 1 && b->period <= most && c->block == most)
            c->block = most / b->period * b->period;
    }
    for (int f = 0; f < c->n_filled; f++)
        c->filled_once[f] = c->filled[f].n_dims == 0 &&
                            (c->filled[f].period == 1 ||
                             (c->filled[f].repeat == 1 && c->block % c->filled[f].period == 0));
}

static bool place_results(compile *k)
{
    chain *c = k->c;
    bool busy[MAX_BUFFERS] = {false};
    int first_temp = c->n_in + c->n_out + c->n_filled;

    for (int n = 0; n < k->group->n_nodes; n++) {
        const trii_ir_node *node = &k->ir->nodes[k->group->nodes[n]];
        int out = trii_group_out(k->group, node->out[0]), t = 0;

        for (int m = 0; m < n; m++) { /* frees temporaries that this node reads last */
            if (k->reg[m] >= first_temp && k->last_use[m] == n)
                busy[k->reg[m] - first_temp] = false;
        }
        if (out >= 0) {
            k->reg[n] = c->n_in + out;
            k->out_instr[out] = n;
            continue;
        }
        while (t < MAX_BUFFERS && busy[t])
            t++;
        if (t + c->n_filled + c->n_out >= MAX_BUFFERS) /* the last ones are for buffered results */
            return false;
        busy[t] = true;
        k->reg[n] = first_temp + t;
        if (t + 1 > c->n_temps)
            c->n_temps = t + 1;
    }
    return true;
}

static trii_ew_code rounding_to(tri_dtype dtype)
{
    return dtype == TRI_DTYPE_BF16  ? TRII_EW_round_bf16
           : dtype == TRI_DTYPE_F16 ? TRII_EW_round_f16
                                    : TRII_EW_copy;
}

/* A value that the plan widens for an operation is rounded first, so that it makes no difference
 * whether the chain computed it or it was stored: recomputation gives the same bits. */
static trii_ew_code cast_code(const compile *k, int n)
{
    const trii_ir_node *node = &k->ir->nodes[k->group->nodes[n]];
    tri_dtype from = trii_in_type(k->ir, node, 0)->dtype;

    if (node->takes_stored && inner_node(k, node->in[0]) >= 0)
        return rounding_to(from);
    return k->last_use[n] > n ? rounding_to(trii_out_type(k->ir, node, 0)->dtype) : TRII_EW_copy;
}

static void write_program(compile *k)
{
    const trii_cpu_kernels *kernels = trii_cpu_kernels_get();
    chain *c = k->c;
    size_t length = 0;

    for (int n = 0; n < k->group->n_nodes; n++) {
        const trii_ir_node *node = &k->ir->nodes[k->group->nodes[n]];
        instr *p = &c->program[c->n_instr++];

        p->fn = kernels->ew[node->op == &trii_op_cast ? cast_code(k, n) : code_of(node->op)];
        p->f = node->first_f;
        p->dst = (uint8_t)k->reg[n];
        for (int i = 0; i < node->n_in; i++) {
            int inner = inner_node(k, node->in[i]);

            p->src[i] = (uint8_t)(inner >= 0 ? k->reg[inner]
                                             : k->in_reg[trii_group_in(k->group, node->in[i])]);
        }
        for (const char *s = node->op->name; *s != '\0' && length + 2 < sizeof(c->name); s++)
            c->name[length++] = *s;
        if (n + 1 < k->group->n_nodes && length + 2 < sizeof(c->name))
            c->name[length++] = '+';
    }
    for (int o = 0; o < c->n_out; o++) {
        const trii_layout *layout = k->group->out_layout[o];
        bool strided = layout != NULL && layout->strides != NULL;

        trii_chain_operand_of(&k->ir->values[k->group->out[o]].type, strided ? layout : NULL,
                              chain_type(k->ir, k->group), &c->out[o]);
        c->out_buffered[o] = strided || c->out[o].half != TRI_DTYPE_NONE;
        for (int i = 0; i < c->n_in; i++) {
            if (k->in_reg[i] == i && k->in_last[i] <= k->out_instr[o])
                c->in_place[o] |= UINT64_C(1) << i;
        }
    }
}

tri_status trii_cpu_chain_compile(const trii_ir *ir, const trii_group *group,
                                  trii_kernel **kernel_out)
{
    compile k = {.ir = ir, .group = group};
    chain *c = trii_alloc(1, sizeof(*c), "kernel");

    if (c == NULL)
        return TRI_ERR_NO_MEMORY;
    c->base = (trii_kernel){.name = c->name,
                            .run = chain_run_kernel,
                            .destroy = trii_cpu_kernel_free,
                            .in_place = c->in_place};
    c->n = trii_type_numel(chain_type(ir, group));
    c->n_in = group->n_in;
    c->n_out = group->n_out;
    k.c = c;
    if (c->n == 0) { /* no program: an empty operand has no period */
        memcpy(c->name, "empty", sizeof("empty"));
        *kernel_out = &c->base;
        return TRI_OK;
    }
    find_uses(&k);
    if (!place_inputs(&k) || !place_results(&k)) {
        trii_free(c);
        return TRII_FAIL(TRI_ERR_INTERNAL, "a chain of %d operations needs too many buffers",
                         group->n_nodes);
    }
    write_program(&k);
    choose_block(c);
    *kernel_out = &c->base;
    return TRI_OK;
}
