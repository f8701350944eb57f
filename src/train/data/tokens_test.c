/* tokens_test.c - windows of token files: contents, sizes, strides, heads, refusals. */
#include <trireme/data.h>

#include "base/alloc.h"
#include "train/tensor/persistent.h"
#include "testing/check.h"
#include "testing/scratch.h"

/* Token i of a file of so many bytes a token. */
static uint32_t token(int64_t i, int bytes)
{
    uint32_t mixed = (uint32_t)i * 0x9e3779b9u;

    return bytes == 4 ? mixed : mixed >> (32 - 8 * bytes);
}

static void write_tokens(const char *path, int64_t header, int64_t n, int bytes)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    for (int64_t i = 0; i < header; i++)
        assert_int_not_equal(putc(0xee, file), EOF);
    for (int64_t i = 0; i < n; i++) {
        for (int b = 0; b < bytes; b++)
            assert_int_not_equal(putc((int)(token(i, bytes) >> (8 * b) & 0xffu), file), EOF);
    }
    assert_int_equal(fclose(file), 0);
}

static void check_windows(const char *path, int bytes, int64_t n, int64_t context, int64_t stride,
                          int64_t header)
{
    int64_t step = stride > 0 ? stride : 1, length = (n - context - 1) / step + 1;
    int64_t *x = calloc((size_t)(2 * context), sizeof(*x)), *y = x + context;
    tri_dataset *set;

    assert_non_null(x);
    write_tokens(path, header, n, bytes);
    CHECK_OK(tri_dataset_tokens(
        path, bytes, context,
        &(tri_dataset_tokens_options){.stride = stride, .header_bytes = header}, &set));
    assert_int_equal(tri_dataset_length(set), length);
    for (int64_t index = 0; index < length; index++) {
        tri_request request = {.indices = &index, .n = 1};

        CHECK_OK(tri_dataset_read(set, &request, (void *const[]){x, y}));
        for (int64_t i = 0; i < context; i++) {
            assert_int_equal(x[i], token(index * step + i, bytes));
            assert_int_equal(y[i], token(index * step + i + 1, bytes));
        }
    }
    CHECK_FAILS(
        tri_dataset_read(set, &(tri_request){.indices = &length, .n = 1}, (void *const[]){x, y}),
        TRI_ERR_INVALID_ARG, "data set tokens: sample");
    tri_dataset_destroy(set);
    free(x);
}

static void windows_are_those_of_the_file(void **state)
{
    long live = trii_alloc_live();
    const char *path;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "tokens");
    for (int bytes = 1; bytes <= 4; bytes *= 2) {
        for (int64_t header = 0; header <= 3; header += 3) { /* odd addresses, too */
            check_windows(path, bytes, 2, 1, 0, header);
            check_windows(path, bytes, 101, 7, 0, header);
            check_windows(path, bytes, 101, 7, 7, header);
            check_windows(path, bytes, 101, 100, 0, header);
            check_windows(path, bytes, 101, 20, 1000, header);
        }
    }
    scratch_end(&s);
    assert_int_equal(trii_alloc_live(), live);
}

/* As GPT is trained: windows at random, more of them than memory has indices of all for. */
static void a_loader_draws_windows_of_a_large_file(void **state)
{
    enum { N = 1 << 22, CONTEXT = 64, BATCH = 8 };
    tri_sampler *sampler;
    tri_loader *loader;
    tri_dataset *set;
    tri_batch batch;
    const char *path;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "large");
    write_tokens(path, 0, N, 2);
    CHECK_OK(tri_dataset_tokens(path, 2, CONTEXT, NULL, &set));
    CHECK_OK(tri_sampler_random(
        tri_dataset_length(set),
        &(tri_sampler_random_options){.replacement = true, .n_samples = 5 * BATCH}, &sampler));
    CHECK_OK(
        tri_loader_create(set, sampler, BATCH, &(tri_loader_options){.n_threads = 2}, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    for (int k = 0; k < 5; k++) {
        const int64_t *x, *y;

        CHECK_OK(tri_loader_next(loader, &batch));
        assert_int_equal(tri_tensor_dtype(batch.fields[0]), TRI_DTYPE_I64);
        assert_int_equal(tri_tensor_size(batch.fields[1], 0), BATCH);
        assert_int_equal(tri_tensor_size(batch.fields[1], 1), CONTEXT);
        x = trii_tensor_data(batch.fields[0]);
        y = trii_tensor_data(batch.fields[1]);
        for (int r = 0; r < BATCH; r++) {
            int64_t at = tri_sampler_indices(sampler)[k * BATCH + r];

            for (int i = 0; i < CONTEXT; i++) {
                assert_int_equal(x[r * CONTEXT + i], token(at + i, 2));
                assert_int_equal(y[r * CONTEXT + i], token(at + i + 1, 2));
            }
        }
    }
    assert_int_equal(tri_loader_next(loader, &batch), TRI_END);
    tri_loader_destroy(loader);
    tri_sampler_destroy(sampler);
    tri_dataset_destroy(set);
    scratch_end(&s);
}

static void files_that_cannot_be_are_named(void **state)
{
    long live = trii_alloc_live();
    const char *five, *none;
    tri_dataset *set = NULL;
    scratch s;

    (void)state;
    scratch_begin(&s);
    five = scratch_path(&s, "five");
    none = scratch_path(&s, "none");
    write_tokens(five, 0, 5, 1);
    write_tokens(none, 0, 0, 1);
#define FAILS(call, status, what) CHECK_FAILS(call, status, what)
    FAILS(tri_dataset_tokens("missing", 2, 4, NULL, &set), TRI_ERR_NOT_FOUND, "missing");
    FAILS(tri_dataset_tokens("/", 2, 4, NULL, &set), TRI_ERR_IO, "not a file");
    FAILS(tri_dataset_tokens(five, 2, 1, NULL, &set), TRI_ERR_FORMAT,
          "five: truncated, or not a file of such tokens: 5 bytes");
    FAILS(tri_dataset_tokens(five, 1, 5, NULL, &set), TRI_ERR_FORMAT,
          "five: 5 tokens, but a window of 5 and the token after it need 6");
    FAILS(tri_dataset_tokens(none, 1, 1, NULL, &set), TRI_ERR_FORMAT, "none: 0 tokens");
    FAILS(tri_dataset_tokens(five, 1, 1, &(tri_dataset_tokens_options){.header_bytes = 6}, &set),
          TRI_ERR_FORMAT, "header of 6");
    FAILS(tri_dataset_tokens(five, 3, 1, NULL, &set), TRI_ERR_INVALID_ARG, "tokens of 3 bytes");
    FAILS(tri_dataset_tokens(five, 1, 0, NULL, &set), TRI_ERR_INVALID_ARG, "windows of 0 tokens");
    FAILS(tri_dataset_tokens(five, 1, INT64_MAX, NULL, &set), TRI_ERR_INVALID_ARG, "windows of");
    FAILS(tri_dataset_tokens(five, 1, 1, &(tri_dataset_tokens_options){.stride = -1}, &set),
          TRI_ERR_INVALID_ARG, "stride of -1");
    FAILS(tri_dataset_tokens(NULL, 1, 1, NULL, &set), TRI_ERR_INVALID_ARG, "path is NULL");
    FAILS(tri_dataset_tokens("", 1, 1, NULL, &set), TRI_ERR_INVALID_ARG, "path is empty");
    FAILS(tri_dataset_tokens(five, 1, 1, NULL, NULL), TRI_ERR_INVALID_ARG, "dataset_out is NULL");
#undef FAILS
    trii_alloc_fail_at(1);
    CHECK_FAILS(tri_dataset_tokens(five, 1, 1, NULL, &set), TRI_ERR_NO_MEMORY, "data set");
    trii_alloc_fail_at(0);
    assert_null(set);
    scratch_end(&s);
    assert_int_equal(trii_alloc_live(), live);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows_are_those_of_the_file),
    cmocka_unit_test(a_loader_draws_windows_of_a_large_file),
    cmocka_unit_test(files_that_cannot_be_are_named),
};
TEST_MAIN(tests)
