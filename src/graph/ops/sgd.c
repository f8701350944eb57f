/*
 * sgd.c - the update of torch.optim.SGD, in its order of operations. Every step rounds to the
 * tensor's type and none is contracted, so that all devices and threads give the same bits.
 */
#include "graph/ops/rules.h"

/* in p g m?, i: nesterov, first_step, maximize, f: lr, momentum, dampening, weight_decay. */
static tri_status sgd_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                            trii_type *out, int *n_out)
{
    const trii_type *m = n_in > 2 ? in[2] : NULL;
    tri_status status = trii_rule_float(in[0], "the parameter");

    if (attrs->n_i != 3 || attrs->n_f != 4)
        return TRII_FAIL(TRI_ERR_INTERNAL, "sgd: wrong attributes");
    for (int i = 1; i < n_in && status == TRI_OK; i++) {
        if (in[i] == NULL)
            continue;
        status = trii_rule_same_dtype(in[0], in[i]);
        if (status == TRI_OK)
            status = trii_rule_shape(in[i], i == 1 ? "the gradient" : "the momentum", in[0]->ndim,
                                     in[0]->shape);
    }
    *n_out = m != NULL || attrs->i[1] != 0 ? 2 : 1;
    trii_type_copy(&out[0], in[0]);
    trii_type_copy(&out[1], in[0]);
    return status;
}

#define SGD(T, suffix)                                                                             \
    static void sgd_##suffix(const trii_kernel_args *args)                                         \
    {                                                                                              \
        const T *p = args->in[0].data, *g = args->in[1].data;                                      \
        const T *m = args->n_in > 2 ? args->in[2].data : NULL;                                     \
        T *p_new = args->out[0].data, *m_new = args->n_out > 1 ? args->out[1].data : NULL;         \
        const T lr = (T)-args->fattr[0], momentum = (T)args->fattr[1];                             \
        const T fresh = (T)(1 - args->fattr[2]), decay = (T)args->fattr[3];                        \
        bool nesterov = args->iattr[0] != 0, maximize = args->iattr[2] != 0;                       \
        int64_t n = trii_type_numel(args->out[0].type);                                            \
                                                                                                   \
        for (int64_t k = 0; k < n; k++) {                                                          \
            T d = maximize ? -g[k] : g[k];                                                         \
                                                                                                   \
            if (decay != 0)                                                                        \
                d = d + decay * p[k];                                                              \
            if (m_new != NULL) {                                                                   \
                T buffer = m != NULL ? m[k] * momentum + fresh * d : d;                            \
                                                                                                   \
                m_new[k] = buffer;                                                                 \
                d = nesterov ? d + momentum * buffer : buffer;                                     \
            }                                                                                      \
            p_new[k] = p[k] + lr * d;                                                              \
        }                                                                                          \
    }
SGD(float, f32)
SGD(double, f64)

static tri_status sgd_reference(const trii_kernel_args *args)
{
    if (args->out[0].type->dtype == TRI_DTYPE_F32)
        sgd_f32(args);
    else
        sgd_f64(args);
    return TRI_OK;
}

const trii_graph_op trii_op_sgd = {
    .name = "sgd",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .optional = 1 << 2,
    .alias_mask = 3,
    .alias = {0, 2},
    .shape = sgd_shape,
    .reference = sgd_reference,
};
