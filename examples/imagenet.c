/*
 * imagenet.c - PyTorch's two ImageNet examples (pytorch/examples and pytorch/elastic) as one
 * program: trains a network on a folder of images, with any number of workers.
 *
 *     scripts/make_tiny_imagenet --out tiny-imagenet-200
 *     build/bin/trirun --standalone --nproc-per-node 2 build/bin/imagenet --arch resnet18 \
 *         --epochs 20 --batch-size 32 tiny-imagenet-200
 *
 * DIR has train/CLASS/.., and val/CLASS/.. or the val/ of tiny-imagenet-200 as it is. Flags and
 * printed lines (imagenet_lines.h) are theirs; where the two differ, the elastic one's: -b is of
 * one worker. Evaluation counts each image once. --checkpoint-file makes it elastic: a job that is
 * started again, or whose workers were replaced, continues from the newest checkpoint.
 */
#include <trireme/models.h>
#include <trireme/trireme.h>

#include "fit_options.h"
#include "imagenet_lines.h"
#include "pretrained.h"

static struct settings {
    int64_t workers, epochs, start_epoch, batch, print_freq, classes, threads, seed, size;
    double lr, momentum, weight_decay;
    const char *arch, *backend, *checkpoints, *resume, *weights, *dir;
    bool evaluate, pretrained, no_accel;
} settings = {.arch = "resnet18",
              .epochs = 90,
              .batch = 32,
              .print_freq = 10,
              .size = 224,
              .lr = 0.1,
              .momentum = 0.9,
              .weight_decay = 1e-4};

/* --- what is trained ------------------------------------------------------ */

static tri_module *model(void *arg)
{
    tri_module *net = tri_model_by_name(settings.arch, settings.classes);
    /* Published weights have 1000 classes: for another number the last layer starts from its
     * initial values. */
    const tri_load_options load = {.partial = settings.pretrained && settings.classes != 1000};

    (void)arg;
    if (tri_rank() == 0)
        printf(settings.weights != NULL ? "=> using pre-trained model '%s'\n"
                                        : "=> creating model: %s\n",
               settings.arch);
    if (settings.weights != NULL)
        TRI_TRY(tri_load(net, settings.weights, &load));
    return net;
}

static tri_optimizer *optimizer(tri_module *net, void *arg)
{
    (void)arg;
    return tri_sgd(
        net, settings.lr,
        &(tri_sgd_options){.momentum = settings.momentum, .weight_decay = settings.weight_decay});
}

/* x 0.1 every 30 epochs. */
static double lr(double rate, int64_t step, int64_t total_steps, void *arg)
{
    int64_t epochs = settings.epochs - settings.start_epoch;

    (void)arg;
    return tri_schedule_step(rate, 30, 0.1, settings.start_epoch + step * epochs / total_steps);
}

static tri_tensor *step_of(tri_trainer *t, const tri_batch *batch, lines *l, bool evaluating)
{
    int64_t k = settings.classes < 5 ? settings.classes : 5;
    tri_tensor *labels = batch->fields[1], *top5;
    tri_tensor *logits = tri_forward(tri_trainer_model(t), batch->fields[0]);
    tri_tensor *loss = tri_cross_entropy(logits, labels, NULL);
    tri_tensor *top1 = tri_count_correct(logits, labels);

    (void)tri_topk(logits, k, 1, false, &top5);
    top5 = tri_cast(tri_eq(top5, tri_unsqueeze(labels, 1)), TRI_DTYPE_F32);
    top5 = tri_sum(top5, NULL, 0, false);
    lines_add(l, loss, top1, top5, batch->size);
    if (evaluating) {
        tri_trainer_log(t, "val_loss", loss, NULL);
        tri_trainer_log(t, "val_acc1", top1, &(tri_trainer_log_options){.count = true});
        tri_trainer_log(t, "val_acc5", top5, &(tri_trainer_log_options){.count = true});
    }
    return loss;
}

static tri_tensor *training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    return step_of(t, batch, arg, false);
}

static void validation_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    lines *l = arg;

    lines_loaded(l, batch->index);
    (void)step_of(t, batch, l, true);
    (void)tri_meter_sum(l->means[LINES_LOSS]); /* runs it, so that the line has its time */
    lines_print(l, "Test: ", batch->index, false);
}

/* --- data ----------------------------------------------------------------- */

static tri_dataset *open_folder(const char *name, tri_dataset *train, tri_transform cut,
                                tri_transform then)
{
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    const tri_transform look[] = {cut, then, tri_transform_to_float(),
                                  tri_transform_normalize(mean, std, 3)};
    char path[PRETRAINED_PATH];
    tri_dataset *dataset;

    snprintf(path, sizeof(path), "%s/%s", settings.dir, name);
    TRI_TRY(tri_dataset_image_folder(path, &(tri_dataset_image_folder_options){.classes = train},
                                     &dataset));
    if (train == NULL && settings.classes == 0)
        settings.classes = tri_dataset_class_count(dataset);
    TRI_TRY(tri_dataset_transform(dataset, look, 4, &dataset));
    return dataset;
}

/* --- the command line ----------------------------------------------------- */

static void parse_options(int argc, char **argv)
{
    static const char usage[] = "usage: imagenet [options] DIR\n\nTrains a network on a folder of "
                                "images; with several workers:\n"
                                "  trirun --standalone --nproc-per-node 2 imagenet -a resnet18 DIR";
    static const char launcher[] =
        "trirun starts the workers and tells them: trirun --nnodes=2 "
        "--node-rank=0 --master-addr=HOST --nproc-per-node=4 imagenet ..";
    struct settings *s = &settings;
    const option options[] = {
        {"DIR", .help = "with train/ and val/", .text = &s->dir},
        {"--arch", "-a", "resnet18 to resnet152, vit_b_16 (resnet18)", "NAME", .text = &s->arch},
        {"--workers", "-j", "threads that load images (0)", .integer = &s->workers, .max = 256},
        {"--epochs", NULL, "(90)", .integer = &s->epochs, .min = 1},
        {"--start-epoch", NULL, "number of the first one (0)", .integer = &s->start_epoch},
        {"--batch-size", "-b", "of each worker (32)", .integer = &s->batch, .min = 1},
        {"--lr", "--learning-rate", "x 0.1 every 30 epochs (0.1)", .number = &s->lr},
        {"--momentum", NULL, "(0.9)", .number = &s->momentum},
        {"--weight-decay", "--wd", "(0.0001)", .number = &s->weight_decay},
        {"--print-freq", "-p", "batches from line to line (10)", .integer = &s->print_freq,
         .min = 1},
        {"--resume", NULL, "continue this run, or checkpoint", .text = &s->resume},
        {"--checkpoint-file", NULL, "folder to continue in, or start", .text = &s->checkpoints},
        {"--evaluate", "-e", "only evaluate", .flag = &s->evaluate},
        {"--pretrained", NULL, "weights of PyTorch's or HF's cache", .flag = &s->pretrained},
        {"--weights", NULL, "begin with this safetensors file", .text = &s->weights},
        {"--classes", NULL, "of the network (those of DIR/train)", .integer = &s->classes},
        {"--image-size", NULL, "(224)", .integer = &s->size, .min = 8, .max = 4096},
        {"--seed", NULL, "(0)", .integer = &s->seed},
        {"--threads", NULL, "to compute (cores / workers)", .integer = &s->threads, .max = 1024},
        {"--dist-backend", NULL, "gloo, nccl, mpi: no effect", "NAME", .text = &s->backend},
        {"--no-accel", NULL, "no effect: computes on CPUs", .flag = &s->no_accel},
        {"--gpu", .remedy = "there are no GPUs here: leave it out to compute on CPUs"},
        {"--dummy", .remedy = "scripts/make_tiny_imagenet --out DIR makes images to try with"},
        {"--world-size", .remedy = launcher},
        {"--rank", .remedy = launcher},
        {"--dist-url", .remedy = launcher},
        {"--multiprocessing-distributed", .remedy = launcher},
    };

    options_parse(argc, argv, usage, options);
    if (s->dir == NULL)
        options_refuse("DIR is missing: the folder of the images comes last");
    if (s->start_epoch >= s->epochs)
        options_refuse("--start-epoch is not below --epochs: nothing would be trained");
    if (s->backend != NULL && strcmp(s->backend, "gloo") != 0 && strcmp(s->backend, "nccl") != 0 &&
        strcmp(s->backend, "mpi") != 0)
        options_refuse("--dist-backend %s: must be gloo, nccl or mpi", s->backend);
    if (s->weights == NULL && s->resume != NULL &&
        pretrained_ends_with(s->resume, ".safetensors")) {
        s->weights = s->resume; /* no run that could go on */
        s->resume = NULL;
    }
    if (s->weights != NULL && pretrained_is_pickle(s->weights))
        options_refuse("--weights %s: " PRETRAINED_CONVERT, s->weights);
    if (s->resume != NULL && pretrained_is_pickle(s->resume))
        options_refuse("--resume %s: " PRETRAINED_CONVERT, s->resume);
    if (s->pretrained && s->weights == NULL)
        s->weights = pretrained(s->arch);
    if (s->threads > 0)
        TRI_TRY(tri_num_threads_set((int)s->threads));
}

int main(int argc, char **argv)
{
    static const tri_task task = {.name = "imagenet",
                                  .model = model,
                                  .optimizer = optimizer,
                                  .training_step = training_step,
                                  .validation_step = validation_step,
                                  .lr = lr};
    lines l = {.base.cls = &lines_class};
    tri_callback *callbacks[] = {&l.base};
    tri_fit_data data = {0};
    tri_fit_result result;
    int64_t n;

    parse_options(argc, argv);
    TRI_TRY(tri_init(NULL));
    n = settings.size;
    data.train = open_folder("train", NULL, tri_transform_random_resized_crop(n, n, NULL),
                             tri_transform_random_horizontal_flip(0.5));
    data.val = open_folder("val", data.train, tri_transform_resize(n * 256 / 224),
                           tri_transform_center_crop(n, n));
    data.batch_size = settings.batch;
    data.loader.n_threads = (int)settings.workers;
    l.print_freq = settings.print_freq;
    l.epochs = settings.epochs;
    l.start_epoch = settings.start_epoch;
    l.batch = settings.batch;
    l.val_images = tri_dataset_length(data.val);
    l.elastic = settings.checkpoints != NULL;

    tri_fit_options options = {
        .max_epochs = settings.epochs - settings.start_epoch,
        .seed = (uint64_t)settings.seed,
        .ckpt_path = settings.checkpoints != NULL ? "last" : settings.resume,
        .checkpoint = &(tri_fit_checkpoint_options){.monitor = "val_acc1", .mode = "max"},
        .callbacks = callbacks,
        .n_callbacks = 1,
        .num_sanity_val_steps = TRI_SET(0),
        .no_progress = true,
        .no_summary = true,
    };
    fit_folder(&options, settings.checkpoints);
    if (settings.evaluate)
        TRI_TRY(tri_validate(&task, &data, &options, &l, &result));
    else
        TRI_TRY(tri_fit(&task, &data, &options, &l, &result));
    lines_free(&l);
    tri_dataset_destroy(data.val);
    tri_dataset_destroy(data.train);
    tri_finalize();
    return 0;
}
