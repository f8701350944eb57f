/* step_threads_test.c - threads record and run steps of their own at the same time, and get what
 * one thread alone gets. */
#include <math.h>

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
        tri_step_number_set(100);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_do_not_disturb_each_other),
};

TEST_MAIN(tests)
