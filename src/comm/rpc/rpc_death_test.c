/*
 * rpc_death_test.c - workers that are processes: killed in each state, stopped, restarted, leaving;
 * strangers on their port. Children are forked before the library is used here, and meet in a file.
 */
#include "base/alloc.h"
#include "os/socket.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "testing/rpc_children.h"
#include "testing/socket_end.h"

/* --- functions ------------------------------------------------------------ */

static const tri_rpc_function hang = {.name = "hang", .run = child_hang};

static tri_status run_die(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    _exit(3);
}
static const tri_rpc_function die = {.name = "die", .run = run_die};

/* Its number; the first one never answers. */
static tri_status run_second(tri_rpc_request *request, void *object)
{
    if (child_number == 1)
        return child_hang(request, object);
    return tri_rpc_reply(request,
                         &(tri_rpc_message){.data = &child_number, .bytes = sizeof(child_number)});
}
static const tri_rpc_function second = {
    .name = "second", .flags = TRI_RPC_IDEMPOTENT, .run = run_second};

static tri_status run_number(tri_rpc_request *request, void *object)
{
    (void)object;
    return tri_rpc_reply(request,
                         &(tri_rpc_message){.data = &child_number, .bytes = sizeof(child_number)});
}
static const tri_rpc_function number = {
    .name = "number", .flags = TRI_RPC_INLINE, .run = run_number};

static const tri_rpc_function *const all[] = {&hang, &die, &second, &number};

/* n children of that name, of which the first has begun. */
static void begin_in(child *children, int n, const char *name, const tri_rpc_options *opt)
{
    child_functions = all;
    child_n_functions = (int)TRII_COUNT_OF(all);
    for (int i = 0; i < n; i++)
        child_fork(&children[i], name, i + 1, opt);
    child_go(&children[0]);
}

static void begin(child *children, int n, const char *name, const tri_rpc_options *opt)
{
    scratch_begin(&child_folder);
    begin_in(children, n, name, opt);
}

static int number_of(tri_rpc_ref *ps, const tri_rpc_function *function)
{
    tri_rpc_message reply;
    int n;

    CHECK_OK(tri_rpc_sync(ps, function, NULL, NULL, &reply));
    memcpy(&n, reply.data, sizeof(n));
    tri_rpc_message_free(&reply);
    return n;
}

/* --- death ---------------------------------------------------------------- */

static void a_killed_worker_ends_every_call_to_it_at_once(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const tri_rpc_options o = {.tcp_only = t == 1};
        const tri_rpc_call_options forever = {.timeout_ms = TRI_FOREVER};
        tri_rpc_call *calls[3];
        int64_t killed;
        tri_rpc_ref *ps;
        tri_rpc *rpc;
        child c;

        begin(&c, 1, "ps", &o);
        rpc = open_worker("trainer", &o);
        CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
        assert_int_equal(number_of(ps, &number), 1);
        for (int i = 0; i < 3; i++) /* one runs, the others wait for its thread */
            CHECK_OK(tri_rpc_async(ps, &hang, NULL, &forever, &calls[i]));
        assert_int_equal(number_of(ps, &number), 1);
        killed = trii_now_ns();
        child_kill(&c);
        for (int i = 0; i < 3; i++) {
            CHECK_FAILS(tri_rpc_call_wait(calls[i], 0), TRI_ERR_PEER_LOST, "hang on ps (host ");
            assert_non_null(strstr(tri_last_error(), "perhaps executed"));
            tri_rpc_call_destroy(calls[i]);
        }
        printf("known after %.1f ms\n", (double)(trii_now_ns() - killed) / 1e6);
        CHECK_FAILS(tri_rpc_sync(ps, &number, NULL, NULL, NULL), TRI_ERR_PEER_LOST,
                    "before it was sent");
        assert_non_null(strstr(tri_last_error(), "its process has ended (host "));
        assert_non_null(strstr(tri_last_error(), "; call again, or let it be TRI_RPC_IDEMPOTENT"));
        tri_rpc_ref_unref(ps);
        leave_worker(rpc);
        children_end(&c, 1);
    }
}

static void a_worker_that_exits_in_a_handler_is_a_lost_one(void **state)
{
    tri_rpc_ref *ps;
    tri_rpc *rpc;
    child c;

    (void)state;
    begin(&c, 1, "ps", NULL);
    rpc = open_worker("trainer", NULL);
    CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
    CHECK_FAILS(tri_rpc_sync(ps, &die, NULL, NULL, NULL), TRI_ERR_PEER_LOST, "die on ps");
    tri_rpc_ref_unref(ps);
    leave_worker(rpc);
    children_end(&c, 1);
}

static void the_next_worker_of_a_name_gets_its_calls(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const tri_rpc_options o = {.tcp_only = t == 1};
        tri_rpc_message reply;
        tri_rpc_call *call;
        tri_rpc_ref *ps;
        tri_rpc *rpc;
        child c[2];
        int n;

        begin(c, 2, "ps", &o);
        rpc = open_worker("trainer", &o);
        CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
        CHECK_OK(tri_rpc_async(ps, &second, NULL, NULL, &call)); /* idempotent, and hangs */
        assert_int_equal(number_of(ps, &number), 1);
        child_kill(&c[0]);
        child_go(&c[1]);
        CHECK_OK(tri_rpc_call_wait(call, 0)); /* sent again */
        CHECK_OK(tri_rpc_call_take_reply(call, &reply));
        memcpy(&n, reply.data, sizeof(n));
        assert_int_equal(n, 2);
        tri_rpc_message_free(&reply);
        tri_rpc_call_destroy(call);
        assert_int_equal(number_of(ps, &number), 2);
        tri_rpc_ref_unref(ps);
        leave_worker(rpc);
        children_end(c, 2);
    }
}

/* Left in order, and back under its name. */
static void a_worker_that_left_comes_back(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const tri_rpc_options o = {.tcp_only = t == 1};
        tri_rpc *rpc, *taker = NULL;
        tri_status status;
        tri_store *store;
        tri_rpc_ref *ps;
        child c[2];

        child_joins = false;
        begin(c, 2, "ps", &o);
        rpc = open_worker("trainer", &o);
        CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
        assert_int_equal(number_of(ps, &number), 1);
        /* somebody who may not have the name leaves no trace */
        CHECK_OK(tri_store_file(child_store, NULL, &store));
        CHECK_FAILS(tri_rpc_create(store, "ps", 0, 0, &(tri_rpc_options){.open = true}, &taker),
                    TRI_ERR_STATE, "the name ps belongs to rank 0");
        tri_store_unref(store);
        assert_int_equal(number_of(ps, &number), 1);
        assert_int_equal(kill(c[0].pid, SIGUSR1), 0);
        assert_int_equal(waitpid(c[0].pid, NULL, 0), c[0].pid);
        c[0].pid = 0;
        do /* its good-bye may still have to be read */
            status = tri_rpc_sync(ps, &number, NULL, NULL, NULL);
        while (status == TRI_ERR_STATE);
        CHECK_FAILS(status, TRI_ERR_PEER_LOST, "has left");
        child_go(&c[1]);
        assert_int_equal(number_of(ps, &second), 2); /* idempotent: waits for it */
        assert_int_equal(number_of(ps, &number), 2);
        tri_rpc_ref_unref(ps);
        child_kill(&c[1]);
        leave_worker(rpc);
        children_end(c, 2);
    }
}

static void a_worker_that_is_stopped_costs_no_more_than_the_deadline(void **state)
{
    const tri_rpc_call_options soon = {.timeout_ms = 150};
    tri_rpc_ref *ps;
    tri_rpc *rpc;
    child c;

    (void)state;
    begin(&c, 1, "ps", NULL);
    rpc = open_worker("trainer", NULL);
    CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
    assert_int_equal(number_of(ps, &number), 1);
    child_stop(&c);
    CHECK_FAILS(tri_rpc_sync(ps, &number, NULL, &soon, NULL), TRI_ERR_TIMEOUT,
                "no reply within 150 ms");
    kill(c.pid, SIGCONT);
    assert_int_equal(number_of(ps, &number), 1);
    child_stop(&c);
    tri_rpc_ref_unref(ps);
    CHECK_OK(tri_rpc_leave(rpc, 0)); /* does not wait for it */
    tri_rpc_destroy(rpc);
    child_kill(&c);
    children_end(&c, 1);
}

/* --- join, leave ---------------------------------------------------------- */

typedef struct events {
    atomic_int n[3];
} events;

static void note_event(tri_rpc *rpc, const tri_rpc_event *event, void *arg)
{
    events *e = arg;

    (void)rpc;
    if (event->text[0] != '\0')
        atomic_fetch_add(&e->n[event->kind], 1);
}

static void a_join_does_not_wait_for_the_dead(void **state)
{
    events e = {{0}};
    const tri_rpc_options o = {.event = note_event, .arg = &e};
    tri_rpc_ref *ps, *self;
    tri_rpc *rpc;
    child c;

    (void)state;
    child_joins = false;
    begin(&c, 1, "ps", NULL);
    rpc = open_worker("trainer", &o);
    CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
    CHECK_OK(tri_rpc_find(rpc, "trainer", &self)); /* which is told to nobody */
    tri_rpc_ref_unref(self);
    CHECK_FAILS(tri_rpc_join(rpc, 50), TRI_ERR_TIMEOUT,
                "ps has neither left nor joined within 50 ms");
    child_kill(&c);
    CHECK_OK(tri_rpc_join(rpc, 20000));
    tri_rpc_ref_unref(ps);
    CHECK_OK(tri_rpc_leave(rpc, 20000));
    CHECK_FAILS(tri_rpc_leave(rpc, 20000), TRI_ERR_STATE, "has left already");
    tri_rpc_destroy(rpc);
    assert_int_equal(atomic_load(&e.n[TRI_RPC_CAME]), 1);
    assert_int_equal(atomic_load(&e.n[TRI_RPC_LEFT]), 0);
    assert_int_equal(atomic_load(&e.n[TRI_RPC_LOST]), 1);
    children_end(&c, 1);
}

static void a_worker_that_leaves_is_not_lost_and_is_not_called(void **state)
{
    events e = {{0}};
    const tri_rpc_options o = {.event = note_event, .arg = &e};
    tri_rpc_ref *ps;
    tri_rpc *rpc;
    child c;

    (void)state;
    begin(&c, 1, "ps", NULL);
    rpc = open_worker("trainer", &o);
    CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
    CHECK_OK(tri_rpc_sync(ps, &number, NULL, NULL, NULL));
    CHECK_OK(tri_rpc_join(rpc, 20000)); /* both are in it: the child leaves */
    assert_int_equal(waitpid(c.pid, NULL, 0), c.pid);
    c.pid = 0;
    CHECK_FAILS(tri_rpc_sync(ps, &number, NULL, NULL, NULL), TRI_ERR_PEER_LOST, "has left");
    tri_rpc_ref_unref(ps);
    leave_worker(rpc); /* it has been told by then, on the control thread */
    assert_int_equal(atomic_load(&e.n[TRI_RPC_LEFT]), 1);
    assert_int_equal(atomic_load(&e.n[TRI_RPC_LOST]), 0);
    children_end(&c, 1);
}

static void leaving_while_calls_run_names_them_and_ends_them(void **state)
{
    tri_rpc_call *call;
    tri_rpc_ref *ps;
    tri_rpc *rpc;
    child c;

    (void)state;
    begin(&c, 1, "ps", NULL);
    rpc = open_worker("trainer", NULL);
    CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
    CHECK_OK(tri_rpc_async(ps, &hang, NULL, NULL, &call));
    CHECK_FAILS(tri_rpc_leave(rpc, 50), TRI_ERR_TIMEOUT, "unfinished after 50 ms: call hang on ps");
    CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_ABORTED, "hang on ps");
    tri_rpc_call_destroy(call);
    CHECK_FAILS(tri_rpc_sync(ps, &number, NULL, NULL, NULL), TRI_ERR_ABORTED, "has left");
    tri_rpc_ref_unref(ps);
    tri_rpc_destroy(rpc);
    child_kill(&c);
    children_end(&c, 1);
}

static void a_leave_does_not_wait_for_a_call_of_a_worker_that_dies(void **state)
{
    const tri_rpc_call_options forever = {.timeout_ms = TRI_FOREVER};
    tri_rpc_call *call;
    tri_rpc_ref *ps;
    tri_rpc *rpc;
    child c;

    (void)state;
    begin(&c, 1, "ps", NULL);
    rpc = open_worker("trainer", NULL);
    CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
    CHECK_OK(tri_rpc_async(ps, &hang, NULL, &forever, &call));
    assert_int_equal(kill(c.pid, SIGKILL), 0);
    CHECK_OK(tri_rpc_leave(rpc, 20000));
    CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_PEER_LOST, "hang on ps");
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(ps);
    tri_rpc_destroy(rpc);
    children_end(&c, 1);
}

static void a_job_key_is_proved_before_anything_is_parsed(void **state)
{
    const tri_rpc_options o = {.tcp_only = true};
    char record[640];
    rpc_hello hello;
    rpc_address a;
    tri_rpc_ref *ps;
    tri_rpc *rpc;
    child c;
    int fd;

    (void)state;
    scratch_begin(&child_folder);
    setenv("TRI_JOB_KEY_FILE",
           scratch_file(&child_folder, "key", "a secret of more than 32 bytes, 123", 35), 1);
    assert_int_equal(chmod(getenv("TRI_JOB_KEY_FILE"), 0600), 0);
    begin_in(&c, 1, "ps", &o);
    rpc = open_worker("trainer", &o);
    CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
    assert_int_equal(number_of(ps, &number), 1);
    /* a right hello without the key */
    CHECK_OK(rpc_read_record(rpc, "ps", true, trii_deadline_ms(20000), record));
    CHECK_OK(rpc_parse_record(record, &a));
    rpc_fill_hello(rpc, &hello);
    hello.to = a.incarnation;
    hello.from = 7;
    memcpy(hello.token, a.token, sizeof(hello.token));
    CHECK_OK(trii_socket_connect("127.0.0.1", a.port, trii_deadline_ms(20000), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, &hello, sizeof(hello), trii_deadline_ms(20000)));
    assert_true(trii_socket_recv_all(fd, &hello, sizeof(hello), trii_deadline_ms(20000)) !=
                    TRI_OK ||
                hello.magic != RPC_HELLO_MAGIC);
    trii_socket_close(fd);
    assert_int_equal(number_of(ps, &number), 1);
    tri_rpc_ref_unref(ps);
    leave_worker(rpc);
    children_end(&c, 1);
}

static void a_worker_that_never_comes_is_named(void **state)
{
    const tri_rpc_options o = {.timeout_ms = 100};
    tri_store *store;
    tri_rpc *rpc = NULL;
    long live = trii_alloc_live();

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_FAILS(tri_rpc_create(store, "w0", 0, 2, &o, &rpc), TRI_ERR_TIMEOUT,
                "rank 1 of 2 has not come in time");
    tri_store_unref(store);
    assert_int_equal(trii_alloc_live(), live);
}

static void a_forked_child_is_refused(void **state)
{
    tri_rpc_ref *ps;
    tri_rpc *rpc;
    int pid, how = 0;
    child c;

    (void)state;
    begin(&c, 1, "ps", NULL);
    rpc = open_worker("trainer", NULL);
    CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
    pid = test_fork();
    if (pid == 0)
        _exit(tri_rpc_sync(ps, &number, NULL, NULL, NULL) == TRI_ERR_STATE &&
                      tri_rpc_leave(rpc, 0) == TRI_ERR_STATE
                  ? 7
                  : 1);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(WEXITSTATUS(how), 7);
    assert_int_equal(number_of(ps, &number), 1);
    tri_rpc_ref_unref(ps);
    leave_worker(rpc);
    children_end(&c, 1);
}

/* --- strangers ------------------------------------------------------------ */

static void random_bytes_on_its_port_harm_nobody(void **state)
{
    uint64_t random = 42;
    unsigned char bytes[4096];
    char record[640];
    rpc_address a;
    tri_rpc_ref *ps;
    tri_rpc *rpc;
    child c;

    (void)state;
    begin(&c, 1, "ps", NULL);
    rpc = open_worker("trainer", NULL);
    CHECK_OK(tri_rpc_find(rpc, "ps", &ps));
    CHECK_OK(rpc_read_record(rpc, "ps", true, trii_deadline_ms(20000), record));
    CHECK_OK(rpc_parse_record(record, &a));
    for (int i = 0; i < 50; i++) {
        int64_t deadline = trii_deadline_ms(20000);
        tri_status status;
        int fd;

        for (size_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (unsigned char)scratch_random(&random);
        if (i % 2 == 1) { /* with the right beginning */
            const uint32_t magic = RPC_HELLO_MAGIC;

            memcpy(bytes, &magic, sizeof(magic));
        }
        CHECK_OK(trii_socket_connect("127.0.0.1", a.port, deadline, false, &fd));
        status = trii_socket_send_all(fd, bytes, sizeof(bytes), deadline);
        assert_true(status == TRI_OK || status == TRI_ERR_PEER_LOST);
        socket_expect_end(fd);
    }
    assert_int_equal(number_of(ps, &number), 1);
    tri_rpc_ref_unref(ps);
    leave_worker(rpc);
    children_end(&c, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_killed_worker_ends_every_call_to_it_at_once),
    cmocka_unit_test(a_worker_that_exits_in_a_handler_is_a_lost_one),
    cmocka_unit_test(the_next_worker_of_a_name_gets_its_calls),
    cmocka_unit_test(a_worker_that_left_comes_back),
    cmocka_unit_test(a_worker_that_is_stopped_costs_no_more_than_the_deadline),
    cmocka_unit_test(a_join_does_not_wait_for_the_dead),
    cmocka_unit_test(a_worker_that_leaves_is_not_lost_and_is_not_called),
    cmocka_unit_test(leaving_while_calls_run_names_them_and_ends_them),
    cmocka_unit_test(a_leave_does_not_wait_for_a_call_of_a_worker_that_dies),
    cmocka_unit_test(a_job_key_is_proved_before_anything_is_parsed),
    cmocka_unit_test(a_worker_that_never_comes_is_named),
    cmocka_unit_test(a_forked_child_is_refused),
    cmocka_unit_test(random_bytes_on_its_port_harm_nobody),
};

TEST_MAIN(tests)
