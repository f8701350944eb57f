/*
 * update.c - an optimiser's update of one parameter, in place.
 */
#include "base/alloc.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/cpu_parallel.h"
#include "graph/type.h"

#define GRAIN 65536 /* elements per thread at least */

typedef struct update_kernel {
    trii_kernel base;
    trii_update_fn run;
    int64_t n;
    int p, g, scale, p_new; /* arguments; scale -1 = none */
    int s[TRII_UPDATE_STATES], s_new[TRII_UPDATE_STATES];
    int n_states, flags;
    bool wide; /* f64 */
    int32_t f;
    uint64_t in_place[1 + TRII_UPDATE_STATES];
} update_kernel;

typedef struct update_run {
    trii_update_fn run;
    trii_update_args args;
} update_run;

static void update_range(void *ctx, int64_t begin, int64_t end)
{
    const update_run *run = ctx;

    run->run(&run->args, begin, end);
}

static tri_status update_run_kernel(const trii_kernel *kernel, void *const *args,
                                    const trii_run *run)
{
    const update_kernel *k = (const update_kernel *)kernel;
    const double *f = run->f + k->f;
    update_run ctx;

    ctx.run = k->run;
    ctx.args.p = args[k->p];
    ctx.args.g = args[k->g];
    ctx.args.p_new = args[k->p_new];
    for (int s = 0; s < k->n_states; s++) {
        ctx.args.s[s] = args[k->s[s]];
        ctx.args.s_new[s] = args[k->s_new[s]];
    }
    ctx.args.limit = f[0];
    ctx.args.f = f + 1;
    ctx.args.scale = 1;
    if (k->scale >= 0)
        ctx.args.scale =
            k->wide ? *(const double *)args[k->scale] : (double)*(const float *)args[k->scale];
    ctx.args.flags = k->flags;
    if (k->n < 2 * GRAIN)
        k->run(&ctx.args, 0, k->n);
    else
        trii_parallel_for(k->n, GRAIN, update_range, &ctx);
    return TRI_OK;
}

static bool update_takes(const trii_ir *ir, const trii_ir_node *node)
{
    (void)ir;
    return node->n_out <= 1 + TRII_UPDATE_STATES;
}

static tri_status update_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    update_kernel *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){.name = "update",
                            .run = update_run_kernel,
                            .destroy = trii_cpu_kernel_free,
                            .in_place = k->in_place};
    k->wide = trii_in_type(ir, node, 0)->dtype == TRI_DTYPE_F64;
    k->run = trii_cpu_kernels_get()->update[node->iattr[0]][k->wide];
    k->flags = (int)node->iattr[1];
    k->n_states = node->n_out - 1;
    k->n = trii_type_numel(trii_in_type(ir, node, 0));
    k->p = trii_group_in(group, node->in[0]);
    k->g = trii_group_in(group, node->in[1]);
    k->p_new = group->n_in + trii_group_out(group, node->out[0]);
    k->in_place[k->p_new - group->n_in] = ~UINT64_C(0);
    for (int s = 0; s < k->n_states; s++) {
        k->s[s] = trii_group_in(group, node->in[2 + s]);
        k->s_new[s] = group->n_in + trii_group_out(group, node->out[1 + s]);
        k->in_place[k->s_new[s] - group->n_in] = UINT64_C(1) << k->g | UINT64_C(1) << k->s[s];
    }
    k->scale = node->n_in == 3 + k->n_states ? trii_group_in(group, node->in[2 + k->n_states]) : -1;
    k->f = node->first_f;
    *kernel_out = &k->base;
    return TRI_OK;
}

/* Operands are alike, so any order of their elements will do: that of the parameter. */
const trii_cpu_family trii_cpu_update = {.op = {&trii_op_update},
                                         .takes = update_takes,
                                         .layouts = trii_cpu_chain_layouts,
                                         .compile = update_compile};
