/*
 * run_dir.h - a run folder for a case whose processes record their calls. Tests only.
 */
#ifndef TEST_RUN_DIR_H
#define TEST_RUN_DIR_H

#include <stdlib.h>

#include "testing/spawn.h"

static char folder[256];

static inline int make_folder(void **state)
{
    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    return setenv("TRI_RUN_DIR", folder, 1);
}

static inline int remove_folder(void **state)
{
    (void)state;
    unsetenv("TRI_RUN_DIR");
    spawn_remove_folder(folder);
    return 0;
}

static inline int lines_of(const char *text)
{
    int n = 0;

    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

#endif
