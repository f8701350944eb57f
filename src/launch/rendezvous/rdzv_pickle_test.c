/*
 * rdzv_pickle_test.c - states as bytes: there and back, what Python wrote, and what nobody should
 * have written.
 */
/* ctest: threads=none */
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "launch/rendezvous/rdzv_pickle.h"
#include "testing/check.h"

static trii_rdzv_node node(const char *addr, int pid)
{
    trii_rdzv_node n = {.pid = pid, .local_id = 7};

    snprintf(n.addr, sizeof(n.addr), "%s", addr);
    return n;
}

static void make_state(trii_rdzv_state *state)
{
    const trii_rdzv_node a = node("b.example", 5), b = node("a.example", 1 << 20);
    const trii_rdzv_node c = node("::1", 9);
    trii_rdzv_entry *entry;

    trii_rdzv_state_init(state);
    state->round = 300;
    CHECK_OK(trii_rdzv_participate(state, &a, 2, 2, INT64_C(1795246346123456), 1000));
    CHECK_OK(trii_rdzv_participate(state, &b, 2, 2, INT64_C(951782400000001), 1000));
    CHECK_OK(trii_rdzv_entry_of(state, &c, &entry));
    entry->waiting = true;
    state->has_deadline = true;
    state->deadline_us = INT64_C(4102444799999999);
}

static void a_state_comes_back_as_it_was(void **test)
{
    trii_rdzv_state state, again;
    trii_wire_buffer raw = {0}, text = {0}, back = {0};

    (void)test;
    make_state(&state);
    trii_rdzv_state_init(&again);
    trii_rdzv_pickle_write(&state, &raw);
    trii_base64_write(raw.data, raw.used, &text);
    CHECK_OK(trii_base64_read(text.data, text.used, &back));
    assert_int_equal(back.used, raw.used);
    assert_memory_equal(back.data, raw.data, raw.used);
    CHECK_OK(trii_rdzv_pickle_read(back.data, back.used, &again));
    assert_int_equal(again.round, 300);
    assert_true(again.complete);
    assert_false(again.closed);
    assert_int_equal(again.deadline_us, state.deadline_us);
    assert_int_equal(again.n, state.n);
    for (int i = 0; i < state.n; i++) {
        const trii_rdzv_entry *e = trii_rdzv_find(&again, &state.entries[i].node);

        assert_non_null(e);
        assert_int_equal(e->participant, state.entries[i].participant);
        assert_int_equal(e->waiting, state.entries[i].waiting);
        assert_int_equal(e->rank, state.entries[i].rank);
        assert_int_equal(e->beat_us, state.entries[i].beat_us);
    }
    trii_rdzv_state_fini(&state);
    trii_rdzv_state_fini(&again);
    trii_wire_buffer_fini(&raw);
    trii_wire_buffer_fini(&text);
    trii_wire_buffer_fini(&back);
}

/* What PyTorch 2.13 under Python 3.11 wrote for two participants and one node that waits; made
 * with pickle.dumps(_RendezvousState) and base64. */
static const char from_python[] =
    "gASV6QEAAAAAAACMN3RvcmNoLmRpc3RyaWJ1dGVkLmVsYXN0aWMucmVuZGV6dm91cy5keW5hbWljX3JlbmRlenZv"
    "dXOUjBBfUmVuZGV6dm91c1N0YXRllJOUKYGUfZQojAVyb3VuZJRLA4wIY29tcGxldGWUiIwIZGVhZGxpbmWUjAhk"
    "YXRldGltZZSMCGRhdGV0aW1llJOUQwoH6gsVByAaAeJAlGgIjAh0aW1lem9uZZSTlGgIjAl0aW1lZGVsdGGUk5RL"
    "AEsASwCHlFKUhZRSlIaUUpSMBmNsb3NlZJSJjAxwYXJ0aWNpcGFudHOUfZQoaACMCV9Ob2RlRGVzY5STlCmBlH2U"
    "KIwEYWRkcpSMBmhvc3QtYZSMA3BpZJRLC4wIbG9jYWxfaWSUSwB1YksAaBopgZR9lChoHYwGaG9zdC1ilGgfSnAR"
    "AQBoIEsBdWJLAXWMCXdhaXRfbGlzdJSPlChoGimBlH2UKGgdjAZob3N0LWOUaB9LDWggSwJ1YpCMD3JlZHVuZGFu"
    "Y3lfbGlzdJSPlIwPbGFzdF9oZWFydGJlYXRzlH2UKGgbaApDCgfqCxUHIBQAAACUaBOGlFKUaCFoCkMKB+oLFQcg"
    "FAAAAZRoE4aUUpRoJmgKQwoH6gsVByAVAAAAlGgThpRSlHV1Yi4=";

static void a_state_of_pytorch_is_understood(void **test)
{
    const trii_rdzv_node a = {.addr = "host-a", .pid = 11, .local_id = 0};
    const trii_rdzv_node b = {.addr = "host-b", .pid = 70000, .local_id = 1};
    const trii_rdzv_node c = {.addr = "host-c", .pid = 13, .local_id = 2};
    trii_rdzv_state state;
    trii_wire_buffer raw = {0};

    (void)test;
    trii_rdzv_state_init(&state);
    CHECK_OK(trii_base64_read(from_python, strlen(from_python), &raw));
    CHECK_OK(trii_rdzv_pickle_read(raw.data, raw.used, &state));
    assert_int_equal(state.round, 3);
    assert_true(state.complete);
    assert_false(state.closed);
    assert_true(state.has_deadline);
    assert_int_equal(state.deadline_us, INT64_C(1795246346123456));
    assert_int_equal(state.n, 3);
    assert_int_equal(trii_rdzv_find(&state, &a)->rank, 0);
    assert_int_equal(trii_rdzv_find(&state, &b)->rank, 1);
    assert_true(trii_rdzv_find(&state, &b)->participant);
    assert_int_equal(trii_rdzv_find(&state, &b)->beat_us, INT64_C(1795246340000001));
    assert_true(trii_rdzv_find(&state, &c)->waiting);
    assert_false(trii_rdzv_find(&state, &c)->participant);
    trii_rdzv_state_fini(&state);
    trii_wire_buffer_fini(&raw);
}

/* As Python does where a pickle is large. */
static void a_frame_may_begin_anywhere(void **test)
{
    static const char frame[] = "\x95\3\0\0\0\0\0\0\0";
    trii_rdzv_state state, again;
    trii_wire_buffer raw = {0}, framed = {0};

    (void)test;
    make_state(&state);
    trii_rdzv_state_init(&again);
    trii_rdzv_pickle_write(&state, &raw);
    trii_wire_put(&framed, raw.data, raw.used - 3); /* SETITEMS BUILD STOP */
    trii_wire_put(&framed, frame, sizeof(frame) - 1);
    trii_wire_put(&framed, raw.data + raw.used - 3, 3);
    CHECK_OK(trii_rdzv_pickle_read(framed.data, framed.used, &again));
    assert_int_equal(again.n, state.n);
    trii_rdzv_state_fini(&state);
    trii_rdzv_state_fini(&again);
    trii_wire_buffer_fini(&raw);
    trii_wire_buffer_fini(&framed);
}

static void what_is_cut_or_changed_is_refused_or_harmless(void **test)
{
    trii_rdzv_state state, out;
    trii_wire_buffer raw = {0};
    long live;

    (void)test;
    make_state(&state);
    trii_rdzv_pickle_write(&state, &raw);
    live = trii_alloc_live();
    for (size_t n = 0; n < raw.used; n++) {
        trii_rdzv_state_init(&out);
        assert_int_equal(trii_rdzv_pickle_read(raw.data, n, &out), TRI_ERR_FORMAT);
    }
    for (size_t at = 0; at < raw.used; at++) {
        for (int bit = 0; bit < 8; bit++) {
            raw.data[at] = (char)(raw.data[at] ^ 1 << bit);
            trii_rdzv_state_init(&out);
            if (trii_rdzv_pickle_read(raw.data, raw.used, &out) == TRI_OK)
                trii_rdzv_state_fini(&out);
            raw.data[at] = (char)(raw.data[at] ^ 1 << bit);
        }
    }
    assert_int_equal(trii_alloc_live(), live);
    trii_rdzv_state_fini(&state);
    trii_wire_buffer_fini(&raw);
}

static void nothing_is_called_or_imported(void **test)
{
    /* os.system("true"): a pickle that would run it */
    static const char evil[] = "\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.";
    static const char old_global[] = "cos\nsystem\n(S'true'\ntR.";
    trii_rdzv_state out;

    (void)test;
    trii_rdzv_state_init(&out);
    CHECK_FAILS(trii_rdzv_pickle_read(evil, sizeof(evil) - 1, &out), TRI_ERR_FORMAT,
                "operation 0x85");
    CHECK_FAILS(trii_rdzv_pickle_read(old_global, sizeof(old_global) - 1, &out), TRI_ERR_FORMAT,
                "operation 0x63 instead of 0x80");
}

/* As many nodes as there may be, and the last of them as often as there is room for. */
static void a_state_that_says_many_nodes_again_and_again_takes_no_time(void **test)
{
    static const char head[] = "\x80\x04\x8c\x01m\x8c\x09_NodeDesc\x93\x94" /* GET 0: the class */
                               "0\x8c\x04"
                               "addr\x94" /* GET 1 to 3: names of attributes */
                               "0\x8c\x03pid\x94"
                               "0\x8c\x08local_id\x94"
                               "0";
    char one[] = "h\0)\x81}(h\1\x8c\x01"
                 "ah\2J----h\3K\0ub0";
    const size_t pid_at = 14;
    trii_wire_buffer raw = {0};
    trii_rdzv_state out;
    clock_t began;

    (void)test;
    trii_rdzv_state_init(&out);
    trii_wire_put(&raw, head, sizeof(head) - 1);
    assert_memory_equal(one + pid_at, "----", 4);
    for (int32_t i = 0; raw.used + sizeof(one) < TRII_RDZV_MAX_PICKLE; i++) {
        int32_t pid = i < TRII_RDZV_MAX_NODES ? i : TRII_RDZV_MAX_NODES - 1 - i % 100;

        memcpy(one + pid_at, &pid, sizeof(pid));
        trii_wire_put(&raw, one, sizeof(one) - 1);
    }
    began = clock();
    CHECK_FAILS(trii_rdzv_pickle_read(raw.data, raw.used, &out), TRI_ERR_FORMAT, "cut off");
    assert_true(clock() - began < 2 * CLOCKS_PER_SEC);
    trii_wire_buffer_fini(&raw);
}

/* --- the rules ------------------------------------------------------------ */

static void ranks_follow_the_order_of_nodes(void **test)
{
    const trii_rdzv_node a = node("a", 10), b = node("a", 9), c = node("A", 1);
    trii_rdzv_state s;

    (void)test;
    trii_rdzv_state_init(&s);
    CHECK_OK(trii_rdzv_participate(&s, &a, 2, 3, 0, 1000));
    assert_false(s.has_deadline);
    CHECK_OK(trii_rdzv_participate(&s, &b, 2, 3, 0, 1000));
    assert_true(s.has_deadline);
    assert_int_equal(s.deadline_us, 1000);
    assert_false(s.complete);
    CHECK_OK(trii_rdzv_participate(&s, &c, 2, 3, 0, 1000));
    assert_true(s.complete);
    assert_false(s.has_deadline);
    assert_int_equal(trii_rdzv_find(&s, &c)->rank, 0);
    assert_int_equal(trii_rdzv_find(&s, &b)->rank, 1);
    assert_int_equal(trii_rdzv_find(&s, &a)->rank, 2);
    trii_rdzv_state_fini(&s);
}

/* torch's agents start again as long as somebody waits who could be let in. */
static void nobody_waits_for_a_round_that_is_full(void **test)
{
    const trii_rdzv_node a = node("a", 1), b = node("b", 1);
    trii_rdzv_entry *waits;
    trii_rdzv_state s;

    (void)test;
    trii_rdzv_state_init(&s);
    CHECK_OK(trii_rdzv_entry_of(&s, &b, &waits));
    waits->waiting = true;
    CHECK_OK(trii_rdzv_participate(&s, &a, 1, 1, 0, 1000));
    assert_true(s.complete);
    assert_int_equal(trii_rdzv_count_waiting(&s), 0);
    assert_true(trii_rdzv_find(&s, &b)->redundant);
    trii_rdzv_state_fini(&s);
}

static void a_round_ends_when_its_last_member_leaves(void **test)
{
    const trii_rdzv_node a = node("a", 1), b = node("b", 1);
    trii_rdzv_state s;

    (void)test;
    trii_rdzv_state_init(&s);
    CHECK_OK(trii_rdzv_participate(&s, &a, 1, 2, 0, 1000));
    trii_rdzv_remove(&s, &a, 1);
    assert_false(s.has_deadline); /* fewer than min: no last call */
    assert_int_equal(s.round, 0);
    CHECK_OK(trii_rdzv_participate(&s, &a, 1, 2, 0, 1000));
    CHECK_OK(trii_rdzv_participate(&s, &b, 1, 2, 0, 1000));
    trii_rdzv_remove(&s, &a, 1);
    assert_true(s.complete);
    trii_rdzv_remove(&s, &b, 1);
    assert_false(s.complete);
    assert_int_equal(s.round, 1);
    trii_rdzv_state_fini(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_state_comes_back_as_it_was),
    cmocka_unit_test(a_state_of_pytorch_is_understood),
    cmocka_unit_test(a_frame_may_begin_anywhere),
    cmocka_unit_test(what_is_cut_or_changed_is_refused_or_harmless),
    cmocka_unit_test(nothing_is_called_or_imported),
    cmocka_unit_test(a_state_that_says_many_nodes_again_and_again_takes_no_time),
    cmocka_unit_test(ranks_follow_the_order_of_nodes),
    cmocka_unit_test(nobody_waits_for_a_round_that_is_full),
    cmocka_unit_test(a_round_ends_when_its_last_member_leaves),
};

TEST_MAIN(tests)
