/*
 * kernels_rows.h - normalisation of single rows; a template, see vec.h. Sums are taken in f32 over
 * pieces and in f64 over those, so that long rows lose nothing.
 */
#define ROW_PIECE 2048

/* The sum of x - mean, or of its square. */
VEC_INLINE double row_sum(const float *x, int64_t n, float mean, bool square)
{
    double total = 0;

    for (int64_t at = 0; at < n; at += ROW_PIECE) {
        int64_t some = n - at < ROW_PIECE ? n - at : ROW_PIECE, i = 0;
        vec s0 = vec_set(0), s1 = vec_set(0);

        for (; i + 2 * VEC_LANES <= some; i += 2 * VEC_LANES) {
            vec v0 = vec_load(x + at + i) - mean, v1 = vec_load(x + at + i + VEC_LANES) - mean;

            s0 = square ? VEC_FMA(v0, v0, s0) : s0 + v0;
            s1 = square ? VEC_FMA(v1, v1, s1) : s1 + v1;
        }
        total += vec_sum(s0 + s1);
        for (; i < some; i++) {
            float v = x[at + i] - mean;

            total += square ? (double)v * (double)v : (double)v;
        }
    }
    return total;
}

VEC_FN void row_moments(const float *x, int64_t n, bool centred, double *mean, double *var)
{
    float shift = 0;

    *mean = centred ? row_sum(x, n, 0, false) / (double)n : 0;
    shift = (float)*mean;
    *var = row_sum(x, n, shift, true) / (double)n;
}

/* y = (x - mean) rstd w + b; w and b may be NULL */
VEC_FN void row_normalise(float *y, const float *x, const float *w, const float *b, int64_t n,
                          float mean, float rstd)
{
    int64_t i = 0;

    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec v = (vec_load(x + i) - mean) * rstd;

        v = w != NULL ? v * vec_load(w + i) : v;
        vec_store(y + i, b != NULL ? v + vec_load(b + i) : v);
    }
    for (; i < n; i++) {
        float v = (x[i] - mean) * rstd;

        v = w != NULL ? v * w[i] : v;
        y[i] = b != NULL ? v + b[i] : v;
    }
}

/* Adds up dy = g w and dy x^; dw += g x^, db += g, unless they are NULL. */
VEC_FN void row_gradient_sums(const trii_row_gradient *r, double *sum, double *product)
{
    *sum = *product = 0;
    for (int64_t at = 0; at < r->n; at += ROW_PIECE) {
        int64_t end = r->n - at < ROW_PIECE ? r->n : at + ROW_PIECE, i = at;
        vec s = vec_set(0), p = vec_set(0);

        for (; i + VEC_LANES <= end; i += VEC_LANES) {
            vec g = vec_load(r->g + i), xhat = (vec_load(r->x + i) - r->mean) * r->rstd;
            vec dy = r->w != NULL ? g * vec_load(r->w + i) : g;

            s += dy;
            p = VEC_FMA(dy, xhat, p);
            if (r->dw != NULL)
                vec_store(r->dw + i, VEC_FMA(g, xhat, vec_load(r->dw + i)));
            if (r->db != NULL)
                vec_store(r->db + i, vec_load(r->db + i) + g);
        }
        *sum += vec_sum(s);
        *product += vec_sum(p);
        for (; i < end; i++) {
            float g = r->g[i], xhat = (r->x[i] - r->mean) * r->rstd;
            float dy = r->w != NULL ? g * r->w[i] : g;

            *sum += (double)dy;
            *product += (double)dy * (double)xhat;
            if (r->dw != NULL)
                r->dw[i] += g * xhat;
            if (r->db != NULL)
                r->db[i] += g;
        }
    }
}

/* dx = rstd (g w - sum - x^ product) */
VEC_FN void row_gradient(const trii_row_gradient *r, float sum, float product)
{
    int64_t i = 0;

    for (; i + VEC_LANES <= r->n; i += VEC_LANES) {
        vec g = vec_load(r->g + i), xhat = (vec_load(r->x + i) - r->mean) * r->rstd;
        vec dy = r->w != NULL ? g * vec_load(r->w + i) : g;

        vec_store(r->dx + i, (dy - sum - xhat * product) * r->rstd);
    }
    for (; i < r->n; i++) {
        float xhat = (r->x[i] - r->mean) * r->rstd;
        float dy = r->w != NULL ? r->g[i] * r->w[i] : r->g[i];

        r->dx[i] = (dy - sum - xhat * product) * r->rstd;
    }
}
