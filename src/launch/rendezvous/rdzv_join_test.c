/*
 * rdzv_join_test.c - which of very many nodes is silent.
 */
/* ctest: threads=none */
#include <string.h>

#include "base/alloc.h"
#include "launch/rendezvous/rdzv_internal.h"
#include "launch/rendezvous/rdzv_pickle.h"
#include "testing/check.h"

enum { NODES = 700 };

typedef struct memory_backend {
    trii_rdzv_backend base;
    trii_wire_buffer raw;
} memory_backend;

static tri_status load(trii_rdzv_backend *self, trii_wire_buffer *state_out)
{
    const memory_backend *b = (const memory_backend *)self;

    trii_wire_put(state_out, b->raw.data, b->raw.used);
    return TRI_OK;
}

static tri_status swap(trii_rdzv_backend *self, const void *state, size_t bytes, bool *won_out)
{
    memory_backend *b = (memory_backend *)self;

    b->raw.used = 0;
    trii_wire_put(&b->raw, state, bytes);
    *won_out = true;
    return TRI_OK;
}

static const trii_rdzv_backend_ops ops = {.name = "memory", .load = load, .swap = swap};

static int64_t virtual_ns = TRII_NS_PER_S;

static int64_t virtual_now(void)
{
    return virtual_ns;
}

static const trii_rdzv_time virtual_time = {.now_ns = virtual_now, .wall_ns = virtual_now};

/* The first of the silent ones; the last node is ourselves. */
enum { SILENT = NODES - 3 };

static void fill(memory_backend *b, trii_rdzv_node *self_out)
{
    trii_rdzv_state s;

    trii_rdzv_state_init(&s);
    for (int i = 0; i < NODES; i++) {
        trii_rdzv_node node = {.pid = i, .local_id = 1};

        snprintf(node.addr, sizeof(node.addr), "host%d", i);
        CHECK_OK(trii_rdzv_participate(&s, &node, 1, NODES + 1, 1000, 1000));
        *self_out = node;
    }
    trii_rdzv_pickle_write(&s, &b->raw);
    trii_rdzv_state_fini(&s);
}

/* All but the silent ones say that they live. */
static void beat(memory_backend *b, int64_t now_us)
{
    trii_rdzv_state s;

    trii_rdzv_state_init(&s);
    CHECK_OK(trii_rdzv_pickle_read(b->raw.data, b->raw.used, &s));
    for (int i = 0; i < s.n; i++) {
        s.entries[i].beats = true;
        if (s.entries[i].node.pid < SILENT || s.entries[i].node.pid == NODES - 1)
            s.entries[i].beat_us = now_us;
    }
    b->raw.used = 0;
    trii_rdzv_pickle_write(&s, &b->raw);
    trii_rdzv_state_fini(&s);
}

static void the_silent_are_found_among_many_that_live(void **state)
{
    static trii_rendezvous r;
    const trii_launch_options options = {.min_nodes = 1, .max_nodes = NODES + 1};
    memory_backend b = {.base = {.ops = &ops}};
    int64_t now_us = 2000;
    trii_rdzv_state s;
    int left = NODES;

    (void)state;
    r.options = &options;
    r.backend = &b.base;
    r.beat_ms = 1000000;
    r.dead_ms = 50;
    r.time = &virtual_time;
    r.looked_ns = virtual_now();
    fill(&b, &r.self);
    while (left > NODES - 2 && virtual_ns < 20 * TRII_NS_PER_S) {
        virtual_ns += 10 * TRII_NS_PER_MS;
        beat(&b, now_us++);
        CHECK_OK(trii_rdzv_look(&r, &s));
        left = trii_rdzv_count_participants(&s);
        trii_rdzv_state_fini(&s);
    }
    assert_in_range(virtual_ns, TRII_NS_PER_S + 50 * TRII_NS_PER_MS,
                    TRII_NS_PER_S + 80 * TRII_NS_PER_MS);
    for (int i = 0; i < 50; i++) { /* and nobody else is */
        virtual_ns += 10 * TRII_NS_PER_MS;
        beat(&b, now_us++);
        CHECK_OK(trii_rdzv_look(&r, &s));
        assert_int_equal(trii_rdzv_count_participants(&s), NODES - 2);
        trii_rdzv_state_fini(&s);
    }
    assert_int_equal(r.n_observed, NODES - 3);
    trii_free(r.observed);
    trii_wire_buffer_fini(&r.raw);
    trii_rdzv_state_fini(&r.state);
    trii_wire_buffer_fini(&b.raw);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_silent_are_found_among_many_that_live),
};

TEST_MAIN(tests)
