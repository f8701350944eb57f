/* module_hooks_test.c - hooks around forward: what they see, replace and remove; the summary. */
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "testing/check.h"

/* What happened, a letter each. */
static char trail[32];
static char letters[] = "abcdnz";

static void leave(char letter)
{
    size_t n = strlen(trail);

    assert_true(n + 1 < sizeof(trail));
    trail[n] = letter;
    trail[n + 1] = '\0';
}

static void note(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                 void *arg)
{
    assert_non_null(self);
    assert_int_equal(n_in, 1);
    CHECK_OK(tri_tensor_status(in[0]));
    assert_int_equal(n_out, out != NULL ? 1 : 0);
    leave(*(const char *)arg);
}

/* Doubles what goes in, or what comes out. */
static void twice(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                  void *arg)
{
    (void)self, (void)n_in, (void)n_out, (void)arg;
    if (out != NULL)
        out[0] = tri_mul_scalar(out[0], 2);
    else
        in[0] = tri_mul_scalar(in[0], 2);
}

static tri_tensor *add_one(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_add_scalar(x, 1);
}

static double run(tri_module *m, double x)
{
    tri_tensor *in = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F64, &x);
    double y = 0;

    CHECK_OK(tri_item_status(tri_forward(m, in), &y));
    tri_step_end();
    tri_tensor_unref(in);
    return y;
}

static void hooks_run_in_order_around_forward(void **state)
{
    tri_module *m = tri_module_simple("plus", 0, add_one);

    (void)state;
    trail[0] = '\0';
    CHECK_OK(tri_module_add_forward_hook(m, note, &letters[2], NULL));
    CHECK_OK(tri_module_add_forward_pre_hook(m, note, &letters[0], NULL));
    CHECK_OK(tri_module_add_forward_pre_hook(m, note, &letters[1], NULL));
    CHECK_OK(tri_module_add_forward_hook(m, note, &letters[3], NULL));
    assert_true(run(m, 3) == 4);
    assert_string_equal(trail, "abcd");
    tri_module_destroy(m);
}

static void a_hook_replaces_inputs_and_outputs(void **state)
{
    tri_module *m = tri_module_simple("plus", 0, add_one);
    int64_t before = 0, after = 0;

    (void)state;
    CHECK_OK(tri_module_add_forward_pre_hook(m, twice, NULL, &before));
    assert_true(run(m, 3) == 7);
    CHECK_OK(tri_module_add_forward_hook(m, twice, NULL, &after));
    assert_true(before != after && run(m, 3) == 14);
    assert_true(tri_module_remove_hook(m, before));
    assert_true(run(m, 3) == 8);
    assert_true(tri_module_remove_hook(m, after));
    assert_true(run(m, 3) == 4);
    assert_false(tri_module_remove_hook(m, after));
    assert_false(tri_module_remove_hook(m, 77));
    assert_false(tri_module_remove_hook(NULL, 1));
    tri_module_destroy(m);
}

/* A gradient goes through what a hook recorded. */
static void hooks_are_part_of_the_graph(void **state)
{
    tri_module *m = tri_nn_linear(1, 1, &(tri_nn_linear_options){.no_bias = true});
    tri_tensor *w = tri_module_find(m, "weight");
    float x = 5, got = 0;
    tri_tensor *in = tri_tensor_from(TRI_SHAPE(1, 1), TRI_DTYPE_F32, &x);

    (void)state;
    CHECK_OK(tri_module_add_forward_hook(m, twice, NULL, NULL));
    tri_backward(tri_sum(tri_forward(m, in), NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(tri_grad(w), &got, sizeof(got)));
    assert_true(got == 10);
    tri_step_end();
    tri_tensor_unref(in);
    tri_module_destroy(m);
}

static int64_t own_id;

static void once(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                 void *arg)
{
    (void)in, (void)n_in, (void)out, (void)n_out, (void)arg;
    leave('o');
    assert_true(tri_module_remove_hook(self, own_id));
    for (int i = 0; i < 10; i++) /* the list moves */
        CHECK_OK(tri_module_add_forward_hook(self, note, &letters[4], NULL));
}

static void a_hook_may_remove_itself_and_add_others(void **state)
{
    tri_module *m = tri_module_simple("plus", 0, add_one);

    (void)state;
    trail[0] = '\0';
    CHECK_OK(tri_module_add_forward_pre_hook(m, once, NULL, &own_id));
    CHECK_OK(tri_module_add_forward_pre_hook(m, note, &letters[5], NULL));
    assert_true(run(m, 3) == 4);
    assert_string_equal(trail, "oz");
    tri_module_destroy(m);
}

static void reshape_badly(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                          void *arg)
{
    (void)self, (void)n_in, (void)n_out, (void)arg;
    out[0] = tri_reshape(in[0], TRI_SHAPE(7));
}

static void what_a_hook_makes_of_a_failure_is_the_forward_s(void **state)
{
    tri_module *net = tri_nn_sequential(tri_module_simple("plus", 0, add_one));
    double x[2] = {1, 2};
    tri_tensor *in = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F64, x);

    (void)state;
    CHECK_OK(tri_module_add_forward_hook(tri_module_child(net, 0), reshape_badly, NULL, NULL));
    CHECK_FAILS(tri_tensor_status(tri_forward(net, in)), TRI_ERR_INVALID_ARG, "0: tri_reshape");
    tri_step_end();
    CHECK_FAILS(tri_module_add_forward_hook(net, NULL, NULL, NULL), TRI_ERR_INVALID_ARG,
                "hook is NULL");
    CHECK_FAILS(tri_module_add_forward_pre_hook(NULL, note, NULL, NULL), TRI_ERR_INVALID_ARG,
                "module is NULL");
    tri_tensor_unref(in);
    tri_module_destroy(net);
}

/* --- the summary ---------------------------------------------------------- */

static char *summary_of(tri_module *net, tri_tensor *x)
{
    FILE *file = tmpfile();
    char *text = calloc(1, 4096);

    assert_true(file != NULL && text != NULL);
    CHECK_OK(tri_module_summary(net, &x, x != NULL ? 1 : 0, file));
    rewind(file);
    assert_true(fread(text, 1, 4095, file) > 0);
    (void)fclose(file);
    return text;
}

static void the_summary_names_shapes_and_parameters(void **state)
{
    tri_module *net = tri_nn_sequential(tri_nn_conv2d(3, 8, 3, NULL), tri_nn_batch_norm2d(8, NULL),
                                        tri_nn_flatten(1), tri_nn_linear(1800, 10, NULL));
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(4, 3, 17, 17), TRI_DTYPE_F32);
    double batches = -1;
    char *text;

    (void)state;
    tri_module_requires_grad(tri_module_child(net, 0), false);
    text = summary_of(net, x);
    assert_string_equal(text, "module  type         output              parameters\n"
                              "        Sequential   [4, 10]                      -\n"
                              "0       Conv2d       [4, 8, 15, 15]             224\n"
                              "1       BatchNorm2d  [4, 8, 15, 15]              16\n"
                              "2       Flatten      [4, 1800]                    -\n"
                              "3       Linear       [4, 10]                 18,010\n"
                              "18,250 parameters, 18,026 of them trained, 0.1 MiB\n");
    free(text);
    text = summary_of(net, NULL);
    assert_non_null(strstr(text, "3       Linear       -               18,010\n"));
    free(text);
    /* the network is as it was: in training, without hooks, no batch counted */
    assert_true(tri_module_is_training(tri_module_child(net, 1)));
    tri_step_end();
    CHECK_OK(tri_item_status(tri_module_find(net, "1.num_batches_tracked"), &batches));
    assert_true(batches == 0);
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(net);
}

static void a_summary_of_what_does_not_fit_is_an_error(void **state)
{
    tri_module *net = tri_nn_sequential(tri_nn_linear(3, 2, NULL));
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(4, 5), TRI_DTYPE_F32);
    FILE *full = fopen("/dev/full", "w");

    (void)state;
    assert_non_null(full);
    CHECK_FAILS(tri_module_summary(net, &x, 1, full), TRI_ERR_INVALID_ARG, "0: tri_linear");
    assert_non_null(strstr(tri_last_error(), "module_hooks_test.c:"));
    assert_true(tri_module_is_training(net));
    tri_step_end();
    CHECK_FAILS(tri_module_summary(net, NULL, 0, full), TRI_ERR_IO, "cannot be written");
    CHECK_FAILS(tri_module_summary(net, NULL, 1, full), TRI_ERR_INVALID_ARG, "in is NULL");
    (void)fclose(full);
    tri_tensor_unref(x);
    tri_module_destroy(net);
}

static void takes_away(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                       void *arg)
{
    (void)self, (void)in, (void)n_in, (void)n_out, (void)arg;
    out[0] = NULL;
}

static void a_hook_that_takes_the_output_away_is_blamed_for_it(void **state)
{
    tri_module *net = tri_nn_relu();
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2), TRI_DTYPE_F32);

    (void)state;
    CHECK_OK(tri_module_add_forward_hook(net, takes_away, NULL, NULL));
    CHECK_FAILS(tri_tensor_status(tri_forward(net, x)), TRI_ERR_INVALID_ARG,
                "a forward hook of ReLU set output 0 of 1 to NULL");
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(net);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hooks_run_in_order_around_forward),
    cmocka_unit_test(a_hook_replaces_inputs_and_outputs),
    cmocka_unit_test(a_hook_that_takes_the_output_away_is_blamed_for_it),
    cmocka_unit_test(hooks_are_part_of_the_graph),
    cmocka_unit_test(a_hook_may_remove_itself_and_add_others),
    cmocka_unit_test(what_a_hook_makes_of_a_failure_is_the_forward_s),
    cmocka_unit_test(the_summary_names_shapes_and_parameters),
    cmocka_unit_test(a_summary_of_what_does_not_fit_is_an_error),
};

TEST_MAIN(tests)
