/*
 * kernels_sums.h - sums and maxima; a template, see vec.h.
 *
 * Sums are kept in f64, in TRII_SUM_LANES lanes, as many in every instruction set, so all of them
 * give the same bits. Of plain values four are first added in f32, as a tree: widening each would
 * cost more than reading it, and over so few the roundings do not pile up.
 */

typedef double vec_d __attribute__((vector_size(4 * VEC_LANES)));
typedef float vec_half __attribute__((vector_size(2 * VEC_LANES)));

#define WIDE_LANES (VEC_LANES / 2)
#define SUM_VECS (TRII_SUM_LANES / WIDE_LANES)
#define COLUMN_VECS 8

VEC_INLINE vec_half vec_load_half(const float *p)
{
    vec_half v;

    memcpy(&v, p, sizeof(v));
    return v;
}

VEC_INLINE vec_d vec_load_wide(const float *p)
{
    return VEC_WIDEN(vec_load_half(p));
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

/* The terms that are added up. */
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

/* The first `few` < WIDE_LANES elements, with zeros after them, which add nothing. */
VEC_INLINE vec_d sum_of_few(sum_term term, const float *a, const float *b, int64_t few)
{
    vec_d x = VEC_WIDEN(VEC_LOAD_HALF_FEW(a, few)), y;

    if (term == SUM_VALUE)
        return x;
    y = VEC_WIDEN(VEC_LOAD_HALF_FEW(b, few));
    if (term == SUM_PRODUCT)
        return x * y;
    return (x - y) * (x - y);
}

/* s[i % TRII_SUM_LANES] += term of a[i] and b[i], i < n. */
VEC_INLINE void sum_row_of(sum_term term, const float *a, const float *b, int64_t n, vec_d *s)
{
    int64_t i = 0;

    for (; i + TRII_SUM_LANES <= n; i += TRII_SUM_LANES) {
        for (int v = 0; v < SUM_VECS; v++)
            s[v] += sum_of(term, a + i + v * WIDE_LANES, b + i + v * WIDE_LANES);
    }
    for (int v = 0; v < SUM_VECS && i < n; v++, i += WIDE_LANES)
        s[v] +=
            n - i < WIDE_LANES ? sum_of_few(term, a + i, b + i, n - i) : sum_of(term, a + i, b + i);
}

#define SUM_ROUND (4 * TRII_SUM_LANES)

/* Whole rounds of four values for each lane. */
VEC_INLINE void sum_rounds(const float *x, int64_t n, vec_d *s)
{
    enum { L = TRII_SUM_LANES };

    for (int64_t i = 0; i < n; i += SUM_ROUND) {
        for (int v = 0; v < L / VEC_LANES; v++) {
            const float *p = x + i + v * VEC_LANES;
            vec four =
                (vec_load(p) + vec_load(p + L)) + (vec_load(p + 2 * L) + vec_load(p + 3 * L));
            vec_half half[2];

            memcpy(half, &four, sizeof(four));
            s[2 * v] += VEC_WIDEN(half[0]);
            s[2 * v + 1] += VEC_WIDEN(half[1]);
        }
    }
}

/* As trii_queues_total: lanes that are half of them apart are added, until one is left. Vectors
 * from `vecs` on, a power of two, hold zeros. */
VEC_INLINE double sum_lanes(vec_d *s, int vecs)
{
    for (int half = vecs / 2; half > 0; half /= 2) {
        for (int v = 0; v < half; v++)
            s[v] += s[v + half];
    }
#if VEC_LANES == 16
    typedef double vec_d4 __attribute__((vector_size(32)));
    vec_d4 four = __builtin_shufflevector(s[0], s[0], 0, 1, 2, 3) +
                  __builtin_shufflevector(s[0], s[0], 4, 5, 6, 7);
#elif VEC_LANES == 8
    vec_d four = s[0];
#endif
#if VEC_LANES > 4
    typedef double vec_d2 __attribute__((vector_size(16)));
    vec_d2 two =
        __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
#else
    vec_d two = s[0];
#endif
    return two[0] + two[1];
}

/* Whole rounds of all rows come before the remainders of all rows. */
VEC_FN void add_values(const float *x, int64_t rows, int64_t stride, int64_t n, double *lanes)
{
    int64_t rounds = n / SUM_ROUND * SUM_ROUND;
    vec_d s[SUM_VECS];

    for (int v = 0; v < SUM_VECS; v++)
        s[v] = vec_load_d(lanes + v * WIDE_LANES);
    for (int64_t r = 0; r < rows && rounds > 0; r++)
        sum_rounds(x + r * stride, rounds, s);
    for (int64_t r = 0; r < rows && rounds < n; r++) {
        const float *rest = x + r * stride + rounds;

        sum_row_of(SUM_VALUE, rest, rest, n - rounds, s);
    }
    for (int v = 0; v < SUM_VECS; v++)
        vec_store_d(lanes + v * WIDE_LANES, s[v]);
}

/* A vector of a row, or with few > 0 so many elements of it. */
VEC_INLINE vec_half load_part(const float *x, int64_t few)
{
    return few > 0 ? (vec_half)VEC_LOAD_HALF_FEW(x, few) : vec_load_half(x);
}

/* Rows that fill `vecs` vectors, the last of them only in part if few > 0. */
VEC_INLINE void short_totals(const float *x, int64_t rows, int64_t stride, int vecs, int64_t few,
                             double *totals)
{
    for (int64_t r = 0; r < rows; r++, x += stride) {
        vec_d s[SUM_VECS] = {0};

        for (int v = 0; v < vecs; v++)
            s[v] += VEC_WIDEN(load_part(x + v * WIDE_LANES, v == vecs - 1 ? few : 0));
        totals[r] = sum_lanes(s, vecs);
    }
}

/* Lanes stay in registers: in memory, each row would wait for the stores of the last. */
VEC_FN void row_totals(const float *x, int64_t rows, int64_t stride, int64_t n, double *totals)
{
    int64_t rounds = n / SUM_ROUND * SUM_ROUND, few = n % WIDE_LANES;

    if (n > 0 && n <= WIDE_LANES) {
        short_totals(x, rows, stride, 1, few, totals);
        return;
    }
    if (n > WIDE_LANES && n <= 2 * WIDE_LANES) {
        short_totals(x, rows, stride, 2, few, totals);
        return;
    }
    for (int64_t r = 0; r < rows; r++, x += stride) {
        vec_d s[SUM_VECS] = {0};

        sum_rounds(x, rounds, s);
        sum_row_of(SUM_VALUE, x + rounds, x + rounds, n - rounds, s);
        totals[r] = sum_lanes(s, SUM_VECS);
    }
}

VEC_FN double total_product(const float *a, const float *b, int64_t n)
{
    vec_d s[SUM_VECS] = {0};

    sum_row_of(SUM_PRODUCT, a, b, n, s);
    return sum_lanes(s, SUM_VECS);
}

VEC_FN double total_squared_difference(const float *a, const float *b, int64_t n)
{
    vec_d s[SUM_VECS] = {0};

    sum_row_of(SUM_SQUARED_DIFFERENCE, a, b, n, s);
    return sum_lanes(s, SUM_VECS);
}

/* `vecs` vectors of columns, or with few > 0 a part of one: four rows at a time as a tree in f32,
 * then the remaining rows in order. The sums stay in registers. */
VEC_INLINE void add_columns(const float *x, int64_t rows, int64_t stride, int vecs, int64_t few,
                            double *sums)
{
    vec_d s[COLUMN_VECS];
    int64_t r = 0;

    for (int v = 0; v < vecs; v++)
        s[v] = vec_load_d(sums + v * WIDE_LANES);
    for (; r + 4 <= rows; r += 4, x += 4 * stride) {
        for (int v = 0; v < vecs; v++) {
            const float *p = x + v * WIDE_LANES;
            vec_half four = (load_part(p, few) + load_part(p + stride, few)) +
                            (load_part(p + 2 * stride, few) + load_part(p + 3 * stride, few));

            s[v] += VEC_WIDEN(four);
        }
    }
    for (; r < rows; r++, x += stride) {
        for (int v = 0; v < vecs; v++)
            s[v] += VEC_WIDEN(load_part(x + v * WIDE_LANES, few));
    }
    for (int v = 0; v < vecs; v++)
        vec_store_d(sums + v * WIDE_LANES, s[v]);
}

VEC_FN void add_rows(const float *x, int64_t rows, int64_t stride, int64_t cols, double *sums)
{
    int64_t j = 0;

    for (; j + COLUMN_VECS * WIDE_LANES <= cols; j += COLUMN_VECS * WIDE_LANES)
        add_columns(x + j, rows, stride, COLUMN_VECS, 0, sums + j);
    for (; j + WIDE_LANES <= cols; j += WIDE_LANES)
        add_columns(x + j, rows, stride, 1, 0, sums + j);
    if (j < cols) {
        double last[WIDE_LANES] = {0};

        memcpy(last, sums + j, (size_t)(cols - j) * sizeof(*last));
        add_columns(x + j, rows, stride, 1, cols - j, last);
        memcpy(sums + j, last, (size_t)(cols - j) * sizeof(*last));
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
