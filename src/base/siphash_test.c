/*
 * siphash_test.c - the values that the authors of SipHash published: key 00 01 .. 0f, messages 00
 * 01 02 .. of 0, 1, 7, 8, 15 and 63 bytes.
 */
#include "base/siphash.h"

#include "testing/check.h"

static void the_published_values_come_out(void **state)
{
    static const struct {
        size_t bytes;
        uint64_t want;
    } rows[] = {{0, UINT64_C(0x726fdb47dd0e0e31)},  {1, UINT64_C(0x74f839c593dc67fd)},
                {7, UINT64_C(0xab0200f58b01d137)},  {8, UINT64_C(0x93f5f5799a932462)},
                {15, UINT64_C(0xa129ca6149be45e5)}, {63, UINT64_C(0x958a324ceb064572)}};
    const trii_siphash_key key = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    unsigned char message[64];

    (void)state;
    for (int i = 0; i < 64; i++)
        message[i] = (unsigned char)i;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        uint64_t got = trii_siphash(key, message, rows[r].bytes);

        if (got != rows[r].want)
            fail_msg("%zu bytes: 0x%llx, want 0x%llx", rows[r].bytes, (unsigned long long)got,
                     (unsigned long long)rows[r].want);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_published_values_come_out),
};

TEST_MAIN(tests)
