/*
 * chw.c - pixels as networks want them: floats, one plane per channel, normalised.
 *
 * A byte has 256 values, so each channel's results are computed once; they are looked up, or hold
 * what is faster to account.
 */
#include "train/image/chw.h"

#include "os/cpu.h"

static void tabulate(float mean, float std, trii_chw_channel *c)
{
    c->mean = mean;
    c->std = std;
    for (int i = 0; i < TRII_CHW_VALUES; i++)
        c->table[i] = ((float)i / 255.0f - mean) / std;
}

static bool can_avx2(const trii_chw_channel *channels, int n, int64_t width)
{
    if (n != 3 || width < 8 || trii_cpu_isa() < TRII_ISA_AVX2)
        return false;
    return trii_chw_is_exact_avx2(&channels[0]) && trii_chw_is_exact_avx2(&channels[1]) &&
           trii_chw_is_exact_avx2(&channels[2]);
}

static void look_up(const uint8_t *pixels, int64_t height, int64_t width, int n, bool mirror,
                    const trii_chw_channel *channels, float *dst)
{
    ptrdiff_t step = mirror ? -n : n;

    for (int64_t y = 0; y < height; y++, pixels += width * n, dst += width) {
        for (int c = 0; c < n; c++) {
            const uint8_t *from = pixels + c + (mirror ? (width - 1) * n : 0);
            const float *table = channels[c].table;

            for (int64_t x = 0; x < width; x++, from += step)
                dst[c * height * width + x] = table[*from];
        }
    }
}

void trii_image_to_chw(const uint8_t *pixels, int64_t height, int64_t width, int channels,
                       bool mirror, const float *mean, const float *std, float *dst)
{
    trii_chw_channel tables[4];

    for (int c = 0; c < channels; c++)
        tabulate(mean != NULL ? mean[c] : 0.0f, std != NULL ? std[c] : 1.0f, &tables[c]);
    if (can_avx2(tables, channels, width))
        trii_chw_rows_avx2(pixels, height, width, mirror, tables, dst);
    else
        look_up(pixels, height, width, channels, mirror, tables, dst);
}
