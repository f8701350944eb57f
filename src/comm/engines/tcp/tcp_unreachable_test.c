/*
 * tcp_unreachable_test.c - a rank that cannot reach a peer: it learns that another rank gave up,
 * and pauses between its attempts to connect.
 */
#include <trireme/comm.h>

#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"
#include "testing/check.h"

#define SOON trii_deadline_ms(20000)

typedef struct caller {
    tri_store *store;
    tri_status status;
    char why[512];
    trii_thread thread;
} caller;

static void call_main(void *arg)
{
    const tri_group_options options = {.engine = "tcp", .timeout_ms = 20000};
    caller *c = arg;
    tri_group *group = NULL;

    c->status = tri_group_create(c->store, 1, 2, &options, &group);
    snprintf(c->why, sizeof(c->why), "%s", tri_last_error());
    tri_group_unref(group);
}

/* Rank 1 of a group whose rank 0, the test, says that it listens at these hosts. */
static void begin(caller *c, int port, const char *hosts)
{
    char address[160];
    void *net = NULL;

    unsetenv("TRI_JOB_KEY_FILE");
    *c = (caller){0};
    CHECK_OK(tri_store_hash(&c->store));
    CHECK_OK(trii_thread_start(&c->thread, "rank", call_main, c));
    CHECK_OK(tri_store_get(c->store, "tri_group/1/1/engine/1", 20000, &net, NULL));
    CHECK_OK(tri_store_set(c->store, "tri_group/1/1/engine/0", net, strlen(net)));
    tri_store_free(net);
    snprintf(address, sizeof(address), "0 %032d %d %s", 7, port, hosts);
    CHECK_OK(tri_store_set(c->store, "tri_group/1/1/addr/0", address, strlen(address)));
}

/* Another rank says that it could not connect: that is why this one did not go on, either. */
static void give_up(caller *c)
{
    char verdict[64];
    void *word = NULL;

    CHECK_OK(tri_store_set(c->store, "tri_group/1/1/failed", "", 0));
    CHECK_OK(tri_store_get(c->store, "tri_group/1/1/ready/end/1", 40000, &word, NULL));
    if (strstr(word, "another rank could not connect") == NULL)
        fail_msg("rank 1 says: %s", (const char *)word);
    tri_store_free(word);
    snprintf(verdict, sizeof(verdict), "%d it is gone", TRI_ERR_PEER_LOST);
    CHECK_OK(tri_store_set(c->store, "tri_group/1/1/ready/end/0", verdict, strlen(verdict)));
    trii_thread_join(&c->thread);
    if (c->status != TRI_ERR_PEER_LOST || strstr(c->why, "rank 0: it is gone") == NULL)
        fail_msg("%s: %s", tri_status_name(c->status), c->why);
    tri_store_unref(c->store);
}

/* The process that listens there is another program, as where the peer has ended. */
static void a_rank_that_finds_no_peer_at_several_addresses_pauses_between_attempts(void **state)
{
    const int64_t end_ns = trii_now_ns() + TRII_NS_PER_S;
    const unsigned events = TRII_READABLE;
    int listener, port, n_came = 0;
    unsigned ready;
    caller c;

    (void)state;
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &listener, &port));
    begin(&c, port, "127.0.0.1 127.0.0.1");
    while (trii_socket_poll(&listener, &events, &ready, 1, end_ns) > 0 && trii_now_ns() < end_ns) {
        int fd = -1;

        if (trii_socket_accept(listener, &fd) == TRI_OK)
            n_came++;
        trii_socket_close(fd);
    }
    assert_true(n_came > 0);
    assert_true(n_came < 100);
    trii_socket_close(listener);
    give_up(&c);
}

/* As a process that is stopped. */
static void a_rank_that_gets_no_answer_learns_that_another_gave_up(void **state)
{
    const unsigned events = TRII_READABLE;
    int listener, port, fd;
    unsigned ready;
    caller c;

    (void)state;
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &listener, &port));
    begin(&c, port, "127.0.0.1");
    assert_int_equal(trii_socket_poll(&listener, &events, &ready, 1, SOON), 1);
    CHECK_OK(trii_socket_accept(listener, &fd));
    give_up(&c);
    trii_socket_close(fd);
    trii_socket_close(listener);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_that_finds_no_peer_at_several_addresses_pauses_between_attempts),
    cmocka_unit_test(a_rank_that_gets_no_answer_learns_that_another_gave_up),
};

TEST_MAIN(tests)
