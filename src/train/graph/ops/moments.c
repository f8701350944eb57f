/*
 * moments.c - variance, deviation and norms, composed of other operations, which have the kernels
 * and gradients.
 */
#include <math.h>

#include "train/graph/ops/reduce_rules.h"

/* --- variance ------------------------------------------------------------- */

static tri_status rec_reduced(trii_step *step, const trii_graph_op *op, trii_vid x, int64_t mask,
                              bool keepdim, trii_vid *out)
{
    trii_attrs attrs;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = mask;
    attrs.i[1] = keepdim;
    return trii_record_values(step, op, &x, 1, &attrs, out);
}

/* What the public functions share: the operand, resolved, and the mask of its dimensions. */
static tri_status operand_of(trii_step *step, tri_tensor *x, const int64_t *dims, int n_dims,
                             trii_vid *id, int64_t *mask)
{
    tri_status status = x != NULL ? trii_resolve(step, x, id)
                                  : TRII_FAIL(TRI_ERR_INVALID_ARG, "x is NULL" TRII_WHENCE_NULL);

    return status == TRI_OK ? trii_reduce_mask(dims, n_dims, trii_type_of(step, *id)->ndim, mask)
                            : status;
}

/* Sum of squared differences from the mean over their number less `correction`. */
static tri_status rec_var(trii_step *step, trii_vid x, int64_t mask, bool keepdim, int correction,
                          trii_vid *out)
{
    double n = (double)trii_reduced_count(trii_type_of(step, x), mask) - correction;
    trii_vid mean = TRII_NO_VALUE, d = TRII_NO_VALUE;
    tri_status status = rec_reduced(step, &trii_op_mean, x, mask, true, &mean);

    if (status == TRI_OK)
        status = trii_rec2(step, &trii_op_sub, x, mean, &d);
    if (status == TRI_OK)
        status = trii_rec1(step, &trii_op_square, d, &d);
    if (status == TRI_OK)
        status = rec_reduced(step, &trii_op_sum, d, mask, keepdim, &d);
    return status == TRI_OK ? trii_rec_scaled(step, d, n > 0 ? 1 / n : (double)INFINITY, out)
                            : status;
}

static tri_tensor *spread_of(const char *name, tri_tensor *x, const int64_t *dims, int n_dims,
                             bool keepdim, int correction, bool root)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE, out = TRII_NO_VALUE;
    int64_t mask = 0;
    tri_status status =
        step != NULL ? operand_of(step, x, dims, n_dims, &id, &mask) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK && correction < 0)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "correction %d: must be at least 0", correction);
    if (status == TRI_OK)
        status = rec_var(step, id, mask, keepdim, correction, &out);
    if (status == TRI_OK && root)
        status = trii_rec1(step, &trii_op_root, out, &out);
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, name, &x, 1, status);
}

tri_tensor *tri_var(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim, int correction)
{
    return spread_of("var", x, dims, n_dims, keepdim, correction, false);
}

tri_tensor *tri_std(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim, int correction)
{
    return spread_of("std", x, dims, n_dims, keepdim, correction, true);
}

/* --- norm ----------------------------------------------------------------- */

static tri_status rec_pow(trii_step *step, trii_vid x, double p, trii_vid *out)
{
    trii_attrs attrs;

    attrs.n_i = 0;
    attrs.n_f = 1;
    attrs.f[0] = p;
    return trii_record_values(step, &trii_op_pow_scalar, &x, 1, &attrs, out);
}

/* The largest, or with -inf the smallest, by its sign turned around twice. */
static tri_status rec_extreme(trii_step *step, trii_vid x, double p, int64_t mask, bool keepdim,
                              trii_vid *out)
{
    tri_status status = TRI_OK;

    if (p < 0)
        status = trii_rec1(step, &trii_op_neg, x, &x);
    if (status == TRI_OK)
        status = rec_reduced(step, &trii_op_amax, x, mask, keepdim, out);
    return status == TRI_OK && p < 0 ? trii_rec1(step, &trii_op_neg, *out, out) : status;
}

static tri_status rec_norm(trii_step *step, trii_vid x, double p, int64_t mask, bool keepdim,
                           trii_vid *out)
{
    trii_vid d = TRII_NO_VALUE;
    tri_status status;

    if (p == 2) {
        status = trii_rec1(step, &trii_op_square, x, &d);
        if (status == TRI_OK)
            status = rec_reduced(step, &trii_op_sum, d, mask, keepdim, &d);
        return status == TRI_OK ? trii_rec1(step, &trii_op_root, d, out) : status;
    }
    status = trii_rec1(step, &trii_op_abs, x, &d);
    if (status == TRI_OK && isinf(p))
        return rec_extreme(step, d, p, mask, keepdim, out);
    if (status == TRI_OK && p != 1)
        status = rec_pow(step, d, p, &d);
    if (status == TRI_OK)
        status = rec_reduced(step, &trii_op_sum, d, mask, keepdim, out);
    return status == TRI_OK && p != 1 ? rec_pow(step, *out, 1 / p, out) : status;
}

tri_tensor *tri_norm(tri_tensor *x, double p, const int64_t *dims, int n_dims, bool keepdim)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE, out = TRII_NO_VALUE;
    int64_t mask = 0;
    tri_status status =
        step != NULL ? operand_of(step, x, dims, n_dims, &id, &mask) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK && (p != p || p == 0))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "p is %g: must be a number other than 0", p);
    if (status == TRI_OK)
        status = rec_norm(step, id, p, mask, keepdim, &out);
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, "norm", &x, 1, status);
}

tri_tensor *tri_amin(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE, out = TRII_NO_VALUE;
    int64_t mask = 0;
    tri_status status =
        step != NULL ? operand_of(step, x, dims, n_dims, &id, &mask) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = rec_extreme(step, id, -1, mask, keepdim, &out);
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, "amin", &x, 1, status);
}
