/*
 * kernels_test.c - the tables of all instruction sets against each other and plain loops. Element-
 * wise kernels and updates must give the same bits in each; functions of C's library are compared
 * with it: relative error at most 4e-7.
 */
/* ctest: threads=none */
#include <math.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "train/device/cpu/kernels.h"
#include "testing/check.h"

#define N 1003
#define MAX_TABLES (TRII_ISA_COUNT + 1)

static float a[N], b[N], c[N];

static uint32_t state_of_random = 7;

static float random_float(float scale)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return ((float)(state_of_random >> 8) / 8388608.0f - 1) * scale;
}

static void fill_operands(float scale)
{
    const float odd[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY, 1e-40f, 1e38f, -1e38f};

    for (int i = 0; i < N; i++) {
        a[i] = random_float(scale);
        b[i] = random_float(1);
        c[i] = random_float(1);
    }
    for (int i = 0; i < 8; i++) {
        a[i * 101] = odd[i];
        b[i * 103 + 5] = odd[i];
    }
}

/* The tables that this processor can run. */
static int tables(const trii_cpu_kernels *out[MAX_TABLES])
{
    int n = 0;

    for (int isa = 0; isa <= (int)trii_cpu_isa(); isa++)
        out[n++] = trii_cpu_kernels_of((trii_isa)isa);
#if defined(__x86_64__)
    if (trii_cpu_has_avx512_bf16()) /* two tables of one instruction set */
        out[n++] = &trii_cpu_kernels_avx512;
#endif
    return n;
}

static void check_bits(const char *what, int code, const float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++) {
        if (memcmp(&x[i], &y[i], sizeof(float)) != 0 && !(x[i] != x[i] && y[i] != y[i]))
            fail_msg("%s %d: element %d: %.9g instead of %.9g", what, code, i, (double)x[i],
                     (double)y[i]);
    }
}

static void element_wise_kernels_have_one_result(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    const double scalar = 0.1;
    int n = tables(table);

    (void)state;
    fill_operands(4);
    for (int code = 0; code < TRII_EW_COUNT; code++) {
        float want[N], got[N];

        table[0]->ew[code](want, a, b, c, N, &scalar);
        for (int t = 1; t < n; t++) {
            for (int length = 0; length < 70; length++) { /* all tails */
                table[t]->ew[code](got, a, b, c, (size_t)length, &scalar);
                check_bits("instruction", code, got, want, length);
            }
            memcpy(got, a, sizeof(got));
            table[t]->ew[code](got, got, b, c, N, &scalar); /* in place */
            check_bits("instruction", code, got, want, N);
        }
    }
}

/* In f32, as PyTorch does: 0.1 is first rounded to it. */
static void scalars_are_rounded_to_the_type_of_the_tensor(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    const double scalar = 0.1;
    float s = (float)scalar, want[N], got[N];
    int n = tables(table);

    (void)state;
    for (int round = 0; round < 100; round++) {
        fill_operands(4);
        for (int t = 0; t < n; t++) {
            for (int i = 0; i < N; i++)
                want[i] = a[i] * s;
            table[t]->ew[TRII_EW_mul_scalar](got, a, NULL, NULL, N, &scalar);
            check_bits("mul_scalar, table", t, got, want, N);
            for (int i = 0; i < N; i++)
                want[i] = a[i] + s;
            table[t]->ew[TRII_EW_add_scalar](got, a, NULL, NULL, N, &scalar);
            check_bits("add_scalar, table", t, got, want, N);
            for (int i = 0; i < N; i++)
                want[i] = a[i] > 0 ? a[i] : a[i] * s;
            table[t]->ew[TRII_EW_leaky_relu](got, a, NULL, NULL, N, &scalar);
            check_bits("leaky_relu, table", t, got, want, N);
            for (int i = 0; i < N; i++)
                want[i] = b[i] > 0 ? a[i] : a[i] * s;
            table[t]->ew[TRII_EW_leaky_relu_backward](got, a, b, NULL, N, &scalar);
            check_bits("leaky_relu_backward, table", t, got, want, N);
        }
    }
}

static double exact(int code, double x)
{
    switch (code) {
    case TRII_EW_exp:
        return exp(x);
    case TRII_EW_log:
        return log(x);
    case TRII_EW_sqrt:
        return sqrt(x);
    case TRII_EW_tanh:
        return tanh(x);
    case TRII_EW_sigmoid:
        return 1 / (1 + exp(-x));
    case TRII_EW_silu:
        return x / (1 + exp(-x));
    default:
        return 0.5 * x * (1 + erf(x * sqrt(0.5)));
    }
}

static void functions_are_those_of_the_c_library(void **state)
{
    static const int codes[] = {TRII_EW_exp,     TRII_EW_log,  TRII_EW_sqrt, TRII_EW_tanh,
                                TRII_EW_sigmoid, TRII_EW_silu, TRII_EW_gelu};
    static const float scales[] = {0.01f, 1, 5, 30, 200};

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(codes); k++) {
        for (size_t s = 0; s < TRII_COUNT_OF(scales); s++) {
            float got[N];

            fill_operands(scales[s]);
            trii_cpu_kernels_get()->ew[codes[k]](got, a, NULL, NULL, N, NULL);
            for (int i = 0; i < N; i++) {
                double want = exact(codes[k], (double)a[i]), error;

                if ((want != want && got[i] != got[i]) || want == (double)got[i])
                    continue;
                if (fabs(want) > 3.4e38 && isinf(got[i]))
                    continue;
                /* the tail of gelu is a difference; tiny results may be flushed */
                error = fabs((double)got[i] - want) /
                        (fabs(want) + (codes[k] == TRII_EW_gelu ? fabs((double)a[i]) : 1e-31));
                if (!(error <= 4e-7) && fabs(want) > 1e-36)
                    fail_msg("function %d of %.9g: %.9g instead of %.9g", codes[k], (double)a[i],
                             (double)got[i], want);
            }
        }
    }
}

/* Floats around `bound` and NaN, in a. */
static void fill_around(float bound)
{
    uint32_t bits;

    memcpy(&bits, &bound, sizeof(bits));
    bits -= N / 2;
    for (int i = 0; i < N; i++, bits++)
        memcpy(&a[i], &bits, sizeof(bits));
    a[0] = NAN;
    a[1] = -NAN;
    a[2] = INFINITY;
    a[3] = -INFINITY;
}

/* From the first float whose exponential is too large to the last whose is no normal number. */
static void exponentials_end_at_their_bounds(void **state)
{
    const float bound[] = {88.72284f, -87.33655f, 0.34657359f, -0.34657359f};
    const trii_cpu_kernels *table[MAX_TABLES];
    int n = tables(table);

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(bound); k++) {
        fill_around(bound[k]);
        for (int t = 0; t < n; t++) {
            float got[N];

            table[t]->ew[TRII_EW_exp](got, a, NULL, NULL, N, NULL);
            for (int i = 0; i < N; i++) {
                double want = exp((double)a[i]);

                if (a[i] >= 88.72284f || a[i] < -87.33655f)
                    want = a[i] > 0 ? INFINITY : 0;
                if (want != want
                        ? got[i] == got[i]
                        : (double)got[i] != want && !(fabs((double)got[i] - want) <= 4e-7 * want))
                    fail_msg("table %d: exp of %.9g: %.9g instead of %.9g", t, (double)a[i],
                             (double)got[i], want);
            }
        }
    }
}

static void odd_functions_keep_the_sign_of_zero(void **state)
{
    static const int codes[] = {TRII_EW_sqrt, TRII_EW_tanh, TRII_EW_silu, TRII_EW_gelu};
    const trii_cpu_kernels *table[MAX_TABLES];
    int n = tables(table);
    float got[N];

    (void)state;
    for (int i = 0; i < N; i++)
        a[i] = i % 2 == 0 ? -0.0f : 0.0f;
    for (int t = 0; t < n; t++) {
        for (size_t k = 0; k < TRII_COUNT_OF(codes); k++) {
            table[t]->ew[codes[k]](got, a, NULL, NULL, N, NULL);
            check_bits("function of zero, table", t, got, a, N);
        }
    }
}

/* --- updates, spelled out, which the compiler must not contract ----------- */

static void sgd_wanted(const trii_update_args *args, float d, int i, float *p_want, float *m_want)
{
    float buffer;

    if ((args->flags & TRII_UPDATE_MAXIMIZE) != 0)
        d = -d;
    if (args->f[3] != 0)
        d = d + (float)args->f[3] * a[i];
    if ((args->flags & TRII_UPDATE_MOMENTUM) != 0) {
        buffer = c[i] * (float)args->f[1] + (float)(1 - args->f[2]) * d;
        m_want[i] = buffer;
        d = (args->flags & TRII_UPDATE_NESTEROV) != 0 ? d + (float)args->f[1] * buffer : buffer;
    }
    p_want[i] = a[i] + (float)-args->f[0] * d;
}

static void sgd_has_one_result(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    int n = tables(table);

    (void)state;
    fill_operands(1);
    for (int variant = 0; variant < 64; variant++) {
        float p_want[N], m_want[N], p[N], m[N];
        const double f[] = {0.1, 0.9, 0.3, variant & 4 ? 1e-3 : 0};
        trii_update_args args = {.g = b,
                                 .f = f,
                                 .scale = variant & 16 ? 0.3 : 1,
                                 .limit = variant & 32 ? 0.2 : 0,
                                 .flags = (variant & 1 ? TRII_UPDATE_MOMENTUM : 0) |
                                          (variant & 2 ? TRII_UPDATE_NESTEROV : 0) |
                                          (variant & 8 ? TRII_UPDATE_MAXIMIZE : 0)};

        for (int i = 0; i < N; i++) {
            float d = b[i] * (float)args.scale;

            if (args.limit > 0)
                d = d > 0.2f ? 0.2f : d < -0.2f ? -0.2f : d;
            sgd_wanted(&args, d, i, p_want, m_want);
        }
        for (int t = 0; t < n; t++) {
            trii_update_fn run = table[t]->update[TRII_UPDATE_SGD][0];

            memcpy(p, a, sizeof(p));
            memcpy(m, c, sizeof(m));
            args.p = args.p_new = p;
            args.s[0] = args.s_new[0] = m;
            run(&args, 0, 17); /* as two threads would */
            run(&args, 17, N);
            check_bits("sgd", variant, p, p_want, N);
            check_bits("sgd momentum", variant, m, args.flags & 2 ? m_want : c, N);
        }
    }
}

static void adam_has_one_result(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    int n = tables(table);

    (void)state;
    fill_operands(1);
    for (int variant = 0; variant < 16; variant++) {
        float want[4][N], got[4][N]; /* p m v w */
        bool decoupled = variant & 1, amsgrad = variant & 2, maximize = variant & 4;
        double beta1 = variant & 8 ? 0.3 : 0.9; /* the average is formed from its nearer end */
        const double f[] = {0.01, 1 - beta1, 0.99, 1 - 0.99, 0.7, 1e-8, decoupled ? 0.999 : 0.1};
        trii_update_args args = {.g = b,
                                 .f = f,
                                 .scale = 0.5,
                                 .flags = (decoupled ? TRII_UPDATE_DECOUPLED : 0) |
                                          (amsgrad ? TRII_UPDATE_AMSGRAD : 0) |
                                          (maximize ? TRII_UPDATE_MAXIMIZE : 0)};

        for (int i = 0; i < N; i++) {
            float old = a[i], d = b[i] * (maximize ? -0.5f : 0.5f), w = (float)f[1], v;

            if (decoupled)
                old = old * 0.999f;
            else
                d = d + 0.1f * old;
            want[1][i] = w < 0.5f ? c[i] + w * (d - c[i]) : d - (d - c[i]) * (1 - w);
            v = fabsf(a[i]) * 0.99f + ((float)f[3] * d) * d;
            want[2][i] = v;
            want[3][i] = amsgrad && !(v <= fabsf(c[i])) ? v : fabsf(c[i]);
            v = amsgrad ? want[3][i] : v;
            want[0][i] = old + (-0.01f * want[1][i]) / (sqrtf(v) / 0.7f + 1e-8f);
        }
        for (int t = 0; t < n; t++) {
            trii_update_fn run = table[t]->update[TRII_UPDATE_ADAM][0];

            for (int i = 0; i < N; i++) {
                got[0][i] = a[i];
                got[1][i] = c[i];
                got[2][i] = fabsf(a[i]);
                got[3][i] = fabsf(c[i]);
            }
            args.p = args.p_new = got[0];
            for (int s = 0; s < 3; s++)
                args.s[s] = args.s_new[s] = got[1 + s];
            run(&args, 0, 33);
            run(&args, 33, N);
            for (int k = 0; k < 4; k++)
                check_bits("adam", 4 * variant + k, got[k], want[k], N);
        }
    }
}

/* The other rules, and f64: every table against the portable one, whose loop is the reference's. */
static void every_update_has_one_result(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    int n = tables(table);

    (void)state;
    fill_operands(1);
    for (int rule = 0; rule < TRII_UPDATE_RULES; rule++) {
        for (int variant = 0; variant < 128; variant++) {
            double room[2][1 + TRII_UPDATE_STATES][N];
            float narrow[2][1 + TRII_UPDATE_STATES][N];
            static double g[N];
            const double f[] = {0.01, 0.9, 1e-8, 0.05, 0.8, 1e-6, 0.9};
            bool wide = variant & 64;
            trii_update_args args = {.f = f, .scale = 0.7, .limit = 0.9, .flags = variant & 63};

            for (int i = 0; i < N; i++)
                g[i] = (double)b[i];
            args.g = wide ? (const void *)g : (const void *)b;
            for (int t = 0; t < n; t++) {
                int at = t > 0;

                for (int k = 0; k <= TRII_UPDATE_STATES; k++) {
                    void *x = wide ? (void *)room[at][k] : (void *)narrow[at][k];

                    for (int i = 0; i < N; i++) {
                        narrow[at][k][i] = 1 + (k % 2 == 0 ? a[i] : fabsf(c[i]));
                        room[at][k][i] = (double)narrow[at][k][i];
                    }
                    if (k == 0) {
                        args.p = args.p_new = x;
                    } else {
                        args.s[k - 1] = x;
                        args.s_new[k - 1] = x;
                    }
                }
                table[t]->update[rule][wide](&args, 0, N);
                if (t > 0)
                    assert_memory_equal(wide ? (void *)room[0] : (void *)narrow[0],
                                        wide ? (void *)room[1] : (void *)narrow[1],
                                        wide ? sizeof(room[0]) : sizeof(narrow[0]));
            }
        }
    }
}

static void products_of_all_shapes(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    int n = tables(table);

    (void)state;
    for (int round = 0; round < 300; round++) {
        int64_t m = 1 + (int64_t)(fabsf(random_float(21))),
                cols = 1 + (int64_t)fabsf(random_float(50));
        int64_t k = (int64_t)fabsf(random_float(13));
        bool ta = round & 1, tb = round & 2, has_bias = round & 4;
        float x[22 * 14], y[14 * 51], bias[51], out[22 * 51], pack[14 * 32];

        for (size_t i = 0; i < TRII_COUNT_OF(x); i++)
            x[i] = random_float(1);
        for (size_t i = 0; i < TRII_COUNT_OF(y); i++)
            y[i] = random_float(1);
        for (size_t i = 0; i < TRII_COUNT_OF(bias); i++)
            bias[i] = random_float(1);
        for (int t = 0; t < n; t++) {
            const trii_gemm_args args = {.m = m,
                                         .n = cols,
                                         .k = k,
                                         .a = x,
                                         .a_row = ta ? 1 : k,
                                         .a_col = ta ? m : 1,
                                         .b = y,
                                         .b_row = tb ? 1 : cols,
                                         .b_col = tb ? k : 1,
                                         .bias = has_bias ? bias : NULL,
                                         .c = out,
                                         .ldc = cols,
                                         .pack = pack};

            table[t]->gemm(&args);
            for (int64_t i = 0; i < m; i++) {
                for (int64_t j = 0; j < cols; j++) {
                    double want = has_bias ? (double)bias[j] : 0;

                    for (int64_t l = 0; l < k; l++)
                        want += (double)x[i * args.a_row + l * args.a_col] *
                                (double)y[l * args.b_row + j * args.b_col];
                    assert_true(fabs(want - (double)out[i * cols + j]) < 1e-5);
                }
            }
        }
    }
}

/* Small integers, so that windows have many equal elements: the first one gets the gradient. */
static void equal_elements_of_a_window(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    const trii_pooling pool = {3, 4, 3, 3, 2, 2, 1, 1, false, false};
    int n = tables(table);

    (void)state;
    for (int block = 1; block <= 16; block += block == 1 ? 7 : 8) {
        const trii_images images = {1, block, 6, 7, block, block, false};
        float x[6 * 7 * 16], dy[3 * 4 * 16], want[6 * 7 * 16] = {0}, got[6 * 7 * 16];

        for (size_t i = 0; i < TRII_COUNT_OF(x); i++)
            x[i] = floorf(random_float(1.5f) + 0.5f);
        for (size_t i = 0; i < TRII_COUNT_OF(dy); i++)
            dy[i] = random_float(1);
        for (int o = 0; o < 3 * 4 * block; o++) {
            int best = -1;

            for (int k = 0; k < 9; k++) {
                int h = o / block / 4 * 2 - 1 + k / 3, w = o / block % 4 * 2 - 1 + k % 3;
                int at = (h * 7 + w) * block + o % block;

                if (h >= 0 && h < 6 && w >= 0 && w < 7 && (best < 0 || x[at] > x[best]))
                    best = at;
            }
            want[best] += dy[o];
        }
        for (int t = 0; t < n; t++) {
            table[t]->images[0].max_pool_backward(x, dy, got, &images, &pool, NULL);
            check_bits("max_pool_backward, block", block, got, want, 6 * 7 * block);
        }
    }
}

static void bf16_is_rounded_to_the_nearest_even(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    int n_tables = tables(table);
    uint16_t narrow[N];
    float wide[N];

    (void)state;
    fill_operands(1000);
    for (int i = 0; i < 8; i++) { /* halfway between two, below an even and above an odd one */
        uint32_t bits = 0x3f808000u + ((uint32_t)i << 16);

        memcpy(&a[200 + i], &bits, sizeof(bits));
    }
    for (int t = 0; t < n_tables; t++) {
        table[t]->to_bf16(narrow, a, N);
        table[t]->from_bf16(wide, narrow, N);
        for (int i = 0; i < N; i++) {
            uint16_t want = trii_f32_to_bf16(a[i]);
            float back = trii_bf16_to_f32(narrow[i]);

            if (narrow[i] != want && a[i] == a[i] && fabsf(a[i]) > 1.2e-38f)
                fail_msg("table %d: %.9g became %04x, not %04x", t, (double)a[i], narrow[i], want);
            assert_true(a[i] == a[i] || wide[i] != wide[i]);
            assert_true(memcmp(&wide[i], &back, sizeof(back)) == 0);
        }
    }
}

/* Every f16 there and back; and of f32 what lies around them, denormal ones and overflows too. */
static void f16_is_rounded_to_the_nearest_even(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    int n_tables = tables(table);
    static uint16_t all[1 << 16], back[1 << 16], narrow[1 << 16];
    static float wide[1 << 16], near[1 << 16];

    (void)state;
    for (int i = 0; i < 1 << 16; i++)
        all[i] = (uint16_t)i;
    for (int t = 0; t < n_tables; t++) {
        table[t]->from_f16(wide, all, 1 << 16);
        table[t]->to_f16(back, wide, 1 << 16);
        for (int i = 0; i < 1 << 16; i++) {
            float want = trii_f16_to_f32(all[i]);
            uint32_t bits;

            assert_true(wide[i] == want || (wide[i] != wide[i] && want != want));
            assert_true(back[i] == all[i] || want != want);
            memcpy(&bits, &want, sizeof(bits));
            bits += 0x0fffu + (uint32_t)i % 3; /* halfway to the next one, and its neighbours */
            memcpy(&near[i], &bits, sizeof(bits));
        }
        table[t]->to_f16(narrow, near, (1 << 16) - 3); /* the last ones are no whole vector */
        for (int i = 0; i < (1 << 16) - 3; i++) {
            uint16_t want = trii_f32_to_f16(near[i]);

            if (narrow[i] != want && near[i] == near[i])
                fail_msg("table %d: %.9g became %04x, not %04x", t, (double)near[i], narrow[i],
                         want);
            assert_true(near[i] == near[i] || (narrow[i] & 0x7fffu) > 0x7c00u);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_is_rounded_to_the_nearest_even),
        cmocka_unit_test(f16_is_rounded_to_the_nearest_even),
        cmocka_unit_test(element_wise_kernels_have_one_result),
        cmocka_unit_test(scalars_are_rounded_to_the_type_of_the_tensor),
        cmocka_unit_test(functions_are_those_of_the_c_library),
        cmocka_unit_test(exponentials_end_at_their_bounds),
        cmocka_unit_test(odd_functions_keep_the_sign_of_zero),
        cmocka_unit_test(sgd_has_one_result),
        cmocka_unit_test(adam_has_one_result),
        cmocka_unit_test(every_update_has_one_result),
        cmocka_unit_test(products_of_all_shapes),
        cmocka_unit_test(equal_elements_of_a_window),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
