/*
 * check.h - cmocka, what it needs, and a few additions. Tests only.
 */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <trireme/status.h>

#include "base/compiler.h"
#include "testing/cases.h"

/* Fails with the error line: a bare status says too little. */
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        tri_status check_status_ = (call);                                                         \
        if (check_status_ != TRI_OK)                                                               \
            fail_msg("%s: %s: %s", #call, tri_status_name(check_status_), tri_last_error());       \
    } while (0)

/* The call fails with this status, and its line contains the text. */
#define CHECK_FAILS(call, status, text)                                                            \
    do {                                                                                           \
        tri_status check_status_ = (call);                                                         \
        if (check_status_ != (status))                                                             \
            fail_msg("%s: %s instead of %s: %s", #call, tri_status_name(check_status_),            \
                     tri_status_name(status), tri_last_error());                                   \
        if (strstr(tri_last_error(), text) == NULL)                                                \
            fail_msg("%s: \"%s\" does not contain \"%s\"", #call, tri_last_error(), text);         \
    } while (0)

/* As CHECK_FAILS, of a call that ends at its deadline of `ms`, a variable: what its line tells has
 * to happen before that, so a machine that was too busy gets twice the time, up to some seconds. */
#define CHECK_FAILS_WITHIN(ms, call, status, text)                                                 \
    do {                                                                                           \
        tri_status within_;                                                                        \
        for ((ms) = 30; (within_ = (call)) == (status) && (ms) < 4000; (ms) *= 2) {                \
            if (strstr(tri_last_error(), text) != NULL)                                            \
                break;                                                                             \
        }                                                                                          \
        if (within_ != (status) || strstr(tri_last_error(), text) == NULL)                         \
            fail_msg("%s: %s instead of %s with \"%s\": %s", #call, tri_status_name(within_),      \
                     tri_status_name(status), text, tri_last_error());                             \
    } while (0)

/* The numbers differ by at most epsilon; a NaN is near nothing. cmocka's assert_float_equal takes a
 * NaN for equal to everything, rounds to float and adds an epsilon of its own. */
#define CHECK_NEAR(a, b, epsilon) check_near_((a), (b), (epsilon), #a, __FILE__, __LINE__)
static inline int check_is_near(double a, double b, double epsilon)
{
    double d = a > b ? a - b : b - a; /* of two infinities: NaN */

    return a == b || d <= epsilon;
}
static inline void check_near_(double a, double b, double epsilon, const char *what,
                               const char *file, int line)
{
    if (check_is_near(a, b, epsilon))
        return;
    print_error("%s: %.17g instead of %.17g, not within %g\n", what, a, b, epsilon);
    _fail(file, line);
}

/* True under ThreadSanitizer, where data may be smaller: what it proves is in the order of
 * accesses. */
#define TEST_TSAN TRII_TSAN

/* True under either sanitizer, where more of the same costs much and shows no more. */
#define TEST_SANITIZED (TRII_TSAN || TRII_ASAN)

/* main() of a test: `prog` runs all cases, each in a process of its own; `prog name` runs that one
 * in this process, for a debugger. A case that starts its own program again, as tri_spawn does, has
 * its name in TRI_TEST_CASE. cmocka reports success when a filter matches nothing, so an unknown
 * name is refused here. */
static inline int test_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n_tests)
{
    const char *name = argc > 1 ? argv[1] : getenv("TRI_TEST_CASE");

    if (name == NULL)
        return test_run_cases(argv[0], tests, n_tests);
    for (size_t i = 0; i < n_tests; i++) {
        if (strcmp(tests[i].name, name) == 0) {
            cmocka_set_test_filter(name);
            return _cmocka_run_group_tests(name, tests, n_tests, NULL, NULL);
        }
    }
    fprintf(stderr, "%s: no case named %s\n", argv[0], name);
    return 2;
}

#define TEST_MAIN(tests)                                                                           \
    int main(int argc, char **argv); /* compiled under another name: test_program.c */             \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return test_main(argc, argv, tests, sizeof(tests) / sizeof((tests)[0]));                   \
    }

#endif
