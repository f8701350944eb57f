/*
 * ops_nn.h - what layers are made of: products, attention, convolution, pooling, normalisation. A
 * part of ops.h.
 */
#ifndef TRIREME_OPS_NN_H
#define TRIREME_OPS_NN_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- matrix products ------------------------------------------------------ */
/* [.., M, K] x [.., K, N] -> [.., M, N]; leading dimensions broadcast. A vector [K] on the left
 * counts as a row, on the right as a column, and the result lacks that dimension: two vectors give
 * a scalar. */
TRI_API tri_tensor *tri_matmul(tri_tensor *a, tri_tensor *b);
/* x weight^T + bias: x [.., I], weight [O, I], bias [O] or NULL -> [.., O]. */
TRI_API tri_tensor *tri_linear(tri_tensor *x, tri_tensor *weight, tri_tensor *bias);
/* indices i64 [..] in [0, V), weight [V, D] -> [.., D]: the rows of weight with these numbers, in
 * the order of arguments of torch's functional.embedding; an index out of range fails the run. The
 * row padding_idx (negative: from the end) gets no gradient. */
typedef struct tri_embedding_options {
    tri_opt padding_idx; /* a whole number; default: no row */
    TRI_RESERVED(2);
} tri_embedding_options;
TRI_API tri_tensor *tri_embedding(tri_tensor *indices, tri_tensor *weight,
                                  const tri_embedding_options *opt);

/* The last one is torch's max. */
typedef enum tri_bag_mode { TRI_BAG_MEAN, TRI_BAG_SUM, TRI_BAG_AMAX } tri_bag_mode;
typedef struct tri_embedding_bag_options {
    tri_bag_mode mode;
    tri_tensor *per_sample_weights; /* factors of the rows, for sums only: of the indices' shape, of
                                       the weight's dtype; NULL: 1 */
    bool include_last_offset;       /* offsets has one more, at which the last bag ends */
    tri_opt padding_idx; /* a whole number: that row is in no bag, and gets no gradient; default:
                            no row */
    TRI_RESERVED(2);
} tri_embedding_bag_options;
/* Rows of weight [V, D] as for tri_embedding, one result for each bag of them -> [B, D]; zeros for
 * an empty one. indices i64 [B, n] with offsets NULL; or [n] with offsets i64 [B], where each bag
 * begins: the first is 0 and none is less than the one before, else the run fails. Of equal maxima
 * the first gets the gradient. opt: NULL allowed. */
TRI_API tri_tensor *tri_embedding_bag(tri_tensor *indices, tri_tensor *weight, tri_tensor *offsets,
                                      const tri_embedding_bag_options *opt);

/* --- recurrence ----------------------------------------------------------- */

/* Zero means the default. */
typedef struct tri_lstm_options {
    int num_layers;     /* on top of each other; default 1, at most 1024 */
    bool no_bias;       /* weights has no biases */
    bool batch_first;   /* x and y are [N, T, ..] */
    bool bidirectional; /* D = 2, else 1: one part of y reads x from its end */
    bool training;      /* dropout acts only then */
    double dropout;     /* 0 <= p <= 1: elements between layers are dropped */
    /* before the first time step, [num_layers D, N, H] each; both NULL: zeros */
    tri_tensor *h0, *c0;
    TRI_RESERVED(2);
} tri_lstm_options;
/* Long short-term memory, as torch.nn.LSTM: x [T, N, I], T >= 1, to out[3]: y [T, N, D H], the
 * states h of the last layer, and h_n and c_n [num_layers D, N, H], the states after the last time
 * step of each layer and direction. Without N in x ([T, I]) nothing has it.
 *
 * weights[n_weights]: for each layer, and in it for each direction, w_ih [4 H, I] (from the second
 * layer on [4 H, D H]), w_hh [4 H, H], b_ih [4 H], b_hh [4 H]; their rows are those of the input,
 * the forget, the cell and the output gate, in this order. opt: NULL allowed. On failure all three
 * results are failed tensors. */
TRI_API void tri_lstm(tri_tensor *x, tri_tensor *const *weights, int n_weights,
                      const tri_lstm_options *opt, tri_tensor **out);

/* --- attention ---------------------------------------------------------------
 *
 * scaled_dot_product_attention: softmax(q k^T scale + mask) v for q [B, H, T, D], k [B, Hk, S, D],
 * v [B, Hk, S, Dv] -> [B, H, T, Dv]. The T x S weights are never stored, so memory grows with T,
 * not with T * S. A query that may look at no key gives zeros, whatever k and v
 * hold. opt: NULL allowed. */
typedef struct tri_attention_options {
    /* broadcasts to [B, H, T, S]. bool: true = may look; or of q's dtype: numbers that are added
     * to the scores. Has no gradient */
    tri_tensor *attn_mask;
    double dropout_p; /* 0 <= p < 1: weights are dropped, in training or not */
    bool is_causal;   /* query t looks at keys 0 .. t only; with a mask, at what both allow */
    tri_opt scale;    /* default 1 / sqrt(D) */
    bool enable_gqa;  /* Hk may divide H: neighbouring heads of q share k and v */
    TRI_RESERVED(2);
} tri_attention_options;
TRI_API tri_tensor *tri_attention(tri_tensor *q, tri_tensor *k, tri_tensor *v,
                                  const tri_attention_options *opt);

/* --- convolution and pooling ---------------------------------------------- */
/* Zero means the default: stride 1, padding 0, dilation 1, groups 1. [0] is the first dimension
 * after the channels; entries for dimensions that the weight lacks must be 0. */
typedef struct tri_conv_options {
    int stride[3];
    int padding[3];
    int dilation[3];
    int groups;
    TRI_RESERVED(2);
} tri_conv_options;
/* x [N, C, L] with weight [O, C/groups, K] -> [N, O, L'], or
 * x [N, C, H, W] with weight [O, C/groups, KH, KW] -> [N, O, H', W']; bias [O] or NULL. x may lack
 * N, and then the result does. */
TRI_API tri_tensor *tri_conv(tri_tensor *x, tri_tensor *weight, tri_tensor *bias,
                             const tri_conv_options *opt);
/* [0] is the first dimension after the channels; entries for dimensions that x lacks must be 0. The
 * number of sizes in kernel tells what x holds: {3} is for rows, {3, 2} for images. */
typedef struct tri_pool_options {
    int kernel[3];  /* required */
    int stride[3];  /* 0: as the kernel */
    int padding[3]; /* at most half the kernel */
    bool ceil_mode;
    bool exclude_padding; /* average only: divide by the elements inside the row or image */
    TRI_RESERVED(2);
} tri_pool_options;
/* x [N, C, L] -> [N, C, L'], or [N, C, H, W] -> [N, C, H', W']. Only N may be 0. x may lack N, and
 * then the result does. */
TRI_API tri_tensor *tri_max_pool(tri_tensor *x, const tri_pool_options *opt);
TRI_API tri_tensor *tri_avg_pool(tri_tensor *x, const tri_pool_options *opt);
/* Pools to n given sizes after the channels: TRI_SHAPE(l) for rows, TRI_SHAPE(h, w) for images.
 * They may be 0; those of x may not, nor may C for the maximum. x may lack N, and then the result
 * does. */
TRI_API tri_tensor *tri_adaptive_avg_pool(tri_tensor *x, const int64_t *size, int n);
TRI_API tri_tensor *tri_adaptive_max_pool(tri_tensor *x, const int64_t *size, int n);

/* --- normalisation -------------------------------------------------------- */
/* x [N, C, ..] -> the same shape. weight, bias [C] or both NULL; running_mean, running_var [C],
 * persistent, or both NULL. In training, x is normalised by the statistics of the batch (biased
 * variance), which also update the running ones (unbiased) by momentum; otherwise by the running
 * ones. An empty batch leaves the running statistics as they are. */
typedef struct tri_batch_norm_args {
    tri_tensor *weight, *bias, *running_mean, *running_var;
    bool training;
    tri_opt momentum; /* default 0.1; 0: the running statistics stay as they are */
    tri_opt eps;      /* default 1e-5 */
    TRI_RESERVED(2);
} tri_batch_norm_args;
TRI_API tri_tensor *tri_batch_norm(tri_tensor *x, const tri_batch_norm_args *args);

/* Normalises rows, each of which is the last n_dims dimensions of x (n_dims 1: the last one), by
 * the row's mean and biased variance, or by its root mean square. weight, bias: of a row's shape,
 * each may be NULL. torch's eps of layer_norm is 1e-5; TRI_DEFAULT, for tri_rms_norm, is the
 * machine epsilon of x's dtype. */
TRI_API tri_tensor *tri_layer_norm(tri_tensor *x, int n_dims, tri_tensor *weight, tri_tensor *bias,
                                   double eps);
TRI_API tri_tensor *tri_rms_norm(tri_tensor *x, int n_dims, tri_tensor *weight, tri_opt eps);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_matmul(...) TRI_SITE_(tri_matmul(__VA_ARGS__))
#define tri_linear(...) TRI_SITE_(tri_linear(__VA_ARGS__))
#define tri_embedding(...) TRI_SITE_(tri_embedding(__VA_ARGS__))
#define tri_embedding_bag(...) TRI_SITE_(tri_embedding_bag(__VA_ARGS__))
#define tri_lstm(...) TRI_SITE_(tri_lstm(__VA_ARGS__))
#define tri_attention(...) TRI_SITE_(tri_attention(__VA_ARGS__))
#define tri_conv(...) TRI_SITE_(tri_conv(__VA_ARGS__))
#define tri_max_pool(...) TRI_SITE_(tri_max_pool(__VA_ARGS__))
#define tri_avg_pool(...) TRI_SITE_(tri_avg_pool(__VA_ARGS__))
#define tri_adaptive_avg_pool(...) TRI_SITE_(tri_adaptive_avg_pool(__VA_ARGS__))
#define tri_adaptive_max_pool(...) TRI_SITE_(tri_adaptive_max_pool(__VA_ARGS__))
#define tri_batch_norm(...) TRI_SITE_(tri_batch_norm(__VA_ARGS__))
#define tri_layer_norm(...) TRI_SITE_(tri_layer_norm(__VA_ARGS__))
#define tri_rms_norm(...) TRI_SITE_(tri_rms_norm(__VA_ARGS__))
#endif

#endif
