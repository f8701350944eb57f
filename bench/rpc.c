/*
 * rpc.c - how long a call takes, between this process and another one that serves; bench/rpc.sh
 * starts both, each on its core. Prints "case<tab>value" lines: microseconds of a round trip
 * (medians), calls a second, GB/s.
 *
 *     bench_rpc serve STORE shm|tcp       the other one; STORE is a file
 *     bench_rpc calls STORE shm|tcp       inline and on an executor thread, alone and 64 at once
 *     bench_rpc asleep STORE shm          a millisecond between calls, so that the other one sleeps
 *     bench_rpc one_core STORE shm        the same without pauses, by workers of one core
 *     bench_rpc parts STORE shm MAX       64 KiB to MAX bytes from the heap and from tri_rpc_alloc
 *     bench_rpc growth STORE shm          threads, and kilobytes of PSS, of a worker
 *     bench_rpc death STORE shm           until a killed worker of 100 MB is known
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/rpc.h>

#include "timing.h"

#define WINDOW 64
#define PART ((size_t)1 << 30)

/* --- functions ------------------------------------------------------------ */

static tri_status run_nothing(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}

/* Says when, and dies. */
static tri_status run_die(tri_rpc_request *request, void *object)
{
    const double now = now_us();

    (void)object;
    (void)tri_rpc_reply(request, &(tri_rpc_message){.data = &now, .bytes = sizeof(now)});
    raise(SIGKILL);
    return TRI_OK;
}

static tri_status run_keep(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_INPROGRESS;
}

static const tri_rpc_function here = {
    .name = "inline", .flags = TRI_RPC_INLINE, .max_part = PART, .run = run_nothing};
static const tri_rpc_function there = {.name = "executor", .run = run_nothing};
static const tri_rpc_function die = {.name = "die", .run = run_die};
static const tri_rpc_function keep = {.name = "keep", .run = run_keep};
static const tri_rpc_function *const functions[] = {&here, &there, &die, &keep};

/* --- two workers ---------------------------------------------------------- */

static tri_rpc *rpc;
static tri_rpc_ref *ps;

static void begin(const char *name, const char *store_path, bool tcp)
{
    const tri_rpc_options o = {
        .open = true, .tcp_only = tcp, .functions = functions, .n_functions = 4};
    tri_store *store = NULL;

    TRI_TRY(tri_store_file(store_path, NULL, &store));
    TRI_TRY(tri_rpc_create(store, name, 0, 0, &o, &rpc));
    tri_store_unref(store);
}

static void serve(void)
{
    const size_t bytes = (size_t)100 << 20; /* that a dying process has to give back */
    char *memory = malloc(bytes);

    if (memory == NULL)
        exit(1);
    memset(memory, 1, bytes);
    TRI_TRY(tri_rpc_join(rpc, TRI_FOREVER));
    free(memory);
}

/* --- cases ---------------------------------------------------------------- */

static double round_trip(const tri_rpc_function *function, int n, double pause_us)
{
    double *times = malloc((size_t)n * sizeof(*times)), found;

    if (times == NULL)
        exit(1);
    for (int i = -n / 10; i < n; i++) {
        double began = now_us();

        while (now_us() - began < pause_us)
            ;
        began = now_us();
        TRI_TRY(tri_rpc_sync(ps, function, NULL, NULL, NULL));
        if (i >= 0)
            times[i] = now_us() - began;
    }
    found = median(times, n);
    free(times);
    return found;
}

static double per_second(const tri_rpc_function *function, int n)
{
    tri_rpc_call *calls[WINDOW] = {NULL};
    double began = now_us();

    for (int i = 0; i < n + WINDOW; i++) {
        tri_rpc_call **call = &calls[i % WINDOW];

        if (*call != NULL) {
            TRI_TRY(tri_rpc_call_wait(*call, 0));
            tri_rpc_call_destroy(*call);
            *call = NULL;
        }
        if (i < n)
            TRI_TRY(tri_rpc_async(ps, function, NULL, NULL, call));
    }
    return n / (now_us() - began) * 1e6;
}

static void calls(void)
{
    printf("inline, round trip\t%.2f\n", round_trip(&here, 20000, 0));
    printf("inline, 64 at once\t%.0f\n", per_second(&here, 100000));
    printf("executor, round trip\t%.2f\n", round_trip(&there, 5000, 0));
    printf("executor, 64 at once\t%.0f\n", per_second(&there, 100000));
}

static double call_with(const void *data, size_t bytes, int n)
{
    const tri_rpc_part part = {data, bytes};
    double times[64];

    for (int i = -2; i < n; i++) {
        double began = now_us();

        TRI_TRY(
            tri_rpc_sync(ps, &here, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL, NULL));
        if (i >= 0)
            times[i] = now_us() - began;
    }
    return median(times, n);
}

static double copy_time(char *dst, const char *src, size_t bytes, int n)
{
    double times[64];

    for (int i = -2; i < n; i++) {
        double began = now_us();

        memcpy(dst, src, bytes);
        __asm__ volatile("" : : "r"(dst) : "memory");
        if (i >= 0)
            times[i] = now_us() - began;
    }
    return median(times, n);
}

static void parts(size_t most)
{
    char *heap = malloc(most), *other = malloc(most), *arena;

    arena = tri_rpc_alloc(rpc, most);
    if (heap == NULL || other == NULL || arena == NULL)
        exit(1);
    memset(heap, 1, most);
    memset(other, 2, most);
    memset(arena, 3, most);
    for (size_t bytes = 65536; bytes <= most; bytes *= 4) {
        int n = bytes > ((size_t)64 << 20) ? 5 : 31;
        double copied = copy_time(other, heap, bytes, n);

        printf("heap %zu\t%.2f\t%.2f\n", bytes, (double)bytes / call_with(heap, bytes, n) / 1e3,
               (double)bytes / copied / 1e3);
        printf("arena %zu\t%.2f\n", bytes, call_with(arena, bytes, n));
    }
    tri_rpc_free(rpc, arena);
    free(heap);
    free(other);
}

static long number_in(const char *path, const char *name)
{
    char line[256];
    FILE *file = fopen(path, "r");
    long found = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0)
            found = strtol(line + strlen(name), NULL, 10);
    }
    if (file != NULL)
        fclose(file);
    return found;
}

static long threads_before, pss_before;

static void growth(void)
{
    TRI_TRY(tri_rpc_sync(ps, &here, NULL, NULL, NULL));
    printf("threads\t%ld\n", number_in("/proc/self/status", "Threads:") - threads_before);
    printf("PSS\t%ld\n", number_in("/proc/self/smaps_rollup", "Pss:") - pss_before);
}

static void death(void)
{
    tri_rpc_call *call;
    tri_rpc_message reply;
    double killed;

    TRI_TRY(tri_rpc_async(ps, &keep, NULL, NULL, &call));
    TRI_TRY(tri_rpc_sync(ps, &die, NULL, NULL, &reply));
    memcpy(&killed, reply.data, sizeof(killed));
    tri_rpc_message_free(&reply);
    if (tri_rpc_call_wait(call, 0) != TRI_ERR_PEER_LOST)
        exit(1);
    printf("death known\t%.2f\n", (now_us() - killed) / 1e3);
    tri_rpc_call_destroy(call);
}

static void measure(const char *what, const char *most)
{
    if (strcmp(what, "calls") == 0)
        calls();
    else if (strcmp(what, "asleep") == 0)
        printf("asleep, round trip\t%.2f\n", round_trip(&here, 1000, 1000));
    else if (strcmp(what, "one_core") == 0)
        printf("one core, round trip\t%.2f\n", round_trip(&here, 10000, 0));
    else if (strcmp(what, "parts") == 0)
        parts(strtoull(most, NULL, 10));
    else if (strcmp(what, "growth") == 0)
        growth();
    else
        death();
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    threads_before = number_in("/proc/self/status", "Threads:");
    pss_before = number_in("/proc/self/smaps_rollup", "Pss:");
    begin(strcmp(argv[1], "serve") == 0 ? "ps" : "bench", argv[2], strcmp(argv[3], "tcp") == 0);
    if (strcmp(argv[1], "serve") == 0) {
        serve();
    } else {
        TRI_TRY(tri_rpc_find(rpc, "ps", &ps));
        measure(argv[1], argc > 4 ? argv[4] : "67108864");
        tri_rpc_ref_unref(ps);
        TRI_TRY(tri_rpc_join(rpc, 20000));
    }
    TRI_TRY(tri_rpc_leave(rpc, 0));
    tri_rpc_destroy(rpc);
}
