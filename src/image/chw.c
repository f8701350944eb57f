/*
 * chw.c - pixels as networks want them: floats, one plane per channel, normalised.
 *
 * A byte has 256 values, so each channel's results are computed once and looked up.
 */
#include "image/pixels.h"

#define VALUES 256

static void tabulate(float mean, float std, float *table)
{
    for (int i = 0; i < VALUES; i++)
        table[i] = ((float)i / 255.0f - mean) / std;
}

void trii_image_to_chw(const uint8_t *pixels, int64_t height, int64_t width, int channels,
                       bool mirror, const float *mean, const float *std, float *dst)
{
    float tables[4][VALUES];
    int64_t plane = height * width;

    for (int c = 0; c < channels; c++)
        tabulate(mean != NULL ? mean[c] : 0.0f, std != NULL ? std[c] : 1.0f, tables[c]);
    for (int64_t y = 0; y < height; y++, pixels += width * channels, dst += width) {
        for (int c = 0; c < channels; c++) {
            const uint8_t *from = pixels + c + (mirror ? (width - 1) * channels : 0);
            const float *table = tables[c];
            ptrdiff_t step = mirror ? -channels : channels;

            for (int64_t x = 0; x < width; x++, from += step)
                dst[c * plane + x] = table[*from];
        }
    }
}
