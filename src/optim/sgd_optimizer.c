/*
 * sgd_optimizer.c - torch.optim.SGD: one operation per parameter,
 *
 *     d = g + weight_decay * p                (-g to maximize)
 *     v = d                                   the first time
 *     v = momentum * v + (1 - dampening) * d  later
 *     d = d + momentum * v if nesterov, else v (with momentum)
 *     p = p - lr * d
 *
 * Rates are floating-point attributes, so a schedule changes no plan. Nor does the first time: v
 * starts as zeros, and without dampening becomes d.
 */
#include <math.h>

#include "base/err.h"
#include "graph/ops/table.h"
#include "optim/optimizer.h"

static tri_status sgd_update(tri_optimizer *o, trii_step *step, trii_optim_param *param,
                             tri_tensor *grad, int64_t updates)
{
    const tri_sgd_options *opt = &o->sgd;
    tri_tensor *v = param->state[0];
    bool later = v != NULL && updates > 0;
    trii_attrs attrs = {
        .n_i = 3,
        .i = {opt->nesterov, 0, opt->maximize},
        .n_f = 4,
        .f = {o->lr, opt->momentum, later ? opt->dampening : 0.0, opt->weight_decay}};
    trii_vid in[3], first;
    tri_status st = trii_resolve(step, param->tensor, &in[0]);

    if (st == TRI_OK)
        st = trii_resolve(step, grad, &in[1]);
    if (st == TRI_OK && v != NULL)
        st = trii_resolve(step, v, &in[2]);
    if (st == TRI_OK)
        st = trii_record_values(step, &trii_op_sgd, in, v != NULL ? 3 : 2, &attrs, &first);
    if (st == TRI_OK && trii_handle_recorded(step, first) != NULL) /* eager mode runs it now */
        st = trii_bind(step, first, param->tensor);
    if (st == TRI_OK && v != NULL)
        st = trii_bind(step, first + 1, v);
    return st;
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
    trii_optimizer_check(o, "lr", lr);
    trii_optimizer_check(o, "momentum", options.momentum);
    trii_optimizer_check(o, "weight_decay", options.weight_decay);
    if (!isfinite(options.dampening))
        trii_optimizer_fail(o, TRII_FAIL(TRI_ERR_INVALID_ARG, "sgd: dampening %g must be finite",
                                         options.dampening));
    if (options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0))
        trii_optimizer_fail(
            o, TRII_FAIL(TRI_ERR_INVALID_ARG, "sgd: nesterov needs a momentum and no dampening"));
    return o;
}
