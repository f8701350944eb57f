/* sampler_test.c - shares of an epoch, against PyTorch's (tests/golden/sampler.py). */
#include <trireme/data.h>

#include "base/alloc.h"
#include "testing/check.h"

static void shares_are_those_of_torch(void **state)
{
    char path[512];
    int length, replicas, rank, shuffle, drop, seed, epoch, n, lines = 0;
    FILE *file;

    (void)state;
    snprintf(path, sizeof(path), "%s/tests/golden/sampler.txt", getenv("TRI_TEST_SOURCE"));
    file = fopen(path, "r");
    assert_non_null(file);
    while (fscanf(file, "%d %d %d %d %d %d %d %d", &length, &replicas, &rank, &shuffle, &drop,
                  &seed, &epoch, &n) == 8) {
        tri_sampler *sampler;

        CHECK_OK(tri_sampler_create(length,
                                    &(tri_sampler_options){.n_replicas = replicas,
                                                           .rank = rank,
                                                           .sequential = !shuffle,
                                                           .drop_last = drop,
                                                           .seed = (uint64_t)seed},
                                    &sampler));
        tri_sampler_set_epoch(sampler, epoch);
        assert_int_equal(tri_sampler_length(sampler), n);
        for (int i = 0; i < n; i++) {
            int index = -1;

            assert_int_equal(fscanf(file, "%d", &index), 1);
            assert_int_equal(tri_sampler_indices(sampler)[i], index);
        }
        tri_sampler_destroy(sampler);
        lines++;
    }
    fclose(file);
    assert_true(lines > 300);
}

static void shares_of_a_large_set_cover_it(void **state)
{
    enum { LENGTH = 60000, REPLICAS = 7 };
    static uint8_t seen[LENGTH];
    long live = trii_alloc_live();

    (void)state;
    for (int rank = 0; rank < REPLICAS; rank++) {
        tri_sampler *sampler;

        CHECK_OK(tri_sampler_create(
            LENGTH, &(tri_sampler_options){.n_replicas = REPLICAS, .rank = rank, .seed = 42},
            &sampler));
        if (rank == 0)
            assert_int_equal(tri_sampler_indices(sampler)[0], 37542);
        for (int64_t i = 0; i < tri_sampler_length(sampler); i++)
            seen[tri_sampler_indices(sampler)[i]]++;
        tri_sampler_destroy(sampler);
    }
    for (int i = 0; i < LENGTH; i++)
        assert_in_range(seen[i], 1, 2);
    assert_int_equal(trii_alloc_live(), live);
}

static void impossible_shares_are_refused(void **state)
{
    tri_sampler *sampler;

    (void)state;
    CHECK_FAILS(tri_sampler_create(0, NULL, &sampler), TRI_ERR_INVALID_ARG, "0 samples");
    CHECK_FAILS(tri_sampler_create(5, &(tri_sampler_options){.rank = 2}, &sampler),
                TRI_ERR_INVALID_ARG, "rank 2 without n_replicas");
    CHECK_FAILS(tri_sampler_create(5, &(tri_sampler_options){.n_replicas = 2, .rank = 2}, &sampler),
                TRI_ERR_INVALID_ARG, "rank 2 of 2");
    CHECK_FAILS(tri_sampler_create(5, &(tri_sampler_options){.n_replicas = -1}, &sampler),
                TRI_ERR_INVALID_ARG, "-1 replicas");
    CHECK_FAILS(
        tri_sampler_create(5, &(tri_sampler_options){.n_replicas = 2, .rank = -1}, &sampler),
        TRI_ERR_INVALID_ARG, "rank -1 of 2");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shares_are_those_of_torch),
    cmocka_unit_test(shares_of_a_large_set_cover_it),
    cmocka_unit_test(impossible_shares_are_refused),
};
TEST_MAIN(tests)
