/*
 * kernels_elementwise.h - instructions of the element-wise interpreter; a template, see vec.h.
 */

/* The compiler vectorises the loops: d may equal x, y or z, so it is told that iterations are
 * independent. */
#if defined(__clang__)
#define VEC_LOOP _Pragma("clang loop vectorize(enable) interleave(enable)")
#else
#define VEC_LOOP _Pragma("GCC ivdep")
#endif

#define EW_KERNEL(name)                                                                            \
    VEC_FN void ew_##name(float *d, const float *x, const float *y, const float *z, size_t n,      \
                          const double *scalars)

/* From the formulas of elementwise.def: a = x[i], b = y[i], f0 = scalars[0] as f32. */
#define EW_ELEMENTS_A float a = x[i]
#define EW_ELEMENTS_AB float a = x[i], b = y[i]
#define EW_ELEMENTS_AB_INT EW_ELEMENTS_AB
#define EW_ELEMENTS_A_F EW_ELEMENTS_A
#define EW_ELEMENTS_AB_F EW_ELEMENTS_AB
#define EW_NUMBER_A (void)scalars
#define EW_NUMBER_AB EW_NUMBER_A
#define EW_NUMBER_AB_INT EW_NUMBER_A
#define EW_NUMBER_A_F float f0 = (float)scalars[0]
#define EW_NUMBER_AB_F EW_NUMBER_A_F
#define EW_LOOP(name, operands, formula)                                                           \
    EW_KERNEL(name)                                                                                \
    {                                                                                              \
        EW_NUMBER_##operands;                                                                      \
                                                                                                   \
        (void)y, (void)z;                                                                          \
        VEC_LOOP                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            EW_ELEMENTS_##operands;                                                                \
                                                                                                   \
            d[i] = (formula);                                                                      \
        }                                                                                          \
    }

/* The same on whole vectors, for functions that the compiler cannot vectorise. */
#define EW_COUNT_A 1
#define EW_COUNT_AB 2
#define EW_VECTOR(name, operands, formula)                                                         \
    VEC_INLINE vec of_##name(vec a, vec b)                                                         \
    {                                                                                              \
        (void)b;                                                                                   \
        return formula;                                                                            \
    }                                                                                              \
    EW_KERNEL(name)                                                                                \
    {                                                                                              \
        const int last = EW_COUNT_##operands - 1;                                                  \
        size_t i = 0;                                                                              \
                                                                                                   \
        (void)y, (void)z, (void)scalars;                                                           \
        for (; i + VEC_LANES <= n; i += VEC_LANES)                                                 \
            vec_store(d + i, of_##name(vec_load(x + i), vec_load((last == 1 ? y : x) + i)));       \
        if (i < n) {                                                                               \
            float rest[EW_COUNT_##operands][VEC_LANES] = {{0}};                                    \
                                                                                                   \
            memcpy(rest[0], x + i, (n - i) * sizeof(float));                                       \
            if (last == 1)                                                                         \
                memcpy(rest[last], y + i, (n - i) * sizeof(float));                                \
            vec_store(rest[0], of_##name(vec_load(rest[0]), vec_load(rest[last])));                \
            memcpy(d + i, rest[0], (n - i) * sizeof(float));                                       \
        }                                                                                          \
    }

EW_KERNEL(mse_loss_backward)
{
    double s = scalars[0];

    VEC_LOOP
    for (size_t i = 0; i < n; i++)
        d[i] = (float)((double)x[i] * s * ((double)y[i] - (double)z[i]));
}

EW_KERNEL(fill)
{
    float s = (float)scalars[0];

    (void)x, (void)y, (void)z;
    for (size_t i = 0; i < n; i++)
        d[i] = s;
}

VEC_INLINE vec vec_round_bf16(vec x)
{
    vec_u u = (vec_u)x, rounded = (u + (0x7fffu + (u >> 16 & 1u))) & 0xffff0000u;

    return vec_select(x != x, x, (vec)rounded);
}

VEC_INLINE vec vec_round_f16(vec x)
{
    return vec_from_f16(vec_to_f16(x));
}

VEC_INLINE vec vec_abs(vec x)
{
    return (vec)((vec_i)x & 0x7fffffff);
}

/* v * 2^k, where k is an integer from -126 to 128, or v and k are NaN. */
VEC_INLINE vec vec_scale(vec v, vec k)
{
#if defined(VEC_SCALE)
    return VEC_SCALE(v, k);
#else
    vec_i n = __builtin_convertvector(vec_select(k != k, vec_set(0), k), vec_i);

    /* in two factors: there is no 2^128 */
    return v * (vec)(((n >> 1) + 127) << 23) * (vec)(((n - (n >> 1)) + 127) << 23);
#endif
}

/* e^x by range reduction to [-ln2/2, ln2/2] and a polynomial (the classic one of Cephes);
 * 2 units in the last place; results below the smallest normal number become 0; NaN stays NaN. */
VEC_INLINE vec vec_exp(vec x)
{
    const vec most = vec_set(88.72284f), least = vec_set(-87.33655f);
    vec clamped = vec_select_less(most, x, most, x), k, r, y;

    clamped = vec_select_less(clamped, least, least, clamped);
    /* Rounds to the nearest integer by adding and subtracting 1.5 * 2^23. */
    k = (clamped * 1.44269504088896341f + 12582912.0f) - 12582912.0f;
    r = clamped - k * 0.693359375f;
    r = r - k * -2.12194440e-4f;
    y = vec_set(1.9875691500e-4f);
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = vec_scale(y * r * r + r + 1.0f, k);
    y = vec_select_less(most, x, vec_set(INFINITY), y);
    return vec_select_less(x, least, vec_set(0), y);
}

/* ln x, after Cephes. */
VEC_INLINE vec vec_log(vec x)
{
    vec_i tiny = x < 1.17549435e-38f;
    vec v = vec_select(tiny, x * 8388608.0f, x);
    vec_i bits = (vec_i)v;
    vec e = __builtin_convertvector(((bits >> 23) & 0xff) - 126, vec) -
            vec_select(tiny, vec_set(23), vec_set(0));
    vec m = (vec)((bits & 0x007fffff) | 0x3f000000); /* [0.5, 1) */
    vec_i low = m < 0.707106781186547524f;
    vec z, y;

    e = e - vec_select(low, vec_set(1), vec_set(0));
    m = m + vec_select(low, m, vec_set(0)) - 1.0f;
    z = m * m;
    y = vec_set(7.0376836292e-2f);
    y = y * m - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    y = y * m * z + e * -2.12194440e-4f - 0.5f * z;
    y = m + y + e * 0.693359375f;
    y = vec_select(x == 0, vec_set(-INFINITY), y);
    y = vec_select(x < 0, vec_set(NAN), y);
    y = vec_select(x == INFINITY, x, y);
    return vec_select(x != x, x, y);
}

VEC_INLINE vec vec_sigmoid(vec x)
{
    return 1.0f / (1.0f + vec_exp(-x));
}

VEC_INLINE vec vec_tanh(vec x)
{
    vec a = vec_abs(x), z = x * x;
    vec large = 1.0f - 2.0f / (vec_exp(a + a) + 1.0f);
    vec small = vec_set(-5.70498872745e-3f);

    small = small * z + 2.06390887954e-2f;
    small = small * z - 5.37397155531e-2f;
    small = small * z + 1.33314422036e-1f;
    small = small * z - 3.33332819422e-1f;
    small = small * z * x + x;
    large = vec_select(a < 0.625f, small, large);
    large = (vec)((vec_i)large | ((vec_i)x & INT32_MIN)); /* of -0 too */
    return vec_select(x != x, x, large);
}

/* erf, after Cephes: a polynomial below 1, 1 - e^(-x^2) * rest above. */
VEC_INLINE vec vec_erf(vec x)
{
    vec a = vec_abs(x), z = x * x;
    vec q = 1.0f / vec_select(a < 1.0f, vec_set(1), a), y = q * q;
    vec t = vec_set(7.853861353153693e-5f), p = vec_set(2.326819970068386e-2f);
    vec r = vec_set(-1.047766399936249e+1f), large;

    t = t * z - 8.010193625184903e-4f;
    t = t * z + 5.188327685732524e-3f;
    t = t * z - 2.685381193529856e-2f;
    t = t * z + 1.128358514861418e-1f;
    t = t * z - 3.761262582423300e-1f;
    t = (t * z + 1.128379165726710e+0f) * x;
    p = p * y - 1.387039388740657e-1f;
    p = p * y + 3.687424674597105e-1f;
    p = p * y - 5.824733027278666e-1f;
    p = p * y + 6.210004621745983e-1f;
    p = p * y - 4.944515323274145e-1f;
    p = p * y + 3.404879937665872e-1f;
    p = p * y - 2.741127028184656e-1f;
    p = p * y + 5.638259427386472e-1f;
    r = r * y + 1.297719955372516e+1f;
    r = r * y - 7.495518717768503e+0f;
    r = r * y + 2.921019019210786e+0f;
    r = r * y - 1.015265279202700e+0f;
    r = r * y + 4.218463358204948e-1f;
    r = r * y - 2.820767439740514e-1f;
    r = r * y + 5.641895067754075e-1f;
    large = 1.0f - vec_exp(-z) * q * vec_select(a < 2.0f, p, r);
    large = (vec)((vec_i)large | ((vec_i)x & INT32_MIN));
    return vec_select(a < 1.0f, t, vec_select(x != x, x, large));
}

/* The sigmoid of 2 u, u the argument of tanh in that form of gelu. */
VEC_INLINE vec vec_gelu_gate(vec x)
{
    return vec_sigmoid(x * (1.5957691216057308f + 0.071354816272560f * (x * x)));
}

EW_LOOP(copy, A, a)
EW_VECTOR(round_bf16, A, vec_round_bf16(a))
EW_VECTOR(round_f16, A, vec_round_f16(a))
#define TRII_EW_LOOP EW_LOOP
#define TRII_EW_VECTOR EW_VECTOR
#include "train/graph/step/elementwise.def"
