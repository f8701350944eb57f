/*
 * multigpu_torchrun.c - PyTorch's series "Distributed Data Parallel in PyTorch": training that
 * survives the failure of a worker, on one host and on several (multigpu_torchrun.py and
 * multinode.py are one program here).
 *
 *     torchrun --standalone --nproc_per_node=gpu multigpu_torchrun.py 50 10
 *     torchrun --nproc_per_node=2 --nnodes=2 --node_rank=0 --rdzv_id=456 --rdzv_backend=c10d \
 *         --rdzv_endpoint=172.31.43.139:29603 multinode.py 50 10
 *
 * become
 *
 *     trirun --standalone --nproc_per_node=cpu build/bin/multigpu_torchrun 50 10
 *     trirun --nproc_per_node=2 --nnodes=2 --node_rank=0 --rdzv_id=456 --rdzv_backend=c10d \
 *         --rdzv_endpoint=172.31.43.139:29603 build/bin/multigpu_torchrun 50 10
 *
 * With --max_restarts=3 the workers start again where one fails, and continue from the snapshot.
 * The earlier programs of the series are this one, too, except that theirs never resume:
 *
 *     python single_gpu.py 50 10         becomes  build/bin/multigpu_torchrun 50 10
 *     python multigpu.py 50 10           becomes  build/bin/multigpu_torchrun 50 10 --spawn 2
 */

#include <trireme/trireme.h>

#include "../command_line.h"

/* --- what is trained ------------------------------------------------------ */

enum { SAMPLES = 2048, INPUTS = 20 };

typedef struct my_train_dataset {
    tri_tensor *inputs, *targets; /* random numbers, the same in every process */
    tri_dataset *set;
} my_train_dataset;

static void load_train_data(my_train_dataset *data)
{
    const tri_field fields[2] = {{TRI_DTYPE_F32, 1, {INPUTS}}, {TRI_DTYPE_F32, 1, {1}}};
    const void *contents[2];

    data->inputs = tri_tensor_clone(tri_rand(TRI_SHAPE(SAMPLES, INPUTS), TRI_DTYPE_F32));
    data->targets = tri_tensor_clone(tri_rand(TRI_SHAPE(SAMPLES, 1), TRI_DTYPE_F32));
    contents[0] = tri_data(data->inputs);
    contents[1] = tri_data(data->targets);
    TRI_TRY(tri_dataset_arrays(SAMPLES, fields, contents, 2, &data->set));
    tri_step_end();
}

typedef struct settings {
    int64_t total_epochs, save_every, batch_size, spawn;
} settings;

/* --- the trainer ---------------------------------------------------------- */

typedef struct trainer {
    tri_module *model;
    tri_optimizer *optimizer;
    tri_loader *train_data;
    int64_t batch_size, save_every, epochs_run;
    const char *snapshot_path; /* a folder, which keeps the last three */
} trainer;

static void load_snapshot(trainer *t)
{
    tri_checkpoint *snapshot;
    tri_status status = tri_checkpoint_open(t->snapshot_path, &snapshot);

    if (status == TRI_ERR_NOT_FOUND)
        return;
    TRI_TRY(status); /* there is one, and it is damaged, say */
    printf("Loading snapshot\n");
    TRI_TRY(tri_checkpoint_restore(snapshot, t->model, t->optimizer));
    t->epochs_run = tri_checkpoint_epoch(snapshot);
    tri_checkpoint_close(snapshot);
    printf("Resuming training from snapshot at Epoch %lld\n", (long long)t->epochs_run);
}

static void save_snapshot(const trainer *t, int64_t epoch)
{
    /* As the tutorial: from here the epoch that is over now runs once more. */
    const tri_checkpoint_info info = {.step = (epoch + 1) * tri_loader_length(t->train_data),
                                      .epoch = epoch};

    TRI_TRY(tri_checkpoint_save(t->snapshot_path, t->model, t->optimizer, &info, NULL));
    printf("Epoch %lld | Training snapshot saved at %s\n", (long long)epoch, t->snapshot_path);
}

static void run_batch(const trainer *t, tri_tensor *source, tri_tensor *target)
{
    tri_backward(tri_mse_loss(tri_forward(t->model, source), target, NULL));
    TRI_TRY(tri_optimizer_step(t->optimizer));
    tri_step_end();
}

static void run_epoch(const trainer *t, int64_t epoch)
{
    tri_batch batch;
    tri_status status;
    bool is_first = true;

    TRI_TRY(tri_loader_begin(t->train_data, epoch, 0)); /* sampler.set_epoch(epoch), too */
    while ((status = tri_loader_next(t->train_data, &batch)) == TRI_OK) {
        if (is_first) /* the size of a batch, which may be all that this rank has */
            printf("[GPU%d] Epoch %lld | Batchsize: %lld | Steps: %lld\n", tri_rank(),
                   (long long)epoch, (long long)tri_tensor_size(batch.fields[0], 0),
                   (long long)tri_loader_length(t->train_data));
        is_first = false;
        run_batch(t, batch.fields[0], batch.fields[1]);
    }
    TRI_TRY(status); /* TRI_END is no failure */
}

static void train(trainer *t, int64_t max_epochs)
{
    for (int64_t epoch = t->epochs_run; epoch < max_epochs; epoch++) {
        run_epoch(t, epoch);
        if (tri_rank() == 0 && epoch % t->save_every == 0)
            save_snapshot(t, epoch);
    }
}

static tri_status train_worker(int rank, void *arg)
{
    const settings *s = arg;
    trainer t = {
        .batch_size = s->batch_size, .save_every = s->save_every, .snapshot_path = "snapshot"};
    my_train_dataset train_set;
    tri_sampler *sampler;

    (void)rank;
    TRI_TRY(tri_init(NULL));
    TRI_TRY(tri_set_device(TRI_CPU(tri_local_rank())));
    load_train_data(&train_set);
    TRI_TRY(tri_sampler_distributed(SAMPLES, NULL, &sampler));
    TRI_TRY(tri_loader_create(train_set.set, sampler, t.batch_size, NULL, &t.train_data));
    t.model = tri_nn_linear(INPUTS, 1, NULL);
    t.optimizer = tri_sgd(t.model, 1e-3, NULL);

    load_snapshot(&t);
    t.model = tri_ddp(t.model, NULL); /* all continue with rank 0's parameters */
    train(&t, s->total_epochs);

    tri_optimizer_destroy(t.optimizer);
    tri_module_destroy(t.model);
    tri_loader_destroy(t.train_data);
    tri_sampler_destroy(sampler);
    tri_dataset_destroy(train_set.set);
    tri_tensor_unref(train_set.inputs);
    tri_tensor_unref(train_set.targets);
    tri_finalize();
    return TRI_OK;
}

/* --- the command line ----------------------------------------------------- */

static settings parse(int argc, char **argv)
{
    settings s = {.batch_size = 32};
    const option options[] = {{"TOTAL_EPOCHS", .help = "epochs to train the model",
                               .integer = &s.total_epochs, .min = 1, .required = true},
                              {"SAVE_EVERY", .help = "epochs from one snapshot to the next",
                               .integer = &s.save_every, .min = 1, .required = true},
                              {"--batch_size", NULL, "samples of a step on each device (32)",
                               .integer = &s.batch_size, .min = 1},
                              {"--spawn", NULL, "start so many processes, without trirun",
                               .integer = &s.spawn, .min = 1}};

    options_parse(argc, argv, "usage: multigpu_torchrun TOTAL_EPOCHS SAVE_EVERY [options]",
                  options);
    return s;
}

int main(int argc, char **argv)
{
    settings s = parse(argc, argv);

    if (s.spawn > 0)
        TRI_TRY(tri_spawn(train_worker, &s, (int)s.spawn, NULL)); /* ranks 0 to N - 1 */
    else
        TRI_TRY(train_worker(0, &s)); /* one of trirun's, or the only one */
    return 0;
}
