/*
 * kernels_transpose.h - rows become columns, a square of vectors at a time; a template, see vec.h.
 *
 * Interleaving the first half of the rows with the second half moves the top bit of an element's
 * row number to the bottom of its column number. Done as often as a row number has bits, this
 * transposes the square.
 *
 * So many rows, of which each gives a cache line at a time, are more streams than the processor
 * reads ahead by itself: each square asks for the one below it. It comes to the second-level cache,
 * since a band of squares is more than fits the first.
 */
#if VEC_LANES == 16
#define TRANSPOSE_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define TRANSPOSE_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VEC_LANES == 8
#define TRANSPOSE_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define TRANSPOSE_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define TRANSPOSE_LOW 0, 4, 1, 5
#define TRANSPOSE_HIGH 2, 6, 3, 7
#endif

VEC_INLINE void transpose_step(const vec *from, vec *to)
{
    for (int i = 0; i < VEC_LANES / 2; i++) {
        to[2 * i] = __builtin_shufflevector(from[i], from[i + VEC_LANES / 2], TRANSPOSE_LOW);
        to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + VEC_LANES / 2], TRANSPOSE_HIGH);
    }
}

/* In v; w is as large. */
VEC_INLINE void transpose_square(vec *v, vec *w)
{
    transpose_step(v, w);
    transpose_step(w, v);
#if VEC_LANES >= 8
    transpose_step(v, w);
#if VEC_LANES == 16
    transpose_step(w, v);
#else
    memcpy(v, w, sizeof(vec) * VEC_LANES);
#endif
#endif
}

VEC_FN void transpose(float *to, int64_t ld, const float *from, int64_t stride, int64_t rows,
                      int64_t cols, float scale)
{
    for (int64_t i = 0; i < rows; i += VEC_LANES) {
        int64_t n_i = rows - i < VEC_LANES ? rows - i : VEC_LANES;

        for (int64_t j = 0; j < cols; j += VEC_LANES) {
            int64_t n_j = cols - j < VEC_LANES ? cols - j : VEC_LANES;
            vec v[VEC_LANES] = {{0}}, w[VEC_LANES];

            if (n_i == VEC_LANES && n_j == VEC_LANES) {
                for (int x = 0; x < VEC_LANES; x++)
                    v[x] = vec_load(from + (i + x) * stride + j);
                for (int x = 0; x < VEC_LANES && i + 2 * VEC_LANES <= rows; x++)
                    __builtin_prefetch(from + (i + VEC_LANES + x) * stride + j, 0, 2);
                transpose_square(v, w);
                for (int y = 0; y < VEC_LANES; y++)
                    vec_store(to + (j + y) * ld + i, v[y] * scale);
                continue;
            }
            for (int64_t y = 0; y < n_j; y++) {
                for (int64_t x = 0; x < n_i; x++)
                    to[(j + y) * ld + i + x] = from[(i + x) * stride + j + y] * scale;
            }
        }
    }
}

#undef TRANSPOSE_LOW
#undef TRANSPOSE_HIGH
