/*
 * alloc.h - all memory of the library comes through here, so that a test can make
 * the n-th allocation fail and count what is left.
 */
#ifndef TRII_ALLOC_H
#define TRII_ALLOC_H

#include <stddef.h>

#include "base/compiler.h"

/* n * size zeroed bytes; NULL (and the error line) on failure or overflow. `what` names
 * the thing in the message. Size 0 gives a valid pointer. */
void *trii_alloc(size_t n, size_t size, const char *what) __attribute__((malloc));
/* As realloc; new bytes are not zeroed; on failure the old block stays. */
void *trii_realloc(void *p, size_t n, size_t size, const char *what);
/* `align` a power of two, at least 64; not zeroed. Release with trii_free. */
void *trii_alloc_aligned(size_t align, size_t bytes, const char *what) __attribute__((malloc));
char *trii_strdup(const char *text, const char *what) __attribute__((malloc));
void trii_free(void *p); /* NULL allowed */

/* Tests: the n-th allocation from now fails (1 = the next); 0 turns it off. */
void trii_alloc_fail_at(long n);
/* The same of `count` allocations, the first of them the n-th from now. */
void trii_alloc_fail_some(long n, long count);
/* Blocks that are allocated and not freed. */
long trii_alloc_live(void);
/* How often a block was allocated or grown since the process began: a path that must not
 * allocate leaves it as it was. */
long trii_alloc_calls(void);
/* The largest block that was asked for since the last call: what a peer can make us take. */
size_t trii_alloc_largest(void);

#endif
