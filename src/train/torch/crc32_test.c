/* crc32_test.c - the checksum of ZIP files, with products without carries and without. */
/* ctest: threads=none */
#include <stdlib.h>

#include "testing/check.h"
#include "testing/scratch.h"
#include "train/torch/crc32.h"

static void the_sum_is_the_one_of_iso_3309(void **state)
{
    char zeros[200] = {0};

    (void)state;
    assert_int_equal(trii_crc32(0, "123456789", 9), 0xcbf43926);
    assert_int_equal(trii_crc32(0, "", 0), 0);
    assert_int_equal(trii_crc32(7, "", 0), 7);
    assert_int_equal(trii_crc32(0, zeros, sizeof(zeros)),
                     trii_crc32_portable(0, zeros, sizeof(zeros)));
}

static void every_length_and_alignment_is_summed(void **state)
{
    enum { MOST = 400 };
    unsigned char data[MOST + 16];
    uint64_t random = 1;

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)scratch_random(&random);
    for (size_t first = 0; first < 16; first++)
        for (size_t n = 0; n <= MOST; n++) {
            uint32_t sum = scratch_random(&random);

            assert_int_equal(trii_crc32(sum, data + first, n),
                             trii_crc32_portable(sum, data + first, n));
        }
}

static void pieces_are_summed_as_the_whole(void **state)
{
    enum { N = 1 << 20 };
    unsigned char *data = malloc(N);
    uint64_t random = 2;
    uint32_t sum = 0;

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < N; i++)
        data[i] = (unsigned char)scratch_random(&random);
    for (size_t at = 0, n; at < N; at += n) {
        n = scratch_random(&random) % 3000;
        n = n < N - at ? n : N - at;
        sum = trii_crc32(sum, data + at, n);
    }
    assert_int_equal(sum, trii_crc32_portable(0, data, N));
    assert_int_equal(sum, trii_crc32(0, data, N));
    free(data);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_sum_is_the_one_of_iso_3309),
    cmocka_unit_test(every_length_and_alignment_is_summed),
    cmocka_unit_test(pieces_are_summed_as_the_whole),
};
TEST_MAIN(tests)
