/*
 * chaos_test.c - TRI_CHAOS is understood or refused by the part that is wrong, and the same seed
 * strikes the same calls. Strikes of real processes: tests/multiproc/chaos_process_test.c.
 */
#include "testing/check.h"

#include "base/alloc.h"
#include "comm/group/watch/chaos.h"
#include "os/clock.h"

static void set(const char *text)
{
    assert_int_equal(setenv("TRI_CHAOS", text, 1), 0);
}

static void what_is_wrong_is_named(void **state)
{
    static const char *const wrong[][2] = {
        {"kill", "kill: needs a value"},
        {"kill=2", "kill=2: needs a probability"},
        {"kill=@0", "kill=@0: @N needs"},
        {"delay=0.1:x", "delay=0.1:x: the longest delay"},
        {"drop=0.1:5", "drop=0.1:5: something follows"},
        {"seed=7,smash=1", "smash=1: there are seed, delay"},
        {"rank=1+3", "rank=1+3: needs a rank"},
        {"rank=-1", "rank=-1: needs a rank"},
        {"seed=-1", "seed=-1: needs a number"},
        {"seed=1,", ": needs a value"},
    };
    trii_chaos *chaos = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        set(wrong[i][0]);
        CHECK_FAILS(trii_chaos_create(0, "world", &chaos), TRI_ERR_INVALID_ARG, wrong[i][1]);
        assert_null(chaos);
    }
    assert_int_equal(trii_alloc_live(), 0);
}

static void a_group_refuses_what_is_wrong(void **state)
{
    tri_group *group = NULL;

    (void)state;
    set("kill=maybe");
    CHECK_FAILS(tri_group_create(NULL, 0, 1, NULL, &group), TRI_ERR_INVALID_ARG,
                "TRI_CHAOS: kill=maybe");
    assert_int_equal(trii_alloc_live(), 0);
}

static void other_ranks_are_spared(void **state)
{
    trii_chaos *chaos = NULL;

    (void)state;
    set("kill=@1,rank=3");
    for (int r = 0; r < 8; r++) {
        CHECK_OK(trii_chaos_create(r, "world", &chaos));
        assert_int_equal(chaos != NULL, r == 3);
        trii_chaos_destroy(chaos);
    }
    unsetenv("TRI_CHAOS");
    CHECK_OK(trii_chaos_create(0, "world", &chaos));
    assert_null(chaos);
}

/* A connection for each peer, in words: 'd' was broken, 'h' closed for sending. */
static char severed[4];

static void disconnect(void *self, uint32_t draw, bool half)
{
    (void)self;
    severed[draw % 4] = half ? 'h' : 'd';
}

static const trii_engine engine = {.name = "severed", .disconnect = disconnect};

/* Which of 200 calls were struck, as bits of text. */
static void strikes(const char *text, int rank, const char *group, char *struck)
{
    const trii_collective call = {.kind = TRII_KIND_BARRIER};
    trii_chaos *chaos = NULL;

    set(text);
    CHECK_OK(trii_chaos_create(rank, group, &chaos));
    for (int i = 0; i < 200; i++) {
        memset(severed, 0, sizeof(severed));
        trii_chaos_strike(chaos, &engine, NULL, &call);
        struck[i] = '.';
        for (int c = 0; c < 4; c++)
            struck[i] = severed[c] != 0 ? severed[c] : struck[i];
    }
    struck[200] = '\0';
    trii_chaos_destroy(chaos);
}

static int count(const char *text, char c)
{
    int n = 0;

    for (; *text != '\0'; text++)
        n += *text == c;
    return n;
}

static void a_seed_strikes_the_same_calls(void **state)
{
    char one[201], other[201];

    (void)state;
    setenv("TRI_LOG", "error", 1);
    strikes("seed=7,drop=0.2", 0, "world", one);
    assert_in_range(count(one, 'd'), 20, 60);
    strikes("seed=7,drop=0.2", 0, "world", other);
    assert_string_equal(one, other);
    strikes("seed=8,drop=0.2", 0, "world", other);
    assert_string_not_equal(one, other);
    strikes("seed=7,drop=0.2", 1, "world", other);
    assert_string_not_equal(one, other);
    strikes("seed=7,drop=0.2", 0, "other", other);
    assert_string_not_equal(one, other);
    strikes("half=@17", 0, "world", other);
    assert_int_equal(count(other, 'h'), 1);
    assert_int_equal(other[16], 'h');
    assert_int_equal(trii_alloc_live(), 0);
}

static void delays_delay(void **state)
{
    const trii_collective call = {.kind = TRII_KIND_BARRIER};
    trii_chaos *chaos = NULL;
    int64_t start = trii_now_ns();

    (void)state;
    set("delay=1:40");
    CHECK_OK(trii_chaos_create(0, "world", &chaos));
    for (int i = 0; i < 8; i++)
        trii_chaos_strike(chaos, &engine, NULL, &call);
    /* Eight draws of 0 to 40 ms, which the seed has fixed. */
    assert_true(trii_now_ns() - start > 60 * TRII_NS_PER_MS);
    trii_chaos_destroy(chaos);
}

static void a_group_of_one_has_nothing_to_break(void **state)
{
    static const char *const engines[] = {"shm", "tcp", "self"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        const tri_group_options options = {.engine = engines[i / 2], .timeout_ms = 20000};
        tri_group *group = NULL;

        set(i % 2 == 0 ? "drop=1" : "half=1");
        CHECK_OK(tri_group_create(NULL, 0, 1, &options, &group));
        CHECK_OK(tri_barrier(group, NULL));
        tri_group_unref(group);
    }
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_wrong_is_named), cmocka_unit_test(a_group_refuses_what_is_wrong),
    cmocka_unit_test(other_ranks_are_spared), cmocka_unit_test(a_seed_strikes_the_same_calls),
    cmocka_unit_test(delays_delay),           cmocka_unit_test(a_group_of_one_has_nothing_to_break),
};

TEST_MAIN(tests)
