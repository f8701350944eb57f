/* sampler_test.c - indices of an epoch, against PyTorch's (tests/golden/sampler.py,
 * samplers.py). */
/* ctest: threads=none */
#include <math.h>

#include <trireme/data.h>

#include "base/alloc.h"
#include "base/err.h"
#include "testing/check.h"
#include "testing/golden.h"

static void shares_are_those_of_torch(void **state)
{
    int length, replicas, rank, shuffle, drop, seed, epoch, n, lines = 0;
    FILE *file = golden_open("sampler.txt");

    (void)state;
    while (fscanf(file, "%d %d %d %d %d %d %d %d", &length, &replicas, &rank, &shuffle, &drop,
                  &seed, &epoch, &n) == 8) {
        tri_sampler *sampler;

        CHECK_OK(tri_sampler_distributed(length,
                                         &(tri_sampler_distributed_options){.n_replicas = replicas,
                                                                            .rank = rank,
                                                                            .sequential = !shuffle,
                                                                            .drop_last = drop,
                                                                            .seed = (uint64_t)seed},
                                         &sampler));
        assert_null(tri_sampler_indices(sampler));
        CHECK_OK(tri_sampler_set_epoch(sampler, epoch));
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

        CHECK_OK(tri_sampler_distributed(
            LENGTH,
            &(tri_sampler_distributed_options){.n_replicas = REPLICAS, .rank = rank, .seed = 42},
            &sampler));
        CHECK_OK(tri_sampler_set_epoch(sampler, 0));
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
    CHECK_FAILS(tri_sampler_distributed(0, NULL, &sampler), TRI_ERR_INVALID_ARG, "0 samples");
    CHECK_FAILS(tri_sampler_distributed(5, &(tri_sampler_distributed_options){.rank = 2}, &sampler),
                TRI_ERR_INVALID_ARG, "rank 2 without n_replicas");
    CHECK_FAILS(tri_sampler_distributed(
                    5, &(tri_sampler_distributed_options){.n_replicas = 2, .rank = 2}, &sampler),
                TRI_ERR_INVALID_ARG, "rank 2 is out of range (2 replicas)");
    CHECK_FAILS(
        tri_sampler_distributed(5, &(tri_sampler_distributed_options){.n_replicas = -1}, &sampler),
        TRI_ERR_INVALID_ARG, "-1 replicas");
    CHECK_FAILS(tri_sampler_distributed(
                    5, &(tri_sampler_distributed_options){.n_replicas = 2, .rank = -1}, &sampler),
                TRI_ERR_INVALID_ARG, "rank -1 is out of range (2 replicas)");
}

static void check_line(FILE *file, tri_sampler *sampler, int64_t epoch, int n)
{
    CHECK_OK(tri_sampler_set_epoch(sampler, epoch + 1)); /* nothing of it is left */
    CHECK_OK(tri_sampler_set_epoch(sampler, epoch));
    assert_int_equal(tri_sampler_length(sampler), n);
    for (int i = 0; i < n; i++) {
        long long index = -1;

        assert_int_equal(fscanf(file, "%lld", &index), 1);
        assert_int_equal(tri_sampler_indices(sampler)[i], index);
    }
    tri_sampler_destroy(sampler);
}

static void random_and_weighted_ones_are_those_of_torch(void **state)
{
    FILE *file = golden_open("samplers.txt");
    long live = trii_alloc_live();
    int lines[2] = {0}, replacement, seed, epoch, n;
    long long length, count;
    char kind[16];

    (void)state;
    while (fscanf(file, "%15s %lld", kind, &length) == 2) {
        bool random = strcmp(kind, "random") == 0;
        tri_sampler *sampler;

        if (random) {
            assert_int_equal(
                fscanf(file, "%d %lld %d %d %d", &replacement, &count, &seed, &epoch, &n), 5);
            CHECK_OK(tri_sampler_random(length,
                                        &(tri_sampler_random_options){.replacement = replacement,
                                                                      .n_samples = count,
                                                                      .seed = (uint64_t)seed},
                                        &sampler));
        } else {
            double weights[70];

            assert_int_equal(fscanf(file, "%lld %d %d %d", &count, &seed, &epoch, &n), 4);
            for (int i = 0; i < (int)length; i++)
                weights[i] = (7 * (i + 1)) % 5 + (i + 1) / 4.0;
            CHECK_OK(tri_sampler_weighted(
                weights, length,
                &(tri_sampler_weighted_options){.n_samples = count, .seed = (uint64_t)seed},
                &sampler));
        }
        check_line(file, sampler, epoch, n);
        lines[random]++;
    }
    fclose(file);
    assert_true(lines[0] == 20 && lines[1] > 70);
    assert_int_equal(trii_alloc_live(), live);
}

/* Each index once at most, none of weight 0, and the heavy ones first as often as they should. */
static void without_replacement_none_comes_twice(void **state)
{
    enum { N = 37, DRAWN = 20, EPOCHS = 4000 };
    double weights[N], sum = 0;
    int n_first[N] = {0};
    tri_sampler *sampler;

    (void)state;
    for (int i = 0; i < N; i++)
        sum += weights[i] = i % 3 == 0 ? 0 : i;
    CHECK_OK(tri_sampler_weighted(
        weights, N, &(tri_sampler_weighted_options){.no_replacement = true, .n_samples = DRAWN},
        &sampler));
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        bool seen[N] = {false};

        CHECK_OK(tri_sampler_set_epoch(sampler, epoch));
        for (int i = 0; i < DRAWN; i++) {
            int64_t index = tri_sampler_indices(sampler)[i];

            assert_in_range(index, 0, N - 1);
            assert_true(weights[index] > 0);
            assert_false(seen[index]);
            seen[index] = true;
        }
        n_first[tri_sampler_indices(sampler)[0]]++;
    }
    for (int i = 0; i < N; i++)
        CHECK_NEAR((double)n_first[i] / EPOCHS, weights[i] / sum, 0.02);
    tri_sampler_destroy(sampler);
    for (int n = 1; n <= 9; n++) { /* all that there are, of any number */
        uint64_t seen = 0;

        for (int i = 0; i < n; i++)
            weights[i] = 1e-300 * (i + 1);
        CHECK_OK(tri_sampler_weighted(
            weights, n, &(tri_sampler_weighted_options){.no_replacement = true}, &sampler));
        CHECK_OK(tri_sampler_set_epoch(sampler, 5));
        for (int i = 0; i < n; i++)
            seen |= UINT64_C(1) << tri_sampler_indices(sampler)[i];
        assert_true(seen == (UINT64_C(1) << n) - 1);
        tri_sampler_destroy(sampler);
    }
}

/* As a user writes one: epoch e counts down, e at a time. */
typedef struct own_sampler {
    tri_sampler base;
    tri_status status;
    bool mute;
    int *n_destroyed;
} own_sampler;

static tri_status own_draw(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    own_sampler *s = (own_sampler *)self;

    if (s->status != TRI_OK)
        return s->mute ? s->status : TRII_FAIL(s->status, "index file is gone");
    for (int64_t i = 0; i < self->length; i++)
        indices[i] = (self->length - 1 - i) * epoch;
    return TRI_OK;
}

static void own_destroy(tri_sampler *self)
{
    ++*((own_sampler *)self)->n_destroyed;
}

static const tri_sampler_class own_class = {
    .name = "own", .draw = own_draw, .destroy = own_destroy};

static void an_own_class_is_drawn_shared_and_destroyed(void **state)
{
    long live = trii_alloc_live();
    int n_destroyed = 0;
    own_sampler own = {.base = {.cls = &own_class, .length = 5}, .n_destroyed = &n_destroyed};
    tri_sampler *share;

    (void)state;
    CHECK_OK(tri_sampler_set_epoch(&own.base, 2));
    for (int i = 0; i < 5; i++)
        assert_int_equal(tri_sampler_indices(&own.base)[i], 2 * (4 - i));
    tri_sampler_destroy(&own.base);
    assert_int_equal(n_destroyed, 1);
    for (int rank = 0; rank < 3; rank++) {
        for (int drop = 0; drop < 2; drop++) {
            const int64_t shares[3][2] = {{4, 1}, {3, 0}, {2, 4}};

            CHECK_OK(tri_sampler_share(
                &own.base,
                &(tri_sampler_share_options){.n_replicas = 3, .rank = rank, .drop_last = drop},
                &share));
            CHECK_OK(tri_sampler_set_epoch(share, 1));
            assert_int_equal(tri_sampler_length(share), drop ? 1 : 2);
            for (int64_t i = 0; i < tri_sampler_length(share); i++)
                assert_int_equal(tri_sampler_indices(share)[i], shares[rank][i]);
            tri_sampler_destroy(share);
        }
    }
    assert_int_equal(n_destroyed, 7);
    own.status = TRI_ERR_IO;
    CHECK_FAILS(tri_sampler_set_epoch(&own.base, 1), TRI_ERR_IO, "index file is gone");
    own.mute = true;
    CHECK_FAILS(tri_sampler_set_epoch(&own.base, 1), TRI_ERR_IO,
                "sampler own: its draw returned IO without a message");
    own.status = TRI_END;
    CHECK_FAILS(tri_sampler_set_epoch(&own.base, 1), TRI_ERR_INVALID_ARG,
                "sampler own: its draw returned END");
    tri_sampler_destroy(&own.base);
    assert_int_equal(trii_alloc_live(), live);
}

static void empty_orders_are_orders(void **state)
{
    tri_sampler *sampler, *share;

    (void)state;
    CHECK_OK(tri_sampler_sequential(0, &sampler));
    CHECK_OK(tri_sampler_set_epoch(sampler, 0));
    assert_int_equal(tri_sampler_length(sampler), 0);
    assert_non_null(tri_sampler_indices(sampler));
    CHECK_OK(tri_sampler_share(sampler, &(tri_sampler_share_options){.n_replicas = 3, .rank = 2},
                               &share));
    CHECK_OK(tri_sampler_set_epoch(share, 0));
    assert_int_equal(tri_sampler_length(share), 0);
    tri_sampler_destroy(share);
    CHECK_OK(tri_sampler_sequential(3, &sampler));
    CHECK_OK(tri_sampler_set_epoch(sampler, 9));
    for (int i = 0; i < 3; i++)
        assert_int_equal(tri_sampler_indices(sampler)[i], i);
    tri_sampler_destroy(sampler);
}

static void impossible_samplers_are_refused(void **state)
{
    static const tri_sampler_class nothing = {.name = "nothing"};
    const double weights[3] = {1, 0, 2}, zeros[2] = {0}, bad[2] = {1, -1},
                 endless[2] = {1, INFINITY}, none[2] = {NAN, 1};
    tri_sampler empty = {.cls = &nothing, .length = 1}, unfinished = {.length = 1};
    tri_sampler *sampler = NULL;

    (void)state;
#define REFUSED(call, what) CHECK_FAILS(call, TRI_ERR_INVALID_ARG, what)
    REFUSED(tri_sampler_sequential(-1, &sampler), "-1 samples");
    REFUSED(tri_sampler_sequential(1, NULL), "sampler_out is NULL");
    REFUSED(tri_sampler_random(0, NULL, &sampler), "length of 0");
    REFUSED(tri_sampler_random(1, NULL, NULL), "sampler_out is NULL");
    REFUSED(tri_sampler_random(1, &(tri_sampler_random_options){.n_samples = -1}, &sampler),
            "-1 samples");
    REFUSED(tri_sampler_weighted(NULL, 1, NULL, &sampler), "weights is NULL");
    REFUSED(tri_sampler_weighted(weights, 0, NULL, &sampler), "0 weights");
    REFUSED(tri_sampler_weighted(weights, 3, NULL, NULL), "sampler_out is NULL");
    REFUSED(tri_sampler_weighted(zeros, 2, NULL, &sampler), "add up to 0");
    REFUSED(tri_sampler_weighted(bad, 2, NULL, &sampler), "weight 1 is -1");
    REFUSED(tri_sampler_weighted(endless, 2, NULL, &sampler), "weight 1 is inf");
    REFUSED(tri_sampler_weighted(none, 2, NULL, &sampler), "weight 0 is nan");
    REFUSED(tri_sampler_weighted(weights, 3,
                                 &(tri_sampler_weighted_options){.no_replacement = true}, &sampler),
            "3 samples without replacement, but 2 weights");
    REFUSED(tri_sampler_share(NULL, NULL, &sampler), "sampler is NULL");
    REFUSED(tri_sampler_share(&empty, NULL, &sampler), "nothing has no draw");
    REFUSED(tri_sampler_share(&unfinished, NULL, &sampler), "sampler->cls is NULL");
    empty.length = -1;
    empty.cls = &own_class;
    REFUSED(tri_sampler_set_epoch(&empty, 0), "length of -1");
    assert_null(sampler);
#undef REFUSED
}

static void every_allocation_may_fail(void **state)
{
    const double weights[5] = {1, 2, 3, 4, 5};
    tri_status status = TRI_ERR_NO_MEMORY;
    long live = trii_alloc_live();

    (void)state;
    for (long n = 1; status == TRI_ERR_NO_MEMORY; n++) {
        tri_sampler *sampler = NULL, *share = NULL;

        trii_alloc_fail_at(n);
        status =
            n % 2 == 0 /* both kinds of what is drawn from */
                ? tri_sampler_random(5, &(tri_sampler_random_options){.n_samples = 3}, &sampler)
                : TRI_OK;
        if (n % 2 != 0)
            status = tri_sampler_weighted(
                weights, 5, &(tri_sampler_weighted_options){.no_replacement = true}, &sampler);
        if (status == TRI_OK)
            status = tri_sampler_share(sampler, NULL, &share);
        if (status == TRI_OK)
            status = tri_sampler_set_epoch(share, 1);
        trii_alloc_fail_at(0);
        tri_sampler_destroy(share);
        assert_int_equal(trii_alloc_live(), live);
    }
    CHECK_OK(status);
}

/* It would be that of a world of one: each worker would train on everything. */
static void a_share_of_a_world_that_is_not_joined_is_refused(void **state)
{
    tri_sampler *s = NULL;

    (void)state;
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    CHECK_FAILS(tri_sampler_distributed(8, NULL, &s), TRI_ERR_STATE, "call tri_init before");
    CHECK_OK(tri_sampler_distributed(
        8, &(tri_sampler_distributed_options){.n_replicas = 2, .rank = 1}, &s));
    assert_int_equal(tri_sampler_length(s), 4);
    tri_sampler_destroy(s);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    CHECK_OK(tri_sampler_distributed(8, NULL, &s));
    assert_int_equal(tri_sampler_length(s), 8);
    tri_sampler_destroy(s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_and_weighted_ones_are_those_of_torch),
    cmocka_unit_test(without_replacement_none_comes_twice),
    cmocka_unit_test(an_own_class_is_drawn_shared_and_destroyed),
    cmocka_unit_test(empty_orders_are_orders),
    cmocka_unit_test(impossible_samplers_are_refused),
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(shares_are_those_of_torch),
    cmocka_unit_test(shares_of_a_large_set_cover_it),
    cmocka_unit_test(impossible_shares_are_refused),
    cmocka_unit_test(a_share_of_a_world_that_is_not_joined_is_refused),
};
TEST_MAIN(tests)
