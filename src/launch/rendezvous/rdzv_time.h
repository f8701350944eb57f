/*
 * rdzv_time.h - what a rendezvous asks of clocks and threads, so that a test may put virtual time
 * in their place and run hundreds of agents in one process (tests/sim). Only what is done for users
 * outside (etcd's plug-in, the search for the own address) looks at the clocks itself.
 */
#ifndef TRII_RDZV_TIME_H
#define TRII_RDZV_TIME_H

#include "os/clock.h"
#include "os/thread.h"

/* All with the contracts of os/clock.h and os/thread.h. Any thread. */
typedef struct trii_rdzv_time {
    int64_t (*now_ns)(void);
    int64_t (*wall_ns)(void);
    bool (*wait_until)(trii_cond *cond, trii_mutex *mutex, int64_t deadline_ns);
    void (*notify)(trii_cond *cond); /* all that wait */
    tri_status (*start)(trii_thread *thread, const char *name, void (*run)(void *arg), void *arg);
    void (*join)(trii_thread *thread);
} trii_rdzv_time;

extern const trii_rdzv_time trii_rdzv_real_time;

#endif
