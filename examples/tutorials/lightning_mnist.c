/*
 * lightning_mnist.c - LitMNIST of Lightning's documentation: validation and test, callbacks, a
 * logger, early stopping, the best checkpoint, and resuming.
 *
 *     trainer = Trainer(
 *         max_epochs=3, accelerator="cpu", devices=1,
 *         logger=TensorBoardLogger("runs"),
 *         callbacks=[MyPrintingCallback(), EarlyStopping(monitor="val_loss", mode="min"),
 *                    ModelCheckpoint(monitor="val_acc", mode="max", save_top_k=2)])
 *     trainer.fit(model, datamodule, ckpt_path=..)
 *     trainer.test(ckpt_path="best")
 *
 * Call it as lightning_mnist [last|FOLDER]: with an argument it resumes.
 */

#include <trireme/trireme.h>

#include "../command_line.h"
#include "../fashion_mnist.h"

static tri_module *model(void *arg)
{
    (void)arg;
    return tri_nn_sequential(tri_nn_flatten(1), tri_nn_linear(28 * 28, 128, NULL), tri_nn_relu(),
                             tri_nn_dropout(0.2), tri_nn_linear(128, 10, NULL));
}

static tri_optimizer *optimizer(tri_module *net, void *arg)
{
    (void)arg;
    return tri_adam(net, 2e-3, NULL);
}

static tri_tensor *training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_tensor *loss = tri_cross_entropy(tri_forward(tri_trainer_model(t), batch->fields[0]),
                                         batch->fields[1], NULL);

    (void)arg;
    tri_trainer_log(t, "train_loss", loss,
                    &(tri_trainer_log_options){.on_epoch = TRI_SET(true), .progress_bar = true});
    return loss;
}

/* self.log("val_loss", loss); self.log("val_acc", self.accuracy, prog_bar=True) */
static void evaluate(tri_trainer *t, const tri_batch *batch, const char *loss, const char *accuracy)
{
    tri_tensor *logits = tri_forward(tri_trainer_model(t), batch->fields[0]);

    tri_trainer_log(t, loss, tri_cross_entropy(logits, batch->fields[1], NULL), NULL);
    tri_trainer_log(t, accuracy, tri_count_correct(logits, batch->fields[1]),
                    &(tri_trainer_log_options){.count = true, .progress_bar = true});
}

static void validation_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    (void)arg;
    evaluate(t, batch, "val_loss", "val_acc");
}

static void test_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    (void)arg;
    evaluate(t, batch, "test_loss", "test_acc");
}

/* class MyPrintingCallback(Callback): */
static tri_status print_begin(tri_callback *self, tri_trainer *t)
{
    (void)self;
    if (tri_trainer_is_global_zero(t))
        printf("Training is starting\n");
    return TRI_OK;
}

static tri_status print_end(tri_callback *self, tri_trainer *t)
{
    (void)self;
    if (tri_trainer_is_global_zero(t))
        printf("Training is ending\n");
    return TRI_OK;
}

static const char *parse(int argc, char **argv)
{
    const char *checkpoint = NULL;
    const option options[] = {
        {"FOLDER", .help = "continue this run; last: the newest", .text = &checkpoint}};

    options_parse(argc, argv, "usage: lightning_mnist [last|FOLDER]", options);
    return checkpoint;
}

int main(int argc, char **argv)
{
    static const tri_task task = {.name = "mnist",
                                  .model = model,
                                  .optimizer = optimizer,
                                  .training_step = training_step,
                                  .validation_step = validation_step,
                                  .test_step = test_step};
    static const tri_callback_class printing = {
        .name = "MyPrintingCallback", .fit_begin = print_begin, .fit_end = print_end};
    const tri_transform to_tensor = tri_transform_to_float();
    tri_callback mine = {.cls = &printing}, *callbacks[] = {&mine};
    tri_fit_options trainer = {
        .accelerator = "cpu",
        .max_epochs = 3,
        .tensorboard = true,
        .callbacks = callbacks,
        .n_callbacks = 1,
        .early_stopping = &(tri_fit_early_stopping_options){.monitor = "val_loss", .mode = "min"},
        .checkpoint =
            &(tri_fit_checkpoint_options){.monitor = "val_acc", .mode = "max", .save_top_k = 2},
        .ckpt_path = parse(argc, argv),
    };
    tri_fit_data data = {.batch_size = 64};
    tri_fit_result result;

    TRI_TRY(fashion_mnist(NULL, true, &data.train));
    TRI_TRY(fashion_mnist(NULL, false, &data.test));
    TRI_TRY(tri_dataset_transform(data.train, &to_tensor, 1, &data.train));
    TRI_TRY(tri_dataset_transform(data.test, &to_tensor, 1, &data.test));
    data.val = data.test;
    TRI_TRY(tri_fit(&task, &data, &trainer, NULL, &result));
    trainer.ckpt_path = result.best_path;
    TRI_TRY(tri_test(&task, &data, &trainer, NULL, &result));
    printf("test_acc %.4f\n", tri_fit_result_value(&result, "test_acc"));
    tri_dataset_destroy(data.test);
    tri_dataset_destroy(data.train);
    return 0;
}
