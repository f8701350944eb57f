/*
 * reserve.h - addresses that keep their place while memory comes and goes.
 */
#ifndef TRII_RESERVE_H
#define TRII_RESERVE_H

#include <stddef.h>

#include <trireme/status.h>

/* Addresses without memory, which nobody may read or write, at a multiple of a page. 0 bytes: one
 * page. Errors: NO_MEMORY. */
tri_status trii_reserve(size_t bytes, void **start_out) TRI_MUST_CHECK;
void trii_reserve_free(void *start, size_t bytes); /* NULL allowed */
/* All of it can be read and written; it takes memory where it is touched, which is zero at first.
 * Errors: NO_MEMORY. */
tri_status trii_reserve_open(void *start, size_t bytes) TRI_MUST_CHECK;
/* Gives the memory back: nobody may read or write there again. */
void trii_reserve_close(void *start, size_t bytes);

#endif
