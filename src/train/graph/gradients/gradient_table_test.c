/*
 * gradient_table_test.c - a rule that no operation names is an operation whose entry forgot it.
 */
#include "base/compiler.h"
#include "train/graph/gradients/gradient_rules.h"
#include "testing/check.h"

static const char *const names[] = {
    "none",
#define TRII_GRADIENT(name) #name,
#include "train/graph/step/gradient_list.h"
#undef TRII_GRADIENT
};

static bool is_named(trii_gradient rule)
{
    /* of tri_function_apply, whose operations are in no list */
    bool named = rule == TRII_GRADIENT_apply || rule == TRII_GRADIENT_apply_backward;

    for (int i = 0; i < trii_ops_count && !named; i++)
        named = trii_ops_all[i]->gradient == rule;
    return named;
}

static void every_rule_is_that_of_some_operation(void **state)
{
    (void)state;
    for (int rule = TRII_GRADIENT_NONE + 1; rule < (int)TRII_COUNT_OF(names); rule++) {
        if (!is_named((trii_gradient)rule))
            fail_msg("no operation names the gradient rule %s", names[rule]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_rule_is_that_of_some_operation),
};

TEST_MAIN(tests)
