/*
 * chw.h - pixels to floats with vector instructions. For this room only.
 */
#ifndef TRII_IMAGE_CHW_H
#define TRII_IMAGE_CHW_H

#include "train/image/pixels.h"

#define TRII_CHW_VALUES 256

typedef struct trii_chw_channel {
    float mean, std;
    float table[TRII_CHW_VALUES]; /* (x / 255 - mean) / std */
} trii_chw_channel;

/* Whether the functions below give the bits of the table. */
bool trii_chw_is_exact_avx2(const trii_chw_channel *c);
/* Of three channels and a width of at least 8. */
void trii_chw_rows_avx2(const uint8_t *pixels, int64_t height, int64_t width, bool mirror,
                        const trii_chw_channel *channels, float *dst);

#endif
