/*
 * cpu_parallel.c - see cpu_parallel.h. Calls libgomp's entry point itself, as the code that a
 * compiler makes of "#pragma omp parallel" does, and tells ThreadSanitizer about the fork and the
 * join, which it cannot see in libgomp.
 */
#include "train/device/cpu/cpu_parallel.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <trireme/device.h>
#include <trireme/group.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/log.h"
#include "base/param.h"
#include "os/cpu_quota.h"
#include "train/tensor/device_list.h"

/* libgomp; declared here because clang comes without <omp.h>. */
extern void GOMP_parallel(void (*run)(void *), void *data, unsigned n_threads, unsigned flags);
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
extern int omp_get_num_procs(void);
extern void omp_set_num_threads(int n);

#if TRII_TSAN
extern void __tsan_acquire(void *address);
extern void __tsan_release(void *address);
#else
#define __tsan_acquire(address) ((void)(address))
#define __tsan_release(address) ((void)(address))
#endif

#define MAX_THREADS 1024
#define MAX_RANKS 1000000 /* of one host */

static atomic_int n_threads_default; /* 0 = not read yet */
static _Thread_local int n_threads_adopted;
static _Thread_local int index_adopted, place_adopted;

static void warn_once(atomic_bool *warned)
{
    if (!atomic_exchange(warned, true))
        TRII_LOG(TRII_LOG_WARN, "cpu", "%s; ignored", tri_last_error());
}

/* OMP_NUM_THREADS may be a list: its first number counts, as in libgomp, which warns of a bad value
 * when it is loaded. */
static int64_t omp_threads(void)
{
    const char *text = trii_param_text(TRII_PARAM_OMP_NUM_THREADS);
    long n = text != NULL ? strtol(text, NULL, 10) : 0;

    return n > 0 && n <= MAX_THREADS ? n : 0;
}

static int default_threads(void)
{
    static atomic_bool warned;
    const char *launcher = trii_param_text(TRII_PARAM_LOCAL_WORLD_SIZE);
    int64_t n = 0, ranks = tri_local_world_size();

    if (trii_param_i64(TRII_PARAM_NUM_THREADS, 0, &n) != TRI_OK)
        warn_once(&warned);
    if (n == 0)
        n = omp_threads();
    if (n > 0)
        return (int)n;
    /* tri_init need not have been called */
    if (launcher != NULL &&
        trii_parse_i64(launcher, "LOCAL_WORLD_SIZE", 1, MAX_RANKS, &ranks) != TRI_OK)
        warn_once(&warned);
    n = trii_cpu_quota_cap(omp_get_num_procs()) / ranks;
    return n > 0 ? (int)n : 1;
}

static TRII_NOINLINE int share_of(int n)
{
    int devices = trii_cpu_devices();
    int share = n / devices + (place_adopted % devices < n % devices);

    return share > 0 ? share : 1;
}

int trii_parallel_threads(void)
{
    int n = trii_threads_asked();

    if (TRII_LIKELY(n == 0)) {
        n = atomic_load_explicit(&n_threads_default, memory_order_relaxed);
        if (TRII_UNLIKELY(n == 0)) {
            n = default_threads();
            atomic_store_explicit(&n_threads_default, n, memory_order_relaxed);
        }
    }
    return TRII_LIKELY(trii_cpu_devices() == 1) ? n : share_of(n);
}

void trii_parallel_set_threads(int n_threads)
{
    atomic_store_explicit(&n_threads_default, 0, memory_order_relaxed);
    trii_threads_ask(n_threads);
}

tri_status tri_num_threads_set(int n)
{
    if (n < 1 || n > MAX_THREADS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_num_threads_set: n is %d, 1 to %d are allowed; without this call it "
                         "is TRI_NUM_THREADS, or all cores of this process",
                         n, MAX_THREADS);
    trii_threads_ask(n);
    return TRI_OK;
}

/* The default is not kept here: it may change in tri_init, and in workers that are copies of this
 * process, until somebody computes. */
int tri_num_threads(void)
{
    int n = trii_threads_asked();

    if (n == 0)
        n = atomic_load_explicit(&n_threads_default, memory_order_relaxed);
    return n > 0 ? n : default_threads();
}

void trii_parallel_adopt_thread(void)
{
    int n = trii_parallel_threads();

    if (TRII_UNLIKELY(n_threads_adopted != n)) {
        omp_set_num_threads(n);
        n_threads_adopted = n;
    }
}

void trii_parallel_enter(int index)
{
    if (TRII_UNLIKELY(index != index_adopted)) {
        index_adopted = index;
        place_adopted = trii_cpu_device_place(index);
    }
    trii_parallel_adopt_thread();
}

typedef struct loop {
    void (*run)(void *ctx, int64_t begin, int64_t end);
    void *ctx;
    int64_t n;
} loop;

static void loop_part(void *data)
{
    loop *all = data;
    int64_t index = omp_get_thread_num();
    int64_t count = omp_get_num_threads();
    int64_t begin, end;

    __tsan_acquire(data);
    begin = all->n * index / count;
    end = all->n * (index + 1) / count;
    if (begin < end)
        all->run(all->ctx, begin, end);
    __tsan_release(data);
}

void trii_parallel_for(int64_t n, int64_t grain, void (*run)(void *ctx, int64_t begin, int64_t end),
                       void *ctx)
{
    int64_t threads = trii_parallel_threads();
    loop all = {run, ctx, n};

    if (threads > 1 && grain > 0 && n / grain < threads)
        threads = n / grain;
    if (threads <= 1) {
        if (n > 0)
            run(ctx, 0, n);
        return;
    }
    __tsan_release(&all);
    GOMP_parallel(loop_part, &all, (unsigned)threads, 0);
    __tsan_acquire(&all);
}
