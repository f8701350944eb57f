/*
 * nccl_engine.h - the inside of the nccl plug-in, for buffers in the memory of a GPU.
 *
 *   nccl.c       the engine's table: groups, posting, leaving
 *   nccl_call.c  a call as NCCL calls on the group's stream
 *
 * NCCL moves and adds on the GPU, in an order of its own: sums differ from other engines' in their
 * last bits. One thread of a group makes all its calls, on one stream, so a send and a receive that
 * wait for each other must be posted in an order that NCCL can do one after the other.
 *
 * A call comes after what is on the calling thread's queue of the GPU (trireme/device_queue.h): an
 * event is recorded there before the call returns, and the group's stream waits for it. The end is
 * waited for by the host.
 *
 * Compiled against NCCL 2.14 and later; tests run it with a stand-in for both libraries, which logs
 * their calls (tests/testing/fake_gpu/). It has not run on a GPU yet.
 */
#ifndef TRII_NCCL_ENGINE_H
#define TRII_NCCL_ENGINE_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "comm/group/plugin.h"

extern const trii_host *nccl_host;

typedef struct nccl_task {
    struct nccl_task *next;
    trii_op *op;
    /* Recorded on the caller's queue, and again on the group's stream after the call: what waits
     * for an event waits for its last record so far. */
    cudaEvent_t event;
} nccl_task;

typedef struct nccl_group {
    int rank, size, device;
    trii_fault *fault;
    ncclComm_t comm;
    cudaStream_t stream;
    char *token; /* a byte on the GPU, for barriers */
    trii_thread thread;
    trii_mutex mutex;
    trii_cond work;
    bool leaving; /* guard: mutex, as what follows */
    nccl_task *posted, **last_posted;
} nccl_group;

/* Whether NCCL has the call: UNSUPPORTED names the dtype, the reduction or the buffer that it has
 * not, and which engine has. */
tri_status nccl_call_check(const nccl_group *group, const trii_collective *call);
/* NCCL's reduction for the call, if it reduces. For a premul_sum it is made, with this rank's
 * factor, and the caller destroys it once the call is on the stream. */
ncclResult_t nccl_call_reduction(const nccl_group *group, const trii_collective *call,
                                 ncclRedOp_t *op_out);
/* Puts the call on the group's stream. */
ncclResult_t nccl_call_start(const nccl_group *group, const trii_collective *call, ncclRedOp_t op);

#endif
