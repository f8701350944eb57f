/*
 * collective_loop.h - the measurement of bench/collectives.sh, the same for every library: it fills
 * in `library` and calls measure_all.
 *
 * Before each call the operands are rewritten and all ranks meet at the library's barrier; a call
 * is timed alone and its result looked at afterwards. A case is the median of a rank's calls, of
 * the slowest rank. Sizes are bytes of the larger side: of the buffer (all_reduce, broadcast,
 * send_recv) or of all parts together (all_gather, reduce_scatter, all_to_all). send_recv is half a
 * round trip of ranks 0 and 1.
 */
#ifndef BENCH_COLLECTIVE_LOOP_H
#define BENCH_COLLECTIVE_LOOP_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

typedef enum operation {
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    BROADCAST,
    ALL_TO_ALL,
    SEND_RECV,
    N_OPERATIONS
} operation;

static const char *const operation_names[N_OPERATIONS] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"};

typedef struct library {
    int rank, size;
    const char *memory; /* "heap" or "arena" */
    float *src, *dst;   /* of max_bytes each */
    size_t max_bytes;
    void (*barrier)(void);
    double (*worst)(double mine); /* the largest of all ranks', on all ranks */
    /* all_reduce and broadcast: in place in dst, n elements. Others: n elements a part; all_gather
     * from src to all of dst, reduce_scatter from all of src to dst, all_to_all src to dst;
     * send_recv: ranks 0 and 1 send dst to and fro, others do nothing. */
    void (*call)(operation op, float *src, float *dst, size_t n);
} library;

static const struct {
    const char *name;
    size_t bytes;
} loop_sizes[] = {
    {"4 B", 4},
    {"64 B", 64},
    {"1 KiB", (size_t)1 << 10},
    {"16 KiB", (size_t)16 << 10},
    {"256 KiB", (size_t)256 << 10},
    {"1 MiB", (size_t)1 << 20},
    {"4 MiB", (size_t)4 << 20},
    {"16 MiB", (size_t)16 << 20},
    {"64 MiB", (size_t)64 << 20},
};

static void loop_fill(float *x, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value;
}

/* Element `i` of the result must be this. */
static void loop_check(const library *lib, operation op, size_t n, int round)
{
    float sent = (float)(round & 7), sum = sent * (float)lib->size;
    size_t all = n * (size_t)lib->size;
    size_t last = op == ALL_GATHER || op == ALL_TO_ALL ? all - 1 : n - 1;
    float want = op == ALL_REDUCE || op == REDUCE_SCATTER ? sum : sent;

    if (lib->dst[last] == want || (op == SEND_RECV && lib->rank > 1))
        return;
    fprintf(stderr, "%s: wrong result %g instead of %g on rank %d\n", operation_names[op],
            (double)lib->dst[last], (double)want, lib->rank);
    exit(1);
}

/* One call; its time on this rank in microseconds. */
static double loop_once(const library *lib, operation op, size_t n, int round)
{
    size_t parts = n * (size_t)lib->size;
    double start, took;

    if (op == ALL_GATHER || op == REDUCE_SCATTER || op == ALL_TO_ALL)
        loop_fill(lib->src, op == ALL_GATHER ? n : parts, (float)(round & 7));
    loop_fill(lib->dst, op == ALL_GATHER || op == ALL_TO_ALL ? parts : n, (float)(round & 7));
    if ((op == BROADCAST || op == SEND_RECV) && lib->rank > 0)
        loop_fill(lib->dst, n, -1);
    lib->barrier();
    start = now_us();
    lib->call(op, lib->src, lib->dst, n);
    took = now_us() - start;
    loop_check(lib, op, n, round);
    return op == SEND_RECV ? took / 2 : took;
}

static void loop_case(const library *lib, operation op, size_t size)
{
    enum { WARM = 4, MOST = 1000, LEAST = 5 };
    static double samples[MOST];
    int parted = op == ALL_GATHER || op == REDUCE_SCATTER || op == ALL_TO_ALL;
    size_t n = loop_sizes[size].bytes / sizeof(float) / (parted ? (size_t)lib->size : 1);
    double total = 0, took;
    int count;

    if (n == 0)
        n = 1; /* 4 B between several ranks: an element each */
    for (int i = 0; i < WARM; i++) {
        double start = now_us();

        loop_once(lib, op, n, i);
        total = now_us() - start; /* rewriting included */
    }
    count = (int)(3e5 / lib->worst(total)); /* 0.3 s; the same on all ranks */
    count = count > MOST ? MOST : count < LEAST ? LEAST : count;
    for (int i = 0; i < count; i++)
        samples[i] = loop_once(lib, op, n, i);
    took = lib->worst(lib->rank > 1 && op == SEND_RECV ? 0 : median(samples, count));
    if (lib->rank == 0) {
        printf("%s %d ranks %s %s\t%.4f\n", operation_names[op], lib->size, lib->memory,
               loop_sizes[size].name, took);
        fflush(stdout);
    }
}

/* `only`: an operation's name, or NULL for all. */
static void measure_all(const library *lib, const char *only)
{
    for (int op = 0; op < N_OPERATIONS; op++) {
        if (only != NULL && strcmp(only, operation_names[op]) != 0)
            continue;
        for (size_t s = 0; s < sizeof(loop_sizes) / sizeof(loop_sizes[0]); s++) {
            if (loop_sizes[s].bytes <= lib->max_bytes)
                loop_case(lib, (operation)op, s);
        }
    }
}

#endif
