/*
 * option.h - an option whose zero means its default, as everywhere in options structs; TRI_ZERO, a
 * zero with a sign, means zero.
 */
#ifndef TRII_OPTION_H
#define TRII_OPTION_H

#include <math.h>

static inline double trii_option(double value, double fallback)
{
    if (value != 0.0) /* also NaN, which the check of the value refuses */
        return value;
    return signbit(value) ? 0.0 : fallback;
}

#endif
