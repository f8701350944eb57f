/*
 * trainer_internal.h - the loop of tri_fit: what the files of this folder share.
 *
 *   fit_calls.c         the four calls: arguments are checked, the right processes run them
 *   fit_options.c       what the arguments may be; numbers that have defaults
 *   fit_names.c         names of strategies, precisions, accelerators
 *   fit_world.c         who takes part: launcher, group, workers that this process starts
 *   fit_setup.c         network, optimizer, data, run folder; all of it taken down again
 *   fit_data.c          each rank's samples
 *   fit_step.c          calls of the task, in the types of the precision
 *   fit_loop.c          epochs, updates
 *   fit_evaluate.c      validation, test
 *   fit_predict.c       predictions, of all ranks in order
 *   fit_stop.c          all ranks end at one update
 *   fit_screen.c        progress, summary
 *   trainer.c           what steps and callbacks read
 *   trainer_callbacks.c calls of callbacks
 *   trainer_state.c     what callbacks have in checkpoints
 *   log_book.c          logged values: the log book (log_book.h)
 *   log_entries.c       their names
 *   log_agree.c, log_local.c  what the ranks tell each other of them
 *   fit_files.c         what they are written to
 *   checkpoint_policy.c, resume.c, early_stopping.c, fit_average.c  when to save, where to go on,
 *                       when to give up, averages (trainer_policy.h)
 *   trainer_record.c, run_config.c, log_state.c  what a checkpoint has of all this
 *
 * Every rank has a tri_trainer and does the same. What decides (which values are logged, whether to
 * stop, what is best) has the same bits on all of them, so that none has to be told. Where ranks
 * have to agree this is a collective of fit_world.c; there is none in an update but those of
 * tri_ddp.
 */
#ifndef TRII_TRAINER_INTERNAL_H
#define TRII_TRAINER_INTERNAL_H

#include <trireme/trainer.h>

#include "base/compiler.h"
#include "base/err.h"

typedef enum trii_fit_call { TRII_FIT, TRII_VALIDATE, TRII_TEST, TRII_PREDICT } trii_fit_call;

/* What the values of a step belong to. */
typedef enum trii_phase {
    TRII_PHASE_TRAIN,
    TRII_PHASE_SANITY,
    TRII_PHASE_VAL,
    TRII_PHASE_TEST,
    TRII_PHASE_PREDICT
} trii_phase;

typedef enum trii_strategy {
    TRII_STRATEGY_AUTO,
    TRII_STRATEGY_SINGLE,
    TRII_STRATEGY_DDP,
    TRII_STRATEGY_DATA_PARALLEL,
    TRII_STRATEGY_ZERO1, /* and so on: trii_strategy_stage */
    TRII_STRATEGY_ZERO2,
    TRII_STRATEGY_ZERO3
} trii_strategy;

/* The stage of tri_zero; 0: it is another strategy. */
static inline int trii_strategy_stage(trii_strategy strategy)
{
    return strategy >= TRII_STRATEGY_ZERO1 ? (int)(strategy - TRII_STRATEGY_ZERO1) + 1 : 0;
}

typedef enum trii_fit_numbers {
    TRII_PRECISION_32,
    TRII_PRECISION_BF16,
    TRII_PRECISION_16,
    TRII_PRECISION_64,
    TRII_PRECISION_AUTO
} trii_fit_numbers;

/* The options after their defaults. */
typedef struct trii_fit_settings {
    trii_strategy strategy;
    trii_fit_numbers precision;
    bool clip_value; /* not the norm */
    int64_t accumulate, log_every, check_every_epoch;
    int64_t sanity;                /* -1: all */
    int64_t max_epochs, max_steps; /* -1: none */
} trii_fit_settings;

/* A data set as this rank sees it. */
typedef struct trii_part {
    tri_dataset *dataset; /* borrowed; NULL = there is none */
    tri_sampler *sampler; /* owned */
    tri_loader *loader;   /* owned; NULL if this rank has no samples */
    int64_t length;       /* samples of this rank */
    int64_t batch_size;
    int64_t n_batches; /* of an epoch, after the limits; of training the same on all ranks */
} trii_part;

/* Texts that callbacks have in checkpoints (trainer_state.c). */
typedef struct trii_state_text {
    char *key, *value;
} trii_state_text;

typedef struct trii_state_list {
    trii_state_text *at;
    int n, room;
} trii_state_list;

typedef struct trii_book trii_book;
typedef struct trii_fit_files trii_fit_files;
typedef struct trii_policy trii_policy;
typedef struct trii_early trii_early;
typedef struct trii_average trii_average;

struct tri_trainer {
    trii_fit_call call;
    const tri_task *task;
    const tri_fit_data *data;
    const tri_fit_options *opt;
    void *arg;
    trii_fit_settings set;

    tri_group *group; /* NULL = the world, or none if size is 1; borrowed */
    int rank, size;

    tri_module *model;
    bool is_ddp; /* or tri_zero's: its gradients are averaged over the ranks */
    tri_optimizer *optimizer;
    double lr;               /* that it was made with */
    tri_grad_scaler *scaler; /* NULL = none */
    trii_part train, val, test, predict;

    int64_t epoch, step, batch; /* complete ones; batches of this epoch */
    int64_t total_steps;        /* -1 = not known */
    int64_t batches_ever;       /* of training, over epochs: for val_check_interval */
    int64_t n_in_group;         /* batches whose gradients wait for their update */
    double group_samples;       /* of this rank, of all batches of that update */
    int64_t batch_samples;      /* of the batch whose step runs */
    trii_phase phase;
    bool first_batch;     /* no batch of training has run here */
    bool in_step;         /* a function of the task runs: it may log */
    bool validated_here;  /* since the last update */
    bool resumed;         /* from a checkpoint, */
    bool validation_owed; /* before the validation that may be due at its batch */
    bool autocast;        /* precision is mixed: */
    tri_dtype autocast_dtype;

    tri_stop_reason wish; /* of this rank: it votes for it when that counts */
    char wish_why[128];
    tri_stop_reason reason; /* of all ranks; TRI_STOP_NONE: go on */
    char why[128];
    int64_t started_ns, deadline_ns; /* deadline: INT64_MAX = none */
    double seconds_before;           /* trained before the run was resumed */
    int64_t restarts;                /* of the launcher's job, on any rank */

    char run_dir[TRI_FIT_PATH_BYTES]; /* "" = no files */
    trii_state_list saves, loaded;    /* of callbacks: for the next checkpoint, of the last */
    trii_book *book;
    trii_policy *policy;      /* NULL = no checkpoints */
    trii_early *early;        /* NULL = no early stopping */
    trii_average *average;    /* NULL = no averages */
    struct trii_loaded *from; /* what it is resumed from, while it is set up (resume.c) */
    tri_progress *progress;
    int64_t samples_per_epoch; /* of all ranks: what progress counts */
    tri_tensor **predictions_out;
};

/* Each rank has a part of the state: what reads or writes all of it is a call of all ranks. */
static inline bool trii_fit_is_sharded(const tri_trainer *t)
{
    return t->size > 1 && trii_strategy_stage(t->set.strategy) > 0;
}

/* --- fit_names.c, fit_options.c ------------------------------------------- */

const char *trii_fit_call_name(trii_fit_call call);
tri_status trii_fit_strategy(const char *name, const char *call,
                             trii_strategy *strategy_out) TRI_MUST_CHECK;
const char *trii_fit_strategy_name(trii_strategy strategy); /* the one in lists */
tri_status trii_fit_zero_stage(int stage, const char *call,
                               trii_strategy *strategy_out) TRI_MUST_CHECK;
tri_status trii_fit_precision(const char *name, const char *call,
                              trii_fit_numbers *precision_out) TRI_MUST_CHECK;
tri_status trii_fit_accelerator(const char *name, const char *call) TRI_MUST_CHECK;
/* "min", "max" or NULL, of an option of this name. */
tri_status trii_fit_mode(const char *mode, const char *option, bool *max_out) TRI_MUST_CHECK;
/* Everything that can be known before anything is done; fills settings. */
tri_status trii_fit_check(tri_trainer *t) TRI_MUST_CHECK;

/* --- fit_world.c ---------------------------------------------------------- */

/* Runs `body` of the trainer in each worker. In this process, or in workers that it starts; then
 * `result` (bytes of it, and what is sent by trii_fit_hand_back) comes from rank 0. */
tri_status trii_fit_run(tri_trainer *t, tri_status (*body)(tri_trainer *t, tri_fit_result *result),
                        tri_fit_result *result) TRI_MUST_CHECK;

/* Collectives of the trainer's; with one rank they do nothing. */
tri_status trii_fit_sum(tri_trainer *t, double *values, size_t n) TRI_MUST_CHECK;
tri_status trii_fit_max(tri_trainer *t, double *values, size_t n) TRI_MUST_CHECK;
/* Rank 0's text to all. */
tri_status trii_fit_send_text(tri_trainer *t, char *text, size_t bytes) TRI_MUST_CHECK;

/* --- fit_setup.c, fit_data.c ---------------------------------------------- */

tri_status trii_fit_set_up(tri_trainer *t) TRI_MUST_CHECK;
void trii_fit_take_down(tri_trainer *t);
tri_status trii_fit_open_data(tri_trainer *t) TRI_MUST_CHECK;
void trii_fit_close_data(tri_trainer *t);
/* Samples of this rank's batch with this index. */
static inline int64_t trii_part_batch_samples(const trii_part *part, int64_t index)
{
    int64_t left = part->length - index * part->batch_size;

    return left < part->batch_size ? left : part->batch_size;
}

/* --- fit_step.c, fit_loop.c, fit_evaluate.c, fit_predict.c ---------------- */

/* Called before this rank evaluates so many batches, and after that (not if one has failed). Where
 * each forward gathers parameters, and ranks have different numbers of batches, parameters stay
 * whole in between. */
tri_status trii_fit_whole_begin(tri_trainer *t, int64_t n_batches,
                                bool *is_whole_out) TRI_MUST_CHECK;
tri_status trii_fit_whole_end(tri_trainer *t, bool is_whole) TRI_MUST_CHECK;

tri_status trii_fit_loop(tri_trainer *t) TRI_MUST_CHECK;
/* Calls a function of the task for one batch, in the types of the precision; NULL is an error. */
tri_tensor *trii_fit_training_step(tri_trainer *t, const tri_batch *batch);
tri_tensor *trii_fit_predict_step(tri_trainer *t, const tri_batch *batch);
void trii_fit_evaluation_step(tri_trainer *t, const tri_batch *batch,
                              void (*step)(tri_trainer *t, const tri_batch *batch, void *arg));
/* At most `limit` batches (-1 = all of the part); values are known on all ranks afterwards. */
tri_status trii_fit_evaluate(tri_trainer *t, trii_phase phase, int64_t limit) TRI_MUST_CHECK;
tri_status trii_fit_predict_all(tri_trainer *t) TRI_MUST_CHECK;

/* --- fit_stop.c ----------------------------------------------------------- */

/* Before the backward pass of an update: votes to stop after it if this rank wants to. */
void trii_fit_vote(tri_trainer *t);
/* After the update: whether all ranks stop now; then reason is set, the same everywhere. */
tri_status trii_fit_voted(tri_trainer *t) TRI_MUST_CHECK;
/* At the end of an epoch, the same with a sum of its own. */
tri_status trii_fit_agree(tri_trainer *t) TRI_MUST_CHECK;
/* All ranks know that it is to end: what decided has the same bits on each. */
void trii_fit_end_with(tri_trainer *t, tri_stop_reason reason, const char *format, ...)
    TRII_PRINTF(3, 4);

/* --- fit_screen.c --------------------------------------------------------- */

tri_status trii_fit_screen_open(tri_trainer *t) TRI_MUST_CHECK; /* once total_steps is known */
void trii_fit_screen_batch(tri_trainer *t);                     /* after each batch */
void trii_fit_screen_pause(tri_trainer *t, const char *what);   /* evaluating, saving */
void trii_fit_screen_go_on(tri_trainer *t);
/* A line of rank 0 that stays. */
void trii_fit_say(tri_trainer *t, const char *format, ...) TRII_PRINTF(2, 3);
/* The values of the epoch, of evaluation or of training, as such a line; nothing if there are none.
 */
void trii_fit_say_values(tri_trainer *t, bool of_evaluation);
tri_status trii_fit_summary(tri_trainer *t) TRI_MUST_CHECK;
/* Seconds of the fit, those before a resume too. */
double trii_fit_seconds(const tri_trainer *t);

/* --- trainer_state.c ------------------------------------------------------ */

/* Calls state_save of all callbacks, which fill an empty t->saves. */
tri_status trii_state_collect(tri_trainer *t) TRI_MUST_CHECK;
tri_status trii_state_add(trii_state_list *list, const char *key, const char *value) TRI_MUST_CHECK;
void trii_state_clear(trii_state_list *list);

/* --- trainer_callbacks.c -------------------------------------------------- */

typedef tri_status (*trii_hook)(tri_callback *self, tri_trainer *t);
typedef tri_status (*trii_batch_hook)(tri_callback *self, tri_trainer *t, const tri_batch *batch);
/* Calls the hook of this name of all callbacks, until one fails: trii_hooks(t, epoch_end). */
#define trii_hooks(t, hook) trii_hooks_at(t, offsetof(tri_callback_class, hook), #hook)
#define trii_batch_hooks(t, hook, batch)                                                           \
    ((t)->opt->n_callbacks == 0                                                                    \
         ? TRI_OK                                                                                  \
         : trii_batch_hooks_at(t, offsetof(tri_callback_class, hook), #hook, batch))
tri_status trii_hooks_at(tri_trainer *t, size_t offset, const char *hook) TRI_MUST_CHECK;
tri_status trii_batch_hooks_at(tri_trainer *t, size_t offset, const char *hook,
                               const tri_batch *batch) TRI_MUST_CHECK;
/* The fit has failed with the line of tri_last_error, which stays. */
void trii_hooks_exception(tri_trainer *t, tri_status status);
/* A record, to all callbacks of rank 0. */
tri_status trii_hooks_record(tri_trainer *t, const tri_metric *values, int n) TRI_MUST_CHECK;

#endif
