/*
 * data_parallel.h - one network on several devices of one process: torch.nn.DataParallel.
 *
 *     tri_module *model = tri_data_parallel(net, NULL);
 *
 * A forward cuts each input into pieces along a dimension, one for each device, brings them and the
 * network's tensors there, runs the network on each piece, and puts the results together on one
 * device. The devices work at the same time (device.h). Gradients of all pieces add up in the
 * network's own parameters: with a loss of the result they are those of the whole batch. Losses,
 * optimizers and checkpoints see the network as it is.
 *
 * As in torch, running statistics (batch norm) are those of the first device's piece, what forward
 * leaves in the module's own C data is left there once for each piece, and hooks are called once
 * for each piece. As in torch, it does not go inside of another one. cpu devices read parameters
 * and add gradients where they lie; the first device updates for all. One process per device
 * (trireme/parallel.h) is as fast on a host, and goes on over many.
 */
#ifndef TRIREME_DATA_PARALLEL_H
#define TRIREME_DATA_PARALLEL_H

#include <trireme/device.h>
#include <trireme/nn.h>

TRI_BEGIN_DECLS

/* Zero means the default. */
typedef struct tri_data_parallel_options {
    /* Devices of the pieces, copied; the network lies on the first. NULL: all of the network's
     * kind, its own first. */
    const tri_device *device_ids;
    int n_devices;                   /* of device_ids, 1 to TRI_MAX_DEVICES */
    const tri_device *output_device; /* of the results; NULL: the first device */
    int dim; /* of the samples, in inputs and results; negative: from the end */
} tri_data_parallel_options;

/**
 * Wrap a network, or one layer of it. Pieces have ceil(n / devices) samples, the last what is left,
 * so that fewer devices may get one: 10 samples over 8 devices are five pieces of 2. One piece, or
 * none (an empty batch), is the plain network on the first device. All inputs have as many samples;
 * a result without dimensions (a loss) becomes a vector with one element for each piece. State
 * names stay those of `own_net`; tri_module_of gives it.
 *
 *   own_net  owned from now on, also on failure
 *
 * Never NULL: a failed one carries its error (tri_module_status) into forward and optimizer.
 * Errors: INVALID_ARG (NULL network; one with a DataParallel or a model of tri_ddp inside; a device
 * that does not exist, or twice; n_devices without device_ids), NO_MEMORY. Of a forward:
 * INVALID_ARG (a parameter or buffer that is not on the first device, inputs that cannot be cut
 * alike), those of the network, which name the piece.
 */
TRI_API tri_module *tri_data_parallel(tri_module *own_net, const tri_data_parallel_options *opt);

TRI_END_DECLS

#endif
