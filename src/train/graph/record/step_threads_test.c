/* step_threads_test.c - threads record and run steps of their own at the same time, and get what
 * one thread alone gets. */
#include <math.h>

#include <trireme/nn.h>

#include "base/alloc.h"
#include "os/thread.h"
#include "testing/check.h"
#include "testing/random_graph.h"
#include "train/graph/step/host_op.h"
#include "train/graph/step/step.h"

#define THREADS 3
#define GRAPHS 6

typedef struct worker {
    trii_thread thread;
    tri_status status;
    double losses[GRAPHS];
} worker;

static void work(void *arg)
{
    worker *w = arg;

    for (int k = 0; k < GRAPHS && w->status == TRI_OK; k++) {
        random_graph g;
        tri_tensor *loss;

        random_graph_init(&g, (uint64_t)k + 1, 20, TRI_DTYPE_F64);
        tri_rng_state_set(&(tri_rng){.step = 100});
        for (int step = 0; step < 3 && w->status == TRI_OK; step++) {
            loss = random_graph_record(&g);
            tri_backward(loss);
            w->status = tri_run();
            w->losses[k] = tri_item(loss);
            if (w->status == TRI_OK)
                w->status = random_graph_update(&g, 0.01);
            if (w->status == TRI_OK)
                w->status = tri_step_end_status();
            else
                tri_step_end();
        }
        random_graph_fini(&g);
    }
}

static void threads_do_not_disturb_each_other(void **state)
{
    static worker alone, workers[THREADS];

    (void)state;
    work(&alone);
    CHECK_OK(alone.status);
    trii_step_release();
    for (int t = 0; t < THREADS; t++)
        CHECK_OK(trii_thread_start(&workers[t].thread, "recorder", work, &workers[t]));
    for (int t = 0; t < THREADS; t++)
        trii_thread_join(&workers[t].thread);
    for (int t = 0; t < THREADS; t++) {
        CHECK_OK(workers[t].status);
        assert_memory_equal(workers[t].losses, alone.losses, sizeof(alone.losses));
    }
    for (int k = 0; k < GRAPHS; k++)
        assert_true(isfinite(alone.losses[k]));
}

/* --- one tensor, several steps -------------------------------------------- */

static tri_tensor *table; /* f32 [2]: 1, 2 */

static tri_tensor *pair_of(float a, float b)
{
    return tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_F32, (const float[]){a, b});
}

static void make_table(void)
{
    table = pair_of(1, 2);
}

typedef struct reader {
    trii_thread thread;
    tri_status status[4];
    char line[4][512];
    double sum;
    int refused;
} reader;

static void note(reader *r, int way, tri_status status)
{
    r->status[way] = status;
    snprintf(r->line[way], sizeof(r->line[way]), "%s", tri_last_error());
}

/* Every way to touch it; each is the first of a step. */
static void touch(void *arg)
{
    reader *r = arg;
    float values[2] = {1, 2};
    trii_vid id = TRII_NO_VALUE;

    note(r, 0, tri_item_status(tri_sum(table, NULL, 0, false), &r->sum));
    tri_step_end();
    note(r, 1, tri_tensor_copy_out(table, values, sizeof(values)));
    tri_step_end();
    note(r, 2, tri_tensor_copy_in(table, values, sizeof(values)));
    tri_step_end();
    if (trii_resolve(trii_step_current(), tri_neg(table), &id) == TRI_OK &&
        trii_bind(trii_step_current(), id, table) == TRI_OK)
        note(r, 3, tri_run());
    tri_step_end();
}

static reader touch_on_a_thread(void)
{
    reader r = {.status = {TRI_ERR_INTERNAL, TRI_ERR_INTERNAL, TRI_ERR_INTERNAL, TRI_ERR_INTERNAL}};

    CHECK_OK(trii_thread_start(&r.thread, "reader", touch, &r));
    trii_thread_join(&r.thread);
    return r;
}

/* A host operation in whose middle, and so in that of the run, another thread has its turn. */
typedef struct meanwhile {
    trii_host_op op;
    reader reader;
    bool started;
} meanwhile;

static tri_status meanwhile_start(trii_host_op *op, const trii_host_buffers *b)
{
    meanwhile *m = (meanwhile *)(void *)op;

    memcpy(b->out[0], b->in[0], 2 * sizeof(float));
    m->reader = (reader){.sum = 0};
    if (trii_thread_start(&m->reader.thread, "reader", touch, &m->reader) != TRI_OK)
        return TRI_ERR_INTERNAL;
    trii_thread_join(&m->reader.thread);
    m->started = true;
    return TRI_OK;
}

static tri_status meanwhile_done(trii_host_op *op)
{
    (void)op;
    return TRI_OK;
}

static tri_status meanwhile_wait(trii_host_op *op, int64_t for_ns)
{
    (void)op;
    (void)for_ns;
    return TRI_OK;
}

static const trii_host_kind meanwhile_kind = {.name = "meanwhile",
                                              .in_place = true,
                                              .start = meanwhile_start,
                                              .poll = meanwhile_done,
                                              .wait = meanwhile_wait};

static meanwhile make_meanwhile(void)
{
    return (meanwhile){.op = {.kind = &meanwhile_kind, .identity = 5}};
}

/* x goes through the operation; then the results are written or read together. */
static tri_tensor *through(meanwhile *m, tri_tensor *x)
{
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE;

    CHECK_OK(trii_resolve(trii_step_current(), x, &in));
    CHECK_OK(trii_record_host_like(trii_step_current(), &m->op, &in, 1, &out));
    return trii_handle(trii_step_current(), out);
}

static void what_a_run_reads_others_may_read_but_not_write(void **state)
{
    meanwhile m = make_meanwhile();
    tri_tensor *x = pair_of(10, 20), *sum;
    char mine[64];

    (void)state;
    make_table();
    snprintf(mine, sizeof(mine), "the step of thread %lld, begun at", (long long)trii_thread_id());
    sum = tri_keep(tri_sum(tri_add(through(&m, x), table), NULL, 0, false));
    CHECK_OK(tri_run());
    assert_true(m.started);
    assert_int_equal(m.reader.status[0], TRI_OK);
    CHECK_NEAR(m.reader.sum, 3, 0);
    assert_int_equal(m.reader.status[1], TRI_OK);
    assert_int_equal(m.reader.status[2], TRI_ERR_STATE);
    assert_int_equal(m.reader.status[3], TRI_ERR_STATE);
    for (int way = 2; way < 4; way++) {
        assert_non_null(strstr(m.reader.line[way], "writes a tensor f32 [2] that "));
        assert_non_null(strstr(m.reader.line[way], mine));
        assert_non_null(strstr(m.reader.line[way], "step_threads_test.c:"));
        assert_non_null(strstr(m.reader.line[way], " is reading"));
    }
    CHECK_NEAR(tri_item(sum), 33, 0);
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(tri_item(tri_sum(table, NULL, 0, false)), 3, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(table);
}

static void what_a_run_writes_is_its_own(void **state)
{
    meanwhile m = make_meanwhile();
    tri_tensor *x = pair_of(10, 20);
    trii_vid id = TRII_NO_VALUE;

    (void)state;
    make_table();
    tri_tensor_set_name(table, "table");
    CHECK_OK(trii_resolve(trii_step_current(), tri_neg(through(&m, x)), &id));
    CHECK_OK(trii_bind(trii_step_current(), id, table));
    CHECK_OK(tri_run());
    assert_true(m.started);
    for (int way = 0; way < 4; way++) {
        assert_int_equal(m.reader.status[way], TRI_ERR_STATE);
        assert_non_null(strstr(m.reader.line[way], way < 2 ? "reads a tensor f32 [2] \"table\""
                                                           : "a tensor f32 [2] \"table\""));
        assert_non_null(strstr(m.reader.line[way], " is writing"));
    }
    CHECK_NEAR(tri_item(tri_sum(table, NULL, 0, false)), -30, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(table);
}

/* Between its runs a step keeps nobody from anything, but sees that somebody came. */
static void a_step_does_not_mix_two_states_of_a_tensor(void **state)
{
    tri_tensor *two = pair_of(4, 5);
    trii_vid id = TRII_NO_VALUE;
    reader r;

    (void)state;
    make_table();
    CHECK_NEAR(tri_item(tri_sum(table, NULL, 0, false)), 3, 0);
    r = touch_on_a_thread(); /* our step has not ended */
    for (int way = 0; way < 4; way++)
        assert_int_equal(r.status[way], TRI_OK);
    CHECK_FAILS(tri_item_status(tri_sum(table, NULL, 0, false), &r.sum), TRI_ERR_STATE,
                "has overwritten since this step read it");
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "a step that has ended");
    CHECK_NEAR(tri_item(tri_sum(table, NULL, 0, false)), -3, 0);
    r = touch_on_a_thread();
    for (int way = 0; way < 4; way++)
        assert_int_equal(r.status[way], TRI_OK);
    CHECK_OK(trii_resolve(trii_step_current(), tri_neg(two), &id));
    CHECK_OK(trii_bind(trii_step_current(), id, table));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "has overwritten since this step read it");
    CHECK_NEAR(tri_item(tri_sum(table, NULL, 0, false)), 3, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(two);
    tri_tensor_unref(table);
}

/* Evaluation beside training: what is recorded is not yet written. */
static void what_pends_is_not_seen_by_others(void **state)
{
    tri_tensor *two = pair_of(4, 5);
    trii_vid id = TRII_NO_VALUE;
    reader r;

    (void)state;
    make_table();
    CHECK_OK(trii_resolve(trii_step_current(), tri_add(two, two), &id));
    CHECK_OK(trii_bind(trii_step_current(), id, table));
    r = touch_on_a_thread();
    for (int way = 0; way < 4; way++)
        assert_int_equal(r.status[way], TRI_OK);
    CHECK_NEAR(r.sum, 3, 0);
    CHECK_OK(tri_step_end_status());
    r = touch_on_a_thread();
    CHECK_NEAR(r.sum, 18, 0);
    tri_tensor_unref(two);
    tri_tensor_unref(table);
}

#define ROUNDS 300

static atomic_int hammers; /* that are there */

/* Adds 1 to both elements, again and again; a thread that is refused tries again later. Between
 * reading the old contents and writing the new ones the others have their turn. */
static void hammer(void *arg)
{
    reader *r = arg;

    atomic_fetch_add(&hammers, 1);
    while (atomic_load(&hammers) < THREADS)
        trii_thread_yield();
    for (int done = 0; done < ROUNDS && r->status[0] == TRI_OK;) {
        trii_step *step = trii_step_current();
        trii_vid id = TRII_NO_VALUE;
        tri_tensor *next = tri_keep(tri_add_scalar(table, 1));
        tri_status status = tri_tensor_status(next);

        if (status == TRI_OK)
            status = tri_run();
        trii_thread_yield();
        if (status == TRI_OK)
            status = trii_resolve(step, tri_add_scalar(next, 0), &id);
        if (status == TRI_OK)
            status = trii_bind(step, id, table);
        if (status == TRI_OK)
            status = tri_step_end_status();
        else
            tri_step_end();
        done += status == TRI_OK;
        r->refused += status == TRI_ERR_STATE;
        if (status != TRI_OK && status != TRI_ERR_STATE)
            r->status[0] = status;
        if (status == TRI_ERR_STATE)
            trii_thread_yield();
    }
}

/* No update is lost, whichever thread comes first. */
static void a_thread_that_is_not_refused_has_the_tensor_alone(void **state)
{
    static reader readers[THREADS];
    float values[2];

    (void)state;
    make_table();
    for (int t = 0; t < THREADS; t++)
        CHECK_OK(trii_thread_start(&readers[t].thread, "hammer", hammer, &readers[t]));
    for (int t = 0; t < THREADS; t++)
        trii_thread_join(&readers[t].thread);
    for (int t = 0; t < THREADS; t++)
        CHECK_OK(readers[t].status[0]);
    CHECK_OK(tri_tensor_copy_out(table, values, sizeof(values)));
    CHECK_NEAR(values[0], 1 + THREADS * ROUNDS, 0);
    CHECK_NEAR(values[1], 2 + THREADS * ROUNDS, 0);
    tri_tensor_unref(table);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_do_not_disturb_each_other),
    cmocka_unit_test(what_a_run_reads_others_may_read_but_not_write),
    cmocka_unit_test(what_a_run_writes_is_its_own),
    cmocka_unit_test(a_step_does_not_mix_two_states_of_a_tensor),
    cmocka_unit_test(what_pends_is_not_seen_by_others),
    cmocka_unit_test(a_thread_that_is_not_refused_has_the_tensor_alone),
};

TEST_MAIN(tests)
