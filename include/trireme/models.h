/*
 * models.h - networks to train and to learn from: ResNet, ViT, GPT-2, and multilayer perceptrons.
 *
 *     tri_module *net = tri_model_resnet(50, 1000);
 *
 * They are made of the layers of nn.h and the operations of ops.h; their sources, in src/models/,
 * show how such modules are written. Names of parameters and buffers, their order and initial
 * values are those of torchvision and Hugging Face, so published weights load with tri_load.
 *
 * This header is not part of trireme/trireme.h, and the functions are in a library of their own:
 * link with -ltrireme-models -ltrireme -ltrireme-comm.
 *
 * Functions that make a module never return NULL: a failed one carries its error
 * (tri_module_status) into forward and optimizer. Errors: INVALID_ARG (a size is out of range or
 * does not fit another), NO_MEMORY.
 */
#ifndef TRIREME_MODELS_H
#define TRIREME_MODELS_H

#include <trireme/nn.h>

TRI_BEGIN_DECLS

/* --- by name -------------------------------------------------------------- */

#define TRI_MODEL_NAMES                                                                            \
    "linear:IN,OUT, mlp:A,B,C.., resnet18, resnet34, resnet50, resnet101, resnet152, vit_b_16, "   \
    "vit:SIZE,PATCH,WIDTH,DEPTH,HEADS,CLASSES, gpt2 or "                                           \
    "gpt:LAYERS,WIDTH,HEADS,CONTEXT,VOCABULARY"

/**
 * Makes the model that a text such as an option of a command line names: one of TRI_MODEL_NAMES.
 * "mlp:784,128,10" is linear layers with ReLU between them; "gpt2" and "vit_b_16" are the smallest
 * published ones.
 *
 *   classes  of resnets and vit_b_16, whose names do not say it; otherwise ignored
 */
TRI_API tri_module *tri_model_by_name(const char *name, int64_t classes);

/* --- residual networks (He et al. 2015) ----------------------------------- */

/* Images [N, 3, H, W] -> logits [N, classes], as torchvision's resnet18 to resnet152: 50 and deeper
 * have the stride in the 3x3 convolution. depth: 18, 34, 50, 101 or 152. */
TRI_API tri_module *tri_model_resnet(int depth, int64_t classes);
/* The same with `first_width` channels after the first convolution, instead of 64. */
TRI_API tri_module *tri_model_resnet_of_width(int depth, int64_t first_width, int64_t classes);
/* The forward pass of a tri_model_resnet in two halves, each on the device of its own layers: up to
 * layer2; then from the result of the first half, layer3 to fc. For model parallelism. */
TRI_API tri_tensor *tri_model_resnet_first_half(tri_module *net, tri_tensor *x);
TRI_API tri_tensor *tri_model_resnet_second_half(tri_module *net, tri_tensor *x);
/* One of its blocks: [N, in, H, W] -> [N, out, H / stride, W / stride]; out is `width`, or in a
 * bottleneck (whose 3x3 convolution has the stride) four times that. */
TRI_API tri_module *tri_model_resnet_block(bool bottleneck, int64_t in, int64_t width, int stride);

/* --- vision transformers (Dosovitskiy et al. 2020) ------------------------ */

/* All but dropout are required. */
typedef struct tri_model_vit_options {
    int64_t size, patch;         /* of vit_b_16: 224, 16; size is a multiple of patch */
    int64_t width, depth, heads; /* 768, 12, 12; width is a multiple of heads */
    int64_t classes;             /* 1000 */
    double dropout;              /* 0 */
    TRI_RESERVED(4);
} tri_model_vit_options;
/* Images [N, 3, size, size] -> logits [N, classes], with torchvision's names. */
TRI_API tri_module *tri_model_vit(const tri_model_vit_options *opt);

/* --- GPT-2 (Radford et al. 2019) ------------------------------------------ */

/* All but dropout are required. */
typedef struct tri_model_gpt2_options {
    int64_t layers, width, heads; /* of the smallest published one: 12, 768, 12 */
    int64_t context, vocabulary;  /* 1024, 50257 */
    double dropout;               /* 0 */
    TRI_RESERVED(4);
} tri_model_gpt2_options;
/* Tokens i64 [N, T], T at most context -> logits [N, T, vocabulary], each from the tokens up to its
 * own. Names and shapes are those of the published safetensors file. */
TRI_API tri_module *tri_model_gpt2(const tri_model_gpt2_options *opt);
/* tri_load_options.rename for that file: drops "transformer." and leaves out (NULL) what is no
 * parameter (masks of attention) or is there twice (the head, which is wte). room and arg are not
 * used. */
TRI_API const char *tri_model_gpt2_rename(const char *name, char *room, void *arg);

TRI_END_DECLS

#endif
