/* endless_step_test.c - a program that forgets tri_step_end is told so, once. */
#include <trireme/ops.h>

#include "testing/check.h"
#include "testing/scratch.h" /* redirecting stderr */

#define WARNING "call tri_step_end after each batch"

static tri_tensor *x;

static void train(int rounds, bool ends)
{
    for (int i = 0; i < rounds; i++) {
        tri_tensor *loss = tri_sum(tri_square(x), NULL, 0, false);

        tri_backward(loss);
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

    x = tri_tensor_from(TRI_DTYPE_F32, (int64_t[]){1}, 1, &two);
    tri_requires_grad(x, true);
    take_stderr(text, sizeof(text), 1100, true);
    assert_string_equal(text, "");
    take_stderr(text, sizeof(text), 400, false); /* long accumulation is nobody's mistake */
    assert_string_equal(text, "");
    take_stderr(text, sizeof(text), 800, false);
    assert_non_null(strstr(text, WARNING));
    assert_non_null(strstr(text, "500 rounds of one step"));
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

/* There every operation runs at once, which is no round. */
static void the_reference_interpreter_counts_the_same(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_EAGER", "1", 1), 0);
    warns_once();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_that_never_ends_is_warned_about_once),
    cmocka_unit_test(the_reference_interpreter_counts_the_same),
};

TEST_MAIN(tests)
