/*
 * crc32.c - see crc32.h. zlib's takes a quarter of a second for 1 GB, half as long as a copy of it;
 * products without carries take a tenth of that.
 *
 * Bytes are a polynomial over two elements, and its checksum what is left of it, divided by the
 * CRC's. Bytes that d bits follow count as much as their product with the rest of x^d: so 16 bytes
 * are folded into others further on, until 16 are left, of which zlib tells the checksum. V. Gopal
 * and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (2009).
 */
#include "train/torch/crc32.h"

#include <zlib.h>

uint32_t trii_crc32_portable(uint32_t sum, const void *data, size_t bytes)
{
    return (uint32_t)crc32_z(sum, data, bytes);
}

#if defined(__x86_64__)
#include <immintrin.h>

#include "base/compiler.h"
#include "os/cpu.h"

#define FOLDED TRII_TARGET("sse4.1,pclmul")
#define LEAST 64 /* bytes: four that are folded beside each other */

/* x^(d + 32) and x^(d - 32) modulo the CRC's polynomial, bits in reverse, for what lies d bits
 * before what it is folded into: its first eight bytes and the others. */
#define BY_512 _mm_set_epi64x(0x1c6e41596, 0x154442bd4)
#define BY_128 _mm_set_epi64x(0x0ccaa009e, 0x1751997d0)

FOLDED static TRII_INLINE __m128i load(const unsigned char *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

FOLDED static TRII_INLINE __m128i fold(__m128i x, __m128i by, __m128i into)
{
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);

    return _mm_xor_si128(_mm_xor_si128(low, high), into);
}

FOLDED static uint32_t fold_all(uint32_t sum, const unsigned char *at, size_t bytes)
{
    const unsigned char *end = at + bytes;
    unsigned char left[16];
    __m128i a = _mm_xor_si128(load(at), _mm_cvtsi32_si128((int)~sum)), b = load(at + 16),
            c = load(at + 32), d = load(at + 48);

    for (at += LEAST; end - at >= LEAST; at += LEAST) {
        a = fold(a, BY_512, load(at));
        b = fold(b, BY_512, load(at + 16));
        c = fold(c, BY_512, load(at + 32));
        d = fold(d, BY_512, load(at + 48));
    }
    a = fold(a, BY_128, b);
    a = fold(a, BY_128, c);
    a = fold(a, BY_128, d);
    for (; end - at >= 16; at += 16)
        a = fold(a, BY_128, load(at));
    _mm_storeu_si128((__m128i *)(void *)left, a);
    /* The checksum so far is in them already: zlib begins with its complement. */
    sum = trii_crc32_portable(UINT32_MAX, left, sizeof(left));
    return trii_crc32_portable(sum, at, (size_t)(end - at));
}

uint32_t trii_crc32(uint32_t sum, const void *data, size_t bytes)
{
    if (bytes >= LEAST && trii_cpu_isa() >= TRII_ISA_AVX2)
        return fold_all(sum, data, bytes);
    return trii_crc32_portable(sum, data, bytes);
}
#else
uint32_t trii_crc32(uint32_t sum, const void *data, size_t bytes)
{
    return trii_crc32_portable(sum, data, bytes);
}
#endif
