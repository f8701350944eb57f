/*
 * ops_shape.h - operations that move or choose elements.
 * A part of ops.h.
 */
#ifndef TRIREME_OPS_SHAPE_H
#define TRIREME_OPS_SHAPE_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- shape -------------------------------------------------------------------
 *
 * What only names elements of x (all of this block but tri_flip; tri_narrow, tri_slice, tri_select,
 * tri_unbind, tri_split, tri_chunk and tri_unfold below) moves no bytes within a step: whoever
 * reads the result reads x, if he can. A result that outlives the run is copied, in plain order.
 *
 * Here and below a dimension counts from the end where it is negative: -1 is the last. A tensor
 * without dimensions has 0 and -1 for those that name one, as in PyTorch. */
/* One size may be -1. */
TRI_API tri_tensor *tri_reshape(tri_tensor *x, const int64_t *shape, int ndim);
/* [d0.. start_dim..] -> dims from start_dim on become one. */
TRI_API tri_tensor *tri_flatten(tri_tensor *x, int start_dim);
TRI_API tri_tensor *tri_permute(tri_tensor *x, const int64_t *dims, int ndim);
TRI_API tri_tensor *tri_transpose(tri_tensor *x, int dim0, int dim1);
/* Sizes of 1 grow to `shape`. */
TRI_API tri_tensor *tri_expand(tri_tensor *x, const int64_t *shape, int ndim);
/* Without its dimensions of size 1 among dims[n]; n = 0: without all of them. */
TRI_API tri_tensor *tri_squeeze(tri_tensor *x, const int64_t *dims, int n);
/* With a new dimension of size 1 at dim, from -(ndim + 1) to ndim. */
TRI_API tri_tensor *tri_unsqueeze(tri_tensor *x, int dim);
/* Mirror along a dimension (test-time augmentation). */
TRI_API tri_tensor *tri_flip(tri_tensor *x, int dim);
/* x on another device (device.h): a copy, whose gradient is copied back; x itself if it lies there
 * already. */
TRI_API tri_tensor *tri_to(tri_tensor *x, tri_device device);

/* --- splitting, joining (any dtype; a negative dim counts from the end) --- */
/* length elements of a dimension from start (negative: from the end) on; they must be there. */
TRI_API tri_tensor *tri_narrow(tri_tensor *x, int dim, int64_t start, int64_t length);
/* x[start:end:step] along dim: negative ends count from the end, and all are cut to what there is
 * (end INT64_MAX: to the end). step >= 1. */
TRI_API tri_tensor *tri_slice(tri_tensor *x, int dim, int64_t start, int64_t end, int64_t step);
/* x with src, cast to its dtype, in the place of x[start:end:step] along dim. */
TRI_API tri_tensor *tri_slice_scatter(tri_tensor *x, tri_tensor *src, int dim, int64_t start,
                                      int64_t end, int64_t step);
/* Windows of size elements, step apart, along dim: [.., L, ..] -> [.., (L - size) / step + 1, ..,
 * size]. */
TRI_API tri_tensor *tri_unfold(tri_tensor *x, int dim, int64_t size, int64_t step);
/* One element along dim, which the result does not have. */
TRI_API tri_tensor *tri_select(tri_tensor *x, int dim, int64_t index);
/* All of them: out[n], n being the size of dim. */
TRI_API void tri_unbind(tri_tensor *x, int dim, tri_tensor **out, int n);
/* n parts of these sizes, which add up to the size of dim: out[n]. */
TRI_API void tri_split(tri_tensor *x, const int64_t *sizes, int n, int dim, tri_tensor **out);
/* n parts of one size but for the last, which may be smaller: out[n]. There may be fewer than n;
 * returns how many there are. */
TRI_API int tri_chunk(tri_tensor *x, int n, int dim, tri_tensor **out);
/* xs[n], any number from 1 on, which differ in dim only -> one behind the other. */
TRI_API tri_tensor *tri_concat(tri_tensor *const *xs, int n, int dim);
/* xs[n] of one shape -> a new dimension dim of size n. */
TRI_API tri_tensor *tri_stack(tri_tensor *const *xs, int n, int dim);
/* pad[n]: elements before and behind the last dimension, then the one before it, ...: torch's
 * order. Negative numbers cut. The new elements are `value`. */
TRI_API tri_tensor *tri_pad(tri_tensor *x, const int64_t *pad, int n, double value);
/* Zeros above (below) the diagonal of the last two dimensions; diagonal 1 is the one above the main
 * one. */
TRI_API tri_tensor *tri_tril(tri_tensor *x, int64_t diagonal);
TRI_API tri_tensor *tri_triu(tri_tensor *x, int64_t diagonal);

/* --- elements by index (i64; an index out of range fails the run) --------- */
/* torch.gather (tri_gather is the collective): out[i][j] = x[index[i][j]][j] for dim 0: index has
 * x's dimensions and, but for dim, at most its sizes; the result has index's shape. */
TRI_API tri_tensor *tri_gather_along(tri_tensor *x, int dim, tri_tensor *index);
/* x with src[i][j] added at [index[i][j]][j] (dim 0); index is at most as large as src. */
TRI_API tri_tensor *tri_scatter_add(tri_tensor *x, int dim, tri_tensor *index, tri_tensor *src);
/* The elements index [n] of dim. */
TRI_API tri_tensor *tri_index_select(tri_tensor *x, int dim, tri_tensor *index);
/* index [..] in [0, n_classes) -> i64 [.., n_classes]: 1 at the index, else 0. */
TRI_API tri_tensor *tri_one_hot(tri_tensor *index, int64_t n_classes);

TRI_END_DECLS

#endif
