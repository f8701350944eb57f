/*
 * vit.h - a vision transformer (Dosovitskiy et al. 2020): images [N, 3, size, size] -> logits [N,
 * classes]. Names of parameters are torchvision's (vit_b_16 and its variants).
 */
#ifndef EXAMPLES_VIT_H
#define EXAMPLES_VIT_H

#include <trireme/nn.h>

typedef struct vit_options {
    int64_t size, patch;         /* of vit_b_16: 224, 16; size is a multiple of patch */
    int64_t width, depth, heads; /* 768, 12, 12; width is a multiple of heads */
    int64_t classes;             /* 1000 */
    double dropout;              /* 0 */
} vit_options;

tri_module *vit_create(const vit_options *opt);

#endif
