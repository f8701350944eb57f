/*
 * update_op.c - the changes of update.h as one operation, recorded by optimisers, clips and
 * averages. They bind its results to the tensors.
 */
#include "graph/ops/update.h"

#include <math.h>

#include "graph/ops/rules.h"

/* in p g state.. scale?, i: rule, flags, f: limit, the rule's numbers. */
static tri_status update_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    trii_update_rule rule = attrs->n_i == 2 ? (trii_update_rule)attrs->i[0] : TRII_UPDATE_RULES;
    int n_states = rule < TRII_UPDATE_RULES ? trii_update_states(rule, attrs->i[1]) : 0;
    tri_status status = trii_rule_float(in[0], "the parameter");

    if (rule >= TRII_UPDATE_RULES || attrs->n_f != 1 + trii_update_numbers(rule) ||
        (n_in != 2 + n_states && n_in != 3 + n_states))
        return TRII_FAIL(TRI_ERR_INTERNAL, "update: wrong attributes or operands");
    for (int i = 1; i < n_in && status == TRI_OK; i++) {
        status = trii_rule_same_dtype(in[0], in[i]);
        if (status == TRI_OK && i < 2 + n_states)
            status = trii_rule_shape(in[i], i == 1 ? "the gradient" : "the state", in[0]->ndim,
                                     in[0]->shape);
        else if (status == TRI_OK)
            status = trii_rule_shape(in[i], "the scale", 0, NULL);
    }
    *n_out = 1 + n_states;
    for (int o = 0; o < *n_out; o++)
        trii_type_copy(&out[o], in[0]);
    return status;
}

#define UPDATE_FN static
#define UPDATE_INLINE static inline
#define UPDATE_LOOP
#define UPDATE_T float
#define UPDATE_NAME(rule) rule##_f32
#define UPDATE_SQRT sqrtf
#include "graph/ops/update_loops.h"
#undef UPDATE_T
#undef UPDATE_NAME
#undef UPDATE_SQRT
#define UPDATE_T double
#define UPDATE_NAME(rule) rule##_f64
#define UPDATE_SQRT sqrt
#include "graph/ops/update_loops.h"

static const trii_update_fn loops[TRII_UPDATE_RULES][2] = {
    [TRII_UPDATE_SGD] = {sgd_f32, sgd_f64},
    [TRII_UPDATE_ADAM] = {adam_f32, adam_f64},
    [TRII_UPDATE_RMSPROP] = {rmsprop_f32, rmsprop_f64},
    [TRII_UPDATE_ADAGRAD] = {adagrad_f32, adagrad_f64},
    [TRII_UPDATE_LERP] = {lerp_f32, lerp_f64},
    [TRII_UPDATE_CLIP] = {clip_f32, clip_f64},
};

static tri_status update_reference(const trii_kernel_args *args)
{
    int n_states = args->n_out - 1;
    bool wide = args->out[0].type->dtype == TRI_DTYPE_F64, scaled = args->n_in == 3 + n_states;
    const void *scale = scaled ? args->in[2 + n_states].data : NULL;
    trii_update_args update = {.p = args->in[0].data,
                               .g = args->in[1].data,
                               .p_new = args->out[0].data,
                               .f = args->fattr + 1,
                               .scale = !scaled ? 1
                                        : wide  ? *(const double *)scale
                                                : (double)*(const float *)scale,
                               .limit = args->fattr[0],
                               .flags = (int)args->iattr[1]};

    for (int s = 0; s < n_states; s++) {
        update.s[s] = args->in[2 + s].data;
        update.s_new[s] = args->out[1 + s].data;
    }
    loops[args->iattr[0]][wide](&update, 0, trii_type_numel(args->out[0].type));
    return TRI_OK;
}

const trii_graph_op trii_op_update = {
    .name = "update",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .alias_mask = 0x1f,
    .alias = {0, 2, 3, 4, 5},
    .shape = update_shape,
    .reference = update_reference,
};
