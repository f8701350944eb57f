/*
 * part_copies_test.c - concat and split, and their gradients, against the reference kernels.
 */
#include "train/device/cpu/cpu_parallel.h"
#include "testing/device_models.h"

/* The parts of l[0] in another order, one of them twice, with l[1] between. */
static tri_tensor *build_parts(tri_tensor *const *l, const void *options)
{
    const int dim = *(const int *)options;
    int64_t n = tri_tensor_size(l[0], dim);
    tri_tensor *part[3];

    tri_split(l[0], TRI_SHAPE(n / 3, 0, n - n / 3), dim, part);
    return tri_concat((tri_tensor *const[]){part[2], l[1], part[1], part[0], part[2]}, 5, dim);
}

static void check_parts(void)
{
    static const int64_t sizes[][3] = {{1, 1, 3}, {4, 7, 5}, {3, 129, 67}, {130, 5, 33}};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int dim = 0; dim < 3; dim++) {
            model m = {.name = "parts",
                       .n_leaves = 2,
                       .ndim = {3, 3},
                       .build = build_parts,
                       .options = &dim};

            memcpy(m.shape[0], sizes[i], sizeof(sizes[i]));
            memcpy(m.shape[1], sizes[i], sizeof(sizes[i]));
            m.shape[1][dim] = 2;
            check_model(&m);
        }
    }
}

static void parts_of_every_dimension(void **state)
{
    (void)state;
    check_parts();
}

static void parts_on_several_threads(void **state)
{
    static const int threads[2] = {3, 8};

    (void)state;
    threads_are_set = true;
    for (int i = 0; i < 2; i++) {
        trii_parallel_set_threads(threads[i]);
        check_parts();
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parts_of_every_dimension),
    cmocka_unit_test(parts_on_several_threads),
};

TEST_MAIN(tests)
