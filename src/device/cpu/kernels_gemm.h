/*
 * kernels_gemm.h - matrix products that are too small for a library call: microseconds count,
 * not the last percent of the peak; a template, see vec.h.
 *
 * Columns go in panels of one or two vectors. A panel of b is packed (zero-padded) unless its
 * rows lie contiguously and full; rows of c go in groups of GEMM_ROWS, whose sums stay in
 * registers over all of k.
 */
#if VEC_LANES == 16
#define GEMM_ROWS 8
#else
#define GEMM_ROWS 4
#endif

/* rows and vectors are constants in every call. */
/* NOLINTNEXTLINE(readability-function-size): its arguments are registers */
VEC_INLINE void gemm_tile(const trii_gemm_args *args, const float *a, const float *b, int64_t ldb,
                          const float *bias, float *c, int64_t cols, int rows, int vectors)
{
    const bool full = cols == (int64_t)vectors * VEC_LANES;
    vec acc[GEMM_ROWS][2];

    for (int r = 0; r < rows; r++) {
        float before[2 * VEC_LANES] = {0};
        const float *first = bias;

        if (args->add && full) {
            first = c + r * args->ldc;
        } else if (args->add) {
            vec_copy_few(before, c + r * args->ldc, cols);
            first = before;
        }
        for (int v = 0; v < vectors; v++)
            acc[r][v] = vec_load(first + v * VEC_LANES);
    }
    for (int64_t k = 0; k < args->k; k++) {
        vec b0 = vec_load(b + k * ldb);
        vec b1 = vectors > 1 ? vec_load(b + k * ldb + VEC_LANES) : b0;

        for (int r = 0; r < rows; r++) {
            vec x = vec_set(a[r * args->a_row + k * args->a_col]);

            acc[r][0] = VEC_FMA(x, b0, acc[r][0]);
            if (vectors > 1)
                acc[r][1] = VEC_FMA(x, b1, acc[r][1]);
        }
    }
    for (int r = 0; r < rows; r++) {
        if (full) {
            for (int v = 0; v < vectors; v++)
                vec_store(c + r * args->ldc + v * VEC_LANES, acc[r][v]);
        } else {
            float *to = c + r * args->ldc;

            if (vectors > 1)
                vec_store(to, acc[r][0]); /* only the last vector is cut */
            VEC_STORE_FEW(to + (vectors - 1) * VEC_LANES, acc[r][vectors - 1],
                          cols - (vectors - 1) * VEC_LANES);
        }
    }
}

VEC_INLINE void gemm_panel(const trii_gemm_args *args, int64_t j, int64_t cols, const float *b,
                           int64_t ldb, int vectors)
{
    float bias[2 * VEC_LANES] = {0};
    int64_t i = 0;

    if (args->bias != NULL)
        vec_copy_few(bias, args->bias + j, cols);
    for (; i + GEMM_ROWS <= args->m; i += GEMM_ROWS)
        gemm_tile(args, args->a + i * args->a_row, b, ldb, bias, args->c + i * args->ldc + j, cols,
                  GEMM_ROWS, vectors);
    for (; i + 2 <= args->m; i += 2)
        gemm_tile(args, args->a + i * args->a_row, b, ldb, bias, args->c + i * args->ldc + j, cols,
                  2, vectors);
    if (i < args->m)
        gemm_tile(args, args->a + i * args->a_row, b, ldb, bias, args->c + i * args->ldc + j, cols,
                  1, vectors);
}

VEC_FN void gemm_pack(const trii_gemm_args *args, int64_t j, int64_t cols, int64_t width)
{
    float *d = args->pack;

    for (int64_t k = 0; k < args->k; k++, d += width) {
        const float *b = args->b + k * args->b_row + j * args->b_col;
        int64_t l = 0;

        if (args->b_col == 1) {
            vec_copy_few(d, b, cols);
            l = cols;
        }
        for (; l < cols; l++)
            d[l] = b[l * args->b_col];
        for (; l < width; l++)
            d[l] = 0;
    }
}

VEC_FN void gemm(const trii_gemm_args *args)
{
    int64_t cols;

    for (int64_t j = 0; j < args->n && args->m > 0; j += cols) {
        int vectors = args->n - j > VEC_LANES ? 2 : 1;
        int64_t width = (int64_t)vectors * VEC_LANES;
        const float *b = args->b + j;
        int64_t ldb = args->b_row;

        cols = args->n - j < width ? args->n - j : width;
        if (args->b_col != 1 || cols < width) {
            gemm_pack(args, j, cols, width);
            b = args->pack;
            ldb = width;
        }
        if (vectors == 2)
            gemm_panel(args, j, cols, b, ldb, 2);
        else
            gemm_panel(args, j, cols, b, ldb, 1);
    }
}
