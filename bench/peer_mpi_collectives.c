/*
 * peer_mpi_collectives.c - the same measurement as collectives.c with MPI; built with the mpicc of
 * Open MPI and of MPICH by bench/collectives.sh.
 */
#include <mpi.h>

#include "collective_loop.h"

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static double worst(double mine)
{
    double all;

    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static void to_and_fro(float *data, int n)
{
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Send(data, n, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(data, n, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(data, n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(data, n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
    }
}

static void call(operation op, float *src, float *dst, size_t count)
{
    int n = (int)count;

    switch (op) {
    case ALL_REDUCE:
        MPI_Allreduce(MPI_IN_PLACE, dst, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALL_GATHER:
        MPI_Allgather(src, n, MPI_FLOAT, dst, n, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(src, dst, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(dst, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    case ALL_TO_ALL:
        MPI_Alltoall(src, n, MPI_FLOAT, dst, n, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    default:
        to_and_fro(dst, n);
        break;
    }
}

int main(int argc, char **argv)
{
    library lib = {.memory = "heap", .barrier = barrier, .worst = worst, .call = call};

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &lib.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &lib.size);
    lib.max_bytes = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : (size_t)64 << 20;
    lib.src = malloc(lib.max_bytes + 4096);
    lib.dst = malloc(lib.max_bytes + 4096);
    if (lib.src == NULL || lib.dst == NULL)
        return 1;
    measure_all(&lib, argc > 2 ? argv[2] : NULL);
    free(lib.dst);
    free(lib.src);
    MPI_Finalize();
    return 0;
}
