/*
 * optimizer.h - what an optimiser is: groups of parameters with their settings, the parameters'
 * state, and a rule of train/graph/ops/update.h with its numbers. A new optimiser is one file with
 * such a table, and its loop in update_loops.h.
 */
#ifndef TRII_OPTIMIZER_H
#define TRII_OPTIMIZER_H

#include <limits.h>

#include <trireme/optim.h>

#include "train/dist/placement.h"
#include "train/tensor/pipeline_stages.h"
#include "train/graph/ops/update.h"
#include "train/graph/step/step.h"

#define TRII_HYPERS (TRI_HYPER_LR_DECAY + 1)
#define TRII_CLIPS 4 /* clips between two steps, at most */

typedef struct trii_optim_group {
    double hyper[TRII_HYPERS];
    double base_lr; /* the rate that it was made with, from which schedules compute */
} trii_optim_group;

typedef struct trii_optim_param {
    char *name;
    tri_tensor *tensor;                    /* a reference is held */
    tri_tensor *home;                      /* trii_home of it then; a reference is held */
    tri_tensor *state[TRII_UPDATE_STATES]; /* home's shape and type; references are held */
    trii_held held; /* where home is a piece: what checkpoints say of state */
    int group;
    bool empty;       /* home is a piece of no elements, which has an update in no batch */
    bool adding;      /* in this tri_optimizer_step: its update is in the batch, */
    bool recorded;    /* and recorded */
    trii_vid clipped; /* the gradient that was clipped; NO_VALUE = it had none */
} trii_optim_param;

/* A clip that tri_clip_grad_norm or tri_clip_grad_value asks of the next update. */
typedef struct trii_optim_clip {
    trii_vid factor[2]; /* factors for f32 and f64; NO_VALUE: by value */
    /* Their copies on another device, for the gradient seen last. */
    trii_vid there[2];
    tri_device device;
    double limit;
} trii_optim_clip;

/* What all optimizers of a kind share. */
typedef struct trii_optimizer_ops {
    const char *name;
    trii_update_rule rule;
    uint32_t hypers; /* bit h set: it has the setting h */
    /* The rule's numbers for a parameter that has been updated `updates` times. */
    void (*numbers)(const tri_optimizer *optimizer, const double *hyper, int64_t updates,
                    double *f_out);
} trii_optimizer_ops;

/* Gradients that are not those of the parameters' own. */
typedef struct trii_given {
    tri_tensor *const *grads; /* [n_params]; NULL = it has none */
    /* Scalars on the cpu, f32 and f64, that gradients are multiplied by; NULL = 1 */
    tri_tensor *factor[2];
} trii_given;

struct tri_optimizer {
    const trii_optimizer_ops *ops;
    uint64_t number; /* of no other optimizer, not even of a later one at this address */
    int flags;       /* of the rule */
    trii_optim_group *groups;
    int n_groups;
    trii_optim_param *params;
    int n_params, cap_params;
    bool sharded;           /* of some, home is a piece */
    trii_stages *stages;    /* the parameters are those of a rank's stages; NULL: they are all */
    tri_tensor *updates;    /* i64 [n_params]; never part of a step */
    tri_state_entry *state; /* what tri_optimizer_state lists; names owned */
    int n_state;
    trii_optim_clip clips[TRII_CLIPS + 1]; /* one more than clips: the scaler's */
    int n_clips;
    tri_tensor *found;        /* during a step: the scaler's flag, see trii_optimizer_step_unless */
    const trii_given *given;  /* during a step: see trii_optimizer_step_given */
    tri_tensor **tensors;     /* [n_params] those of params, borrowed: for clip.c */
    trii_vid *grads;          /* [n_params] clip.c's */
    uint64_t clip_generation; /* of the step in which they were recorded */
    bool compared;            /* with other ranks: see trii_optimizer_compare_ranks */
    tri_status status;        /* of its making */
    char *why;
};

/* What an optimiser's own file says when it makes one. */
typedef struct trii_optim_recipe {
    const trii_optimizer_ops *ops;
    int flags;
    const char *state_names[TRII_UPDATE_STATES]; /* as many as the rule with these flags has */
    double state_value;                          /* initial contents of the states */
    double hyper[TRII_HYPERS];                   /* for a group that says nothing else */
    tri_status status;                           /* whether the options were good */
} trii_optim_recipe;

/* The one group that tri_NAME(model, ..) makes of its model, which may be NULL. */
#define TRII_MODEL_ONLY INT_MIN

/* Gathers the parameters, makes their state and checks the settings. Never NULL. */
tri_optimizer *trii_optimizer_create(const trii_optim_recipe *recipe, const tri_param_group *groups,
                                     int n_groups);
/* Keeps the current error line as the optimizer's failure. */
/* When there is no memory even for a failed optimizer. Never written, never destroyed. */
extern tri_optimizer trii_optimizer_out_of_memory;
void trii_optimizer_fail(tri_optimizer *optimizer, tri_status status);
/* settings.c: fails the optimizer if a group's setting is out of range. */
void trii_optimizer_check(tri_optimizer *optimizer);

const char *trii_hyper_name(tri_hyper hyper);

/* first_update.c: what ranks of a tensor group have to have alike; nothing where no parameter is
 * cut. */
tri_status trii_optimizer_compare_ranks(tri_optimizer *optimizer, trii_step *step) TRI_MUST_CHECK;

/* clip.c: the gradient as the update shall read it: *grad_io, then times *scale_out (NO_VALUE:
 * not), then limited to *limit_out (0: not). */
tri_status trii_optimizer_clipped(tri_optimizer *optimizer, trii_step *step,
                                  const trii_optim_param *param, trii_vid *grad_io,
                                  trii_vid *scale_out, double *limit_out) TRI_MUST_CHECK;
/* After it, which parameters have a gradient is known; once for consecutive parameters of one unit
 * (train/dist/unit.h). May run the step. */
tri_status trii_optimizer_before_update(tri_optimizer *optimizer, trii_step *step) TRI_MUST_CHECK;
/* clip.c: divides all gradients by the loss's scale, an f32 scalar: in the next update, as its last
 * clip (now: false), or the gradients themselves. *found_out: an f32 scalar, 1 if one of them is
 * not finite, else 0. */
tri_status trii_optimizer_unscale(tri_optimizer *optimizer, trii_step *step, trii_vid scale,
                                  bool now, trii_vid *found_out) TRI_MUST_CHECK;
/* tri_optimizer_step, except that nothing is updated or counted if the tensor (an f32 scalar on the
 * cpu) holds anything but 0 then. NULL: always updates. */
tri_status trii_optimizer_step_unless(tri_optimizer *optimizer, tri_tensor *found) TRI_MUST_CHECK;

/* clip.c, for clips by the norm of gradients of which some are elsewhere. The sum of the squares of
 * all gradients as the next update would read them; runs what was recorded. */
tri_status trii_optimizer_square_sum(tri_optimizer *optimizer, trii_step *step,
                                     double *squares_out) TRI_MUST_CHECK;
/* The next update multiplies them by this factor, as its last clip. */
tri_status trii_optimizer_scale_next(tri_optimizer *optimizer, trii_step *step,
                                     double factor) TRI_MUST_CHECK;

/* A parameter's home has new contents, or will when the step runs; after all such calls the
 * parameters, of which each rank has changed a piece, become whole again. */
void trii_home_changed(tri_tensor *tensor, const tri_tensor *home);
tri_status trii_home_gather(tri_tensor *tensor, const tri_tensor *home,
                            trii_step *step) TRI_MUST_CHECK;
/* The others wait for the home of a rank that has no memory: they hear of it. The line stays. */
tri_status trii_home_tell(const tri_tensor *tensor, const tri_tensor *home,
                          tri_status status) TRI_MUST_CHECK;
/* home.c: fails (STATE) unless a parameter has the home that it had when that was noted. `owner`:
 * who has noted it, for messages. */
tri_status trii_home_stays(tri_tensor *tensor, const tri_tensor *home, const char *owner,
                           const char *name) TRI_MUST_CHECK;
/* The same, and it has no gradient of this rank's own where home is a piece. */
tri_status trii_home_check(const trii_step *step, tri_tensor *tensor, const tri_tensor *home,
                           const char *owner, const char *name) TRI_MUST_CHECK;

/* tri_optimizer_step with these gradients. Given ones are of no unit, and the parameters' own stay
 * as they are. */
tri_status trii_optimizer_step_given(tri_optimizer *optimizer,
                                     const trii_given *given) TRI_MUST_CHECK;

/* square_norm.c: the sum of the squares of n gradients (some of which may be NO_VALUE), an f64
 * scalar; NO_VALUE if there are none. */
tri_status trii_optim_square_sum(trii_step *step, const trii_vid *grads, int n,
                                 trii_vid *total_out) TRI_MUST_CHECK;
/* The same where grads[i] is the gradient of trii_home(params[i]), over the whole parameters: the
 * bits are those of whole gradients. Where ranks have pieces, all of them record it. stages: of a
 * pipeline, whose ranks record it all, also without gradients; NULL: there is none. */
tri_status trii_home_square_sum(trii_step *step, const trii_stages *stages,
                                tri_tensor *const *params, const trii_vid *grads, int n,
                                trii_vid *total_out) TRI_MUST_CHECK;

/* Updates of many tensors that one node records, with equal numbers. Starts with n = 0. */
typedef struct trii_update_batch {
    trii_attrs attrs;
    trii_vid scale; /* NO_VALUE: none */
    trii_vid skip;  /* likewise; an f32 scalar */
    int n, n_states;
    tri_tensor *tensors[TRII_MAX_INPUTS / 2];
    tri_tensor *const *states[TRII_MAX_INPUTS / 2];
    trii_vid in[TRII_MAX_INPUTS];
} trii_update_batch;

/* One more tensor; attrs, scale, skip and n_states are set. */
tri_status trii_update_add(trii_update_batch *batch, trii_step *step, tri_tensor *tensor,
                           trii_vid grad, tri_tensor *const *states) TRI_MUST_CHECK;
static inline bool trii_update_is_full(const trii_update_batch *batch)
{
    int others = 1 + (batch->skip != TRII_NO_VALUE);

    return (batch->n + 1) * (2 + batch->n_states) + others > TRII_MAX_INPUTS;
}
/* Records the batch, binds the results to the tensors and their states, and empties it. */
tri_status trii_update_record(trii_update_batch *batch, trii_step *step) TRI_MUST_CHECK;

#endif
