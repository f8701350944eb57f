/*
 * rmsprop_optimizer.c - torch.optim.RMSprop.
 */
#include "base/option.h"
#include "train/optim/optimizer.h"

static void rmsprop_numbers(const tri_optimizer *o, const double *hyper, int64_t updates, double *f)
{
    (void)o;
    (void)updates;
    f[0] = hyper[TRI_HYPER_LR];
    f[1] = hyper[TRI_HYPER_ALPHA];
    f[2] = hyper[TRI_HYPER_EPS];
    f[3] = hyper[TRI_HYPER_WEIGHT_DECAY];
    f[4] = hyper[TRI_HYPER_MOMENTUM];
}

static const trii_optimizer_ops rmsprop_ops = {
    .name = "rmsprop",
    .rule = TRII_UPDATE_RMSPROP,
    .hypers = 1 << TRI_HYPER_LR | 1 << TRI_HYPER_WEIGHT_DECAY | 1 << TRI_HYPER_MOMENTUM |
              1 << TRI_HYPER_EPS | 1 << TRI_HYPER_ALPHA,
    .numbers = rmsprop_numbers,
};

tri_optimizer *tri_rmsprop_of(const tri_param_group *groups, int n, double lr,
                              const tri_rmsprop_options *opt)
{
    tri_rmsprop_options with = opt != NULL ? *opt : (tri_rmsprop_options){0};
    trii_optim_recipe recipe = {.ops = &rmsprop_ops, .state_names = {"square_avg"}};
    int n_states = 1;

    if (with.momentum != 0.0) {
        recipe.flags |= TRII_UPDATE_MOMENTUM;
        recipe.state_names[n_states++] = "momentum_buffer";
    }
    if (with.centered) {
        recipe.flags |= TRII_UPDATE_CENTERED;
        recipe.state_names[n_states] = "grad_avg";
    }
    if (with.maximize)
        recipe.flags |= TRII_UPDATE_MAXIMIZE;
    recipe.status = TRII_CHECK_RESERVED(tri_rmsprop_options, opt);
    recipe.hyper[TRI_HYPER_LR] = lr;
    recipe.hyper[TRI_HYPER_ALPHA] = trii_option(with.alpha, 0.99);
    recipe.hyper[TRI_HYPER_EPS] = trii_option(with.eps, 1e-8);
    recipe.hyper[TRI_HYPER_WEIGHT_DECAY] = with.weight_decay;
    recipe.hyper[TRI_HYPER_MOMENTUM] = with.momentum;
    return trii_optimizer_create(&recipe, groups, n);
}

tri_optimizer *tri_rmsprop(tri_module *model, double lr, const tri_rmsprop_options *opt)
{
    return tri_rmsprop_of(&(tri_param_group){.model = model, .n_params = TRII_MODEL_ONLY}, 1, lr,
                          opt);
}
