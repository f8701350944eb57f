/* tensor_stream_test.c - tensors of files and folders in blocks, and their conversion. Golden
 * folders: see weight_folders_test.c. */
/* ctest: threads=none */
#include <trireme/nn.h>

#include "base/alloc.h"
#include "testing/golden.h"
#include "testing/scratch.h"
#include "train/checkpoint/convert.h"
#include "train/checkpoint/tensor_stream.h"

static const char *const folders[] = {
    "folders/hub-safetensors",
    "folders/hub-torch",
    "folders/dcp-replicated",
    "folders/dcp-sharded",
    "folders/dcp-columns",
    "folders/dcp-app",
    "folders/deepspeed-stage0/global_step0",
    "folders/deepspeed-stage1/global_step0",
    "folders/deepspeed-stage2-bf16/global_step0",
    "folders/deepspeed-stage2-frozen/global_step0",
    "folders/deepspeed-stage3/global_step0",
    "folders/deepspeed-stage3-frozen/global_step0",
};

/* --- blocks --------------------------------------------------------------- */

typedef struct gathered {
    unsigned char bytes[256];
    size_t n;
} gathered;

static tri_status gather(void *arg, const void *data, size_t bytes)
{
    gathered *g = arg;

    assert_true(bytes > 0 && g->n + bytes <= sizeof(g->bytes));
    memcpy(g->bytes + g->n, data, bytes);
    g->n += bytes;
    return TRI_OK;
}

static void blocks_are_the_elements(void **state)
{
    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(folders); k++) {
        trii_tensor_stream stream;
        trii_weights weights;

        CHECK_OK(trii_tensor_stream_open(golden_path(folders[k]), TRII_WEIGHTS_STATE, &stream));
        CHECK_OK(trii_weights_open(golden_path(folders[k]), TRII_WEIGHTS_STATE, &weights));
        assert_int_equal(stream.n, 9);
        for (int64_t i = 0; i < stream.n; i++) {
            gathered g = {.n = 0};
            const void *data = NULL;

            assert_string_equal(stream.entries[i].name, weights.sources[i].name);
            CHECK_OK(weights.kind->data(&weights, i, &data));
            CHECK_OK(trii_tensor_stream_give(&stream, i, &(trii_sink){gather, &g}));
            assert_int_equal(g.n, stream.entries[i].bytes);
            assert_memory_equal(g.bytes, data, g.n);
        }
        trii_weights_close(&weights);
        trii_tensor_stream_close(&stream);
    }
}

/* --- damage --------------------------------------------------------------- */

static void copy_folder(scratch *s, const char *folder)
{
    const struct dirent *e;
    DIR *dir = opendir(folder);

    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL) {
        char path[1024], *bytes;
        size_t n;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        bytes = scratch_read(path, &n);
        scratch_file(s, e->d_name, bytes, n);
        free(bytes);
    }
    closedir(dir);
}

static void flip(const char *path, uint64_t at)
{
    FILE *file = fopen(path, "r+b");
    int byte;

    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    byte = fgetc(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 0x10, file), byte ^ 0x10);
    assert_int_equal(fclose(file), 0);
}

static tri_status pass_over(void *arg, const void *data, size_t bytes)
{
    (void)arg;
    (void)data;
    (void)bytes;
    return TRI_OK;
}

/* Tensor `index` is damaged, and the message has the file. */
static void expect_damage(const char *folder, int64_t index, const char *file)
{
    const char *name = strrchr(file, '/') + 1;
    trii_tensor_stream stream;

    CHECK_OK(trii_tensor_stream_open(folder, TRII_WEIGHTS_STATE, &stream));
    CHECK_FAILS(trii_tensor_stream_give(&stream, index, &(trii_sink){pass_over, NULL}),
                TRI_ERR_FORMAT, name);
    trii_tensor_stream_close(&stream);
}

/* Flips each byte of a run. */
static void damage_run(const char *folder, int64_t index, const trii_weights_run *run)
{
    char *path = strdup(run->path);
    uint64_t at = run->base + run->tensor->file_offset +
                  (uint64_t)run->tensor->offset * run->tensor->element_bytes + run->at,
             end = at + run->bytes;

    assert_non_null(path);
    for (; at < end; at++) {
        flip(path, at);
        expect_damage(folder, index, path);
        flip(path, at);
    }
    free(path);
}

static void each_flipped_byte_is_found(void **state)
{
    (void)state;
    for (size_t k = 1; k < TRII_COUNT_OF(folders); k++) { /* safetensors have no checksums */
        trii_tensor_stream stream;
        int64_t runs = 0;
        scratch s;

        scratch_begin(&s);
        copy_folder(&s, golden_path(folders[k]));
        CHECK_OK(trii_tensor_stream_open(s.dir, TRII_WEIGHTS_STATE, &stream));
        for (int64_t i = 0; i < stream.n; i++) {
            trii_weights_run run = {.bytes = 1};

            for (int64_t r = 0; run.bytes > 0; r++) {
                CHECK_OK(stream.weights.kind->run(&stream.weights, i, r, &run));
                if (run.bytes == 0 || run.path == NULL)
                    continue;
                damage_run(s.dir, i, &run);
                runs++;
            }
        }
        assert_true(runs >= 7);
        trii_tensor_stream_close(&stream);
        scratch_end(&s);
    }
}

/* The first element of a tensor whose pieces are columns: -50, which no other one is. */
static void a_flipped_byte_of_columns_is_found(void **state)
{
    static const unsigned char first[] = {0, 0, 0x48, 0xc2};
    char *bytes, *at;
    const char *path;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    copy_folder(&s, golden_path("folders/dcp-columns"));
    path = scratch_path(&s, "__0_0.distcp");
    bytes = scratch_read(path, &n);
    at = memmem(bytes, n, first, sizeof(first));
    assert_non_null(at);
    flip(path, (uint64_t)(at - bytes));
    expect_damage(s.dir, 1, path);
    free(bytes);
    scratch_end(&s);
}

/* --- conversion ----------------------------------------------------------- */

static void an_allocation_that_fails_leaves_nothing(void **state)
{
    static const trii_renaming renaming = {"1.", "one."};
    static const struct {
        const char *from;
        trii_convert_kind kind;
    } rows[] = {
        {"folders/hub-torch", TRII_CONVERT_HUB},
        {"folders/dcp-sharded", TRII_CONVERT_TORCH},
        {"folders/dcp-columns", TRII_CONVERT_SAFETENSORS},
        {"folders/deepspeed-stage3/global_step0", TRII_CONVERT_SAFETENSORS},
    };

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(rows); k++) {
        const long live = trii_alloc_live();
        tri_status status = TRI_ERR_NO_MEMORY;
        trii_converted told;
        scratch s;

        scratch_begin(&s);
        for (long n = 1; status != TRI_OK; n++) {
            const trii_conversion what = {.from = golden_path(rows[k].from),
                                          .to = scratch_path(&s, "to"),
                                          .kind = rows[k].kind,
                                          .shard_bytes = 100,
                                          .renamings = &renaming,
                                          .n_renamings = 1,
                                          .dtype = TRI_DTYPE_BF16};

            trii_alloc_fail_at(n);
            status = trii_convert(&what, &told);
            trii_alloc_fail_at(0);
            if (status != TRI_OK && status != TRI_ERR_NO_MEMORY)
                fail_msg("allocation %ld of %s: %s", n, what.from, tri_last_error());
            assert_int_equal(trii_alloc_live(), live);
            assert_int_equal(scratch_count(s.dir), status == TRI_OK ? 1 : 0);
        }
        assert_int_equal(told.n, 9);
        scratch_end(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(blocks_are_the_elements),
    cmocka_unit_test(each_flipped_byte_is_found),
    cmocka_unit_test(a_flipped_byte_of_columns_is_found),
    cmocka_unit_test(an_allocation_that_fails_leaves_nothing),
};
TEST_MAIN(tests)
