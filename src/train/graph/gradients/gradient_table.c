/*
 * gradient_table.c - the rules of gradient_rules.h by their numbers, made from gradient_list.h.
 */
#include "train/graph/gradients/gradient_rules.h"

#define TRII_GRADIENT(name) [TRII_GRADIENT_##name] = trii_grad_##name,
trii_gradient_rule *const trii_gradient_rules[] = {
    [TRII_GRADIENT_NONE] = NULL,
#include "train/graph/step/gradient_list.h"
};
#undef TRII_GRADIENT
