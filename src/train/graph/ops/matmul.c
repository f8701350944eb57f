/*
 * matmul.c - matrix products.
 */
#include <inttypes.h>

#include "train/graph/ops/kernel_rules.h"
#include "train/graph/ops/rules.h"

/* --- matmul --------------------------------------------------------------- */

/* Rows and columns of one operand after its transposition. */
static void matrix_sizes(const trii_type *type, bool transposed, int64_t *rows, int64_t *cols)
{
    int64_t r = type->shape[type->ndim - 2], c = type->shape[type->ndim - 1];

    *rows = transposed ? c : r;
    *cols = transposed ? r : c;
}

static tri_status matmul_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    const trii_type *a = in[0], *b = in[1];
    trii_type lead_a, lead_b;
    int64_t m, k, k2, n;
    tri_status status = trii_rule_float(a, "a");

    (void)n_in;
    *n_out = 1;
    if (status == TRI_OK)
        status = trii_rule_same_dtype(a, b);
    if (status != TRI_OK)
        return status;
    if (a->ndim < 2 || b->ndim < 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "a matrix has at least 2 dimensions");
    lead_a = *a;
    lead_b = *b;
    lead_a.ndim -= 2;
    lead_b.ndim -= 2;
    status = trii_rule_broadcast(&lead_a, &lead_b, out);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "leading dimensions");
    matrix_sizes(a, attrs->i[0] != 0, &m, &k);
    matrix_sizes(b, attrs->i[1] != 0, &k2, &n);
    if (k != k2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a has %" PRId64 " columns, but b has %" PRId64 " rows", k, k2);
    out->shape[out->ndim++] = m;
    out->shape[out->ndim++] = n;
    return TRI_OK;
}

void trii_matmul_batches(const trii_type *operand, const trii_type *out, int64_t *stride)
{
    int64_t step = 1;

    for (int d = out->ndim - 3; d >= 0; d--) {
        int e = d - (out->ndim - operand->ndim);
        int64_t n = e >= 0 ? operand->shape[e] : 1;

        stride[d] = n == 1 ? 0 : step;
        step *= n;
    }
}

int64_t trii_matmul_batch(const trii_type *out, const int64_t *stride, int64_t index)
{
    int64_t at = 0;

    for (int d = out->ndim - 3; d >= 0; d--) {
        at += index % out->shape[d] * stride[d];
        index /= out->shape[d];
    }
    return at;
}

static tri_status matmul_kernel(const trii_kernel_args *args)
{
    const trii_type *a = args->in[0].type, *b = args->in[1].type, *c = args->out[0].type;
    bool ta = args->iattr[0] != 0, tb = args->iattr[1] != 0;
    int64_t batch = 1, m, k, n, last = -1, a_stride[TRI_MAX_DIMS], b_stride[TRI_MAX_DIMS];
    double *packed = NULL;

    trii_matmul_batches(a, c, a_stride);
    trii_matmul_batches(b, c, b_stride);

    matrix_sizes(a, ta, &m, &k);
    matrix_sizes(b, tb, &k, &n);
    for (int d = 0; d + 2 < c->ndim; d++)
        batch *= c->shape[d];
    if (tb) {
        packed = trii_work_take(args, (size_t)(k * n), sizeof(*packed));
        if (packed == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    for (int64_t i = 0; i < batch; i++) {
        int64_t b_at = trii_matmul_batch(c, b_stride, i);
        const double *bi = (const double *)args->in[1].data + b_at * k * n;
        trii_gemm g = {
            .m = m,
            .n = n,
            .k = k,
            .a = (const double *)args->in[0].data + trii_matmul_batch(c, a_stride, i) * m * k,
            .a_row = ta ? 1 : k,
            .a_col = ta ? m : 1,
            .b = bi,
            .b_row = n,
            .c = (double *)args->out[0].data + i * m * n,
            .c_row = n,
        };

        if (tb && b_at != last) {
            last = b_at;
            for (int64_t col = 0; col < n; col++) {
                for (int64_t row = 0; row < k; row++)
                    packed[row * n + col] = bi[col * k + row];
            }
        }
        if (tb)
            g.b = packed;
        trii_gemm_run(&g);
    }
    trii_work_return(args, packed);
    return TRI_OK;
}

static tri_status matmul_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, matmul_kernel);
}

static double matmul_flops(const trii_type *const *in, int n_in, const trii_type *out)
{
    double k = (double)trii_type_numel(in[0]);

    (void)n_in;
    /* |a| |c| / (batch m) = k n per row; symmetrical enough for a report */
    return k == 0 ? 0 : 2 * k * (double)out->shape[out->ndim - 1];
}

const trii_graph_op trii_op_matmul = {
    .name = "matmul",
    .precision = TRII_PRECISION_LOWERED,
    .activations_in = 1 << 0 | 1 << 1,
    .activations_out = 1 << 0,
    .shape = matmul_shape,
    .gradient = TRII_GRADIENT_matmul,
    .reference = matmul_reference,
    .flops = matmul_flops,
};

tri_status trii_rec_matmul(trii_step *step, trii_vid a, trii_vid b, bool transpose_a,
                           bool transpose_b, trii_vid *out)
{
    trii_vid in[2] = {a, b};
    trii_attrs attrs;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = transpose_a;
    attrs.i[1] = transpose_b;
    return trii_record_values(step, &trii_op_matmul, in, 2, &attrs, out);
}

/* The same product in the gradients of a linear layer in 16 bits: with a parameter on the right,
 * and to a parameter's gradient, neither of which is rounded. */
const trii_graph_op trii_op_matmul_weight = {
    .name = "matmul",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0,
    .activations_out = 1 << 0,
    .shape = matmul_shape,
    .reference = matmul_reference,
    .flops = matmul_flops,
};
const trii_graph_op trii_op_matmul_to_weight = {
    .name = "matmul",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0 | 1 << 1,
    .activations_out = 0,
    .shape = matmul_shape,
    .reference = matmul_reference,
    .flops = matmul_flops,
};

/* A vector on the left is a row, on the right a column, whose dimension the result does not
 * have. */
static tri_status vectors(trii_step *step, trii_vid a, trii_vid b, trii_vid *out)
{
    const trii_type type_a = *trii_type_of(step, a), type_b = *trii_type_of(step, b);
    trii_type type;
    bool row = type_a.ndim == 1, column = type_b.ndim == 1;
    tri_status status = TRI_OK;

    if (row)
        status = trii_rec_reshape(step, a, (int64_t[]){1, type_a.shape[0]}, 2, &a);
    if (status == TRI_OK && column)
        status = trii_rec_reshape(step, b, (int64_t[]){type_b.shape[0], 1}, 2, &b);
    if (status == TRI_OK)
        status = trii_rec_matmul(step, a, b, false, false, out);
    if (status != TRI_OK)
        return status;
    type = *trii_type_of(step, *out);
    if (row) {
        type.shape[type.ndim - 2] = type.shape[type.ndim - 1];
        type.ndim--;
    }
    if (column)
        type.ndim--;
    return trii_rec_reshape(step, *out, type.shape, type.ndim, out);
}

tri_tensor *tri_matmul(tri_tensor *a, tri_tensor *b)
{
    tri_tensor *const in[2] = {a, b};
    trii_vid ids[2] = {TRII_NO_VALUE, TRII_NO_VALUE}, out = TRII_NO_VALUE;
    trii_step *step;
    trii_attrs attrs;
    tri_status status = TRI_OK;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = attrs.i[1] = 0;
    if (a == NULL || b == NULL || (tri_tensor_ndim(a) != 1 && tri_tensor_ndim(b) != 1))
        return trii_record(&trii_op_matmul, in, 2, &attrs);
    step = trii_step_current();
    for (int i = 0; i < 2 && step != NULL && status == TRI_OK; i++)
        status = trii_resolve(step, in[i], &ids[i]);
    if (step != NULL && status == TRI_OK)
        status = vectors(step, ids[0], ids[1], &out);
    if (step == NULL || status != TRI_OK)
        return trii_handle_refused(step, "matmul", in, 2, status);
    return trii_handle_recorded(step, out);
}

/* --- linear --------------------------------------------------------------- */

static tri_status linear_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    const trii_type *x = in[0], *w = in[1], *b = in[2];
    tri_status status = trii_rule_float(x, "x");

    (void)n_in;
    (void)attrs;
    *n_out = 1;
    if (status == TRI_OK)
        status = trii_rule_same_dtype(x, w);
    if (status == TRI_OK)
        status = trii_rule_ndim(w, 2, "weight");
    if (status == TRI_OK && (x->ndim < 1 || x->shape[x->ndim - 1] != w->shape[1]))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "the last size of x is not the %" PRId64 " that weight [%" PRId64
                           ", %" PRId64 "] takes",
                           w->shape[1], w->shape[0], w->shape[1]);
    if (status == TRI_OK && b != NULL) {
        status = trii_rule_same_dtype(x, b);
        if (status == TRI_OK)
            status = trii_rule_shape(b, "bias", 1, &w->shape[0]);
    }
    if (status != TRI_OK)
        return status;
    trii_type_copy(out, x);
    out->shape[out->ndim - 1] = w->shape[0];
    return TRI_OK;
}

static tri_status linear_kernel(const trii_kernel_args *args)
{
    const trii_type *w = args->in[1].type;
    int64_t n_out = w->shape[0], n_in = w->shape[1];
    int64_t rows = 1;
    const double *weight = args->in[1].data, *bias = args->in[2].data;
    double *packed = trii_work_take(args, (size_t)(n_out * n_in), sizeof(*packed));
    double *y = args->out[0].data;
    trii_gemm g = {.n = n_out, .k = n_in, .a = args->in[0].data, .a_row = n_in, .a_col = 1};

    if (packed == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int d = 0; d + 1 < args->in[0].type->ndim; d++)
        rows *= args->in[0].type->shape[d];
    for (int64_t o = 0; o < n_out; o++) {
        for (int64_t i = 0; i < n_in; i++)
            packed[i * n_out + o] = weight[o * n_in + i];
    }
    g.m = rows;
    g.b = packed;
    g.b_row = n_out;
    g.c = y;
    g.c_row = n_out;
    trii_gemm_run(&g);
    for (int64_t r = 0; r < rows && bias != NULL; r++) {
        for (int64_t o = 0; o < n_out; o++)
            y[r * n_out + o] += bias[o];
    }
    trii_work_return(args, packed);
    return TRI_OK;
}

static tri_status linear_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, linear_kernel);
}

static double linear_flops(const trii_type *const *in, int n_in, const trii_type *out)
{
    (void)n_in;
    return 2 * (double)trii_type_numel(out) * (double)in[1]->shape[1];
}

const trii_graph_op trii_op_linear = {
    .name = "linear",
    .precision = TRII_PRECISION_LOWERED,
    .activations_in = 1 << 0,
    .activations_out = 1 << 0,
    .optional = 1 << 2,
    .shape = linear_shape,
    .gradient = TRII_GRADIENT_linear,
    .reference = linear_reference,
    .flops = linear_flops,
};

tri_tensor *tri_linear(tri_tensor *x, tri_tensor *weight, tri_tensor *bias)
{
    return trii_record(&trii_op_linear, (tri_tensor *const[]){x, weight, bias}, 3, NULL);
}
