/*
 * fashion.c - train a small residual network on Fashion-MNIST with any number of workers:
 *
 *     build/bin/trirun --standalone --nproc-per-node 2 build/bin/fashion
 *
 * Read it from main() at the end upwards. Every worker runs this same program: it builds the same
 * network, takes its share of every batch, and tri_ddp() averages the gradients, so that all
 * replicas stay equal bit for bit.
 *
 * 60,000 images of 28x28 grey pixels to learn from, 10,000 to test, ten kinds of clothes.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "command_line.h"
#include "fashion_mnist.h"

/* --- the network ---------------------------------------------------------- */

/* 3x3 convolution, batch norm, ReLU: [N, in, H, W] -> [N, out, H, W]. */
static tri_module *conv_block(int64_t in, int64_t out)
{
    return tri_nn_sequential(
        tri_nn_conv2d(in, out, 3, &(tri_nn_conv2d_options){.padding = 1, .no_bias = true}),
        tri_nn_batch_norm2d(out, NULL), tri_nn_relu());
}

/* x + body(x): a module of your own. What it adds to its input is learned, and gradients pass the
 * addition unchanged. */
static void residual_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out)
{
    tri_module **body = tri_module_data(self);

    (void)n_in;
    (void)n_out;
    out[0] = tri_add(in[0], tri_forward(*body, in[0]));
}

static tri_module *residual(int64_t width)
{
    static const tri_module_class type = {
        .name = "residual", .size = sizeof(tri_module *), .forward = residual_forward};
    tri_module *self = tri_module_create(&type);
    tri_module **body = tri_module_data(self);

    if (body != NULL) /* else self carries an error, which its users get */
        *body = tri_module_add_child(
            self, "body", tri_nn_sequential(conv_block(width, width), conv_block(width, width)));
    return self;
}

/* [N, 1, 28, 28] -> [N, 10]; the picture shrinks 28, 14, 7, 1 while the channels grow. */
static tri_module *make_network(int64_t width)
{
    return tri_nn_sequential(
        conv_block(1, width), tri_nn_max_pool2d(2, NULL), /* 28 -> 14 */
        conv_block(width, 2 * width), residual(2 * width), tri_nn_max_pool2d(2, NULL), /* -> 7 */
        conv_block(2 * width, 4 * width), residual(4 * width), tri_nn_adaptive_max_pool2d(1, 1),
        tri_nn_flatten(1), tri_nn_linear(4 * width, 10, NULL));
}

#define PATH_BYTES 4096

/* --- a run ---------------------------------------------------------------- */

static struct settings {
    int64_t workers, epochs, batch, loader_threads, threads, seed, limit, shift, width;
    int64_t bf16; /* 1: multiply in bf16 */
    double lr, weight_decay;
    const char *data, *out, *precision;
    bool resume;
} settings = {
    .epochs = 5, .batch = 128, .width = 16, .lr = 0.1, .weight_decay = 5e-4, .precision = "auto"};

typedef struct run {
    tri_module *model; /* the network, wrapped for data-parallel training */
    tri_optimizer *optimizer;
    tri_loader *train, *test;
    tri_meter *loss, *right;
    tri_progress *progress;
    tri_metrics *metrics; /* of rank 0 */
    char dir[PATH_BYTES - 64];
    int64_t step, total_steps, epoch;
    double seconds_before; /* trained before this run was resumed */
} run;

/* The forward pass, in bf16 if that was chosen: weights and gradients stay f32. */
static tri_tensor *forward(tri_module *model, tri_tensor *x)
{
    tri_tensor *logits;

    if (!settings.bf16)
        return tri_forward(model, x);
    tri_autocast_begin(TRI_DTYPE_BF16);
    logits = tri_forward(model, x);
    tri_autocast_end();
    return logits;
}

/* "FOLDER/NAME" of the run. Its name was checked to be short enough. */
static const char *path_of(const run *r, const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", r->dir, name);
    return path;
}

static double train_seconds(const run *r)
{
    return r->seconds_before + tri_progress_seconds(r->progress);
}

/* What the last steps were like, for the screen and for metrics.jsonl; then the meters begin again.
 */
static void report(run *r)
{
    double loss = tri_meter_value(r->loss), accuracy = tri_meter_value(r->right);

    tri_progress_update(r->progress, r->step * settings.batch,
                        "epoch %lld/%lld  loss %.3f  accuracy %.3f", (long long)r->epoch + 1,
                        (long long)settings.epochs, loss, accuracy);
    if (r->metrics != NULL)
        TRI_TRY(tri_metrics_log(r->metrics, {"step", (double)r->step},
                                {"epoch", (double)r->epoch + 1}, {"loss", loss},
                                {"accuracy", accuracy}, {"lr", tri_optimizer_lr(r->optimizer)},
                                {"samples_per_s", tri_progress_rate(r->progress)}));
    TRI_TRY(tri_meter_reset(r->loss));
    TRI_TRY(tri_meter_reset(r->right));
}

static void train_epoch(run *r)
{
    int64_t steps_per_epoch = tri_loader_length(r->train);
    tri_status status;
    tri_batch batch;

    TRI_TRY(tri_loader_begin(r->train, r->epoch, 0)); /* a new permutation, new flips */
    while ((status = tri_loader_next(r->train, &batch)) == TRI_OK) {
        tri_tensor *x = batch.fields[0], *y = batch.fields[1];
        tri_one_cycle_point now = tri_schedule_one_cycle(
            settings.lr, r->total_steps, r->step,
            &(tri_schedule_one_cycle_options){.pct_start = TRI_SET(0.2), .linear = true});

        /* Nothing below computes yet: operations are noted... */
        tri_tensor *logits = forward(r->model, x);
        tri_tensor *loss =
            tri_cross_entropy(logits, y, &(tri_cross_entropy_options){.label_smoothing = 0.1});
        tri_backward(loss);
        TRI_TRY(tri_meter_add_mean(r->loss, loss, batch.size));
        TRI_TRY(tri_meter_add_count(r->right, tri_count_correct(logits, y), batch.size));

        /* ...and run here, as one plan: gradients are sent while others are still computed. */
        tri_optimizer_set_lr(r->optimizer, now.lr);
        TRI_TRY(tri_optimizer_step(r->optimizer));
        tri_step_end();
        if (++r->step % 20 == 0 || r->step % steps_per_epoch == 0)
            report(r);
    }
    TRI_TRY(status);
}

/* Every worker tests its share of the test images; the counts are added up. An image and its
 * mirror image vote together. */
static double evaluate(run *r)
{
    double counts[2] = {0, 0}; /* right, all */
    tri_status status;
    tri_batch batch;

    /* Batch norm's running statistics follow each worker's own samples; rank 0's are the ones that
     * are saved, so they are the ones to test with. */
    TRI_TRY(tri_ddp_sync_buffers(r->model));
    tri_module_train(r->model, false);
    tri_no_grad_begin();
    TRI_TRY(tri_loader_begin(r->test, 0, 0));
    while ((status = tri_loader_next(r->test, &batch)) == TRI_OK) {
        tri_tensor *x = batch.fields[0];
        tri_tensor *logits = tri_add(forward(r->model, x), forward(r->model, tri_flip(x, 3)));

        counts[0] += tri_item(tri_keep(tri_count_correct(logits, batch.fields[1])));
        counts[1] += (double)batch.size;
        tri_step_end();
    }
    TRI_TRY(status);
    tri_no_grad_end();
    tri_module_train(r->model, true);
    TRI_TRY(tri_all_reduce(NULL, counts, counts, 2, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL));
    return counts[0] / counts[1];
}

/* What a run's numbers depend on: saved with them, and the same when the run is resumed. */
static const struct kept {
    const char *name;
    const int64_t *integer;
    const double *number;
} kept[] = {
    {"workers", &settings.workers, NULL},
    {"--batch-size", &settings.batch, NULL},
    {"--epochs", &settings.epochs, NULL},
    {"--lr", NULL, &settings.lr},
    {"--weight-decay", NULL, &settings.weight_decay},
    {"--width", &settings.width, NULL},
    {"--shift", &settings.shift, NULL},
    {"--limit", &settings.limit, NULL},
    {"--seed", &settings.seed, NULL},
    {"bf16", &settings.bf16, NULL},
};
#define N_KEPT ((int)(sizeof(kept) / sizeof(kept[0])))

static void kept_value(const struct kept *k, char text[32])
{
    if (k->integer != NULL)
        snprintf(text, 32, "%lld", (long long)*k->integer);
    else
        snprintf(text, 32, "%.12g", *k->number);
}

static void save_checkpoint(run *r)
{
    char seconds[32], values[N_KEPT][32], dir[PATH_BYTES];
    tri_metadata meta[N_KEPT + 1];

    for (int i = 0; i < N_KEPT; i++) {
        kept_value(&kept[i], values[i]);
        meta[i] = (tri_metadata){kept[i].name, values[i]};
    }
    snprintf(seconds, sizeof(seconds), "%.6f", train_seconds(r));
    meta[N_KEPT] = (tri_metadata){"train_seconds", seconds};
    TRI_TRY(tri_checkpoint_save(
        path_of(r, "checkpoints", dir), r->model, r->optimizer,
        &(tri_checkpoint_info){
            .step = r->step, .epoch = r->epoch, .meta = meta, .n_meta = N_KEPT + 1},
        NULL));
}

/* After an epoch: test, and rank 0 writes down what there is. */
static double finish_epoch(run *r)
{
    double accuracy;

    tri_progress_pause(r->progress);
    tri_progress_text(r->progress, "epoch %lld/%lld  evaluating", (long long)r->epoch + 1,
                      (long long)settings.epochs);
    accuracy = evaluate(r);
    r->epoch++;
    tri_progress_line(r->progress, "epoch %lld: test accuracy %.4f after %.1f s of training",
                      (long long)r->epoch, accuracy, train_seconds(r));
    if (r->metrics != NULL) {
        TRI_TRY(tri_metrics_log(r->metrics, {"step", (double)r->step}, {"epoch", (double)r->epoch},
                                {"test_accuracy", accuracy}, {"train_seconds", train_seconds(r)}));
        save_checkpoint(r);
    }
    tri_progress_resume(r->progress);
    return accuracy;
}

/* --- beginning and end ---------------------------------------------------- */

/* Every worker comes here with the same mistake. Rank 0 names it; the others wait until rank 0 has
 * ended, so that none of them looks like the cause. */
static _Noreturn void refuse(const char *format, ...) TRI_PRINTF(1, 2);
static _Noreturn void refuse(const char *format, ...)
{
    va_list args;

    if (tri_rank() == 0) {
        fputs("fashion: ", stderr);
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fputc('\n', stderr);
    } else {
        tri_status ended = tri_barrier(NULL, NULL);

        (void)ended;
    }
    exit(2);
}

static bool holds_run(const char *dir)
{
    char path[PATH_BYTES];
    FILE *file;

    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    file = fopen(path, "rb");
    if (file != NULL)
        fclose(file);
    return file != NULL;
}

/* The last runs/fashion-N that holds a run; 0: none. Others may have been removed before it. */
static int64_t last_run(void)
{
    int64_t last = 0;
    char dir[64];

    for (int64_t n = 1; n <= last + 1000; n++) {
        snprintf(dir, sizeof(dir), "runs/fashion-%lld", (long long)n);
        last = holds_run(dir) ? n : last;
    }
    return last;
}

/* --out, else runs/fashion-N. Workers that trirun has restarted resume without being told to. */
static void choose_folder(run *r)
{
    const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT");
    bool restarted = restarts != NULL && strtol(restarts, NULL, 10) > 0;
    int64_t found[2] = {0, 0}; /* what rank 0 sees: the number of the folder; it holds a run */

    if (settings.out != NULL && (settings.out[0] == '\0' || strlen(settings.out) >= sizeof(r->dir)))
        refuse("--out: a name of %zu bytes: must be 1 to %zu", strlen(settings.out),
               sizeof(r->dir) - 1);
    if (tri_rank() == 0 && settings.out != NULL) {
        found[1] = holds_run(settings.out);
    } else if (tri_rank() == 0) {
        found[0] = settings.resume || restarted ? last_run() : 0;
        found[1] = found[0] > 0;
        if (!settings.resume && found[0] == 0)
            TRI_TRY(tri_run_folder_create("runs/fashion-", &found[0]));
    }
    TRI_TRY(tri_broadcast(NULL, found, 2, TRI_DTYPE_I64, 0, NULL));
    if (settings.out != NULL)
        snprintf(r->dir, sizeof(r->dir), "%s", settings.out);
    else
        snprintf(r->dir, sizeof(r->dir), "runs/fashion-%lld", (long long)found[0]);
    if (settings.resume && found[1] == 0)
        refuse("--resume: there is no run in %s; without --resume one starts there",
               settings.out != NULL ? r->dir : "runs/fashion-N");
    if (settings.out != NULL && !settings.resume && !restarted && found[1] != 0)
        refuse("%s holds a run already: --resume continues it, another --out starts a new one",
               r->dir);
    settings.resume = found[1] != 0;
}

/* What depends on the other workers; rank 0's processor decides about --precision auto for all. */
static void check_settings(void)
{
    settings.workers = tri_world_size();
    if (settings.batch % settings.workers != 0)
        refuse("--batch-size %lld is not a multiple of the %lld workers", (long long)settings.batch,
               (long long)settings.workers);
    if (strcmp(settings.precision, "auto") == 0)
        settings.bf16 = tri_is_bf16_fast();
    else if (strcmp(settings.precision, "bf16") == 0)
        settings.bf16 = 1;
    else if (strcmp(settings.precision, "f32") != 0)
        refuse("--precision %s: must be auto, bf16 or f32", settings.precision);
    TRI_TRY(tri_broadcast(NULL, &settings.bf16, 1, TRI_DTYPE_I64, 0, NULL));
}

static void check_same_run(const tri_checkpoint *checkpoint)
{
    for (int i = 0; i < N_KEPT; i++) {
        const char *before = tri_checkpoint_metadata(checkpoint, kept[i].name);
        char now[32];

        kept_value(&kept[i], now);
        if (before != NULL && strcmp(before, now) != 0)
            refuse("--resume: the run was started with %s %s, not %s: results would differ",
                   kept[i].name, before, now);
    }
}

/* Resumes from the newest whole checkpoint, if there is one. */
static void restore(run *r)
{
    tri_checkpoint *checkpoint;
    char dir[PATH_BYTES];
    tri_status status = tri_checkpoint_open(path_of(r, "checkpoints", dir), &checkpoint);

    if (status == TRI_ERR_NOT_FOUND) { /* stopped before its first one? */
        if (tri_rank() == 0)
            printf("no checkpoint in %s: starting from the beginning\n", r->dir);
        return;
    }
    TRI_TRY(status);
    check_same_run(checkpoint);
    TRI_TRY(tri_checkpoint_restore(checkpoint, r->model, r->optimizer));
    r->step = tri_checkpoint_step(checkpoint);
    r->epoch = tri_checkpoint_epoch(checkpoint);
    if (tri_checkpoint_metadata(checkpoint, "train_seconds") != NULL)
        r->seconds_before = strtod(tri_checkpoint_metadata(checkpoint, "train_seconds"), NULL);
    if (tri_rank() == 0)
        printf("resuming from %s\n", tri_checkpoint_path(checkpoint));
    tri_checkpoint_close(checkpoint);
}

/* The training images, shuffled and dealt out to the workers; the test images, cut into shares. */
static void open_data(run *r, tri_dataset **train_out, tri_dataset **test_out,
                      tri_sampler **sampler_out)
{
    static const double mean = 0.2860, std = 0.3530;
    const tri_transform look[] = {tri_transform_random_crop(28, 28, settings.shift),
                                  tri_transform_random_horizontal_flip(0.5),
                                  tri_transform_to_float(),
                                  tri_transform_normalize(&mean, &std, 1)};
    tri_dataset *train, *test;
    int64_t first, end;

    TRI_TRY(fashion_mnist(settings.data, true, &train));
    TRI_TRY(fashion_mnist(settings.data, false, &test));
    if (settings.limit > 0 && settings.limit < tri_dataset_length(train))
        TRI_TRY(tri_dataset_subset(train, 0, settings.limit, &train));
    if (tri_dataset_length(train) < settings.batch)
        refuse("fewer images (%lld) than one batch (%lld)", (long long)tri_dataset_length(train),
               (long long)settings.batch);
    first = tri_dataset_length(test) * tri_rank() / tri_world_size();
    end = tri_dataset_length(test) * (tri_rank() + 1) / tri_world_size();
    TRI_TRY(tri_dataset_subset(test, first, end - first, &test));
    TRI_TRY(tri_dataset_transform(test, look + 2, 2, test_out));
    TRI_TRY(tri_dataset_transform(train, look, 4, train_out));

    TRI_TRY(tri_sampler_distributed(
        tri_dataset_length(*train_out),
        &(tri_sampler_distributed_options){.drop_last = true, .seed = (uint64_t)settings.seed},
        sampler_out));
    TRI_TRY(tri_loader_create(*train_out, *sampler_out, settings.batch / tri_world_size(),
                              &(tri_loader_options){.n_threads = (int)settings.loader_threads,
                                                    .drop_last = true,
                                                    .seed = (uint64_t)settings.seed},
                              &r->train));
    TRI_TRY(tri_loader_create(*test_out, NULL, 500, NULL, &r->test));
}

static void finish(run *r, double accuracy)
{
    char path[PATH_BYTES];

    if (tri_rank() != 0)
        return;
    TRI_TRY(tri_save(r->model, path_of(r, "model.safetensors", path)));
    printf("training time %.1f s, test accuracy %.4f\n"
           "in %s: model.safetensors, metrics.jsonl, checkpoints\n"
           "to see the curves:\n%strireme plot %s/metrics.jsonl -o %s/curves.png\n",
           train_seconds(r), accuracy, r->dir, program_folder, r->dir, r->dir);
}

static void parse_options(int argc, char **argv)
{
    static const char usage[] =
        "usage: fashion [options]\n\nTrains a small residual network on Fashion-MNIST; with "
        "several "
        "workers:\n  trirun --standalone --nproc-per-node 2 fashion --epochs 5";
    const option options[] = {
        {.name = "--epochs", .integer = &settings.epochs, .min = 1, .help = "(5)"},
        {.name = "--batch-size",
         .integer = &settings.batch,
         .min = 1,
         .help = "samples of a step, all workers together (128)"},
        {.name = "--lr", .number = &settings.lr, .help = "highest learning rate (0.1)"},
        {.name = "--weight-decay", .number = &settings.weight_decay, .help = "(0.0005)"},
        {.name = "--width",
         .integer = &settings.width,
         .min = 1,
         .help = "channels of the first layer (16)"},
        {.name = "--shift",
         .integer = &settings.shift,
         .help = "move images by up to N pixels (0)"},
        {.name = "--precision",
         .text = &settings.precision,
         .value = "NAME",
         .help = "bf16, f32 or auto: bf16 where the processor multiplies it faster (auto)"},
        {.name = "--seed", .integer = &settings.seed, .help = "(0)"},
        {.name = "--threads",
         .integer = &settings.threads,
         .max = 1024,
         .help = "of each worker, to compute (0: cores / workers)"},
        {.name = "--loader-threads",
         .integer = &settings.loader_threads,
         .help = "of each worker, to prepare batches (0)"},
        {.name = "--limit",
         .integer = &settings.limit,
         .help = "train on the first N images only (0: all)"},
        {.name = "--data",
         .text = &settings.data,
         .help = "folder of the four files (" FASHION_MNIST_DIR ")"},
        {.name = "--out", .text = &settings.out, .help = "results (runs/fashion-1, -2, ...)"},
        {.name = "--resume",
         .flag = &settings.resume,
         .help = "continue the run in --out, or the last runs/fashion-N, with the same options"},
    };

    options_parse(argc, argv, usage, options);
    if (settings.threads > 0)
        TRI_TRY(tri_num_threads_set((int)settings.threads));
}

int main(int argc, char **argv)
{
    tri_dataset *train, *test;
    tri_sampler *sampler;
    double accuracy = NAN;
    char path[PATH_BYTES];
    run r = {0};

    parse_options(argc, argv);
    TRI_TRY(tri_init(NULL)); /* rank and number of workers: from trirun */
    check_settings();
    tri_manual_seed((uint64_t)settings.seed);
    r.model = tri_ddp(make_network(settings.width), NULL);
    r.optimizer =
        tri_sgd(r.model, settings.lr,
                &(tri_sgd_options){
                    .momentum = 0.9, .nesterov = true, .weight_decay = settings.weight_decay});
    open_data(&r, &train, &test, &sampler);
    choose_folder(&r);
    if (settings.resume)
        restore(&r);
    r.total_steps = settings.epochs * tri_loader_length(r.train);
    if (r.step > r.total_steps) /* other data than before */
        refuse("this run already did %lld steps, --epochs %lld has %lld", (long long)r.step,
               (long long)settings.epochs, (long long)r.total_steps);
    if (tri_rank() == 0)
        printf("a checkpoint after every epoch; to continue this run:\n"
               "the same options and --resume --out %s\n",
               r.dir);

    TRI_TRY(tri_meter_create(&r.loss));
    TRI_TRY(tri_meter_create(&r.right));
    if (tri_rank() == 0)
        TRI_TRY(tri_metrics_open(path_of(&r, "metrics.jsonl", path), settings.resume ? r.step : -1,
                                 &r.metrics));
    TRI_TRY(tri_progress_create(r.total_steps * settings.batch, r.step * settings.batch, "samples",
                                &(tri_progress_options){.quiet = tri_rank() != 0}, &r.progress));

    while (r.epoch < settings.epochs) {
        train_epoch(&r);
        accuracy = finish_epoch(&r);
    }
    tri_progress_pause(r.progress);
    if (isnan(accuracy)) /* everything was done already */
        accuracy = evaluate(&r);
    finish(&r, accuracy);

    tri_progress_destroy(r.progress);
    tri_metrics_close(r.metrics);
    tri_meter_destroy(r.right);
    tri_meter_destroy(r.loss);
    tri_loader_destroy(r.test);
    tri_loader_destroy(r.train);
    tri_sampler_destroy(sampler);
    tri_dataset_destroy(test);
    tri_dataset_destroy(train);
    tri_optimizer_destroy(r.optimizer);
    tri_module_destroy(r.model);
    tri_finalize();
    return 0;
}
