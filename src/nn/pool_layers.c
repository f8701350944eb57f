/*
 * pool_layers.c - pooling.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "nn/pairs.h"
#include "nn/simple_layer.h"

static tri_tensor *apply_max_pool(const tri_module *self, const trii_simple_layer *layer,
                                  tri_tensor *x)
{
    (void)self;
    return tri_max_pool2d(x, layer->a, layer->b, &layer->pool);
}

static tri_tensor *apply_avg_pool(const tri_module *self, const trii_simple_layer *layer,
                                  tri_tensor *x)
{
    (void)self;
    return tri_avg_pool2d(x, layer->a, layer->b, &layer->pool);
}

/* One number where height and width agree. */
static const char *pair_text(int h, int w, char text[32])
{
    if (h == w)
        snprintf(text, 32, "%d", h);
    else
        snprintf(text, 32, "(%d, %d)", h, w);
    return text;
}

static int pool_repr(tri_module *self, const char *more, char *text, size_t bytes)
{
    const trii_simple_layer *layer = tri_module_data(self);
    const tri_pool2d_options *o = &layer->pool;
    char kernel[32], stride[32], padding[32];

    return snprintf(text, bytes, "kernel_size=%s, stride=%s, padding=%s%s",
                    pair_text(layer->a, layer->b, kernel),
                    pair_text(o->stride[0], o->stride[1], stride),
                    pair_text(o->padding[0], o->padding[1], padding), more);
}

static int max_pool_repr(tri_module *self, char *text, size_t bytes)
{
    bool up = ((trii_simple_layer *)tri_module_data(self))->pool.ceil_mode;

    return pool_repr(self, up ? ", dilation=1, ceil_mode=True" : ", dilation=1, ceil_mode=False",
                     text, bytes);
}

static int avg_pool_repr(tri_module *self, char *text, size_t bytes)
{
    return pool_repr(self, "", text, bytes);
}

static tri_module *pool_new(const tri_module_class *type, const char *label, int kernel,
                            const tri_nn_pool2d_options *opt,
                            tri_tensor *(*apply)(const tri_module *, const trii_simple_layer *,
                                                 tri_tensor *))
{
    const tri_nn_pool2d_options o = opt != NULL ? *opt : (tri_nn_pool2d_options){0};
    trii_simple_layer layer = {
        .apply = apply, .pool = {.ceil_mode = o.ceil_mode, .exclude_padding = o.exclude_padding}};
    const trii_pair_option sizes[] = {{"kernel", kernel, o.kernel_hw, 1, 0},
                                      {"stride", o.stride, o.stride_hw, 1, 0},
                                      {"padding", o.padding, o.padding_hw, 0, 0}};
    int hw[2] = {0};
    char call[48];
    tri_status st;

    snprintf(call, sizeof(call), "nn_%s(kernel %d)", label, kernel);
    st = trii_pair_get(call, &sizes[0], hw);
    if (st == TRI_OK && o.stride == 0 && o.stride_hw[0] == 0 && o.stride_hw[1] == 0)
        memcpy(layer.pool.stride, hw, sizeof(hw));
    else if (st == TRI_OK)
        st = trii_pair_get(call, &sizes[1], layer.pool.stride);
    if (st == TRI_OK)
        st = trii_pair_get(call, &sizes[2], layer.pool.padding);
    for (int d = 0; d < 2 && st == TRI_OK; d++) {
        if (layer.pool.padding[d] > hw[d] / 2)
            st = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "%s: padding %d of a kernel of %d: at most half the kernel is allowed",
                           call, layer.pool.padding[d], hw[d]);
    }
    if (st < 0)
        return trii_module_failed(st);
    layer.a = hw[0];
    layer.b = hw[1];
    return trii_simple_new(type, layer);
}

tri_module *tri_nn_max_pool2d(int kernel, const tri_nn_pool2d_options *opt)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("MaxPool2d", max_pool_repr);

    return pool_new(&type, "max_pool2d", kernel, opt, apply_max_pool);
}

tri_module *tri_nn_avg_pool2d(int kernel, const tri_nn_pool2d_options *opt)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("AvgPool2d", avg_pool_repr);

    return pool_new(&type, "avg_pool2d", kernel, opt, apply_avg_pool);
}

static tri_tensor *apply_adaptive_avg(const tri_module *self, const trii_simple_layer *layer,
                                      tri_tensor *x)
{
    (void)self;
    return tri_adaptive_avg_pool2d(x, layer->a, layer->b);
}

static tri_tensor *apply_adaptive_max(const tri_module *self, const trii_simple_layer *layer,
                                      tri_tensor *x)
{
    (void)self;
    return tri_adaptive_max_pool2d(x, layer->a, layer->b);
}

static int adaptive_repr(tri_module *self, char *text, size_t bytes)
{
    const trii_simple_layer *layer = tri_module_data(self);

    return snprintf(text, bytes, "output_size=(%d, %d)", layer->a, layer->b);
}

static tri_module *adaptive_new(const tri_module_class *type, const char *label, int h, int w,
                                tri_tensor *(*apply)(const tri_module *, const trii_simple_layer *,
                                                     tri_tensor *))
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
