/*
 * site.c - see site.h.
 */
#include "base/site.h"

#include <stddef.h>

#include <trireme/export.h>

#include "base/compiler.h"

TRI_API void tri_site_set(const char *file, int line);

/* Like every thread-local of the libraries without a TLS model of its own: a single variable of the
 * initial-exec model, and dlopen must find room for all of the library's in the static block. */
static _Thread_local trii_site newest;
static _Thread_local bool taken;

void tri_site_set(const char *file, int line)
{
    newest = (trii_site){.file = file, .line = line};
    taken = false;
}

trii_site trii_site_take(void)
{
    trii_site site = {taken ? NULL : newest.file, newest.line};

    taken = true;
    return site;
}

trii_site trii_site_last(void)
{
    return newest;
}
