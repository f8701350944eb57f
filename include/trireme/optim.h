/*
 * optim.h - optimisers and learning-rate schedules, with torch.optim's formulas and defaults.
 *
 *     tri_adam_options options = {.weight_decay = TRI_SET(0.1)};
 *     tri_optimizer *opt = tri_adamw(model, 3e-4, &options);
 *     ...
 *     tri_backward(loss);
 *     norm = tri_clip_grad_norm(opt, 1.0);
 *     TRI_TRY(tri_optimizer_step(opt));
 *
 * Lists of tensors, and groups of parameters with settings of their own:
 *
 *     tri_optimizer *opt = tri_adamw_of(
 *         (tri_param_group[]){{.params = matrices, .n_params = 8},
 *                             {.params = vectors, .n_params = 17, .weight_decay = TRI_SET(0)}},
 *         2, 3e-4, NULL);
 */
#ifndef TRIREME_OPTIM_H
#define TRIREME_OPTIM_H

#include <trireme/nn.h>

TRI_BEGIN_DECLS

typedef struct tri_optimizer tri_optimizer;

/* --- making ------------------------------------------------------------------
 *
 * Each optimiser comes in two forms. tri_NAME(model, ..) takes the parameters that the model has at
 * this moment. tri_NAME_of(groups, n, ..) takes groups, of models or of lists of tensors, that may
 * differ in their settings. Models are borrowed and must outlive the optimizer; it holds references
 * to tensors. Parameters are f32 or f64; those that never get a gradient are never changed.
 *
 * None of them returns NULL: a failed optimizer (bad options, a failed model, no parameters, a
 * tensor in two groups) carries its error into tri_optimizer_step. In options and groups what is
 * left alone is the default. */

/* Give either a model or a list. */
typedef struct tri_param_group {
    tri_module *model;
    tri_tensor *const *params; /* persistent tensors */
    int n_params;
    /* [n_params] of the list, for states and messages, all different; NULL: "param_0", ... */
    const char *const *names;
    tri_opt lr;           /* default: that of the optimizer */
    tri_opt weight_decay; /* likewise */
    TRI_RESERVED(4);
} tri_param_group;

typedef struct tri_sgd_options {
    double momentum;
    double dampening;
    double weight_decay;
    bool nesterov; /* needs momentum > 0 and dampening 0 */
    bool maximize; /* steps go up the gradient */
    TRI_RESERVED(4);
} tri_sgd_options;

/* torch.optim.SGD. */
TRI_API tri_optimizer *tri_sgd(tri_module *model, double lr, const tri_sgd_options *opt);
TRI_API tri_optimizer *tri_sgd_of(const tri_param_group *groups, int n, double lr,
                                  const tri_sgd_options *opt);

typedef struct tri_adam_options {
    tri_opt beta1; /* default 0.9 */
    tri_opt beta2; /* default 0.999 */
    tri_opt eps;   /* default 1e-8 */
    /* default: for tri_adam 0, added to the gradient; for tri_adamw 0.01, decoupled */
    tri_opt weight_decay;
    bool amsgrad;
    bool maximize;
    TRI_RESERVED(4);
} tri_adam_options;

/* torch.optim.Adam and torch.optim.AdamW; the usual lr is 1e-3. */
TRI_API tri_optimizer *tri_adam(tri_module *model, double lr, const tri_adam_options *opt);
TRI_API tri_optimizer *tri_adam_of(const tri_param_group *groups, int n, double lr,
                                   const tri_adam_options *opt);
TRI_API tri_optimizer *tri_adamw(tri_module *model, double lr, const tri_adam_options *opt);
TRI_API tri_optimizer *tri_adamw_of(const tri_param_group *groups, int n, double lr,
                                    const tri_adam_options *opt);

typedef struct tri_rmsprop_options {
    tri_opt alpha; /* default 0.99 */
    tri_opt eps;   /* default 1e-8 */
    double weight_decay;
    double momentum;
    bool centered;
    bool maximize;
    TRI_RESERVED(4);
} tri_rmsprop_options;

/* torch.optim.RMSprop; the usual lr is 1e-2. */
TRI_API tri_optimizer *tri_rmsprop(tri_module *model, double lr, const tri_rmsprop_options *opt);
TRI_API tri_optimizer *tri_rmsprop_of(const tri_param_group *groups, int n, double lr,
                                      const tri_rmsprop_options *opt);

typedef struct tri_adagrad_options {
    double lr_decay;
    double weight_decay;
    double initial_accumulator_value;
    tri_opt eps; /* default 1e-10 */
    bool maximize;
    TRI_RESERVED(4);
} tri_adagrad_options;

/* torch.optim.Adagrad; the usual lr is 1e-2. */
TRI_API tri_optimizer *tri_adagrad(tri_module *model, double lr, const tri_adagrad_options *opt);
TRI_API tri_optimizer *tri_adagrad_of(const tri_param_group *groups, int n, double lr,
                                      const tri_adagrad_options *opt);

TRI_API void tri_optimizer_destroy(tri_optimizer *optimizer); /* NULL allowed */
TRI_API TRI_MUST_CHECK tri_status tri_optimizer_status(const tri_optimizer *optimizer);

/* --- the step ------------------------------------------------------------- */

/**
 * Updates every parameter that has a gradient, consumes the gradients, and runs everything that
 * was recorded, as one plan. Parameters without a gradient stay as they are; if none has one, the
 * log warns, once.
 *
 * Blocks until the step has run, and with data-parallel peers until their gradients have come.
 * Errors: whatever failed in the step: INVALID_ARG (a failed handle reached the loss), NAN,
 *   NO_MEMORY, STATE; PEER_LOST, TIMEOUT, MISMATCH, ABORTED of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_optimizer_step(tri_optimizer *optimizer);
/* Drops the gradients that were not consumed. */
TRI_API void tri_optimizer_zero_grad(tri_optimizer *optimizer);

/**
 * torch's clip_grad_norm_ with the 2-norm over all gradients of the optimizer together: if their
 * norm is above max_norm (INFINITY only measures), the next tri_optimizer_step reads them scaled by
 * max_norm / (norm + 1e-6). Call it between the last tri_backward and tri_optimizer_step; it is
 * recorded as a part of the step, and runs nothing. The norm has the same bits on every rank; under
 * tri_ddp it is that of the averages. tri_grad shows gradients before clipping.
 *
 * Returns the norm before clipping, a scalar of the step in the parameters' type, which tri_item
 * reads, best after tri_optimizer_step. As in torch, it is NaN or infinite if a gradient is.
 *
 * Errors, returned by tri_optimizer_step and carried by the handle: INVALID_ARG (max_norm is
 *   negative or NaN), those of the step; STATE if tri_backward, tri_step_end or
 *   tri_optimizer_zero_grad is called between clipping and tri_optimizer_step.
 */
TRI_API tri_tensor *tri_clip_grad_norm(tri_optimizer *optimizer, double max_norm);
/* torch's clip_grad_value_: limits each element of the gradients to [-limit, limit]; otherwise as
 * above. Clips are applied in the order of their calls. Errors: INVALID_ARG (limit not above 0). */
TRI_API void tri_clip_grad_value(tri_optimizer *optimizer, double limit);
/* The same for a list of persistent tensors, whatever updates them later (several optimisers, or
 * none): these change the gradients themselves. n = 0 is allowed; then the norm is 0. */
TRI_API tri_tensor *tri_clip_grad_norm_of(tri_tensor *const *params, int n, double max_norm);
TRI_API void tri_clip_grad_value_of(tri_tensor *const *params, int n, double limit);

/* --- loss scaling ------------------------------------------------------------
 *
 * torch.amp.GradScaler, for TRI_AUTOCAST(TRI_DTYPE_F16): the loss is multiplied so that small
 * gradients are not rounded to 0, and gradients are divided again before the update. If one of them
 * is infinite or NaN, the update is left out and the scale becomes smaller; after some updates
 * without that, it becomes larger.
 *
 *     TRI_AUTOCAST(TRI_DTYPE_F16)
 *     {
 *         loss = ...;
 *     }
 *     tri_backward(tri_grad_scaler_scale(scaler, loss));
 *     tri_grad_scaler_unscale(scaler, opt);           to clip, or to look at gradients: optional
 *     norm = tri_clip_grad_norm(opt, 1.0);
 *     TRI_TRY(tri_grad_scaler_step(scaler, opt));
 *     TRI_TRY(tri_grad_scaler_update(scaler));
 *
 * Whether to update is decided within the plan; nothing waits for it. An update that was left out
 * changes nothing: not the parameters, the optimizer's state or its count of steps. Under tri_ddp
 * the averages decide, so that all ranks do the same. One thread at a time uses a scaler. The scale
 * is a tensor, which the steps of one context at a time may write. */
typedef struct tri_grad_scaler tri_grad_scaler;

/* What is not set is the default. */
typedef struct tri_grad_scaler_options {
    tri_opt init_scale;      /* default 65536; must be above 0 */
    tri_opt growth_factor;   /* default 2; must be above 1 */
    tri_opt backoff_factor;  /* default 0.5; must be between 0 and 1 */
    int64_t growth_interval; /* 0 = 2000; after so many updates in a row the scale grows */
    bool disabled;           /* losses stay as they are, and steps are tri_optimizer_step */
    /* DeepSpeed's: the scale does not become smaller than this; 0 = as small as it can be */
    double min_scale;
    /* DeepSpeed's: the scale becomes smaller at the n-th update that is left out since it last
     * grew (or, with consecutive_hysteresis, in a row); 0 = 1 */
    int hysteresis;
    bool consecutive_hysteresis;
    TRI_RESERVED(2);
} tri_grad_scaler_options;

/* opt NULL = defaults. Errors: INVALID_ARG (a number is out of its range), NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_grad_scaler_create(const tri_grad_scaler_options *opt,
                                                         tri_grad_scaler **scaler_out);
TRI_API void tri_grad_scaler_destroy(tri_grad_scaler *scaler); /* NULL allowed */
/* Returns the loss, of any shape, times the scale, as a tensor of the step. */
TRI_API tri_tensor *tri_grad_scaler_scale(tri_grad_scaler *scaler, tri_tensor *loss);
/* torch's unscale_: divides the gradients of the optimizer themselves by the scale. Call it at most
 * once before each tri_grad_scaler_step, after the last tri_backward and before clipping. Errors,
 * which fail the step: INVALID_ARG (NULL, a failed optimizer), STATE (called twice, or after a
 * clip). */
TRI_API void tri_grad_scaler_unscale(tri_grad_scaler *scaler, tri_optimizer *optimizer);
/**
 * As tri_optimizer_step, but does not update if a gradient is not finite. Divides the gradients by
 * the scale as it reads them, unless tri_grad_scaler_unscale has divided them. Each optimizer
 * decides for itself.
 *
 * Errors: those of tri_optimizer_step; INVALID_ARG (NULL); STATE (called a second time before
 *   tri_grad_scaler_update, or unscaled in a step that has ended since).
 */
TRI_API TRI_MUST_CHECK tri_status tri_grad_scaler_step(tri_grad_scaler *scaler,
                                                       tri_optimizer *optimizer);
/* Call it once, after the last optimizer of the step. The scale becomes smaller if one of them
 * found a gradient that is not finite; after growth_interval updates without that it becomes
 * larger. It stays finite, and large enough to be divided by: after 166 halvings of 65536 torch's
 * is 0, and the next update NaN. This is recorded and runs nothing. Errors: INVALID_ARG (NULL);
 * STATE (since the last update no optimizer has stepped or was unscaled). */
TRI_API TRI_MUST_CHECK tri_status tri_grad_scaler_update(tri_grad_scaler *scaler);
/* The current scale; runs what was recorded of it. 1 if disabled; NaN if scaler is NULL or the run
 * failed. */
TRI_API double tri_grad_scaler_current_scale(tri_grad_scaler *scaler);
/* State for checkpoints: the scalars "scale" (f32) and "growth_tracker" (i64), with hysteresis also
 * "hysteresis_tracker" (i64), which tri_item reads and tri_tensor_copy_in restores. There is none
 * if disabled. */
TRI_API int64_t tri_grad_scaler_state_count(const tri_grad_scaler *scaler);
TRI_API tri_state_entry tri_grad_scaler_state(const tri_grad_scaler *scaler, int64_t index);

/* --- settings ----------------------------------------------------------------
 *
 * Each group has its own settings. Whether there is a momentum at all is decided when the optimizer
 * is made; while it is 0 the buffer stays as it is, as in torch. A value that would have been
 * refused then (negative, infinite, NaN, a beta of 1, dampening with nesterov), or a setting or
 * group that does not exist, fails the optimizer and all its later steps. */
typedef enum tri_hyper {
    TRI_HYPER_LR,
    TRI_HYPER_WEIGHT_DECAY,
    TRI_HYPER_MOMENTUM,  /* SGD, RMSprop */
    TRI_HYPER_DAMPENING, /* SGD */
    TRI_HYPER_BETA1,     /* Adam, AdamW */
    TRI_HYPER_BETA2,
    TRI_HYPER_EPS,      /* Adam, AdamW, RMSprop, Adagrad */
    TRI_HYPER_ALPHA,    /* RMSprop */
    TRI_HYPER_LR_DECAY, /* Adagrad */
} tri_hyper;
#define TRI_ALL_GROUPS (-1)

/* The number of groups; 0 if the optimizer is NULL or has failed. */
TRI_API int tri_optimizer_group_count(const tri_optimizer *optimizer);
/* group: a number below tri_optimizer_group_count, or TRI_ALL_GROUPS. */
TRI_API void tri_optimizer_set_hyper(tri_optimizer *optimizer, int group, tri_hyper what,
                                     double value);
/* NaN if there is no such optimizer, group or setting. */
TRI_API double tri_optimizer_hyper(const tri_optimizer *optimizer, int group, tri_hyper what);
/* Sets the learning rate of all groups, replacing any that they had of their own (to keep different
 * rates: tri_optimizer_set_hyper, tri_optimizer_schedule); gets that of the first group. */
TRI_API void tri_optimizer_set_lr(tri_optimizer *optimizer, double lr);
TRI_API double tri_optimizer_lr(const tri_optimizer *optimizer);

/* --- state, for checkpoints --------------------------------------------------
 *
 * Entries are called "PARAMETER.STATE" with torch's names (momentum_buffer; exp_avg, exp_avg_sq,
 * max_exp_avg_sq; square_avg, grad_avg; sum), and "step" (i64, one per parameter: how often it was
 * updated). To restore, tri_tensor_copy_in the saved contents of every entry. Settings are not
 * state. Of a parameter that tri_zero divides an entry has this rank's elements alone, in one
 * dimension: tri_checkpoint_save saves all of them. */
TRI_API int64_t tri_optimizer_state_count(tri_optimizer *optimizer);
TRI_API tri_state_entry tri_optimizer_state(tri_optimizer *optimizer, int64_t index);

/* --- averages of parameters ----------------------------------------------- */

/* Moving averages of a model's parameters, which often generalise better than the parameters:
 *     average = decay * average + (1 - decay) * parameter
 * as AveragedModel with get_ema_multi_avg_fn in torch.optim.swa_utils: the first update copies, and
 * buffers (running statistics) stay the model's. The averages have the same bits on every rank;
 * under tri_zero each has those of its part, and all ranks make the calls below. */
typedef struct tri_ema tri_ema;
/* decay: 0 to 1, usually 0.999. The model is borrowed. Errors: INVALID_ARG, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_ema_create(tri_module *model, double decay,
                                                 tri_ema **ema_out);
TRI_API void tri_ema_destroy(tri_ema *ema); /* NULL allowed */
/* Updates the averages; call it after tri_optimizer_step. Runs what was recorded. Errors: those of
 * the run. */
TRI_API TRI_MUST_CHECK tri_status tri_ema_update(tri_ema *ema);
/* Exchanges parameters and averages: call it before an evaluation or tri_save, and again after. */
TRI_API TRI_MUST_CHECK tri_status tri_ema_swap(tri_ema *ema);
/* State for checkpoints: the averages under the parameters' names, and "n_averaged" (i64). */
TRI_API int64_t tri_ema_state_count(const tri_ema *ema);
TRI_API tri_state_entry tri_ema_state(const tri_ema *ema, int64_t index);

/* --- schedules: functions of the step (0 = before the first update) ------- */

TRI_API double tri_schedule_constant(double lr, int64_t step);
/* torch's CosineAnnealingLR: from lr to lr_min over total_steps, closed form. */
TRI_API double tri_schedule_cosine(double lr, double lr_min, int64_t total_steps, int64_t step);

/* torch's StepLR: multiplies by gamma every step_size steps (at least 1). */
TRI_API double tri_schedule_step(double lr, int64_t step_size, double gamma, int64_t step);
/* torch's MultiStepLR: multiplies by gamma at each of the n milestones, given in any order. */
TRI_API double tri_schedule_multi_step(double lr, const int64_t *milestones, int n, double gamma,
                                       int64_t step);
/* torch's ExponentialLR: multiplies by gamma at each step. */
TRI_API double tri_schedule_exponential(double lr, double gamma, int64_t step);
/* torch's LinearLR: lr times a factor from start_factor (step 0) to end_factor (total_steps, and
 * from then on). */
TRI_API double tri_schedule_linear(double lr, double start_factor, double end_factor,
                                   int64_t total_steps, int64_t step);
/* torch's CosineAnnealingWarmRestarts: a cycle has first_cycle steps, the next one cycle_factor
 * (at least 1) times as many. */
TRI_API double tri_schedule_cosine_restarts(double lr, double lr_min, int64_t first_cycle,
                                            int cycle_factor, int64_t step);
/* The schedule of GPT: rises in warmup_steps equal steps, from lr / (warmup_steps + 1) on, then
 * falls by a cosine to lr_min at total_steps, and stays there. */
TRI_API double tri_schedule_warmup_cosine(double lr, double lr_min, int64_t warmup_steps,
                                          int64_t total_steps, int64_t step);

/* A schedule as a function, to combine several. */
typedef double (*tri_schedule_fn)(double lr, int64_t step, void *arg);
typedef struct tri_schedule_part {
    tri_schedule_fn fn; /* NULL: constant */
    void *arg;
    int64_t steps; /* sequential: how many steps the part lasts; not read in the last part */
    TRI_RESERVED(4);
} tri_schedule_part;
/* Sets the rate of each group to what the schedule (NULL: constant) makes of the rate that this
 * group was made with, as torch's schedulers do with initial_lr. */
TRI_API void tri_optimizer_schedule(tri_optimizer *optimizer, int64_t step, tri_schedule_fn fn,
                                    void *arg);
/* torch's SequentialLR: one schedule after the other, each counting its steps from 0. */
TRI_API double tri_schedule_sequential(double lr, const tri_schedule_part *parts, int n,
                                       int64_t step);
/* torch's ChainedScheduler: lr times the factors of all schedules, each called with lr 1. */
TRI_API double tri_schedule_chained(double lr, const tri_schedule_part *parts, int n, int64_t step);

/* torch's OneCycleLR. */
typedef struct tri_schedule_one_cycle_options {
    tri_opt pct_start;        /* share of the steps in which the rate rises, 0 to 1; default 0.3 */
    tri_opt div_factor;       /* it starts at lr_max / div_factor; default 25 */
    tri_opt final_div_factor; /* and ends at the start value / final_div_factor; default 1e4 */
    tri_opt momentum_base;    /* momentum at the highest rate; default 0.85 */
    tri_opt momentum_max;     /* at the start and the end; default 0.95 */
    bool linear;              /* instead of cosine annealing */
    bool three_phase;         /* fall to the start value first, then to the end value */
    TRI_RESERVED(4);
} tri_schedule_one_cycle_options;
typedef struct tri_one_cycle_point {
    double lr;
    double momentum;
} tri_one_cycle_point;
/* Steps outside [0, total_steps) are taken as the nearest inside. Both numbers are NaN, which no
 * optimizer takes, if pct_start is not within 0 and 1 or a factor is not above 0. */
TRI_API tri_one_cycle_point tri_schedule_one_cycle(double lr_max, int64_t total_steps, int64_t step,
                                                   const tri_schedule_one_cycle_options *opt);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_optimizer_step(...) TRI_SITE_STATUS_(tri_optimizer_step(__VA_ARGS__))
#define tri_grad_scaler_scale(...) TRI_SITE_(tri_grad_scaler_scale(__VA_ARGS__))
#define tri_grad_scaler_unscale(...) TRI_SITE_(tri_grad_scaler_unscale(__VA_ARGS__))
#define tri_grad_scaler_step(...) TRI_SITE_STATUS_(tri_grad_scaler_step(__VA_ARGS__))
#define tri_grad_scaler_update(...) TRI_SITE_STATUS_(tri_grad_scaler_update(__VA_ARGS__))
#define tri_clip_grad_norm(...) TRI_SITE_(tri_clip_grad_norm(__VA_ARGS__))
#define tri_clip_grad_value(...) TRI_SITE_(tri_clip_grad_value(__VA_ARGS__))
#define tri_clip_grad_norm_of(...) TRI_SITE_(tri_clip_grad_norm_of(__VA_ARGS__))
#define tri_clip_grad_value_of(...) TRI_SITE_(tri_clip_grad_value_of(__VA_ARGS__))
#endif

#endif
