/*
 * generate.c - tensors made from nothing inside a step: sequences and random numbers.
 *
 * Random numbers are counted, as dropout's are (create.c): pair e / 2 of a tensor's elements has
 * the four words of Philox block e / 2, so that the numbers depend on the seed, the step, the rank
 * and on which random operation of the step it is, and on nothing else.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "train/graph/ops/rules.h"

#define EXACT 9007199254740992.0 /* 2^53: whole numbers up to here are exact in a double */

static tri_status check_number_type(tri_dtype dtype)
{
    switch (dtype) {
    case TRI_DTYPE_F32:
    case TRI_DTYPE_F64:
    case TRI_DTYPE_BF16:
    case TRI_DTYPE_F16:
    case TRI_DTYPE_I64:
    case TRI_DTYPE_I32:
    case TRI_DTYPE_U8:
    case TRI_DTYPE_BOOL:
        return TRI_OK;
    default:
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "dtype %s: bool, u8, i32, i64, f16, bf16, f32 and f64 are supported",
                         tri_dtype_name(dtype));
    }
}

/* i: dtype, device, sizes.. */
static tri_status made_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    (void)in;
    (void)n_in;
    *n_out = 1;
    out->dtype = (tri_dtype)attrs->i[0];
    out->device = (tri_device)attrs->i[1];
    out->ndim = attrs->n_i - 2;
    for (int d = 0; d < out->ndim; d++) {
        out->shape[d] = attrs->i[2 + d];
        if (out->shape[d] < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "size %" PRId64 " in dimension %d", out->shape[d],
                             d);
    }
    return check_number_type(out->dtype);
}

static tri_status random_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    tri_status status = made_shape(in, n_in, attrs, out, n_out);

    if (status == TRI_OK && !trii_dtype_is_float(out->dtype))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "random numbers in %s: f16, bf16, f32 and f64 are supported",
                           tri_dtype_name(out->dtype));
    return status;
}

/* Writes value(k) into each element. */
static tri_status write_all(const trii_kernel_args *args,
                            double (*value)(const trii_kernel_args *args, int64_t k))
{
    const trii_type *type = args->out[0].type;
    int64_t n = trii_type_numel(type);
    size_t size = tri_dtype_size(type->dtype);

    for (int64_t k = 0; k < n; k++)
        trii_element_of(value(args, k), type->dtype, (char *)args->out[0].data + (size_t)k * size);
    return TRI_OK;
}

/* --- arange, eye ---------------------------------------------------------- */

static double arange_value(const trii_kernel_args *args, int64_t k)
{
    return args->fattr[0] + (double)k * args->fattr[1];
}

static tri_status arange_reference(const trii_kernel_args *args)
{
    return write_all(args, arange_value);
}

const trii_graph_op trii_op_arange = {
    .name = "arange",
    .shape = made_shape,
    .reference = arange_reference,
};

static double eye_value(const trii_kernel_args *args, int64_t k)
{
    int64_t cols = args->out[0].type->shape[1];

    return k / cols == k % cols ? 1 : 0;
}

static tri_status eye_reference(const trii_kernel_args *args)
{
    return write_all(args, eye_value);
}

const trii_graph_op trii_op_eye = {
    .name = "eye",
    .shape = made_shape,
    .reference = eye_reference,
};

/* --- random numbers ------------------------------------------------------- */

static uint64_t word_pair(const uint32_t *words)
{
    return (uint64_t)words[0] << 32 | words[1];
}

/* The 64 random bits of element k. */
static uint64_t bits_of(const trii_kernel_args *args, int64_t k)
{
    uint32_t words[4];

    trii_random_words(&args->random, (uint64_t)k / 2, words);
    return word_pair(words + 2 * (k % 2));
}

/* In [0, 1), with as many bits as the result has, so that it never rounds to 1. */
static double uniform_value(const trii_kernel_args *args, int64_t k)
{
    uint64_t bits = bits_of(args, k);

    if (args->out[0].type->dtype == TRI_DTYPE_F64)
        return (double)(bits >> 11) * 0x1p-53;
    return (double)(bits >> 40) * 0x1p-24;
}

static tri_status uniform_reference(const trii_kernel_args *args)
{
    return write_all(args, uniform_value);
}

/* Box and Muller: a pair of uniform numbers makes a pair of normal ones. */
static tri_status normal_reference(const trii_kernel_args *args)
{
    const trii_type *type = args->out[0].type;
    const int64_t n = trii_type_numel(type);
    const size_t size = tri_dtype_size(type->dtype);
    char *y = args->out[0].data;

    for (int64_t k = 0; k < n; k += 2, y += 2 * size) {
        uint32_t words[4];
        double radius, angle;

        trii_random_words(&args->random, (uint64_t)k / 2, words);
        radius = sqrt(-2 * log((double)((word_pair(words) >> 11) + 1) * 0x1p-53));
        angle = 6.283185307179586477 * (double)(word_pair(words + 2) >> 11) * 0x1p-53;
        trii_element_of(radius * cos(angle), type->dtype, y);
        if (k + 1 < n)
            trii_element_of(radius * sin(angle), type->dtype, y + size);
    }
    return TRI_OK;
}

/* f: low, high: whole numbers low .. high - 1 */
static double integer_value(const trii_kernel_args *args, int64_t k)
{
    double range = args->fattr[1] - args->fattr[0];
    double chosen = floor((double)(bits_of(args, k) >> 11) * 0x1p-53 * range);

    return args->fattr[0] + (chosen < range ? chosen : range - 1); /* the product was rounded up */
}

static tri_status integers_reference(const trii_kernel_args *args)
{
    return write_all(args, integer_value);
}

const trii_graph_op trii_op_rand = {
    .name = "rand",
    .random = true,
    .shape = random_shape,
    .reference = uniform_reference,
};
const trii_graph_op trii_op_randn = {
    .name = "randn",
    .random = true,
    .shape = random_shape,
    .reference = normal_reference,
};
const trii_graph_op trii_op_randint = {
    .name = "randint",
    .random = true,
    .shape = made_shape,
    .reference = integers_reference,
};

/* --- bernoulli, multinomial ----------------------------------------------- */

static tri_status bernoulli_kernel(const trii_kernel_args *args)
{
    int64_t n = trii_type_numel(args->in[0].type);
    const double *p = args->in[0].data;
    double *y = args->out[0].data;

    for (int64_t k = 0; k < n; k++) {
        if (!(p[k] >= 0 && p[k] <= 1))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "p is %g (element %" PRId64 "), not in [0, 1]",
                             p[k], k);
        y[k] = (double)(bits_of(args, k) >> 11) * 0x1p-53 < p[k];
    }
    return TRI_OK;
}

static tri_status bernoulli_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, bernoulli_kernel);
}

const trii_graph_op trii_op_bernoulli = {
    .name = "bernoulli",
    .may_refuse = true,
    .random = true,
    .shape = trii_shape_unary_float,
    .reference = bernoulli_reference,
};

/* in p [C] or [N, C]; i: samples, replacement */
static tri_status multinomial_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                    trii_type *out, int *n_out)
{
    tri_status status = trii_rule_float(in[0], "p");

    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    out->dtype = TRI_DTYPE_I64;
    if (status == TRI_OK && in[0]->ndim != 1 && in[0]->ndim != 2)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "p must have 1 or 2 dimensions, not %d", in[0]->ndim);
    if (status == TRI_OK &&
        (attrs->i[0] < 1 || (attrs->i[1] == 0 && attrs->i[0] > in[0]->shape[in[0]->ndim - 1])))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "%" PRId64 " samples of %" PRId64 " classes (without replacement: at "
                           "most as many)",
                           attrs->i[0], in[0]->shape[in[0]->ndim - 1]);
    if (status == TRI_OK)
        out->shape[out->ndim - 1] = attrs->i[0];
    return status;
}

/* One draw from the row; -1: nothing is left. */
static int64_t draw(const double *p, int64_t n, double total, double u)
{
    double at = u * total;
    int64_t last = -1;

    for (int64_t c = 0; c < n; c++) {
        if (p[c] <= 0)
            continue;
        last = c;
        if (at < p[c])
            return c;
        at -= p[c];
    }
    return last;
}

static tri_status multinomial_row(const trii_kernel_args *args, int64_t row, const double *p,
                                  double *left)
{
    int64_t samples = args->iattr[0];
    int64_t n = args->in[0].type->shape[args->in[0].type->ndim - 1];
    int64_t *y = (int64_t *)args->out[0].data + row * samples;

    for (int64_t c = 0; c < n; c++) {
        if (!(p[c] >= 0 && p[c] <= DBL_MAX))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "p is %g (class %" PRId64 " of row %" PRId64
                             "): must be a number of at least 0",
                             p[c], c, row);
        left[c] = p[c];
    }
    for (int64_t s = 0; s < samples; s++) {
        double total = 0, u = (double)(bits_of(args, row * samples + s) >> 11) * 0x1p-53;

        for (int64_t c = 0; c < n; c++)
            total += left[c];
        y[s] = draw(left, n, total, u);
        if (y[s] < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "row %" PRId64 " has no class of positive p left for sample %" PRId64,
                             row, s);
        if (args->iattr[1] == 0)
            left[y[s]] = 0;
    }
    return TRI_OK;
}

static tri_status multinomial_kernel(const trii_kernel_args *args)
{
    const trii_type *type = args->in[0].type;
    int64_t n = type->shape[type->ndim - 1], rows = type->ndim == 2 ? type->shape[0] : 1;
    double *left = trii_work_take(args, (size_t)(n > 0 ? n : 1), sizeof(*left));
    tri_status status = left != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int64_t r = 0; r < rows && status == TRI_OK; r++)
        status = multinomial_row(args, r, (const double *)args->in[0].data + r * n, left);
    trii_work_return(args, left);
    return status;
}

static tri_status multinomial_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, multinomial_kernel);
}

const trii_graph_op trii_op_multinomial = {
    .name = "multinomial",
    .may_refuse = true,
    .random = true,
    .shape = multinomial_shape,
    .reference = multinomial_reference,
};

/* --- public --------------------------------------------------------------- */

static tri_tensor *refused(const char *name, tri_status status)
{
    return trii_handle_refused(trii_step_current(), name, NULL, 0, status);
}

static tri_status shape_attrs(const int64_t *shape, int ndim, tri_dtype dtype, trii_attrs *attrs)
{
    attrs->n_i = attrs->n_f = 0;
    trii_attrs_add(attrs, dtype != TRI_DTYPE_NONE ? dtype : TRI_DTYPE_F32);
    trii_attrs_add(attrs, tri_current_device());
    if (ndim < 0 || ndim > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d dimensions, 0 to %d are allowed", ndim,
                         TRI_MAX_DIMS);
    if (ndim > 0 && shape == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "shape is NULL, with %d dimensions", ndim);
    if ((unsigned)dtype >= TRII_TENSOR_DTYPES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "dtype %d does not exist", (int)dtype);
    for (int d = 0; d < ndim; d++)
        trii_attrs_add(attrs, shape[d]);
    return TRI_OK;
}

static tri_tensor *made(const char *name, const trii_graph_op *op, const int64_t *shape, int ndim,
                        tri_dtype dtype, const double *numbers, int n_numbers)
{
    trii_attrs attrs;
    tri_status status = shape_attrs(shape, ndim, dtype, &attrs);

    if (status != TRI_OK)
        return refused(name, status);
    for (int i = 0; i < n_numbers; i++)
        trii_attrs_add_f(&attrs, numbers[i]);
    return trii_record_as(name, op, NULL, 0, &attrs);
}

tri_tensor *tri_full(const int64_t *shape, int ndim, double value, tri_dtype dtype)
{
    tri_status status = trii_rule_number(value, dtype != TRI_DTYPE_NONE ? dtype : TRI_DTYPE_F32);

    if (status != TRI_OK)
        return refused("full", status);
    return made("full", &trii_op_fill, shape, ndim, dtype, &value, 1);
}

tri_tensor *tri_zeros(const int64_t *shape, int ndim, tri_dtype dtype)
{
    return made("zeros", &trii_op_fill, shape, ndim, dtype, (double[]){0}, 1);
}

tri_tensor *tri_ones(const int64_t *shape, int ndim, tri_dtype dtype)
{
    return made("ones", &trii_op_fill, shape, ndim, dtype, (double[]){1}, 1);
}

tri_tensor *tri_arange(double start, double end, double step, tri_dtype dtype)
{
    double numbers[2] = {start, step}, n;
    int64_t size;

    if (!(fabs(start) <= EXACT && fabs(end) <= EXACT && fabs(step) <= EXACT && step != 0))
        return refused("arange", TRII_FAIL(TRI_ERR_INVALID_ARG,
                                           "from %g to %g by %g: numbers up to 2^53, and a step "
                                           "that is not 0, are allowed",
                                           start, end, step));
    n = ceil((end - start) / step);
    if (n < 0)
        return refused("arange", TRII_FAIL(TRI_ERR_INVALID_ARG,
                                           "from %g to %g by %g: the step leads away from the end",
                                           start, end, step));
    if (n > (double)TRII_TYPE_ELEMENTS)
        n = (double)TRII_TYPE_ELEMENTS * 2; /* refused as any that is too large */
    if (dtype == TRI_DTYPE_NONE && floor(start) == start && floor(end) == end &&
        floor(step) == step)
        dtype = TRI_DTYPE_I64;
    size = (int64_t)n;
    return made("arange", &trii_op_arange, &size, 1, dtype, numbers, 2);
}

tri_tensor *tri_eye(int64_t n, int64_t m, tri_dtype dtype)
{
    const int64_t shape[2] = {n, m == 0 ? n : m};

    return made("eye", &trii_op_eye, shape, 2, dtype, NULL, 0);
}

tri_tensor *tri_rand(const int64_t *shape, int ndim, tri_dtype dtype)
{
    return made("rand", &trii_op_rand, shape, ndim, dtype, NULL, 0);
}

tri_tensor *tri_randn(const int64_t *shape, int ndim, tri_dtype dtype)
{
    return made("randn", &trii_op_randn, shape, ndim, dtype, NULL, 0);
}

tri_tensor *tri_randint(int64_t low, int64_t high, const int64_t *shape, int ndim, tri_dtype dtype)
{
    double numbers[2] = {(double)low, (double)high};

    if (low >= high || numbers[0] < -EXACT || numbers[1] > EXACT)
        return refused("randint", TRII_FAIL(TRI_ERR_INVALID_ARG,
                                            "low %" PRId64 " and high %" PRId64
                                            ": low must be below high, both within 2^53",
                                            low, high));
    return made("randint", &trii_op_randint, shape, ndim,
                dtype != TRI_DTYPE_NONE ? dtype : TRI_DTYPE_I64, numbers, 2);
}

tri_tensor *tri_bernoulli(tri_tensor *p)
{
    return trii_record(&trii_op_bernoulli, &p, 1, NULL);
}

tri_tensor *tri_multinomial(tri_tensor *p, int64_t n_samples, bool replacement)
{
    trii_attrs attrs;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = n_samples;
    attrs.i[1] = replacement;
    return trii_record(&trii_op_multinomial, &p, 1, &attrs);
}
