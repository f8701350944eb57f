/*
 * deepspeed_getting_started.c - the lines of DeepSpeed's "Getting Started": initialize, the loop of
 * three calls, checkpoints with a state of the client.
 *
 *     deepspeed main.py --deepspeed_config ds_config.json --save_dir saved     becomes
 *     trirun --nproc_per_node=2 build/bin/deepspeed_getting_started \
 *         --deepspeed_config examples/deepspeed_getting_started.json --save_dir saved
 *
 * A second start goes on from the newest checkpoint, or from the one that --ckpt_id names.
 */
#include <trireme/trireme.h>

#include "../command_line.h"

static int64_t save_interval = 10, steps = 40;
static const char *save_dir = "deepspeed-checkpoints", *ckpt_id;

/* (x, y) where y is a function of x that a small network learns. */
static void make_batch(int64_t step, int64_t n, tri_tensor **x_out, tri_tensor **y_out)
{
    float x[64 * 8], y[64];

    n = n < 64 ? n : 64;
    for (int64_t i = 0; i < n; i++) {
        y[i] = 0;
        for (int k = 0; k < 8; k++) {
            x[i * 8 + k] = (float)((step * 31 + i * 7 + k * 3 + tri_rank() * 5) % 17) / 8.5f - 1;
            y[i] += x[i * 8 + k] * (float)(k + 1) / 8;
        }
    }
    *x_out = tri_tensor_from(TRI_SHAPE(n, 8), TRI_DTYPE_F32, x);
    *y_out = tri_tensor_from(TRI_SHAPE(n, 1), TRI_DTYPE_F32, y);
}

static void train(tri_engine *model_engine, int64_t step)
{
    /* for step, batch in enumerate(data_loader): */
    for (; step < steps; step++) {
        tri_tensor *x, *y, *loss;
        char done[24];

        make_batch(step, tri_engine_train_micro_batch_size_per_gpu(model_engine), &x, &y);
        /* loss = model_engine(batch) */
        loss = tri_mse_loss(tri_engine_forward(model_engine, x), y, NULL);
        /* model_engine.backward(loss) */
        tri_engine_backward(model_engine, loss);
        /* model_engine.step() */
        TRI_TRY(tri_engine_step(model_engine));
        if (tri_rank() == 0 && (step + 1) % save_interval == 0)
            printf("step %d: loss %.4f\n", (int)step + 1, tri_item(loss));
        tri_tensor_unref(x);
        tri_tensor_unref(y);
        tri_step_end();
        if ((step + 1) % save_interval != 0)
            continue;
        /* client_sd['step'] = step; model_engine.save_checkpoint(args.save_dir, client_sd) */
        snprintf(done, sizeof(done), "%d", (int)step + 1);
        TRI_TRY(tri_engine_save_checkpoint(model_engine, save_dir, NULL,
                                           &(tri_metadata){"step", done}, 1));
    }
}

static void parse(int argc, char **argv, tri_deepspeed_args *cmd_args)
{
    const option options[] = {
        {"--steps", NULL, "(40)", .integer = &steps, .min = 1},
        {"--save_interval", NULL, "steps (10)", .integer = &save_interval, .min = 1},
        {"--save_dir", NULL, "(deepspeed-checkpoints)", .text = &save_dir},
        {"--ckpt_id", NULL, "checkpoint to start from (the newest)", .text = &ckpt_id},
    };

    TRI_TRY(tri_deepspeed_args_take(&argc, argv, cmd_args));
    options_parse(argc, argv, "usage: deepspeed_getting_started --deepspeed_config FILE [options]",
                  options);
}

int main(int argc, char **argv)
{
    tri_deepspeed_args cmd_args;
    tri_engine *model_engine;
    tri_module *net;
    tri_status status;
    int64_t step = 0;

    parse(argc, argv, &cmd_args);
    TRI_TRY(tri_init_distributed(NULL)); /* deepspeed.init_distributed() */
    net = tri_nn_sequential(tri_nn_linear(8, 32, NULL), tri_nn_tanh(), tri_nn_linear(32, 1, NULL));
    /* model_engine, optimizer, _, _ = deepspeed.initialize(args=cmd_args, model=net, ...) */
    TRI_TRY(tri_initialize(&cmd_args, net, NULL, &model_engine));
    /* _, client_sd = model_engine.load_checkpoint(args.load_dir, args.ckpt_id) */
    status = tri_engine_load_checkpoint(model_engine, save_dir, ckpt_id, NULL);
    if (status != TRI_ERR_NOT_FOUND || ckpt_id != NULL)
        TRI_TRY(status);
    if (status == TRI_OK)
        step = strtol(tri_engine_client(model_engine, "step"), NULL, 10);
    train(model_engine, step);
    tri_engine_destroy(model_engine);
    tri_finalize();
    return 0;
}
