/* base_test.c - error line, allocation and number formats. */
#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/param.h"
#include "testing/check.h"

static void a_failure_keeps_its_line_and_takes_context(void **state)
{
    tri_status status = TRII_FAIL(TRI_ERR_IO, "open %s", "x");

    (void)state;
    status = TRII_FAIL_CTX(status, "load");
    assert_int_equal(status, TRI_ERR_IO);
    assert_string_equal(tri_last_error(), "load: open x");
    /* the line may be its own argument, and is cut, never overrun */
    for (int i = 0; i < 12; i++)
        trii_err_set("%s %s", tri_last_error(), tri_last_error());
    assert_int_equal(strlen(tri_last_error()), TRII_ERR_BYTES - 1);
    /* Context goes before the cause, and is cut rather than it. */
    (void)TRII_FAIL(TRI_ERR_STATE, "the cause");
    for (int i = 0; i < TRII_ERR_BYTES; i++)
        trii_err_prepend("level %d", i);
    assert_true(strlen(tri_last_error()) < TRII_ERR_BYTES);
    assert_non_null(strstr(tri_last_error(), "level 1: level 0: the cause"));
    trii_err_set("%0*d", TRII_ERR_BYTES - 1, 7);
    trii_err_prepend("no room");
    assert_int_equal(tri_last_error()[TRII_ERR_BYTES - 2], '7');
}

static void the_chosen_allocation_fails_and_only_that_one(void **state)
{
    long live = trii_alloc_live();
    void *a, *b, *c;

    (void)state;
    trii_alloc_fail_at(2);
    a = trii_alloc(4, 4, "a");
    b = trii_alloc(4, 4, "b");
    c = trii_alloc_aligned(64, 100, "c");
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    assert_int_equal((uintptr_t)c % 64, 0);
    assert_non_null(strstr(tri_last_error(), "b: out of memory"));
    assert_int_equal(trii_alloc_live(), live + 2);
    trii_free(a);
    trii_free(c);
    assert_int_equal(trii_alloc_live(), live);
    assert_null(trii_alloc(SIZE_MAX, 2, "overflow"));
}

static void every_f16_survives_f32_and_rounding_is_to_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = trii_f16_to_f32((uint16_t)h);

        if (f == f)
            assert_int_equal(trii_f32_to_f16(f), h);
        else
            assert_true((trii_f32_to_f16(f) & 0x7c00) == 0x7c00 && (trii_f32_to_f16(f) & 0x3ff));
        f = trii_bf16_to_f32((uint16_t)h);
        if (f == f)
            assert_int_equal(trii_f32_to_bf16(f), h);
    }
    assert_int_equal(trii_f32_to_f16(2049.0f), 0x6800);  /* 2048: tie to even */
    assert_int_equal(trii_f32_to_f16(2051.0f), 0x6802);  /* 2052 */
    assert_int_equal(trii_f32_to_f16(65519.9f), 0x7bff); /* largest */
    assert_int_equal(trii_f32_to_f16(65520.0f), 0x7c00); /* infinity */
    assert_int_equal(trii_f32_to_f16(2.98e-8f), 0x0000); /* just below half of the smallest */
    assert_int_equal(trii_f32_to_f16(2.99e-8f), 0x0001);
    assert_int_equal(trii_f32_to_bf16(1.00390625f), 0x3f80); /* tie to even */
    assert_int_equal(trii_f32_to_bf16(1.01171875f), 0x3f82);
}

static void settings_say_which_variable_is_wrong(void **state)
{
    int64_t value = 7;

    (void)state;
    setenv("TRI_TIMEOUT_MS", "soon", 1);
    CHECK_FAILS(trii_param_i64(TRII_PARAM_TIMEOUT_MS, 1, &value), TRI_ERR_INVALID_ARG,
                "TRI_TIMEOUT_MS=soon must be an integer (ms) from -1");
    setenv("TRI_NUM_THREADS", "0", 1);
    CHECK_FAILS(trii_param_i64(TRII_PARAM_NUM_THREADS, 1, &value), TRI_ERR_INVALID_ARG,
                "TRI_NUM_THREADS=0 must be an integer from 1 to 1024");
    assert_int_equal(value, 7);
    unsetenv("TRI_TIMEOUT_MS");
    CHECK_OK(trii_param_i64(TRII_PARAM_TIMEOUT_MS, 1, &value));
    assert_int_equal(value, 1);
    CHECK_FAILS(trii_param_check_all(), TRI_ERR_INVALID_ARG, "TRI_NUM_THREADS=0");
    setenv("TRI_NUM_THREADS", "1024", 1);
    setenv("TRI_CHECK", "inf", 1);
    CHECK_FAILS(trii_param_check_all(), TRI_ERR_INVALID_ARG, "TRI_CHECK=inf must be nan");
    unsetenv("TRI_CHECK");
    CHECK_OK(trii_param_check_all());
    unsetenv("TRI_NUM_THREADS");
}

static void a_name_that_nobody_reads_gets_the_nearest(void **state)
{
    static const struct {
        const char *entry, *like;
    } cases[] = {{"TRI_TIMEOUT=5", "did you mean TRI_TIMEOUT_MS?"},
                 {"TRI_TIMEOTU_MS=5", "TRI_TIMEOTU_MS is not a setting of Trireme (did you mean "
                                      "TRI_TIMEOUT_MS?"},
                 {"TRI_NUMTHREADS", "TRI_NUM_THREADS"},
                 {"TRI_LGO=debug", "did you mean TRI_LOG?"},
                 {"TRI_ENGIN=shm", "did you mean TRI_ENGINE?"},
                 {"TRI_JOB_KEY=/x", "did you mean TRI_JOB_KEY_FILE?"}};
    static const char *const known[] = {"TRI_TIMEOUT_MS=5", "TRI_LOG=",          "TRIP=1",
                                        "HOME=/root",       "TRI_TEST_SOURCE=/", "PATH"};
    char text[TRII_PARAM_UNKNOWN];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(trii_param_unknown(cases[i].entry, text));
        if (strstr(text, cases[i].like) == NULL)
            fail_msg("%s: %s", cases[i].entry, text);
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_false(trii_param_unknown(known[i], text));
}

static void a_setting_of_choices_names_them(void **state)
{
    int index = 7;

    (void)state;
    setenv("TRI_ISA", "avx1024", 1);
    CHECK_FAILS(trii_param_choice(TRII_PARAM_ISA, &index), TRI_ERR_INVALID_ARG,
                "TRI_ISA=avx1024 must be portable, avx2 or avx512");
    assert_int_equal(index, 7);
    setenv("TRI_CHECK", "nans", 1);
    CHECK_FAILS(trii_param_choice(TRII_PARAM_CHECK, &index), TRI_ERR_INVALID_ARG,
                "TRI_CHECK=nans must be nan");
    setenv("TRI_ISA", "avx512", 1);
    CHECK_OK(trii_param_choice(TRII_PARAM_ISA, &index));
    assert_int_equal(index, 2);
    unsetenv("TRI_ISA");
    CHECK_OK(trii_param_choice(TRII_PARAM_ISA, &index));
    assert_int_equal(index, -1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_failure_keeps_its_line_and_takes_context),
    cmocka_unit_test(the_chosen_allocation_fails_and_only_that_one),
    cmocka_unit_test(every_f16_survives_f32_and_rounding_is_to_even),
    cmocka_unit_test(settings_say_which_variable_is_wrong),
    cmocka_unit_test(a_name_that_nobody_reads_gets_the_nearest),
    cmocka_unit_test(a_setting_of_choices_names_them),
};

TEST_MAIN(tests)
