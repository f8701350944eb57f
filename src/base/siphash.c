/*
 * siphash.c - see siphash.h.
 */
/* build: leaf */
#include "base/siphash.h"

typedef struct sip_state {
    uint64_t v0, v1, v2, v3;
} sip_state;

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static void sip_rounds(sip_state *s, int n)
{
    while (n-- > 0) {
        s->v0 += s->v1;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v0 = rotate(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v2 = rotate(s->v2, 32);
    }
}

static uint64_t load_bytes(const unsigned char *p, size_t n)
{
    uint64_t word = 0;

    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)p[i] << (8 * i);
    return word;
}

static void sip_word(sip_state *s, uint64_t word)
{
    s->v3 ^= word;
    sip_rounds(s, 2);
    s->v0 ^= word;
}

uint64_t trii_siphash(trii_siphash_key key, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    sip_state s = {.v0 = key.low ^ UINT64_C(0x736f6d6570736575),
                   .v1 = key.high ^ UINT64_C(0x646f72616e646f6d),
                   .v2 = key.low ^ UINT64_C(0x6c7967656e657261),
                   .v3 = key.high ^ UINT64_C(0x7465646279746573)};
    size_t left = bytes;

    for (; left >= 8; left -= 8, p += 8)
        sip_word(&s, load_bytes(p, 8));
    sip_word(&s, (uint64_t)bytes << 56 | load_bytes(p, left));
    s.v2 ^= 0xff;
    sip_rounds(&s, 4);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
