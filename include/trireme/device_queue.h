/*
 * device_queue.h - devices, and the order of what happens to their memory.
 *
 * A queue is what runs on one device, in order: a cudaStream_t of CUDA. Each thread has a current
 * queue of every device: the one that it has named with tri_device_set_queue, else the device's
 * default queue (of CUDA: the default stream). A cpu device has no queue.
 *
 * Calls on memory of a device (group.h, engine nccl) are ordered by it: the operation reads and
 * writes its buffers after everything that has been put on the calling thread's current queue of
 * their device before the call. So nobody need wait for the kernels that fill a buffer before
 * sending it. What is on other queues is not waited for: let the current queue wait for it first
 * (cudaStreamWaitEvent).
 *
 * Done means done for the host, and so for every queue: once a call without a handle has returned,
 * or tri_work_wait or tri_work_test has returned TRI_OK, all that is put on any queue finds the
 * result. Until then the buffers are borrowed, and no queue waits for the operation by itself. (A
 * call that lets a queue wait for a work, so that the host need not, can be added later without a
 * change to this.)
 *
 * Operations on tensors keep the same promise (device.h).
 */
#ifndef TRIREME_DEVICE_QUEUE_H
#define TRIREME_DEVICE_QUEUE_H

#include <trireme/status.h>

TRI_BEGIN_DECLS

typedef enum tri_device_kind { TRI_DEVICE_CPU = 0, TRI_DEVICE_CUDA } tri_device_kind;

/* A kind and an index below TRI_MAX_DEVICES; 0 is cpu:0. */
typedef int32_t tri_device;
#define TRI_MAX_DEVICES 1000 /* of a kind */
#define TRI_CPU(index) ((tri_device)(index))
#define TRI_CUDA(index) ((tri_device)(TRI_DEVICE_CUDA << 16 | (index)))

/**
 * Makes `queue` this thread's current queue of the device, until it names another one; NULL = the
 * device's default queue. For CUDA it is a cudaStream_t of the device that cudaSetDevice knows by
 * the same index (TRI_VISIBLE_DEVICES renumbers only those of tensors), and one that is not being
 * captured into a graph. The queue is borrowed: calls use it until they return, and it must exist
 * as long as it is current and the thread makes calls on memory of the device.
 *
 * Never blocks, and does not look whether device and queue exist: a call that cannot use them fails
 * (INVALID_ARG). Errors: INVALID_ARG (no device; a queue of a cpu device), UNSUPPORTED (this thread
 * has named queues of 32 other devices).
 */
TRI_API TRI_MUST_CHECK tri_status tri_device_set_queue(tri_device device, void *queue);
/* This thread's current queue of the device, as it was named; NULL = the default one, or none. */
TRI_API void *tri_device_queue(tri_device device);

TRI_END_DECLS

#endif
