/*
 * nccl.c - see nccl_engine.h: the engine's table.
 */
#include <stdlib.h>
#include <string.h>

#include "engine-nccl/nccl_engine.h"

#define PAUSE_NS 20000      /* between looks at what is under way */
#define LEAVE_NS 1000000000 /* the longest that leaving waits for the peers */

const trii_host *nccl_host;

/* --- the thread ----------------------------------------------------------- */

static void finish(nccl_group *g, nccl_task *task, tri_status status)
{
    (void)cudaEventDestroy(task->event);
    nccl_host->op_finish(task->op, status, status != TRI_OK ? g->fault->text : NULL);
    nccl_host->free(task);
}

static tri_status failed(nccl_group *g, const nccl_task *task, const char *why)
{
    char call[256];

    nccl_host->describe(&task->op->call, call, sizeof(call));
    nccl_host->fault_raise(g->fault, TRI_ERR_PEER_LOST, "rank %d: %s: nccl: %s", g->rank, call,
                           why);
    return trii_plugin_cause(nccl_host, g->fault);
}

/* Calls of a communicator that does not block are under way when they return. */
static ncclResult_t await_call(nccl_group *g, ncclResult_t result)
{
    while (result == ncclInProgress && trii_fault_status(g->fault) == TRI_OK) {
        nccl_host->sleep_until(nccl_host->now_ns() + PAUSE_NS);
        if (ncclCommGetAsyncError(g->comm, &result) != ncclSuccess)
            return ncclInternalError;
    }
    return result;
}

static tri_status start(nccl_group *g, nccl_task *task)
{
    tri_status status = trii_fault_status(g->fault);
    cudaError_t error;
    ncclResult_t result;
    ncclRedOp_t op = ncclSum;

    if (status != TRI_OK)
        return status;
    error = cudaStreamWaitEvent(g->stream, task->event, 0);
    if (error != cudaSuccess)
        return failed(g, task, cudaGetErrorString(error));
    result = nccl_call_reduction(g, &task->op->call, &op);
    if (result == ncclSuccess)
        result = await_call(g, nccl_call_start(g, &task->op->call, op));
    if (task->op->call.op == TRII_REDOP_PREMUL_SUM && result == ncclSuccess)
        result = ncclRedOpDestroy(op, g->comm); /* what is on the stream keeps it */
    if (result != ncclSuccess)
        return failed(g, task, ncclGetErrorString(result));
    error = cudaEventRecord(task->event, g->stream);
    return error == cudaSuccess ? TRI_OK : failed(g, task, cudaGetErrorString(error));
}

/* INPROGRESS, or how it ended. */
static tri_status look(nccl_group *g, const nccl_task *task)
{
    tri_status status = trii_fault_status(g->fault);
    cudaError_t error = cudaSuccess;
    ncclResult_t result = ncclSuccess;

    if (status == TRI_OK)
        error = cudaEventQuery(task->event);
    if (status != TRI_OK || error == cudaSuccess)
        return status;
    if (error != cudaErrorNotReady)
        return failed(g, task, cudaGetErrorString(error));
    if (ncclCommGetAsyncError(g->comm, &result) != ncclSuccess ||
        (result != ncclSuccess && result != ncclInProgress))
        return failed(g, task, ncclGetErrorString(result));
    return TRI_INPROGRESS;
}

/* Sleeps if nothing is under way; false when the group is left. */
static bool take(nccl_group *g, bool idle, nccl_task **posted_out)
{
    bool leaving;

    nccl_host->mutex_lock(&g->mutex);
    while (idle && g->posted == NULL && !g->leaving)
        nccl_host->cond_wait(&g->work, &g->mutex);
    *posted_out = g->posted;
    g->posted = NULL;
    g->last_posted = &g->posted;
    leaving = g->leaving;
    if (leaving && (!idle || *posted_out != NULL))
        nccl_host->fault_raise(g->fault, TRI_ERR_ABORTED, "rank %d left the group during a call",
                               g->rank);
    nccl_host->mutex_unlock(&g->mutex);
    return !leaving || *posted_out != NULL;
}

static void run(void *arg)
{
    nccl_group *g = arg;
    nccl_task *active = NULL, **last = &active, *posted = NULL;

    (void)cudaSetDevice(g->device);
    while (take(g, active == NULL, &posted) || active != NULL) {
        while (posted != NULL) {
            nccl_task *task = posted;
            tri_status status;

            posted = task->next;
            task->next = NULL;
            status = start(g, task);
            if (status != TRI_OK) {
                finish(g, task, status);
                continue;
            }
            *last = task;
            last = &task->next;
        }
        /* One stream: the oldest ends first. */
        while (active != NULL) {
            nccl_task *task = active;
            tri_status status = look(g, task);

            if (status == TRI_INPROGRESS) {
                nccl_host->sleep_until(nccl_host->now_ns() + PAUSE_NS);
                break;
            }
            active = task->next;
            if (active == NULL)
                last = &active;
            finish(g, task, status);
        }
    }
}

/* --- forming -------------------------------------------------------------- */

static tri_status cuda_failed(const char *what, cudaError_t error)
{
    return nccl_host->fail(TRI_ERR_UNSUPPORTED, "engine nccl: %s: %s", what,
                           cudaGetErrorString(error));
}

/* This rank's number on the host, where a launcher gave one: the same in all groups. */
static int number_on_host(const nccl_group *g)
{
    static const char *const names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "SLURM_LOCALID"};
    const char *text = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && text == NULL; i++)
        text = getenv(names[i]);
    return text != NULL ? (int)strtol(text, NULL, 10) : g->rank;
}

/* The GPU of this rank. */
static tri_status choose_device(nccl_group *g)
{
    int n = 0, number = number_on_host(g);
    cudaError_t error = cudaGetDeviceCount(&n);

    if (error != cudaSuccess || n < 1)
        return cuda_failed("no GPU", error);
    g->device = (number < 0 ? 0 : number) % n;
    error = cudaSetDevice(g->device);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&g->token, 1);
    return error == cudaSuccess ? TRI_OK : cuda_failed("GPU", error);
}

/* Rank 0's name of the communicator to all. */
static tri_status share_id(const trii_group_args *args, ncclUniqueId *id)
{
    void *value = NULL;
    size_t bytes = 0;
    tri_status status;

    if (args->rank == 0 && ncclGetUniqueId(id) != ncclSuccess)
        return nccl_host->fail(TRI_ERR_UNSUPPORTED, "engine nccl: no id: %s",
                               ncclGetLastError(NULL));
    if (args->size == 1)
        return TRI_OK;
    if (args->rank == 0)
        return nccl_host->store_set(args->store, "id", id, sizeof(*id));
    status =
        nccl_host->store_get(args->store, "id", nccl_host->group_left_ms(args), &value, &bytes);
    if (status == TRI_OK && bytes == sizeof(*id))
        memcpy(id, value, sizeof(*id));
    nccl_host->store_free(value);
    return status;
}

static tri_status connect_all(nccl_group *g, const trii_group_args *args)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclResult_t result;
    tri_status status = share_id(args, &id);

    if (status != TRI_OK)
        return status;
    config.blocking = 0;
    result = ncclCommInitRankConfig(&g->comm, g->size, id, g->rank, &config);
    while (result == ncclInProgress && nccl_host->now_ns() < args->deadline_ns) {
        nccl_host->sleep_until(nccl_host->now_ns() + PAUSE_NS);
        if (ncclCommGetAsyncError(g->comm, &result) != ncclSuccess)
            result = ncclInternalError;
    }
    if (result == ncclSuccess)
        return TRI_OK;
    if (result == ncclInProgress)
        return nccl_host->fail(TRI_ERR_TIMEOUT, "engine nccl: not all ranks came in time");
    return nccl_host->fail(TRI_ERR_UNSUPPORTED, "engine nccl: %s: %s", ncclGetErrorString(result),
                           ncclGetLastError(g->comm));
}

/* Finalising waits for the peers on this host: some of them may stay. */
static bool finalise(nccl_group *g)
{
    int64_t until_ns = nccl_host->now_ns() + LEAVE_NS;
    ncclResult_t result = ncclCommFinalize(g->comm);

    while (result == ncclInProgress && nccl_host->now_ns() < until_ns) {
        nccl_host->sleep_until(nccl_host->now_ns() + PAUSE_NS);
        if (ncclCommGetAsyncError(g->comm, &result) != ncclSuccess)
            return false;
    }
    return result == ncclSuccess;
}

static void free_group(nccl_group *g, bool failure)
{
    if (g->comm != NULL && !failure && finalise(g))
        (void)ncclCommDestroy(g->comm);
    else if (g->comm != NULL)
        (void)ncclCommAbort(g->comm);
    if (g->token != NULL)
        (void)cudaFree(g->token);
    if (g->stream != NULL)
        (void)cudaStreamDestroy(g->stream);
    nccl_host->cond_fini(&g->work);
    nccl_host->mutex_fini(&g->mutex);
    nccl_host->free(g);
}

static tri_status nccl_create(const trii_group_args *args, void **self_out)
{
    nccl_group *g = nccl_host->alloc(1, sizeof(*g), "nccl group");
    int before = 0;
    bool had_device = cudaGetDevice(&before) == cudaSuccess;
    tri_status status = TRI_ERR_NO_MEMORY;

    if (g != NULL) {
        g->rank = args->rank;
        g->size = args->size;
        g->fault = args->fault;
        g->last_posted = &g->posted;
        nccl_host->mutex_init(&g->mutex);
        nccl_host->cond_init(&g->work);
        status = choose_device(g);
    }
    status = nccl_host->group_agree(args, "gpu", status);
    if (status == TRI_OK && g != NULL) {
        status = connect_all(g, args);
        if (status == TRI_OK)
            status = nccl_host->thread_start(&g->thread, "tri-nccl", run, g);
        status = nccl_host->group_agree(args, "connected", status);
    }
    if (had_device)
        (void)cudaSetDevice(before); /* the caller's */
    if (status != TRI_OK && g != NULL)
        free_group(g, true);
    else
        *self_out = g;
    return status;
}

/* --- the table ------------------------------------------------------------ */

static tri_device nccl_device(const void *self)
{
    return TRI_CUDA(((const nccl_group *)self)->device);
}

/* Records the task's event on the caller's queue: the call comes after what is there now, and not
 * after what the caller will put there. */
static tri_status mark_queue(const nccl_group *g, nccl_task *task)
{
    char text[256];
    int before = 0;
    cudaError_t error = cudaGetDevice(&before);
    const bool known = error == cudaSuccess;

    if (known)
        error = cudaSetDevice(g->device);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&task->event, cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = cudaEventRecord(task->event, task->op->queue);
    if (known)
        (void)cudaSetDevice(before); /* the caller's */
    if (error == cudaSuccess)
        return TRI_OK;
    if (task->event != NULL)
        (void)cudaEventDestroy(task->event);
    nccl_host->describe(&task->op->call, text, sizeof(text));
    return nccl_host->fail(TRI_ERR_INVALID_ARG,
                           "engine nccl: %s: this thread's queue of cuda:%d cannot be waited for: "
                           "%s; name one that exists (tri_device_set_queue)",
                           text, g->device, cudaGetErrorString(error));
}

static tri_status nccl_submit(void *self, trii_op *op, bool waits)
{
    nccl_group *g = self;
    tri_status status = trii_fault_status(g->fault);
    nccl_task *task;

    (void)waits;
    if (status != TRI_OK)
        return nccl_host->fail(status, "%s", g->fault->text);
    status = nccl_call_check(g, &op->call);
    if (status != TRI_OK)
        return status;
    task = nccl_host->alloc(1, sizeof(*task), "nccl call");
    if (task == NULL)
        return TRI_ERR_NO_MEMORY;
    task->op = op;
    status = mark_queue(g, task);
    if (status != TRI_OK) {
        nccl_host->free(task);
        return status;
    }
    nccl_host->mutex_lock(&g->mutex);
    *g->last_posted = task;
    g->last_posted = &task->next;
    nccl_host->cond_signal(&g->work);
    nccl_host->mutex_unlock(&g->mutex);
    return TRI_OK;
}

static void nccl_progress(void *self, trii_op *op, int64_t until_ns)
{
    (void)self;
    if (until_ns != 0)
        nccl_host->op_sleep(op, until_ns);
}

static void nccl_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    (void)self, (void)op;
    snprintf(text, size, "the GPU, or some rank (nccl does not say which; `trireme why` may)");
}

/* The thread sees the fault when it looks. */
static void nccl_abort(void *self)
{
    (void)self;
}

static void nccl_destroy(void *self)
{
    nccl_group *g = self;

    nccl_host->mutex_lock(&g->mutex);
    g->leaving = true;
    nccl_host->cond_signal(&g->work);
    nccl_host->mutex_unlock(&g->mutex);
    nccl_host->thread_join(&g->thread);
    free_group(g, trii_fault_status(g->fault) != TRI_OK);
}

static const trii_engine engine = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = TRII_PLUGIN_NAME,
    .kinds = TRII_KINDS_COLLECTIVE | 1u << TRII_KIND_SEND | 1u << TRII_KIND_RECV,
    .device = nccl_device,
    .create = nccl_create,
    .submit = nccl_submit,
    .progress = nccl_progress,
    .describe_wait = nccl_describe_wait,
    .abort = nccl_abort,
    .destroy = nccl_destroy,
};

__attribute__((visibility("default"))) const trii_engine *trii_engine_open(const trii_host *host)
{
    if (host->abi != TRII_HOST_ABI || host->size < sizeof(*host)) {
        (void)host->fail(TRI_ERR_UNSUPPORTED, "was built for another version of the library");
        return NULL;
    }
    nccl_host = host;
    return &engine;
}
