/*
 * thread.h - threads, locks and condition variables: pthreads under our names, with
 * deadlines on the monotonic clock. (Not <threads.h>: its timed waits use wall time and
 * the sanitizers do not know it.)
 */
#ifndef TRII_THREAD_H
#define TRII_THREAD_H

#include <pthread.h>

#include <trireme/status.h>

typedef struct trii_mutex {
    pthread_mutex_t mutex;
} trii_mutex;

typedef struct trii_cond {
    pthread_cond_t cond;
} trii_cond;

typedef struct trii_thread {
    pthread_t thread;
} trii_thread;

#define TRII_MUTEX_INITIALIZER                                                                     \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER                                                                  \
    }

/* Locking cannot fail here: mutexes are plain, and misuse is a bug in this library (assert). */
void trii_mutex_init(trii_mutex *mutex);
/* Its holder may lock it again. Not for condition variables. */
void trii_mutex_init_recursive(trii_mutex *mutex);
void trii_mutex_fini(trii_mutex *mutex);
void trii_mutex_lock(trii_mutex *mutex);
void trii_mutex_unlock(trii_mutex *mutex);

void trii_cond_init(trii_cond *cond);
void trii_cond_fini(trii_cond *cond);
void trii_cond_signal(trii_cond *cond);
void trii_cond_broadcast(trii_cond *cond);
/* May wake for nothing, so callers loop over their condition. */
void trii_cond_wait(trii_cond *cond, trii_mutex *mutex);
/* False once deadline_ns (os/clock.h) has passed; TRII_NO_DEADLINE waits without one. */
bool trii_cond_wait_until(trii_cond *cond, trii_mutex *mutex, int64_t deadline_ns);

/* Starts `run(arg)`; the name (cut at 15 characters) is what debuggers and top show. The
 * thread takes no signals: they belong to the program's own threads. Errors: NO_MEMORY. */
tri_status trii_thread_start(trii_thread *thread, const char *name, void (*run)(void *arg),
                             void *arg) TRI_MUST_CHECK;
void trii_thread_join(trii_thread *thread);
/* Instead of joining it: it ends by itself. */
void trii_thread_detach(trii_thread *thread);
/* The kernel's number of the calling thread: what ps -L and gdb call it. */
int64_t trii_thread_id(void);
/* Whether the calling thread is this one. */
bool trii_thread_is_self(const trii_thread *thread);
/* Calls release(arg) when the calling thread ends (not the main thread's return from main). One per
 * thread: a second call replaces the first; NULL takes it back. */
void trii_thread_at_exit(void (*release)(void *arg), void *arg);
/* Gives the processor to another thread. */
void trii_thread_yield(void);

/* Runs init once in the process: the first caller does, the others wait for it. */
typedef struct trii_once {
    pthread_once_t once;
} trii_once;
#define TRII_ONCE_INITIALIZER                                                                      \
    {                                                                                              \
        PTHREAD_ONCE_INIT                                                                          \
    }
void trii_once_run(trii_once *once, void (*init)(void));

#endif
