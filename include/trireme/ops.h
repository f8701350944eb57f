/*
 * ops.h - operations on tensors. All return a step tensor (see tensor.h), never NULL; none
 * computes. Shapes are in brackets; N batch, C channels, H height, W width.
 *
 * Binary element-wise operations broadcast as NumPy does; both sides have one dtype.
 * No result has more than 2^48 elements (INVALID_ARG).
 * Semantics, names and defaults are those of torch.nn.functional and torch.
 */
#ifndef TRIREME_OPS_H
#define TRIREME_OPS_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- element-wise ----------------------------------------------------------------------- */
TRI_API tri_tensor *tri_add(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_sub(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_mul(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_div(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_maximum(tri_tensor *a, tri_tensor *b); /* NaN wins; ties share */
TRI_API tri_tensor *tri_minimum(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_add_scalar(tri_tensor *x, double value);
TRI_API tri_tensor *tri_mul_scalar(tri_tensor *x, double value);
TRI_API tri_tensor *tri_neg(tri_tensor *x);
TRI_API tri_tensor *tri_abs(tri_tensor *x);
TRI_API tri_tensor *tri_square(tri_tensor *x);
TRI_API tri_tensor *tri_sqrt(tri_tensor *x);
TRI_API tri_tensor *tri_exp(tri_tensor *x);
TRI_API tri_tensor *tri_log(tri_tensor *x);
TRI_API tri_tensor *tri_relu(tri_tensor *x);
TRI_API tri_tensor *tri_leaky_relu(tri_tensor *x, double slope);
TRI_API tri_tensor *tri_sigmoid(tri_tensor *x);
TRI_API tri_tensor *tri_tanh(tri_tensor *x);
/* x times the normal distribution's integral, exactly or (GPT-2's) approximated by tanh. */
typedef enum tri_gelu_form { TRI_GELU_ERF, TRI_GELU_TANH } tri_gelu_form;
TRI_API tri_tensor *tri_gelu(tri_tensor *x, tri_gelu_form form);
TRI_API tri_tensor *tri_silu(tri_tensor *x);
/* Between bool, all integers, f16, bf16, f32 and f64. Real numbers become integers towards zero;
 * integers that do not fit keep their low bits. f16 is for storage: other operations refuse it. */
TRI_API tri_tensor *tri_cast(tri_tensor *x, tri_dtype dtype);
/* Training: zero with probability p, scale the rest by 1/(1-p); else the identity. */
TRI_API tri_tensor *tri_dropout(tri_tensor *x, double p, bool training);

/* --- shape --------------------------------------------------------------------------------
 *
 * Here and below a dimension counts from the end where it is negative: -1 is the last. A tensor
 * without dimensions has 0 and -1 for those that name one, as in PyTorch.
 */
/* One size may be -1. */
TRI_API tri_tensor *tri_reshape(tri_tensor *x, const int64_t *shape, int ndim);
/* [d0.. start_dim..] -> dims from start_dim on become one. */
TRI_API tri_tensor *tri_flatten(tri_tensor *x, int start_dim);
TRI_API tri_tensor *tri_permute(tri_tensor *x, const int64_t *dims, int ndim);
TRI_API tri_tensor *tri_transpose(tri_tensor *x, int dim0, int dim1);
/* Sizes of 1 grow to `shape`. */
TRI_API tri_tensor *tri_expand(tri_tensor *x, const int64_t *shape, int ndim);
/* Mirror along a dimension (test-time augmentation). */
TRI_API tri_tensor *tri_flip(tri_tensor *x, int dim);

/* --- reductions (dims NULL: all dimensions) -----------------------------------------------------
 *
 * Sums and means have the same bits on any number of threads and any instruction set. Of no
 * elements a sum is 0 and a mean NaN, and so is the loss of an empty batch, with gradients of zeros
 * for what has elements.
 */
TRI_API tri_tensor *tri_sum(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
TRI_API tri_tensor *tri_mean(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
TRI_API tri_tensor *tri_amax(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
TRI_API tri_tensor *tri_argmax(tri_tensor *x, int dim); /* i64; the first of equals */

/* --- matrix products ---------------------------------------------------------------------- */
/* [.., M, K] x [.., K, N] -> [.., M, N]; leading dimensions broadcast. A vector [K] on the left is
 * a row, on the right a column, and the result lacks that dimension: two vectors give a number. */
TRI_API tri_tensor *tri_matmul(tri_tensor *a, tri_tensor *b);
/* x [.., I], weight [O, I], bias [O] or NULL -> [.., O]. */
TRI_API tri_tensor *tri_linear(tri_tensor *x, tri_tensor *weight, tri_tensor *bias);
/* Rows of weight [V, D] by their numbers, indices i64 [..] in [0, V) -> [.., D]; an index out of
 * range fails the run. The row padding_idx (negative: from the end) gets no gradient. */
typedef struct tri_embedding_options {
    bool has_padding_idx;
    int64_t padding_idx;
} tri_embedding_options;
TRI_API tri_tensor *tri_embedding(tri_tensor *weight, tri_tensor *indices,
                                  const tri_embedding_options *opt);

/* --- attention ---------------------------------------------------------------------------------
 *
 * scaled_dot_product_attention: softmax(q k^T scale + mask) v for q [B, H, T, D], k [B, Hk, S, D],
 * v [B, Hk, S, Dv] -> [B, H, T, Dv]. The T x S weights are never kept, so memory grows with T, not
 * with its square. A query that may look at no key gives zeros. */
typedef struct tri_attention_options {
    tri_tensor *attn_mask; /* broadcasts to [B, H, T, S]: bool, true = may look, or numbers of q's
                              dtype that are added to the scores; has no gradient */
    double dropout_p;      /* 0 <= p < 1: weights are dropped, whoever is training or not */
    bool is_causal;        /* query t looks at keys 0 .. t only; with a mask, at what both allow */
    double scale;          /* 0 = 1 / sqrt(D) */
    bool enable_gqa;       /* Hk may divide H: neighbouring heads of q share k and v */
} tri_attention_options;
TRI_API tri_tensor *tri_attention(tri_tensor *q, tri_tensor *k, tri_tensor *v,
                                  const tri_attention_options *opt);

/* --- convolution and pooling ----------------------------------------------------------------- */
/* Zero means the default: stride 1, padding 0, dilation 1, groups 1. [0] is height. */
typedef struct tri_conv2d_options {
    int stride[2];
    int padding[2];
    int dilation[2];
    int groups;
} tri_conv2d_options;
/* x [N, C, H, W], weight [O, C/groups, KH, KW], bias [O] or NULL -> [N, O, H', W']. */
TRI_API tri_tensor *tri_conv2d(tri_tensor *x, tri_tensor *weight, tri_tensor *bias,
                               const tri_conv2d_options *opt);
/* Zero means the default: stride = kernel, padding 0. Of x [N, C, H, W] only N may be 0. */
typedef struct tri_pool2d_options {
    int stride[2];
    int padding[2];
    bool ceil_mode;
    bool exclude_padding; /* average only: divide by the elements inside the image */
} tri_pool2d_options;
TRI_API tri_tensor *tri_max_pool2d(tri_tensor *x, int kernel_h, int kernel_w,
                                   const tri_pool2d_options *opt);
TRI_API tri_tensor *tri_avg_pool2d(tri_tensor *x, int kernel_h, int kernel_w,
                                   const tri_pool2d_options *opt);
/* [N, C, H, W] -> [N, C, h, w]; h and w may be 0, H and W not, nor C for the maximum. */
TRI_API tri_tensor *tri_adaptive_avg_pool2d(tri_tensor *x, int h, int w);
TRI_API tri_tensor *tri_adaptive_max_pool2d(tri_tensor *x, int h, int w);

/* --- normalisation --------------------------------------------------------------------------- */
/* x [N, C, ..]; weight, bias [C] or both NULL; running_mean, running_var [C], persistent, or both
 * NULL. Training: batch statistics normalise (biased variance) and update the running ones
 * (unbiased) by momentum; else the running ones normalise. An empty batch leaves them as they
 * are. */
typedef struct tri_batch_norm_args {
    tri_tensor *weight, *bias, *running_mean, *running_var;
    bool training;
    double momentum; /* 0 = 0.1; TRI_ZERO: the running statistics stay as they are */
    double eps;      /* 0 = 1e-5; TRI_ZERO: nothing is added to the variance */
} tri_batch_norm_args;
TRI_API tri_tensor *tri_batch_norm(tri_tensor *x, const tri_batch_norm_args *args);

/* The last n_dims dimensions of x are a row (n_dims 1: the last one), normalised by its own mean
 * and biased variance, or by its root mean square; weight, bias of a row's shape, each may be NULL.
 * eps 0: 1e-5, of tri_rms_norm the machine epsilon of x's dtype; TRI_ZERO: nothing is added. */
TRI_API tri_tensor *tri_layer_norm(tri_tensor *x, int n_dims, tri_tensor *weight, tri_tensor *bias,
                                   double eps);
TRI_API tri_tensor *tri_rms_norm(tri_tensor *x, int n_dims, tri_tensor *weight, double eps);

/* --- softmax and losses (mean over the batch: a scalar, shape []) --------------------------------
 */
TRI_API tri_tensor *tri_softmax(tri_tensor *x, int dim);
TRI_API tri_tensor *tri_log_softmax(tri_tensor *x, int dim);
/* logits [N, C], target [N] i64, each in [0, C) (another fails the run, naming the row). Zero
 * options: no smoothing. */
typedef struct tri_cross_entropy_options {
    double label_smoothing; /* 0 <= s < 1 */
} tri_cross_entropy_options;
TRI_API tri_tensor *tri_cross_entropy(tri_tensor *logits, tri_tensor *target,
                                      const tri_cross_entropy_options *opt);
/* Mean of (a - b)^2 over all elements; the shapes are equal. */
TRI_API tri_tensor *tri_mse_loss(tri_tensor *a, tri_tensor *b);
/* How many rows of logits [N, C] have their largest element at target [N]: i64 scalar. */
TRI_API tri_tensor *tri_count_correct(tri_tensor *logits, tri_tensor *target);

TRI_END_DECLS

/* Every operation remembers the caller's line for its error message (-DTRI_NO_SITES: off). */
#include <trireme/ops_sites.h>

#endif
