/*
 * rpc_parts_test.c - large buffers: one copy from the heap, none from tri_rpc_alloc; what is
 * released when; windows.
 */
#include "os/unix.h"
#include "comm/rpc/rpc_arena.h"
#include "comm/rpc/rpc_internal.h"
#include "testing/logged.h"
#include "testing/rpc_workers.h"

#define MIB ((size_t)1 << 20)

static const tri_rpc_options by_tcp = {.tcp_only = true};

static float *weights; /* of w1, in its arena */
static size_t n_weights;
static const void *last_part; /* where the callee saw it */

/* Adds 1 to what it gets, into its own arena. */
static tri_status run_update(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    tri_rpc_part now = {weights, n_weights * sizeof(float)};

    (void)object;
    if (in->n_parts != 1 || in->parts[0].bytes != now.bytes)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "%zu bytes of gradients instead of %zu",
                               in->n_parts == 1 ? in->parts[0].bytes : 0, now.bytes);
    last_part = in->parts[0].data;
    for (size_t i = 0; i < n_weights; i++)
        weights[i] = ((const float *)in->parts[0].data)[i] + 1;
    return tri_rpc_reply(request, &(tri_rpc_message){.parts = &now, .n_parts = 1});
}
static const tri_rpc_function update = {.name = "update", .max_part = 512 * MIB, .run = run_update};

static tri_status run_echo(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);

    (void)object;
    return tri_rpc_reply(request, &(tri_rpc_message){.parts = in->parts, .n_parts = in->n_parts});
}
static const tri_rpc_function echo = {.name = "echo", .max_part = 64 * MIB, .run = run_echo};

static tri_status run_swallow(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function swallow = {
    .name = "swallow", .max_part = 64 * MIB, .run = run_swallow};

static void parts_of_every_size_come_as_they_were(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 4097, 65536, 3 * MIB + 5};
    unsigned char *data = malloc(4 * MIB);

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < 4 * MIB; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 24);
    for (int t = 0; t < 2; t++) {
        tri_rpc_ref *to;
        workers w;

        workers_begin(&w, 2, t == 0 ? NULL : &by_tcp);
        worker_serve(&w, 1, &echo);
        to = worker_find(&w, 0, "w1");
        for (int round = 0; round < 3; round++) {
            tri_rpc_part parts[TRII_COUNT_OF(sizes)];
            tri_rpc_message reply;

            for (size_t i = 0; i < TRII_COUNT_OF(sizes); i++)
                parts[i] = (tri_rpc_part){data + i, sizes[i]};
            CHECK_OK(tri_rpc_sync(
                to, &echo, &(tri_rpc_message){.parts = parts, .n_parts = (int)TRII_COUNT_OF(sizes)},
                NULL, &reply));
            assert_int_equal(reply.n_parts, TRII_COUNT_OF(sizes));
            for (size_t i = 0; i < TRII_COUNT_OF(sizes); i++) {
                assert_int_equal(reply.parts[i].bytes, sizes[i]);
                assert_memory_equal(reply.parts[i].data, parts[i].data, sizes[i]);
            }
            tri_rpc_message_free(&reply);
        }
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
    free(data);
}

static void memory_of_rpc_alloc_is_mapped_and_not_copied(void **state)
{
    tri_rpc_message reply;
    tri_rpc_part part;
    tri_rpc_ref *to;
    workers w;
    float *grads;

    (void)state;
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &update);
    n_weights = 100000;
    weights = tri_rpc_alloc(w.rpc[1], n_weights * sizeof(float));
    grads = tri_rpc_alloc(w.rpc[0], n_weights * sizeof(float));
    assert_non_null(weights);
    assert_non_null(grads);
    assert_int_equal((uintptr_t)grads % 64, 0);
    to = worker_find(&w, 0, "w1");
    part = (tri_rpc_part){grads, n_weights * sizeof(float)};
    for (int step = 0; step < 5; step++) {
        for (size_t i = 0; i < n_weights; i++)
            grads[i] = (float)step;
        CHECK_OK(tri_rpc_sync(to, &update, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL,
                              &reply));
        assert_ptr_not_equal(last_part, grads); /* the callee's own mapping */
        assert_true(((const float *)reply.parts[0].data)[n_weights - 1] == (float)step + 1);
        weights[7] = 1234; /* the owner's changes are seen */
        assert_true(((const float *)reply.parts[0].data)[7] == 1234);
        tri_rpc_message_free(&reply);
    }
    CHECK_FAILS(tri_rpc_sync(to, &update, NULL, NULL, NULL), TRI_ERR_INVALID_ARG,
                "0 bytes of gradients instead of 400000 (rpc_parts_test.c:");
    tri_rpc_free(w.rpc[0], grads);
    tri_rpc_free(w.rpc[1], weights);
    tri_rpc_free(w.rpc[1], NULL);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void as_many_parts_as_there_may_be_come_too(void **state)
{
    tri_rpc_part parts[TRI_RPC_MAX_PARTS];
    unsigned char data[TRI_RPC_MAX_PARTS];

    (void)state;
    for (int i = 0; i < TRI_RPC_MAX_PARTS; i++) {
        data[i] = (unsigned char)(i * 7);
        parts[i] = (tri_rpc_part){&data[i], i % 5 == 0 ? 0 : 1};
    }
    for (int t = 0; t < 2; t++) {
        tri_rpc_message reply;
        tri_rpc_ref *to;
        workers w;

        workers_begin(&w, 2, t == 0 ? NULL : &by_tcp);
        worker_serve(&w, 1, &echo);
        to = worker_find(&w, 0, "w1");
        CHECK_OK(tri_rpc_sync(to, &echo,
                              &(tri_rpc_message){.parts = parts, .n_parts = TRI_RPC_MAX_PARTS},
                              NULL, &reply));
        for (int i = 0; i < TRI_RPC_MAX_PARTS; i++) {
            assert_int_equal(reply.parts[i].bytes, parts[i].bytes);
            assert_memory_equal(reply.parts[i].data, &data[i], parts[i].bytes);
        }
        tri_rpc_message_free(&reply);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* Bytes of the first arena that are in use. */
static size_t bytes_of(tri_rpc *rpc, size_t bytes)
{
    void *p = tri_rpc_alloc(rpc, bytes);
    size_t at;

    assert_non_null(p);
    at = (size_t)((unsigned char *)p - rpc_arena_base(rpc, 1));
    tri_rpc_free(rpc, p);
    return at;
}

/* More than lie in the frame, and of no memory at all. */
static void as_many_empty_parts_come_too(void **state)
{
    static const tri_rpc_part parts[TRI_RPC_MAX_PARTS];
    const tri_rpc_message in = {.parts = parts, .n_parts = TRI_RPC_MAX_PARTS};

    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_message reply;
        tri_rpc_ref *to;
        workers w;

        workers_begin(&w, 2, t == 0 ? NULL : &by_tcp);
        worker_serve(&w, 1, &echo);
        to = worker_find(&w, 0, "w1");
        CHECK_OK(tri_rpc_sync(to, &echo, &in, NULL, &reply));
        assert_int_equal(reply.n_parts, TRI_RPC_MAX_PARTS);
        for (int i = 0; i < reply.n_parts; i++)
            assert_int_equal(reply.parts[i].bytes, 0);
        tri_rpc_message_free(&reply);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

static void what_was_staged_is_reused(void **state)
{
    unsigned char *data = calloc(1, MIB);
    const tri_rpc_part part = {data, MIB};
    tri_rpc_message held[4];
    tri_rpc_ref *to;
    workers w;

    (void)state;
    assert_non_null(data);
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &echo);
    to = worker_find(&w, 0, "w1");
    for (int i = 0; i < (TEST_SANITIZED ? 100 : 300); i++) /* of an arena of 64 MiB */
        CHECK_OK(
            tri_rpc_sync(to, &echo, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL, NULL));
    assert_int_equal(bytes_of(w.rpc[0], 64), 0); /* every request's was given back */
    for (int i = 0; i < 4; i++)
        CHECK_OK(tri_rpc_sync(to, &echo, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL,
                              &held[i]));
    assert_int_equal(w.rpc[1]->n_arenas, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(*(const unsigned char *)held[i].parts[0].data, 0);
        tri_rpc_message_free(&held[i]);
    }
    CHECK_OK(tri_rpc_sync(to, &echo, NULL, NULL, NULL)); /* what was freed is known there now */
    assert_int_equal(bytes_of(w.rpc[1], 64), 0);
    tri_rpc_ref_unref(to);
    workers_end(&w);
    free(data);
}

static size_t memory_of(tri_rpc *rpc)
{
    struct stat info;
    size_t bytes;

    assert_int_equal(fstat(rpc_arena_fd(rpc, 1, &bytes), &info), 0);
    return (size_t)info.st_blocks * 512;
}

/* The call leaves w0 as much memory: of one that took half a second nothing is known, as that may
 * be given back after one. */
static void check_kept(workers *w, tri_rpc_ref *to, const tri_rpc_part *part)
{
    int64_t began_ns;
    bool kept;

    do {
        began_ns = trii_now_ns();
        CHECK_OK(
            tri_rpc_sync(to, &echo, &(tri_rpc_message){.parts = part, .n_parts = 1}, NULL, NULL));
        rpc_lock(w->rpc[0]);
        (void)rpc_arenas_trim(w->rpc[0], trii_now_ns());
        rpc_unlock(w->rpc[0]);
        kept = memory_of(w->rpc[0]) >= part->bytes;
    } while (trii_now_ns() - began_ns > TRII_NS_PER_S / 2);
    assert_true(kept);
}

static void memory_larger_than_a_window_is_kept_while_it_is_used(void **state)
{
    const tri_rpc_options o = {.window_bytes = MIB};
    const size_t bytes = 8 * MIB;
    unsigned char *data = calloc(1, bytes);
    const tri_rpc_part part = {data, bytes};
    tri_rpc_ref *to;
    workers w;

    (void)state;
    assert_non_null(data);
    workers_begin(&w, 2, &o);
    worker_serve(&w, 1, &echo);
    to = worker_find(&w, 0, "w1");
    for (int i = 0; i < 3; i++)
        check_kept(&w, to, &part);
    rpc_lock(w.rpc[0]);
    assert_int_equal(rpc_arenas_trim(w.rpc[0], trii_now_ns() + 2 * TRII_NS_PER_S),
                     TRII_NO_DEADLINE);
    rpc_unlock(w.rpc[0]);
    assert_true(memory_of(w.rpc[0]) < MIB);
    check_kept(&w, to, &part);
    tri_rpc_ref_unref(to);
    workers_end(&w);
    free(data);
}

static void sizes_that_grow_take_few_files(void **state)
{
    workers w;

    (void)state;
    workers_begin(&w, 1, NULL);
    for (int i = 0; i < 2 * RPC_MAX_ARENAS; i++) {
        void *memory = tri_rpc_alloc(w.rpc[0], 65 * MIB + (size_t)i * MIB / 8);

        assert_non_null(memory);
        tri_rpc_free(w.rpc[0], memory);
    }
    workers_end(&w);
}

/* --- windows -------------------------------------------------------------- */

static atomic_int release_all, n_held;

static tri_status run_hold(tri_rpc_request *request, void *object)
{
    (void)object;
    atomic_fetch_add(&n_held, 1);
    while (atomic_load(&release_all) == 0 && !tri_rpc_request_is_cancelled(request))
        trii_thread_yield();
    return TRI_OK;
}
static const tri_rpc_function hold = {.name = "hold", .max_part = 8 * MIB, .run = run_hold};

static void a_sleeping_callee_gets_no_more_than_its_window(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++) { /* the last one calls itself */
        const tri_rpc_options o = {.threads = 1, .window_calls = 100, .tcp_only = t == 1};
        const tri_rpc_call_options no_wait = {.no_wait = true};
        const tri_rpc_call_options soon = {.timeout_ms = 50};
        static tri_rpc_call *calls[10000];
        int n = 0, refused = 0;
        tri_rpc_ref *to;
        long live;
        workers w;

        atomic_store(&release_all, 0);
        workers_begin(&w, 2, &o);
        worker_serve(&w, 1, &hold);
        to = worker_find(&w, t == 2 ? 1 : 0, "w1");
        live = trii_alloc_live();
        for (int i = 0; i < 10000; i++) {
            tri_status status = tri_rpc_async(to, &hold, NULL, &no_wait, &calls[n]);

            if (status == TRI_OK)
                n++;
            else if (status == TRI_INPROGRESS)
                refused++;
        }
        assert_int_equal(n, 100);
        assert_int_equal(refused, 9900);
        assert_true(trii_alloc_live() < live + 600); /* of both sides */
        CHECK_FAILS(tri_rpc_sync(to, &hold, NULL, &soon, NULL), TRI_ERR_TIMEOUT,
                    "not sent within 50 ms: too many calls are unanswered there");
        atomic_store(&release_all, 1);
        for (int i = 0; i < n; i++) {
            CHECK_OK(tri_rpc_call_wait(calls[i], 0));
            tri_rpc_call_destroy(calls[i]);
        }
        CHECK_OK(tri_rpc_sync(to, &hold, NULL, NULL, NULL));
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* What a handler that may not wait fills. */
typedef struct filled {
    tri_rpc_ref *to;
    tri_rpc_call *calls[8];
    int n;
} filled;

/* Calls until the window is full, and once more in each way. */
static tri_status run_fill(tri_rpc_request *request, void *object)
{
    const tri_rpc_call_options no_wait = {.no_wait = true};
    tri_rpc_call *none = NULL;
    tri_rpc_ref *ref = NULL;
    filled *f = object;
    tri_status seen[3];

    seen[0] = TRI_OK;
    while (f->n < 8 && seen[0] == TRI_OK) {
        seen[0] = tri_rpc_async(f->to, &hold, NULL, NULL, &f->calls[f->n]);
        f->n += seen[0] == TRI_OK;
    }
    seen[1] = tri_rpc_async(f->to, &hold, NULL, &no_wait, &none);
    seen[2] = tri_rpc_remote(f->to, &hold, NULL, NULL, &ref); /* its line is the last one */
    if (none != NULL || ref != NULL)
        return tri_status_fail(TRI_ERR_INTERNAL, "a call was refused and made");
    if (seen[0] != TRI_ERR_STATE || seen[1] != TRI_INPROGRESS || seen[2] != TRI_ERR_STATE)
        return tri_status_fail(TRI_ERR_INTERNAL, "%s, %s, %s", tri_status_name(seen[0]),
                               tri_status_name(seen[1]), tri_status_name(seen[2]));
    (void)request;
    return seen[2];
}
static const tri_rpc_object filling = {.name = "filling"};
static const tri_rpc_function fill = {
    .name = "fill", .flags = TRI_RPC_INLINE, .of = &filling, .run = run_fill};

static void an_inline_handler_does_not_wait_for_a_full_window(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++) { /* the last one calls itself */
        const tri_rpc_options o = {.threads = 1, .window_calls = 5, .tcp_only = t == 1};
        filled f = {.n = 0};
        tri_rpc_ref *own, *to;
        workers w;

        atomic_store(&release_all, 0);
        workers_begin(&w, 3, &o);
        worker_serve(&w, 0, &fill);
        worker_serve(&w, t == 2 ? 0 : 1, &hold);
        CHECK_OK(tri_rpc_own(w.rpc[0], "filling", &filling, &f, &own));
        f.to = worker_find(&w, 0, t == 2 ? "w0" : "w1");
        /* Not of w1, whose calls this thread would run while it waits. */
        to = worker_find(&w, 2, "w0/filling");
        CHECK_FAILS(tri_rpc_sync(to, &fill, NULL, NULL, NULL), TRI_ERR_STATE,
                    "rpc_remote: an inline handler");
        assert_int_equal(f.n, 5);
        atomic_store(&release_all, 1);
        for (int i = 0; i < f.n; i++) {
            CHECK_OK(tri_rpc_call_wait(f.calls[i], 0));
            tri_rpc_call_destroy(f.calls[i]);
        }
        tri_rpc_ref_unref(f.to);
        tri_rpc_ref_unref(to);
        tri_rpc_ref_unref(own);
        workers_end(&w);
    }
}

static void bytes_count_as_calls_do_and_one_large_message_always_goes(void **state)
{
    const tri_rpc_options o = {.threads = 1, .window_bytes = 2 * MIB};
    const tri_rpc_call_options no_wait = {.no_wait = true};
    unsigned char *data = calloc(1, 8 * MIB);
    tri_rpc_call *calls[8];
    tri_rpc_part part = {data, 3 * MIB / 4};
    const tri_rpc_message in = {.parts = &part, .n_parts = 1};
    tri_status status = TRI_OK;
    tri_rpc_ref *to;
    workers w;
    int n = 0;

    (void)state;
    assert_non_null(data);
    workers_begin(&w, 2, &o);
    worker_serve(&w, 1, &hold);
    to = worker_find(&w, 0, "w1");
    while (n < 8 && status == TRI_OK) {
        status = tri_rpc_async(to, &hold, &in, &no_wait, &calls[n]);
        n += status == TRI_OK;
    }
    assert_int_equal(n, 2);
    assert_int_equal(status, TRI_INPROGRESS);
    atomic_store(&release_all, 1);
    for (int i = 0; i < n; i++) {
        CHECK_OK(tri_rpc_call_wait(calls[i], 0));
        tri_rpc_call_destroy(calls[i]);
    }
    part.bytes = 8 * MIB;
    CHECK_OK(tri_rpc_sync(to, &hold, &in, NULL, NULL));
    part.bytes = 8 * MIB + 1;
    CHECK_FAILS(tri_rpc_sync(to, &hold, &in, NULL, NULL), TRI_ERR_INVALID_ARG, "max_part");
    tri_rpc_ref_unref(to);
    workers_end(&w);
    free(data);
}

/* What a program may hold of one peer is bounded, and it is told which replies it is. */
static void replies_that_are_not_freed_are_bounded(void **state)
{
    const tri_rpc_options by_calls = {.window_calls = 20}, by_bytes = {.window_bytes = MIB};
    static unsigned char data[MIB / 8];
    const tri_rpc_part part = {data, sizeof(data)};
    const tri_rpc_message in = {.parts = &part, .n_parts = 1};

    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_message held[20], more;
        int most = t == 0 ? 20 : 16; /* 2 MiB: a few of any size are allowed */
        tri_rpc_call *call;
        tri_rpc_ref *to;
        workers w;

        workers_begin(&w, 2, t == 0 ? &by_calls : &by_bytes);
        worker_serve(&w, 1, &echo);
        to = worker_find(&w, 0, "w1");
        for (int i = 0; i < most; i++)
            CHECK_OK(tri_rpc_sync(to, &echo, &in, NULL, &held[i]));
        CHECK_FAILS(tri_rpc_sync(to, &echo, &in, NULL, &more), TRI_ERR_STATE,
                    "have been taken and not freed");
        CHECK_OK(tri_rpc_sync(to, &echo, &in, NULL, NULL)); /* nobody takes that one */
        CHECK_OK(tri_rpc_async(to, &echo, &in, NULL, &call));
        CHECK_OK(tri_rpc_call_wait(call, 0));
        CHECK_FAILS(tri_rpc_call_take_reply(call, &more), TRI_ERR_STATE,
                    "have been taken and not freed");
        tri_rpc_message_free(&held[0]);
        CHECK_OK(tri_rpc_call_take_reply(call, &held[0])); /* the call has kept it */
        tri_rpc_call_destroy(call);
        for (int i = 0; i < most; i++)
            tri_rpc_message_free(&held[i]);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* Nor does it matter how late a program looks at what has come, and how much that is. */
static void replies_that_nobody_has_taken_wait(void **state)
{
    const tri_rpc_options o = {.window_bytes = MIB, .window_calls = 40};
    static unsigned char data[MIB / 8];
    const tri_rpc_part part = {data, sizeof(data)};
    const tri_rpc_message in = {.parts = &part, .n_parts = 1};
    tri_rpc_message out;
    tri_rpc_call *calls[41];
    tri_rpc_ref *to;
    workers w;

    (void)state;
    workers_begin(&w, 2, &o);
    worker_serve(&w, 1, &echo);
    to = worker_find(&w, 0, "w1");
    for (size_t i = 0; i < TRII_COUNT_OF(calls); i++) {
        CHECK_OK(tri_rpc_async(to, &echo, &in, NULL, &calls[i]));
        CHECK_OK(tri_rpc_call_wait(calls[i], 0));
    }
    for (size_t i = 0; i < TRII_COUNT_OF(calls); i++) {
        CHECK_OK(tri_rpc_call_take_reply(calls[i], &out));
        assert_int_equal(out.n_parts, 1);
        tri_rpc_message_free(&out);
        tri_rpc_call_destroy(calls[i]);
    }
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* A reply that is kept does not keep what was sent for it. */
static void a_request_is_freed_with_its_reply(void **state)
{
    tri_rpc_message replies[80];
    unsigned char *data = calloc(1, MIB);
    const tri_rpc_part part = {data, MIB};
    tri_rpc_ref *to;
    workers w;

    (void)state;
    assert_non_null(data);
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &swallow);
    to = worker_find(&w, 0, "w1");
    for (size_t i = 0; i < TRII_COUNT_OF(replies); i++)
        CHECK_OK(tri_rpc_sync(to, &swallow, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL,
                              &replies[i]));
    rpc_lock(w.rpc[0]);
    assert_int_equal(w.rpc[0]->n_arenas, 1); /* which is of 64 MiB */
    rpc_unlock(w.rpc[0]);
    for (size_t i = 0; i < TRII_COUNT_OF(replies); i++)
        tri_rpc_message_free(&replies[i]);
    tri_rpc_ref_unref(to);
    workers_end(&w);
    free(data);
}

static void memory_that_is_not_allocated_is_refused(void **state)
{
    const char *line;
    char *text;
    static logged log;
    tri_rpc_ref *to;
    tri_rpc_part part;
    unsigned char *memory, other;
    workers w;

    (void)state;
    logged_begin(&log);
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &swallow);
    to = worker_find(&w, 0, "w1");
    memory = tri_rpc_alloc(w.rpc[0], MIB);
    assert_non_null(memory);
    part = (tri_rpc_part){memory + 4096, MIB};
    CHECK_FAILS(
        tri_rpc_sync(to, &swallow, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL, NULL),
        TRI_ERR_INVALID_ARG, "memory of tri_rpc_alloc that has been freed, or is shorter");
    tri_rpc_free(w.rpc[0], memory + 64);
    tri_rpc_free(w.rpc[0], &other);
    part = (tri_rpc_part){memory, MIB};
    CHECK_OK(
        tri_rpc_sync(to, &swallow, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL, NULL));
    tri_rpc_free(w.rpc[0], memory);
    CHECK_FAILS(
        tri_rpc_sync(to, &swallow, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL, NULL),
        TRI_ERR_INVALID_ARG, "memory of tri_rpc_alloc that has been freed, or is shorter");
    tri_rpc_free(w.rpc[0], memory);
    tri_rpc_ref_unref(to);
    workers_end(&w);
    text = logged_read(&log);
    line = strstr(text, "is not the start of an allocation, or has been freed");
    assert_non_null(line);
    line = strstr(line, "is not of tri_rpc_alloc of this worker");
    assert_non_null(line);
    assert_non_null(strstr(line, "is not the start of an allocation, or has been freed"));
    free(text);
    logged_end(&log);
}

/* What a worker says beside its rings, each file of memory once and a wake-up, fits into the socket
 * of one that is stopped: to wait for room there would hold the worker's lock. */
static void a_socket_that_nobody_reads_takes_every_file_of_memory(void **state)
{
    const char record[16] = "";
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    for (int i = 0; i < RPC_MAX_ARENAS - 1; i++)
        CHECK_OK(trii_unix_send(fds[0], record, sizeof(record), STDERR_FILENO, trii_now_ns()));
    CHECK_OK(trii_unix_send(fds[0], record, sizeof(record), -1, trii_now_ns()));
    close(fds[0]);
    close(fds[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_request_is_freed_with_its_reply),
    cmocka_unit_test(memory_that_is_not_allocated_is_refused),
    cmocka_unit_test(a_socket_that_nobody_reads_takes_every_file_of_memory),
    cmocka_unit_test(replies_that_are_not_freed_are_bounded),
    cmocka_unit_test(replies_that_nobody_has_taken_wait),
    cmocka_unit_test(parts_of_every_size_come_as_they_were),
    cmocka_unit_test(memory_of_rpc_alloc_is_mapped_and_not_copied),
    cmocka_unit_test(as_many_parts_as_there_may_be_come_too),
    cmocka_unit_test(as_many_empty_parts_come_too),
    cmocka_unit_test(what_was_staged_is_reused),
    cmocka_unit_test(memory_larger_than_a_window_is_kept_while_it_is_used),
    cmocka_unit_test(sizes_that_grow_take_few_files),
    cmocka_unit_test(a_sleeping_callee_gets_no_more_than_its_window),
    cmocka_unit_test(an_inline_handler_does_not_wait_for_a_full_window),
    cmocka_unit_test(bytes_count_as_calls_do_and_one_large_message_always_goes),
};

TEST_MAIN(tests)
