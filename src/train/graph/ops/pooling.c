/*
 * pooling.c - pooling over windows of an image, and adaptive pooling to a given size; of rows, as
 * images of height 1.
 *
 * The gradient of a maximum looks for the maximum again (the first of equals, row by row) instead
 * of keeping indices: it reads x, which is there anyway.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/option.h"
#include "train/graph/ops/pooling.h"
#include "train/graph/ops/rules.h"

/* Integer attributes, of windowed pooling; see pooling.h. */
enum { KERNEL = 0, STRIDE = 2, PADDING = 4, CEIL = 6, EXCLUDE = 7 };

/* What one output element sees, cut to the image. Only the windowed average uses `divisor`. */
typedef struct window {
    int64_t h, h_end, w, w_end, divisor;
} window;

typedef window (*window_fn)(const int64_t *attr, const int64_t *image, const int64_t *out,
                            int64_t oh, int64_t ow);

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static window sliding(const int64_t *attr, const int64_t *image, const int64_t *out, int64_t oh,
                      int64_t ow)
{
    int64_t h = oh * attr[STRIDE] - attr[PADDING], w = ow * attr[STRIDE + 1] - attr[PADDING + 1];
    /* beyond the padding nothing counts, not even for the divisor */
    int64_t h_end = min(h + attr[KERNEL], image[0] + attr[PADDING]);
    int64_t w_end = min(w + attr[KERNEL + 1], image[1] + attr[PADDING + 1]);
    window v = {.divisor = (h_end - h) * (w_end - w)};

    (void)out;
    v.h = max(h, 0);
    v.w = max(w, 0);
    v.h_end = min(h_end, image[0]);
    v.w_end = min(w_end, image[1]);
    if (attr[EXCLUDE] != 0)
        v.divisor = (v.h_end - v.h) * (v.w_end - v.w);
    return v;
}

static window adaptive(const int64_t *attr, const int64_t *image, const int64_t *out, int64_t oh,
                       int64_t ow)
{
    window v = {
        .h = oh * image[0] / out[0],
        .h_end = ((oh + 1) * image[0] + out[0] - 1) / out[0],
        .w = ow * image[1] / out[1],
        .w_end = ((ow + 1) * image[1] + out[1] - 1) / out[1],
    };

    (void)attr;
    v.divisor = (v.h_end - v.h) * (v.w_end - v.w);
    return v;
}

/* --- kernels -------------------------------------------------------------- */

/* Position of the largest element of a window in its plane; NaN wins. -1 if the window is empty. */
static int64_t largest_in(const double *plane, int64_t width, const window *v)
{
    int64_t best = -1;

    for (int64_t h = v->h; h < v->h_end; h++) {
        for (int64_t w = v->w; w < v->w_end; w++) {
            int64_t at = h * width + w;

            if (best < 0 || plane[at] > plane[best] || plane[at] != plane[at])
                best = at;
        }
    }
    return best;
}

static double average_of(const double *plane, int64_t width, const window *v)
{
    double sum = 0;

    for (int64_t h = v->h; h < v->h_end; h++) {
        for (int64_t w = v->w; w < v->w_end; w++)
            sum += plane[h * width + w];
    }
    return sum / (double)v->divisor;
}

static tri_status forward(const trii_kernel_args *args, window_fn at, bool maximum)
{
    const int64_t *image = args->in[0].type->shape + 2, *out = args->out[0].type->shape + 2;
    int64_t planes = args->in[0].type->shape[0] * args->in[0].type->shape[1];
    const double *x = args->in[0].data;
    double *y = args->out[0].data;

    for (int64_t p = 0; p < planes; p++, x += image[0] * image[1]) {
        for (int64_t oh = 0; oh < out[0]; oh++) {
            for (int64_t ow = 0; ow < out[1]; ow++) {
                window v = at(args->iattr, image, out, oh, ow);

                if (maximum) {
                    int64_t best = largest_in(x, image[1], &v);

                    *y++ = best >= 0 ? x[best] : -(double)INFINITY;
                } else {
                    *y++ = average_of(x, image[1], &v);
                }
            }
        }
    }
    return TRI_OK;
}

/* in g (and x for the maximum); out dx. */
static tri_status backward(const trii_kernel_args *args, window_fn at, bool maximum)
{
    const int64_t *image = args->out[0].type->shape + 2, *out = args->in[0].type->shape + 2;
    int64_t planes = args->out[0].type->shape[0] * args->out[0].type->shape[1];
    const double *g = args->in[0].data, *x = maximum ? args->in[1].data : NULL;
    double *dx = args->out[0].data;

    memset(dx, 0, (size_t)(planes * image[0] * image[1]) * sizeof(*dx));
    for (int64_t p = 0; p < planes; p++, dx += image[0] * image[1]) {
        for (int64_t o = 0; o < out[0] * out[1]; o++, g++) {
            window v = at(args->iattr, image, out, o / out[1], o % out[1]);

            if (maximum) {
                int64_t best = largest_in(x + p * image[0] * image[1], image[1], &v);

                if (best >= 0)
                    dx[best] += *g;
                continue;
            }
            for (int64_t h = v.h; h < v.h_end; h++) {
                for (int64_t w = v.w; w < v.w_end; w++)
                    dx[h * image[1] + w] += *g / (double)v.divisor;
            }
        }
    }
    return TRI_OK;
}

/* --- shape rules ---------------------------------------------------------- */

/* As PyTorch: with ceil_mode the last window must start inside the image or its left padding. */
static int64_t output_size(int64_t image, const int64_t *attr, int d)
{
    int64_t kernel = attr[KERNEL + d], stride = attr[STRIDE + d], padding = attr[PADDING + d];
    int64_t room = image + 2 * padding - kernel;
    int64_t size;

    if (room < 0 && attr[CEIL] == 0)
        return 0;
    if (room < 0 && room <= -stride)
        return 0;
    size = (room + (attr[CEIL] != 0 ? stride - 1 : 0)) / stride + 1;
    if (attr[CEIL] != 0 && (size - 1) * stride >= image + padding)
        size--;
    return size;
}

static tri_status image_shape(const trii_type *x, const int64_t *sizes, trii_type *out)
{
    out->dtype = x->dtype;
    out->ndim = 4;
    out->shape[0] = x->shape[0];
    out->shape[1] = x->shape[1];
    out->shape[2] = sizes[0];
    out->shape[3] = sizes[1];
    return TRI_OK;
}

/* A batch may be empty, an image may not: no window has a largest element then, nor a mean. */
static tri_status check_image(const trii_type *x, bool maximum)
{
    tri_status status = trii_rule_float(x, "x");

    if (status == TRI_OK)
        status = trii_rule_ndim(x, 4, "x");
    if (status == TRI_OK && ((maximum && x->shape[1] == 0) || x->shape[2] == 0 || x->shape[3] == 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "images of %" PRId64 " channels, %" PRId64 " x %" PRId64
                         " cannot be pooled: only the batch may be empty",
                         x->shape[1], x->shape[2], x->shape[3]);
    return status;
}

static tri_status windowed_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    int64_t sizes[2];
    tri_status status = check_image(in[0], true);

    (void)n_in;
    *n_out = 1;
    for (int d = 0; d < 2 && status == TRI_OK; d++) {
        int64_t kernel = attrs->i[KERNEL + d], padding = attrs->i[PADDING + d];

        if (kernel < 1 || attrs->i[STRIDE + d] < 1 || padding < 0 || padding > kernel / 2)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "kernel %" PRId64 ", stride %" PRId64 ", padding %" PRId64
                             ": sizes are positive, padding at most half of the kernel",
                             kernel, attrs->i[STRIDE + d], padding);
        sizes[d] = output_size(in[0]->shape[2 + d], attrs->i, d);
        if (sizes[d] < 1)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "the kernel is larger than the padded image");
    }
    return status == TRI_OK ? image_shape(in[0], sizes, out) : status;
}

static tri_status adaptive_to(const trii_type *x, const trii_attrs *attrs, bool maximum,
                              trii_type *out)
{
    tri_status status = check_image(x, maximum);

    if (status != TRI_OK)
        return status;
    if (attrs->i[0] < 0 || attrs->i[1] < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "the size %" PRId64 " x %" PRId64 " of the result must not be negative",
                         attrs->i[0], attrs->i[1]);
    return image_shape(x, attrs->i, out);
}

static tri_status adaptive_max_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                     trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    return adaptive_to(in[0], attrs, true, out);
}

static tri_status adaptive_avg_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                     trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    return adaptive_to(in[0], attrs, false, out);
}

/* The last two integers are the image. */
static tri_status backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    return image_shape(in[0], attrs->i + attrs->n_i - 2, out);
}

/* --- where the maxima are, for create_graph ------------------------------- */

static tri_status argmax_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    tri_status status = attrs->i[TRII_POOL_IS_ADAPTIVE] != 0
                            ? adaptive_max_shape(in, n_in, attrs, out, n_out)
                            : windowed_shape(in, n_in, attrs, out, n_out);

    out->dtype = TRI_DTYPE_I64;
    return status;
}

static tri_status argmax_kernel(const trii_kernel_args *args)
{
    const trii_type *type = args->out[0].type;
    const int64_t *image = args->in[0].type->shape + 2, *out = type->shape + 2;
    window_fn at = args->iattr[TRII_POOL_IS_ADAPTIVE] != 0 ? adaptive : sliding;
    const double *x = args->in[0].data;
    int64_t *y = args->out[0].data;

    for (int64_t p = 0; p < type->shape[0] * type->shape[1]; p++, x += image[0] * image[1]) {
        for (int64_t o = 0; o < out[0] * out[1]; o++) {
            window v = at(args->iattr, image, out, o / out[1], o % out[1]);

            *y++ = largest_in(x, image[1], &v);
        }
    }
    return TRI_OK;
}

static tri_status argmax_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, argmax_kernel);
}

const trii_graph_op trii_op_max_pool_argmax = {
    .name = "max_pool_argmax",
    .shape = argmax_shape,
    .reference = argmax_reference,
};

/* --- entries -------------------------------------------------------------- */

#define POOLING(kind, rule, at, maximum, second)                                                   \
    static tri_status kind##_kernel(const trii_kernel_args *args)                                  \
    {                                                                                              \
        return forward(args, at, maximum);                                                         \
    }                                                                                              \
    static tri_status kind##_reference(const trii_kernel_args *args)                               \
    {                                                                                              \
        return trii_in_double(args, kind##_kernel);                                                \
    }                                                                                              \
    static tri_status kind##_backward_kernel(const trii_kernel_args *args)                         \
    {                                                                                              \
        return backward(args, at, maximum);                                                        \
    }                                                                                              \
    static tri_status kind##_backward_reference(const trii_kernel_args *args)                      \
    {                                                                                              \
        return trii_in_double(args, kind##_backward_kernel);                                       \
    }                                                                                              \
    const trii_graph_op trii_op_##kind = {                                                         \
        .name = #kind,                                                                             \
        .precision = TRII_PRECISION_FOLLOWS,                                                       \
        .activations_in = 1 << 0,                                                                  \
        .activations_out = 1 << 0,                                                                 \
        .shape = rule,                                                                             \
        .gradient = TRII_GRADIENT_##kind,                                                          \
        .reference = kind##_reference,                                                             \
    };                                                                                             \
    const trii_graph_op trii_op_##kind##_backward = {                                              \
        .name = #kind "_backward",                                                                 \
        .precision = TRII_PRECISION_FOLLOWS,                                                       \
        .activations_in = 1 << 0 | 1 << 1,                                                         \
        .activations_out = 1 << 0,                                                                 \
        .shape = backward_shape,                                                                   \
        .gradient = TRII_GRADIENT_##second,                                                        \
        .reference = kind##_backward_reference,                                                    \
    };
POOLING(max_pool, windowed_shape, sliding, true, NONE)
POOLING(avg_pool, windowed_shape, sliding, false, avg_pool_backward)
POOLING(adaptive_max_pool, adaptive_max_shape, adaptive, true, NONE)
POOLING(adaptive_avg_pool, adaptive_avg_shape, adaptive, false, adaptive_avg_pool_backward)

/* --- public --------------------------------------------------------------- */

/* x [N, C, L] or [N, C, H, W], or one without N, as a batch of images. */
static tri_status as_images(trii_step *step, int n_dims, trii_vid *x_io)
{
    const trii_type *x = trii_type_of(step, *x_io);
    int64_t shape[4];
    int at = 0;

    if (x->ndim != n_dims + 2 && x->ndim != n_dims + 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "x must have %d dimensions (batch, channels, %d of space), or %d without "
                         "the batch, not %d",
                         n_dims + 2, n_dims, n_dims + 1, x->ndim);
    if (x->ndim == 4)
        return TRI_OK;
    if (x->ndim == n_dims + 1)
        shape[at++] = 1;
    for (int d = 0; d < x->ndim; d++) {
        if (n_dims == 1 && d == x->ndim - 1)
            shape[at++] = 1;
        shape[at++] = x->shape[d];
    }
    return trii_rec_reshape(step, *x_io, shape, 4, x_io);
}

/* The pooled images in as many dimensions as x has. */
static tri_status as_before(trii_step *step, int x_ndim, int n_dims, trii_vid *out_io)
{
    int64_t shape[4];
    int n = 0;

    if (x_ndim == 4)
        return TRI_OK;
    for (int d = x_ndim == n_dims + 1; d < 4; d++) {
        if (n_dims == 2 || d != 2)
            shape[n++] = trii_type_of(step, *out_io)->shape[d];
    }
    return trii_rec_reshape(step, *out_io, shape, n, out_io);
}

static tri_status rec_pooling(trii_step *step, const trii_graph_op *op, tri_tensor *x, int n_dims,
                              const trii_attrs *attrs, trii_vid *out)
{
    trii_vid id = TRII_NO_VALUE;
    int ndim;
    tri_status status = x != NULL
                            ? trii_resolve(step, x, &id)
                            : TRII_FAIL(TRI_ERR_INVALID_ARG, "argument 0 is NULL" TRII_WHENCE_NULL);

    if (status != TRI_OK)
        return status;
    ndim = trii_type_of(step, id)->ndim;
    status = as_images(step, n_dims, &id);
    if (status == TRI_OK)
        status = trii_record_values(step, op, &id, 1, attrs, out);
    return status == TRI_OK ? as_before(step, ndim, n_dims, out) : status;
}

/* What is given for the dimensions after the channels, of an image: a row's is that of its
 * width. */
static tri_status read_options(const tri_pool_options *opt, int *n_dims_out, trii_attrs *attrs)
{
    const int *const lists[2] = {opt->stride, opt->padding};
    static const char *const names[2] = {"stride", "padding"};
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_pool_options, opt);
    int n = 0;

    if (status != TRI_OK)
        return status;
    while (n < 3 && opt->kernel[n] > 0)
        n++;
    if (n == 0 || n == 3 || opt->kernel[n] != 0 || opt->kernel[2] != 0)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "kernel {%d, %d, %d}: one size (of rows) or two (of images), each at least "
            "1, are needed",
            opt->kernel[0], opt->kernel[1], opt->kernel[2]);
    attrs->n_i = TRII_POOL_WINDOWED;
    attrs->n_f = 0;
    for (int d = 0; d < 2; d++) {
        int from = d - (2 - n);
        int kernel = from < 0 ? 1 : opt->kernel[from];

        attrs->i[KERNEL + d] = kernel;
        attrs->i[STRIDE + d] = from < 0 || opt->stride[from] == 0 ? kernel : opt->stride[from];
        attrs->i[PADDING + d] = from < 0 ? 0 : opt->padding[from];
    }
    for (int l = 0; l < 2; l++) {
        for (int d = n; d < 3; d++) {
            if (lists[l][d] != 0)
                return TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "%s {%d, %d, %d}: kernel has %d size%s, what is given for other "
                                 "dimensions must be 0",
                                 names[l], lists[l][0], lists[l][1], lists[l][2], n,
                                 n == 1 ? "" : "s");
        }
    }
    attrs->i[CEIL] = opt->ceil_mode;
    attrs->i[EXCLUDE] = opt->exclude_padding;
    *n_dims_out = n;
    return TRI_OK;
}

static tri_tensor *refused_or_recorded(trii_step *step, const trii_graph_op *op, tri_tensor *x,
                                       tri_status status, trii_vid out)
{
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, op->name, &x, 1, status);
}

static tri_tensor *windowed(const trii_graph_op *op, tri_tensor *x, const tri_pool_options *opt)
{
    static const tri_pool_options none;
    trii_step *step = trii_step_current();
    trii_vid out = TRII_NO_VALUE;
    trii_attrs attrs;
    int n_dims = 0;
    tri_status status =
        step != NULL ? read_options(opt != NULL ? opt : &none, &n_dims, &attrs) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = rec_pooling(step, op, x, n_dims, &attrs, &out);
    return refused_or_recorded(step, op, x, status, out);
}

static tri_tensor *to_size(const trii_graph_op *op, tri_tensor *x, const int64_t *size, int n)
{
    trii_step *step = trii_step_current();
    trii_vid out = TRII_NO_VALUE;
    trii_attrs attrs;
    tri_status status = step != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK && size == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "size is NULL");
    if (status == TRI_OK && n != 1 && n != 2)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "%d sizes of the result: one (of rows) or two (of images) are needed", n);
    for (int d = 0; status == TRI_OK && d < n; d++) {
        if (size[d] < 0)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                               "size[%d] of the result is %" PRId64 ": must not be negative", d,
                               size[d]);
    }
    if (status == TRI_OK) {
        attrs.n_i = TRII_POOL_ADAPTIVE;
        attrs.n_f = 0;
        attrs.i[0] = n == 2 ? size[0] : 1;
        attrs.i[1] = size[n - 1];
        status = rec_pooling(step, op, x, n, &attrs, &out);
    }
    return refused_or_recorded(step, op, x, status, out);
}

tri_tensor *tri_max_pool(tri_tensor *x, const tri_pool_options *opt)
{
    return windowed(&trii_op_max_pool, x, opt);
}

tri_tensor *tri_avg_pool(tri_tensor *x, const tri_pool_options *opt)
{
    return windowed(&trii_op_avg_pool, x, opt);
}

tri_tensor *tri_adaptive_avg_pool(tri_tensor *x, const int64_t *size, int n)
{
    return to_size(&trii_op_adaptive_avg_pool, x, size, n);
}

tri_tensor *tri_adaptive_max_pool(tri_tensor *x, const int64_t *size, int n)
{
    return to_size(&trii_op_adaptive_max_pool, x, size, n);
}
