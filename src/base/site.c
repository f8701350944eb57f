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

void tri_site_set(const char *file, int line)
{
    newest = (tri_site){.file = file, .line = line};
    taken = false;
}

tri_site tri_site_enter(const char *file, int line)
{
    tri_site before = newest;

    tri_site_set(file, line);
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
