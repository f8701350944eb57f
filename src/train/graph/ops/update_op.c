/*
 * update_op.c - the changes of update.h as one operation, recorded by optimisers, clips and
 * averages. They bind its results to the tensors.
 */
#include "train/graph/ops/update.h"

#include <math.h>
#include <string.h>

#include "train/graph/ops/rules.h"

/* Operands: for each tensor the parameter, its gradient and its states; then perhaps a scale, and
 * perhaps the number that says whether to skip. Integer attributes: rule, flags; floating-point
 * ones: the limit, then the rule's numbers. */
static tri_status update_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    trii_update_rule rule = attrs->n_i == 2 ? (trii_update_rule)attrs->i[0] : TRII_UPDATE_RULES;
    int n_states = rule < TRII_UPDATE_RULES ? trii_update_states(rule, attrs->i[1]) : 0;
    bool skips = attrs->n_i == 2 && (attrs->i[1] & TRII_UPDATE_SKIPS) != 0;
    int each = 2 + n_states, n = (n_in - skips) / each;
    tri_status status = trii_rule_float(in[0], "the parameter");

    if (rule >= TRII_UPDATE_RULES || attrs->n_f != 1 + trii_update_numbers(rule) || n < 1 ||
        n_in > n * each + 1 + skips)
        return TRII_FAIL(TRI_ERR_INTERNAL, "update: wrong attributes or operands");
    *n_out = 0;
    for (int i = 0; i < n_in && status == TRI_OK; i++) {
        const trii_type *p = in[i / each * each];

        if (skips && i == n_in - 1)
            return in[i]->dtype == TRI_DTYPE_F32
                       ? trii_rule_shape(in[i], "the flag", 0, NULL)
                       : TRII_FAIL(TRI_ERR_INTERNAL, "update: the flag must be f32");
        status = trii_rule_same_dtype(in[0], in[i]);
        if (status == TRI_OK && i == n * each)
            status = trii_rule_shape(in[i], "the scale", 0, NULL);
        else if (status == TRI_OK && i % each > 0)
            status = trii_rule_shape(in[i], i % each == 1 ? "the gradient" : "the state", p->ndim,
                                     p->shape);
        if (i < n * each && i % each != 1)
            trii_type_copy(&out[(*n_out)++], in[i]);
    }
    return status;
}

#define UPDATE_FN static
#define UPDATE_INLINE static inline
#define UPDATE_LOOP
#define UPDATE_T float
#define UPDATE_NAME(rule) rule##_f32
#define UPDATE_SQRT sqrtf
#include "train/graph/ops/update_loops.h"
#undef UPDATE_T
#undef UPDATE_NAME
#undef UPDATE_SQRT
#define UPDATE_T double
#define UPDATE_NAME(rule) rule##_f64
#define UPDATE_SQRT sqrt
#include "train/graph/ops/update_loops.h"

static const trii_update_fn loops[TRII_UPDATE_RULES][2] = {
    [TRII_UPDATE_SGD] = {sgd_f32, sgd_f64},
    [TRII_UPDATE_ADAM] = {adam_f32, adam_f64},
    [TRII_UPDATE_RMSPROP] = {rmsprop_f32, rmsprop_f64},
    [TRII_UPDATE_ADAGRAD] = {adagrad_f32, adagrad_f64},
    [TRII_UPDATE_LERP] = {lerp_f32, lerp_f64},
    [TRII_UPDATE_CLIP] = {clip_f32, clip_f64},
};

/* Results that are the old contents. */
static tri_status skip_reference(const trii_kernel_args *args, int n, int n_states)
{
    for (int t = 0; t < n; t++) {
        const trii_array *in = args->in + t * (2 + n_states);
        const trii_array *out = args->out + t * (1 + n_states);

        for (int o = 0; o <= n_states; o++) {
            const void *before = in[o == 0 ? 0 : 1 + o].data;
            size_t bytes = trii_type_bytes(out[o].type);

            if (before != out[o].data && bytes > 0)
                memcpy(out[o].data, before, bytes);
        }
    }
    return TRI_OK;
}

static tri_status update_reference(const trii_kernel_args *args)
{
    int n_states = trii_update_states((trii_update_rule)args->iattr[0], args->iattr[1]);
    bool skips = (args->iattr[1] & TRII_UPDATE_SKIPS) != 0;
    int each = 2 + n_states, n = (args->n_in - skips) / each;
    bool wide = args->out[0].type->dtype == TRI_DTYPE_F64, scaled = args->n_in - skips > n * each;
    const void *scale = scaled ? args->in[n * each].data : NULL;
    trii_update_args update = {.f = args->fattr + 1,
                               .scale = !scaled ? 1
                                        : wide  ? *(const double *)scale
                                                : (double)*(const float *)scale,
                               .limit = args->fattr[0],
                               .flags = (int)args->iattr[1]};

    if (skips && *(const float *)args->in[args->n_in - 1].data != 0)
        return skip_reference(args, n, n_states);
    for (int t = 0; t < n; t++) {
        const trii_array *in = args->in + t * each, *out = args->out + t * (1 + n_states);

        update.p = in[0].data;
        update.g = in[1].data;
        update.p_new = out[0].data;
        for (int s = 0; s < n_states; s++) {
            update.s[s] = in[2 + s].data;
            update.s_new[s] = out[1 + s].data;
        }
        loops[args->iattr[0]][wide](&update, 0, trii_type_numel(out[0].type));
    }
    return TRI_OK;
}

/* Which result may lie on which operand is up to the kernel: there may be any number of them. */
const trii_graph_op trii_op_update = {
    .name = "update",
    .shape = update_shape,
    .reference = update_reference,
};
