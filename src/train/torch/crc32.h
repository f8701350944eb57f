/*
 * crc32.h - the checksum of ZIP files (CRC-32 of ISO 3309). It and train/data/gzip.c are all that
 * use zlib.
 */
#ifndef TRII_CRC32_H
#define TRII_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `sum` is the checksum of (0: of nothing) and these bytes. */
uint32_t trii_crc32(uint32_t sum, const void *data, size_t bytes);
/* By zlib alone. */
uint32_t trii_crc32_portable(uint32_t sum, const void *data, size_t bytes);

#endif
