/*
 * rpc_rnn.c - PyTorch's tutorial "Getting Started with Distributed RPC Framework", its second part:
 * a recurrent network of which worker "ps" has the embedding table and the decoder, and worker
 * "trainer" the LSTM between them. Gradients go through both.
 *
 *     python main.py                     becomes  build/bin/rpc_rnn
 *
 * which starts the two workers. Under a launcher rank 0 is the server and rank 1 the trainer:
 *
 *     trirun --nproc_per_node=2 build/bin/rpc_rnn
 *     torchrun --no-python --nproc_per_node=2 build/bin/rpc_rnn
 *     mpirun -np 2 build/bin/rpc_rnn
 *
 * Options for a look inside, which the original does not have: --verbose prints how many parameters
 * each worker has, and the loss of each batch; --one-process keeps the whole network in one
 * process, without RPC. With --dropout=0 the losses are the same either way. (Otherwise random
 * numbers differ, since each worker draws its own.)
 */
#include <string.h>

#include <trireme/remote.h>
#include <trireme/trireme.h>

#include "../command_line.h"

enum { BATCH = 5, NTOKEN = 7, NINP = 2, NHID = 3, NINDICES = 6, NLAYERS = 4 };
enum { EPOCHS = 10, BATCHES = 5 };

static const double lr = 0.05;

typedef struct settings {
    double dropout;
    bool verbose, one_process;
} settings;

static settings args = {.dropout = 0.5};

/* --- what the server has -------------------------------------------------- */

static tri_module *embedding_table_create(void)
{
    tri_module *self =
        tri_nn_sequential(tri_nn_embedding(NTOKEN, NINP, NULL), tri_nn_dropout(args.dropout));

    TRI_TRY(tri_init_uniform(tri_module_find(self, "0.weight"), -0.1, 0.1));
    return self;
}

static tri_module *decoder_create(void)
{
    tri_module *self =
        tri_nn_sequential(tri_nn_dropout(args.dropout), tri_nn_linear(NHID, NTOKEN, NULL));

    TRI_TRY(tri_init_constant(tri_module_find(self, "1.bias"), 0));
    TRI_TRY(tri_init_uniform(tri_module_find(self, "1.weight"), -0.1, 0.1));
    return self;
}

static void print_parameters(const char *where, tri_module *module)
{
    if (args.verbose)
        printf("%s: %lld parameters\n", where, (long long)tri_module_parameter_count(module));
}

static void run_ps(void)
{
    tri_module *emb_table, *decoder;
    tri_optimizer *emb_sgd, *decoder_sgd;

    tri_manual_seed(0);
    emb_table = embedding_table_create();
    decoder = decoder_create();
    emb_sgd = tri_sgd(emb_table, lr, NULL);
    decoder_sgd = tri_sgd(decoder, lr, NULL);
    print_parameters("embedding table on ps", emb_table);
    print_parameters("decoder on ps", decoder);

    TRI_TRY(tri_rpc_init("ps", NULL));
    TRI_TRY(tri_remote_serve(NULL, "emb_table", emb_table, emb_sgd, NULL));
    TRI_TRY(tri_remote_serve(NULL, "decoder", decoder, decoder_sgd, NULL));
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER)); /* the rest is the trainer's */
    TRI_TRY(tri_rpc_fini());

    tri_optimizer_destroy(decoder_sgd);
    tri_optimizer_destroy(emb_sgd);
    tri_module_destroy(decoder);
    tri_module_destroy(emb_table);
}

/* --- what the trainer has ------------------------------------------------- */

typedef struct rnn_model {
    tri_module *emb_table, *rnn, *decoder;
} rnn_model;

/* Indices [5,6] and the hidden state (h, c) to scores [5,6,7] and the next state: [5,6] go to the
 * server and [5,6,2] come back, [5,6,3] go there and [5,6,7] come back. */
static void rnn_model_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                              int n_out)
{
    rnn_model *m = tri_module_data(self);

    tri_forward_n(m->rnn, (tri_tensor *[]){tri_forward(m->emb_table, in[0]), in[1], in[2]}, n_in,
                  out, n_out);
    out[0] = tri_forward(m->decoder, out[0]);
}

static const tri_module_class rnn_model_class = {
    .name = "RNNModel", .size = sizeof(rnn_model), .forward = rnn_model_forward};

static tri_module *rnn_model_create(tri_module *emb_table, tri_module *decoder)
{
    tri_module *self = tri_module_create(&rnn_model_class);
    rnn_model *m = tri_module_data(self);

    m->emb_table = tri_module_add_child(self, "emb_table", emb_table);
    m->rnn = tri_module_add_child(
        self, "rnn",
        tri_nn_lstm(NINP, NHID,
                    &(tri_nn_lstm_options){.num_layers = NLAYERS, .dropout = args.dropout}));
    m->decoder = tri_module_add_child(self, "decoder", decoder);
    return self;
}

/* opt NULL: all parameters are here, and `own` updates them. */
static void train(tri_module *model, tri_optimizer *own, tri_remote_optimizer *opt)
{
    tri_tensor *hidden[2];

    for (int i = 0; i < 2; i++)
        hidden[i] = tri_tensor_clone(tri_randn(TRI_SHAPE(NLAYERS, NINDICES, NHID), TRI_DTYPE_F32));
    tri_step_end();
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (int batch = 0; batch < BATCHES; batch++) {
            tri_tensor *data = tri_randint(0, NTOKEN, TRI_SHAPE(BATCH, NINDICES), TRI_DTYPE_I64);
            tri_tensor *target = tri_randint(0, NINDICES, TRI_SHAPE(BATCH, NTOKEN), TRI_DTYPE_I64);
            tri_tensor *out[3], *loss;

            tri_forward_n(model, (tri_tensor *[]){data, hidden[0], hidden[1]}, 3, out, 3);
            loss = tri_cross_entropy(out[0], target, NULL);
            tri_backward(loss);
            tri_keep(out[1]);
            tri_keep(out[2]);
            /* Runs all of the above, there and here; then all are updated, or nobody is. */
            TRI_TRY(opt != NULL ? tri_remote_optimizer_step(opt) : tri_optimizer_step(own));
            if (args.verbose)
                printf("loss %.9g\n", tri_item(loss));
            for (int i = 0; i < 2; i++) { /* a copy has no gradient: it is detached */
                tri_tensor_unref(hidden[i]);
                hidden[i] = tri_tensor_clone(out[1 + i]);
            }
            tri_step_end();
        }
        printf("Training epoch %d\n", epoch);
    }
    tri_tensor_unref(hidden[0]);
    tri_tensor_unref(hidden[1]);
}

static void run_trainer(void)
{
    tri_module *remotes[2], *model;
    tri_optimizer *own;
    tri_remote_optimizer *opt;

    TRI_TRY(tri_rpc_init("trainer", NULL));
    tri_manual_seed(1);
    remotes[0] = tri_remote_module(NULL, "ps/emb_table", NULL);
    remotes[1] = tri_remote_module(NULL, "ps/decoder", NULL);
    model = rnn_model_create(remotes[0], remotes[1]);
    own = tri_sgd(model, lr, NULL); /* of the LSTM: the others have no parameters here */
    opt = tri_remote_optimizer_of(own, remotes, 2, NULL);
    print_parameters("LSTM on trainer", model);

    train(model, own, opt);

    tri_remote_optimizer_destroy(opt);
    tri_optimizer_destroy(own);
    tri_module_destroy(model);
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER));
    TRI_TRY(tri_rpc_fini());
}

static void run_one_process(void)
{
    tri_module *emb_table, *decoder, *model;
    tri_optimizer *own;

    tri_manual_seed(0);
    emb_table = embedding_table_create();
    decoder = decoder_create();
    tri_manual_seed(1);
    model = rnn_model_create(emb_table, decoder);
    own = tri_sgd(model, lr, NULL);
    print_parameters("all", model);
    train(model, own, NULL);
    tri_optimizer_destroy(own);
    tri_module_destroy(model);
}

static tri_status run_worker(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    TRI_TRY(tri_init(NULL));
    if (tri_world_size() != 2)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "rpc_rnn: %d processes: start two",
                               tri_world_size());
    if (tri_rank() == 1)
        run_trainer();
    else
        run_ps();
    tri_finalize();
    return TRI_OK;
}

static bool has_launcher(void)
{
    return strcmp(tri_launcher(), "none") != 0;
}

static void parse(int argc, char **argv)
{
    static const option options[] = {
        {"--verbose", NULL, "parameters, and the loss of each batch", .flag = &args.verbose},
        {"--one-process", NULL, "without RPC", .flag = &args.one_process},
        {"--dropout", NULL, "(0.5)", "P", .number = &args.dropout, .max = 1}};

    options_parse(argc, argv, "usage: rpc_rnn [options]", options);
    if (args.dropout >= 1)
        options_refuse("--dropout must be below 1: nothing would be left");
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    if (args.one_process)
        run_one_process();
    else if (has_launcher())
        TRI_TRY(run_worker(0, NULL)); /* one of its processes */
    else
        TRI_TRY(tri_spawn(run_worker, NULL, 2, NULL));
    return 0;
}
