/*
 * faults.c - one rank of a group in which one is killed (faults.sh runs it):
 *
 *     bench_faults ENGINE FILE RANK RANKS VICTIM SEED [MIB]
 *
 * The ranks meet in FILE and reduce vectors of random sizes without a pause. A thread of VICTIM
 * kills it at a random moment, of which the store knows. The others print how many microseconds
 * after it their call failed. MIB: the victim has so much memory in use, which the kernel frees
 * before it closes the victim's sockets. Exit code 1 if that named no lost rank.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

#include <trireme/comm.h>

#define MAX_COUNT ((size_t)1 << 18)
#define HEAD_START_NS INT64_C(2000000) /* for the store to learn the moment */

typedef struct fate {
    tri_store *store;
    int64_t wait_ns;
} fate;

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Of a clock that all ranks of the host share. */
static int64_t now_ns(void)
{
    struct timespec t;

    timespec_get(&t, TIME_UTC);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int die(void *arg)
{
    const fate *f = arg;
    int64_t moment = now_ns() + f->wait_ns + HEAD_START_NS;

    TRI_TRY(tri_store_set(f->store, "moment", &moment, sizeof(moment)));
    while (now_ns() < moment)
        thrd_yield();
    return raise(SIGKILL);
}

static long number(const char *text)
{
    return strtol(text, NULL, 10);
}

/* What the survivors were told, against when it happened. */
static int report(tri_store *store, int64_t failed_ns, tri_status status, const char *line)
{
    void *value = NULL;
    int64_t moment;

    TRI_TRY(tri_store_get(store, "moment", 0, &value, NULL));
    memcpy(&moment, value, sizeof(moment));
    tri_store_free(value);
    printf("%.1f\n", (double)(failed_ns - moment) / 1e3);
    if (status == TRI_ERR_PEER_LOST && strstr(line, "rank ") != NULL)
        return 0;
    fprintf(stderr, "bench_faults: told %s: %s\n", tri_status_name(status), line);
    return 1;
}

/* Memory in use, in pages of 4 KiB as everything that is not asked for otherwise. */
static void fill_memory(long mib)
{
    size_t bytes = (size_t)mib << 20;
    volatile char *p = malloc(bytes);

    TRI_TRY(p != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    for (size_t i = 0; i < bytes; i += 4096)
        p[i] = 1;
}

int main(int argc, char **argv)
{
    tri_group_options options = {.timeout_ms = 300000};
    tri_store *store = NULL;
    tri_group *g = NULL;
    tri_status status = TRI_OK;
    uint64_t seed;
    float *x;
    int64_t failed_ns;
    char line[512];
    int result;

    if (argc != 7 && argc != 8) {
        fprintf(stderr, "usage: bench_faults ENGINE FILE RANK RANKS VICTIM SEED [MIB]\n");
        return 2;
    }
    options.engine = argv[1];
    seed = strtoull(argv[6], NULL, 10);
    if (argc == 8 && number(argv[3]) == number(argv[5]))
        fill_memory(number(argv[7]));
    TRI_TRY(tri_store_file(argv[2], NULL, &store));
    TRI_TRY(tri_group_create(store, (int)number(argv[3]), (int)number(argv[4]), &options, &g));
    x = calloc(MAX_COUNT, sizeof(*x));
    if (x == NULL)
        return 1;
    TRI_TRY(tri_barrier(g, NULL));
    if (number(argv[3]) == number(argv[5])) {
        static fate f;
        thrd_t thread;

        f.wait_ns = (int64_t)(draw(&seed) % 10000000);
        TRI_TRY(tri_store_clone(store, &f.store));
        if (thrd_create(&thread, die, &f) != thrd_success)
            return 1;
        seed = strtoull(argv[6], NULL, 10);
    }
    while (status == TRI_OK) {
        size_t count = (size_t)1 << draw(&seed) % 19; /* the same on all ranks */

        status = tri_all_reduce(g, x, x, count, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    }
    failed_ns = now_ns();
    snprintf(line, sizeof(line), "%s", tri_last_error());
    result = report(store, failed_ns, status, line);
    tri_group_unref(g);
    tri_store_unref(store);
    free(x);
    return result;
}
