/*
 * account_owner.h - a worker that owns a small network and the accounts of its gradients, without
 * the calls that bring them. Tests only.
 */
#ifndef TEST_ACCOUNT_OWNER_H
#define TEST_ACCOUNT_OWNER_H

#include <math.h>

#include <trireme/context.h>
#include <trireme/trireme.h>

#include "train/parallel/rpc/account_internal.h"
#include "testing/check.h"

enum { IN = 3, HIDDEN = 5, ROWS = 4, MAX_PARAMS = 8, BATCHES = 8 };

typedef struct owner {
    tri_module *net;
    tri_optimizer *opt;
    tri_tensor *params[MAX_PARAMS];
    int n;
    trii_accounts *accounts;
} owner;

typedef enum { SGD, MOMENTUM, ADAM } rule;

static inline tri_module *owner_net(void)
{
    tri_manual_seed(11);
    return tri_nn_sequential(tri_nn_linear(IN, HIDDEN, NULL), tri_nn_tanh(),
                             tri_nn_linear(HIDDEN, 1, NULL));
}

static inline tri_optimizer *owner_optimizer(tri_module *net, rule r)
{
    if (r == ADAM)
        return tri_adam(net, 0.05, NULL);
    return tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = r == MOMENTUM ? 0.9 : 0});
}

static inline void owner_begin_with(owner *o, rule r, tri_remote_versions versions)
{
    memset(o, 0, sizeof(*o));
    o->net = owner_net();
    o->opt = owner_optimizer(o->net, r);
    for (int64_t i = 0; i < tri_module_state_count(o->net); i++)
        o->params[o->n++] = tri_module_state(o->net, i).tensor;
    CHECK_OK(trii_accounts_create(o->params, o->n, o->opt, versions, &o->accounts));
}

static inline void owner_begin(owner *o)
{
    owner_begin_with(o, MOMENTUM, TRI_REMOTE_COPY);
}

static inline void owner_end(owner *o)
{
    trii_accounts_destroy(o->accounts);
    tri_optimizer_destroy(o->opt);
    tri_module_destroy(o->net);
}

/* Input or target of a batch: the same for the same number. */
static inline tri_tensor *batch_data(int batch, int64_t columns)
{
    float data[ROWS * IN];

    for (int i = 0; i < ROWS * columns; i++)
        data[i] = sinf((float)(i + 1) * 0.7f + (float)batch * 1.3f + (float)columns);
    return tri_tensor_from((int64_t[]){ROWS, columns}, 2, TRI_DTYPE_F32, data);
}

static inline double total_of(tri_tensor *tensor)
{
    return tri_item(tri_sum(tensor, NULL, 0, false));
}

static inline tri_tensor *loss_of(tri_module *net, tri_tensor *x, tri_tensor *y)
{
    return tri_mse_loss(tri_forward(net, x), y, NULL);
}

/* --- backwards ------------------------------------------------------------ */

/* A forward that has run, and waits. */
typedef struct graph {
    tri_context *context;
    tri_tensor *x, *y, *loss;
} graph;

static inline void graph_forward(owner *o, graph *g, int batch)
{
    CHECK_OK(tri_context_create(&g->context));
    CHECK_OK(tri_context_enter(g->context));
    g->x = batch_data(batch, IN);
    g->y = batch_data(batch, 1);
    g->loss = tri_keep(loss_of(o->net, g->x, g->y));
    CHECK_OK(tri_run());
    trii_accounts_keep_read(o->accounts, trii_step_current());
    CHECK_OK(tri_context_leave());
}

static inline void graph_end(graph *g)
{
    tri_context_destroy(g->context);
    tri_tensor_unref(g->x);
    tri_tensor_unref(g->y);
}

/* skip: a parameter that the loss is said not to reach; -1 = none. */
static inline tri_status graph_backward(owner *o, graph *g, const trii_remote_key *key,
                                        const trii_remote_order *order, int skip)
{
    tri_tensor *grads[MAX_PARAMS];
    trii_vid vids[MAX_PARAMS];
    trii_step *step;
    tri_status status = tri_context_enter(g->context);

    if (status != TRI_OK)
        return status;
    step = trii_step_current();
    trii_accounts_read_again(o->accounts, step);
    status = trii_account_expect(o->accounts, key, order, step);
    if (status == TRI_OK)
        status = tri_gradients(&g->loss, 1, o->params, o->n,
                               &(tri_gradients_options){.keep_graph = true}, grads);
    for (int i = 0; i < o->n && status == TRI_OK; i++) {
        vids[i] = TRII_NO_VALUE;
        if (i != skip)
            status = trii_resolve(step, grads[i], &vids[i]);
    }
    if (status == TRI_OK)
        status = trii_account_add(o->accounts, key, order, step, vids);
    if (status == TRI_OK)
        status = tri_run();
    trii_account_added(o->accounts, key, status);
    CHECK_OK(tri_context_leave());
    return status;
}

static inline tri_status owner_add_ordered(owner *o, const trii_remote_key *key,
                                           const trii_remote_order *order, int batch)
{
    graph g;
    tri_status status;

    graph_forward(o, &g, batch);
    status = graph_backward(o, &g, key, order, -1);
    graph_end(&g);
    return status;
}

static inline trii_remote_key key_of(const char *trainer, int64_t number, int attempt)
{
    trii_remote_key key = {
        .incarnation = 7, .optimizer = 1, .step = number * TRII_ACCOUNT_FIRST + attempt};

    snprintf(key.trainer, sizeof(key.trainer), "%s", trainer);
    return key;
}

static inline tri_status owner_add(owner *o, const trii_remote_key *key, uint32_t seq, int batch)
{
    return owner_add_ordered(o, key, &(trii_remote_order){.seq = seq}, batch);
}

/* --- updates -------------------------------------------------------------- */

static inline tri_status owner_ask(owner *o, trii_remote_kind kind, const trii_remote_key *key,
                                   uint64_t n_backwards, trii_remote_updated *reply_out)
{
    const trii_remote_update update = {
        .magic = TRII_REMOTE_MAGIC, .kind = kind, .key = *key, .n_backwards = n_backwards};
    trii_remote_updated reply;

    return trii_account_update(o->accounts, &update, sizeof(update),
                               reply_out != NULL ? reply_out : &reply);
}

static inline tri_status owner_prepare(owner *o, const trii_remote_key *key, uint64_t n_backwards)
{
    return owner_ask(o, TRII_REMOTE_PREPARE, key, n_backwards, NULL);
}

static inline tri_status owner_commit(owner *o, const trii_remote_key *key)
{
    return owner_ask(o, TRII_REMOTE_COMMIT, key, 0, NULL);
}

static inline tri_status owner_drop(owner *o, const trii_remote_key *key)
{
    return owner_ask(o, TRII_REMOTE_DROP, key, 0, NULL);
}

static inline void owner_update(owner *o, const trii_remote_key *key, uint64_t n_backwards)
{
    CHECK_OK(owner_prepare(o, key, n_backwards));
    CHECK_OK(owner_commit(o, key));
}

static inline uint64_t hash_of(tri_module *net)
{
    uint64_t hash = 0;

    CHECK_OK(tri_module_hash(net, &hash));
    return hash;
}

/* A model that one process trains with the same batches: passes[p] of them in backward pass p. */
static inline uint64_t hash_of_one_process(rule r, int steps, const int *passes, int n_passes)
{
    tri_module *net = owner_net();
    tri_optimizer *opt = owner_optimizer(net, r);
    uint64_t hash;

    for (int step = 0; step < steps; step++) {
        tri_tensor *x[BATCHES], *y[BATCHES];
        int batch = 0;

        for (int p = 0; p < n_passes; p++) {
            tri_tensor *sum = NULL;

            for (int i = 0; i < passes[p]; i++, batch++) {
                x[batch] = batch_data(step * BATCHES + batch, IN);
                y[batch] = batch_data(step * BATCHES + batch, 1);
                sum = sum == NULL ? loss_of(net, x[batch], y[batch])
                                  : tri_add(sum, loss_of(net, x[batch], y[batch]));
            }
            tri_backward(sum);
        }
        CHECK_OK(tri_optimizer_step(opt));
        tri_step_end();
        while (batch-- > 0) {
            tri_tensor_unref(x[batch]);
            tri_tensor_unref(y[batch]);
        }
    }
    hash = hash_of(net);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    return hash;
}

#endif
