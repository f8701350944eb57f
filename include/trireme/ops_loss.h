/*
 * ops_loss.h - softmax and losses.
 * A part of ops.h.
 */
#ifndef TRIREME_OPS_LOSS_H
#define TRIREME_OPS_LOSS_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* Softmax along dim, or its logarithm: the same shape. */
TRI_API tri_tensor *tri_softmax(tri_tensor *x, int dim);
TRI_API tri_tensor *tri_log_softmax(tri_tensor *x, int dim);

/* How the elements of a loss become its result. */
typedef enum tri_reduction {
    TRI_REDUCTION_MEAN, /* a scalar, shape [] */
    TRI_REDUCTION_SUM,
    TRI_REDUCTION_NONE,     /* no reduction: the result has the shape of the elements */
    TRI_REDUCTION_BATCHMEAN /* the sum divided by the size of dimension 0; only for tri_kl_div */
} tri_reduction;

/* --- losses of classes -------------------------------------------------------
 *
 * Scores [N, C, d..] of C classes (or [C]) with targets [N, d..] (or []), i64, each a class or the
 * index that is ignored (any other fails the run and names the row). The mean is over the targets
 * that are not ignored, weighted by their classes; without any it is NaN. opt: NULL allowed. */
typedef struct tri_cross_entropy_options {
    double label_smoothing; /* 0 <= s < 1 */
    tri_tensor *weight;     /* [C], of the scores' dtype, without a gradient; NULL: all 1 */
    /* a target that adds nothing, a whole number; default: there is none, where torch has -100 */
    tri_opt ignore_index;
    tri_reduction reduction;
    TRI_RESERVED(2);
} tri_cross_entropy_options;
TRI_API tri_tensor *tri_cross_entropy(tri_tensor *logits, tri_tensor *target,
                                      const tri_cross_entropy_options *opt);
typedef struct tri_nll_loss_options {
    tri_tensor *weight; /* as above */
    tri_opt ignore_index;
    tri_reduction reduction;
    TRI_RESERVED(2);
} tri_nll_loss_options;
/* The same for log-probabilities (tri_log_softmax along dimension 1). */
TRI_API tri_tensor *tri_nll_loss(tri_tensor *input, tri_tensor *target,
                                 const tri_nll_loss_options *opt);
/* logits [N, C], target i64 [N] -> i64 []: in how many rows the largest element is at the target.
 * No gradient. */
TRI_API tri_tensor *tri_count_correct(tri_tensor *logits, tri_tensor *target);

/* --- losses of pairs ---------------------------------------------------------
 *
 * An input and a target of one shape and floating-point dtype. The mean is over all elements.
 * opt: NULL allowed. */
typedef struct tri_pair_loss_options {
    tri_reduction reduction;
    TRI_RESERVED(2);
} tri_pair_loss_options;
/* (input - target)^2 */
TRI_API tri_tensor *tri_mse_loss(tri_tensor *input, tri_tensor *target,
                                 const tri_pair_loss_options *opt);
/* |input - target| */
TRI_API tri_tensor *tri_l1_loss(tri_tensor *input, tri_tensor *target,
                                const tri_pair_loss_options *opt);
/* target (log target - input), where input holds logarithms. Where target is 0 the loss is 0, and
 * the gradient of target is not finite. */
TRI_API tri_tensor *tri_kl_div(tri_tensor *input, tri_tensor *target,
                               const tri_pair_loss_options *opt);
typedef struct tri_smooth_l1_loss_options {
    tri_opt beta; /* default 1; 0: no smooth part, as tri_l1_loss */
    tri_reduction reduction;
    TRI_RESERVED(2);
} tri_smooth_l1_loss_options;
/* (input - target)^2 / (2 beta) where |input - target| < beta, else |input - target| - beta / 2. */
TRI_API tri_tensor *tri_smooth_l1_loss(tri_tensor *input, tri_tensor *target,
                                       const tri_smooth_l1_loss_options *opt);
typedef struct tri_bce_loss_options {
    tri_tensor *weight; /* factor for each element; broadcasts to input; NULL: none */
    /* with logits: factor for the part with target 1; broadcasts to input; NULL: none */
    tri_tensor *pos_weight;
    tri_reduction reduction;
    TRI_RESERVED(2);
} tri_bce_loss_options;
/* Binary cross entropy. The first takes probabilities: logarithms below -100 count as -100, and an
 * input outside [0, 1] gives NaN, where PyTorch stops with an error. */
TRI_API tri_tensor *tri_bce_loss(tri_tensor *input, tri_tensor *target,
                                 const tri_bce_loss_options *opt);
TRI_API tri_tensor *tri_bce_with_logits_loss(tri_tensor *input, tri_tensor *target,
                                             const tri_bce_loss_options *opt);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_softmax(...) TRI_SITE_(tri_softmax(__VA_ARGS__))
#define tri_log_softmax(...) TRI_SITE_(tri_log_softmax(__VA_ARGS__))
#define tri_cross_entropy(...) TRI_SITE_(tri_cross_entropy(__VA_ARGS__))
#define tri_nll_loss(...) TRI_SITE_(tri_nll_loss(__VA_ARGS__))
#define tri_count_correct(...) TRI_SITE_(tri_count_correct(__VA_ARGS__))
#define tri_mse_loss(...) TRI_SITE_(tri_mse_loss(__VA_ARGS__))
#define tri_l1_loss(...) TRI_SITE_(tri_l1_loss(__VA_ARGS__))
#define tri_kl_div(...) TRI_SITE_(tri_kl_div(__VA_ARGS__))
#define tri_smooth_l1_loss(...) TRI_SITE_(tri_smooth_l1_loss(__VA_ARGS__))
#define tri_bce_loss(...) TRI_SITE_(tri_bce_loss(__VA_ARGS__))
#define tri_bce_with_logits_loss(...) TRI_SITE_(tri_bce_with_logits_loss(__VA_ARGS__))
#endif

#endif
