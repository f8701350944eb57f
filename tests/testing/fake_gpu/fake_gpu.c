/*
 * fake_gpu.c - see fake_gpu.h.
 *
 * A queue counts what was put on it, and its count of what is done follows as far as nothing holds
 * it back: something long of the test, or an event of another queue that it waits for.
 */
#include "testing/fake_gpu/fake_gpu.h"

#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 2
#define QUEUES 16
#define WAITS 16

struct CUstream_st {
    char name[8]; /* "" = free */
    int gpu;
    int busy; /* 1 + what was put there before the long thing; 0 = none */
    int put;
    int n_waits;
    struct {
        int at; /* what is put there later than this waits ... */
        struct CUstream_st *queue;
        int until; /* ... until so many are done there */
    } waits[WAITS];
};

struct CUevent_st {
    int gpu;
    struct CUstream_st *queue; /* NULL = not recorded */
    int at;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static struct CUstream_st queues[QUEUES] = {{.name = "0", .gpu = 0}, {.name = "1", .gpu = 1}};
static struct {
    void *p;
    int gpu;
} memory[64];
static char calls[4096];
static bool refuses_groups;
static _Thread_local int current;

static void note(const char *what, const char *name)
{
    size_t used = strlen(calls);

    snprintf(calls + used, sizeof(calls) - used, "%s%s%s, ", what, *name != '\0' ? " " : "", name);
}

static int done(const struct CUstream_st *queue)
{
    int n = queue->busy > 0 ? queue->busy - 1 : queue->put;

    for (int i = 0; i < queue->n_waits; i++) {
        if (queue->waits[i].at < n && done(queue->waits[i].queue) < queue->waits[i].until)
            n = queue->waits[i].at;
    }
    return n;
}

static struct CUstream_st *default_of(cudaStream_t stream)
{
    return stream != NULL ? stream : &queues[current];
}

static cudaStream_t open_queue(const char *name)
{
    cudaStream_t queue = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < QUEUES && queue == NULL; i++) {
        if (queues[i].name[0] == '\0')
            queue = &queues[i];
    }
    if (queue != NULL) {
        memset(queue, 0, sizeof(*queue));
        snprintf(queue->name, sizeof(queue->name), "%s", name);
        queue->gpu = current;
    }
    pthread_mutex_unlock(&lock);
    return queue;
}

/* --- the test's ----------------------------------------------------------- */

cudaStream_t fake_gpu_queue(char name)
{
    return open_queue((char[]){name, '\0'});
}

void fake_gpu_begin(cudaStream_t queue)
{
    pthread_mutex_lock(&lock);
    queue->busy = 1 + queue->put++;
    pthread_mutex_unlock(&lock);
}

void fake_gpu_end(cudaStream_t queue)
{
    pthread_mutex_lock(&lock);
    queue->busy = 0;
    pthread_mutex_unlock(&lock);
}

void fake_gpu_log(char *text, size_t bytes)
{
    pthread_mutex_lock(&lock);
    snprintf(text, bytes, "%s", calls);
    pthread_mutex_unlock(&lock);
}

void fake_gpu_clear_log(void)
{
    pthread_mutex_lock(&lock);
    calls[0] = '\0';
    pthread_mutex_unlock(&lock);
}

void fake_gpu_refuse_groups(bool refuse)
{
    pthread_mutex_lock(&lock);
    refuses_groups = refuse;
    pthread_mutex_unlock(&lock);
}

/* --- CUDA's runtime ------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = GPUS;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= GPUS)
        return cudaErrorInvalidDevice;
    current = device;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorInvalidResourceHandle ? "invalid resource handle" : "some CUDA error";
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    cudaError_t error = cudaErrorMemoryAllocation;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        if (memory[i].p != NULL)
            continue;
        memory[i].p = *p = malloc(bytes);
        memory[i].gpu = current;
        error = *p != NULL ? cudaSuccess : error;
        break;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

cudaError_t cudaFree(void *p)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        if (memory[i].p == p)
            memory[i].p = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(p);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p)
{
    memset(attributes, 0, sizeof(*attributes));
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        if (memory[i].p != p)
            continue;
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = memory[i].gpu;
    }
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    *stream = flags == cudaStreamNonBlocking ? open_queue("nccl") : NULL;
    return *stream != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    pthread_mutex_lock(&lock);
    stream->name[0] = '\0';
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    cudaError_t error = cudaErrorInvalidValue;

    pthread_mutex_lock(&lock);
    if (flags == 0 && stream->n_waits < WAITS) {
        note("wait", event->queue != NULL ? event->queue->name : "nothing");
        if (event->queue != NULL) {
            stream->waits[stream->n_waits].at = stream->put;
            stream->waits[stream->n_waits].queue = event->queue;
            stream->waits[stream->n_waits++].until = event->at;
        }
        error = cudaSuccess;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    if (flags != cudaEventDisableTiming || (*event = calloc(1, sizeof(**event))) == NULL)
        return cudaErrorInvalidValue;
    (*event)->gpu = current;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct CUstream_st *queue = default_of(stream);
    cudaError_t error = cudaErrorInvalidResourceHandle;

    pthread_mutex_lock(&lock);
    if (queue->gpu == event->gpu) {
        event->queue = queue;
        event->at = ++queue->put;
        note("record", queue->name);
        error = cudaSuccess;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    bool is_done;

    pthread_mutex_lock(&lock);
    is_done = event->queue == NULL || done(event->queue) >= event->at;
    pthread_mutex_unlock(&lock);
    return is_done ? cudaSuccess : cudaErrorNotReady;
}

/* --- NCCL ----------------------------------------------------------------- */

static ncclResult_t put(const char *what, cudaStream_t stream)
{
    pthread_mutex_lock(&lock);
    stream->put++;
    note(what, "");
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "some NCCL error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 1, sizeof(*id));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    (void)id, (void)config;
    *comm = (ncclComm_t)calls; /* nobody looks into it */
    return rank < size ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    (void)comm;
    *result = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    (void)scalar, (void)type, (void)comm;
    *op = ncclSum;
    return residence == ncclScalarHostImmediate ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    (void)op, (void)comm;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    bool refused;

    pthread_mutex_lock(&lock);
    refused = refuses_groups;
    note(refused ? "no group" : "group", "");
    pthread_mutex_unlock(&lock);
    return refused ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    pthread_mutex_lock(&lock);
    note("end", "");
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)src, (void)dst, (void)count, (void)type, (void)op, (void)comm;
    return put("all_reduce", stream);
}

ncclResult_t ncclReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    (void)src, (void)dst, (void)count, (void)type, (void)op, (void)root, (void)comm;
    return put("reduce", stream);
}

ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)src, (void)dst, (void)count, (void)type, (void)op, (void)comm;
    return put("reduce_scatter", stream);
}

ncclResult_t ncclBroadcast(const void *src, void *dst, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    (void)src, (void)dst, (void)count, (void)type, (void)root, (void)comm;
    return put("broadcast", stream);
}

ncclResult_t ncclAllGather(const void *src, void *dst, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    (void)src, (void)dst, (void)count, (void)type, (void)comm;
    return put("all_gather", stream);
}

ncclResult_t ncclSend(const void *src, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    (void)src, (void)count, (void)type, (void)peer, (void)comm;
    return put("send", stream);
}

ncclResult_t ncclRecv(void *dst, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    (void)dst, (void)count, (void)type, (void)peer, (void)comm;
    return put("recv", stream);
}
