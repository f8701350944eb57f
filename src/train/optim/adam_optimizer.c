/*
 * adam_optimizer.c - torch.optim.Adam and torch.optim.AdamW. The corrections of the averages, which
 * start at zero, come from how often this parameter was updated.
 */
#include <math.h>

#include "base/option.h"
#include "train/optim/optimizer.h"

static void adam_numbers(const tri_optimizer *o, const double *hyper, int64_t updates, double *f)
{
    double lr = hyper[TRI_HYPER_LR], decay = hyper[TRI_HYPER_WEIGHT_DECAY];
    double beta1 = hyper[TRI_HYPER_BETA1], beta2 = hyper[TRI_HYPER_BETA2];
    double step = (double)updates + 1.0;

    f[0] = lr / (1.0 - pow(beta1, step));
    f[1] = 1.0 - beta1;
    f[2] = beta2;
    f[3] = 1.0 - beta2;
    f[4] = sqrt(1.0 - pow(beta2, step));
    f[5] = hyper[TRI_HYPER_EPS];
    f[6] = (o->flags & TRII_UPDATE_DECOUPLED) != 0 ? 1.0 - lr * decay : decay;
}

#define ADAM_HYPERS                                                                                \
    (1 << TRI_HYPER_LR | 1 << TRI_HYPER_WEIGHT_DECAY | 1 << TRI_HYPER_BETA1 |                      \
     1 << TRI_HYPER_BETA2 | 1 << TRI_HYPER_EPS)

static const trii_optimizer_ops adam_ops = {
    .name = "adam", .rule = TRII_UPDATE_ADAM, .hypers = ADAM_HYPERS, .numbers = adam_numbers};
static const trii_optimizer_ops adamw_ops = {
    .name = "adamw", .rule = TRII_UPDATE_ADAM, .hypers = ADAM_HYPERS, .numbers = adam_numbers};

static tri_optimizer *create(bool decoupled, const tri_param_group *groups, int n, double lr,
                             const tri_adam_options *opt)
{
    tri_adam_options with = opt != NULL ? *opt : (tri_adam_options){0};
    trii_optim_recipe recipe = {
        .ops = decoupled ? &adamw_ops : &adam_ops,
        .flags = (decoupled ? TRII_UPDATE_DECOUPLED : 0) |
                 (with.amsgrad ? TRII_UPDATE_AMSGRAD : 0) |
                 (with.maximize ? TRII_UPDATE_MAXIMIZE : 0),
        .state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    };

    recipe.status = TRII_CHECK_RESERVED(tri_adam_options, opt);
    recipe.hyper[TRI_HYPER_LR] = lr;
    recipe.hyper[TRI_HYPER_BETA1] = trii_option(with.beta1, 0.9);
    recipe.hyper[TRI_HYPER_BETA2] = trii_option(with.beta2, 0.999);
    recipe.hyper[TRI_HYPER_EPS] = trii_option(with.eps, 1e-8);
    recipe.hyper[TRI_HYPER_WEIGHT_DECAY] = trii_option(with.weight_decay, decoupled ? 1e-2 : 0.0);
    return trii_optimizer_create(&recipe, groups, n);
}

tri_optimizer *tri_adam_of(const tri_param_group *groups, int n, double lr,
                           const tri_adam_options *opt)
{
    return create(false, groups, n, lr, opt);
}

tri_optimizer *tri_adam(tri_module *model, double lr, const tri_adam_options *opt)
{
    return create(false, &(tri_param_group){.model = model, .n_params = TRII_MODEL_ONLY}, 1, lr,
                  opt);
}

tri_optimizer *tri_adamw_of(const tri_param_group *groups, int n, double lr,
                            const tri_adam_options *opt)
{
    return create(true, groups, n, lr, opt);
}

tri_optimizer *tri_adamw(tri_module *model, double lr, const tri_adam_options *opt)
{
    return create(true, &(tri_param_group){.model = model, .n_params = TRII_MODEL_ONLY}, 1, lr,
                  opt);
}
