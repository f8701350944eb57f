/*
 * ops_nn.h - what layers are made of: products, attention, convolution, normalisation.
 * A part of ops.h.
 */
#ifndef TRIREME_OPS_NN_H
#define TRIREME_OPS_NN_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- matrix products ------------------------------------------------------ */
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

/* --- attention ---------------------------------------------------------------
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

/* --- convolution and pooling ---------------------------------------------- */
/* Zero means the default: stride 1, padding 0, dilation 1, groups 1. [0] is the first dimension
 * behind the channels; those that the weight does not have are 0. */
typedef struct tri_conv_options {
    int stride[3];
    int padding[3];
    int dilation[3];
    int groups;
} tri_conv_options;
/* x [N, C, L] with weight [O, C/groups, K] -> [N, O, L'], or
 * x [N, C, H, W] with weight [O, C/groups, KH, KW] -> [N, O, H', W']; bias [O] or NULL. x may lack
 * N, and then the result does. */
TRI_API tri_tensor *tri_conv(tri_tensor *x, tri_tensor *weight, tri_tensor *bias,
                             const tri_conv_options *opt);
/* [0] is the first dimension behind the channels; those that x does not have are 0. How many sizes
 * kernel has says what x is: {3} is for rows, {3, 2} for images. */
typedef struct tri_pool_options {
    int kernel[3];  /* required */
    int stride[3];  /* 0: that of the kernel */
    int padding[3]; /* at most half the kernel */
    bool ceil_mode;
    bool exclude_padding; /* average only: divide by the elements inside the row or image */
} tri_pool_options;
/* x [N, C, L] -> [N, C, L'], or [N, C, H, W] -> [N, C, H', W']. Of x only N may be 0. x may lack N,
 * and then the result does. */
TRI_API tri_tensor *tri_max_pool(tri_tensor *x, const tri_pool_options *opt);
TRI_API tri_tensor *tri_avg_pool(tri_tensor *x, const tri_pool_options *opt);
/* To n sizes behind the channels, TRI_SHAPE(l) of rows or TRI_SHAPE(h, w) of images; they may be 0,
 * those of x not, nor C for the maximum. x may lack N. */
TRI_API tri_tensor *tri_adaptive_avg_pool(tri_tensor *x, const int64_t *size, int n);
TRI_API tri_tensor *tri_adaptive_max_pool(tri_tensor *x, const int64_t *size, int n);

/* --- normalisation -------------------------------------------------------- */
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

TRI_END_DECLS

#endif
