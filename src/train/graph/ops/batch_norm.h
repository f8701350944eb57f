/*
 * batch_norm.h - what batch normalisation shares with the form whose statistics are shared between
 * ranks (batch_norm_shared.c).
 */
#ifndef TRII_BATCH_NORM_H
#define TRII_BATCH_NORM_H

#include "train/graph/ops/shared_statistics.h"
#include "train/graph/ops/rules.h"

/* x as [n, channels, inner] */
typedef struct trii_norm_geometry {
    int64_t n, channels, inner;
} trii_norm_geometry;

static inline trii_norm_geometry trii_norm_geometry_of(const trii_type *x)
{
    trii_norm_geometry g = {x->shape[0], x->shape[1], 1};

    for (int d = 2; d < x->ndim; d++)
        g.inner *= x->shape[d];
    return g;
}

/* One channel, for the reference kernels (batch_norm_channel.c). */
typedef struct trii_norm_factors {
    double mean, scale, shift, along;
} trii_norm_factors;
/* Mean (0 if there is nothing), and the sum of squared differences from it. */
void trii_norm_moments(const trii_norm_geometry *geo, int64_t c, const double *x, double *mean_out,
                       double *squares_out);
/* y = (x - mean) scale + shift */
void trii_norm_apply(const trii_norm_geometry *geo, int64_t c, const trii_norm_factors *f,
                     const double *x, double *y);
/* Sums of g, and of g (x - mean). */
void trii_norm_sums(const trii_norm_geometry *geo, int64_t c, double mean, const double *g,
                    const double *x, double *sum_out, double *dot_out);
/* dx = scale (g - shift - (x - mean) along) */
void trii_norm_gradient(const trii_norm_geometry *geo, int64_t c, const trii_norm_factors *f,
                        const double *g, const double *x, double *dx);

/* Operands from `first` on are weight, bias, mean and variance [C]; each pair is there or
 * absent. */
tri_status trii_norm_check_channels(const trii_type *const *in, int first, int n_in,
                                    const trii_type *x) TRI_MUST_CHECK;
/* f: momentum, eps; both must be finite. */
tri_status trii_norm_attrs(const tri_batch_norm_args *args, trii_attrs *attrs) TRI_MUST_CHECK;
/* Binds the values of the new running mean and variance, two consecutive ids, to their tensors. */
tri_status trii_norm_bind_running(trii_step *step, const tri_batch_norm_args *args,
                                  trii_vid first) TRI_MUST_CHECK;

/* Operands of batch_norm_elemt. */
enum {
    TRII_ELEMT_X,
    TRII_ELEMT_WEIGHT,
    TRII_ELEMT_BIAS,
    TRII_ELEMT_MEAN,
    TRII_ELEMT_VAR,
    TRII_ELEMT_COUNT
};

/* f of batch_norm_elemt: momentum (unused), eps, and where the exchange is: two numbers of 32 bits,
 * which a double holds exactly and which are written again in each step. */
static inline void trii_norm_put_exchange(trii_attrs *attrs, const trii_exchange *exchange)
{
    attrs->n_f = 4;
    attrs->f[2] = (double)((uintptr_t)exchange >> 32);
    attrs->f[3] = (double)((uintptr_t)exchange & 0xffffffffu);
}
static inline const trii_exchange *trii_norm_exchange_of(const trii_attrs *attrs)
{
    return (const trii_exchange *)((uintptr_t)attrs->f[2] << 32 | (uintptr_t)attrs->f[3]);
}

#endif
