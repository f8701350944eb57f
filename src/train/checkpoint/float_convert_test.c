/* float_convert_test.c - elements of one type of float as those of another. */
/* ctest: threads=none */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "testing/check.h"
#include "train/checkpoint/float_convert.h"

static const tri_dtype types[] = {TRI_DTYPE_F64, TRI_DTYPE_F32, TRI_DTYPE_F16, TRI_DTYPE_BF16};

static double through(double value, tri_dtype type)
{
    char stored[8];
    double back;

    trii_float_convert(TRI_DTYPE_F64, &value, type, stored, 1);
    trii_float_convert(type, stored, TRI_DTYPE_F64, &back, 1);
    return back;
}

static void values_are_rounded_once(void **state)
{
    static const struct {
        double value;
        tri_dtype type;
        double wanted;
    } rows[] = {
        {1 + 0x1p-8, TRI_DTYPE_BF16, 1}, /* in the middle: to even */
        {1 + 3 * 0x1p-8, TRI_DTYPE_BF16, 1 + 0x1p-6},
        {1 + 0x1p-8 + 0x1p-40, TRI_DTYPE_BF16, 1 + 0x1p-7}, /* by f32 it would be the middle */
        {-1 - 0x1p-8 - 0x1p-40, TRI_DTYPE_BF16, -1 - 0x1p-7},
        {1 + 0x1p-11 + 0x1p-40, TRI_DTYPE_F16, 1 + 0x1p-10},
        {1 + 0x1p-11 - 0x1p-40, TRI_DTYPE_F16, 1},
        {0x1p-25 + 0x1p-60, TRI_DTYPE_F16, 0x1p-24}, /* the least that f16 has */
        {0x1p-25, TRI_DTYPE_F16, 0},
        {65519.999, TRI_DTYPE_F16, 65504},
        {65520, TRI_DTYPE_F16, INFINITY},
        {1e300, TRI_DTYPE_BF16, INFINITY},
        {-1e300, TRI_DTYPE_F32, -INFINITY},
        {1e-300, TRI_DTYPE_BF16, 0},
        {0x1p-149 * 0.75, TRI_DTYPE_F32, 0x1p-149},
        {0x1p-134 + 0x1p-170, TRI_DTYPE_BF16, 0x1p-133},
        {INFINITY, TRI_DTYPE_F16, INFINITY},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (through(rows[i].value, rows[i].type) != rows[i].wanted)
            fail_msg("%a as %s: %a", rows[i].value, tri_dtype_name(rows[i].type),
                     through(rows[i].value, rows[i].type));
    for (size_t k = 0; k < 4; k++) {
        assert_true(isnan(through(NAN, types[k])));
        assert_true(signbit(through(-0.0, types[k])));
    }
}

/* Each value of 16 bits is the same in all that hold more, and after it. */
static void what_is_held_stays(void **state)
{
    (void)state;
    for (size_t k = 2; k < 4; k++)
        for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
            uint16_t half = (uint16_t)bits, back;
            double wide;
            float f;

            trii_float_convert(types[k], &half, TRI_DTYPE_F32, &f, 1);
            trii_float_convert(types[k], &half, TRI_DTYPE_F64, &wide, 1);
            if (isnan(f)) {
                assert_true(isnan(wide));
                continue;
            }
            assert_true(wide == (double)f);
            trii_float_convert(TRI_DTYPE_F64, &wide, types[k], &back, 1);
            assert_int_equal(back, half);
            trii_float_convert(TRI_DTYPE_F32, &f, types[k], &back, 1);
            assert_int_equal(back, half);
        }
}

static void integers_and_small_floats_stay(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < TRII_DTYPES; dtype++)
        assert_int_equal(trii_float_is_converted((tri_dtype)dtype),
                         dtype == TRI_DTYPE_F64 || dtype == TRI_DTYPE_F32 ||
                             dtype == TRI_DTYPE_F16 || dtype == TRI_DTYPE_BF16);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_are_rounded_once),
    cmocka_unit_test(what_is_held_stays),
    cmocka_unit_test(integers_and_small_floats_stay),
};
TEST_MAIN(tests)
