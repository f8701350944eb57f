/*
 * inputs.h - what ranks put into the calls of the conformance suite. Tests only.
 *
 * Made from (key of the call, rank, index), so every rank knows what all others put in: a rank's
 * elements are a stretch of a pool, from a place of its own. What only numbers the same inputs over
 * and over would be most of the suite's work otherwise. Nothing here makes ranks that are threads
 * wait for each other: that would hide from ThreadSanitizer what the engines forget.
 */
#ifndef TEST_INPUTS_H
#define TEST_INPUTS_H

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/dtype.h"
#include "testing/check.h"

#define POOL_SIZE 65537 /* a prime: no chunk or part of an engine is a multiple of it */
/* So much of the beginning follows the end again: most calls take one contiguous piece. */
#define POOL_REPEATED 45000

static inline uint32_t mix(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du;

    h = (h ^ (h >> 15)) * 0x2c1b3c6du;
    h = (h ^ (h >> 12)) * 0x297a2d39u;
    return h ^ (h >> 15);
}

/* Floats of very different sizes, so that another order of a sum shows; now and then a NaN, an
 * infinity, a zero of either sign. */
static inline float test_float(uint32_t h)
{
    static const float scales[9] = {0.0625f, 0.125f, 0.25f, 0.5f, 1, 2, 4, 8, 16};

    switch (h % 257) {
    case 0:
        return NAN;
    case 1:
        return INFINITY;
    case 2:
        return -0.0f;
    case 3:
        return 0.0f;
    default:
        return (float)(int32_t)h / 2147483648.0f * scales[(h >> 3) % 9];
    }
}

static inline void fill_pool(void *p, tri_dtype dtype)
{
    for (uint32_t i = 0; i < POOL_SIZE; i++) {
        uint32_t h = mix((uint32_t)dtype, 1, i);
        uint64_t wide = (uint64_t)h << 32 | mix(h, (uint32_t)dtype, 7);

        switch (dtype) {
        case TRI_DTYPE_F16:
            ((uint16_t *)p)[i] = trii_f32_to_f16(test_float(h));
            break;
        case TRI_DTYPE_BF16:
            ((uint16_t *)p)[i] = trii_f32_to_bf16(test_float(h));
            break;
        case TRI_DTYPE_F32:
            ((float *)p)[i] = test_float(h);
            break;
        case TRI_DTYPE_F64:
            ((double *)p)[i] = (double)test_float(h) * 1.00000000123;
            break;
        case TRI_DTYPE_BOOL:
            ((uint8_t *)p)[i] = (uint8_t)(h % 3 == 0);
            break;
        default:
            memcpy((char *)p + i * tri_dtype_size(dtype), &wide, tri_dtype_size(dtype));
            break;
        }
    }
    memcpy((char *)p + POOL_SIZE * tri_dtype_size(dtype), p, POOL_REPEATED * tri_dtype_size(dtype));
}

/* The pool of a dtype, made where it is first asked for. */
static inline const char *pool_of(tri_dtype dtype)
{
    static _Alignas(
        8) char pools[TRII_TENSOR_DTYPES][(POOL_SIZE + POOL_REPEATED) * sizeof(uint64_t)];
    static atomic_bool made[TRII_TENSOR_DTYPES];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    if (!atomic_load_explicit(&made[dtype], memory_order_acquire)) {
        pthread_mutex_lock(&lock);
        if (!atomic_load_explicit(&made[dtype], memory_order_relaxed))
            fill_pool(pools[dtype], dtype);
        atomic_store_explicit(&made[dtype], true, memory_order_release);
        pthread_mutex_unlock(&lock);
    }
    return pools[dtype];
}

/* Elements [first, first + count) of what a rank puts into a call, where they lie in the pool; of
 * more than POOL_REPEATED, NULL. */
static inline const void *part_in_pool(size_t first, size_t count, tri_dtype dtype, unsigned key,
                                       int rank)
{
    size_t at = (mix(key, (uint32_t)rank, (uint32_t)dtype) + first) % POOL_SIZE;

    return count <= POOL_REPEATED ? pool_of(dtype) + at * tri_dtype_size(dtype) : NULL;
}

static inline void fill_part(void *p, size_t first, size_t count, tri_dtype dtype, unsigned key,
                             int rank)
{
    size_t size = tri_dtype_size(dtype), n;
    char *out = p;

    for (; count > 0; count -= n, first += n, out += n * size) {
        n = count < POOL_REPEATED ? count : POOL_REPEATED;
        memcpy(out, part_in_pool(first, n, dtype, key, rank), n * size);
    }
}

static inline void fill(void *p, size_t count, tri_dtype dtype, unsigned key, int rank)
{
    fill_part(p, 0, count, dtype, key, rank);
}

static inline bool is_nan(const void *p, size_t i, tri_dtype dtype)
{
    switch (dtype) {
    case TRI_DTYPE_F16:
        return isnan(trii_f16_to_f32(((const uint16_t *)p)[i]));
    case TRI_DTYPE_BF16:
        return isnan(trii_bf16_to_f32(((const uint16_t *)p)[i]));
    case TRI_DTYPE_F32:
        return isnan(((const float *)p)[i]);
    case TRI_DTYPE_F64:
        return isnan(((const double *)p)[i]);
    default:
        return false;
    }
}

/* Index of the first element whose bits differ (a NaN equals any NaN), or count. */
static inline size_t first_difference(const void *a, const void *b, size_t count, tri_dtype dtype)
{
    size_t size = tri_dtype_size(dtype);

    if (count == 0 || memcmp(a, b, count * size) == 0)
        return count;
    for (size_t i = 0; i < count; i++) {
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) != 0 &&
            !(is_nan(a, i, dtype) && is_nan(b, i, dtype)))
            return i;
    }
    return count;
}

#endif
