/*
 * memory_stats.h - how much memory training takes here, and how much tri_ddp would take:
 *
 *     tri_memory_print(model, opt, NULL, stdout);
 *
 * Parameters, gradients and the optimizer's state are known before the first step. What the values
 * of a step take (activations above all) is known after it.
 */
#ifndef TRIREME_MEMORY_STATS_H
#define TRIREME_MEMORY_STATS_H

#include <stdio.h>

#include <trireme/nn.h>
#include <trireme/optim.h>

TRI_BEGIN_DECLS

/* Bytes that this rank holds. */
typedef struct tri_memory_stats {
    size_t parameters; /* under tri_zero as much of them as lies here */
    size_t gradients;  /* where the first backward will make them, they count already */
    size_t states;     /* the optimizer's */
    size_t averages;   /* tri_ema's */
    size_t buffers;    /* running statistics and the like */
    /* Memory that gradients pass through on their way to other ranks and that is none of the above:
     * stage 2 of tri_zero has two buckets, gradients in the memory of a device are copied, and
     * hooks keep something. What the groups themselves have is not counted. */
    size_t messages;
    /* What the steps of the process have needed so far, whatever their models: activations,
     * gradients and gathered parameters on their way, results and copies that plans keep. It is
     * kept for the next step (tri_step_end does not free it). 0 before the first step. */
    size_t values;
    size_t total;            /* of all above */
    size_t whole_parameters; /* of the network, wherever they lie */
    /* What parameters, gradients, states, averages and buffers would be under tri_ddp: of the whole
     * network on each rank. */
    size_t with_ddp;
    TRI_RESERVED(8);
} tri_memory_stats;

/**
 * Counts the memory of a network in training, wrapped (tri_ddp, tri_zero) or not. Memory that
 * several tensors share counts once. Does not communicate and runs nothing: other ranks may hold
 * more, or less.
 *
 *   optimizer  NULL = none, whose states are 0
 *   ema        NULL = none
 *
 * Errors: those of the module and of the optimizer, INVALID_ARG (model or stats_out is NULL),
 *   NO_MEMORY.
 */
TRI_API TRI_MUST_CHECK tri_status tri_memory(tri_module *model, const tri_optimizer *optimizer,
                                             const tri_ema *ema, tri_memory_stats *stats_out);

/* Writes these figures in two lines, in MiB, or KiB of a small network. file NULL: stderr. A
 * failure is printed in their place. */
TRI_API void tri_memory_print(tri_module *model, const tri_optimizer *optimizer, const tri_ema *ema,
                              FILE *file);

TRI_END_DECLS

#endif
