/*
 * kernels_gemm.h - matrix products that are too small for a library call: microseconds count, not
 * the last percent of the peak; a template, see vec.h.
 *
 * Columns go in panels of one or two vectors. A panel of b is packed (zero-padded) unless its rows
 * are contiguous and full; rows of c go in groups of GEMM_ROWS, whose sums stay in registers over
 * all of k.
 */
#if VEC_LANES == 16
#define GEMM_ROWS 8
#else
#define GEMM_ROWS 4
#endif

/* rows and vectors are constants in every call. */
/* NOLINTNEXTLINE(readability-function-size): its arguments are registers */
VEC_INLINE void gemm_tile(const trii_gemm_args *args, const float *a, const float *b, int64_t ldb,
                          const vec *bias, float *c, int64_t cols, int rows, int vectors)
{
    const bool full = cols == (int64_t)vectors * VEC_LANES;
    const int64_t last = cols - (vectors - 1) * VEC_LANES; /* only the last vector is cut */
    vec acc[GEMM_ROWS][2];

    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vectors; v++)
            acc[r][v] = bias[v];
    }
    if (args->add) {
        for (int r = 0; r < rows; r++) {
            const float *before = c + r * args->ldc;

            if (vectors > 1)
                acc[r][0] = vec_load(before);
            before += (vectors - 1) * VEC_LANES;
            acc[r][vectors - 1] = full ? vec_load(before) : VEC_LOAD_FEW(before, last);
        }
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
                vec_store(to, acc[r][0]);
            VEC_STORE_FEW(to + (vectors - 1) * VEC_LANES, acc[r][vectors - 1], last);
        }
    }
}

/* `cols` elements, then zeros. */
VEC_INLINE void gemm_row(vec *row, const float *from, int64_t cols, int vectors)
{
    const int64_t last = cols - (vectors - 1) * VEC_LANES;

    if (vectors > 1)
        row[0] = vec_load(from);
    from += (vectors - 1) * VEC_LANES;
    row[vectors - 1] = last == VEC_LANES ? vec_load(from) : VEC_LOAD_FEW(from, last);
}

VEC_INLINE void gemm_panel(const trii_gemm_args *args, int64_t j, int64_t cols, const float *b,
                           int64_t ldb, int vectors)
{
    vec bias[2] = {0};
    int64_t i = 0;

    if (args->bias != NULL)
        gemm_row(bias, args->bias + j, cols, vectors);
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

VEC_INLINE void gemm_pack(const trii_gemm_args *args, int64_t j, int64_t cols, int vectors)
{
    const int64_t width = (int64_t)vectors * VEC_LANES;
    const float *b = args->b + j * args->b_col;
    float *d = args->pack;

    for (int64_t k = 0; k < args->k; k++, d += width, b += args->b_row) {
        vec row[2] = {0};

        if (args->b_col == 1)
            gemm_row(row, b, cols, vectors);
        for (int v = 0; v < vectors; v++)
            vec_store(d + v * VEC_LANES, row[v]);
        for (int64_t l = 0; args->b_col != 1 && l < cols; l++)
            d[l] = b[l * args->b_col];
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
            if (vectors == 2)
                gemm_pack(args, j, cols, 2);
            else
                gemm_pack(args, j, cols, 1);
            b = args->pack;
            ldb = width;
        }
        if (vectors == 2)
            gemm_panel(args, j, cols, b, ldb, 2);
        else
            gemm_panel(args, j, cols, b, ldb, 1);
    }
}
