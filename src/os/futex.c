/*
 * futex.c - see futex.h.
 */
/* build: leaf */
#include "os/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "os/clock.h"

void trii_futex_wait(atomic_int *word, int expected, int64_t until_ns)
{
    /* FUTEX_WAIT_BITSET takes an absolute time on the monotonic clock. */
    struct timespec until = {.tv_sec = until_ns / TRII_NS_PER_S,
                             .tv_nsec = until_ns % TRII_NS_PER_S};

    (void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected,
                  until_ns == TRII_NO_DEADLINE ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

void trii_futex_wait_many(atomic_int *const *words, const int *expected, int n, int64_t until_ns)
{
#ifdef SYS_futex_waitv /* Linux 5.16 */
    struct timespec until = {.tv_sec = until_ns / TRII_NS_PER_S,
                             .tv_nsec = until_ns % TRII_NS_PER_S};
    struct futex_waitv waits[TRII_FUTEX_MANY];

    for (int i = 0; i < n; i++)
        waits[i] = (struct futex_waitv){.val = (unsigned)expected[i],
                                        .uaddr = (uint64_t)(uintptr_t)words[i],
                                        .flags = FUTEX_32};
    /* A sandbox may refuse it with whatever error. */
    if (n > 1 && (syscall(SYS_futex_waitv, waits, n, 0,
                          until_ns == TRII_NO_DEADLINE ? NULL : &until, CLOCK_MONOTONIC) >= 0 ||
                  errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT))
        return;
#else
    (void)n;
#endif
    trii_futex_wait(words[0], expected[0], until_ns);
}

bool trii_futex_has_wait_many(void)
{
#ifdef SYS_futex_waitv
    static atomic_int known; /* 1 = it can, 2 = it cannot */

    /* No words at all: the system that knows the call says that this is wrong. */
    if (atomic_load_explicit(&known, memory_order_relaxed) == 0)
        atomic_store_explicit(
            &known, syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) < 0 && errno == EINVAL ? 1 : 2,
            memory_order_relaxed);
    return atomic_load_explicit(&known, memory_order_relaxed) == 1;
#else
    return false;
#endif
}

void trii_futex_wake_all(atomic_int *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void trii_lock_wait_(trii_lock *lock)
{
    for (int i = 0; i < 64; i++) {
        if (trii_lock_try(lock))
            return;
        TRII_PAUSE();
    }
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
        trii_futex_wait(&lock->state, 2, TRII_NO_DEADLINE);
}
