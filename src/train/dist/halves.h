/*
 * halves.h - a backward in two halves, both recorded before either runs: first the gradients that
 * other workers wait for, later those of the parameters (autograd/backward_halves.c). Both together
 * give the bits of tri_backward_of.
 */
#ifndef TRII_HALVES_H
#define TRII_HALVES_H

#include "train/graph/autograd/backward.h"

/* Records the first half. The walk stops at these values, whose gradients go to stop_grads_out
 * (NO_VALUE: none came). *rest_out is for the second half and is freed by it; where no worker waits
 * and the outputs reach no stop it is empty, and nothing was recorded. */
tri_status trii_backward_first(trii_step *step, const trii_roots *roots, const trii_vid *stops,
                               int n_stops, trii_vid *stop_grads_out,
                               trii_backward_rest *rest_out) TRI_MUST_CHECK;
/* The rest, or all of it if the first half was empty: the parameters have their gradients. */
tri_status trii_backward_second(trii_step *step, const trii_roots *roots,
                                trii_backward_rest *rest) TRI_MUST_CHECK;

#endif
