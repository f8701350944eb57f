/* average.c - averages a buffer over the world, as a user's C program would. */
#include <trireme/comm.h>

int main(void)
{
    enum { N = 1000 };
    float *x;

    TRI_TRY(tri_init(NULL));
    x = tri_group_alloc(NULL, N * sizeof(*x));
    if (x == NULL) {
        fprintf(stderr, "%s\n", tri_last_error());
        return 1;
    }
    for (int i = 0; i < N; i++)
        x[i] = (float)(tri_rank() + i);
    TRI_TRY(tri_all_reduce(NULL, x, x, N, TRI_DTYPE_F32, TRI_REDOP_AVG, NULL));
    for (int i = 0; i < N; i++) {
        if (x[i] != (float)(tri_world_size() - 1) / 2.0f + (float)i)
            return 1;
    }
    printf("average of %d on rank %d\n", tri_world_size(), tri_rank());
    tri_group_free(NULL, x);
    tri_finalize();
    return 0;
}
