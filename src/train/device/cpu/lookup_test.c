/*
 * lookup_test.c - embedding and its gradient against the reference kernels.
 */
#include "testing/device_models.h"

static tri_tensor *indices;

static tri_tensor *build_lookup(tri_tensor *const *l, const void *options)
{
    return tri_embedding(indices, l[0], options);
}

/* Row i % 7 of 7 more often than the others, some never. */
static void take(int64_t n, int64_t rows)
{
    int64_t *index = malloc((size_t)n * sizeof(*index) + 1);

    for (int64_t i = 0; i < n; i++)
        index[i] = i % 3 == 0 ? i * 31 % rows : i % 7 % rows;
    indices = tri_tensor_from(&n, 1, TRI_DTYPE_I64, index);
    free(index);
}

static model model_of(int64_t rows, int64_t cols, const tri_embedding_options *opt)
{
    return (model){.name = "embedding",
                   .n_leaves = 1,
                   .shape = {{rows, cols}},
                   .ndim = {2},
                   .build = build_lookup,
                   .options = opt};
}

static void rows_are_taken_and_added_up(void **state)
{
    static const int64_t sizes[][3] = {{0, 5, 3},    {1, 1, 1},       {4000, 11, 1},
                                       {33, 300, 7}, {257, 19, 1031}, {4097, 64, 16}};
    const tri_embedding_options padded = {.padding_idx = TRI_SET(0)};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const model plain = model_of(sizes[i][1], sizes[i][2], NULL);
        const model with_padding = model_of(sizes[i][1], sizes[i][2], &padded);

        take(sizes[i][0], sizes[i][1]);
        check_model(&plain);
        check_model(&with_padding);
        tri_tensor_unref(indices);
    }
}

static void every_number_of_threads_has_the_same_bits(void **state)
{
    const model m = model_of(97, 515, NULL);

    (void)state;
    take(3001, 97);
    check_bits_of_threads(&m);
    tri_tensor_unref(indices);
}

static void an_index_out_of_range_is_named(void **state)
{
    const int64_t n = 3, wrong[3] = {1, 0, 4};
    tri_tensor *table = noise((int64_t[]){4, 2}, 2);
    float y[6];

    (void)state;
    indices = tri_tensor_from(&n, 1, TRI_DTYPE_I64, wrong);
    CHECK_FAILS(tri_tensor_copy_out(tri_keep(tri_embedding(indices, table, NULL)), y, sizeof(y)),
                TRI_ERR_INVALID_ARG, "index 4 (element 2) is out of range (4 rows)");
    tri_step_end();
    tri_tensor_unref(table);
    tri_tensor_unref(indices);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_are_taken_and_added_up),
    cmocka_unit_test(every_number_of_threads_has_the_same_bits),
    cmocka_unit_test(an_index_out_of_range_is_named),
};

TEST_MAIN(tests)
