/*
 * kernels_test.c - the tables of all instruction sets against each other and plain loops. Element-
 * wise kernels and updates must give the same bits in each; functions of C's library are compared
 * with it: relative error at most 4e-7.
 */
#include <math.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "device/cpu/kernels.h"
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
            table[t]->ew[TRII_EW_MUL_SCALAR](got, a, NULL, NULL, N, &scalar);
            check_bits("mul_scalar, table", t, got, want, N);
            for (int i = 0; i < N; i++)
                want[i] = a[i] + s;
            table[t]->ew[TRII_EW_ADD_SCALAR](got, a, NULL, NULL, N, &scalar);
            check_bits("add_scalar, table", t, got, want, N);
            for (int i = 0; i < N; i++)
                want[i] = a[i] > 0 ? a[i] : a[i] * s;
            table[t]->ew[TRII_EW_LEAKY_RELU](got, a, NULL, NULL, N, &scalar);
            check_bits("leaky_relu, table", t, got, want, N);
            for (int i = 0; i < N; i++)
                want[i] = b[i] > 0 ? a[i] : a[i] * s;
            table[t]->ew[TRII_EW_LEAKY_RELU_BACKWARD](got, a, b, NULL, N, &scalar);
            check_bits("leaky_relu_backward, table", t, got, want, N);
        }
    }
}

static double exact(int code, double x)
{
    switch (code) {
    case TRII_EW_EXP:
        return exp(x);
    case TRII_EW_LOG:
        return log(x);
    case TRII_EW_SQRT:
        return sqrt(x);
    case TRII_EW_TANH:
        return tanh(x);
    case TRII_EW_SIGMOID:
        return 1 / (1 + exp(-x));
    case TRII_EW_SILU:
        return x / (1 + exp(-x));
    default:
        return 0.5 * x * (1 + erf(x * sqrt(0.5)));
    }
}

static void functions_are_those_of_the_c_library(void **state)
{
    static const int codes[] = {TRII_EW_EXP,     TRII_EW_LOG,  TRII_EW_SQRT, TRII_EW_TANH,
                                TRII_EW_SIGMOID, TRII_EW_SILU, TRII_EW_GELU};
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
                        (fabs(want) + (codes[k] == TRII_EW_GELU ? fabs((double)a[i]) : 1e-31));
                if (!(error <= 4e-7) && fabs(want) > 1e-36)
                    fail_msg("function %d of %.9g: %.9g instead of %.9g", codes[k], (double)a[i],
                             (double)got[i], want);
            }
        }
    }
}

static void updates_have_one_result(void **state)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    int n = tables(table);

    (void)state;
    fill_operands(1);
    for (int variant = 0; variant < 32; variant++) {
        float p_want[N], m_want[N], p[N], m[N];
        bool has_m = variant & 1, has_new = (variant & 3) != 0;
        trii_sgd_args args = {.p = a,
                              .g = b,
                              .lr = -0.1f,
                              .momentum = 0.9f,
                              .fresh = 0.7f,
                              .decay = variant & 4 ? 1e-3f : 0,
                              .nesterov = variant & 8,
                              .maximize = variant & 16};

        for (int i = 0; i < N; i++) { /* spelled out; the compiler must not contract it either */
            float d = args.maximize ? -b[i] : b[i];

            if (args.decay != 0)
                d = d + args.decay * a[i];
            if (has_new) {
                m_want[i] = has_m ? c[i] * args.momentum + args.fresh * d : d;
                d = args.nesterov ? d + args.momentum * m_want[i] : m_want[i];
            }
            p_want[i] = a[i] + args.lr * d;
        }
        for (int t = 0; t < n; t++) {
            memcpy(p, a, sizeof(p));
            memcpy(m, c, sizeof(m));
            args.p = args.p_new = p;
            args.m = has_m ? m : NULL;
            args.m_new = has_new ? m : NULL;
            table[t]->sgd(&args, 0, 17); /* as two threads would */
            table[t]->sgd(&args, 17, N);
            check_bits("sgd", variant, p, p_want, N);
            if (has_new)
                check_bits("sgd momentum", variant, m, m_want, N);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_is_rounded_to_the_nearest_even),
        cmocka_unit_test(element_wise_kernels_have_one_result),
        cmocka_unit_test(scalars_are_rounded_to_the_type_of_the_tensor),
        cmocka_unit_test(functions_are_those_of_the_c_library),
        cmocka_unit_test(updates_have_one_result),
        cmocka_unit_test(products_of_all_shapes),
        cmocka_unit_test(equal_elements_of_a_window),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
