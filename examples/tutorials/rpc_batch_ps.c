/*
 * rpc_batch_ps.c - PyTorch's tutorial "Implementing Batch RPC Processing Using Asynchronous
 * Executions", its first part: a function that keeps its request, and answers many of them at a
 * time.
 *
 *     python parameter_server.py         becomes  build/bin/rpc_batch_ps
 *
 * A parameter server waits for the gradients of all five trainers, updates its ResNet-50 once, and
 * returns it to all of them. To try it with less:
 *
 *     build/bin/rpc_batch_ps [TRAINERS [BATCHES [WIDTH]]]    (5, 6, 64 channels at the front)
 *
 * A launcher that starts the processes decides how many trainers there are:
 *
 *     trirun --nproc_per_node=6 build/bin/rpc_batch_ps
 *     torchrun --no-python --nproc_per_node=6 build/bin/rpc_batch_ps
 *     mpirun -np 6 build/bin/rpc_batch_ps
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include <trireme/models.h>
#include <trireme/rpc.h>
#include <trireme/trireme.h>

#include "../command_line.h"

enum { MAX_TRAINERS = 64, BATCH = 20, CLASSES = 30, SIDE = 64, MAX_PARAMETERS = 512 };

static int64_t n_trainers = 5, n_batches = 6, width = 64;

/* The tutorial's rpc_timeout=0: a round takes as long as the slowest trainer. */
static const tri_rpc_call_options patient = {.timeout_ms = TRI_FOREVER};

/* Of midnight, as clocks here show it: localtime is for one thread, and timed_log is not. */
static time_t midnight;

static void find_midnight(void)
{
    const time_t now = time(NULL);
    const struct tm *parts = localtime(&now);

    midnight = now - (parts->tm_hour * 60 + parts->tm_min) * 60 - parts->tm_sec;
}

static void TRI_PRINTF(1, 2) timed_log(const char *format, ...)
{
    const long seconds = (long)difftime(time(NULL), midnight) % (24 * 60 * 60);
    char text[256];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    printf("%02ld:%02ld:%02ld %s\n", seconds / 3600, seconds / 60 % 60, seconds % 60, text);
    fflush(stdout);
}

/* A ResNet-50 and its parameters, which travel as one array. */
typedef struct network {
    tri_module *module;
    tri_tensor *parameters[MAX_PARAMETERS];
    int n;
    size_t count;
} network;

static size_t bytes_of(tri_tensor *parameter)
{
    return (size_t)tri_tensor_numel(parameter) * sizeof(float);
}

static void network_create(network *net)
{
    net->module = tri_model_resnet_of_width(50, width, CLASSES);
    net->n = 0;
    for (int64_t i = 0; i < tri_module_state_count(net->module); i++) {
        const tri_state_entry entry = tri_module_state(net->module, i);

        if (entry.parameter)
            net->parameters[net->n++] = entry.tensor;
    }
    net->count = (size_t)tri_module_parameter_count(net->module); /* 23,569,502 */
}

/* --- the parameter server ------------------------------------------------- */

typedef struct server {
    float *weights; /* in memory that trainers map: a reply with them copies nothing */
    float *grads, *momenta;
    size_t count;
    tri_rpc_request *waiting[MAX_TRAINERS]; /* answered when the last one comes */
    int n_waiting;
    atomic_int batch_update_size; /* trainers that are alive */
    _Atomic(tri_rpc_ref *) self;
} server;

/* serial: the library runs one request at a time, so that no function of it needs a lock. */
static const tri_rpc_object server_class = {.name = "BatchUpdateParameterServer", .serial = true};

/* Updates once all trainers that are alive have sent their gradients, and answers all of them. A
 * request whose trainer was lost is answered, too: the library waits for it at the end. */
static void update_if_complete(server *s)
{
    const tri_rpc_part weights = {s->weights, s->count * sizeof(float)};
    int alive = 0;

    for (int i = 0; i < s->n_waiting; i++)
        alive += !tri_rpc_request_is_cancelled(s->waiting[i]); /* its trainer was not lost since */
    if (s->n_waiting == 0 || (alive > 0 && alive < atomic_load(&s->batch_update_size)))
        return;
    for (size_t i = 0; i < s->count; i++) {
        if (alive > 0) { /* SGD(lr=0.001, momentum=0.9) with their mean */
            s->momenta[i] = 0.9f * s->momenta[i] + s->grads[i] / (float)s->n_waiting;
            s->weights[i] -= 0.001f * s->momenta[i];
        }
        s->grads[i] = 0;
    }
    if (alive > 0)
        timed_log("PS updated model");
    for (int i = 0; i < s->n_waiting; i++)
        TRI_TRY(tri_rpc_reply(s->waiting[i], &(tri_rpc_message){.parts = &weights, .n_parts = 1}));
    s->n_waiting = 0;
}

static tri_status run_update(tri_rpc_request *request, void *object)
{
    server *s = object;
    const tri_rpc_message *in = tri_rpc_request_message(request);
    const float *grads;

    if (in->n_parts != 1 || in->parts[0].bytes != s->count * sizeof(float))
        return tri_status_fail(TRI_ERR_INVALID_ARG, "gradients of another model");
    if (s->n_waiting == MAX_TRAINERS)
        return tri_status_fail(TRI_ERR_STATE, "more than %d gradients", MAX_TRAINERS);
    timed_log("PS got %d/%d updates", s->n_waiting, atomic_load(&s->batch_update_size));
    grads = in->parts[0].data; /* where the trainer has them: nothing was copied */
    for (size_t i = 0; i < s->count; i++)
        s->grads[i] += grads[i];
    s->waiting[s->n_waiting++] = request;
    update_if_complete(s);
    return TRI_INPROGRESS; /* kept: no thread waits for the others */
}
static const tri_rpc_function update_and_fetch_model = {
    .name = "ps.update_and_fetch_model", .max_part = (size_t)1 << 30, .run = run_update};

static tri_status run_get_model(tri_rpc_request *request, void *object)
{
    const server *s = object;
    const tri_rpc_part weights = {s->weights, s->count * sizeof(float)};

    return tri_rpc_reply(request, &(tri_rpc_message){.parts = &weights, .n_parts = 1});
}
static const tri_rpc_function get_model = {
    .name = "ps.get_model", .max_part = (size_t)1 << 30, .run = run_get_model};

static tri_status run_trainer_lost(tri_rpc_request *request, void *object)
{
    (void)request;
    update_if_complete(object); /* perhaps all others have waited for that one */
    return TRI_OK;
}
static const tri_rpc_function trainer_lost = {.name = "ps.trainer_lost", .run = run_trainer_lost};

/* Told by a thread of the library, which must not wait: the rest is a call to our own object. */
static void on_event(tri_rpc *rpc, const tri_rpc_event *event, void *arg)
{
    server *s = arg;
    tri_rpc_ref *self = atomic_load(&s->self);

    (void)rpc;
    if (event->kind != TRI_RPC_LOST)
        return;
    timed_log("%s", event->text);
    atomic_fetch_sub(&s->batch_update_size, 1);
    if (self != NULL && tri_rpc_async(self, &trainer_lost, NULL, NULL, NULL) != TRI_OK)
        timed_log("%s", tri_last_error());
}

static void server_create(server *s)
{
    network net;
    size_t at = 0;

    network_create(&net);
    s->count = net.count;
    s->weights = tri_rpc_alloc(NULL, s->count * sizeof(float));
    s->grads = calloc(s->count, sizeof(float));
    s->momenta = calloc(s->count, sizeof(float));
    if (s->weights == NULL || s->grads == NULL || s->momenta == NULL)
        exit(1);
    for (int i = 0; i < net.n; i++) {
        TRI_TRY(
            tri_tensor_copy_out(net.parameters[i], s->weights + at, bytes_of(net.parameters[i])));
        at += (size_t)tri_tensor_numel(net.parameters[i]);
    }
    tri_module_destroy(net.module);
}

/* --- a trainer ------------------------------------------------------------ */

/* Makes the parameters those of the server, and releases the reply. */
static void load_weights(const network *net, tri_rpc_message *reply)
{
    const float *from = reply->n_parts == 1 ? reply->parts[0].data : NULL;

    if (from == NULL || reply->parts[0].bytes != net->count * sizeof(float))
        exit(1);
    for (int i = 0; i < net->n; i++) {
        TRI_TRY(tri_tensor_copy_in(net->parameters[i], from, bytes_of(net->parameters[i])));
        from += tri_tensor_numel(net->parameters[i]);
    }
    tri_rpc_message_free(reply);
}

/* Forward and backward of one batch. */
static void compute(const network *net, tri_tensor *labels, float *grads)
{
    tri_tensor *inputs = tri_randn(TRI_SHAPE(BATCH, 3, SIDE, SIDE), TRI_DTYPE_F32);
    tri_tensor *loss = tri_mse_loss(tri_forward(net->module, inputs), labels, NULL);
    tri_tensor *of[MAX_PARAMETERS];

    TRI_TRY(tri_gradients(&loss, 1, net->parameters, net->n, NULL, of));
    for (int i = 0; i < net->n; i++)
        tri_keep(of[i]);
    for (int i = 0; i < net->n; i++) { /* the first one runs all of it */
        TRI_TRY(tri_tensor_copy_out(of[i], grads, bytes_of(of[i])));
        grads += tri_tensor_numel(of[i]);
    }
    tri_step_end();
}

/* Called by the server. Its own calls to the server are nested in that: where it is lost, and where
 * it cancels, they end. */
static tri_status run_trainer(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    const char *name = tri_rpc_name(NULL);
    tri_tensor *labels = tri_tensor_clone(
        tri_cast(tri_one_hot(tri_randint(0, CLASSES, TRI_SHAPE(BATCH), TRI_DTYPE_I64), CLASSES),
                 TRI_DTYPE_F32));
    tri_rpc_part part;
    float *grads;
    tri_rpc_message reply;
    network net;
    tri_status status;

    (void)object;
    network_create(&net);
    grads = tri_rpc_alloc(NULL, net.count * sizeof(float));
    part = (tri_rpc_part){grads, net.count * sizeof(float)};
    if (grads == NULL || in->n_refs != 1)
        exit(1);
    status = tri_rpc_sync(in->refs[0], &get_model, NULL, &patient, &reply);
    for (int64_t i = 0; i < n_batches && status == TRI_OK; i++) {
        load_weights(&net, &reply);
        timed_log("%s processing one batch", name);
        compute(&net, labels, grads);
        timed_log("%s reporting grads", name);
        status = tri_rpc_sync(in->refs[0], &update_and_fetch_model,
                              &(tri_rpc_message){.parts = &part, .n_parts = 1}, &patient, &reply);
        if (status == TRI_OK)
            timed_log("%s got updated model", name);
    }
    if (status == TRI_OK)
        tri_rpc_message_free(&reply);
    tri_rpc_free(NULL, grads);
    tri_tensor_unref(labels);
    tri_module_destroy(net.module);
    return status;
}
static const tri_rpc_function trainer = {.name = "run_trainer", .run = run_trainer};

/* --- all of them ---------------------------------------------------------- */

static void run_ps(server *s, int n)
{
    tri_rpc_call *calls[MAX_TRAINERS];
    tri_rpc_ref *self;
    int n_done = 0;

    timed_log("Start training");
    server_create(s);
    TRI_TRY(tri_rpc_own(NULL, NULL, &server_class, s, &self));
    atomic_store(&s->self, self);
    for (int i = 0; i < n; i++) {
        char name[32];
        tri_rpc_ref *to;

        snprintf(name, sizeof(name), "trainer%d", i + 1);
        TRI_TRY(tri_rpc_find(NULL, name, &to));
        TRI_TRY(tri_rpc_async(to, &trainer, &(tri_rpc_message){.refs = &self, .n_refs = 1},
                              &patient, &calls[i]));
        tri_rpc_ref_unref(to);
    }
    for (int i = 0; i < n; i++) {
        const tri_status status = tri_rpc_call_wait(calls[i], 0);

        if (status != TRI_ERR_PEER_LOST) /* the others train on */
            TRI_TRY(status);
        n_done += status == TRI_OK;
        tri_rpc_call_destroy(calls[i]);
    }
    TRI_TRY(tri_rpc_sync(self, &trainer_lost, NULL, &patient, NULL)); /* nothing is kept after it */
    timed_log("Finish training");
    if (n_done < n)
        timed_log("%d of %d trainers were lost", n - n_done, n);
    tri_rpc_free(NULL, s->weights);
    free(s->grads);
    free(s->momenta);
}

static tri_status run_ps_or_trainer(int rank, void *arg)
{
    static const tri_rpc_function *const of_ps[] = {&get_model, &update_and_fetch_model,
                                                    &trainer_lost};
    static const tri_rpc_function *const of_trainer[] = {&trainer};
    static server s;
    char name[32];

    (void)rank;
    (void)arg;
    TRI_TRY(tri_init(NULL)); /* the names depend on the rank */
    if (tri_world_size() < 2 || tri_world_size() > MAX_TRAINERS + 1)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "a server and 1 to %d trainers are needed",
                               MAX_TRAINERS);
    tri_manual_seed((uint64_t)tri_rank() + 1); /* each trainer has images of its own */
    if (tri_rank() == 0) {
        atomic_store(&s.batch_update_size, tri_world_size() - 1);
        TRI_TRY(tri_rpc_init(
            "ps", &(tri_rpc_options){
                      .functions = of_ps, .n_functions = 3, .event = on_event, .arg = &s}));
        run_ps(&s, tri_world_size() - 1);
    } else {
        snprintf(name, sizeof(name), "trainer%d", tri_rank());
        TRI_TRY(tri_rpc_init(name, &(tri_rpc_options){.functions = of_trainer, .n_functions = 1}));
    }
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER)); /* trainers passively wait for ps to call them */
    TRI_TRY(tri_rpc_fini());
    tri_rpc_ref_unref(atomic_load(&s.self)); /* only now can on_event not read it any more */
    tri_finalize();
    return TRI_OK;
}

static void parse(int argc, char **argv)
{
    static const option options[] = {
        {"TRAINERS", .help = "without a launcher (5)", .integer = &n_trainers, .min = 1,
         .max = MAX_TRAINERS},
        {"BATCHES", .help = "of each trainer (6)", .integer = &n_batches, .min = 1},
        {"WIDTH", .help = "channels at the front of the network (64)", .integer = &width, .min = 1,
         .max = 4096}};

    options_parse(argc, argv, "usage: rpc_batch_ps [TRAINERS [BATCHES [WIDTH]]]", options);
}

/* Starts the workers, unless a launcher has done so: then this is one of them. */
static tri_status start(void)
{
    return strcmp(tri_launcher(), "none") == 0
               ? tri_spawn(run_ps_or_trainer, NULL, (int)n_trainers + 1, NULL)
               : run_ps_or_trainer(0, NULL);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    find_midnight();
    TRI_TRY(start());
    return 0;
}
