/*
 * hash.h - FNV-1a, for names and short texts: small, the same on every machine, and no protection
 * against anybody who chooses what is hashed (that is base/siphash.h).
 *
 * Begin with the seed; pieces that follow each other hash as if they were one.
 */
#ifndef TRII_HASH_H
#define TRII_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TRII_HASH_SEED UINT64_C(0xcbf29ce484222325)

static inline uint64_t trii_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = (const unsigned char *)data;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static inline uint64_t trii_hash_text(uint64_t hash, const char *text)
{
    return trii_hash(hash, text, strlen(text));
}

/* In 32 bits, of a whole text. */
static inline uint32_t trii_hash32(const char *text)
{
    uint32_t hash = 2166136261u;

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

#endif
