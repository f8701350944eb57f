/*
 * guarded.h - devices whose memory the host may not touch: in place of the kind "cuda", which this
 * build does not have, there are cuda:0 and cuda:1, whose kernels are those of the cpu device.
 *
 * Nobody can read or write their memory but a kernel of that device while it runs, and the copies
 * of the device; anything else that touches it dies at once. What is put on a queue runs as late as
 * it may: when somebody asks for what it makes (synchronise), or for what comes after it, on that
 * queue or after an event on another.
 */
#ifndef TEST_GUARDED_H
#define TEST_GUARDED_H

#include <stdbool.h>
#include <stddef.h>

/* Before anything else. Once. */
void guarded_register(void);
/* How many kernels have run on both so far. */
int guarded_kernels(void);
/* How often a queue has waited for an event of another one. */
int guarded_waits(void);
/* Bytes of the device's memory that somebody has. */
size_t guarded_bytes(int index);
/* The n-th call of this kind from now on fails; a kernel when it runs. */
typedef enum guarded_call {
    GUARDED_KERNEL,
    GUARDED_COMPILE,
    GUARDED_QUEUE_CREATE,
    GUARDED_BEGIN,
    GUARDED_RUN,
    GUARDED_COPY,
    GUARDED_RECORD,
    GUARDED_WAIT,
    GUARDED_ALLOC,
    GUARDED_CALLS
} guarded_call;
void guarded_fail(guarded_call call, int n);
/* Whether it has. */
bool guarded_failed(void);

#endif
