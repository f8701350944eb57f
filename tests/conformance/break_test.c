/*
 * break_test.c - TRI_BREAK=1: a signal for debuggers in the call that fails.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <trireme/ops.h>

#include "testing/check.h"

/* How a child ends that makes such a mistake under TRI_BREAK=1. */
static int signal_of(void (*mistake)(void))
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        setenv("TRI_BREAK", "1", 1);
        mistake();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void refused_shapes(void)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2), TRI_DTYPE_F32);

    (void)tri_matmul(x, tri_tensor_create(TRI_SHAPE(3), TRI_DTYPE_F32));
}

static void refused_target(void)
{
    const int64_t class = 7;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(1, 3), TRI_DTYPE_F32);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &class);

    (void)tri_item(tri_cross_entropy(x, y, NULL));
}

static void no_mistake(void)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2), TRI_DTYPE_F32);

    (void)tri_item(tri_sum(tri_relu(x), NULL, 0, false));
}

static void a_debugger_stops_where_it_went_wrong(void **state)
{
    (void)state;
    assert_int_equal(signal_of(refused_shapes), SIGTRAP);
    assert_int_equal(signal_of(refused_target), SIGTRAP);
    assert_int_equal(signal_of(no_mistake), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_debugger_stops_where_it_went_wrong),
};

TEST_MAIN(tests)
