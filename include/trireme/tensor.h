/*
 * tensor.h - tensors, steps and gradients.
 *
 * Operations (ops.h) do not compute: they check shapes, are recorded in the current step of this
 * thread and return a handle. tri_optimizer_step, tri_item and tri_tensor_copy_out run what was
 * recorded so far, as one plan; tri_step_end ends the step, and with it the handles that operations
 * returned.
 *
 *   persistent tensor  made by tri_tensor_*; a real object, released with tri_tensor_unref
 *   step tensor        returned by an operation; lives until tri_step_end, is not released
 *
 * Both are `tri_tensor *`. Functions that return one never return NULL: on failure the handle
 * carries the error (the call, the shapes, the source line), operations on it return it again, and
 * the call that needs the value returns it as a status.
 *
 * Threads: each records a step of its own (context.h has more); step tensors of another step are
 * refused with an error. A persistent tensor may be part of several steps. While a run (or
 * tri_tensor_copy_in) writes it no other step's run may read or write it, and while one reads it
 * none may write; the second one fails with STATE, which names both. A step sees one state of a
 * tensor: once a run has read it, another step's write makes the next run that uses it fail
 * (STATE), until tri_step_end. Only one step at a time may have a pending gradient of a tensor
 * (STATE).
 *
 * Layout is plain row-major (C order) wherever a user can see it.
 */
#ifndef TRIREME_TENSOR_H
#define TRIREME_TENSOR_H

#include <stdio.h>

#include <trireme/call_site.h>
#include <trireme/device.h>
#include <trireme/scope.h>
#include <trireme/status.h>
#include <trireme/types.h>

TRI_BEGIN_DECLS

typedef struct tri_tensor tri_tensor;

#define TRI_MAX_DIMS 8
/* A list of int64_t numbers and its length, for a shape or a list of dimensions: tri_reshape(x,
 * TRI_SHAPE(2, -1)), tri_sum(x, TRI_SHAPE(0, 2), false). An empty list: NULL, 0. */
#ifdef __cplusplus
#define TRI_SHAPE(...)                                                                             \
    (tri_int64_list_of(__VA_ARGS__).at),                                                           \
        (int)(sizeof(tri_int64_list_of(__VA_ARGS__).at) / sizeof(int64_t))
#else
#define TRI_SHAPE(...)                                                                             \
    (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#endif

/* --- persistent tensors --------------------------------------------------- */

/* Zeros. shape[ndim], 0 <= ndim <= TRI_MAX_DIMS, sizes >= 0. One reference, as below. */
TRI_API tri_tensor *tri_tensor_create(const int64_t *shape, int ndim, tri_dtype dtype);
/* A copy of `data` (plain, numel elements of dtype). */
TRI_API tri_tensor *tri_tensor_from(const int64_t *shape, int ndim, tri_dtype dtype,
                                    const void *data);
/* A tensor over the caller's memory, which is neither copied nor cleared: training and
 * tri_tensor_copy_in change it in place (under tri_ddp, too). `data` is plain, aligned for its
 * elements (64 bytes are best) and must stay until `release` is called with `arg`, by the thread
 * that releases the last reference; with release NULL the caller must know that moment in another
 * way. It is memory of the host, so the current device must not have memory of its own
 * (INVALID_ARG). A failed tensor has not taken the memory. */
TRI_API tri_tensor *tri_tensor_wrap(const int64_t *shape, int ndim, tri_dtype dtype, void *data,
                                    void (*release)(void *arg), void *arg);
TRI_API tri_tensor *tri_tensor_ref(tri_tensor *tensor);
/* NULL and step tensors: does nothing. Do not release borrowed tensors (from tri_grad, or a
 * loader's batch): one release too many is ignored, with one warning in the log. */
TRI_API void tri_tensor_unref(tri_tensor *tensor);

/* --- facts (of both kinds) ------------------------------------------------ */

TRI_API tri_dtype tri_tensor_dtype(const tri_tensor *tensor);       /* NONE for a failed handle */
TRI_API int tri_tensor_ndim(const tri_tensor *tensor);              /* -1 for a failed handle */
TRI_API int64_t tri_tensor_size(const tri_tensor *tensor, int dim); /* dim < 0 counts from the end;
                                                                       -1 if out of range */
TRI_API int64_t tri_tensor_numel(const tri_tensor *tensor);
/* The shape as text, "[20, 10]"; "[]" without dimensions, "[failed]" for a failed handle. Never
 * NULL. Valid until this thread's eighth call after this one, so that one printf may show
 * several. */
TRI_API const char *tri_tensor_shape_text(const tri_tensor *tensor);
TRI_API tri_device tri_tensor_device(const tri_tensor *tensor); /* -1 for a failed handle */
/* OK, or the error that the handle carries (then also in tri_last_error). */
TRI_API TRI_MUST_CHECK tri_status tri_tensor_status(const tri_tensor *tensor);

/* Sets a name for messages and tri_tensor_debug, such as "wte"; copied, NULL removes it. Returns
 * the tensor. A step tensor has it until tri_step_end. Without memory the name stays what it was,
 * with a warning in the log. */
TRI_API tri_tensor *tri_tensor_set_name(tri_tensor *tensor, const char *name);
/* The name, or NULL; borrowed until it is changed. */
TRI_API const char *tri_tensor_name(const tri_tensor *tensor);
/* For debuggers (`call tri_tensor_debug(x)` in gdb): dtype, shape, name, the operation and line
 * that made it, whether it has run, and its first values. Runs and changes nothing; may be called
 * at any time with anything that was a `tri_tensor *`, even of a step that has ended. The text is
 * valid until this thread's next call. */
TRI_API const char *tri_tensor_debug(const tri_tensor *tensor);

/* --- contents ------------------------------------------------------------- */

/* Copies plain bytes into a persistent tensor; `bytes` must be its size. Recorded work that still
 * reads the tensor keeps the old contents. */
TRI_API TRI_MUST_CHECK tri_status tri_tensor_copy_in(tri_tensor *tensor, const void *data,
                                                     size_t bytes);
/* Runs what was recorded, then copies plain bytes out. After a run these can be read: persistent
 * tensors, arguments of tri_backward and values marked by tri_keep; others give STATE. */
TRI_API TRI_MUST_CHECK tri_status tri_tensor_copy_out(tri_tensor *tensor, void *data, size_t bytes);
/* The plain contents in place, after running what was recorded: valid for a step tensor until
 * tri_step_end, for a persistent one until something that writes it is recorded or it is released.
 * NULL and tri_last_error on failure; STATE if a persistent tensor is in the layout of a kernel
 * (weights of convolutions), or a tensor lies in a device's own memory: only tri_tensor_copy_out
 * can read these. Empty tensors give an address, too. Between two steps a collective may sum or
 * receive into a persistent tensor in place:
 * tri_all_reduce(NULL, tri_data(x), (void *)tri_data(x), ...). */
TRI_API const void *tri_data(tri_tensor *tensor);
/* The value of a tensor of one element; runs what was recorded. On failure NaN, tri_last_error, and
 * a warning in the log. */
TRI_API double tri_item(tri_tensor *tensor);
/* The same with a status, which distinguishes a failure from a NaN in the tensor; on failure
 * *value_out is NaN. */
TRI_API TRI_MUST_CHECK tri_status tri_item_status(tri_tensor *tensor, double *value_out);
/* Writes the value and a newline as torch.Tensor prints (four digits; of more than 1,000 elements
 * the corners); runs what was recorded. NULL: stderr. A failure is printed in the value's place,
 * and of a sharded parameter (stage 3 of tri_zero) the elements that this rank has. */
TRI_API void tri_tensor_print(tri_tensor *tensor, FILE *file);
/* The same text without the newline into text[bytes], cut off where it does not fit but always
 * terminated. Returns the length of the whole, as snprintf. */
TRI_API size_t tri_tensor_text(tri_tensor *tensor, char *text, size_t bytes);
/* Marks a step tensor as wanted after the next run; returns it. */
TRI_API tri_tensor *tri_keep(tri_tensor *tensor);
/* A persistent copy of a step tensor's value, to be released with tri_tensor_unref (runs what was
 * recorded). */
TRI_API tri_tensor *tri_tensor_clone(tri_tensor *tensor);

/* --- steps and gradients -------------------------------------------------- */

/* Runs everything recorded so far on this thread. If that fails, parameters, running statistics and
 * counters keep the values of before. The exception: if an update of a large tensor had begun
 * before a peer was lost or something after it failed, the contents of that tensor are lost, and
 * reading them fails (STATE) until they are set again, by tri_tensor_copy_in or from a checkpoint.
 */
TRI_API TRI_MUST_CHECK tri_status tri_run(void);
/* Runs, then ends the step: its handles become invalid. Call it once a batch: a step that is never
 * ended keeps everything that it recorded, so each round is slower than the last (one warning says
 * so, after 64 optimizer steps or 500 rounds of reading values). */
TRI_API TRI_MUST_CHECK tri_status tri_step_end_status(void);
/* The same for loops; an error that no call of the step has returned is returned by the next call
 * that needs a value. */
TRI_API void tri_step_end(void);
TRI_API void tri_requires_grad(tri_tensor *tensor, bool on); /* persistent, floating point */
/* Records the gradients of a scalar loss with respect to every persistent tensor that requires one;
 * they add up over calls until the optimizer consumes them. The graph below the loss is dropped by
 * the next run (tri_item, tri_optimizer_step): a second tri_backward through it must come before
 * that run, or after another forward, or the first must keep the graph (tri_backward_of in
 * gradient.h); otherwise it fails the step (STATE).
 *
 * Replicas are weighted by the number of samples that the loss is the mean of: dimension 0 of the
 * operand of the loss function (ops_loss.h) below `loss` (for tri_cross_entropy and tri_nll_loss
 * the targets that are not ignored, by the weights of their classes); without a loss function, of
 * the operand of a tri_mean over dimension 0 that depends on data (a mean of parameters alone is a
 * penalty). If there are several with different numbers, the one recorded last counts, and one
 * warning names both; tri_backward_of takes a count. With a sum, or no mean at all, every rank
 * counts as one sample. */
TRI_API void tri_backward(tri_tensor *loss);
/* The gradient of a persistent tensor (borrowed), or NULL if it has none or tri_optimizer_zero_grad
 * has cleared it. Before the run that computes it: a step tensor, the value to come. After the run:
 * persistent, readable until another gradient takes its place, writable (tri_tensor_copy_in) until
 * an optimizer uses it. Under tri_ddp it is the average, except after a tri_backward within
 * tri_ddp_no_sync_begin; for a parameter that only other ranks' losses reach it appears with
 * tri_optimizer_step, or the model's next backward. Pending work of other contexts is not seen. A
 * step that fails leaves no gradient of its own, and what had added up before stays; if its run has
 * begun to overwrite that, reading and adding to it fail (STATE) until tri_optimizer_zero_grad. */
TRI_API tri_tensor *tri_grad(tri_tensor *tensor);
/* Operations between these record no gradient. They nest; an end too many fails the step
 * (STATE). */
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
 * f32; tri_backward, to be called after the end, follows the types of the forward pass. They
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

/* Seeds and restarts random numbers: those of this thread's context (context.h) that are recorded
 * from now on, and of all contexts made later, also by other threads; the stream stays. Also seeds
 * parameter initialisation (mt19937, PyTorch's bits for uniform distributions), in all threads. */
TRI_API void tri_manual_seed(uint64_t seed);
/* The state from which random numbers of this thread's context are made (Philox), together with the
 * number of the random operation in its step and the place of the element in its result: equal
 * states give equal numbers. */
typedef struct tri_rng {
    uint64_t seed; /* 0 until tri_manual_seed */
    /* gives different numbers from one seed; tri_ddp's forward sets it to the rank */
    uint64_t stream;
    /* steps that have drawn since tri_manual_seed: steps that draw nothing, such as those of an
     * evaluation, do not count */
    int64_t step;
} tri_rng;
TRI_API tri_rng tri_rng_state(void);
/* Continues from this state: applies to everything that has not run yet, even in the current step
 * (since the last tri_manual_seed in it). Loading a checkpoint does this. NULL fails the step
 * (INVALID_ARG). */
TRI_API void tri_rng_state_set(const tri_rng *state);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_tensor_create(...) TRI_SITE_(tri_tensor_create(__VA_ARGS__))
#define tri_tensor_from(...) TRI_SITE_(tri_tensor_from(__VA_ARGS__))
#define tri_tensor_set_name(...) TRI_SITE_(tri_tensor_set_name(__VA_ARGS__))
#define tri_tensor_copy_in(...) TRI_SITE_STATUS_(tri_tensor_copy_in(__VA_ARGS__))
#define tri_tensor_copy_out(...) TRI_SITE_STATUS_(tri_tensor_copy_out(__VA_ARGS__))
#define tri_data(...) TRI_SITE_(tri_data(__VA_ARGS__))
#define tri_item(...) TRI_SITE_(tri_item(__VA_ARGS__))
#define tri_item_status(...) TRI_SITE_STATUS_(tri_item_status(__VA_ARGS__))
#define tri_tensor_print(...) TRI_SITE_(tri_tensor_print(__VA_ARGS__))
#define tri_tensor_text(...) TRI_SITE_(tri_tensor_text(__VA_ARGS__))
#define tri_run(...) TRI_SITE_STATUS_(tri_run(__VA_ARGS__))
#define tri_backward(...) TRI_SITE_(tri_backward(__VA_ARGS__))
#endif

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
