/*
 * why_calls_test.c - what `trireme why` tells of calls between workers.
 */
#include "launch/inspect/why_internal.h"
#include "os/clock.h"
#include "comm/rpc/rpc_record.h"
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
    assert_non_null(strstr(text, "waits for hang of w1 for 1"));
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

/* --- a handler in a thread that waits ------------------------------------- */

static atomic_int n_back, may_end;

static tri_status run_back(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    atomic_fetch_add(&n_back, 1);
    while (!atomic_load(&may_end))
        trii_thread_yield();
    return TRI_OK;
}
static const tri_rpc_function back = {.name = "back", .run = run_back};

static tri_rpc_ref *to_w0;

static tri_status run_relay(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_rpc_sync(to_w0, &back, NULL, NULL, NULL);
}
static const tri_rpc_function relay = {.name = "relay", .run = run_relay};

typedef struct relayer {
    tri_rpc_ref *to;
    tri_status status;
    int line;
    trii_thread thread;
} relayer;

static void relay_main(void *arg)
{
    relayer *r = arg;

    r->line = __LINE__ + 4;
    for (int64_t ms = 50; atomic_load(&n_back) == 0 && ms < 10000; ms *= 2) {
        const tri_rpc_call_options soon = {.timeout_ms = ms}; /* time enough to get here and back */

        r->status = tri_rpc_sync(r->to, &relay, NULL, &soon, NULL);
    }
}

/* It holds what the handler waits for, say: the calls have passed their deadlines, and nothing else
 * is left to tell. */
static void a_handler_that_holds_up_a_thread_that_waits_is_told(void **state)
{
    int64_t deadline = trii_deadline_ms(20000);
    char text[TRII_WHY_TEXT] = "";
    relayer r = {0};
    scratch s;
    workers w;

    (void)state;
    scratch_begin(&s);
    setenv("TRI_RUN_DIR", s.dir, 1);
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 0, &back);
    worker_serve(&w, 1, &relay);
    r.to = worker_find(&w, 0, "w1");
    to_w0 = worker_find(&w, 1, "w0");
    CHECK_OK(trii_thread_start(&r.thread, "relayer", relay_main, &r));
    worker_wait_for(&n_back, 1);
    while (find_calls(s.dir, 10 * TRII_NS_PER_S, text) != 1) { /* until both have ended */
        if (trii_now_ns() > deadline)
            fail_msg("\"%s\" and others", text);
        trii_thread_yield();
    }
    assert_non_null(strstr(text, "worker w0 (pid "));
    assert_non_null(strstr(text, "runs back of w1 for 1"));
    assert_non_null(strstr(text, " s in a thread that waits for a call at why_calls_test.c:"));
    assert_int_equal(strtol(strrchr(text, ':') + 1, NULL, 10), r.line);
    atomic_store(&may_end, 1);
    trii_thread_join(&r.thread);
    assert_int_equal(r.status, TRI_ERR_TIMEOUT);
    assert_int_equal(find_calls(s.dir, 10 * TRII_NS_PER_S, text), 0);
    tri_rpc_ref_unref(r.to);
    tri_rpc_ref_unref(to_w0);
    workers_end(&w);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_call_that_takes_long_is_told_with_its_line),
    cmocka_unit_test(a_handler_that_holds_up_a_thread_that_waits_is_told),
};

TEST_MAIN(tests)
