/*
 * plain_ddp.c - a C program with loops of its own becomes data-parallel by six calls: a network
 * learns which of two spirals a point lies on.
 *
 *     build/bin/plain_ddp                                      one worker
 *     build/bin/trirun --nproc-per-node 3 build/bin/plain_ddp  three, with the same result
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <trireme/comm.h>

#include "command_line.h"

enum { HIDDEN = 32, BATCH = 64, STEPS = 200 };

/* hidden = tanh(first . (x, y, 1)), output = second . (hidden, 1) */
typedef struct network {
    double first[HIDDEN][3];
    double second[HIDDEN + 1];
} network;

typedef struct sample {
    double at[3]; /* x, y, 1 */
    double label; /* which spiral: 0 or 1 */
    double hidden[HIDDEN + 1];
    double error; /* of the prediction */
} sample;

/* -1 to 1, the same numbers on every worker. */
static double uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 33) / 1073741824.0 - 1;
}

static void make_batch(sample *batch, uint64_t *seed)
{
    for (int n = 0; n < BATCH; n++) {
        double t = 1 + uniform(seed), side = n % 2 == 1 ? t : -t;

        batch[n] = (sample){.at = {side * cos(3 * t), side * sin(3 * t), 1}, .label = n % 2};
    }
}

static void predict(const network *net, sample *s)
{
    double sum = net->second[HIDDEN];

    for (int j = 0; j < HIDDEN; j++) {
        const double *w = net->first[j];

        s->hidden[j] = tanh(w[0] * s->at[0] + w[1] * s->at[1] + w[2]);
        sum += net->second[j] * s->hidden[j];
    }
    s->hidden[HIDDEN] = 1;
    s->error = 1 / (1 + exp(-sum)) - s->label;
}

/* The gradient of the second layer, from one sample. */
static void add_second(const sample *s, double weight, network *gradient)
{
    for (int j = 0; j <= HIDDEN; j++)
        gradient->second[j] += weight * s->error * s->hidden[j];
}

/* That of the first, whose outputs the second reads. */
static void add_first(const network *net, const sample *s, double weight, network *gradient)
{
    for (int j = 0; j < HIDDEN; j++) {
        double back = s->error * net->second[j] * (1 - s->hidden[j] * s->hidden[j]);

        for (int i = 0; i < 3; i++)
            gradient->first[j][i] += weight * back * s->at[i];
    }
}

static void update(network *net, const network *gradient)
{
    for (int j = 0; j < HIDDEN; j++) {
        for (int i = 0; i < 3; i++)
            net->first[j][i] -= gradient->first[j][i];
    }
    for (int j = 0; j <= HIDDEN; j++)
        net->second[j] -= gradient->second[j];
}

static network net, gradient;
static sample batch[BATCH];

static const char usage[] = "usage: [trirun --nproc-per-node N] plain_ddp\n\n"
                            "Trains a small network in plain C loops that averages gradients over\n"
                            "any number of workers.";

int main(int argc, char **argv)
{
    const tri_reducer_grad layers[2] = {
        {.data = gradient.first, .count = HIDDEN * 3, .dtype = TRI_DTYPE_F64, .name = "first"},
        {.data = gradient.second, .count = HIDDEN + 1, .dtype = TRI_DTYPE_F64, .name = "second"}};
    tri_reducer *reducer;
    double right = 0;
    uint64_t seed = 1;
    int begin, end, n_own;

    options_none(argc, argv, usage);
    TRI_TRY(tri_init(NULL));                     /* 1: join the workers that trirun started */
    TRI_TRY(tri_reducer_create(NULL, &reducer)); /* 2: what averages over them... */
    for (int i = 0; i < 2; i++)
        TRI_TRY(tri_reducer_add(reducer, &layers[i], NULL)); /* 3: ...these gradients, 0 and 1 */

    begin = BATCH * tri_rank() / tri_world_size(); /* this worker's part of a batch */
    end = BATCH * (tri_rank() + 1) / tri_world_size();
    n_own = end - begin;
    for (int j = 0; j < HIDDEN; j++) {
        for (int i = 0; i < 3; i++)
            net.first[j][i] = 4 * uniform(&seed);
    }

    for (int step = 1; step <= STEPS; step++) {
        make_batch(batch, &seed);
        memset(&gradient, 0, sizeof(gradient));
        TRI_TRY(tri_reducer_begin(reducer, n_own)); /* 4: with the number of samples here */
        for (int n = begin; n < end; n++) {
            predict(&net, &batch[n]);
            add_second(&batch[n], 1.0 / n_own, &gradient);
        }
        TRI_TRY(tri_reducer_ready(reducer, 1)); /* 5: is sent while the other is computed */
        for (int n = begin; n < end; n++)
            add_first(&net, &batch[n], 1.0 / n_own, &gradient);
        TRI_TRY(tri_reducer_ready(reducer, 0));
        TRI_TRY(tri_reducer_finish(reducer)); /* 6: both are means over all workers' samples now */
        update(&net, &gradient);
    }

    for (int n = begin; n < end; n++) /* of the last batch */
        right += fabs(batch[n].error) < 0.5;
    TRI_TRY(tri_all_reduce(NULL, &right, &right, 1, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL));
    printf("worker %d: %.0f of %d right, w2[0] = %.6f\n", tri_rank(), right, BATCH, net.second[0]);
    tri_reducer_destroy(reducer);
    tri_finalize();
    return 0;
}
