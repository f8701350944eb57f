/*
 * rpc_strangers_test.c - who is not let in, and what a worker takes of memory before it has looked
 * at limits: another user, a wrong token, a connection that says nothing, frames that are too
 * large; and frames that no worker sends.
 */
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "os/socket.h"
#include "os/unix.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "testing/rpc_workers.h"
#include "testing/socket_end.h"

#define MIB ((size_t)1 << 20)
#define NOBODY 65534

static tri_store *store;
static tri_rpc *victim;
static rpc_address address;

static tri_status run_ping(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function ping = {.name = "ping", .flags = TRI_RPC_INLINE, .run = run_ping};
static const tri_rpc_function *const functions[] = {&ping};

static void begin(bool tcp_only)
{
    const tri_rpc_options o = {
        .open = true, .tcp_only = tcp_only, .functions = functions, .n_functions = 1};
    char record[640];

    setenv("TRI_LOG", "error", 1);
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_rpc_create(store, "victim", 0, 0, &o, &victim));
    CHECK_OK(rpc_read_record(victim, "victim", false, 0, record));
    CHECK_OK(rpc_parse_record(record, &address));
}

/* It still serves others. */
static void end(void)
{
    const tri_rpc_options o = {.open = true};
    tri_rpc *honest;
    tri_rpc_ref *to;

    CHECK_OK(tri_rpc_create(store, "honest", 0, 0, &o, &honest));
    CHECK_OK(tri_rpc_find(honest, "victim", &to));
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL));
    tri_rpc_ref_unref(to);
    CHECK_OK(tri_rpc_leave(honest, 0));
    tri_rpc_destroy(honest);
    tri_rpc_destroy(victim);
    tri_store_unref(store);
}

static void make_hello(rpc_hello *hello)
{
    rpc_fill_hello(victim, hello);
    hello->from = 0x1234567;
    hello->to = address.incarnation;
    snprintf(hello->name, sizeof(hello->name), "rogue");
    memcpy(hello->token, address.token, sizeof(hello->token));
}

static int connect_to(void)
{
    int fd;

    CHECK_OK(trii_socket_connect("127.0.0.1", address.port, trii_deadline_ms(20000), false, &fd));
    return fd;
}

/* A right hello over the socket of the host. OK: it is answered. */
static tri_status greet_over_unix(const rpc_hello *hello)
{
    int64_t deadline = trii_deadline_ms(20000);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.unix_name));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    trii_shmem shm = {.fd = -1};
    rpc_hello answer;
    tri_status status;

    memcpy(name.sun_path + 1, address.unix_name, strlen(address.unix_name));
    if (fd < 0 || connect(fd, (struct sockaddr *)&name, length) != 0)
        return TRI_ERR_IO;
    status = trii_shmem_create("rogue", 2 * sizeof(rpc_ring), &shm);
    if (status == TRI_OK)
        status = trii_unix_send(fd, hello, sizeof(*hello), shm.fd, deadline);
    if (status == TRI_OK)
        status = trii_unix_recv(fd, &answer, sizeof(answer), NULL, deadline);
    return status;
}

static void another_user_of_the_host_is_not_let_in(void **state)
{
    rpc_hello hello;
    int pid, how = 0;
    bool root = geteuid() == 0;

    (void)state;
    begin(false);
    make_hello(&hello);
    hello.has_rings = 1;
    for (int other = 0; other < (root ? 2 : 1); other++) {
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            if (other == 1 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
                _exit(2);
            _exit(greet_over_unix(&hello) == (other == 1 ? TRI_ERR_PEER_LOST : TRI_OK) ? 0 : 3);
        }
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_int_equal(WEXITSTATUS(how), 0);
    }
    end();
}

static void a_wrong_token_or_another_incarnation_is_not_let_in(void **state)
{
    (void)state;
    begin(true);
    for (int i = 0; i < 6; i++) {
        rpc_hello hello;
        int fd = connect_to();

        make_hello(&hello);
        if (i == 0)
            hello.token[RPC_TOKEN - 1] ^= 1;
        else if (i == 1)
            hello.to ^= 2;
        else if (i == 2)
            hello.from = 0;
        else if (i == 3)
            hello.window_calls = 0;
        else if (i == 4)
            memset(hello.name, 'x', sizeof(hello.name));
        else
            snprintf(hello.name, sizeof(hello.name), "a name");
        CHECK_OK(trii_socket_send_all(fd, &hello, sizeof(hello), trii_deadline_ms(20000)));
        if (i == 4) { /* cut, and a name */
            rpc_hello answer;

            CHECK_OK(trii_socket_recv_all(fd, &answer, sizeof(answer), trii_deadline_ms(20000)));
            assert_int_equal(answer.verdict, RPC_WELCOME);
            trii_socket_shutdown(fd);
        }
        socket_expect_end(fd);
    }
    end();
}

/* As many as there may be of them: the oldest make room when their time is over, and until then
 * others are turned away, not waited for. */
static void connections_that_say_nothing_are_few(void **state)
{
    enum { N = 300 };
    int fd[N];

    (void)state;
    begin(true);
    for (int i = 0; i < N; i++)
        fd[i] = connect_to();
    for (int i = 256; i < N; i++)
        socket_expect_end(fd[i]);
    rpc_lock(victim);
    assert_true(victim->n_pending <= 256);
    rpc_unlock(victim);
    for (int i = 0; i < 256; i++)
        trii_socket_close(fd[i]);
    do {
        rpc_lock(victim);
        fd[0] = victim->n_pending;
        rpc_unlock(victim);
        trii_thread_yield();
    } while (fd[0] > 0);
    end();
}

/* What a header announces is not believed. */
static void what_is_announced_costs_no_memory(void **state)
{
    static const uint64_t sizes[] = {(uint64_t)65537, 16 * MIB, (uint64_t)1 << 30,
                                     (uint64_t)1 << 40, UINT64_MAX};

    (void)state;
    begin(true);
    for (size_t i = 0; i < 2 * TRII_COUNT_OF(sizes); i++) {
        int64_t deadline = trii_deadline_ms(20000);
        const char name[] = "ping";
        rpc_header define = {.magic = RPC_MAGIC,
                             .kind = RPC_DEFINE,
                             .bytes = sizeof(name),
                             .data_bytes = sizeof(name)};
        rpc_header call = {.magic = RPC_MAGIC,
                           .kind = RPC_REQUEST,
                           .call = 1,
                           .chain = 1,
                           .ns = -1,
                           .bytes = sizes[i / 2],
                           .data_bytes = sizes[i / 2],
                           .function = i % 2 == 0 ? 0 : 7}; /* one that it has, and none */
        rpc_hello hello, answer;
        tri_status status;
        int fd;

        do { /* the last one may not have gone */
            fd = connect_to();
            make_hello(&hello);
            CHECK_OK(trii_socket_send_all(fd, &hello, sizeof(hello), deadline));
            CHECK_OK(trii_socket_recv_all(fd, &answer, sizeof(answer), deadline));
            if (answer.verdict == RPC_BUSY)
                trii_socket_close(fd);
        } while (answer.verdict == RPC_BUSY);
        (void)trii_alloc_largest();
        CHECK_OK(trii_socket_send_all(fd, &define, sizeof(define), deadline));
        CHECK_OK(trii_socket_send_all(fd, name, sizeof(name), deadline));
        CHECK_OK(trii_socket_send_all(fd, &call, sizeof(call), deadline));
        status = trii_socket_send_all(fd, address.token, sizeof(address.token), deadline);
        assert_true(status == TRI_OK || status == TRI_ERR_PEER_LOST);
        trii_socket_shutdown(fd);
        socket_expect_end(fd);
        if (trii_alloc_largest() > 256 << 10)
            fail_msg("%llu bytes are announced, and taken", (unsigned long long)sizes[i / 2]);
    }
    end();
}

/* --- frames that no worker sends ------------------------------------------ */

#define TOO_LONG ((size_t)100 << 10) /* for a function that says nothing of its limits */

static _Atomic(tri_rpc_request *) kept;

static tri_status run_keep(tri_rpc_request *request, void *object)
{
    (void)object;
    atomic_store(&kept, request);
    return TRI_INPROGRESS;
}
static const tri_rpc_function keep = {.name = "keep", .run = run_keep};

/* Ran, though its data never came. */
static tri_status run_late(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_status_fail(TRI_ERR_INTERNAL, "it was run");
}
static const tri_rpc_function late = {.name = "late", .max_request = 2 * TOO_LONG, .run = run_late};

/* A call of w0 that w1 keeps. */
static tri_rpc_request *begin_kept(workers *w, tri_rpc_ref **to_out, tri_rpc_call **call_out)
{
    atomic_store(&kept, NULL);
    workers_begin(w, 2, &(tri_rpc_options){.tcp_only = true});
    worker_serve(w, 1, &keep);
    worker_serve(w, 1, &ping);
    *to_out = worker_find(w, 0, "w1");
    CHECK_OK(tri_rpc_async(*to_out, &keep, NULL, NULL, call_out));
    while (atomic_load(&kept) == NULL)
        trii_thread_yield();
    return atomic_load(&kept);
}

/* A frame with a body of zeros. */
static unsigned char *frame_of(rpc_header h, size_t body)
{
    unsigned char *frame = calloc(1, sizeof(h) + body);

    assert_non_null(frame);
    h.magic = RPC_MAGIC;
    h.bytes = h.data_bytes = body;
    memcpy(frame, &h, sizeof(h));
    return frame;
}

static void a_failure_whose_line_is_too_long_comes_without_it(void **state)
{
    tri_rpc_request *request;
    tri_rpc_call *call;
    tri_rpc_ref *to;
    unsigned char *frame;
    workers w;

    (void)state;
    request = begin_kept(&w, &to, &call);
    frame = frame_of(
        (rpc_header){.kind = RPC_REPLY, .call = request->call, .function = TRI_ERR_NAN}, TOO_LONG);
    rpc_lock(w.rpc[1]);
    rpc_send(request->peer, frame, sizeof(rpc_header) + TOO_LONG, 0);
    rpc_request_retire(request);
    rpc_unlock(w.rpc[1]);
    assert_int_equal(tri_rpc_call_wait(call, 0), TRI_ERR_NAN);
    tri_rpc_call_destroy(call);
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL));
    tri_rpc_ref_unref(to);
    free(frame);
    workers_end(&w);
}

/* The first half of its request was skipped, since nobody served it then. */
static void a_function_that_is_served_amid_its_request_is_not_run(void **state)
{
    const size_t half = 64 << 10;
    tri_rpc_request *request;
    rpc_peer *peer;
    tri_rpc_call *call;
    tri_rpc_ref *to;
    unsigned char *frame;
    bool is_skipped = false;
    workers w;

    (void)state;
    request = begin_kept(&w, &to, &call);
    CHECK_FAILS(tri_rpc_sync(to, &late, NULL, NULL, NULL), TRI_ERR_NOT_FOUND, "no function late");
    frame = frame_of(
        (rpc_header){
            .kind = RPC_REQUEST, .call = request->call, .ns = -1, .function = w.rpc[0]->n_used - 1},
        TOO_LONG);
    peer = request->peer;
    CHECK_OK(trii_socket_send_all(to->peer->fd, frame, half, TRII_NO_DEADLINE));
    while (!is_skipped) {
        rpc_lock(w.rpc[1]);
        is_skipped = peer->in_large;
        rpc_unlock(w.rpc[1]);
        trii_thread_yield();
    }
    worker_serve(&w, 1, &late);
    CHECK_OK(trii_socket_send_all(to->peer->fd, frame + half, sizeof(rpc_header) + TOO_LONG - half,
                                  TRII_NO_DEADLINE));
    assert_int_equal(tri_rpc_call_wait(call, 0), TRI_ERR_NOT_FOUND);
    assert_non_null(strstr(tri_rpc_call_error(call), "before the function was served"));
    tri_rpc_call_destroy(call);
    rpc_lock(w.rpc[1]);
    rpc_request_retire(request); /* its call has had its answer */
    rpc_unlock(w.rpc[1]);
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL));
    tri_rpc_ref_unref(to);
    free(frame);
    workers_end(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(another_user_of_the_host_is_not_let_in),
    cmocka_unit_test(a_wrong_token_or_another_incarnation_is_not_let_in),
    cmocka_unit_test(connections_that_say_nothing_are_few),
    cmocka_unit_test(what_is_announced_costs_no_memory),
    cmocka_unit_test(a_failure_whose_line_is_too_long_comes_without_it),
    cmocka_unit_test(a_function_that_is_served_amid_its_request_is_not_run),
};

TEST_MAIN(tests)
