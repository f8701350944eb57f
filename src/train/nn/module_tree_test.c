/* module_tree_test.c - simple modules, and looking at a tree: children, names, freezing. */
/* ctest: threads=none */
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

#include "base/alloc.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

static tri_tensor *around(tri_module *self, tri_tensor *x)
{
    return tri_add(x, tri_forward(tri_module_child(self, 0), x));
}

static tri_tensor *none(tri_module *self, tri_tensor *x)
{
    (void)self;
    (void)x;
    return NULL;
}

static tri_tensor *into_itself(tri_module *self, tri_tensor *x)
{
    return tri_forward(self, tri_relu(x));
}

static void mistakes_are_told_where_they_are_made(void **state)
{
    tri_module *net, *twice, *bad;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, 4), TRI_DTYPE_F32);

    (void)state;
    net = tri_nn_sequential(tri_nn_linear(4, 4, NULL), tri_nn_relu());
    tri_module_requires_grad(tri_module_submodule(net, "O"), false); /* a letter for a digit */
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "tri_module_requires_grad: the module is NULL");
    tri_step_end();
    tri_module_train(tri_module_submodule(net, "2"), false);
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "tri_module_train: the module is NULL");
    tri_step_end();
    tri_module_set_recompute(NULL, true);
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "tri_module_set_recompute: the module is NULL");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(tri_forward(NULL, x)), TRI_ERR_INVALID_ARG, "tri_forward at ");
    CHECK_FAILS(tri_tensor_status(tri_forward(NULL, x)), TRI_ERR_INVALID_ARG,
                "module_tree_test.c:");
    twice = tri_nn_sequential(tri_module_child(net, 0));
    CHECK_FAILS(tri_module_status(twice), TRI_ERR_INVALID_ARG,
                "0: Linear is a part of Sequential already");
    tri_module_destroy(twice);
    bad = tri_module_simple("Loop", 0, into_itself);
    CHECK_FAILS(tri_tensor_status(tri_forward(bad, x)), TRI_ERR_INVALID_ARG,
                "2048 nested calls of tri_forward");
    assert_int_equal(tri_tensor_status(tri_forward(net, x)), TRI_OK); /* none is left open */
    tri_step_end();
    tri_module_destroy(bad);
    bad = tri_module_simple("Counter", 0, into_itself);
    tri_module_add_parameter(bad, "k", tri_tensor_create(TRI_SHAPE(1), TRI_DTYPE_I64));
    CHECK_FAILS(tri_module_status(bad), TRI_ERR_INVALID_ARG,
                "Counter: \"k\" is i64: a parameter is floating-point");
    tri_module_destroy(bad);
    tri_module_destroy(net);
    tri_tensor_unref(x);
}

static void a_simple_module_is_a_function(void **state)
{
    char name[] = "Residual";
    tri_module *net, *bad;
    tri_tensor *x, *out[2];

    (void)state;
    net = tri_module_simple(name, 16, around);
    x = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &(const float){3});
    (void)tri_module_add_child(net, "inner", tri_nn_relu());
    name[0] = 'X'; /* it was copied */
    assert_string_equal(tri_module_type(net), "Residual");
    assert_int_equal(((const char *)tri_module_data(net))[15], 0);
    assert_true(tri_item(tri_forward(net, x)) == 6.0);
    tri_forward_n(net, &x, 1, out, 2);
    CHECK_FAILS(tri_tensor_status(out[1]), TRI_ERR_INVALID_ARG,
                "Residual takes 1 input to 1 output, not 1 to 2");
    assert_non_null(strstr(tri_last_error(), "module_tree_test.c:"));
    tri_step_end();
    tri_module_destroy(net);
    bad = tri_module_simple("empty", 0, none);
    CHECK_FAILS(tri_tensor_status(tri_forward(bad, x)), TRI_ERR_INVALID_ARG,
                "forward of empty left output 0 of 1 unset");
    tri_step_end();
    tri_module_destroy(bad);
    bad = tri_module_simple("lame", 0, NULL);
    CHECK_FAILS(tri_module_status(bad), TRI_ERR_INVALID_ARG, "forward is NULL");
    tri_module_destroy(bad);
    bad = tri_module_simple(NULL, 0, around);
    CHECK_FAILS(tri_module_status(bad), TRI_ERR_INVALID_ARG, "name is NULL");
    tri_module_destroy(bad);
    tri_tensor_unref(x);
}

static tri_module *halver_create(int64_t width)
{
    tri_module *self = tri_module_simple("Halver", 0, none);

    if (width % 2 != 0)
        return tri_module_fail(self, TRI_ERR_UNSUPPORTED, "Halver: width %lld is odd",
                               (long long)width);
    return self;
}

static void a_module_may_refuse_its_arguments(void **state)
{
    tri_module *bad = halver_create(3), *none_made, *parent;

    (void)state;
    CHECK_FAILS(tri_module_status(bad), TRI_ERR_UNSUPPORTED, "Halver: width 3 is odd");
    assert_ptr_equal(tri_module_fail(bad, TRI_ERR_IO, "%s", "later"), bad); /* the first counts */
    CHECK_FAILS(tri_module_status(bad), TRI_ERR_UNSUPPORTED, "Halver: width 3 is odd");
    parent = tri_nn_sequential(bad);
    CHECK_FAILS(tri_module_status(parent), TRI_ERR_UNSUPPORTED, "0: Halver: width 3 is odd");
    tri_module_destroy(parent);
    none_made = tri_module_fail(NULL, TRI_OK, NULL); /* no error is one, too */
    CHECK_FAILS(tri_module_status(none_made), TRI_ERR_INVALID_ARG, "no reason is given");
    tri_module_destroy(none_made);
}

static void a_simple_module_leaves_nothing_behind(void **state)
{
    long before;

    (void)state;
    assert_non_null(trii_step_current()); /* this thread's recorder is there */
    before = trii_alloc_live();
    tri_module_destroy(tri_module_simple("whole", 8, around));
    assert_int_equal(trii_alloc_live(), before);
    for (long n = 1; n <= 4; n++) { /* every allocation may fail */
        tri_module *bad;

        trii_alloc_fail_at(n);
        bad = tri_module_simple("short", 8, around);
        trii_alloc_fail_at(0);
        CHECK_FAILS(tri_module_status(bad), TRI_ERR_NO_MEMORY, "");
        tri_module_destroy(bad);
        assert_int_equal(trii_alloc_live(), before);
    }
}

static void a_tree_shows_its_parts(void **state)
{
    tri_module *inner = tri_nn_sequential(tri_nn_linear(2, 2, NULL), tri_nn_relu());
    tri_module *net = tri_nn_sequential(inner, tri_nn_flatten(1)), *model = tri_ddp(net, NULL);

    (void)state;
    assert_int_equal(tri_module_child_count(net), 2);
    assert_ptr_equal(tri_module_child(net, 0), inner);
    assert_null(tri_module_child(net, 2));
    assert_null(tri_module_child(net, -1));
    assert_string_equal(tri_module_name(model), "");
    assert_string_equal(tri_module_name(tri_module_child(net, 1)), "1");
    assert_ptr_equal(tri_module_unwrapped(model), net);
    assert_ptr_equal(tri_module_unwrapped(net), net);
    assert_ptr_equal(tri_module_submodule(model, "0.1"), tri_module_child(inner, 1));
    assert_ptr_equal(tri_module_submodule(net, ""), net);
    assert_null(tri_module_submodule(net, "0.7"));
    assert_null(tri_module_submodule(net, "0.1.0"));
    assert_null(tri_module_submodule(net, NULL));
    assert_null(tri_module_submodule(NULL, "0"));
    assert_null(tri_module_unwrapped(NULL));
    assert_int_equal(tri_module_child_count(NULL), 0);
    assert_string_equal(tri_module_type(NULL), "failed");
    tri_module_destroy(model);
}

/* As `ddp.module[0]` and the names of named_modules() in torch, and as the tree is printed. */
static void the_network_in_a_wrapper_is_called_module(void **state)
{
    tri_module *inner = tri_nn_sequential(tri_nn_linear(2, 2, NULL), tri_nn_relu());
    tri_module *net = tri_nn_sequential(inner, tri_data_parallel(tri_nn_linear(2, 2, NULL), NULL));
    tri_module *model = tri_ddp(net, NULL), *part = tri_module_submodule(model, "module.0.0");
    FILE *file = tmpfile();
    char text[2048] = "";

    (void)state;
    CHECK_OK(tri_module_status(model));
    assert_non_null(file);
    assert_ptr_equal(tri_module_submodule(model, "module"), net);
    assert_string_equal(tri_module_name(net), "module");
    assert_ptr_equal(part, tri_module_child(inner, 0));
    assert_ptr_equal(tri_module_submodule(model, "0.0"), part);
    assert_string_equal(tri_module_type(tri_module_submodule(model, "module.1.module")), "Linear");
    assert_null(tri_module_submodule(model, "module.module.0"));
    assert_null(tri_module_submodule(model, "modul.0"));
    assert_null(tri_module_submodule(net, "module.0")); /* it is not a wrapper */
    tri_module_print(model, file);
    CHECK_OK(tri_module_summary(model, NULL, 0, file));
    rewind(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    (void)fclose(file);
    assert_non_null(strstr(text, "\n  (module): Sequential("));
    assert_non_null(strstr(text, "\n      (module): Linear("));
    assert_non_null(strstr(text, "\nmodule.0.0 "));
    assert_non_null(strstr(text, "\nmodule.1.module "));
    tri_module_destroy(model);
}

static void tensors_are_found_by_their_names_with_and_without_wrappers(void **state)
{
    static const char *const names[] = {"1.bias", "module.1.bias", "1.module.bias",
                                        "module.1.module.bias"};
    tri_module *wrapped = tri_data_parallel(tri_nn_linear(2, 2, NULL), NULL);
    tri_module *net = tri_nn_sequential(tri_nn_relu(), wrapped), *model = tri_ddp(net, NULL);
    tri_tensor *bias = tri_module_state(model, 1).tensor;
    const float numbers[4] = {1, 2, 3, 4};
    const tri_state_source torch[] = {
        {.name = "module.1.module.weight",
         .dtype = TRI_DTYPE_F32,
         .ndim = 2,
         .shape = {2, 2},
         .data = numbers},
        {.name = "module.1.module.bias",
         .dtype = TRI_DTYPE_F32,
         .ndim = 1,
         .shape = {2},
         .data = numbers},
    };

    (void)state;
    CHECK_OK(tri_module_status(model));
    assert_string_equal(tri_module_state(model, 1).name, "1.bias"); /* in a file without them */
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(tri_module_find(model, names[i]), bias);
    CHECK_OK(tri_module_load(model, torch, 2, NULL));
    assert_true(tri_item(tri_sum(bias, NULL, 0, false)) == 3);
    tri_step_end();
    tri_module_requires_grad(tri_module_submodule(model, "module.1"), false);
    assert_int_equal(tri_module_parameter_count(model), 0);
    tri_module_destroy(model);
}

/* Its own name counts before that of the wrapper. */
static void a_network_may_have_a_child_called_module(void **state)
{
    tri_module *net = tri_nn_sequential_of(0, NULL), *model, *child;

    (void)state;
    child = tri_module_add_child(net, "module", tri_nn_linear(2, 2, NULL));
    model = tri_ddp(net, NULL);
    assert_ptr_equal(tri_module_submodule(model, "module"), child);
    assert_ptr_equal(tri_module_submodule(model, "module.module"), child);
    assert_ptr_equal(tri_module_find(model, "module.bias"), tri_module_find(child, "bias"));
    assert_ptr_equal(tri_module_find(model, "module.module.bias"), tri_module_find(child, "bias"));
    tri_module_destroy(model);
}

static void a_frozen_part_is_not_trained(void **state)
{
    tri_module *net = tri_nn_sequential(tri_nn_linear(1, 1, NULL), tri_nn_linear(1, 1, NULL));
    tri_optimizer *opt = tri_sgd(net, 0.5, NULL);
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(1, 1), TRI_DTYPE_F32, &(const float){1});
    tri_tensor *frozen = tri_module_find(net, "0.bias"), *free = tri_module_find(net, "1.bias");
    double before[2] = {tri_item(frozen), tri_item(free)};

    (void)state;
    tri_module_requires_grad(tri_module_submodule(net, "0"), false);
    assert_int_equal(tri_module_parameter_count(net), 2);
    tri_backward(tri_sum(tri_forward(net, x), NULL, 0, false));
    CHECK_OK(tri_optimizer_step(opt));
    assert_true(tri_item(frozen) == before[0]);
    assert_true(tri_item(free) == (double)((float)before[1] - 0.5f));
    tri_step_end();
    tri_module_requires_grad(net, true);
    tri_module_requires_grad(NULL, true);
    assert_int_equal(tri_module_parameter_count(net), 4);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mistakes_are_told_where_they_are_made),
    cmocka_unit_test(a_simple_module_is_a_function),
    cmocka_unit_test(a_module_may_refuse_its_arguments),
    cmocka_unit_test(a_simple_module_leaves_nothing_behind),
    cmocka_unit_test(a_tree_shows_its_parts),
    cmocka_unit_test(the_network_in_a_wrapper_is_called_module),
    cmocka_unit_test(tensors_are_found_by_their_names_with_and_without_wrappers),
    cmocka_unit_test(a_network_may_have_a_child_called_module),
    cmocka_unit_test(a_frozen_part_is_not_trained),
};

TEST_MAIN(tests)
