/*
 * convolution.c - convolution of images and its two gradients; rows are treated as images of height
 * 1.
 *
 * The reference kernels cut the output into tiles of pixels, lay out the patches under a tile as
 * rows of a matrix, and multiply: a hundred times faster than seven nested loops, in a fixed order.
 */
#include <inttypes.h>
#include <string.h>

#include "base/option.h"
#include "train/graph/ops/rules.h"

#define TILE 64 /* pixels */

/* Everything about one convolution; the attributes are the first seven numbers. */
typedef struct geometry {
    int64_t stride[2], padding[2], dilation[2], groups;
    int64_t n, c, h, w;    /* input */
    int64_t o, oh, ow;     /* output */
    int64_t kh, kw;        /* kernel */
    int64_t cg, og, patch; /* channels of a group; cg * kh * kw */
} geometry;

static int64_t output_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                           int64_t dilation)
{
    return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

static geometry geometry_of(const int64_t *attr, const int64_t *x, const int64_t *w)
{
    geometry g = {
        .stride = {attr[0], attr[1]},
        .padding = {attr[2], attr[3]},
        .dilation = {attr[4], attr[5]},
        .groups = attr[6],
        .n = x[0],
        .c = x[1],
        .h = x[2],
        .w = x[3],
        .o = w[0],
        .kh = w[2],
        .kw = w[3],
    };

    g.oh = output_size(g.h, g.kh, g.stride[0], g.padding[0], g.dilation[0]);
    g.ow = output_size(g.w, g.kw, g.stride[1], g.padding[1], g.dilation[1]);
    g.cg = g.c / g.groups;
    g.og = g.o / g.groups;
    g.patch = g.cg * g.kh * g.kw;
    return g;
}

/* --- patches -------------------------------------------------------------- */

/* One pixel of the output: which image, and where its patch begins in the input. */
typedef struct pixel {
    int64_t n, at, top, left;
} pixel;

static pixel pixel_of(const geometry *g, int64_t index)
{
    int64_t area = g->oh * g->ow;
    pixel p = {.n = index / area, .at = index % area};

    p.top = p.at / g->ow * g->stride[0] - g->padding[0];
    p.left = p.at % g->ow * g->stride[1] - g->padding[1];
    return p;
}

/* The patches of `count` pixels from `first` on, one a row; outside the image is zero. */
static void gather_patches(const geometry *g, const double *x, int64_t group, int64_t first,
                           int64_t count, double *rows)
{
    for (int64_t i = 0; i < count; i++) {
        pixel p = pixel_of(g, first + i);

        for (int64_t c = 0; c < g->cg; c++) {
            const double *plane = x + (p.n * g->c + group * g->cg + c) * g->h * g->w;

            for (int64_t kh = 0; kh < g->kh; kh++) {
                int64_t h = p.top + kh * g->dilation[0];
                bool inside = h >= 0 && h < g->h;

                for (int64_t kw = 0; kw < g->kw; kw++) {
                    int64_t w = p.left + kw * g->dilation[1];

                    *rows++ = inside && w >= 0 && w < g->w ? plane[h * g->w + w] : 0;
                }
            }
        }
    }
}

/* The reverse: adds rows of patches to where they came from. */
static void scatter_patches(const geometry *g, const double *rows, int64_t group, int64_t first,
                            int64_t count, double *x)
{
    for (int64_t i = 0; i < count; i++) {
        pixel p = pixel_of(g, first + i);

        for (int64_t c = 0; c < g->cg; c++) {
            double *plane = x + (p.n * g->c + group * g->cg + c) * g->h * g->w;

            for (int64_t kh = 0; kh < g->kh; kh++) {
                int64_t h = p.top + kh * g->dilation[0];

                for (int64_t kw = 0; kw < g->kw; kw++, rows++) {
                    int64_t w = p.left + kw * g->dilation[1];

                    if (h >= 0 && h < g->h && w >= 0 && w < g->w)
                        plane[h * g->w + w] += *rows;
                }
            }
        }
    }
}

/* Pixels of an output-shaped tensor as rows [count, og], and back. */
static void gather_outputs(const geometry *g, const double *y, int64_t group, int64_t first,
                           int64_t count, double *rows)
{
    for (int64_t i = 0; i < count; i++) {
        pixel p = pixel_of(g, first + i);
        const double *from = y + (p.n * g->o + group * g->og) * g->oh * g->ow + p.at;

        for (int64_t o = 0; o < g->og; o++)
            rows[i * g->og + o] = from[o * g->oh * g->ow];
    }
}

static void scatter_outputs(const geometry *g, const double *rows, int64_t group, int64_t first,
                            int64_t count, double *y)
{
    for (int64_t i = 0; i < count; i++) {
        pixel p = pixel_of(g, first + i);
        double *to = y + (p.n * g->o + group * g->og) * g->oh * g->ow + p.at;

        for (int64_t o = 0; o < g->og; o++)
            to[o * g->oh * g->ow] = rows[i * g->og + o];
    }
}

/* --- shape rules ---------------------------------------------------------- */

static tri_status conv_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    const trii_type *x = in[0], *w = in[1];
    tri_status status = trii_rule_float(x, "x");
    geometry g;

    *n_out = 1;
    if (status == TRI_OK)
        status = trii_rule_same_dtype(x, w);
    if (status == TRI_OK)
        status = trii_rule_ndim(x, 4, "x");
    if (status == TRI_OK)
        status = trii_rule_ndim(w, 4, "weight");
    if (status != TRI_OK)
        return status;
    g = geometry_of(attrs->i, x->shape, w->shape);
    if (g.c % g.groups != 0 || g.o % g.groups != 0 || w->shape[1] != g.cg)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%" PRId64 " channels in %" PRId64 " groups do not fit weights [%" PRId64
                         ", %" PRId64 ", ..]",
                         g.c, g.groups, g.o, w->shape[1]);
    if (g.kh < 1 || g.kw < 1 || g.h + 2 * g.padding[0] < g.dilation[0] * (g.kh - 1) + 1 ||
        g.w + 2 * g.padding[1] < g.dilation[1] * (g.kw - 1) + 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the kernel is larger than the padded image");
    if (g.h == 0 || g.w == 0 || g.o == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "images of %" PRId64 " x %" PRId64 " into %" PRId64
                         " channels: only the batch and the channels of x may be empty",
                         g.h, g.w, g.o);
    if (n_in > 2 && in[2] != NULL) {
        status = trii_rule_same_dtype(x, in[2]);
        if (status == TRI_OK)
            status = trii_rule_shape(in[2], "bias", 1, &w->shape[0]);
    }
    out->dtype = x->dtype;
    out->ndim = 4;
    out->shape[0] = g.n;
    out->shape[1] = g.o;
    out->shape[2] = g.oh;
    out->shape[3] = g.ow;
    return status;
}

/* --- kernels -------------------------------------------------------------- */

static tri_status forward_kernel(const trii_kernel_args *args)
{
    geometry g = geometry_of(args->iattr, args->in[0].type->shape, args->in[1].type->shape);
    int64_t pixels = g.n * g.oh * g.ow;
    const double *weight = args->in[1].data, *bias = args->in[2].data;
    double *y = args->out[0].data;
    double *work, *turned, *rows, *results; /* [patch, og], [TILE, patch], [TILE, og] */

    if (pixels == 0)
        return TRI_OK;
    work = trii_work_take(args, (size_t)(g.patch * g.og + TILE * (g.patch + g.og)), sizeof(*work));
    if (work == NULL)
        return TRI_ERR_NO_MEMORY;
    turned = work;
    rows = turned + g.patch * g.og;
    results = rows + TILE * g.patch;
    for (int64_t group = 0; group < g.groups; group++) {
        for (int64_t o = 0; o < g.og; o++) {
            for (int64_t k = 0; k < g.patch; k++)
                turned[k * g.og + o] = weight[(group * g.og + o) * g.patch + k];
        }
        for (int64_t first = 0; first < pixels; first += TILE) {
            int64_t count = pixels - first < TILE ? pixels - first : TILE;

            gather_patches(&g, args->in[0].data, group, first, count, rows);
            trii_gemm_run(&(trii_gemm){.m = count,
                                       .n = g.og,
                                       .k = g.patch,
                                       .a = rows,
                                       .a_row = g.patch,
                                       .a_col = 1,
                                       .b = turned,
                                       .b_row = g.og,
                                       .c = results,
                                       .c_row = g.og});
            for (int64_t i = 0; bias != NULL && i < count * g.og; i++)
                results[i] += bias[group * g.og + i % g.og];
            scatter_outputs(&g, results, group, first, count, y);
        }
    }
    trii_work_return(args, work);
    return TRI_OK;
}

static tri_status conv_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, forward_kernel);
}

/* in g w; out dx. */
static tri_status backward_data_kernel(const trii_kernel_args *args)
{
    geometry g = geometry_of(args->iattr, args->out[0].type->shape, args->in[1].type->shape);
    int64_t pixels = g.n * g.oh * g.ow;
    double *work, *rows, *results;

    memset(args->out[0].data, 0, (size_t)(g.n * g.c * g.h * g.w) * sizeof(double));
    if (pixels == 0)
        return TRI_OK;
    rows = work = trii_work_take(args, (size_t)(TILE * (g.patch + g.og)), sizeof(*work));
    if (work == NULL)
        return TRI_ERR_NO_MEMORY;
    results = rows + TILE * g.patch;
    for (int64_t group = 0; group < g.groups; group++) {
        for (int64_t first = 0; first < pixels; first += TILE) {
            int64_t count = pixels - first < TILE ? pixels - first : TILE;

            gather_outputs(&g, args->in[0].data, group, first, count, results);
            trii_gemm_run(
                &(trii_gemm){.m = count,
                             .n = g.patch,
                             .k = g.og,
                             .a = results,
                             .a_row = g.og,
                             .a_col = 1,
                             .b = (const double *)args->in[1].data + group * g.og * g.patch,
                             .b_row = g.patch,
                             .c = rows,
                             .c_row = g.patch});
            scatter_patches(&g, rows, group, first, count, args->out[0].data);
        }
    }
    trii_work_return(args, work);
    return TRI_OK;
}

static tri_status conv_backward_data_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, backward_data_kernel);
}

/* in g x; out dw. */
static tri_status backward_weight_kernel(const trii_kernel_args *args)
{
    geometry g = geometry_of(args->iattr, args->in[1].type->shape, args->out[0].type->shape);
    int64_t pixels = g.n * g.oh * g.ow;
    double *dw = args->out[0].data;
    double *work, *rows, *results;

    memset(dw, 0, (size_t)(g.o * g.patch) * sizeof(double));
    if (pixels == 0)
        return TRI_OK;
    rows = work = trii_work_take(args, (size_t)(TILE * (g.patch + g.og)), sizeof(*work));
    if (work == NULL)
        return TRI_ERR_NO_MEMORY;
    results = rows + TILE * g.patch;
    for (int64_t group = 0; group < g.groups; group++) {
        for (int64_t first = 0; first < pixels; first += TILE) {
            int64_t count = pixels - first < TILE ? pixels - first : TILE;

            gather_patches(&g, args->in[1].data, group, first, count, rows);
            gather_outputs(&g, args->in[0].data, group, first, count, results);
            trii_gemm_run(&(trii_gemm){.m = g.og,
                                       .n = g.patch,
                                       .k = count,
                                       .a = results,
                                       .a_row = 1,
                                       .a_col = g.og,
                                       .b = rows,
                                       .b_row = g.patch,
                                       .c = dw + group * g.og * g.patch,
                                       .c_row = g.patch,
                                       .accumulate = true});
        }
    }
    trii_work_return(args, work);
    return TRI_OK;
}

static tri_status conv_backward_weight_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, backward_weight_kernel);
}

/* --- entries -------------------------------------------------------------- */

static double conv_flops(const trii_type *const *in, int n_in, const trii_type *out)
{
    (void)n_in;
    return 2 * (double)trii_type_numel(out) * (double)trii_type_numel(in[1]) /
           (double)(in[1]->shape[0] > 0 ? in[1]->shape[0] : 1);
}

const trii_graph_op trii_op_conv = {
    .name = "conv",
    .precision = TRII_PRECISION_LOWERED,
    .activations_in = 1 << 0,
    .activations_out = 1 << 0,
    .optional = 1 << 2,
    .shape = conv_shape,
    .gradient = TRII_GRADIENT_conv,
    .reference = conv_reference,
    .flops = conv_flops,
};

/* i: the seven of conv, then the shape of the result. */
static tri_status backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    out->dtype = in[0]->dtype;
    out->ndim = 4;
    for (int d = 0; d < 4; d++)
        out->shape[d] = attrs->i[7 + d];
    return trii_rule_float(in[0], "g");
}

static double backward_data_flops(const trii_type *const *in, int n_in, const trii_type *out)
{
    (void)out;
    return conv_flops(in, n_in, in[0]);
}

static double backward_weight_flops(const trii_type *const *in, int n_in, const trii_type *out)
{
    (void)n_in;
    return 2 * (double)trii_type_numel(in[0]) * (double)trii_type_numel(out) /
           (double)(out->shape[0] > 0 ? out->shape[0] : 1);
}

const trii_graph_op trii_op_conv_backward_data = {
    .name = "conv_backward_data",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0,
    .activations_out = 1 << 0,
    .shape = backward_shape,
    .gradient = TRII_GRADIENT_conv_backward_data,
    .reference = conv_backward_data_reference,
    .flops = backward_data_flops,
};
const trii_graph_op trii_op_conv_backward_weight = {
    .name = "conv_backward_weight",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0 | 1 << 1,
    .activations_out = 0,
    .shape = backward_shape,
    .gradient = TRII_GRADIENT_conv_backward_weight,
    .reference = conv_backward_weight_reference,
    .flops = backward_weight_flops,
};

/* --- public --------------------------------------------------------------- */

static tri_status check_number(const char *name, int d, int number, int least)
{
    char place[16] = "";

    if (number >= least)
        return TRI_OK;
    if (d >= 0)
        snprintf(place, sizeof(place), "[%d]", d);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s%s is %d: must be at least %d", name, place, number,
                     least);
}

/* The seven numbers for an image; a row's are those of the width. */
static tri_status read_options(const tri_conv_options *opt, int n_dims, trii_attrs *attrs)
{
    const int *const lists[3] = {opt->stride, opt->padding, opt->dilation};
    static const char *const names[3] = {"stride", "padding", "dilation"};

    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_conv_options, opt);

    if (status != TRI_OK)
        return status;
    attrs->n_i = 7;
    attrs->n_f = 0;
    attrs->i[6] = opt->groups == 0 ? 1 : opt->groups;
    status = check_number("groups", -1, (int)attrs->i[6], 1);
    for (int l = 0; l < 3; l++) {
        for (int d = n_dims; d < 3; d++) {
            if (lists[l][d] != 0)
                return TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "%s {%d, %d, %d}: weight has %d dimension%s after its channels; "
                                 "entries for further dimensions must be 0",
                                 names[l], lists[l][0], lists[l][1], lists[l][2], n_dims,
                                 n_dims == 1 ? "" : "s");
        }
        for (int d = 0; d < 2; d++) {
            int from = d - (2 - n_dims), given = from < 0 ? 0 : lists[l][from];

            given = given == 0 && l != 1 ? 1 : given;
            attrs->i[2 * l + d] = given;
            if (status == TRI_OK)
                status = check_number(names[l], from, given, l == 1 ? 0 : 1);
        }
    }
    return status;
}

/* x and weight as a batch of images, with the numbers that go with them. */
static tri_status as_images(trii_step *step, int x_ndim, int w_ndim, trii_vid *ids)
{
    const trii_type *x = trii_type_of(step, ids[0]), *w = trii_type_of(step, ids[1]);
    int64_t x_shape[4], w_shape[4];
    int at = 0;
    tri_status status = TRI_OK;

    if (x_ndim < w_ndim)
        x_shape[at++] = 1;
    for (int d = 0; d < x_ndim; d++) {
        if (w_ndim == 3 && d == x_ndim - 1)
            x_shape[at++] = 1;
        x_shape[at++] = x->shape[d];
    }
    if (w_ndim == 3) {
        w_shape[0] = w->shape[0];
        w_shape[1] = w->shape[1];
        w_shape[2] = 1;
        w_shape[3] = w->shape[2];
        status = trii_rec_reshape(step, ids[1], w_shape, 4, &ids[1]);
    }
    return status == TRI_OK ? trii_rec_reshape(step, ids[0], x_shape, 4, &ids[0]) : status;
}

static tri_status rec_conv(trii_step *step, tri_tensor *const *in, const tri_conv_options *opt,
                           trii_vid *out)
{
    trii_vid ids[3] = {TRII_NO_VALUE, TRII_NO_VALUE, TRII_NO_VALUE};
    int x_ndim, w_ndim, n = 0;
    int64_t shape[4];
    trii_attrs attrs;
    tri_status status = TRI_OK;

    for (int i = 0; i < 3 && status == TRI_OK; i++) {
        if (in[i] != NULL)
            status = trii_resolve(step, in[i], &ids[i]);
        else if (i < 2)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "argument %d is NULL" TRII_WHENCE_NULL, i);
    }
    if (status != TRI_OK)
        return status;
    x_ndim = trii_type_of(step, ids[0])->ndim;
    w_ndim = trii_type_of(step, ids[1])->ndim;
    if (w_ndim != 3 && w_ndim != 4)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "weight must have 3 dimensions (of rows) or 4 (of images), not %d",
                         w_ndim);
    if (x_ndim != w_ndim && x_ndim != w_ndim - 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "x must have %d dimensions as weight, or %d without a batch, not %d",
                         w_ndim, w_ndim - 1, x_ndim);
    status = read_options(opt, w_ndim - 2, &attrs);
    if (status == TRI_OK && (x_ndim != 4 || w_ndim != 4))
        status = as_images(step, x_ndim, w_ndim, ids);
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_conv, ids, 3, &attrs, out);
    if (status != TRI_OK || (x_ndim == 4 && w_ndim == 4))
        return status;
    for (int d = x_ndim < w_ndim; d < 4; d++) {
        if (w_ndim == 4 || d != 2)
            shape[n++] = trii_type_of(step, *out)->shape[d];
    }
    return trii_rec_reshape(step, *out, shape, n, out);
}

tri_tensor *tri_conv(tri_tensor *x, tri_tensor *weight, tri_tensor *bias,
                     const tri_conv_options *opt)
{
    static const tri_conv_options defaults;
    tri_tensor *const in[3] = {x, weight, bias};
    trii_step *step = trii_step_current();
    trii_vid out = TRII_NO_VALUE;
    tri_status status =
        step != NULL ? rec_conv(step, in, opt != NULL ? opt : &defaults, &out) : TRI_ERR_NO_MEMORY;

    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, trii_op_conv.name, in, 3, status);
}
