/*
 * pairs.h - options of images: one number for height and width, or one for each.
 */
#ifndef TRII_PAIRS_H
#define TRII_PAIRS_H

#include <trireme/status.h>

#include "base/compiler.h"

/* One option as a user gives it: `both`, or where that differs `hw`. */
typedef struct trii_pair_option {
    const char *name;
    int both;
    const int *hw;    /* [2] */
    int least, unset; /* smallest value; what 0 stands for */
} trii_pair_option;

/* Height and width of an option. INVALID_ARG, with a line behind `call`, if both ways of saying it
 * are used or a number is too small. */
tri_status trii_pair_get(const char *call, const trii_pair_option *option,
                         int pair_out[2]) TRI_MUST_CHECK;

#endif
