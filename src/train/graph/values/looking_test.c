/*
 * looking_test.c - what lets a user look at tensors: their memory, their names, and what a debugger
 * shows of a handle.
 */
#include <math.h>

#include <trireme/nn.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "testing/scratch.h" /* redirecting stderr */

static void count_release(void *arg)
{
    ++*(int *)arg;
}

/* --- memory of the user's ------------------------------------------------- */

static void wrapped_memory_is_read_and_trained_in_place(void **state)
{
    _Alignas(64) float w[4] = {1, 2, 3, 4};
    int released = 0;
    tri_tensor *x = tri_tensor_wrap(TRI_SHAPE(2, 2), TRI_DTYPE_F32, w, count_release, &released);

    (void)state;
    CHECK_OK(tri_tensor_status(x));
    assert_true(tri_data(x) == w);
    assert_true(tri_item(tri_sum(x, NULL, 0, false)) == 10);
    w[0] = 11;
    tri_step_end();
    assert_true(tri_item(tri_sum(x, NULL, 0, false)) == 20);
    CHECK_OK(tri_tensor_copy_in(x, (const float[]){5, 6, 7, 8}, sizeof(w)));
    assert_true(w[3] == 8);
    tri_step_end();
    tri_tensor_unref(x);
    assert_int_equal(released, 1);
}

/* The kernels of convolutions want weights in an order of their own; the user looks at these. */
static void wrapped_weights_stay_plain_while_they_train(void **state)
{
    enum { N = 32 * 32 * 9 };
    static _Alignas(64) float own[N];
    int released = 0;
    tri_tensor *w, *other, *x;
    const float *mine = own;
    static float theirs[N];

    (void)state;
    for (int i = 0; i < N; i++)
        own[i] = theirs[i] = sinf((float)i) * 0.1f;
    w = tri_tensor_wrap(TRI_SHAPE(32, 32, 3, 3), TRI_DTYPE_F32, own, count_release, &released);
    other = tri_tensor_from(TRI_SHAPE(32, 32, 3, 3), TRI_DTYPE_F32, theirs);
    x = tri_tensor_create(TRI_SHAPE(2, 32, 8, 8), TRI_DTYPE_F32);
    CHECK_OK(tri_init_uniform(x, -1, 1));
    for (int turn = 0; turn < 2;
         turn++) { /* the second finds the plan that was made for the first */
        tri_tensor *now = turn == 0 ? other : w;
        double a, b;

        tri_requires_grad(now, true);
        for (int step = 0; step < 3; step++) {
            tri_tensor *y =
                tri_relu(tri_conv(x, now, NULL, &(tri_conv_options){.padding = {1, 1}}));

            tri_backward(tri_mean(tri_square(y), NULL, 0, false));
            CHECK_OK(tri_run());
            tri_step_end();
        }
        a = tri_item(tri_sum(tri_square(tri_grad(now)), NULL, 0, false));
        b = turn == 0 ? a : tri_item(tri_sum(tri_square(tri_grad(other)), NULL, 0, false));
        assert_true(fabs(a - b) <= 1e-5 * fabs(b));
        tri_step_end();
    }
    assert_memory_equal(mine, theirs, sizeof(theirs));
    assert_true(tri_data(w) == own);
    tri_tensor_unref(w);
    tri_tensor_unref(other);
    tri_tensor_unref(x);
    assert_int_equal(released, 1);
}

static void what_cannot_be_wrapped_is_not_released(void **state)
{
    _Alignas(8) char bytes[32] = {0};
    int released = 0;
    tri_tensor *x;

    (void)state;
    x = tri_tensor_wrap(TRI_SHAPE(2), TRI_DTYPE_F32, bytes + 1, count_release, &released);
    CHECK_FAILS(tri_tensor_status(x), TRI_ERR_INVALID_ARG, "data is not aligned");
    tri_tensor_unref(x);
    x = tri_tensor_wrap(TRI_SHAPE(2), TRI_DTYPE_F32, NULL, count_release, &released);
    CHECK_FAILS(tri_tensor_status(x), TRI_ERR_INVALID_ARG, "data is NULL");
    tri_tensor_unref(x);
    x = tri_tensor_wrap(TRI_SHAPE(-2), TRI_DTYPE_F32, bytes, count_release, &released);
    CHECK_FAILS(tri_tensor_status(x), TRI_ERR_INVALID_ARG, "negative");
    tri_tensor_unref(x);
    assert_int_equal(released, 0);
    x = tri_tensor_wrap(TRI_SHAPE(0, 3), TRI_DTYPE_F32, NULL, count_release, &released);
    CHECK_OK(tri_tensor_status(x));
    tri_tensor_unref(x);
    assert_int_equal(released, 1);
}

/* A step that still reads it keeps the memory. */
static void memory_is_released_when_nobody_reads_it(void **state)
{
    _Alignas(64) float w[2] = {1, 2};
    int released = 0;
    tri_tensor *x = tri_tensor_wrap(TRI_SHAPE(2), TRI_DTYPE_F32, w, count_release, &released);
    tri_tensor *sum = tri_sum(x, NULL, 0, false);

    (void)state;
    tri_tensor_unref(x);
    assert_int_equal(released, 0);
    assert_true(tri_item(sum) == 3);
    tri_step_end();
    assert_int_equal(released, 1);
}

/* --- tri_data ------------------------------------------------------------- */

static void values_of_a_step_can_be_read_in_place(void **state)
{
    const float ones[3] = {1, 2, 3};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_F32, ones);
    tri_tensor *empty = tri_tensor_create(TRI_SHAPE(0), TRI_DTYPE_F32);
    tri_tensor *dropped = tri_mul_scalar(x, 3), *y = tri_mul_scalar(dropped, 2);
    const float *data = tri_data(y);

    (void)state;
    assert_non_null(data);
    assert_true(data[0] == 6 && data[2] == 18);
    assert_true(tri_data(y) == data);
    assert_non_null(tri_data(empty));
    tri_step_end();
    assert_null(tri_data(y));
    assert_non_null(strstr(tri_last_error(), "step has ended"));
    assert_null(tri_data(NULL));
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(empty);
}

/* What a convolution leaves lies in blocks of channels. */
static void values_in_blocks_are_brought_to_plain_order(void **state)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, 32, 8, 8), TRI_DTYPE_F32);
    tri_tensor *w = tri_tensor_create(TRI_SHAPE(32, 32, 3, 3), TRI_DTYPE_F32), *y;
    static float out[2 * 32 * 36];
    const float *data;

    (void)state;
    CHECK_OK(tri_init_uniform(x, -1, 1));
    CHECK_OK(tri_init_uniform(w, -1, 1));
    tri_requires_grad(w, true);
    for (int round = 0; round < 3; round++) {
        y = tri_relu(tri_conv(x, w, NULL, NULL));
        if (round == 2)
            tri_backward(tri_sum(y, NULL, 0, false));
        CHECK_OK(tri_tensor_copy_out(tri_keep(y), out, sizeof(out)));
        data = tri_data(y);
        assert_non_null(data);
        assert_memory_equal(data, out, sizeof(out));
        tri_step_end();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

/* --- names and debuggers -------------------------------------------------- */

static void names_stand_in_messages(void **state)
{
    tri_tensor *q = tri_tensor_set_name(tri_tensor_create(TRI_SHAPE(2, 3), TRI_DTYPE_F32), "q");
    tri_tensor *k = tri_tensor_create(TRI_SHAPE(2, 3), TRI_DTYPE_F32), *scores;

    (void)state;
    assert_string_equal(tri_tensor_name(q), "q");
    assert_null(tri_tensor_name(k));
    scores = tri_matmul(q, k);
    CHECK_FAILS(tri_tensor_status(scores), TRI_ERR_INVALID_ARG,
                "tri_matmul(q: f32 [2, 3], f32 [2, 3])");
    k = tri_tensor_set_name(tri_transpose(k, 0, 1), "k^T");
    assert_string_equal(tri_tensor_name(k), "k^T");
    scores = tri_add(tri_tensor_set_name(tri_matmul(q, k), "scores"), q);
    CHECK_FAILS(tri_tensor_status(scores), TRI_ERR_INVALID_ARG,
                "tri_add(scores: f32 [2, 2], q: f32 [2, 3])");
    tri_tensor_set_name(q, NULL);
    assert_null(tri_tensor_name(q));
    tri_step_end();
    assert_null(tri_tensor_name(k));
    assert_true(tri_tensor_set_name(k, "late") == k);
    tri_tensor_unref(q);
}

/* The name that a tensor has stays then. */
static void a_name_without_memory_is_reported(void **state)
{
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO), reports = 0;
    tri_tensor *x = tri_tensor_set_name(tri_tensor_create(TRI_SHAPE(3), TRI_DTYPE_F32), "x");
    tri_tensor *first = tri_tensor_set_name(tri_neg(x), "first"), *later = tri_neg(first);
    char line[512];

    (void)state;
    assert_non_null(log);
    assert_true(before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    trii_alloc_fail_at(1);
    assert_true(tri_tensor_set_name(x, "other") == x);
    trii_alloc_fail_at(1);
    assert_true(tri_tensor_set_name(first, "other") == first);
    trii_alloc_fail_at(1);
    assert_true(tri_tensor_set_name(later, "later") == later);
    trii_alloc_fail_at(0);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    assert_string_equal(tri_tensor_name(x), "x");
    assert_string_equal(tri_tensor_name(first), "first");
    assert_null(tri_tensor_name(later));
    rewind(log);
    while (fgets(line, sizeof(line), log) != NULL)
        reports += strstr(line, reports < 2 ? "tri_tensor_set_name: other was not set: "
                                            : "tri_tensor_set_name: later was not set: ") != NULL;
    assert_int_equal(reports, 3);
    fclose(log);
    tri_step_end();
    tri_tensor_unref(x);
}

static void a_debugger_shows_any_handle(void **state)
{
    const float ones[3] = {1, 2.5, 3};
    tri_tensor *x = tri_tensor_set_name(tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_F32, ones), "x"),
               *y, *z;

    (void)state;
    assert_string_equal(tri_tensor_debug(NULL), "NULL");
    assert_string_equal(tri_tensor_debug(x), "\"x\" f32 [3] = [1, 2.5, 3]");
    tri_requires_grad(x, true);
    assert_string_equal(tri_tensor_debug(x), "\"x\" f32 [3], requires grad = [1, 2.5, 3]");
    y = tri_mul_scalar(x, 2);
    z = tri_add(y, tri_reshape(x, TRI_SHAPE(1, 3)));
    assert_non_null(strstr(tri_tensor_debug(y), "f32 [3] by mul_scalar at "));
    assert_non_null(strstr(tri_tensor_debug(y), "looking_test.c:"));
    assert_non_null(strstr(tri_tensor_debug(y), ", pending, requires grad"));
    tri_keep(z);
    CHECK_OK(tri_run());
    assert_non_null(strstr(tri_tensor_debug(z), "f32 [1, 3] by add at "));
    assert_non_null(strstr(tri_tensor_debug(z), " = [3, 7.5, 9]"));
    assert_non_null(strstr(tri_tensor_debug(tri_matmul(z, z)), "failed: tri_matmul("));
    tri_step_end();
    assert_string_equal(tri_tensor_debug(z),
                        "a step tensor of a step that has ended, or of another thread's");
    tri_tensor_unref(x);
}

/* --- shapes --------------------------------------------------------------- */

static void shapes_are_texts_of_which_one_line_may_show_several(void **state)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(20, 0, 3), TRI_DTYPE_F32),
               *y = tri_mean(x, NULL, 0, false);
    char line[100];

    (void)state;
    snprintf(line, sizeof(line), "%s %s %s", tri_tensor_shape_text(x), tri_tensor_shape_text(y),
             tri_tensor_shape_text(tri_narrow(x, 2, 1, 2)));
    assert_string_equal(line, "[20, 0, 3] [] [20, 0, 2]");
    assert_string_equal(tri_tensor_shape_text(tri_matmul(y, y)), "[failed]");
    assert_string_equal(tri_tensor_shape_text(NULL), "[failed]");
    tri_step_end();
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shapes_are_texts_of_which_one_line_may_show_several),
    cmocka_unit_test(wrapped_memory_is_read_and_trained_in_place),
    cmocka_unit_test(wrapped_weights_stay_plain_while_they_train),
    cmocka_unit_test(what_cannot_be_wrapped_is_not_released),
    cmocka_unit_test(memory_is_released_when_nobody_reads_it),
    cmocka_unit_test(values_of_a_step_can_be_read_in_place),
    cmocka_unit_test(values_in_blocks_are_brought_to_plain_order),
    cmocka_unit_test(names_stand_in_messages),
    cmocka_unit_test(a_name_without_memory_is_reported),
    cmocka_unit_test(a_debugger_shows_any_handle),
};

TEST_MAIN(tests)
