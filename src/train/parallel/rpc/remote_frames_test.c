/*
 * remote_frames_test.c - requests to a served module that are damaged.
 */
#include "testing/remote_layers.h"
#include "testing/remote_served.h"

/* A forward of [4, WIDTH], or what damage makes of it. */
typedef struct request {
    union {
        trii_remote_forward forward;
        trii_remote_backward backward;
        trii_remote_release release;
    } head;
    trii_remote_type type;
} request;

static size_t make_request(trii_remote_kind kind, uint64_t call, request *q)
{
    const trii_type type = {.dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {4, WIDTH}};
    size_t head = sizeof(q->head.forward);

    memset(q, 0, sizeof(*q));
    if (kind == TRII_REMOTE_RELEASE) {
        q->head.release = (trii_remote_release){TRII_REMOTE_MAGIC, kind, 1, {call}};
        return sizeof(q->head.release);
    }
    if (kind == TRII_REMOTE_BACKWARD) {
        q->head.backward = (trii_remote_backward){
            .magic = TRII_REMOTE_MAGIC, .kind = kind, .call = call, .present = 1, .n_types = 1};
        head = sizeof(q->head.backward);
    } else {
        q->head.forward = (trii_remote_forward){.magic = TRII_REMOTE_MAGIC,
                                                .kind = kind,
                                                .call = call,
                                                .n_types = 1,
                                                .n_results = 1,
                                                .requires_grad = 1};
    }
    trii_remote_type_put((trii_remote_type *)(void *)((char *)q + head), &type);
    return head + sizeof(trii_remote_type);
}

static tri_status send_request(tri_rpc_ref *session, trii_remote_kind kind, const request *q,
                               size_t bytes, size_t part_bytes)
{
    static const float x[8 * WIDTH] = {1, 2, 3};
    const tri_rpc_part part = {x, part_bytes};

    return tri_rpc_sync(
        session, trii_remote_functions[kind],
        &(tri_rpc_message){.data = q,
                           .bytes = bytes,
                           .parts = &part,
                           .n_parts =
                               kind == TRII_REMOTE_TYPES || kind == TRII_REMOTE_RELEASE ? 0 : 1},
        NULL, NULL);
}

static void damaged_requests_are_refused(void **state)
{
    static const trii_remote_kind kinds[] = {TRII_REMOTE_FORWARD, TRII_REMOTE_BACKWARD,
                                             TRII_REMOTE_TYPES, TRII_REMOTE_RELEASE};
    static request q;
    const size_t whole = 4 * WIDTH * sizeof(float);
    tri_module *net, *remote;
    tri_rpc_ref *session = NULL;
    remote_workers r;
    uint32_t random = 1;

    (void)state;
    remote_begin(&r, 2, NULL);
    net = linear_with(1);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    CHECK_OK(trii_remote_session(trii_remote_of(remote), &session, NULL));
    for (uint64_t n = 1; n < 400; n++) {
        trii_remote_kind kind = kinds[n % TRII_COUNT_OF(kinds)];
        size_t bytes = make_request(kind, n, &q);

        if (n % 3 == 0) {
            random = random * 1664525u + 1013904223u;
            bytes = random % bytes; /* cut off */
        }
        for (int k = 0; k < 4 && n % 3 != 0; k++) {
            random = random * 1664525u + 1013904223u;
            ((unsigned char *)&q)[(random >> 8) % bytes] ^= (unsigned char)(1u << (random >> 29));
        }
        if (send_request(session, kind, &q, bytes, n % 5 == 0 ? whole - 4 : whole) < 0)
            assert_true(tri_last_error()[0] != '\0');
    }
    /* as it should be, it still works */
    CHECK_OK(send_request(session, TRII_REMOTE_FORWARD, &q,
                          make_request(TRII_REMOTE_FORWARD, 1000, &q), whole));
    CHECK_OK(send_request(session, TRII_REMOTE_BACKWARD, &q,
                          make_request(TRII_REMOTE_BACKWARD, 1000, &q), whole));
    CHECK_FAILS(send_request(session, TRII_REMOTE_BACKWARD, &q,
                             make_request(TRII_REMOTE_BACKWARD, 1000, &q), whole),
                TRI_ERR_STATE, "has been dropped");
    tri_rpc_ref_unref(session);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    tri_module_destroy(net);
    remote_end(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(damaged_requests_are_refused),
};

TEST_MAIN(tests)
