/*
 * futex.h - sleep on a 32-bit word until somebody changes it and wakes; between processes
 * too, when the word lies in shared memory. No state of its own, nothing to release.
 */
#ifndef TRII_FUTEX_H
#define TRII_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Sleeps while *word == expected, until woken or the monotonic time until_ns has come
 * (TRII_NO_DEADLINE: none). May wake for nothing: callers loop over their condition. */
void trii_futex_wait(atomic_int *word, int expected, int64_t until_ns);
/* The same for several words at once, up to TRII_FUTEX_MANY; where the system cannot, only for the
 * first. */
#define TRII_FUTEX_MANY 128
void trii_futex_wait_many(atomic_int *const *words, const int *expected, int n, int64_t until_ns);
/* Whether the system can. */
bool trii_futex_has_wait_many(void);
/* Wakes everybody who sleeps on word. The word may be gone already: then nothing happens. */
void trii_futex_wake_all(atomic_int *word);

/* A lock of one word for sections of tens of nanoseconds: taken and released with one atomic
 * operation each; threads of one process. Zero is unlocked. */
typedef struct trii_lock {
    atomic_int state; /* 0 free, 1 taken, 2 taken and somebody sleeps */
} trii_lock;

void trii_lock_wait_(trii_lock *lock);

static inline bool trii_lock_try(trii_lock *lock)
{
    int free_state = 0;

    return atomic_compare_exchange_strong_explicit(&lock->state, &free_state, 1,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void trii_lock_take(trii_lock *lock)
{
    if (!trii_lock_try(lock))
        trii_lock_wait_(lock);
}

static inline void trii_lock_drop(trii_lock *lock)
{
    if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2)
        trii_futex_wake_all(&lock->state);
}

#endif
