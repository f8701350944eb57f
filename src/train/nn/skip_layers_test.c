/* skip_layers_test.c - layers that save a tensor and take it further on. */
#include <string.h>

#include <trireme/trireme.h>

#include "testing/check.h"

static tri_tensor *input(void)
{
    return tri_tensor_from(TRI_SHAPE(1, 2), TRI_DTYPE_F32, (const float[]){1, -2});
}

static void expect(tri_module *own_net, const float *want, size_t n)
{
    tri_tensor *x = input();
    float got[8];

    CHECK_OK(tri_tensor_copy_out(tri_forward(own_net, x), got, n * sizeof(float)));
    assert_memory_equal(got, want, n * sizeof(float));
    tri_step_end();
    tri_module_destroy(own_net);
    tri_tensor_unref(x);
}

static void what_was_saved_is_taken_in_three_ways(void **state)
{
    (void)state;
    expect(tri_nn_sequential(tri_nn_skip_save("x"), tri_nn_relu(),
                             tri_nn_skip_take("x", TRI_SKIP_ADD)),
           (const float[]){2, -2}, 2);
    expect(tri_nn_sequential(tri_nn_skip_save("x"), tri_nn_relu(),
                             tri_nn_skip_take("x", TRI_SKIP_CONCAT)),
           (const float[]){1, 0, 1, -2}, 4);
    expect(tri_nn_sequential(tri_nn_skip_save("x"), tri_nn_relu(),
                             tri_nn_skip_take("x", TRI_SKIP_ALONE)),
           (const float[]){1, -2}, 2);
}

/* Blocks of one kind use one name, one after the other. */
static void the_last_that_was_saved_counts(void **state)
{
    (void)state;
    expect(tri_nn_sequential(tri_nn_skip_save("x"), tri_nn_relu(), tri_nn_skip_save("x"),
                             tri_nn_skip_take("x", TRI_SKIP_ADD),
                             tri_nn_skip_take("x", TRI_SKIP_ADD)),
           (const float[]){3, 0}, 2);
}

static void gradients_add_up_where_it_was_made(void **state)
{
    tri_tensor *x = input();
    tri_module *net =
        tri_nn_sequential(tri_nn_skip_save("x"), tri_nn_relu(), tri_nn_skip_take("x", TRI_SKIP_ADD),
                          tri_nn_skip_take("x", TRI_SKIP_ADD));
    float got[2];

    (void)state;
    tri_requires_grad(x, true);
    tri_backward(tri_sum(tri_forward(net, x), NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    assert_true(got[0] == 3 && got[1] == 2);
    tri_step_end();
    tri_module_destroy(net);
    tri_tensor_unref(x);
}

/* A step ends with all that it has saved. */
static void nothing_is_left_of_another_step(void **state)
{
    tri_tensor *x = input();
    tri_module *save = tri_nn_skip_save("x"), *take = tri_nn_skip_take("x", TRI_SKIP_ALONE);

    (void)state;
    CHECK_FAILS(tri_tensor_status(tri_forward(take, x)), TRI_ERR_STATE,
                "SkipTake: nothing is saved under \"x\" in this step");
    tri_step_end();
    assert_ptr_equal(tri_forward(save, x), x);
    CHECK_OK(tri_tensor_status(tri_forward(take, x)));
    (void)tri_relu(x);
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(tri_forward(take, x)), TRI_ERR_STATE, "nothing is saved");
    tri_step_end();
    tri_module_destroy(save);
    tri_module_destroy(take);
    tri_tensor_unref(x);
}

static void refuse(tri_module *own_module, const char *part)
{
    CHECK_FAILS(tri_module_status(own_module), TRI_ERR_INVALID_ARG, part);
    tri_module_destroy(own_module);
}

static void names_and_joins_are_checked(void **state)
{
    char name[65];

    (void)state;
    memset(name, 'n', 64);
    name[64] = '\0';
    refuse(tri_nn_skip_save(NULL), "SkipSave: a name has 1 to 63 bytes, not NULL");
    refuse(tri_nn_skip_take("", TRI_SKIP_ADD), "SkipTake: a name has 1 to 63 bytes, not ");
    refuse(tri_nn_skip_save(name), "1 to 63 bytes, not nnnn");
    refuse(tri_nn_skip_take("x", (tri_skip_join)3), "join 3 is not TRI_SKIP_ADD");
    tri_module_destroy(tri_nn_skip_save(name + 1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_was_saved_is_taken_in_three_ways),
    cmocka_unit_test(the_last_that_was_saved_counts),
    cmocka_unit_test(gradients_add_up_where_it_was_made),
    cmocka_unit_test(nothing_is_left_of_another_step),
    cmocka_unit_test(names_and_joins_are_checked),
};

TEST_MAIN(tests)
