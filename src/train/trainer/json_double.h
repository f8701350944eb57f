/*
 * json_double.h - numbers with a fraction in JSON, with all their bits and whatever the locale;
 * what JSON has no numbers for are texts.
 */
#ifndef TRII_JSON_DOUBLE_H
#define TRII_JSON_DOUBLE_H

#include <math.h>
#include <string.h>

#include "train/checkpoint/json.h"

static inline json_t *trii_json_double(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

/* NaN if it is none. */
static inline double trii_json_double_value(const json_t *value)
{
    const char *text = json_string_value(value);

    if (json_is_number(value))
        return json_number_value(value);
    if (text != NULL && strcmp(text, "inf") == 0)
        return (double)INFINITY;
    if (text != NULL && strcmp(text, "-inf") == 0)
        return -(double)INFINITY;
    return (double)NAN;
}

#endif
