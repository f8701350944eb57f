/*
 * tcp_test.c - what is the tcp engine's own: frames under load, leaving, and failures. Ranks are
 * threads; tests/conformance runs what every engine promises, tcp_forming_test.c forms the mesh.
 */
#include <stdatomic.h>

#include <trireme/comm.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "os/clock.h"
#include "os/thread.h"
#include "testing/check.h"
#include "testing/reduce_scalar.h"
#include "testing/tcp_ranks.h"

/* Runs `main` on every rank; statuses are left in ranks[]. */
static void run_ranks(int size, rank_main run, const void *what, int64_t timeout_ms,
                      rank_arg *ranks)
{
    tri_store *store = NULL;

    CHECK_OK(tri_store_hash(&store));
    for (int r = 0; r < size; r++) {
        ranks[r] = (rank_arg){.rank = r,
                              .size = size,
                              .store = store,
                              .main = run,
                              .what = what,
                              .options = {.engine = "tcp", .timeout_ms = timeout_ms}};
        CHECK_OK(trii_thread_start(&ranks[r].thread, "rank", run_rank, &ranks[r]));
    }
    for (int r = 0; r < size; r++)
        trii_thread_join(&ranks[r].thread);
    tri_store_unref(store);
}

static void all_ok(int size, rank_main run, const void *what)
{
    long live = trii_alloc_live();
    rank_arg ranks[MAX_RANKS];

    run_ranks(size, run, what, 50000, ranks);
    for (int r = 0; r < size; r++) {
        if (ranks[r].status != TRI_OK)
            fail_msg("rank %d of %d: %s: %s", r, size, tri_status_name(ranks[r].status),
                     ranks[r].error);
    }
    assert_int_equal(trii_alloc_live(), live);
}

#if TEST_SANITIZED
static const int sizes[] = {1, 2, 3, 7};
#else
static const int sizes[] = {1, 2, 3, 4, 8, 11};
#endif
#define EACH_SIZE(p)                                                                               \
    for (size_t i_ = 0; i_ < sizeof(sizes) / sizeof(sizes[0]) && ((p) = sizes[i_]); i_++)

/* --- values --------------------------------------------------------------- */

/* Values whose sum depends on the order, the same for all who ask. */
static float value_of(int rank, size_t i)
{
    uint32_t h = (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank * 40503 + 77);

    h ^= h >> 15;
    h *= 2246822519u;
    return (float)(int32_t)h * (1.0f / (float)(1 << (h % 20)));
}

/* The truth: over ranks 0..p-1 by the scalar reference. */
static float *expected_sum(int p, size_t begin, size_t count, tri_redop op)
{
    float *sources[MAX_RANKS] = {NULL}, *sum = malloc((count + 1) * sizeof(float));

    for (int r = 0; r < p; r++) {
        sources[r] = malloc((count + 1) * sizeof(float));
        for (size_t i = 0; i < count; i++)
            sources[r][i] = value_of(r, begin + i);
    }
    reduce_scalar((const void *const *)sources, p, sum, count, TRI_DTYPE_F32, op);
    for (int r = 0; r < p; r++)
        free(sources[r]);
    return sum;
}

static float *own_values(int rank, size_t count)
{
    float *v = malloc((count + 1) * sizeof(float));

    for (size_t i = 0; i < count; i++)
        v[i] = value_of(rank, i);
    v[count] = 42.0f;
    return v;
}

typedef struct reduce_case {
    size_t count;
    tri_redop op;
    bool in_place;
} reduce_case;

static tri_status reduce_main(rank_arg *a)
{
    const reduce_case *t = a->what;
    float *src = own_values(a->rank, t->count);
    float *dst = t->in_place ? src : own_values(99, t->count);
    float *want = expected_sum(a->size, 0, t->count, t->op);
    tri_status status = TRI_OK;

    for (int round = 0; round < 3 && status == TRI_OK; round++) {
        if (t->in_place)
            for (size_t i = 0; i < t->count; i++)
                src[i] = value_of(a->rank, i);
        status = tri_all_reduce(a->group, src, dst, t->count, TRI_DTYPE_F32, t->op, NULL);
        if (status == TRI_OK && memcmp(dst, want, t->count * sizeof(float)) != 0)
            status = failed("all_reduce has other bits than the reference");
        if (status == TRI_OK && (dst[t->count] != 42.0f || src[t->count] != 42.0f))
            status = failed("all_reduce wrote past the end");
    }
    free(src);
    if (!t->in_place)
        free(dst);
    free(want);
    return status;
}

static void all_reduce_has_the_bits_of_the_reference(void **state)
{
    static const size_t counts[] = {0, 1, 2, 7, 997, 20011, 300007};
    int p;

    (void)state;
    EACH_SIZE(p)
    {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            if (p > 4 && counts[c] == 300007)
                continue;
            for (int in_place = 0; in_place < 2; in_place++)
                all_ok(p, reduce_main,
                       &(reduce_case){counts[c], c % 2 ? TRI_REDOP_AVG : TRI_REDOP_SUM, in_place});
        }
    }
}

enum { LESS = TEST_SANITIZED ? 4 : 1 };

/* Much more than a ring of 1 MiB, which the peers' parts go round many times. */
static void a_large_all_reduce_goes_round_the_rings(void **state)
{
    (void)state;
    all_ok(2, reduce_main, &(reduce_case){9000011 / LESS, TRI_REDOP_SUM, true});
    all_ok(3, reduce_main, &(reduce_case){8500003 / LESS, TRI_REDOP_MAX, false});
}

/* --- the other collectives ------------------------------------------------ */

static tri_status rest_main(rank_arg *a)
{
    size_t count = *(const size_t *)a->what, p = (size_t)a->size;
    float *all = malloc((p * count + 1) * sizeof(float)), *own = own_values(a->rank, count);
    float *whole = own_values(a->rank, p * count), *want, *part = malloc((count + 1) * 4);
    tri_status status = tri_all_gather(a->group, own, all, count, TRI_DTYPE_F32, NULL);

    for (int r = 0; r < a->size && status == TRI_OK; r++) {
        for (size_t i = 0; i < count; i++)
            if (all[(size_t)r * count + i] != value_of(r, i))
                status = failed("all_gather");
    }
    if (status == TRI_OK)
        status =
            tri_reduce_scatter(a->group, whole, part, count, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    want = expected_sum(a->size, (size_t)a->rank * count, count, TRI_REDOP_SUM);
    if (status == TRI_OK && memcmp(part, want, count * sizeof(float)) != 0)
        status = failed("reduce_scatter");
    /* in place */
    if (status == TRI_OK)
        status = tri_reduce_scatter(a->group, whole, whole + (size_t)a->rank * count, count,
                                    TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (status == TRI_OK && memcmp(whole + (size_t)a->rank * count, want, count * 4) != 0)
        status = failed("reduce_scatter in place");
    for (int root = 0; root < a->size && status == TRI_OK; root++) {
        for (size_t i = 0; i < count; i++)
            own[i] = value_of(a->rank, i);
        status = tri_broadcast(a->group, own, count, TRI_DTYPE_F32, root, NULL);
        for (size_t i = 0; i < count && status == TRI_OK; i++)
            if (own[i] != value_of(root, i))
                status = failed("broadcast");
    }
    if (status == TRI_OK)
        status = tri_barrier(a->group, NULL);
    free(all), free(own), free(whole), free(want), free(part);
    return status;
}

static void the_other_collectives_move_the_right_bytes(void **state)
{
    static const size_t counts[] = {0, 1, 997, 30011};
    int p;

    (void)state;
    EACH_SIZE(p)
    {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
            all_ok(p, rest_main, &counts[c]);
    }
}

/* --- asynchronous --------------------------------------------------------- */

enum { N_WORKS = 12 };

static tri_status works_main(rank_arg *a)
{
    static const size_t counts[N_WORKS] = {1, 50000, 3, 200003, 0, 70001, 10, 33, 90001, 5, 7, 1};
    tri_work *works[N_WORKS + 1] = {NULL};
    float *data[N_WORKS];
    tri_status status = TRI_OK, ended;

    for (int w = 0; w < N_WORKS; w++)
        data[w] = own_values(a->rank, counts[w]);
    for (int w = 0; w < N_WORKS && status == TRI_OK; w++)
        status = tri_all_reduce(a->group, data[w], data[w], counts[w], TRI_DTYPE_F32, TRI_REDOP_SUM,
                                &works[w]);
    if (status == TRI_OK)
        status = tri_barrier(a->group, &works[N_WORKS]);
    /* rank 0 only looks now and then, rank 1 waits from the end, others from the start */
    for (int w = 0; w <= N_WORKS && status == TRI_OK; w++) {
        tri_work *work = works[a->rank == 1 ? N_WORKS - w : w];

        if (a->rank == 0)
            while ((ended = tri_work_test(work)) == TRI_INPROGRESS)
                trii_thread_yield();
        else
            ended = tri_work_wait(work, 0);
        status = ended;
    }
    for (int w = 0; w < N_WORKS; w++) {
        float *want = expected_sum(a->size, 0, counts[w], TRI_REDOP_SUM);

        if (status == TRI_OK && memcmp(data[w], want, counts[w] * sizeof(float)) != 0)
            status = failed("a work has other bits");
        free(want);
        free(data[w]);
    }
    for (int w = 0; w <= N_WORKS; w++)
        tri_work_destroy(works[w]);
    return status;
}

static void many_works_finish_whoever_waits_for_them(void **state)
{
    int p;

    (void)state;
    EACH_SIZE(p)
    all_ok(p, works_main, NULL);
}

static atomic_int background_done;

/* Rank 0 neither waits nor tests until the others, who need it, are done: its control thread
 * moves the bytes, which are more than sockets hold. */
static tri_status background_main(rank_arg *a)
{
    size_t count = 6000000;
    float *data = own_values(a->rank, count);
    int64_t deadline = trii_deadline_ms(40000);
    tri_work *work = NULL;
    tri_status status =
        tri_all_reduce(a->group, data, data, count, TRI_DTYPE_F32, TRI_REDOP_SUM, &work);

    while (a->rank == 0 && status == TRI_OK && atomic_load(&background_done) < a->size - 1) {
        trii_thread_yield();
        if (trii_now_ns() > deadline)
            status = failed("nothing moved in the background");
    }
    if (work != NULL && status == TRI_OK)
        status = tri_work_wait(work, 0);
    atomic_fetch_add(&background_done, 1);
    tri_work_destroy(work);
    free(data);
    return status;
}

static void works_that_nobody_waits_for_move_on(void **state)
{
    (void)state;
    all_ok(3, background_main, NULL);
}

/* --- messages ------------------------------------------------------------- */

static tri_status messages_main(rank_arg *a)
{
    enum { N = 6 };
    static const size_t counts[N] = {5, 0, 100003, 1, 250001, 9};
    static const int tags[N] = {1, 2, 1, 3, 2, 1};
    int next = (a->rank + 1) % a->size, before = (a->rank + a->size - 1) % a->size;
    tri_work *sends[N] = {NULL};
    float *out[N], *in[N], sum = 1.0f;
    tri_status status = TRI_OK;

    for (int m = 0; m < N; m++) {
        out[m] = own_values(a->rank + m, counts[m]);
        in[m] = own_values(77, counts[m]);
    }
    for (int m = 0; m < N && status == TRI_OK; m++)
        status = tri_send(a->group, out[m], counts[m], TRI_DTYPE_F32, next, tags[m], &sends[m]);
    /* a collective passes messages that nobody has asked for yet */
    if (status == TRI_OK)
        status = tri_all_reduce(a->group, &sum, &sum, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (status == TRI_OK && sum != (float)a->size)
        status = failed("all_reduce among messages");
    /* by tag: 3 first, then 2, then 1, in order within a tag */
    for (int tag = 3; tag > 0; tag--) {
        for (int m = 0; m < N && status == TRI_OK; m++) {
            if (tags[m] != tag)
                continue;
            status = tri_recv(a->group, in[m], counts[m], TRI_DTYPE_F32, before, tag, NULL);
            for (size_t i = 0; i < counts[m] && status == TRI_OK; i++)
                if (in[m][i] != value_of(before + m, i))
                    status = failed("a message has other bytes");
        }
    }
    for (int m = 0; m < N; m++) {
        if (sends[m] != NULL && status == TRI_OK)
            status = tri_work_wait(sends[m], 0);
        tri_work_destroy(sends[m]);
        free(in[m]);
        free(out[m]);
    }
    if (status == TRI_OK)
        status = tri_barrier(a->group, NULL);
    return status;
}

static void messages_arrive_by_tag_and_in_order(void **state)
{
    (void)state;
    all_ok(2, messages_main, NULL);
    all_ok(3, messages_main, NULL);
    all_ok(8, messages_main, NULL);
}

/* Rank 0 begins collectives and then sends; rank 1 wants the message first. */
static tri_status crossing_main(rank_arg *a)
{
    size_t count = 50000, few = 3;
    float *x = own_values(a->rank, count), *y = own_values(a->rank, few), z[5] = {0};
    float *want = expected_sum(2, 0, count, TRI_REDOP_SUM);
    tri_work *works[2] = {NULL};
    tri_status status = TRI_OK;

    if (a->rank == 1)
        status = tri_recv(a->group, z, 5, TRI_DTYPE_F32, 0, 9, NULL);
    if (status == TRI_OK)
        status = tri_all_reduce(a->group, x, x, count, TRI_DTYPE_F32, TRI_REDOP_SUM, &works[0]);
    if (status == TRI_OK)
        status = tri_all_reduce(a->group, y, y, few, TRI_DTYPE_F32, TRI_REDOP_SUM, &works[1]);
    if (a->rank == 0 && status == TRI_OK)
        status = tri_send(a->group, x + 1, 0, TRI_DTYPE_F32, 1, 8, NULL);
    if (a->rank == 0 && status == TRI_OK)
        status = tri_send(a->group, z, 5, TRI_DTYPE_F32, 1, 9, NULL);
    for (int w = 0; w < 2; w++) {
        if (status == TRI_OK)
            status = tri_work_wait(works[w], 0);
        tri_work_destroy(works[w]);
    }
    if (status == TRI_OK && (memcmp(x, want, count * 4) != 0 || memcmp(y, want, few * 4) != 0))
        status = failed("wrong sums");
    if (a->rank == 1 && status == TRI_OK)
        status = tri_recv(a->group, z, 0, TRI_DTYPE_F32, 0, 8, NULL);
    free(x), free(y), free(want);
    return status;
}

static void a_message_passes_collectives_that_are_not_begun(void **state)
{
    (void)state;
    all_ok(2, crossing_main, NULL);
}

/* --- failures ------------------------------------------------------------- */

typedef struct absence {
    int64_t patience_ms;
    atomic_int gave_up; /* ranks */
} absence;

/* Rank 2 stays away from the second call until the others have given up. */
static tri_status absent_main(rank_arg *a)
{
    absence *absent = (absence *)(uintptr_t)a->what;
    float x[4] = {1, 2, 3, 4};
    tri_status status = tri_barrier(a->group, NULL);

    while (a->rank == 2 && atomic_load(&absent->gave_up) < a->size - 1)
        trii_thread_yield();
    if (a->rank == 2)
        return status;
    tri_group_set_timeout(a->group, absent->patience_ms);
    if (status == TRI_OK)
        status = tri_all_reduce(a->group, x, x, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    atomic_fetch_add(&absent->gave_up, 1);
    return status;
}

/* A rank that is off its core for as long as the others wait is missing too: then they have to wait
 * longer. */
static void a_timeout_names_who_is_missing(void **state)
{
    rank_arg ranks[MAX_RANKS];
    bool another = true;
    int timeouts = 0;

    (void)state;
    for (int64_t ms = 300; another && ms < 5000; ms *= 2) {
        run_ranks(4, absent_main, &(absence){.patience_ms = ms}, 20000, ranks);
        another = false;
        for (int r = 0; r < 4; r++)
            another |= r != 2 && strstr(ranks[r].error, "for rank 2 (") == NULL;
    }
    for (int r = 0; r < 4; r++) {
        /* the first one to give up tells the others, for whom that is an abort */
        if (r != 2)
            expect_failure(&ranks[r],
                           ranks[r].status == TRI_ERR_ABORTED ? TRI_ERR_ABORTED
                                                              : TRI_ERR_GROUP_TIMEOUT,
                           "for rank 2 (");
        timeouts += ranks[r].status == TRI_ERR_GROUP_TIMEOUT;
    }
    assert_in_range(timeouts, 1, 3);
    assert_null(strstr(ranks[0].error, "rank 3 ("));
}

static tri_status differing_main(rank_arg *a)
{
    float x[8] = {1};
    const char *what = a->what;

    if (a->rank != 1 || strcmp(what, "none") == 0)
        return tri_all_reduce(a->group, x, x, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (strcmp(what, "count") == 0)
        return tri_all_reduce(a->group, x, x, 5, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (strcmp(what, "dtype") == 0)
        return tri_all_reduce(a->group, x, x, 4, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL);
    if (strcmp(what, "op") == 0)
        return tri_all_reduce(a->group, x, x, 4, TRI_DTYPE_F32, TRI_REDOP_MAX, NULL);
    if (strcmp(what, "barrier") == 0)
        return tri_barrier(a->group, NULL);
    return tri_broadcast(a->group, x, 4, TRI_DTYPE_F32, 0, NULL);
}

static void differing_calls_are_both_named_on_every_rank(void **state)
{
    static const char *const cases[][2] = {{"count", "of 5 f32"},
                                           {"dtype", "of 4 i32"},
                                           {"op", "max"},
                                           {"barrier", "barrier #1"},
                                           {"broadcast", "broadcast #1 of 4 f32 from rank 0"}};
    rank_arg ranks[MAX_RANKS];

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (int p = 2; p <= 4; p++) {
            run_ranks(p, differing_main, cases[c][0], 20000, ranks);
            for (int r = 0; r < p; r++) {
                expect_failure(&ranks[r], TRI_ERR_MISMATCH, cases[c][1]);
                expect_failure(&ranks[r], TRI_ERR_MISMATCH, "all_reduce #1 of 4 f32");
                expect_failure(&ranks[r], TRI_ERR_MISMATCH, "tcp_test.c:");
            }
        }
    }
    all_ok(2, differing_main, "none");
}

static tri_status aborting_main(rank_arg *a)
{
    static int64_t aborted_ns;
    float x = 1.0f;
    tri_status status = tri_barrier(a->group, NULL);

    if (status != TRI_OK)
        return status;
    if (a->rank == 1) {
        trii_sleep_until(trii_deadline_ms(20));
        aborted_ns = trii_now_ns();
        tri_group_abort(a->group, "enough");
        return tri_barrier(a->group, NULL);
    }
    /* rank 0 waits in a collective, rank 2 for a message of rank 0: not for the one that aborts */
    if (a->rank == 2)
        status = tri_recv(a->group, &x, 1, TRI_DTYPE_F32, 0, 0, NULL);
    else
        status = tri_all_reduce(a->group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (status == TRI_ERR_ABORTED && trii_now_ns() - aborted_ns > 2000 * TRII_NS_PER_MS)
        return failed("the news came late");
    /* and every later call fails at once */
    if (status == TRI_ERR_ABORTED)
        status = tri_barrier(a->group, NULL);
    return status;
}

static void an_abort_ends_every_rank(void **state)
{
    rank_arg ranks[MAX_RANKS];

    (void)state;
    run_ranks(3, aborting_main, NULL, 20000, ranks);
    for (int r = 0; r < 3; r++)
        expect_failure(&ranks[r], TRI_ERR_ABORTED, "rank 1 aborted the group: enough");
}

/* Rank 1 leaves early: what it took part in is whole, what needs it is an error. */
static tri_status leaving_main(rank_arg *a)
{
    size_t count = 200003;
    float *x = own_values(a->rank, count), y = 1.0f;
    tri_status status = tri_all_reduce(a->group, x, x, count, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);

    if (status == TRI_OK)
        status = tri_broadcast(a->group, x, count, TRI_DTYPE_F32, 1, NULL);
    free(x);
    if (status != TRI_OK || a->rank == 1)
        return status;
    /* among those who stay, messages go on */
    status = a->rank == 0 ? tri_send(a->group, &y, 1, TRI_DTYPE_F32, 2, 0, NULL)
                          : tri_recv(a->group, &y, 1, TRI_DTYPE_F32, 0, 0, NULL);
    /* unless rank 0 was quicker to find out that the barrier needs rank 1 */
    return status == TRI_OK ? tri_barrier(a->group, NULL) : status;
}

static void leaving_in_order_is_no_failure_until_it_is_needed(void **state)
{
    rank_arg ranks[MAX_RANKS];

    (void)state;
    for (int round = 0; round < 20; round++) {
        run_ranks(3, leaving_main, NULL, 20000, ranks);
        expect_failure(&ranks[0], TRI_ERR_PEER_LOST, "rank 1 left the group");
        expect_failure(&ranks[1], TRI_OK, "");
        expect_failure(&ranks[2], TRI_ERR_PEER_LOST, "rank 1 left the group");
    }
}

/* No memory for the parts of the peers: the call fails, on all ranks. */
static tri_status starved_main(rank_arg *a)
{
    float *x = own_values(a->rank, 100000);
    tri_status status = tri_barrier(a->group, NULL);

    if (status == TRI_OK && a->rank == 0)
        trii_alloc_fail_at(1);
    if (status == TRI_OK)
        status = tri_broadcast(a->group, x, 1, TRI_DTYPE_F32, 0, NULL); /* nobody is earlier */
    if (status == TRI_OK)
        status = tri_all_reduce(a->group, x, x, 100000, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    free(x);
    return status;
}

static void lack_of_memory_in_a_call_ends_it_on_all_ranks(void **state)
{
    rank_arg ranks[MAX_RANKS];
    int starved = 0;

    (void)state;
    run_ranks(3, starved_main, NULL, 20000, ranks);
    trii_alloc_fail_at(0);
    for (int r = 0; r < 3; r++) {
        starved += strstr(ranks[r].error, "reported by") == NULL;
        expect_failure(&ranks[r], TRI_ERR_ABORTED, "NO_MEMORY: ");
        expect_failure(&ranks[r], TRI_ERR_ABORTED, "out of memory");
    }
    assert_int_equal(starved, 1);
}

/* Two threads of a rank wait for different works at once: one polls for both, and when it has
 * what it wants the other takes over. */
typedef struct waiter {
    tri_work *work;
    tri_status status;
    trii_thread thread;
} waiter;

static void wait_for_work(void *p)
{
    waiter *w = p;

    w->status = tri_work_wait(w->work, 0);
}

static tri_status two_waiters_main(rank_arg *a)
{
    tri_status status = TRI_OK;

    for (int round = 0; round < 200 && status == TRI_OK; round++) {
        float in = 0, out = (float)(a->rank + round), sum = 1;
        int next = (a->rank + 1) % a->size, before = (a->rank + a->size - 1) % a->size;
        waiter recv = {.work = NULL}, reduce = {.work = NULL};

        status = tri_recv(a->group, &in, 1, TRI_DTYPE_F32, before, 0, &recv.work);
        if (status == TRI_OK)
            status =
                tri_all_reduce(a->group, &sum, &sum, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &reduce.work);
        if (status == TRI_OK)
            status = trii_thread_start(&recv.thread, "recv", wait_for_work, &recv);
        if (status != TRI_OK)
            return status;
        /* either may come first */
        if (round % 2 == 0)
            status = tri_send(a->group, &out, 1, TRI_DTYPE_F32, next, 0, NULL);
        wait_for_work(&reduce);
        if (round % 2 == 1)
            status = tri_send(a->group, &out, 1, TRI_DTYPE_F32, next, 0, NULL);
        trii_thread_join(&recv.thread);
        status = status == TRI_OK ? recv.status : status;
        status = status == TRI_OK ? reduce.status : status;
        if (status == TRI_OK && (in != (float)(before + round) || sum != (float)a->size))
            status = failed("wrong values");
        tri_work_destroy(recv.work);
        tri_work_destroy(reduce.work);
    }
    return status;
}

static void threads_that_wait_share_the_polling(void **state)
{
    (void)state;
    all_ok(3, two_waiters_main, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_reduce_has_the_bits_of_the_reference),
    cmocka_unit_test(a_large_all_reduce_goes_round_the_rings),
    cmocka_unit_test(the_other_collectives_move_the_right_bytes),
    cmocka_unit_test(many_works_finish_whoever_waits_for_them),
    cmocka_unit_test(works_that_nobody_waits_for_move_on),
    cmocka_unit_test(messages_arrive_by_tag_and_in_order),
    cmocka_unit_test(a_message_passes_collectives_that_are_not_begun),
    cmocka_unit_test(a_timeout_names_who_is_missing),
    cmocka_unit_test(differing_calls_are_both_named_on_every_rank),
    cmocka_unit_test(an_abort_ends_every_rank),
    cmocka_unit_test(leaving_in_order_is_no_failure_until_it_is_needed),
    cmocka_unit_test(lack_of_memory_in_a_call_ends_it_on_all_ranks),
    cmocka_unit_test(threads_that_wait_share_the_polling),
};

TEST_MAIN(tests)
