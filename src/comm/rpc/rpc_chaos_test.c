/*
 * rpc_chaos_test.c - replies that come late, in another order, in pieces or not at all. Between two
 * workers stands a wire of the test's own, which cuts the stream as it likes, stops it and ends it.
 */
#include "os/socket.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "testing/rpc_workers.h"
#include "testing/scratch.h"

/* --- the wire ------------------------------------------------------------- */

enum { WIRE_CUTS, WIRE_STOPS, WIRE_ENDS };

typedef struct wire {
    int listen_fd, port, to_port;
    atomic_int mode;  /* what it does with what comes from the callee */
    atomic_int n_cut; /* connections that it has ended */
    atomic_int quit;
    uint64_t random;
    trii_thread thread;
} wire;

/* A few bytes, at times none: as if they were late. */
static bool carry(wire *w, int from, int to)
{
    char bytes[1500];
    uint32_t dice = scratch_random(&w->random);
    size_t most = dice % 4 == 0 ? 1 + dice / 4 % 64 : 1 + dice / 4 % sizeof(bytes);
    size_t got = 0, sent;
    tri_status status;

    if (dice % 7 == 0)
        return true;
    status = trii_socket_recv(from, bytes, most, &got);
    for (size_t at = 0; at < got && (status == TRI_OK || status == TRI_INPROGRESS);) {
        sent = 0;
        status = trii_socket_send(to, &(trii_span){bytes + at, got - at}, 1, &sent);
        at += sent;
        if (status == TRI_INPROGRESS && atomic_load(&w->quit) == 0 &&
            trii_socket_wait(to, TRII_WRITABLE, trii_deadline_ms(100)) == TRI_ERR_IO)
            status = TRI_ERR_IO;
        else if (status == TRI_INPROGRESS && atomic_load(&w->quit) != 0)
            status = TRI_END;
    }
    return status == TRI_OK || status == TRI_INPROGRESS;
}

static void carry_all(wire *w, int caller, int callee)
{
    bool goes_on = true;
    size_t passed = 0;

    while (goes_on && atomic_load(&w->quit) == 0) {
        int mode = atomic_load(&w->mode);
        const int fds[] = {caller, mode == WIRE_STOPS ? -1 : callee};
        const unsigned events[] = {TRII_READABLE, TRII_READABLE};
        unsigned ready[] = {0, 0};

        (void)trii_socket_poll(fds, events, ready, 2, trii_deadline_ms(10));
        if (ready[0] != 0)
            goes_on = carry(w, caller, callee);
        if (ready[1] != 0 && goes_on) {
            passed++;
            goes_on = carry(w, callee, caller);
            if (mode == WIRE_ENDS && passed % 10 == 9) { /* within a frame, as it comes */
                atomic_fetch_add(&w->n_cut, 1);
                goes_on = false;
            }
        }
    }
    trii_socket_close(caller);
    trii_socket_close(callee);
}

static void wire_main(void *arg)
{
    wire *w = arg;

    while (atomic_load(&w->quit) == 0) {
        int caller, callee;

        if (trii_socket_wait(w->listen_fd, TRII_READABLE, trii_deadline_ms(10)) != TRI_OK ||
            trii_socket_accept(w->listen_fd, &caller) != TRI_OK)
            continue;
        if (trii_socket_connect("127.0.0.1", w->to_port, trii_deadline_ms(20000), false, &callee) ==
            TRI_OK)
            carry_all(w, caller, callee);
        else
            trii_socket_close(caller);
    }
}

typedef struct pair {
    tri_store *store;
    tri_rpc *caller, *callee;
    tri_rpc_ref *to;
    wire wire;
} pair;

static void begin(pair *p, const tri_rpc_function *const *functions, int n, int mode)
{
    const tri_rpc_options o = {
        .open = true, .tcp_only = true, .threads = 4, .functions = functions, .n_functions = n};
    char record[640], behind[640], *port;
    rpc_address a;

    memset(p, 0, sizeof(*p));
    CHECK_OK(tri_store_hash(&p->store));
    CHECK_OK(tri_rpc_create(p->store, "caller", 0, 0, &o, &p->caller));
    CHECK_OK(tri_rpc_create(p->store, "callee", 0, 0, &o, &p->callee));
    CHECK_OK(rpc_read_record(p->callee, "callee", false, 0, record));
    CHECK_OK(rpc_parse_record(record, &a));
    CHECK_OK(trii_socket_listen("localhost", 0, &p->wire.listen_fd, &p->wire.port));
    p->wire.to_port = a.port;
    p->wire.random = 42;
    atomic_store(&p->wire.mode, mode);
    CHECK_OK(trii_thread_start(&p->wire.thread, "wire", wire_main, &p->wire));
    /* "v2 INCARNATION RANK PID PORT ..": the wire's instead */
    port = record;
    for (int i = 0; i < 4; i++)
        port = strchr(port, ' ') + 1;
    snprintf(behind, sizeof(behind), "%.*s%d %s", (int)(port - record), record, p->wire.port,
             strchr(port, ' ') + 1);
    snprintf(strrchr(behind, ' '), sizeof(" 127.0.0.1"), " 127.0.0.1");
    CHECK_OK(tri_store_set(p->store, "rpc/worker/callee", behind, strlen(behind)));
    CHECK_OK(tri_rpc_find(p->caller, "callee", &p->to));
}

static void end(pair *p)
{
    tri_rpc_ref_unref(p->to);
    tri_rpc_abort(p->caller, "end");
    tri_rpc_abort(p->callee, "end");
    tri_rpc_destroy(p->caller);
    tri_rpc_destroy(p->callee);
    atomic_store(&p->wire.quit, 1);
    trii_thread_join(&p->wire.thread);
    trii_socket_close(p->wire.listen_fd);
    tri_store_unref(p->store);
}

/* --- functions ------------------------------------------------------------ */

static tri_status run_echo(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);

    (void)object;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = in->data,
                                                     .bytes = in->bytes,
                                                     .parts = in->parts,
                                                     .n_parts = in->n_parts});
}
static const tri_rpc_function echo = {.name = "echo",
                                      .max_request = 1 << 20,
                                      .max_reply = 1 << 20,
                                      .max_part = 1 << 20,
                                      .flags = TRI_RPC_IDEMPOTENT,
                                      .run = run_echo};
/* The same, but not to be sent again. */
static const tri_rpc_function once = {
    .name = "once", .max_request = 1 << 20, .max_reply = 1 << 20, .run = run_echo};

#define HELD 32
static tri_rpc_request *held[HELD];
static int n_held;
static uint64_t shuffle = 7;

/* The last of a round answers for all, in any order. */
static tri_status run_shuffled(tri_rpc_request *request, void *object)
{
    (void)object;
    held[n_held++] = request;
    if (n_held < HELD)
        return TRI_INPROGRESS;
    while (n_held > 0) {
        int i = (int)(scratch_random(&shuffle) % (uint32_t)n_held);
        tri_rpc_request *r = held[i];
        const tri_rpc_message *in = tri_rpc_request_message(r);

        held[i] = held[--n_held];
        if (tri_rpc_reply(r, &(tri_rpc_message){.data = in->data, .bytes = in->bytes}) != TRI_OK)
            return TRI_ERR_INTERNAL;
    }
    return TRI_INPROGRESS;
}
static const tri_rpc_function shuffled = {
    .name = "shuffled", .flags = TRI_RPC_INLINE, .run = run_shuffled};

static const tri_rpc_function *const all[] = {&echo, &once, &shuffled};

static unsigned char data[1 << 18];

static void fill(void)
{
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 2654435761u >> 24);
}

static void check_echo(tri_rpc_ref *to, size_t bytes)
{
    const tri_rpc_part part = {data + 1, bytes};
    tri_rpc_message reply;

    CHECK_OK(tri_rpc_sync(
        to, &echo, &(tri_rpc_message){.data = data, .bytes = bytes, .parts = &part, .n_parts = 1},
        NULL, &reply));
    assert_int_equal(reply.bytes, bytes);
    assert_memory_equal(reply.data, data, bytes);
    assert_memory_equal(reply.parts[0].data, data + 1, bytes);
    tri_rpc_message_free(&reply);
}

/* --- cases ---------------------------------------------------------------- */

static void a_stream_that_comes_in_any_pieces_is_the_same(void **state)
{
    static const size_t sizes[] = {0, 1, 100, 5000, 16384, 20000, 70000};
    pair p;

    (void)state;
    fill();
    begin(&p, all, 3, WIRE_CUTS);
    for (int i = 0; i < 60; i++)
        check_echo(p.to, sizes[(size_t)i % TRII_COUNT_OF(sizes)]);
    end(&p);
}

static void replies_in_another_order_reach_their_calls(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++) { /* shared memory, tcp, and tcp in pieces */
        const tri_rpc_options o = {.tcp_only = t == 1};
        tri_rpc_call *calls[HELD];
        tri_rpc_ref *to;
        workers w;
        pair p;

        n_held = 0;
        if (t == 2) {
            begin(&p, all, 3, WIRE_CUTS);
            to = p.to;
        } else {
            workers_begin(&w, 2, &o);
            worker_serve(&w, 1, &shuffled);
            to = worker_find(&w, 0, "w1");
        }
        for (int round = 0; round < 20; round++) {
            for (int i = 0; i < HELD; i++)
                CHECK_OK(tri_rpc_async(to, &shuffled,
                                       &(tri_rpc_message){.data = &i, .bytes = sizeof(i)}, NULL,
                                       &calls[i]));
            for (int i = 0; i < HELD; i++) {
                tri_rpc_message reply;

                CHECK_OK(tri_rpc_call_wait(calls[i], 0));
                CHECK_OK(tri_rpc_call_take_reply(calls[i], &reply));
                assert_int_equal(*(const int *)reply.data, i);
                tri_rpc_message_free(&reply);
                tri_rpc_call_destroy(calls[i]);
            }
        }
        if (t == 2) {
            end(&p);
        } else {
            tri_rpc_ref_unref(to);
            workers_end(&w);
        }
    }
}

static void a_reply_that_comes_after_the_deadline_is_nobodys(void **state)
{
    const tri_rpc_call_options soon = {.timeout_ms = 100};
    pair p;

    (void)state;
    fill();
    begin(&p, all, 3, WIRE_CUTS);
    check_echo(p.to, 100);
    for (int round = 0; round < 3; round++) {
        atomic_store(&p.wire.mode, WIRE_STOPS);
        CHECK_FAILS(tri_rpc_sync(p.to, &once, &(tri_rpc_message){.data = data, .bytes = 50000},
                                 &soon, NULL),
                    TRI_ERR_TIMEOUT, "once on callee");
        atomic_store(&p.wire.mode, WIRE_CUTS); /* here it comes */
        for (int i = 0; i < 5; i++)
            check_echo(p.to, 3000);
    }
    rpc_lock(p.caller);
    assert_int_equal(p.caller->in_flight, 0);
    rpc_unlock(p.caller);
    end(&p);
}

/* Connections end in the middle of frames: what may be sent again is, over the next one to the same
 * worker; what may not is lost, and says so. */
static void a_connection_that_breaks_is_made_again(void **state)
{
    int lost = 0;
    pair p;

    (void)state;
    fill();
    begin(&p, all, 3, WIRE_CUTS);
    check_echo(p.to, 100);
    atomic_store(&p.wire.mode, WIRE_ENDS);
    for (int i = 0; i < 100 && atomic_load(&p.wire.n_cut) < 5; i++)
        check_echo(p.to, 2000);
    assert_true(atomic_load(&p.wire.n_cut) >= 5);
    for (int i = 0; i < 50 && lost < 3; i++) {
        tri_status status =
            tri_rpc_sync(p.to, &once, &(tri_rpc_message){.data = data, .bytes = 2000}, NULL, NULL);

        if (status == TRI_OK)
            continue;
        assert_int_equal(status, TRI_ERR_PEER_LOST);
        assert_non_null(strstr(tri_last_error(), "once on callee"));
        lost += strstr(tri_last_error(), "perhaps executed") != NULL;
    }
    assert_int_equal(lost, 3);
    atomic_store(&p.wire.mode, WIRE_CUTS);
    check_echo(p.to, 70000);
    end(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_stream_that_comes_in_any_pieces_is_the_same),
    cmocka_unit_test(replies_in_another_order_reach_their_calls),
    cmocka_unit_test(a_reply_that_comes_after_the_deadline_is_nobodys),
    cmocka_unit_test(a_connection_that_breaks_is_made_again),
};

TEST_MAIN(tests)
