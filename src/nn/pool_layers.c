/*
 * pool_layers.c - pooling.
 */
#include "base/err.h"
#include "nn/simple_layer.h"

static tri_tensor *apply_max_pool(const tri_module *self, const trii_simple_layer *layer,
                                  tri_tensor *x)
{
    (void)self;
    return tri_max_pool2d(x, layer->a, layer->a, &layer->pool);
}

static tri_tensor *apply_avg_pool(const tri_module *self, const trii_simple_layer *layer,
                                  tri_tensor *x)
{
    (void)self;
    return tri_avg_pool2d(x, layer->a, layer->a, &layer->pool);
}

static tri_module *
pool_new(const tri_module_class *type, int kernel, const tri_nn_pool2d_options *opt,
         tri_tensor *(*apply)(const tri_module *, const trii_simple_layer *, tri_tensor *))
{
    tri_nn_pool2d_options o = opt != NULL ? *opt : (tri_nn_pool2d_options){0};

    if (kernel < 1 || o.stride < 0 || o.padding < 0 || 2 * o.padding > kernel)
        return trii_module_failed(
            TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_%s: kernel %d, stride %d, padding %d: %s",
                      type->name, kernel, o.stride, o.padding,
                      kernel < 1                      ? "the kernel must be at least 1"
                      : o.stride < 0 || o.padding < 0 ? "no option may be negative"
                                                      : "padding at most half the kernel"));
    return trii_simple_new(type, (trii_simple_layer){.apply = apply,
                                                     .a = kernel,
                                                     .pool = {.stride = {o.stride, o.stride},
                                                              .padding = {o.padding, o.padding},
                                                              .ceil_mode = o.ceil_mode}});
}

tri_module *tri_nn_max_pool2d(int kernel, const tri_nn_pool2d_options *opt)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("max_pool2d");

    return pool_new(&type, kernel, opt, apply_max_pool);
}

tri_module *tri_nn_avg_pool2d(int kernel, const tri_nn_pool2d_options *opt)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("avg_pool2d");

    return pool_new(&type, kernel, opt, apply_avg_pool);
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

static tri_module *adaptive_new(const tri_module_class *type, int h, int w,
                                tri_tensor *(*apply)(const tri_module *, const trii_simple_layer *,
                                                     tri_tensor *))
{
    if (h < 1 || w < 1)
        return trii_module_failed(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                            "nn_%s(%d, %d): the output must be at least 1 x 1",
                                            type->name, h, w));
    return trii_simple_new(type, (trii_simple_layer){.apply = apply, .a = h, .b = w});
}

tri_module *tri_nn_adaptive_avg_pool2d(int h, int w)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("adaptive_avg_pool2d");

    return adaptive_new(&type, h, w, apply_adaptive_avg);
}

tri_module *tri_nn_adaptive_max_pool2d(int h, int w)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("adaptive_max_pool2d");

    return adaptive_new(&type, h, w, apply_adaptive_max);
}
