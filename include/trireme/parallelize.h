/*
 * parallelize.h - one network on the ranks of a group, each of which has a part of its layers
 * (tensor parallelism; torch's parallelize_module):
 *
 *     tri_group *tensor = tri_mesh_group(mesh, "tensor");
 *     TRI_TRY(tri_parallelize(net, tensor, (tri_parallel_rule[]){
 *         {"layers.*.up", TRI_COLWISE}, {"layers.*.down", TRI_ROWWISE}}, 2));
 *     tri_optimizer *opt = tri_adamw(net, 1e-3, NULL);
 *
 * The rest of the program stays as it is: all ranks of the group run it alike, with the same batch,
 * and all get the same loss. Each keeps its part of the parameters that the rules cut, with their
 * gradients and states of the optimizer, and all of the others, which stay equal on all ranks, bit
 * for bit. What one process would compute is computed but for rounding, since products are sums of
 * parts. Ranks need the same number of threads (tri_num_threads_set), since with another number
 * products may differ in their last bits.
 *
 * A linear layer cut by columns has a part of its outputs on each rank, one cut by rows a part of
 * its inputs, so that a pair of them, with what works element by element in between, communicates
 * once forward and once backward:
 *
 *     x -> up (TRI_COLWISE) -> relu -> down (TRI_ROWWISE) -> y
 *
 * x and y are whole and the same on all ranks; in between each rank has its part of the last
 * dimension. Parts are as equal as they can be: of 7 over 3 ranks 3, 2 and 2.
 *
 * With TRI_SEQUENCE and TRI_SHARDED_SEQUENCE each rank has a part of the tokens where modules work
 * on each of them alone (sequence parallelism): such a pair gathers tokens before its first layer,
 * and scatters sums over ranks after its second. Forward values have the same bits as without that.
 *
 * With replicas of the parts, tri_ddp or tri_zero (any stage) goes around the network after this
 * call, over another axis of the mesh; the ranks of a tensor group then have the same batch. Over a
 * group that has ranks of the tensor group as well it is refused. In stage 3 tri_unshard_begin
 * makes this rank's parts whole, and of replicas all call what reads or writes them, tri_save, too.
 *
 * tri_checkpoint_save, on all ranks of the group, writes the parts as parts of whole tensors, which
 * tri_checkpoint_restore reads on any number of ranks, cut otherwise or not at all. With replicas
 * the group saves that is first along the other axis (tri_mesh_coordinate 0), or all ranks call it
 * with .all_ranks; under tri_zero, which divides the optimizer's state along that axis, all ranks
 * call it. All may restore.
 * tri_save, tri_load, tri_module_load and tri_module_hash know whole tensors, and all ranks of the
 * group call them; of replicas one group may save or all, which write the same file then.
 * tri_clip_grad_norm and tri_grad_scaler see the norm over all parts, each once.
 *
 * Dropout draws the mask of one process: of whole values by itself, of parts of a sequence in
 * modules that are TRI_SEQUENCE, of cut features in a tri_nn_dropout that is TRI_COLWISE, and of
 * the weights of attention under TRI_HEADS. A tri_dropout of cut values that a forward of your own
 * calls draws one mask for the parts of all ranks: a tri_nn_dropout among the children, which a
 * rule names, does not.
 *
 * What is not there yet is refused: tri_data_parallel around such a network; cutting a parameter
 * that several modules have; and, in a forward, reading a parameter that is cut elsewhere than in
 * its own module (UNSUPPORTED), which would take a part for the whole. A head that shares the table
 * of an embedding is tri_nn_embedding_scores, as in tri_model_gpt2: with "wte" cut by rows its
 * scores are cut, too. Outside of a forward tri_module_find gives this rank's part.
 */
#ifndef TRIREME_PARALLELIZE_H
#define TRIREME_PARALLELIZE_H

#include <trireme/group.h>
#include <trireme/nn.h>
#include <trireme/ops_loss.h>

TRI_BEGIN_DECLS

/* How a module is cut. A linear layer: tri_nn_linear, or a "Conv1D" as GPT-2 has (models.h). */
typedef enum tri_parallel_style {
    /* linear: outputs, with their rows of the weight and their bias; tri_nn_embedding: columns;
     * tri_nn_dropout: of what such a layer gives, this rank's part of the mask of one process */
    TRI_COLWISE = 1,
    /* linear: inputs; the bias stays whole, and is added once. tri_nn_embedding: rows, so words; it
     * gives TRI_WHOLE, with the bits of one process */
    TRI_ROWWISE,
    /* tri_nn_multihead_attention: heads, with their parts of all projections, also "out_proj",
     * which no other rule names; it takes and gives TRI_WHOLE. A mask for each head is one for each
     * of this rank's. */
    TRI_HEADS,
    /* tri_nn_layer_norm, tri_nn_rms_norm, and modules without parameters and buffers, such as
     * tri_nn_dropout: this rank's part of the tokens goes through the whole module. It takes and
     * gives TRI_SHARDED_SEQUENCE. Gradients of its parameters are added up over the ranks. torch's
     * SequenceParallel. */
    TRI_SEQUENCE,
    /* Any module, which stays as it is: what comes as `input` is made wanted_input before it, and
     * what it gives as `output` wanted_output. torch's PrepareModuleInputOutput. */
    TRI_PREPARE
} tri_parallel_style;

/* What a rank has of a value. */
typedef enum tri_parallel_value {
    TRI_PARALLEL_DEFAULT, /* what the style says */
    TRI_WHOLE,            /* all of it, the same on all ranks */
    TRI_SHARDED,          /* its part of the last dimension */
    TRI_SHARDED_SEQUENCE  /* its part of the tokens, all of the last dimension */
} tri_parallel_value;

/* Zero means the default. */
typedef struct tri_parallel_rule {
    /* Which modules: names as in tri_module_submodule, in each of which * stands for any number of
     * characters ("h.*.mlp.c_fc"); "": the module itself */
    const char *module;
    tri_parallel_style style;
    /* What the module gets and gives, where that is not as the style has it: TRI_COLWISE takes
     * TRI_WHOLE and gives TRI_SHARDED, TRI_ROWWISE the reverse. A TRI_COLWISE layer with output
     * TRI_WHOLE stands alone. */
    tri_parallel_value input, output;
    /* TRI_COLWISE: the outputs are so many equal parts in a row, of each of which every rank has
     * its part: 3 for queries, keys and values in one layer. The output then stays TRI_SHARDED. 0:
     * 1 */
    int parts;
    /* What is cut is cut at multiples of this: the width of a head. 0: 1. TRI_COLWISE with output
     * TRI_SHARDED, and a number given here: of fewer blocks than ranks, which they divide, each is
     * on several ranks, in a row, as heads of keys are that their queries share. These copies stay
     * equal, bit for bit, and count once in norms and files. */
    int64_t block;
    /* Which dimension of values that are TRI_SHARDED_SEQUENCE counts the tokens; default 1, as of
     * [batch, tokens, features]. TRI_SET(0) of [tokens, features]. */
    tri_opt dim;
    tri_parallel_value wanted_input, wanted_output; /* of TRI_PREPARE; default: as it comes */
    TRI_RESERVED(3);
} tri_parallel_rule;

/**
 * Cuts modules of a network over the ranks of a group. Rank 0's parameters and buffers are sent to
 * all first, so that the parts are of one network. Pointers to modules and parameters stay valid;
 * a cut parameter has the shape of this rank's part from now on.
 *
 *   module  before it is wrapped (tri_ddp), before its optimizer is made, and in a step that has
 *           not used it: nothing else may refer to a parameter that is cut
 *   group   NULL: the world. A group of one rank leaves the network as it is. The modules keep it.
 *   rules   [n] copied; each must name a module, and none two rules
 *
 * Collective over the group; blocks. All ranks give the same rules for the same network.
 *
 * Errors, after which the network and the group are as they were (but that parameters may be rank
 * 0's): INVALID_ARG (a rule that names no module, with the name that is most like it, or one that
 * another names as well; a kind of module that cannot be cut; fewer columns, rows or blocks than
 * ranks; queries in blocks that part those which share keys, beside a layer of keys in blocks),
 * STATE (a parameter is in use or cut already; there is no world), MISMATCH (a rank gave something
 * else, or failed by itself, and has its own error; the line names it), NO_MEMORY, those of the
 * step, of the module and of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_parallelize(tri_module *module, tri_group *group,
                                                  const tri_parallel_rule *rules, int n);

/**
 * tri_cross_entropy of scores that are cut along their classes, as the last layer gives them under
 * TRI_COLWISE: without making them whole it sends three numbers a row. The result is whole, and the
 * gradient is that of this rank's part. torch's loss_parallel.
 *
 *   logits   [N, this rank's part of `classes`]
 *   target   i64 [N], of all classes; the same on all ranks
 *   classes  how many there are in all: at least one for each rank
 *   group    of tri_parallelize
 *   opt      NULL allowed; weight is that of all classes. With a weight and the mean, tri_ddp
 *            counts replicas alike, whatever their targets weigh
 *
 * Errors, carried by the result, after which the group is aborted, for its ranks may be waiting:
 * INVALID_ARG (NULL, shapes, classes, label_smoothing). A target that is no class fails the run.
 */
TRI_API tri_tensor *tri_dist_cross_entropy(tri_tensor *logits, tri_tensor *target, int64_t classes,
                                           tri_group *group, const tri_cross_entropy_options *opt);

/* It waits for peers: messages name the line of the caller (call_site.h). */
#ifndef TRI_NO_SITES
#define tri_dist_cross_entropy(...) TRI_SITE_(tri_dist_cross_entropy(__VA_ARGS__))
#define tri_parallelize(...) TRI_SITE_SET_(tri_parallelize(__VA_ARGS__))
#endif

TRI_END_DECLS

#endif
