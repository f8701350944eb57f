/*
 * tcp_unexpected_test.c - frames that come before their call: how many are kept, and that none
 * overtakes another. The connections have no sockets: what comes lies in their buffers.
 */
/* ctest: threads=none */
#include "testing/check.h"

#include "base/alloc.h"
#include "comm/engines/tcp/tcp.h"
#include "comm/group/composite.h"

static const tcp_owner *const owners[TCP_OWNERS] = {&tcp_coll_owner, &tcp_p2p_owner};

/* A message without a payload takes memory as well. */
static void there_is_a_limit_to_empty_messages(void **state)
{
    static trii_fault fault;
    const size_t before = TCP_UNEXPECTED - 3 * sizeof(tcp_unexpected);
    tcp_group g = {.rank = 1, .size = 1, .fault = &fault};
    tcp_conn c = {.group = &g, .fd = -1, .unexpected_bytes = before};
    long live = trii_alloc_live();
    int kept = 0;

    (void)state;
    c.head = (tcp_frame){.type = TCP_FRAME_MESSAGE};
    g.conns = &c;
    while (kept < 5 && tcp_p2p_owner.accept(&c) == TCP_ACCEPTED) {
        tcp_p2p_owner.received(&c, 0);
        kept++;
    }
    assert_int_equal(kept, 3);
    tcp_p2p_owner.fail_all(&g, TRI_ERR_ABORTED, "the end");
    assert_int_equal(c.unexpected_bytes, before);
    assert_int_equal(trii_alloc_live(), live);
}

/* Long before that the peer hears of it, once, and once more when only half of it is kept. */
static void a_peer_is_asked_to_hold_when_much_is_kept(void **state)
{
    static trii_fault fault;
    static trii_op recv = {.call = {.kind = TRII_KIND_RECV, .dtype = TRI_DTYPE_U8, .root = 1}};
    static tcp_conn conns[2];
    tcp_group g = {.size = 2, .fault = &fault, .pending = 1, .conns = conns};
    tcp_unexpected *kept;
    tcp_conn *c = &conns[1];
    int n = 0;

    (void)state;
    conns[0] = (tcp_conn){.group = &g, .fd = -1};
    conns[1] = (tcp_conn){.group = &g, .rank = 1, .fd = -1};
    for (; !c->hold_due; n++) {
        c->head = (tcp_frame){.type = TCP_FRAME_MESSAGE,
                              .dtype = TRI_DTYPE_U8,
                              .part = (uint32_t)n,
                              .count = 1 << 20,
                              .bytes = 1 << 20};
        assert_int_equal(tcp_p2p_owner.accept(c), TCP_ACCEPTED);
        tcp_p2p_owner.received(c, 1 << 20);
    }
    assert_int_equal(n, 16);
    assert_true(tcp_p2p_owner.next_request(c));
    assert_int_equal(c->out.type, TCP_FRAME_HOLD);
    assert_int_equal(c->out.root, 1);
    assert_false(tcp_p2p_owner.next_request(c));
    while (!c->hold_due) {
        recv.made.tag = --n;
        kept = (tcp_unexpected *)trii_tags_find(&c->unexpected, trii_tag_of(&recv.call));
        kept->head.bytes = kept->head.count = 0; /* there is no buffer for it */
        c->unexpected_bytes -= 1 << 20;
        trii_op_init(&recv, &recv.call);
        g.pending = 1;
        tcp_p2p_owner.post(&g, &recv);
    }
    assert_int_equal(n, 7);
    assert_true(tcp_p2p_owner.next_request(c));
    assert_int_equal(c->out.root, 0);
    tcp_p2p_owner.fail_all(&g, TRI_ERR_ABORTED, "the end");
}

/* What came so far is copied, and the rest goes where it belongs at once. */
static void a_receive_takes_over_the_message_that_is_coming(void **state)
{
    static trii_fault fault;
    static char in[256];
    char dst[8] = "", message[9] = "abcdefgh";
    tcp_conn conns[2];
    tcp_group g = {.size = 2, .fault = &fault, .owners = owners, .conns = conns};
    trii_op recv = {.call = {.kind = TRII_KIND_RECV,
                             .root = 1,
                             .dtype = TRI_DTYPE_U8,
                             .dst = dst,
                             .count = 8,
                             .bytes = 8},
                    .peer = 1,
                    .count = 8,
                    .bytes = 8,
                    .status = TRI_INPROGRESS};
    tcp_frame head;
    tcp_conn *c = &conns[1];

    (void)state;
    for (int r = 0; r < 2; r++)
        conns[r] = (tcp_conn){
            .group = &g, .rank = r, .fd = -1, .ended = true, .in = in, .in_room = sizeof(in)};
    tcp_frame_fill(&head, TCP_FRAME_MESSAGE, &recv.call);
    head.bytes = 8;
    memcpy(in, &head, sizeof(head));
    memcpy(in + sizeof(head), message, 8);
    c->in_used = sizeof(head) + 5;
    c->want_in = true;
    tcp_advance(&g);
    assert_non_null(c->in_unexpected);
    g.pending = 1;
    tcp_p2p_owner.post(&g, &recv);
    assert_null(c->in_unexpected);
    assert_int_equal(c->unexpected_bytes, 0);
    assert_memory_equal(dst, "abcde\0\0\0", 8);
    c->in_used += 3;
    c->want_in = true;
    tcp_advance(&g);
    assert_int_equal(trii_op_status(&recv), TRI_OK);
    assert_memory_equal(dst, message, 8);
}

/* Of a frame whose payload is not what its message has nothing is written anywhere. */
static void a_payload_that_is_not_its_messages_is_refused(void **state)
{
    static char in[1024];
    char dst[512];

    (void)state;
    for (int i = 0; i < 4; i++) {
        const uint8_t type = i < 2 ? TCP_FRAME_MESSAGE : TCP_FRAME_RTS;
        trii_fault fault = {0};
        tcp_conn conns[2];
        tcp_group g = {.size = 2, .fault = &fault, .owners = owners, .conns = conns, .pending = 1};
        trii_op recv = {.call = {.kind = TRII_KIND_RECV,
                                 .root = 1,
                                 .dtype = TRI_DTYPE_F32,
                                 .dst = dst,
                                 .count = 4,
                                 .bytes = 16},
                        .peer = 1,
                        .count = 4,
                        .bytes = 16,
                        .status = TRI_INPROGRESS};
        tcp_frame head;
        tcp_conn *c = &conns[1];

        for (int r = 0; r < 2; r++)
            conns[r] = (tcp_conn){
                .group = &g, .rank = r, .fd = -1, .ended = true, .in = in, .in_room = sizeof(in)};
        tcp_frame_fill(&head, (tcp_frame_type)type, &recv.call);
        head.bytes = 256; /* 64 too much, or of an element that nobody knows */
        head.dtype = i % 2 == 0 ? TRI_DTYPE_F32 : 200;
        memset(dst, 0, sizeof(dst));
        memset(in, 'x', sizeof(in));
        memcpy(in, &head, sizeof(head));
        c->in_used = sizeof(head) + 256;
        c->want_in = true;
        tcp_p2p_owner.post(&g, &recv);
        tcp_advance(&g);
        assert_int_equal(trii_op_status(&recv), TRI_ERR_PEER_LOST);
        assert_non_null(strstr(recv.error, "carried bytes that are not a Trireme frame"));
        for (size_t b = 0; b < sizeof(dst); b++)
            assert_int_equal(dst[b], 0);
    }
}

/* Or it would be taken for the next header. */
static void a_payload_behind_a_frame_that_has_none_is_refused(void **state)
{
    static const uint8_t types[] = {TCP_FRAME_CTS, TCP_FRAME_HOLD, TCP_FRAME_WAITS,
                                    TCP_FRAME_LISTENS, TCP_FRAME_HEARTBEAT};
    static char in[sizeof(tcp_frame) * 2];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(types); i++) {
        const tcp_frame head = {.type = types[i], .bytes = sizeof(tcp_frame)};
        const tcp_frame goodbye = {.type = TCP_FRAME_GOODBYE};
        trii_fault fault = {0};
        tcp_conn conns[2];
        tcp_group g = {.size = 2, .fault = &fault, .owners = owners, .conns = conns};

        for (int r = 0; r < 2; r++)
            conns[r] = (tcp_conn){
                .group = &g, .rank = r, .fd = -1, .ended = true, .in = in, .in_room = sizeof(in)};
        memcpy(in, &head, sizeof(head));
        memcpy(in + sizeof(head), &goodbye, sizeof(goodbye));
        conns[1].in_used = sizeof(in);
        conns[1].want_in = true;
        tcp_advance(&g);
        assert_int_equal(trii_fault_status(&fault), TRI_ERR_PEER_LOST);
        assert_non_null(strstr(fault.text, "carried bytes that are not a Trireme frame"));
    }
}

/* After what a rank gives to an all_reduce may come the message that this rank waits for before it
 * comes to the all_reduce itself. A peer has few of those under way; it may end any number of
 * broadcasts without us. */
static void a_share_of_any_size_is_put_aside_for_a_message(void **state)
{
    static trii_fault fault;
    static trii_op recv = {.call = {.kind = TRII_KIND_RECV}};
    tcp_group g = {.rank = 1, .size = 1, .fault = &fault};
    tcp_conn c = {.group = &g, .fd = -1};
    long live = trii_alloc_live();

    (void)state;
    g.conns = &c;
    trii_recv_wait(&c.recvs, &recv, 1);
    c.head = (tcp_frame){.type = TCP_FRAME_PART,
                         .kind = TRII_KIND_ALL_REDUCE,
                         .bytes = 2 * (uint64_t)TCP_UNEXPECTED};
    for (int i = 0; i < TCP_SLOTS; i++)
        assert_true(tcp_stash_put(&c));
    c.head = (tcp_frame){.type = TCP_FRAME_RESULT,
                         .kind = TRII_KIND_BROADCAST,
                         .bytes = 2 * (uint64_t)TCP_UNEXPECTED};
    assert_true(tcp_stash_put(&c));
    assert_false(tcp_stash_put(&c));
    c.head = (tcp_frame){.type = TCP_FRAME_MESSAGE, .part = 1};
    assert_int_equal(tcp_p2p_owner.accept(&c), TCP_PARKED);
    assert_non_null(trii_recv_take(&c.recvs, &g.any_recvs, 0, 1));
    tcp_p2p_owner.fail_all(&g, TRI_ERR_ABORTED, "the end");
    assert_int_equal(c.unexpected_bytes, 0);
    assert_int_equal(trii_alloc_live(), live);
}

/* --- order ---------------------------------------------------------------- */

enum { SUMMED = 262144, SUMMED_BYTES = SUMMED * 4 }; /* more than a ring */

/* Rank 1 of three, which waits for a message of rank 0. */
typedef struct table {
    tcp_group g;
    tcp_conn conns[3];
    const void *sources[3];
    trii_fault fault;
    trii_op sum, gather, recv;
    float gathered[3][2], own[2], byte;
    float *src, *dst;
} table;

static void give(tcp_conn *c, const trii_op *op, tcp_frame_type type, const void *data,
                 size_t bytes)
{
    tcp_frame head;

    tcp_frame_fill(&head, type, &op->call);
    head.bytes = bytes;
    assert_true(c->in_used + sizeof(head) + bytes <= c->in_room);
    memcpy(c->in + c->in_used, &head, sizeof(head));
    memcpy(c->in + c->in_used + sizeof(head), data, bytes);
    c->in_used += sizeof(head) + bytes;
    c->want_in = true;
    tcp_advance(c->group);
    assert_false(c->group->failed);
}

static void set_up(table *t)
{
    tcp_group *g = &t->g;

    *g = (tcp_group){.rank = 1,
                     .size = 3,
                     .fault = &t->fault,
                     .owners = owners,
                     .conns = t->conns,
                     .sources = t->sources};
    for (int r = 0; r < 3; r++)
        t->conns[r] = (tcp_conn){.group = g,
                                 .rank = r,
                                 .fd = -1,
                                 .ended = true,
                                 .in = malloc(2 * SUMMED_BYTES),
                                 .in_room = 2 * SUMMED_BYTES};
    for (int i = 0; i < TCP_SLOTS; i++)
        g->slots[i].peers = calloc(3, sizeof(tcp_streams));
    t->src = calloc(3, SUMMED_BYTES);
    t->dst = calloc(1, SUMMED_BYTES);
    t->sum.made = (trii_collective){.kind = TRII_KIND_REDUCE_SCATTER,
                                    .dtype = TRI_DTYPE_F32,
                                    .op = TRI_REDOP_SUM,
                                    .src = t->src,
                                    .dst = t->dst,
                                    .count = SUMMED,
                                    .bytes = SUMMED_BYTES,
                                    .seq = 1};
    t->gather.made = (trii_collective){.kind = TRII_KIND_ALL_GATHER,
                                       .dtype = TRI_DTYPE_F32,
                                       .src = t->own,
                                       .dst = t->gathered,
                                       .count = 2,
                                       .bytes = sizeof(t->own),
                                       .seq = 2};
    t->recv.made = (trii_collective){
        .kind = TRII_KIND_RECV, .dtype = TRI_DTYPE_F32, .dst = &t->byte, .count = 1, .bytes = 4};
    t->recv.count = 1;
    t->recv.bytes = 4;
    g->pending = 3;
    tcp_p2p_owner.post(g, &t->recv);
}

static void tear_down(table *t)
{
    tcp_fail(&t->g, TRI_ERR_ABORTED, "the end");
    for (int r = 0; r < 3; r++)
        free(t->conns[r].in);
    for (int i = 0; i < TCP_SLOTS; i++) {
        free(t->g.slots[i].peers);
        trii_free(t->g.slots[i].scratch);
    }
    free(t->src);
    free(t->dst);
}

/* Rank 0 is ahead with a sum, which needs rank 2 to go on, and with the first half of what it gives
 * to an all_gather. The second half comes when both are under way here. */
static void no_frame_overtakes_one_that_was_put_aside(void **state)
{
    static table t;
    static const float halves[2] = {1, 2};
    tcp_group *g = &t.g;

    (void)state;
    set_up(&t);
    give(&t.conns[0], &t.sum, TCP_FRAME_PART, t.src, SUMMED_BYTES);
    give(&t.conns[0], &t.gather, TCP_FRAME_RESULT, &halves[0], 4);
    assert_non_null(t.conns[0].stash);
    g->queue = &t.sum;
    t.sum.next = g->last_queued = &t.gather;
    tcp_coll_owner.start_queued(g);
    for (int r = 0; r < 3; r++)
        t.conns[r].want_out = false; /* there is nobody */
    give(&t.conns[0], &t.gather, TCP_FRAME_RESULT, &halves[1], 4);
    assert_non_null(t.conns[0].stash_coll);
    give(&t.conns[2], &t.sum, TCP_FRAME_PART, t.src, SUMMED_BYTES);
    assert_null(t.conns[0].stash);
    assert_memory_equal(t.gathered[0], halves, sizeof(halves));
    tear_down(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(there_is_a_limit_to_empty_messages),
    cmocka_unit_test(a_peer_is_asked_to_hold_when_much_is_kept),
    cmocka_unit_test(a_receive_takes_over_the_message_that_is_coming),
    cmocka_unit_test(a_payload_that_is_not_its_messages_is_refused),
    cmocka_unit_test(a_payload_behind_a_frame_that_has_none_is_refused),
    cmocka_unit_test(a_share_of_any_size_is_put_aside_for_a_message),
    cmocka_unit_test(no_frame_overtakes_one_that_was_put_aside),
};

TEST_MAIN(tests)
