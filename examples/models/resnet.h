/*
 * resnet.h - residual networks (He et al. 2015): images [N, 3, H, W] -> logits [N, classes]. Names
 * of parameters and initial values are torchvision's (resnet18 .. resnet152; 50 and deeper with the
 * stride in the 3x3 convolution).
 */
#ifndef EXAMPLES_RESNET_H
#define EXAMPLES_RESNET_H

#include <trireme/nn.h>

/* depth: 18, 34, 50, 101 or 152; NULL for any other. */
tri_module *resnet_create(int depth, int64_t classes);
/* The same with `width` channels after the first convolution, instead of 64. */
tri_module *resnet_of_width(int depth, int64_t first_width, int64_t classes);
/* Its forward pass in two halves, each on the device of its own layers: up to layer2; then from the
 * result of the first half, layer3 to fc. */
tri_tensor *resnet_first_half(tri_module *net, tri_tensor *x);
tri_tensor *resnet_second_half(tri_module *net, tri_tensor *x);
/* One of its blocks: [N, in, H, W] -> [N, out, H / stride, W / stride]; out is `width`, or in a
 * bottleneck (whose 3x3 convolution has the stride) four times that. */
tri_module *resnet_block(bool bottleneck, int64_t in, int64_t width, int stride);

#endif
