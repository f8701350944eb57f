/*
 * golden.h - files of tests/golden. Tests only.
 *
 * Where a test reads one folder of it, GOLDEN_FOLDER is that one, with a slash at its end.
 */
#ifndef TEST_GOLDEN_H
#define TEST_GOLDEN_H

#include <stdio.h>
#include <stdlib.h>

#include "testing/check.h"

#ifndef GOLDEN_FOLDER
#define GOLDEN_FOLDER ""
#endif

/* Good for the next seven calls of this thread. */
static inline const char *golden_path(const char *name)
{
    static _Thread_local char paths[8][512];
    static _Thread_local int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/tests/golden/" GOLDEN_FOLDER "%s",
             getenv("TRI_TEST_SOURCE"), name);
    return path;
}

/* Ends the case where it cannot. */
static inline FILE *golden_open(const char *name)
{
    FILE *file = fopen(golden_path(name), "rb");

    if (file == NULL)
        fail_msg("%s cannot be read", golden_path(name));
    return file;
}

#endif
