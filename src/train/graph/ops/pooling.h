/*
 * pooling.h - how many integer attributes pooling has, for its gradient. Of windowed pooling:
 * kernel h w, stride h w, padding h w, ceil_mode, exclude_padding. Of adaptive pooling: output h w.
 * The gradients of both have the image's h w after these.
 */
#ifndef TRII_POOLING_H
#define TRII_POOLING_H

enum {
    TRII_POOL_WINDOWED = 8,
    TRII_POOL_ADAPTIVE = 2,
    /* max_pool_argmax: after those of the max pooling it belongs to, at this place, 1 for the
     * adaptive one */
    TRII_POOL_IS_ADAPTIVE = TRII_POOL_WINDOWED
};

#endif
