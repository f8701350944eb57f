/*
 * kernels_sums.h - sums and maxima; a template, see vec.h.
 *
 * Sums are kept in f64, in TRII_SUM_LANES lanes, as many in every instruction set, so all of them
 * give the same bits. Of plain values four are first added in f32, as a tree: widening each costs
 * more than reading it, and the roundings of neighbours do not pile up.
 */

typedef double vec_d __attribute__((vector_size(4 * VEC_LANES)));
typedef float vec_half __attribute__((vector_size(2 * VEC_LANES)));

#define WIDE_LANES (VEC_LANES / 2)
#define SUM_VECS (TRII_SUM_LANES / WIDE_LANES)

VEC_INLINE vec_half vec_load_half(const float *p)
{
    vec_half v;

    memcpy(&v, p, sizeof(v));
    return v;
}

VEC_INLINE vec_d vec_load_wide(const float *p)
{
    return __builtin_convertvector(vec_load_half(p), vec_d);
}

VEC_INLINE vec_d vec_load_d(const double *p)
{
    vec_d v;

    memcpy(&v, p, sizeof(v));
    return v;
}

VEC_INLINE void vec_store_d(double *p, vec_d v)
{
    memcpy(p, &v, sizeof(v));
}

/* What is added up. */
typedef enum sum_term { SUM_VALUE, SUM_PRODUCT, SUM_SQUARED_DIFFERENCE } sum_term;

VEC_INLINE vec_d sum_of(sum_term term, const float *a, const float *b)
{
    vec_d x = vec_load_wide(a), y;

    if (term == SUM_VALUE)
        return x;
    y = vec_load_wide(b);
    if (term == SUM_PRODUCT)
        return x * y;
    return (x - y) * (x - y);
}

/* The first `few` < WIDE_LANES elements: zeros behind them add nothing. */
VEC_INLINE vec_d sum_of_few(sum_term term, const float *a, const float *b, int64_t few)
{
    float x[WIDE_LANES] = {0}, y[WIDE_LANES] = {0};

    vec_copy_few(x, a, few);
    if (term != SUM_VALUE)
        vec_copy_few(y, b, few);
    return sum_of(term, x, y);
}

/* lanes[i % TRII_SUM_LANES] += term of a[r * stride + i], b alike, i < n, row after row. */
VEC_INLINE void sum_rows_of(sum_term term, const float *a, const float *b, int64_t rows,
                            int64_t stride, int64_t n, double *lanes)
{
    vec_d s[SUM_VECS];

    for (int v = 0; v < SUM_VECS; v++)
        s[v] = vec_load_d(lanes + v * WIDE_LANES);
    for (int64_t r = 0; r < rows; r++, a += stride) {
        int64_t i = 0;

        for (; i + TRII_SUM_LANES <= n; i += TRII_SUM_LANES) {
            for (int v = 0; v < SUM_VECS; v++)
                s[v] += sum_of(term, a + i + v * WIDE_LANES, b + i + v * WIDE_LANES);
        }
        for (int v = 0; v < SUM_VECS && i < n; v++, i += WIDE_LANES)
            s[v] += n - i < WIDE_LANES ? sum_of_few(term, a + i, b + i, n - i)
                                       : sum_of(term, a + i, b + i);
    }
    for (int v = 0; v < SUM_VECS; v++)
        vec_store_d(lanes + v * WIDE_LANES, s[v]);
}

/* The same of single values, after rounds of four elements for each lane. */
VEC_FN void add_values(const float *x, int64_t rows, int64_t stride, int64_t n, double *lanes)
{
    enum { L = TRII_SUM_LANES };
    int64_t rounds = n / (4 * L) * 4 * L;

    if (rounds > 0) {
        vec_d s[SUM_VECS];
        const float *row = x;

        for (int v = 0; v < SUM_VECS; v++)
            s[v] = vec_load_d(lanes + v * WIDE_LANES);
        for (int64_t r = 0; r < rows; r++, row += stride) {
            for (int64_t i = 0; i < rounds; i += 4 * L) {
                for (int v = 0; v < L / VEC_LANES; v++) {
                    const float *p = row + i + v * VEC_LANES;
                    vec four = (vec_load(p) + vec_load(p + L)) +
                               (vec_load(p + 2 * L) + vec_load(p + 3 * L));
                    vec_half half[2];

                    memcpy(half, &four, sizeof(four));
                    s[2 * v] += __builtin_convertvector(half[0], vec_d);
                    s[2 * v + 1] += __builtin_convertvector(half[1], vec_d);
                }
            }
        }
        for (int v = 0; v < SUM_VECS; v++)
            vec_store_d(lanes + v * WIDE_LANES, s[v]);
    }
    if (rounds < n)
        sum_rows_of(SUM_VALUE, x + rounds, x + rounds, rows, stride, n - rounds, lanes);
}

VEC_FN void add_products(const float *a, const float *b, int64_t n, double *lanes)
{
    sum_rows_of(SUM_PRODUCT, a, b, 1, 0, n, lanes);
}

VEC_FN void add_squared_differences(const float *a, const float *b, int64_t n, double *lanes)
{
    sum_rows_of(SUM_SQUARED_DIFFERENCE, a, b, 1, 0, n, lanes);
}

/* Four rows at a time as a tree in f32, then those below them in order. */
VEC_FN void add_rows(const float *x, int64_t rows, int64_t stride, int64_t cols, double *sums)
{
    int64_t r = 0;

    for (; r + 4 <= rows; r += 4, x += 4 * stride) {
        int64_t j = 0;

        for (; j + WIDE_LANES <= cols; j += WIDE_LANES) {
            vec_half four = (vec_load_half(x + j) + vec_load_half(x + stride + j)) +
                            (vec_load_half(x + 2 * stride + j) + vec_load_half(x + 3 * stride + j));

            vec_store_d(sums + j, vec_load_d(sums + j) + __builtin_convertvector(four, vec_d));
        }
        for (; j < cols; j++)
            sums[j] += (double)((x[j] + x[stride + j]) + (x[2 * stride + j] + x[3 * stride + j]));
    }
    for (; r < rows; r++, x += stride) {
        for (int64_t j = 0; j < cols; j++)
            sums[j] += (double)x[j];
    }
}

VEC_FN float max(const float *x, size_t n)
{
    float best = x[0];
    bool nan = false;
    size_t i = 0;

    if (n >= VEC_LANES) {
        vec b0 = vec_load(x), b1 = b0;
        vec_i nans = b0 != b0;

        for (; i + (size_t)2 * VEC_LANES <= n; i += (size_t)2 * VEC_LANES) {
            vec v0 = vec_load(x + i), v1 = vec_load(x + i + VEC_LANES);

            b0 = vec_select(v0 > b0, v0, b0);
            b1 = vec_select(v1 > b1, v1, b1);
            nans |= (v0 != v0) | (v1 != v1);
        }
        b0 = vec_select(b1 > b0, b1, b0);
        for (int l = 0; l < VEC_LANES; l++) {
            best = b0[l] > best ? b0[l] : best;
            nan = nan || nans[l] != 0;
        }
    }
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
        nan = nan || x[i] != x[i];
    }
    return nan ? NAN : best;
}
