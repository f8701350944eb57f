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
 * shape[ndim] as TRI_SHAPE(2, 3) gives it. dtype TRI_DTYPE_NONE: f32, of tri_randint i64, of
 * tri_arange i64 if its numbers are whole, else f32. They are step tensors: tri_tensor_clone keeps
 * one. Random numbers are Philox's, as dropout's (tri_manual_seed). */
TRI_API tri_tensor *tri_zeros(const int64_t *shape, int ndim, tri_dtype dtype);
TRI_API tri_tensor *tri_ones(const int64_t *shape, int ndim, tri_dtype dtype);
TRI_API tri_tensor *tri_full(const int64_t *shape, int ndim, double value, tri_dtype dtype);
/* start, start + step, .. before end. */
TRI_API tri_tensor *tri_arange(double start, double end, double step, tri_dtype dtype);
/* Ones on the diagonal of zeros [n, m]; m 0: n. */
TRI_API tri_tensor *tri_eye(int64_t n, int64_t m, tri_dtype dtype);
TRI_API tri_tensor *tri_rand(const int64_t *shape, int ndim, tri_dtype dtype);  /* in [0, 1) */
TRI_API tri_tensor *tri_randn(const int64_t *shape, int ndim, tri_dtype dtype); /* normal */
/* Whole numbers low .. high - 1. */
TRI_API tri_tensor *tri_randint(int64_t low, int64_t high, const int64_t *shape, int ndim,
                                tri_dtype dtype);
/* 1 with probability p[i], else 0, in p's dtype. */
TRI_API tri_tensor *tri_bernoulli(tri_tensor *p);
/* n_samples classes of each row of p [C] or [N, C], which need not add up to 1 -> i64 [n_samples]
 * or [N, n_samples]. */
TRI_API tri_tensor *tri_multinomial(tri_tensor *p, int64_t n_samples, bool replacement);

TRI_END_DECLS

#endif
