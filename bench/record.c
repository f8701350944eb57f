/*
 * record.c - what it costs to note an operation, in nanoseconds: nothing runs here but recording.
 *
 * A step of some hundred operations is recorded again and again and thrown away (its results are
 * not wanted, so tri_step_end runs nothing); the median of many steps counts. Gradients are
 * recorded by tri_backward, timed by itself. The flight recorder notes collectives: what it adds to
 * one on a group of one rank, with a folder for it and without. Prints "case<tab>ns" lines for
 * bench/record.sh.
 */
#include <stdio.h>
#include <stdlib.h>

#include <trireme/group.h>
#include <trireme/ops.h>

#include "timing.h"

#define STEPS 400
#define OPS 200

static tri_tensor *zeros(int ndim, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return tri_tensor_create((const int64_t[]){a, b, c, d}, ndim, TRI_DTYPE_F32);
}

static tri_tensor *x, *image, *weight, *bias, *kernel, *scale;

static tri_tensor *record_add(tri_tensor *h)
{
    return tri_add(h, x);
}

static tri_tensor *record_relu(tri_tensor *h)
{
    return tri_relu(h);
}

static tri_tensor *record_linear(tri_tensor *h)
{
    return tri_linear(h, weight, bias);
}

static tri_tensor *record_conv(tri_tensor *h)
{
    return tri_conv(h, kernel, NULL, &(tri_conv_options){.padding = {1, 1}});
}

static tri_tensor *record_norm(tri_tensor *h)
{
    return tri_batch_norm(h, &(tri_batch_norm_args){.weight = scale, .bias = scale, .training = 1});
}

typedef struct bench_case {
    const char *name;
    tri_tensor *(*record)(tri_tensor *h);
    tri_tensor **start;
} bench_case;

static const bench_case cases[] = {
    {"add", record_add, &x},
    {"relu", record_relu, &x},
    {"linear", record_linear, &x},
    {"conv", record_conv, &image},
    {"batch_norm", record_norm, &image},
};

/* Nanoseconds for one operation: recorded, and with its share of the step's end. */
static void time_case(const bench_case *c, double *record_out, double *all_out)
{
    double record[STEPS], all[STEPS];

    for (int s = 0; s < STEPS; s++) {
        tri_tensor *h = *c->start;
        double begin = now_us();

        for (int i = 0; i < OPS; i++)
            h = c->record(h);
        record[s] = (now_us() - begin) * 1e3 / OPS;
        TRI_TRY(tri_tensor_status(h));
        tri_step_end();
        all[s] = (now_us() - begin) * 1e3 / OPS;
    }
    *record_out = median(record, STEPS);
    *all_out = median(all, STEPS);
}

/* Nanoseconds of tri_backward for one operation of a chain of linear and relu. The gradients are
 * bound to their tensors, so each step runs; the operands are empty. */
static double time_backward(void)
{
    double times[STEPS];
    tri_tensor *w = zeros(2, 0, 0, 0, 0), *b = zeros(1, 0, 0, 0, 0), *input = zeros(2, 2, 0, 0, 0);

    tri_requires_grad(w, true);
    tri_requires_grad(b, true);
    for (int s = 0; s < STEPS; s++) {
        tri_tensor *h = input, *loss;
        double begin;

        for (int i = 0; i < OPS / 2; i++)
            h = tri_relu(tri_linear(h, w, b));
        loss = tri_sum(h, NULL, 0, false);
        begin = now_us();
        tri_backward(loss);
        times[s] = (now_us() - begin) * 1e3 / OPS;
        TRI_TRY(tri_step_end_status());
    }
    tri_tensor_unref(w);
    tri_tensor_unref(b);
    tri_tensor_unref(input);
    return median(times, STEPS);
}

/* Nanoseconds of a barrier of one rank: the best of many rounds. */
static double time_barrier(tri_group *group)
{
    enum { CALLS = 20000 };
    double begin = now_us();

    for (int i = 0; i < CALLS; i++)
        TRI_TRY(tri_barrier(group, NULL));
    return (now_us() - begin) * 1e3 / CALLS;
}

/* What a flight record adds: the median difference of neighbouring rounds. folder: its own. */
static double time_flight_record(const char *folder)
{
    double added[STEPS];
    tri_group *with = NULL, *without = NULL;

    unsetenv("TRI_RUN_DIR");
    TRI_TRY(tri_group_create(NULL, 0, 1, NULL, &without));
    setenv("TRI_RUN_DIR", folder, 1);
    TRI_TRY(tri_group_create(NULL, 0, 1, NULL, &with));
    for (int s = 0; s < STEPS; s++) {
        double plain = time_barrier(without);

        added[s] = time_barrier(with) - plain;
    }
    tri_group_unref(with);
    tri_group_unref(without);
    return median(added, STEPS);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        printf("flight record of a call\t%.1f\n", time_flight_record(argv[1]));
    x = zeros(2, 20, 10, 0, 0);
    image = zeros(4, 8, 16, 8, 8);
    weight = zeros(2, 10, 10, 0, 0);
    bias = zeros(1, 10, 0, 0, 0);
    kernel = zeros(4, 16, 16, 3, 3);
    scale = zeros(1, 16, 0, 0, 0);
    tri_requires_grad(weight, true);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double record, all;

        time_case(&cases[i], &record, &all);
        printf("%s\t%.1f\n%s and end of step\t%.1f\n", cases[i].name, record, cases[i].name, all);
    }
    printf("gradient of one operation\t%.1f\n", time_backward());
    tri_tensor_unref(x);
    tri_tensor_unref(image);
    tri_tensor_unref(weight);
    tri_tensor_unref(bias);
    tri_tensor_unref(kernel);
    tri_tensor_unref(scale);
    return 0;
}
