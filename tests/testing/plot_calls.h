/*
 * plot_calls.h - `trireme plot` as a program. Tests only.
 */
#ifndef TEST_PLOT_CALLS_H
#define TEST_PLOT_CALLS_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/spawn.h"

/* `trireme plot` with these arguments (up to a NULL); what it said stays in `said`. */
static char said[2048];

static int plot(const char *first, ...)
{
    const char *argv[16] = {spawn_bin("trireme"), "plot", first};
    int n = first == NULL ? 2 : 3, status;
    va_list args;
    spawn s;

    va_start(args, first);
    while (n > 2 && n < 15 && (argv[n] = va_arg(args, const char *)) != NULL)
        n++;
    va_end(args);
    spawn_start(&s, argv, NULL);
    status = spawn_wait(&s);
    snprintf(said, sizeof(said), "%s%s", SPAWN_OUT(&s), SPAWN_ERR(&s));
    spawn_free(&s);
    return status;
}

/* How many characters of an SVG are on the line at this height, in points from the top; those of
 * a text written upwards have lines of their own. */
static inline int characters_at(const char *svg, double y)
{
    int n = 0;

    for (const char *at = strstr(svg, "<use "); at != NULL; at = strstr(at + 1, "<use "))
        n += fabs(strtod(strstr(at, " y=\"") + 4, NULL) - y) < 0.01;
    return n;
}

#endif
