/*
 * schedules.c - learning rates as pure functions of the step: no state to save or restore.
 */
#include <math.h>

#include <trireme/optim.h>

#include "base/option.h"

#define PI 3.14159265358979323846

double tri_schedule_constant(double lr, int64_t step)
{
    (void)step;
    return lr;
}

double tri_schedule_cosine(double lr, double lr_min, int64_t total_steps, int64_t step)
{
    if (total_steps < 1)
        return lr_min;
    return lr_min + (lr - lr_min) * (1.0 + cos(PI * (double)step / (double)total_steps)) / 2.0;
}

double tri_schedule_step(double lr, int64_t step_size, double gamma, int64_t step)
{
    int64_t reached = step / (step_size > 1 ? step_size : 1);

    return lr * pow(gamma, (double)reached);
}

double tri_schedule_multi_step(double lr, const int64_t *milestones, int n, double gamma,
                               int64_t step)
{
    int reached = 0;

    for (int i = 0; milestones != NULL && i < n; i++)
        reached += milestones[i] <= step;
    return lr * pow(gamma, (double)reached);
}

double tri_schedule_exponential(double lr, double gamma, int64_t step)
{
    return lr * pow(gamma, (double)step);
}

double tri_schedule_linear(double lr, double start_factor, double end_factor, int64_t total_steps,
                           int64_t step)
{
    if (step >= total_steps)
        return lr * end_factor;
    return lr * (start_factor +
                 (end_factor - start_factor) * (double)(step > 0 ? step : 0) / (double)total_steps);
}

double tri_schedule_cosine_restarts(double lr, double lr_min, int64_t first_cycle, int cycle_factor,
                                    int64_t step)
{
    double cycle = (double)(first_cycle > 1 ? first_cycle : 1), at = (double)(step > 0 ? step : 0);

    if (cycle_factor > 1) {
        while (at >= cycle) {
            at -= cycle;
            cycle *= cycle_factor;
        }
    } else {
        at = fmod(at, cycle);
    }
    return lr_min + (lr - lr_min) * (1.0 + cos(PI * at / cycle)) / 2.0;
}

double tri_schedule_warmup_cosine(double lr, double lr_min, int64_t warmup_steps,
                                  int64_t total_steps, int64_t step)
{
    double warmup = (double)(warmup_steps > 0 ? warmup_steps : 0);
    double at = (double)(step > 0 ? step : 0);

    if (at < warmup)
        return lr * (at + 1.0) / (warmup + 1.0);
    if (step >= total_steps)
        return lr_min;
    return lr_min +
           (lr - lr_min) * (1.0 + cos(PI * (at - warmup) / ((double)total_steps - warmup))) / 2.0;
}

static double ask(const tri_schedule_part *part, double lr, int64_t step)
{
    if (TRII_CHECK_RESERVED(tri_schedule_part, part) != TRI_OK)
        return (double)NAN;
    return part->fn != NULL ? part->fn(lr, step, part->arg) : lr;
}

double tri_schedule_sequential(double lr, const tri_schedule_part *parts, int n, int64_t step)
{
    int i = 0;

    if (parts == NULL || n < 1)
        return lr;
    for (; i < n - 1 && step >= parts[i].steps; i++)
        step -= parts[i].steps > 0 ? parts[i].steps : 0;
    return ask(&parts[i], lr, step);
}

double tri_schedule_chained(double lr, const tri_schedule_part *parts, int n, int64_t step)
{
    for (int i = 0; parts != NULL && i < n; i++)
        lr *= ask(&parts[i], 1.0, step);
    return lr;
}

static double anneal(bool linear, double from, double to, double share)
{
    if (linear)
        return (to - from) * share + from;
    return to + (from - to) / 2.0 * (cos(PI * share) + 1.0);
}

/* One phase of the cycle, up to and including step `end`. */
typedef struct phase {
    double end;
    double lr_from, lr_to;
    double momentum_from, momentum_to;
} phase;

static bool is_cycle(const tri_schedule_one_cycle_options *o)
{
    const double rise = trii_option(o->pct_start, 0);

    return rise >= 0 && rise <= 1 && trii_option(o->div_factor, 1) > 0 &&
           trii_option(o->final_div_factor, 1) > 0;
}

tri_one_cycle_point tri_schedule_one_cycle(double lr_max, int64_t total_steps, int64_t step,
                                           const tri_schedule_one_cycle_options *opt)
{
    tri_schedule_one_cycle_options o = opt != NULL ? *opt : (tri_schedule_one_cycle_options){0};
    double rise = trii_option(o.pct_start, 0.3) * (double)total_steps;
    double lr_start = lr_max / trii_option(o.div_factor, 25.0);
    double lr_end = lr_start / trii_option(o.final_div_factor, 1e4);
    double low = trii_option(o.momentum_base, 0.85), high = trii_option(o.momentum_max, 0.95);
    double last = (double)total_steps - 1.0;
    phase phases[] = {{rise - 1.0, lr_start, lr_max, high, low},
                      {2.0 * rise - 2.0, lr_max, lr_start, low, high},
                      {last, lr_start, lr_end, high, high}};
    int n_phases = o.three_phase ? 3 : 2;
    double start = 0.0, at = (double)step, share;
    int i = 0;

    if (TRII_CHECK_RESERVED(tri_schedule_one_cycle_options, opt) != TRI_OK || !is_cycle(&o))
        return (tri_one_cycle_point){(double)NAN, (double)NAN};
    if (!o.three_phase)
        phases[1] = (phase){last, lr_max, lr_end, low, high};
    at = at < 0.0 ? 0.0 : at > last ? last : at;
    while (i < n_phases - 1 && at > phases[i].end)
        start = phases[i++].end;
    /* a phase of one step is over at once */
    share = phases[i].end > start ? (at - start) / (phases[i].end - start) : 1.0;
    return (tri_one_cycle_point){
        .lr = anneal(o.linear, phases[i].lr_from, phases[i].lr_to, share),
        .momentum = anneal(o.linear, phases[i].momentum_from, phases[i].momentum_to, share)};
}
