/*
 * kernels_pool.h - pooling over one unit of one image; a template, see vec.h.
 *
 * In blocked order the channels of a block go side by side through vectors; plain order and odd
 * blocks take the scalar loops.
 */

typedef struct window {
    int64_t h0, h1, w0, w1; /* inside the image */
    int64_t elems;          /* what an average divides by */
} window;

VEC_INLINE window window_of(const trii_images *images, const trii_pooling *pool, int64_t oh,
                            int64_t ow)
{
    int64_t h0 = oh * pool->stride_h - pool->pad_h, w0 = ow * pool->stride_w - pool->pad_w;
    int64_t h1 = h0 + pool->kernel_h, w1 = w0 + pool->kernel_w;
    window win;

    /* With ceil_mode a window may start inside the padded image and end behind it; the average
     * counts padding, but nothing beyond it. */
    int64_t h_end = images->h + pool->pad_h, w_end = images->w + pool->pad_w;

    win.elems = ((h1 < h_end ? h1 : h_end) - h0) * ((w1 < w_end ? w1 : w_end) - w0);
    win.h0 = h0 > 0 ? h0 : 0;
    win.w0 = w0 > 0 ? w0 : 0;
    win.h1 = h1 < images->h ? h1 : images->h;
    win.w1 = w1 < images->w ? w1 : images->w;
    if (pool->exclude_padding)
        win.elems = (win.h1 - win.h0) * (win.w1 - win.w0);
    return win;
}

VEC_INLINE vec max_window(const float *x, const window *win, int64_t row, int64_t step)
{
    vec best = vec_set(-INFINITY);

    for (int64_t h = win->h0; h < win->h1; h++) {
        for (int64_t w = win->w0; w < win->w1; w++) {
            vec v = vec_load(x + h * row + w * step);

            best = vec_select((v > best) | (v != v), v, best);
        }
    }
    return best;
}

VEC_FN void max_pool(const float *x, float *y, const trii_images *images, const trii_pooling *pool)
{
    int64_t block = images->block, row = images->w * block;

    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, y += block) {
            window win = window_of(images, pool, oh, ow);
            int64_t l = 0;

            for (; l + VEC_LANES <= block; l += VEC_LANES)
                vec_store(y + l, max_window(x + l, &win, row, block));
            for (; l < block; l++) {
                float best = -INFINITY;

                for (int64_t h = win.h0; h < win.h1; h++) {
                    for (int64_t w = win.w0; w < win.w1; w++) {
                        float v = x[h * row + w * block + l];

                        best = v > best || v != v ? v : best;
                    }
                }
                y[l] = best;
            }
        }
    }
}

VEC_INLINE void max_window_backward(const float *x, float *dx, vec dy, const window *win,
                                    int64_t row, int64_t step)
{
    vec best = max_window(x, win, row, step);
    vec_i open = ~(vec_i){0}; /* lanes whose maximum has not been met */

    for (int64_t h = win->h0; h < win->h1; h++) {
        for (int64_t w = win->w0; w < win->w1; w++) {
            int64_t at = h * row + w * step;
            vec v = vec_load(x + at);
            vec_i hit = open & ((v == best) | (v != v));

            vec_store(dx + at, vec_load(dx + at) + vec_select(hit, dy, vec_set(0)));
            open &= ~hit;
        }
    }
}

VEC_INLINE void max_window_backward_c(const float *x, float *dx, float dy, const window *win,
                                      int64_t row, int64_t step)
{
    int64_t at = win->h0 * row + win->w0 * step;

    for (int64_t h = win->h0; h < win->h1; h++) {
        for (int64_t w = win->w0; w < win->w1; w++) {
            int64_t here = h * row + w * step;

            if (x[at] == x[at] && !(x[here] <= x[at]))
                at = here;
        }
    }
    dx[at] += dy;
}

VEC_FN void max_pool_backward(const float *x, const float *dy, float *dx, const trii_images *images,
                              const trii_pooling *pool)
{
    int64_t block = images->block, row = images->w * block;

    memset(dx, 0, (size_t)(images->h * row) * sizeof(float));
    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, dy += block) {
            window win = window_of(images, pool, oh, ow);
            int64_t l = 0;

            for (; l + VEC_LANES <= block; l += VEC_LANES)
                max_window_backward(x + l, dx + l, vec_load(dy + l), &win, row, block);
            for (; l < block; l++)
                max_window_backward_c(x + l, dx + l, dy[l], &win, row, block);
        }
    }
}

VEC_FN void avg_pool(const float *x, float *y, const trii_images *images, const trii_pooling *pool)
{
    int64_t block = images->block, row = images->w * block;

    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, y += block) {
            window win = window_of(images, pool, oh, ow);
            int64_t l = 0;

            for (; l + VEC_LANES <= block; l += VEC_LANES) {
                vec s = {0};

                for (int64_t h = win.h0; h < win.h1; h++) {
                    for (int64_t w = win.w0; w < win.w1; w++)
                        s += vec_load(x + h * row + w * block + l);
                }
                vec_store(y + l, s / (float)win.elems);
            }
            for (; l < block; l++) {
                float s = 0;

                for (int64_t h = win.h0; h < win.h1; h++) {
                    for (int64_t w = win.w0; w < win.w1; w++)
                        s += x[h * row + w * block + l];
                }
                y[l] = s / (float)win.elems;
            }
        }
    }
}

VEC_FN void avg_pool_backward(const float *dy, float *dx, const trii_images *images,
                              const trii_pooling *pool)
{
    int64_t block = images->block, row = images->w * block;

    memset(dx, 0, (size_t)(images->h * row) * sizeof(float));
    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, dy += block) {
            window win = window_of(images, pool, oh, ow);

            for (int64_t h = win.h0; h < win.h1; h++) {
                for (int64_t w = win.w0; w < win.w1; w++) {
                    float *d = dx + h * row + w * block;

                    for (int64_t l = 0; l < block; l++)
                        d[l] += dy[l] / (float)win.elems;
                }
            }
        }
    }
}
