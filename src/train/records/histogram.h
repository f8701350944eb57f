/*
 * histogram.h - how values are distributed, in the buckets that PyTorch's writer has by default.
 */
#ifndef TRII_HISTOGRAM_H
#define TRII_HISTOGRAM_H

#include <trireme/types.h>

/* 0, and 774 limits 1e-12 * 1.1^k on either side of it. */
#define TRII_HISTOGRAM_SIDE 774
#define TRII_HISTOGRAM_LIMITS (2 * TRII_HISTOGRAM_SIDE + 1)

/* Of what is finite. A bucket has what is below its limit and not below the one before; the last
 * one of all takes whatever is larger. */
typedef struct trii_histogram {
    double min, max, sum, sum_squares; /* 0 where there is nothing */
    int64_t n;
    int first, buckets; /* what is left without the empty ends: at least one */
    double limits[TRII_HISTOGRAM_LIMITS + 1];
    double counts[TRII_HISTOGRAM_LIMITS + 1];
} trii_histogram;

/* dtype: f32, f64, i64, i32, u8. */
void trii_histogram_make(const void *values, int64_t n, tri_dtype dtype, trii_histogram *out);

#endif
