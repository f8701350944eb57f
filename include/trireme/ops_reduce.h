/*
 * ops_reduce.h - reductions over dimensions.
 * A part of ops.h.
 */
#ifndef TRIREME_OPS_REDUCE_H
#define TRIREME_OPS_REDUCE_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- reductions over dims[n_dims] (NULL, 0: all) -----------------------------
 *
 * The result lacks the reduced dimensions, or with keepdim has size 1 there. Sums and means have
 * the same bits on any number of threads and any instruction set. The sum of no elements is 0,
 * their mean NaN; so the loss of an empty batch is NaN, and the gradients of parameters are zeros.
 */
TRI_API tri_tensor *tri_sum(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
TRI_API tri_tensor *tri_mean(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* The largest elements; equal ones share the gradient. */
TRI_API tri_tensor *tri_amax(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* The index of the largest (smallest) element along dim, i64; the first of equals. No gradient. */
TRI_API tri_tensor *tri_argmax(tri_tensor *x, int dim, bool keepdim);
TRI_API tri_tensor *tri_argmin(tri_tensor *x, int dim, bool keepdim);
/* The smallest elements; equal ones share the gradient. */
TRI_API tri_tensor *tri_amin(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* The largest (smallest) element along dim; NaN wins. Its index, i64, is written to *indices_out
 * unless that is NULL. */
TRI_API tri_tensor *tri_max(tri_tensor *x, int dim, bool keepdim, tri_tensor **indices_out);
TRI_API tri_tensor *tri_min(tri_tensor *x, int dim, bool keepdim, tri_tensor **indices_out);
/* The k largest (or smallest) elements along dim, in order; of equals the first comes first, and
 * NaN is larger than any number. With k = the size of dim all elements, sorted. Their indices, i64,
 * are written to *indices_out unless that is NULL. */
TRI_API tri_tensor *tri_topk(tri_tensor *x, int64_t k, int dim, bool smallest,
                             tri_tensor **indices_out);
TRI_API tri_tensor *tri_prod(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* bool -> bool: whether some element is true, whether all are. */
TRI_API tri_tensor *tri_any(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
TRI_API tri_tensor *tri_all(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* The sum of squared differences from the mean, divided by n - correction (PyTorch's default is 1,
 * which is unbiased); and its root. The gradient goes through the mean as well, so one from above
 * that is infinite becomes NaN. */
TRI_API tri_tensor *tri_var(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim,
                            int correction);
TRI_API tri_tensor *tri_std(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim,
                            int correction);
/* (sum of |x|^p)^(1/p); p is not 0, torch's default is 2; INFINITY, -INFINITY: the largest,
 * smallest |x|. */
TRI_API tri_tensor *tri_norm(tri_tensor *x, double p, const int64_t *dims, int n_dims,
                             bool keepdim);
TRI_API tri_tensor *tri_logsumexp(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
/* [i] is the sum of elements 0 .. i along dim. It never decreases if no element is negative. */
TRI_API tri_tensor *tri_cumsum(tri_tensor *x, int dim);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_sum(...) TRI_SITE_(tri_sum(__VA_ARGS__))
#define tri_mean(...) TRI_SITE_(tri_mean(__VA_ARGS__))
#define tri_amax(...) TRI_SITE_(tri_amax(__VA_ARGS__))
#define tri_argmax(...) TRI_SITE_(tri_argmax(__VA_ARGS__))
#define tri_argmin(...) TRI_SITE_(tri_argmin(__VA_ARGS__))
#define tri_amin(...) TRI_SITE_(tri_amin(__VA_ARGS__))
#define tri_max(...) TRI_SITE_(tri_max(__VA_ARGS__))
#define tri_min(...) TRI_SITE_(tri_min(__VA_ARGS__))
#define tri_topk(...) TRI_SITE_(tri_topk(__VA_ARGS__))
#define tri_prod(...) TRI_SITE_(tri_prod(__VA_ARGS__))
#define tri_any(...) TRI_SITE_(tri_any(__VA_ARGS__))
#define tri_all(...) TRI_SITE_(tri_all(__VA_ARGS__))
#define tri_var(...) TRI_SITE_(tri_var(__VA_ARGS__))
#define tri_std(...) TRI_SITE_(tri_std(__VA_ARGS__))
#define tri_norm(...) TRI_SITE_(tri_norm(__VA_ARGS__))
#define tri_logsumexp(...) TRI_SITE_(tri_logsumexp(__VA_ARGS__))
#define tri_cumsum(...) TRI_SITE_(tri_cumsum(__VA_ARGS__))
#endif

#endif
