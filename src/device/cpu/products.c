/*
 * products.c - linear and matmul: small products in kernels of ours, which start in nanoseconds,
 * large ones through the library.
 */
#include "base/alloc.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/onednn/onednn.h"
#include "device/cpu/cpu_parallel.h"
#include "graph/ops/kernel_rules.h"
#include "graph/type.h"

/* Up to here a call into the library costs more than it gains (measured: about 60 us of work). */
#define SMALL_FLOPS (INT64_C(1) << 22)
#define SMALL_K 2048
#define PARALLEL_MUL_ADDS (INT64_C(1) << 18) /* for a thread, of several small products */

/* f32, or activations in bf16 with parameters, or the parameter's gradient, in f32. */
static bool takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_node_computes_f32(ir, node) &&
           (trii_node_f32(ir, node) || trii_in_type(ir, node, 0)->dtype == TRI_DTYPE_BF16);
}

typedef struct product {
    trii_kernel base;
    trii_gemm_args gemm; /* all but pointers */
    void (*run)(const trii_gemm_args *args);
    int64_t batch, a_batch, b_batch, c_batch; /* products; elements between them, 0 = shared */
    int64_t *a_at, *b_at;                     /* NULL, or where a's and b's matrices are */
    int64_t grain;                            /* products for a thread */
    int a, b, bias, c, scratch;               /* arguments; bias -1 = none */
} product;

static void product_some(const product *p, void *const *args, trii_gemm_args *gemm, int64_t begin,
                         int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        gemm->a = (const float *)args[p->a] + (p->a_at != NULL ? p->a_at[i] : i * p->a_batch);
        gemm->b = (const float *)args[p->b] + (p->b_at != NULL ? p->b_at[i] : i * p->b_batch);
        gemm->c = (float *)args[p->c] + i * p->c_batch;
        p->run(gemm);
    }
}

typedef struct product_run_many {
    const product *p;
    void *const *args;
    trii_gemm_args gemm;
} product_run_many;

static void product_range(void *ctx, int64_t begin, int64_t end)
{
    const product_run_many *run = ctx;
    trii_gemm_args gemm = run->gemm;
    float pack[SMALL_K * 2 * TRII_MAX_LANES] __attribute__((aligned(64)));

    gemm.pack = pack; /* each thread its own */
    product_some(run->p, run->args, &gemm, begin, end);
}

static tri_status product_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const product *p = (const product *)kernel;
    trii_gemm_args gemm = p->gemm;

    (void)run;
    gemm.pack = args[p->scratch];
    gemm.bias = p->bias >= 0 ? args[p->bias] : NULL;
    if (p->grain < p->batch) {
        product_run_many run_many = {p, args, gemm};

        trii_parallel_for(p->batch, p->grain, product_range, &run_many);
        return TRI_OK;
    }
    product_some(p, args, &gemm, 0, p->batch);
    return TRI_OK;
}

/* What both operations come down to. */
typedef struct operands {
    int32_t a, b, bias, c;
    trii_matmul_shape shape;
    /* NULL, or the matmul whose operands are broadcast in a way that the shape cannot say */
    const trii_type *out, *a_type, *b_type;
} operands;

/* Where the matrices of a broadcast operand are. */
static void place_batches(const trii_type *operand, const operands *o, int64_t matrix, int64_t *at)
{
    int64_t stride[TRI_MAX_DIMS];

    trii_matmul_batches(operand, o->out, stride);
    for (int64_t i = 0; i < o->shape.batch; i++)
        at[i] = trii_matmul_batch(o->out, stride, i) * matrix;
}

/* In bf16: through the library; where it cannot, the reference kernel. */
static tri_status compile_bf16(const trii_ir *ir, const trii_group *group, operands *o,
                               trii_kernel **kernel_out)
{
    const int args[5] = {trii_group_in(group, o->a), trii_group_in(group, o->b),
                         o->bias >= 0 ? trii_group_in(group, o->bias) : -1, group->n_in,
                         group->n_in + group->n_out};
    tri_status status = TRI_ERR_UNSUPPORTED;

    o->shape.bf16 = true;
    o->shape.b_is_f32 = ir->values[o->b].type.dtype == TRI_DTYPE_F32;
    o->shape.c_is_f32 = ir->values[o->c].type.dtype == TRI_DTYPE_F32;
    if (o->out == NULL && o->shape.batch * o->shape.m * o->shape.n * o->shape.k > 0)
        status = trii_onednn_matmul(&o->shape, args, kernel_out);
    return status == TRI_ERR_UNSUPPORTED ? trii_cpu_fallback_compile(ir, group, kernel_out)
                                         : status;
}

static tri_status compile(const trii_ir *ir, const trii_group *group, const char *name, operands *o,
                          trii_kernel **kernel_out)
{
    const trii_matmul_shape *shape = &o->shape;
    int a = trii_group_in(group, o->a), b = trii_group_in(group, o->b);
    int bias = o->bias >= 0 ? trii_group_in(group, o->bias) : -1;
    int64_t mul_adds = shape->batch * shape->m * shape->n * shape->k;
    product *p;

    if (ir->values[o->a].type.dtype == TRI_DTYPE_BF16)
        return compile_bf16(ir, group, o, kernel_out);
    /* The library refuses sizes of zero. */
    if (o->out != NULL && shape->k > SMALL_K)
        return trii_cpu_fallback_compile(ir, group, kernel_out);
    if (mul_adds > 0 && o->out == NULL && (shape->k > SMALL_K || mul_adds > SMALL_FLOPS / 2)) {
        const int args[5] = {a, b, bias, group->n_in, group->n_in + group->n_out};

        return trii_onednn_matmul(shape, args, kernel_out);
    }
    p = trii_alloc(1,
                   sizeof(*p) + (o->out != NULL ? 2 * (size_t)shape->batch * sizeof(int64_t) : 0),
                   "kernel");
    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    p->run = trii_cpu_kernels_get()->gemm;
    p->base = (trii_kernel){.name = name,
                            .run = product_run,
                            .destroy = trii_cpu_kernel_free,
                            .scratch_bytes = (size_t)(mul_adds > 0 ? shape->k : 1) * 2 *
                                             (size_t)trii_cpu_kernels_get()->lanes * sizeof(float)};
    p->gemm = (trii_gemm_args){.m = shape->m,
                               .n = shape->n,
                               .k = shape->k,
                               .a_row = shape->a_row,
                               .a_col = shape->a_col,
                               .b_row = shape->b_row,
                               .b_col = shape->b_col,
                               .ldc = shape->n};
    p->batch = shape->batch;
    p->a_batch = shape->a_batch;
    p->b_batch = shape->b_batch;
    p->c_batch = shape->m * shape->n;
    p->grain = PARALLEL_MUL_ADDS / (1 + shape->m * shape->n * shape->k) + 1;
    if (shape->k > SMALL_K)
        p->grain = p->batch;
    if (o->out != NULL) {
        p->a_at = (int64_t *)(p + 1);
        p->b_at = p->a_at + shape->batch;
        place_batches(o->a_type, o, shape->m * shape->k, p->a_at);
        place_batches(o->b_type, o, shape->k * shape->n, p->b_at);
    }
    p->a = a;
    p->b = b;
    p->bias = bias;
    p->c = group->n_in;
    p->scratch = group->n_in + group->n_out;
    *kernel_out = &p->base;
    return TRI_OK;
}

static tri_status linear_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *x = trii_in_type(ir, node, 0), *w = trii_in_type(ir, node, 1);
    int64_t n = w->shape[0], k = w->shape[1];
    operands o = {.a = node->in[0],
                  .b = node->in[1],
                  .bias = trii_has_in(node, 2) ? node->in[2] : -1,
                  .c = node->out[0],
                  .shape = {.batch = 1,
                            .m = k > 0 ? trii_type_numel(x) / k : 0,
                            .n = n,
                            .k = k,
                            .a_row = k,
                            .a_col = 1,
                            .b_row = 1,
                            .b_col = k,
                            .bias = trii_has_in(node, 2)}};

    if (k == 0)
        return trii_cpu_fallback_compile(ir, group, kernel_out);
    return compile(ir, group, "linear:gemm", &o, kernel_out);
}

/* Matrices from one product to the next: 1, 0 (one for all), or -1 where neither holds. */
static int64_t batches_of(const trii_type *operand, int64_t batch)
{
    int64_t n = 1;

    for (int d = 0; d + 2 < operand->ndim; d++)
        n *= operand->shape[d];
    if (n == batch)
        return n == 1 ? 0 : 1;
    return n == 1 ? 0 : -1;
}

static tri_status matmul_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *a = trii_in_type(ir, node, 0), *b = trii_in_type(ir, node, 1);
    const trii_type *c = trii_out_type(ir, node, 0);
    bool ta = node->iattr[0] != 0, tb = node->iattr[1] != 0;
    int64_t m = c->shape[c->ndim - 2], n = c->shape[c->ndim - 1], batch = 1;
    int64_t k = a->shape[a->ndim - (ta ? 2 : 1)];
    operands o = {.a = node->in[0], .b = node->in[1], .bias = -1, .c = node->out[0]};
    int64_t a_batch = -1, b_batch = -1;

    for (int d = 0; d + 2 < c->ndim; d++)
        batch *= c->shape[d];
    a_batch = batches_of(a, batch);
    b_batch = batches_of(b, batch);
    o.shape = (trii_matmul_shape){.batch = batch,
                                  .m = m,
                                  .n = n,
                                  .k = k,
                                  .a_row = ta ? 1 : k,
                                  .a_col = ta ? m : 1,
                                  .b_row = tb ? 1 : n,
                                  .b_col = tb ? k : 1,
                                  .a_batch = a_batch * m * k,
                                  .b_batch = b_batch * k * n};
    if (a_batch < 0 || b_batch < 0) {
        o.out = c;
        o.a_type = a;
        o.b_type = b;
    }
    /* Leading dimensions on the left alone are more rows. */
    if (batch > 1 && b_batch == 0 && a_batch == 1 && !ta) {
        o.shape.m *= batch;
        o.shape.batch = 1;
        o.shape.a_batch = 0;
    }
    return compile(ir, group, "matmul:gemm", &o, kernel_out);
}

const trii_cpu_family trii_cpu_linear = {
    .op = {&trii_op_linear}, .takes = takes, .compile = linear_compile};
const trii_cpu_family trii_cpu_matmul = {
    .op = {&trii_op_matmul, &trii_op_matmul_weight, &trii_op_matmul_to_weight},
    .takes = takes,
    .compile = matmul_compile};
