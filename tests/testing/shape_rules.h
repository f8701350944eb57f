/*
 * shape_rules.h - shape rules are functions of types and integers: real attributes (a factor, a
 * learning rate) may differ between steps that repeat each other, in which they are not asked again
 * (train/graph/step/append.c). Tests only.
 */
#ifndef TEST_SHAPE_RULES_H
#define TEST_SHAPE_RULES_H

#include <math.h>

#include "base/dtype.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

#define SHAPE_RULES_OPS 256

/* What the rule says of a recorded node, with these numbers. */
static inline tri_status shape_rule_ask(const trii_step *step, const trii_node *node, double number,
                                        trii_type *out, int *n_out)
{
    trii_attrs attrs = node->attrs;
    trii_type types[TRII_MAX_INPUTS];
    const trii_type *in[TRII_MAX_INPUTS];

    for (int i = 0; i < node->n_in; i++) {
        trii_vid id = step->in_ids[node->first_in + i];

        in[i] = NULL;
        if (id == TRII_NO_VALUE)
            continue;
        types[i] = step->values[id].type;
        if (trii_dtype_is_half(types[i].dtype) && node->op->precision != TRII_PRECISION_ANY)
            types[i].dtype = TRI_DTYPE_F32; /* as recording does */
        in[i] = &types[i];
    }
    for (int i = 0; i < TRII_MAX_FATTRS; i++)
        attrs.f[i] = number;
    memset(out, 0, TRII_MAX_OUTPUTS * sizeof(*out));
    return node->op->shape(in, node->n_in, &attrs, out, n_out);
}

/* Of all operations that the step has recorded; they are noted by their index in trii_ops_all. */
static inline void shape_rules_check(const trii_step *step, bool seen[SHAPE_RULES_OPS])
{
    static const double numbers[] = {NAN, INFINITY, -1e300, -1, 0, 0.5, 1, 3};

    assert_in_range(trii_ops_count, 1, SHAPE_RULES_OPS);
    for (int32_t n = 0; n < step->n_nodes; n++) {
        const trii_node *node = &step->nodes[n];

        if (node->op->op_class == TRII_CLASS_HOST)
            continue;
        for (int k = 0; k < trii_ops_count; k++)
            seen[k] = seen[k] || trii_ops_all[k] == node->op;
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
            trii_type out[TRII_MAX_OUTPUTS];
            int n_out = 0;

            if (shape_rule_ask(step, node, numbers[i], out, &n_out) != TRI_OK)
                fail_msg("the shape rule of %s looks at numbers: with %g it says %s",
                         node->op->name, numbers[i], tri_last_error());
            assert_int_equal(n_out, node->n_out);
            for (int o = 0; o < n_out; o++) {
                const trii_type *type = &step->values[node->first_out + o].type;

                assert_int_equal(out[o].ndim, type->ndim);
                if (type->ndim > 0)
                    assert_memory_equal(out[o].shape, type->shape,
                                        (size_t)type->ndim * sizeof(type->shape[0]));
                assert_true(out[o].dtype == type->dtype ||
                            (out[o].dtype == TRI_DTYPE_F32 && trii_dtype_is_half(type->dtype)));
            }
        }
    }
}

#endif
