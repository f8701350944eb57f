/*
 * rules.c - see rules.h.
 */
#include "train/graph/ops/rules.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "train/graph/ops/kernel_rules.h"

/* --- shape rules ---------------------------------------------------------- */

tri_status trii_rule_float(const trii_type *type, const char *what)
{
    if (TRII_LIKELY(type->dtype == TRI_DTYPE_F32 || type->dtype == TRI_DTYPE_F64))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s must be f32 or f64, not %s (tri_cast converts)", what,
                     tri_dtype_name(type->dtype));
}

tri_status trii_rule_index(const trii_type *type, const char *what)
{
    if (type->dtype == TRI_DTYPE_I64)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s must be i64, not %s (tri_cast converts)", what,
                     tri_dtype_name(type->dtype));
}

tri_status trii_index_check(int64_t index, int64_t at, int64_t size, const char *what)
{
    if (TRII_LIKELY(index >= 0 && index < size))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "index %" PRId64 " (element %" PRId64 ") is out of range (%" PRId64 " %s)",
                     index, at, size, what);
}

tri_status trii_rule_number(double value, tri_dtype dtype)
{
    static const struct {
        double least, most;
    } range[TRII_TENSOR_DTYPES] = {[TRI_DTYPE_U8] = {0, UINT8_MAX},
                                   [TRI_DTYPE_I8] = {INT8_MIN, INT8_MAX},
                                   [TRI_DTYPE_I16] = {INT16_MIN, INT16_MAX},
                                   [TRI_DTYPE_I32] = {INT32_MIN, INT32_MAX},
                                   [TRI_DTYPE_I64] = {-0x1p63, 0x1.fffffffffffffp62},
                                   [TRI_DTYPE_F32] = {-FLT_MAX, FLT_MAX}};
    bool real = trii_dtype_is_float(dtype);

    if ((unsigned)dtype >= TRII_TENSOR_DTYPES || range[dtype].most == 0 ||
        (real && !isfinite(value)))
        return TRI_OK;
    if (value >= range[dtype].least && value <= range[dtype].most)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%g does not fit %s (%g to %g)", value,
                     tri_dtype_name(dtype), range[dtype].least, range[dtype].most);
}

tri_status trii_rule_same_dtype(const trii_type *a, const trii_type *b)
{
    if (TRII_LIKELY(a->dtype == b->dtype))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "dtypes %s and %s differ (tri_cast converts)",
                     tri_dtype_name(a->dtype), tri_dtype_name(b->dtype));
}

tri_status trii_rule_ndim(const trii_type *type, int ndim, const char *what)
{
    if (type->ndim == ndim)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s must have %d dimensions, not %d", what, ndim,
                     type->ndim);
}

tri_status trii_rule_shape(const trii_type *type, const char *what, int ndim, const int64_t *shape)
{
    trii_type want = {.dtype = type->dtype, .ndim = ndim};
    char have_text[TRII_TYPE_TEXT], want_text[TRII_TYPE_TEXT];

    for (int d = 0; d < ndim; d++)
        want.shape[d] = shape[d];
    if (trii_type_same_shape(type, &want))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s must be %s, not %s", what,
                     trii_type_text(&want, want_text), trii_type_text(type, have_text));
}

tri_status trii_rule_dim(int64_t dim, int ndim, int *dim_out)
{
    int named = ndim > 0 ? ndim : 1;

    if (dim < -named || dim >= named)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "dimension %lld is out of range (tensor of %d dimensions)", (long long)dim,
                         ndim);
    *dim_out = (int)(dim < 0 ? dim + named : dim);
    return TRI_OK;
}

tri_status trii_rule_broadcast(const trii_type *a, const trii_type *b, trii_type *out)
{
    if (trii_type_same_shape(a, b)) {
        trii_type_copy(out, a);
        return TRI_OK;
    }
    if (a->ndim < b->ndim) {
        tri_dtype dtype = a->dtype;
        tri_status status = trii_rule_broadcast(b, a, out);

        out->dtype = dtype;
        return status;
    }
    out->dtype = a->dtype;
    out->ndim = a->ndim;
    for (int d = 0; d < a->ndim; d++) {
        int e = d - (a->ndim - b->ndim);
        int64_t n = a->shape[d], m = e >= 0 ? b->shape[e] : 1;

        if (n != m && n != 1 && m != 1)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "the shapes do not broadcast: sizes %" PRId64 " and %" PRId64
                             " in dimension %d from the end",
                             n, m, a->ndim - d);
        out->shape[d] = n == 1 ? m : n;
    }
    return TRI_OK;
}

void trii_type_scalar(trii_type *out, tri_dtype dtype)
{
    out->dtype = dtype;
    out->ndim = 0;
}

tri_status trii_shape_unary_float(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                  trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_copy(&out[0], in[0]);
    return trii_rule_float(in[0], "x");
}

tri_status trii_shape_broadcast_float(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                      trii_type *out, int *n_out)
{
    trii_type so_far;
    tri_status status = trii_rule_float(in[0], "the first operand");

    (void)attrs;
    *n_out = 1;
    trii_type_copy(&out[0], in[0]);
    for (int i = 1; i < n_in && status == TRI_OK; i++) {
        status = trii_rule_same_dtype(in[0], in[i]);
        trii_type_copy(&so_far, &out[0]);
        if (status == TRI_OK)
            status = trii_rule_broadcast(&so_far, in[i], &out[0]);
    }
    return status;
}

/* --- recording ------------------------------------------------------------ */

tri_status trii_rec1(trii_step *step, const trii_graph_op *op, trii_vid a, trii_vid *out)
{
    return trii_record_values(step, op, &a, 1, NULL, out);
}

tri_status trii_rec2(trii_step *step, const trii_graph_op *op, trii_vid a, trii_vid b,
                     trii_vid *out)
{
    trii_vid in[2] = {a, b};

    return trii_record_values(step, op, in, 2, NULL, out);
}

tri_tensor *trii_record_as(const char *name, const trii_graph_op *op, tri_tensor *const *in,
                           int n_in, const trii_attrs *attrs)
{
    trii_step *step = trii_step_current();
    trii_vid ids[TRII_MAX_INPUTS], out = TRII_NO_VALUE;
    tri_status status = step != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int i = 0; i < n_in && status == TRI_OK; i++) {
        ids[i] = TRII_NO_VALUE;
        if (in[i] != NULL)
            status = trii_resolve(step, in[i], &ids[i]);
    }
    if (status == TRI_OK)
        status = trii_record_values(step, op, ids, n_in, attrs, &out);
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, name, in, n_in, status);
}

tri_status trii_rec_shaped(trii_step *step, const trii_graph_op *op, trii_vid a,
                           const int64_t *shape, int ndim, trii_vid *out)
{
    trii_attrs attrs;

    attrs.n_i = ndim;
    attrs.n_f = 0;
    for (int d = 0; d < ndim; d++)
        attrs.i[d] = shape[d];
    return trii_record_values(step, op, &a, 1, &attrs, out);
}

/* --- kernels -------------------------------------------------------------- */

/* Dimensions of the output with each operand's strides, neighbours merged where possible. */
typedef struct walk {
    int ndim;
    int64_t size[TRI_MAX_DIMS];
    int64_t stride[TRII_WALK_INPUTS][TRI_MAX_DIMS];
} walk;

static void walk_init(walk *w, const trii_kernel_args *args)
{
    const trii_type *out = args->out[0].type;
    int64_t stride[TRII_WALK_INPUTS][TRI_MAX_DIMS];

    for (int j = 0; j < args->n_in; j++) {
        const trii_type *in = args->in[j].type;
        int64_t step = 1;

        for (int d = out->ndim - 1; d >= 0; d--) {
            int e = d - (out->ndim - in->ndim);
            int64_t n = e >= 0 ? in->shape[e] : 1;

            stride[j][d] = n == 1 ? 0 : step;
            step *= n;
        }
    }
    w->ndim = 0;
    for (int d = 0; d < out->ndim; d++) {
        int last = w->ndim - 1;
        bool merge = last >= 0;

        if (out->shape[d] == 1)
            continue;
        for (int j = 0; j < args->n_in && merge; j++)
            merge = w->stride[j][last] == stride[j][d] * out->shape[d];
        if (!merge) {
            last = w->ndim++;
            w->size[last] = 1;
        }
        w->size[last] *= out->shape[d];
        for (int j = 0; j < args->n_in; j++)
            w->stride[j][last] = stride[j][d];
    }
    if (w->ndim == 0) {
        w->ndim = 1;
        w->size[0] = 1;
        for (int j = 0; j < args->n_in; j++)
            w->stride[j][0] = 0;
    }
}

tri_status trii_walk(const trii_kernel_args *args, trii_row_fn f32, trii_row_fn f64,
                     trii_row_fn i64)
{
    tri_dtype dtype = args->out[0].type->dtype;

    return trii_walk_rows(args, dtype == TRI_DTYPE_F32   ? f32
                                : dtype == TRI_DTYPE_F64 ? f64
                                : dtype == TRI_DTYPE_I64 ? i64
                                                         : NULL);
}

tri_status trii_walk_rows(const trii_kernel_args *args, trii_row_fn fn)
{
    const trii_type *type = args->out[0].type;
    int64_t n = trii_type_numel(type), at[TRI_MAX_DIMS] = {0}, row[TRII_WALK_INPUTS];
    const char *in[TRII_WALK_INPUTS] = {NULL};
    size_t in_size[TRII_WALK_INPUTS] = {0};
    char *y = args->out[0].data;
    int last;
    walk w;

    if (fn == NULL || args->n_in > TRII_WALK_INPUTS)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "no reference kernel for %s",
                         tri_dtype_name(type->dtype));
    if (n == 0)
        return TRI_OK;
    walk_init(&w, args);
    last = w.ndim - 1;
    for (int j = 0; j < args->n_in; j++) {
        in[j] = args->in[j].data;
        in_size[j] = tri_dtype_size(args->in[j].type->dtype);
        row[j] = w.stride[j][last];
    }
    for (int64_t done = 0; done < n; done += w.size[last]) {
        const void *operands[TRII_WALK_INPUTS] = {NULL};

        for (int j = 0; j < args->n_in; j++) {
            int64_t offset = 0;

            for (int d = 0; d < last; d++)
                offset += at[d] * w.stride[j][d];
            operands[j] = in[j] + (size_t)offset * in_size[j];
        }
        fn(w.size[last], y, operands, row, args);
        y += (size_t)w.size[last] * tri_dtype_size(type->dtype);
        for (int d = last - 1; d >= 0 && ++at[d] == w.size[d]; d--)
            at[d] = 0;
    }
    return TRI_OK;
}

static double *widen(const trii_kernel_args *args, const trii_array *array, bool fill)
{
    int64_t n = trii_type_numel(array->type);
    double *wide = trii_work_take(args, (size_t)n, sizeof(*wide));
    const float *x = array->data;

    for (int64_t i = 0; wide != NULL && fill && i < n; i++)
        wide[i] = (double)x[i];
    return wide;
}

tri_status trii_in_double(const trii_kernel_args *args,
                          tri_status (*kernel)(const trii_kernel_args *args))
{
    trii_array array[TRII_MAX_INPUTS + TRII_MAX_OUTPUTS];
    trii_kernel_args wide = *args;
    int n_in = args->n_in, n = n_in + args->n_out;
    bool ours[TRII_MAX_INPUTS + TRII_MAX_OUTPUTS] = {false}, any = false;
    tri_status status = TRI_OK;

    for (int i = 0; i < n; i++) {
        array[i] = i < n_in ? args->in[i] : args->out[i - n_in];
        if (array[i].data == NULL || array[i].type->dtype != TRI_DTYPE_F32)
            continue;
        array[i].data = widen(args, &array[i], i < n_in);
        ours[i] = any = true;
        if (array[i].data == NULL)
            status = TRI_ERR_NO_MEMORY;
    }
    wide.in = array;
    wide.out = array + n_in;
    if (status == TRI_OK)
        status = kernel(any ? &wide : args);
    for (int i = 0; i < n; i++) {
        if (!ours[i])
            continue;
        if (i >= n_in && status == TRI_OK) {
            const double *x = array[i].data;
            float *y = args->out[i - n_in].data;
            int64_t count = trii_type_numel(array[i].type);

            for (int64_t k = 0; k < count; k++)
                y[k] = (float)x[k];
        }
        trii_work_return(args, array[i].data);
    }
    return status;
}

#define PANEL 512 /* rows of b that are packed at a time */

/* Four rows of four columns stay in registers over a panel; c is read first if it holds the sum of
 * the panels before. The sanitizer, which would take most of the time of a product, sees all of b
 * where it is packed and the edges of a and c. */
TRII_NO_TSAN static void gemm_tile(const trii_gemm *g, const double *a, const double *panel,
                                   int64_t depth, double *c, bool add)
{
    double acc[4][4] = {{0}};

    if (add) {
        for (int64_t r = 0; r < 4; r++) {
            for (int64_t j = 0; j < 4; j++)
                acc[r][j] = c[r * g->c_row + j];
        }
    }
    for (int64_t k = 0; k < depth; k++) {
        for (int64_t r = 0; r < 4; r++) {
            double x = a[r * g->a_row];

            for (int64_t j = 0; j < 4; j++)
                acc[r][j] += x * panel[j];
        }
        a += g->a_col;
        panel += 4;
    }
    for (int64_t r = 0; r < 4; r++) {
        for (int64_t j = 0; j < 4; j++)
            c[r * g->c_row + j] = acc[r][j];
    }
}

static void gemm_edge(const trii_gemm *g, int64_t i, int64_t i_end, int64_t j, int64_t j_end)
{
    for (int64_t r = i; r < i_end; r++) {
        for (int64_t c = j; c < j_end; c++) {
            double acc = g->accumulate ? g->c[r * g->c_row + c] : 0;

            for (int64_t k = 0; k < g->k; k++)
                acc += g->a[r * g->a_row + k * g->a_col] * g->b[k * g->b_row + c];
            g->c[r * g->c_row + c] = acc;
        }
    }
}

void trii_gemm_run(const trii_gemm *g)
{
    int64_t m4 = g->k > 0 ? g->m - g->m % 4 : 0, n4 = g->n - g->n % 4;
    double panel[PANEL * 4];

    for (int64_t j = 0; j < n4 && m4 > 0; j += 4) {
        for (int64_t k = 0; k < g->k; k += PANEL) {
            int64_t depth = g->k - k < PANEL ? g->k - k : PANEL;

            for (int64_t l = 0; l < depth; l++)
                memcpy(panel + l * 4, g->b + (k + l) * g->b_row + j, 4 * sizeof(double));
            for (int64_t i = 0; i < m4; i += 4)
                gemm_tile(g, g->a + i * g->a_row + k * g->a_col, panel, depth,
                          g->c + i * g->c_row + j, g->accumulate || k > 0);
        }
    }
    gemm_edge(g, 0, m4, n4, g->n);
    gemm_edge(g, m4, g->m, 0, g->n);
}
