/*
 * optim.h - optimisers and learning-rate schedules, with torch.optim's formulas and defaults.
 *
 *     tri_optimizer *opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
 *     ...
 *     tri_backward(loss);
 *     TRI_TRY(tri_optimizer_step(opt));
 */
#ifndef TRIREME_OPTIM_H
#define TRIREME_OPTIM_H

#include <trireme/nn.h>

TRI_BEGIN_DECLS

typedef struct tri_optimizer tri_optimizer;

/* Zero means the default: plain gradient descent. */
typedef struct tri_sgd_options {
    double momentum;
    double dampening;
    double weight_decay;
    bool nesterov; /* needs momentum > 0 and dampening 0 */
    bool maximize; /* go up the gradient */
} tri_sgd_options;

/* torch.optim.SGD over the model's parameters. The model is borrowed and must outlive the
 * optimizer; its parameters at this moment are the ones that are updated. Never NULL: a failed
 * one (bad options, a failed model) carries its error into tri_optimizer_step. */
TRI_API tri_optimizer *tri_sgd(tri_module *model, double lr, const tri_sgd_options *opt);
TRI_API void tri_optimizer_destroy(tri_optimizer *optimizer); /* NULL allowed */
TRI_API TRI_MUST_CHECK tri_status tri_optimizer_status(const tri_optimizer *optimizer);

/**
 * Updates every parameter that has a gradient, consumes the gradients, and runs everything that
 * was recorded, as one plan. Parameters without a gradient stay as they are.
 *
 * Blocks: for the step, with data-parallel peers for their gradients.
 * Errors: whatever failed in the step: INVALID_ARG (a failed handle reached the loss), NAN,
 *   NO_MEMORY; PEER_LOST, TIMEOUT, MISMATCH, ABORTED of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_optimizer_step(tri_optimizer *optimizer);
/* Forget the gradients that were not consumed. */
TRI_API void tri_optimizer_zero_grad(tri_optimizer *optimizer);

/* A rate that tri_sgd would refuse (negative, infinite, NaN) fails the optimizer: so do all its
 * steps from then on. The same of a momentum. */
TRI_API void tri_optimizer_set_lr(tri_optimizer *optimizer, double lr);
TRI_API double tri_optimizer_lr(const tri_optimizer *optimizer);
/* Of SGD; whether momentum is used at all is decided by tri_sgd. */
TRI_API void tri_optimizer_set_momentum(tri_optimizer *optimizer, double momentum);
TRI_API double tri_optimizer_momentum(const tri_optimizer *optimizer);

/* --- state, for checkpoints
 * ------------------------------------------------------------------------ Entry names are
 * "PARAMETER.momentum_buffer" and "steps" (i64, one per parameter: how often it was updated). To
 * restore, tri_copy_in the saved contents of every entry. */
TRI_API int64_t tri_optimizer_state_count(tri_optimizer *optimizer);
TRI_API tri_state_entry tri_optimizer_state(tri_optimizer *optimizer, int64_t index);

/* --- schedules: pure functions of the step number (0 = before the first update) ------------- */

TRI_API double tri_schedule_constant(double lr, int64_t step);
/* torch's CosineAnnealingLR: from lr to lr_min over total_steps, closed form. */
TRI_API double tri_schedule_cosine(double lr, double lr_min, int64_t total_steps, int64_t step);

/* torch's OneCycleLR. Zero means the default, TRI_ZERO zero. */
typedef struct tri_one_cycle_options {
    double pct_start;        /* 0.3: share of the steps in which the rate rises */
    double div_factor;       /* 25: it starts at lr_max / div_factor */
    double final_div_factor; /* 1e4: and ends at the start value / final_div_factor */
    double momentum_base;    /* 0.85: momentum at the highest rate */
    double momentum_max;     /* 0.95: at the start and the end */
    bool linear;             /* instead of cosine annealing */
    bool three_phase;        /* fall to the start value first, then to the end value */
} tri_one_cycle_options;
typedef struct tri_one_cycle_point {
    double lr;
    double momentum;
} tri_one_cycle_point;
/* Steps outside [0, total_steps) are taken as the nearest inside. */
TRI_API tri_one_cycle_point tri_schedule_one_cycle(double lr_max, int64_t total_steps, int64_t step,
                                                   const tri_one_cycle_options *opt);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_optimizer_step(...) TRI_SITE_(tri_optimizer_step(__VA_ARGS__))
#endif

#endif
