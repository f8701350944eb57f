/*
 * row_norm.c - layer and rms normalisation and their gradient, rows on all threads. Gradients of
 * weight and bias are added up in bands of rows, which depend on the shape alone, and over those in
 * f64: the bits do not depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/type.h"

#define GRAIN 16384  /* elements per thread at least */
#define BAND_ROWS 64 /* at least */
#define MOST_BANDS 256
#define WIDE_ROW 4096 /* elements of bf16, at most: widened on the stack */

/* Arguments; -1 = absent. */
typedef struct row_norm {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    int64_t rows, n, bands;
    bool centred, bf16;
    int32_t f;
    int x, w, b, y, mean, rstd; /* mean -1 = rms */
    int g, dx, dw, db, scratch;
} row_norm;

typedef struct row_run {
    const row_norm *k;
    void *const *args;
    double eps;
    float *partial; /* [bands, dw and db, n] */
} row_run;

static const float *pointer(const row_run *run, int arg)
{
    return arg >= 0 ? run->args[arg] : NULL;
}

/* Row r of the argument as f32: in place, or widened. */
static const float *row_of(const row_run *run, int arg, int64_t r, float *wide)
{
    const row_norm *k = run->k;

    if (!k->bf16)
        return (const float *)run->args[arg] + r * k->n;
    k->kernels->from_bf16(wide, (const uint16_t *)run->args[arg] + r * k->n, (size_t)k->n);
    return wide;
}

/* Memory in which row r of a result is computed. */
static float *room_for(const row_run *run, int arg, int64_t r, float *wide)
{
    return run->k->bf16 ? wide : (float *)run->args[arg] + r * run->k->n;
}

static void put_row(const row_run *run, int arg, int64_t r, const float *wide)
{
    const row_norm *k = run->k;

    if (k->bf16)
        k->kernels->to_bf16((uint16_t *)run->args[arg] + r * k->n, wide, (size_t)k->n);
}

/* --- forward -------------------------------------------------------------- */

static void forward_range(void *ctx, int64_t begin, int64_t end)
{
    const row_run *run = ctx;
    const row_norm *k = run->k;
    float wide[WIDE_ROW];

    for (int64_t r = begin; r < end; r++) {
        const float *x = row_of(run, k->x, r, wide);
        double mean, var;
        float rstd;

        k->kernels->row_moments(x, k->n, k->centred, &mean, &var);
        rstd = (float)(1 / sqrt(var + run->eps));
        if (k->mean >= 0)
            ((float *)run->args[k->mean])[r] = (float)mean;
        ((float *)run->args[k->rstd])[r] = rstd;
        k->kernels->row_normalise(room_for(run, k->y, r, wide), x, pointer(run, k->w),
                                  pointer(run, k->b), k->n, (float)mean, rstd);
        put_row(run, k->y, r, wide);
    }
}

static tri_status forward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const row_norm *k = (const row_norm *)kernel;
    row_run ctx = {.k = k, .args = args, .eps = run->f[k->f]};

    trii_parallel_for(k->rows, 1 + GRAIN / k->n, forward_range, &ctx);
    return TRI_OK;
}

/* --- backward ------------------------------------------------------------- */

static void band_range(void *ctx, int64_t begin, int64_t end)
{
    const row_run *run = ctx;
    const row_norm *k = run->k;
    float wide[2][WIDE_ROW];

    for (int64_t band = begin; band < end; band++) {
        float *partial = run->partial + band * 2 * k->n;
        trii_row_gradient g = {.n = k->n, .w = pointer(run, k->w)};

        g.dw = k->dw >= 0 ? partial : NULL;
        g.db = k->db >= 0 ? partial + k->n : NULL;
        if (run->partial != NULL)
            memset(partial, 0, (size_t)(2 * k->n) * sizeof(float));
        for (int64_t r = k->rows * band / k->bands; r < k->rows * (band + 1) / k->bands; r++) {
            double sum, product;

            g.g = row_of(run, k->g, r, wide[0]);
            g.x = row_of(run, k->x, r, wide[1]);
            g.mean = k->mean >= 0 ? pointer(run, k->mean)[r] : 0;
            g.rstd = pointer(run, k->rstd)[r];
            k->kernels->row_gradient_sums(&g, &sum, &product);
            g.dx = room_for(run, k->dx, r, wide[0]);
            k->kernels->row_gradient(&g, k->centred ? (float)(sum / (double)k->n) : 0,
                                     (float)(product / (double)k->n));
            put_row(run, k->dx, r, wide[0]);
        }
    }
}

/* Adds up the bands, for some columns. */
static void column_range(void *ctx, int64_t begin, int64_t end)
{
    enum { SOME = 512 };
    const row_run *run = ctx;
    const row_norm *k = run->k;
    double sums[SOME];

    for (int64_t at = begin; at < end; at += SOME) {
        int64_t n = end - at < SOME ? end - at : SOME;

        for (int which = 0; which < 2; which++) {
            int arg = which == 0 ? k->dw : k->db;

            if (arg < 0)
                continue;
            memset(sums, 0, sizeof(sums));
            k->kernels->add_rows(run->partial + which * k->n + at, k->bands, 2 * k->n, n, sums);
            for (int64_t i = 0; i < n; i++)
                ((float *)run->args[arg])[at + i] = (float)sums[i];
        }
    }
}

static tri_status backward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const row_norm *k = (const row_norm *)kernel;
    row_run ctx = {.k = k, .args = args};

    (void)run;
    if (k->base.scratch_bytes > 0)
        ctx.partial = args[k->scratch];
    trii_parallel_for(k->bands, 1 + GRAIN / (1 + k->rows / k->bands * k->n), band_range, &ctx);
    if (ctx.partial != NULL)
        trii_parallel_for(k->n, 1 + GRAIN / k->bands, column_range, &ctx);
    return TRI_OK;
}

/* --- compiling ------------------------------------------------------------ */

/* x and what has its shape are f32 or bf16, statistics and parameters f32. */
static bool takes(const trii_ir *ir, const trii_ir_node *node)
{
    bool backward = node->op == &trii_op_row_norm_backward;
    const trii_type *x = trii_in_type(ir, node, backward ? 1 : 0);
    int64_t n = 1;

    for (int d = x->ndim - (int)node->iattr[0]; d < x->ndim; d++)
        n *= x->shape[d];
    if (x->dtype != TRI_DTYPE_F32 && (x->dtype != TRI_DTYPE_BF16 || n > WIDE_ROW))
        return false;
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        bool is_in = i < node->n_in;
        bool activation = is_in ? i == 0 || (backward && i == 1) : i == node->n_in;
        const trii_type *type;

        if (is_in && !trii_has_in(node, i))
            continue;
        type = is_in ? trii_in_type(ir, node, i) : trii_out_type(ir, node, i - node->n_in);
        if (type->dtype != (activation ? x->dtype : TRI_DTYPE_F32))
            return false;
    }
    return trii_type_numel(x) > 0;
}

static int argument(const trii_group *group, const trii_ir_node *node, int i)
{
    return trii_has_in(node, i) ? trii_group_in(group, node->in[i]) : -1;
}

static tri_status create(const trii_ir *ir, const trii_group *group, int arg_x,
                         tri_status (*run)(const trii_kernel *kernel, void *const *args,
                                           const trii_run *run),
                         row_norm **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *x = trii_in_type(ir, node, arg_x);
    row_norm *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){.name = node->op->name, .run = run, .destroy = trii_cpu_kernel_free};
    k->kernels = trii_cpu_kernels_get();
    k->n = 1;
    for (int d = x->ndim - (int)node->iattr[0]; d < x->ndim; d++)
        k->n *= x->shape[d];
    k->rows = trii_type_numel(x) / k->n;
    k->bf16 = x->dtype == TRI_DTYPE_BF16;
    k->x = argument(group, node, arg_x);
    k->scratch = group->n_in + group->n_out;
    *kernel_out = k;
    return TRI_OK;
}

/* layer: in x w? b?, out y mean rstd; rms: in x w?, out y rstd */
static tri_status forward_compile(const trii_ir *ir, const trii_group *group,
                                  trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    row_norm *k;
    tri_status status = create(ir, group, 0, forward_run, &k);

    if (status != TRI_OK)
        return status;
    k->centred = node->op == &trii_op_layer_norm;
    k->f = node->first_f;
    k->w = argument(group, node, 1);
    k->b = argument(group, node, 2);
    k->y = group->n_in;
    k->mean = k->centred ? group->n_in + 1 : -1;
    k->rstd = group->n_in + (k->centred ? 2 : 1);
    *kernel_out = &k->base;
    return TRI_OK;
}

/* in g x w? mean? rstd; i: normalised dimensions, whether dw and db are wanted; out dx dw? db? */
static tri_status backward_compile(const trii_ir *ir, const trii_group *group,
                                   trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    row_norm *k;
    int out = group->n_in;
    tri_status status = create(ir, group, 1, backward_run, &k);

    if (status != TRI_OK)
        return status;
    k->g = argument(group, node, 0);
    k->w = argument(group, node, 2);
    k->mean = argument(group, node, 3);
    k->rstd = argument(group, node, 4);
    k->centred = k->mean >= 0;
    k->dx = out++;
    k->dw = node->iattr[1] != 0 ? out++ : -1;
    k->db = node->iattr[2] != 0 ? out : -1;
    k->bands = (k->rows + BAND_ROWS - 1) / BAND_ROWS;
    k->bands = k->bands < MOST_BANDS ? k->bands : MOST_BANDS;
    if (k->dw >= 0 || k->db >= 0)
        k->base.scratch_bytes = (size_t)(k->bands * 2 * k->n) * sizeof(float);
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_row_norm = {
    .op = {&trii_op_layer_norm, &trii_op_rms_norm}, .takes = takes, .compile = forward_compile};
const trii_cpu_family trii_cpu_row_norm_backward = {
    .op = {&trii_op_row_norm_backward}, .takes = takes, .compile = backward_compile};
