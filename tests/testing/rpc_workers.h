/*
 * rpc_workers.h - workers that are threads of a test, "w0", "w1", ..: each is made by a thread of
 * its own, since they wait for each other; from then on anybody uses them. Tests only.
 */
#ifndef TEST_RPC_WORKERS_H
#define TEST_RPC_WORKERS_H

#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include <trireme/rpc.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/thread.h"
#include "testing/check.h"

#define WORKERS_MAX 8

typedef struct workers {
    tri_store *store;
    tri_rpc *rpc[WORKERS_MAX];
    int n;
    long blocks; /* that lived before */
} workers;

typedef struct worker_start {
    tri_store *store;
    char name[16];
    int rank, size;
    const tri_rpc_options *opt;
    tri_rpc *rpc;
    tri_status status;
    char error[512];
    trii_thread thread;
} worker_start;

static inline void worker_main(void *arg)
{
    worker_start *s = arg;

    s->status = tri_rpc_create(s->store, s->name, s->rank, s->size, s->opt, &s->rpc);
    if (s->status != TRI_OK)
        snprintf(s->error, sizeof(s->error), "%s", tri_last_error());
}

/* opt: of all of them, NULL = defaults. */
static inline void workers_begin(workers *w, int n, const tri_rpc_options *opt)
{
    worker_start starts[WORKERS_MAX];

    memset(w, 0, sizeof(*w));
    memset(starts, 0, sizeof(starts));
    w->blocks = trii_alloc_live();
    w->n = n;
    CHECK_OK(tri_store_hash(&w->store));
    for (int i = 0; i < n; i++) {
        starts[i] = (worker_start){.store = w->store, .rank = i, .size = n, .opt = opt};
        snprintf(starts[i].name, sizeof(starts[i].name), "w%d", i);
        CHECK_OK(trii_thread_start(&starts[i].thread, "worker", worker_main, &starts[i]));
    }
    for (int i = 0; i < n; i++) {
        trii_thread_join(&starts[i].thread);
        if (starts[i].status != TRI_OK)
            fail_msg("%s: %s", starts[i].name, starts[i].error);
        w->rpc[i] = starts[i].rpc;
    }
}

static inline void worker_serve(workers *w, int i, const tri_rpc_function *function)
{
    CHECK_OK(tri_rpc_serve(w->rpc[i], &function, 1));
}

/* A reference to "wI" or an object of it, as worker `from` sees it. */
static inline tri_rpc_ref *worker_find(workers *w, int from, const char *name)
{
    tri_rpc_ref *ref = NULL;

    CHECK_OK(tri_rpc_find(w->rpc[from], name, &ref));
    return ref;
}

typedef struct worker_leave {
    tri_rpc *rpc;
    tri_status status;
    char error[512];
    trii_thread thread;
} worker_leave;

static inline void worker_leave_main(void *arg)
{
    worker_leave *l = arg;

    l->status = tri_rpc_leave(l->rpc, 20000);
    if (l->status != TRI_OK)
        snprintf(l->error, sizeof(l->error), "%s", tri_last_error());
}

static inline void workers_destroy(workers *w)
{
    for (int i = 0; i < w->n; i++)
        tri_rpc_destroy(w->rpc[i]);
    tri_store_unref(w->store);
    assert_int_equal(trii_alloc_live(), w->blocks);
}

/* What is sent from now on is refused, as if the other end had closed. */
static inline void worker_stop_sending(int fd)
{
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
}

/* All leave at once, and nothing is left. */
static inline void workers_end(workers *w)
{
    worker_leave leaves[WORKERS_MAX];

    memset(leaves, 0, sizeof(leaves));
    for (int i = 0; i < w->n; i++) {
        leaves[i].rpc = w->rpc[i];
        CHECK_OK(trii_thread_start(&leaves[i].thread, "leave", worker_leave_main, &leaves[i]));
    }
    for (int i = 0; i < w->n; i++) {
        trii_thread_join(&leaves[i].thread);
        if (leaves[i].status != TRI_OK)
            fail_msg("w%d leaves: %s", i, leaves[i].error);
    }
    workers_destroy(w);
}

/* This thread, and those that it starts, share one core until workers_use_cores. */
static inline void workers_use_one_core(cpu_set_t *before_out)
{
    cpu_set_t one;
    int core = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(*before_out), before_out), 0);
    while (!CPU_ISSET(core, before_out))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static inline void workers_use_cores(const cpu_set_t *cores)
{
    assert_int_equal(sched_setaffinity(0, sizeof(*cores), cores), 0);
}

/* What any thread waits for in the memory of another one; false: it has not come for long. */
static inline bool worker_sees(const atomic_int *word, int at_least)
{
    int64_t deadline = trii_deadline_ms(20000);

    while (atomic_load(word) < at_least && trii_now_ns() <= deadline)
        trii_thread_yield();
    return atomic_load(word) >= at_least;
}

/* The same on the test's own thread. */
static inline void worker_wait_for(const atomic_int *word, int at_least)
{
    if (!worker_sees(word, at_least))
        fail_msg("waited for %d, there is %d", at_least, atomic_load(word));
}

/* In a handler, which may not assert: it goes on when the test says so. */
static inline tri_status worker_stays_until(const atomic_int *word)
{
    return worker_sees(word, 1) ? TRI_OK : tri_status_fail(TRI_ERR_TIMEOUT, "nobody lets it go on");
}

#endif
