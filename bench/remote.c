/*
 * remote.c - forward and backward of a linear layer that another worker serves, against the same
 * layer here; bench/remote.sh starts both workers, each on its core. Prints "case<tab>value" lines:
 * microseconds (medians).
 *
 *     bench_remote serve STORE    the owner; STORE is a file
 *     bench_remote steps STORE    the caller
 *
 * What a remote step costs beyond a local one is split: two calls there and back with a thread that
 * does nothing between ("hops"), the tensors moved as often as a step moves them ("copies"), and
 * the gradients of the parameters ("accounts"), the difference to a module in no optimizer whose
 * parameters get no gradient, there and here.
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

static tri_status run_nothing(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function nothing = {.name = "nothing", .run = run_nothing};

static void begin(const char *name, const char *path)
{
    static const tri_rpc_function *const functions[] = {&nothing};
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

static double step_time(tri_module *net, tri_tensor *x)
{
    double times[STEPS];

    for (int i = -STEPS / 10; i < STEPS; i++) {
        double began = now_us();

        tri_backward(tri_mean(tri_square(tri_forward(net, x)), NULL, 0, false));
        TRI_TRY(tri_step_end_status());
        if (i >= 0)
            times[i] = now_us() - began;
    }
    return median(times, STEPS);
}

static double hop_time(void)
{
    tri_rpc_ref *owner = NULL;
    double times[STEPS];

    TRI_TRY(tri_rpc_find(rpc, "owner", &owner));
    for (int i = -STEPS / 10; i < STEPS; i++) {
        double began = now_us();

        for (int k = 0; k < 2; k++)
            TRI_TRY(tri_rpc_sync(owner, &nothing, NULL, NULL, NULL));
        if (i >= 0)
            times[i] = now_us() - began;
    }
    tri_rpc_ref_unref(owner);
    return median(times, STEPS);
}

/* x, y and their gradients: into the sender's shared memory and out of it. */
static double copy_time(void)
{
    static float memory[9][BATCH * FEATURES];
    double times[STEPS];

    for (int i = -STEPS / 10; i < STEPS; i++) {
        double began = now_us();

        for (int k = 0; k < 8; k++)
            memcpy(memory[k + 1], memory[k], sizeof(memory[0]));
        __asm__ volatile("" : : "r"(memory) : "memory");
        if (i >= 0)
            times[i] = now_us() - began;
    }
    return median(times, STEPS);
}

static void compare(const char *what, const char *remote_name, bool trained, tri_tensor *x)
{
    tri_module *here = make_layer(trained), *there = tri_remote_module(rpc, remote_name, NULL);
    tri_remote_optimizer *opt = NULL;
    double local, remote;

    if (trained)
        opt = tri_remote_optimizer_of(NULL, &there, 1, NULL);
    local = step_time(here, x);
    remote = step_time(there, x);
    printf("%s, here\t%.1f\n%s, remote\t%.1f\n%s, more\t%.1f\n", what, local, what, remote, what,
           remote - local);
    tri_remote_optimizer_destroy(opt);
    tri_module_destroy(here);
    tri_module_destroy(there);
}

static void steps(void)
{
    static float data[BATCH * FEATURES];
    tri_tensor *x;

    for (int i = 0; i < BATCH * FEATURES; i++)
        data[i] = (float)(i % 199 - 99) / 97;
    x = tri_tensor_from((int64_t[]){BATCH, FEATURES}, 2, TRI_DTYPE_F32, data);
    tri_requires_grad(x, true);
    printf("hops\t%.1f\ncopies\t%.1f\n", hop_time(), copy_time());
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
