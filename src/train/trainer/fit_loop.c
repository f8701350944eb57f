/*
 * fit_loop.c - epochs and updates.
 */
#include <inttypes.h>

#include <trireme/ops.h>

#include "train/graph/step/step.h"
#include "train/trainer/log_book.h"
#include "train/trainer/trainer_policy.h"

/* --- one batch ------------------------------------------------------------ */

/* Samples of this rank in the batches of the update that begins with the next one. */
static double count_group(const tri_trainer *t)
{
    double samples = 0;
    int64_t end = t->batch + t->set.accumulate;

    if (end > t->train.n_batches)
        end = t->train.n_batches;
    for (int64_t b = t->batch; b < end; b++)
        samples += (double)trii_part_batch_samples(&t->train, b);
    return samples;
}

static double lr_of(double lr, int64_t step, void *arg)
{
    const tri_trainer *t = arg;

    return t->task->lr(lr, step, t->total_steps, t->arg);
}

static tri_status update(tri_trainer *t)
{
    double clip = t->opt->gradient_clip_val;
    tri_status status;

    if (clip > 0) {
        if (t->scaler != NULL)
            tri_grad_scaler_unscale(t->scaler, t->optimizer);
        if (t->set.clip_value)
            tri_clip_grad_value(t->optimizer, clip);
        else
            (void)tri_clip_grad_norm(t->optimizer, clip);
    }
    if (t->task->lr != NULL)
        tri_optimizer_schedule(t->optimizer, t->step, lr_of, t);
    if (TRII_LIKELY(t->scaler == NULL))
        return tri_optimizer_step(t->optimizer);
    status = tri_grad_scaler_step(t->scaler, t->optimizer);
    return status == TRI_OK ? tri_grad_scaler_update(t->scaler) : status;
}

/* What is recorded of one batch, and its run; `last` of those of an update. */
static tri_status run_step(tri_trainer *t, const tri_batch *batch, bool last)
{
    static const tri_trainer_log_options shown = {.progress_bar = true};
    tri_tensor *loss = trii_fit_training_step(t, batch);

    if (loss == NULL) {
        t->in_step = false;
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "training_step of the task returned NULL at batch %" PRId64
                         " of epoch %" PRId64,
                         t->batch, t->epoch);
    }
    tri_trainer_log(t, "loss", loss, &shown);
    t->in_step = false;
    if ((double)batch->size != t->group_samples)
        loss = tri_mul_scalar(loss, (double)batch->size / t->group_samples);
    if (t->scaler != NULL)
        loss = tri_grad_scaler_scale(t->scaler, loss);
    tri_backward(loss);
    return last ? update(t) : tri_run();
}

static tri_status train_batch(tri_trainer *t, const tri_batch *batch)
{
    bool last = t->batch + 1 == t->train.n_batches || t->n_in_group + 1 == t->set.accumulate;
    bool due = (t->step + 1) % t->set.log_every == 0;
    tri_status status, ended;

    t->batch_samples = batch->size;
    if (t->n_in_group == 0)
        t->group_samples = count_group(t);
    trii_book_batch(t, due);
    if (last)
        trii_fit_vote(t);
    else
        tri_ddp_no_sync_begin(t->model);
    status = run_step(t, batch, last);
    if (!last)
        tri_ddp_no_sync_end(t->model);
    if (status == TRI_OK)
        status = trii_book_take(t);
    if (TRII_UNLIKELY(status != TRI_OK))
        return status;
    ended = tri_step_end_status();
    t->batch++;
    t->batches_ever++;
    t->n_in_group = last ? 0 : t->n_in_group + 1;
    if (!last || ended != TRI_OK)
        return ended;
    t->step++;
    t->validated_here = false;
    status = t->average != NULL ? trii_average_update(t) : TRI_OK;
    if (status == TRI_OK && due)
        status = trii_book_step(t);
    if (status == TRI_OK)
        status = trii_fit_voted(t);
    if (t->step == t->set.max_steps && t->reason == TRI_STOP_NONE)
        trii_fit_end_with(t, TRI_STOP_MAX_STEPS, "max_steps=%" PRId64 " reached", t->step);
    return status;
}

/* --- validation when it is due -------------------------------------------- */

static tri_status validate(tri_trainer *t)
{
    tri_status status = trii_fit_evaluate(t, TRII_PHASE_VAL, -1);

    if (status != TRI_OK)
        return status;
    trii_fit_say_values(t, true);
    return trii_early_look(t, false);
}

static bool due_after_batch(const tri_trainer *t)
{
    int64_t interval = t->opt->val_check_interval;

    if (interval == 0 || t->val.dataset == NULL)
        return false;
    if (interval > t->train.n_batches)
        return t->batches_ever % interval == 0;
    return t->batch % interval == 0 && (t->epoch + 1) % t->set.check_every_epoch == 0;
}

/* There is no time to validate: the run does that when it is resumed. */
static bool is_hurried(const tri_trainer *t)
{
    return t->reason == TRI_STOP_SIGNAL || t->reason == TRI_STOP_MAX_TIME;
}

/* Where an epoch ends, or is cut off by what leaves time to look at the result. */
static bool due_after_epoch(const tri_trainer *t)
{
    if (t->val.dataset == NULL || t->validated_here)
        return false;
    if (t->batch < t->train.n_batches)
        return true;
    return t->opt->val_check_interval == 0 && (t->epoch + 1) % t->set.check_every_epoch == 0;
}

/* --- one epoch ------------------------------------------------------------ */

static tri_status next_batch(tri_trainer *t)
{
    int64_t steps = t->step;
    tri_batch batch;
    tri_status status = tri_loader_next(t->train.loader, &batch);

    if (status != TRI_OK)
        return status < 0
                   ? status
                   : TRII_FAIL(TRI_ERR_INTERNAL, "the loader has no batch %" PRId64, t->batch);
    status = trii_batch_hooks(t, batch_begin, &batch);
    if (status == TRI_OK)
        status = train_batch(t, &batch);
    if (TRII_UNLIKELY(t->first_batch) && status == TRI_OK)
        trii_book_doubt(t);
    t->first_batch = false;
    if (status == TRI_OK)
        status = trii_batch_hooks(t, batch_end, &batch);
    if (status != TRI_OK)
        return status;
    trii_fit_screen_batch(t);
    if (due_after_batch(t) && !is_hurried(t))
        status = validate(t);
    return status == TRI_OK && t->step > steps ? trii_policy_step(t) : status;
}

/* The last epoch that max_epochs allows, or all ranks want to end. */
static tri_status decide(tri_trainer *t)
{
    if (t->reason != TRI_STOP_NONE)
        return TRI_OK;
    if (t->epoch == t->set.max_epochs) {
        trii_fit_end_with(t, TRI_STOP_MAX_EPOCHS, "max_epochs=%" PRId64 " reached", t->epoch);
        return TRI_OK;
    }
    return trii_fit_agree(t);
}

static tri_status finish_epoch(tri_trainer *t)
{
    bool whole = t->batch == t->train.n_batches;
    tri_status status = TRI_OK;

    if (is_hurried(t) && (!whole || due_after_epoch(t)))
        return TRI_OK; /* it goes on when the run is resumed */
    if (due_after_epoch(t))
        status = validate(t);
    if (status == TRI_OK)
        status = trii_book_end(t, TRII_PHASE_TRAIN);
    if (status == TRI_OK)
        trii_fit_say_values(t, false);
    if (status == TRI_OK)
        status = trii_hooks(t, epoch_end);
    if (status == TRI_OK)
        status = trii_early_look(t, true);
    if (status != TRI_OK || !whole)
        return status;
    t->epoch++;
    t->batch = 0;
    status = decide(t);
    return status == TRI_OK ? trii_policy_epoch(t) : status;
}

static tri_status run_epoch(tri_trainer *t)
{
    tri_status status = trii_hooks(t, epoch_begin);

    if (status == TRI_OK && t->batch == 0) /* else its sums were resumed, too */
        status = trii_book_begin(t, TRII_PHASE_TRAIN);
    if (status == TRI_OK)
        status = tri_loader_begin(t->train.loader, t->epoch, t->batch);
    if (status == TRI_OK && t->validation_owed && due_after_batch(t)) {
        status = validate(t);
        if (status == TRI_OK) /* its value belongs to this update */
            status = trii_policy_step(t);
    }
    t->validation_owed = false;
    while (status == TRI_OK && t->batch < t->train.n_batches && t->reason == TRI_STOP_NONE)
        status = next_batch(t);
    return status == TRI_OK ? finish_epoch(t) : status;
}

/* --- the fit -------------------------------------------------------------- */

static tri_status check_sanity(tri_trainer *t)
{
    if (t->val.dataset == NULL || t->set.sanity == 0 || t->resumed)
        return TRI_OK;
    return trii_fit_evaluate(t, TRII_PHASE_SANITY, t->set.sanity);
}

/* A warm-up that begins at 0 wastes an update, which nobody sees in the curves. */
static void name_odd_rate(tri_trainer *t)
{
    double lr = tri_optimizer_lr(t->optimizer);

    if (t->task->lr == NULL || t->step > 0 || lr == 0 || lr_of(lr, 0, t) != 0)
        return;
    trii_fit_say(t, "the learning rate of the first update is 0, so that it changes nothing: "
                    "(step + 1) / n warms up from the first one on");
}

/* A run that is resumed may be complete already. */
static void look_at_start(tri_trainer *t)
{
    bool over = (t->set.max_epochs >= 0 && t->epoch >= t->set.max_epochs) ||
                (t->set.max_steps >= 0 && t->step >= t->set.max_steps);

    if (!over)
        return;
    trii_fit_end_with(t, TRI_STOP_NONE,
                      "the run was complete: %" PRId64 " epochs, %" PRId64 " updates", t->epoch,
                      t->step);
}

static bool goes_on(const tri_trainer *t)
{
    return t->reason == TRI_STOP_NONE && (t->set.max_epochs < 0 || t->epoch < t->set.max_epochs) &&
           (t->set.max_steps < 0 || t->step < t->set.max_steps);
}

static tri_status train(tri_trainer *t)
{
    tri_status status = trii_fit_summary(t);

    name_odd_rate(t);
    if (status == TRI_OK)
        status = trii_hooks(t, fit_begin);
    if (status == TRI_OK)
        status = check_sanity(t);
    if (status == TRI_OK)
        status = trii_fit_screen_open(t);
    look_at_start(t);
    t->first_batch = true;
    t->validation_owed = t->resumed && t->batch > 0 && !t->validated_here;
    while (status == TRI_OK && goes_on(t))
        status = run_epoch(t);
    return status == TRI_OK ? trii_hooks(t, fit_end) : status;
}

tri_status trii_fit_loop(tri_trainer *t)
{
    trii_step *step = trii_step_current();
    bool before = false;
    tri_status status;

    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    if (t->opt->detect_anomaly)
        before = trii_nan_check_set(step, true);
    status = train(t);
    if (t->opt->detect_anomaly)
        (void)trii_nan_check_set(step, before);
    return status;
}
