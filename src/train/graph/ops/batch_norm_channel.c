/*
 * batch_norm_channel.c - one channel of batch normalisation, for the reference kernels.
 */
#include "train/graph/ops/batch_norm.h"

static inline int64_t row_of(const trii_norm_geometry *geo, int64_t n, int64_t c)
{
    return (n * geo->channels + c) * geo->inner;
}

void trii_norm_moments(const trii_norm_geometry *geo, int64_t c, const double *x, double *mean_out,
                       double *squares_out)
{
    double count = (double)(geo->n * geo->inner), mean = 0, squares = 0;

    for (int64_t n = 0; n < geo->n; n++)
        for (int64_t i = 0, at = row_of(geo, n, c); i < geo->inner; i++)
            mean += x[at + i];
    mean = count > 0 ? mean / count : 0;
    for (int64_t n = 0; n < geo->n; n++)
        for (int64_t i = 0, at = row_of(geo, n, c); i < geo->inner; i++)
            squares += (x[at + i] - mean) * (x[at + i] - mean);
    *mean_out = mean;
    *squares_out = squares;
}

void trii_norm_apply(const trii_norm_geometry *geo, int64_t c, const trii_norm_factors *f,
                     const double *x, double *y)
{
    for (int64_t n = 0; n < geo->n; n++)
        for (int64_t i = 0, at = row_of(geo, n, c); i < geo->inner; i++)
            y[at + i] = (x[at + i] - f->mean) * f->scale + f->shift;
}

void trii_norm_sums(const trii_norm_geometry *geo, int64_t c, double mean, const double *g,
                    const double *x, double *sum_out, double *dot_out)
{
    double sum = 0, dot = 0;

    for (int64_t n = 0; n < geo->n; n++) {
        for (int64_t i = 0, at = row_of(geo, n, c); i < geo->inner; i++) {
            sum += g[at + i];
            dot += g[at + i] * (x[at + i] - mean);
        }
    }
    *sum_out = sum;
    *dot_out = dot;
}

void trii_norm_gradient(const trii_norm_geometry *geo, int64_t c, const trii_norm_factors *f,
                        const double *g, const double *x, double *dx)
{
    for (int64_t n = 0; n < geo->n; n++)
        for (int64_t i = 0, at = row_of(geo, n, c); i < geo->inner; i++)
            dx[at + i] = f->scale * (g[at + i] - f->shift - (x[at + i] - f->mean) * f->along);
}
