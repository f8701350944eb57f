/*
 * cases.h - runs the cases of a test file, each in a process of its own.
 */
#ifndef TEST_CASES_H
#define TEST_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Runs them all and says what became of each; what a case that failed has printed is shown. Each is
 * a child that was forked before anything of the library was used, with a deadline of its own, so
 * that a crash or a hang costs one case. Returns the program's exit status.
 *
 * Of the environment (cmake/TriremeTests.cmake sets it):
 *
 *   TRI_TEST_DEADLINE  seconds that a case may take; none: no deadline
 *   TRI_TEST_AT_ONCE   so many run at the same time; one without it
 *   TRI_TEST_RESULTS   a file that gets a line for each, `passed CASE SECONDS` or `failed ..`
 *   TRI_TEST_ONLY      only this case */
int test_run_cases(const char *program, const struct CMUnitTest *tests, size_t n_tests);

#endif
