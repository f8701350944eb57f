/* update_rules_test.c - the shape rules of what optimisers and layers record beside the public
 * operations look at no numbers: the learning rate changes from step to step. */
#include <trireme/optim.h>

#include "testing/shape_rules.h"

static bool seen[SHAPE_RULES_OPS];

static void train(tri_module *net, tri_optimizer *own_opt)
{
    tri_tensor *x = tri_tensor_create((int64_t[]){8, 4}, 2, TRI_DTYPE_F32);

    tri_backward(tri_sum(tri_forward(net, x), NULL, 0, false));
    (void)tri_clip_grad_norm(own_opt, 1);
    CHECK_OK(tri_optimizer_step(own_opt));
    shape_rules_check(trii_step_current(), seen);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_optimizer_destroy(own_opt);
}

static void rules_of_updates_look_at_no_numbers(void **state)
{
    const trii_graph_op *const wanted[] = {&trii_op_update, &trii_op_square_sum,
                                           &trii_op_clip_factor};
    tri_module *net = tri_nn_sequential(tri_nn_linear(4, 8, NULL), tri_nn_dropout(0.5),
                                        tri_nn_linear(8, 2, NULL));

    (void)state;
    train(net, tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = 0.9, .weight_decay = 1e-3}));
    train(net, tri_adam(net, 0.1, NULL));
    train(net, tri_adamw(net, 0.1, &(tri_adam_options){.amsgrad = true}));
    train(net, tri_rmsprop(net, 0.1, NULL));
    train(net, tri_adagrad(net, 0.1, NULL));
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        int k = 0;

        while (k < trii_ops_count && trii_ops_all[k] != wanted[i])
            k++;
        assert_true(k < trii_ops_count && seen[k]);
    }
    tri_module_destroy(net);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rules_of_updates_look_at_no_numbers),
};

TEST_MAIN(tests)
