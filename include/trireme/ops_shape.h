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
 * Any dtype. Views (all of this block but tri_flip; tri_narrow, tri_slice, tri_select, tri_unbind,
 * tri_split, tri_chunk and tri_unfold below) move no bytes within a step if the kernels that read
 * them can read the memory of x. A result that outlives the run is copied, in plain order.
 *
 * Here and below a negative dimension counts from the end: -1 is the last. For a tensor without
 * dimensions 0 and -1 are allowed, as in PyTorch. */
/* The same elements in another shape; one size may be -1, and is then computed. */
TRI_API tri_tensor *tri_reshape(tri_tensor *x, const int64_t *shape, int ndim);
/* Dimensions from start_dim on become one. */
TRI_API tri_tensor *tri_flatten(tri_tensor *x, int start_dim);
TRI_API tri_tensor *tri_permute(tri_tensor *x, const int64_t *dims, int ndim);
TRI_API tri_tensor *tri_transpose(tri_tensor *x, int dim0, int dim1);
/* Repeats elements along dimensions of size 1, to `shape`, which may have more leading
 * dimensions. */
TRI_API tri_tensor *tri_expand(tri_tensor *x, const int64_t *shape, int ndim);
/* Removes the dimensions of size 1 among dims[n]; n = 0: all of size 1. */
TRI_API tri_tensor *tri_squeeze(tri_tensor *x, const int64_t *dims, int n);
/* Adds a dimension of size 1 at dim, from -(ndim + 1) to ndim. */
TRI_API tri_tensor *tri_unsqueeze(tri_tensor *x, int dim);
/* Reverses the elements along dim. */
TRI_API tri_tensor *tri_flip(tri_tensor *x, int dim);
/* x on another device (device.h): a copy, whose gradient is copied back; x itself if it is there
 * already. */
TRI_API tri_tensor *tri_to(tri_tensor *x, tri_device device);

/* --- splitting, joining (any dtype; a negative dim counts from the end) --- */
/* `length` elements along dim from `start` (negative: from the end) on; they must exist. */
TRI_API tri_tensor *tri_narrow(tri_tensor *x, int dim, int64_t start, int64_t length);
/* x[start:end:step] along dim: negative ends count from the end, and both are limited to what
 * exists (end INT64_MAX: to the end). step >= 1. */
TRI_API tri_tensor *tri_slice(tri_tensor *x, int dim, int64_t start, int64_t end, int64_t step);
/* x with src, cast to its dtype, in place of x[start:end:step] along dim. */
TRI_API tri_tensor *tri_slice_scatter(tri_tensor *x, tri_tensor *src, int dim, int64_t start,
                                      int64_t end, int64_t step);
/* Windows of `size` elements, `step` apart, along dim: [.., L, ..] -> [.., (L - size) / step + 1,
 * .., size]. */
TRI_API tri_tensor *tri_unfold(tri_tensor *x, int dim, int64_t size, int64_t step);
/* One element along dim; the result lacks that dimension. */
TRI_API tri_tensor *tri_select(tri_tensor *x, int dim, int64_t index);
/* All elements along dim: out[n], where n is the size of dim. */
TRI_API void tri_unbind(tri_tensor *x, int dim, tri_tensor **out, int n);
/* n parts of these sizes, which must add up to the size of dim: out[n]. */
TRI_API void tri_split(tri_tensor *x, const int64_t *sizes, int n, int dim, tri_tensor **out);
/* n parts of equal size, the last of which may be smaller: out[n]. There may be fewer than n;
 * returns how many there are. */
TRI_API int tri_chunk(tri_tensor *x, int n, int dim, tri_tensor **out);
/* Joins xs[n], n >= 1, along dim; in other dimensions their sizes are equal. */
TRI_API tri_tensor *tri_concat(tri_tensor *const *xs, int n, int dim);
/* Joins xs[n], n >= 1, of one shape, along a new dimension dim. */
TRI_API tri_tensor *tri_stack(tri_tensor *const *xs, int n, int dim);
/* pad[n]: how many elements to add before and after the last dimension, then the one before it, ...
 * (torch's order). Negative numbers remove elements. The new elements are `value`. */
TRI_API tri_tensor *tri_pad(tri_tensor *x, const int64_t *pad, int n, double value);
/* Sets what is above (below) a diagonal of the last two dimensions to 0; diagonal 0 is the main
 * one, 1 the one above it. */
TRI_API tri_tensor *tri_tril(tri_tensor *x, int64_t diagonal);
TRI_API tri_tensor *tri_triu(tri_tensor *x, int64_t diagonal);

/* --- elements by index (i64; an index out of range fails the run) --------- */
/* torch.gather (tri_gather is the collective). For dim 0: out[i][j] = x[index[i][j]][j]. index has
 * as many dimensions as x and, except along dim, at most its sizes; the result has index's
 * shape. */
TRI_API tri_tensor *tri_gather_along(tri_tensor *x, int dim, tri_tensor *index);
/* x with src[i][j] added at [index[i][j]][j] (for dim 0); index is at most as large as src. */
TRI_API tri_tensor *tri_scatter_add(tri_tensor *x, int dim, tri_tensor *index, tri_tensor *src);
/* The elements along dim whose numbers are in index [n]. */
TRI_API tri_tensor *tri_index_select(tri_tensor *x, int dim, tri_tensor *index);
/* index [..] in [0, n_classes) -> i64 [.., n_classes]: 1 at the index, else 0. No gradient. */
TRI_API tri_tensor *tri_one_hot(tri_tensor *index, int64_t n_classes);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_reshape(...) TRI_SITE_(tri_reshape(__VA_ARGS__))
#define tri_flatten(...) TRI_SITE_(tri_flatten(__VA_ARGS__))
#define tri_permute(...) TRI_SITE_(tri_permute(__VA_ARGS__))
#define tri_transpose(...) TRI_SITE_(tri_transpose(__VA_ARGS__))
#define tri_expand(...) TRI_SITE_(tri_expand(__VA_ARGS__))
#define tri_squeeze(...) TRI_SITE_(tri_squeeze(__VA_ARGS__))
#define tri_unsqueeze(...) TRI_SITE_(tri_unsqueeze(__VA_ARGS__))
#define tri_flip(...) TRI_SITE_(tri_flip(__VA_ARGS__))
#define tri_to(...) TRI_SITE_(tri_to(__VA_ARGS__))
#define tri_narrow(...) TRI_SITE_(tri_narrow(__VA_ARGS__))
#define tri_slice(...) TRI_SITE_(tri_slice(__VA_ARGS__))
#define tri_slice_scatter(...) TRI_SITE_(tri_slice_scatter(__VA_ARGS__))
#define tri_unfold(...) TRI_SITE_(tri_unfold(__VA_ARGS__))
#define tri_select(...) TRI_SITE_(tri_select(__VA_ARGS__))
#define tri_unbind(...) TRI_SITE_(tri_unbind(__VA_ARGS__))
#define tri_split(...) TRI_SITE_(tri_split(__VA_ARGS__))
#define tri_chunk(...) TRI_SITE_(tri_chunk(__VA_ARGS__))
#define tri_concat(...) TRI_SITE_(tri_concat(__VA_ARGS__))
#define tri_stack(...) TRI_SITE_(tri_stack(__VA_ARGS__))
#define tri_pad(...) TRI_SITE_(tri_pad(__VA_ARGS__))
#define tri_tril(...) TRI_SITE_(tri_tril(__VA_ARGS__))
#define tri_triu(...) TRI_SITE_(tri_triu(__VA_ARGS__))
#define tri_gather_along(...) TRI_SITE_(tri_gather_along(__VA_ARGS__))
#define tri_scatter_add(...) TRI_SITE_(tri_scatter_add(__VA_ARGS__))
#define tri_index_select(...) TRI_SITE_(tri_index_select(__VA_ARGS__))
#define tri_one_hot(...) TRI_SITE_(tri_one_hot(__VA_ARGS__))
#endif

#endif
