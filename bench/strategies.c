/*
 * strategies.c - a training step of a residual network by one of the strategies of
 * docs/PARALLEL.md:
 *
 *     bench_strategies STRATEGY MODEL BATCH SIZE STEPS [PIECES]
 *
 * prints the shortest of STEPS steps in milliseconds and the most memory, in MiB, that a process
 * has had (of several ranks the most). MODEL is resnet18, resnet50 or mlp:A,B,..; BATCH is that of
 * all workers together; images are 3 x SIZE x SIZE, rows of an mlp have SIZE numbers. BENCH_CPU=1
 * counts processor time. Strategies:
 *
 *     one            one process, one device of all its threads
 *     recompute      the same; each residual block is computed again for backward
 *     accumulate     the same; PIECES batches one after the other make one update
 *     data_parallel  one process, two devices, a half of the batch on each
 *     cut            one process, two devices, the first half of the network on one of them
 *     pipelined      the same; the batch goes through in PIECES, of which both devices have some
 *     ddp            DDP, under trirun
 *     ddp_sync       the same, with SyncBatchNorm
 *     ddp_bf16       DDP whose buckets are sent as bf16
 *     zero1 to zero3 tri_zero of that stage, under trirun
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "timing.h"

#define CLASSES 1000

typedef struct task {
    const char *strategy;
    int64_t batch, size, pieces;
    tri_module *model;
    tri_optimizer *opt;
    tri_tensor *x, *y;
} task;

static bool is(const task *t, const char *strategy)
{
    return strcmp(t->strategy, strategy) == 0;
}

/* Of tri_zero; 0: another strategy. */
static int zero_stage(const task *t)
{
    return strncmp(t->strategy, "zero", 4) == 0 ? (int)strtol(t->strategy + 4, NULL, 10) : 0;
}

static bool has_ranks(const task *t)
{
    return strncmp(t->strategy, "ddp", 3) == 0 || zero_stage(t) > 0;
}

/* --- strategies ----------------------------------------------------------- */

static void to_second(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                      void *arg)
{
    (void)self, (void)n_in, (void)out, (void)n_out, (void)arg;
    in[0] = tri_to(in[0], TRI_CPU(1));
}

/* As the tutorial on model parallelism cuts it: layer3 and what follows are the second half. */
static void cut(tri_module *net)
{
    static const char *const second[] = {"layer3", "layer4", "fc"};

    for (int i = 0; i < 3; i++)
        TRI_TRY(tri_module_to(tri_module_submodule(net, second[i]), TRI_CPU(1)));
    TRI_TRY(tri_module_add_forward_pre_hook(tri_module_submodule(net, "layer3"), to_second, NULL,
                                            NULL));
}

static void recompute_blocks(tri_module *net)
{
    for (int layer = 1; layer <= 4; layer++) {
        char name[16];
        tri_module *blocks;

        snprintf(name, sizeof(name), "layer%d", layer);
        blocks = tri_module_submodule(net, name);
        for (int i = 0; i < tri_module_child_count(blocks); i++)
            tri_module_set_recompute(tri_module_child(blocks, i), true);
    }
}

static void compose(task *t, const char *model)
{
    tri_module *net = tri_model_by_name(model, CLASSES);

    TRI_TRY(tri_module_status(net));
    if (is(t, "recompute"))
        recompute_blocks(net);
    if (is(t, "cut") || is(t, "pipelined"))
        cut(net);
    if (is(t, "data_parallel"))
        net = tri_data_parallel(net, NULL);
    if (is(t, "ddp_sync") && tri_convert_sync_batch_norm(net, NULL) == 0)
        exit(1);
    if (zero_stage(t) > 0)
        net = tri_zero(net, &(tri_zero_options){.stage = zero_stage(t)});
    else if (has_ranks(t))
        net = tri_ddp(net,
                      &(tri_ddp_options){.hook = is(t, "ddp_bf16") ? tri_bucket_hook_bf16 : NULL});
    TRI_TRY(tri_module_status(net));
    t->model = net;
    t->opt = tri_sgd(net, 0.001, &(tri_sgd_options){.momentum = 0.9});
}

/* --- steps ---------------------------------------------------------------- */

static void make_data(task *t, bool images)
{
    int64_t *labels = calloc((size_t)t->batch, sizeof(*labels));

    for (int64_t i = 0; i < t->batch; i++)
        labels[i] = i * 37 % CLASSES;
    t->x = images ? tri_tensor_create(TRI_SHAPE(t->batch, 3, t->size, t->size), TRI_DTYPE_F32)
                  : tri_tensor_create(TRI_SHAPE(t->batch, t->size), TRI_DTYPE_F32);
    t->y = tri_tensor_from(TRI_SHAPE(t->batch), TRI_DTYPE_I64, labels);
    TRI_TRY(tri_init_uniform(t->x, -1, 1));
    free(labels);
}

static double step(const task *t)
{
    double begin = cost_us();
    int64_t n = t->batch / t->pieces;

    for (int64_t p = 0; p < t->pieces; p++) {
        tri_tensor *x = t->pieces > 1 ? tri_narrow(t->x, 0, p * n, n) : t->x;
        tri_tensor *y = t->pieces > 1 ? tri_narrow(t->y, 0, p * n, n) : t->y;
        tri_tensor *out = tri_forward(t->model, x);
        tri_tensor *loss = tri_cross_entropy(out, tri_to(y, tri_tensor_device(out)), NULL);

        tri_backward(t->pieces > 1 ? tri_mul_scalar(loss, 1.0 / (double)t->pieces) : loss);
        if (is(t, "accumulate"))
            TRI_TRY(tri_run()); /* of this piece; its activations are free again */
    }
    TRI_TRY(tri_optimizer_step(t->opt));
    TRI_TRY(tri_step_end_status());
    return (cost_us() - begin) / 1e3;
}

static double peak_mib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    double kib = 0;

    while (file != NULL && kib == 0 && fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, "VmHWM: %lf kB", &kib);
    if (file != NULL)
        fclose(file);
    return kib / 1024;
}

/* Of all ranks the slowest and the largest. */
static void report(const task *t, double ms)
{
    double most[2] = {ms, peak_mib()};

    if (has_ranks(t))
        TRI_TRY(tri_all_reduce(NULL, most, most, 2, TRI_DTYPE_F64, TRI_REDOP_MAX, NULL));
    if (tri_rank() == 0)
        printf("%.3f %.1f\n", most[0], most[1]);
}

int main(int argc, char **argv)
{
    task t = {.pieces = 1};
    double shortest = INFINITY;
    int steps;

    if (argc < 6) {
        fprintf(stderr, "usage: %s STRATEGY MODEL BATCH SIZE STEPS [PIECES]\n", argv[0]);
        return 2;
    }
    t.strategy = argv[1];
    t.batch = strtol(argv[3], NULL, 10);
    t.size = strtol(argv[4], NULL, 10);
    steps = (int)strtol(argv[5], NULL, 10);
    if (argc > 6)
        t.pieces = strtol(argv[6], NULL, 10);
    if (is(&t, "data_parallel") || is(&t, "cut") || is(&t, "pipelined"))
        TRI_TRY(tri_cpu_devices_set(2));
    if (has_ranks(&t)) {
        TRI_TRY(tri_init(NULL));
        t.batch /= tri_world_size();
    }
    compose(&t, argv[2]);
    make_data(&t, strncmp(argv[2], "mlp", 3) != 0);
    for (int i = 0; i < 2; i++)
        (void)step(&t); /* which compile */
    for (int i = 0; i < steps; i++)
        shortest = fmin(shortest, step(&t));
    report(&t, shortest);
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    tri_tensor_unref(t.x);
    tri_tensor_unref(t.y);
    if (has_ranks(&t))
        tri_finalize();
    return 0;
}
