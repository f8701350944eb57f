/*
 * model_parallel.c - ResNet-50 on two devices of one process: the model parallel tutorial of
 * PyTorch, with its three ways to train and its charts.
 *
 *     TRI_NUM_THREADS=2 build/bin/model_parallel
 *     build/bin/trireme plot --bars model_parallel.jsonl -o mp_vs_rn.png \
 *         --keys single_device+model_parallel --y-label "seconds a batch"
 *     TRI_TRACE=step.json build/bin/model_parallel --split-size 8 --repeats 1 --output /dev/null
 *     build/bin/trireme plot --timeline step.json -o timeline.png
 *
 * The stem to layer2 lie on cpu:0, layer3 to the head on cpu:1. A whole batch leaves one of the
 * two idle; cut into pieces, one device computes a piece while the other has the next. There is no
 * schedule to write: what does not depend on each other runs at the same time.
 */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "command_line.h"

#define MAX_SPLITS 64
#define MAX_TRAININGS (2 + MAX_SPLITS)

static struct settings {
    int64_t devices, batch, image, classes, width, batches, repeats, split;
    double lr;
    bool f64;
    const char *output;
} settings = {.devices = 2,
              .batch = 32,
              .image = 128,
              .classes = 1000,
              .width = 64,
              .batches = 1,
              .repeats = 10,
              .lr = 0.001,
              .output = "model_parallel.jsonl"};

static const char usage[] =
    "usage: model_parallel [options]\n\n"
    "Trains ResNet-50 on one device, on two devices that take turns, and on two that work at the\n"
    "same time on pieces of a batch, and prints how long each takes for a batch. A device has its\n"
    "share of the threads: with two devices, one has half of them.";

/* --- the network ---------------------------------------------------------- */

static tri_device second_device(void)
{
    return TRI_CPU(settings.devices > 1 ? 1 : 0);
}

static tri_module *model_create(void)
{
    tri_manual_seed(0); /* every training starts from the same weights */
    return tri_model_resnet_of_width(50, settings.width, settings.classes);
}

static tri_module *model_parallel_create(void)
{
    static const char *const second_half[] = {"layer3", "layer4", "fc"};
    tri_module *net = model_create();

    for (int i = 0; i < 3; i++)
        TRI_TRY(tri_module_to(tri_module_submodule(net, second_half[i]), second_device()));
    return net;
}

/* One forward pass: images of cpu:0 -> logits, on the device of the last layer. */
typedef tri_tensor *forward_fn(tri_module *net, tri_tensor *images, int64_t split);

static tri_tensor *single_device(tri_module *net, tri_tensor *images, int64_t split)
{
    (void)split;
    return tri_forward(net, images);
}

static tri_tensor *model_parallel(tri_module *net, tri_tensor *images, int64_t split)
{
    (void)split;
    return tri_model_resnet_second_half(
        net, tri_to(tri_model_resnet_first_half(net, images), second_device()));
}

static int64_t count_pieces(int64_t split)
{
    return settings.batch / split + (settings.batch % split > 0);
}

/* Pieces of `split` samples, the last of which may be smaller. */
static int pieces_of(tri_tensor *batch, int64_t split, tri_tensor **pieces)
{
    int64_t size = tri_tensor_size(batch, 0);
    int n = 0;

    for (int64_t at = 0; at < size; at += split)
        pieces[n++] = tri_narrow(batch, 0, at, split < size - at ? split : size - at);
    return n;
}

static tri_tensor *pipelined(tri_module *net, tri_tensor *images, int64_t split)
{
    tri_tensor *pieces[MAX_SPLITS];
    int n = pieces_of(images, split, pieces);

    for (int i = 0; i < n; i++)
        pieces[i] = model_parallel(net, pieces[i], split);
    return tri_concat(pieces, n, 0);
}

/* --- training ------------------------------------------------------------- */

typedef struct training {
    char name[32]; /* the key of its seconds in the file */
    forward_fn *forward;
    int64_t split;
    tri_module *net;
    tri_optimizer *opt;
    double *seconds; /* [repeats] of a batch */
    double mean, std, loss;
} training;

typedef struct data {
    tri_tensor *images, *labels; /* labels: one-hot */
} data;

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static data data_create(void)
{
    tri_dtype dtype = tri_default_dtype();
    tri_tensor *wanted;
    data d;

    tri_manual_seed(1);
    wanted = tri_rand(TRI_SHAPE(settings.batch), TRI_DTYPE_F32);
    wanted = tri_cast(tri_mul_scalar(wanted, (double)settings.classes), TRI_DTYPE_I64);
    d.labels = tri_tensor_clone(tri_cast(tri_one_hot(wanted, settings.classes), dtype));
    d.images = tri_tensor_clone(
        tri_randn(TRI_SHAPE(settings.batch, 3, settings.image, settings.image), dtype));
    TRI_TRY(tri_step_end_status());
    return d;
}

static void train(training *t, const data *d, int64_t batches)
{
    for (int64_t i = 0; i < batches; i++) {
        tri_tensor *outputs = t->forward(t->net, d->images, t->split);
        tri_tensor *labels = tri_to(d->labels, tri_tensor_device(outputs));
        tri_tensor *loss = tri_mse_loss(outputs, labels, NULL);

        tri_backward(loss);
        TRI_TRY(tri_optimizer_step(t->opt));
        TRI_TRY(tri_item_status(loss, &t->loss));
        TRI_TRY(tri_step_end_status());
    }
}

static void mean_and_std(const double *values, int64_t n, double *mean, double *std)
{
    double sum = 0, squares = 0;

    for (int64_t i = 0; i < n; i++)
        sum += values[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (values[i] - *mean) * (values[i] - *mean);
    *std = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
}

static double *seconds_create(void)
{
    double *seconds = calloc((size_t)settings.repeats, sizeof(*seconds));

    if (seconds == NULL) {
        fprintf(stderr, "model_parallel: no memory for %lld times\n", (long long)settings.repeats);
        exit(1);
    }
    return seconds;
}

static void training_add(training *all, int *n, const char *name, forward_fn *forward,
                         int64_t split)
{
    training *t = &all[(*n)++];

    *t = (training){.forward = forward, .split = split};
    snprintf(t->name, sizeof(t->name), "%s", name);
    t->net = forward == single_device ? model_create() : model_parallel_create();
    t->opt = tri_sgd(t->net, settings.lr, NULL);
    t->seconds = seconds_create();
}

static int trainings_create(training *all)
{
    int64_t split = settings.split > 0 ? settings.split : 1;
    int n = 0;

    training_add(all, &n, "single_device", single_device, settings.batch);
    training_add(all, &n, "model_parallel", model_parallel, settings.batch);
    do {
        char name[32];

        if (count_pieces(split) <= MAX_SPLITS) {
            snprintf(name, sizeof(name), "split_%lld", (long long)split);
            training_add(all, &n, name, pipelined, split);
        }
        split *= 2;
    } while (settings.split == 0 && split <= settings.batch);
    return n;
}

/* In turns, since machines drift; each batch's plan is made before anything is timed. */
static training *run_all(training *all, int n, const data *d)
{
    training *best = &all[2];

    for (int64_t repeat = -1; repeat < settings.repeats; repeat++) {
        for (int i = 0; i < n; i++) {
            double begin = now();

            train(&all[i], d, repeat < 0 ? 1 : settings.batches);
            if (repeat >= 0)
                all[i].seconds[repeat] = (now() - begin) / (double)settings.batches;
        }
    }
    for (int i = 0; i < n; i++) {
        mean_and_std(all[i].seconds, settings.repeats, &all[i].mean, &all[i].std);
        if (i >= 2 && all[i].mean < best->mean)
            best = &all[i];
    }
    return best;
}

/* --- what a pipeline can reach -------------------------------------------- */

/* What is timed: the work that there is in any order, and a batch by all of it. */
enum { FIRST_HALF, SECOND_HALF, FIRST_PIECE, PIPELINED, PARTS };

static double end_of_batch(const training *t, double begin)
{
    TRI_TRY(tri_optimizer_step(t->opt));
    TRI_TRY(tri_step_end_status());
    return now() - begin;
}

/* Seconds of all pieces of a batch through the first half alone: forward, backward, with gradients
 * of any value of what it makes, and update. */
static double first_half_seconds(const training *t, tri_tensor *images, tri_tensor *gradients)
{
    tri_tensor *pieces[MAX_SPLITS], *seeds[MAX_SPLITS];
    double begin = now();
    int n = pieces_of(images, t->split, pieces);

    for (int i = 0; i < n; i++)
        pieces[i] = tri_model_resnet_first_half(t->net, pieces[i]);
    (void)pieces_of(gradients, t->split, seeds);
    tri_backward_of(pieces, n, &(tri_backward_options){.seeds = seeds});
    return end_of_batch(t, begin);
}

/* The same of the second half, which makes gradients of its inputs, too. */
static double second_half_seconds(const training *t, tri_tensor *inputs, tri_tensor *labels)
{
    tri_tensor *pieces[MAX_SPLITS], *outputs[MAX_SPLITS];
    int n = pieces_of(inputs, t->split, pieces);
    double begin, seconds;

    for (int i = 0; i < n; i++)
        (void)tri_keep(pieces[i]);
    for (int i = 0; i < n; i++) {
        pieces[i] = tri_tensor_clone(pieces[i]);
        tri_requires_grad(pieces[i], true);
    }
    TRI_TRY(tri_step_end_status());
    begin = now();
    for (int i = 0; i < n; i++)
        outputs[i] = tri_model_resnet_second_half(t->net, pieces[i]);
    tri_backward(tri_mse_loss(tri_concat(outputs, n, 0), labels, NULL));
    seconds = end_of_batch(t, begin);
    for (int i = 0; i < n; i++)
        tri_tensor_unref(pieces[i]);
    return seconds;
}

/* Seconds until the second half has something to do. */
static double first_piece_seconds(const training *t, tri_tensor *images)
{
    double begin = now();

    TRI_NO_GRAD
    {
        (void)tri_keep(tri_model_resnet_first_half(t->net, tri_narrow(images, 0, 0, t->split)));
        TRI_TRY(tri_run());
    }
    TRI_TRY(tri_step_end_status());
    return now() - begin;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof(*values), ascending);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* In turns with the pipeline, whose machine they are to be compared on. */
static void time_parts(training *t, const training *halves, const data *d, double *seconds[PARTS])
{
    tri_tensor *between = NULL, *there, *labels;

    TRI_NO_GRAD
    {
        between = tri_tensor_clone(tri_model_resnet_first_half(halves->net, d->images));
    }
    there = tri_tensor_clone(tri_to(between, second_device()));
    labels = tri_tensor_clone(tri_to(d->labels, second_device()));
    TRI_TRY(tri_step_end_status());
    for (int64_t repeat = -1; repeat < settings.repeats; repeat++) {
        double now_taken[PARTS], begin;

        now_taken[FIRST_HALF] = first_half_seconds(halves, d->images, between);
        now_taken[SECOND_HALF] = second_half_seconds(halves, there, labels);
        now_taken[FIRST_PIECE] = first_piece_seconds(halves, d->images);
        begin = now();
        train(t, d, 1);
        now_taken[PIPELINED] = now() - begin;
        for (int part = 0; part < PARTS && repeat >= 0; part++)
            seconds[part][repeat] = now_taken[part];
    }
    tri_tensor_unref(between);
    tri_tensor_unref(there);
    tri_tensor_unref(labels);
}

/* Each device has the work of its half, and the second can not begin before it has the first
 * piece. */
static void print_bound(training *t, const data *d)
{
    training halves = *t;
    double *seconds[PARTS], medians[PARTS], bound;

    halves.net = model_parallel_create();
    halves.opt = tri_sgd(halves.net, 0, NULL); /* gradients of any value must not lead anywhere */
    for (int part = 0; part < PARTS; part++)
        seconds[part] = seconds_create();
    time_parts(t, &halves, d, seconds);
    for (int part = 0; part < PARTS; part++) {
        medians[part] = median(seconds[part], settings.repeats);
        free(seconds[part]);
    }
    bound = fmax(medians[FIRST_HALF], medians[FIRST_PIECE] + medians[SECOND_HALF]);
    printf(
        "\n%s: the halves alone take %.3f and %.3f s, the latter once a first piece is there, at\n"
        "%.3f s. So a batch takes at least %.3f s, and took %.3f s:\n"
        "%.1f %% of what that allows is reached\n",
        t->name, medians[FIRST_HALF], medians[SECOND_HALF], medians[FIRST_PIECE], bound,
        medians[PIPELINED], 100 * bound / medians[PIPELINED]);
    tri_optimizer_destroy(halves.opt);
    tri_module_destroy(halves.net);
}

/* --- the results ---------------------------------------------------------- */

static void write_times(const training *all, int n, const training *best)
{
    tri_metric values[MAX_TRAININGS + 2];
    tri_metrics *metrics;

    TRI_TRY(tri_metrics_open(settings.output, -1, &metrics));
    for (int64_t repeat = 0; repeat < settings.repeats; repeat++) {
        values[0] = (tri_metric){"step", (double)repeat + 1};
        for (int i = 0; i < n; i++)
            values[1 + i] = (tri_metric){all[i].name, all[i].seconds[repeat]};
        values[1 + n] = (tri_metric){"pipelined", best->seconds[repeat]};
        TRI_TRY(tri_metrics_write(metrics, values, n + 2));
    }
    tri_metrics_close(metrics);
}

static void print_times(const training *all, int n)
{
    printf("%lld measurement%s of %lld batch%s of %lld images, %lld x %lld\n\n",
           (long long)settings.repeats, settings.repeats == 1 ? "" : "s",
           (long long)settings.batches, settings.batches == 1 ? "" : "es",
           (long long)settings.batch, (long long)settings.image, (long long)settings.image);
    printf("%-16s %16s %9s %8s %20s\n", "", "seconds a batch", "std", "speed", "loss");
    for (int i = 0; i < n; i++)
        printf("%-16s %16.4f %9.4f %7.2fx %20.15f\n", all[i].name, all[i].mean, all[i].std,
               all[0].mean / all[i].mean, all[i].loss);
}

/* trireme lies beside the program. */
static void print_charts(const training *all, int n)
{
    static const char *const charts[2][2] = {
        {"mp_vs_rn.png", "single_device+model_parallel"},
        {"mp_vs_rn_vs_pp.png", "single_device+model_parallel+pipelined"}};

    printf("\nfor the charts:\n");
    for (int i = 0; i < 2; i++)
        printf("%strireme plot --bars %s -o %s --keys %s --y-label \"seconds a batch\"\n",
               program_folder, settings.output, charts[i][0], charts[i][1]);
    printf("%strireme plot --bars %s -o split_size_tradeoff.png --y-label \"seconds a batch\" "
           "--keys ",
           program_folder, settings.output);
    for (int i = 2; i < n; i++)
        printf("%s%s", all[i].name, i + 1 < n ? "+" : "\n");
}

static void parse(int argc, char **argv)
{
    tri_metrics *metrics;
    const option options[] = {
        {.name = "--devices",
         .help = "1 or 2; with 1 both halves are on it (2)",
         .integer = &settings.devices,
         .min = 1,
         .max = 2},
        {.name = "--batch-size", .help = "images (32)", .integer = &settings.batch, .min = 1},
        {.name = "--image-size",
         .help = "height and width in pixels (128)",
         .integer = &settings.image,
         .min = 1},
        {.name = "--classes", .help = "outputs (1000)", .integer = &settings.classes, .min = 1},
        {.name = "--width",
         .help = "channels of layer1; ResNet-50 has 64 (64)",
         .integer = &settings.width,
         .min = 1},
        {.name = "--batches",
         .help = "trained in one measurement (1)",
         .integer = &settings.batches,
         .min = 1},
        {.name = "--repeats", .help = "measurements (10)", .integer = &settings.repeats, .min = 1},
        {.name = "--lr", .help = "learning rate (0.001)", .number = &settings.lr},
        {.name = "--split-size",
         .help = "images of a piece (0: all of 1, 2, 4, .. in turn)",
         .integer = &settings.split,
         .min = 0},
        {.name = "--f64", .help = "double precision", .flag = &settings.f64},
        {.name = "--output",
         .help = "seconds of each measurement (model_parallel.jsonl)",
         .text = &settings.output},
    };

    options_parse(argc, argv, usage, options);
    if (settings.split > 0 && count_pieces(settings.split) > MAX_SPLITS)
        options_refuse(
            "--split-size %lld cuts a batch of %lld into %lld pieces; at most %d are possible",
            (long long)settings.split, (long long)settings.batch,
            (long long)count_pieces(settings.split), MAX_SPLITS);
    /* --output can be written: not to be found out after minutes of training. What an earlier run
     * has left there stays until the end of this one. */
    TRI_TRY(tri_metrics_open(settings.output, INT64_MAX, &metrics));
    tri_metrics_close(metrics);
}

int main(int argc, char **argv)
{
    static training all[MAX_TRAININGS];
    training *best;
    data d;
    int n;

    parse(argc, argv);
    TRI_TRY(tri_cpu_devices_set((int)settings.devices));
    tri_set_default_dtype(settings.f64 ? TRI_DTYPE_F64 : TRI_DTYPE_F32);
    d = data_create();
    n = trainings_create(all);
    best = run_all(all, n, &d);
    print_times(all, n);
    print_bound(best, &d);
    write_times(all, n, best);
    if (strcmp(settings.output, "/dev/null") != 0)
        print_charts(all, n);
    for (int i = 0; i < n; i++) {
        tri_optimizer_destroy(all[i].opt);
        tri_module_destroy(all[i].net);
        free(all[i].seconds);
    }
    tri_tensor_unref(d.images);
    tri_tensor_unref(d.labels);
    return 0;
}
