/*
 * softmax_rows.h - exponentials of a row, which softmax and cross entropy share.
 */
#ifndef TRII_SOFTMAX_ROWS_H
#define TRII_SOFTMAX_ROWS_H

#include "device/cpu/kernels.h"

/* The sum of e^(x[i] - shift), i < n, in lanes of f64; e, if not NULL, gets the terms. */
double trii_exp_row(const trii_cpu_kernels *kernels, const float *x, float shift, int64_t n,
                    float *e);
/* The sum of x[i], i < n, alike. */
double trii_sum_row(const trii_cpu_kernels *kernels, const float *x, int64_t n);

#endif
