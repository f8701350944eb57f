/*
 * sanitizer_exit.c - linked into the programs of a build with AddressSanitizer, and no others.
 *
 * A rank that failed looks for leaks when it exits, and is being stopped by its launcher at the same
 * moment. To look, LeakSanitizer stops its own threads as a debugger does; the SIGCONT that the
 * launcher sends behind SIGTERM, for workers that are stopped, takes such a stop back before it comes
 * about, and the process waits for it until it is killed. So a worker that failed does not look.
 */
#include <stdlib.h>

const char *tri_last_error(void) __attribute__((weak));
int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
    return getenv("LOCAL_RANK") != NULL && tri_last_error != NULL && tri_last_error()[0] != '\0';
}
