/*
 * collectives.c - times of all collectives, see collective_loop.h; bench/collectives.sh starts it
 * and its peers.
 *
 *   trirun --standalone --nproc-per-node N build/bin/bench_collectives heap|arena MAX_BYTES [OP]
 *   ... build/bin/bench_collectives dtypes      elements per second of all_reduce by type
 */
#include <trireme/comm.h>

#include "collective_loop.h"

static void barrier(void)
{
    TRI_TRY(tri_barrier(NULL, NULL));
}

static double worst(double mine)
{
    double all;

    TRI_TRY(tri_all_reduce(NULL, &mine, &all, 1, TRI_DTYPE_F64, TRI_REDOP_MAX, NULL));
    return all;
}

static void to_and_fro(float *data, size_t n)
{
    int rank = tri_rank();

    if (rank == 0) {
        TRI_TRY(tri_send(NULL, data, n, TRI_DTYPE_F32, 1, 0, NULL));
        TRI_TRY(tri_recv(NULL, data, n, TRI_DTYPE_F32, 1, 0, NULL));
    } else if (rank == 1) {
        TRI_TRY(tri_recv(NULL, data, n, TRI_DTYPE_F32, 0, 0, NULL));
        TRI_TRY(tri_send(NULL, data, n, TRI_DTYPE_F32, 0, 0, NULL));
    }
}

static void call(operation op, float *src, float *dst, size_t n)
{
    switch (op) {
    case ALL_REDUCE:
        TRI_TRY(tri_all_reduce(NULL, dst, dst, n, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        break;
    case ALL_GATHER:
        TRI_TRY(tri_all_gather(NULL, src, dst, n, TRI_DTYPE_F32, NULL));
        break;
    case REDUCE_SCATTER:
        TRI_TRY(tri_reduce_scatter(NULL, src, dst, n, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        break;
    case BROADCAST:
        TRI_TRY(tri_broadcast(NULL, dst, n, TRI_DTYPE_F32, 0, NULL));
        break;
    case ALL_TO_ALL:
        TRI_TRY(tri_all_to_all(NULL, src, dst, n, TRI_DTYPE_F32, NULL));
        break;
    default:
        to_and_fro(dst, n);
        break;
    }
}

/* 64 MiB in an arena, zeros: elements per microsecond by type. */
static void dtypes(void)
{
    static const tri_dtype types[] = {TRI_DTYPE_F32, TRI_DTYPE_BF16, TRI_DTYPE_F16};
    enum { ROUNDS = 9, BYTES = 64 << 20 };
    void *x = tri_group_alloc(NULL, BYTES);

    TRI_TRY(x != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        size_t n = BYTES / tri_dtype_size(types[t]);
        double samples[ROUNDS], took;

        for (int i = -2; i < ROUNDS; i++) {
            double start;

            barrier();
            start = now_us();
            TRI_TRY(tri_all_reduce(NULL, x, x, n, types[t], TRI_REDOP_SUM, NULL));
            if (i >= 0)
                samples[i] = now_us() - start;
        }
        took = worst(median(samples, ROUNDS));
        if (tri_rank() == 0)
            printf("%s\t%.3f\n", tri_dtype_name(types[t]), (double)n / took);
    }
    tri_group_free(NULL, x);
}

int main(int argc, char **argv)
{
    library lib = {.barrier = barrier, .worst = worst, .call = call};
    int arena = argc > 1 && strcmp(argv[1], "arena") == 0;

    TRI_TRY(tri_init(NULL));
    if (argc > 1 && strcmp(argv[1], "dtypes") == 0) {
        dtypes();
        tri_finalize();
        return 0;
    }
    lib.rank = tri_rank();
    lib.size = tri_world_size();
    lib.memory = arena ? "arena" : "heap";
    lib.max_bytes = argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : (size_t)64 << 20;
    lib.src = arena ? tri_group_alloc(NULL, lib.max_bytes + 4096) : malloc(lib.max_bytes + 4096);
    lib.dst = arena ? tri_group_alloc(NULL, lib.max_bytes + 4096) : malloc(lib.max_bytes + 4096);
    TRI_TRY(lib.src != NULL && lib.dst != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    measure_all(&lib, argc > 3 ? argv[3] : NULL);
    if (arena) {
        tri_group_free(NULL, lib.dst);
        tri_group_free(NULL, lib.src);
    } else {
        free(lib.dst);
        free(lib.src);
    }
    tri_finalize();
    return 0;
}
