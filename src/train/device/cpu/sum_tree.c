/*
 * sum_tree.c - see sum_tree.h.
 */
#include "train/device/cpu/sum_tree.h"

double trii_tree_total(double *x, int64_t n)
{
    if (n == 0)
        return 0;
    for (; n > 1; n = (n + 1) / 2) {
        for (int64_t i = 0; i < n / 2; i++)
            x[i] = x[2 * i] + x[2 * i + 1];
        if (n % 2 != 0)
            x[n / 2] = x[n - 1];
    }
    return x[0];
}

static inline __attribute__((always_inline)) void halve(double *lanes, int width)
{
    for (int l = 0; l < width; l++)
        lanes[l] += lanes[l + width];
}

double trii_lanes_total(double lanes[TRII_SUM_LANES])
{
    _Static_assert(TRII_SUM_LANES == 32, "below are its halves");
    halve(lanes, 16); /* constants, so that the compiler sees vectors */
    halve(lanes, 8);
    halve(lanes, 4);
    halve(lanes, 2);
    return lanes[0] + lanes[1];
}
