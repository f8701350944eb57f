/*
 * softmax_rows.h - exponentials of rows, which softmax and cross entropy share.
 */
#ifndef TRII_SOFTMAX_ROWS_H
#define TRII_SOFTMAX_ROWS_H

#include "train/device/cpu/kernels.h"

#define TRII_EXP_ROWS 64 /* at a time, at most */

/* For each row: its largest element (NaN wins), and the sum of e^(x - max), added in f64. */
typedef struct trii_exp_sums {
    float max[TRII_EXP_ROWS];
    double sum[TRII_EXP_ROWS];
} trii_exp_sums;

/* rows <= TRII_EXP_ROWS of n >= 1 elements; e, unless NULL, gets the terms. */
void trii_exp_rows(const trii_cpu_kernels *kernels, const float *x, int64_t rows, int64_t n,
                   float *e, trii_exp_sums *sums_out);
/* The sum of x[i], i < n. */
double trii_sum_row(const trii_cpu_kernels *kernels, const float *x, int64_t n);

#endif
