/*
 * checksum.h - checksums of files: XXH3, 64 bits.
 */
#ifndef TRII_CHECKSUM_H
#define TRII_CHECKSUM_H

#include <trireme/status.h>

typedef struct trii_checksum {
    void *state;
} trii_checksum;

tri_status trii_checksum_init(trii_checksum *sum) TRI_MUST_CHECK;
void trii_checksum_fini(trii_checksum *sum);
void trii_checksum_add(trii_checksum *sum, const void *data, size_t bytes);
uint64_t trii_checksum_value(const trii_checksum *sum);
/* Of contiguous bytes. */
uint64_t trii_checksum_of(const void *data, size_t bytes);

#endif
