/*
 * overlap.c - an asynchronous all_reduce beside a computation; bench/overlap.sh and bench/tcp.sh
 * start it, as each rank of two.
 *
 *   bench_overlap overlap BYTES [ROUNDS]   prints "alone compute both after", microseconds each:
 * the all_reduce alone, a computation of about the same duration alone, both at once, and one after
 *       the other. Medians over rounds of one of each, in turn; of the slower rank.
 *   bench_overlap link BYTES...            prints "BYTES<TAB>microseconds" of a blocking all_reduce
 */
#include <trireme/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { MOST_ROUNDS = 101, COMPUTED = 4096 };

static double worst(double mine)
{
    double all;

    TRI_TRY(tri_all_reduce(NULL, &mine, &all, 1, TRI_DTYPE_F64, TRI_REDOP_MAX, NULL));
    return all;
}

/* Arithmetic in the nearest cache, as a step of a network is for the most part. */
static void compute(float *x, long passes)
{
    for (long pass = 0; pass < passes; pass++) {
        for (int i = 0; i < COMPUTED; i++)
            x[i] = x[i] * 0.999f + 0.001f;
        *(volatile float *)x = x[0]; /* so that no pass is left out */
    }
}

static double time_compute(float *x, long passes)
{
    double start = now_us();

    compute(x, passes);
    return now_us() - start;
}

/* One all_reduce of ones, with a computation beside it, or after it (passes 0: none). */
static double time_reduce(float *data, size_t n, float *x, long passes, int behind)
{
    tri_work *work = NULL;
    double start;

    for (size_t i = 0; i < n; i++)
        data[i] = 1;
    TRI_TRY(tri_barrier(NULL, NULL));
    start = now_us();
    TRI_TRY(tri_all_reduce(NULL, data, data, n, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    if (!behind)
        compute(x, passes);
    TRI_TRY(tri_work_wait(work, 0));
    if (behind)
        compute(x, passes);
    start = now_us() - start;
    tri_work_destroy(work);
    TRI_TRY(data[n - 1] == (float)tri_world_size() ? TRI_OK : TRI_ERR_STATE);
    return start;
}

static void overlap(float *data, size_t n, int rounds)
{
    static double alone[MOST_ROUNDS], computed[MOST_ROUNDS], both[MOST_ROUNDS], after[MOST_ROUNDS];
    static float x[COMPUTED];
    double a, b, c, d, each;
    long passes;

    for (int i = 0; i < 3; i++)
        alone[i] = time_reduce(data, n, x, 0, 0);
    each = worst(time_compute(x, 20000) / 20000);
    passes = (long)(worst(median(alone, 3)) / each);
    passes = passes > 0 ? passes : 1;
    for (int i = 0; i < rounds; i++) {
        alone[i] = time_reduce(data, n, x, 0, 0);
        TRI_TRY(tri_barrier(NULL, NULL));
        computed[i] = time_compute(x, passes);
        both[i] = time_reduce(data, n, x, passes, 0);
        after[i] = time_reduce(data, n, x, passes, 1);
    }
    a = worst(median(alone, rounds));
    b = worst(median(computed, rounds));
    c = worst(median(both, rounds));
    d = worst(median(after, rounds));
    if (tri_rank() == 0)
        printf("%.1f %.1f %.1f %.1f\n", a, b, c, d);
}

static void link_speed(float *data, size_t n)
{
    enum { ROUNDS = 7 };
    static double samples[ROUNDS];
    double took;

    for (int i = -2; i < ROUNDS; i++) {
        double start;

        TRI_TRY(tri_barrier(NULL, NULL));
        start = now_us();
        TRI_TRY(tri_all_reduce(NULL, data, data, n, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        if (i >= 0)
            samples[i] = now_us() - start;
    }
    took = worst(median(samples, ROUNDS));
    if (tri_rank() == 0)
        printf("%zu\t%.1f\n", n * sizeof(*data), took);
}

int main(int argc, char **argv)
{
    int alone = argc > 2 && strcmp(argv[1], "overlap") == 0;
    int rounds = alone && argc > 3 ? (int)strtol(argv[3], NULL, 10) : 9;

    if (argc < 3 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_overlap overlap BYTES [ROUNDS] | link BYTES...\n");
        return 2;
    }
    TRI_TRY(tri_init(NULL));
    for (int i = 2; i < (alone ? 3 : argc); i++) {
        size_t n = (size_t)strtoull(argv[i], NULL, 10) / sizeof(float);
        float *data = calloc(n, sizeof(*data));

        TRI_TRY(data != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
        if (alone)
            overlap(data, n, rounds);
        else
            link_speed(data, n);
        free(data);
    }
    tri_finalize();
    return 0;
}
