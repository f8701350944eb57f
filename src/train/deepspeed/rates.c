/*
 * rates.c - DeepSpeed's learning-rate schedules as functions of the update, with its numbers.
 *
 * There a schedule is an object that counts: it begins at iteration -1, at which the rate of the
 * first update is made, and counts after each update. So update `step` has the rate of iteration
 * step - 1. Formulas, and the order of the operations in them, are those of
 * deepspeed/runtime/lr_schedules.py, so that rates are equal to the last digit that is printed.
 */
#include <math.h>

#include "train/deepspeed/engine_config.h"

#define PI 3.14159265358979323846

static double warmup_share(const trii_rate *r, double it)
{
    if (it >= r->warmup)
        return 1;
    if (r->linear)
        return it / r->warmup;
    return 1 / log(r->warmup) * log(it + 1);
}

/* Iteration -1 has the rate of iteration 0: the first two updates have the minimum. */
static double warmup_rate(const trii_rate *r, double lr, double it)
{
    const double max = isnan(r->max) ? lr : r->max;
    double share;

    if (it < 0)
        return r->min;
    share = warmup_share(r, it);
    if (r->kind == TRII_RATE_WARMUP_DECAY && it >= r->warmup) {
        const double left = (r->total - it) / fmax(1.0, r->total - r->warmup);

        share = fmax(0.0, left);
    }
    return r->min + (max - r->min) * share;
}

static double cosine_ratio(const trii_rate *r, double it)
{
    double at;

    if (it < 0)
        return 0;
    if (it < r->warmup)
        return r->min_ratio + warmup_share(r, it) * (1 - r->min_ratio);
    at = (it - r->warmup + 1) / fmax(1, r->total - r->warmup);
    at = (1 + cos(PI * fmin(1, at))) / 2;
    return fmax(0, r->end_ratio + (1 - r->end_ratio) * at);
}

static double range_rate(const trii_rate *r, double it)
{
    double x = (it + 1) / r->step_size;

    if (r->staircase)
        x = floor(x);
    return r->min * (1 + r->step_rate * x);
}

/* 0 to 1: how far the cycle is from its ends. Stairs are made of the step's number, since the share
 * may be a rounding below one. */
static double cycle_share(const trii_rate *r, double it)
{
    const double total = r->rise + r->fall, ratio = r->rise / total, at = it + 1;
    const double x = 1 + at / total - floor(1 + at / total);
    const double share = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    const double stairs = x <= ratio ? r->rise_stairs : r->fall_stairs, in = fmod(at, total);

    if (stairs <= 0)
        return share;
    return floor(in <= r->rise ? in * stairs / r->rise : (total - in) * stairs / r->fall) / stairs;
}

static double decay(const trii_rate *r, double it, double rate)
{
    if (r->decay_steps == 0 || rate == 0)
        return 1;
    return 1 + rate * ((it - (r->rise + r->fall) + 1) / r->decay_steps);
}

static double cycle_rate(const trii_rate *r, double it)
{
    if (it < r->rise + r->fall)
        return r->min + (r->max - r->min) * cycle_share(r, it);
    return r->min / decay(r, it, r->decay_rate);
}

/* With count_from 1 the first update is iteration 1, past those that have the minimum. */
static double iteration(const trii_rate *r, int64_t step)
{
    return (double)step - 1 + 2 * r->count_from;
}

double trii_rate_at(const trii_rate *r, double lr, int64_t step)
{
    const double it = iteration(r, step);

    switch (r->kind) {
    case TRII_RATE_RANGE_TEST:
        return range_rate(r, it);
    case TRII_RATE_ONE_CYCLE:
        return cycle_rate(r, it);
    case TRII_RATE_WARMUP:
    case TRII_RATE_WARMUP_DECAY:
        return warmup_rate(r, lr, it);
    case TRII_RATE_WARMUP_COSINE:
        return lr * cosine_ratio(r, it);
    case TRII_RATE_CONSTANT:
        break;
    }
    return lr;
}

/* Before its first step the schedule has set the least. */
double trii_rate_momentum(const trii_rate *r, int64_t step)
{
    const double it = iteration(r, step);

    if (r->kind != TRII_RATE_ONE_CYCLE || !r->momentum)
        return (double)NAN;
    if (it < 0)
        return r->min_momentum;
    if (it < r->rise + r->fall)
        return r->max_momentum - (r->max_momentum - r->min_momentum) * cycle_share(r, it);
    return r->max_momentum * decay(r, it, r->momentum_decay);
}
