/*
 * kernels_elementwise.h - instructions of the element-wise interpreter; a template, see vec.h.
 */

/* d[i] = EXPR of x = a[i], y = b[i], s = s[0] as f32. The compiler vectorises the loops: d may
 * equal a, b or c, so it is told that iterations are independent. */
#if defined(__clang__)
#define VEC_LOOP _Pragma("clang loop vectorize(enable) interleave(enable)")
#else
#define VEC_LOOP _Pragma("GCC ivdep")
#endif

#define EW_UNARY(name, expr)                                                                       \
    VEC_FN void ew_##name(float *d, const float *a, const float *b, const float *c, size_t n,      \
                          const double *scalars)                                                   \
    {                                                                                              \
        (void)b, (void)c, (void)scalars;                                                           \
        VEC_LOOP                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            float x = a[i];                                                                        \
            d[i] = (expr);                                                                         \
        }                                                                                          \
    }
#define EW_SCALAR(name, expr)                                                                      \
    VEC_FN void ew_##name(float *d, const float *a, const float *b, const float *c, size_t n,      \
                          const double *scalars)                                                   \
    {                                                                                              \
        float s = (float)scalars[0];                                                               \
                                                                                                   \
        (void)b, (void)c;                                                                          \
        VEC_LOOP                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            float x = a[i];                                                                        \
            d[i] = (expr);                                                                         \
        }                                                                                          \
    }
#define EW_BINARY(name, expr)                                                                      \
    VEC_FN void ew_##name(float *d, const float *a, const float *b, const float *c, size_t n,      \
                          const double *scalars)                                                   \
    {                                                                                              \
        (void)c, (void)scalars;                                                                    \
        VEC_LOOP                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            float x = a[i], y = b[i];                                                              \
            d[i] = (expr);                                                                         \
        }                                                                                          \
    }
/* The same on whole vectors, for functions that the compiler cannot vectorise. */
#define EW_VECTOR(name, function)                                                                  \
    VEC_FN void ew_##name(float *d, const float *a, const float *b, const float *c, size_t n,      \
                          const double *scalars)                                                   \
    {                                                                                              \
        size_t i = 0;                                                                              \
                                                                                                   \
        (void)b, (void)c, (void)scalars;                                                           \
        for (; i + VEC_LANES <= n; i += VEC_LANES)                                                 \
            vec_store(d + i, function(vec_load(a + i)));                                           \
        if (i < n) {                                                                               \
            float rest[VEC_LANES] = {0};                                                           \
                                                                                                   \
            memcpy(rest, a + i, (n - i) * sizeof(float));                                          \
            vec_store(rest, function(vec_load(rest)));                                             \
            memcpy(d + i, rest, (n - i) * sizeof(float));                                          \
        }                                                                                          \
    }

#define EW_VECTOR2(name, function)                                                                 \
    VEC_FN void ew_##name(float *d, const float *a, const float *b, const float *c, size_t n,      \
                          const double *scalars)                                                   \
    {                                                                                              \
        size_t i = 0;                                                                              \
                                                                                                   \
        (void)c, (void)scalars;                                                                    \
        for (; i + VEC_LANES <= n; i += VEC_LANES)                                                 \
            vec_store(d + i, function(vec_load(a + i), vec_load(b + i)));                          \
        if (i < n) {                                                                               \
            float rest[2][VEC_LANES] = {{0}};                                                      \
                                                                                                   \
            memcpy(rest[0], a + i, (n - i) * sizeof(float));                                       \
            memcpy(rest[1], b + i, (n - i) * sizeof(float));                                       \
            vec_store(rest[0], function(vec_load(rest[0]), vec_load(rest[1])));                    \
            memcpy(d + i, rest[0], (n - i) * sizeof(float));                                       \
        }                                                                                          \
    }

EW_UNARY(copy, x)
EW_BINARY(add, x + y)
EW_BINARY(sub, x - y)
EW_BINARY(mul, x *y)
EW_BINARY(div, x / y)
EW_BINARY(maximum, x > y || x != x ? x : y)
EW_BINARY(minimum, x < y || x != x ? x : y)
EW_SCALAR(add_scalar, x + s)
EW_SCALAR(mul_scalar, x *s)
EW_UNARY(neg, -x)
EW_UNARY(abs, x < 0 ? -x : x + 0.0f)
EW_UNARY(square, x *x)
EW_UNARY(sqrt, sqrtf(x))
EW_UNARY(relu, x < 0 ? 0.0f : x)
EW_SCALAR(leaky_relu, x > 0 ? x : x * s)
EW_BINARY(relu_backward, y <= 0 ? 0.0f : x)
EW_BINARY(abs_backward, y > 0 ? x : y < 0 ? -x : 0 * y)
EW_BINARY(sigmoid_backward, x *(1.0f - y) * y)
EW_BINARY(tanh_backward, x *(1.0f - y * y))

VEC_FN void ew_leaky_relu_backward(float *d, const float *a, const float *b, const float *c,
                                   size_t n, const double *scalars)
{
    float s = (float)scalars[0];

    (void)c;
    VEC_LOOP
    for (size_t i = 0; i < n; i++) {
        float x = a[i];

        d[i] = b[i] > 0 ? x : x * s;
    }
}

VEC_FN void ew_mse_backward(float *d, const float *a, const float *b, const float *c, size_t n,
                            const double *scalars)
{
    double s = scalars[0];

    VEC_LOOP
    for (size_t i = 0; i < n; i++)
        d[i] = (float)((double)a[i] * s * ((double)b[i] - (double)c[i]));
}

VEC_FN void ew_fill(float *d, const float *a, const float *b, const float *c, size_t n,
                    const double *scalars)
{
    float s = (float)scalars[0];

    (void)a, (void)b, (void)c;
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

/* e^x by range reduction to [-ln2/2, ln2/2] and a polynomial (the classic one of Cephes);
 * 2 units in the last place; results below the smallest normal number become 0. */
VEC_INLINE vec vec_exp(vec x)
{
    vec clamped = vec_select(x > 88.72284f, vec_set(88.72284f), x);
    vec k, r, y;
    vec_i n;

    clamped = vec_select(x < -87.33655f, vec_set(-87.33655f), clamped);
    clamped = vec_select(x != x, vec_set(0), clamped);
    /* Rounds to the nearest integer by adding and subtracting 1.5 * 2^23. */
    k = (clamped * 1.44269504088896341f + 12582912.0f) - 12582912.0f;
    n = __builtin_convertvector(k, vec_i);
    r = clamped - k * 0.693359375f;
    r = r - k * -2.12194440e-4f;
    y = vec_set(1.9875691500e-4f);
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    /* 2^n in two factors: n may be 128. */
    y = y * (vec)(((n >> 1) + 127) << 23) * (vec)(((n - (n >> 1)) + 127) << 23);
    y = vec_select(x > 88.72284f, vec_set(INFINITY), y);
    y = vec_select(x < -87.33655f, vec_set(0), y);
    return vec_select(x != x, x, y);
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

VEC_INLINE vec vec_silu(vec x)
{
    return x / (1.0f + vec_exp(-x));
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

VEC_INLINE vec vec_gelu(vec x)
{
    return 0.5f * x * (1.0f + vec_erf(x * 0.70710678118654752f));
}

/* The tanh form, by the sigmoid of twice its argument: 0.5 x (1 + tanh(u)) = x sigmoid(2 u). */
VEC_INLINE vec vec_gelu_tanh(vec x)
{
    return x * vec_sigmoid(x * (1.5957691216057308f + 0.071354816272560f * (x * x)));
}

/* Gradients: g * f'(x). */
VEC_INLINE vec vec_gelu_tanh_backward(vec g, vec x)
{
    vec s = vec_sigmoid(x * (1.5957691216057308f + 0.071354816272560f * (x * x)));

    return g * (s + x * s * (1.0f - s) * (1.5957691216057308f + 0.214064448817680f * (x * x)));
}

VEC_INLINE vec vec_gelu_backward(vec g, vec x)
{
    vec density = vec_exp(-0.5f * x * x) * 0.39894228040143268f;

    return g * (0.5f * (1.0f + vec_erf(x * 0.70710678118654752f)) + x * density);
}

VEC_INLINE vec vec_silu_backward(vec g, vec x)
{
    vec s = vec_sigmoid(x);

    return g * s * (1.0f + x * (1.0f - s));
}

EW_VECTOR2(gelu_backward, vec_gelu_backward)
EW_VECTOR2(silu_backward, vec_silu_backward)
EW_VECTOR(round_bf16, vec_round_bf16)
EW_VECTOR(round_f16, vec_round_f16)
EW_VECTOR(exp, vec_exp)
EW_VECTOR(log, vec_log)
EW_VECTOR(sigmoid, vec_sigmoid)
EW_VECTOR(silu, vec_silu)
EW_VECTOR(tanh, vec_tanh)
EW_VECTOR(gelu, vec_gelu)
EW_VECTOR(gelu_tanh, vec_gelu_tanh)
EW_VECTOR2(gelu_tanh_backward, vec_gelu_tanh_backward)
