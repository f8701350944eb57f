/*
 * rpc_ddp.c - PyTorch's tutorial "Combining Distributed DataParallel with Distributed RPC
 * Framework": a model in two parts. One is too large for each process to have a copy of it; the
 * other is replicated, and averaged over all that train it.
 *
 *     python main.py                     becomes
 *     build/bin/rpc_ddp
 *
 * which starts four processes: two trainers, a master that tells them when to train, and a
 * parameter server, "ps", that has a table of embeddings. The same by launchers:
 *
 *     trirun --nproc_per_node=4 build/bin/rpc_ddp
 *     torchrun --no-python --nproc_per_node=4 build/bin/rpc_ddp
 *     mpirun -np 4 build/bin/rpc_ddp
 *
 * A batch goes through the table, on ps, and then through a linear layer, of which each trainer has
 * a replica. In the backward pass the gradients of the replicas are averaged (DDP), and those of
 * the table go to ps, from each trainer by itself. PyTorch's program needs a second rendezvous for
 * DDP; here DDP's group is a part of the world that RPC has met in.
 *
 * The argument is the number of epochs (100).
 */
#include <string.h>

#include <trireme/remote.h>
#include <trireme/trireme.h>

#include "../command_line.h"

enum {
    NUM_EMBEDDINGS = 100,
    EMBEDDING_DIM = 16,
    NUM_CLASSES = 8,
    TRAINERS = 2, /* ranks 0 and 1 */
    MASTER = 2,
    PS = 3,
    WORLD_SIZE = 4,
    BATCHES = 10, /* of an epoch */
    MAX_INDICES = 50
};

static int64_t n_epochs = 100;

/* --- the parameter server ------------------------------------------------- */

static void run_ps(void)
{
    const tri_nn_embedding_bag_options sum = {.mode = TRI_BAG_SUM};
    tri_module *emb = tri_nn_embedding_bag(NUM_EMBEDDINGS, EMBEDDING_DIM, &sum);
    tri_optimizer *opt = tri_sgd(emb, 0.05, NULL); /* of what it serves: trainers only say when */

    TRI_TRY(tri_rpc_init("ps", NULL));
    TRI_TRY(tri_remote_serve(NULL, "embedding", emb, opt, NULL));
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER)); /* until all others have come to their join */
    TRI_TRY(tri_rpc_fini());
    tri_optimizer_destroy(opt);
    tri_module_destroy(emb);
}

/* --- trainers ------------------------------------------------------------- */

/* From low to high, both included. */
static int64_t random_integer(uint64_t *state, int64_t low, int64_t high)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((*state >> 33) % (uint64_t)(high - low + 1));
}

typedef struct batch {
    tri_tensor *indices; /* rows of the table: 20 to 50 */
    tri_tensor *offsets; /* where each sample's rows begin: it has 1 to 10 of them */
    tri_tensor *targets; /* the classes of the samples */
} batch;

static batch get_next_batch(uint64_t *random)
{
    int64_t indices[MAX_INDICES], offsets[MAX_INDICES], targets[MAX_INDICES];
    int64_t n_indices = random_integer(random, 20, MAX_INDICES), n = 0;

    for (int64_t i = 0; i < n_indices; i++)
        indices[i] = random_integer(random, 0, NUM_EMBEDDINGS - 1);
    for (int64_t start = 0; start < n_indices; start += random_integer(random, 1, 10)) {
        offsets[n] = start;
        targets[n++] = random_integer(random, 0, NUM_CLASSES - 1);
    }
    return (batch){tri_tensor_from(TRI_SHAPE(n_indices), TRI_DTYPE_I64, indices),
                   tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_I64, offsets),
                   tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_I64, targets)};
}

/* One part on ps, one here. */
typedef struct hybrid_model {
    tri_module *emb; /* remote: it has no parameters in this process */
    tri_module *fc;
} hybrid_model;

static tri_tensor *hybrid_forward(const hybrid_model *model, const batch *b)
{
    tri_tensor *in[2] = {b->indices, b->offsets}, *emb_lookup;

    tri_forward_n(model->emb, in, 2, &emb_lookup, 1); /* recorded; it runs on ps, with the step */
    return tri_forward(model->fc, emb_lookup);
}

static tri_status train(hybrid_model *model, tri_remote_optimizer *opt, uint64_t random)
{
    tri_status status = TRI_OK;

    for (int64_t epoch = 0; epoch < n_epochs && status == TRI_OK; epoch++) {
        for (int i = 0; i < BATCHES && status == TRI_OK; i++) {
            batch b = get_next_batch(&random);

            tri_backward(tri_cross_entropy(hybrid_forward(model, &b), b.targets, NULL));
            status = tri_remote_optimizer_step(opt); /* the table and the layer, or neither */
            tri_step_end();
            tri_tensor_unref(b.indices);
            tri_tensor_unref(b.offsets);
            tri_tensor_unref(b.targets);
        }
        if (status == TRI_OK)
            printf("Training done for epoch %lld\n", (long long)epoch);
    }
    /* Nobody but DDP has kept the replicas equal. */
    return status == TRI_OK ? tri_ddp_verify(model->fc, false) : status;
}

/* The master calls this, and passes on the name of the table. What fails here, fails there. */
static tri_status trainer_run(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    const int ranks[TRAINERS] = {0, 1};
    char name[TRI_RPC_MAX_NAME + 1] = "";
    tri_remote_optimizer *opt;
    tri_optimizer *local;
    hybrid_model model;
    tri_group *group;
    tri_status status;

    (void)object;
    if (in->bytes >= sizeof(name))
        return tri_status_fail(TRI_ERR_INVALID_ARG, "a name of %zu bytes", in->bytes);
    memcpy(name, in->data, in->bytes);
    status = tri_group_new(NULL, ranks, TRAINERS, NULL, &group); /* of the trainers alone */
    if (status != TRI_OK)
        return status;
    model.emb = tri_remote_module(NULL, name, NULL);
    model.fc = tri_ddp(tri_nn_linear(EMBEDDING_DIM, NUM_CLASSES, NULL),
                       &(tri_ddp_options){.group = group});
    local = tri_sgd(model.fc, 0.05, NULL);
    opt = tri_remote_optimizer_of(local, &model.emb, 1, NULL);
    status = train(&model, opt, (uint64_t)tri_rank() + 1);
    tri_remote_optimizer_destroy(opt);
    tri_optimizer_destroy(local);
    tri_module_destroy(model.fc);
    tri_module_destroy(model.emb);
    tri_group_unref(group);
    return status;
}
static const tri_rpc_function run_trainer = {.name = "run_trainer", .run = trainer_run};

/* Trainers passively wait for the master to call. */
static void wait_for_master(int rank)
{
    static const tri_rpc_function *const functions[] = {&run_trainer};
    char name[32];

    snprintf(name, sizeof(name), "trainer%d", rank);
    TRI_TRY(tri_rpc_init(name, &(tri_rpc_options){.functions = functions, .n_functions = 1}));
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER));
    TRI_TRY(tri_rpc_fini());
}

/* --- the master ----------------------------------------------------------- */

static void run_master(void)
{
    static const char table[] = "ps/embedding";
    const tri_rpc_message message = {.data = table, .bytes = sizeof(table)};
    const tri_rpc_call_options patient = {.timeout_ms = TRI_FOREVER};
    tri_rpc_call *calls[TRAINERS];

    TRI_TRY(tri_rpc_init("master", NULL));
    for (int i = 0; i < TRAINERS; i++) {
        char name[32];
        tri_rpc_ref *trainer;

        snprintf(name, sizeof(name), "trainer%d", i);
        TRI_TRY(tri_rpc_find(NULL, name, &trainer));
        TRI_TRY(tri_rpc_async(trainer, &run_trainer, &message, &patient, &calls[i]));
        tri_rpc_ref_unref(trainer);
    }
    for (int i = 0; i < TRAINERS; i++) { /* wait for all training to finish */
        TRI_TRY(tri_rpc_call_wait(calls[i], TRI_FOREVER));
        tri_rpc_call_destroy(calls[i]);
    }
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER));
    TRI_TRY(tri_rpc_fini());
    printf("Distributed RPC example completed successfully.\n");
}

/* --- processes ------------------------------------------------------------ */

static tri_status run_worker(int rank, void *arg)
{
    (void)arg;
    TRI_TRY(tri_init(NULL));
    rank = tri_rank();
    if (tri_world_size() != WORLD_SIZE)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "%d processes; it takes %d", tri_world_size(),
                               WORLD_SIZE);
    if (rank == MASTER)
        run_master();
    else if (rank == PS)
        run_ps();
    else
        wait_for_master(rank);
    tri_finalize();
    return TRI_OK;
}

static void parse(int argc, char **argv)
{
    static const option options[] = {{"EPOCHS", .help = "(100)", .integer = &n_epochs, .min = 1}};

    options_parse(argc, argv, "usage: rpc_ddp [EPOCHS]", options);
}

/* Starts the workers, unless a launcher has done so: then this is one of them. */
static tri_status start(void)
{
    return strcmp(tri_launcher(), "none") == 0 ? tri_spawn(run_worker, NULL, WORLD_SIZE, NULL)
                                               : run_worker(0, NULL);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    TRI_TRY(start());
    return 0;
}
