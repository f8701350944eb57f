/*
 * sum_tree.c - see sum_tree.h.
 */
#include "device/cpu/sum_tree.h"

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

double trii_lanes_total(double lanes[TRII_SUM_LANES])
{
    for (int width = TRII_SUM_LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    }
    return lanes[0];
}
