/*
 * vit.c - a vision transformer from layers and operations.
 */
#include <trireme/models.h>

#include <math.h>
#include <string.h>

#include "models/model_parts.h"

typedef struct block {
    tri_module *ln_1, *attention, *dropout, *ln_2, *mlp;
} block;

static tri_tensor *block_forward(tri_module *self, tri_tensor *x)
{
    block *b = tri_module_data(self);
    tri_tensor *y = tri_forward(b->attention, tri_forward(b->ln_1, x));

    x = tri_add(x, tri_forward(b->dropout, y));
    return tri_add(x, tri_forward(b->mlp, tri_forward(b->ln_2, x)));
}

static tri_module *norm_create(int64_t width)
{
    return tri_nn_layer_norm(TRI_SHAPE(width), &(tri_nn_layer_norm_options){.eps = TRI_SET(1e-6)});
}

static tri_module *block_create(const tri_model_vit_options *opt)
{
    tri_module *self = tri_module_simple("EncoderBlock", sizeof(block), block_forward);
    block *b = tri_module_data(self);
    int64_t c = opt->width;

    if (b == NULL)
        return self;
    b->ln_1 = tri_module_add_child(self, "ln_1", norm_create(c));
    b->attention = tri_module_add_child(self, "self_attention",
                                        tri_nn_multihead_attention(c, opt->heads, NULL));
    b->dropout = tri_module_add_child(self, "dropout", tri_nn_dropout(opt->dropout));
    b->ln_2 = tri_module_add_child(self, "ln_2", norm_create(c));
    b->mlp = tri_module_add_child(
        self, "mlp",
        tri_nn_sequential(tri_nn_linear(c, 4 * c, NULL), tri_nn_gelu(TRI_GELU_ERF),
                          tri_nn_dropout(opt->dropout), tri_nn_linear(4 * c, c, NULL),
                          tri_nn_dropout(opt->dropout)));
    return self;
}

typedef struct vit {
    tri_tensor *class_token, *pos_embedding;
    tri_module *conv_proj, *encoder, *heads;
    int64_t size;
} vit;

/* [N, C, h, w] -> [N, h w, C], with the class token in front; only its output is used. */
static tri_tensor *vit_forward(tri_module *self, tri_tensor *images)
{
    vit *v = tri_module_data(self);
    tri_tensor *x, *token;

    /* Others may have as many patches, whose positions would be wrong. */
    if (tri_tensor_status(images) == TRI_OK &&
        (tri_tensor_ndim(images) != 4 || tri_tensor_size(images, 2) != v->size ||
         tri_tensor_size(images, 3) != v->size))
        return trii_model_refused(
            tri_module_fail(NULL, TRI_ERR_INVALID_ARG,
                            "tri_model_vit: images %s: must be [N, 3, %lld, %lld]",
                            tri_tensor_shape_text(images), (long long)v->size, (long long)v->size),
            images);
    x = tri_transpose(tri_flatten(tri_forward(v->conv_proj, images), 2), 1, 2);
    token = tri_expand(v->class_token, TRI_SHAPE(tri_tensor_size(x, 0), 1, tri_tensor_size(x, 2)));
    x = tri_add(tri_concat((tri_tensor *[]){token, x}, 2, 1), v->pos_embedding);
    return tri_forward(v->heads, tri_select(tri_forward(v->encoder, x), 1, 0));
}

/* torchvision's initial values, where they differ from the layer's. */
static tri_status draw(const char *name, tri_tensor *tensor)
{
    bool bias = tri_tensor_ndim(tensor) == 1;

    if (strcmp(name, "encoder.pos_embedding") == 0)
        return tri_init_normal(tensor, 0, 0.02);
    if (strstr(name, "mlp") != NULL)
        return bias ? tri_init_normal(tensor, 0, 1e-6) : tri_init_xavier_uniform(tensor, 1);
    if (strcmp(name, "conv_proj.bias") == 0 || strncmp(name, "heads", 5) == 0)
        return tri_init_constant(tensor, 0);
    if (strcmp(name, "conv_proj.weight") == 0)
        return tri_init_normal(
            tensor, 0,
            1 / sqrt((double)tri_tensor_numel(tensor) / (double)tri_tensor_size(tensor, 0)));
    return TRI_OK;
}

/* NULL if the sizes are right; else a failed module. */
static tri_module *check(const tri_model_vit_options *opt)
{
    const trii_model_size sizes[] = {{"size", opt->size},   {"patch", opt->patch},
                                     {"width", opt->width}, {"depth", opt->depth},
                                     {"heads", opt->heads}, {"classes", opt->classes}};
    tri_module *wrong = trii_model_reserved("tri_model_vit_options", opt->reserved,
                                            (int)(sizeof(opt->reserved) / sizeof(*opt->reserved)));

    if (wrong == NULL)
        wrong = trii_model_check("tri_model_vit", sizes, 6);
    if (wrong == NULL && opt->size % opt->patch != 0)
        wrong = tri_module_fail(NULL, TRI_ERR_INVALID_ARG,
                                "tri_model_vit: size %lld is not a multiple of patch %lld",
                                (long long)opt->size, (long long)opt->patch);
    if (wrong == NULL && opt->width % opt->heads != 0)
        wrong = tri_module_fail(NULL, TRI_ERR_INVALID_ARG,
                                "tri_model_vit: width %lld is not a multiple of heads %lld",
                                (long long)opt->width, (long long)opt->heads);
    return wrong;
}

/* opt has been checked. */
static tri_module *vit_create(const tri_model_vit_options *opt)
{
    tri_module *self = tri_module_simple("VisionTransformer", sizeof(vit), vit_forward), *layers;
    vit *v = tri_module_data(self);
    int64_t c = opt->width, patches = opt->size / opt->patch;
    tri_nn_conv2d_options apart = {.stride = (int)opt->patch};

    if (v == NULL)
        return self;
    v->size = opt->size;
    v->class_token = trii_model_parameter(self, "class_token", TRI_SHAPE(1, 1, c));
    v->conv_proj =
        tri_module_add_child(self, "conv_proj", tri_nn_conv2d(3, c, (int)opt->patch, &apart));
    v->encoder = tri_module_add_child(self, "encoder", tri_nn_sequential_of(0, NULL));
    v->pos_embedding =
        trii_model_parameter(v->encoder, "pos_embedding", TRI_SHAPE(1, patches * patches + 1, c));
    tri_module_add_child(v->encoder, "dropout", tri_nn_dropout(opt->dropout));
    layers = tri_module_add_child(v->encoder, "layers", tri_nn_sequential_of(0, NULL));
    for (int64_t i = 0; i < opt->depth; i++)
        trii_model_child(layers, "encoder_layer_", i, block_create(opt));
    tri_module_add_child(v->encoder, "ln", norm_create(c));
    v->heads = tri_module_add_child(self, "heads", tri_nn_sequential_of(0, NULL));
    tri_module_add_child(v->heads, "head", tri_nn_linear(c, opt->classes, NULL));
    for (int64_t i = 0; i < tri_module_state_count(self); i++)
        if (draw(tri_module_state(self, i).name, tri_module_state(self, i).tensor) < 0)
            break; /* no memory: the tensor carries the error */
    return self;
}

tri_module *tri_model_vit(const tri_model_vit_options *opt)
{
    tri_module *wrong;

    if (opt == NULL)
        return tri_module_fail(NULL, TRI_ERR_INVALID_ARG, "tri_model_vit: opt is NULL");
    wrong = check(opt);
    return wrong != NULL ? wrong : vit_create(opt);
}
