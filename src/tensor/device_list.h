/*
 * device_list.h - which devices exist, and which of them is this thread's current one.
 */
#ifndef TRII_DEVICE_LIST_H
#define TRII_DEVICE_LIST_H

#include <trireme/device.h>

struct trii_memory;     /* device_memory.h */
struct trii_device_ops; /* plan/device_ops.h */

/* What a kind of devices is made of. */
typedef struct trii_device_kind {
    int (*count)(void);               /* how many there are, before TRI_VISIBLE_DEVICES chooses */
    const struct trii_memory *memory; /* NULL = that of the host */
    const struct trii_device_ops *ops;
} trii_device_kind;

/* By tri_device_kind, NULL = none of it: registry/train.c fills this, and a test that brings a kind
 * of its own, before anything else. */
extern const trii_device_kind *trii_device_kinds[TRI_DEVICE_KINDS];

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
/* Among how many cpu devices the process's threads are shared out, and the place of this one in
 * that order, before TRI_VISIBLE_DEVICES. From now on tri_cpu_devices is too late. */
int trii_cpu_devices(void);
int trii_cpu_count(void); /* with those that a launcher asks for */
int trii_cpu_device_place(int index);

/* Where what is made from nothing lies: a mode of a context (graph/context.c). */
#define TRII_DEVICE_SCOPES 64
typedef struct trii_device_modes {
    tri_device device; /* of tri_set_device */
    tri_device scopes[TRII_DEVICE_SCOPES];
    int depth; /* may be more than there is room */
} trii_device_modes;
/* This thread works with these from now on; NULL = its own. Borrowed. */
void trii_device_modes_use(trii_device_modes *modes);

/* tri_device_begin and tri_device_end, with a status. One that fails is counted all the same. */
tri_status trii_device_push(tri_device device) TRI_MUST_CHECK;
tri_status trii_device_pop(void) TRI_MUST_CHECK;

#endif
