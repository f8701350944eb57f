/*
 * peer_openmpi_allreduce.c - the same measurement as allreduce.c with MPI_Allreduce; built with
 * mpicc and run by bench/allreduce.sh.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MAX_SAMPLES 2000

typedef struct bench_case {
    const char *name;
    size_t bytes;
    int samples;
} bench_case;

static const bench_case cases[] = {
    {"4 B", 4, 1000},
    {"1 KiB", (size_t)1 << 10, 2000},
    {"16 KiB", (size_t)16 << 10, 2000},
    {"64 KiB", (size_t)64 << 10, 1000},
    {"256 KiB", (size_t)256 << 10, 400},
    {"1 MiB", (size_t)1 << 20, 200},
    {"4 MiB", (size_t)4 << 20, 60},
    {"16 MiB", (size_t)16 << 20, 20},
    {"64 MiB", (size_t)64 << 20, 8},
    {"256 MiB", (size_t)256 << 20, 5},
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void one_case(const bench_case *c, float *x, int rank)
{
    enum { ROW = 500 };
    size_t n = c->bytes / sizeof(float);
    static double samples[MAX_SAMPLES];
    double median, worst;

    for (int s = -2; s < c->samples; s++) {
        int row = c->bytes <= 64 ? ROW : 1;
        double start;

        for (size_t i = 0; i < n; i++)
            x[i] = (float)(s & 7);
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        for (int i = 0; i < row; i++) {
            if (row > 1)
                x[0] = (float)(i & 7);
            MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        if (s >= 0)
            samples[s] = (MPI_Wtime() - start) / row * 1e6;
    }
    qsort(samples, (size_t)c->samples, sizeof(*samples), by_size);
    median = samples[c->samples / 2];
    MPI_Reduce(&median, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("shm 2 ranks arena %s\t%.4f\n", c->name, worst);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    size_t max_bytes;
    float *x;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    max_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : SIZE_MAX;
    x = aligned_alloc((size_t)2 << 20, (size_t)256 << 20);
    if (x == NULL)
        return 1;
    madvise(x, (size_t)256 << 20, MADV_HUGEPAGE); /* ours has large pages too */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].bytes <= max_bytes)
            one_case(&cases[i], x, rank);
    }
    free(x);
    MPI_Finalize();
    return 0;
}
