/*
 * remote.c - forward and backward of a linear layer that another worker serves, against the same
 * layer here; bench/remote.sh starts both workers, each on its core. Prints "case<tab>value" lines:
 * microseconds (medians).
 *
 *     bench_remote serve STORE    the owner; STORE is a file
 *     bench_remote steps STORE    the caller
 *
 * Each step of a trained layer begins without gradients, as in training: they are dropped, there
 * and here, instead of an update. An owner answers a backward before the gradients of parameters
 * are there, so the next forward waits for those of the step before: a step is its whole time, from
 * one beginning to the next.
 *
 * What a remote step costs beyond a local one is split: two calls there and back with a thread that
 * does nothing between ("hops"), what such calls take longer with the tensors of a step in them
 * ("copies"), and the gradients of the parameters ("accounts"), the difference to a module in no
 * optimizer whose parameters get no gradient, there and here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "timing.h"

#define FEATURES 512
#define BATCH 32
#define STEPS 1000

static tri_rpc *rpc;
static float memory[BATCH * FEATURES];

/* As a tensor comes to another worker and one goes back. */
static tri_status run_carry(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *m = tri_rpc_request_message(request);
    tri_rpc_part part = {memory, 0};

    (void)object;
    if (m->n_parts == 0)
        return TRI_OK;
    part.bytes = m->parts[0].bytes;
    memcpy(memory, m->parts[0].data, part.bytes);
    return tri_rpc_reply(request, &(tri_rpc_message){.parts = &part, .n_parts = 1});
}
static const tri_rpc_function carry = {
    .name = "carry", .max_part = sizeof(memory), .run = run_carry};

static void begin(const char *name, const char *path)
{
    static const tri_rpc_function *const functions[] = {&carry};
    const tri_rpc_options options = {.open = true, .functions = functions, .n_functions = 1};
    tri_store *store = NULL;

    TRI_TRY(tri_store_file(path, NULL, &store));
    TRI_TRY(tri_rpc_create(store, name, 0, 0, &options, &rpc));
    tri_store_unref(store);
}

static tri_module *make_layer(bool trained)
{
    tri_module *layer = tri_nn_linear(FEATURES, FEATURES, NULL);

    tri_module_requires_grad(layer, trained);
    return layer;
}

/* --- the owner ------------------------------------------------------------ */

static void serve(void)
{
    tri_module *trained = make_layer(true), *frozen = make_layer(false);
    tri_optimizer *sgd = tri_sgd(trained, 0.0, NULL);

    TRI_TRY(tri_remote_serve(rpc, "trained", trained, sgd, NULL));
    TRI_TRY(tri_remote_serve(rpc, "frozen", frozen, NULL, NULL));
    TRI_TRY(tri_rpc_join(rpc, TRI_FOREVER));
    TRI_TRY(tri_rpc_leave(rpc, 0));
    tri_optimizer_destroy(sgd);
    tri_module_destroy(trained);
    tri_module_destroy(frozen);
}

/* --- the caller ----------------------------------------------------------- */

static double step_time(tri_module *net, tri_tensor *x, tri_optimizer *own,
                        tri_remote_optimizer *remote)
{
    double times[STEPS];

    for (int i = -STEPS / 10; i < STEPS; i++) {
        double began = now_us();

        tri_backward(tri_mean(tri_square(tri_forward(net, x)), NULL, 0, false));
        TRI_TRY(tri_step_end_status());
        if (own != NULL)
            tri_optimizer_zero_grad(own);
        if (remote != NULL)
            tri_remote_optimizer_zero_grad(remote);
        if (i >= 0)
            times[i] = now_us() - began;
    }
    return median(times, STEPS);
}

/* The calls of a step: with x there and y back, then with the gradient of y there and that of x
 * back, or without them. */
static double call_time(bool carries)
{
    const tri_rpc_part part = {memory, sizeof(memory)};
    const tri_rpc_message m = {.parts = &part, .n_parts = carries ? 1 : 0};
    tri_rpc_ref *owner = NULL;
    double times[STEPS];

    TRI_TRY(tri_rpc_find(rpc, "owner", &owner));
    for (int i = -STEPS / 10; i < STEPS; i++) {
        double began = now_us();

        for (int k = 0; k < 2; k++) {
            tri_rpc_message reply;

            TRI_TRY(tri_rpc_sync(owner, &carry, &m, NULL, &reply));
            if (carries)
                memcpy(memory, reply.parts[0].data, reply.parts[0].bytes);
            tri_rpc_message_free(&reply);
        }
        if (i >= 0)
            times[i] = now_us() - began;
    }
    tri_rpc_ref_unref(owner);
    return median(times, STEPS);
}

static void compare(const char *what, const char *remote_name, bool trained, tri_tensor *x)
{
    tri_module *here = make_layer(trained), *there = tri_remote_module(rpc, remote_name, NULL);
    tri_optimizer *sgd = trained ? tri_sgd(here, 0.0, NULL) : NULL;
    tri_remote_optimizer *opt = trained ? tri_remote_optimizer_of(NULL, &there, 1, NULL) : NULL;
    double local = step_time(here, x, sgd, NULL), remote = step_time(there, x, NULL, opt);

    printf("%s, here\t%.1f\n%s, remote\t%.1f\n%s, more\t%.1f\n", what, local, what, remote, what,
           remote - local);
    tri_remote_optimizer_destroy(opt);
    tri_optimizer_destroy(sgd);
    tri_module_destroy(here);
    tri_module_destroy(there);
}

static void steps(void)
{
    static float data[BATCH * FEATURES];
    double hops = call_time(false), copies = call_time(true) - hops;
    tri_tensor *x;

    for (int i = 0; i < BATCH * FEATURES; i++)
        data[i] = (float)(i % 199 - 99) / 97;
    x = tri_tensor_from((int64_t[]){BATCH, FEATURES}, 2, TRI_DTYPE_F32, data);
    tri_requires_grad(x, true);
    printf("hops\t%.1f\ncopies\t%.1f\n", hops, copies);
    compare("frozen", "owner/frozen", false, x);
    compare("trained", "owner/trained", true, x);
    tri_tensor_unref(x);
    TRI_TRY(tri_rpc_leave(rpc, 0));
}

int main(int argc, char **argv)
{
    bool serves = argc > 1 && strcmp(argv[1], "serve") == 0;

    if (argc != 3 || (!serves && strcmp(argv[1], "steps") != 0)) {
        fprintf(stderr, "usage: bench_remote serve|steps STORE (see bench/remote.sh)\n");
        return 2;
    }
    begin(serves ? "owner" : "caller", argv[2]);
    if (serves)
        serve();
    else
        steps();
    tri_rpc_destroy(rpc);
    return 0;
}
