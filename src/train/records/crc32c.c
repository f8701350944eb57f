/*
 * crc32c.c - see crc32c.h. Eight bytes a turn, by eight tables: 2 GB/s, so that no instruction of a
 * processor is worth a second way.
 */
#include "train/records/crc32c.h"

#include <string.h>

#include "os/thread.h"

#define POLYNOMIAL 0x82f63b78u /* reflected */
#define MASK 0xa282ead8u

static uint32_t tables[8][256];

static void fill_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][i] = crc;
    }
    for (int t = 1; t < 8; t++) {
        for (int i = 0; i < 256; i++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
    }
}

uint32_t trii_crc32c(const void *data, size_t bytes)
{
    static trii_once once = TRII_ONCE_INITIALIZER;
    const uint8_t *at = data;
    uint32_t crc = ~0u;

    trii_once_run(&once, fill_tables);
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);

        crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^
              tables[4][low >> 24] ^ tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^
              tables[0][at[7]];
    }
    for (; bytes > 0; bytes--, at++)
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 0xff];
    return ~crc;
}

uint32_t trii_crc32c_masked(const void *data, size_t bytes)
{
    uint32_t crc = trii_crc32c(data, bytes);

    return (crc >> 15 | crc << 17) + MASK;
}
