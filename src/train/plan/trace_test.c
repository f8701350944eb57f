/*
 * trace_test.c - TRI_TRACE: every entry of every run, on its device and in order; and what happens
 * without a file.
 */
#include <inttypes.h>
#include <stdlib.h>

#include <trireme/group.h>
#include <trireme/nn.h>
#include <trireme/ops.h>
#include <trireme/optim.h>

#include "os/clock.h"
#include "os/process.h"
#include "train/plan/plan.h"
#include "testing/check.h"
#include "testing/scratch.h"

/* Two layers on two devices. */
static void train(int steps)
{
    tri_module *first = tri_nn_linear(4, 4, NULL), *second = tri_nn_linear(4, 4, NULL);
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, 4), TRI_DTYPE_F32);
    tri_optimizer *opts[2];

    CHECK_OK(tri_module_to(second, TRI_CPU(1)));
    opts[0] = tri_sgd(first, 0.1, NULL);
    opts[1] = tri_sgd(second, 0.1, NULL);
    for (int i = 0; i < steps; i++) {
        tri_tensor *y[2] = {tri_forward(first, x)};

        y[1] = tri_to(tri_forward(second, tri_to(y[0], TRI_CPU(1))), TRI_CPU(0));
        tri_backward(tri_mean(tri_square(tri_concat(y, 2, 0)), NULL, 0, false));
        CHECK_OK(tri_optimizer_step(opts[0]));
        CHECK_OK(tri_optimizer_step(opts[1]));
        CHECK_OK(tri_step_end_status());
    }
    for (int i = 0; i < 2; i++)
        tri_optimizer_destroy(opts[i]);
    tri_module_destroy(first);
    tri_module_destroy(second);
    tri_tensor_unref(x);
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
        n++;
    return n;
}

/* Of each device, none begins before the one before has ended. */
static void check_order(const char *text)
{
    double end[2] = {0, 0};

    for (const char *at = strstr(text, "\"ts\":"); at != NULL; at = strstr(at + 1, "\"ts\":")) {
        double ts, dur;
        int device;

        assert_int_equal(
            sscanf(at, "\"ts\":%lf,\"dur\":%lf,\"pid\":%*d,\"tid\":%d", &ts, &dur, &device), 3);
        assert_in_range(device, 0, 1);
        assert_true(ts >= end[device] - 1e-3 && dur >= 0);
        end[device] = ts + dur;
    }
}

static void runs_are_written_as_they_were(void **state)
{
    char *text;
    size_t n;
    scratch s;
    char name[32];

    (void)state;
    scratch_begin(&s);
    snprintf(name, sizeof(name), "t-%d.json", trii_process_id());
    (void)scratch_file(&s, name, "of an earlier process\n", 22);
    assert_int_equal(setenv("TRI_TRACE", scratch_path(&s, "t-%p.json"), 1), 0);
    CHECK_OK(tri_cpu_devices_set(2));
    train(3);
    text = scratch_read(scratch_path(&s, name), &n);
    assert_memory_equal(text, "[\n{\"name\":\"thread_name\",", 24);
    assert_int_equal(count(text, "\"args\":{\"name\":\"cpu:0\"}}\n"), 1);
    assert_int_equal(count(text, "\"args\":{\"name\":\"cpu:1\"}}\n"), 1);
    assert_int_equal(count(text, "\n,"), count(text, "\n") - 2); /* after "[" and the first */
    assert_true(count(text, "\"cat\":\"forward\"") >= 3 * 2);
    assert_true(count(text, "\"cat\":\"backward\"") >= 3 * 2);
    assert_true(count(text, "\"cat\":\"update\"") >= 3 * 2);
    assert_int_equal(count(text, "\"name\":\"linear:gemm\",\"cat\":\"forward\""), 3 * 2);
    assert_true(count(text, "\"name\":\"copy\",\"cat\":\"copy\"") >= 3);
    assert_int_equal(count(text, "\"name\":\"linear:gemm\",\"cat\":\"backward\""), 0);
    assert_int_equal(count(text, "\"name\":\"matmul:gemm\",\"cat\":\"forward\""), 0);
    assert_true(count(text, "\"name\":\"matmul:gemm\",\"cat\":\"backward\"") >= 3);
    assert_true(count(text, "\"args\":{\"run\":3,") >= 10);
    check_order(text);
    free(text);
    scratch_end(&s);
}

/* By which `trireme plot` tells the files of workers apart. */
static void a_worker_says_its_rank_once(void **state)
{
    int64_t epoch;
    char *text;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(setenv("TRI_TRACE", scratch_path(&s, "t.json"), 1), 0);
    CHECK_OK(tri_cpu_devices_set(2));
    CHECK_OK(tri_init(NULL));
    train(2);
    text = scratch_read(scratch_path(&s, "t.json"), &n);
    assert_int_equal(count(text, "\"process_name\""), 1);
    assert_int_equal(count(text, ",\"args\":{\"name\":\"rank 0 of 1\",\"host\":\""), 1);
    assert_int_equal(sscanf(strstr(text, "\"epoch\""), "\"epoch\":%" SCNd64 "}}\n", &epoch), 1);
    assert_true(llabs(epoch * 1000 + trii_now_ns() - trii_wall_ns()) < 10 * TRII_NS_PER_S);
    free(text);
    tri_finalize();
    scratch_end(&s);
}

/* No step fails, and why there is no trace is said once. */
static void expect_no_trace(const char *path, const char *why)
{
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    char text[2048];
    size_t n;

    assert_int_equal(setenv("TRI_TRACE", path, 1), 0);
    assert_int_equal(dup2(fileno(log), STDERR_FILENO), STDERR_FILENO);
    CHECK_OK(tri_cpu_devices_set(2));
    train(3);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    rewind(log);
    n = fread(text, 1, sizeof(text) - 1, log);
    text[n] = '\0';
    fclose(log);
    assert_int_equal(count(text, why), 1);
    assert_int_equal(count(text, "TRI_TRACE"), 1);
}

static void a_file_that_cannot_be_written_fails_no_step(void **state)
{
    (void)state;
    expect_no_trace("/dev/null/t.json", "TRI_TRACE: open /dev/null/t.json: Not a directory");
}

static void a_full_disk_fails_no_step(void **state)
{
    (void)state;
    expect_no_trace("/dev/full", "TRI_TRACE: write /dev/full: No space left on device");
}

static void a_disk_that_fills_up_fails_no_step(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    scratch_limit_files(4000); /* of the first run, a part */
    expect_no_trace(scratch_path(&s, "t.json"), "t.json: File too large; nothing more");
    scratch_limit_files(RLIM_INFINITY);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(runs_are_written_as_they_were),
    cmocka_unit_test(a_worker_says_its_rank_once),
    cmocka_unit_test(a_file_that_cannot_be_written_fails_no_step),
    cmocka_unit_test(a_full_disk_fails_no_step),
    cmocka_unit_test(a_disk_that_fills_up_fails_no_step),
};

TEST_MAIN(tests)
