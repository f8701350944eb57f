/*
 * trainer.h - the loop that everybody writes, once: training, evaluation, checkpoints, resuming;
 * and means over steps, for a loop of your own.
 *
 *     static tri_module *model(void *arg) { return make_network(); }
 *     static tri_optimizer *optimizer(tri_module *model, void *arg)
 *     {
 *         return tri_adamw(model, 1e-3, NULL);
 *     }
 *     static tri_tensor *training_step(tri_trainer *t, const tri_batch *batch, void *arg)
 *     {
 *         tri_tensor *logits = tri_forward(tri_trainer_model(t), batch->fields[0]);
 *
 *         tri_trainer_log(t, "accuracy", tri_count_correct(logits, batch->fields[1]),
 *                         &(tri_trainer_log_options){.count = true});
 *         return tri_cross_entropy(logits, batch->fields[1], NULL);
 *     }
 *     static const tri_task task = {.name = "try", .model = model, .optimizer = optimizer,
 *                                   .training_step = training_step};
 *     ...
 *     TRI_TRY(tri_fit(&task, &(tri_fit_data){.train = train, .val = val, .batch_size = 32},
 *                     &(tri_fit_options){.max_epochs = 4, .devices = 2}, NULL, &result));
 *     printf("validation accuracy %.4f\n", tri_fit_result_value(&result, "val_accuracy"));
 *
 * Names and rules are Lightning's; where they differ docs/TRAINING.md says so and why. Under a
 * launcher (trirun, torchrun, srun, mpirun) every worker calls tri_fit with the same arguments;
 * without one, `devices` starts them. All that the trainer does is calls of public headers, so that
 * a loop of your own gets the same weights, bit for bit.
 *
 * An update is, in this order: k times (batch, training_step, backward), gradients unscaled and
 * clipped, learning rate set, weights changed, counters advanced, values logged if that is due. It
 * communicates what the loop of your own would: whether to stop comes with the sums that
 * tri_backward sends anyway. Every log_every_n_steps updates the ranks add up what was logged, and
 * once an epoch they agree on whether to go on.
 */
#ifndef TRIREME_TRAINER_H
#define TRIREME_TRAINER_H

#include <trireme/data.h>
#include <trireme/optim.h>
#include <trireme/parallel.h>
#include <trireme/records.h>
#include <trireme/status.h>
#include <trireme/tensor.h>
#include <trireme/zero.h>

TRI_BEGIN_DECLS

/* --- what is trained, and on what ----------------------------------------- */

typedef struct tri_trainer tri_trainer; /* one fit, validation, test or prediction under way */

/* What is trained: a constant table of the program. The trainer calls these functions in every
 * worker, on the thread that called tri_fit, with the `arg` that was passed there; they may block.
 * They report a failure by what they return: a module, optimizer or tensor that carries an error
 * ends the fit with it. */
typedef struct tri_task {
    /* Required: for messages and the run folder; 1 to 63 letters, digits, '-', '_' and '.', not
     * beginning with '.'. */
    const char *name;
    /* Required: a new network, after tri_manual_seed(seed). The trainer owns it. */
    tri_module *(*model)(void *arg);
    /* Required by tri_fit: gets the network, wrapped for its strategy. The trainer owns it. */
    tri_optimizer *(*optimizer)(tri_module *model, void *arg);
    /* Required by tri_fit: the loss of one batch, a mean over its samples. The trainer does the
     * rest: no tri_backward, no tri_step_end here. */
    tri_tensor *(*training_step)(tri_trainer *t, const tri_batch *batch, void *arg);
    /* One batch of validation, without gradients and in evaluation mode. NULL: training_step is
     * called, and its loss is logged as "val_loss", what it logs as NAME as "val_NAME". */
    void (*validation_step)(tri_trainer *t, const tri_batch *batch, void *arg);
    /* NULL: as validation, with names that begin with "test_" in place of "val_". */
    void (*test_step)(tri_trainer *t, const tri_batch *batch, void *arg);
    /* One batch of predictions [N, ..], of one dtype. NULL: the network's result for field 0. */
    tri_tensor *(*predict_step)(tri_trainer *t, const tri_batch *batch, void *arg);
    /* The learning rate of update `step` (from 0 on), made of the rate that a group of parameters
     * was made with; total_steps is -1 if only the time is limited. NULL: it stays. */
    double (*lr)(double lr, int64_t step, int64_t total_steps, void *arg);
    TRI_RESERVED(8);
} tri_task;

/* The data sets, borrowed: what the call does not need may be NULL.
 *
 * Training samples are shuffled in each epoch and dealt out to the ranks (as by
 * tri_sampler_distributed: at most one sample per rank comes twice in an epoch, so that all ranks
 * have equally many; loader.drop_last leaves those out instead, and a last batch that is not full).
 * Validation, test and prediction cut their set into one share for each rank, in order, and see
 * every sample exactly once. */
typedef struct tri_fit_data {
    tri_dataset *train, *val, *test, *predict;
    int64_t batch_size; /* samples of one batch of one rank, */
    /* or of one update: all ranks and accumulated batches together. One of the two is required;
     * both must fit. */
    int64_t global_batch_size;
    int64_t val_batch_size; /* of validation, test and prediction, one rank; 0 = batch_size */
    /* drop_last is of training only; seed 0 = that of the options */
    tri_loader_options loader;
    bool no_shuffle; /* training samples come in the order of the set */
    TRI_RESERVED(8);
} tri_fit_data;

/* --- options -------------------------------------------------------------- */

/* When checkpoints are saved, in RUN_FOLDER/checkpoints, and which stay. */
typedef struct tri_fit_checkpoint_options {
    /* The logged name whose best values are kept; NULL: the newest are. A save goes by the last
     * value: with every_n_train_steps that of an earlier validation, unless val_check_interval is
     * equal. */
    const char *monitor;
    const char *mode; /* "min" or "max": what is best; NULL = "min" */
    int save_top_k;   /* so many of the best, up to 64; 0 = 1 with a monitor; -1: all stay */
    int keep_last;    /* so many of the newest; 0 = 3; -1 = all */
    int64_t every_n_train_steps;
    int64_t every_n_epochs; /* 0 = 1 if no other interval is given */
    double every_s;         /* seconds; looked at every log_every_n_steps updates */
    bool async;             /* a thread writes while training goes on */
    bool weights_only;      /* without the optimizer: such a run cannot be resumed */
    bool on_exception;      /* also when the fit fails; not with "zero1" to "zero3" */
    TRI_RESERVED(8);
} tri_fit_checkpoint_options;

/* Ends the fit when a logged value does not get better any more (Lightning's EarlyStopping). It
 * looks whenever the value is new: after a validation, say. */
typedef struct tri_fit_early_stopping_options {
    const char *monitor;          /* required, such as "val_loss" */
    const char *mode;             /* "min" or "max"; NULL = "min" */
    double min_delta;             /* better means better by more than this */
    tri_opt patience;             /* looks without a better value until the fit ends; default 3 */
    bool not_strict;              /* a value that nobody logs is no error */
    bool allow_not_finite;        /* go on when the value is NaN or infinite */
    tri_opt stopping_threshold;   /* end at once when it is better than this */
    tri_opt divergence_threshold; /* end at once when it is worse than this */
    TRI_RESERVED(4);
} tri_fit_early_stopping_options;

/* Keeps moving averages of the parameters (tri_ema); validation, test and the best checkpoints use
 * them. */
typedef struct tri_fit_ema_options {
    tri_opt decay;         /* default 0.999 */
    int64_t every_n_steps; /* 0 = 1 */
    int64_t start_step;    /* no averages before this update */
    TRI_RESERVED(4);
} tri_fit_ema_options;

typedef struct tri_callback tri_callback;

/* Zero means the default. tri_fit requires one of the first three limits, or fast_dev_run. */
typedef struct tri_fit_options {
    int64_t max_epochs;
    int64_t max_steps; /* updates */
    double max_time_s;
    /* The fit does not end before these, unless a signal or one of the first two limits ends it. */
    int64_t min_epochs, min_steps;

    const char *accelerator; /* "auto", "cpu"; NULL = "auto" */
    /* Workers on this host, or, with strategy "data_parallel", devices of this process; 0 = as the
     * launcher has it, else 1. Without a launcher more than one are started by tri_spawn as copies
     * of this process: it must not have computed with tensors before, and only what the result
     * holds, and files, come back from them. */
    int devices;
    /* Hosts; 0 = as the launcher has it, else 1. Without a launcher several need MASTER_ADDR,
     * MASTER_PORT and NODE_RANK in the environment of each, which starts `devices` workers. */
    int num_nodes;
    /* "auto", "single" ("single_device"), "ddp" ("ddp_spawn", "ddp_fork", and other names of
     * Lightning's that begin so; FSDP's "NO_SHARD"), "data_parallel" ("dp"), and those of tri_zero:
     * "zero1" (DeepSpeed's "deepspeed_stage_1"), "zero2" ("deepspeed", "deepspeed_stage_2",
     * "SHARD_GRAD_OP"), "zero3" ("deepspeed_stage_3", "fsdp", "FULL_SHARD"), also with "_offload",
     * since all lies in the host's memory. NULL = "auto": "ddp" where there are several workers,
     * else "single". With "zero1" to "zero3" run folders are on a disk that all hosts share. */
    const char *strategy;
    /* "32-true", "bf16-mixed", "16-mixed" (with tri_grad_scaler), "64-true" (f32 fields of batches
     * become f64, too), or "auto": bf16-mixed where rank 0's processor is quick at it, else
     * 32-true. NULL = "32-true". Lightning's short forms ("32", "bf16") work. */
    const char *precision;

    /* At most so many batches of each rank in an epoch, or this share of them (0 to 1); 0 = all. */
    int64_t limit_train_batches, limit_val_batches, limit_test_batches, limit_predict_batches;
    double limit_train_share, limit_val_share, limit_test_share, limit_predict_share;
    /* Train and validate on the first so many batches of each, unshuffled. */
    int64_t overfit_batches;
    /* A trial of everything with so many batches: one epoch, no files, no sanity check. */
    int64_t fast_dev_run;
    /* Batches of validation before training, which find mistakes early; their values are thrown
     * away. -1: all; default 2. */
    tri_opt num_sanity_val_steps;
    /* Validate after so many batches: within an epoch, or counted over epochs if it is more than an
     * epoch has; 0 = at the end of an epoch. */
    int64_t val_check_interval;
    int64_t check_val_every_n_epoch; /* validate in every n-th epoch only; 0 = 1 */

    /* An update is the mean over the samples of so many batches of each rank; fewer at the end of
     * an epoch, where it is the mean over those. 0 = 1. */
    int64_t accumulate_grad_batches;
    double gradient_clip_val;            /* 0 = none */
    const char *gradient_clip_algorithm; /* "norm" or "value"; NULL = "norm" */
    bool sync_batchnorm; /* statistics over all ranks (tri_convert_sync_batch_norm) */
    bool detect_anomaly; /* an operation that makes a NaN ends the fit, by its name: slow */
    /* A Chrome trace of what ran is written to this file; "%p" in its name is the process. */
    const char *profile;

    /* Of the initial values, the order of the samples, and all that is random. */
    uint64_t seed;
    const char *default_root_dir; /* where run folders are made; NULL = "runs" */
    const char *run_name;         /* the run folder's name; NULL = NAME-1, NAME-2, .. of the task */
    /* NULL: start a new run (a worker that its launcher has restarted: as "last"). "last": go on
     * from the newest whole checkpoint of the run folder, or start if there is none; "best": from
     * the best one; else the folder of a run (its newest) or of a checkpoint. A run that is resumed
     * keeps its folder, where hosts share no disk, too (it has the same name on each, and each gets
     * the checkpoint). A safetensors file: a new run begins with its weights. */
    const char *ckpt_path;
    /* Resume although the seed, or an option that decides which samples are seen, differs from what
     * the run was started with: otherwise an error. Other differences are only reported. */
    bool resume_anyway;
    const tri_fit_checkpoint_options *checkpoint; /* NULL = defaults; see also no_checkpoint */
    const tri_fit_early_stopping_options *early_stopping; /* NULL = none */
    const tri_fit_ema_options *ema;                       /* NULL = none */
    tri_callback *const *callbacks;                       /* borrowed; called in this order */
    int n_callbacks;
    int64_t log_every_n_steps; /* 0 = 50 */
    bool csv, tensorboard;     /* besides metrics.jsonl, which is always there: these files, too */
    bool no_progress, no_checkpoint, no_summary;
    /* Of tri_ddp: its group is that of the fit, else the world. NULL = defaults. */
    const tri_ddp_options *ddp;
    /* Of tri_zero, likewise; without `strategy` its stage decides. Its mesh is refused. */
    const tri_zero_options *zero;
    TRI_RESERVED(15);
} tri_fit_options;

/* --- the calls ------------------------------------------------------------ */

typedef enum tri_stop_reason {
    TRI_STOP_NONE = 0, /* nothing was to be trained: evaluation, or a run that was complete */
    TRI_STOP_MAX_EPOCHS,
    TRI_STOP_MAX_STEPS,
    TRI_STOP_MAX_TIME,
    TRI_STOP_EARLY,   /* early_stopping */
    TRI_STOP_REQUEST, /* tri_trainer_stop */
    TRI_STOP_SIGNAL   /* SIGTERM, SIGINT, SIGUSR1 (tri_stop_watch) */
} tri_stop_reason;

#define TRI_FIT_MAX_VALUES 64
#define TRI_FIT_NAME_BYTES 64
#define TRI_FIT_PATH_BYTES 1024

typedef struct tri_fit_result {
    tri_stop_reason reason;
    char why[128];         /* for people: "max_epochs=4 reached" */
    int64_t epochs, steps; /* complete epochs and updates, those before a resume too */
    double seconds;        /* of training, validation included, those before a resume too */
    char run_dir[TRI_FIT_PATH_BYTES]; /* "" if there is none */
    /* the best checkpoint, or the newest without a monitor; "" if there is none */
    char best_path[TRI_FIT_PATH_BYTES];
    double best_value; /* of the checkpoint's monitor; NaN if there is none */
    int n_values;
    char names[TRI_FIT_MAX_VALUES][TRI_FIT_NAME_BYTES]; /* what was logged, and its last value: */
    double values[TRI_FIT_MAX_VALUES];                  /* over all ranks */
    TRI_RESERVED(16);
} tri_fit_result;

/* The last value that was logged under a name; NaN if there is none. */
TRI_API double tri_fit_result_value(const tri_fit_result *result, const char *name);

/**
 * Trains. All ranks call it with the same arguments, of which nothing is changed; it joins the
 * world if a launcher has started this process and it has not joined, and does not leave it.
 *
 *   task, data, opt  borrowed during the call
 *   arg              passed to the functions of the task
 *   result_out       the same on all ranks but for best_path; NULL allowed
 *
 * From the first call on SIGTERM, SIGINT (Ctrl-C) and SIGUSR1 are recorded (tri_stop_watch): the
 * fit ends after the update that all ranks agree on, saves, and returns TRI_OK; a second SIGTERM or
 * SIGINT ends the process. Workers that `devices` has started are told, so it is enough to signal
 * this process. Progress, the summary and notes go to
 * stderr, by rank 0. Blocks until the fit has ended.
 *
 * Errors: INVALID_ARG (an option, its value and what is allowed), UNSUPPORTED (what this version
 *   cannot do, and what to use now), STATE (workers cannot be started from this process, and why;
 *   run_name holds a run already), those of tri_checkpoint_open and tri_checkpoint_restore for
 *   ckpt_path, NAN (detect_anomaly), what a function of the task or a callback failed with, IO,
 *   NO_MEMORY, those of the group. Mistakes in the arguments are found before anything is
 *   done. A rank that fails later tells the others, by failing the group (tri_group_abort), so that
 *   none waits.
 */
TRI_API TRI_MUST_CHECK tri_status tri_fit(const tri_task *task, const tri_fit_data *data,
                                          const tri_fit_options *opt, void *arg,
                                          tri_fit_result *result_out);
/* Evaluates the network of task->model, or that of opt->ckpt_path, on data->val or data->test;
 * names and values are in the result. Limits of training are not needed. Otherwise as tri_fit. */
TRI_API TRI_MUST_CHECK tri_status tri_validate(const tri_task *task, const tri_fit_data *data,
                                               const tri_fit_options *opt, void *arg,
                                               tri_fit_result *result_out);
TRI_API TRI_MUST_CHECK tri_status tri_test(const tri_task *task, const tri_fit_data *data,
                                           const tri_fit_options *opt, void *arg,
                                           tri_fit_result *result_out);
/* The predictions for data->predict, all ranks' together and in the order of its samples, as one
 * persistent tensor [N, ..] on every rank, to be released with tri_tensor_unref. Otherwise as
 * tri_validate. */
TRI_API TRI_MUST_CHECK tri_status tri_predict(const tri_task *task, const tri_fit_data *data,
                                              const tri_fit_options *opt, void *arg,
                                              tri_tensor **predictions_out);

/* --- inside a step or a callback ------------------------------------------ */

/* These read; none communicates. With t NULL they return NULL, 0, -1 or NaN. */
TRI_API tri_module *
tri_trainer_model(const tri_trainer *t); /* wrapped for its strategy; borrowed */
TRI_API tri_optimizer *tri_trainer_optimizer(const tri_trainer *t); /* NULL outside tri_fit */
TRI_API int64_t tri_trainer_epoch(const tri_trainer *t); /* complete epochs: 0 in the first */
TRI_API int64_t tri_trainer_step(const tri_trainer *t);  /* complete updates */
TRI_API int64_t tri_trainer_batch(const tri_trainer *t); /* complete batches of the epoch */
/* Updates when the fit ends by itself; -1 if only the time is limited. */
TRI_API int64_t tri_trainer_total_steps(const tri_trainer *t);
TRI_API int tri_trainer_rank(const tri_trainer *t);
TRI_API int tri_trainer_world_size(const tri_trainer *t);
TRI_API bool tri_trainer_is_global_zero(const tri_trainer *t); /* rank 0, which prints and writes */
TRI_API bool tri_trainer_is_sanity_checking(const tri_trainer *t); /* in num_sanity_val_steps */
/* The run folder, the same on all ranks; "" in fast_dev_run. Borrowed. */
TRI_API const char *tri_trainer_run_dir(const tri_trainer *t);
/* The last value of a logged name over all ranks, the same bits on each of them, so that all decide
 * alike; NaN if there is none yet. */
TRI_API double tri_trainer_value(const tri_trainer *t, const char *name);
/* The board of the run folder (records.h), for histograms, images and texts: on rank 0 of tri_fit
 * with the option `tensorboard`, else NULL. Borrowed until fit_end. */
TRI_API tri_tensorboard *tri_trainer_tensorboard(const tri_trainer *t);
/* Ends the fit, after the next update that all ranks agree on, or at the end of the epoch; not
 * before min_epochs and min_steps. Any rank; `why` goes into the result, copied. */
TRI_API void tri_trainer_stop(tri_trainer *t, const char *why);

/* --- logging -------------------------------------------------------------- */

/* Zero means the default. */
typedef struct tri_trainer_log_options {
    int64_t weight; /* samples that the value is the mean or the sum of; 0 = those of the batch */
    bool count;     /* the value is a sum over the samples (tri_count_correct), not a mean */
    const char *reduce; /* "mean", "sum", "min" or "max", over batches and ranks; NULL = "mean" */
    /* TRI_SET(true), TRI_SET(false). on_step: the value of each log_every_n_steps-th update is a
     * record; default in training. on_epoch: the value over all batches is one; default in
     * validation and test, where there are no other values. With both the names are NAME_step and
     * NAME_epoch. */
    tri_opt on_step, on_epoch;
    bool progress_bar; /* also show it there */
    /* of this rank alone: the name is NAME/rank3, on rank 3, and the other ranks need not log it */
    bool local;
    TRI_RESERVED(4);
} tri_trainer_log_options;

/**
 * Logs a value from a step of the task, under a name of its own for each call of the step. The loss
 * of training_step is logged as "loss" without being asked. What is logged is
 * sum(value * weight) / sum(weight) over all samples of all ranks in f64, so that an accuracy does
 * not depend on how many ranks there are. Records one addition at most; nothing is sent before it
 * is due.
 *
 *   name   1 to 63 bytes of UTF-8 without quotes, backslashes and control characters; none of step,
 *          epoch, lr and samples_per_s, which the records have anyway; at most TRI_FIT_MAX_VALUES
 *          names
 *   value  a step tensor of one element; tri_trainer_log_value takes a number
 *   opt    NULL = defaults
 *
 * Errors end the fit and name the key: INVALID_ARG, also for a name that comes twice in one step
 * or with another `reduce` than before; STATE (no step of the task calls: callbacks and
 * predict_step log nothing), those of the tensor; MISMATCH if ranks log different names, when these
 * are due.
 */
TRI_API void tri_trainer_log(tri_trainer *t, const char *name, tri_tensor *value,
                             const tri_trainer_log_options *opt);
TRI_API void tri_trainer_log_value(tri_trainer *t, const char *name, double value,
                                   const tri_trainer_log_options *opt);

/* --- callbacks ------------------------------------------------------------ */

/* What a program hooks into the loop. All functions are optional, are called on every rank on the
 * thread of tri_fit, and may block; a status below 0 ends the fit with it, on all ranks.
 *
 *     fit_begin, (sanity check: validation_begin, validation_end)
 *     each epoch: epoch_begin
 *         each batch: batch_begin, batch_end, (when due: validation_begin, validation_end)
 *         epoch_end, (checkpoint)
 *     fit_end
 */
typedef struct tri_callback_class {
    const char *name; /* for messages; required */
    tri_status (*fit_begin)(tri_callback *self, tri_trainer *t);
    tri_status (*epoch_begin)(tri_callback *self, tri_trainer *t);
    tri_status (*batch_begin)(tri_callback *self, tri_trainer *t, const tri_batch *batch);
    /* The batch's step has run, and its update, if it is the last of those that are accumulated. */
    tri_status (*batch_end)(tri_callback *self, tri_trainer *t, const tri_batch *batch);
    tri_status (*validation_begin)(tri_callback *self, tri_trainer *t);
    tri_status (*validation_end)(tri_callback *self, tri_trainer *t); /* values are there */
    tri_status (*epoch_end)(tri_callback *self, tri_trainer *t);
    tri_status (*fit_end)(tri_callback *self, tri_trainer *t);
    /* The fit fails with this status, and tri_last_error says why. */
    void (*exception)(tri_callback *self, tri_trainer *t, tri_status status);
    /* Each record that goes to metrics.jsonl, on rank 0 only; values[n] are borrowed. */
    tri_status (*record)(tri_callback *self, tri_trainer *t, const tri_metric *values, int n);
    /* What is to be in checkpoints: calls tri_trainer_set_state. On rank 0 only. */
    tri_status (*state_save)(tri_callback *self, tri_trainer *t);
    /* After a checkpoint was loaded: calls tri_trainer_state. On every rank. */
    tri_status (*state_load)(tri_callback *self, tri_trainer *t);
    TRI_RESERVED(8);
} tri_callback_class;

/* One of your own puts `tri_callback base` first in its struct. */
struct tri_callback {
    const tri_callback_class *cls; /* borrowed */
    TRI_RESERVED(4);
};

/* A text that checkpoints carry under a key, 1 to 63 bytes, copied; from state_save. Errors:
 * INVALID_ARG, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_trainer_set_state(tri_trainer *t, const char *key,
                                                        const char *value);
/* The text that the loaded checkpoint has under the key, or NULL; borrowed, from state_load. */
TRI_API const char *tri_trainer_state(const tri_trainer *t, const char *key);

/* --- running means -------------------------------------------------------- */

/* Mean of a scalar over steps. Adding records one addition into the step; the value is only
 * fetched when it is asked for. Sums are f64. */
typedef struct tri_meter tri_meter;

TRI_API TRI_MUST_CHECK tri_status tri_meter_create(tri_meter **meter_out);
TRI_API void tri_meter_destroy(tri_meter *meter); /* NULL allowed */
/* Both take a step tensor of one element. add_mean takes the mean of `weight` samples (a loss), and
 * adds it times the weight; add_count takes a sum over `weight` samples (tri_count_correct), and
 * adds it as it is. Call them before the step runs (tri_optimizer_step), so that they run as a part
 * of it; a step that fails adds neither the value nor the weight. */
TRI_API TRI_MUST_CHECK tri_status tri_meter_add_mean(tri_meter *meter, tri_tensor *mean,
                                                     int64_t weight);
TRI_API TRI_MUST_CHECK tri_status tri_meter_add_count(tri_meter *meter, tri_tensor *count,
                                                      int64_t weight);
/* Since the last reset: the sum divided by the weight, the sum, and the weight. They run what was
 * recorded. If nothing was added, the value is NaN; if the step has failed, value and sum are NaN
 * and the weight is 0. */
TRI_API double tri_meter_value(tri_meter *meter);
TRI_API double tri_meter_sum(tri_meter *meter);
TRI_API int64_t tri_meter_weight(tri_meter *meter);
TRI_API TRI_MUST_CHECK tri_status tri_meter_reset(tri_meter *meter);

TRI_END_DECLS

#endif
