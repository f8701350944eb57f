/*
 * sgd_optimizer.c - torch.optim.SGD. Rates are floating-point attributes, so a schedule does not
 * change the plan. Neither does the first step, in which torch takes the gradient as momentum: ours
 * starts as zeros, and in that step there is no dampening, which gives the same.
 */
#include "base/err.h"
#include "base/option.h"
#include "train/optim/optimizer.h"

static void sgd_numbers(const tri_optimizer *o, const double *hyper, int64_t updates, double *f)
{
    (void)o;
    f[0] = hyper[TRI_HYPER_LR];
    f[1] = hyper[TRI_HYPER_MOMENTUM];
    f[2] = updates > 0 ? hyper[TRI_HYPER_DAMPENING] : 0.0;
    f[3] = hyper[TRI_HYPER_WEIGHT_DECAY];
}

static const trii_optimizer_ops sgd_ops = {
    .name = "sgd",
    .rule = TRII_UPDATE_SGD,
    .hypers = 1 << TRI_HYPER_LR | 1 << TRI_HYPER_WEIGHT_DECAY | 1 << TRI_HYPER_MOMENTUM |
              1 << TRI_HYPER_DAMPENING,
    .numbers = sgd_numbers,
};

tri_optimizer *tri_sgd_of(const tri_param_group *groups, int n, double lr,
                          const tri_sgd_options *opt)
{
    tri_sgd_options with = opt != NULL ? *opt : (tri_sgd_options){0};
    trii_optim_recipe recipe = {.ops = &sgd_ops, .state_names = {"momentum_buffer"}};
    tri_optimizer *o;

    recipe.flags = (with.momentum != 0.0 ? TRII_UPDATE_MOMENTUM : 0) |
                   (with.nesterov ? TRII_UPDATE_NESTEROV : 0) |
                   (with.maximize ? TRII_UPDATE_MAXIMIZE : 0);
    recipe.status = TRII_CHECK_RESERVED(tri_sgd_options, opt);
    recipe.hyper[TRI_HYPER_LR] = lr;
    recipe.hyper[TRI_HYPER_MOMENTUM] = with.momentum;
    recipe.hyper[TRI_HYPER_DAMPENING] = with.dampening;
    recipe.hyper[TRI_HYPER_WEIGHT_DECAY] = with.weight_decay;
    o = trii_optimizer_create(&recipe, groups, n);
    if (o->status == TRI_OK && with.nesterov && (with.momentum == 0.0 || with.dampening != 0.0))
        trii_optimizer_fail(
            o, TRII_FAIL(TRI_ERR_INVALID_ARG, "sgd: nesterov needs a momentum and no dampening"));
    return o;
}

tri_optimizer *tri_sgd(tri_module *model, double lr, const tri_sgd_options *opt)
{
    return tri_sgd_of(&(tri_param_group){.model = model, .n_params = TRII_MODEL_ONLY}, 1, lr, opt);
}
