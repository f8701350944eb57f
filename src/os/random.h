/*
 * random.h - unpredictable bytes from the system, for names and keys that nobody else may have or
 * guess. Numbers that are drawn from a seed are in base/philox.h.
 */
#ifndef TRII_RANDOM_H
#define TRII_RANDOM_H

#include <stdbool.h>
#include <stddef.h>

/* False where the system has none to give. */
bool trii_random_bytes(void *out, size_t bytes);

#endif
