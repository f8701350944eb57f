/*
 * shmem_write_test.c - copies for another process.
 */
#include "os/shmem.h"

#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "testing/check.h"

#define BYTES 140000
#define GUARD 64
#define NOTHING 0xee

static void any_number_of_bytes_is_copied_from_anywhere_and_none_beyond(void **state)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 63, 64, 65, 1000, 4096, 131072, 131073, BYTES};
    static unsigned char from[BYTES + 16];
    TRII_ALIGNED(16) static unsigned char to[BYTES + GUARD];

    (void)state;
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i * 31 % 251 % NOTHING);
    for (size_t k = 0; k < TRII_COUNT_OF(sizes); k++) {
        for (size_t shift = 0; shift < 16; shift++) {
            memset(to, NOTHING, sizeof(to));
            trii_shmem_write(to, from + shift, sizes[k]);
            assert_memory_equal(to, from + shift, sizes[k]);
            for (size_t i = sizes[k]; i < sizes[k] + GUARD; i++)
                assert_int_equal(to[i], NOTHING);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_number_of_bytes_is_copied_from_anywhere_and_none_beyond),
};

TEST_MAIN(tests)
