/*
 * ops_loss.h - softmax and losses.
 * A part of ops.h.
 */
#ifndef TRIREME_OPS_LOSS_H
#define TRIREME_OPS_LOSS_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

TRI_API tri_tensor *tri_softmax(tri_tensor *x, int dim);
TRI_API tri_tensor *tri_log_softmax(tri_tensor *x, int dim);

/* What becomes of a loss's elements. */
typedef enum tri_reduction {
    TRI_REDUCTION_MEAN, /* a scalar, shape [] */
    TRI_REDUCTION_SUM,
    TRI_REDUCTION_NONE,     /* they are the result */
    TRI_REDUCTION_BATCHMEAN /* the sum over the size of dimension 0: of tri_kl_div only */
} tri_reduction;

/* --- losses of classes -------------------------------------------------------
 *
 * Scores [N, C, d..] of C classes (or [C]) with targets [N, d..] (or []), i64, each a class or the
 * one that is ignored (another fails the run, naming the row). The mean is over what is not
 * ignored, each target by its class's weight: if there is nothing, it is NaN. */
typedef struct tri_cross_entropy_options {
    double label_smoothing; /* 0 <= s < 1 */
    tri_tensor *weight;     /* [C], of the scores' dtype; no gradient; NULL: 1 */
    bool has_ignore_index;
    int64_t ignore_index; /* adds nothing; torch's default without one: -100 */
    tri_reduction reduction;
} tri_cross_entropy_options;
TRI_API tri_tensor *tri_cross_entropy(tri_tensor *logits, tri_tensor *target,
                                      const tri_cross_entropy_options *opt);
typedef struct tri_nll_loss_options {
    tri_tensor *weight; /* as above */
    bool has_ignore_index;
    int64_t ignore_index;
    tri_reduction reduction;
} tri_nll_loss_options;
/* The same of logarithms of probabilities (tri_log_softmax along dimension 1). */
TRI_API tri_tensor *tri_nll_loss(tri_tensor *input, tri_tensor *target,
                                 const tri_nll_loss_options *opt);
/* How many rows of logits [N, C] have their largest element at target [N]: i64 scalar. */
TRI_API tri_tensor *tri_count_correct(tri_tensor *logits, tri_tensor *target);

/* --- losses of pairs ---------------------------------------------------------
 *
 * An input and a target of one shape and floating-point dtype. The mean is over all elements. */
typedef struct tri_pair_loss_options {
    tri_reduction reduction;
} tri_pair_loss_options;
/* (input - target)^2 */
TRI_API tri_tensor *tri_mse_loss(tri_tensor *input, tri_tensor *target,
                                 const tri_pair_loss_options *opt);
/* |input - target| */
TRI_API tri_tensor *tri_l1_loss(tri_tensor *input, tri_tensor *target,
                                const tri_pair_loss_options *opt);
/* target (log target - input), input being logarithms; of a target 0 it is 0, and its gradient is
 * not finite. */
TRI_API tri_tensor *tri_kl_div(tri_tensor *input, tri_tensor *target,
                               const tri_pair_loss_options *opt);
typedef struct tri_smooth_l1_options {
    double beta; /* 0 = 1; TRI_ZERO: no smooth part, as tri_l1_loss */
    tri_reduction reduction;
} tri_smooth_l1_options;
/* Half the square over beta where the difference is below beta, else linear. */
TRI_API tri_tensor *tri_smooth_l1_loss(tri_tensor *input, tri_tensor *target,
                                       const tri_smooth_l1_options *opt);
typedef struct tri_bce_options {
    tri_tensor *weight;     /* broadcasts to input; NULL: none */
    tri_tensor *pos_weight; /* with logits: of what has target 1; broadcasts to input; NULL: none */
    tri_reduction reduction;
} tri_bce_options;
/* Of probabilities; logarithms from -100 on, and NaN for an input outside [0, 1], where PyTorch
 * stops. */
TRI_API tri_tensor *tri_bce_loss(tri_tensor *input, tri_tensor *target, const tri_bce_options *opt);
TRI_API tri_tensor *tri_bce_with_logits_loss(tri_tensor *input, tri_tensor *target,
                                             const tri_bce_options *opt);

TRI_END_DECLS

#endif
