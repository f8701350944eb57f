/* backward_of_test.c - gradients of several outputs, and as values. */
/* ctest: threads=none */
#include <math.h>

#include <trireme/function.h>
#include <trireme/ops.h>

#include "testing/check.h"
#include "train/graph/step/step.h"

static tri_tensor *x, *y; /* [2] = {3, 5}, {2, 7} */

static tri_tensor *pair(float a, float b)
{
    return tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, (const float[]){a, b});
}

static int set_up(void **state)
{
    (void)state;
    x = pair(3, 5);
    y = pair(2, 7);
    tri_requires_grad(x, true);
    tri_requires_grad(y, true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    trii_executor_set(NULL);
    return 0;
}

static tri_tensor *sum(tri_tensor *t)
{
    return tri_sum(t, NULL, 0, false);
}

#define CHECK_PAIR(tensor, a, b)                                                                   \
    do {                                                                                           \
        float pair_[2];                                                                            \
        CHECK_OK(tri_tensor_copy_out((tensor), pair_, sizeof(pair_)));                             \
        CHECK_NEAR(pair_[0], (a), 1e-5);                                                           \
        CHECK_NEAR(pair_[1], (b), 1e-5);                                                           \
    } while (0)

static void outputs_with_seeds_add_up(void **state)
{
    tri_tensor *seed = pair(10, 100);
    tri_tensor *outputs[2] = {tri_mul(x, y), sum(tri_square(x))};

    (void)state;
    tri_backward_of(outputs, 2, &(tri_backward_options){.seeds = (tri_tensor *[]){seed, NULL}});
    CHECK_PAIR(tri_grad(x), 10 * 2 + 2 * 3, 100 * 7 + 2 * 5);
    CHECK_PAIR(tri_grad(y), 10 * 3, 100 * 5);
    tri_tensor_unref(seed);
}

static void an_output_may_depend_on_another_or_stand_there_twice(void **state)
{
    tri_tensor *first = sum(tri_mul(x, y)), *outputs[3] = {first, tri_square(first), first};

    (void)state;
    tri_backward_of(outputs, 3, NULL); /* f + f^2 + f, f = 41 */
    CHECK_PAIR(tri_grad(x), (2 + 2 * 41) * 2, (2 + 2 * 41) * 7);
}

static void a_kept_graph_is_differentiated_again_after_a_run(void **state)
{
    tri_tensor *loss = sum(tri_mul(tri_exp(tri_mul_scalar(x, 0)), tri_square(y)));
    const tri_backward_options keep = {.keep_graph = true};

    (void)state;
    for (int k = 1; k <= 3; k++) {
        tri_backward_of(&loss, 1, k < 3 ? &keep : NULL);
        CHECK_PAIR(tri_grad(y), (float)(k * 2 * 2), (float)(k * 2 * 7));
    }
    CHECK_OK(tri_step_end_status());
}

static void seeds_and_outputs_that_do_not_fit_are_refused(void **state)
{
    tri_tensor *one = tri_ones(TRI_SHAPE(1), TRI_DTYPE_F32), *out = tri_mul(x, y);

    (void)state;
    tri_backward_of(&out, 1, NULL);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG,
                "outputs[0] must be one floating-point number, not f32 [2] (others need a seed)");
    out = tri_mul(x, y);
    one = tri_ones(TRI_SHAPE(1), TRI_DTYPE_F32);
    tri_backward_of(&out, 1, &(tri_backward_options){.seeds = &one});
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG,
                "seeds[0] must be f32 [2] as outputs[0], not f32 [1]");
    tri_backward_of(&x, 0, NULL);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "0 outputs");
}

static void gradients_are_values_and_leave_tensors_alone(void **state)
{
    tri_tensor *middle = tri_mul(x, y), *loss = sum(tri_square(middle)), *grads[3];

    (void)state;
    CHECK_OK(tri_gradients(&loss, 1, (tri_tensor *[]){x, middle, x}, 3, NULL, grads));
    for (int i = 0; i < 3; i++)
        (void)tri_keep(grads[i]);
    CHECK_PAIR(grads[0], 2 * 6 * 2, 2 * 35 * 7);
    CHECK_PAIR(grads[1], 2 * 6, 2 * 35);
    CHECK_PAIR(grads[2], 2 * 6 * 2, 2 * 35 * 7);
    assert_null(tri_grad(x));
    CHECK_OK(tri_step_end_status());
}

static void what_is_not_used_is_null_or_refused(void **state)
{
    tri_tensor *loss = sum(tri_square(x)), *inputs[2] = {x, y}, *grads[2] = {x, x}, *plain;

    (void)state;
    CHECK_FAILS(tri_gradients(&loss, 1, inputs, 2, NULL, grads), TRI_ERR_INVALID_ARG,
                "the outputs do not depend on inputs[1] (f32 [2])");
    assert_ptr_equal(grads[1], x); /* not written */
    CHECK_OK(
        tri_gradients(&loss, 1, inputs, 2, &(tri_gradients_options){.allow_unused = true}, grads));
    assert_null(grads[1]);
    CHECK_PAIR(grads[0], 6, 10);
    plain = pair(1, 1);
    CHECK_FAILS(tri_gradients(&loss, 1, &plain, 1, NULL, grads), TRI_ERR_INVALID_ARG,
                "inputs[0] (f32 [2]) requires no gradient");
    tri_tensor_unref(plain);
    CHECK_FAILS(tri_gradients(&loss, 1, inputs, 2, NULL, NULL), TRI_ERR_INVALID_ARG, "grads_out");
    CHECK_FAILS(tri_gradients(&loss, 1, NULL, 1, NULL, grads), TRI_ERR_INVALID_ARG,
                "1 inputs at NULL");
    CHECK_OK(tri_gradients(&loss, 1, NULL, 0, NULL, NULL)); /* of nothing */
    CHECK_OK(tri_step_end_status());                        /* a refused call fails no step */
}

/* Flat where it is looked at: there is a gradient, and it is zero. */
static void a_gradient_of_zero_is_not_an_unused_input(void **state)
{
    tri_tensor *loss = sum(tri_relu(x)), *grads[1], *second;

    (void)state;
    CHECK_OK(tri_gradients(&loss, 1, &x, 1, &(tri_gradients_options){.create_graph = true}, grads));
    second = sum(grads[0]);
    CHECK_OK(tri_gradients(&second, 1, &x, 1, NULL, grads));
    CHECK_PAIR(grads[0], 0, 0);
}

/* A penalty on the gradient: d/dy of sum((d/dx sum(x^2 y))^2) = d/dy of 4 x^2 y^2. Ten steps, so
 * that recorded ones repeat. */
static void a_gradient_penalty_trains(void **state)
{
    (void)state;
    for (int step = 0; step < 10; step++) {
        tri_tensor *loss = sum(tri_mul(tri_square(x), y)), *grad, *penalty;

        CHECK_OK(
            tri_gradients(&loss, 1, &x, 1, &(tri_gradients_options){.create_graph = true}, &grad));
        penalty = sum(tri_square(grad));
        tri_backward(penalty);
        CHECK_PAIR(tri_grad(y), 8 * 9 * 2, 8 * 25 * 7);
        CHECK_PAIR(tri_grad(x), 8 * 3 * 4, 8 * 5 * 49);
        trii_grad_clear(x);
        trii_grad_clear(y);
        CHECK_OK(tri_step_end_status());
    }
}

static void third_gradients_work_and_no_grad_does_not_hinder(void **state)
{
    tri_tensor *loss = sum(tri_mul(x, tri_mul(x, tri_square(x)))), *g = loss; /* x^4 */
    const tri_gradients_options create = {.create_graph = true};

    (void)state;
    TRI_NO_GRAD
    {
        for (int k = 0; k < 3; k++) {
            CHECK_OK(tri_gradients(&loss, 1, &x, 1, &create, &g));
            tri_no_grad_end();
            loss = sum(g);
            tri_no_grad_begin();
        }
    }
    CHECK_PAIR(g, 24 * 3, 24 * 5);
}

/* The product of two, whose gradient is computed: it has none of its own. */
static tri_status product_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = (tri_function_array){.dtype = call->in[0].dtype};
    return TRI_OK;
}

static tri_status product_forward(const tri_function_call *call)
{
    const float *a = call->in[0].data;

    *(float *)call->out[0].data = a[0] * a[1];
    return TRI_OK;
}

static tri_status product_backward(const tri_function_call *call)
{
    const float *a = call->in[0].data, *g = call->grad_out[0].data;
    float *d = call->grad_in[0].data;

    d[0] = *g * a[1];
    d[1] = *g * a[0];
    return TRI_OK;
}

static tri_tensor *product(tri_tensor *of)
{
    static const tri_function_class class = {.name = "product",
                                             .shape = product_shape,
                                             .forward = product_forward,
                                             .backward = product_backward};
    tri_tensor *out = NULL;

    tri_function_apply(&class, NULL, &of, 1, &out, 1);
    return out;
}

static void an_operation_without_a_second_gradient_is_named(void **state)
{
    tri_tensor *loss = sum(tri_square(product(x))), *g;

    (void)state;
    CHECK_OK(tri_gradients(&loss, 1, &x, 1, &(tri_gradients_options){.create_graph = true}, &g));
    loss = sum(tri_square(g));
    CHECK_FAILS(tri_gradients(&loss, 1, &x, 1, NULL, &g), TRI_ERR_UNSUPPORTED,
                "product has no record, which gradients of gradients need");
    tri_backward(loss);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_UNSUPPORTED, "product has no record");
}

/* The step goes on as it was: what the refused call had gone through stays readable. */
static void a_refused_call_leaves_the_graph_for_another(void **state)
{
    tri_tensor *middle, *loss, *grads[2], *two[2] = {x, y};

    (void)state;
    for (int k = 0; k < 2; k++) { /* the second step repeats the first */
        middle = tri_exp(tri_mul_scalar(x, 0));
        loss = sum(tri_mul(tri_exp(tri_mul(middle, x)), x));
        CHECK_FAILS(tri_gradients(&loss, 1, two, 2, NULL, grads), TRI_ERR_INVALID_ARG,
                    "do not depend on inputs[1]");
        CHECK_OK(tri_run());
        CHECK_OK(tri_gradients(&loss, 1, &middle, 1, NULL, grads));
        CHECK_NEAR(tri_item(sum(grads[0])), 9 * exp(3) + 25 * exp(5), 1e-2);
        CHECK_OK(tri_step_end_status());
    }
    loss = sum(tri_square(product(x)));
    CHECK_OK(
        tri_gradients(&loss, 1, &x, 1, &(tri_gradients_options){.create_graph = true}, &middle));
    loss = sum(tri_exp(tri_mul_scalar(middle, 0.01)));
    CHECK_FAILS(tri_gradients(&loss, 1, &x, 1, NULL, grads), TRI_ERR_UNSUPPORTED,
                "gradient of tri_apply_backward at ");
    CHECK_OK(tri_run());
    CHECK_OK(tri_gradients(&loss, 1, &middle, 1, NULL, grads));
    CHECK_NEAR(tri_item(sum(grads[0])), 0.01 * (exp(1.5) + exp(0.9)), 1e-4);
    CHECK_OK(tri_step_end_status());
}

/* Only what leads to an input is recorded: what has no gradient beside it does not matter. */
static void only_what_is_asked_for_is_recorded(void **state)
{
    tri_tensor *loss = sum(tri_add(tri_mul(x, tri_exp(tri_exp(y))), x)), *g;
    int32_t before = trii_step_current()->n_nodes, one;

    (void)state;
    CHECK_OK(tri_gradients(&loss, 1, &x, 1, NULL, &g));
    one = trii_step_current()->n_nodes - before;
    CHECK_OK(tri_gradients(&loss, 1, (tri_tensor *[]){y}, 1, NULL, &g));
    assert_true(one < trii_step_current()->n_nodes - before - one);
    CHECK_OK(tri_step_end_status());
}

/* Of a tensor that the step has written: what the loss read before counts as well. */
static void contents_before_and_after_an_update_count_together(void **state)
{
    tri_tensor *before = sum(tri_square(x)), *loss, *g;
    trii_step *step = trii_step_current();
    trii_vid now;

    (void)state;
    tri_no_grad_begin();
    CHECK_OK(trii_resolve(step, tri_mul_scalar(x, 2), &now));
    CHECK_OK(trii_bind(step, now, x));
    tri_no_grad_end();
    loss = tri_add(before, sum(tri_square(x)));
    CHECK_OK(tri_gradients(&loss, 1, &x, 1, NULL, &g));
    CHECK_PAIR(g, 2 * 3 + 2 * 6, 2 * 5 + 2 * 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(outputs_with_seeds_add_up, set_up, tear_down),
    cmocka_unit_test_setup_teardown(an_output_may_depend_on_another_or_stand_there_twice, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(a_kept_graph_is_differentiated_again_after_a_run, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(seeds_and_outputs_that_do_not_fit_are_refused, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(gradients_are_values_and_leave_tensors_alone, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(what_is_not_used_is_null_or_refused, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_gradient_of_zero_is_not_an_unused_input, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_gradient_penalty_trains, set_up, tear_down),
    cmocka_unit_test_setup_teardown(third_gradients_work_and_no_grad_does_not_hinder, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(a_refused_call_leaves_the_graph_for_another, set_up, tear_down),
    cmocka_unit_test_setup_teardown(an_operation_without_a_second_gradient_is_named, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(only_what_is_asked_for_is_recorded, set_up, tear_down),
    cmocka_unit_test_setup_teardown(contents_before_and_after_an_update_count_together, set_up,
                                    tear_down),
};

TEST_MAIN(tests)
