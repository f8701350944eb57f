/*
 * engine_report.c - what rank 0 says of an engine on stderr, in DeepSpeed's lines, and the curves
 * of its monitors, over the samples of all ranks so far.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "os/clock.h"
#include "train/deepspeed/engine_internal.h"

static const char *const curves[TRII_ENGINE_CURVES] = {"lr", "loss_scale", "train_loss"};

/* As few digits as tell it from other numbers, as Python prints. */
static const char *shortest(double value, char text[32])
{
    for (int digits = 1; digits <= 17; digits++) {
        double back = 0;

        snprintf(text, 32, "%.*g", digits, value);
        if (sscanf(text, "%lf", &back) == 1 && back == value)
            break;
    }
    if (isfinite(value) && strpbrk(text, ".e") == NULL)
        snprintf(text + strlen(text), 3, ".0");
    return text;
}

/* --- the start ------------------------------------------------------------ */

static void name_odd_rates(const tri_engine *e)
{
    static const char *const names[] = {"",         "LRRangeTest",   "OneCycle",
                                        "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
    const trii_rate *rate = &e->config.rate;
    int idle = 0;

    if (e->schedule != NULL || rate->kind == TRII_RATE_CONSTANT)
        return;
    while (idle < 1000 && trii_rate_at(rate, 1, idle) == 0)
        idle++;
    if (idle > 0)
        fprintf(stderr,
                "tri_initialize: %s: %s: the first %d update%s a learning rate of 0 and teach%s "
                "nothing, as in DeepSpeed%s\n",
                e->config.name, names[rate->kind], idle, idle > 1 ? "s have" : " has",
                idle > 1 ? "" : "es",
                rate->count_from == 0 ? "; \"count_from\": 1 in its params avoids it" : "");
}

static void name_idle_momentum(const tri_engine *e)
{
    if (e->schedule == NULL && !isnan(trii_rate_momentum(&e->config.rate, 0)) &&
        isnan(tri_optimizer_hyper(e->optimizer, 0, TRI_HYPER_BETA1)))
        fprintf(stderr,
                "tri_initialize: %s: OneCycle: the optimizer has no betas, so that its momentum "
                "stays as it is, as in DeepSpeed; \"cycle_momentum\": false in its params says "
                "so\n",
                e->config.name);
}

static tri_status open_csv(tri_engine *e)
{
    const char *root = trii_conf_get_text(&e->config, "csv_monitor.output_path", "");
    const char *job = trii_conf_get_text(&e->config, "csv_monitor.job_name", "DeepSpeedJobName");
    char path[4096];
    tri_status status = TRI_OK;

    for (int i = 0; i < TRII_ENGINE_CURVES && status == TRI_OK; i++) {
        if (i == 1 && e->scaler == NULL)
            continue;
        snprintf(path, sizeof(path), "%s/%s/Train_Samples_%s.csv",
                 root[0] != '\0' ? root : "csv_monitor", job, curves[i]);
        status = tri_csv_open(path, -1, &e->csv[i]);
    }
    return status;
}

static tri_status open_board(tri_engine *e)
{
    const char *root = trii_conf_get_text(&e->config, "tensorboard.output_path", "");
    const char *job = trii_conf_get_text(&e->config, "tensorboard.job_name", "DeepSpeedJobName");
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", root[0] != '\0' ? root : "runs", job);
    return tri_tensorboard_open(path, NULL, &e->board);
}

tri_status trii_engine_report_begin(tri_engine *e)
{
    tri_status status = TRI_OK;

    e->begun_ns = e->update_ns = trii_now_ns();
    if (e->rank != 0)
        return TRI_OK;
    if (!e->config.clip_given)
        fprintf(stderr,
                "tri_initialize: %s: gradient_clipping is not given: gradients are clipped to a "
                "norm of 1.0, as DeepSpeed does since 0.19.3; files from before meant 0\n",
                e->config.name);
    name_odd_rates(e);
    name_idle_momentum(e);
    if (trii_conf_get_bool(&e->config, "csv_monitor.enabled", false))
        status = open_csv(e);
    if (status == TRI_OK && trii_conf_get_bool(&e->config, "tensorboard.enabled", false))
        status = open_board(e);
    return status;
}

/* --- each update ---------------------------------------------------------- */

static void say_step(const tri_engine *e)
{
    const double beta1 = tri_optimizer_hyper(e->optimizer, 0, TRI_HYPER_BETA1);
    const double beta2 = tri_optimizer_hyper(e->optimizer, 0, TRI_HYPER_BETA2);
    const double momentum = tri_optimizer_hyper(e->optimizer, 0, TRI_HYPER_MOMENTUM);
    char lr[32], a[32], b[32], mom[72] = "None";

    if (!isnan(beta1))
        snprintf(mom, sizeof(mom), "(%s, %s)", shortest(beta1, a), shortest(beta2, b));
    else if (!isnan(momentum))
        snprintf(mom, sizeof(mom), "%s", shortest(momentum, a));
    fprintf(stderr, "step=%" PRId64 ", skipped=%" PRId64 ", lr=[%s], mom=[%s]\n", e->global_steps,
            e->skipped_steps, shortest(tri_optimizer_lr(e->optimizer), lr), mom);
}

static void say_speed(const tri_engine *e, int64_t now)
{
    const double batch = (double)e->config.train_batch;
    const double all = (double)(now - e->begun_ns) / (double)TRII_NS_PER_S;
    const double last = (double)(now - e->update_ns) / (double)TRII_NS_PER_S;

    fprintf(stderr,
            "micro_step=%" PRId64 "/global_step=%" PRId64
            ", RunningAvgSamplesPerSec=%.6g, CurrSamplesPerSec=%.6g\n",
            e->micro_steps + 1, e->global_steps,
            all > 0 ? batch * (double)e->reported_steps / all : 0.0, last > 0 ? batch / last : 0.0);
}

/* Forward and backward only record; what they recorded runs in step. */
static void say_times(const tri_engine *e)
{
    const double ms = (double)TRII_NS_PER_MS;

    fprintf(stderr, "[Rank 0] time (ms) | fwd: %.2f | bwd: %.2f | step: %.2f\n",
            (double)e->forward_ns / ms, (double)e->backward_ns / ms, (double)e->step_ns / ms);
}

static tri_status record(tri_engine *e)
{
    const int64_t samples = tri_engine_global_samples(e);
    double values[TRII_ENGINE_CURVES] = {tri_optimizer_lr(e->optimizer), e->scale, (double)NAN};
    char tag[64];
    tri_status status = e->loss != NULL ? tri_item_status(e->loss, &values[2]) : TRI_OK;

    for (int i = 0; i < TRII_ENGINE_CURVES && status == TRI_OK; i++) {
        const tri_metric row[] = {{"step", (double)samples}, {curves[i], values[i]}};

        if (isnan(values[i]) || (i == 1 && e->scaler == NULL))
            continue;
        if (e->csv[i] != NULL)
            status = tri_csv_write(e->csv[i], row, 2);
        snprintf(tag, sizeof(tag), "Train/Samples/%s", curves[i]);
        if (status == TRI_OK && e->board != NULL)
            status = tri_tensorboard_scalar(e->board, tag, samples, values[i]);
    }
    return status;
}

tri_status trii_engine_report(tri_engine *e)
{
    const int64_t now = trii_now_ns(), every = e->config.print_every;
    tri_status status = TRI_OK;

    e->reported_steps++;
    if (e->rank == 0 && every > 0 && e->global_steps % every == 0) {
        say_step(e);
        say_speed(e, now);
    }
    if (e->rank == 0 && e->config.times)
        say_times(e);
    if (e->csv[0] != NULL || e->board != NULL)
        status = record(e);
    e->forward_ns = e->backward_ns = e->step_ns = 0;
    e->update_ns = now;
    return status;
}

void trii_engine_report_end(tri_engine *e)
{
    for (int i = 0; i < TRII_ENGINE_CURVES; i++)
        tri_csv_close(e->csv[i]);
    if (tri_tensorboard_close(e->board) != TRI_OK)
        fprintf(stderr, "tri_engine_destroy: %s\n", tri_last_error());
}
