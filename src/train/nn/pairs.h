/*
 * pairs.h - options of images: one number for height and width, or one for each.
 */
#ifndef TRII_PAIRS_H
#define TRII_PAIRS_H

#include <trireme/status.h>

#include "base/compiler.h"

/* One option as the user gives it: `both`, or `hw` where height and width differ. */
typedef struct trii_pair_option {
    const char *name;
    int both;
    const int *hw;    /* [2] */
    int least, unset; /* smallest value allowed; the value that 0 stands for */
} trii_pair_option;

/* Height and width of an option. INVALID_ARG, with `call` at the start of the line, if both ways
 * are used or a number is too small. */
tri_status trii_pair_get(const char *call, const trii_pair_option *option,
                         int pair_out[2]) TRI_MUST_CHECK;

#endif
