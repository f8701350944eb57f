/*
 * site.c - see site.h.
 */
/* build: hot leaf */
#include "base/site.h"

#include <stddef.h>

#include "base/compiler.h"

/* Like every thread-local of the libraries without a TLS model of its own: a single variable of the
 * initial-exec model, and dlopen must find room for all of the library's in the static block. */
static _Thread_local tri_site newest;
static _Thread_local bool taken;
static _Thread_local int entered; /* calls by tri_site_enter that have not ended */

/* A site that tri_site_leave is to restore has a negative line, which says whether it was taken: a
 * collective that has ended must not get its line back, and what comes next would be blamed on it.
 * Within another entered call it is back all the same, for all of that call is of its line. */
static int line_of_before(void)
{
    return -2 * newest.line - 1 - (taken ? 1 : 0);
}

void tri_site_set(const char *file, int line)
{
    newest = (tri_site){.file = file, .line = line < 0 ? -(line + 1) / 2 : line};
    taken = false;
    if (line < 0) {
        entered -= entered > 0;
        taken = entered == 0 && (-(line + 1) & 1) != 0;
    }
}

tri_site tri_site_enter(const char *file, int line)
{
    tri_site before = {.file = newest.file, .line = line_of_before()};

    tri_site_set(file, line);
    entered++;
    return before;
}

tri_site trii_site_take(void)
{
    tri_site site = {taken ? NULL : newest.file, newest.line};

    taken = true;
    return site;
}

tri_site trii_site_last(void)
{
    return newest;
}

const trii_site *trii_site_here(void)
{
    return &newest;
}
