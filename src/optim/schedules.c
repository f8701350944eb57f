/*
 * schedules.c - learning rates as pure functions of the step: nothing to save, nothing to resume.
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

static double anneal(bool linear, double from, double to, double share)
{
    if (linear)
        return (to - from) * share + from;
    return to + (from - to) / 2.0 * (cos(PI * share) + 1.0);
}

/* One stretch of the cycle, up to and with step `end`. */
typedef struct phase {
    double end;
    double lr_from, lr_to;
    double momentum_from, momentum_to;
} phase;

tri_one_cycle_point tri_schedule_one_cycle(double lr_max, int64_t total_steps, int64_t step,
                                           const tri_one_cycle_options *opt)
{
    tri_one_cycle_options o = opt != NULL ? *opt : (tri_one_cycle_options){0};
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

    if (!o.three_phase)
        phases[1] = (phase){last, lr_max, lr_end, low, high};
    at = at < 0.0 ? 0.0 : at > last ? last : at;
    while (i < n_phases - 1 && at > phases[i].end)
        start = phases[i++].end;
    /* a rise of one step is over at once */
    share = phases[i].end > start ? (at - start) / (phases[i].end - start) : 1.0;
    return (tri_one_cycle_point){
        .lr = anneal(o.linear, phases[i].lr_from, phases[i].lr_to, share),
        .momentum = anneal(o.linear, phases[i].momentum_from, phases[i].momentum_to, share)};
}
