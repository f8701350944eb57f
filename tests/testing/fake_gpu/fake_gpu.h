/*
 * fake_gpu.h - a stand-in for CUDA's runtime and NCCL: two GPUs that compute nothing, whose queues
 * hold back what comes after a point that the test chooses. What is called is logged in order.
 *
 * It is strict where CUDA is: an event and the queue that it is recorded on are of one GPU, and
 * NULL is the default queue of the thread's current GPU.
 */
#ifndef TEST_FAKE_GPU_H
#define TEST_FAKE_GPU_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* A queue of the GPU that is the thread's current one, called `name` in the log; one letter. */
cudaStream_t fake_gpu_queue(char name);
/* Something long begins on the queue, and what is put there later waits until it ends. */
void fake_gpu_begin(cudaStream_t queue);
void fake_gpu_end(cudaStream_t queue);
/* From now on NCCL begins no group of calls, or does again. */
void fake_gpu_refuse_groups(bool refuse);

/* The calls so far, in order, such as "record a, wait a, all_reduce, record nccl, ": an event is
 * called by the queue that it was recorded on; the plug-in's is "nccl", the default one "0" or "1",
 * by its GPU. Copied to text. */
void fake_gpu_log(char *text, size_t bytes);
void fake_gpu_clear_log(void);

#endif
