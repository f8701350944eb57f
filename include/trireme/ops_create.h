/*
 * ops_create.h - tensors made from nothing: constants, sequences, random numbers.
 * A part of ops.h.
 */
#ifndef TRIREME_OPS_CREATE_H
#define TRIREME_OPS_CREATE_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- tensors made in a step --------------------------------------------------
 *
 * shape[ndim] is given by TRI_SHAPE(2, 3), say. dtype TRI_DTYPE_NONE means f32, for tri_randint
 * i64, for tri_arange i64 if its numbers are whole. Tensors are made on the current device and are
 * step tensors: tri_tensor_clone keeps one. Random numbers come from the context's Philox
 * generator, as those of dropout (tri_manual_seed). */
TRI_API tri_tensor *tri_zeros(const int64_t *shape, int ndim, tri_dtype dtype);
TRI_API tri_tensor *tri_ones(const int64_t *shape, int ndim, tri_dtype dtype);
TRI_API tri_tensor *tri_full(const int64_t *shape, int ndim, double value, tri_dtype dtype);
/* [n]: start, start + step, .. below end (above it if step < 0). step: not 0; all three within
 * 2^53. */
TRI_API tri_tensor *tri_arange(double start, double end, double step, tri_dtype dtype);
/* Zeros [n, m] with ones on the diagonal; m 0: as n. */
TRI_API tri_tensor *tri_eye(int64_t n, int64_t m, tri_dtype dtype);
/* uniform in [0, 1) */
TRI_API tri_tensor *tri_rand(const int64_t *shape, int ndim, tri_dtype dtype);
/* normal, mean 0, variance 1 */
TRI_API tri_tensor *tri_randn(const int64_t *shape, int ndim, tri_dtype dtype);
/* Uniform whole numbers low .. high - 1, low < high, both within 2^53. */
TRI_API tri_tensor *tri_randint(int64_t low, int64_t high, const int64_t *shape, int ndim,
                                tri_dtype dtype);
/* Shape and dtype of p, without a gradient: 1 with probability p[i], else 0. A p[i] outside [0, 1]
 * fails the run. */
TRI_API tri_tensor *tri_bernoulli(tri_tensor *p);
/* p [C] or [N, C], not negative, need not add up to 1 -> i64 [n_samples] or [N, n_samples]: for
 * each row n_samples class numbers, drawn in proportion to p. Without replacement n_samples <= C; a
 * row with too few classes above 0 fails the run. */
TRI_API tri_tensor *tri_multinomial(tri_tensor *p, int64_t n_samples, bool replacement);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_zeros(...) TRI_SITE_(tri_zeros(__VA_ARGS__))
#define tri_ones(...) TRI_SITE_(tri_ones(__VA_ARGS__))
#define tri_full(...) TRI_SITE_(tri_full(__VA_ARGS__))
#define tri_arange(...) TRI_SITE_(tri_arange(__VA_ARGS__))
#define tri_eye(...) TRI_SITE_(tri_eye(__VA_ARGS__))
#define tri_rand(...) TRI_SITE_(tri_rand(__VA_ARGS__))
#define tri_randn(...) TRI_SITE_(tri_randn(__VA_ARGS__))
#define tri_randint(...) TRI_SITE_(tri_randint(__VA_ARGS__))
#define tri_bernoulli(...) TRI_SITE_(tri_bernoulli(__VA_ARGS__))
#define tri_multinomial(...) TRI_SITE_(tri_multinomial(__VA_ARGS__))
#endif

#endif
