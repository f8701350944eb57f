/*
 * shmem_write.c - see shmem.h: copies for another process.
 */
/* build: leaf */
#include "os/shmem.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)

#include <emmintrin.h>

#define MOST ((size_t)128 << 10)

void trii_shmem_write(void *dst, const void *src, size_t bytes)
{
    __m128i *to = dst;
    const __m128i *from = src;
    size_t n = bytes <= MOST ? bytes / sizeof(*to) : 0;

    assert((uintptr_t)dst % sizeof(*to) == 0);
    for (size_t i = 0; i < n; i++)
        _mm_stream_si128(&to[i], _mm_loadu_si128(&from[i]));
    memcpy(&to[n], &from[n], bytes - n * sizeof(*to));
    _mm_sfence(); /* before whatever says that they are there */
}

#else

void trii_shmem_write(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

#endif
