/*
 * engine_step.c - forward, backward and step of an engine.
 *
 * Micro-batches before the boundary communicate nothing (tri_ddp_no_sync_begin) in any stage, so
 * that sums are rounded in one order and all stages give the same bits.
 */
#include <math.h>

#include <trireme/gradient.h>
#include <trireme/ops.h>
#include <trireme/parallel.h>
#include <trireme/zero.h>

#include "os/clock.h"
#include "train/deepspeed/engine_internal.h"

/* With OneCycle DeepSpeed sets both betas, the second to this. */
#define CYCLE_BETA2 0.99

/* --- forward and backward ------------------------------------------------- */

static void begin(tri_engine *e)
{
    if (!e->quiet && !trii_engine_at_boundary(e) && tri_module_is_training(e->model)) {
        tri_ddp_no_sync_begin(e->model);
        e->quiet = true;
    }
    if (e->config.precision != TRII_WANTS_F32)
        tri_autocast_begin(e->config.precision == TRII_WANTS_F16 ? TRI_DTYPE_F16 : TRI_DTYPE_BF16);
}

static tri_tensor *widen(const tri_engine *e, tri_tensor *y)
{
    const tri_dtype dtype = y != NULL ? tri_tensor_dtype(y) : TRI_DTYPE_NONE;

    if (e->config.precision != TRII_WANTS_F32)
        tri_autocast_end();
    return dtype == TRI_DTYPE_F16 || dtype == TRI_DTYPE_BF16 ? tri_cast(y, TRI_DTYPE_F32) : y;
}

tri_tensor *tri_engine_forward(tri_engine *e, tri_tensor *x)
{
    tri_tensor *y;
    int64_t begun;

    if (e == NULL)
        return tri_forward(NULL, x);
    begun = trii_now_ns();
    begin(e);
    y = widen(e, tri_forward(e->model, x));
    e->forward_ns += trii_now_ns() - begun;
    return y;
}

void tri_engine_forward_n(tri_engine *e, tri_tensor *const *in, int n_in, tri_tensor **out,
                          int n_out)
{
    if (e == NULL) {
        tri_forward_n(NULL, in, n_in, out, n_out);
        return;
    }
    begin(e);
    tri_forward_n(e->model, in, n_in, out, n_out);
    if (e->config.precision != TRII_WANTS_F32)
        tri_autocast_end();
    for (int i = 0; out != NULL && i < n_out; i++) {
        const tri_dtype dtype = tri_tensor_dtype(out[i]);

        if (dtype == TRI_DTYPE_F16 || dtype == TRI_DTYPE_BF16)
            out[i] = tri_cast(out[i], TRI_DTYPE_F32);
    }
}

void tri_engine_backward(tri_engine *e, tri_tensor *loss)
{
    const int64_t begun = trii_now_ns();

    if (e == NULL || loss == NULL) {
        tri_backward(NULL); /* which fails the step */
        return;
    }
    if (!trii_engine_at_boundary(e) && !e->quiet) {
        tri_ddp_no_sync_begin(e->model);
        e->quiet = true;
    }
    tri_keep(loss);
    e->loss = loss;
    if (e->config.accumulate > 1)
        loss = tri_mul_scalar(loss, 1.0 / (double)e->config.accumulate);
    if (e->scaler != NULL)
        loss = tri_grad_scaler_scale(e->scaler, loss);
    tri_backward(loss);
    e->backward_done = true;
    if (e->quiet)
        tri_ddp_no_sync_end(e->model);
    e->quiet = false;
    e->backward_ns += trii_now_ns() - begun;
}

void tri_engine_train(tri_engine *e, bool training)
{
    tri_module_train(e != NULL ? e->model : NULL, training);
}

/* --- the update ----------------------------------------------------------- */

static double scheduled(double lr, int64_t step, void *arg)
{
    const tri_engine *e = arg;

    return e->schedule != NULL ? e->schedule(lr, step, e->arg)
                               : trii_rate_at(&e->config.rate, lr, step);
}

void trii_engine_set_rate(tri_engine *e)
{
    const int64_t step = trii_engine_updates(e) - e->rate_from;
    const double momentum =
        e->schedule == NULL ? trii_rate_momentum(&e->config.rate, step) : (double)NAN;

    if (e->schedule != NULL || e->config.rate.kind != TRII_RATE_CONSTANT)
        tri_optimizer_schedule(e->optimizer, step, scheduled, e);
    if (isnan(momentum) || isnan(tri_optimizer_hyper(e->optimizer, 0, TRI_HYPER_BETA1)))
        return;
    tri_optimizer_set_hyper(e->optimizer, TRI_ALL_GROUPS, TRI_HYPER_BETA1, momentum);
    tri_optimizer_set_hyper(e->optimizer, TRI_ALL_GROUPS, TRI_HYPER_BETA2, CYCLE_BETA2);
}

void trii_engine_begin_anew(tri_engine *e)
{
    if (e->in_group > 0)
        tri_optimizer_zero_grad(e->optimizer);
    e->in_group = 0;
    e->backward_done = false;
    trii_engine_set_rate(e);
}

static tri_status read_i64(const tri_grad_scaler *scaler, int64_t index, int64_t *value_out)
{
    double value = 0;
    tri_status status = tri_item_status(tri_grad_scaler_state(scaler, index).tensor, &value);

    *value_out = (int64_t)value;
    return status;
}

tri_status trii_engine_read_scaler(tri_engine *e)
{
    tri_status status = read_i64(e->scaler, 1, &e->clean_steps);

    e->left = 1;
    if (status == TRI_OK && tri_grad_scaler_state_count(e->scaler) > 2)
        status = read_i64(e->scaler, 2, &e->left);
    e->scale = tri_grad_scaler_current_scale(e->scaler);
    return status;
}

/* Whether the scaler has let the update pass: it counts those in a row, from 0 when the scale
 * grows. */
static tri_status look_at_scaler(tri_engine *e)
{
    const double scale = e->scale;
    const int64_t clean = e->clean_steps, left = e->left;
    tri_status status = trii_engine_read_scaler(e);

    e->applied = e->clean_steps == clean + 1 || e->scale > scale;
    if (status != TRI_OK || e->applied || !e->config.dynamic || left > 1 ||
        scale > e->config.min_scale)
        return status;
    return TRII_FAIL(TRI_ERR_NAN,
                     "tri_engine_step: a gradient is not finite, and the loss scale is the least "
                     "that fp16.min_loss_scale allows, %g: the loss diverges, try a smaller "
                     "learning rate, or bf16",
                     e->config.min_scale);
}

/* Clips and updates with what the gradients are now, those of so many micro-batches. */
static tri_status update(tri_engine *e, int64_t micro_batches)
{
    const trii_engine_config *c = &e->config;
    tri_tensor *norm = NULL;
    tri_status status;

    if (e->scaler != NULL)
        tri_grad_scaler_unscale(e->scaler, e->optimizer);
    if (c->clip > 0 || c->measure_norm)
        norm = tri_clip_grad_norm(e->optimizer, c->clip > 0 ? c->clip : (double)INFINITY);
    status = e->scaler != NULL ? tri_grad_scaler_step(e->scaler, e->optimizer)
                               : tri_optimizer_step(e->optimizer);
    if (status == TRI_OK && e->scaler != NULL)
        status = tri_grad_scaler_update(e->scaler);
    e->applied = true;
    if (status == TRI_OK && e->scaler != NULL)
        status = look_at_scaler(e);
    if (status == TRI_OK && norm != NULL)
        status = tri_item_status(norm, &e->norm);
    if (status != TRI_OK)
        return status;
    e->global_steps++;
    e->global_samples += micro_batches * e->config.micro_batch * e->size;
    e->skipped_steps += !e->applied;
    trii_engine_set_rate(e);
    return TRI_OK;
}

/* Updates with so many micro-batches; 0: no update is due. */
static tri_status end_micro_batch(tri_engine *e, int64_t micro_batches)
{
    const int64_t begun = trii_now_ns();
    tri_status status = micro_batches > 0 ? update(e, micro_batches) : tri_run();

    e->step_ns += trii_now_ns() - begun;
    if (status != TRI_OK)
        return status;
    e->in_group = micro_batches > 0 ? 0 : e->in_group + 1;
    return micro_batches > 0 ? trii_engine_report(e) : TRI_OK;
}

tri_status tri_engine_step(tri_engine *e)
{
    tri_status status = trii_need(e, "tri_engine_step", "engine");

    if (status != TRI_OK)
        return status;
    if (!e->backward_done)
        return TRII_FAIL(TRI_ERR_STATE, "tri_engine_step: no tri_engine_backward since the last "
                                        "call: a micro-batch is forward, backward, step");
    e->backward_done = false;
    status = end_micro_batch(e, trii_engine_at_boundary(e) ? e->config.accumulate : 0);
    e->micro_steps += status == TRI_OK;
    return status;
}

/* --- a short last group --------------------------------------------------- */

/* A backward of nothing, with no sample on any rank: it averages what has added up. */
static tri_status average(tri_engine *e)
{
    const int64_t none = 0;
    tri_tensor *zero = NULL;
    tri_status status = tri_unshard_begin(e->model);

    if (status != TRI_OK)
        return status;
    for (int64_t i = 0; i < tri_module_state_count(e->model) && zero == NULL; i++) {
        const tri_state_entry entry = tri_module_state(e->model, i);

        if (entry.parameter)
            zero = tri_mul_scalar(tri_sum(entry.tensor, NULL, 0, false), 0);
    }
    tri_backward_of(&zero, 1, &(tri_backward_options){.count = &none});
    return tri_unshard_end(e->model);
}

/* Each loss was divided by the micro-batches of a whole group. */
static tri_status flush(tri_engine *e)
{
    const double share = (double)e->in_group / (double)e->config.accumulate;
    tri_grad_scaler *divide = NULL;
    tri_status status = average(e);

    if (status == TRI_OK)
        status = tri_grad_scaler_create(&(tri_grad_scaler_options){.init_scale = TRI_SET(share)},
                                        &divide);
    if (status != TRI_OK)
        return status;
    tri_grad_scaler_unscale(divide, e->optimizer);
    e->loss = NULL;
    status = end_micro_batch(e, e->in_group);
    tri_grad_scaler_destroy(divide);
    return status;
}

tri_status tri_engine_flush(tri_engine *e)
{
    tri_status status = trii_need(e, "tri_engine_flush", "engine");

    if (status == TRI_OK && e->backward_done)
        status = TRII_FAIL(TRI_ERR_STATE, "tri_engine_flush: tri_engine_step has to follow "
                                          "tri_engine_backward first");
    return status == TRI_OK && e->in_group > 0 ? flush(e) : status;
}
