/*
 * device.h - where tensors lie and operations run. A part of tensor.h.
 *
 * A cpu device is a share of the process's threads: cpu:0 has all of them unless there are more
 * (TRI_CPU_DEVICES=N in the environment, or tri_cpu_devices_set); with fewer threads than devices
 * each has one. Under a launcher cpu:k exists for every k below the local world size, with all
 * threads of its process, so that tri_set_device(TRI_CPU(tri_local_rank())) works in programs that
 * come from GPUs.
 *
 * An operation runs where its operands lie. What is made from nothing (tri_tensor_create,
 * tri_zeros, modules) lies on the current device of the thread: that of the innermost
 * tri_device_begin, else of tri_set_device, else cpu:0; both are modes of its context. tri_to
 * copies a tensor to another device.
 *
 * A step runs on each device in a queue of the library's: after everything that the thread which
 * runs it (by asking for a value, or ending the step) has put on its current queue of that device
 * before (device_queue.h). What is handed out, a value or a status, is done for the host, and so
 * for every queue. (This build has no kind of device with queues: a cpu device has none.)
 */
#ifndef TRIREME_DEVICE_H
#define TRIREME_DEVICE_H

#include <trireme/device_queue.h>
#include <trireme/scope.h>
#include <trireme/status.h>

TRI_BEGIN_DECLS

/* The name of a device, such as "cpu:1"; "no device" for other values. Static text. */
TRI_API const char *tri_device_text(tri_device device);
/* How many devices of the kind there are; 0 for kinds that this build lacks, such as CUDA.
 * TRI_VISIBLE_DEVICES, a list such as "cpu:2,cpu:0" (or "2,0"), chooses and renumbers devices: of a
 * kind that it names, only the listed ones exist, the first of them as number 0. */
TRI_API int tri_device_count(tri_device_kind kind);
/* Makes n cpu devices, each with its share of the process's threads, whatever TRI_CPU_DEVICES says.
 * Call it at most once, before anything uses a device or runs (else STATE).
 * 1 <= n <= TRI_MAX_DEVICES. */
TRI_API TRI_MUST_CHECK tri_status tri_cpu_devices_set(int n);

/* The number of threads with which this process computes; its cpu devices share them
 * (tri_cpu_devices_set). By default TRI_NUM_THREADS, which trirun sets, else OMP_NUM_THREADS, else
 * the cores that this process may use divided by the number of ranks on its host: as far as these
 * are known when it first computes, so after tri_init. Any thread. torch.get_num_threads. */
TRI_API int tri_num_threads(void);
/* Sets it for the whole process, whatever the environment and the launcher say; 1 <= n <= 1024. Any
 * thread, at any time, before or after tri_init. A run under way keeps its number; later ones
 * compile kernels for the new one when they first use it, and their matrix products may differ in
 * the last bits. Not counted: threads of loaders and of communication. In workers of tri_spawn it
 * is what the program had set before that call. torch.set_num_threads. Errors: INVALID_ARG. */
TRI_API TRI_MUST_CHECK tri_status tri_num_threads_set(int n);

/* Sets the default device of the context in which this thread records (trireme/context.h), which is
 * its own unless it has entered another. INVALID_ARG if the device does not exist. */
TRI_API TRI_MUST_CHECK tri_status tri_set_device(tri_device device);
/* The device on which this thread makes tensors now. */
TRI_API tri_device tri_current_device(void);
/* Between these, tensors made from nothing lie on `device`. They nest. The step fails if the device
 * does not exist (INVALID_ARG), or with more than 64 levels or an end too many (STATE). */
TRI_API void tri_device_begin(tri_device device);
TRI_API void tri_device_end(void);
/* The same for a block, as TRI_NO_GRAD: TRI_ON(TRI_CPU(1)) { ... }. */
#define TRI_ON(device) TRI_SCOPE_BLOCK_((tri_device_begin(device), tri_device_end))
#define TRI_ON_HERE(device) TRI_SCOPE_HERE_((tri_device_begin(device), tri_device_end))

TRI_END_DECLS

#endif
