/*
 * rpc_system_test.c - workers where the system gives less than usual (no futex_waitv, a full disk),
 * with more peers than tri_rpc_join watches by itself, and ended from within what they tell.
 */
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "os/futex.h"
#include "os/thread.h"
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"
#include "testing/scratch.h"

enum { MANY = 70, ROUNDS = TEST_SANITIZED ? 6 : 20 };

static tri_status run_next(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    int n;

    (void)object;
    memcpy(&n, in->data, sizeof(n));
    n++;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &n, .bytes = sizeof(n)});
}
static const tri_rpc_function next_inline = {
    .name = "next_inline", .run = run_next, .flags = TRI_RPC_INLINE};
static const tri_rpc_function next_thread = {.name = "next_thread", .run = run_next};
static const tri_rpc_function *const functions[] = {&next_inline, &next_thread};

static void expect_next(tri_rpc_ref *to, const tri_rpc_function *function, int n)
{
    tri_rpc_message reply;
    int got;

    CHECK_OK(tri_rpc_sync(to, function, &(tri_rpc_message){.data = &n, .bytes = sizeof(n)}, NULL,
                          &reply));
    memcpy(&got, reply.data, sizeof(got));
    tri_rpc_message_free(&reply);
    assert_int_equal(got, n + 1);
}

/* --- many peers ----------------------------------------------------------- */

typedef struct joiner {
    tri_rpc *rpc;
    tri_status status;
    trii_thread thread;
} joiner;

static void join_main(void *arg)
{
    joiner *j = arg;

    j->status = tri_rpc_join(j->rpc, 20000);
}

/* One serves in tri_rpc_join, all others call it, while others come and leave. */
static void call_one_that_joins(int n)
{
    static tri_rpc *callers[MANY];
    static tri_rpc_ref *to[MANY];
    const tri_rpc_options o = {
        .open = true, .timeout_ms = 20000, .threads = 1, .functions = functions, .n_functions = 2};
    tri_store *store;
    joiner server;

    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_rpc_create(store, "server", 0, 0, &o, &server.rpc));
    for (int i = 0; i < n; i++) {
        char name[16];

        snprintf(name, sizeof(name), "w%d", i);
        CHECK_OK(tri_rpc_create(store, name, 0, 0, &o, &callers[i]));
        CHECK_OK(tri_rpc_find(callers[i], "server", &to[i]));
        if (i == n / 2)
            CHECK_OK(trii_thread_start(&server.thread, "joiner", join_main, &server));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++)
            expect_next(to[i], round % 2 == 0 ? &next_inline : &next_thread, i);
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = 0; k <= i; k += 1 + i / 4)
            expect_next(to[k], &next_inline, k);
        tri_rpc_ref_unref(to[i]);
        CHECK_OK(tri_rpc_leave(callers[i], 0));
        tri_rpc_destroy(callers[i]);
    }
    trii_thread_join(&server.thread);
    CHECK_OK(server.status);
    CHECK_OK(tri_rpc_leave(server.rpc, 0));
    tri_rpc_destroy(server.rpc);
    tri_store_unref(store);
}

static void join_serves_more_peers_than_it_watches(void **state)
{
    (void)state;
    call_one_that_joins(MANY);
}

/* --- a poor system -------------------------------------------------------- */

/* What a child of this process says: 0, or it has failed. */
static void expect_child(int pid)
{
    int status = -1;

    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A system before Linux 5.16, as far as that goes. */
static bool refuse_futex_waitv(void)
{
    struct sock_filter words[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = TRII_COUNT_OF(words), .filter = words};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void join_serves_without_futex_waitv(void **state)
{
    int pid = fork();

    (void)state;
    if (pid == 0) {
        if (!refuse_futex_waitv())
            _exit(1);
        assert_false(trii_futex_has_wait_many());
        call_one_that_joins(4);
        _exit(0);
    }
    expect_child(pid);
}

/* The records of two workers are more than the disk takes. */
static void a_full_disk_loses_records_and_no_call(void **state)
{
    scratch folder;
    int pid;

    (void)state;
    scratch_begin(&folder);
    pid = fork();
    if (pid == 0) {
        workers w;
        tri_rpc_ref *to;
        int n_recorded = 0;

        if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            _exit(0); /* this system lets nobody mount */
        if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("none", folder.dir, "tmpfs", 0, "size=64k") != 0)
            _exit(0);
        setenv("TRI_RUN_DIR", folder.dir, 1);
        setenv("TRI_LOG", "error", 1);
        workers_begin(&w, 3, NULL);
        for (int i = 0; i < 3; i++)
            n_recorded += w.rpc[i]->record_file != NULL;
        assert_int_equal(n_recorded, 1);
        for (int i = 0; i < 3; i++)
            worker_serve(&w, i, &next_inline);
        for (int i = 0; i < 9; i++) {
            char name[8];

            snprintf(name, sizeof(name), "w%d", i / 3);
            to = worker_find(&w, i % 3, name);
            expect_next(to, &next_inline, i);
            tri_rpc_ref_unref(to);
        }
        workers_end(&w);
        _exit(0);
    }
    expect_child(pid);
    scratch_end(&folder);
}

/* --- the end, from within ------------------------------------------------- */

enum { CALLS = 50 };

static atomic_int n_done, n_aborted, n_events, n_kept;
static tri_rpc_request *kept[CALLS];

static tri_status run_keep(tri_rpc_request *request, void *object)
{
    (void)object;
    kept[atomic_fetch_add(&n_kept, 1)] = request;
    return TRI_INPROGRESS;
}

/* To nobody: their caller or their worker has ended. */
static void answer_kept(void)
{
    int n = atomic_exchange(&n_kept, 0);

    for (int i = 0; i < n; i++)
        CHECK_OK(tri_rpc_reply(kept[i], NULL));
}

static const tri_rpc_function keep = {.name = "keep", .run = run_keep, .flags = TRI_RPC_INLINE};

static void abort_when_done(tri_rpc_call *call, void *arg)
{
    if (tri_rpc_call_test(call) == TRI_ERR_ABORTED)
        atomic_fetch_add(&n_aborted, 1);
    if (atomic_fetch_add(&n_done, 1) == 0)
        tri_rpc_abort(arg, "the first call is done");
}

/* Of all calls one is answered, whose `done` ends the others: each is told once. */
static void done_may_abort_its_worker(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const tri_rpc_options o = {.tcp_only = t == 1};
        tri_rpc_call_options told = {.done = abort_when_done};
        tri_rpc_call *call;
        tri_rpc_ref *to;
        workers w;

        atomic_store(&n_done, 0);
        atomic_store(&n_aborted, 0);
        workers_begin(&w, 2, &o);
        worker_serve(&w, 1, &keep);
        worker_serve(&w, 1, &next_inline);
        to = worker_find(&w, 0, "w1");
        told.arg = w.rpc[0];
        for (int i = 0; i < CALLS; i++)
            CHECK_OK(tri_rpc_async(to, &keep, NULL, &told, NULL));
        CHECK_OK(tri_rpc_async(to, &next_inline, &(tri_rpc_message){.data = &t, .bytes = sizeof(t)},
                               &told, &call));
        CHECK_OK(tri_rpc_call_wait(call, 20000));
        worker_wait_for(&n_done, CALLS + 1);
        assert_int_equal(atomic_load(&n_done), CALLS + 1);
        assert_int_equal(atomic_load(&n_aborted), CALLS);
        tri_rpc_call_destroy(call);
        CHECK_FAILS(tri_rpc_sync(to, &keep, NULL, NULL, NULL), TRI_ERR_ABORTED,
                    "the first call is done");
        tri_rpc_ref_unref(to);
        answer_kept();
        workers_destroy(&w);
    }
}

static void abort_when_lost(tri_rpc *rpc, const tri_rpc_event *event, void *arg)
{
    (void)arg;
    if (event->kind == TRI_RPC_LOST) {
        tri_rpc_abort(rpc, "it has lost one");
        atomic_fetch_add(&n_events, 1);
    }
}

static void an_event_may_abort_its_worker(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const tri_rpc_options o = {.tcp_only = t == 1, .event = abort_when_lost};
        tri_rpc_call *calls[CALLS];
        int64_t aborted_ns;
        joiner j;
        tri_rpc_ref *to;
        workers w;

        atomic_store(&n_events, 0);
        workers_begin(&w, 3, &o);
        worker_serve(&w, 1, &keep);
        to = worker_find(&w, 0, "w1");
        for (int i = 0; i < CALLS; i++)
            CHECK_OK(tri_rpc_async(to, &keep, NULL, NULL, &calls[i]));
        j.rpc = w.rpc[1]; /* whose kept requests end, too */
        CHECK_OK(trii_thread_start(&j.thread, "joiner", join_main, &j));
        tri_rpc_abort(w.rpc[2], "first of all");
        aborted_ns = trii_now_ns();
        worker_wait_for(&n_events, 2);
        trii_thread_join(&j.thread);
        assert_true(trii_now_ns() <
                    aborted_ns + 10 * TRII_NS_PER_S); /* of the 20 that it may wait */
        assert_true(j.status == TRI_ERR_ABORTED || j.status == TRI_ERR_STATE); /* it came later */
        for (int i = 0; i < CALLS; i++) {
            tri_status status = tri_rpc_call_wait(calls[i], 20000);

            assert_true(status == TRI_ERR_ABORTED || status == TRI_ERR_PEER_LOST);
            tri_rpc_call_destroy(calls[i]);
        }
        tri_rpc_ref_unref(to);
        answer_kept();
        workers_destroy(&w);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(join_serves_more_peers_than_it_watches),
    cmocka_unit_test(join_serves_without_futex_waitv),
    cmocka_unit_test(a_full_disk_loses_records_and_no_call),
    cmocka_unit_test(done_may_abort_its_worker),
    cmocka_unit_test(an_event_may_abort_its_worker),
};

TEST_MAIN(tests)
