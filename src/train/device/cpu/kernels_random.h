/*
 * kernels_random.h - random numbers by counter (base/philox.h), a vector of counters at a time; a
 * template over the instruction set, see vec.h. All instruction sets give the same bits.
 */
#include "train/device/cpu/kernels.h"

typedef uint64_t vec_wide __attribute__((vector_size(8 * VEC_LANES)));

/* High and low words of the products with a constant. */
VEC_INLINE vec_u philox_times(vec_u c, uint32_t factor, vec_u *low)
{
    vec_wide product = __builtin_convertvector(c, vec_wide) * factor;

    *low = c * factor;
    return __builtin_convertvector(product >> 32, vec_u);
}

VEC_INLINE void philox_vector(vec_u c[4], uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        vec_u low0, low1;
        vec_u high0 = philox_times(c[0], 0xd2511f53u, &low0);
        vec_u high1 = philox_times(c[2], 0xcd9e8d57u, &low1);

        c[0] = high1 ^ c[1] ^ k0;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ k1;
        c[3] = low0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/* Elements 4 * block .. 4 * block + n of the mask; n <= 4 * VEC_LANES. */
VEC_INLINE void mask_blocks(float *y, const trii_mask_args *args, uint64_t block, int64_t n)
{
    float kept[4][VEC_LANES];
    uint32_t counters[4][VEC_LANES];
    vec_u c[4];

    for (int l = 0; l < VEC_LANES; l++) {
        uint64_t b = block + (uint64_t)l;

        counters[0][l] = (uint32_t)b;
        counters[1][l] = args->counter[1] | (uint32_t)(b >> 32) << 20;
        counters[2][l] = args->counter[2];
        counters[3][l] = args->counter[3];
    }
    memcpy(c, counters, sizeof(c));
    philox_vector(c, args->key);
    for (int k = 0; k < 4; k++)
        vec_store(kept[k],
                  vec_select((vec_i)(c[k] < args->limit), vec_set(0), vec_set(args->keep)));
    for (int64_t i = 0; i < n; i++)
        y[i] = kept[i % 4][i / 4];
}

VEC_FN void random_mask(float *y, const trii_mask_args *args, int64_t begin, int64_t end)
{
    for (int64_t b = begin; b < end; b += VEC_LANES) {
        int64_t n = args->n - 4 * b, most = 4 * (end - b < VEC_LANES ? end - b : VEC_LANES);

        if (n >= 4 * VEC_LANES && most == 4 * VEC_LANES)
            mask_blocks(y + 4 * b, args, (uint64_t)b, 4 * VEC_LANES);
        else
            mask_blocks(y + 4 * b, args, (uint64_t)b, n < most ? n : most);
    }
}
