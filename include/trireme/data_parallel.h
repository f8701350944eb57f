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
 * As in torch, running statistics (batch norm) are those of the first device's piece; hooks are
 * called once for each piece, and so are forwards that change the module's own C data; and one
 * tri_data_parallel may not contain another. cpu devices share the parameters and gradients in
 * place; the first device updates for all. One process per device (trireme/parallel.h) is as fast
 * on one host, and also works on many.
 */
#ifndef TRIREME_DATA_PARALLEL_H
#define TRIREME_DATA_PARALLEL_H

#include <trireme/device.h>
#include <trireme/nn.h>

TRI_BEGIN_DECLS

/* Zero means the default. */
typedef struct tri_data_parallel_options {
    /* The devices of the pieces, which are copied; the network lies on the first. NULL: all devices
     * of the kind on which the network lies, its own first. */
    const tri_device *device_ids;
    int n_devices;                   /* number of device_ids, 1 to TRI_MAX_DEVICES */
    const tri_device *output_device; /* where results go; NULL: the first device */
    int dim; /* dimension of the samples in inputs and results; negative: from the end */
    TRI_RESERVED(4);
} tri_data_parallel_options;

/**
 * Wraps a network, or one layer of it. Pieces have ceil(n / devices) samples, and the last has what
 * is left, so some devices may get none: 10 samples over 8 devices are five pieces of 2. With one
 * piece, or none (an empty batch), the plain network runs on the first device. All inputs have the
 * same number of samples; one that is NULL is NULL for each piece. A result without dimensions (a
 * loss) becomes a vector with one element for each piece; of one piece it stays as it is. Names in
 * the state stay those of `own_net`, which tri_module_unwrapped returns.
 *
 *   own_net  owned from now on, also on failure
 *
 * Never returns NULL: a failed model carries its error (tri_module_status) into forward and
 * optimizer. Errors: INVALID_ARG (own_net is NULL, or contains a DataParallel or a model of
 * tri_ddp; a device does not exist, or is given twice; n_devices without device_ids), NO_MEMORY. Of
 * a forward: INVALID_ARG (a parameter or buffer is not on the first device, or inputs lack the
 * dimension or have different numbers of samples), those of the network, which name the piece.
 */
TRI_API tri_module *tri_data_parallel(tri_module *own_net, const tri_data_parallel_options *opt);

TRI_END_DECLS

#endif
