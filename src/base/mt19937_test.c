/* mt19937_test.c - golden values of PyTorch 2.13 (torch.manual_seed, torch.rand, randperm). */
#include "base/mt19937.h"

#include "testing/check.h"

static void first_words_are_those_of_the_published_generator(void **state)
{
    static const uint32_t seed_0[] = {2357136044u, 2546248239u, 3071714933u, 3626093760u,
                                      2588848963u};
    trii_mt19937 mt;

    (void)state;
    trii_mt_seed(&mt, 0);
    for (size_t i = 0; i < TRII_COUNT_OF(seed_0); i++)
        assert_int_equal(trii_mt_u32(&mt), seed_0[i]);
    /* The 10000th number after seed 5489 is in the C++ standard. */
    trii_mt_seed(&mt, 5489);
    for (int i = 1; i < 10000; i++)
        (void)trii_mt_u32(&mt);
    assert_int_equal(trii_mt_u32(&mt), 4123659995u);
}

static void only_the_low_half_of_a_seed_counts(void **state)
{
    trii_mt19937 a, b;

    (void)state;
    trii_mt_seed(&a, (UINT64_C(1) << 32) + 42);
    trii_mt_seed(&b, 42);
    assert_int_equal(trii_mt_u32(&a), trii_mt_u32(&b));
}

/* n, seed, first 8, last 4 */
static const int64_t golden_perms[][14] = {
    {10, 0, 4, 1, 7, 5, 3, 9, 0, 8, 0, 8, 6, 2},
    {10, 1, 5, 6, 1, 2, 0, 8, 9, 3, 9, 3, 7, 4},
    {10, 42, 2, 6, 1, 8, 4, 5, 0, 9, 0, 9, 3, 7},
    {1000, 0, 44, 37, 675, 775, 947, 209, 719, 500, 932, 745, 263, 354},
    {1000, 1, 845, 303, 66, 436, 239, 593, 573, 999, 364, 513, 935, 639},
    {60000, 0, 36044, 10678, 57327, 55074, 21567, 15479, 9481, 43095, 6465, 31951, 27130, 1544},
    {60000, 42, 37542, 43087, 2992, 25810, 39634, 6425, 55768, 11034, 54582, 28045, 16929, 22100},
};

static void permutations_are_those_of_torch(void **state)
{
    static int64_t perm[60000];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(golden_perms); i++) {
        const int64_t *g = golden_perms[i];
        trii_mt19937 mt;

        trii_mt_seed(&mt, (uint64_t)g[1]);
        trii_mt_randperm(&mt, g[0], perm);
        assert_memory_equal(perm, g + 2, 8 * sizeof(int64_t));
        assert_memory_equal(perm + g[0] - 4, g + 10, 4 * sizeof(int64_t));
    }
}

/* Inside out: element i goes to a place among the i + 1 first, and what was there to the end. */
static void huge_permutations_are_made_inside_out(void **state)
{
    int64_t perm[1000], wanted[1000];
    trii_mt19937 mt;

    (void)state;
    trii_mt_seed(&mt, 3);
    for (int64_t i = 0; i < 1000; i++) {
        int64_t place = (int64_t)(trii_mt_u64(&mt) % (uint64_t)(i + 1));

        wanted[i] = place == i ? i : wanted[place];
        wanted[place] = i;
    }
    trii_mt_seed(&mt, 3);
    trii_mt_randperm_large(&mt, 1000, perm);
    assert_memory_equal(perm, wanted, sizeof(wanted));
    for (int64_t i = 0; i < 1000; i++)
        wanted[perm[i]] = -1;
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(wanted[i], -1); /* each was there */
}

static void a_thread_begins_with_torchs_seed(void **state)
{
    trii_mt19937 mt;

    (void)state;
    trii_mt_seed(&mt, 67280421310721u);
    assert_int_equal(trii_mt_u32(trii_mt_default()), trii_mt_u32(&mt));
    assert_int_equal(trii_mt_u32(trii_mt_default()), trii_mt_u32(&mt));
}

static void uniform_floats_are_those_of_torch(void **state)
{
    /* torch.manual_seed(0); torch.empty(5).uniform_(-0.3, 0.7); the same in float64, seed 0 */
    static const float f32[] = {0x1.91eef80000000p-3f, 0x1.df75880000000p-2f,
                                -0x1.b132c00000000p-3f, -0x1.5800680000000p-3f,
                                0x1.e676000000000p-8f};
    static const double f64[] = {0x1.57112fe2b1096p-1, 0x1.a19b87d10664dp-2, 0x1.466a90822e586p-3,
                                 0x1.3dd2a3f4be3cep-1, 0x1.614e00c108a73p-2};
    trii_mt19937 mt;

    (void)state;
    trii_mt_seed(&mt, 0);
    for (size_t i = 0; i < TRII_COUNT_OF(f32); i++) {
        float v = trii_mt_uniform_f32(&mt, -0.3f, 0.7f);

        assert_memory_equal(&v, &f32[i], sizeof(v));
    }
    trii_mt_seed(&mt, 0);
    for (size_t i = 0; i < TRII_COUNT_OF(f64); i++) {
        double v = trii_mt_uniform_f64(&mt, -0.3, 0.7);

        assert_memory_equal(&v, &f64[i], sizeof(v));
    }
}

static void tiny_permutations_work(void **state)
{
    int64_t perm[1] = {7};
    trii_mt19937 mt;

    (void)state;
    trii_mt_seed(&mt, 1);
    trii_mt_randperm(&mt, 0, perm);
    assert_int_equal(perm[0], 7);
    trii_mt_randperm(&mt, 1, perm);
    assert_int_equal(perm[0], 0);
    trii_mt_seed(&mt, 1); /* neither drew a number */
    trii_mt_randperm(&mt, 1, perm);
    assert_int_equal(trii_mt_u32(&mt), 1791095845u);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_words_are_those_of_the_published_generator),
        cmocka_unit_test(only_the_low_half_of_a_seed_counts),
        cmocka_unit_test(permutations_are_those_of_torch),
        cmocka_unit_test(huge_permutations_are_made_inside_out),
        cmocka_unit_test(a_thread_begins_with_torchs_seed),
        cmocka_unit_test(uniform_floats_are_those_of_torch),
        cmocka_unit_test(tiny_permutations_work),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
