/*
 * settings.c - an optimizer's settings: their names, their allowed values, and which optimizer has
 * which.
 */
#include <math.h>

#include "base/compiler.h"
#include "base/err.h"
#include "train/optim/optimizer.h"

typedef enum range { NOT_NEGATIVE, BELOW_ONE, FINITE } range;

static const struct {
    const char *name;
    range range;
} settings[TRII_HYPERS] = {
    [TRI_HYPER_LR] = {"lr", NOT_NEGATIVE},
    [TRI_HYPER_WEIGHT_DECAY] = {"weight_decay", NOT_NEGATIVE},
    [TRI_HYPER_MOMENTUM] = {"momentum", NOT_NEGATIVE},
    [TRI_HYPER_DAMPENING] = {"dampening", FINITE},
    [TRI_HYPER_BETA1] = {"beta1", BELOW_ONE},
    [TRI_HYPER_BETA2] = {"beta2", BELOW_ONE},
    [TRI_HYPER_EPS] = {"eps", NOT_NEGATIVE},
    [TRI_HYPER_ALPHA] = {"alpha", NOT_NEGATIVE},
    [TRI_HYPER_LR_DECAY] = {"lr_decay", NOT_NEGATIVE},
};

static const char *const allowed[] = {
    [NOT_NEGATIVE] = "finite and not negative",
    [BELOW_ONE] = "from 0 to below 1",
    [FINITE] = "finite",
};

static tri_status check(const tri_optimizer *o, tri_hyper what, double value)
{
    range r = settings[what].range;

    if (isfinite(value) && (r == FINITE || (value >= 0.0 && (r != BELOW_ONE || value < 1.0))))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s %g: it must be %s", o->ops->name,
                     settings[what].name, value, allowed[r]);
}

const char *trii_hyper_name(tri_hyper hyper)
{
    return settings[hyper].name;
}

static bool has(const tri_optimizer *o, unsigned what)
{
    return what < TRII_HYPERS && (o->ops->hypers >> what & 1u) != 0;
}

void trii_optimizer_check(tri_optimizer *o)
{
    for (int g = 0; g < o->n_groups; g++) {
        o->groups[g].base_lr = o->groups[g].hyper[TRI_HYPER_LR];
        for (int h = 0; h < TRII_HYPERS; h++) {
            tri_status status =
                has(o, (unsigned)h) ? check(o, (tri_hyper)h, o->groups[g].hyper[h]) : TRI_OK;

            if (status != TRI_OK)
                trii_optimizer_fail(o, status);
        }
    }
}

static tri_status set(tri_optimizer *o, int group, tri_hyper what, double value)
{
    tri_status status;

    if (!has(o, (unsigned)what))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s has no setting %s (%d)", o->ops->name,
                         (unsigned)what < TRII_HYPERS ? settings[what].name : "of this number",
                         (int)what);
    if (group < TRI_ALL_GROUPS || group >= o->n_groups)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: group %d is out of range (it has %d)",
                         o->ops->name, group, o->n_groups);
    status = check(o, what, value);
    if (status != TRI_OK)
        return status;
    if (what == TRI_HYPER_MOMENTUM && value != 0.0 && (o->flags & TRII_UPDATE_MOMENTUM) == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: momentum %g, but the optimizer was made without momentum: set it in "
                         "the options",
                         o->ops->name, value);
    if ((o->flags & TRII_UPDATE_NESTEROV) != 0 &&
        (what == TRI_HYPER_MOMENTUM ? value == 0.0 : what == TRI_HYPER_DAMPENING && value != 0.0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %s %g: nesterov needs a momentum and no dampening", o->ops->name,
                         settings[what].name, value);
    for (int g = group < 0 ? 0 : group; g < (group < 0 ? o->n_groups : group + 1); g++)
        o->groups[g].hyper[what] = value;
    return TRI_OK;
}

int tri_optimizer_group_count(const tri_optimizer *o)
{
    return o != NULL && o->status == TRI_OK ? o->n_groups : 0;
}

void tri_optimizer_set_hyper(tri_optimizer *o, int group, tri_hyper what, double value)
{
    tri_status status;

    if (o == NULL || o->status != TRI_OK)
        return;
    status = set(o, group, what, value);
    if (status != TRI_OK)
        trii_optimizer_fail(o, status);
}

double tri_optimizer_hyper(const tri_optimizer *o, int group, tri_hyper what)
{
    if (o == NULL || group < 0 || group >= o->n_groups || !has(o, (unsigned)what))
        return (double)NAN;
    return o->groups[group].hyper[what];
}

void tri_optimizer_set_lr(tri_optimizer *o, double lr)
{
    tri_optimizer_set_hyper(o, TRI_ALL_GROUPS, TRI_HYPER_LR, lr);
}

void tri_optimizer_schedule(tri_optimizer *o, int64_t step, tri_schedule_fn fn, void *arg)
{
    for (int g = 0; g < tri_optimizer_group_count(o); g++) {
        double base = o->groups[g].base_lr;

        tri_optimizer_set_hyper(o, g, TRI_HYPER_LR, fn != NULL ? fn(base, step, arg) : base);
    }
}

double tri_optimizer_lr(const tri_optimizer *o)
{
    return tri_optimizer_hyper(o, 0, TRI_HYPER_LR);
}
