/*
 * products.c - linear and matmul: small products in kernels of our own, which start in nanoseconds,
 * large ones through the library (products_large.c for f32, products_bf16.c and
 * onednn/matmul_onednn.c for bf16).
 */
#include <assert.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/onednn/onednn.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/products_bf16.h"
#include "train/device/cpu/products_large.h"
#include "train/device/cpu/variety.h"
#include "train/graph/ops/kernel_rules.h"
#include "train/graph/step/strides.h"
#include "os/cpu.h"

/* Up to here a call into the library costs more than it gains (measured: about 60 us of work). */
#define SMALL_FLOPS (INT64_C(1) << 22)
#define SMALL_K 2048
/* multiplications of each of many products: as fast in ours */
#define SMALL_MATRIX (INT64_C(1) << 18)
/* in bf16: a call into the library takes a tenth of the time */
#define SMALL_MUL_ADDS (INT64_C(1) << 21)
#define FEW_SIZES 8
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
    int64_t *at[3];                           /* NULL, or where the matrices of a, b and c are */
    int64_t parts;                            /* of the products; a thread takes some parts */
    size_t pack_floats;                       /* scratch of a part */
    int a, b, bias, c, scratch;               /* arguments; bias -1 = none */
} product;

static void product_some(const product *p, void *const *args, trii_gemm_args *gemm, int64_t begin,
                         int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        gemm->a = (const float *)args[p->a] + (p->at[0] != NULL ? p->at[0][i] : i * p->a_batch);
        gemm->b = (const float *)args[p->b] + (p->at[1] != NULL ? p->at[1][i] : i * p->b_batch);
        gemm->c = (float *)args[p->c] + (p->at[2] != NULL ? p->at[2][i] : i * p->c_batch);
        p->run(gemm);
    }
}

typedef struct product_run_many {
    const product *p;
    void *const *args;
    trii_gemm_args gemm;
} product_run_many;

static void product_parts(void *ctx, int64_t begin, int64_t end)
{
    const product_run_many *run = ctx;
    const product *p = run->p;
    trii_gemm_args gemm = run->gemm;

    for (int64_t i = begin; i < end; i++) {
        gemm.pack = run->gemm.pack + (size_t)i * p->pack_floats;
        product_some(p, run->args, &gemm, p->batch * i / p->parts, p->batch * (i + 1) / p->parts);
    }
}

static tri_status product_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const product *p = (const product *)kernel;
    product_run_many many = {p, args, p->gemm};

    (void)run;
    many.gemm.pack = args[p->scratch];
    many.gemm.bias = p->bias >= 0 ? args[p->bias] : NULL;
    if (p->parts == 1)
        product_parts(&many, 0, 1);
    else
        trii_parallel_for(p->parts, 1, product_parts, &many);
    return TRI_OK;
}

/* Where the matrices of an operand, or of the result, are: strides of the result's leading
 * dimensions, 0 where the operand is the same for all. */
typedef struct lead {
    int n;
    int64_t size[TRI_MAX_DIMS], stride[3][TRI_MAX_DIMS]; /* of a, b, c */
} lead;

/* What both operations are turned into. */
typedef struct operands {
    int32_t a, b, bias, c;
    trii_matmul_shape shape;
    const lead *lead; /* NULL, or leading dimensions that the shape cannot express */
} operands;

/* Elements from matrix i to the next of an operand: one distance for all of them, or -1. */
static int64_t distance(const lead *l, int which)
{
    int64_t step = -1, n = 1;

    assert(l->n >= 0 && l->n <= TRI_MAX_DIMS);
    for (int d = l->n - 1; d >= 0; d--) {
        if (l->size[d] == 1)
            continue;
        if (step >= 0 && l->stride[which][d] != step * n)
            return -1;
        if (step < 0)
            step = l->stride[which][d];
        n *= l->size[d];
    }
    return step < 0 ? 0 : step;
}

static void place_matrices(const lead *l, int which, int64_t batch, int64_t *at)
{
    for (int64_t i = 0; i < batch; i++) {
        int64_t rest = i;

        at[i] = 0;
        for (int d = l->n - 1; d >= 0; d--) {
            at[i] += rest % l->size[d] * l->stride[which][d];
            rest /= l->size[d];
        }
    }
}

/* If the processor has AMX, code for fixed sizes is the fastest, also for a product (or many) that
 * is too small for a call: unless there are too many sizes, here of rows or of the summed
 * dimension. */
static bool has_own_code(const trii_matmul_shape *s)
{
    const bool small = s->m * s->n * s->k < SMALL_MUL_ADDS;
    uint64_t orders = trii_kind_add(s->a_row == 1, s->b_row == 1), rows, sums;
    bool many_rows, many_sums;

    if (small && s->batch > 1) { /* any of the three may be a length */
        uint64_t all = trii_kind_add(trii_kind_add(s->batch, s->m), s->n);

        return !trii_kind_varies(orders, (int64_t)trii_kind_add(all, s->k), 4 * FEW_SIZES);
    }
    rows = trii_kind_add(trii_kind_add(trii_kind_add(orders, s->c_is_f32), s->n), s->k);
    sums = trii_kind_add(trii_kind_add(trii_kind_add(orders, 2 + s->c_is_f32), s->n), s->m);
    /* large products count as well */
    many_rows = trii_kind_varies(rows, s->m * s->batch, FEW_SIZES);
    many_sums = trii_kind_varies(sums, s->k, FEW_SIZES);
    return !many_rows && !many_sums &&
           (small || (trii_cpu_isa() == TRII_ISA_AVX512 && trii_cpu_has_amx_bf16()));
}

/* In bf16: through the library; where it cannot, the reference kernel. Views were accepted only
 * where the library can read them. */
static tri_status compile_bf16(const trii_ir *ir, const trii_group *group, bool linear, operands *o,
                               trii_kernel **kernel_out)
{
    const int args[5] = {trii_group_in(group, o->a), trii_group_in(group, o->b),
                         o->bias >= 0 ? trii_group_in(group, o->bias) : -1, group->n_in,
                         group->n_in + group->n_out};
    tri_status status = TRI_ERR_UNSUPPORTED;

    o->shape.b_is_f32 = ir->values[o->b].type.dtype == TRI_DTYPE_F32;
    o->shape.c_is_f32 = ir->values[o->c].type.dtype == TRI_DTYPE_F32;
    if (o->lead == NULL && o->shape.batch * o->shape.m * o->shape.n * o->shape.k > 0) {
        /* without bf16 instructions its primitives are plain loops */
        bool native = trii_onednn_has_bf16();

        if (!native || !has_own_code(&o->shape))
            status = trii_cpu_bf16_product(
                &o->shape, args, linear ? "linear:gemm_bf16" : "matmul:gemm_bf16", kernel_out);
        if (status == TRI_ERR_UNSUPPORTED && native)
            status = trii_onednn_matmul(&o->shape, args, kernel_out);
    }
    return status == TRI_ERR_UNSUPPORTED ? trii_cpu_fallback_compile(ir, group, kernel_out)
                                         : status;
}

/* Whether it is worth a call into the library, which refuses sizes of zero. */
static bool is_large(const operands *o)
{
    const trii_matmul_shape *s = &o->shape;
    int64_t mul_adds = s->m * s->n * s->k;

    if (o->lead != NULL || s->batch * mul_adds == 0)
        return false;
    if (s->k > SMALL_K)
        return true;
    return s->batch * mul_adds > SMALL_FLOPS / 2 && (s->batch == 1 || mul_adds > SMALL_MATRIX);
}

/* Into how many parts several products are cut: one for each thread that has enough to do. */
static int64_t parts_of(const trii_matmul_shape *s)
{
    int64_t parts = s->batch / (PARALLEL_MUL_ADDS / (1 + s->m * s->n * s->k) + 1);
    int64_t threads = s->k > SMALL_K ? 1 : trii_parallel_threads();

    return parts < 1 ? 1 : parts > threads ? threads : parts;
}

static tri_status compile(const trii_ir *ir, const trii_group *group, bool linear, operands *o,
                          trii_kernel **kernel_out)
{
    const trii_matmul_shape *shape = &o->shape;
    int a = trii_group_in(group, o->a), b = trii_group_in(group, o->b);
    int bias = o->bias >= 0 ? trii_group_in(group, o->bias) : -1;
    int64_t mul_adds = shape->batch * shape->m * shape->n * shape->k;
    product *p;

    if (ir->values[o->a].type.dtype == TRI_DTYPE_BF16)
        return compile_bf16(ir, group, linear, o, kernel_out);
    if (o->lead != NULL && shape->k > SMALL_K)
        return trii_cpu_fallback_compile(ir, group, kernel_out);
    if (is_large(o)) {
        const int args[5] = {a, b, bias, group->n_in, group->n_in + group->n_out};
        const char *name = linear ? "linear:sgemm" : "matmul:sgemm";

        return trii_cpu_large_product(shape, args, shape->sum ? "matmul:sgemm+add" : name,
                                      kernel_out);
    }
    p = trii_alloc(1,
                   sizeof(*p) + (o->lead != NULL ? 3 * (size_t)shape->batch * sizeof(int64_t) : 0),
                   "kernel");
    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    p->run = trii_cpu_kernels_get()->gemm;
    p->base = (trii_kernel){.name = linear ? "linear:gemm" : "matmul:gemm",
                            .run = product_run,
                            .destroy = trii_cpu_kernel_free};
    p->gemm = (trii_gemm_args){.m = shape->m,
                               .n = shape->n,
                               .k = shape->k,
                               .a_row = shape->a_row,
                               .a_col = shape->a_col,
                               .b_row = shape->b_row,
                               .b_col = shape->b_col,
                               .ldc = shape->c_row};
    p->batch = shape->batch;
    p->a_batch = shape->a_batch;
    p->b_batch = shape->b_batch;
    p->c_batch = shape->c_batch;
    p->parts = parts_of(shape);
    p->pack_floats = (size_t)(mul_adds > 0 ? shape->k : 1) * 2 * TRII_MAX_LANES;
    p->base.scratch_bytes = (size_t)p->parts * p->pack_floats * sizeof(float);
    for (int k = 0; k < 3 && o->lead != NULL; k++) {
        p->at[k] = (int64_t *)(p + 1) + k * shape->batch;
        place_matrices(o->lead, k, shape->batch, p->at[k]);
    }
    p->a = a;
    p->b = b;
    p->bias = bias;
    p->c = group->n_in;
    p->scratch = group->n_in + group->n_out;
    *kernel_out = &p->base;
    return TRI_OK;
}

/* Strides of operand or result k of the product in a layout. */
static void strides_of(const trii_type *type, const trii_layout *layout, trii_strides *strides)
{
    trii_strides_plain(type, strides);
    for (int d = 0; d < type->ndim && layout != NULL; d++)
        strides->stride[d] = layout->strides[d];
}

/* Leading dimensions of the result, and the strides of operand `which` along them. */
static void find_lead(const trii_type *type, const trii_strides *at, const trii_type *out, int n,
                      int which, lead *l)
{
    int shift = out->ndim - type->ndim;

    l->n = n;
    for (int d = 0; d < n; d++) {
        bool same = d < shift || type->shape[d - shift] == 1;

        l->size[d] = out->shape[d];
        l->stride[which][d] = same ? 0 : at->stride[d - shift];
    }
}

/* The rows of x, and of the result, must be at one distance; -1 in the shape: they are not. */
static void describe_linear(const trii_ir *ir, const trii_ir_node *node,
                            const trii_layout *const layout[3], operands *o, lead *l)
{
    const trii_type *x = trii_in_type(ir, node, 0), *w = trii_in_type(ir, node, 1);
    const trii_type *y = trii_out_type(ir, node, 0);
    trii_strides at[3];

    strides_of(x, layout[0], &at[0]);
    strides_of(w, layout[1], &at[1]);
    strides_of(y, layout[2], &at[2]);
    find_lead(x, &at[0], y, y->ndim - 1, 0, l);
    find_lead(y, &at[2], y, y->ndim - 1, 2, l);
    o->bias = trii_has_in(node, 2) ? node->in[2] : -1;
    o->shape = (trii_matmul_shape){.batch = 1,
                                   .m = 1,
                                   .n = w->shape[0],
                                   .k = w->shape[1],
                                   .a_row = distance(l, 0),
                                   .a_col = at[0].stride[x->ndim - 1],
                                   .b_row = at[1].stride[1],
                                   .b_col = at[1].stride[0],
                                   .c_row = distance(l, 2),
                                   .bias = trii_has_in(node, 2)};
    for (int d = 0; d < l->n; d++)
        o->shape.m *= l->size[d];
    if (o->shape.m <= 1) { /* rows at any distance */
        o->shape.a_row = o->shape.k;
        o->shape.c_row = o->shape.n;
    }
}

static void describe_matmul(const trii_ir *ir, const trii_ir_node *node,
                            const trii_layout *const layout[3], operands *o, lead *l)
{
    const trii_type *type[3] = {trii_in_type(ir, node, 0), trii_in_type(ir, node, 1),
                                trii_out_type(ir, node, 0)};
    bool ta = node->iattr[0] != 0, tb = node->iattr[1] != 0;
    int n = type[2]->ndim;
    trii_matmul_shape *s = &o->shape;
    int64_t row[3], col[3];

    for (int k = 0; k < 3; k++) {
        trii_strides at;

        strides_of(type[k], layout[k], &at);
        find_lead(type[k], &at, type[2], n - 2, k, l);
        row[k] = at.stride[type[k]->ndim - 2];
        col[k] = at.stride[type[k]->ndim - 1];
    }
    *s = (trii_matmul_shape){.batch = 1,
                             .m = type[2]->shape[n - 2],
                             .n = type[2]->shape[n - 1],
                             .k = type[0]->shape[type[0]->ndim - (ta ? 2 : 1)],
                             .a_row = ta ? col[0] : row[0],
                             .a_col = ta ? row[0] : col[0],
                             .b_row = tb ? col[1] : row[1],
                             .b_col = tb ? row[1] : col[1],
                             .c_row = row[2],
                             .a_batch = distance(l, 0),
                             .b_batch = distance(l, 1),
                             .c_batch = distance(l, 2)};
    for (int d = 0; d < l->n; d++)
        s->batch *= l->size[d];
    o->bias = -1;
    o->lead = s->a_batch < 0 || s->b_batch < 0 || s->c_batch < 0 ? l : NULL;
    /* Leading dimensions on the left alone become more rows. */
    if (s->batch > 1 && s->b_batch == 0 && o->lead == NULL && s->a_batch == s->m * s->a_row &&
        s->c_batch == s->m * s->c_row) {
        s->m *= s->batch;
        s->batch = 1;
        s->a_batch = s->c_batch = 0;
    }
}

static void describe(const trii_ir *ir, const trii_ir_node *node,
                     const trii_layout *const layout[3], operands *o, lead *l)
{
    *o = (operands){.a = node->in[0], .b = node->in[1], .c = node->out[0]};
    if (node->op == &trii_op_linear)
        describe_linear(ir, node, layout, o, l);
    else
        describe_matmul(ir, node, layout, o, l);
}

/* What else an addition adds. */
static int32_t other_operand(const trii_ir_node *add, int32_t value)
{
    return add->in[add->in[0] == value ? 1 : 0];
}

/* A product this deep is summed in registers before anything is added to it, and so the sum has the
 * bits of an addition afterwards. dnnl_sgemm divides deeper ones: without AVX-512 from 97 terms on,
 * where the left side lies in columns. Deeper ones gain less. */
static int64_t sum_depth(void)
{
    return trii_cpu_isa() == TRII_ISA_AVX512 ? 256 : 96;
}

/* The gradient of a weight by one more micro-batch, and its sum with those before. What it is added
 * to must be there before the product, which would otherwise run later and keep its operands. */
bool trii_cpu_product_absorbs(const trii_ir *ir, const trii_group *group, const trii_ir_node *add)
{
    const trii_layout *const plain[3] = {NULL, NULL, NULL};
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_ir_value *to;
    int32_t other;
    operands o;
    lead l;

    if (group->n_nodes != 1 || add->op != &trii_op_add || node->op != &trii_op_matmul ||
        trii_out_type(ir, node, 0)->ndim != 2 || !trii_node_f32(ir, node) ||
        !trii_type_same_shape(trii_in_type(ir, add, 0), trii_in_type(ir, add, 1)) ||
        ir->values[add->out[0]].bound)
        return false;
    other = other_operand(add, node->out[0]);
    if (other == node->out[0] || other == node->in[0] || other == node->in[1])
        return false;
    to = &ir->values[other];
    describe(ir, node, plain, &o, &l);
    return is_large(&o) && o.shape.k <= sum_depth() && to->type.dtype == TRI_DTYPE_F32 &&
           to->node >= 0 && ir->nodes[to->node].op->op_class != TRII_CLASS_HOST &&
           ir->groups[ir->nodes[to->node].group]->position < group->position;
}

bool trii_cpu_product_widens(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_layout *const plain[3] = {NULL, NULL, NULL};
    operands o;
    lead l;

    if (node->op != &trii_op_matmul || trii_in_type(ir, node, 0)->dtype != TRI_DTYPE_BF16)
        return false;
    describe(ir, node, plain, &o, &l);
    return o.lead != NULL;
}

/* --- strided operands ----------------------------------------------------- */

/* A matrix whose rows, or columns, are contiguous and do not overlap. */
static bool is_matrix(int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}

/* No element is in two places: the library refuses matrices of overlapping windows. From the
 * smallest stride on, each dimension must begin where the last one ends. */
static bool are_apart(const int64_t size[3], const int64_t stride[3])
{
    bool seen[3] = {false, false, false};
    int64_t end = 1;

    for (int k = 0; k < 3; k++) {
        int least = -1;

        for (int d = 0; d < 3; d++) {
            if (!seen[d] && (least < 0 || stride[d] < stride[least]))
                least = d;
        }
        seen[least] = true;
        if (size[least] == 1 || stride[least] == 0)
            continue;
        if (stride[least] < end)
            return false;
        end = stride[least] * size[least];
    }
    return true;
}

static bool is_accepted(const trii_ir *ir, const operands *o)
{
    const trii_matmul_shape *s = &o->shape;
    int64_t mul_adds = s->m * s->n * s->k;

    if (s->batch * mul_adds == 0 || !is_matrix(s->m, s->k, s->a_row, s->a_col) ||
        !is_matrix(s->k, s->n, s->b_row, s->b_col) || s->c_row < s->n)
        return false;
    if (s->batch > 1 && s->a_batch == 0 && s->b_batch == 0)
        return false; /* one product expanded to many: the library has no such products */
    if (o->lead == NULL && (!are_apart((const int64_t[]){s->batch, s->m, s->k},
                                       (const int64_t[]){s->a_batch, s->a_row, s->a_col}) ||
                            !are_apart((const int64_t[]){s->batch, s->k, s->n},
                                       (const int64_t[]){s->b_batch, s->b_row, s->b_col})))
        return false;
    return o->lead == NULL || (ir->values[o->a].type.dtype == TRI_DTYPE_F32 && s->k <= SMALL_K &&
                               mul_adds <= SMALL_MATRIX);
}

static bool is_strided(const trii_layout *layout)
{
    return layout != NULL && layout->strides != NULL;
}

/* Views that the product can read in place, and the layout of the result. */
static void layouts(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                    trii_layouts *want)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    int at[2] = {trii_group_in(group, node->in[0]), trii_group_in(group, node->in[1])};
    int c = 0; /* the only one */
    const trii_layout *layout[3] = {NULL, NULL, NULL};
    operands o;
    lead l;

    for (int k = 0; k < (group->n_nodes > 1 ? 2 : 3); k++) { /* a sum is plain, as its parts */
        const trii_layout *offered = k < 2 ? have[at[k]] : group->out_layout[c];
        bool both = at[0] == at[1] && k < 2;

        if (!is_strided(offered) || (both && k == 1))
            continue;
        layout[k] = offered;
        if (both)
            layout[1] = offered;
        describe(ir, node, layout, &o, &l);
        if (is_accepted(ir, &o) &&
            (k < 2 || offered->strides[trii_out_type(ir, node, 0)->ndim - 1] == 1))
            continue;
        layout[k] = NULL;
        if (both)
            layout[1] = NULL;
    }
    want->in[at[0]] = layout[0];
    want->in[at[1]] = layout[1];
    want->out[c] = layout[2];
}

static tri_status product_compile(const trii_ir *ir, const trii_group *group,
                                  trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    bool linear = node->op == &trii_op_linear;
    const trii_layout *const layout[3] = {
        group->in_layout[trii_group_in(group, node->in[0])],
        group->in_layout[trii_group_in(group, node->in[1])],
        group->out_layout[0],
    };
    operands o;
    lead l;

    describe(ir, node, layout, &o, &l);
    o.shape.sum = group->n_nodes > 1;
    if (o.shape.sum)
        o.bias = other_operand(&ir->nodes[group->nodes[1]], o.c);
    if (linear && o.shape.k == 0)
        return trii_cpu_fallback_compile(ir, group, kernel_out);
    return compile(ir, group, linear, &o, kernel_out);
}

const trii_cpu_family trii_cpu_linear = {.op = {&trii_op_linear},
                                         .takes = takes,
                                         .strided = true,
                                         .layouts = layouts,
                                         .compile = product_compile};
const trii_cpu_family trii_cpu_matmul = {
    .op = {&trii_op_matmul, &trii_op_matmul_weight, &trii_op_matmul_to_weight},
    .takes = takes,
    .strided = true,
    .layouts = layouts,
    .compile = product_compile};
