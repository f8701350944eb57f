/*
 * grad_scaler.c - loss scaling, as torch.amp.GradScaler. The scale, the steps since it last
 * changed, and whether an optimizer's gradients are finite are all tensors, so that nothing waits
 * for a decision: the update reads it (TRII_UPDATE_SKIPS), and the next scale is computed from it.
 */
#include <math.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/type.h"
#include "train/optim/optimizer.h"

#define MAX_OPTIMIZERS 32 /* between two updates of a scaler */

typedef enum stage { READY, UNSCALED, STEPPED } stage;

/* An optimizer that has used the scaler since its last update. */
typedef struct scaled {
    uint64_t optimizer; /* its number: it may be gone, and another one at its address */
    stage stage;
    uint64_t generation; /* of the step that unscaled */
    tri_tensor *found;   /* f32: 1 = some gradient is not finite, 0 = all are, -1 = not checked */
} scaled;

struct tri_grad_scaler {
    bool disabled;
    double growth_factor, backoff_factor;
    int64_t growth_interval;
    double min_scale;
    int hysteresis;
    bool consecutive;
    tri_tensor *scale, *tracker; /* f32 and i64 */
    tri_tensor *left; /* i64: updates to leave out until the scale becomes smaller; NULL: one */
    scaled list[MAX_OPTIMIZERS];
    int n;
};

/* --- making --------------------------------------------------------------- */

static tri_status check(const tri_grad_scaler *s, double scale)
{
    if (!isfinite((float)scale) || !((float)scale >= TRII_LEAST_LOSS_SCALE))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "init_scale %g: it must be finite and above 0, and at least %g", scale,
                         (double)TRII_LEAST_LOSS_SCALE);
    if (!(s->growth_factor > 1) || !isfinite(s->growth_factor))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "growth_factor %g: it must be finite and above 1",
                         s->growth_factor);
    if (!(s->backoff_factor > 0 && s->backoff_factor < 1))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "backoff_factor %g: it must be between 0 and 1",
                         s->backoff_factor);
    if (s->growth_interval < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "growth_interval %lld: it must be at least 1",
                         (long long)s->growth_interval);
    if (!(s->min_scale >= 0 && s->min_scale <= scale))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "min_scale %g: it must be at least 0 and at most init_scale %g",
                         s->min_scale, scale);
    if (s->hysteresis < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "hysteresis %d: it must be at least 1",
                         s->hysteresis);
    return TRI_OK;
}

static tri_status scalar(tri_dtype dtype, double value, tri_tensor **tensor_out)
{
    tri_status status = trii_tensor_create(dtype, NULL, 0, TRI_CPU(0), tensor_out);

    return status == TRI_OK && value != 0 ? tri_init_constant(*tensor_out, value) : status;
}

static tri_status make(tri_grad_scaler *s, const tri_grad_scaler_options *opt)
{
    double scale = trii_option(opt->init_scale, 65536);
    int64_t left;
    tri_status status = TRII_CHECK_RESERVED(tri_grad_scaler_options, opt);

    if (status != TRI_OK)
        return status;
    s->disabled = opt->disabled;
    s->growth_factor = trii_option(opt->growth_factor, 2);
    s->backoff_factor = trii_option(opt->backoff_factor, 0.5);
    s->growth_interval = opt->growth_interval != 0 ? opt->growth_interval : 2000;
    s->min_scale = opt->min_scale;
    s->hysteresis = opt->hysteresis != 0 ? opt->hysteresis : 1;
    left = s->hysteresis;
    s->consecutive = opt->consecutive_hysteresis;
    if (s->disabled)
        return TRI_OK;
    status = check(s, scale);
    if (status == TRI_OK)
        status = scalar(TRI_DTYPE_F32, scale, &s->scale);
    if (status == TRI_OK)
        status = scalar(TRI_DTYPE_I64, 0, &s->tracker);
    if (status != TRI_OK || s->hysteresis == 1)
        return status;
    status = scalar(TRI_DTYPE_I64, 0, &s->left);
    return status == TRI_OK ? tri_tensor_copy_in(s->left, &left, sizeof(left)) : status;
}

tri_status tri_grad_scaler_create(const tri_grad_scaler_options *opt, tri_grad_scaler **scaler_out)
{
    static const tri_grad_scaler_options defaults;
    tri_grad_scaler *s;
    tri_status status;

    if (scaler_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_grad_scaler_create: scaler_out is NULL");
    *scaler_out = NULL;
    s = trii_alloc(1, sizeof(*s), "gradient scaler");
    if (s == NULL)
        return TRI_ERR_NO_MEMORY;
    status = make(s, opt != NULL ? opt : &defaults);
    if (status != TRI_OK) {
        status = TRII_FAIL_CTX(status, "tri_grad_scaler_create");
        tri_grad_scaler_destroy(s);
        return status;
    }
    *scaler_out = s;
    return TRI_OK;
}

void tri_grad_scaler_destroy(tri_grad_scaler *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->n; i++)
        tri_tensor_unref(s->list[i].found);
    tri_tensor_unref(s->scale);
    tri_tensor_unref(s->tracker);
    tri_tensor_unref(s->left);
    trii_free(s);
}

/* --- the loss ------------------------------------------------------------- */

static tri_status scale_loss(trii_step *step, const tri_grad_scaler *s, tri_tensor *loss,
                             trii_vid *out)
{
    trii_vid in[2];
    tri_status status;

    if (loss == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "loss is NULL");
    status = trii_resolve(step, loss, &in[0]);
    if (status == TRI_OK)
        status = trii_resolve(step, s->scale, &in[1]);
    if (status == TRI_OK)
        status = trii_record_to(step, in[1], step->values[in[0]].type.device, &in[1]);
    if (status == TRI_OK && step->values[in[0]].type.dtype == TRI_DTYPE_F64) {
        const trii_attrs wide = {.n_i = 1, .i = {TRI_DTYPE_F64}};

        status = trii_record_values(step, &trii_op_cast, &in[1], 1, &wide, &in[1]);
    }
    return status == TRI_OK ? trii_record_values(step, &trii_op_mul, in, 2, NULL, out) : status;
}

tri_tensor *(tri_grad_scaler_scale)(tri_grad_scaler *s, tri_tensor *loss)
{
    trii_step *step = trii_step_current();
    trii_vid out = TRII_NO_VALUE;
    tri_status status;

    if (step == NULL)
        return trii_tensor_no_memory();
    if (s != NULL && s->disabled && loss != NULL)
        return loss;
    status = s != NULL ? scale_loss(step, s, loss, &out)
                       : TRII_FAIL(TRI_ERR_INVALID_ARG, "scaler is NULL");
    return status != TRI_OK ? trii_handle_refused(step, "grad_scaler_scale", &loss, 1, status)
                            : trii_handle_recorded(step, out);
}

/* --- optimizers ----------------------------------------------------------- */

/* Unscaling in a step that has failed does not count: its flag has never been written. */
static void look_again(scaled *of, const trii_step *step)
{
    if (of->stage == UNSCALED && of->generation != step->generation &&
        *(const float *)trii_tensor_data(of->found) < 0)
        of->stage = READY;
}

static tri_status find(tri_grad_scaler *s, const tri_optimizer *o, const trii_step *step,
                       scaled **out)
{
    int free_one = s->n;

    for (int i = 0; i < s->n; i++) {
        look_again(&s->list[i], step);
        if (s->list[i].optimizer == o->number) {
            *out = &s->list[i];
            return TRI_OK;
        }
        if (s->list[i].stage == READY)
            free_one = i;
    }
    if (free_one == MAX_OPTIMIZERS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "more than %d optimizers before tri_grad_scaler_update", MAX_OPTIMIZERS);
    *out = &s->list[free_one];
    if (free_one == s->n) {
        tri_status status = scalar(TRI_DTYPE_F32, -1, &(*out)->found);

        if (status != TRI_OK) {
            tri_tensor_unref((*out)->found);
            (*out)->found = NULL;
            return status;
        }
        s->n++;
    }
    (*out)->optimizer = o->number;
    (*out)->stage = READY;
    return TRI_OK;
}

static tri_status unscale(const tri_grad_scaler *s, scaled *of, tri_optimizer *o, trii_step *step,
                          bool now)
{
    trii_vid scale, found;
    tri_status status = trii_resolve(step, s->scale, &scale);

    if (status == TRI_OK)
        status = trii_optimizer_unscale(o, step, scale, now, &found);
    if (status == TRI_OK)
        status = trii_bind(step, found, of->found);
    if (status != TRI_OK)
        return status;
    of->stage = UNSCALED;
    of->generation = step->generation;
    return TRI_OK;
}

static tri_status unscale_once(tri_grad_scaler *s, tri_optimizer *o, trii_step *step)
{
    scaled *of;
    tri_status status = s == NULL || o == NULL ? TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is NULL",
                                                           s == NULL ? "scaler" : "optimizer")
                                               : tri_optimizer_status(o);

    if (status == TRI_OK)
        status = find(s, o, step, &of);
    if (status == TRI_OK && of->stage != READY)
        status = TRII_FAIL(TRI_ERR_STATE, "the optimizer %s since the last tri_grad_scaler_update",
                           of->stage == STEPPED ? "has stepped" : "was unscaled already");
    return status == TRI_OK ? unscale(s, of, o, step, true) : status;
}

/* A function that returns no status fails the step. */
void(tri_grad_scaler_unscale)(tri_grad_scaler *s, tri_optimizer *o)
{
    trii_step *step = trii_step_current();
    trii_site site = trii_site_last();
    tri_status status;

    if (step == NULL || (s != NULL && s->disabled))
        return;
    tri_no_grad_begin();
    status = unscale_once(s, o, step);
    tri_no_grad_end();
    if (status == TRI_OK)
        return;
    status = site.file != NULL
                 ? TRII_FAIL_CTX(status, "tri_grad_scaler_unscale at %s:%d", site.file, site.line)
                 : TRII_FAIL_CTX(status, "tri_grad_scaler_unscale");
    trii_step_fail(step, status);
}

static tri_status prepare(tri_grad_scaler *s, tri_optimizer *o, trii_step *step, scaled **of_out)
{
    tri_status status = find(s, o, step, of_out);

    if (status != TRI_OK)
        return status;
    if ((*of_out)->stage == STEPPED)
        return TRII_FAIL(TRI_ERR_STATE, "a second time before tri_grad_scaler_update");
    if ((*of_out)->stage == UNSCALED && (*of_out)->generation != step->generation)
        return TRII_FAIL(TRI_ERR_STATE,
                         "the gradients were unscaled in a step that has ended since: call "
                         "tri_grad_scaler_update, and scale the next loss");
    if ((*of_out)->stage == UNSCALED)
        return TRI_OK;
    tri_no_grad_begin();
    status = unscale(s, *of_out, o, step, false);
    tri_no_grad_end();
    return status;
}

tri_status(tri_grad_scaler_step)(tri_grad_scaler *s, tri_optimizer *o)
{
    trii_step *step;
    scaled *of = NULL;
    tri_status status;

    if (s == NULL || o == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_grad_scaler_step: %s is NULL",
                         s == NULL ? "scaler" : "optimizer");
    status = tri_optimizer_status(o);
    if (status != TRI_OK || s->disabled)
        return status != TRI_OK ? status : trii_optimizer_step_unless(o, NULL);
    step = trii_step_current();
    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    status = prepare(s, o, step, &of);
    if (status == TRI_OK) {
        status = trii_optimizer_step_unless(o, of->found);
        of->stage = status == TRI_OK ? STEPPED : READY;
        return status;
    }
    status = TRII_FAIL_CTX(status, "tri_grad_scaler_step");
    trii_step_fail(step, status); /* what was recorded must not run when the step ends */
    return trii_step_run(step);
}

/* --- the next scale ------------------------------------------------------- */

static tri_status record_next(const tri_grad_scaler *s, trii_step *step, scaled *const *used, int n)
{
    const trii_attrs attrs = {.n_i = 3,
                              .i = {s->growth_interval, s->hysteresis, s->consecutive},
                              .n_f = 3,
                              .f = {s->growth_factor, s->backoff_factor, s->min_scale}};
    const int first = s->left != NULL ? 3 : 2;
    trii_vid in[3 + MAX_OPTIMIZERS], out = TRII_NO_VALUE;
    tri_status status = trii_resolve(step, s->scale, &in[0]);

    if (status == TRI_OK)
        status = trii_resolve(step, s->tracker, &in[1]);
    if (status == TRI_OK && s->left != NULL)
        status = trii_resolve(step, s->left, &in[2]);
    for (int i = 0; i < n && status == TRI_OK; i++)
        status = trii_resolve(step, used[i]->found, &in[first + i]);
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_loss_rescale, in, first + n, &attrs, &out);
    if (status == TRI_OK) {
        (void)trii_handle_recorded(step, out); /* eager mode runs it now */
        status = trii_bind(step, out, s->scale);
    }
    if (status == TRI_OK)
        status = trii_bind(step, out + 1, s->tracker);
    if (status == TRI_OK && s->left != NULL)
        status = trii_bind(step, out + 2, s->left);
    for (int i = 0; i < n && status == TRI_OK; i++)
        status = trii_bind(step, out + first + i, used[i]->found);
    return status;
}

tri_status(tri_grad_scaler_update)(tri_grad_scaler *s)
{
    trii_step *step = trii_step_current();
    scaled *used[MAX_OPTIMIZERS];
    int n = 0;
    tri_status status;

    if (s == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_grad_scaler_update: scaler is NULL");
    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    if (s->disabled)
        return TRI_OK;
    for (int i = 0; i < s->n; i++) {
        look_again(&s->list[i], step);
        if (s->list[i].stage != READY)
            used[n++] = &s->list[i];
    }
    if (n == 0)
        return TRII_FAIL(TRI_ERR_STATE,
                         "tri_grad_scaler_update: no optimizer has stepped or was unscaled since "
                         "the last update: call tri_grad_scaler_step first");
    tri_no_grad_begin();
    status = record_next(s, step, used, n);
    tri_no_grad_end();
    for (int i = 0; i < n; i++)
        used[i]->stage = READY;
    if (status == TRI_OK)
        return TRI_OK;
    status = TRII_FAIL_CTX(status, "tri_grad_scaler_update");
    trii_step_fail(step, status);
    return status;
}

double tri_grad_scaler_current_scale(tri_grad_scaler *s)
{
    double value = (double)NAN;

    if (s == NULL)
        return value;
    if (s->disabled)
        return 1;
    return tri_item_status(s->scale, &value) == TRI_OK ? value : (double)NAN;
}

/* --- state ---------------------------------------------------------------- */

int64_t tri_grad_scaler_state_count(const tri_grad_scaler *s)
{
    if (s == NULL || s->disabled)
        return 0;
    return s->left != NULL ? 3 : 2;
}

tri_state_entry tri_grad_scaler_state(const tri_grad_scaler *s, int64_t index)
{
    if (index < 0 || index >= tri_grad_scaler_state_count(s))
        return (tri_state_entry){0};
    if (index == 0)
        return (tri_state_entry){.name = "scale", .tensor = s->scale};
    return index == 1 ? (tri_state_entry){.name = "growth_tracker", .tensor = s->tracker}
                      : (tri_state_entry){.name = "hysteresis_tracker", .tensor = s->left};
}
