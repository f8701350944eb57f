/*
 * gradient.h - gradients of several outputs, gradients as tensors, and gradients of gradients. A
 * part of tensor.h, which has the common case, tri_backward.
 */
#ifndef TRIREME_GRADIENT_H
#define TRIREME_GRADIENT_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* Zero means the default. */
typedef struct tri_backward_options {
    /* [n]: the gradient of each output, of its shape and dtype. NULL, or a NULL element: 1, for
     * outputs of one element. Borrowed during the call. */
    tri_tensor *const *seeds;
    /* The number of samples, 0 to 2^40, that the outputs are the mean of; replicas are weighted by
     * it. NULL: as tri_backward finds it. */
    const int64_t *count;
    /* Keeps what the outputs were made of, for another tri_backward after the next run. */
    bool keep_graph;
    TRI_RESERVED(4);
} tri_backward_options;

/**
 * tri_backward of `n` outputs at once (at least one): records the gradients of the sum of all
 * elements of all outputs, each times its seed, with respect to every persistent tensor that
 * requires one. Outputs are floating-point and depend on such a tensor. Runs nothing. An error
 * fails the step, and the next run returns it: INVALID_ARG (an output or seed has a wrong shape or
 * dtype), STATE (values that it needs are gone, or it was called from the backward of a function),
 * UNSUPPORTED (an operation has no gradient).
 */
TRI_API void tri_backward_of(tri_tensor *const *outputs, int n, const tri_backward_options *opt);

/* Zero means the default. */
typedef struct tri_gradients_options {
    tri_tensor *const *seeds; /* as in tri_backward_options */
    /* Lets the gradients be differentiated again, by tri_backward or tri_gradients; implies
     * keep_graph. An operation whose gradient has no gradient fails that second call, which names
     * it. Attention then keeps its matrix of weights in memory. */
    bool create_graph;
    bool keep_graph;   /* as in tri_backward_options */
    bool allow_unused; /* an input on which no output depends gets NULL instead of INVALID_ARG */
    TRI_RESERVED(4);
} tri_gradients_options;

/**
 * The gradients of `n` outputs with respect to `m` inputs as step tensors, of the inputs' shapes
 * and dtypes, as torch.autograd.grad: grads_out[i] is the sum over all outputs for inputs[i].
 * Inputs are persistent tensors that require a gradient, or step tensors between them and the
 * outputs. Records only what these gradients need, and runs nothing. No tensor's tri_grad changes,
 * and replicas do not average these gradients.
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

/* What is not set is the default. */
typedef struct tri_gradcheck_options {
    tri_opt eps; /* how far each element is moved up and down, above 0; default 1e-6 */
    /* |gradient - difference| <= atol + rtol |difference| must hold */
    tri_opt atol;      /* default 1e-5 */
    tri_opt rtol;      /* default 1e-3 */
    double nondet_tol; /* how much two computations of the same gradient may differ; 0 = not */
    /* Also checks the gradients' own gradients, and those of grad_out (torch's gradgradcheck). */
    bool second_order;
    TRI_RESERVED(4);
} tri_gradcheck_options;

/* Records operations on `inputs`, of which there are `n`, and returns the result. */
typedef tri_tensor *(*tri_gradient_fn)(tri_tensor *const *inputs, int n, void *arg);

/**
 * Compares the gradients of a function, for each element of its result and of each input, with
 * finite differences, as torch.autograd.gradcheck does. For tests of operations of your own.
 *
 * `fn` returns f64 of any shape, which depends on nothing but the values of the inputs; it is
 * called twice for each element of result and inputs, always with the same random numbers.
 * `inputs` are `n` (at least one) different persistent tensors in f64 that require a gradient; all
 * else is passed in `arg`. To check a function that computes in f32, let `fn` tri_cast its inputs
 * and its result, and set eps to 1e-2.
 *
 * Runs in a context of its own: the caller's step, gradients, random numbers and modes (no_grad,
 * autocast) neither matter nor change. Elements of the inputs change during the call and are then
 * restored, so no other thread may use them. Errors: INVALID_ARG (bad arguments; a gradient is
 * wrong, where the line names the input, the element and both values; it differs when it is
 * computed again; it is not linear in grad_out), STATE (an input is part of the open step, so call
 * tri_step_end first; or called by a function of tri_function_apply), those of the run.
 */
TRI_API TRI_MUST_CHECK tri_status tri_gradcheck(tri_gradient_fn fn, void *arg,
                                                tri_tensor *const *inputs, int n,
                                                const tri_gradcheck_options *opt);

/* --- recomputation -------------------------------------------------------- */

/**
 * What is recorded between these is computed again for backward instead of being kept until then:
 * this saves memory and costs time, as torch.utils.checkpoint. Results have the same bits, dropout
 * included. Code between the calls runs once; operations that backward needs are recorded again
 * before their gradients, without their updates (running statistics, counters). Results of
 * communication are kept, and so are the values that this part of the step reads from outside or
 * produces for it. If such parts nest, the outermost counts. An end too many fails the step
 * (STATE). They have no effect under TRI_EAGER=1.
 */
TRI_API void tri_recompute_begin(void);
TRI_API void tri_recompute_end(void);
/* For a block, as TRI_NO_GRAD: TRI_RECOMPUTE { ... }. */
#define TRI_RECOMPUTE TRI_SCOPE_BLOCK_((tri_recompute_begin(), tri_recompute_end))
#define TRI_RECOMPUTE_HERE TRI_SCOPE_HERE_((tri_recompute_begin(), tri_recompute_end))

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_backward_of(...) TRI_SITE_(tri_backward_of(__VA_ARGS__))
#define tri_gradients(...) TRI_SITE_STATUS_(tri_gradients(__VA_ARGS__))
#define tri_gradcheck(...) TRI_SITE_STATUS_(tri_gradcheck(__VA_ARGS__))
#endif

#endif
