/*
 * mt19937.c - Mersenne Twister (Matsumoto and Nishimura 1998) with PyTorch's seeding, PyTorch's
 * ways to make floats, and its randperm.
 */
/* build: train */
#include "base/mt19937.h"

#include <math.h>

#define MT_SHIFT 397
/* torch.randperm changes its algorithm where 32 bits would no longer do: (2^32 - 1) / 20. */
#define RANDPERM_SMALL INT64_C(214748364)

void trii_mt_seed(trii_mt19937 *mt, uint64_t seed)
{
    mt->words[0] = (uint32_t)seed;
    for (uint32_t j = 1; j < TRII_MT_WORDS; j++) {
        uint32_t before = mt->words[j - 1];

        mt->words[j] = 1812433253u * (before ^ (before >> 30)) + j;
    }
    mt->next = TRII_MT_WORDS;
}

static uint32_t twist(uint32_t high, uint32_t low)
{
    uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);

    return (mixed >> 1) ^ ((low & 1u) != 0 ? 0x9908b0dfu : 0u);
}

static void refill(trii_mt19937 *mt)
{
    uint32_t *w = mt->words;

    for (int j = 0; j < TRII_MT_WORDS; j++)
        w[j] = w[(j + MT_SHIFT) % TRII_MT_WORDS] ^ twist(w[j], w[(j + 1) % TRII_MT_WORDS]);
    mt->next = 0;
}

uint32_t trii_mt_u32(trii_mt19937 *mt)
{
    uint32_t y;

    if (mt->next >= TRII_MT_WORDS)
        refill(mt);
    y = mt->words[mt->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint64_t trii_mt_u64(trii_mt19937 *mt)
{
    uint64_t high = trii_mt_u32(mt);

    return high << 32 | trii_mt_u32(mt);
}

float trii_mt_f32(trii_mt19937 *mt)
{
    return (float)(trii_mt_u32(mt) & 0xffffffu) * 0x1p-24f;
}

double trii_mt_f64(trii_mt19937 *mt)
{
    return (double)(trii_mt_u64(mt) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

float trii_mt_uniform_f32(trii_mt19937 *mt, float low, float high)
{
    return fmaf(trii_mt_f32(mt), high - low, low);
}

double trii_mt_uniform_f64(trii_mt19937 *mt, double low, double high)
{
    return fma(trii_mt_f64(mt), high - low, low);
}

void trii_mt_randperm_large(trii_mt19937 *mt, int64_t n, int64_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t z = (int64_t)(trii_mt_u64(mt) % (uint64_t)(i + 1));

        out[i] = i;
        out[i] = out[z];
        out[z] = i;
    }
}

void trii_mt_randperm(trii_mt19937 *mt, int64_t n, int64_t *out)
{
    if (n >= RANDPERM_SMALL) {
        trii_mt_randperm_large(mt, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
    for (uint32_t left = (uint32_t)n; left > 1; left--) {
        int64_t i = n - left;
        int64_t z = i + (int64_t)(trii_mt_u32(mt) % left);
        int64_t kept = out[i];

        out[i] = out[z];
        out[z] = kept;
    }
}

trii_mt19937 *trii_mt_default(void)
{
    static _Thread_local trii_mt19937 mt;
    static _Thread_local bool seeded;

    if (!seeded) {
        trii_mt_seed(&mt, TRII_MT_DEFAULT_SEED);
        seeded = true;
    }
    return &mt;
}
