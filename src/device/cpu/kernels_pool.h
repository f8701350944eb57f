/*
 * kernels_pool.h - pooling over one unit of one image; a template over the instruction set and the
 * element type, see vec.h and kernels_images.h.
 *
 * In blocked order the channels of a block go side by side through vectors; plain order and odd
 * blocks take the scalar loops.
 */

VEC_INLINE vec ELEM_FN(max_window)(const ELEM *x, const window *win, int64_t row, int64_t step)
{
    vec best = vec_set(-INFINITY);

    for (int64_t h = win->h0; h < win->h1; h++) {
        for (int64_t w = win->w0; w < win->w1; w++) {
            vec v = ELEM_LOAD(x + h * row + w * step);

            best = vec_select((v > best) | (v != v), v, best);
        }
    }
    return best;
}

VEC_FN void ELEM_FN(max_pool)(const void *unit, void *pooled, const trii_images *images,
                              const trii_pooling *pool)
{
    const ELEM *x = unit;
    ELEM *y = pooled;
    int64_t block = images->block, row = images->w * block;

    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, y += block) {
            window win = window_of(images, pool, oh, ow);
            int64_t l = 0;

            for (; l + VEC_LANES <= block; l += VEC_LANES)
                ELEM_STORE(y + l, ELEM_FN(max_window)(x + l, &win, row, block));
            for (; l < block; l++) {
                float best = -INFINITY;

                for (int64_t h = win.h0; h < win.h1; h++) {
                    for (int64_t w = win.w0; w < win.w1; w++) {
                        float v = ELEM_GET(x[h * row + w * block + l]);

                        best = v > best || v != v ? v : best;
                    }
                }
                y[l] = ELEM_PUT(best);
            }
        }
    }
}

VEC_INLINE void ELEM_FN(max_window_backward)(const ELEM *x, ELEM *dx, vec dy, const window *win,
                                             int64_t row, int64_t step)
{
    vec best = ELEM_FN(max_window)(x, win, row, step);
    vec_i open = ~(vec_i){0}; /* lanes whose maximum has not been met */

    for (int64_t h = win->h0; h < win->h1; h++) {
        for (int64_t w = win->w0; w < win->w1; w++) {
            int64_t at = h * row + w * step;
            vec v = ELEM_LOAD(x + at);
            vec_i hit = open & ((v == best) | (v != v));

            ELEM_STORE(dx + at, ELEM_LOAD(dx + at) + vec_select(hit, dy, vec_set(0)));
            open &= ~hit;
        }
    }
}

VEC_INLINE void ELEM_FN(max_window_backward_c)(const ELEM *x, ELEM *dx, float dy, const window *win,
                                               int64_t row, int64_t step)
{
    int64_t at = win->h0 * row + win->w0 * step;

    for (int64_t h = win->h0; h < win->h1; h++) {
        for (int64_t w = win->w0; w < win->w1; w++) {
            int64_t here = h * row + w * step;

            if (ELEM_GET(x[at]) == ELEM_GET(x[at]) && !(ELEM_GET(x[here]) <= ELEM_GET(x[at])))
                at = here;
        }
    }
    dx[at] = ELEM_PUT(ELEM_GET(dx[at]) + dy);
}

VEC_FN void ELEM_FN(max_pool_backward)(const void *unit, const void *pooled, void *out,
                                       const trii_images *images, const trii_pooling *pool)
{
    const ELEM *x = unit, *dy = pooled;
    ELEM *dx = out;
    int64_t block = images->block, row = images->w * block;

    memset(dx, 0, (size_t)(images->h * row) * sizeof(ELEM));
    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, dy += block) {
            window win = window_of(images, pool, oh, ow);
            int64_t l = 0;

            for (; l + VEC_LANES <= block; l += VEC_LANES)
                ELEM_FN(max_window_backward)(x + l, dx + l, ELEM_LOAD(dy + l), &win, row, block);
            for (; l < block; l++)
                ELEM_FN(max_window_backward_c)(x + l, dx + l, ELEM_GET(dy[l]), &win, row, block);
        }
    }
}

VEC_FN void ELEM_FN(avg_pool)(const void *unit, void *pooled, const trii_images *images,
                              const trii_pooling *pool)
{
    const ELEM *x = unit;
    ELEM *y = pooled;
    int64_t block = images->block, row = images->w * block;

    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, y += block) {
            window win = window_of(images, pool, oh, ow);
            int64_t l = 0;

            for (; l + VEC_LANES <= block; l += VEC_LANES) {
                vec s = {0};

                for (int64_t h = win.h0; h < win.h1; h++) {
                    for (int64_t w = win.w0; w < win.w1; w++)
                        s += ELEM_LOAD(x + h * row + w * block + l);
                }
                ELEM_STORE(y + l, s / (float)win.elems);
            }
            for (; l < block; l++) {
                float s = 0;

                for (int64_t h = win.h0; h < win.h1; h++) {
                    for (int64_t w = win.w0; w < win.w1; w++)
                        s += ELEM_GET(x[h * row + w * block + l]);
                }
                y[l] = ELEM_PUT(s / (float)win.elems);
            }
        }
    }
}

VEC_FN void ELEM_FN(avg_pool_backward)(const void *pooled, void *out, const trii_images *images,
                                       const trii_pooling *pool)
{
    const ELEM *dy = pooled;
    ELEM *dx = out;
    int64_t block = images->block, row = images->w * block;

    memset(dx, 0, (size_t)(images->h * row) * sizeof(ELEM));
    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, dy += block) {
            window win = window_of(images, pool, oh, ow);

            for (int64_t h = win.h0; h < win.h1; h++) {
                for (int64_t w = win.w0; w < win.w1; w++) {
                    ELEM *d = dx + h * row + w * block;

                    for (int64_t l = 0; l < block; l++)
                        d[l] = ELEM_PUT(ELEM_GET(d[l]) + ELEM_GET(dy[l]) / (float)win.elems);
                }
            }
        }
    }
}
