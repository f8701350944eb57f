/*
 * grow.h - an array that grows by one element at a time.
 */
#ifndef TRII_GROW_H
#define TRII_GROW_H

#include <trireme/status.h>

/* Makes sure that an array of n elements in use has room for one more: twice the room that it has,
 * `first` the first time. array: where the pointer to the elements is (T **; NULL at first), of
 * `size` bytes each; new ones are not zeroed. On failure nothing has changed. Errors: NO_MEMORY. */
tri_status trii_array_grow(void *array, int *room, int n, int first, size_t size,
                           const char *what) TRI_MUST_CHECK;

#endif
