/* endless_step_test.c - a program that forgets tri_step_end is told so, once; and where no tensor
 * has room in the step any more, that is an error. */
/* ctest: threads=none tsan=no */
#include <trireme/optim.h>

#include "testing/check.h"
#include "train/graph/step/recorder.h"
#include "testing/scratch.h" /* redirecting stderr */

#define WARNING "call tri_step_end after each batch"

static tri_tensor *x;
static tri_optimizer *optimizer; /* NULL: values are asked for */
static bool only_recorded;

static void train(int rounds, bool ends)
{
    for (int i = 0; i < rounds; i++) {
        tri_tensor *loss = tri_sum(tri_square(x), NULL, 0, false);

        if (only_recorded) {
            if (ends)
                tri_step_end();
            continue;
        }
        tri_backward(loss);
        if (optimizer != NULL)
            CHECK_OK(tri_optimizer_step(optimizer));
        else
            tri_item(tri_keep(tri_mul_scalar(x, 2)));
        if (ends)
            tri_step_end();
    }
}

/* What is written to stderr meanwhile. */
static void take_stderr(char *text, size_t size, int rounds, bool ends)
{
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    size_t n;

    assert_non_null(log);
    assert_true(before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    train(rounds, ends);
    fflush(stderr);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(log);
    n = fread(text, 1, size - 1, log);
    text[n] = '\0';
    fclose(log);
}

static void warns_once(void)
{
    const float two = 2;
    char text[2048];

    x = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_F32, &two);
    tri_requires_grad(x, true);
    take_stderr(text, sizeof(text), 1100, true);
    assert_string_equal(text, "");
    take_stderr(text, sizeof(text), 400, false); /* long accumulation is nobody's mistake */
    assert_string_equal(text, "");
    take_stderr(text, sizeof(text), 800, false);
    assert_non_null(strstr(text, WARNING));
    assert_non_null(strstr(text, "500 rounds of asking for values in one step"));
    assert_non_null(strstr(text, "endless_step_test.c:"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    tri_step_end();
    take_stderr(text, sizeof(text), 600, false);
    assert_string_equal(text, "");
    tri_step_end();
    tri_tensor_unref(x);
}

static void a_step_that_never_ends_is_warned_about_once(void **state)
{
    (void)state;
    warns_once();
}

/* An optimizer's step in a step that does not end is noticed sooner. */
static void updates_of_one_step_are_warned_about(void **state)
{
    const float two = 2;
    tri_optimizer *opt;
    char text[2048];

    (void)state;
    x = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_F32, &two);
    opt = tri_sgd_of(&(tri_param_group){.params = &x, .n_params = 1}, 1, 0.01, NULL);
    optimizer = opt;
    tri_requires_grad(x, true);
    take_stderr(text, sizeof(text), 200, true);
    assert_string_equal(text, "");
    take_stderr(text, sizeof(text), 63, false);
    assert_string_equal(text, "");
    tri_step_end();
    take_stderr(text, sizeof(text), 63, false);
    assert_string_equal(text, "");
    take_stderr(text, sizeof(text), 200, false);
    assert_non_null(strstr(text, WARNING));
    assert_non_null(strstr(text, "64 calls of tri_optimizer_step in one step"));
    assert_non_null(strstr(text, "endless_step_test.c:"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* once */
    tri_step_end();
    optimizer = NULL;
    tri_optimizer_destroy(opt);
    tri_tensor_unref(x);
}

/* Nobody asks for a value and no optimizer steps: an evaluation that throws its results away. */
static void operations_of_one_step_are_warned_about(void **state)
{
    const float two = 2;
    char text[2048];

    (void)state;
    x = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_F32, &two);
    only_recorded = true;
    take_stderr(text, sizeof(text), 100000, true);
    assert_string_equal(text, "");
    take_stderr(text, sizeof(text), 60000, false);
    assert_string_equal(text, "");
    take_stderr(text, sizeof(text), 100000, false);
    assert_non_null(strstr(text, WARNING));
    assert_non_null(strstr(text, "one step has "));
    assert_non_null(strstr(text, "endless_step_test.c:"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* once */
    tri_step_end();
    only_recorded = false;
    tri_tensor_unref(x);
}

/* There every operation runs at once, which is no round. */
static void the_reference_interpreter_counts_the_same(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_EAGER", "1", 1), 0);
    warns_once();
}

/* A step in which few tensors have room: 2^24 of them are gigabytes. */
static trii_recorder *short_of_room(void)
{
    trii_recorder *r;

    trii_step_release();
    r = trii_recorder_of(trii_step_current());
    assert_int_equal(r->max_values, (1 << 24) - 1); /* what a handle can tell apart */
    r->max_values = 4000;
    return r;
}

static void expect_full(tri_tensor *y, const char *call)
{
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_STATE, call);
    assert_non_null(strstr(tri_last_error(), "this step has "));
    assert_non_null(strstr(tri_last_error(), " tensors already, of at most 4000: call tri_step_end "
                                             "after each step"));
}

static void a_full_step_is_an_error_that_says_so(void **state)
{
    const float ones[64] = {1, 1, 1};
    trii_recorder *r = short_of_room();
    tri_tensor *y, *last, *parts[64];
    int n = 0;

    (void)state;
    x = tri_tensor_from(TRI_SHAPE(64), TRI_DTYPE_F32, ones);
    for (y = last = tri_neg(x); n < 5000 && tri_tensor_status(y) == TRI_OK; n++) {
        last = y;
        tri_unbind(last, 0, parts, 64);
        y = tri_neg(last);
    }
    assert_in_range(n, 15, 62);
    expect_full(y, "tri_neg(f32 [64]) at ");
    for (int i = 0; i < 5000; i++) /* the errors find room, or share it */
        expect_full(tri_neg(last), "tri_neg(f32 [64]) at ");
    assert_in_range(r->step.n_values, 3000, 4000);
    CHECK_OK(tri_step_end_status()); /* they have been looked at */
    y = tri_neg(x);
    CHECK_NEAR(tri_item(tri_sum(y, NULL, 0, false)), -3, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    trii_step_release();
}

/* Those that a program reads take room, too. */
static void a_step_that_reads_too_many_tensors_is_an_error_that_says_so(void **state)
{
    enum { N = 5000 };
    static tri_tensor *own[N];
    const float one = 1;
    int n = 0;

    (void)state;
    (void)short_of_room();
    for (tri_tensor *y; n < N; n++) {
        own[n] = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F32, &one);
        y = tri_neg(own[n]);
        if (tri_tensor_status(y) == TRI_OK)
            continue;
        expect_full(y, "tri_neg(");
        break;
    }
    assert_in_range(n, 1500, 2000);
    CHECK_OK(tri_step_end_status()); /* they have been looked at */
    for (int i = 0; i <= n; i++)
        tri_tensor_unref(own[i]);
    trii_step_release();
}

/* A million operations that depend on each other, and one more. */
static void a_step_without_an_end_is_an_error(void **state)
{
    const float one = 1;
    tri_tensor *h;

    (void)state;
    x = h = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &one);
    for (int i = 0; i < 1000000; i++)
        h = tri_neg(h);
    CHECK_OK(tri_tensor_status(h));
    h = tri_neg(h);
    CHECK_FAILS(tri_tensor_status(h), TRI_ERR_STATE, "call tri_step_end after each step");
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_tensor_status(tri_neg(x)));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_that_never_ends_is_warned_about_once),
    cmocka_unit_test(updates_of_one_step_are_warned_about),
    cmocka_unit_test(operations_of_one_step_are_warned_about),
    cmocka_unit_test(the_reference_interpreter_counts_the_same),
    cmocka_unit_test(a_full_step_is_an_error_that_says_so),
    cmocka_unit_test(a_step_that_reads_too_many_tensors_is_an_error_that_says_so),
    cmocka_unit_test(a_step_without_an_end_is_an_error),
};

TEST_MAIN(tests)
