/*
 * allreduce.c - time of all_reduce between two ranks of one host. bench/allreduce.sh starts it
 * and its peers.
 *
 *   trirun --standalone --nproc-per-node 2 build/bin/bench_allreduce
 *
 * f32 sums in place, in arena memory that is rewritten before each call. A call is timed from
 * a barrier; the smallest ones in a row of many. Each line: the case, and the median time in
 * microseconds, of the slower rank. Standard error says what the medians hide (quartiles).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/comm.h>

#include "allreduce_cases.h"
#include "timing.h"

/* Prints the slower rank's median. */
static void report(const char *name, double *samples, int n)
{
    double mine[3], worst[3];

    mine[0] = median(samples, n); /* sorts */
    mine[1] = samples[n / 4];
    mine[2] = samples[3 * n / 4];
    TRI_TRY(tri_all_reduce(NULL, mine, worst, 3, TRI_DTYPE_F64, TRI_REDOP_MAX, NULL));
    if (tri_rank() != 0)
        return;
    printf("%s\t%.4f\n", name, worst[0]);
    fflush(stdout);
    fprintf(stderr, "ours %-24s median %10.3f us, quartiles %.3f to %.3f\n", name, worst[0],
            worst[1], worst[2]);
}

static void rewrite(float *x, size_t n, int round)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(round & 7);
}

static void one_case(const bench_case *c, float *x)
{
    enum { ROW = 500 };
    size_t n = c->bytes / sizeof(float);
    double *samples = calloc(MAX_SAMPLES, sizeof(*samples));
    char name[64];

    for (int s = -2; s < c->samples; s++) { /* two rounds to warm up */
        int row = c->bytes <= 64 ? ROW : 1;
        double start;

        rewrite(x, n, s);
        TRI_TRY(tri_barrier(NULL, NULL));
        start = now_us();
        for (int i = 0; i < row; i++) {
            if (row > 1)
                x[0] = (float)(i & 7);
            TRI_TRY(tri_all_reduce(NULL, x, x, n, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        }
        if (s >= 0)
            samples[s] = (now_us() - start) / row;
        if (x[n - 1] != (float)((row > 1 ? (row - 1) & 7 : s & 7) * tri_world_size())) {
            fprintf(stderr, "wrong sum %g\n", (double)x[n - 1]);
            exit(1);
        }
    }
    snprintf(name, sizeof(name), "shm 2 ranks arena %s", c->name);
    report(name, samples, c->samples);
    free(samples);
}

int main(int argc, char **argv)
{
    size_t max_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : SIZE_MAX;
    float *x;

    TRI_TRY(tri_init(NULL));
    if (tri_world_size() != 2) {
        fprintf(stderr, "run by 2 ranks: trirun --standalone --nproc-per-node 2 %s\n", argv[0]);
        return 2;
    }
    x = tri_group_alloc(NULL, (size_t)256 << 20);
    if (x == NULL) {
        fprintf(stderr, "%s\n", tri_last_error());
        return 1;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].bytes <= max_bytes)
            one_case(&cases[i], x);
    }
    tri_group_free(NULL, x);
    tri_finalize();
    return 0;
}
