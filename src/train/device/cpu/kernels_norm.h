/*
 * kernels_norm.h - normalisation per channel; a template over the instruction set and the element
 * type, see vec.h and kernels_images.h.
 */

/* Per lane sums of (x - shift) and its square over all images, in double. */
VEC_INLINE void ELEM_FN(moments_pass)(const ELEM *x, const norm_view *view, vec shift, double *s,
                                      double *q)
{
    vec s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0};
    int64_t run = 0;

    for (int64_t n = 0; n < view->n; n++) {
        const ELEM *image = x + n * view->stride;
        int64_t i = 0;

        while (i < view->count) {
            int64_t end = view->count - i > SUM_RUN ? i + SUM_RUN : view->count;

            run += end - i;
            for (; i + 2 <= end; i += 2) {
                vec a = ELEM_LOAD(image + i * view->step) - shift;
                vec b = ELEM_LOAD(image + (i + 1) * view->step) - shift;

                s0 += a;
                s1 += b;
                q0 += a * a;
                q1 += b * b;
            }
            if (i < end) {
                vec a = ELEM_LOAD(image + i * view->step) - shift;

                s0 += a;
                q0 += a * a;
                i++;
            }
            if (run >= SUM_RUN || (n == view->n - 1 && i == view->count)) {
                s0 += s1;
                q0 += q1;
                for (int l = 0; l < VEC_LANES; l++) {
                    s[l] += (double)s0[l];
                    q[l] += (double)q0[l];
                }
                s0 = s1 = q0 = q1 = (vec){0};
                run = 0;
            }
        }
        for (int64_t j = 0; j < view->tail; j++) {
            double d = (double)(ELEM_GET(image[view->count * view->step + j]) - shift[0]);

            s[0] += d;
            q[0] += d * d;
        }
    }
}

/* A value near the mean, so that the difference of squares loses no digits: the mean over the first
 * image, per lane (plain: of all lanes). */
VEC_INLINE vec ELEM_FN(moments_shift)(const ELEM *x, const norm_view *view)
{
    vec s = {0};
    float total = 0;

    for (int64_t i = 0; i < view->first; i++)
        s += ELEM_LOAD(x + i * view->step);
    if (!view->plain)
        return s / (float)view->first;
    for (int64_t j = 0; j < view->tail; j++)
        total += ELEM_GET(x[view->count * view->step + j]);
    return vec_set(((float)vec_sum(s) + total) / (float)(view->count * VEC_LANES + view->tail));
}

VEC_FN void ELEM_FN(moments_plain_c)(const ELEM *x, const trii_images *images, float *mean,
                                     float *var)
{
    int64_t hw = images->h * images->w, block = images->block;
    double m = (double)(images->n * hw);

    for (int64_t l = 0; l < block; l++) {
        double s = 0, q = 0, shift = (double)ELEM_GET(x[l]);

        for (int64_t n = 0; n < images->n; n++) {
            for (int64_t i = 0; i < hw; i++) {
                double d = (double)ELEM_GET(x[n * images->c * hw + i * images->step + l]) - shift;

                s += d;
                q += d * d;
            }
        }
        mean[l] = (float)(shift + s / m);
        var[l] = (float)(q / m - s / m * (s / m));
    }
}

VEC_FN void ELEM_FN(moments)(const void *unit, const trii_images *images, float *mean, float *var)
{
    const ELEM *x = unit;
    norm_view view = norm_view_of(images);
    int passes = norm_passes(images);
    double m = (double)(images->n * images->h * images->w);

    if (passes == 0) {
        ELEM_FN(moments_plain_c)(x, images, mean, var);
        return;
    }
    for (int p = 0; p < passes; p++) {
        double s[VEC_LANES] = {0}, q[VEC_LANES] = {0};
        vec shift = ELEM_FN(moments_shift)(x + p * VEC_LANES, &view);
        int lanes = view.plain ? 1 : VEC_LANES;

        ELEM_FN(moments_pass)(x + p * VEC_LANES, &view, shift, s, q);
        if (view.plain) {
            s[0] = lanes_total(s);
            q[0] = lanes_total(q);
        }
        for (int l = 0; l < lanes; l++) {
            double d = s[l] / m, v = q[l] / m - d * d;

            mean[p * VEC_LANES + l] = (float)((double)shift[l] + d);
            var[p * VEC_LANES + l] = (float)(v > 0 ? v : v != v ? v : 0);
        }
    }
}

/* --- forward -------------------------------------------------------------- */

VEC_INLINE void ELEM_FN(norm_scalar)(const trii_norm_args *args, int64_t i, float alpha, float beta)
{
    float y = ELEM_GET(ELEM_CONST(args->x)[i]) * alpha + beta;

    if (args->residual != NULL)
        y += ELEM_GET(ELEM_CONST(args->residual)[i]);
    ELEM_AT(args->y)[i] = ELEM_PUT(args->relu && y < 0 ? 0.0f : y);
}

/* The flags are constants in every call, so that the loop has no branches. */
VEC_INLINE void ELEM_FN(norm_pass)(const trii_norm_args *shared, const norm_view *view,
                                   int64_t offset, vec alpha, vec beta, bool residual, bool relu)
{
    const trii_norm_args own = *shared, *args = &own; /* a local copy, which no store can change */
    for (int64_t n = 0; n < view->n; n++) {
        int64_t at = n * view->stride + offset;

        for (int64_t i = 0; i < view->count; i++, at += view->step) {
            vec y = ELEM_LOAD(ELEM_CONST(args->x) + at) * alpha + beta;

            if (residual)
                y += ELEM_LOAD(ELEM_CONST(args->residual) + at);
            if (relu)
                y = vec_select(y < 0, vec_set(0), y);
            ELEM_STORE(ELEM_AT(args->y) + at, y);
        }
        for (int64_t j = 0; j < view->tail; j++)
            ELEM_FN(norm_scalar)(args, at + j, alpha[0], beta[0]);
    }
}

VEC_FN void ELEM_FN(norm_plain_c)(const trii_norm_args *args, const trii_images *images)
{
    int64_t hw = images->h * images->w;

    for (int64_t n = 0; n < images->n; n++) {
        for (int64_t i = 0; i < hw; i++) {
            for (int64_t l = 0; l < images->block; l++)
                ELEM_FN(norm_scalar)
            (args, n * images->c * hw + i * images->step + l, args->alpha[l], args->beta[l]);
        }
    }
}

VEC_FN void ELEM_FN(norm)(const trii_norm_args *args, const trii_images *images)
{
    norm_view view = norm_view_of(images);
    int passes = norm_passes(images);

    if (passes == 0)
        ELEM_FN(norm_plain_c)(args, images);
    for (int p = 0; p < passes; p++) {
        vec alpha = norm_lanes(args->alpha, &view, p), beta = norm_lanes(args->beta, &view, p);
        int64_t offset = p * VEC_LANES;

        if (args->residual != NULL && args->relu)
            ELEM_FN(norm_pass)(args, &view, offset, alpha, beta, true, true);
        else if (args->residual != NULL)
            ELEM_FN(norm_pass)(args, &view, offset, alpha, beta, true, false);
        else if (args->relu)
            ELEM_FN(norm_pass)(args, &view, offset, alpha, beta, false, true);
        else
            ELEM_FN(norm_pass)(args, &view, offset, alpha, beta, false, false);
    }
}

/* --- backward ------------------------------------------------------------- */

/* dy after the mask, at one element. */
VEC_INLINE float ELEM_FN(masked_scalar)(const trii_norm_backward_args *args, int64_t i, float alpha,
                                        float beta)
{
    if (args->mask == TRII_NORM_MASK_X)
        return ELEM_GET(ELEM_CONST(args->x)[i]) * alpha + beta <= 0
                   ? 0
                   : ELEM_GET(ELEM_CONST(args->dy)[i]);
    if (args->mask == TRII_NORM_MASK_Y)
        return ELEM_GET(ELEM_CONST(args->y)[i]) <= 0 ? 0 : ELEM_GET(ELEM_CONST(args->dy)[i]);
    return ELEM_GET(ELEM_CONST(args->dy)[i]);
}

VEC_INLINE vec ELEM_FN(masked_vector)(const trii_norm_backward_args *args, int64_t at, vec x,
                                      vec alpha, vec beta, trii_norm_mask mask)
{
    vec dy = ELEM_LOAD(ELEM_CONST(args->dy) + at);

    if (mask == TRII_NORM_MASK_X)
        return vec_select(x * alpha + beta <= 0, vec_set(0), dy);
    if (mask == TRII_NORM_MASK_Y)
        return vec_select(ELEM_LOAD(ELEM_CONST(args->y) + at) <= 0, vec_set(0), dy);
    return dy;
}

VEC_INLINE void ELEM_FN(sums_pass)(const trii_norm_backward_args *shared, const norm_view *view,
                                   int64_t offset, const norm_lane_args *lane, trii_norm_mask mask,
                                   bool store, double *s, double *q)
{
    /* a local copy, which no store can change */
    const trii_norm_backward_args own = *shared, *args = &own;
    vec s0 = {0}, q0 = {0}, s1 = {0}, q1 = {0};
    vec alpha = lane->alpha, beta = lane->beta, mean = lane->mean;
    int64_t run = 0;

    for (int64_t n = 0; n < view->n; n++) {
        int64_t at = n * view->stride + offset, i = 0;

        while (i < view->count) {
            int64_t end = view->count - i > SUM_RUN ? i + SUM_RUN : view->count;

            run += end - i;
            for (; i + 2 <= end; i += 2, at += 2 * view->step) {
                int64_t at1 = at + view->step;
                vec x0 = ELEM_LOAD(ELEM_CONST(args->x) + at),
                    x1 = ELEM_LOAD(ELEM_CONST(args->x) + at1);
                vec g0 = ELEM_FN(masked_vector)(args, at, x0, alpha, beta, mask);
                vec g1 = ELEM_FN(masked_vector)(args, at1, x1, alpha, beta, mask);

                if (store) {
                    ELEM_STORE(ELEM_AT(args->masked) + at, g0);
                    ELEM_STORE(ELEM_AT(args->masked) + at1, g1);
                }
                s0 += g0;
                s1 += g1;
                q0 += g0 * (x0 - mean);
                q1 += g1 * (x1 - mean);
            }
            if (i < end) {
                vec x0 = ELEM_LOAD(ELEM_CONST(args->x) + at);
                vec g0 = ELEM_FN(masked_vector)(args, at, x0, alpha, beta, mask);

                if (store)
                    ELEM_STORE(ELEM_AT(args->masked) + at, g0);
                s0 += g0;
                q0 += g0 * (x0 - mean);
                i++;
                at += view->step;
            }
            if (run >= SUM_RUN || (n == view->n - 1 && i == view->count)) {
                s0 += s1;
                q0 += q1;
                for (int l = 0; l < VEC_LANES; l++) {
                    s[l] += (double)s0[l];
                    q[l] += (double)q0[l];
                }
                s0 = s1 = q0 = q1 = (vec){0};
                run = 0;
            }
        }
        for (int64_t j = 0; j < view->tail; j++) {
            float g = ELEM_FN(masked_scalar)(args, at + j, alpha[0], beta[0]);

            if (store)
                ELEM_AT(args->masked)[at + j] = ELEM_PUT(g);
            s[0] += (double)g;
            q[0] += (double)g * (double)(ELEM_GET(ELEM_CONST(args->x)[at + j]) - mean[0]);
        }
    }
}

VEC_FN void ELEM_FN(sums_plain_c)(const trii_norm_backward_args *args, const trii_images *images,
                                  double *sum_dy, double *sum_dy_x)
{
    int64_t hw = images->h * images->w, block = images->block;

    for (int64_t l = 0; l < block; l++)
        sum_dy[l] = sum_dy_x[l] = 0;
    for (int64_t n = 0; n < images->n; n++) {
        for (int64_t i = 0; i < hw * block; i++) {
            int64_t l = i % block, at = n * images->c * hw + i / block * images->step + l;
            float g = ELEM_FN(masked_scalar)(args, at, args->alpha[l], args->beta[l]);

            if (args->masked != NULL)
                ELEM_AT(args->masked)[at] = ELEM_PUT(g);
            sum_dy[l] += (double)g;
            sum_dy_x[l] += (double)g * (double)(ELEM_GET(ELEM_CONST(args->x)[at]) - args->mean[l]);
        }
    }
}

VEC_FN void ELEM_FN(norm_backward_sums)(const trii_norm_backward_args *args,
                                        const trii_images *images, double *sum_dy, double *sum_dy_x)
{
    norm_view view = norm_view_of(images);
    int passes = norm_passes(images);

    if (passes == 0)
        ELEM_FN(sums_plain_c)(args, images, sum_dy, sum_dy_x);
    for (int p = 0; p < passes; p++) {
        double s[VEC_LANES] = {0}, q[VEC_LANES] = {0};
        norm_lane_args lane = {.alpha = norm_lanes(args->alpha, &view, p),
                               .beta = norm_lanes(args->beta, &view, p),
                               .mean = norm_lanes(args->mean, &view, p)};
        int64_t offset = p * VEC_LANES;

        if (args->mask == TRII_NORM_MASK_X && args->masked == NULL)
            ELEM_FN(sums_pass)(args, &view, offset, &lane, TRII_NORM_MASK_X, false, s, q);
        else if (args->mask == TRII_NORM_MASK_X)
            ELEM_FN(sums_pass)(args, &view, offset, &lane, TRII_NORM_MASK_X, true, s, q);
        else if (args->mask == TRII_NORM_MASK_Y && args->masked == NULL)
            ELEM_FN(sums_pass)(args, &view, offset, &lane, TRII_NORM_MASK_Y, false, s, q);
        else if (args->mask == TRII_NORM_MASK_Y)
            ELEM_FN(sums_pass)(args, &view, offset, &lane, TRII_NORM_MASK_Y, true, s, q);
        else
            ELEM_FN(sums_pass)(args, &view, offset, &lane, TRII_NORM_MASK_NONE, false, s, q);
        if (view.plain) {
            sum_dy[0] = lanes_total(s);
            sum_dy_x[0] = lanes_total(q);
        } else {
            memcpy(sum_dy + p * VEC_LANES, s, sizeof(s));
            memcpy(sum_dy_x + p * VEC_LANES, q, sizeof(q));
        }
    }
}

VEC_INLINE void ELEM_FN(norm_backward_scalar)(const trii_norm_backward_args *args, int64_t at,
                                              int64_t l)
{
    float g = ELEM_FN(masked_scalar)(args, at, args->alpha[l], args->beta[l]);

    ELEM_AT(args->dx)
    [at] = ELEM_PUT(
        args->k_dy[l] *
        (g - args->k_mean[l] - (ELEM_GET(ELEM_CONST(args->x)[at]) - args->mean[l]) * args->k_x[l]));
}

VEC_INLINE void ELEM_FN(apply_pass)(const trii_norm_backward_args *shared, const norm_view *view,
                                    int64_t offset, const norm_lane_args *lane, trii_norm_mask mask)
{
    /* a local copy, which no store can change */
    const trii_norm_backward_args own = *shared, *args = &own;
    vec alpha = lane->alpha, beta = lane->beta, mean = lane->mean;
    vec k_dy = lane->k_dy, k_mean = lane->k_mean, k_x = lane->k_x;

    for (int64_t n = 0; n < view->n; n++) {
        int64_t at = n * view->stride + offset;

        for (int64_t i = 0; i < view->count; i++, at += view->step) {
            vec x = ELEM_LOAD(ELEM_CONST(args->x) + at);
            vec g = ELEM_FN(masked_vector)(args, at, x, alpha, beta, mask);

            ELEM_STORE(ELEM_AT(args->dx) + at, k_dy * (g - k_mean - (x - mean) * k_x));
        }
        for (int64_t j = 0; j < view->tail; j++)
            ELEM_FN(norm_backward_scalar)(args, at + j, 0);
    }
}

VEC_FN void ELEM_FN(norm_backward)(const trii_norm_backward_args *args, const trii_images *images)
{
    norm_view view = norm_view_of(images);
    int passes = norm_passes(images);

    for (int64_t n = 0; passes == 0 && n < images->n; n++) {
        for (int64_t i = 0; i < images->h * images->w * images->block; i++) {
            int64_t l = i % images->block;

            ELEM_FN(norm_backward_scalar)
            (args, n * images->c * images->h * images->w + i / images->block * images->step + l, l);
        }
    }
    for (int p = 0; p < passes; p++) {
        norm_lane_args lane = {.alpha = norm_lanes(args->alpha, &view, p),
                               .beta = norm_lanes(args->beta, &view, p),
                               .mean = norm_lanes(args->mean, &view, p),
                               .k_dy = norm_lanes(args->k_dy, &view, p),
                               .k_mean = norm_lanes(args->k_mean, &view, p),
                               .k_x = norm_lanes(args->k_x, &view, p)};
        int64_t offset = p * VEC_LANES;

        if (args->mask == TRII_NORM_MASK_X)
            ELEM_FN(apply_pass)(args, &view, offset, &lane, TRII_NORM_MASK_X);
        else if (args->mask == TRII_NORM_MASK_Y)
            ELEM_FN(apply_pass)(args, &view, offset, &lane, TRII_NORM_MASK_Y);
        else
            ELEM_FN(apply_pass)(args, &view, offset, &lane, TRII_NORM_MASK_NONE);
    }
}
