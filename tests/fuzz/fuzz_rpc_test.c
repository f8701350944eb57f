/*
 * fuzz_rpc_test.c - frames between workers take anything: the check of one, and a worker that
 * lives.
 * ctest: start=first
 */
#include "base/alloc.h"
#include "fuzz/fuzz.h"
#include "os/socket.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "testing/check.h"
#include "testing/socket_end.h"

/* --- the check of a frame ------------------------------------------------- */

static size_t one_arena(void *arg, uint32_t arena)
{
    (void)arg;
    return arena == 3 ? 4096 : 0;
}

/* What passes lies within its body, or the arena. */
static void run_check(const uint8_t *data, size_t bytes)
{
    const rpc_limits limits = {1024, 1024, 4096, false};
    rpc_header h;
    rpc_shape shape;

    if (bytes < sizeof(h))
        return;
    memcpy(&h, data, sizeof(h));
    if (h.bytes > bytes - sizeof(h) || rpc_frame_check(&h, &limits) != TRI_OK ||
        rpc_frame_check_body(&h, data + sizeof(h), &limits, one_arena, NULL) != TRI_OK)
        return;
    shape = rpc_frame_shape(h.n_refs, h.n_parts, h.data_bytes);
    assert_true(shape.end <= h.bytes && h.data_bytes <= RPC_CONTROL_BYTES + limits.data);
    for (uint32_t i = 0; i < h.n_parts; i++) {
        rpc_wire_part part;

        memcpy(&part, data + sizeof(h) + shape.parts_at + i * sizeof(part), sizeof(part));
        assert_true(part.arena == 0 || part.arena == 3);
        assert_true(part.at + part.bytes <= (part.arena == 0 ? h.bytes : 4096));
        assert_true(part.bytes <= limits.part);
    }
}

static const fuzz_target check_target = {.name = "rpc_frames", .run = run_check};

/* --- a worker ------------------------------------------------------------- */

static tri_store *store;
static tri_rpc *victim, *honest;
static tri_rpc_ref *to_victim;
static rpc_address address;

static tri_status run_echo(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);

    (void)object;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = in->data,
                                                     .bytes = in->bytes,
                                                     .parts = in->parts,
                                                     .n_parts = in->n_parts});
}
static const tri_rpc_function echo = {
    .name = "echo", .max_part = 4096, .flags = TRI_RPC_INLINE, .run = run_echo};

static tri_status run_keep(tri_rpc_request *request, void *object)
{
    (void)object;
    return tri_rpc_request_is_cancelled(request) ? TRI_OK : TRI_ERR_ABORTED;
}
static const tri_rpc_function keep = {.name = "keep", .run = run_keep};

static void begin_worker(void)
{
    static const tri_rpc_function *const functions[] = {&echo, &keep};
    const tri_rpc_options o = {.open = true, .tcp_only = true, .window_calls = 8};
    char record[640];

    setenv("TRI_LOG", "error", 1);
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_rpc_create(store, "victim", 0, 0, &o, &victim));
    CHECK_OK(tri_rpc_create(store, "honest", 0, 0, &o, &honest));
    CHECK_OK(tri_rpc_serve(victim, functions, 2));
    CHECK_OK(tri_rpc_find(honest, "victim", &to_victim));
    CHECK_OK(rpc_read_record(victim, "victim", false, 0, record));
    CHECK_OK(rpc_parse_record(record, &address));
}

/* Says hello as it should, then what it likes, and leaves. */
static void run_worker(const uint8_t *data, size_t bytes)
{
    int64_t deadline = trii_deadline_ms(20000);
    rpc_hello hello, answer;
    tri_status status;
    int fd;

    rpc_fill_hello(victim, &hello);
    hello.from = 0x1234567;
    hello.to = address.incarnation;
    snprintf(hello.name, sizeof(hello.name), "rogue");
    memcpy(hello.token, address.token, sizeof(hello.token));
    CHECK_OK(trii_socket_connect("127.0.0.1", address.port, deadline, false, &fd));
    do { /* the victim may not have noticed that the last one has gone */
        CHECK_OK(trii_socket_send_all(fd, &hello, sizeof(hello), deadline));
        CHECK_OK(trii_socket_recv_all(fd, &answer, sizeof(answer), deadline));
        if (answer.verdict == RPC_BUSY) {
            trii_socket_close(fd);
            CHECK_OK(trii_socket_connect("127.0.0.1", address.port, deadline, false, &fd));
        }
    } while (answer.verdict == RPC_BUSY);
    status = trii_socket_send_all(fd, data, bytes, deadline);
    assert_true(status == TRI_OK || status == TRI_ERR_PEER_LOST);
    trii_socket_shutdown(fd);
    socket_expect_end(fd);
    if (bytes % 16 == 0)
        CHECK_OK(tri_rpc_sync(to_victim, &echo, NULL, NULL, NULL));
}

static void end_worker(void)
{
    tri_rpc_ref_unref(to_victim);
    tri_rpc_destroy(honest);
    tri_rpc_destroy(victim);
    tri_store_unref(store);
}

static const fuzz_target worker_target = {
    .name = "rpc_frames", .begin = begin_worker, .run = run_worker, .end = end_worker};

static void a_frame_that_passes_the_check_lies_within_its_memory(void **state)
{
    (void)state;
    fuzz_corpus(&check_target);
    fuzz_mutations(&check_target, 100000);
}

static void a_worker_takes_every_frame_cut_after_each_byte(void **state)
{
    long live = trii_alloc_live();

    (void)state;
    if (TEST_TSAN) /* wherever it is cut, the same thread reads it */
        fuzz_whole(&worker_target);
    else
        fuzz_corpus(&worker_target);
    assert_int_equal(trii_alloc_live(), live);
}

static void a_worker_takes_any_frames(void **state)
{
    (void)state;
    fuzz_mutations(&worker_target, TEST_SANITIZED ? 500 : 2000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_frame_that_passes_the_check_lies_within_its_memory),
    cmocka_unit_test(a_worker_takes_every_frame_cut_after_each_byte),
    cmocka_unit_test(a_worker_takes_any_frames),
};

TEST_MAIN(tests)
