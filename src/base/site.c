/*
 * site.c - see site.h.
 */
#include "base/site.h"

#include <stddef.h>

#include <trireme/export.h>

#include "base/compiler.h"

TRI_API void tri_site_set(const char *file, int line);

static TRII_THREAD_LOCAL trii_site newest;
static TRII_THREAD_LOCAL bool taken;

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
