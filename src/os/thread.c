/*
 * thread.c - see thread.h.
 */
#include "os/thread.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"

/* Results are only looked at in builds with assertions: these calls cannot fail unless
 * we misuse them. */
static void must_work(int result)
{
    assert(result == 0);
    (void)result;
}

void trii_mutex_init(trii_mutex *mutex)
{
    must_work(pthread_mutex_init(&mutex->mutex, NULL));
}

void trii_mutex_init_recursive(trii_mutex *mutex)
{
    pthread_mutexattr_t attr;

    must_work(pthread_mutexattr_init(&attr));
    must_work(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE));
    must_work(pthread_mutex_init(&mutex->mutex, &attr));
    must_work(pthread_mutexattr_destroy(&attr));
}

void trii_mutex_fini(trii_mutex *mutex)
{
    must_work(pthread_mutex_destroy(&mutex->mutex));
}

void trii_mutex_lock(trii_mutex *mutex)
{
    must_work(pthread_mutex_lock(&mutex->mutex));
}

void trii_mutex_unlock(trii_mutex *mutex)
{
    must_work(pthread_mutex_unlock(&mutex->mutex));
}

void trii_cond_init(trii_cond *cond)
{
    pthread_condattr_t attr;

    must_work(pthread_condattr_init(&attr));
    must_work(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must_work(pthread_cond_init(&cond->cond, &attr));
    must_work(pthread_condattr_destroy(&attr));
}

void trii_cond_fini(trii_cond *cond)
{
    must_work(pthread_cond_destroy(&cond->cond));
}

void trii_cond_signal(trii_cond *cond)
{
    must_work(pthread_cond_signal(&cond->cond));
}

void trii_cond_broadcast(trii_cond *cond)
{
    must_work(pthread_cond_broadcast(&cond->cond));
}

void trii_cond_wait(trii_cond *cond, trii_mutex *mutex)
{
    must_work(pthread_cond_wait(&cond->cond, &mutex->mutex));
}

bool trii_cond_wait_until(trii_cond *cond, trii_mutex *mutex, int64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = deadline_ns / TRII_NS_PER_S,
                                   .tv_nsec = deadline_ns % TRII_NS_PER_S};

    if (deadline_ns == TRII_NO_DEADLINE) {
        trii_cond_wait(cond, mutex);
        return true;
    }
    return pthread_cond_timedwait(&cond->cond, &mutex->mutex, &until) != ETIMEDOUT;
}

typedef struct start_args {
    void (*run)(void *arg);
    void *arg;
    char name[16];
} start_args;

static void *thread_main(void *p)
{
    start_args args = *(start_args *)p;

    trii_free(p);
    pthread_setname_np(pthread_self(), args.name);
    args.run(args.arg);
    return NULL;
}

tri_status trii_thread_start(trii_thread *thread, const char *name, void (*run)(void *arg),
                             void *arg)
{
    start_args *args = trii_alloc(1, sizeof(*args), "thread");
    /* Faults stay deliverable, so that a crash handler of the program sees them. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF};
    sigset_t most, before;
    int error;

    if (args == NULL)
        return TRI_ERR_NO_MEMORY;
    args->run = run;
    args->arg = arg;
    strncpy(args->name, name, sizeof(args->name) - 1);
    /* The new thread inherits the mask, so there is no moment in which it takes one. */
    sigfillset(&most);
    for (size_t i = 0; i < TRII_COUNT_OF(faults); i++)
        sigdelset(&most, faults[i]);
    pthread_sigmask(SIG_SETMASK, &most, &before);
    error = pthread_create(&thread->thread, NULL, thread_main, args);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        trii_free(args);
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "thread %s: %s", name, strerror(error));
    }
    return TRI_OK;
}

void trii_thread_join(trii_thread *thread)
{
    must_work(pthread_join(thread->thread, NULL));
}

void trii_thread_detach(trii_thread *thread)
{
    must_work(pthread_detach(thread->thread));
}

int64_t trii_thread_id(void)
{
    return syscall(SYS_gettid);
}

bool trii_thread_is_self(const trii_thread *thread)
{
    return pthread_equal(thread->thread, pthread_self()) != 0;
}

void trii_thread_yield(void)
{
    sched_yield();
}

void trii_once_run(trii_once *once, void (*init)(void))
{
    must_work(pthread_once(&once->once, init));
}

static struct {
    pthread_once_t once;
    pthread_key_t key;
    bool made;
} at_exit = {.once = PTHREAD_ONCE_INIT};

static _Thread_local struct {
    void (*release)(void *arg);
    void *arg;
} my_exit;

static void run_at_exit(void *unused)
{
    (void)unused;
    if (my_exit.release != NULL)
        my_exit.release(my_exit.arg);
}

static void make_key(void)
{
    at_exit.made = pthread_key_create(&at_exit.key, run_at_exit) == 0;
}

void trii_thread_at_exit(void (*release)(void *arg), void *arg)
{
    pthread_once(&at_exit.once, make_key);
    my_exit.release = release;
    my_exit.arg = arg;
    if (at_exit.made) /* else the thread's memory outlives it */
        pthread_setspecific(at_exit.key, release != NULL ? &my_exit : NULL);
}
