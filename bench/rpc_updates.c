/*
 * rpc_updates.c - updates a second of a parameter server that waits for all of its trainers, adds
 * their gradients, makes one step of SGD with momentum and answers all with the weights, as
 * examples/tutorials/rpc_batch_ps.c; the gradients are made in advance. bench/rpc.sh starts a
 * server and its trainers; the server prints the updates a second.
 *
 *     bench_rpc_updates serve STORE TRAINERS FLOATS UPDATES      STORE is a file
 *     bench_rpc_updates train STORE INDEX FLOATS UPDATES
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/rpc.h>

#include "timing.h"

#define MAX_TRAINERS 16
#define BYTES_MAX ((size_t)1 << 30)

/* --- the server ----------------------------------------------------------- */

typedef struct server {
    float *weights, *momentum;
    size_t count;
    int trainers, n, updates;
    tri_rpc_request *waiting[MAX_TRAINERS];
    double began, ended;
} server;

/* The gradients are read where the trainers have them, all in one pass. */
static void step(server *s)
{
    const float *gradients[MAX_TRAINERS];
    const float share = 1.0f / (float)s->trainers;

    for (int i = 0; i < s->trainers; i++)
        gradients[i] = tri_rpc_request_message(s->waiting[i])->parts[0].data;
    for (size_t from = 0; from < s->count; from += 1024) {
        size_t n = s->count - from < 1024 ? s->count - from : 1024;
        float *w = s->weights + from, *m = s->momentum + from;
        float sum[1024];

        memcpy(sum, gradients[0] + from, n * sizeof(*sum));
        for (int i = 1; i < s->trainers; i++) {
            for (size_t k = 0; k < n; k++)
                sum[k] += gradients[i][from + k];
        }
        for (size_t k = 0; k < n; k++) {
            m[k] = 0.9f * m[k] + sum[k] * share;
            w[k] -= 0.001f * m[k];
        }
    }
}

static tri_status run_update(tri_rpc_request *request, void *object)
{
    server *s = object;
    const tri_rpc_message *in = tri_rpc_request_message(request);
    const tri_rpc_part now = {s->weights, s->count * sizeof(float)};

    if (in->n_parts != 1 || in->parts[0].bytes != now.bytes)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "gradients of another model");
    s->waiting[s->n++] = request;
    if (s->n < s->trainers)
        return TRI_INPROGRESS;
    step(s);
    s->n = 0;
    s->ended = now_us();
    if (s->updates++ == 0) /* which brings in all memory */
        s->began = s->ended;
    for (int i = 0; i < s->trainers; i++)
        TRI_TRY(tri_rpc_reply(s->waiting[i], &(tri_rpc_message){.parts = &now, .n_parts = 1}));
    return TRI_INPROGRESS;
}

static const tri_rpc_function update = {.name = "update", .max_part = BYTES_MAX, .run = run_update};
static const tri_rpc_object server_type = {.name = "server", .serial = true};

static void serve(tri_rpc *rpc, int trainers, size_t count)
{
    server s = {.count = count, .trainers = trainers};
    tri_rpc_ref *ref;

    s.weights = tri_rpc_alloc(rpc, count * sizeof(float));
    s.momentum = calloc(count, sizeof(float));
    if (s.weights == NULL || s.momentum == NULL)
        exit(1);
    memset(s.weights, 0, count * sizeof(float));
    TRI_TRY(tri_rpc_own(rpc, "server", &server_type, &s, &ref));
    TRI_TRY(tri_rpc_join(rpc, TRI_FOREVER));
    printf("%.2f\n", (s.updates - 1) / (s.ended - s.began) * 1e6);
    tri_rpc_ref_unref(ref);
    tri_rpc_free(rpc, s.weights);
    free(s.momentum);
}

/* --- a trainer ------------------------------------------------------------ */

static void train(tri_rpc *rpc, size_t count, int updates)
{
    float *gradients = tri_rpc_alloc(rpc, count * sizeof(float));
    const tri_rpc_part part = {gradients, count * sizeof(float)};
    tri_rpc_message weights;
    tri_rpc_ref *ps;

    if (gradients == NULL)
        exit(1);
    for (size_t i = 0; i < count; i++)
        gradients[i] = 1.0f / (float)(i + 1);
    TRI_TRY(tri_rpc_find(rpc, "ps/server", &ps));
    for (int i = 0; i < updates; i++) {
        TRI_TRY(tri_rpc_sync(ps, &update, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL,
                             &weights));
        if (weights.n_parts != 1 || weights.parts[0].bytes != part.bytes)
            exit(1);
        tri_rpc_message_free(&weights);
    }
    tri_rpc_ref_unref(ps);
    TRI_TRY(tri_rpc_join(rpc, 20000));
    tri_rpc_free(rpc, gradients);
}

int main(int argc, char **argv)
{
    const tri_rpc_function *const functions[] = {&update};
    const tri_rpc_options o = {.open = true, .functions = functions, .n_functions = 1};
    bool serves = argc == 6 && strcmp(argv[1], "serve") == 0;
    char name[32] = "ps";
    tri_store *store = NULL;
    tri_rpc *rpc = NULL;
    size_t count;
    int number;

    if (argc != 6)
        return 2;
    number = (int)strtol(argv[3], NULL, 10);
    count = strtoull(argv[4], NULL, 10);
    if (!serves)
        snprintf(name, sizeof(name), "trainer%s", argv[3]);
    TRI_TRY(tri_store_file(argv[2], NULL, &store));
    TRI_TRY(tri_rpc_create(store, name, 0, 0, &o, &rpc));
    tri_store_unref(store);
    if (serves)
        serve(rpc, number < MAX_TRAINERS ? number : MAX_TRAINERS, count);
    else
        train(rpc, count, (int)strtol(argv[5], NULL, 10));
    TRI_TRY(tri_rpc_leave(rpc, 0));
    tri_rpc_destroy(rpc);
    return 0;
}
