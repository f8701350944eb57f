/*
 * device_list.h - which devices exist, and which of them is this thread's current one.
 */
#ifndef TRII_DEVICE_LIST_H
#define TRII_DEVICE_LIST_H

#include <trireme/device.h>

#define TRII_DEVICE_KINDS 2 /* of tri_device_kind */

struct trii_memory;     /* device_memory.h */
struct trii_device_ops; /* train/plan/device_ops.h */

/* What a kind of devices brings. */
typedef struct trii_device_kind {
    int (*count)(void);               /* how many there are, before TRI_VISIBLE_DEVICES chooses */
    const struct trii_memory *memory; /* NULL = that of the host */
    const struct trii_device_ops *ops;
} trii_device_kind;

/* By tri_device_kind, NULL = the build has none of this kind. train/registry/train.c fills it in; a
 * test that brings a kind of its own does so before anything else. */
extern const trii_device_kind *trii_device_kinds[TRII_DEVICE_KINDS];

static inline int trii_device_kind_of(tri_device device)
{
    return device >> 16;
}
static inline int trii_device_index_of(tri_device device)
{
    return device & 0xffff;
}

/* INVALID_ARG, naming the device and how many there are, if it does not exist. */
tri_status trii_device_check(tri_device device) TRI_MUST_CHECK;
/* How many cpu devices share the process's threads. From this call on it is too late for
 * tri_cpu_devices_set. */
int trii_cpu_devices(void);
/* The number of threads that tri_num_threads_set has asked for, 0 = the default. A run pins it, so
 * that kernels are compiled and run with one number: then it is `pinned` on the calling thread. */
int trii_threads_asked(void);
void trii_threads_ask(int n_threads);
/* Returns what to pin afterwards: -1 = nothing was pinned, and nothing is. */
int trii_threads_pin(int pinned);
int trii_cpu_count(void);             /* at least one for each local rank */
int trii_cpu_device_place(int index); /* its number before TRI_VISIBLE_DEVICES chose and ordered */

/* The device for tensors made from nothing: a mode of a context (train/graph/step/context.c). */
#define TRII_DEVICE_SCOPES 64
typedef struct trii_device_modes {
    tri_device device; /* of tri_set_device */
    tri_device scopes[TRII_DEVICE_SCOPES];
    int depth; /* may be larger than the array, and then tri_device_begin has failed */
} trii_device_modes;
/* This thread uses these modes from now on; NULL = its own. Borrowed. */
void trii_device_modes_use(trii_device_modes *modes);

/* tri_device_begin and tri_device_end, with a status. A begin that fails still needs its end. */
tri_status trii_device_push(tri_device device) TRI_MUST_CHECK;
tri_status trii_device_pop(void) TRI_MUST_CHECK;

#endif
