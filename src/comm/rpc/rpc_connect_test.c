/*
 * rpc_connect_test.c - connections that are late: to a worker that was stopped, to one that has no
 * descriptors left, and what is looked for or answered meanwhile.
 */
#include "os/proc.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "testing/no_descriptors.h"
#include "testing/rpc_children.h"
#include "testing/rpc_workers.h"

static tri_status run_nothing(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function nothing = {.name = "nothing", .run = run_nothing};
static const tri_rpc_function nothing_again = {.name = "nothing", .flags = TRI_RPC_IDEMPOTENT};

static atomic_int is_held_up, may_go_on;

static tri_status run_hold_up(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    atomic_store(&is_held_up, 1);
    return worker_stays_until(&may_go_on);
}
static const tri_rpc_function hold_up = {
    .name = "hold_up", .flags = TRI_RPC_INLINE, .run = run_hold_up};
static const tri_rpc_function *const all[] = {&nothing, &hold_up};

static const tri_rpc_object plain = {.name = "plain"};

/* --- a worker that is stopped --------------------------------------------- */

/* "ps", which has come and is stopped; and this process's worker. */
static tri_rpc *begin_with_stopped(child *ps, const tri_rpc_options *opt)
{
    char record[640];
    tri_rpc *rpc;

    scratch_begin(&child_folder);
    child_functions = all;
    child_n_functions = (int)TRII_COUNT_OF(all);
    child_joins = false;
    child_fork(ps, "ps", 1, opt);
    child_go(ps);
    rpc = open_worker("trainer", opt);
    CHECK_OK(rpc_read_record(rpc, "ps", true, trii_deadline_ms(20000), record));
    child_stop(ps);
    return rpc;
}

static void end_with_stopped(child *ps, tri_rpc *rpc)
{
    leave_worker(rpc);
    child_kill(ps);
    children_end(ps, 1);
}

static bool connects(tri_rpc *rpc)
{
    bool any = false;

    rpc_lock(rpc);
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next)
        any = any || p->state == RPC_PEER_CONNECTING;
    rpc_unlock(rpc);
    return any;
}

typedef struct finder {
    tri_rpc *rpc;
    tri_rpc_ref *ref;
    atomic_int number; /* of its thread */
    tri_status status;
    char error[512];
    trii_thread thread;
} finder;

static void finder_main(void *arg)
{
    finder *f = arg;

    atomic_store(&f->number, (int)trii_thread_id());
    f->status = tri_rpc_find(f->rpc, "ps", &f->ref);
    if (f->status != TRI_OK)
        snprintf(f->error, sizeof(f->error), "%s", tri_last_error());
}

/* It takes what the first attempt has said for a connection, until it sees that this has ended. */
static void a_second_attempt_replaces_one_that_was_given_up(void **state)
{
    const tri_rpc_options o = {.tcp_only = true, .timeout_ms = 5000};
    finder f = {0};
    tri_rpc_ref *ref;
    child ps;

    (void)state;
    f.rpc = begin_with_stopped(&ps, &o);
    CHECK_FAILS(rpc_look_up(f.rpc, "ps", false, trii_deadline_ms(50), &ref), TRI_ERR_TIMEOUT, "");
    CHECK_OK(trii_thread_start(&f.thread, "finder", finder_main, &f));
    worker_wait_for(&f.number, 1);
    while (!connects(f.rpc) || trii_proc_state(atomic_load(&f.number)) != 'S')
        trii_thread_yield(); /* until it waits for an answer */
    assert_int_equal(kill(ps.pid, SIGCONT), 0);
    trii_thread_join(&f.thread);
    if (f.status != TRI_OK)
        fail_msg("%s", f.error);
    CHECK_OK(tri_rpc_sync(f.ref, &nothing, NULL, NULL, NULL));
    tri_rpc_ref_unref(f.ref);
    end_with_stopped(&ps, f.rpc);
}

/* As a reference leads there that came in a message. */
static tri_rpc_ref *refer_to_ps(tri_rpc *rpc)
{
    char record[640];
    rpc_address a;
    tri_rpc_ref *ref;

    CHECK_OK(rpc_read_record(rpc, "ps", false, trii_deadline_ms(20000), record));
    CHECK_OK(rpc_parse_record(record, &a));
    rpc_lock(rpc);
    ref = rpc_ref_make(rpc, rpc_peer_of(rpc, "ps", a.incarnation), NULL, 0);
    rpc_unlock(rpc);
    assert_non_null(ref);
    return ref;
}

static void a_call_that_may_not_wait_does_not_wait_for_a_connection(void **state)
{
    const tri_rpc_call_options o = {.no_wait = true};
    tri_rpc_call *call;
    tri_rpc_ref *ref;
    tri_rpc *rpc;
    child ps;

    (void)state;
    rpc = begin_with_stopped(&ps, NULL);
    ref = refer_to_ps(rpc);
    CHECK_OK(tri_rpc_async(ref, &nothing, NULL, &o, &call)); /* nobody else lets it go on */
    assert_int_equal(kill(ps.pid, SIGCONT), 0);
    CHECK_OK(tri_rpc_call_wait(call, 0));
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(ref);
    end_with_stopped(&ps, rpc);
}

enum { WINDOW = 8, LARGE = 40 << 10 };

/* Calls until no more are kept; how many were. */
static int call_until_refused(tri_rpc_ref *to, const tri_rpc_function *function, size_t bytes,
                              tri_rpc_call *calls[2 * WINDOW])
{
    static const char data[LARGE];
    const tri_rpc_call_options o = {.no_wait = true};
    const tri_rpc_message in = {.data = data, .bytes = bytes};
    int n = 0;

    while (n < 2 * WINDOW) {
        tri_status status = tri_rpc_async(to, function, &in, &o, &calls[n]);

        if (status == TRI_INPROGRESS)
            return n;
        CHECK_OK(status);
        n++;
    }
    return n;
}

static void all_end(tri_rpc_call **calls, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_OK(tri_rpc_call_wait(calls[i], 0));
        tri_rpc_call_destroy(calls[i]);
    }
}

static void what_is_kept_for_a_connection_has_the_bounds_of_a_window(void **state)
{
    const tri_rpc_options o = {.open = true, .window_calls = WINDOW, .window_bytes = 3 * LARGE};

    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_call *calls[2 * WINDOW];
        int n, most = t == 0 ? WINDOW : 2; /* with their headers */
        tri_rpc_ref *ref;
        tri_rpc *rpc;
        child ps;

        rpc = begin_with_stopped(&ps, &o);
        ref = refer_to_ps(rpc);
        n = call_until_refused(ref, &nothing, t == 0 ? 0 : LARGE, calls);
        assert_int_equal(n, most);
        tri_rpc_call_cancel(calls[0]); /* it takes its room until it is dropped */
        CHECK_FAILS(tri_rpc_call_wait(calls[0], 0), TRI_ERR_ABORTED, "cancelled");
        tri_rpc_call_destroy(calls[0]);
        assert_int_equal(kill(ps.pid, SIGCONT), 0);
        all_end(calls + 1, n - 1);
        n = call_until_refused(ref, &nothing, 0, calls);
        all_end(calls, n);
        tri_rpc_ref_unref(ref);
        end_with_stopped(&ps, rpc);
    }
}

static bool knows(tri_rpc *rpc, const char *name)
{
    const rpc_peer *peer;

    rpc_lock(rpc);
    peer = rpc_peer_named(rpc, name);
    rpc_unlock(rpc);
    return peer != NULL;
}

static void what_is_kept_for_the_next_worker_has_them_too(void **state)
{
    const tri_rpc_options o = {
        .open = true, .window_calls = WINDOW, .functions = all, .n_functions = 1};
    tri_rpc_call *calls[2 * WINDOW];
    tri_rpc_ref *ref;
    workers w;

    (void)state;
    workers_begin(&w, 2, &o);
    ref = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_leave(w.rpc[1], 0));
    tri_rpc_destroy(w.rpc[1]);
    while (knows(w.rpc[0], "w1"))
        trii_thread_yield(); /* until it has seen that */
    assert_int_equal(call_until_refused(ref, &nothing_again, 0, calls), WINDOW);
    CHECK_OK(tri_rpc_create(w.store, "w1", 0, 0, &o, &w.rpc[1]));
    all_end(calls, WINDOW);
    tri_rpc_ref_unref(ref);
    workers_end(&w);
}

/* --- no descriptors ------------------------------------------------------- */

static int64_t own_cpu_ns(void)
{
    struct timespec t;

    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (int64_t)t.tv_sec * TRII_NS_PER_S + t.tv_nsec;
}

/* Asleep until it has been logged that often that there is no descriptor; how many of these lines
 * were warnings. */
static int wait_for_complaints(FILE *log, int n)
{
    char line[512];
    int warnings = 0;

    while (n > 0 && fgets(line, sizeof(line), log) != NULL) {
        bool complains = strstr(line, "raise the limit (ulimit -n)") != NULL;

        n -= complains;
        warnings += complains && strstr(line, " warn ") != NULL;
    }
    return warnings;
}

/* It looks whether there is one again after a while, in which a processor could spin. */
static void without_descriptors_nobody_is_asked_without_end(void **state)
{
    int64_t began, passed, used;
    int fds[2], log_fds[2], stderr_fd;
    tri_rpc_ref *ref;
    FILE *log;
    workers w;

    (void)state;
    setenv("TRI_LOG", "rpc:debug", 1);
    assert_int_equal(pipe(log_fds), 0);
    log = fdopen(log_fds[0], "r");
    stderr_fd = dup(STDERR_FILENO);
    assert_true(log != NULL && stderr_fd >= 0);
    workers_begin(&w, 1, &(tri_rpc_options){.open = true});
    began = trii_now_ns();
    used = own_cpu_ns();
    dup2(log_fds[1], STDERR_FILENO);
    fds[0] = descriptors_end_and_call(w.rpc[0]->tcp_port);
    assert_int_equal(wait_for_complaints(log, 3), 1);
    passed = trii_now_ns() - began;
    used = own_cpu_ns() - used;
    assert_true(passed >= 400 * TRII_NS_PER_MS);
    assert_in_range(used, 0, passed / 4);
    descriptors_allow();
    CHECK_OK(tri_rpc_create(w.store, "w1", 0, 0, &(tri_rpc_options){.open = true}, &w.rpc[w.n]));
    w.n++;
    ref = worker_find(&w, 1, "w0"); /* it is let in again */
    tri_rpc_ref_unref(ref);
    fds[1] = descriptors_end_and_call(w.rpc[0]->tcp_port);
    assert_int_equal(wait_for_complaints(log, 1), 1); /* there was one meanwhile */
    descriptors_allow();
    dup2(stderr_fd, STDERR_FILENO);
    for (int i = 0; i < 2; i++)
        trii_socket_close(fds[i]);
    workers_end(&w);
    fclose(log);
    close(log_fds[1]);
    close(stderr_fd);
}

static int n_rings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        n += strstr(line, "trireme-rpc-rings") != NULL;
    fclose(maps);
    return n;
}

/* The peer may be connected later. */
static void a_connection_that_cannot_be_watched_is_given_back_whole(void **state)
{
    workers w;
    int before;

    (void)state;
    workers_begin(&w, 1, &(tri_rpc_options){.open = true});
    before = n_rings();
    for (int i = 0; i < 2; i++) {
        trii_shmem shm;
        rpc_peer *peer;
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        CHECK_OK(trii_shmem_create("trireme-rpc-rings", 2 * sizeof(rpc_ring), &shm));
        rpc_lock(w.rpc[0]);
        peer = rpc_peer_of(w.rpc[0], "other", 411);
        assert_non_null(peer);
        if (i == 0)
            rpc_peer_use(peer); /* it stays */
        rpc_peer_take(peer, fds[0], true, &shm, true);
        rpc_peer_give_back(peer);
        assert_int_equal(peer->users, 1);
        assert_true(peer->closed && peer->in == NULL && peer->out_ring == NULL);
        if (i == 1)
            rpc_peer_unuse(peer);
        rpc_unlock(w.rpc[0]);
        trii_socket_close(fds[1]);
    }
    assert_int_equal(n_rings(), before);
    workers_end(&w);
}

static bool was_lost_over(tri_rpc *rpc, const char *why)
{
    bool any = false;

    rpc_lock(rpc);
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next)
        any = any || strstr(p->why, why) != NULL;
    rpc_unlock(rpc);
    return any;
}

static void without_descriptors_memory_does_not_come_and_that_is_said(void **state)
{
    static const tri_rpc_function large = {
        .name = "large", .max_part = 1 << 20, .run = run_nothing};
    tri_rpc_part part = {NULL, 1 << 20};
    const tri_rpc_message in = {.parts = &part, .n_parts = 1};
    tri_rpc_ref *to, *end;
    int fd;
    workers w;

    (void)state;
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &large);
    to = worker_find(&w, 0, "w1");
    end = worker_find(&w, 1, "w0"); /* so that what is known of it stays */
    part.data = tri_rpc_alloc(w.rpc[0], part.bytes);
    assert_non_null(part.data);
    fd = descriptors_end_and_call(w.rpc[0]->tcp_port);
    CHECK_FAILS(tri_rpc_sync(to, &large, &in, NULL, NULL), TRI_ERR_PEER_LOST, "perhaps executed");
    descriptors_allow();
    assert_true(was_lost_over(w.rpc[1], "raise the limit (ulimit -n)"));
    CHECK_OK(tri_rpc_sync(to, &large, &in, NULL, NULL)); /* by another connection */
    trii_socket_close(fd);
    tri_rpc_free(w.rpc[0], (void *)(uintptr_t)part.data);
    tri_rpc_ref_unref(end);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* --- searches ------------------------------------------------------------- */

/* Of a worker that has come again, and has no such object. */
static void a_search_ends_with_the_calls_that_wait_for_it(void **state)
{
    const tri_rpc_options o = {
        .open = true, .timeout_ms = 20000, .functions = all, .n_functions = 1};
    tri_rpc_ref *own, *ref;
    int64_t ms, began;
    workers w;

    (void)state;
    workers_begin(&w, 2, &o);
    CHECK_OK(tri_rpc_own(w.rpc[1], "object", &plain, NULL, &own));
    ref = worker_find(&w, 0, "w1/object");
    tri_rpc_ref_unref(own);
    tri_rpc_destroy(w.rpc[1]);
    CHECK_OK(tri_rpc_create(w.store, "w1", 0, 0, &o, &w.rpc[1]));
    CHECK_FAILS_WITHIN(
        ms,
        tri_rpc_sync(ref, &nothing_again, NULL, &(tri_rpc_call_options){.timeout_ms = ms}, NULL),
        TRI_ERR_TIMEOUT, "the next worker of the name has not come");
    began = trii_now_ns();
    CHECK_OK(tri_rpc_leave(w.rpc[0], 10000));
    assert_in_range(trii_now_ns() - began, 0, 8 * TRII_NS_PER_S);
    tri_rpc_ref_unref(ref);
    CHECK_OK(tri_rpc_leave(w.rpc[1], 10000));
    workers_destroy(&w);
}

enum { WARM = 8 };

static void call_all(tri_rpc_ref *to, tri_rpc_call **calls, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_OK(tri_rpc_async(to, &nothing, NULL, NULL, &calls[i]));
    for (int i = 0; i < n; i++) {
        CHECK_OK(tri_rpc_call_wait(calls[i], 0));
        tri_rpc_call_destroy(calls[i]);
    }
}

static void break_connection(tri_rpc *rpc, const char *with)
{
    rpc_lock(rpc);
    for (rpc_peer *p = rpc->peers; p != NULL; p = p->next) {
        if (p->state == RPC_PEER_UP && strcmp(p->name, with) == 0)
            worker_stop_sending(p->fd);
    }
    rpc_unlock(rpc);
}

/* Three searches of one worker wait; the answer of the first shows that it is lost. */
static void the_answer_to_a_search_finds_its_worker_lost(void **state)
{
    static const char *const names[] = {"there", "there", "elsewhere"};
    const tri_rpc_options o = {.open = true, .tcp_only = true, .functions = all, .n_functions = 2};
    tri_rpc_call *calls[WARM];
    tri_rpc_ref *to, *own;
    workers w;

    (void)state;
    workers_begin(&w, 2, &o);
    to = worker_find(&w, 0, "w1");
    call_all(to, calls, WARM); /* there are requests to be used again */
    for (int i = 0; i < 3; i++)
        CHECK_OK(tri_rpc_async(to, &rpc_find_function,
                               &(tri_rpc_message){.data = names[i], .bytes = strlen(names[i]) + 1},
                               NULL, &calls[i]));
    atomic_store(&is_held_up, 0);
    atomic_store(&may_go_on, 0);
    CHECK_OK(tri_rpc_async(to, &hold_up, NULL, NULL, &calls[3]));
    worker_wait_for(&is_held_up, 1); /* it does not see the end of a connection meanwhile */
    break_connection(w.rpc[1], "w0");
    CHECK_OK(tri_rpc_own(w.rpc[1], "there", &plain, NULL, &own));
    atomic_store(&may_go_on, 1);
    for (int i = 0; i < 4; i++) {
        CHECK_FAILS(tri_rpc_call_wait(calls[i], 0), TRI_ERR_PEER_LOST, "perhaps executed");
        tri_rpc_call_destroy(calls[i]);
    }
    tri_rpc_ref_unref(own);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_second_attempt_replaces_one_that_was_given_up),
    cmocka_unit_test(a_call_that_may_not_wait_does_not_wait_for_a_connection),
    cmocka_unit_test(what_is_kept_for_a_connection_has_the_bounds_of_a_window),
    cmocka_unit_test(what_is_kept_for_the_next_worker_has_them_too),
    cmocka_unit_test(without_descriptors_nobody_is_asked_without_end),
    cmocka_unit_test(a_connection_that_cannot_be_watched_is_given_back_whole),
    cmocka_unit_test(without_descriptors_memory_does_not_come_and_that_is_said),
    cmocka_unit_test(a_search_ends_with_the_calls_that_wait_for_it),
    cmocka_unit_test(the_answer_to_a_search_finds_its_worker_lost),
};

TEST_MAIN(tests)
