/*
 * pipeline.h - a network cut into stages, each on another rank, through which the pieces of a batch
 * pass one after the other: torch.distributed.pipelining.
 *
 *     tri_module *stages[] = {tri_nn_sequential(...), tri_nn_sequential(...)};
 *     tri_module *pipe = tri_pipeline(stages, 2, &(tri_pipeline_options){.n_microbatches = 8});
 *     tri_optimizer *opt = tri_adamw(pipe, 1e-3, NULL); // of this rank's stages
 *
 *     loss = tri_pipeline_step(pipe, x, target, loss_fn, NULL); // forward and backward
 *     TRI_TRY(tri_optimizer_step(opt));
 *     tri_step_end();
 *
 * It computes what one process does that calls tri_backward for each micro-batch (loss times its
 * share of the samples) and then updates once. All schedules give the same bits: gradients are
 * added in the order of the micro-batches in each of them (of a parameter that several stages have,
 * in the order in which the schedule comes to these). Dropout draws the numbers of that process, if
 * all ranks have its seed and stages draw as often for each micro-batch.
 *
 * tri_pipeline_step only records, as a forward does, so the update is part of the same step; the
 * order in which a rank records is the schedule. Messages are sent and received while the rank
 * computes. Ranks wait in the call for the shapes that come from the stage before, not for its
 * results.
 *
 * Every rank updates its own stages only. A rank whose stages have no parameters makes an optimizer
 * all the same, which updates nothing.
 *
 * tri_checkpoint_save (tri_checkpoint_writer_save, too) and tri_checkpoint_restore are calls of all
 * ranks. The first writes one checkpoint under the names of the whole network, and the optimizer's
 * as one process has it, which is restored with any other number of stages, or none (of an
 * optimizer whose groups list parameters in the order of the network). With tri_ddp around the
 * pipeline those ranks save that are first along the data axis, with tri_zero all. An extra has the
 * tensors that any rank lists, and what several list under one name once: the averages of tri_ema
 * are those of the whole network, of which each rank restores its own.
 *
 * tri_save and tri_torch_save are calls of the same ranks and write one file of the whole network,
 * tensor by tensor, so that none of them needs room for all; tri_module_hash, of all ranks, is the
 * hash of it. tri_load and tri_module_load take what this rank has from a file of the whole
 * network.
 *
 * What is over all gradients is over those of all stages: all ranks call tri_clip_grad_norm, and
 * get the norm that one process gets, bit for bit; likewise tri_grad_scaler, of which each rank has
 * one, and the loss function scales (loss_fn returns tri_grad_scaler_scale(scaler, loss), so that
 * tri_pipeline_step returns the scaled loss). tri_ema has the averages of this rank's stages.
 *
 * With replicas of the stages, tri_ddp or tri_zero (any stage) goes around the pipeline, over
 * another axis of the mesh:
 *
 *     pipe = tri_pipeline(stages, n, &(tri_pipeline_options){
 *         .group = tri_mesh_group(mesh, "pipeline")});
 *     model = tri_ddp(pipe, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
 *     opt = tri_adamw(model, 1e-3, NULL);
 *     loss = tri_pipeline_step(model, x, target, loss_fn, NULL);
 *
 * Each pipeline along the axis has rows of its own, of any number, and returns the loss of these
 * (with options.count, that of all rows of all pipelines); gradients are averaged once a step,
 * after the last micro-batch, weighted by the rows, or by what is counted. Passes between
 * tri_ddp_no_sync_begin and _end add up before. tri_ddp_join is refused.
 *
 * A rank whose call fails ends the pipeline for all ranks, which get its reason. So does one that
 * is lost. Make a new one then, over a new group (tri_group_shrink) if a rank is gone.
 */
#ifndef TRIREME_PIPELINE_H
#define TRIREME_PIPELINE_H

#include <stdio.h>

#include <trireme/group.h>
#include <trireme/nn.h>

TRI_BEGIN_DECLS

/* With p ranks and m micro-batches, L stages on each rank. A stage keeps what its backward needs
 * for as many micro-batches as are under way. */
typedef enum tri_pipeline_schedule {
    /* Forwards until the first gradient comes, then one backward for each forward. One stage a
     * rank; at most p micro-batches under way, on the last rank 1. */
    TRI_PIPELINE_1F1B = 0,
    /* All forwards, then all backwards. One stage a rank; m micro-batches under way. */
    TRI_PIPELINE_GPIPE,
    /* 1F1B of several stages a rank: ranks wait for an L-th of the time, and send L times as often.
     * m is divided by its number of rounds, which is m / p without the remainder, at least 1. */
    TRI_PIPELINE_INTERLEAVED,
    /* GPipe of several stages a rank, breadth first. */
    TRI_PIPELINE_LOOPED_BFS,
    /* Backward in two parts: gradients of inputs first, since the stage before waits for them, and
     * those of products' and convolutions' weights where a rank would wait. One stage a rank or
     * several; at most p micro-batches under way on every rank, of which this keeps the gradients
     * between the parts, too. m as for interleaved if L > 1. Worth it where the weights' gradients
     * take as long as the others. */
    TRI_PIPELINE_ZERO_BUBBLE,
    /* The same with two stages a rank, of which the second ones come in the opposite order: the
     * first rank has the first and the last stage, and so both the batch and its targets. As much
     * in memory. Best from 2p - 1 micro-batches on. */
    TRI_PIPELINE_ZBV
} tri_pipeline_schedule;

/* How many targets the loss is over, a scalar: such as those that are not ignored. */
typedef tri_tensor *(*tri_pipeline_count_fn)(tri_tensor *target, void *arg);

/* Zero means the default. */
typedef struct tri_pipeline_options {
    tri_group *group;   /* NULL: the world, which is joined as by tri_init */
    int n_microbatches; /* default: as many as ranks */
    tri_pipeline_schedule schedule;
    /* For losses whose mean is not over rows, since targets are padded or ignored: the loss
     * function returns a sum over targets, and the loss is the sum over all micro-batches, divided
     * by the count of the whole batch. Called once in a step, with the `arg` of tri_pipeline_step,
     * on the rank of the last stage. With tri_ddp or tri_zero around the pipeline count and loss
     * are those of all replicas in training, and of this pipeline's rows under TRI_NO_GRAD. NULL:
     * means over rows. */
    tri_pipeline_count_fn count;
    /* Borrowed. tri_pipeline_split without cuts: the input of a micro-batch, whose values do not
     * matter. It cuts where the stages' floating-point operations in a forward are most equal,
     * which all ranks count alike, so all give one of the same shape. The forward is recorded, in
     * evaluation and without gradients; what pends is run, but of the forward only what sends
     * messages (tri_parallelize). */
    tri_tensor *example;
    TRI_RESERVED(2);
} tri_pipeline_options;

/**
 * Deals n stages out to the ranks of a group: stage s to rank s mod ranks (ZBV: there and back, so
 * that the first rank has the last stage). Stages are networks of one input and one output whose
 * dimension 0 is that of the samples; each gets the output of the one before. What else a stage
 * needs of an earlier one goes by name (tri_nn_skip_save, tri_nn_skip_take), directly to the rank
 * that takes it. A parameter that several stages have is one: ranks add the gradients of their
 * copies after the last backward, before replicas average them, and a norm has it once. (PowerSGD
 * would give the copies different averages: UNSUPPORTED.) Collective: all ranks give as many
 * stages, and the same options.
 *
 *   own_stages  [n], owned from now on, also on failure. Each rank keeps its own and destroys the
 *               others. All ranks that build all of them, in one order and from one seed, begin
 *               with the weights of one process; NULL stands for stages of other ranks, where the
 *               whole network has no room, and which share no parameter.
 *
 * Names in the state are those of tri_nn_sequential over all stages, "3.weight" of stage 3, of this
 * rank's alone. Never returns NULL: a failed model carries its error (tri_module_status) into
 * optimizer and step. Errors: INVALID_ARG (stages, a name that none saves, numbers that the
 * schedule cannot have; the line names some that it can have), UNSUPPORTED (stages of tri_ddp,
 * tri_zero or tri_data_parallel), MISMATCH (a rank gave something else, or failed by itself; the
 * line names it), NO_MEMORY, those of tri_init and tri_group_split. Blocks until all ranks have
 * called it.
 */
TRI_API tri_module *tri_pipeline(tri_module *const *own_stages, int n,
                                 const tri_pipeline_options *opt);

/**
 * The same for a network that is one: cuts a tri_nn_sequential into stages between its modules.
 *
 *   own_net   owned from now on, also on failure. Its modules keep their names in the state:
 *             "5.weight". It is taken apart: hooks of its own do not run, and if it is to be
 *             computed again (tri_module_set_recompute), each of its modules is. What is left of it
 *             carries an error into an optimizer that is made of it, and lives as long as the
 *             pipeline.
 *   cuts      [n_stages - 1]: the names of the modules with which stages 1, 2, .. begin, in their
 *             order: {"3", "6"}. A tri_nn_sequential inside is cut, too: {"h.2", "h.4"}. NULL:
 *             where the stages' operations (options.example), or without an example their numbers
 *             of parameters, are most equal (the largest is as small as it can be); every stage has
 *             a module at least.
 *   n_stages  in all, such as the number of ranks
 *
 * Errors: those of tri_pipeline; INVALID_ARG (not a tri_nn_sequential, a part of another module,
 * one that has parameters itself, no such module, another order, more stages than modules), those
 * of a forward of the example.
 */
TRI_API tri_module *tri_pipeline_split(tri_module *own_net, const char *const *cuts, int n_stages,
                                       const tri_pipeline_options *opt);

/* The mean loss of the samples that it gets (the sum, with options.count), a scalar; only records.
 * target: the rows of the output have the same numbers in the batch. Neither it nor a stage calls
 * tri_backward (STATE); tri_gradients is allowed. */
typedef tri_tensor *(*tri_pipeline_loss_fn)(tri_tensor *output, tri_tensor *target, void *arg);

/**
 * Records forward and backward of one batch, cut along dimension 0 into n_microbatches pieces (the
 * first ones have a row more if they do not divide; with fewer rows than pieces, as many pieces as
 * rows). Under TRI_NO_GRAD the forward alone. All ranks call it.
 *
 *   pipe    of tri_pipeline, or what tri_ddp or tri_zero has made of it
 *   x       the batch, on the rank of the first stage; ignored elsewhere, NULL allowed
 *   target  of as many rows, and
 *   loss    on the rank of the last stage; ignored elsewhere, NULL allowed. Called once for each
 *           micro-batch, with `arg`
 *
 * Returns the loss, f64 [], on all ranks: the sum of the micro-batches' losses, each weighted by
 * its share of the rows, or, with options.count, divided by the count. It can be read until
 * tri_step_end. Gradients add up with those that parameters have; they are zeros where a stage
 * gives none to the one before, since its result does not depend on what it got. All ranks run what
 * was recorded (tri_optimizer_step, tri_run, or read the loss); a second call within one step runs
 * the first.
 *
 * Errors, carried by the result and by the step, after which the pipeline has ended on all ranks:
 * INVALID_ARG (pipe, x, target, loss; tri_ddp or tri_zero is around pipe, and is to be given),
 * MISMATCH (ranks are in different calls), those of the stages and of the group.
 */
TRI_API tri_tensor *tri_pipeline_step(tri_module *pipe, tri_tensor *x, tri_tensor *target,
                                      tri_pipeline_loss_fn loss, void *arg);

/* tri_forward of a pipeline, under TRI_NO_GRAD only: x as above; the result of all rows on the rank
 * of the last stage, elsewhere an f32 [0], which is complete when this rank has sent its part. */

/**
 * Draws the schedule as it is planned: when each rank would do what, if forwards and both parts of
 * backwards took equally long and messages no time, and which share of a step it is idle. What ran
 * is drawn by `trireme plot --timeline`, of the files that ranks write with TRI_TRACE. Any rank may
 * call it alone. path: a file that ends in .svg.
 *
 * Errors: that of the pipeline, INVALID_ARG (pipe, path), IO, NO_MEMORY.
 */
TRI_API tri_status tri_pipeline_draw(tri_module *pipe, const char *path) TRI_MUST_CHECK;
/* The same as text, a line for each rank: an action is "1F0", of stage, F (forward, B backward, I
 * gradients of inputs, W of weights) and micro-batch; "." is a wait. Of a pipeline that has failed:
 * its error. NULL: stderr. */
TRI_API void tri_pipeline_print(tri_module *pipe, FILE *file);

/* They wait for peers: messages name the line of the caller (call_site.h). */
#ifndef TRI_NO_SITES
#define tri_pipeline(...) TRI_SITE_(tri_pipeline(__VA_ARGS__))
#define tri_pipeline_split(...) TRI_SITE_(tri_pipeline_split(__VA_ARGS__))
#define tri_pipeline_step(...) TRI_SITE_(tri_pipeline_step(__VA_ARGS__))
#endif

TRI_END_DECLS

#endif
