/*
 * deepspeed.h - DeepSpeed's front: its configuration file and its engine's calls, for programs that
 * come from there.
 *
 *     TRI_TRY(tri_deepspeed_args_take(&argc, argv, &args));
 *     TRI_TRY(tri_initialize(&args, make_network(), &(tri_initialize_options){
 *         .training_data = train}, &engine));
 *     ...
 *     while (tri_loader_next(tri_engine_training_dataloader(engine), &batch) == TRI_OK) {
 *         tri_tensor *logits = tri_engine_forward(engine, batch.fields[0]);
 *         tri_tensor *loss = tri_cross_entropy(logits, batch.fields[1], NULL);
 *
 *         tri_engine_backward(engine, loss);
 *         TRI_TRY(tri_engine_step(engine));
 *         tri_step_end();
 *     }
 *
 * A tri_engine is a model, its optimizer, its schedule and its counters; the loop stays the
 * program's. It is made of tri_ddp (stage 0) or tri_zero (stages 1 to 3), and the weights have the
 * same bits under all of them. (What moves the bytes of a group is called an engine, too: see
 * tri_engine_is_available.) One thread at a time uses an engine. What each key of the file does
 * here, and what differs from DeepSpeed: docs/DEEPSPEED.md.
 */
#ifndef TRIREME_DEEPSPEED_H
#define TRIREME_DEEPSPEED_H

#include <trireme/checkpoint.h>
#include <trireme/data.h>
#include <trireme/group.h>
#include <trireme/nn.h>
#include <trireme/optim.h>

TRI_BEGIN_DECLS

typedef struct tri_engine tri_engine;

/* --- the command line and the world --------------------------------------- */

/* What DeepSpeed's launcher and add_config_arguments give a program. Texts are those of argv. */
typedef struct tri_deepspeed_args {
    bool deepspeed;               /* --deepspeed, which changes nothing */
    const char *deepspeed_config; /* --deepspeed_config FILE, or --deepspeed-config */
    tri_opt local_rank;           /* --local_rank=N, or --local-rank N */
    TRI_RESERVED(4);
} tri_deepspeed_args;

/**
 * Takes these options out of a command line and leaves the others to the program, in their order;
 * after "--" nothing is taken.
 * Errors: INVALID_ARG (NULL; an option without its value, or a local_rank that is no number; names
 *   it): the command line is unchanged.
 */
TRI_API TRI_MUST_CHECK tri_status tri_deepspeed_args_take(int *argc, char **argv,
                                                          tri_deepspeed_args *args_out);

/* Zero means the default. */
typedef struct tri_init_distributed_options {
    /* "gloo", "mpi", "nccl" (plug-ins), or an engine of tri_group_options; NULL = "auto" */
    const char *dist_backend;
    int64_t timeout_ms;      /* as in tri_group_options */
    const char *init_method; /* as the url of tri_init_options */
    int rank, world_size;    /* as there */
    TRI_RESERVED(4);
} tri_init_distributed_options;

/* Joins the world (tri_init), unless this process has joined. opt NULL = defaults; tri_initialize
 * calls it by itself. Errors: those of tri_init. Blocks until all ranks are there. */
TRI_API TRI_MUST_CHECK tri_status tri_init_distributed(const tri_init_distributed_options *opt);

/* --- the engine ----------------------------------------------------------- */

/* Zero means the default. */
typedef struct tri_initialize_options {
    /* A file, or a text that begins with "{"; or args->deepspeed_config: one of the two. */
    const char *config;
    /* In place of the file's optimizer: gets the model, wrapped for its stage, and `arg`. */
    tri_optimizer *(*optimizer)(tri_module *model, void *arg);
    /* In place of the file's scheduler: the learning rate of update `step` (0, 1, ..), made of the
     * rate that a group of parameters was made with. */
    tri_schedule_fn lr_scheduler;
    /* Gives a loader (tri_engine_training_dataloader) of micro-batches, from a distributed sampler
     * that shuffles. Borrowed. */
    tri_dataset *training_data;
    tri_collate collate; /* of that loader, as in tri_loader_options */
    void *collate_arg;
    tri_group *group; /* NULL = the world, joined now if it was not */
    void *arg;        /* passed to optimizer and lr_scheduler */
    TRI_RESERVED(8);
} tri_initialize_options;

/**
 * Makes an engine. Collective: every rank calls it with the same network and configuration.
 * Parameters and buffers become those of rank 0. Rank 0 says on stderr what of the file has a
 * consequence that is easily overlooked.
 *
 *   args       NULL allowed
 *   own_model  owned from now on, also on failure
 *   opt        NULL = defaults; all but training_data, group and the args are only used in this
 *              call
 *
 * Errors: NOT_FOUND, IO (the file), FORMAT (it is no JSON: names line and column; a key comes
 *   twice), INVALID_ARG (names file, line, key, value and what is allowed; batch sizes that do not
 *   fit, with some that do; no configuration, or two; a local_rank that is not this process's),
 *   UNSUPPORTED (a key asks for what is not there, and what to use), those of tri_ddp and tri_zero,
 *   of the optimizer, the loader and the group. A failure of one rank is that of all, and names
 *   it. Blocks until all ranks have called it.
 */
TRI_API TRI_MUST_CHECK tri_status tri_initialize(const tri_deepspeed_args *args,
                                                 tri_module *own_model,
                                                 const tri_initialize_options *opt,
                                                 tri_engine **engine_out);
/* Also the model, the optimizer and the loader. NULL allowed. */
TRI_API void tri_engine_destroy(tri_engine *engine);

/* The model's forward, in the precision of the file; what it returns is f32 (or f64) whatever that
 * is. One forward of a training loop belongs to one backward. Errors: as tri_forward. */
TRI_API tri_tensor *tri_engine_forward(tri_engine *engine, tri_tensor *x);
/* As tri_forward_n. */
TRI_API void tri_engine_forward_n(tri_engine *engine, tri_tensor *const *in, int n_in,
                                  tri_tensor **out, int n_out);
/* tri_backward of the loss of one micro-batch, a mean over its samples, divided by
 * gradient_accumulation_steps and multiplied by the loss scale. The loss can be read (tri_item)
 * after tri_engine_step as it is. Ranks communicate at the boundary alone. Errors fail the step:
 * those of tri_backward, and INVALID_ARG (the loss has more than one element). */
TRI_API void tri_engine_backward(tri_engine *engine, tri_tensor *loss);
/**
 * Ends a micro-batch: runs what was recorded. At each gradient_accumulation_steps-th it clips,
 * updates, and sets the learning rate of the next update; elsewhere it only counts. The caller ends
 * the step (tri_step_end), as in each loop.
 *
 * Errors: STATE (no backward since the last call), NAN (the loss scale cannot become smaller),
 * those of tri_optimizer_step: nothing was counted. Blocks until the step has run.
 */
TRI_API TRI_MUST_CHECK tri_status tri_engine_step(tri_engine *engine);
/**
 * Updates with the micro-batches since the last update, as their mean, where an epoch has ended
 * between two boundaries; DeepSpeed takes them along into the next epoch. Without any it does
 * nothing. Collective: every rank has as many of them. Errors: as tri_engine_step.
 */
TRI_API TRI_MUST_CHECK tri_status tri_engine_flush(tri_engine *engine);
/* Training or evaluation, as tri_module_train. */
TRI_API void tri_engine_train(tri_engine *engine, bool training);

/* --- what it knows -----------------------------------------------------------
 *
 * None communicates. With engine NULL they return NULL, 0, false or NaN. */
TRI_API int64_t tri_engine_train_batch_size(const tri_engine *engine);
TRI_API int64_t tri_engine_train_micro_batch_size_per_gpu(const tri_engine *engine);
TRI_API int64_t tri_engine_gradient_accumulation_steps(const tri_engine *engine);
/* Whether the next tri_engine_step updates. */
TRI_API bool tri_engine_is_gradient_accumulation_boundary(const tri_engine *engine);
/* Whether the last update was made; false if a gradient was not finite (fp16, bf16). */
TRI_API bool tri_engine_was_step_applied(const tri_engine *engine);
TRI_API double tri_engine_lr(const tri_engine *engine); /* of the next update, first group */
TRI_API double tri_engine_loss_scale(const tri_engine *engine); /* 1 without fp16 */
/* Of the last update, before clipping, in any stage; NaN before the first, and if the file has
 * "gradient_clipping": 0 and "compute_grad_norm": false. */
TRI_API double tri_engine_global_grad_norm(const tri_engine *engine);
/* Updates, skipped ones included; those that were skipped; samples of all ranks in them;
 * micro-batches of this rank. */
TRI_API int64_t tri_engine_global_steps(const tri_engine *engine);
TRI_API int64_t tri_engine_skipped_steps(const tri_engine *engine);
TRI_API int64_t tri_engine_global_samples(const tri_engine *engine);
TRI_API int64_t tri_engine_micro_steps(const tri_engine *engine);
/* Borrowed. The loader is NULL without training_data. */
TRI_API tri_module *tri_engine_module(const tri_engine *engine);
TRI_API tri_optimizer *tri_engine_optimizer(const tri_engine *engine);
TRI_API tri_loader *tri_engine_training_dataloader(const tri_engine *engine);

/* --- checkpoints -------------------------------------------------------------
 *
 *     DIR/latest                    the newest tag, written when all of its checkpoint is on disk
 *         TAG/step-000000000020/    a checkpoint as checkpoint.h has it
 *
 * It has weights, the optimizer's state, the scaler, the random state, the counters, and with these
 * the place in the schedule; any number of ranks goes on from it. Micro-batches since the last
 * update are not in it. Which batch of the loader comes next it does not know: tri_loader_begin
 * begins where the program says, which keeps that among `client`. */

/**
 * Saves DIR/TAG. Collective: every rank calls it, also where rank 0 alone writes.
 *
 *   tag     NULL = "global_stepN"; that of rank 0 counts, and where others have another one
 *           "tag_validation" of the file decides: "Warn" (the default), "Ignore" or "Fail"
 *   client  [n_client]: what else the program wants back; that of rank 0 counts
 *
 * Errors: INVALID_ARG, MISMATCH (tag_validation), those of tri_checkpoint_save; a failure of one
 *   rank is that of all, and names it. `latest` and earlier checkpoints are then as they were.
 */
TRI_API TRI_MUST_CHECK tri_status tri_engine_save_checkpoint(tri_engine *engine, const char *dir,
                                                             const char *tag,
                                                             const tri_metadata *client,
                                                             int n_client);

/* Zero means the default: everything is loaded. */
typedef struct tri_engine_load_checkpoint_options {
    bool load_module_only;       /* weights; counters stay */
    bool no_optimizer_states;    /* the optimizer begins from the start */
    bool no_lr_scheduler_states; /* the schedule begins from the start */
    TRI_RESERVED(4);
} tri_engine_load_checkpoint_options;

/**
 * Goes on from DIR/TAG. Collective. Rank 0 says on stderr which values of the configuration are
 * others than they were then.
 *
 *   tag  NULL = that in DIR/latest of rank 0
 *   opt  NULL = defaults
 *
 * A checkpoint that DeepSpeed itself has saved, with any number of ranks, gives its weights
 * (load_module_only), or with them its counters and the place in the schedule
 * (no_optimizer_states); tri_engine_client then knows nothing: torch_file.h reads what else it has.
 *
 * Errors: NOT_FOUND (there is no `latest`, or not the tag that was given: the program may begin
 * from the start), FORMAT (`latest` names what is not there), UNSUPPORTED (it is DeepSpeed's, and
 * the optimizer's states are wanted), those of tri_checkpoint_fetch, tri_checkpoint_restore and
 * tri_load.
 */
TRI_API TRI_MUST_CHECK tri_status
tri_engine_load_checkpoint(tri_engine *engine, const char *dir, const char *tag,
                           const tri_engine_load_checkpoint_options *opt);
/* What the loaded checkpoint has under a key of `client`; NULL: nothing. Borrowed until the next
 * load. */
TRI_API const char *tri_engine_client(const tri_engine *engine, const char *key);

TRI_END_DECLS

#endif
