/*
 * peer_openmpi_allreduce.c - the same measurement as allreduce.c with MPI_Allreduce; built with
 * mpicc and run by bench/allreduce.sh.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "allreduce_cases.h"
#include "timing.h"

static void one_case(const bench_case *c, float *x, int rank)
{
    enum { ROW = 500 };
    size_t n = c->bytes / sizeof(float);
    static double samples[MAX_SAMPLES];
    double mine, worst;

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
    mine = median(samples, c->samples);
    MPI_Reduce(&mine, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
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
