/*
 * clip.c - gradients clipped by their norm or by value, as a part of the recorded step.
 *
 * Clipping the gradients of an optimizer rewrites none of them: the factor is an operand of its
 * updates, so clipping costs one pass over the gradients, and under DDP they stay in their buckets.
 * With several clips, all but the last are recorded as operations that make new gradients.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/dist/unit.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/type.h"
#include "train/optim/optimizer.h"

static const trii_optim_clip no_clip = {.factor = {TRII_NO_VALUE, TRII_NO_VALUE},
                                        .there = {TRII_NO_VALUE, TRII_NO_VALUE}};

/* --- values --------------------------------------------------------------- */

/* The gradient times the factor (NO_VALUE: unchanged), then limited to [-limit, limit] (0: not). */
static tri_status clip_value(trii_step *step, trii_vid *grad_io, trii_vid factor, double limit)
{
    trii_vid in[3] = {*grad_io, *grad_io, factor};
    trii_attrs attrs;

    attrs.n_i = 2;
    attrs.i[0] = TRII_UPDATE_CLIP;
    attrs.i[1] = 0;
    attrs.n_f = 1;
    attrs.f[0] = limit;
    return trii_record_values(step, &trii_op_update, in, factor != TRII_NO_VALUE ? 3 : 2, &attrs,
                              grad_io);
}

static tri_device device_of(const trii_step *step, trii_vid value)
{
    return step->values[value].type.device;
}

/* Of these parameters; NO_VALUE: it has none. */
typedef struct gradients {
    tri_tensor *const *params;
    const trii_vid *grads;
    int n;
} gradients;

/* For each dtype among the gradients the norm, and the factor that brings it to max_norm: [0] f32,
 * [1] f64, NO_VALUE if there is none of it. */
static tri_status factors_of(trii_step *step, trii_stages *stages, const gradients *of,
                             double max_norm, trii_vid norm[2], trii_optim_clip *clip)
{
    trii_vid *factor = clip->factor;
    static const tri_dtype dtypes[2] = {TRI_DTYPE_F32, TRI_DTYPE_F64};
    bool there[2] = {false, false};
    trii_vid total;
    tri_status status = trii_home_square_sum(step, stages, of->params, of->grads, of->n, &total);

    /* when the sums over ranks are recorded, which tell the others why this step fails */
    if (status == TRI_OK && !(max_norm >= 0.0))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "max_norm %g: it must be 0 or more", max_norm);
    for (int i = 0; i < of->n; i++) {
        if (of->grads[i] != TRII_NO_VALUE)
            there[step->values[of->grads[i]].type.dtype == TRI_DTYPE_F64] = true;
    }
    if (stages != NULL) { /* all ranks show it in one */
        there[stages->is_wide] = true;
        stages->given.max_norm = max_norm;
    }
    for (int d = 0; d < 2; d++) {
        trii_attrs attrs;

        norm[d] = factor[d] = TRII_NO_VALUE;
        if (status != TRI_OK || !there[d])
            continue;
        attrs.n_i = 1;
        attrs.i[0] = dtypes[d];
        attrs.n_f = 1;
        attrs.f[0] = max_norm;
        status = trii_record_values(step, &trii_op_clip_factor, &total, 1, &attrs, &norm[d]);
        if (status != TRI_OK)
            continue;
        factor[d] = norm[d] + 1;
        for (int k = 0; k < 2; k++) /* the step may run before they are read */
            step->values[norm[d] + k].keep = true;
    }
    return status;
}

/* The clip's factor for this gradient, on its device; NO_VALUE: it clips by value. */
static tri_status factor_for(trii_step *step, trii_optim_clip *clip, trii_vid grad,
                             trii_vid *factor_out)
{
    bool wide = step->values[grad].type.dtype == TRI_DTYPE_F64;
    tri_device device = device_of(step, grad);
    tri_status status;

    *factor_out = clip->factor[wide];
    if (*factor_out == TRII_NO_VALUE || device_of(step, *factor_out) == device)
        return TRI_OK;
    if (clip->device != device)
        clip->there[0] = clip->there[1] = TRII_NO_VALUE;
    clip->device = device;
    if (clip->there[wide] == TRII_NO_VALUE) {
        status = trii_record_to(step, clip->factor[wide], device, &clip->there[wide]);
        if (status != TRI_OK)
            return status;
        step->values[clip->there[wide]].keep = true;
    }
    *factor_out = clip->there[wide];
    return TRI_OK;
}

/* The handle that shows the norm: in the wider dtype if there are two, 0 without gradients. */
static tri_tensor *norm_handle(trii_step *step, const trii_vid norm[2])
{
    trii_vid id = norm[1] != TRII_NO_VALUE ? norm[1] : norm[0];
    trii_type type = {.dtype = TRI_DTYPE_F32};
    trii_attrs attrs;

    if (id == TRII_NO_VALUE) {
        tri_status status;

        trii_fill_attrs(&type, 0.0, &attrs);
        status = trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, &id);
        if (status != TRI_OK)
            return trii_handle_failed(step, status);
        step->values[id].keep = true;
    }
    return trii_handle_recorded(step, id);
}

/* --- what all four calls share -------------------------------------------- */

static tri_status check_limit(double limit)
{
    return limit > 0.0 ? TRI_OK
                       : TRII_FAIL(TRI_ERR_INVALID_ARG, "limit %g: it must be more than 0", limit);
}

/* The step fails too, for nobody may look at the handle. */
static tri_status end(trii_step *step, const char *call, tri_status status)
{
    trii_site site = trii_site_last();

    tri_no_grad_end();
    if (status == TRI_OK)
        return status;
    status = site.file != NULL ? TRII_FAIL_CTX(status, "%s at %s:%d", call, site.file, site.line)
                               : TRII_FAIL_CTX(status, "%s", call);
    trii_step_fail(step, status);
    return status;
}

/* --- of an optimizer ------------------------------------------------------ */

static tri_status clip_is_current(const tri_optimizer *o, const trii_step *step)
{
    if (o->n_clips == 0 || o->clip_generation == step->generation)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s: gradients were clipped in a step that has ended: clip them between the "
                     "last tri_backward and tri_optimizer_step of one step",
                     o->ops->name);
}

/* Finds which value is the parameter's gradient now, and checks that it is the one that was clipped
 * before. */
static tri_status gradient_of(const tri_optimizer *o, trii_step *step,
                              const trii_optim_param *param, trii_vid *grad_out)
{
    *grad_out = TRII_NO_VALUE;
    if (trii_has_grad(param->home)) {
        tri_status status = trii_resolve(step, param->home->grad, grad_out);

        if (status != TRI_OK)
            return status;
    }
    if (o->n_clips > 0 && *grad_out != param->clipped)
        return TRII_FAIL(TRI_ERR_STATE,
                         "the gradient of %s has changed since it was clipped: clip after the "
                         "last tri_backward",
                         param->name);
    return TRI_OK;
}

/* Applies the first n_clips clips to the gradients. */
static tri_status apply(tri_optimizer *o, trii_step *step, int n_clips, trii_vid *grad_io)
{
    tri_status status = TRI_OK;

    for (int c = 0; c < n_clips && status == TRI_OK; c++) {
        trii_vid factor;

        status = factor_for(step, &o->clips[c], *grad_io, &factor);
        if (status == TRI_OK)
            status = clip_value(step, grad_io, factor, o->clips[c].limit);
    }
    return status;
}

tri_status trii_optimizer_clipped(tri_optimizer *o, trii_step *step, const trii_optim_param *param,
                                  trii_vid *grad_io, trii_vid *scale_out, double *limit_out)
{
    trii_optim_clip *last = &o->clips[o->n_clips - 1];
    tri_status status = clip_is_current(o, step);

    if (status != TRI_OK)
        return status;
    if (*grad_io != param->clipped)
        return TRII_FAIL(TRI_ERR_STATE,
                         "its gradient has changed since it was clipped: clip after the last "
                         "tri_backward");
    if (*grad_io == TRII_NO_VALUE)
        return TRI_OK;
    status = apply(o, step, o->n_clips - 1, grad_io);
    *limit_out = last->limit;
    return status == TRI_OK ? factor_for(step, last, *grad_io, scale_out) : status;
}

static tri_status ready(tri_optimizer *o, trii_step *step)
{
    tri_status status = tri_optimizer_status(o);

    if (status == TRI_OK)
        status = clip_is_current(o, step);
    if (status == TRI_OK && o->n_clips == TRII_CLIPS)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: more than %d clips before tri_optimizer_step",
                           o->ops->name, TRII_CLIPS);
    return status == TRI_OK ? trii_optimizer_before_update(o, step) : status;
}

/* The gradients that the next update shall read: with the clips so far (applied), or without. */
static tri_status gradients_to_clip(tri_optimizer *o, trii_step *step, bool applied)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < o->n_params && status == TRI_OK; i++) {
        trii_vid grad;

        status = gradient_of(o, step, &o->params[i], &grad);
        o->grads[i] = grad;
        if (status == TRI_OK)
            o->params[i].clipped = grad;
        if (status == TRI_OK && applied && grad != TRII_NO_VALUE)
            status = apply(o, step, o->n_clips, &o->grads[i]);
    }
    return status;
}

/* Adds a clip; by norm if `norm` is not NULL. */
static tri_status add_clip(tri_optimizer *o, trii_step *step, double bound, trii_vid *norm)
{
    const gradients of = {o->tensors, o->grads, o->n_params};
    trii_optim_clip clip = no_clip;
    tri_status status = gradients_to_clip(o, step, norm != NULL);

    if (status == TRI_OK && norm != NULL)
        status = factors_of(step, o->stages, &of, bound, norm, &clip);
    else
        clip.limit = bound;
    if (status != TRI_OK)
        return status;
    o->clip_generation = step->generation;
    o->clips[o->n_clips++] = clip;
    return TRI_OK;
}

static tri_status clip_optimizer(tri_optimizer *o, trii_step *step, double bound, trii_vid *norm)
{
    tri_status status = norm == NULL ? check_limit(bound) : TRI_OK;

    if (status == TRI_OK)
        status = ready(o, step);
    return status == TRI_OK ? add_clip(o, step, bound, norm) : status;
}

tri_tensor *(tri_clip_grad_norm)(tri_optimizer *o, double max_norm)
{
    trii_step *step = trii_step_current();
    trii_vid norm[2] = {TRII_NO_VALUE, TRII_NO_VALUE};
    tri_status status;

    if (step == NULL)
        return trii_tensor_no_memory();
    tri_no_grad_begin();
    status = end(step, "tri_clip_grad_norm", clip_optimizer(o, step, max_norm, norm));
    return status != TRI_OK ? trii_handle_failed(step, status) : norm_handle(step, norm);
}

void(tri_clip_grad_value)(tri_optimizer *o, double limit)
{
    trii_step *step = trii_step_current();

    if (step == NULL)
        return; /* the next run has no memory either */
    tri_no_grad_begin();
    (void)end(step, "tri_clip_grad_value", clip_optimizer(o, step, limit, NULL));
}

/* --- of a scaler ---------------------------------------------------------- */

/* The factor for the gradients, f32 and f64, and whether one of them is not finite. */
static tri_status inverse_of(const tri_optimizer *o, trii_step *step, trii_vid scale,
                             trii_optim_clip *clip, trii_vid *found_out)
{
    trii_vid in[2] = {TRII_NO_VALUE, scale}, found;
    tri_status status =
        trii_home_square_sum(step, o->stages, o->tensors, o->grads, o->n_params, &in[0]);

    if (status == TRI_OK && in[0] != TRII_NO_VALUE)
        status = trii_record_to(step, in[0], TRI_CPU(0), &in[0]);
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_loss_unscale, in, 2, NULL, &found);
    if (status != TRI_OK)
        return status;
    for (int k = 0; k < 3; k++) /* the step may run before they are read */
        step->values[found + k].keep = true;
    clip->factor[0] = found + 1;
    clip->factor[1] = found + 2;
    *found_out = found;
    return TRI_OK;
}

/* Replaces the gradients themselves. */
static tri_status unscale_now(const tri_optimizer *o, trii_step *step, trii_optim_clip *clip)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < o->n_params && status == TRI_OK; i++) {
        trii_vid grad = o->grads[i], factor;

        if (grad == TRII_NO_VALUE)
            continue;
        status = factor_for(step, clip, grad, &factor);
        if (status == TRI_OK)
            status = clip_value(step, &grad, factor, 0.0);
        if (status == TRI_OK)
            status = trii_grad_bind(step, grad, o->params[i].home);
    }
    return status;
}

tri_status trii_optimizer_unscale(tri_optimizer *o, trii_step *step, trii_vid scale, bool now,
                                  trii_vid *found_out)
{
    trii_optim_clip clip = no_clip;
    tri_status status = tri_optimizer_status(o);

    if (status == TRI_OK)
        status = clip_is_current(o, step);
    if (status == TRI_OK && now && o->n_clips > 0)
        status = TRII_FAIL(TRI_ERR_STATE, "%s: gradients were clipped before: unscale them first",
                           o->ops->name);
    if (status == TRI_OK)
        status = trii_optimizer_before_update(o, step);
    if (status == TRI_OK)
        status = gradients_to_clip(o, step, true);
    if (status == TRI_OK)
        status = inverse_of(o, step, scale, &clip, found_out);
    if (status != TRI_OK || now)
        return status != TRI_OK ? status : unscale_now(o, step, &clip);
    o->clip_generation = step->generation;
    o->clips[o->n_clips++] = clip;
    return TRI_OK;
}

/* --- of an optimizer, with gradients elsewhere ---------------------------- */

static tri_status record_square_sum(tri_optimizer *o, trii_step *step, trii_vid *total_out)
{
    tri_status status = clip_is_current(o, step);

    if (status == TRI_OK)
        status = gradients_to_clip(o, step, true);
    return status == TRI_OK
               ? trii_home_square_sum(step, o->stages, o->tensors, o->grads, o->n_params, total_out)
               : status;
}

tri_status trii_optimizer_square_sum(tri_optimizer *o, trii_step *step, double *squares_out)
{
    trii_vid total = TRII_NO_VALUE;
    tri_status status;

    *squares_out = 0;
    tri_no_grad_begin();
    status = record_square_sum(o, step, &total);
    tri_no_grad_end();
    if (status != TRI_OK || total == TRII_NO_VALUE)
        return status;
    return tri_item_status(trii_handle_recorded(step, total), squares_out);
}

static tri_status add_factor(tri_optimizer *o, trii_step *step, double factor)
{
    static const tri_dtype dtypes[2] = {TRI_DTYPE_F32, TRI_DTYPE_F64};
    trii_optim_clip clip = no_clip;
    tri_status status = clip_is_current(o, step);

    if (status == TRI_OK && o->n_clips > TRII_CLIPS)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: more than %d clips before a step",
                           o->ops->name, TRII_CLIPS);
    if (status == TRI_OK)
        status = gradients_to_clip(o, step, false);
    for (int d = 0; d < 2 && status == TRI_OK; d++) {
        const trii_type type = {.dtype = dtypes[d]};
        trii_attrs attrs;

        trii_fill_attrs(&type, factor, &attrs);
        status = trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, &clip.factor[d]);
        if (status == TRI_OK)
            step->values[clip.factor[d]].keep = true;
    }
    if (status != TRI_OK)
        return status;
    o->clip_generation = step->generation;
    o->clips[o->n_clips++] = clip;
    return TRI_OK;
}

tri_status trii_optimizer_scale_next(tri_optimizer *o, trii_step *step, double factor)
{
    tri_status status;

    tri_no_grad_begin();
    status = add_factor(o, step, factor);
    tri_no_grad_end();
    return status;
}

/* --- of a list ------------------------------------------------------------ */

static tri_status gradient_of_home(trii_step *step, tri_tensor *param, int i, trii_vid *grad_out)
{
    tri_tensor *home = trii_home(param);
    char name[32];

    *grad_out = TRII_NO_VALUE;
    if (TRII_UNLIKELY(home != param)) {
        tri_status status;

        (void)snprintf(name, sizeof(name), "element %d of the list", i);
        status = trii_home_check(step, param, home, "the list", name);
        if (status != TRI_OK)
            return status;
    }
    return trii_has_grad(home) ? trii_resolve(step, home->grad, grad_out) : TRI_OK;
}

static tri_status gradients_of(trii_step *step, tri_tensor *const *params, int n, trii_vid *grads)
{
    trii_unit *last = NULL;
    tri_status status = TRI_OK;

    for (int i = 0; i < n; i++) {
        if (params[i] == NULL || trii_is_handle(params[i]))
            return TRII_FAIL(
                TRI_ERR_INVALID_ARG,
                "element %d of the list is %s: only persistent tensors have a gradient", i,
                params[i] == NULL ? "NULL" : "a value of a step");
        if (trii_home(params[i])->status != TRI_OK)
            return tri_tensor_status(trii_home(params[i]));
    }
    for (int i = 0; i < n && status == TRI_OK; i++)
        status = trii_unit_before_update(params[i], &last, step);
    for (int i = 0; i < n && status == TRI_OK; i++)
        status = gradient_of_home(step, params[i], i, &grads[i]);
    return status;
}

static trii_stages *stages_of(tri_tensor *const *params, int n)
{
    for (int i = 0; i < n; i++)
        if (params[i]->staged != NULL)
            return params[i]->staged->of;
    return NULL;
}

/* By norm if `norm` is not NULL. */
static tri_status clip_list(trii_step *step, tri_tensor *const *params, int n, double bound,
                            trii_vid *norm)
{
    trii_optim_clip clip = no_clip;
    trii_vid *grads;
    tri_status status = norm == NULL ? check_limit(bound) : TRI_OK;

    if (status != TRI_OK)
        return status;
    if (n < 0 || (n > 0 && params == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "a list of %d tensors at %s", n,
                         params == NULL ? "NULL" : "a valid address");
    grads = trii_alloc((size_t)n + 1, sizeof(*grads), "gradients to clip");
    if (grads == NULL)
        return TRI_ERR_NO_MEMORY;
    status = gradients_of(step, params, n, grads);
    if (status == TRI_OK && norm != NULL)
        status = factors_of(step, stages_of(params, n), &(gradients){params, grads, n}, bound, norm,
                            &clip);
    for (int i = 0; i < n && status == TRI_OK; i++) {
        trii_vid factor;

        if (grads[i] == TRII_NO_VALUE)
            continue;
        status = factor_for(step, &clip, grads[i], &factor);
        if (status == TRI_OK)
            status = clip_value(step, &grads[i], factor, norm != NULL ? 0.0 : bound);
        if (status == TRI_OK)
            status = trii_grad_bind(step, grads[i], trii_home(params[i]));
    }
    trii_free(grads);
    return status;
}

tri_tensor *(tri_clip_grad_norm_of)(tri_tensor *const *params, int n, double max_norm)
{
    trii_step *step = trii_step_current();
    trii_vid norm[2] = {TRII_NO_VALUE, TRII_NO_VALUE};
    tri_status status;

    if (step == NULL)
        return trii_tensor_no_memory();
    tri_no_grad_begin();
    status = end(step, "tri_clip_grad_norm_of", clip_list(step, params, n, max_norm, norm));
    return status != TRI_OK ? trii_handle_failed(step, status) : norm_handle(step, norm);
}

void(tri_clip_grad_value_of)(tri_tensor *const *params, int n, double limit)
{
    trii_step *step = trii_step_current();

    if (step == NULL)
        return;
    tri_no_grad_begin();
    (void)end(step, "tri_clip_grad_value_of", clip_list(step, params, n, limit, NULL));
}
