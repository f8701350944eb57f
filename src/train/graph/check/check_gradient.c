/*
 * check_gradient.c - tri_gradcheck: compares all derivatives of a function that backward gives
 * with finite differences.
 *
 * The function is recorded in a context of its own, so that the caller's step, modes and random
 * numbers stay as they are. Inputs are changed in place, element by element, since the function may
 * hold them itself, as a module holds its parameters; each element is restored before anything else
 * happens.
 */
#include <trireme/context.h>
#include <trireme/ops.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/graph/step/function_guard.h"
#include "train/graph/step/recorder.h"

#define PLACE_TEXT (TRI_MAX_DIMS * 22)
#define INPUT_TEXT (PLACE_TEXT + 64)

typedef struct check {
    tri_gradient_fn fn;
    void *arg;
    tri_tensor *const *inputs;
    int n;
    struct {
        double eps, atol, rtol, nondet_tol;
        bool second_order;
    } opt;          /* with defaults filled in */
    tri_rng random; /* of every call of fn */

    double **values; /* [n] contents of the inputs */
    int64_t n_in;    /* elements of all inputs */
    int64_t n_out;   /* of the result; -1 until it is known */
    int ndim;        /* of the result */
    int64_t shape[TRI_MAX_DIMS];
    tri_device device;
    double *slopes;     /* [n_out][n_in] by backward */
    double *up, *down;  /* [n_out] results at x + eps and x - eps */
    double *row;        /* [n_in] gradients of one backward */
    tri_tensor **grads; /* [n] */
    tri_tensor *seed;   /* of the result's shape */
} check;

/* The derivative that is farthest from its difference, among all that are too far. */
typedef struct worst {
    int64_t n, out, in; /* how many; where */
    double excess, slope, difference;
} worst;

/* --- words ---------------------------------------------------------------- */

static int64_t numel_of(int ndim, const int64_t *shape)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    return n;
}

/* "[1, 2]" */
static const char *place_text(int ndim, const int64_t *shape, int64_t at, char text[PLACE_TEXT])
{
    int64_t rest = numel_of(ndim, shape);
    size_t used = (size_t)snprintf(text, PLACE_TEXT, "[");

    for (int d = 0; d < ndim; d++) {
        rest /= shape[d];
        used += (size_t)snprintf(text + used, PLACE_TEXT - used, "%s%" PRId64, d > 0 ? ", " : "",
                                 at / rest);
        at %= rest;
    }
    snprintf(text + used, PLACE_TEXT - used, "]");
    return text;
}

/* Which input element `at` of all inputs belongs to, as "inputs[0] "weight" at [1, 2]". */
static const char *input_text(const check *c, int64_t at, char text[INPUT_TEXT])
{
    char place[PLACE_TEXT];
    int i = 0;
    const tri_tensor *input;

    while (at >= tri_tensor_numel(c->inputs[i]))
        at -= tri_tensor_numel(c->inputs[i++]);
    input = c->inputs[i];
    snprintf(text, INPUT_TEXT, "inputs[%d]%s%.32s%s at %s", i, input->name != NULL ? " \"" : "",
             input->name != NULL ? input->name : "", input->name != NULL ? "\"" : "",
             place_text(input->ndim, input->shape, at, place));
    return text;
}

static tri_status too_far(const check *c, const worst *w)
{
    char input[INPUT_TEXT], output[PLACE_TEXT];

    input_text(c, w->in, input);
    place_text(c->ndim, c->shape, w->out, output);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s, result at %s: the gradient is %.9g, by differences it is %.9g (%" PRId64
                     " of %" PRId64 " derivatives differ by more than atol %g and rtol %g, "
                     "with eps %g)",
                     input, output, w->slope, w->difference, w->n, c->n_in * c->n_out, c->opt.atol,
                     c->opt.rtol, c->opt.eps);
}

/* --- inputs --------------------------------------------------------------- */

static tri_status check_input(const check *c, int i, const trii_recorder *caller)
{
    const tri_tensor *input = c->inputs[i];

    if (input == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "inputs[%d] is NULL", i);
    if (trii_is_handle(input))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "inputs[%d] is a value of a step: inputs are persistent tensors "
                         "(tri_tensor_from, tri_tensor_clone), whose elements are changed",
                         i);
    if (input->status != TRI_OK)
        return TRII_FAIL(input->status, "inputs[%d]: %s", i, trii_tensor_why(input));
    if (input->dtype != TRI_DTYPE_F64)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "inputs[%d] is %s, and differences need f64: a function that computes in "
                         "another type takes tri_cast of its inputs, with a larger eps (1e-2 for "
                         "f32); what is not differentiated comes to it by arg",
                         i, tri_dtype_name(input->dtype));
    if (!input->requires_grad)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "inputs[%d] requires no gradient (tri_requires_grad); what is not "
                         "differentiated comes to the function by arg",
                         i);
    for (int k = 0; k < i; k++) {
        if (c->inputs[k] == input)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "inputs[%d] is inputs[%d] once more", i, k);
    }
    if (caller != NULL && caller->active && trii_known_value(&caller->step, input) != TRII_NO_VALUE)
        return TRII_FAIL(TRI_ERR_STATE,
                         "inputs[%d] is in use by the open step, which would see its elements "
                         "change: end it before (tri_step_end)",
                         i);
    return TRI_OK;
}

static tri_status check_options(check *c, const tri_gradcheck_options *opt)
{
    static const tri_gradcheck_options defaults;

    if (opt == NULL)
        opt = &defaults;
    c->opt.eps = trii_option(opt->eps, 1e-6);
    c->opt.atol = trii_option(opt->atol, 1e-5);
    c->opt.rtol = trii_option(opt->rtol, 1e-3);
    c->opt.nondet_tol = opt->nondet_tol;
    c->opt.second_order = opt->second_order;
    if (!(c->opt.eps > 0) || isinf(c->opt.eps))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "eps is %g: must be above 0", c->opt.eps);
    if (!(c->opt.atol >= 0) || !(c->opt.rtol >= 0) || !(c->opt.nondet_tol >= 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "atol is %g, rtol %g, nondet_tol %g: none may be negative", c->opt.atol,
                         c->opt.rtol, c->opt.nondet_tol);
    return TRI_OK;
}

static tri_status read_inputs(check *c)
{
    c->values = trii_alloc((size_t)c->n, sizeof(*c->values), "inputs to differentiate");
    if (c->values == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < c->n; i++) {
        int64_t n = tri_tensor_numel(c->inputs[i]);
        tri_status status;

        c->values[i] = trii_alloc((size_t)n, sizeof(**c->values), "an input to differentiate");
        if (c->values[i] == NULL)
            return TRI_ERR_NO_MEMORY;
        status = tri_tensor_copy_out(c->inputs[i], c->values[i], trii_tensor_bytes(c->inputs[i]));
        if (status != TRI_OK)
            return status;
        c->n_in += n;
    }
    return TRI_OK;
}

/* --- calls of the function ------------------------------------------------ */

/* Checks what the function returned: whether it can be differentiated. */
static tri_status check_result(check *c, const tri_tensor *y)
{
    tri_status status = y != NULL ? tri_tensor_status(y)
                                  : TRII_FAIL(TRI_ERR_INVALID_ARG, "the function returned NULL");

    if (status != TRI_OK)
        return status;
    if (tri_tensor_dtype(y) != TRI_DTYPE_F64)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "the function's result is %s, and differences need f64 (tri_cast)",
                         tri_dtype_name(tri_tensor_dtype(y)));
    if (c->n_out < 0) {
        c->ndim = tri_tensor_ndim(y);
        for (int d = 0; d < c->ndim; d++)
            c->shape[d] = tri_tensor_size(y, d);
        c->n_out = tri_tensor_numel(y);
        return TRI_OK;
    }
    for (int d = 0; d < c->ndim && tri_tensor_ndim(y) == c->ndim; d++) {
        if (tri_tensor_size(y, d) != c->shape[d])
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "the function's result has %" PRId64 " in dimension %d, and had "
                             "%" PRId64 " before: it must have one shape for all values",
                             tri_tensor_size(y, d), d, c->shape[d]);
    }
    return tri_tensor_ndim(y) == c->ndim
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "the function's result has %d dimensions, and had %d before",
                           tri_tensor_ndim(y), c->ndim);
}

/* Each call has the same random numbers. */
static tri_status record(check *c, tri_tensor **result_out)
{
    tri_rng_state_set(&c->random);
    *result_out = c->fn(c->inputs, c->n, c->arg);
    return check_result(c, *result_out);
}

/* Ends the step, which has come as far as `status`. */
static tri_status end_step(tri_status status)
{
    char line[TRII_ERR_BYTES];

    if (status == TRI_OK)
        return tri_step_end_status();
    snprintf(line, sizeof(line), "%s", tri_last_error());
    return tri_step_end_status() == TRI_OK ? status : TRII_FAIL(status, "%s", line);
}

/* `results` has room for n_out; NULL: n_out is not known yet. */
static tri_status evaluate(check *c, double *results)
{
    tri_tensor *y;
    tri_status status = record(c, &y);

    if (status == TRI_OK && results != NULL)
        status = tri_tensor_copy_out(y, results, (size_t)c->n_out * sizeof(double));
    else if (status == TRI_OK)
        c->device = tri_tensor_device(y);
    return end_step(status);
}

/* c->row: the gradients of all inputs, for c->seed. */
static tri_status differentiate(check *c, bool create_graph)
{
    const tri_gradients_options opt = {
        .seeds = &c->seed, .create_graph = create_graph, .allow_unused = true};
    double *to = c->row;
    tri_tensor *y;
    tri_status status = record(c, &y);

    if (status == TRI_OK)
        status = tri_gradients(&y, 1, c->inputs, c->n, &opt, c->grads);
    for (int i = 0; i < c->n && status == TRI_OK; i++)
        c->grads[i] = c->grads[i] != NULL ? tri_keep(c->grads[i]) : NULL;
    for (int i = 0; i < c->n && status == TRI_OK; i++) {
        size_t bytes = trii_tensor_bytes(c->inputs[i]);

        if (c->grads[i] != NULL)
            status = tri_tensor_copy_out(c->grads[i], to, bytes);
        else
            memset(to, 0, bytes);
        to += bytes / sizeof(*to);
    }
    return end_step(status);
}

/* --- what is checked ------------------------------------------------------ */

/* Takes memory for everything that is compared. */
static tri_status find_shape(check *c)
{
    size_t in, out;
    tri_status status = evaluate(c, NULL);

    if (status != TRI_OK)
        return status;
    in = (size_t)c->n_in;
    out = (size_t)c->n_out;
    c->slopes = trii_alloc(out, in * sizeof(double), "derivatives");
    c->up = trii_alloc(out, sizeof(double), "results");
    c->down = trii_alloc(out, sizeof(double), "results");
    c->row = trii_alloc(in, sizeof(double), "gradients");
    c->grads = trii_alloc((size_t)c->n, sizeof(tri_tensor *), "gradients");
    if (c->slopes == NULL || c->up == NULL || c->down == NULL || c->row == NULL || c->grads == NULL)
        return TRI_ERR_NO_MEMORY;
    return trii_tensor_create(TRI_DTYPE_F64, c->shape, c->ndim, c->device, &c->seed);
}

/* Two NaNs are equal here: the differences will show what is wrong with them. */
static bool differ(const check *c, double a, double b)
{
    return !(fabs(a - b) <= c->opt.nondet_tol) && a != b && !(isnan(a) && isnan(b));
}

static tri_status check_repeats(check *c)
{
    char text[PLACE_TEXT];
    tri_status status = evaluate(c, c->up);

    if (status == TRI_OK)
        status = evaluate(c, c->down);
    for (int64_t o = 0; o < c->n_out && status == TRI_OK; o++) {
        if (differ(c, c->up[o], c->down[o]))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "the result at %s is %.17g, and %.17g when it is computed again: the "
                             "function depends on more than its inputs",
                             place_text(c->ndim, c->shape, o, text), c->up[o], c->down[o]);
    }
    return status;
}

static tri_status set_seed(check *c, const double *values)
{
    return tri_tensor_copy_in(c->seed, values, (size_t)c->n_out * sizeof(*values));
}

/* For one result. c->up is free when this is called. */
static tri_status differentiate_one(check *c, int64_t o, bool create_graph)
{
    tri_status status;

    memset(c->up, 0, (size_t)c->n_out * sizeof(*c->up));
    c->up[o] = 1;
    status = set_seed(c, c->up);
    return status == TRI_OK ? differentiate(c, create_graph) : status;
}

/* One result after the other, each twice. */
static tri_status take_slopes(check *c)
{
    char input[INPUT_TEXT], output[PLACE_TEXT];
    tri_status status = TRI_OK;

    for (int64_t o = 0; o < c->n_out && status == TRI_OK; o++) {
        double *slopes = c->slopes + o * c->n_in;

        status = differentiate_one(c, o, false);
        memcpy(slopes, c->row, (size_t)c->n_in * sizeof(*slopes));
        if (status == TRI_OK)
            status = differentiate(c, false);
        for (int64_t k = 0; k < c->n_in && status == TRI_OK; k++) {
            if (differ(c, slopes[k], c->row[k]))
                status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                                   "%s, result at %s: the gradient is %.17g, and %.17g when it is "
                                   "computed again: backward depends on more than its operands",
                                   input_text(c, k, input),
                                   place_text(c->ndim, c->shape, o, output), slopes[k], c->row[k]);
        }
    }
    return status;
}

/* With create_graph functions record their gradients instead of computing them. */
static tri_status check_recorded(check *c)
{
    char input[INPUT_TEXT], output[PLACE_TEXT];
    tri_status status = TRI_OK;

    for (int64_t o = 0; o < c->n_out && status == TRI_OK; o++) {
        const double *slopes = c->slopes + o * c->n_in;

        status = differentiate_one(c, o, true);
        for (int64_t k = 0; k < c->n_in && status == TRI_OK; k++) {
            if (!(fabs(slopes[k] - c->row[k]) <= c->opt.atol + c->opt.rtol * fabs(slopes[k])))
                status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                                   "%s, result at %s: the gradient is %.9g, and with create_graph "
                                   "%.9g",
                                   input_text(c, k, input),
                                   place_text(c->ndim, c->shape, o, output), slopes[k], c->row[k]);
        }
    }
    return status;
}

/* A backward that ignores grad_out, or squares it, is right for a grad_out of 1. */
static tri_status check_linear(check *c)
{
    const double factor = -2;
    double *same = c->up;
    char text[INPUT_TEXT];
    tri_status status;

    for (int64_t o = 0; o < c->n_out; o++)
        same[o] = factor;
    status = set_seed(c, same);
    if (status == TRI_OK)
        status = differentiate(c, false);
    for (int64_t k = 0; k < c->n_in && status == TRI_OK; k++) {
        double sum = 0, size = 0;

        for (int64_t o = 0; o < c->n_out; o++) {
            sum += factor * c->slopes[o * c->n_in + k];
            size += fabs(factor * c->slopes[o * c->n_in + k]);
        }
        if (!isnan(sum) && !(fabs(c->row[k] - sum) <= c->opt.atol + c->opt.rtol * size))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: the gradient is %.9g if grad_out is %g everywhere, and not %g "
                             "times what it is for 1, %.9g: backward multiplies by grad_out",
                             input_text(c, k, text), c->row[k], factor, factor, sum);
    }
    return status;
}

/* Results with another value in place of element k of input i. */
static tri_status evaluate_at(check *c, int i, int64_t k, double value, double *results)
{
    double kept = c->values[i][k];
    tri_status status;

    c->values[i][k] = value;
    status = tri_tensor_copy_in(c->inputs[i], c->values[i], trii_tensor_bytes(c->inputs[i]));
    c->values[i][k] = kept;
    return status == TRI_OK ? evaluate(c, results) : status;
}

static tri_status put_back(const check *c, int i, tri_status status)
{
    char line[TRII_ERR_BYTES];
    tri_status written;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    written = tri_tensor_copy_in(c->inputs[i], c->values[i], trii_tensor_bytes(c->inputs[i]));
    if (written != TRI_OK)
        return TRII_FAIL_CTX(written, "inputs[%d] keeps an element that was changed", i);
    return status == TRI_OK ? TRI_OK : TRII_FAIL(status, "%s", line);
}

/* Element k of input i, which is number `at` of all. */
static tri_status compare(check *c, int i, int64_t k, int64_t at, worst *w)
{
    double x = c->values[i][k], high = x + c->opt.eps, low = x - c->opt.eps;
    char text[INPUT_TEXT];
    tri_status status;

    if (!(high > low) || isinf(high - low))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is %g, to which an eps of %g adds nothing",
                         input_text(c, at, text), x, c->opt.eps);
    status = evaluate_at(c, i, k, high, c->up);
    if (status == TRI_OK)
        status = evaluate_at(c, i, k, low, c->down);
    status = put_back(c, i, status);
    for (int64_t o = 0; o < c->n_out && status == TRI_OK; o++) {
        double slope = c->slopes[o * c->n_in + at];
        double difference = (c->up[o] - c->down[o]) / (high - low);
        double excess = fabs(slope - difference) - c->opt.atol - c->opt.rtol * fabs(difference);

        if (excess <= 0)
            continue;
        excess = isnan(excess) ? (double)INFINITY : excess;
        if (w->n++ == 0 || excess > w->excess)
            *w = (worst){w->n, o, at, excess, slope, difference};
    }
    return status;
}

static tri_status check_slopes(check *c)
{
    worst w = {0};
    int64_t at = 0;
    tri_status status = TRI_OK;

    for (int i = 0; i < c->n && status == TRI_OK; i++) {
        for (int64_t k = 0; k < tri_tensor_numel(c->inputs[i]) && status == TRI_OK; k++)
            status = compare(c, i, k, at++, &w);
    }
    return status != TRI_OK || w.n == 0 ? status : too_far(c, &w);
}

static void release(check *c)
{
    for (int i = 0; i < c->n && c->values != NULL; i++)
        trii_free(c->values[i]);
    trii_free(c->values);
    trii_free(c->slopes);
    trii_free(c->up);
    trii_free(c->down);
    trii_free(c->row);
    trii_free(c->grads);
    tri_tensor_unref(c->seed);
}

static tri_status check_function(check *c)
{
    tri_status status = read_inputs(c);

    if (status == TRI_OK)
        status = find_shape(c);
    if (status == TRI_OK)
        status = check_repeats(c);
    if (status == TRI_OK)
        status = take_slopes(c);
    if (status == TRI_OK)
        status = check_slopes(c);
    return status == TRI_OK ? check_linear(c) : status;
}

/* --- gradients of gradients ----------------------------------------------- */

static tri_tensor *failed(tri_status status)
{
    return trii_handle_failed(trii_step_current(), status);
}

/* The gradients of another function, all in one row. The last input is its grad_out. */
static tri_tensor *gradients_of(tri_tensor *const *inputs, int n, void *arg)
{
    const check *c = arg;
    const tri_gradients_options opt = {
        .seeds = &inputs[n - 1], .create_graph = true, .allow_unused = true};
    tri_tensor *y = c->fn(inputs, n - 1, c->arg);
    tri_status status = tri_gradients(&y, 1, inputs, n - 1, &opt, c->grads);
    int n_parts = 0;

    if (status != TRI_OK)
        return failed(status);
    for (int i = 0; i < n - 1; i++) {
        if (c->grads[i] != NULL)
            c->grads[n_parts++] = tri_reshape(c->grads[i], TRI_SHAPE(-1));
    }
    return n_parts > 0 ? tri_concat(c->grads, n_parts, 0) : tri_zeros(TRI_SHAPE(0), TRI_DTYPE_F64);
}

static tri_status check_gradients(check *first)
{
    check c = {.fn = gradients_of,
               .arg = first,
               .n = first->n + 1,
               .opt = first->opt,
               .random = first->random,
               .n_out = -1};
    tri_tensor **inputs = trii_alloc((size_t)c.n, sizeof(*inputs), "inputs to differentiate");
    tri_status status;

    if (inputs == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(inputs, first->inputs, (size_t)first->n * sizeof(tri_tensor *));
    inputs[first->n] = first->seed;
    c.inputs = inputs;
    tri_tensor_set_name(first->seed, "grad_out");
    tri_requires_grad(first->seed, true);
    for (int64_t o = 0; o < first->n_out; o++) /* numbers of both signs that differ */
        first->up[o] = 0.125 + (double)(o * 37 % 11 - 5) / 4;
    status = set_seed(first, first->up);
    if (status == TRI_OK)
        status = check_function(&c);
    release(&c);
    trii_free(inputs);
    return status == TRI_OK
               ? TRI_OK
               : TRII_FAIL_CTX(status, "second order (the function: all gradients in one row)");
}

/* --- all ------------------------------------------------------------------ */

static tri_status check_arguments(check *c, const tri_gradcheck_options *opt)
{
    const trii_recorder *caller = trii_recorder_mine();
    tri_status status = TRII_CHECK_RESERVED(tri_gradcheck_options, opt);

    if (status == TRI_OK)
        status = trii_function_outside("tri_gradcheck was called");

    if (status != TRI_OK)
        return status;
    if (c->fn == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the function is NULL");
    if (c->n <= 0 || c->inputs == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d inputs%s: at least one is needed", c->n,
                         c->inputs == NULL ? " at NULL" : "");
    status = check_options(c, opt);
    for (int i = 0; i < c->n && status == TRI_OK; i++)
        status = check_input(c, i, caller);
    return status;
}

static tri_status check_all(check *c, const tri_gradcheck_options *opt)
{
    tri_context *context;
    tri_status status = check_arguments(c, opt);

    if (status != TRI_OK)
        return status;
    c->random = tri_rng_state();
    status = tri_context_create(&context);
    if (status != TRI_OK)
        return status;
    status = tri_context_enter(context);
    if (status == TRI_OK) {
        tri_status left;

        status = check_function(c);
        if (status == TRI_OK && c->opt.second_order)
            status = check_recorded(c);
        if (status == TRI_OK && c->opt.second_order)
            status = check_gradients(c);
        release(c);
        left = tri_context_leave();
        status = status == TRI_OK ? left : status;
    }
    tri_context_destroy(context);
    return status;
}

tri_status tri_gradcheck(tri_gradient_fn fn, void *arg, tri_tensor *const *inputs, int n,
                         const tri_gradcheck_options *opt)
{
    check c = {.fn = fn, .arg = arg, .inputs = inputs, .n = n, .n_out = -1};
    trii_site site = trii_site_last();
    tri_status status = check_all(&c, opt);

    if (status == TRI_OK)
        return TRI_OK;
    if (site.file == NULL)
        return TRII_FAIL_CTX(status, "tri_gradcheck");
    return TRII_FAIL_CTX(status, "tri_gradcheck at %s:%d", site.file, site.line);
}
