/*
 * remote.h - modules and functions that run on another worker, with gradients: parameter servers,
 * pipelines, models in parts. Stands on rpc.h.
 *
 *     // worker "ps", which has the parameters:
 *     tri_module *table = tri_nn_embedding(100, 16, NULL);
 *     tri_optimizer *sgd = tri_sgd(table, 0.05, NULL);
 *
 *     TRI_TRY(tri_rpc_init("ps", NULL));
 *     TRI_TRY(tri_remote_serve(NULL, "table", table, sgd, NULL));
 *     TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER));
 *     TRI_TRY(tri_rpc_fini());
 *
 *     // a trainer:
 *     tri_module *table = tri_remote_module(NULL, "ps/table", NULL);
 *     tri_optimizer *own = tri_sgd(net, 0.05, NULL);
 *     tri_remote_optimizer *opt = tri_remote_optimizer_of(own, &table, 1, NULL);
 *
 *     tri_backward(tri_cross_entropy(tri_forward(net, tri_forward(table, x)), target, NULL));
 *     TRI_TRY(tri_remote_optimizer_step(opt));
 *     tri_step_end();
 *
 * A forward of a remote module is one operation of the caller's step, and its gradient is another
 * one; both run as the plan finds time for them. Nothing is sent while a step is recorded, except
 * that the owner is asked once for each new combination of input types which types the results
 * have. The gradient begins where the loss is: on the caller. What the loss does not reach is
 * released at the owner when the step ends.
 *
 * What only other remote modules and functions read, as between the stages of a pipeline, goes
 * directly from owner to owner, and so do gradients. What this worker reads too is sent to both.
 * Operands lie where they came, often in memory of another worker, so a served module or function
 * does not write them: tri_tensor_copy_in refuses that (INVALID_ARG), and tri_data is for reading.
 *
 * Gradients of parameters stay at their owner, in an account of the trainer's step, until the
 * trainer's tri_remote_optimizer_step: an owner's tensors show none (tri_grad). Forwards of one
 * served module run one at a time, those of one caller in the order of recording, so that running
 * statistics and random numbers repeat.
 *
 * If an owner dies, what waits for it fails with PEER_LOST and its name; the step may be repeated
 * when a worker of that name serves the module again.
 *
 * A NULL tri_rpc is the process's own worker. Tensors of any type, without elements too; they
 * travel in plain order through memory of the host.
 */
#ifndef TRIREME_REMOTE_H
#define TRIREME_REMOTE_H

#include <trireme/function.h>
#include <trireme/group.h>
#include <trireme/optim.h>
#include <trireme/rpc.h>

TRI_BEGIN_DECLS

/* Inputs, and results, of a remote module or function. */
#define TRI_REMOTE_TENSORS 16

/* --- at the owner --------------------------------------------------------- */

/* What happens to parameters that an update replaces while forwards that read them still wait for
 * their backward, as with several trainers. */
typedef enum tri_remote_versions {
    TRI_REMOTE_COPY,   /* these keep the old contents: as if each trainer were alone */
    TRI_REMOTE_STALE,  /* backward reads the new ones (Hogwild); needs no memory */
    TRI_REMOTE_REFUSE, /* their backward fails with STATE, as in torch */
} tri_remote_versions;

/* Zero means default. */
typedef struct tri_remote_serve_options {
    tri_remote_versions versions;
    /* Forwards of one caller that wait for their backward, or for their step's end; one more fails
     * with STATE. 0 = 256 */
    int max_graphs;
    TRI_RESERVED(8);
} tri_remote_serve_options;

/**
 * From now on other workers may use the module as "WORKER/name". A thread of its own runs it.
 *
 *   name    as names of rpc.h; an object of the worker (tri_rpc_own)
 *   module  borrowed until tri_rpc_fini (tri_rpc_leave) has succeeded or tri_remote_withdraw has
 *           returned; nobody else may use it meanwhile, except to read its state while no trainer's
 *           step runs
 *   optimizer  of parameters of this module alone; tri_remote_optimizer_step of a trainer steps it.
 *           NULL = nobody updates them
 *
 * Load its checkpoint before. Never blocks. Errors: INVALID_ARG (NULL, a bad name, a failed module
 * or optimizer, a module in tri_ddp or tri_data_parallel), STATE (this process is no worker; the
 * name is taken; the module or the optimizer is served already), NO_MEMORY.
 */
TRI_API TRI_MUST_CHECK tri_status tri_remote_serve(tri_rpc *rpc, const char *name,
                                                   tri_module *module, tri_optimizer *optimizer,
                                                   const tri_remote_serve_options *opt);
/* Ends the service, of a module or a function: waits for the call that runs, and fails the others
 * with NOT_FOUND, once for each caller. Open graphs and gradients are dropped; the name is free for
 * another module or function, which is what callers find then. Errors: NOT_FOUND (nothing of this
 * name is served), STATE (called by the module or function itself, or by one that it waits for; in
 * a TRI_RPC_INLINE handler, a `done` or an event, whatever is served; this process is no worker).
 */
TRI_API TRI_MUST_CHECK tri_status tri_remote_withdraw(tri_rpc *rpc, const char *name);

/* An operation of your own that runs on another worker. `static const`, in the caller and the
 * owner; data and types travel. */
typedef struct tri_remote_function {
    const char *name; /* required; of the object that serves it: "WORKER/name" */
    size_t size;      /* bytes of `data`, copied as they are; at most 32 KiB */
    /* Required. As in tri_function_class: checks in[n_in], and sets dtype, ndim and shape of
     * out[n_out]. Called by the caller. */
    tri_status (*shape)(const tri_function_call *call, tri_function_array *out);
    /* Records the results of in[n_in] at the owner, by operations or modules: these are
     * differentiated as usual, parameters in them have no gradient. Sets all of out[n_out]; to
     * report a failure, a failed tensor. `object` is what it was served with. NULL: only called by
     * this program. */
    void (*record)(const void *data, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out,
                   void *object);
    TRI_RESERVED(8);
} tri_remote_function;

/* As tri_remote_serve: from now on others may call "WORKER/function->name". `function` is borrowed
 * as the module there, and so is `object`, which may be NULL. */
TRI_API TRI_MUST_CHECK tri_status tri_remote_serve_function(tri_rpc *rpc,
                                                            const tri_remote_function *function,
                                                            void *object,
                                                            const tri_remote_serve_options *opt);

/* --- at the caller -------------------------------------------------------- */

/* Zero means default. */
typedef struct tri_remote_module_options {
    int64_t timeout_ms; /* of each forward and backward; 0 = the worker's; TRI_FOREVER = none */
    TRI_RESERVED(8);
} tri_remote_module_options;

/**
 * A module whose forward runs at its owner: 0 to TRI_REMOTE_TENSORS inputs, 1 to
 * TRI_REMOTE_TENSORS results. It has no parameters here, so that an optimizer, tri_ddp and
 * checkpoints pass over it. Its training flag, tri_no_grad_begin and tri_autocast_begin travel:
 * without gradients the owner keeps nothing.
 *
 *   rpc   borrowed: destroy the module and end the step before it is destroyed
 *   name  "WORKER/name", of what tri_remote_serve serves there
 *
 * Never NULL, never blocks: the first forward finds the owner, and waits until it serves the
 * module, at most for the worker's timeout. That, and the question for result types, are all that
 * blocks in a forward. A forward that fails gives failed tensors: INVALID_ARG (operands that the
 * module refuses, with its line at the owner), TIMEOUT, PEER_LOST; what fails while the step runs
 * fails the run.
 */
TRI_API tri_module *tri_remote_module(tri_rpc *rpc, const char *name,
                                      const tri_remote_module_options *opt);

/**
 * Records a function that runs on another worker, with `n_in` inputs (0 to TRI_REMOTE_TENSORS) and
 * `n_out` results (1 to as many), which are written to `out` as step tensors.
 *
 *   worker  its name
 *   data    function->size bytes, copied; NULL if that is 0
 *
 * A result requires a gradient if it is floating-point and an input requires one. Waits only until
 * the owner serves the function, at the first call. Errors, carried by all results: those of
 * `shape`; INVALID_ARG, TIMEOUT, PEER_LOST as above.
 */
TRI_API void tri_remote_apply(tri_rpc *rpc, const char *worker, const tri_remote_function *function,
                              const void *data, tri_tensor *const *in, int n_in, tri_tensor **out,
                              int n_out);

/* --- updates -------------------------------------------------------------- */

typedef struct tri_remote_optimizer tri_remote_optimizer;

/* Zero means default. */
typedef struct tri_remote_optimizer_options {
    /* Of a step's questions to an owner, which also wait for what is left of its last backward; 0 =
     * that of its module */
    int64_t timeout_ms;
    /* If the 2-norm of all gradients of a step together, here and at the owners, is above it, they
     * are scaled as by tri_clip_grad_norm; INFINITY only measures; 0 = not clipped */
    double max_norm;
    /* All ranks of `group` (NULL = the world), at most 256, step together, and each owner makes one
     * update of their gradients: the mean over the samples of all of them, as tri_ddp does with
     * parameters here. The step fails with STATE, and the group with it, if one of its ranks is in
     * tri_rpc_join. false: each trainer's update is its own */
    bool average;
    tri_group *group; /* borrowed */
    TRI_RESERVED(6);
} tri_remote_optimizer_options;

/**
 * The optimizer of a trainer: of `n` remote modules (at least one), whose owners have an optimizer
 * each, and of parameters here.
 *
 *   own_or_null  borrowed until tri_remote_optimizer_destroy
 *   remotes      from tri_remote_module, all of one worker's tri_rpc; borrowed likewise. A module
 *                that others call for this trainer, at their owners, gets gradients if it is listed
 *
 * Gradients are kept for listed modules only, from forwards that are recorded after this call. A
 * tri_grad_scaler does not reach the owners: autocast to TRI_DTYPE_BF16 needs none.
 * Never NULL; a failed one carries its error to its steps: INVALID_ARG (NULL, not a remote module,
 * one twice, or in another remote optimizer).
 */
TRI_API tri_remote_optimizer *tri_remote_optimizer_of(tri_optimizer *own_or_null,
                                                      tri_module *const *remotes, int n,
                                                      const tri_remote_optimizer_options *opt);
/**
 * Runs what was recorded, and then updates at all owners and here, or nowhere: each owner is asked
 * first whether it has all gradients of this step, and then told to update.
 *
 * Blocks for two round trips to the owners, which are asked at the same time; an owner answers a
 * backward when it has the gradients of the inputs, and the first question when it has those of the
 * parameters, too. (A module that calls remote modules itself, or has parts that are computed
 * again, has all gradients when it answers a backward.) The own optimizer updates between the two.
 * Errors: those of the run and of tri_optimizer_step; what failed at an owner after such an answer;
 * PEER_LOST, TIMEOUT; STATE (an owner has released the gradients).
 *
 * If it fails nobody has updated, all gradients of the step are dropped, and it may be repeated:
 * the same batch again. Only if an owner is lost after it has agreed to update, others may have:
 * the line names them, and they leave out the repetition, so that in the end all have updated once
 * (by gradients that those of the repetition have found with the new parameters of the others).
 *
 * With options.average it is a collective of the group; if the step of one rank fails, so do those
 * of all others, whose lines name it.
 */
TRI_API TRI_MUST_CHECK tri_status tri_remote_optimizer_step(tri_remote_optimizer *optimizer);
/* Drops gradients that were not consumed, here and at the owners. */
TRI_API void tri_remote_optimizer_zero_grad(tri_remote_optimizer *optimizer);
/* The learning rate of all groups here, at once, and at the owners, with their next update. Of
 * several trainers of one owner the last one counts. Fails the optimizer if it is negative,
 * infinite or NaN. */
TRI_API void tri_remote_optimizer_set_lr(tri_remote_optimizer *optimizer, double lr);
/* What was set; before that the rate of the own optimizer; NaN if there is none. */
TRI_API double tri_remote_optimizer_lr(const tri_remote_optimizer *optimizer);
/* The norm over all gradients of the last step, before clipping; NaN without max_norm. */
TRI_API double tri_remote_optimizer_norm(const tri_remote_optimizer *optimizer);
/* Leaves `own` and the modules as they are. NULL allowed. */
TRI_API void tri_remote_optimizer_destroy(tri_remote_optimizer *optimizer);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_remote_apply(...) TRI_SITE_(tri_remote_apply(__VA_ARGS__))
#define tri_remote_optimizer_step(...) TRI_SITE_STATUS_(tri_remote_optimizer_step(__VA_ARGS__))
#endif

#endif
