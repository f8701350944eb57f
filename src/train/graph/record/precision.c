/*
 * precision.c - bf16 and f16: which operations run in them, and the casts around the others.
 *
 * Under tri_autocast, operations that spend their time multiplying (TRII_PRECISION_LOWERED) round
 * their f32 activations to its type. What follows stays in it as long as all its activations are of
 * it; everything else gets its operands widened to f32. Parameters, their gradients and statistics
 * are f32 throughout, so there is one master copy and nothing is rounded twice. The casts are
 * recorded like any operation: their gradients bring each value's gradient to its own type.
 */
#include "base/dtype.h"
#include "train/graph/record/record.h"
#include "train/graph/step/recorder.h"

void tri_autocast_begin(tri_dtype dtype)
{
    trii_step *step = trii_step_current();
    trii_autocast *autocast;

    if (step == NULL)
        return;
    autocast = &trii_recorder_of(step)->scopes.autocast;
    if (!trii_dtype_is_half(dtype))
        trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                       "tri_autocast_begin: to %s; bf16 and f16 are supported",
                                       tri_dtype_name(dtype)));
    if (autocast->depth >= TRII_AUTOCAST_DEPTH)
        trii_step_fail(step,
                       TRII_FAIL(TRI_ERR_STATE, "tri_autocast_begin: nested more than %d deep",
                                 TRII_AUTOCAST_DEPTH));
    autocast->f16 = autocast->f16 << 1 | (dtype == TRI_DTYPE_F16);
    autocast->depth++;
}

void tri_autocast_end(void)
{
    trii_step *step = trii_step_current();
    trii_autocast *autocast;

    if (step == NULL)
        return;
    autocast = &trii_recorder_of(step)->scopes.autocast;
    if (autocast->depth == 0) {
        trii_step_fail(step,
                       TRII_FAIL(TRI_ERR_STATE, "tri_autocast_end without tri_autocast_begin"));
        return;
    }
    autocast->f16 >>= 1;
    autocast->depth--;
}

static bool lowers(const trii_step *step, const trii_graph_op *op)
{
    return op->precision == TRII_PRECISION_LOWERED && step->recorder->scopes.autocast.depth > 0;
}

bool trii_precision_matters(const trii_step *step, const trii_graph_op *op,
                            const trii_type *const *types, int n_in)
{
    bool half = false;

    if (op->precision == TRII_PRECISION_ANY)
        return false;
    for (int i = 0; i < n_in; i++)
        half |= types[i] != NULL && trii_dtype_is_half(types[i]->dtype);
    return half || lowers(step, op);
}

/* The 16-bit type that all activations have, or that autocast gives them; NONE: f32. */
static tri_dtype runs_in(const trii_step *step, const trii_graph_op *op, const trii_vid *in,
                         int n_in)
{
    bool lower = lowers(step, op);
    tri_dtype narrow = lower ? trii_autocast_to(&step->recorder->scopes.autocast) : TRI_DTYPE_NONE;

    if (op->precision < TRII_PRECISION_FOLLOWS)
        return TRI_DTYPE_NONE;
    for (int i = 0; i < n_in; i++) {
        tri_dtype dtype;

        if ((op->activations_in >> i & 1) == 0 || in[i] == TRII_NO_VALUE)
            continue;
        dtype = step->values[in[i]].type.dtype;
        if (!trii_dtype_is_half(dtype) && !(lower && dtype == TRI_DTYPE_F32))
            return TRI_DTYPE_NONE;
        if (!lower && narrow != TRI_DTYPE_NONE && narrow != dtype)
            /* where bf16 and f16 are both operands, the operation runs in f32 */
            return TRI_DTYPE_NONE;
        narrow = lower ? narrow : dtype;
    }
    return narrow;
}

tri_status trii_precision_fit(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                              int n_in, trii_vid *fitted, tri_dtype *narrow_out)
{
    tri_dtype narrow = runs_in(step, op, in, n_in);
    tri_status status = trii_step_reserve(step, n_in + 1);

    for (int i = 0; i < n_in && status == TRI_OK; i++) {
        bool lowered = narrow != TRI_DTYPE_NONE && (op->activations_in >> i & 1) != 0;
        tri_dtype have;

        fitted[i] = in[i];
        if (in[i] == TRII_NO_VALUE)
            continue;
        have = step->values[in[i]].type.dtype;
        if (trii_dtype_is_half(have) || (lowered && have == TRI_DTYPE_F32))
            status = trii_rec_cast(step, in[i], lowered ? narrow : TRI_DTYPE_F32, &fitted[i]);
    }
    *narrow_out = narrow;
    return status;
}
