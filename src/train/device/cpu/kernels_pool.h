/*
 * kernels_pool.h - pooling over one unit of one image; a template over the instruction set and the
 * element type, see vec.h and kernels_images.h.
 *
 * In blocked order the channels of a block are the lanes of vectors; plain order and blocks of
 * other sizes take the scalar loops.
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

/* --- backward ------------------------------------------------------------- */

/* Gradients of windows are added up in f32: in dx itself if that is f32, else in a ring of rows,
 * each of which is rounded once, when no later window reaches it. */
VEC_INLINE pool_sums ELEM_FN(pool_sums_begin)(ELEM *dx, const trii_images *images,
                                              const trii_pooling *pool, float *rows)
{
    pool_sums sums = {.row = images->w * images->block, .ring = images->h};

    if (sizeof(ELEM) == sizeof(float)) {
        sums.rows = (float *)(void *)dx;
        memset(dx, 0, (size_t)(images->h * sums.row) * sizeof(ELEM));
    } else {
        sums.rows = rows;
        sums.ring = trii_pooling_rows(images, pool);
    }
    return sums;
}

/* The next windows reach rows h0 to h1 of the image. */
VEC_INLINE void ELEM_FN(pool_sums_reach)(pool_sums *sums, ELEM *dx, int64_t h0, int64_t h1)
{
    if (sizeof(ELEM) == sizeof(float))
        return;
    for (; sums->done < h0 && sums->done < sums->open; sums->done++)
        to_bf16((uint16_t *)dx + sums->done * sums->row,
                sums->rows + sums->done % sums->ring * sums->row, (size_t)sums->row);
    if (sums->done < h0) { /* between windows */
        memset(dx + sums->done * sums->row, 0,
               (size_t)((h0 - sums->done) * sums->row) * sizeof(ELEM));
        sums->done = sums->open = h0;
    }
    for (; sums->open < h1; sums->open++)
        memset(sums->rows + sums->open % sums->ring * sums->row, 0,
               (size_t)sums->row * sizeof(float));
}

/* Which element of the window is its largest, per lane: the first of equals, the last NaN. */
VEC_INLINE vec_i ELEM_FN(max_position)(const ELEM *x, const window *win, int64_t row, int64_t step)
{
    vec best = vec_set(-INFINITY);
    vec_i at = {0};
    int32_t here = 0;

    for (int64_t h = win->h0; h < win->h1; h++) {
        for (int64_t w = win->w0; w < win->w1; w++, here++) {
            vec v = ELEM_LOAD(x + h * row + w * step);
            vec_i more = (v > best) | (v != v);

            best = vec_select(more, v, best);
            at = (more & here) | (~more & at);
        }
    }
    return at;
}

VEC_INLINE void ELEM_FN(max_window_backward)(const ELEM *x, const pool_sums *sums, int64_t first,
                                             vec dy, const window *win, int64_t l, int64_t step)
{
    vec_i at = ELEM_FN(max_position)(x + l, win, sums->row, step);
    int32_t here = 0;

    for (int64_t h = win->h0; h < win->h1; h++) {
        float *to = sums->rows + first * sums->row + l;

        for (int64_t w = win->w0; w < win->w1; w++, here++)
            vec_store(to + w * step,
                      vec_load(to + w * step) + vec_select(at == here, dy, vec_set(0)));
        first = first + 1 == sums->ring ? 0 : first + 1;
    }
}

VEC_INLINE void ELEM_FN(max_window_backward_c)(const ELEM *x, const pool_sums *sums, int64_t first,
                                               float dy, const window *win, int64_t l, int64_t step)
{
    float best = -INFINITY;
    int64_t at_h = win->h0, at_w = win->w0;

    for (int64_t h = win->h0; h < win->h1; h++) {
        for (int64_t w = win->w0; w < win->w1; w++) {
            float v = ELEM_GET(x[h * sums->row + w * step + l]);

            if (v > best || v != v) {
                best = v;
                at_h = h;
                at_w = w;
            }
        }
    }
    sums->rows[(first + at_h - win->h0) % sums->ring * sums->row + at_w * step + l] += dy;
}

VEC_FN void ELEM_FN(max_pool_backward)(const void *unit, const void *pooled, void *out,
                                       const trii_images *images, const trii_pooling *pool,
                                       float *rows)
{
    const ELEM *x = unit, *dy = pooled;
    ELEM *dx = out;
    int64_t block = images->block;
    pool_sums sums = ELEM_FN(pool_sums_begin)(dx, images, pool, rows);

    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, dy += block) {
            window win = window_of(images, pool, oh, ow);
            int64_t l = 0, first = win.h0 % sums.ring;

            if (ow == 0)
                ELEM_FN(pool_sums_reach)(&sums, dx, win.h0, win.h1);
            for (; l + VEC_LANES <= block; l += VEC_LANES)
                ELEM_FN(max_window_backward)(x, &sums, first, ELEM_LOAD(dy + l), &win, l, block);
            for (; l < block; l++)
                ELEM_FN(max_window_backward_c)(x, &sums, first, ELEM_GET(dy[l]), &win, l, block);
        }
    }
    ELEM_FN(pool_sums_reach)(&sums, dx, images->h, images->h);
}

VEC_INLINE void ELEM_FN(avg_window_backward)(const ELEM *dy, const pool_sums *sums, int64_t first,
                                             const window *win, int64_t block)
{
    for (int64_t h = win->h0; h < win->h1; h++) {
        float *to = sums->rows + first * sums->row;

        for (int64_t w = win->w0; w < win->w1; w++) {
            float *d = to + w * block;

            for (int64_t l = 0; l < block; l++)
                d[l] += ELEM_GET(dy[l]) / (float)win->elems;
        }
        first = first + 1 == sums->ring ? 0 : first + 1;
    }
}

VEC_FN void ELEM_FN(avg_pool_backward)(const void *pooled, void *out, const trii_images *images,
                                       const trii_pooling *pool, float *rows)
{
    const ELEM *dy = pooled;
    ELEM *dx = out;
    pool_sums sums = ELEM_FN(pool_sums_begin)(dx, images, pool, rows);

    for (int64_t oh = 0; oh < pool->out_h; oh++) {
        for (int64_t ow = 0; ow < pool->out_w; ow++, dy += images->block) {
            window win = window_of(images, pool, oh, ow);

            if (ow == 0)
                ELEM_FN(pool_sums_reach)(&sums, dx, win.h0, win.h1);
            ELEM_FN(avg_window_backward)(dy, &sums, win.h0 % sums.ring, &win, images->block);
        }
    }
    ELEM_FN(pool_sums_reach)(&sums, dx, images->h, images->h);
}

/* --- forward, averages ---------------------------------------------------- */

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
