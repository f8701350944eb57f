/*
 * sum_tree.h - the order in which the cpu device adds up whatever it sums, so that the bits depend
 * on the shape alone, not on the number of threads or the instruction set: blocks of at most
 * TRII_SUM_BLOCK elements, each added in f64 by one thread in TRII_SUM_LANES lanes (or row by row
 * if the last dimension stays), and a balanced tree over lanes and blocks.
 */
#ifndef TRII_SUM_TREE_H
#define TRII_SUM_TREE_H

#include <stdint.h>

#include "train/device/cpu/kernels.h"

#define TRII_SUM_BLOCK 4096
#define TRII_SUM_GRAIN 131072 /* elements per thread at least: some 15 us */

/* The sum of x[0 .. n), neighbours first, then pairs of pairs, ...; 0 of none. Overwrites x. */
double trii_tree_total(double *x, int64_t n);
/* The sum of the lanes, which it overwrites. */
double trii_lanes_total(double lanes[TRII_SUM_LANES]);

/* Blocks of n elements. */
static inline int64_t trii_sum_blocks(int64_t n)
{
    return (n + TRII_SUM_BLOCK - 1) / TRII_SUM_BLOCK;
}

#endif
