/*
 * device_list.h - which devices there are, and which of them this thread makes tensors on.
 */
#ifndef TRII_DEVICE_LIST_H
#define TRII_DEVICE_LIST_H

#include <trireme/device.h>

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
int trii_cpu_device_place(int index);

/* tri_device_begin and tri_device_end, with a status. One that fails is counted all the same. */
tri_status trii_device_push(tri_device device) TRI_MUST_CHECK;
tri_status trii_device_pop(void) TRI_MUST_CHECK;

#endif
