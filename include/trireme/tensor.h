/*
 * tensor.h - tensors, steps and gradients.
 *
 * Operations (ops.h) do not compute: they check shapes, note themselves in the current
 * step of this thread and return a handle. tri_optimizer_step, tri_item and tri_copy_out
 * run what was noted so far, as one plan; tri_step_end ends the step, and with it the
 * handles that operations returned.
 *
 *   persistent tensor  made by tri_tensor_*; a real object, released with tri_tensor_unref
 *   step tensor        returned by an operation; lives until tri_step_end, is not released
 *
 * Both are `tri_tensor *`. Functions that return one never return NULL: on failure the handle
 * carries the error (the call, the shapes, the source line), operations on it return it on,
 * and whoever needs the value gets it as a status.
 *
 * Threads: each records a step of its own (context.h has more); step tensors of another step are
 * refused with an error. A persistent tensor may be part of several steps. While a run (or
 * tri_copy_in) writes it no other step's run may read or write it, and while one reads it none may
 * write; whoever comes second fails with STATE, which names both. A step sees one state of a
 * tensor: once a run has read it, another step's write makes the next run that uses it fail
 * (STATE), until tri_step_end. Only one step at a time may have a pending gradient of a tensor
 * (STATE).
 *
 * Layout is plain row-major (C order) wherever a user can see it.
 */
#ifndef TRIREME_TENSOR_H
#define TRIREME_TENSOR_H

#include <stdio.h>

#include <trireme/device.h>
#include <trireme/scope.h>
#include <trireme/status.h>
#include <trireme/types.h>

TRI_BEGIN_DECLS

typedef struct tri_tensor tri_tensor;

#define TRI_MAX_DIMS 8
/* For what takes int64_t numbers and how many there are, a shape or a list of dimensions:
 * tri_reshape(x, TRI_SHAPE(2, -1)), tri_sum(x, TRI_SHAPE(0, 2), false). None at all: NULL, 0. */
#ifdef __cplusplus
#define TRI_SHAPE(...)                                                                             \
    (tri_int64_list_of(__VA_ARGS__).at),                                                           \
        (int)(sizeof(tri_int64_list_of(__VA_ARGS__).at) / sizeof(int64_t))
#else
#define TRI_SHAPE(...)                                                                             \
    (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#endif
/* A real zero for an option whose 0 means a default, such as the momentum of tri_batch_norm. */
#define TRI_ZERO (-0.0)

/* --- persistent tensors --------------------------------------------------- */

/* Zeros. shape[ndim], 0 <= ndim <= TRI_MAX_DIMS, sizes >= 0. */
TRI_API tri_tensor *tri_tensor_create(tri_dtype dtype, const int64_t *shape, int ndim);
/* A copy of `data` (plain, numel elements of dtype). */
TRI_API tri_tensor *tri_tensor_from(tri_dtype dtype, const int64_t *shape, int ndim,
                                    const void *data);
/* A tensor over memory of the caller's, which is neither copied nor cleared: what is trained, or
 * copied in, changes it, in place (under tri_ddp, too). `data` is plain, aligned for its elements
 * (64 bytes are best) and must stay until `release` is called with `arg`, by the thread that gives
 * the tensor up last; release NULL: until then the caller must know by himself. A failed tensor has
 * not taken the memory. */
TRI_API tri_tensor *tri_tensor_wrap(tri_dtype dtype, const int64_t *shape, int ndim, void *data,
                                    void (*release)(void *arg), void *arg);
TRI_API tri_tensor *tri_tensor_ref(tri_tensor *tensor);
/* NULL and step tensors: does nothing. What is borrowed is the lender's to release: of tri_grad's
 * and a loader's tensors a release too many is ignored, and the log says so, once. */
TRI_API void tri_tensor_unref(tri_tensor *tensor);

/* --- facts (of both kinds) ------------------------------------------------ */

TRI_API tri_dtype tri_tensor_dtype(const tri_tensor *tensor);       /* NONE for a failed handle */
TRI_API int tri_tensor_ndim(const tri_tensor *tensor);              /* -1 for a failed handle */
TRI_API int64_t tri_tensor_size(const tri_tensor *tensor, int dim); /* dim < 0 counts from the end;
                                                                       -1 if out of range */
TRI_API int64_t tri_tensor_numel(const tri_tensor *tensor);
TRI_API tri_device tri_tensor_device(const tri_tensor *tensor); /* -1 for a failed handle */
/* OK, or the error that the handle carries (then also in tri_last_error). */
TRI_API TRI_MUST_CHECK tri_status tri_tensor_status(const tri_tensor *tensor);

/* A name for messages and tri_debug, such as "wte"; copied, NULL takes it away. Returns the tensor.
 * A step tensor has it until tri_step_end. Without memory the name stays what it was, and the log
 * says so. */
TRI_API tri_tensor *tri_set_name(tri_tensor *tensor, const char *name);
/* The name, or NULL; until it is changed. */
TRI_API const char *tri_tensor_name(const tri_tensor *tensor);
/* For debuggers (`call tri_debug(x)` in gdb): type, name, the operation and line that made it,
 * whether it has run, and its first values. Runs and changes nothing, may be called at any time
 * with anything that a `tri_tensor *` was, ended steps too. The text lives until this thread's next
 * call.
 */
TRI_API const char *tri_debug(const tri_tensor *tensor);

/* --- contents ------------------------------------------------------------- */

/* Plain bytes into a persistent tensor; `bytes` must be its size. If recorded work still
 * reads the tensor, that work keeps the old contents. */
TRI_API TRI_MUST_CHECK tri_status tri_copy_in(tri_tensor *tensor, const void *data, size_t bytes);
/* Runs what was recorded, then copies plain bytes out. After a run these can be read:
 * persistent tensors, arguments of tri_backward and values held by tri_keep; others give
 * STATE ("keep it"). */
TRI_API TRI_MUST_CHECK tri_status tri_copy_out(tri_tensor *tensor, void *data, size_t bytes);
/* The plain contents themselves, after running what was recorded: of a step tensor until
 * tri_step_end, of a persistent one until something that writes it is recorded or it is released.
 * NULL and tri_last_error on failure; a persistent tensor may lie in the order that a kernel wants
 * (weights of convolutions; STATE), then tri_copy_out reads it. Not NULL for empty ones either. */
TRI_API const void *tri_data(tri_tensor *tensor);
/* The value of a tensor of one element; runs what was recorded. NaN and tri_last_error on
 * failure, which is also a warning in the log. */
TRI_API double tri_item(tri_tensor *tensor);
/* The same with a status, so that a NaN is the tensor's own. *value_out is NaN on failure. */
TRI_API TRI_MUST_CHECK tri_status tri_item_get(tri_tensor *tensor, double *value_out);
/* Writes the value and a newline as torch.Tensor prints (four digits; of more than 1,000 elements
 * the corners); runs what was recorded. NULL: stderr. A failure is printed in the value's place. */
TRI_API void tri_print(tri_tensor *tensor, FILE *file);
/* The same text without the newline into text[bytes], cut off where it does not fit but always
 * terminated. Returns the length of the whole, as snprintf. */
TRI_API size_t tri_tensor_text(tri_tensor *tensor, char *text, size_t bytes);
/* Marks a step tensor as wanted after the next run; returns it. */
TRI_API tri_tensor *tri_keep(tri_tensor *tensor);
/* A persistent copy of a step tensor's value (runs what was recorded). */
TRI_API tri_tensor *tri_tensor_clone(tri_tensor *tensor);

/* --- steps and gradients -------------------------------------------------- */

/* Run everything recorded so far on this thread. If that fails, parameters, running statistics and
 * counters are what they were before. But an update of a large tensor that had begun when a peer
 * was lost (or whatever came after it failed) is not taken back: the contents of that tensor are
 * lost, and reading them fails (STATE) until they are set again, by tri_copy_in or from a
 * checkpoint. */
TRI_API TRI_MUST_CHECK tri_status tri_run(void);
/* Run, then end the step: its handles die. Once a batch: a step that is not ended keeps all that it
 * recorded, so that each round is slower than the one before (one warning says so, after 64 steps
 * of optimizers or 500 rounds of values). */
TRI_API TRI_MUST_CHECK tri_status tri_step_end_status(void);
/* The same for loops; an error that no call of the step returned comes out of the next call that
 * needs a value. */
TRI_API void tri_step_end(void);
TRI_API void tri_requires_grad(tri_tensor *tensor, bool on); /* persistent, floating point */
/* Record the gradients of a scalar loss with respect to every persistent tensor that requires
 * one; they add up over calls until the optimizer consumes them. What a loss was made of is dropped
 * by the run after its tri_backward (tri_item, tri_optimizer_step): a second tri_backward through
 * it belongs before that run, or behind another forward, or the first keeps the graph
 * (tri_backward_of in gradient.h); else it fails the step (STATE).
 *
 * Replicas are weighted by the number of samples that the loss is the mean of: dimension 0 of the
 * operand of the loss of ops_loss.h (of tri_cross_entropy and tri_nll_loss the targets, without
 * those that are ignored, by their classes' weights) that the given one is made of, wherever it
 * stands in it; without one, of the operand of a tri_mean over dimension 0 that depends on data (a
 * mean of parameters alone is a penalty). Of two that differ the one recorded last counts, and a
 * warning, once, names both; tri_backward_of takes a count. A sum, or no mean at all: every rank
 * counts as one sample. */
TRI_API void tri_backward(tri_tensor *loss);
/* The gradient of a persistent tensor (borrowed), or NULL if it has none yet or
 * tri_optimizer_zero_grad has cleared it. Until the run that computes it: a step tensor, the value
 * to come; after it: persistent, readable until another takes its place, also when an optimizer has
 * used it. Under tri_ddp it is the average, except of a tri_backward within tri_no_sync_begin; of a
 * parameter that only other ranks' losses reach it is there after tri_optimizer_step. What pends in
 * another context is not seen. A step that fails leaves no gradient of its own, and what had added
 * up before stays; only if its run had begun to overwrite that, reading it and adding to it fail
 * (STATE) until tri_optimizer_zero_grad. */
TRI_API tri_tensor *tri_grad(tri_tensor *tensor);
/* Operations between these record no gradient; they nest. An end too many fails the step (STATE).
 */
TRI_API void tri_no_grad_begin(void);
TRI_API void tri_no_grad_end(void);
/* The same for a block, TRI_NO_GRAD { ... }, which may be left by return or goto as well (break and
 * continue leave its braces only), and TRI_NO_GRAD_HERE; for the rest of the enclosing block. */
#define TRI_NO_GRAD TRI_SCOPE_BLOCK_((tri_no_grad_begin(), tri_no_grad_end))
#define TRI_NO_GRAD_HERE TRI_SCOPE_HERE_((tri_no_grad_begin(), tri_no_grad_end))

/* Mixed precision on this thread, as torch.autocast("cpu", dtype): between these, convolutions,
 * linear layers, attention and matrix products round their f32 activations to `dtype`, BF16 or F16,
 * and give it; what follows stays in it while all its operands are activations of it
 * (normalisation, pooling, activations, element-wise), each operation computing in f32 and rounding
 * once. Losses, softmax, sums and means widen to f32, and so does what meets the other of the two
 * types. Parameters, their gradients, running statistics and thus everything between ranks stay
 * f32; tri_backward, which belongs behind the end, follows the types of the forward pass. They
 * nest, 64 deep, and the innermost counts. A wrong dtype, or an end too many, fails the step
 * (INVALID_ARG, STATE).
 *
 * F16 ends at 65504 and 6e-8, beyond which there is infinity and 0: see tri_grad_scaler (optim.h).
 * It saves memory, not time: kernels compute it in f32, with conversions around them. */
TRI_API void tri_autocast_begin(tri_dtype dtype);
TRI_API void tri_autocast_end(void);
/* For a block, as TRI_NO_GRAD: TRI_AUTOCAST(TRI_DTYPE_BF16) { ... }. */
#define TRI_AUTOCAST(dtype) TRI_SCOPE_BLOCK_((tri_autocast_begin(dtype), tri_autocast_end))
#define TRI_AUTOCAST_HERE(dtype) TRI_SCOPE_HERE_((tri_autocast_begin(dtype), tri_autocast_end))
/* Whether the processor multiplies bf16 faster than f32 (AMX or AVX512_BF16). Elsewhere bf16 saves
 * memory at best, and its convolutions are slow. */
TRI_API bool tri_is_bf16_fast(void);

/* Seeds random numbers, which start again: those of this thread's context (context.h) that are
 * recorded from now on, and of all contexts that are made later, by other threads too; the stream
 * stays. Also seeds parameter initialisation (mt19937, PyTorch's bits for uniform
 * distributions), in all threads. */
TRI_API void tri_manual_seed(uint64_t seed);
/* What the random numbers of this thread's context are made of, with the place of an operation
 * among the random ones of its step and that of an element in its result; so equal states give
 * equal numbers (Philox). */
typedef struct tri_random_state {
    uint64_t seed; /* 0 until tri_manual_seed */
    uint64_t
        stream;   /* what draws differently from the same seed; tri_ddp's forward sets its rank */
    int64_t step; /* how many steps have drawn since tri_manual_seed: those that draw nothing, such
                     as an evaluation's, do not count */
} tri_random_state;
TRI_API tri_random_state tri_random_state_get(void);
/* Goes on from there: all that has not run yet, also of the current step (since tri_manual_seed,
 * if that came in its midst). A checkpoint does this by
 * itself. NULL fails the step (INVALID_ARG). */
TRI_API void tri_random_state_set(const tri_random_state *state);

TRI_END_DECLS

#include <trireme/gradient.h>

#ifdef __cplusplus
/* What TRI_SHAPE needs in C++. */
template <typename... number> struct tri_int64_list {
    int64_t at[sizeof...(number)];
};
template <typename... number> inline tri_int64_list<number...> tri_int64_list_of(number... numbers)
{
    return {{static_cast<int64_t>(numbers)...}};
}
#endif

#endif
