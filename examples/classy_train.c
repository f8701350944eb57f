/*
 * classy_train.c - Classy Vision's classy_train.py: trains what a configuration file describes.
 *
 *     classy_train.py --device=gpu --config_file .../classy_vision/configs/template_config.json
 *     classy_train    --device=cpu --config_file examples/classy_template.json
 *
 * The keys are Classy Vision's. Data sets: "my_dataset" (of its template: made of noise),
 * "image_path" and "classy_imagenet" (folders of images), "fashion_mnist". Models: "my_model" (of
 * its template), "mlp", "resnet", and what trireme/models.h knows by name. What does not exist here
 * is an error that names the key. Read it from main() at the end upwards.
 */
#include <trireme/models.h>
#include <trireme/trireme.h>

#include "classy_data.h"
#include "classy_schedule.h"
#include "fit_options.h"

/* --- model and optimizer -------------------------------------------------- */

/* What the file says, for the functions of the task. */
typedef struct job {
    tri_callback base;
    config root, lr;
    double num_epochs;
    int64_t topk[4];
    int n_topk;
} job;

static tri_module *model(void *arg)
{
    config c = config_child(&((job *)arg)->root, "model", -1);
    const char *name = config_text(&c, "name", NULL);
    tri_module *net;

    CONFIG_KEYS(&c, "name", "num_classes");
    if (strcmp(name, "my_model") == 0) /* without its sigmoid: the loss is that of logits */
        return tri_nn_sequential(tri_nn_adaptive_avg_pool2d(20, 20), tri_nn_flatten(1),
                                 tri_nn_linear(3 * 20 * 20, 2, NULL));
    net = tri_model_by_name(name, config_integer(&c, "num_classes", 1000, 1));
    if (tri_module_status(net) != TRI_OK)
        config_mistake(&c, "name", "%s", tri_last_error());
    if (strchr(name, ':') != NULL) /* layers that take rows of numbers */
        net = tri_nn_sequential(tri_nn_flatten(1), net);
    return net;
}

static tri_optimizer *optimizer(tri_module *net, void *arg)
{
    config c = config_child(&((job *)arg)->root, "optimizer", -1);
    const char *name = CONFIG_NAME(&c, "sgd", "adam", "adamw", "rmsprop");
    double decay = config_number(&c, "weight_decay", 0, 0, 1e9);
    double momentum = config_number(&c, "momentum", 0, 0, 1);

    if (strcmp(name, "adam") == 0)
        return tri_adam(net, 1, &(tri_adam_options){.weight_decay = TRI_SET(decay)});
    if (strcmp(name, "adamw") == 0)
        return tri_adamw(net, 1, &(tri_adam_options){.weight_decay = TRI_SET(decay)});
    if (strcmp(name, "rmsprop") == 0)
        return tri_rmsprop(net, 1,
                           &(tri_rmsprop_options){.momentum = momentum, .weight_decay = decay});
    return tri_sgd(net, 1,
                   &(tri_sgd_options){.momentum = momentum,
                                      .weight_decay = decay,
                                      .nesterov = config_flag(&c, "nesterov", false)});
}

/* The schedule gives the rate itself: that of the optimizer is 1. */
static double lr(double one, int64_t step, int64_t total_steps, void *arg)
{
    const job *j = arg;
    int64_t per_epoch = total_steps / (int64_t)j->num_epochs;

    if (!schedule_is_by_step(&j->lr))
        step = step / per_epoch * per_epoch;
    return one * schedule(&j->lr, (double)step / (double)total_steps, j->num_epochs);
}

static tri_tensor *step_of(tri_trainer *t, const tri_batch *batch, const job *j, const char *phase)
{
    tri_tensor *labels = batch->fields[1], *best;
    tri_tensor *logits = tri_forward(tri_trainer_model(t), batch->fields[0]);
    tri_tensor *loss = tri_cross_entropy(logits, labels, NULL);
    const tri_trainer_log_options whole = {.on_step = TRI_SET(false), .on_epoch = TRI_SET(true)};
    tri_trainer_log_options count = whole;
    char name[32];

    count.count = true;
    snprintf(name, sizeof(name), "%s_loss", phase);
    tri_trainer_log(t, name, loss, &whole);
    for (int i = 0; i < j->n_topk; i++) {
        (void)tri_topk(logits, j->topk[i], 1, false, &best);
        best = tri_cast(tri_eq(best, tri_unsqueeze(labels, 1)), TRI_DTYPE_F32);
        snprintf(name, sizeof(name), "%s_top_%d", phase, (int)j->topk[i]);
        tri_trainer_log(t, name, tri_sum(best, NULL, 0, false), &count);
    }
    return loss;
}

static tri_tensor *training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    return step_of(t, batch, arg, "train");
}

static void validation_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    (void)step_of(t, batch, arg, "test");
}

/* What LossLrMeterLoggingHook prints at the end of a phase. */
static void print_phase(const job *j, const tri_trainer *t, const char *phase)
{
    char name[32];

    if (!tri_trainer_is_global_zero(t))
        return;
    snprintf(name, sizeof(name), "%s_loss", phase);
    printf("%s phase: %lld, %s loss: %g, LR rate: %g\nMeters: {'name': 'accuracy', 'value': {",
           phase, (long long)tri_trainer_epoch(t), phase, tri_trainer_value(t, name),
           tri_optimizer_lr(tri_trainer_optimizer(t)));
    for (int i = 0; i < j->n_topk; i++) {
        snprintf(name, sizeof(name), "%s_top_%d", phase, (int)j->topk[i]);
        printf("%s'top_%d': %g", i > 0 ? ", " : "", (int)j->topk[i], tri_trainer_value(t, name));
    }
    printf("}}\n");
}

static tri_status epoch_end(tri_callback *self, tri_trainer *t)
{
    print_phase((const job *)self, t, "train");
    print_phase((const job *)self, t, "test");
    return TRI_OK;
}

/* --- the file and the command line ---------------------------------------- */

static void job_read(job *j, const char *path)
{
    config c;

    j->root = config_read(path);
    CONFIG_KEYS(&j->root, "name", "num_epochs", "loss", "dataset", "meters", "model", "optimizer");
    (void)CONFIG_NAME(&j->root, "classification_task");
    j->num_epochs = (double)config_integer(&j->root, "num_epochs", NAN, 1);
    c = config_child(&j->root, "loss", -1);
    (void)CONFIG_NAME(&c, "CrossEntropyLoss", "my_loss");
    if (json_object_get(j->root.object, "meters") != NULL) {
        c = config_child(&j->root, "meters", -1);
        CONFIG_KEYS(&c, "accuracy");
        c = config_child(&c, "accuracy", -1);
        CONFIG_KEYS(&c, "topk");
        j->n_topk = (int)config_numbers(&c, "topk", 1, 4);
        for (int i = 0; i < j->n_topk; i++)
            j->topk[i] =
                json_integer_value(json_array_get(json_object_get(c.object, "topk"), (size_t)i));
    }
    c = config_child(&j->root, "optimizer", -1);
    CONFIG_KEYS(&c, "name", "param_schedulers", "weight_decay", "momentum", "nesterov");
    c = config_child(&c, "param_schedulers", -1);
    CONFIG_KEYS(&c, "lr");
    j->lr = config_child(&c, "lr", -1);
    schedule_check(&j->lr, j->num_epochs);
}

int main(int argc, char **argv)
{
    static const tri_task task = {.name = "classy",
                                  .model = model,
                                  .optimizer = optimizer,
                                  .training_step = training_step,
                                  .validation_step = validation_step,
                                  .lr = lr};
    static const tri_callback_class hooks = {.name = "classy", .epoch_end = epoch_end};
    const char *device = "cpu", *file = NULL, *folder = NULL, *backend = NULL;
    int64_t workers = 0, log_freq = 5, period = 1;
    bool skip_tensorboard = false, show_progress = false;
    const option options[] = {
        {"--config_file", "--config", "the configuration", .text = &file},
        {"--device", NULL, "cpu", "NAME", .text = &device},
        {"--num_workers", NULL, "threads that load samples (0)", .integer = &workers, .max = 256},
        {"--checkpoint_folder", NULL, "go on there, or begin (runs/classy-1, ..)", .text = &folder},
        {"--checkpoint_period", NULL, "epochs (1)", .integer = &period, .min = 1},
        {"--log_freq", NULL, "batches from record to record (5)", .integer = &log_freq, .min = 1},
        {"--distributed_backend", NULL, "none or ddp (ddp if there are workers)", "NAME",
         .text = &backend},
        {"--skip_tensorboard", NULL, "no event file", .flag = &skip_tensorboard},
        {"--show_progress", NULL, "a bar", .flag = &show_progress},
        {"--visdom_server", .remedy = "leave it out: the curves are in TensorBoard's format"},
        {"--pretrained_checkpoint_path",
         .remedy = "this program does not fine-tune: imagenet.c does"},
    };
    job j = {.base.cls = &hooks};
    tri_callback *callbacks[] = {&j.base};
    bool no_shuffle, ignored;
    tri_fit_data data = {0};

    options_parse(argc, argv, "usage: classy_train --device cpu --config_file FILE", options);
    if (strcmp(device, "cpu") != 0 || file == NULL ||
        (backend != NULL && strcmp(backend, "none") != 0 && strcmp(backend, "ddp") != 0))
        options_refuse("%s", file == NULL ? "--config_file is missing"
                             : strcmp(device, "cpu") != 0
                                 ? "--device: there is only cpu here"
                                 : "--distributed_backend: must be none or ddp");
    job_read(&j, file);
    TRI_TRY(tri_init(NULL));
    data.train = dataset_read(&j.root, "train", &data.batch_size, &no_shuffle);
    data.val = dataset_read(&j.root, "test", &data.val_batch_size, &ignored);
    data.no_shuffle = !no_shuffle;
    data.loader.n_threads = (int)workers;

    tri_fit_options trainer = {
        .max_epochs = (int64_t)j.num_epochs,
        .strategy = backend != NULL && strcmp(backend, "none") == 0 ? "single" : backend,
        .ckpt_path = folder != NULL ? "last" : NULL,
        .checkpoint = &(tri_fit_checkpoint_options){.every_n_epochs = period},
        .callbacks = callbacks,
        .n_callbacks = 1,
        .num_sanity_val_steps = TRI_SET(0),
        .log_every_n_steps = log_freq,
        .tensorboard = !skip_tensorboard,
        .no_progress = !show_progress,
        .no_summary = true,
    };
    fit_folder(&trainer, folder);
    TRI_TRY(tri_fit(&task, &data, &trainer, &j, NULL));
    if (tri_rank() == 0)
        printf("Training successful!\n");
    tri_dataset_destroy(data.val);
    tri_dataset_destroy(data.train);
    json_decref(j.root.object);
    tri_finalize();
    return 0;
}
