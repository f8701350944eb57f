/*
 * mt19937.h - PyTorch's CPU generator, bit for bit: initial values of parameters and the
 * permutations of samplers. (Random numbers inside a step are Philox, see tensor.h.)
 */
#ifndef TRII_MT19937_H
#define TRII_MT19937_H

#include <trireme/status.h>

#include "base/compiler.h"

#define TRII_MT_WORDS 624

typedef struct trii_mt19937 {
    uint32_t words[TRII_MT_WORDS];
    int next; /* index of the next word; TRII_MT_WORDS = make new ones first */
} trii_mt19937;

/* Only the low 32 bits of the seed count, as in PyTorch. */
void trii_mt_seed(trii_mt19937 *mt, uint64_t seed);
uint32_t trii_mt_u32(trii_mt19937 *mt);
uint64_t trii_mt_u64(trii_mt19937 *mt); /* the first draw is the high half */
/* [0, 1): 24 bits of one draw, 53 bits of two (torch.rand). */
float trii_mt_f32(trii_mt19937 *mt);
double trii_mt_f64(trii_mt19937 *mt);
/* torch's uniform_(low, high): one rounding. */
float trii_mt_uniform_f32(trii_mt19937 *mt, float low, float high);
double trii_mt_uniform_f64(trii_mt19937 *mt, double low, double high);
/* torch.randperm(n): out[n]. */
void trii_mt_randperm(trii_mt19937 *mt, int64_t n, int64_t *out);
/* What the above does for more elements than a test can hold. */
void trii_mt_randperm_large(trii_mt19937 *mt, int64_t n, int64_t *out);

/* What PyTorch's generator starts from before anybody seeds it. */
#define TRII_MT_DEFAULT_SEED UINT64_C(67280421310721)
/* The generator of this thread that tri_manual_seed seeds. */
trii_mt19937 *trii_mt_default(void);

#endif
