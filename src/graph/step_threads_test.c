/* step_threads_test.c - threads record and run steps of their own at the same time, and get what
 * one thread alone gets. */
#include <math.h>

#include <trireme/nn.h>

#include "base/alloc.h"
#include "graph/step.h"
#include "os/thread.h"
#include "testing/check.h"
#include "testing/random_graph.h"

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
        tri_random_state_set(&(tri_random_state){.step = 100});
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

/* --- one tensor, several threads ---------------------------------------------------------------
 */

static tri_tensor *table; /* f32 [2]: 1, 2 */

static void make_table(void)
{
    table = tri_tensor_from(TRI_DTYPE_F32, (int64_t[]){2}, 1, (const float[]){1, 2});
}

typedef struct reader {
    trii_thread thread;
    tri_status status[4];
    char line[512];
    double sum;
    int refused;
} reader;

/* Every way to touch it; each is the first of a step. */
static void touch(void *arg)
{
    reader *r = arg;
    float values[2] = {1, 2};
    tri_tensor *sum = tri_sum(table, NULL, 0, false);

    r->status[0] = tri_tensor_status(sum);
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    if (r->status[0] == TRI_OK)
        r->sum = tri_item(sum);
    tri_step_end();
    r->status[1] = tri_copy_out(table, values, sizeof(values));
    tri_step_end();
    r->status[2] = tri_copy_in(table, values, sizeof(values));
    tri_step_end();
    r->status[3] = tri_init_constant(table, 0) == TRI_OK
                       ? tri_copy_in(table, values, sizeof(values))
                       : TRI_ERR_STATE;
    tri_step_end();
}

static reader touch_on_a_thread(void)
{
    reader r = {.sum = 0};

    CHECK_OK(trii_thread_start(&r.thread, "reader", touch, &r));
    trii_thread_join(&r.thread);
    return r;
}

static void a_tensor_of_another_threads_step_is_refused(void **state)
{
    char mine[64];
    reader r;

    (void)state;
    make_table();
    snprintf(mine, sizeof(mine), "of the step of thread %lld, begun", (long long)trii_thread_id());
    CHECK_NEAR(tri_item(tri_sum(table, NULL, 0, false)), 3, 0);
    r = touch_on_a_thread(); /* our step has not ended */
    for (int i = 0; i < 4; i++)
        assert_int_equal(r.status[i], TRI_ERR_STATE);
    assert_non_null(strstr(r.line, "thread "));
    assert_non_null(strstr(r.line, mine));
    assert_non_null(strstr(r.line, "step_threads_test.c:"));
    CHECK_OK(tri_step_end_status());
    r = touch_on_a_thread(); /* one after the other */
    for (int i = 0; i < 4; i++)
        assert_int_equal(r.status[i], TRI_OK);
    CHECK_NEAR(r.sum, 3, 0);
    CHECK_NEAR(tri_item(tri_sum(table, NULL, 0, false)), 3, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(table);
}

/* Also one that a step has written, and not only read. */
static void a_tensor_that_a_step_writes_is_refused_too(void **state)
{
    trii_vid id = TRII_NO_VALUE;
    tri_tensor *two = tri_tensor_from(TRI_DTYPE_F32, (int64_t[]){2}, 1, (const float[]){4, 5});
    reader r;

    (void)state;
    make_table();
    CHECK_OK(trii_resolve(trii_step_current(), tri_add(two, two), &id));
    CHECK_OK(trii_bind(trii_step_current(), id, table));
    r = touch_on_a_thread();
    assert_int_equal(r.status[0], TRI_ERR_STATE);
    CHECK_OK(tri_step_end_status());
    r = touch_on_a_thread();
    assert_int_equal(r.status[0], TRI_OK);
    CHECK_NEAR(r.sum, 18, 0);
    tri_tensor_unref(two);
    tri_tensor_unref(table);
}

#define ROUNDS 300

static atomic_int hammers; /* that are there */

/* Adds 1 to both elements, again and again; who is refused tries again later. Between reading the
 * old contents and writing the new ones the others have their turn. */
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
        tri_status st = tri_tensor_status(next);

        if (st == TRI_OK)
            st = tri_run();
        trii_thread_yield();
        if (st == TRI_OK)
            st = trii_resolve(step, tri_add_scalar(next, 0), &id);
        if (st == TRI_OK)
            st = trii_bind(step, id, table);
        if (st == TRI_OK)
            st = tri_step_end_status();
        else
            tri_step_end();
        done += st == TRI_OK;
        r->refused += st == TRI_ERR_STATE;
        if (st != TRI_OK && st != TRI_ERR_STATE)
            r->status[0] = st;
        if (st == TRI_ERR_STATE)
            trii_thread_yield();
    }
}

/* No update is lost, whoever comes first. */
static void who_is_not_refused_has_the_tensor_alone(void **state)
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
    CHECK_OK(tri_copy_out(table, values, sizeof(values)));
    CHECK_NEAR(values[0], 1 + THREADS * ROUNDS, 0);
    CHECK_NEAR(values[1], 2 + THREADS * ROUNDS, 0);
    tri_tensor_unref(table);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_do_not_disturb_each_other),
    cmocka_unit_test(a_tensor_of_another_threads_step_is_refused),
    cmocka_unit_test(a_tensor_that_a_step_writes_is_refused_too),
    cmocka_unit_test(who_is_not_refused_has_the_tensor_alone),
};

TEST_MAIN(tests)
