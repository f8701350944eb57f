/*
 * tcp_accept_test.c - a rank that waits for its peers to connect: unidentified connections, however
 * many and slow, do not keep a peer out, nor does one that the peer itself gave up.
 */
#include <trireme/comm.h>

#include "os/clock.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/thread.h"
#include "testing/check.h"
#include "testing/descriptors.h"
#include "testing/hooked_store.h"

/* Held up before it learns rank 0's address. */
typedef struct gate {
    trii_mutex mutex;
    trii_cond opened;
    bool open;
} gate;

static tri_status wait_at(void *arg, const char *key)
{
    gate *g = arg;

    trii_mutex_lock(&g->mutex);
    while (!g->open && strstr(key, "addr/0") != NULL)
        trii_cond_wait(&g->opened, &g->mutex);
    trii_mutex_unlock(&g->mutex);
    return TRI_OK;
}

typedef struct rank {
    tri_store *store;
    int number;
    tri_status status;
    char why[512];
    trii_thread thread;
} rank;

static void rank_main(void *arg)
{
    const tri_group_options options = {.engine = "tcp", .timeout_ms = 20000};
    rank *r = arg;
    tri_group *group = NULL;
    float x = 1;

    r->status = tri_group_create(r->store, r->number, 2, &options, &group);
    if (r->status == TRI_OK)
        r->status = tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (r->status == TRI_OK && x != 2)
        r->status = TRI_ERR_MISMATCH;
    snprintf(r->why, sizeof(r->why), "%s", tri_last_error());
    tri_group_unref(group);
}

/* Two ranks, the second of which has not yet learnt where the first listens. */
typedef struct pair {
    tri_store *store;
    hooked_store view; /* of the second rank */
    gate gate;
    rank ranks[2];
    char host[64], token[40]; /* of rank 0 */
    int port;
} pair;

static void begin(pair *m)
{
    void *value = NULL;

    unsetenv("TRI_JOB_KEY_FILE");
    *m = (pair){.ranks = {{.number = 0}, {.number = 1}}};
    CHECK_OK(tri_store_hash(&m->store));
    hooked_store_init(&m->view, m->store, wait_at, &m->gate);
    trii_mutex_init(&m->gate.mutex);
    trii_cond_init(&m->gate.opened);
    m->ranks[0].store = m->store;
    m->ranks[1].store = &m->view.base;
    for (int r = 0; r < 2; r++)
        CHECK_OK(trii_thread_start(&m->ranks[r].thread, "rank", rank_main, &m->ranks[r]));
    CHECK_OK(tri_store_get(m->store, "tri_group/1/1/addr/0", 20000, &value, NULL));
    assert_int_equal(sscanf(value, "0 %39s %d %63s", m->token, &m->port, m->host), 3);
    tri_store_free(value);
}

/* The second rank goes on: they must find each other. */
static void end(pair *m)
{
    trii_mutex_lock(&m->gate.mutex);
    m->gate.open = true;
    trii_cond_broadcast(&m->gate.opened);
    trii_mutex_unlock(&m->gate.mutex);
    for (int r = 0; r < 2; r++) {
        trii_thread_join(&m->ranks[r].thread);
        if (m->ranks[r].status != TRI_OK)
            print_error("rank %d: %s: %s\n", r, tri_status_name(m->ranks[r].status),
                        m->ranks[r].why);
    }
    assert_int_equal(m->ranks[0].status, TRI_OK);
    assert_int_equal(m->ranks[1].status, TRI_OK);
    tri_store_unref(m->store);
    trii_cond_fini(&m->gate.opened);
    trii_mutex_fini(&m->gate.mutex);
}

static void many_unidentified_connections_keep_no_peer_out(void **state)
{
    enum { CROWD = 200 };
    pair m;
    int fds[CROWD];
    int64_t start;

    (void)state;
    begin(&m);
    for (int i = 0; i < CROWD; i++) {
        CHECK_OK(trii_socket_connect(m.host, m.port, trii_deadline_ms(20000), false, &fds[i]));
        /* silence, or the beginning of what a rank says */
        CHECK_OK(trii_socket_send_all(fds[i], "1IRT", (size_t)(i % 5), trii_deadline_ms(20000)));
    }
    start = trii_now_ns();
    end(&m);
    /* one after the other they would take two seconds each */
    assert_true(trii_now_ns() - start < 10 * TRII_NS_PER_S);
    for (int i = 0; i < CROWD; i++)
        trii_socket_close(fds[i]);
}

/* Without a descriptor nothing can be accepted: unidentified connections, which have some, are
 * closed for a rank. */
static void unidentified_connections_are_closed_when_descriptors_are_out(void **state)
{
    enum { CROWD = 30 };
    static descriptors rest;
    const int64_t deadline = trii_deadline_ms(20000);
    pair m;
    int fds[CROWD], open;

    (void)state;
    begin(&m);
    descriptors_limit(256);
    open = descriptors_open();
    for (int i = 0; i < CROWD; i++)
        CHECK_OK(trii_socket_connect(m.host, m.port, trii_deadline_ms(20000), false, &fds[i]));
    while (descriptors_open() < open + 2 * CROWD) /* until rank 0 has accepted them */
        assert_true(trii_now_ns() < deadline);
    descriptors_take(&rest, 1); /* one is left for the second rank to connect with */
    end(&m);
    descriptors_give_back(&rest);
    for (int i = 0; i < CROWD; i++)
        trii_socket_close(fds[i]);
}

/* What a rank sends first (tcp_connect.c). */
typedef struct hello {
    uint32_t magic;
    int32_t rank, size;
    char token[33];
    trii_proc_id process;
} hello;

/* The peer got the answer too late and tries again, perhaps at another address. */
static void a_connection_that_its_rank_gave_up_is_not_taken(void **state)
{
    hello out = {.magic = 0x54524933, .rank = 1, .size = 2}, in;
    pair m;
    int fd;

    (void)state;
    begin(&m);
    memcpy(out.token, m.token, sizeof(out.token));
    CHECK_OK(trii_socket_connect(m.host, m.port, trii_deadline_ms(20000), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, &out, sizeof(out), trii_deadline_ms(20000)));
    CHECK_OK(trii_socket_recv_all(fd, &in, sizeof(in), trii_deadline_ms(20000)));
    assert_int_equal(in.magic, out.magic);
    trii_socket_close(fd);
    end(&m);
}

/* A proxy of rank 0. It forwards nothing of the first connection, as a network that loses packets
 * may for seconds; when rank 0 closes it, the peer learns that, too. */
typedef struct slow_wire {
    const pair *m;
    int listener, n_came;
    tri_status status;
} slow_wire;

/* to < 0: it is lost. */
static tri_status carry_on(int from, int to)
{
    char bytes[4096];
    size_t got = 0;
    tri_status status = trii_socket_recv(from, bytes, sizeof(bytes), &got);

    return status == TRI_OK && to >= 0
               ? trii_socket_send_all(to, bytes, got, trii_deadline_ms(20000))
               : status;
}

static tri_status carry(int peer, int rank0, bool first)
{
    const int fds[] = {rank0, peer};
    const unsigned events[] = {TRII_READABLE, TRII_READABLE};
    tri_status status = TRI_OK;

    while (status == TRI_OK || status == TRI_INPROGRESS) {
        unsigned ready[2] = {0};

        if (trii_socket_poll(fds, events, ready, 2, trii_deadline_ms(20000)) <= 0)
            return TRI_ERR_TIMEOUT;
        if (ready[0] != 0)
            status = carry_on(rank0, peer);
        else
            status = carry_on(peer, first ? -1 : rank0);
    }
    return status == TRI_END || status == TRI_ERR_PEER_LOST ? TRI_OK : status;
}

static void wire_main(void *arg)
{
    slow_wire *w = arg;

    for (int i = 0; i < 2 && w->status == TRI_OK; i++) {
        unsigned events = TRII_READABLE, ready = 0;
        int peer = -1, rank0 = -1;

        if (trii_socket_poll(&w->listener, &events, &ready, 1, trii_deadline_ms(20000)) > 0)
            w->status = trii_socket_accept(w->listener, &peer);
        w->n_came += peer >= 0;
        if (peer < 0)
            return;
        w->status =
            trii_socket_connect(w->m->host, w->m->port, trii_deadline_ms(20000), false, &rank0);
        if (w->status == TRI_OK)
            w->status = carry(peer, rank0, i == 0);
        trii_socket_close(rank0);
        trii_socket_close(peer);
    }
}

/* One connection in a thousand over a lossy network loses its first packets: TCP sends them again
 * after 3 s, rank 0 waits for 2. */
static void a_peer_whose_hello_comes_too_late_tries_again(void **state)
{
    char address[160];
    trii_thread thread;
    slow_wire w = {0};
    pair m;
    int port;

    (void)state;
    begin(&m);
    w.m = &m;
    CHECK_OK(trii_socket_listen("localhost", 0, &w.listener, &port));
    snprintf(address, sizeof(address), "0 %s %d %s", m.token, port, m.host);
    CHECK_OK(tri_store_set(m.store, "tri_group/1/1/addr/0", address, strlen(address)));
    CHECK_OK(trii_thread_start(&thread, "wire", wire_main, &w));
    end(&m);
    trii_thread_join(&thread);
    assert_int_equal(w.status, TRI_OK);
    assert_int_equal(w.n_came, 2);
    trii_socket_close(w.listener);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_peer_whose_hello_comes_too_late_tries_again),
    cmocka_unit_test(many_unidentified_connections_keep_no_peer_out),
    cmocka_unit_test(unidentified_connections_are_closed_when_descriptors_are_out),
    cmocka_unit_test(a_connection_that_its_rank_gave_up_is_not_taken),
};

TEST_MAIN(tests)
