/*
 * reference_kernel.c - runs the reference kernel of an operation. They know f32 and f64 only:
 * operands of 16 bits are widened for them, and results rounded once, which is what a device's
 * kernels are held to.
 */
#include "base/dtype.h"
#include "train/graph/run/kernel.h"
#include "train/graph/step/type.h"

static bool has_half(const trii_array *arrays, int n)
{
    for (int i = 0; i < n; i++) {
        if (arrays[i].data != NULL && trii_dtype_is_half(arrays[i].type->dtype))
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
        wide[i] = trii_half_to_f32(array->type->dtype, narrow[i]);
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
        narrow[i] = trii_f32_to_half(to->type->dtype, wide[i]);
}

/* No elements: rows may still be many, so nothing is run. Operations that check their operands run
 * anyway. */
static bool makes_nothing(const trii_graph_op *op, const trii_kernel_args *args)
{
    for (int o = 0; o < args->n_out; o++) {
        if (args->out[o].type != NULL && trii_type_numel(args->out[o].type) > 0)
            return false;
    }
    return !op->may_refuse;
}

tri_status trii_reference_kernel(const trii_graph_op *op, const trii_kernel_args *args)
{
    trii_array array[TRII_MAX_INPUTS + TRII_MAX_OUTPUTS];
    trii_type type[TRII_MAX_INPUTS + TRII_MAX_OUTPUTS];
    trii_kernel_args wide = *args;
    int n_in = args->n_in, n = n_in + args->n_out, done = 0;
    tri_status status = TRI_OK;

    if (TRII_UNLIKELY(makes_nothing(op, args)))
        return TRI_OK;
    if (op->precision == TRII_PRECISION_ANY ||
        (!has_half(args->in, n_in) && !has_half(args->out, args->n_out)))
        return op->reference(args);
    for (; done < n && status == TRI_OK; done++) {
        array[done] = done < n_in ? args->in[done] : args->out[done - n_in];
        if (has_half(&array[done], 1))
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
