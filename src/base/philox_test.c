/* philox_test.c - random numbers by counter. */
#include "base/philox.h"
#include "testing/check.h"

/* Philox against the paper's published test vectors (Random123, kat_vectors: philox4x32 10). */
static void philox_has_the_published_values(void **state)
{
    uint32_t out[4];

    (void)state;
    trii_philox((const uint32_t[]){0, 0, 0, 0}, 0, out);
    assert_memory_equal(out, ((const uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}),
                        16);
    trii_philox((const uint32_t[]){0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, UINT64_MAX,
                out);
    assert_memory_equal(out, ((const uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}),
                        16);
    trii_philox((const uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                UINT64_C(0x299f31d0a4093822), out);
    assert_memory_equal(out, ((const uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}),
                        16);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(philox_has_the_published_values),
};
TEST_MAIN(tests)
