/*
 * why_calls_test.c - what `trireme why` tells of calls between workers.
 */
#include "inspect/why_internal.h"
#include "os/clock.h"
#include "rpc/rpc_record.h"
#include "testing/rpc_workers.h"
#include "testing/scratch.h"

static atomic_int n_started;

static tri_status run_hang(tri_rpc_request *request, void *object)
{
    (void)object;
    atomic_fetch_add(&n_started, 1);
    while (!tri_rpc_request_is_cancelled(request))
        trii_thread_yield();
    return TRI_OK;
}
static const tri_rpc_function hang = {.name = "hang", .run = run_hang};

/* By another process, as if it looked so much later; returns how many findings there are. Of its
 * own locks a process sees nothing. */
static int find_calls(const char *folder, int64_t later_ns, char text[TRII_WHY_TEXT])
{
    int ends[2], n = -1, pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        trii_why_job job = {.now_ns = trii_now_ns() + later_ns};

        snprintf(job.folder, sizeof(job.folder), "%s", folder);
        if (trii_why_find_calls(&job) != TRI_OK ||
            write(ends[1], &job.n_findings, sizeof(n)) != sizeof(n) ||
            (job.n_findings > 0 && write(ends[1], job.findings[0].text, TRII_WHY_TEXT) < 0))
            _exit(1);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &n, sizeof(n)), sizeof(n));
    assert_true(read(ends[0], text, TRII_WHY_TEXT) == (n > 0 ? TRII_WHY_TEXT : 0));
    close(ends[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return n;
}

static void a_call_that_takes_long_is_told_with_its_line(void **state)
{
    const tri_rpc_options one = {.threads = 1, .window_calls = 1};
    tri_rpc_call *call;
    char text[TRII_WHY_TEXT] = "";
    trii_why_job job = {0};
    tri_rpc_ref *to;
    scratch s;
    workers w;
    int line;

    (void)state;
    scratch_begin(&s);
    setenv("TRI_RUN_DIR", s.dir, 1);
    workers_begin(&w, 2, &one);
    worker_serve(&w, 1, &hang);
    to = worker_find(&w, 0, "w1");
    assert_int_equal(find_calls(s.dir, 10 * TRII_NS_PER_S, text), 0); /* finding is over */
    line = __LINE__ + 1;
    CHECK_OK(tri_rpc_async(to, &hang, NULL, NULL, &call));
    worker_wait_for(&n_started, 1);
    assert_int_equal(find_calls(s.dir, 0, text), 0); /* not long yet */
    assert_int_equal(find_calls(s.dir, 10 * TRII_NS_PER_S, text), 1);
    assert_non_null(strstr(text, "worker w0 (pid "));
    assert_non_null(strstr(text, "waits for hang of w1 for 10."));
    assert_non_null(strstr(text, ", called at why_calls_test.c:"));
    assert_int_equal(strtol(strrchr(text, ':') + 1, NULL, 10), line);
    snprintf(job.folder, sizeof(job.folder), "%s", s.dir);
    text[0] = '\0';
    assert_true(trii_why_append_worker(&job, getpid(), text, sizeof(text)));
    assert_non_null(strstr(text, " in its own code, as worker w"));
    assert_false(trii_why_append_worker(&job, 1, text, sizeof(text)));
    tri_rpc_call_cancel(call);
    assert_int_equal(tri_rpc_call_wait(call, 0), TRI_ERR_ABORTED);
    tri_rpc_call_destroy(call);
    assert_int_equal(find_calls(s.dir, 10 * TRII_NS_PER_S, text), 0);
    tri_rpc_ref_unref(to);
    workers_end(&w);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_call_that_takes_long_is_told_with_its_line),
};

TEST_MAIN(tests)
