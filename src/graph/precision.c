/*
 * precision.c - bf16: which operations run in it, and the casts around the others.
 *
 * Under tri_autocast, operations that spend their time multiplying (TRII_PRECISION_LOWERED) round
 * their f32 activations to bf16. What follows stays in bf16 as long as all its activations are;
 * everything else gets its operands widened to f32. Parameters, their gradients and statistics are
 * f32 throughout, so there is one master copy and nothing is rounded twice. The casts are recorded
 * like any operation: their gradients bring each value's gradient to its own type.
 *
 * The reference kernels know f32 and f64 only: bf16 operands are widened for them, and results
 * rounded once, which is what a device's kernels are held to.
 */
#include "base/dtype.h"
#include "graph/ops/rules.h"
#include "graph/recorder.h"

void tri_autocast_begin(tri_dtype dtype)
{
    trii_step *step = trii_step_current();

    if (step == NULL)
        return;
    if (dtype != TRI_DTYPE_BF16)
        trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                       "tri_autocast_begin: to %s; bf16 is what there is",
                                       tri_dtype_name(dtype)));
    trii_recorder_of(step)->autocast++;
}

void tri_autocast_end(void)
{
    trii_step *step = trii_step_current();

    if (step == NULL)
        return;
    if (trii_recorder_of(step)->autocast == 0)
        trii_step_fail(step,
                       TRII_FAIL(TRI_ERR_STATE, "tri_autocast_end without tri_autocast_begin"));
    else
        trii_recorder_of(step)->autocast--;
}

static bool lowers(const trii_step *step, const trii_graph_op *op)
{
    return op->precision == TRII_PRECISION_LOWERED && step->recorder->autocast > 0;
}

bool trii_precision_matters(const trii_step *step, const trii_graph_op *op,
                            const trii_type *const *types, int n_in)
{
    bool bf16 = false;

    if (op->precision == TRII_PRECISION_ANY)
        return false;
    for (int i = 0; i < n_in; i++)
        bf16 |= types[i] != NULL && types[i]->dtype == TRI_DTYPE_BF16;
    return bf16 || lowers(step, op);
}

/* All activations are bf16, or may become so. */
static bool runs_in_bf16(const trii_step *step, const trii_graph_op *op, const trii_vid *in,
                         int n_in)
{
    bool lower = lowers(step, op);

    if (op->precision < TRII_PRECISION_FOLLOWS)
        return false;
    for (int i = 0; i < n_in; i++) {
        tri_dtype dtype = in[i] != TRII_NO_VALUE ? step->values[in[i]].type.dtype : TRI_DTYPE_BF16;

        if ((op->activations_in >> i & 1) != 0 && dtype != TRI_DTYPE_BF16 &&
            !(lower && dtype == TRI_DTYPE_F32))
            return false;
    }
    return true;
}

tri_status trii_precision_fit(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                              int n_in, trii_vid *fitted, bool *bf16_out)
{
    bool bf16 = runs_in_bf16(step, op, in, n_in);
    tri_status status = trii_step_reserve(step, n_in + 1);

    for (int i = 0; i < n_in && status == TRI_OK; i++) {
        tri_dtype want =
            bf16 && (op->activations_in >> i & 1) != 0 ? TRI_DTYPE_BF16 : TRI_DTYPE_F32;
        tri_dtype have;

        fitted[i] = in[i];
        if (in[i] == TRII_NO_VALUE)
            continue;
        have = step->values[in[i]].type.dtype;
        if (have == TRI_DTYPE_BF16 || (bf16 && have == TRI_DTYPE_F32))
            status = trii_rec_cast(step, in[i], want, &fitted[i]);
    }
    *bf16_out = bf16;
    return status;
}

/* --- the reference kernels -------------------------------------------------------------------- */

static bool has_bf16(const trii_array *arrays, int n)
{
    for (int i = 0; i < n; i++) {
        if (arrays[i].data != NULL && arrays[i].type->dtype == TRI_DTYPE_BF16)
            return true;
    }
    return false;
}

/* `array` as f32 in memory of its own. */
static tri_status widen(const trii_kernel_args *args, trii_array *array, trii_type *type, bool fill)
{
    const uint16_t *narrow = array->data;
    int64_t n = trii_type_numel(array->type);
    float *wide = trii_work_take(args, (size_t)n, sizeof(*wide));

    if (wide == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; fill && i < n; i++)
        wide[i] = trii_bf16_to_f32(narrow[i]);
    trii_type_copy(type, array->type);
    type->device = array->type->device;
    type->dtype = TRI_DTYPE_F32;
    *array = (trii_array){wide, type};
    return TRI_OK;
}

static void round_to(const trii_array *to, const float *wide)
{
    uint16_t *narrow = to->data;
    int64_t n = trii_type_numel(to->type);

    for (int64_t i = 0; i < n; i++)
        narrow[i] = trii_f32_to_bf16(wide[i]);
}

tri_status trii_reference_kernel(const trii_graph_op *op, const trii_kernel_args *args)
{
    trii_array array[TRII_MAX_INPUTS + TRII_MAX_OUTPUTS];
    trii_type type[TRII_MAX_INPUTS + TRII_MAX_OUTPUTS];
    trii_kernel_args wide = *args;
    int n_in = args->n_in, n = n_in + args->n_out, done = 0;
    tri_status status = TRI_OK;

    if (op->precision == TRII_PRECISION_ANY ||
        (!has_bf16(args->in, n_in) && !has_bf16(args->out, args->n_out)))
        return op->reference(args);
    for (; done < n && status == TRI_OK; done++) {
        array[done] = done < n_in ? args->in[done] : args->out[done - n_in];
        if (has_bf16(&array[done], 1))
            status = widen(args, &array[done], &type[done], done < n_in);
    }
    wide.in = array;
    wide.out = array + n_in;
    if (status == TRI_OK)
        status = op->reference(&wide);
    for (int i = 0; i < done; i++) {
        const trii_array *from = i < n_in ? &args->in[i] : &args->out[i - n_in];

        if (array[i].data == from->data)
            continue;
        if (i >= n_in && status == TRI_OK)
            round_to(from, array[i].data);
        trii_work_return(args, array[i].data);
    }
    return status;
}
