/*
 * rpc_strangers_test.c - who is not let in, and what a worker takes of memory before it has looked
 * at limits: another user, a wrong token, a connection that says nothing, frames that are too
 * large.
 */
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "os/socket.h"
#include "os/unix.h"
#include "rpc/rpc_internal.h"
#include "rpc/rpc_meeting.h"
#include "testing/rpc_workers.h"

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

/* Until it is closed there. */
static void expect_end(int fd)
{
    char bytes[512];
    size_t got;
    tri_status status;

    do {
        status = trii_socket_wait(fd, TRII_READABLE, trii_deadline_ms(20000));
        if (status == TRI_OK)
            status = trii_socket_recv(fd, bytes, sizeof(bytes), &got);
    } while (status == TRI_OK || status == TRI_INPROGRESS);
    assert_true(status == TRI_END || status == TRI_ERR_PEER_LOST);
    trii_socket_close(fd);
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
        expect_end(fd);
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
        expect_end(fd[i]);
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
        expect_end(fd);
        if (trii_alloc_largest() > 256 << 10)
            fail_msg("%llu bytes are announced, and taken", (unsigned long long)sizes[i / 2]);
    }
    end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(another_user_of_the_host_is_not_let_in),
    cmocka_unit_test(a_wrong_token_or_another_incarnation_is_not_let_in),
    cmocka_unit_test(connections_that_say_nothing_are_few),
    cmocka_unit_test(what_is_announced_costs_no_memory),
};

TEST_MAIN(tests)
