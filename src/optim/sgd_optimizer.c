/*
 * sgd_optimizer.c - torch.optim.SGD, as element-wise operations that the plan fuses into one loop:
 *
 *     d = g + weight_decay * p
 *     v = d                                   the first time
 *     v = momentum * v + (1 - dampening) * d  later
 *     d = d + momentum * v if nesterov, else v (with momentum)
 *     p = p - lr * d
 *
 * Rates are floating-point attributes, so a schedule changes no plan; the first time has the same
 * operations with factors 0 and 1 (0 * v is 0, since v starts as zeros).
 */
#include "base/err.h"
#include "optim/optimizer.h"

static tri_status sgd_update(tri_optimizer *o, trii_step *step, trii_optim_param *param,
                             tri_tensor *grad, int64_t updates)
{
    const tri_sgd_options *opt = &o->sgd;
    tri_tensor *p = param->tensor, *v = param->state[0];
    tri_tensor *d = grad;
    trii_vid value;
    tri_status st;

    if (opt->weight_decay != 0.0)
        d = tri_add(d, tri_mul_scalar(p, opt->weight_decay));
    if (v != NULL) {
        tri_tensor *fresh = d;
        tri_tensor *next;

        if (opt->dampening != 0.0)
            fresh = tri_mul_scalar(d, updates > 0 ? 1.0 - opt->dampening : 1.0);
        next = tri_add(tri_mul_scalar(v, updates > 0 ? opt->momentum : 0.0), fresh);
        d = opt->nesterov ? tri_add(d, tri_mul_scalar(next, opt->momentum)) : next;
        st = trii_resolve(step, next, &value);
        if (st == TRI_OK)
            st = trii_bind(step, value, v);
        if (st < 0)
            return st;
    }
    p = tri_add(p, tri_mul_scalar(d, -o->lr));
    st = trii_resolve(step, p, &value);
    return st == TRI_OK ? trii_bind(step, value, param->tensor) : st;
}

static const trii_optimizer_ops sgd_ops = {
    .name = "sgd",
    .n_states = 1,
    .state_names = {"momentum_buffer"},
    .update = sgd_update,
};

tri_optimizer *tri_sgd(tri_module *model, double lr, const tri_sgd_options *opt)
{
    tri_sgd_options options = opt != NULL ? *opt : (tri_sgd_options){0};
    tri_optimizer *o = trii_optimizer_create(&sgd_ops, model, lr, options.momentum != 0.0 ? 1 : 0);

    if (o->status < 0)
        return o;
    o->sgd = options;
    if (!(lr >= 0.0) || !(options.momentum >= 0.0) || !(options.weight_decay >= 0.0))
        trii_optimizer_fail(o, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                         "sgd: lr %g, momentum %g, weight_decay %g: none may be "
                                         "negative",
                                         lr, options.momentum, options.weight_decay));
    else if (options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0))
        trii_optimizer_fail(
            o, TRII_FAIL(TRI_ERR_INVALID_ARG, "sgd: nesterov needs a momentum and no dampening"));
    return o;
}
