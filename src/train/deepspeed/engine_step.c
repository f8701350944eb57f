/*
 * engine_step.c - forward, backward and step of an engine.
 *
 * Micro-batches before the boundary communicate nothing (tri_ddp_no_sync_begin) in any stage, so
 * that sums are rounded in one order and all stages give the same bits.
 */
#include <math.h>

#include <trireme/ops.h>
#include <trireme/parallel.h>

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
    if (e == NULL)
        return tri_forward(NULL, x);
    begin(e);
    return widen(e, tri_forward(e->model, x));
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
    if (e == NULL || loss == NULL) {
        tri_backward(NULL); /* which fails the step */
        return;
    }
    if (!trii_engine_at_boundary(e) && !e->quiet) {
        tri_ddp_no_sync_begin(e->model);
        e->quiet = true;
    }
    tri_keep(loss);
    if (e->config.accumulate > 1)
        loss = tri_mul_scalar(loss, 1.0 / (double)e->config.accumulate);
    if (e->scaler != NULL)
        loss = tri_grad_scaler_scale(e->scaler, loss);
    tri_backward(loss);
    e->backward_done = true;
    if (e->quiet)
        tri_ddp_no_sync_end(e->model);
    e->quiet = false;
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
    const int64_t step = e->global_steps - e->skipped_steps;
    const double momentum =
        e->schedule == NULL ? trii_rate_momentum(&e->config.rate, step) : (double)NAN;

    if (e->schedule != NULL || e->config.rate.kind != TRII_RATE_CONSTANT)
        tri_optimizer_schedule(e->optimizer, step, scheduled, e);
    if (isnan(momentum) || isnan(tri_optimizer_hyper(e->optimizer, 0, TRI_HYPER_BETA1)))
        return;
    tri_optimizer_set_hyper(e->optimizer, TRI_ALL_GROUPS, TRI_HYPER_BETA1, momentum);
    tri_optimizer_set_hyper(e->optimizer, TRI_ALL_GROUPS, TRI_HYPER_BETA2, CYCLE_BETA2);
}

/* Whether the scaler has let the update pass: it counts those in a row, from 0 when the scale
 * grows. */
static tri_status look_at_scaler(tri_engine *e)
{
    const tri_state_entry tracker = tri_grad_scaler_state(e->scaler, 1);
    const double before = e->scale;
    double count = 0;
    tri_status status = tri_item_status(tracker.tensor, &count);

    if (status != TRI_OK)
        return status;
    e->scale = tri_grad_scaler_current_scale(e->scaler);
    e->applied = (int64_t)count == e->clean_steps + 1 || e->scale > before;
    e->clean_steps = (int64_t)count;
    return TRI_OK;
}

static tri_status update(tri_engine *e)
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
    e->skipped_steps += !e->applied;
    trii_engine_set_rate(e);
    return TRI_OK;
}

tri_status tri_engine_step(tri_engine *e)
{
    bool last;
    tri_status status = trii_need(e, "tri_engine_step", "engine");

    if (status != TRI_OK)
        return status;
    if (!e->backward_done)
        return TRII_FAIL(TRI_ERR_STATE, "tri_engine_step: no tri_engine_backward since the last "
                                        "call: a micro-batch is forward, backward, step");
    last = trii_engine_at_boundary(e);
    e->backward_done = false;
    status = last ? update(e) : tri_run();
    if (status != TRI_OK)
        return status;
    e->micro_steps++;
    e->in_group = last ? 0 : e->in_group + 1;
    return TRI_OK;
}

/* --- what it knows -------------------------------------------------------- */

int64_t tri_engine_train_batch_size(const tri_engine *e)
{
    return e != NULL ? e->config.train_batch : 0;
}

int64_t tri_engine_train_micro_batch_size_per_gpu(const tri_engine *e)
{
    return e != NULL ? e->config.micro_batch : 0;
}

int64_t tri_engine_gradient_accumulation_steps(const tri_engine *e)
{
    return e != NULL ? e->config.accumulate : 0;
}

bool tri_engine_is_gradient_accumulation_boundary(const tri_engine *e)
{
    return e != NULL && trii_engine_at_boundary(e);
}

bool tri_engine_was_step_applied(const tri_engine *e)
{
    return e != NULL && e->applied;
}

double tri_engine_lr(const tri_engine *e)
{
    return e != NULL ? tri_optimizer_lr(e->optimizer) : (double)NAN;
}

double tri_engine_loss_scale(const tri_engine *e)
{
    return e != NULL ? e->scale : (double)NAN;
}

double tri_engine_global_grad_norm(const tri_engine *e)
{
    return e != NULL ? e->norm : (double)NAN;
}

int64_t tri_engine_global_steps(const tri_engine *e)
{
    return e != NULL ? e->global_steps : 0;
}

int64_t tri_engine_skipped_steps(const tri_engine *e)
{
    return e != NULL ? e->skipped_steps : 0;
}

int64_t tri_engine_global_samples(const tri_engine *e)
{
    return e != NULL ? e->global_steps * e->config.train_batch : 0;
}

int64_t tri_engine_micro_steps(const tri_engine *e)
{
    return e != NULL ? e->micro_steps : 0;
}

tri_module *tri_engine_module(const tri_engine *e)
{
    return e != NULL ? e->model : NULL;
}

tri_optimizer *tri_engine_optimizer(const tri_engine *e)
{
    return e != NULL ? e->optimizer : NULL;
}

tri_loader *tri_engine_training_dataloader(const tri_engine *e)
{
    return e != NULL ? e->loader : NULL;
}
