/*
 * crc32.c - see crc32.h.
 */
#include "train/torch/crc32.h"

#include <zlib.h>

uint32_t trii_crc32(uint32_t sum, const void *data, size_t bytes)
{
    return (uint32_t)crc32_z(sum, data, bytes);
}
