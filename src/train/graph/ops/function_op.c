/*
 * function_op.c - operations of users: see trireme/function.h.
 *
 * A function is an operation like others. Its class is an integer attribute and so part of the
 * plan's identity, as are the types of its results, which `shape` said when it was recorded. Its
 * data is not: a copy lives in the context until the step ends, and where it is are two numbers (of
 * 32 bits, which a double holds exactly), written again for each run.
 */
#include "train/graph/ops/function_op.h"

#include <inttypes.h>
#include <stdarg.h>

#include "base/alloc.h"
#include "base/option.h"
#include "base/param.h"
#include "train/graph/ops/function_check.h"
#include "train/graph/step/function_guard.h"
#include "train/graph/step/recorder.h"

#define MOST TRI_FUNCTION_TENSORS

/* A user's function may return a status without setting the error line. */
void trii_function_expect_reason(void)
{
    trii_err_set("%s", "");
}

tri_status trii_function_failed_in(tri_status status, const char *what,
                                   const tri_function_class *class)
{
    if (tri_last_error()[0] == '\0')
        trii_err_set("it returned %s, and no reason (tri_status_fail gives one)",
                     tri_status_name(status));
    return TRII_FAIL_CTX(status < 0 ? status : TRI_ERR_INVALID_ARG, "%s of %s", what, class->name);
}

/* --- attributes ----------------------------------------------------------- */

static int n_in_of(const int64_t *iattr)
{
    return (int)(iattr[TRII_FUNCTION_COUNTS] & 0xff);
}

/* With those that are saved. */
static int n_out_of(const int64_t *iattr)
{
    return (int)(iattr[TRII_FUNCTION_COUNTS] >> 8);
}

void trii_function_begin_attrs(trii_attrs *attrs, const tri_function_class *class, int n_in,
                               int n_out, int64_t wanted)
{
    attrs->n_i = TRII_FUNCTION_SIZES;
    attrs->i[TRII_FUNCTION_CLASS] = (int64_t)(uintptr_t) class;
    attrs->i[TRII_FUNCTION_COUNTS] = n_in | (int64_t)n_out << 8;
    attrs->i[TRII_FUNCTION_WANTED] = wanted;
    attrs->i[TRII_FUNCTION_TYPES] = attrs->i[TRII_FUNCTION_TYPES + 1] = 0;
}

void trii_function_put_data(trii_attrs *attrs, const void *data)
{
    attrs->n_f = 2;
    attrs->f[0] = (double)((uintptr_t)data >> 32);
    attrs->f[1] = (double)((uintptr_t)data & 0xffffffffu);
}

/* Result number k has this type. */
void trii_function_put_type(trii_attrs *attrs, int k, tri_dtype dtype, int ndim,
                            const int64_t *shape)
{
    attrs->i[TRII_FUNCTION_TYPES + k / 8] |=
        (int64_t)((uint64_t)((unsigned)dtype << 4 | (unsigned)ndim) << (k % 8 * 8));
    for (int d = 0; d < ndim; d++)
        trii_attrs_add(attrs, shape[d]);
}

static tri_status attrs_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    int at = TRII_FUNCTION_SIZES, n = 0;

    (void)in;
    (void)n_in;
    for (int k = 0; k < MOST; k++) {
        unsigned code =
            (unsigned)((uint64_t)attrs->i[TRII_FUNCTION_TYPES + k / 8] >> (k % 8 * 8)) & 0xff;

        if (code == 0)
            break; /* there is no dtype 0 but NONE */
        out[n].dtype = (tri_dtype)(code >> 4);
        out[n].ndim = (int)(code & 15);
        for (int d = 0; d < out[n].ndim; d++)
            out[n].shape[d] = attrs->i[at++];
        n++;
    }
    *n_out = n;
    return TRI_OK;
}

/* --- running -------------------------------------------------------------- */

static tri_function_array array_of(const trii_array *from)
{
    tri_function_array array = {
        .data = from->data, .dtype = from->type->dtype, .ndim = from->type->ndim};

    for (int d = 0; d < array.ndim; d++)
        array.shape[d] = from->type->shape[d];
    return array;
}

/* The user's code, with the context closed to it. */
static tri_status call_user(const tri_function_class *class, const char *what,
                            tri_status (*code)(const tri_function_call *),
                            const tri_function_call *call)
{
    trii_recorder *r = trii_recorder_mine();
    bool active = r != NULL && r->active;
    tri_status status;

    if (r != NULL)
        r->active = false;
    trii_function_begin(class->name);
    trii_function_expect_reason();
    status = code(call);
    trii_function_end();
    if (r != NULL)
        r->active = active;
    return status == TRI_OK ? TRI_OK : trii_function_failed_in(status, what, class);
}

static uint64_t operands_digest(const tri_function_call *call, bool backward)
{
    uint64_t digest = trii_function_digest(call->in, call->n_in);

    if (!backward)
        return digest;
    digest ^= trii_function_digest(call->out, call->n_out) * 3;
    return digest ^ trii_function_digest(call->grad_out, call->n_out) * 5;
}

/* A thread of a device has no context to ask. */
static bool is_checked(void)
{
    const trii_recorder *r = trii_recorder_mine();
    int check = -1;

    if (TRII_LIKELY(r != NULL))
        return r->check;
    return trii_param_choice(TRII_PARAM_CHECK, &check) == TRI_OK && check == 0;
}

/* As call_user; under TRI_CHECK=nan it also checks what was written. */
static tri_status call_checked(const tri_function_class *class, bool backward,
                               const tri_function_call *call)
{
    const char *what = backward ? "backward" : "forward";
    const tri_function_array *results = backward ? call->grad_in : call->out;
    int n = backward ? call->n_in : call->n_out;
    bool check = is_checked();
    uint64_t digest = 0;
    tri_status status;

    if (TRII_UNLIKELY(check)) {
        trii_function_prepare(results, n);
        digest = operands_digest(call, backward);
    }
    status = call_user(class, what, backward ? class->backward : class->forward, call);
    if (TRII_LIKELY(!check) || status != TRI_OK)
        return status;
    status = trii_function_written(results, n, backward ? "grad_in" : "out");
    if (status == TRI_OK && operands_digest(call, backward) != digest)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "it wrote into what it may only read");
    return status == TRI_OK ? TRI_OK : trii_function_failed_in(status, what, class);
}

static tri_status forward_run(const trii_kernel_args *args)
{
    const tri_function_class *class = trii_function_class_of(args->iattr);
    tri_function_array in[MOST], out[MOST];
    const tri_function_call call = {.data = trii_function_data_of(args->fattr),
                                    .n_in = args->n_in,
                                    .n_out = args->n_out,
                                    .in = in,
                                    .out = out};

    for (int i = 0; i < args->n_in; i++)
        in[i] = array_of(&args->in[i]);
    for (int o = 0; o < args->n_out; o++)
        out[o] = array_of(&args->out[o]);
    return call_checked(class, false, &call);
}

/* in: inputs and results, except those that backward does not read, then the gradients that are
 * there. */
static tri_status backward_run(const trii_kernel_args *args)
{
    const tri_function_class *class = trii_function_class_of(args->iattr);
    tri_function_array in[MOST] = {{0}}, out[MOST] = {{0}};
    tri_function_array grad_in[MOST] = {{0}}, grad_out[MOST] = {{0}};
    const tri_function_call call = {.data = trii_function_data_of(args->fattr),
                                    .n_in = n_in_of(args->iattr),
                                    .n_out = n_out_of(args->iattr),
                                    .in = in,
                                    .out = out,
                                    .grad_out = grad_out,
                                    .grad_in = grad_in};
    int at = 0, to = 0;

    for (int i = 0; i < call.n_in && !class->backward_without_in; i++)
        in[i] = array_of(&args->in[at++]);
    for (int o = 0; o < call.n_out && !class->backward_without_out; o++)
        out[o] = array_of(&args->in[at++]);
    for (int o = 0; o < call.n_out; o++) {
        if ((args->iattr[TRII_FUNCTION_WANTED] >> (MOST + o) & 1) != 0)
            grad_out[o] = array_of(&args->in[at++]);
    }
    for (int i = 0; i < call.n_in; i++) {
        if ((args->iattr[TRII_FUNCTION_WANTED] >> i & 1) != 0)
            grad_in[i] = array_of(&args->out[to++]);
    }
    return call_checked(class, true, &call);
}

/* Operands in bf16 and f16 reach the user as f32, but no result changes its type because of
 * that. */
static const trii_graph_op forward_in_f32 = {.name = "apply", .reference = forward_run};
static const trii_graph_op backward_in_f32 = {.name = "apply", .reference = backward_run};

static tri_status forward_reference(const trii_kernel_args *args)
{
    return trii_reference_kernel(&forward_in_f32, args);
}

static tri_status backward_reference(const trii_kernel_args *args)
{
    return trii_reference_kernel(&backward_in_f32, args);
}

/* --- entries -------------------------------------------------------------- */

const trii_graph_op trii_op_apply_backward = {
    .name = "apply_backward",
    .precision = TRII_PRECISION_ANY,
    .may_refuse = true,
    .shape = attrs_shape,
    .gradient = TRII_GRADIENT_apply_backward,
    .reference = backward_reference,
};

static const trii_graph_op op_apply = {
    .name = "apply",
    .precision = TRII_PRECISION_ANY,
    .may_refuse = true,
    .shape = attrs_shape,
    .gradient = TRII_GRADIENT_apply,
    .reference = forward_reference,
};

/* --- recording ------------------------------------------------------------ */

static tri_status check_call(const tri_function_class *class, const void *data,
                             tri_tensor *const *in, int n_in, int n_out)
{
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_function_class, class);

    if (status != TRI_OK)
        return status;
    if (class == NULL || class->name == NULL || class->shape == NULL || class->forward == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_function_apply: a class needs a name, a shape and a forward");
    if (class->size > 0 && data == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_function_apply(%s): data is NULL, for %zu bytes",
                         class->name, class->size);
    if (n_in < 1 || n_in > MOST || in == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_function_apply(%s): %d inputs%s: 1 to %d are allowed", class->name,
                         n_in, in == NULL ? " at NULL" : "", MOST);
    if (n_out < 1 || class->saved < 0 || n_out > MOST - class->saved)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_function_apply(%s): %d results and %d saved: 1 to %d are allowed",
                         class->name, n_out, class->saved, MOST);
    return TRI_OK;
}

static tri_status check_result(const tri_function_class *class, const tri_function_array *out,
                               int k)
{
    tri_status status = TRII_CHECK_RESERVED(tri_function_array, out);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "out[%d] of shape of %s", k, class->name);
    if (out->dtype == TRI_DTYPE_NONE)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "shape of %s set no dtype for out[%d]", class->name,
                         k);
    if ((unsigned)out->dtype >= TRII_TENSOR_DTYPES || (unsigned)out->dtype > 15)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "shape of %s set dtype %d for out[%d], which does not exist", class->name,
                         (int)out->dtype, k);
    if (out->ndim < 0 || out->ndim > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "shape of %s set %d dimensions for out[%d]: 0 to %d are allowed",
                         class->name, out->ndim, k, TRI_MAX_DIMS);
    for (int d = 0; d < out->ndim; d++) {
        if (out->shape[d] < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "shape of %s set size %" PRId64 " in dimension %d of out[%d]",
                             class->name, out->shape[d], d, k);
    }
    return TRI_OK;
}

/* Turns what the user's `shape` says of the results into attributes. */
static tri_status ask_shape(trii_step *step, const tri_function_class *class, const void *data,
                            const trii_vid *ids, int n_in, int n_out, trii_attrs *attrs)
{
    tri_function_array in[MOST], out[MOST] = {{0}};
    const tri_function_call call = {
        .data = data, .n_in = n_in, .n_out = n_out, .in = in, .out = out};
    tri_status status;

    for (int i = 0; i < n_in; i++)
        in[i] = array_of(&(trii_array){NULL, trii_type_of(step, ids[i])});
    trii_function_expect_reason();
    status = class->shape(&call, out);
    if (status != TRI_OK)
        return trii_function_failed_in(status, "shape", class);
    trii_function_begin_attrs(attrs, class, n_in, n_out, 0);
    for (int k = 0; k < n_out && status == TRI_OK; k++) {
        status = check_result(class, &out[k], k);
        if (status == TRI_OK)
            trii_function_put_type(attrs, k, out[k].dtype, out[k].ndim, out[k].shape);
    }
    if (status == TRI_OK && attrs->n_i > TRII_MAX_IATTRS)
        status = TRII_FAIL(
            TRI_ERR_INVALID_ARG, "shape of %s set %d dimensions altogether: at most %d are allowed",
            class->name, attrs->n_i - TRII_FUNCTION_SIZES, TRII_MAX_IATTRS - TRII_FUNCTION_SIZES);
    return status;
}

/* Memory for the data until the step ends: the last step's, where it is large enough. */
static tri_status keep_data(trii_recorder *r, const void *data, size_t size, const void **kept)
{
    void *memory;
    tri_status status;

    *kept = NULL;
    if (size == 0)
        return TRI_OK;
    status = trii_block_take(r, size, "data of a function", &memory);
    if (status == TRI_OK)
        *kept = memcpy(memory, data, size);
    return status;
}

static tri_status apply(trii_step *step, const tri_function_class *class, const void *data,
                        tri_tensor *const *in, int n_in, int n_out, trii_vid *first)
{
    trii_vid ids[MOST];
    trii_attrs attrs;
    const void *kept;
    tri_status status = TRI_OK;

    for (int i = 0; i < n_in && status == TRI_OK; i++)
        status = in[i] != NULL ? trii_resolve(step, in[i], &ids[i])
                               : TRII_FAIL(TRI_ERR_INVALID_ARG, "in[%d] is NULL", i);
    if (status == TRI_OK)
        status = keep_data(trii_recorder_of(step), data, class->size, &kept);
    if (status == TRI_OK)
        status = ask_shape(step, class, kept, ids, n_in, n_out + class->saved, &attrs);
    if (status != TRI_OK)
        return status;
    trii_function_put_data(&attrs, kept);
    return trii_record_values(step, &op_apply, ids, n_in, &attrs, first);
}

void tri_function_apply(const tri_function_class *type, const void *data, tri_tensor *const *in,
                        int n_in, tri_tensor **out, int n_out)
{
    trii_step *step = trii_step_current();
    trii_vid first = TRII_NO_VALUE;
    tri_status status = step == NULL ? TRI_ERR_NO_MEMORY : check_call(type, data, in, n_in, n_out);
    tri_tensor *handle;

    if (out == NULL)
        return; /* nowhere to say so */
    if (status == TRI_OK)
        status = apply(step, type, data, in, n_in, n_out, &first);
    else
        n_in = 0;
    handle = status == TRI_OK ? trii_handle_recorded(step, first)
                              : trii_handle_refused(step, "apply", in, n_in, status);
    for (int o = 0; o < n_out; o++)
        out[o] =
            status == TRI_OK && trii_is_handle(handle) ? trii_handle_output(handle, o) : handle;
}
