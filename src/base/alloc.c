/*
 * alloc.c - see alloc.h. Counters are relaxed atomics: they cost a nanosecond and the
 * hot paths allocate nothing.
 */
/* build: leaf */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static atomic_long live_blocks;
static atomic_long calls;          /* that gave memory */
static atomic_size_t largest;      /* of them */
static atomic_long fail_countdown; /* 0 = off; those that count the last fail_count down fail */
static atomic_long fail_count;

static bool injected_failure(void)
{
    long left;

    if (TRII_LIKELY(atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0))
        return false;
    left = atomic_fetch_sub(&fail_countdown, 1);
    return left > 0 && left <= atomic_load(&fail_count);
}

static void note(size_t bytes)
{
    size_t most = atomic_load_explicit(&largest, memory_order_relaxed);

    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    while (bytes > most && !atomic_compare_exchange_weak(&largest, &most, bytes))
        ;
}

static void *account(void *p, size_t n, size_t size, const char *what)
{
    if (p == NULL) {
        trii_err_set("%s: out of memory for %zu x %zu bytes", what, n, size);
        return NULL;
    }
    atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    note(n * size);
    return p;
}

void *trii_alloc(size_t n, size_t size, const char *what)
{
    void *p = injected_failure() ? NULL : calloc(n > 0 ? n : 1, size > 0 ? size : 1);

    return account(p, n, size, what);
}

void *trii_realloc(void *p, size_t n, size_t size, const char *what)
{
    size_t bytes = 0;
    void *q = NULL;

    if (p == NULL)
        return trii_alloc(n, size, what);
    if (!__builtin_mul_overflow(n, size, &bytes) && !injected_failure())
        q = realloc(p, bytes > 0 ? bytes : 1);
    if (q == NULL)
        trii_err_set("%s: out of memory for %zu x %zu bytes", what, n, size);
    else
        note(bytes);
    return q;
}

void *trii_alloc_aligned(size_t align, size_t bytes, const char *what)
{
    size_t rounded = (bytes + align - 1) / align * align;
    void *p = NULL;

    if (rounded < bytes || injected_failure())
        return account(NULL, 1, bytes, what);
    p = aligned_alloc(align, rounded > 0 ? rounded : align);
    return account(p, 1, bytes, what);
}

char *trii_strdup(const char *text, const char *what)
{
    size_t bytes = strlen(text) + 1;
    char *copy = trii_alloc(bytes, 1, what);

    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

void trii_free(void *p)
{
    if (p == NULL)
        return;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(p);
}

void trii_alloc_fail_at(long n)
{
    trii_alloc_fail_some(n, 1);
}

void trii_alloc_fail_some(long n, long count)
{
    atomic_store(&fail_count, count);
    atomic_store(&fail_countdown, n > 0 ? n + count - 1 : 0);
}

long trii_alloc_live(void)
{
    return atomic_load(&live_blocks);
}

long trii_alloc_calls(void)
{
    return atomic_load(&calls);
}

size_t trii_alloc_largest(void)
{
    return atomic_exchange(&largest, 0);
}
