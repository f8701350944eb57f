/*
 * plain_mlp.c - data-parallel training with nothing but libtrireme-comm: a small network in plain
 * loops, its gradients summed over all workers by one call.
 *
 *     build/bin/plain_mlp                                      one worker
 *     build/bin/trirun --nproc-per-node 4 build/bin/plain_mlp  four, on the same problem
 *
 * Each worker computes on its part of the batch. The sums over all parts are what one worker
 * alone would have got, so the losses printed with 1 and with 4 workers are the same.
 */
#include <math.h>
#include <stdio.h>

#include <trireme/comm.h>

#include "command_line.h"

enum { N_IN = 2, N_HIDDEN = 16, BATCH = 64, N_STEPS = 300 };

typedef struct network {
    double w1[N_HIDDEN][N_IN], b1[N_HIDDEN]; /* hidden[j] = tanh(w1[j] . x + b1[j]) */
    double w2[N_HIDDEN], b2;                 /* output = w2 . hidden + b2 */
} network;

#define N_PARAMETERS (sizeof(network) / sizeof(double))

/* What every step sums over the workers: the gradient, and the loss with it. */
typedef struct sums {
    network gradient;
    double loss;
} sums;

/* The same numbers on every worker: no need to send the first weights or the data. */
static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 33) / 2147483648.0 * 2 - 1; /* -1 to 1 */
}

/* Forward and backward of one sample; adds its share of the mean over the batch to `s`. */
static void add_sample(const network *net, const double x[N_IN], double target, sums *s)
{
    double hidden[N_HIDDEN], output = net->b2, error;

    for (int j = 0; j < N_HIDDEN; j++) {
        double a = net->b1[j];

        for (int i = 0; i < N_IN; i++)
            a += net->w1[j][i] * x[i];
        hidden[j] = tanh(a);
        output += net->w2[j] * hidden[j];
    }
    error = output - target;
    s->loss += error * error / BATCH;
    error *= 2.0 / BATCH; /* d loss / d output */
    s->gradient.b2 += error;
    for (int j = 0; j < N_HIDDEN; j++) {
        double back = error * net->w2[j] * (1 - hidden[j] * hidden[j]);

        s->gradient.w2[j] += error * hidden[j];
        s->gradient.b1[j] += back;
        for (int i = 0; i < N_IN; i++)
            s->gradient.w1[j][i] += back * x[i];
    }
}

static const char usage[] = "usage: [trirun --nproc-per-node N] plain_mlp\n\n"
                            "Trains a small network in plain C loops; the losses are the same\n"
                            "with any number of workers.";

int main(int argc, char **argv)
{
    network net;
    double *weights = (double *)&net;
    uint64_t seed = 1;
    int rank, size;

    options_none(argc, argv, usage);
    TRI_TRY(tri_init(NULL)); /* joins the workers that trirun started, or stays alone */
    rank = tri_rank();
    size = tri_world_size();
    for (size_t k = 0; k < N_PARAMETERS; k++)
        weights[k] = uniform(&seed);

    for (int step = 0; step < N_STEPS; step++) {
        sums s = {0};
        const double *gradient = (const double *)&s.gradient;
        double own_loss;

        for (int n = 0; n < BATCH; n++) {
            double x[N_IN] = {uniform(&seed), uniform(&seed)};

            if (n * size / BATCH == rank) /* my part of the batch */
                add_sample(&net, x, sin(3 * x[0]) * x[1], &s);
        }
        own_loss = s.loss;
        /* The only line about communication: s becomes the sum of all workers' s. */
        TRI_TRY(tri_all_reduce(NULL, &s, &s, sizeof(s) / sizeof(double), TRI_DTYPE_F64,
                               TRI_REDOP_SUM, NULL));
        for (size_t k = 0; k < N_PARAMETERS; k++)
            weights[k] -= 0.1 * gradient[k];
        if (step % 50 == 49)
            printf("step %3d  loss %.9f  (%.9f of it from rank %d of %d)\n", step + 1, s.loss,
                   own_loss, rank, size);
    }
    tri_finalize();
    return 0;
}
