/*
 * fit_world.c - who takes part in a fit, and what ranks tell each other outside of updates.
 *
 * A process that a launcher has started is one rank. Without a launcher the calling process is the
 * only one, or starts workers, waits, and takes from rank 0 what its caller gets: that comes
 * through a socket, predictions as a file of memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/group.h>
#include <trireme/launch.h>

#include "base/alloc.h"
#include "base/param.h"
#include "os/branch.h"
#include "os/clock.h"
#include "os/forked.h"
#include "os/shmem.h"
#include "os/unix.h"
#include "train/trainer/trainer_internal.h"

#define CALL trii_fit_call_name(t->call)

typedef tri_status (*fit_body)(tri_trainer *t, tri_fit_result *result);

/* --- what ranks tell each other ------------------------------------------- */

static tri_status reduce(tri_trainer *t, double *values, size_t n, tri_redop op)
{
    return t->size == 1 ? TRI_OK
                        : tri_all_reduce(t->group, values, values, n, TRI_DTYPE_F64, op, NULL);
}

tri_status trii_fit_sum(tri_trainer *t, double *values, size_t n)
{
    return reduce(t, values, n, TRI_REDOP_SUM);
}

tri_status trii_fit_max(tri_trainer *t, double *values, size_t n)
{
    return reduce(t, values, n, TRI_REDOP_MAX);
}

tri_status trii_fit_send_text(tri_trainer *t, char *text, size_t bytes)
{
    return t->size == 1 ? TRI_OK : tri_broadcast(t->group, text, bytes, TRI_DTYPE_U8, 0, NULL);
}

/* The group that the options name; NULL = none, so it is the world. */
static tri_group *given_group(const tri_fit_options *opt)
{
    return opt->ddp != NULL ? opt->ddp->group : opt->zero != NULL ? opt->zero->group : NULL;
}

/* --- this process is a rank ----------------------------------------------- */

static tri_status check_size(const tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;
    int local = t->group == NULL ? tri_local_world_size() : t->size;
    int devices = opt->devices > 0 ? opt->devices : local;
    int nodes = opt->num_nodes > 0 ? opt->num_nodes : (t->size + local - 1) / local;

    if (t->set.strategy == TRII_STRATEGY_DATA_PARALLEL && t->size > 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: strategy \"data_parallel\" is for one process with several devices, "
                         "and there are %d workers: use \"ddp\", or start one",
                         CALL, t->size);
    if (t->set.strategy == TRII_STRATEGY_SINGLE && t->size > 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: strategy \"single\", and there are %d workers, each of which would "
                         "train alone: leave strategy out, or start one",
                         CALL, t->size);
    if (t->set.strategy != TRII_STRATEGY_DATA_PARALLEL && devices * nodes != t->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: devices %d x num_nodes %d is %d, and there are %d workers (%s): "
                         "leave both out, or start %d",
                         CALL, devices, nodes, devices * nodes, t->size,
                         t->group != NULL ? "of the group" : tri_launcher(), devices * nodes);
    return TRI_OK;
}

static tri_status run_here(tri_trainer *t, fit_body body, tri_fit_result *result)
{
    tri_status status = TRI_OK;

    t->group = given_group(t->opt);
    if (t->group == NULL && !tri_is_initialized() && strcmp(tri_launcher(), "none") != 0)
        status = tri_init(NULL);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", CALL);
    t->rank = t->group != NULL ? tri_group_rank(t->group) : tri_rank();
    t->size = t->group != NULL ? tri_group_size(t->group) : tri_world_size();
    if (t->rank < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: this process is not a member of %s->group", CALL,
                         t->opt->ddp != NULL ? "ddp" : "zero");
    status = check_size(t);
    return status == TRI_OK ? body(t, result) : status;
}

/* --- workers that this process starts ------------------------------------- */

/* What rank 0 of the workers sends; the contents of a tensor follow as a file. */
typedef struct handed_back {
    tri_fit_result result;
    int32_t has_tensor, dtype, ndim;
    int64_t shape[TRI_MAX_DIMS];
    uint64_t bytes;
} handed_back;

typedef struct workers {
    tri_trainer *t;
    fit_body body;
    int devices, nodes, node_rank;
    const char *host; /* where the nodes meet; NULL = there is one */
    int64_t port;
    int back[2]; /* sockets: of rank 0, of the caller */
} workers;

static tri_status join_nodes(const workers *w, int rank)
{
    char url[512];

    if (w->host == NULL)
        return tri_init(NULL);
    snprintf(url, sizeof(url),
             strchr(w->host, ':') != NULL ? "tcp://[%s]:%" PRId64 : "tcp://%s:%" PRId64, w->host,
             w->port);
    return tri_init(&(tri_init_options){
        .url = url, .rank = w->node_rank * w->devices + rank, .world_size = w->devices * w->nodes});
}

static tri_status describe(handed_back *back, tri_tensor *tensor, trii_shmem *file)
{
    tri_status status;

    back->has_tensor = 1;
    back->dtype = (int32_t)tri_tensor_dtype(tensor);
    back->ndim = tri_tensor_ndim(tensor);
    for (int d = 0; d < back->ndim; d++)
        back->shape[d] = tri_tensor_size(tensor, d);
    back->bytes = (uint64_t)tri_tensor_numel(tensor) * tri_dtype_size(tri_tensor_dtype(tensor));
    if (back->bytes == 0)
        return TRI_OK;
    status = trii_shmem_create("trireme predictions", back->bytes, file);
    return status == TRI_OK ? tri_tensor_copy_out(tensor, file->base, back->bytes) : status;
}

static tri_status hand_back(const workers *w, const tri_fit_result *result, tri_tensor *tensor)
{
    handed_back back = {.result = *result};
    trii_shmem file = {.fd = -1};
    tri_status status = tensor != NULL ? describe(&back, tensor, &file) : TRI_OK;

    if (status == TRI_OK)
        status = trii_unix_send(w->back[0], &back, sizeof(back), file.fd, TRII_NO_DEADLINE);
    trii_shmem_close_fd(&file);
    trii_shmem_release(&file);
    return status;
}

static tri_status run_worker(int rank, void *arg)
{
    const workers *w = arg;
    tri_trainer *t = w->t;
    tri_tensor *predictions = NULL;
    tri_fit_result result = {0};
    tri_status status = join_nodes(w, rank);

    if (t->predictions_out != NULL)
        t->predictions_out = &predictions;
    if (status == TRI_OK) {
        t->rank = tri_rank();
        t->size = tri_world_size();
        status = w->body(t, &result);
    }
    if (status == TRI_OK && rank == 0)
        status = hand_back(w, &result, predictions);
    tri_tensor_unref(predictions);
    return status;
}

static tri_status take_back(const workers *w, tri_fit_result *result, tri_tensor **predictions_out)
{
    handed_back *back = trii_alloc(1, sizeof(*back), "result");
    trii_shmem file = {.fd = -1};
    int fd = -1;
    tri_status status = back != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = trii_unix_recv(w->back[1], back, sizeof(*back), &fd, trii_deadline_ms(1000));
    if (status == TRI_OK && back->has_tensor != 0 && predictions_out != NULL) {
        if (back->bytes > 0)
            status = trii_shmem_attach(fd, back->bytes, &file);
        if (status == TRI_OK) {
            *predictions_out =
                file.base != NULL
                    ? tri_tensor_from(back->shape, back->ndim, (tri_dtype)back->dtype, file.base)
                    : tri_tensor_create(back->shape, back->ndim, (tri_dtype)back->dtype);
            status = tri_tensor_status(*predictions_out);
        }
        trii_shmem_release(&file);
    }
    if (status == TRI_OK)
        *result = back->result;
    trii_unix_close(fd);
    trii_free(back);
    return status;
}

/* Copies of a process that has computed cannot compute, and copies of one with several threads
 * would lack all but one. */
static tri_status check_copies(const workers *w)
{
    const tri_trainer *t = w->t;
    const char *why = tri_is_initialized()    ? "has joined a world"
                      : trii_forked_watched() ? "has computed with tensors"
                      : trii_process_threads() > 1
                          ? "has several threads (of a loader, or of the program's own)"
                          : NULL;

    if (why == NULL)
        return TRI_OK;
    return TRII_FAIL(
        TRI_ERR_STATE,
        "%s: devices %d: workers are copies of this process, and it %s: call %s before "
        "that, or start the program with trirun --standalone --nproc-per-node %d",
        CALL, w->devices, why, CALL, w->devices);
}

static tri_status find_nodes(workers *w)
{
    const tri_trainer *t = w->t;
    const char *port = getenv("MASTER_PORT"), *rank = getenv("NODE_RANK");
    int64_t number = 0;
    tri_status status;

    w->host = getenv("MASTER_ADDR");
    if (w->host == NULL || port == NULL || rank == NULL)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "%s: num_nodes %d without a launcher needs MASTER_ADDR, MASTER_PORT and NODE_RANK in "
            "the environment (%s is missing); or start on each node: trirun --nnodes %d "
            "--nproc-per-node %d --rdzv-endpoint HOST:29400 PROGRAM",
            CALL, w->nodes,
            w->host == NULL ? "MASTER_ADDR"
            : port == NULL  ? "MASTER_PORT"
                            : "NODE_RANK",
            w->nodes, w->devices);
    status = trii_parse_i64(port, "MASTER_PORT", 1, 65535, &w->port);
    if (status == TRI_OK)
        status = trii_parse_i64(rank, "NODE_RANK", 0, w->nodes - 1, &number);
    w->node_rank = (int)number;
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s", CALL);
}

static tri_status start_workers(workers *w, tri_fit_result *result)
{
    tri_trainer *t = w->t;
    tri_tensor **predictions_out = t->predictions_out;
    tri_status status = w->nodes > 1 ? find_nodes(w) : TRI_OK;

    if (status == TRI_OK)
        status = check_copies(w);
    if (status == TRI_OK && t->call == TRII_FIT)
        status = tri_stop_watch(); /* tri_spawn passes on what is recorded here */
    if (status == TRI_OK)
        status = trii_pair_open(&w->back[0], &w->back[1]);
    if (status != TRI_OK)
        return status;
    status = tri_spawn(run_worker, w, w->devices, &(tri_spawn_options){.how = TRI_SPAWN_COPY});
    if (status == TRI_OK)
        status = take_back(w, result, predictions_out);
    trii_unix_close(w->back[0]);
    trii_unix_close(w->back[1]);
    return status;
}

tri_status trii_fit_run(tri_trainer *t, fit_body body, tri_fit_result *result)
{
    workers w = {.t = t,
                 .body = body,
                 .devices = t->opt->devices > 0 ? t->opt->devices : 1,
                 .nodes = t->opt->num_nodes > 0 ? t->opt->num_nodes : 1,
                 .back = {-1, -1}};

    if (given_group(t->opt) != NULL || strcmp(tri_launcher(), "none") != 0 ||
        tri_is_initialized() || t->set.strategy == TRII_STRATEGY_DATA_PARALLEL ||
        w.devices * w.nodes == 1)
        return run_here(t, body, result);
    if (t->set.strategy == TRII_STRATEGY_SINGLE)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "%s: strategy \"single\" with devices %d and num_nodes %d: use \"ddp\", or "
            "leave them out",
            CALL, w.devices, w.nodes);
    return start_workers(&w, result);
}
