/*
 * pool_layers.c - pooling of images and of rows.
 */
#include <stdio.h>

#include "base/err.h"
#include "base/option.h"
#include "train/nn/pairs.h"
#include "train/nn/simple_layer.h"

typedef tri_tensor *(*apply_fn)(const tri_module *self, const trii_simple_layer *layer,
                                tri_tensor *x);

static tri_tensor *apply_max_pool(const tri_module *self, const trii_simple_layer *layer,
                                  tri_tensor *x)
{
    (void)self;
    return tri_max_pool(x, &layer->pool);
}

static tri_tensor *apply_avg_pool(const tri_module *self, const trii_simple_layer *layer,
                                  tri_tensor *x)
{
    (void)self;
    return tri_avg_pool(x, &layer->pool);
}

/* One number where height and width are equal. */
static const char *pair_text(const int pair[3], char text[32])
{
    if (pair[0] == pair[1])
        snprintf(text, 32, "%d", pair[0]);
    else
        snprintf(text, 32, "(%d, %d)", pair[0], pair[1]);
    return text;
}

static int pool_repr(tri_module *self, const char *more, char *text, size_t bytes)
{
    const tri_pool_options *o = &((trii_simple_layer *)tri_module_data(self))->pool;
    char kernel[32], stride[32], padding[32];

    return snprintf(text, bytes, "kernel_size=%s, stride=%s, padding=%s%s",
                    pair_text(o->kernel, kernel), pair_text(o->stride, stride),
                    pair_text(o->padding, padding), more);
}

static const char *max_pool_end(tri_module *self)
{
    bool up = ((trii_simple_layer *)tri_module_data(self))->pool.ceil_mode;

    return up ? ", dilation=1, ceil_mode=True" : ", dilation=1, ceil_mode=False";
}

static int max_pool_repr(tri_module *self, char *text, size_t bytes)
{
    return pool_repr(self, max_pool_end(self), text, bytes);
}

static int avg_pool_repr(tri_module *self, char *text, size_t bytes)
{
    return pool_repr(self, "", text, bytes);
}

static tri_status check_padding(const char *call, const tri_pool_options *pool)
{
    for (int d = 0; d < 2; d++) {
        if (pool->padding[d] > pool->kernel[d] / 2)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: padding %d of a kernel of %d: at most half the kernel is allowed",
                             call, pool->padding[d], pool->kernel[d]);
    }
    return TRI_OK;
}

static tri_module *pool2d_new(const tri_module_class *type, const char *label, int kernel,
                              const tri_nn_pool2d_options *opt, apply_fn apply)
{
    const tri_nn_pool2d_options o = opt != NULL ? *opt : (tri_nn_pool2d_options){0};
    trii_simple_layer layer = {
        .apply = apply, .pool = {.ceil_mode = o.ceil_mode, .exclude_padding = o.exclude_padding}};
    const trii_pair_option sizes[] = {{"kernel", kernel, o.kernel_hw, 1, 0},
                                      {"stride", o.stride, o.stride_hw, 1, 0},
                                      {"padding", o.padding, o.padding_hw, 0, 0}};
    char call[48];
    tri_status status = TRII_CHECK_RESERVED(tri_nn_pool2d_options, opt);

    snprintf(call, sizeof(call), "nn_%s(kernel %d)", label, kernel);
    if (status == TRI_OK)
        status = trii_pair_get(call, &sizes[0], layer.pool.kernel);
    for (int d = 0; d < 2; d++)
        layer.pool.stride[d] = layer.pool.kernel[d];
    if (status == TRI_OK && (o.stride != 0 || o.stride_hw[0] != 0 || o.stride_hw[1] != 0))
        status = trii_pair_get(call, &sizes[1], layer.pool.stride);
    if (status == TRI_OK)
        status = trii_pair_get(call, &sizes[2], layer.pool.padding);
    if (status == TRI_OK)
        status = check_padding(call, &layer.pool);
    return status != TRI_OK ? trii_module_failed(status) : trii_simple_new(type, layer);
}

tri_module *tri_nn_max_pool2d(int kernel, const tri_nn_pool2d_options *opt)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("MaxPool2d", max_pool_repr);

    return pool2d_new(&type, "max_pool2d", kernel, opt, apply_max_pool);
}

tri_module *tri_nn_avg_pool2d(int kernel, const tri_nn_pool2d_options *opt)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("AvgPool2d", avg_pool_repr);

    return pool2d_new(&type, "avg_pool2d", kernel, opt, apply_avg_pool);
}

/* --- of rows -------------------------------------------------------------- */

static int max_pool1d_repr(tri_module *self, char *text, size_t bytes)
{
    const tri_pool_options *o = &((trii_simple_layer *)tri_module_data(self))->pool;

    return snprintf(text, bytes, "kernel_size=%d, stride=%d, padding=%d%s", o->kernel[0],
                    o->stride[0], o->padding[0], max_pool_end(self));
}

static int avg_pool1d_repr(tri_module *self, char *text, size_t bytes)
{
    const tri_pool_options *o = &((trii_simple_layer *)tri_module_data(self))->pool;

    return snprintf(text, bytes, "kernel_size=(%d,), stride=(%d,), padding=(%d,)", o->kernel[0],
                    o->stride[0], o->padding[0]);
}

static tri_module *pool1d_new(const tri_module_class *type, const char *label, int kernel,
                              const tri_nn_pool1d_options *opt, apply_fn apply)
{
    const tri_nn_pool1d_options o = opt != NULL ? *opt : (tri_nn_pool1d_options){0};
    trii_simple_layer layer = {.apply = apply,
                               .pool = {.kernel = {kernel},
                                        .stride = {o.stride != 0 ? o.stride : kernel},
                                        .padding = {o.padding},
                                        .ceil_mode = o.ceil_mode,
                                        .exclude_padding = o.exclude_padding}};
    char call[48];
    tri_status status = TRII_CHECK_RESERVED(tri_nn_pool1d_options, opt);

    snprintf(call, sizeof(call), "nn_%s(kernel %d)", label, kernel);
    if (status != TRI_OK)
        return trii_module_failed(status);
    if (kernel < 1 || o.stride < 0 || o.padding < 0)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "%s: stride %d, padding %d: kernel and stride must be at least 1, padding 0",
                      call, o.stride, o.padding);
    else
        status = check_padding(call, &layer.pool);
    return status != TRI_OK ? trii_module_failed(status) : trii_simple_new(type, layer);
}

tri_module *tri_nn_max_pool1d(int kernel, const tri_nn_pool1d_options *opt)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("MaxPool1d", max_pool1d_repr);

    return pool1d_new(&type, "max_pool1d", kernel, opt, apply_max_pool);
}

tri_module *tri_nn_avg_pool1d(int kernel, const tri_nn_pool1d_options *opt)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("AvgPool1d", avg_pool1d_repr);

    return pool1d_new(&type, "avg_pool1d", kernel, opt, apply_avg_pool);
}

/* --- adaptive ------------------------------------------------------------- */

/* Output sizes: a, b for images, a for rows. */
static tri_tensor *apply_adaptive_avg(const tri_module *self, const trii_simple_layer *layer,
                                      tri_tensor *x)
{
    (void)self;
    return tri_adaptive_avg_pool(x, (int64_t[]){layer->a, layer->b}, layer->b == 0 ? 1 : 2);
}

static tri_tensor *apply_adaptive_max(const tri_module *self, const trii_simple_layer *layer,
                                      tri_tensor *x)
{
    (void)self;
    return tri_adaptive_max_pool(x, (int64_t[]){layer->a, layer->b}, layer->b == 0 ? 1 : 2);
}

static int adaptive_repr(tri_module *self, char *text, size_t bytes)
{
    const trii_simple_layer *layer = tri_module_data(self);

    return layer->b == 0 ? snprintf(text, bytes, "output_size=%d", layer->a)
                         : snprintf(text, bytes, "output_size=(%d, %d)", layer->a, layer->b);
}

static tri_module *adaptive_new(const tri_module_class *type, const char *label, int h, int w,
                                apply_fn apply)
{
    if (h < 1 || w < 1)
        return trii_module_failed(TRII_FAIL(
            TRI_ERR_INVALID_ARG, "nn_%s(%d, %d): the output must be at least 1 x 1", label, h, w));
    return trii_simple_new(type, (trii_simple_layer){.apply = apply, .a = h, .b = w});
}

tri_module *tri_nn_adaptive_avg_pool2d(int h, int w)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("AdaptiveAvgPool2d", adaptive_repr);

    return adaptive_new(&type, "adaptive_avg_pool2d", h, w, apply_adaptive_avg);
}

tri_module *tri_nn_adaptive_max_pool2d(int h, int w)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("AdaptiveMaxPool2d", adaptive_repr);

    return adaptive_new(&type, "adaptive_max_pool2d", h, w, apply_adaptive_max);
}

static tri_module *adaptive1d_new(const tri_module_class *type, const char *label, int l,
                                  apply_fn apply)
{
    if (l < 1)
        return trii_module_failed(TRII_FAIL(
            TRI_ERR_INVALID_ARG, "nn_%s(%d): the output must be at least 1 long", label, l));
    return trii_simple_new(type, (trii_simple_layer){.apply = apply, .a = l});
}

tri_module *tri_nn_adaptive_avg_pool1d(int l)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("AdaptiveAvgPool1d", adaptive_repr);

    return adaptive1d_new(&type, "adaptive_avg_pool1d", l, apply_adaptive_avg);
}

tri_module *tri_nn_adaptive_max_pool1d(int l)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("AdaptiveMaxPool1d", adaptive_repr);

    return adaptive1d_new(&type, "adaptive_max_pool1d", l, apply_adaptive_max);
}
