/*
 * sync_batch_norm.h - batch normalisation over the batches of all ranks (torch.nn.SyncBatchNorm).
 *
 *     net = resnet18();
 *     tri_convert_sync_batch_norm(net, NULL);
 *     model = tri_ddp(net, NULL);
 *
 * In training the statistics of each channel, and their gradients, are taken over all ranks'
 * batches, so that several ranks compute what one process does with the whole batch; batches may
 * differ in size, and be empty. All ranks have the same running statistics, bit for bit (the
 * variance unbiased, over all samples). In evaluation, or in a group of one rank, it is an ordinary
 * batch norm and communicates nothing.
 *
 * A forward in training, and its backward pass, is collective over the group, even between
 * tri_ddp_no_sync_begin and tri_ddp_no_sync_end: all ranks call the same modules in the same order
 * and differentiate the same values. Each layer sends 2 C + 1 numbers to each rank in forward, and
 * sums 2 C in backward. Gradients of weight and bias are those of the rank's own samples; tri_ddp
 * averages them, and weights ranks by their samples before the sums. It cannot do so where a loss
 * reaches parameters or inputs (tri_requires_grad) outside of that one model: such a tri_backward
 * fails (INVALID_ARG) unless all ranks' batches have the same size.
 *
 * A group runs its operations in one order, so under tri_ddp of the same group no gradients are
 * sent before the sums of the last layer: where the network between hosts is slow, give the layers
 * a group of their own (tri_group_split of the same ranks), so that both overlap with backward.
 */
#ifndef TRIREME_SYNC_BATCH_NORM_H
#define TRIREME_SYNC_BATCH_NORM_H

#include <trireme/group.h>
#include <trireme/nn.h>

TRI_BEGIN_DECLS

/* As tri_nn_batch_norm2d_options; what is not set is the default. */
typedef struct tri_nn_sync_batch_norm_options {
    tri_opt eps, momentum;
    bool cumulative, no_affine, no_track_running_stats;
    /* NULL: the world, as it is at each forward (this process alone, if there is no world).
     * A reference is taken. */
    tri_group *group;
    TRI_RESERVED(4);
} tri_nn_sync_batch_norm_options;

/**
 * x [N, C, ..]; parameters, buffers and their names are those of tri_nn_batch_norm2d.
 *
 * Never NULL: a failed one carries its error (tri_module_status) into forward and optimizer.
 * Errors: INVALID_ARG (channels, eps, momentum; momentum with cumulative), NO_MEMORY. Of a forward:
 *   INVALID_ARG (x has another shape), in training also UNSUPPORTED (in a replica of
 *   tri_data_parallel). Of the run: MISMATCH (a rank has another number of channels or another
 *   dtype), INVALID_ARG (one value per channel on all ranks together, which has no variance), those
 *   of the group.
 */
TRI_API tri_module *tri_nn_sync_batch_norm(int64_t channels,
                                           const tri_nn_sync_batch_norm_options *opt);

/**
 * Turns every batch norm of a network (tri_nn_batch_norm1d and 2d), or the layer itself if it is
 * one, into such a layer of this group; layers that are of this kind already change to this group.
 * Modules stay where they are, with their parameters, buffers, names, hooks, devices and training
 * state, so pointers to them, also those of an optimizer, stay valid. Before or after tri_ddp;
 * between two forwards.
 *
 *   group  NULL: the world, as it is at each forward; a reference is taken
 *
 * Returns the number of such layers in the network; 0 for a failed module. NULL fails the step.
 */
TRI_API int tri_convert_sync_batch_norm(tri_module *module, tri_group *group);

TRI_END_DECLS

#endif
