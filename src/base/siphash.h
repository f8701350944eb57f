/*
 * siphash.h - SipHash-2-4 (Aumasson and Bernstein 2012): a hash of bytes that somebody who does not
 * know the key cannot make collide. For tables whose keys come from outside.
 */
#ifndef TRII_SIPHASH_H
#define TRII_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct trii_siphash_key {
    uint64_t low, high;
} trii_siphash_key;

uint64_t trii_siphash(trii_siphash_key key, const void *data, size_t bytes);

#endif
