/* forgotten_test.c - an optimizer that has nothing to do says so, once; and who it was if it is
 * none. */
#include <stdio.h>

#include <trireme/optim.h>

#include "testing/check.h"
#include "testing/scratch.h" /* redirecting stderr */

static void an_update_without_gradients_is_warned_about_once(void **state)
{
    tri_module *net = tri_nn_linear(2, 1, NULL);
    tri_optimizer *opt = tri_sgd(net, 0.1, NULL);
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(3, 2), TRI_DTYPE_F32);
    tri_tensor *wide = tri_tensor_create(TRI_SHAPE(3, 5), TRI_DTYPE_F32);
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    char text[1024];
    size_t n;

    (void)state;
    assert_non_null(log);
    assert_true(before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    tri_backward(tri_sum(tri_forward(net, x), NULL, 0, false));
    CHECK_OK(tri_optimizer_step(opt));
    tri_step_end();
    tri_backward(tri_sum(tri_forward(net, wide), NULL, 0, false)); /* which fails */
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "tri_linear");
    tri_step_end();
    n = (size_t)lseek(STDERR_FILENO, 0, SEEK_CUR);
    assert_int_equal(n, 0); /* it has nothing to say of this */
    for (int i = 0; i < 3; i++) {
        (void)tri_sum(tri_forward(net, x), NULL, 0, false);
        CHECK_OK(tri_optimizer_step(opt));
        tri_step_end();
    }
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(log);
    n = fread(text, 1, sizeof(text) - 1, log);
    text[n] = '\0';
    fclose(log);
    assert_non_null(strstr(text, "none of the 2 parameters has a gradient"));
    assert_non_null(strstr(text, "was tri_optimizer_zero_grad called after it"));
    assert_non_null(strstr(text, "forgotten_test.c:"));
    assert_ptr_equal(strchr(text, '\n'), text + n - 1);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(wide);
}

static void a_model_or_an_optimizer_that_is_null_is_named(void **state)
{
    tri_optimizer *opt = tri_sgd(NULL, 0.1, NULL);

    (void)state;
    CHECK_FAILS(tri_optimizer_status(opt), TRI_ERR_INVALID_ARG, "sgd: the model is NULL");
    tri_optimizer_destroy(opt);
    CHECK_FAILS(tri_optimizer_step(NULL), TRI_ERR_INVALID_ARG, "tri_optimizer_step at ");
    CHECK_FAILS(tri_optimizer_step(NULL), TRI_ERR_INVALID_ARG, "the optimizer is NULL");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_update_without_gradients_is_warned_about_once),
    cmocka_unit_test(a_model_or_an_optimizer_that_is_null_is_named),
};

TEST_MAIN(tests)
