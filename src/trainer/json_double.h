/*
 * json_double.h - numbers with a fraction in JSON, as texts: all bits, infinities and NaN.
 */
#ifndef TRII_JSON_DOUBLE_H
#define TRII_JSON_DOUBLE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/json.h"

static inline json_t *trii_json_double(double value)
{
    char text[40];

    snprintf(text, sizeof(text), "%.17g", value);
    return json_string(text);
}

/* NaN if it is none. */
static inline double trii_json_double_value(const json_t *value)
{
    return json_is_string(value) ? strtod(json_string_value(value), NULL) : (double)NAN;
}

#endif
