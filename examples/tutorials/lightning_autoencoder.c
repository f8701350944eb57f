/*
 * lightning_autoencoder.c - "Lightning in 15 minutes": LitAutoEncoder and its Trainer.
 *
 *     trainer = L.Trainer(limit_train_batches=100, max_epochs=1)
 *     trainer.fit(model=autoencoder, train_dataloaders=train_loader)
 *
 * and, with an argument, on several devices:
 *
 *     Trainer(accelerator="cpu", devices=2, strategy="ddp", num_nodes=1, ..)
 *
 * becomes build/bin/lightning_autoencoder 2, which starts the second process by itself. Under
 * trirun (or torchrun, srun) the launcher starts them: then call it without an argument.
 */

#include <trireme/trireme.h>

#include "../command_line.h"
#include "../fashion_mnist.h"

enum { PIXELS = 28 * 28 };

/* class LitAutoEncoder(L.LightningModule): __init__ and forward */

typedef struct lit_auto_encoder {
    tri_module *encoder, *decoder;
} lit_auto_encoder;

static tri_tensor *forward(tri_module *self, tri_tensor *x)
{
    lit_auto_encoder *m = tri_module_data(self);

    return tri_forward(m->decoder, tri_forward(m->encoder, x));
}

static tri_module *model(void *arg)
{
    tri_module *self = tri_module_simple("LitAutoEncoder", sizeof(lit_auto_encoder), forward);
    lit_auto_encoder *m = tri_module_data(self);

    (void)arg;
    m->encoder = tri_module_add_child(self, "encoder",
                                      tri_nn_sequential(tri_nn_linear(PIXELS, 64, NULL),
                                                        tri_nn_relu(), tri_nn_linear(64, 3, NULL)));
    m->decoder = tri_module_add_child(self, "decoder",
                                      tri_nn_sequential(tri_nn_linear(3, 64, NULL), tri_nn_relu(),
                                                        tri_nn_linear(64, PIXELS, NULL)));
    return self;
}

/* def configure_optimizers(self): */
static tri_optimizer *optimizer(tri_module *net, void *arg)
{
    (void)arg;
    return tri_adam(net, 1e-3, NULL);
}

/* def training_step(self, batch, batch_idx): */
static tri_tensor *training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_tensor *x = tri_flatten(batch->fields[0], 1);
    tri_tensor *loss = tri_mse_loss(tri_forward(tri_trainer_model(t), x), x, NULL);

    (void)arg;
    tri_trainer_log(t, "train_loss", loss, NULL);
    return loss;
}

static int parse(int argc, char **argv)
{
    int64_t devices = 0;
    const option options[] = {
        {"DEVICES", .help = "workers, 0 to 64 (one)", .integer = &devices, .max = 64}};

    options_parse(argc, argv, "usage: lightning_autoencoder [DEVICES]", options);
    return (int)devices;
}

int main(int argc, char **argv)
{
    static const tri_task task = {.name = "autoencoder",
                                  .model = model,
                                  .optimizer = optimizer,
                                  .training_step = training_step};
    const tri_transform to_tensor = tri_transform_to_float();
    const tri_fit_options trainer = {
        .accelerator = "cpu",
        .devices = parse(argc, argv),
        .strategy = "ddp",
        .num_nodes = 1,
        .limit_train_batches = 100,
        .max_epochs = 1,
    };
    tri_fit_result result;
    tri_dataset *dataset;

    TRI_TRY(fashion_mnist(NULL, true, &dataset));
    TRI_TRY(tri_dataset_transform(dataset, &to_tensor, 1, &dataset));
    TRI_TRY(tri_fit(&task, &(tri_fit_data){.train = dataset, .batch_size = 32}, &trainer, NULL,
                    &result));
    printf("%lld steps, train_loss %.4f\n", (long long)result.steps,
           tri_fit_result_value(&result, "train_loss"));
    tri_dataset_destroy(dataset);
    return 0;
}
