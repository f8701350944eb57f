/*
 * function.h - your own operations, in plain C.
 *
 *     static const tri_function_class swish = {.name = "swish", .size = sizeof(swish_data),
 *                                              .shape = .., .forward = .., .backward = ..};
 *     tri_function_apply(&swish, &(swish_data){.beta = 2}, &x, 1, &y, 1);
 *
 * A function is recorded, run by plans and by TRI_EAGER=1, differentiated and averaged between
 * replicas like any other operation. It sees whole buffers in plain order. The thread that runs the
 * step calls it, never under a lock; in a step over several devices, the thread of its operands'
 * device does. It must do nothing but compute its results, since the plan may run it again, or not
 * at all if they are not needed. If it calls functions of tensors, modules or optimizers, these
 * fail (STATE). Under TRI_CHECK=nan the run fails if the function has not written a floating-point
 * result, or has written to an operand. tri_gradcheck (gradient.h) compares its gradients with
 * differences. For an example see examples/custom_function.c.
 */
#ifndef TRIREME_FUNCTION_H
#define TRIREME_FUNCTION_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* Limit for the inputs of a function, and for its results together with those that it saves. All
 * results together have at most 35 dimensions. */
#define TRI_FUNCTION_TENSORS 16

/* A tensor as a function sees it: plain row-major data, numel elements of dtype (bool: one byte, 0
 * or 1). For bf16 and f16, which activations have under tri_autocast, only `shape` sees this dtype,
 * and it may set it for results; `forward` and `backward` see f32 instead, and what they write is
 * rounded once. */
typedef struct tri_function_array {
    void *data; /* NULL: absent, or in `shape` */
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    TRI_RESERVED(4);
} tri_function_array;

typedef struct tri_function_call {
    const void *data; /* the function's copy of what tri_function_apply got; NULL if size is 0 */
    int n_in, n_out;  /* n_out includes the saved results */
    const tri_function_array *in, *out;
    /* For `backward`. grad_out [n_out] has the gradients of the results: zeros if nothing depends
     * on a result, absent if it is not floating-point or only saved. grad_in [n_in] is where the
     * gradients of the inputs go: absent if one is not needed; all others must be written. */
    const tri_function_array *grad_out, *grad_in;
    TRI_RESERVED(4);
} tri_function_call;

/* The same with step tensors, for `record`, which records gradients instead of computing them. */
typedef struct tri_function_graph {
    const void *data;
    int n_in, n_out;
    tri_tensor *const *in, *const *out, *const *grad_out; /* as above; NULL = absent */
    const bool *needs;                                    /* [n_in] */
    tri_tensor **grad_in; /* [n_in], NULL at first: set the needed ones; NULL means 0 */
    TRI_RESERVED(4);
} tri_function_graph;

/* Must be `static const`, since plans keep pointers to it. Its functions return TRI_OK or an error,
 * for which tri_status_fail sets the error line; the caller gets it with the name of the class and
 * the source line of tri_function_apply. */
typedef struct tri_function_class {
    const char *name; /* required; for messages */
    size_t size;      /* bytes of `data`, which tri_function_apply copies */
    int saved;        /* number of additional results, after the others, that only backward reads */
    /* Required. Checks types and shapes of in[n_in] and sets dtype, ndim and shape of out[n_out +
     * saved]; depends on nothing but its arguments. Called by tri_function_apply. */
    tri_status (*shape)(const tri_function_call *call, tri_function_array *out);
    /* Required. Writes all of `out`. */
    tri_status (*forward)(const tri_function_call *call);
    /* Computes gradients. NULL: `record` is used; if that is NULL, too, there is no gradient. */
    tri_status (*backward)(const tri_function_call *call);
    /* Records gradients by operations or other functions, so that they can be differentiated again.
     * tri_gradients with create_graph uses it if it is not NULL, and tri_backward if `backward` is
     * NULL. NULL: gradients cannot be differentiated again. */
    tri_status (*record)(const tri_function_graph *graph);
    /* backward does not read `in` or `out`: they are absent there, and their memory is freed. */
    bool backward_without_in, backward_without_out;
    TRI_RESERVED(8);
} tri_function_class;

/**
 * Records a function of `n_in` tensors (at least one) with `n_out` results (at least one), which
 * are written to `out` as step tensors. `data` has `size` bytes and is copied; it is not part of a
 * plan, so a number in it may change from step to step. A result requires a gradient if it is
 * floating-point and an input requires one. Runs nothing.
 *
 * Errors, carried by all results: INVALID_ARG (NULL, counts out of range, or `shape` has set
 * something invalid), and what `shape` returns. An error of `forward` or `backward` fails the run.
 */
TRI_API void tri_function_apply(const tri_function_class *type, const void *data,
                                tri_tensor *const *in, int n_in, tri_tensor **out, int n_out);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_function_apply(...) TRI_SITE_(tri_function_apply(__VA_ARGS__))
#endif

#endif
