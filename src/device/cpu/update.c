/*
 * update.c - the optimiser's update of one parameter, in place.
 */
#include "base/alloc.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/cpu_parallel.h"
#include "graph/type.h"

#define GRAIN 65536 /* elements per thread at least */

/* in p g m?, i: nesterov, first_step, maximize, f: lr, momentum, dampening, weight_decay. */
typedef struct sgd_kernel {
    trii_kernel base;
    void (*run)(const trii_sgd_args *args, int64_t begin, int64_t end);
    int64_t n;
    int p, g, m, p_new, m_new; /* arguments; -1 = none */
    bool nesterov, maximize;
    int32_t f;
    uint64_t in_place[2];
} sgd_kernel;

typedef struct sgd_run {
    const sgd_kernel *k;
    trii_sgd_args args;
} sgd_run;

static void sgd_range(void *ctx, int64_t begin, int64_t end)
{
    const sgd_run *run = ctx;

    run->k->run(&run->args, begin, end);
}

static tri_status sgd_run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const sgd_kernel *k = (const sgd_kernel *)kernel;
    const double *f = run->f + k->f;
    sgd_run ctx = {.k = k,
                   .args = {.p = args[k->p],
                            .g = args[k->g],
                            .m = k->m >= 0 ? args[k->m] : NULL,
                            .p_new = args[k->p_new],
                            .m_new = k->m_new >= 0 ? args[k->m_new] : NULL,
                            .lr = (float)-f[0],
                            .momentum = (float)f[1],
                            .fresh = (float)(1 - f[2]),
                            .decay = (float)f[3],
                            .nesterov = k->nesterov,
                            .maximize = k->maximize}};

    if (k->n < 2 * GRAIN)
        k->run(&ctx.args, 0, k->n);
    else
        trii_parallel_for(k->n, GRAIN, sgd_range, &ctx);
    return TRI_OK;
}

static bool sgd_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_node_f32(ir, node) && node->n_i == 3 && node->n_f == 4;
}

static tri_status sgd_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    sgd_kernel *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){.name = "sgd",
                            .run = sgd_run_kernel,
                            .destroy = trii_cpu_kernel_free,
                            .in_place = k->in_place};
    k->run = trii_cpu_kernels_get()->sgd;
    k->n = trii_type_numel(trii_in_type(ir, node, 0));
    k->p = trii_group_in(group, node->in[0]);
    k->g = trii_group_in(group, node->in[1]);
    k->m = trii_has_in(node, 2) ? trii_group_in(group, node->in[2]) : -1;
    k->p_new = group->n_in + trii_group_out(group, node->out[0]);
    k->m_new = node->n_out > 1 ? group->n_in + trii_group_out(group, node->out[1]) : -1;
    k->nesterov = node->iattr[0] != 0;
    k->maximize = node->iattr[2] != 0;
    k->f = node->first_f;
    k->in_place[k->p_new - group->n_in] = ~UINT64_C(0);
    if (k->m_new >= 0)
        k->in_place[k->m_new - group->n_in] =
            UINT64_C(1) << k->g | (k->m >= 0 ? UINT64_C(1) << k->m : 0);
    *kernel_out = &k->base;
    return TRI_OK;
}

/* Operands are alike, so any order of their elements will do: that of the parameter. */
const trii_cpu_family trii_cpu_sgd = {
    .op = "sgd", .takes = sgd_takes, .layouts = trii_cpu_chain_layouts, .compile = sgd_compile};
