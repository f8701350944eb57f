/*
 * plain_ddp.c - a C program with its own loops becomes data-parallel with six calls: a network
 * learns which of two spirals a point lies on.
 *
 *     build/bin/plain_ddp                                      one worker
 *     build/bin/trirun --nproc-per-node 3 build/bin/plain_ddp  three, with the same result
 */
#include <math.h>
#include <trireme/comm.h>
#include "command_line.h"

enum { HIDDEN = 32, BATCH = 64, STEPS = 200, N_W1 = 3 * HIDDEN, N_W2 = HIDDEN + 1 };

/* hidden = tanh(w1 (x, y, 1)), output = w2 (hidden, 1); their gradients */
static double w1[N_W1 + N_W2], g1[N_W1 + N_W2], *const w2 = w1 + N_W1, *const g2 = g1 + N_W1;

static double uniform(uint64_t *seed) /* -1 to 1, the same numbers on every worker */
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 33) / 1073741824.0 - 1;
}

static double predict(const double *at, double *hidden) /* which spiral, from 0 to 1 */
{
    double sum = w2[HIDDEN];

    hidden[HIDDEN] = 1;
    for (int j = 0; j < HIDDEN; j++) {
        hidden[j] = tanh(w1[3 * j] * at[0] + w1[3 * j + 1] * at[1] + w1[3 * j + 2]);
        sum += w2[j] * hidden[j];
    }
    return 1 / (1 + exp(-sum));
}

int main(int argc, char **argv)
{
    double at[BATCH][3], hidden[BATCH][N_W2], error[BATCH], right = 0;
    uint64_t seed = 1;
    tri_reducer *r;
    int first, n_own;

    options_parse(argc, argv, "usage: [trirun --nproc-per-node N] plain_ddp", NULL, 0);
    TRI_TRY(tri_init(NULL));               /* 1: join the workers that trirun started */
    TRI_TRY(tri_reducer_create(NULL, &r)); /* 2: averages over them, of these gradients: 3 */
    TRI_TRY(tri_reducer_add(r, &(tri_reducer_grad){g1, N_W1, TRI_DTYPE_F64, "w1", 0}, NULL));
    TRI_TRY(tri_reducer_add(r, &(tri_reducer_grad){g2, N_W2, TRI_DTYPE_F64, "w2", 0}, NULL));
    first = BATCH * tri_rank() / tri_world_size(); /* this worker's part of a batch */
    n_own = BATCH * (tri_rank() + 1) / tri_world_size() - first;
    for (int i = 0; i < N_W1; i++)
        w1[i] = 4 * uniform(&seed);
    for (int step = 1; step <= STEPS; step++) {
        for (int n = 0; n < BATCH; n++) {
            double t = 1 + uniform(&seed), side = n % 2 ? t : -t;

            memcpy(at[n], (double[3]){side * cos(3 * t), side * sin(3 * t), 1}, sizeof(at[n]));
        }
        TRI_TRY(tri_reducer_begin(r, n_own)); /* 4: the number of samples in this worker's batch */
        memset(g1, 0, sizeof(g1));
        for (int n = first; n < first + n_own; n++) {
            error[n] = predict(at[n], hidden[n]) - n % 2;
            right += step == STEPS && fabs(error[n]) < 0.5;
            for (int j = 0; j < N_W2; j++)
                g2[j] += error[n] * hidden[n][j] / n_own;
        }
        TRI_TRY(tri_reducer_ready(r, 1)); /* 5: is sent while the other gradient is computed */
        for (int n = first; n < first + n_own; n++)
            for (int i = 0, j = 0; i < N_W1; j = ++i / 3)
                g1[i] +=
                    error[n] * w2[j] * (1 - hidden[n][j] * hidden[n][j]) * at[n][i % 3] / n_own;
        TRI_TRY(tri_reducer_ready(r, 0));
        TRI_TRY(tri_reducer_finish(r)); /* 6: now both are averages over all workers' samples */
        for (int i = 0; i < N_W1 + N_W2; i++)
            w1[i] -= g1[i];
    }
    TRI_TRY(tri_all_reduce(NULL, &right, &right, 1, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL));
    printf("worker %d: %.0f of %d right, w2[0] = %.6f\n", tri_rank(), right, BATCH, w2[0]);
    tri_reducer_destroy(r);
    tri_finalize();
    output_check(argv[0]);
}
