/*
 * gradient.h - more of gradients: of several outputs, as values, and of gradients. A part of
 * tensor.h, which has the common case, tri_backward.
 */
#ifndef TRIREME_GRADIENT_H
#define TRIREME_GRADIENT_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* Zero means the default. */
typedef struct tri_backward_options {
    /* [n] the gradient of each output, of its shape and dtype; NULL, or a NULL among them: 1, for
     * outputs of one element. Borrowed during the call. */
    tri_tensor *const *seeds;
    /* Of how many samples the outputs are the mean: 0 to 2^40, replicas are weighted by it. NULL:
     * as tri_backward finds it. */
    const int64_t *count;
    /* What the outputs were made of stays readable for another tri_backward after the next run. */
    bool keep_graph;
} tri_backward_options;

/**
 * tri_backward of `n` outputs at once (at least one): records the gradients of the sum of all
 * elements of all outputs, each times its seed, with respect to every persistent tensor that
 * requires one. Outputs are floating-point and depend on such a tensor. Runs nothing. A failure
 * fails the step, and the next run returns it: INVALID_ARG (an output or seed does not fit), STATE
 * (what it needs is not there any more, or called from the backward of a function), UNSUPPORTED (an
 * operation has no gradient).
 */
TRI_API void tri_backward_of(tri_tensor *const *outputs, int n, const tri_backward_options *opt);

/* Zero means the default. */
typedef struct tri_gradients_options {
    tri_tensor *const *seeds; /* as in tri_backward_options */
    /* The gradients can be differentiated again, by tri_backward or tri_gradients; implies
     * keep_graph. An operation whose gradient has none of its own is named when that is tried.
     * Attention then holds its matrix of weights in memory. */
    bool create_graph;
    bool keep_graph;   /* as in tri_backward_options */
    bool allow_unused; /* an input on which no output depends gets NULL; else INVALID_ARG */
} tri_gradients_options;

/**
 * The gradients of `n` outputs with respect to `m` inputs as step tensors, of the inputs' shapes
 * and dtypes, as torch.autograd.grad: grads_out[i] is the sum over all outputs for inputs[i].
 * Inputs are persistent tensors that require a gradient, or step tensors between them and the
 * outputs. Records only what these gradients need and runs nothing; tri_grad of no tensor changes,
 * and replicas do not average what this gives.
 *
 * Errors, which leave grads_out and the step as they were: INVALID_ARG (NULL, an output without a
 * seed that is not one element, an input that requires no gradient or is not used), STATE,
 * UNSUPPORTED as tri_backward_of, NO_MEMORY.
 */
TRI_API TRI_MUST_CHECK tri_status tri_gradients(tri_tensor *const *outputs, int n,
                                                tri_tensor *const *inputs, int m,
                                                const tri_gradients_options *opt,
                                                tri_tensor **grads_out);

/* --- checks --------------------------------------------------------------- */

/* Zero means the default. */
typedef struct tri_check_gradient_options {
    double eps;  /* by how much each element goes up and down; 1e-6 */
    double atol; /* |gradient - difference| <= atol + rtol |difference|; 1e-5, TRI_ZERO = none */
    double rtol; /* 1e-3, TRI_ZERO = none */
    double nondet_tol; /* by how much what is computed twice may differ; 0 */
    /* The gradients' own gradients as well, also those of grad_out (torch's gradgradcheck). */
    bool second_order;
} tri_check_gradient_options;

/* Records operations on `inputs`, of which there are `n`, and returns the result. */
typedef tri_tensor *(*tri_gradient_fn)(tri_tensor *const *inputs, int n, void *arg);

/**
 * Compares the gradients of a function with differences, as torch.autograd.gradcheck: of each
 * element of its result by each element of each input. For tests of operations of one's own.
 *
 * `fn` returns f64 of any shape, which depends on nothing but the values of the inputs; it is
 * called twice for each element of result and inputs, always with the same random numbers.
 * `inputs` are `n` (at least one) different persistent tensors in f64 that require a gradient; all
 * else comes by `arg`. A function that computes in f32 takes tri_cast of its inputs, casts its
 * result back, and is checked with an eps of 1e-2.
 *
 * Runs in a context of its own: the caller's step, gradients, random numbers and modes (no_grad,
 * autocast) neither matter nor change. Elements of inputs change meanwhile, and are put back; so no
 * other thread uses them. Errors: INVALID_ARG (a gradient is wrong: the line names input, element
 * and both values; it differs when it is computed again; it is not linear in grad_out; arguments),
 * STATE (an input is part of the open step: tri_step_end first; called by a function of tri_apply),
 * those of the run.
 */
TRI_API TRI_MUST_CHECK tri_status tri_check_gradient(tri_gradient_fn fn, void *arg,
                                                     tri_tensor *const *inputs, int n,
                                                     const tri_check_gradient_options *opt);

/* --- recomputation -------------------------------------------------------- */

/**
 * What is recorded between these is computed again for backward instead of being kept until then:
 * time for memory, as torch.utils.checkpoint; results have the same bits, dropout included. Code
 * between them runs once; operations that backward needs are recorded again in front of their
 * gradients, without what they update (running statistics, counters), and what ranks tell each
 * other is kept. What the part reads from outside and what it gives is kept as ever. They nest: the
 * outermost counts. An end too many fails the step (STATE). Under TRI_EAGER=1 without effect.
 */
TRI_API void tri_recompute_begin(void);
TRI_API void tri_recompute_end(void);
/* For a block, as TRI_NO_GRAD: TRI_RECOMPUTE { ... }. */
#define TRI_RECOMPUTE TRI_SCOPE_BLOCK_((tri_recompute_begin(), tri_recompute_end))
#define TRI_RECOMPUTE_HERE TRI_SCOPE_HERE_((tri_recompute_begin(), tri_recompute_end))

TRI_END_DECLS

#endif
