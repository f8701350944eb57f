/*
 * crc32c.h - the checksum of event files: CRC-32C, masked as TFRecord does, so that a checksum of
 * data that hold checksums is none of the weak ones.
 */
#ifndef TRII_CRC32C_H
#define TRII_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of "123456789": 0xe3069283. */
uint32_t trii_crc32c(const void *data, size_t bytes);
uint32_t trii_crc32c_masked(const void *data, size_t bytes);

#endif
