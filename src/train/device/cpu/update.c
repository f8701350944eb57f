/*
 * update.c - an optimiser's update of many parameters, in place; the loops are in kernels_update.h.
 * Elements are cut into chunks that the threads share, so that a step is one loop, whatever the
 * parameters' sizes.
 */
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/type.h"

#define CHUNK 16384 /* elements: one thread's at a time */
#define GRAIN 4     /* chunks per thread at least */
#define MAX_TENSORS (TRII_MAX_INPUTS / 2)

/* One parameter; its arguments. */
typedef struct updated {
    int64_t n, first; /* elements; number of its first chunk among all */
    int16_t p, g, p_new;
    int16_t s[TRII_UPDATE_STATES], s_new[TRII_UPDATE_STATES];
} updated;

typedef struct update_kernel {
    trii_kernel base;
    trii_update_fn run;
    int n_tensors, n_states, flags;
    int scale, skip; /* arguments, -1 = none */
    bool wide;       /* f64 */
    int32_t f;
    uint64_t in_place[TRII_MAX_OUTPUTS];
    updated tensors[MAX_TENSORS + 1]; /* one more, after the last */
} update_kernel;

typedef struct update_run {
    const update_kernel *k;
    void *const *args;
    trii_update_args common;
    bool skips;
} update_run;

static void update_part(const update_run *run, const updated *t, int64_t begin, int64_t end)
{
    trii_update_args args = run->common;

    args.p = run->args[t->p];
    args.g = run->args[t->g];
    args.p_new = run->args[t->p_new];
    for (int s = 0; s < run->k->n_states; s++) {
        args.s[s] = run->args[t->s[s]];
        args.s_new[s] = run->args[t->s_new[s]];
    }
    run->k->run(&args, begin, end);
}

/* Leaves the old contents. */
static void keep_part(const update_run *run, const updated *t, int64_t begin, int64_t end)
{
    size_t size = run->k->wide ? sizeof(double) : sizeof(float);

    for (int o = 0; o <= run->k->n_states; o++) {
        const char *from = run->args[o == 0 ? t->p : t->s[o - 1]];
        char *to = run->args[o == 0 ? t->p_new : t->s_new[o - 1]];

        if (from != to && end > begin)
            memcpy(to + (size_t)begin * size, from + (size_t)begin * size,
                   (size_t)(end - begin) * size);
    }
}

static void update_chunks(void *ctx, int64_t begin, int64_t end)
{
    const update_run *run = ctx;

    for (const updated *t = run->k->tensors; begin < end; t++) {
        int64_t last = end < t[1].first ? end : t[1].first, to = (last - t->first) * CHUNK;

        if (begin >= last)
            continue;
        (run->skips ? keep_part : update_part)(run, t, (begin - t->first) * CHUNK,
                                               to < t->n ? to : t->n);
        begin = last;
    }
}

static tri_status update_run_kernel(const trii_kernel *kernel, void *const *args,
                                    const trii_run *run)
{
    const update_kernel *k = (const update_kernel *)kernel;
    int64_t chunks = k->tensors[k->n_tensors].first;
    update_run ctx = {
        .k = k,
        .args = args,
        .common = {.f = run->f + k->f + 1, .limit = run->f[k->f], .scale = 1, .flags = k->flags}};

    if (k->scale >= 0)
        ctx.common.scale =
            k->wide ? *(const double *)args[k->scale] : (double)*(const float *)args[k->scale];
    ctx.skips = k->skip >= 0 && *(const float *)args[k->skip] != 0;
    if (chunks < 2 * GRAIN)
        update_chunks(&ctx, 0, chunks);
    else
        trii_parallel_for(chunks, GRAIN, update_chunks, &ctx);
    return TRI_OK;
}

static int states_of(const trii_ir_node *node)
{
    return trii_update_states((trii_update_rule)node->iattr[0], node->iattr[1]);
}

static int tensors_of(const trii_ir_node *node)
{
    bool skips = (node->iattr[1] & TRII_UPDATE_SKIPS) != 0;

    return (node->n_in - skips) / (2 + states_of(node));
}

static bool update_takes(const trii_ir *ir, const trii_ir_node *node)
{
    (void)ir;
    (void)node;
    return true;
}

/* The order of one parameter's elements: its own, or that of its gradient. */
static const trii_layout *layout_of(const trii_ir *ir, const trii_group *group,
                                    const trii_layout *const *have, const int32_t *in, int n)
{
    const trii_layout *layout = NULL;

    for (int i = 0; i < n; i++) {
        const trii_ir_value *value = &ir->values[in[i]];
        const trii_layout *found = have[trii_group_in(group, in[i])];

        if (found != NULL && (layout == NULL || value->persistent) &&
            found->bytes == trii_type_bytes(&value->type))
            layout = found;
    }
    return layout;
}

/* The operands of one parameter have the same shape, so any order of their elements will do. Where
 * several parameters read one value (a gradient, say), all are plain. */
static void update_layouts(const trii_ir *ir, const trii_group *group,
                           const trii_layout *const *have, trii_layouts *want)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    int n_states = states_of(node), each = 2 + n_states;

    if (group->n_in < node->n_in)
        return;
    for (int t = 0; t < tensors_of(node); t++) {
        const int32_t *in = node->in + t * each, *out = node->out + t * (1 + n_states);
        const trii_layout *layout = layout_of(ir, group, have, in, each);

        for (int i = 0; i < each; i++)
            want->in[trii_group_in(group, in[i])] = layout;
        for (int o = 0; o <= n_states; o++)
            want->out[trii_group_out(group, out[o])] = layout;
    }
}

/* The bit of an operand that nothing else of the node reads: a result may be written over it. */
static uint64_t bit_of(const trii_ir_node *node, int arg, int32_t value)
{
    int readers = 0;

    for (int i = 0; i < node->n_in; i++)
        readers += node->in[i] == value;
    return readers == 1 ? UINT64_C(1) << arg : 0;
}

static void add_tensor(const trii_group *group, const trii_ir_node *node, update_kernel *k, int i,
                       int64_t n)
{
    updated *t = &k->tensors[i];
    const int32_t *in = node->in + i * (2 + k->n_states), *out = node->out + i * (1 + k->n_states);
    uint64_t over_g;

    t->n = n;
    t[1].first = t->first + (n + CHUNK - 1) / CHUNK;
    t->p = (int16_t)trii_group_in(group, in[0]);
    t->g = (int16_t)trii_group_in(group, in[1]);
    t->p_new = (int16_t)(group->n_in + trii_group_out(group, out[0]));
    over_g = bit_of(node, t->g, in[1]);
    k->in_place[t->p_new - group->n_in] = over_g | bit_of(node, t->p, in[0]);
    for (int s = 0; s < k->n_states; s++) {
        t->s[s] = (int16_t)trii_group_in(group, in[2 + s]);
        t->s_new[s] = (int16_t)(group->n_in + trii_group_out(group, out[1 + s]));
        k->in_place[t->s_new[s] - group->n_in] = over_g | bit_of(node, t->s[s], in[2 + s]);
    }
}

static tri_status update_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    update_kernel *k = trii_alloc(1, sizeof(*k), "kernel");
    int each;

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){.name = "update",
                            .run = update_run_kernel,
                            .destroy = trii_cpu_kernel_free,
                            .in_place = k->in_place};
    k->wide = trii_in_type(ir, node, 0)->dtype == TRI_DTYPE_F64;
    k->run = trii_cpu_kernels_get()->update[node->iattr[0]][k->wide];
    k->flags = (int)node->iattr[1];
    k->n_states = states_of(node);
    each = 2 + k->n_states;
    k->n_tensors = tensors_of(node);
    k->skip =
        (k->flags & TRII_UPDATE_SKIPS) != 0 ? trii_group_in(group, node->in[node->n_in - 1]) : -1;
    for (int t = 0; t < k->n_tensors; t++)
        add_tensor(group, node, k, t, trii_type_numel(trii_in_type(ir, node, t * each)));
    k->scale = node->n_in - (k->skip >= 0) > k->n_tensors * each
                   ? trii_group_in(group, node->in[k->n_tensors * each])
                   : -1;
    k->f = node->first_f;
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_update = {.op = {&trii_op_update},
                                         .takes = update_takes,
                                         .layouts = update_layouts,
                                         .compile = update_compile};
