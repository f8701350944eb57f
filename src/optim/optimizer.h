/*
 * optimizer.h - what an optimiser is: the parameters, their extra state, and a rule that records
 * the update of one parameter. A new optimiser is one file with such a table.
 */
#ifndef TRII_OPTIMIZER_H
#define TRII_OPTIMIZER_H

#include <trireme/optim.h>

#include "graph/step.h"

#define TRII_OPTIM_STATES 2 /* at most, per parameter */

typedef struct trii_optim_param {
    char *name;
    tri_tensor *tensor;                   /* a reference is held */
    tri_tensor *state[TRII_OPTIM_STATES]; /* same shape and type; NULL = not used */
    bool recorded;                        /* by the last tri_optimizer_step: its update */
} trii_optim_param;

typedef struct trii_optimizer_ops {
    const char *name;
    int n_states;
    const char *state_names[TRII_OPTIM_STATES];
    /* Records the update of one parameter by its gradient. `updates` is how often it was updated
     * before. */
    tri_status (*update)(tri_optimizer *optimizer, trii_step *step, trii_optim_param *param,
                         tri_tensor *grad, int64_t updates);
} trii_optimizer_ops;

struct tri_optimizer {
    const trii_optimizer_ops *ops;
    double lr;
    tri_sgd_options sgd;
    trii_optim_param *params;
    int n_params;
    tri_tensor *updates;    /* i64 [n_params]; never part of a step */
    tri_state_entry *state; /* what tri_optimizer_state lists; names owned */
    int n_state;
    tri_status status; /* of its making */
    char *why;
};

/* Gathers the model's parameters and makes their state. Never NULL. */
tri_optimizer *trii_optimizer_create(const trii_optimizer_ops *ops, tri_module *model, double lr,
                                     int n_states);
/* Fails the optimizer if the value of the setting is negative or not finite. */
void trii_optimizer_check(tri_optimizer *optimizer, const char *what, double value);
/* Keeps the current error line as the optimizer's failure. */
void trii_optimizer_fail(tri_optimizer *optimizer, tri_status status);

#endif
