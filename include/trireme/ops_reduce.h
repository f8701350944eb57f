/*
 * ops_reduce.h - reductions over dimensions.
 * A part of ops.h.
 */
#ifndef TRIREME_OPS_REDUCE_H
#define TRIREME_OPS_REDUCE_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- reductions (dims NULL or none of them: all) -----------------------------
 *
 * Sums and means have the same bits on any number of threads and any instruction set. Of no
 * elements a sum is 0 and a mean NaN, and so is the loss of an empty batch, with gradients of zeros
 * for what has elements. */
TRI_API tri_tensor *tri_sum(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
TRI_API tri_tensor *tri_mean(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
TRI_API tri_tensor *tri_amax(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* i64; the first of equals. */
TRI_API tri_tensor *tri_argmax(tri_tensor *x, int dim, bool keepdim);
TRI_API tri_tensor *tri_argmin(tri_tensor *x, int dim, bool keepdim);
TRI_API tri_tensor *tri_amin(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* The largest (smallest) along dim, NaN before all; their indices, i64, to *indices_out unless that
 * is NULL. */
TRI_API tri_tensor *tri_max(tri_tensor *x, int dim, bool keepdim, tri_tensor **indices_out);
TRI_API tri_tensor *tri_min(tri_tensor *x, int dim, bool keepdim, tri_tensor **indices_out);
/* The k largest (or smallest) along dim, in order, of equals the first first; NaN is larger than
 * any number. Of k = the size along dim: all of them, sorted. */
TRI_API tri_tensor *tri_topk(tri_tensor *x, int64_t k, int dim, bool smallest,
                             tri_tensor **indices_out);
TRI_API tri_tensor *tri_prod(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
TRI_API tri_tensor *tri_any(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
TRI_API tri_tensor *tri_all(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* The sum of squared differences from the mean over n - correction (PyTorch's default is 1, which
 * is unbiased), and its root. */
TRI_API tri_tensor *tri_var(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim,
                            int correction);
TRI_API tri_tensor *tri_std(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim,
                            int correction);
/* (sum of |x|^p)^(1/p); p 0: 2; INFINITY, -INFINITY: the largest, smallest of |x|. */
TRI_API tri_tensor *tri_norm(tri_tensor *x, double p, const int64_t *dims, int n_dims,
                             bool keepdim);
TRI_API tri_tensor *tri_logsumexp(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* Sums of the elements so far along dim; of what is not negative they never fall. */
TRI_API tri_tensor *tri_cumsum(tri_tensor *x, int dim);

TRI_END_DECLS

#endif
