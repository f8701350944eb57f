/* json_double_test.c - numbers of trainer.json come back bit for bit, and not as texts, which
 * another locale would read differently. */
#include <float.h>

#include "testing/check.h"
#include "train/trainer/json_double.h"

static double there_and_back(double value, bool *is_number_out)
{
    json_t *root = json_array(), *read;
    char *text;
    double back;

    assert_int_equal(json_array_append_new(root, trii_json_double(value)), 0);
    text = trii_json_text(root);
    assert_non_null(text);
    read = json_loads(text, 0, NULL);
    assert_non_null(read);
    *is_number_out = json_is_number(json_array_get(read, 0));
    back = trii_json_double_value(json_array_get(read, 0));
    trii_free(text);
    json_decref(read);
    json_decref(root);
    return back;
}

static void finite_numbers_keep_their_bits(void **state)
{
    static const double values[] = {
        0,       -0.0,         1,       3,         0.1,
        -1e300,  1.0 / 3,      DBL_MAX, DBL_MIN,   DBL_TRUE_MIN,
        -1e-310, 12345678.125, 1e22,    123456789, 0x1.fffffffffffffp-3};

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        bool is_number;
        double back = there_and_back(values[i], &is_number);

        assert_true(is_number);
        assert_memory_equal(&back, &values[i], sizeof(back));
    }
}

static void others_come_back_as_what_they_are(void **state)
{
    bool is_number;

    (void)state;
    assert_true(isnan(there_and_back((double)NAN, &is_number)));
    assert_true(there_and_back((double)INFINITY, &is_number) > DBL_MAX);
    assert_true(there_and_back(-(double)INFINITY, &is_number) < -DBL_MAX);
    assert_true(isnan(trii_json_double_value(NULL)));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(finite_numbers_keep_their_bits),
    cmocka_unit_test(others_come_back_as_what_they_are),
};
TEST_MAIN(tests)
