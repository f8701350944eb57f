/*
 * function.h - operations of one's own, in plain C.
 *
 *     static const tri_function_class swish = {.name = "swish", .size = sizeof(swish_data),
 *                                              .shape = .., .forward = .., .backward = ..};
 *     tri_apply(&swish, &(swish_data){.beta = 2}, &x, 1, &y, 1);
 *
 * A function is recorded, run by plans and by TRI_EAGER=1, differentiated and averaged between
 * replicas like any other operation. It sees whole buffers in plain order and is called by the
 * thread that runs the step, or of a step over several devices by that of its operands' device,
 * never under a lock; it computes nothing else than its results (the plan may run it again, or not
 * at all if nobody reads them), and calls no function of tensors, modules or optimizers: those fail
 * (STATE). Under TRI_CHECK=nan a floating-point result that was not written, and an operand that
 * was, fail the run. tri_check_gradient (gradient.h) compares its gradients with differences.
 * examples/custom_function.c is a whole one.
 */
#ifndef TRIREME_FUNCTION_H
#define TRIREME_FUNCTION_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* Inputs, and results with those that are saved, of one function. Results have at most 35
 * dimensions altogether. */
#define TRI_FUNCTION_TENSORS 16

/* A tensor to a function: plain row-major data, numel elements of dtype (bool: one byte, 0 or 1).
 * `shape` sees what is bf16 or f16, as activations are under tri_autocast, and may set it for
 * results; `forward` and `backward` see f32 instead, and what they write is rounded once. */
typedef struct tri_function_array {
    void *data; /* NULL: absent, or in `shape` */
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
} tri_function_array;

typedef struct tri_function_call {
    const void *data; /* the function's copy of what tri_apply got; NULL if size is 0 */
    int n_in, n_out;  /* n_out with those that are saved */
    const tri_function_array *in, *out;
    /* In `backward`: the gradients of results, [n_out], zeros where nothing depends on one, absent
     * where it is not floating-point or only saved; and where those of the inputs go, [n_in],
     * absent where none is needed. All that are there must be written. */
    const tri_function_array *grad_out, *grad_in;
} tri_function_call;

/* The same with step tensors, to record gradients instead of computing them. Runs nothing. */
typedef struct tri_function_graph {
    const void *data;
    int n_in, n_out;
    tri_tensor *const *in, *const *out, *const *grad_out; /* as above; NULL = absent */
    const bool *needs;                                    /* [n_in] */
    tri_tensor **grad_in; /* [n_in], all NULL: set those that are needed; NULL stays 0 */
} tri_function_graph;

/* `static const`: plans keep pointers to it. Functions return TRI_OK or an error, best with its
 * line (tri_fail); the caller hears of it with the name, and the line of tri_apply. */
typedef struct tri_function_class {
    const char *name; /* required; for messages */
    size_t size;      /* bytes of what tri_apply gets as data and copies */
    int saved;        /* so many results more, behind the others: for backward alone */
    /* Required. Checks types and shapes of in[n_in] and sets dtype, ndim and shape of out[n_out +
     * saved]; a function of its arguments and nothing else. Called by tri_apply. */
    tri_status (*shape)(const tri_function_call *call, tri_function_array *out);
    /* Required. Writes out, all of it. */
    tri_status (*forward)(const tri_function_call *call);
    /* Computes gradients. NULL: see record; without that too the function has no gradient. */
    tri_status (*backward)(const tri_function_call *call);
    /* Records gradients by operations, or other functions: then they may be differentiated again
     * (tri_gradients with create_graph uses it, if it is there; tri_backward if `backward` is not).
     * NULL: not offered. */
    tri_status (*record)(const tri_function_graph *graph);
    /* What backward does not look at is absent there, and its memory is free until then. */
    bool backward_without_in, backward_without_out;
} tri_function_class;

/**
 * Records a function of `n_in` tensors (at least one) with `n_out` results (at least one), which
 * are written to `out` as step tensors. `data` has `size` bytes and is copied; it is not part of a
 * plan, so that a number in it may change from step to step. Result k requires a gradient if it is
 * floating-point and an input requires one. Runs nothing.
 *
 * Errors, carried by all results: INVALID_ARG (NULL, counts, what `shape` set), whatever `shape`
 * returns. An error of `forward` or `backward` fails the run.
 */
TRI_API void tri_apply(const tri_function_class *type, const void *data, tri_tensor *const *in,
                       int n_in, tri_tensor **out, int n_out);

/* Sets the error line of this thread and returns `status`, for functions that fail. A status that
 * is not an error becomes INVALID_ARG. */
TRI_API tri_status tri_fail(tri_status status, const char *format, ...) TRI_PRINTF(2, 3);

TRI_END_DECLS

#endif
