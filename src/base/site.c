/*
 * site.c - see site.h.
 */
#include "base/site.h"

#include <stddef.h>

#include <trireme/export.h>

TRI_API void tri_site_set(const char *file, int line);

static _Thread_local trii_site current_site;

void tri_site_set(const char *file, int line)
{
    current_site = (trii_site){.file = file, .line = line};
}

trii_site trii_site_take(void)
{
    trii_site site = current_site;

    current_site.file = NULL;
    return site;
}
