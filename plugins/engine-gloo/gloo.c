/*
 * gloo.c - the gloo plug-in: the connections and moves of Gloo, the library under PyTorch's CPU
 * backend, and this library's sums (shared/moves.h).
 *
 * Gloo's calls block, so a group has threads: one makes the collectives in their order, and each
 * message under way has one that waits for it. A message must be as long as its receive: Gloo ends
 * the process of a rank that gets a longer one.
 */
#include <string.h>

#include "base/log.h"
#include "engine-gloo/gloo_shim.h"
#include "comm/group/plugin.h"
#include "shared/moves.h"

#define MOMENT_MS 1000 /* the least time for connecting */

static const trii_host *host;

/* A call under way; memory of its moves after it. */
typedef struct gloo_task {
    struct gloo_task *next;
    trii_op *op;
    gloo_message *message; /* of a send or receive, else NULL */
    trii_moves moves;
    int64_t *bytes; /* [2 * size]: for and of each rank */
} gloo_task;

struct gloo_group;

/* A thread that waits for messages. */
typedef struct gloo_waiter {
    struct gloo_waiter *next;
    trii_thread thread;
} gloo_waiter;

typedef struct gloo_group {
    int rank, size;
    trii_fault *fault;
    gloo_shim *shim;
    trii_thread mover;
    trii_mutex mutex;
    trii_cond work;
    bool left;    /* only destroy is to come */
    bool leaving; /* guard: mutex, as all that follows */
    gloo_task *calls, **last_call;
    gloo_task *messages, **last_message;
    gloo_waiter *waiters;
    int n_idle; /* of the waiters, less the messages that were given to them */
} gloo_group;

/* --- calls ---------------------------------------------------------------- */

static tri_status fail_call(gloo_group *g, gloo_task *task, const char *why)
{
    char call[256];

    host->describe(&task->op->call, call, sizeof(call));
    if (host->fault_raise(g->fault, TRI_ERR_PEER_LOST, "rank %d: %s: gloo: %s", g->rank, call, why))
        gloo_shim_close(g->shim); /* the other waits cannot succeed either */
    return trii_plugin_cause(host, g->fault);
}

static void finish(gloo_group *g, gloo_task *task, tri_status status)
{
    host->op_finish(task->op, status, status != TRI_OK ? g->fault->text : NULL);
    host->free(task);
}

/* Gather and scatter are all_to_all with nothing for most: Gloo's own know only equal parts. */
static bool all_to_all(gloo_group *g, const gloo_task *task, const trii_move *m, char *why)
{
    size_t elem = task->moves.elem_bytes;
    int64_t *out = task->bytes, *in = task->bytes + g->size;
    bool root = m->root == g->rank;
    const char *src = m->src;
    char *dst = m->dst;

    memset(task->bytes, 0, 2 * (size_t)g->size * sizeof(*task->bytes));
    for (int r = 0; r < g->size; r++) {
        int64_t from = m->src_at != NULL ? (int64_t)((m->src_at[r + 1] - m->src_at[r]) * elem) : 0;
        int64_t to = m->dst_at != NULL ? (int64_t)((m->dst_at[r + 1] - m->dst_at[r]) * elem) : 0;

        if (m->kind == TRII_MOVE_ALL_TO_ALL || root) {
            out[r] = m->kind != TRII_MOVE_GATHER ? from : 0;
            in[r] = m->kind != TRII_MOVE_SCATTER ? to : 0;
        }
    }
    if (m->kind == TRII_MOVE_GATHER)
        out[m->root] = (int64_t)(m->count * elem);
    if (m->kind == TRII_MOVE_SCATTER)
        in[m->root] = (int64_t)(m->count * elem);
    return gloo_shim_all_to_all(g->shim, src, out, dst, in, why);
}

static bool move(gloo_group *g, const gloo_task *task, const trii_move *m, char *why)
{
    switch (m->kind) {
    case TRII_MOVE_BROADCAST:
        return gloo_shim_broadcast(g->shim, m->dst, m->count * task->moves.elem_bytes, m->root,
                                   why);
    case TRII_MOVE_ALL_GATHER:
        return gloo_shim_all_gather(g->shim, m->in_place || m->count == 0 ? NULL : m->src, m->dst,
                                    m->dst_at, task->moves.elem_bytes, why);
    case TRII_MOVE_GATHER:
    case TRII_MOVE_SCATTER:
    case TRII_MOVE_ALL_TO_ALL:
        return all_to_all(g, task, m, why);
    default:
        return gloo_shim_barrier(g->shim, why);
    }
}

static tri_status make_call(gloo_group *g, gloo_task *task)
{
    const trii_moves *moves = &task->moves;
    char why[GLOO_WHY_BYTES] = "";

    if (!move(g, task, &moves->first, why))
        return fail_call(g, task, why);
    if (moves->n_parts > 0)
        host->reduce(moves->parts, moves->n_parts, moves->sum, moves->part_count,
                     task->op->call.dtype, task->op->call.op);
    if (moves->second.kind != TRII_MOVE_NONE && !move(g, task, &moves->second, why))
        return fail_call(g, task, why);
    return TRI_OK;
}

static tri_status end_message(gloo_group *g, gloo_task *task)
{
    char why[GLOO_WHY_BYTES] = "";
    int from = task->op->peer;

    if (!gloo_message_wait(task->message, &from, why))
        return fail_call(g, task, why);
    if (task->op->call.from != NULL)
        *task->op->call.from = from;
    if (task->op->call.kind == TRII_KIND_RECV_ANY)
        task->op->peer = from;
    return TRI_OK;
}

/* --- threads -------------------------------------------------------------- */

static gloo_task *pop(gloo_task **first, gloo_task ***last)
{
    gloo_task *task = *first;

    if (task != NULL) {
        *first = task->next;
        if (*first == NULL)
            *last = first;
    }
    return task;
}

static void push(gloo_task ***last, gloo_task *task)
{
    task->next = NULL;
    **last = task;
    *last = &task->next;
}

static void run_mover(void *arg)
{
    gloo_group *g = arg;
    gloo_task *task;

    for (;;) {
        tri_status status;

        host->mutex_lock(&g->mutex);
        while (g->calls == NULL && !g->leaving)
            host->cond_wait(&g->work, &g->mutex);
        task = pop(&g->calls, &g->last_call);
        host->mutex_unlock(&g->mutex);
        if (task == NULL)
            return;
        status = trii_fault_status(g->fault);
        finish(g, task, status == TRI_OK ? make_call(g, task) : status);
    }
}

static void run_waiter(void *arg)
{
    gloo_group *g = arg;
    gloo_task *task;

    for (;;) {
        tri_status status;

        host->mutex_lock(&g->mutex);
        while (g->messages == NULL && !g->leaving)
            host->cond_wait(&g->work, &g->mutex);
        task = pop(&g->messages, &g->last_message);
        host->mutex_unlock(&g->mutex);
        if (task == NULL)
            return;
        status = end_message(g, task);
        host->mutex_lock(&g->mutex);
        g->n_idle++; /* first: with its last operation a group may go */
        host->mutex_unlock(&g->mutex);
        finish(g, task, status);
    }
}

/* Under the mutex: every message has a waiter, so none can hold up another. */
static tri_status need_waiter(gloo_group *g)
{
    gloo_waiter *waiter;
    tri_status status;

    if (g->n_idle > 0) {
        g->n_idle--;
        return TRI_OK;
    }
    waiter = host->alloc(1, sizeof(*waiter), "gloo waiter");
    if (waiter == NULL)
        return TRI_ERR_NO_MEMORY;
    status = host->thread_start(&waiter->thread, "tri-gloo-wait", run_waiter, g);
    if (status != TRI_OK) {
        host->free(waiter);
        return status;
    }
    waiter->next = g->waiters;
    g->waiters = waiter;
    return TRI_OK;
}

/* --- the table ------------------------------------------------------------ */

static tri_status post_message(gloo_group *g, gloo_task *task)
{
    const trii_move *m = &task->moves.first;
    size_t bytes = m->count * task->moves.elem_bytes;
    char why[GLOO_WHY_BYTES] = "";
    tri_status status;

    host->mutex_lock(&g->mutex);
    status = need_waiter(g);
    if (status == TRI_OK) {
        task->message = m->kind == TRII_MOVE_SEND
                            ? gloo_shim_send(g->shim, m->src, bytes, m->root, m->tag, why)
                            : gloo_shim_recv(g->shim, m->dst, bytes,
                                             m->kind == TRII_MOVE_RECV ? m->root : -1, m->tag, why);
        if (task->message != NULL) {
            push(&g->last_message, task);
            host->cond_broadcast(&g->work);
        } else {
            g->n_idle++;
            status = fail_call(g, task, why);
        }
    }
    host->mutex_unlock(&g->mutex);
    return status;
}

static tri_status gloo_submit(void *self, trii_op *op, bool waits)
{
    gloo_group *g = self;
    size_t elem = op->call.kind == TRII_KIND_BARRIER ? 1 : host->dtype_size(op->call.dtype);
    size_t head = (sizeof(gloo_task) + 2 * (size_t)g->size * sizeof(int64_t) + 63) / 64 * 64;
    tri_status status = trii_fault_status(g->fault);
    gloo_task *task;

    (void)waits;
    if (status != TRI_OK)
        return host->fail(status, "%s", g->fault->text);
    task = host->alloc(1, head + trii_moves_memory(&op->call, elem, g->rank, g->size), "gloo call");
    if (task == NULL)
        return TRI_ERR_NO_MEMORY;
    task->op = op;
    task->bytes = (int64_t *)(void *)(task + 1);
    trii_moves_plan(&op->call, elem, g->rank, g->size, (char *)task + head, &task->moves);
    if (trii_kind_in(op->call.kind, TRII_KINDS_PAIR)) {
        status = post_message(g, task);
        if (status != TRI_OK) {
            host->free(task);
            return host->fail(status, "%s", g->fault->text);
        }
        return TRI_OK;
    }
    host->mutex_lock(&g->mutex);
    push(&g->last_call, task);
    host->cond_broadcast(&g->work);
    host->mutex_unlock(&g->mutex);
    return TRI_OK;
}

static void gloo_progress(void *self, trii_op *op, int64_t until_ns)
{
    (void)self;
    if (until_ns != 0)
        host->op_sleep(op, until_ns);
}

static void gloo_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    (void)self;
    if (op->call.kind == TRII_KIND_SEND || op->call.kind == TRII_KIND_RECV)
        snprintf(text, size, "rank %d to %s the message", op->call.root,
                 op->call.kind == TRII_KIND_SEND ? "take" : "send");
    else
        snprintf(text, size, "some rank (gloo does not say which; `trireme why` may)");
}

static void gloo_abort(void *self)
{
    gloo_group *g = self;

    if (!g->left)
        gloo_shim_close(g->shim); /* all waits end by it */
}

static void free_group(gloo_group *g)
{
    gloo_shim_destroy(g->shim);
    host->cond_fini(&g->work);
    host->mutex_fini(&g->mutex);
    host->free(g);
}

/* Closes the connections. What this rank sent last is with the kernel, which brings it to the peer
 * unless that sends something meanwhile that nobody here will read: Gloo has no word for leaving
 * that a peer would answer. */
static void gloo_leave(void *self)
{
    gloo_group *g = self;
    bool busy;

    if (g->left)
        return;
    g->left = true;
    host->mutex_lock(&g->mutex);
    busy = g->calls != NULL || g->messages != NULL;
    for (gloo_waiter *w = g->waiters; w != NULL; w = w->next)
        busy = busy || --g->n_idle < 0;
    g->leaving = true;
    host->cond_broadcast(&g->work);
    host->mutex_unlock(&g->mutex);
    if (busy)
        host->fault_raise(g->fault, TRI_ERR_ABORTED, "rank %d left the group during a call",
                          g->rank);
    if (busy || trii_fault_status(g->fault) != TRI_OK)
        gloo_shim_close(g->shim);
    host->thread_join(&g->mover);
    while (g->waiters != NULL) {
        gloo_waiter *w = g->waiters;

        g->waiters = w->next;
        host->thread_join(&w->thread);
        host->free(w);
    }
    gloo_shim_destroy(g->shim);
    g->shim = NULL;
}

static void gloo_destroy(void *self)
{
    gloo_leave(self);
    free_group(self);
}

/* --- forming -------------------------------------------------------------- */

static bool store_set(void *arg, const char *key, const void *data, size_t bytes)
{
    const trii_group_args *args = arg;

    return host->store_set(args->store, key, data, bytes) == TRI_OK;
}

static int64_t store_get(void *arg, const char *key, void *data, size_t room)
{
    const trii_group_args *args = arg;
    void *value = NULL;
    size_t bytes = 0;

    if (host->store_get(args->store, key, host->group_left_ms(args), &value, &bytes) != TRI_OK)
        return -1;
    if (bytes <= room)
        memcpy(data, value, bytes);
    host->store_free(value);
    return bytes <= room ? (int64_t)bytes : -1;
}

/* Our address: as the user says, loopback if all are on one host, else what our name leads to. */
static tri_status choose_host(const trii_group_args *args, char *mine, size_t bytes)
{
    bool same = true;
    tri_status status = TRI_OK;

    host->host_name(mine, bytes);
    if (args->size > 1) {
        char key[32];

        snprintf(key, sizeof(key), "host/%d", args->rank);
        status = host->store_set(args->store, key, mine, strlen(mine));
        for (int r = 0; r < args->size && status == TRI_OK; r++) {
            char *other = NULL;

            snprintf(key, sizeof(key), "host/%d", r);
            status =
                host->store_get(args->store, key, host->group_left_ms(args), (void **)&other, NULL);
            same = status == TRI_OK && same && strcmp(other, mine) == 0;
            host->store_free(other);
        }
    }
    if (args->bind_host != NULL)
        snprintf(mine, bytes, "%s", args->bind_host);
    else if (same)
        snprintf(mine, bytes, "127.0.0.1");
    return status;
}

static tri_status connect_all(gloo_group *g, const trii_group_args *args)
{
    /* create() gets args as const, and gloo's store only reads them */
    const gloo_store store = {.arg = (void *)(uintptr_t)args, .set = store_set, .get = store_get};
    int64_t left_ms = host->group_left_ms(args);
    char why[GLOO_WHY_BYTES] = "", address[256];
    tri_status status = choose_host(args, address, sizeof(address));

    if (status != TRI_OK)
        return status;
    left_ms = left_ms < 0 || left_ms > INT32_MAX ? INT32_MAX : left_ms;
    g->shim = gloo_shim_create(g->rank, g->size, &store, address,
                               left_ms > MOMENT_MS ? left_ms : MOMENT_MS, why);
    if (g->shim == NULL)
        return host->fail(TRI_ERR_TIMEOUT, "engine gloo, address %s: %s", address, why);
    return TRI_OK;
}

static tri_status gloo_create(const trii_group_args *args, void **self_out)
{
    gloo_group *g = host->alloc(1, sizeof(*g), "gloo group");
    tri_status status = host->group_agree(args, "memory", g != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);

    if (g == NULL || status != TRI_OK) {
        host->free(g);
        return status != TRI_OK ? status : TRI_ERR_NO_MEMORY;
    }
    g->rank = args->rank;
    g->size = args->size;
    g->fault = args->fault;
    g->last_call = &g->calls;
    g->last_message = &g->messages;
    host->mutex_init(&g->mutex);
    host->cond_init(&g->work);
    status = connect_all(g, args);
    if (status == TRI_OK)
        status = host->thread_start(&g->mover, "tri-gloo", run_mover, g);
    status = host->group_agree(args, "connected", status);
    if (status != TRI_OK) {
        free_group(g);
        return status;
    }
    *self_out = g;
    return TRI_OK;
}

static const trii_engine engine = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = TRII_PLUGIN_NAME,
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .create = gloo_create,
    .submit = gloo_submit,
    .progress = gloo_progress,
    .describe_wait = gloo_describe_wait,
    .abort = gloo_abort,
    .destroy = gloo_destroy,
    .leave = gloo_leave,
};

__attribute__((visibility("default"))) const trii_engine *trii_engine_open(const trii_host *table)
{
    if (table->abi != TRII_HOST_ABI || table->size < sizeof(*table)) {
        (void)table->fail(TRI_ERR_UNSUPPORTED, "was built for another version of the library");
        return NULL;
    }
    host = table;
    return &engine;
}
