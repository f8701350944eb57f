/*
 * adagrad_optimizer.c - torch.optim.Adagrad.
 */
#include <math.h>

#include "base/err.h"
#include "base/option.h"
#include "train/optim/optimizer.h"

static void adagrad_numbers(const tri_optimizer *o, const double *hyper, int64_t updates, double *f)
{
    (void)o;
    f[0] = hyper[TRI_HYPER_LR] / (1.0 + (double)updates * hyper[TRI_HYPER_LR_DECAY]);
    f[1] = hyper[TRI_HYPER_EPS];
    f[2] = hyper[TRI_HYPER_WEIGHT_DECAY];
}

static const trii_optimizer_ops adagrad_ops = {
    .name = "adagrad",
    .rule = TRII_UPDATE_ADAGRAD,
    .hypers = 1 << TRI_HYPER_LR | 1 << TRI_HYPER_WEIGHT_DECAY | 1 << TRI_HYPER_EPS |
              1 << TRI_HYPER_LR_DECAY,
    .numbers = adagrad_numbers,
};

tri_optimizer *tri_adagrad_of(const tri_param_group *groups, int n, double lr,
                              const tri_adagrad_options *opt)
{
    tri_adagrad_options with = opt != NULL ? *opt : (tri_adagrad_options){0};
    double start = with.initial_accumulator_value;
    bool valid = isfinite(start) && start >= 0.0;
    trii_optim_recipe recipe = {.ops = &adagrad_ops,
                                .flags = with.maximize ? TRII_UPDATE_MAXIMIZE : 0,
                                .state_names = {"sum"},
                                .state_value = valid ? start : 0.0};
    tri_optimizer *o;

    recipe.status = TRII_CHECK_RESERVED(tri_adagrad_options, opt);
    recipe.hyper[TRI_HYPER_LR] = lr;
    recipe.hyper[TRI_HYPER_LR_DECAY] = with.lr_decay;
    recipe.hyper[TRI_HYPER_EPS] = trii_option(with.eps, 1e-10);
    recipe.hyper[TRI_HYPER_WEIGHT_DECAY] = with.weight_decay;
    o = trii_optimizer_create(&recipe, groups, n);
    if (o->status == TRI_OK && !valid)
        trii_optimizer_fail(o, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                         "adagrad: initial_accumulator_value %g: it must be finite "
                                         "and not negative",
                                         start));
    return o;
}

tri_optimizer *tri_adagrad(tri_module *model, double lr, const tri_adagrad_options *opt)
{
    return tri_adagrad_of(&(tri_param_group){.model = model, .n_params = TRII_MODEL_ONLY}, 1, lr,
                          opt);
}
