/*
 * first_all_reduce.c - a worker that joins, reduces once and says how long after the start of its
 * launcher that was done: TRI_BENCH_START is that moment, seconds since 1970. bench/launch.sh
 * runs it; it links libtrireme, so that the loading of all its libraries counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <trireme/trireme.h>

int main(void)
{
    const char *start = getenv("TRI_BENCH_START");
    struct timespec now;
    float sum = 1;

    TRI_TRY(tri_init(NULL));
    TRI_TRY(tri_all_reduce(NULL, &sum, &sum, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    timespec_get(&now, TIME_UTC);
    if (sum != (float)tri_world_size()) {
        fprintf(stderr, "the sum is %g, not %d\n", (double)sum, tri_world_size());
        return 1;
    }
    if (start != NULL)
        printf("%.3f\n",
               ((double)now.tv_sec - strtod(start, NULL)) * 1e3 + (double)now.tv_nsec * 1e-6);
    tri_finalize();
    return 0;
}
