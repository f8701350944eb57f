/*
 * rpc_bounds_test.c - what a worker that does not keep the rules can make another one keep: w1
 * sends frames that no worker sends, until w0 gives it up.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

#define PATIENT_MS 20000

typedef struct bad {
    workers w;
    rpc_peer *to;   /* w0, as w1 sees it */
    rpc_peer *from; /* w1, as w0 does; used */
    tri_rpc_ref *object;
    uint64_t id; /* of an object of w0 */
} bad;

static tri_status run_nothing(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function nothing = {
    .name = "nothing", .flags = TRI_RPC_INLINE, .run = run_nothing};
static const tri_rpc_object thing = {.name = "thing"};

static void begin(bad *b, const tri_rpc_options *opt)
{
    tri_rpc_ref *w0;

    workers_begin(&b->w, 2, opt);
    worker_serve(&b->w, 0, &nothing);
    CHECK_OK(tri_rpc_own(b->w.rpc[0], NULL, &thing, NULL, &b->object));
    b->id = b->object->object;
    w0 = worker_find(&b->w, 1, "w0");
    CHECK_OK(tri_rpc_sync(w0, &nothing, NULL, NULL, NULL)); /* w0 knows the function */
    tri_rpc_ref_unref(w0);
    rpc_lock(b->w.rpc[0]);
    b->from = rpc_peer_named(b->w.rpc[0], "w1");
    rpc_peer_use(b->from);
    rpc_unlock(b->w.rpc[0]);
    rpc_lock(b->w.rpc[1]);
    b->to = rpc_peer_named(b->w.rpc[1], "w0");
    rpc_peer_use(b->to);
    rpc_unlock(b->w.rpc[1]);
}

/* w0 has given w1 up, and says so. It has also looked for all workers that w1 introduced, each by a
 * thread: the library waits a second for these when w0 is destroyed, and they may take longer. The
 * deadline is of each. */
static void check_lost(bad *b, const char *why)
{
    int64_t deadline = trii_deadline_ms(PATIENT_MS);
    int n_jobs = 0;
    bool lost = false;

    for (; !lost; trii_thread_yield()) {
        if (trii_now_ns() > deadline)
            fail_msg("w1 is not lost, or workers are looked for without end");
        rpc_lock(b->w.rpc[0]);
        lost = b->from->state == RPC_PEER_LOST && b->w.rpc[0]->n_jobs == 0;
        if (b->w.rpc[0]->n_jobs != n_jobs)
            deadline = trii_deadline_ms(PATIENT_MS);
        n_jobs = b->w.rpc[0]->n_jobs;
        rpc_unlock(b->w.rpc[0]);
    }
    if (strstr(b->from->why, why) == NULL)
        fail_msg("\"%s\" instead of \"%s\"", b->from->why, why);
    for (int i = 0; i < 2; i++) {
        rpc_lock(b->w.rpc[i]);
        rpc_peer_unuse(i == 0 ? b->from : b->to);
        rpc_unlock(b->w.rpc[i]);
    }
    tri_rpc_ref_unref(b->object);
    workers_destroy(&b->w);
}

/* False: the connection has ended. Waits until there is room for it. */
static bool send_frame(bad *b, const rpc_header *h, const void *body)
{
    unsigned char frame[sizeof(*h) + sizeof(rpc_wire_ref)];
    int64_t deadline = trii_deadline_ms(PATIENT_MS);
    bool up = true, sent = false;

    memcpy(frame, h, sizeof(*h));
    if (h->bytes > 0)
        memcpy(frame + sizeof(*h), body, h->bytes);
    while (up && !sent) {
        if (trii_now_ns() > deadline)
            fail_msg("w0 takes nothing any more");
        rpc_lock(b->w.rpc[0]);
        up = b->from->state == RPC_PEER_UP;
        rpc_unlock(b->w.rpc[0]);
        rpc_lock(b->w.rpc[1]);
        rpc_flush(b->to);
        up = up && b->to->state == RPC_PEER_UP;
        sent = up && b->to->out_first == NULL;
        if (sent)
            rpc_send(b->to, frame, sizeof(*h) + h->bytes, 0);
        rpc_unlock(b->w.rpc[1]);
        if (!sent)
            trii_thread_yield();
    }
    return up;
}

static void stop_reading(bad *b)
{
    rpc_lock(b->w.rpc[1]);
    b->to->reading = true; /* as if a thread did, so that nobody does */
    rpc_unlock(b->w.rpc[1]);
}

static rpc_wire_ref wire_of(uint64_t incarnation, const char *name)
{
    rpc_wire_ref wire = {.incarnation = incarnation};

    snprintf(wire.name, sizeof(wire.name), "%s", name);
    return wire;
}

/* --- cases ---------------------------------------------------------------- */

static void drops_of_what_is_not_held_are_bounded(void **state)
{
    rpc_header h = {.magic = RPC_MAGIC, .kind = RPC_DROP, .chain = 1};
    bool up = true;
    bad b;

    (void)state;
    begin(&b, NULL);
    for (int i = 0; i <= 2 * RPC_MAX_VOID_HOLDS && up; i++) {
        h.object = (uint64_t)i << 32 | 77;
        up = send_frame(&b, &h, NULL);
    }
    check_lost(&b, "it drops references to 8193 objects that it does not hold");
}

static void workers_that_are_introduced_and_never_come_are_bounded(void **state)
{
    rpc_wire_ref wire = wire_of(0, "nobody");
    rpc_header h = {
        .magic = RPC_MAGIC, .kind = RPC_HOLD, .n_refs = 1, .bytes = sizeof(wire), .call = 1};
    bool up = true;
    bad b;

    (void)state;
    begin(&b, NULL);
    h.object = b.id;
    for (int i = 0; i <= 2 * RPC_MAX_INTRODUCED && up; i++) {
        wire.incarnation = (uint64_t)i + 1000;
        up = send_frame(&b, &h, &wire);
    }
    check_lost(&b, "it tells of one more worker, and 1026 have not come");
}

static void an_introduction_to_no_object_is_refused(void **state)
{
    const rpc_wire_ref wire = wire_of(1000, "somebody");
    const rpc_header h = {
        .magic = RPC_MAGIC, .kind = RPC_HOLD, .n_refs = 1, .bytes = sizeof(wire), .object = 12345};
    bad b;

    (void)state;
    begin(&b, NULL);
    (void)send_frame(&b, &h, &wire);
    check_lost(&b, "it introduces nobody, or to nothing");
}

static void names_that_are_none_are_refused(void **state)
{
    static const char *const names[] = {"", "a name", "n/m", "\x1b[2J"};
    rpc_header define = {.magic = RPC_MAGIC, .kind = RPC_DEFINE, .function = 1};

    (void)state;
    for (size_t i = 0; i < 2 * TRII_COUNT_OF(names); i++) {
        const char *name = names[i / 2];
        const rpc_wire_ref wire = wire_of(1000, name);
        rpc_header h = {.magic = RPC_MAGIC, .kind = RPC_HOLD, .n_refs = 1, .bytes = sizeof(wire)};
        bad b;

        begin(&b, NULL);
        h.object = b.id;
        define.bytes = define.data_bytes = strlen(name) + 1;
        (void)send_frame(&b, i % 2 == 0 ? &h : &define, i % 2 == 0 ? (const void *)&wire : name);
        check_lost(&b, i % 2 == 0 ? "it tells of a worker that has no name"
                                  : "it defines a function without a name");
    }
}

static void what_waits_for_a_worker_that_does_not_read_is_bounded(void **state)
{
    const tri_rpc_options narrow = {.window_bytes = 65536};
    rpc_wire_ref wire;
    rpc_header h = {
        .magic = RPC_MAGIC, .kind = RPC_HOLD, .n_refs = 1, .bytes = sizeof(wire), .call = 1};
    bool up = true;
    bad b;

    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_options o = narrow;

        o.tcp_only = t == 1;
        up = true;
        begin(&b, &o);
        stop_reading(&b);
        h.object = b.id;
        wire = wire_of(b.w.rpc[1]->incarnation, "w1"); /* each is answered */
        for (int i = 0; i < 1000000 && up; i++)
            up = send_frame(&b, &h, &wire);
        check_lost(&b, "it does not read: 1048640 bytes wait for that");
    }
}

static void answers_that_are_not_read_count_as_calls(void **state)
{
    const tri_rpc_options narrow = {.window_calls = 100};
    rpc_header h = {.magic = RPC_MAGIC, .kind = RPC_REQUEST, .ns = -1, .chain = 1};
    bool up = true;
    bad b;

    (void)state;
    begin(&b, &narrow);
    stop_reading(&b);
    for (int i = 0; i < 1000000 && up; i++) {
        h.call = (uint64_t)i + 1000;
        up = send_frame(&b, &h, NULL);
    }
    check_lost(&b, "it has more calls unanswered, or answers unread, than its window");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(drops_of_what_is_not_held_are_bounded),
    cmocka_unit_test(workers_that_are_introduced_and_never_come_are_bounded),
    cmocka_unit_test(an_introduction_to_no_object_is_refused),
    cmocka_unit_test(names_that_are_none_are_refused),
    cmocka_unit_test(what_waits_for_a_worker_that_does_not_read_is_bounded),
    cmocka_unit_test(answers_that_are_not_read_count_as_calls),
};

TEST_MAIN(tests)
