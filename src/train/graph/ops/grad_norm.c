/*
 * grad_norm.c - the norm over many gradients, and the factor by which clipping scales them.
 * Recorded by train/optim/square_norm.c and clip.c. Replicas must agree on it to the bit, so the
 * order of the sum is that of every device (train/device/cpu/sum_tree.h): blocks of 4,096 elements
 * in 32 accumulators of f64, and a balanced tree over accumulators and blocks of one tensor; then
 * tensor by tensor.
 *
 * Where ranks have pieces of the gradients, each sums its own blocks (square_blocks) and puts the
 * sums where they are among those of all ranks (square_spread), zeros elsewhere. What the ranks
 * have in these places is added up, which changes no bit of it, and then in the order above
 * (square_total). A table says where blocks belong.
 *
 * Where ranks have different gradients, the stages of a pipeline, each puts the sums of its own
 * where they are among those of the whole network (square_each), which are exchanged in the same
 * way and then added in order (sum_in_order).
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "train/graph/ops/grad_norm.h"
#include "train/graph/ops/rules.h"

#define BLOCK 4096
#define LANES 32

/* in (a total, if i[0] is 1) x.., i: has_total; out f64: total + the squares of all x. */
static tri_status square_sum_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                   trii_type *out, int *n_out)
{
    tri_status status = TRI_OK;

    if (attrs->n_i != 1)
        return TRII_FAIL(TRI_ERR_INTERNAL, "square_sum: wrong attributes");
    for (int i = attrs->i[0] != 0; i < n_in && status == TRI_OK; i++)
        status = trii_rule_float(in[i], "the gradient");
    *n_out = 1;
    trii_type_scalar(&out[0], TRI_DTYPE_F64);
    return status;
}

static double tree(double *x, int64_t n)
{
    for (; n > 1; n = (n + 1) / 2) {
        for (int64_t i = 0; i < n / 2; i++)
            x[i] = x[2 * i] + x[2 * i + 1];
        if (n % 2 != 0)
            x[n / 2] = x[n - 1];
    }
    return x[0];
}

static double block_of(const trii_array *x, int64_t begin, int64_t end)
{
    double lanes[LANES] = {0};

    for (int64_t i = begin; i < end; i++) {
        double v = x->type->dtype == TRI_DTYPE_F64 ? ((const double *)x->data)[i]
                                                   : (double)((const float *)x->data)[i];

        lanes[(i - begin) % LANES] += v * v;
    }
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    }
    return lanes[0];
}

static int64_t blocks_of(const trii_type *type)
{
    return (trii_type_numel(type) + BLOCK - 1) / BLOCK;
}

static void sum_blocks(const trii_array *x, double *partial)
{
    int64_t n = trii_type_numel(x->type), blocks = blocks_of(x->type);

    for (int64_t b = 0; b < blocks; b++)
        partial[b] = block_of(x, b * BLOCK, b + 1 < blocks ? (b + 1) * BLOCK : n);
}

static tri_status square_sum_reference(const trii_kernel_args *args)
{
    int first = args->iattr[0] != 0;
    double total = first != 0 ? *(const double *)args->in[0].data : 0;

    for (int k = first; k < args->n_in; k++) {
        int64_t blocks = blocks_of(args->in[k].type);
        double *partial;

        if (blocks == 0)
            continue;
        partial = trii_work_take(args, (size_t)blocks, sizeof(*partial));
        if (partial == NULL)
            return TRI_ERR_NO_MEMORY;
        sum_blocks(&args->in[k], partial);
        total += tree(partial, blocks);
        trii_work_return(args, partial);
    }
    *(double *)args->out[0].data = total;
    return TRI_OK;
}

const trii_graph_op trii_op_square_sum = {
    .name = "square_sum",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = square_sum_shape,
    .reference = square_sum_reference,
};

/* --- of pieces ------------------------------------------------------------ */

static void type_vector(trii_type *out, int64_t n)
{
    trii_type_scalar(out, TRI_DTYPE_F64);
    out->ndim = 1;
    out->shape[0] = n;
}

/* in (sums so far, if i[0] is 1) x.., i: has_before; out f64 [blocks]: those, and one for each
 * block of all x. */
static tri_status square_blocks_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                      trii_type *out, int *n_out)
{
    tri_status status = TRI_OK;
    int64_t blocks;

    if (attrs->n_i != 1)
        return TRII_FAIL(TRI_ERR_INTERNAL, "square_blocks: wrong attributes");
    blocks = attrs->i[0] != 0 ? in[0]->shape[0] : 0;
    for (int i = attrs->i[0] != 0; i < n_in && status == TRI_OK; i++) {
        status = trii_rule_float(in[i], "the gradient");
        blocks += blocks_of(in[i]);
    }
    *n_out = 1;
    type_vector(&out[0], blocks);
    return status;
}

static tri_status square_blocks_reference(const trii_kernel_args *args)
{
    int first = args->iattr[0] != 0;
    double *y = args->out[0].data;

    for (int64_t b = 0; first != 0 && b < args->in[0].type->shape[0]; b++)
        *y++ = ((const double *)args->in[0].data)[b];
    for (int k = first; k < args->n_in; k++) {
        sum_blocks(&args->in[k], y);
        y += blocks_of(args->in[k].type);
    }
    return TRI_OK;
}

const trii_graph_op trii_op_square_blocks = {
    .name = "square_blocks",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = square_blocks_shape,
    .reference = square_blocks_reference,
};

static tri_status check_table(const trii_type *const *in, int n_in)
{
    if (n_in < 2 || in[0]->dtype != TRI_DTYPE_F64 || in[1]->dtype != TRI_DTYPE_I64)
        return TRII_FAIL(TRI_ERR_INTERNAL, "squares of pieces: wrong operands");
    return TRI_OK;
}

/* in own (square_blocks of all gradients), table (i64 [gradients, TRII_SQUARE_COLUMNS]), i: group,
 * blocks of all ranks in it; out f64 [blocks]: those of own that belong there, in their places, and
 * zeros. */
static tri_status square_spread_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                      trii_type *out, int *n_out)
{
    if (attrs->n_i != 2)
        return TRII_FAIL(TRI_ERR_INTERNAL, "square_spread: wrong attributes");
    *n_out = 1;
    type_vector(&out[0], attrs->i[1]);
    return check_table(in, n_in);
}

static tri_status square_spread_reference(const trii_kernel_args *args)
{
    const double *own = args->in[0].data;
    const int64_t *row = args->in[1].data;
    const int64_t *end = row + args->in[1].type->shape[0] * TRII_SQUARE_COLUMNS;
    double *y = args->out[0].data;

    for (; row < end; row += TRII_SQUARE_COLUMNS) {
        int64_t first = row[TRII_SQUARE_START];

        if (row[TRII_SQUARE_GROUP] == args->iattr[0]) {
            for (int64_t b = 0; b < row[TRII_SQUARE_BLOCKS]; b++)
                y[b] = b >= first && b < first + row[TRII_SQUARE_OWN] ? own[b - first] : 0;
            y += row[TRII_SQUARE_BLOCKS];
        }
        own += row[TRII_SQUARE_OWN];
    }
    return TRI_OK;
}

const trii_graph_op trii_op_square_spread = {
    .name = "square_spread",
    .shape = square_spread_shape,
    .reference = square_spread_reference,
};

/* in own, table, and what the ranks of all groups have together; out f64: the sum over all. */
static tri_status square_total_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                     trii_type *out, int *n_out)
{
    (void)attrs;
    *n_out = 1;
    trii_type_scalar(&out[0], TRI_DTYPE_F64);
    return check_table(in, n_in);
}

/* The sum over the gradient of the table's row, of which `own` has the blocks that are here, and
 * `all` those of all ranks. */
static tri_status sum_of_row(const trii_kernel_args *args, const int64_t *row, const double *own,
                             const double *all, double *sum_out)
{
    const double *from = row[TRII_SQUARE_GROUP] > 0 ? all + row[TRII_SQUARE_FROM] : own;
    size_t blocks = (size_t)row[TRII_SQUARE_BLOCKS];
    double *partial;

    *sum_out = 0;
    if (blocks == 0)
        return TRI_OK;
    assert(from != NULL); /* a row of a group comes with what all its ranks have */
    partial = trii_work_take(args, blocks, sizeof(*partial));
    if (partial == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(partial, from, blocks * sizeof(*partial));
    *sum_out = tree(partial, (int64_t)blocks);
    trii_work_return(args, partial);
    return TRI_OK;
}

static tri_status square_total_reference(const trii_kernel_args *args)
{
    const double *own = args->in[0].data, *all = args->in[2].data;
    const int64_t *row = args->in[1].data;
    const int64_t *end = row + args->in[1].type->shape[0] * TRII_SQUARE_COLUMNS;
    double total = 0, sum;
    tri_status status = TRI_OK;

    for (; row < end && status == TRI_OK; row += TRII_SQUARE_COLUMNS) {
        status = sum_of_row(args, row, own, all, &sum);
        total += sum;
        own += row[TRII_SQUARE_OWN];
    }
    *(double *)args->out[0].data = total;
    return status;
}

const trii_graph_op trii_op_square_total = {
    .name = "square_total",
    .shape = square_total_shape,
    .reference = square_total_reference,
};

/* --- of stages ------------------------------------------------------------ */

/* in own, table, and what the ranks of all groups have together, if there are groups, i: n; out f64
 * [n]: the sum over each gradient in its place, and zeros. */
static tri_status square_each_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                    trii_type *out, int *n_out)
{
    if (attrs->n_i != 1)
        return TRII_FAIL(TRI_ERR_INTERNAL, "square_each: wrong attributes");
    *n_out = 1;
    type_vector(&out[0], attrs->i[0]);
    return check_table(in, n_in);
}

static tri_status square_each_reference(const trii_kernel_args *args)
{
    const double *own = args->in[0].data, *all = args->n_in > 2 ? args->in[2].data : NULL;
    const int64_t *row = args->in[1].data;
    const int64_t *end = row + args->in[1].type->shape[0] * TRII_SQUARE_COLUMNS;
    double *y = args->out[0].data;
    tri_status status = TRI_OK;

    memset(y, 0, (size_t)args->iattr[0] * sizeof(*y));
    for (; row < end && status == TRI_OK; row += TRII_SQUARE_COLUMNS) {
        status = sum_of_row(args, row, own, all, &y[row[TRII_SQUARE_PLACE]]);
        own += row[TRII_SQUARE_OWN];
    }
    return status;
}

const trii_graph_op trii_op_square_each = {
    .name = "square_each",
    .shape = square_each_shape,
    .reference = square_each_reference,
};

static tri_status sum_in_order_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                     trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_scalar(&out[0], TRI_DTYPE_F64);
    return in[0]->dtype == TRI_DTYPE_F64
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INTERNAL, "sum_in_order: wrong operand");
}

static tri_status sum_in_order_reference(const trii_kernel_args *args)
{
    const double *x = args->in[0].data;
    double total = 0;

    for (int64_t i = 0; i < trii_type_numel(args->in[0].type); i++)
        total += x[i];
    *(double *)args->out[0].data = total;
    return TRI_OK;
}

const trii_graph_op trii_op_sum_in_order = {
    .name = "sum_in_order",
    .shape = sum_in_order_shape,
    .reference = sum_in_order_reference,
};

/* --- clipping ------------------------------------------------------------- */

/* in total (f64), i: dtype, f: max_norm; out norm, factor of that dtype, as clip_grad_norm_. */
static tri_status clip_factor_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                    trii_type *out, int *n_out)
{
    (void)n_in;
    if (attrs->n_i != 1 || attrs->n_f != 1 || in[0]->dtype != TRI_DTYPE_F64)
        return TRII_FAIL(TRI_ERR_INTERNAL, "clip_factor: wrong attributes or operands");
    *n_out = 2;
    trii_type_scalar(&out[0], (tri_dtype)attrs->i[0]);
    trii_type_scalar(&out[1], (tri_dtype)attrs->i[0]);
    return trii_rule_float(&out[0], "the factor");
}

static tri_status clip_factor_reference(const trii_kernel_args *args)
{
    double norm = sqrt(*(const double *)args->in[0].data);

    if (args->out[0].type->dtype == TRI_DTYPE_F64) {
        double factor = args->fattr[0] / (norm + 1e-6);

        *(double *)args->out[0].data = norm;
        *(double *)args->out[1].data = factor > 1 ? 1 : factor; /* NaN stays */
    } else {
        float factor = (float)args->fattr[0] / ((float)norm + 1e-6f);

        *(float *)args->out[0].data = (float)norm;
        *(float *)args->out[1].data = factor > 1 ? 1 : factor;
    }
    return TRI_OK;
}

const trii_graph_op trii_op_clip_factor = {
    .name = "clip_factor",
    .shape = clip_factor_shape,
    .reference = clip_factor_reference,
};
