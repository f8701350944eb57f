/*
 * rpc_member_test.c - a closed set knows all of its members from the beginning: one that ends
 * before anybody has called it, one that has ended before it could be connected, one that does not
 * answer.
 */
#include "os/host.h"
#include "os/socket.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "testing/rpc_workers.h"
#include "testing/scratch.h"
#include "testing/test_fork.h"

static atomic_int n_came, n_left, n_lost;
static _Atomic int64_t told_ns;
static char told_text[512];

static void on_event(tri_rpc *rpc, const tri_rpc_event *event, void *arg)
{
    (void)rpc;
    (void)arg;
    if (event->kind == TRI_RPC_CAME) {
        atomic_fetch_add(&n_came, 1);
        return;
    }
    atomic_store(&told_ns, trii_now_ns());
    snprintf(told_text, sizeof(told_text), "%s", event->text);
    atomic_fetch_add(event->kind == TRI_RPC_LEFT ? &n_left : &n_lost, 1);
}

static const tri_rpc_options watched = {.event = on_event, .timeout_ms = 20000};

static void forget(void)
{
    atomic_store(&n_came, 0);
    atomic_store(&n_left, 0);
    atomic_store(&n_lost, 0);
}

/* --- a process ------------------------------------------------------------ */

static void member_main(const char *path)
{
    const tri_rpc_options o = {.timeout_ms = 20000};
    tri_store *store;
    tri_rpc *rpc;

    TRI_TRY(tri_store_file(path, NULL, &store));
    TRI_TRY(tri_rpc_create(store, "w1", 1, 2, &o, &rpc));
    for (;;)
        pause();
}

static void the_end_of_one_that_nobody_called_is_told(void **state)
{
    int64_t began_ns, killed_ns;
    tri_store *store;
    scratch folder;
    tri_rpc *rpc;
    int pid;

    (void)state;
    scratch_begin(&folder);
    pid = test_fork();
    if (pid == 0)
        member_main(scratch_path(&folder, "store"));
    forget();
    CHECK_OK(tri_store_file(scratch_path(&folder, "store"), NULL, &store));
    began_ns = trii_now_ns();
    CHECK_OK(tri_rpc_create(store, "w0", 0, 2, &watched, &rpc));
    if (trii_now_ns() - began_ns < TRII_NS_PER_S) /* it waits no longer for one that does not run */
        assert_int_equal(atomic_load(&n_came), 1); /* when it returns */
    worker_wait_for(&n_came, 1);
    killed_ns = trii_now_ns();
    assert_int_equal(kill(pid, SIGKILL), 0);
    worker_wait_for(&n_lost, 1);
    printf("known after %.1f ms\n", (double)(atomic_load(&told_ns) - killed_ns) / 1e6);
    assert_non_null(strstr(told_text, "its process has ended"));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    CHECK_OK(tri_rpc_join(rpc, 20000)); /* waits for nobody */
    assert_int_equal(atomic_load(&n_lost), 1);
    CHECK_OK(tri_rpc_leave(rpc, 0));
    tri_rpc_destroy(rpc);
    tri_store_unref(store);
    scratch_end(&folder);
}

/* --- one that has come, and is not there ---------------------------------- */

/* Rank 1 of two, "ghost", has come to the first meeting: with a port, and no socket. */
static void leave_words(tri_store *store, int port, const char *boot)
{
    char net[96], word[700];

    trii_socket_network_id(net);
    CHECK_OK(tri_store_set(store, "rpc/meet/1/net/1", net, strlen(net)));
    snprintf(word, sizeof(word),
             "ghost v2 77 1 4711 %d 000102030405060708090a0b0c0d0e0f %s nobody hostb 127.0.0.1",
             port, boot);
    CHECK_OK(tri_store_set(store, "rpc/meet/1/name/1", word, strlen(word)));
    CHECK_OK(tri_store_set(store, "rpc/worker/ghost", word + 6, strlen(word + 6)));
}

static int free_port(void)
{
    int fd, port;

    CHECK_OK(trii_socket_listen("localhost", 0, &fd, &port));
    trii_socket_close(fd);
    return port;
}

static void one_that_ended_before_it_was_met_is_told_once(void **state)
{
    (void)state;
    for (int is_here = 0; is_here < 2; is_here++) {
        char boot[40] = "another-boot";
        tri_store *store;
        tri_rpc_ref *ref;
        tri_rpc *rpc;

        if (is_here)
            trii_boot_id(boot);
        forget();
        CHECK_OK(tri_store_hash(&store));
        leave_words(store, free_port(), boot);
        CHECK_OK(tri_rpc_create(store, "w0", 0, 2, &watched, &rpc));
        worker_wait_for(&n_lost, 1);
        if (strstr(told_text, is_here ? "its process has ended (host hostb, pid 4711)"
                                      : "connection refused: its process (host hostb, pid 4711) "
                                        "has ended, or a firewall refuses") == NULL)
            fail_msg("%s", told_text);
        CHECK_FAILS(rpc_look_up(rpc, "ghost", false, trii_deadline_ms(20000), &ref),
                    TRI_ERR_PEER_LOST, "ended");
        CHECK_OK(tri_rpc_join(rpc, 20000));
        assert_int_equal(atomic_load(&n_lost), 1);
        assert_int_equal(atomic_load(&n_came), 1); /* for those that count */
        assert_int_equal(atomic_load(&n_left), 0);
        CHECK_OK(tri_rpc_leave(rpc, 0));
        tri_rpc_destroy(rpc);
        tri_store_unref(store);
    }
}

static void one_that_left_before_it_was_met_is_told_so(void **state)
{
    tri_store *store;
    tri_rpc *rpc;

    (void)state;
    forget();
    CHECK_OK(tri_store_hash(&store));
    leave_words(store, free_port(), "another-boot");
    CHECK_OK(tri_store_set(store, "rpc/worker/ghost", "left", 4));
    CHECK_OK(tri_rpc_create(store, "w0", 0, 2, &watched, &rpc));
    worker_wait_for(&n_left, 1);
    assert_non_null(strstr(told_text, "worker ghost has left"));
    assert_int_equal(atomic_load(&n_lost), 0);
    CHECK_OK(tri_rpc_leave(rpc, 0));
    tri_rpc_destroy(rpc);
    tri_store_unref(store);
}

/* It is stopped, say: it is waited for, but not in tri_rpc_create. */
static void one_that_does_not_answer_holds_up_nobody(void **state)
{
    int listener, port, first, second;
    int64_t began = trii_now_ns();
    tri_store *store;
    tri_rpc *rpc;

    (void)state;
    forget();
    CHECK_OK(trii_socket_listen("localhost", 0, &listener, &port));
    CHECK_OK(tri_store_hash(&store));
    leave_words(store, port, "another-boot");
    CHECK_OK(tri_rpc_create(store, "w0", 0, 2, &watched, &rpc));
    assert_true(trii_now_ns() - began < 10 * TRII_NS_PER_S);
    assert_int_equal(atomic_load(&n_lost), 0); /* nobody knows */
    CHECK_FAILS(tri_rpc_join(rpc, 50), TRI_ERR_TIMEOUT, "ghost has neither left nor joined");
    CHECK_OK(trii_socket_accept(listener, &first));
    while (trii_socket_accept(listener, &second) != TRI_OK)
        CHECK_OK(trii_socket_wait(listener, TRII_READABLE, trii_deadline_ms(20000)));
    trii_socket_close(listener);
    trii_socket_close(first);
    trii_socket_close(second); /* now it has ended */
    CHECK_OK(tri_rpc_join(rpc, 20000));
    worker_wait_for(&n_lost, 1);
    CHECK_OK(tri_rpc_leave(rpc, 0));
    tri_rpc_destroy(rpc);
    tri_store_unref(store);
}

static void abort_main(void *arg)
{
    int64_t deadline = trii_deadline_ms(20000);
    tri_rpc *rpc = arg;
    bool waits = false;

    while (!waits && trii_now_ns() < deadline) {
        rpc_lock(rpc);
        waits = rpc->joiner != NULL && rpc->joined; /* not the join before it */
        rpc_unlock(rpc);
        trii_thread_yield();
    }
    tri_rpc_abort(rpc, "enough");
}

/* A stopped worker that it has not met may hold tri_rpc_join, but not tri_rpc_abort. */
static void the_join_of_an_open_set_ends_with_its_worker(void **state)
{
    const tri_rpc_options open = {.open = true, .timeout_ms = 20000};
    int listener, port;
    trii_thread thread;
    int64_t began;
    tri_store *store;
    tri_rpc *rpc;

    (void)state;
    CHECK_OK(trii_socket_listen("localhost", 0, &listener, &port));
    CHECK_OK(tri_store_hash(&store));
    leave_words(store, port, "another-boot");
    CHECK_OK(tri_store_set(store, "rpc/member/count", "1", 1));
    CHECK_OK(tri_store_set(store, "rpc/member/1", "ghost", 5));
    CHECK_OK(tri_rpc_create(store, "w0", 0, 1, &open, &rpc));
    began = trii_now_ns();
    CHECK_FAILS(tri_rpc_join(rpc, 1200), TRI_ERR_TIMEOUT, "ghost has neither left nor joined");
    CHECK_OK(trii_thread_start(&thread, "abort", abort_main, rpc));
    CHECK_FAILS(tri_rpc_join(rpc, TRI_FOREVER), TRI_ERR_ABORTED, "enough");
    assert_true(trii_now_ns() - began < 15 * TRII_NS_PER_S);
    trii_thread_join(&thread);
    tri_rpc_destroy(rpc);
    trii_socket_close(listener);
    tri_store_unref(store);
}

static bool is_listed(tri_rpc *rpc, const char *name)
{
    char listed[RPC_NAME];
    int64_t n = 1;

    for (int64_t i = 1; i <= n; i++) {
        CHECK_OK(rpc_read_member(rpc, i, 0, listed, &n));
        if (strcmp(listed, name) == 0)
            return true;
    }
    return false;
}

/* The disk under its store is full until its second attempt: whichever write failed first. */
static void one_of_an_open_set_that_fails_halfway_is_listed_the_next_time(void **state)
{
    const tri_rpc_options open = {.open = true, .timeout_ms = 20000};
    int n_failed = 0;
    bool failed = true;

    (void)state;
    for (off_t room = 0; failed; room += 8) {
        tri_store *store;
        struct stat info;
        scratch folder;
        tri_rpc *rpc;

        scratch_begin(&folder);
        CHECK_OK(tri_store_file(scratch_path(&folder, "store"), NULL, &store));
        CHECK_OK(tri_store_set(store, "key", "value", 5));
        assert_int_equal(stat(scratch_path(&folder, "store"), &info), 0);
        scratch_limit_files((size_t)(info.st_size + room));
        failed = tri_rpc_create(store, "w0", 0, 1, &open, &rpc) != TRI_OK;
        scratch_limit_files(RLIM_INFINITY);
        n_failed += failed;
        if (failed)
            CHECK_OK(tri_rpc_create(store, "w0", 0, 1, &open, &rpc));
        assert_true(is_listed(rpc, "w0"));
        CHECK_OK(tri_rpc_leave(rpc, 0));
        tri_rpc_destroy(rpc);
        tri_store_unref(store);
        scratch_end(&folder);
    }
    assert_true(n_failed > 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_end_of_one_that_nobody_called_is_told),
    cmocka_unit_test(one_that_ended_before_it_was_met_is_told_once),
    cmocka_unit_test(one_that_left_before_it_was_met_is_told_so),
    cmocka_unit_test(one_that_does_not_answer_holds_up_nobody),
    cmocka_unit_test(the_join_of_an_open_set_ends_with_its_worker),
    cmocka_unit_test(one_of_an_open_set_that_fails_halfway_is_listed_the_next_time),
};

TEST_MAIN(tests)
