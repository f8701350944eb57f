/*
 * rpc_open_test.c - when tri_rpc_join of an open set ends: its workers know only who has come by
 * now, so servers that nobody has called yet wait for whom they are there for.
 */
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "store/store_ops.h"
#include "testing/rpc_workers.h"
#include "testing/scratch.h"
#include "testing/test_fork.h"

#define PATIENT_MS 20000
#define MOST 5

static const tri_rpc_options open = {.open = true, .timeout_ms = PATIENT_MS};

static tri_status run_ping(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function ping = {.name = "ping", .run = run_ping};

/* Pings the next server. */
static tri_status run_pass_on(tri_rpc_request *request, void *object)
{
    tri_rpc_ref *next;
    tri_status status = tri_rpc_find(NULL, "s1", &next);

    (void)request;
    (void)object;
    if (status == TRI_OK) {
        status = tri_rpc_sync(next, &ping, NULL, NULL, NULL);
        tri_rpc_ref_unref(next);
    }
    return status;
}
static const tri_rpc_function pass_on = {.name = "pass_on", .run = run_pass_on};
static const tri_rpc_function *const functions[] = {&ping, &pass_on};

/* --- workers -------------------------------------------------------------- */

typedef struct member {
    tri_rpc *rpc;
    trii_thread thread;
    tri_status status;
    char error[512];
    atomic_int has_left_join;
} member;

typedef struct set {
    tri_store *store;
    member members[MOST];
    int n;
    long blocks;
} set;

static void set_begin(set *s)
{
    memset(s, 0, sizeof(*s));
    s->blocks = trii_alloc_live();
    CHECK_OK(tri_store_hash(&s->store));
}

static member *come(set *s, const char *name)
{
    member *m = &s->members[s->n++];

    CHECK_OK(tri_rpc_create(s->store, name, 0, 0, &open, &m->rpc));
    CHECK_OK(tri_rpc_serve(m->rpc, functions, 2));
    return m;
}

static void join_main(void *arg)
{
    member *m = arg;

    m->status = tri_rpc_join(m->rpc, PATIENT_MS);
    atomic_store(&m->has_left_join, 1);
    if (m->status == TRI_OK)
        m->status = tri_rpc_leave(m->rpc, PATIENT_MS);
    if (m->status != TRI_OK)
        snprintf(m->error, sizeof(m->error), "%s", tri_last_error());
}

static void join(member *m)
{
    CHECK_OK(trii_thread_start(&m->thread, "join", join_main, m));
}

static void join_ends(member *m)
{
    trii_thread_join(&m->thread);
    if (m->status != TRI_OK)
        fail_msg("%s: %s", tri_rpc_name(m->rpc), m->error);
}

static void set_end(set *s)
{
    for (int i = 0; i < s->n; i++)
        tri_rpc_destroy(s->members[i].rpc);
    tri_store_unref(s->store);
    assert_int_equal(trii_alloc_live(), s->blocks);
}

/* Of how many others the worker knows that they are in tri_rpc_join. Locked. */
static int n_joined_of(const tri_rpc *rpc)
{
    int n = 0;

    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next)
        n += p->state == RPC_PEER_UP && p->joined && p->incarnation != rpc->incarnation;
    return n;
}

/* Its thread has taken in what there is, and sleeps in tri_rpc_join; so many others are there too.
 */
static bool sleeps_with(member *m, int n_joined)
{
    tri_rpc *rpc = m->rpc;
    bool sleeps;

    rpc_lock(rpc);
    sleeps = rpc->joiner != NULL && atomic_load(&rpc->joiner->kicked) == 2 &&
             n_joined_of(rpc) == n_joined;
    rpc_unlock(rpc);
    return sleeps;
}

static void wait_until_asleep(member *m, int n_joined)
{
    int64_t deadline = trii_deadline_ms(PATIENT_MS / 2);

    while (!sleeps_with(m, n_joined)) {
        if (atomic_load(&m->has_left_join) != 0)
            fail_msg("%s has left, and nobody had called it", tri_rpc_name(m->rpc));
        if (trii_now_ns() > deadline)
            fail_msg("%s does not meet %d others", tri_rpc_name(m->rpc), n_joined);
        trii_thread_yield();
    }
}

/* It is in no tri_rpc_join itself, in which it might hear of that too late. */
static void wait_until_told(member *m, int n_joined)
{
    int64_t deadline = trii_deadline_ms(PATIENT_MS / 2);
    int n = -1;

    while (n != n_joined && trii_now_ns() < deadline) {
        rpc_lock(m->rpc);
        n = n_joined_of(m->rpc);
        rpc_unlock(m->rpc);
        trii_thread_yield();
    }
    assert_int_equal(n, n_joined);
}

static void call(member *from, const char *name, const tri_rpc_function *function)
{
    tri_rpc_ref *to;

    CHECK_OK(tri_rpc_find(from->rpc, name, &to));
    CHECK_OK(tri_rpc_ref_status(to));
    if (function != NULL)
        CHECK_OK(tri_rpc_sync(to, function, NULL, NULL, NULL));
    tri_rpc_ref_unref(to);
}

/* Two that have found each other, and are in join. */
static void two_servers(set *s)
{
    for (int i = 0; i < 2; i++)
        (void)come(s, i == 0 ? "s0" : "s1");
    call(&s->members[0], "s1", NULL);
    for (int i = 0; i < 2; i++)
        join(&s->members[i]);
    for (int i = 0; i < 2; i++)
        wait_until_asleep(&s->members[i], 1);
}

/* --- cases ---------------------------------------------------------------- */

static void two_servers_wait_for_a_client_that_comes_late(void **state)
{
    (void)state;
    for (int joins = 0; joins < 2; joins++) {
        member *client;
        set s;

        set_begin(&s);
        two_servers(&s);
        client = come(&s, "client");
        call(client, "s0", &ping); /* s1 hears of it from the others only */
        if (joins == 1) {
            join(client);
            join_ends(client);
        } else {
            CHECK_OK(tri_rpc_leave(client->rpc, 0));
        }
        join_ends(&s.members[0]);
        join_ends(&s.members[1]);
        set_end(&s);
    }
}

/* What the first one's handler calls of the second is a call, but not the client's last. */
static void a_server_that_another_one_calls_waits_for_the_client(void **state)
{
    member *client;
    set s;

    (void)state;
    set_begin(&s);
    two_servers(&s);
    client = come(&s, "client");
    call(client, "s0", &pass_on);
    call(client, "s0", &pass_on);
    call(client, "s1", &ping);
    join(client);
    for (int i = 0; i < 3; i++)
        join_ends(&s.members[i]);
    set_end(&s);
}

static bool is_connected(tri_rpc *rpc, const char *name)
{
    const rpc_peer *peer;
    bool is_up;

    rpc_lock(rpc);
    peer = rpc_peer_named(rpc, name);
    is_up = peer != NULL && peer->state == RPC_PEER_UP;
    rpc_unlock(rpc);
    return is_up;
}

/* The first n are in tri_rpc_join, and stay there. */
static void wait_until_they_know(set *s, int n, const char *name)
{
    int64_t deadline = trii_deadline_ms(PATIENT_MS / 2);

    for (int i = 0; i < n; i++) {
        member *m = &s->members[i];

        while (!is_connected(m->rpc, name)) {
            if (atomic_load(&m->has_left_join) != 0 || trii_now_ns() > deadline)
                fail_msg("%s %s without having met %s", tri_rpc_name(m->rpc),
                         atomic_load(&m->has_left_join) != 0 ? "has left" : "waits", name);
            trii_thread_yield();
        }
    }
    for (int i = 0; i < n; i++)
        assert_int_equal(atomic_load(&s->members[i].has_left_join), 0);
}

/* Two servers know each other only; a client of neither is there, and one more comes. */
static void servers_wait_for_a_client_that_has_not_called(void **state)
{
    member *client, *dead, *late;
    set s;

    (void)state;
    set_begin(&s);
    (void)come(&s, "s0");
    (void)come(&s, "s1");
    client = come(&s, "client");
    dead = come(&s, "dead");
    call(&s.members[0], "s1", NULL);
    tri_rpc_destroy(dead->rpc); /* its name is in the store */
    dead->rpc = NULL;
    for (int i = 0; i < 2; i++)
        join(&s.members[i]);
    wait_until_they_know(&s, 2, "client");
    call(client, "s0", NULL);
    late = come(&s, "late");
    CHECK_OK(tri_rpc_leave(client->rpc, 0));
    wait_until_they_know(&s, 2, "late");
    CHECK_OK(tri_rpc_leave(late->rpc, 0));
    for (int i = 0; i < 2; i++)
        join_ends(&s.members[i]);
    set_end(&s);
}

static struct newcomer {
    trii_store_ops ops;
    tri_status (*add)(tri_store *self, const char *key, int64_t delta, int64_t *sum_out);
    tri_store *store;
    tri_rpc *server, *client, *late;
    tri_status status[2];
    bool is_here;
} newcomer;

/* The worker that counts has counted before one comes, and goes on after another has left. */
static tri_status add_late(tri_store *self, const char *key, int64_t delta, int64_t *sum_out)
{
    int64_t deadline = trii_deadline_ms(PATIENT_MS / 2);
    tri_status status = newcomer.add(self, key, delta, sum_out);

    if (delta == 0 && !newcomer.is_here && strcmp(key, "rpc/member/count") == 0) {
        newcomer.is_here = true;
        newcomer.status[0] = tri_rpc_create(newcomer.store, "late", 0, 0, &open, &newcomer.late);
        newcomer.status[1] = tri_rpc_leave(newcomer.client, 0);
        while (is_connected(newcomer.server, "client") && trii_now_ns() < deadline)
            trii_thread_yield();
    }
    return status;
}

static void a_join_sees_who_came_while_it_counted(void **state)
{
    member *server;
    set s;

    (void)state;
    set_begin(&s);
    server = come(&s, "server");
    call(come(&s, "client"), "server", NULL);
    newcomer.ops = *s.store->ops;
    newcomer.add = newcomer.ops.add;
    newcomer.ops.add = add_late;
    newcomer.store = s.store;
    newcomer.server = server->rpc;
    newcomer.client = s.members[1].rpc;
    s.store->ops = &newcomer.ops;
    join(server);
    wait_until_they_know(&s, 1, "late");
    CHECK_OK(newcomer.status[0]);
    CHECK_OK(newcomer.status[1]);
    CHECK_OK(tri_rpc_leave(newcomer.late, 0));
    join_ends(server);
    tri_rpc_destroy(newcomer.late);
    set_end(&s);
}

static void a_join_in_which_nobody_comes_ends_in_time(void **state)
{
    tri_rpc *rpc;
    set s;

    (void)state;
    set_begin(&s);
    rpc = come(&s, "ps")->rpc;
    CHECK_FAILS(tri_rpc_join(rpc, 50), TRI_ERR_TIMEOUT,
                "rpc_join: nobody has called this worker or was called by it within 50 ms");
    CHECK_OK(tri_rpc_leave(rpc, 0)); /* nobody to wait for */
    CHECK_FAILS(tri_rpc_join(rpc, 50), TRI_ERR_STATE, "this worker has left");
    set_end(&s);
}

static void one_that_has_been_called_waits_for_nobody_else(void **state)
{
    set s;

    (void)state;
    set_begin(&s);
    (void)come(&s, "s0");
    call(come(&s, "s1"), "s0", &ping);
    join(&s.members[0]);
    join(&s.members[1]);
    for (int i = 0; i < 2; i++)
        join_ends(&s.members[i]);
    set_end(&s);
}

static tri_status run_get(tri_rpc_request *request, void *object)
{
    (void)object;
    return tri_rpc_reply(request, NULL);
}
static const tri_rpc_function get = {.name = "get", .run = run_get};
static const tri_rpc_object kind = {.name = "kind"};

/* Neither what a worker calls of itself, nor that it has looked for an object. */
static void finding_is_no_call_and_the_line_says_what_is_waited_for(void **state)
{
    static const tri_rpc_function *const of_get[] = {&get};
    static int number;
    tri_rpc_ref *own, *found;
    set s;

    (void)state;
    set_begin(&s);
    (void)come(&s, "s0");
    (void)come(&s, "s1");
    CHECK_OK(tri_rpc_serve(s.members[1].rpc, of_get, 1));
    CHECK_OK(tri_rpc_own(s.members[1].rpc, "object", &kind, &number, &own));
    call(&s.members[0], "s0", &ping); /* before it looks: functions have numbers per worker */
    CHECK_OK(tri_rpc_find(s.members[0].rpc, "s1/object", &found));
    call(&s.members[1], "s1", &ping);
    join(&s.members[1]);
    wait_until_asleep(&s.members[1], 0);
    wait_until_told(&s.members[0], 1);
    CHECK_FAILS(tri_rpc_join(s.members[0].rpc, 50), TRI_ERR_TIMEOUT,
                "rpc_join: nobody has called this worker or was called by it within 50 ms");
    CHECK_OK(tri_rpc_sync(found, &get, NULL, NULL, NULL));
    tri_rpc_ref_unref(found);
    CHECK_OK(tri_rpc_join(s.members[0].rpc, PATIENT_MS));
    CHECK_OK(tri_rpc_leave(s.members[0].rpc, 0));
    join_ends(&s.members[1]);
    tri_rpc_ref_unref(own);
    set_end(&s);
}

static void the_end_of_another_ends_the_wait(void **state)
{
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        member *third;
        set s;

        set_begin(&s);
        two_servers(&s);
        third = come(&s, "third");
        call(third, "s1", NULL);
        if (dies == 0)
            CHECK_OK(tri_rpc_leave(third->rpc, 0));
        else
            tri_rpc_abort(third->rpc, "it dies");
        join_ends(&s.members[0]);
        join_ends(&s.members[1]);
        set_end(&s);
    }
}

static bool has_met(const member *m, const char *name)
{
    const rpc_peer *peer;
    bool met;

    rpc_lock(m->rpc);
    peer = rpc_peer_named(m->rpc, name);
    met = peer != NULL && peer->state == RPC_PEER_UP;
    rpc_unlock(m->rpc);
    return met;
}

/* A worker that dies while it enters itself has a number, and no name. */
static void a_number_without_a_name_is_passed_over(void **state)
{
    char name[RPC_NAME];
    int64_t n;
    set s;

    (void)state;
    set_begin(&s);
    CHECK_OK(tri_store_set(s.store, "rpc/member/count", "1", 1));
    (void)come(&s, "s0");
    (void)come(&s, "s1");
    CHECK_OK(rpc_read_member(s.members[0].rpc, 1, 0, name, &n));
    assert_string_equal(name, "");
    assert_int_equal(n, 3);
    CHECK_OK(rpc_read_member(s.members[0].rpc, 3, 0, name, &n));
    assert_string_equal(name, "s1");
    while (!has_met(&s.members[0], "s1"))
        CHECK_FAILS(tri_rpc_join(s.members[0].rpc, 50), TRI_ERR_TIMEOUT, "rpc_join: ");
    CHECK_FAILS(tri_rpc_join(s.members[0].rpc, 10), TRI_ERR_TIMEOUT,
                "rpc_join: s1 has neither left nor joined within 10 ms");
    CHECK_OK(tri_rpc_leave(s.members[1].rpc, 0));
    CHECK_OK(tri_rpc_join(s.members[0].rpc, PATIENT_MS));
    CHECK_OK(tri_rpc_leave(s.members[0].rpc, 0));
    set_end(&s);
}

/* It serves a store, and says where. worker: is one in it, too; NULL = none. */
static void store_main(int port_fd, const char *worker)
{
    const tri_store_tcp_options o = {.serve = true};
    tri_store *store;
    tri_rpc *rpc;
    int port;

    TRI_TRY(tri_store_tcp("127.0.0.1", 0, &o, &store));
    port = tri_store_port(store);
    if (worker != NULL)
        TRI_TRY(tri_rpc_create(store, worker, 0, 0, &open, &rpc));
    if (write(port_fd, &port, sizeof(port)) != sizeof(port))
        _exit(1);
    for (;;)
        pause();
}

static int fork_store(const char *worker, int *port_out)
{
    int fds[2], pid;

    assert_int_equal(pipe(fds), 0);
    pid = test_fork();
    if (pid == 0)
        store_main(fds[1], worker);
    assert_int_equal(read(fds[0], port_out, sizeof(*port_out)), sizeof(*port_out));
    close(fds[0]);
    close(fds[1]);
    return pid;
}

static void stop(int pid)
{
    int status;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

/* And when it goes on it is asked again. */
static void a_store_that_does_not_answer_holds_up_nobody_for_long(void **state)
{
    int port, pid = fork_store(NULL, &port);
    int64_t began = trii_now_ns(), ms;
    char where[64];
    tri_store *store;
    tri_rpc *rpc;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &store));
    CHECK_OK(tri_rpc_create(store, "s0", 0, 0, &open, &rpc));
    stop(pid);
    snprintf(where, sizeof(where), "rpc_join: store at 127.0.0.1 port %d: ", port);
    CHECK_FAILS(tri_rpc_join(rpc, 50), TRI_ERR_TIMEOUT, where);
    assert_int_equal(kill(pid, SIGCONT), 0);
    CHECK_FAILS_WITHIN(ms, tri_rpc_join(rpc, ms), TRI_ERR_TIMEOUT, "nobody has called this worker");
    stop(pid);
    snprintf(where, sizeof(where), "rpc_leave: store at 127.0.0.1 port %d: ", port);
    CHECK_FAILS(tri_rpc_leave(rpc, 50), TRI_ERR_TIMEOUT, where);
    assert_true(trii_now_ns() - began < 20 * TRII_NS_PER_S);
    tri_rpc_destroy(rpc);
    tri_store_unref(store);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void find_main(void *arg)
{
    member *m = arg;
    tri_rpc_ref *ref;

    m->status = tri_rpc_find(m->rpc, "peer", &ref);
}

static bool is_in_store(tri_rpc *rpc)
{
    bool is_busy;

    rpc_lock(rpc);
    is_busy = rpc->store_busy;
    rpc_unlock(rpc);
    return is_busy;
}

/* The store answers one that looks for a worker after its own one was destroyed, and with it the
 * last that needed the control thread: it would connect in a loop that is not there any more. */
static void a_search_in_a_slow_store_ends_with_the_worker(void **state)
{
    int port, pid = fork_store("peer", &port);
    long live = trii_alloc_live();
    member m = {0};
    tri_store *store;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &store));
    CHECK_OK(tri_rpc_create(store, "s0", 0, 0, &open, &m.rpc));
    stop(pid);
    CHECK_OK(trii_thread_start(&m.thread, "find", find_main, &m));
    while (!is_in_store(m.rpc))
        trii_thread_yield();
    tri_rpc_destroy(m.rpc);
    assert_int_equal(kill(pid, SIGCONT), 0);
    trii_thread_join(&m.thread);
    assert_int_equal(m.status, TRI_ERR_ABORTED);
    tri_store_unref(store);
    assert_int_equal(trii_alloc_live(), live);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Nor does a thread that waits for it longer. */
static void a_thread_in_a_silent_store_holds_up_no_other(void **state)
{
    int port, pid = fork_store(NULL, &port);
    tri_store *store;
    member m = {0};
    int64_t began;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &store));
    CHECK_OK(tri_rpc_create(store, "s0", 0, 0, &open, &m.rpc));
    stop(pid);
    join(&m);
    while (!is_in_store(m.rpc))
        trii_thread_yield();
    began = trii_now_ns();
    CHECK_FAILS(tri_rpc_leave(m.rpc, 50), TRI_ERR_TIMEOUT, "rpc_leave: the store does not answer");
    assert_true(trii_now_ns() - began < PATIENT_MS / 2 * TRII_NS_PER_MS);
    assert_int_equal(kill(pid, SIGCONT), 0);
    trii_thread_join(&m.thread);
    assert_int_equal(m.status, TRI_ERR_ABORTED);
    tri_rpc_destroy(m.rpc);
    tri_store_unref(store);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_servers_wait_for_a_client_that_comes_late),
    cmocka_unit_test(a_server_that_another_one_calls_waits_for_the_client),
    cmocka_unit_test(servers_wait_for_a_client_that_has_not_called),
    cmocka_unit_test(a_join_sees_who_came_while_it_counted),
    cmocka_unit_test(a_join_in_which_nobody_comes_ends_in_time),
    cmocka_unit_test(one_that_has_been_called_waits_for_nobody_else),
    cmocka_unit_test(finding_is_no_call_and_the_line_says_what_is_waited_for),
    cmocka_unit_test(the_end_of_another_ends_the_wait),
    cmocka_unit_test(a_number_without_a_name_is_passed_over),
    cmocka_unit_test(a_store_that_does_not_answer_holds_up_nobody_for_long),
    cmocka_unit_test(a_thread_in_a_silent_store_holds_up_no_other),
    cmocka_unit_test(a_search_in_a_slow_store_ends_with_the_worker),
};

TEST_MAIN(tests)
