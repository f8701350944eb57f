/* safetensors_test.c - files of the Python package read and written byte for byte; damaged ones
 * refused by name. Golden files: tests/golden/safetensors_files.py. */
/* ctest: threads=none */
#include <inttypes.h>

#include <trireme/checkpoint.h>

#include "base/alloc.h"
#include "base/dtype.h"
#define GOLDEN_FOLDER "safetensors/"
#include "testing/golden.h"
#include "testing/scratch.h"

static const struct {
    const char *name;
    tri_dtype dtype;
    int ndim;
    int64_t shape[4];
} golden[] = {
    {"layer1.0.weight", TRI_DTYPE_F32, 4, {2, 3, 1, 2}},
    {"layer1.0.bias", TRI_DTYPE_F32, 1, {5}},
    {"scalar", TRI_DTYPE_F64, 0, {0}},
    {"steps", TRI_DTYPE_I64, 1, {3}},
    {"half", TRI_DTYPE_F16, 1, {3}},
    {"brain", TRI_DTYPE_BF16, 2, {1, 3}},
    {"small", TRI_DTYPE_I8, 1, {3}},
    {"bytes", TRI_DTYPE_U8, 1, {3}},
    {"mask", TRI_DTYPE_BOOL, 1, {7}},
    {"words", TRI_DTYPE_I32, 2, {2, 2}},
    {"shorts", TRI_DTYPE_I16, 1, {3}},
    {"empty", TRI_DTYPE_F32, 2, {0, 4}},
};
enum { GOLDEN = TRII_COUNT_OF(golden) };

static void put_value(tri_dtype dtype, int v, void *at)
{
    float f = (float)v;
    double d = v;
    int64_t i64 = v;
    int32_t i32 = v;
    int16_t i16 = (int16_t)v;
    uint16_t h = dtype == TRI_DTYPE_F16 ? trii_f32_to_f16(f) : trii_f32_to_bf16(f);
    uint8_t u8 = dtype == TRI_DTYPE_BOOL ? v > 0 : (uint8_t)abs(v);
    int8_t i8 = (int8_t)v;
    const void *from = dtype == TRI_DTYPE_F32                              ? (const void *)&f
                       : dtype == TRI_DTYPE_F64                            ? (const void *)&d
                       : dtype == TRI_DTYPE_I64                            ? (const void *)&i64
                       : dtype == TRI_DTYPE_I32                            ? (const void *)&i32
                       : dtype == TRI_DTYPE_I16                            ? (const void *)&i16
                       : dtype == TRI_DTYPE_F16 || dtype == TRI_DTYPE_BF16 ? (const void *)&h
                       : dtype == TRI_DTYPE_I8                             ? (const void *)&i8
                                                                           : (const void *)&u8;

    memcpy(at, from, tri_dtype_size(dtype));
}

/* The golden tensors as entries; their data lie in `data`. */
static void make_golden(tri_safetensors_entry entries[GOLDEN], char data[GOLDEN][96])
{
    for (int k = 0; k < GOLDEN; k++) {
        size_t n = 1, size = tri_dtype_size(golden[k].dtype);

        entries[k] = (tri_safetensors_entry){.name = golden[k].name,
                                             .dtype = golden[k].dtype,
                                             .ndim = golden[k].ndim,
                                             .data = data[k]};
        for (int d = 0; d < golden[k].ndim; d++) {
            entries[k].shape[d] = golden[k].shape[d];
            n *= (size_t)golden[k].shape[d];
        }
        entries[k].bytes = n * size;
        for (size_t i = 0; i < n; i++)
            put_value(golden[k].dtype, (int)((size_t)k * 37 + i * 11) % 100 - 50,
                      data[k] + i * size);
    }
}

static void files_of_the_python_package_are_read(void **state)
{
    tri_safetensors_entry want[GOLDEN];
    long live = trii_alloc_live();
    char data[GOLDEN][96];
    tri_safetensors *file;

    (void)state;
    make_golden(want, data);
    CHECK_OK(tri_safetensors_open(golden_path("types.safetensors"), &file));
    assert_int_equal(tri_safetensors_count(file), GOLDEN);
    assert_string_equal(tri_safetensors_metadata(file, "format"), "pt");
    assert_null(tri_safetensors_metadata(file, "other"));
    for (int k = 0; k < GOLDEN; k++) {
        const tri_safetensors_entry *e = tri_safetensors_find(file, want[k].name);

        assert_non_null(e);
        assert_int_equal(e->dtype, want[k].dtype);
        assert_int_equal(e->ndim, want[k].ndim);
        assert_memory_equal(e->shape, want[k].shape, sizeof(e->shape));
        assert_int_equal(e->bytes, want[k].bytes);
        assert_memory_equal(e->data, want[k].data, e->bytes);
    }
    assert_null(tri_safetensors_find(file, "layer1.0.weigh"));
    assert_null(tri_safetensors_at(file, -1));
    assert_null(tri_safetensors_at(file, GOLDEN));
    assert_string_equal(tri_safetensors_at(file, 0)->name, "steps");
    tri_safetensors_close(file);
    assert_int_equal(trii_alloc_live(), live);
}

static void check_same_bytes(const char *path, const char *golden_name)
{
    size_t n, m;
    char *ours = scratch_read(path, &n), *theirs = scratch_read(golden_path(golden_name), &m);

    assert_int_equal(n, m);
    assert_memory_equal(ours, theirs, n);
    free(ours);
    free(theirs);
}

static void files_are_written_byte_for_byte(void **state)
{
    static const float value = -50.0f;
    tri_safetensors_entry entries[GOLDEN];
    long live = trii_alloc_live();
    char data[GOLDEN][96];
    scratch s;

    (void)state;
    make_golden(entries, data);
    scratch_begin(&s);
    CHECK_OK(tri_safetensors_write(scratch_path(&s, "t"), entries, GOLDEN,
                                   &(tri_metadata){"format", "pt"}, 1));
    check_same_bytes(scratch_path(&s, "t"), "types.safetensors");
    CHECK_OK(tri_safetensors_write(scratch_path(&s, "t"),
                                   &(tri_safetensors_entry){.name = "größe \"1\"/\\",
                                                            .dtype = TRI_DTYPE_F32,
                                                            .ndim = 1,
                                                            .shape = {1},
                                                            .data = &value,
                                                            .bytes = 4},
                                   1, NULL, 0));
    check_same_bytes(scratch_path(&s, "t"), "names.safetensors");
    CHECK_OK(tri_safetensors_write(scratch_path(&s, "t"), NULL, 0, NULL, 0));
    check_same_bytes(scratch_path(&s, "t"), "none.safetensors");
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

static void foreign_types_are_carried(void **state)
{
    const tri_safetensors_entry *e;
    tri_safetensors *file;
    uint64_t value;

    (void)state;
    CHECK_OK(tri_safetensors_open(golden_path("foreign.safetensors"), &file));
    e = tri_safetensors_find(file, "u");
    assert_int_equal(e->dtype, TRI_DTYPE_NONE);
    assert_string_equal(e->type_name, "U64");
    memcpy(&value, e->data, 8);
    assert_true(value == (UINT64_C(1) << 63) + 5);
    assert_string_equal(tri_safetensors_find(file, "c")->type_name, "C64");
    tri_safetensors_close(file);
}

/* A file of this header and so many bytes of data. */
static const char *make_file(scratch *s, const char *header, size_t data_bytes)
{
    size_t n = strlen(header);
    char *bytes = calloc(8 + n + data_bytes, 1);
    const char *path;

    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(n >> (8 * i));
    memcpy(bytes + 8, header, n);
    path = scratch_file(s, "f", bytes, 8 + n + data_bytes);
    free(bytes);
    return path;
}

static void damaged_headers_are_named(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        const char *text;
    } cases[] = {
        {"", 0, "header"},
        {"[]", 0, "not a JSON object"},
        {"{\"a\":1}", 0, "tensor a: unknown dtype"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype F33"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "is not a list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "dimension 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "not two sizes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,-4]}}", 4, "not two sizes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "offsets 4 to 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 4, "offsets 0 to 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
         "2 elements of F32 do not fill the 4 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
         "dimension 1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
         "do not fill"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "leave a hole"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8,
         "end at offset 4, the file has 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "duplicate"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ a is not text"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "3 elements of F4"},
    };
    long live = trii_alloc_live();
    tri_safetensors *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        const char *path = make_file(&s, cases[i].header, cases[i].data);

        CHECK_FAILS(tri_safetensors_open(path, &file), TRI_ERR_FORMAT, cases[i].text);
        assert_non_null(strstr(tri_last_error(), path));
    }
    CHECK_FAILS(tri_safetensors_open(scratch_path(&s, "none"), &file), TRI_ERR_NOT_FOUND, "none");
    CHECK_FAILS(tri_safetensors_open(scratch_file(&s, "f", "1234567", 7), &file), TRI_ERR_FORMAT,
                "7 bytes are too few");
    CHECK_FAILS(tri_safetensors_open(scratch_file(&s, "f", "\xff\0\0\0\0\0\0\0{}", 10), &file),
                TRI_ERR_FORMAT, "truncated: a header of 255 bytes");
    CHECK_FAILS(tri_safetensors_open(scratch_file(&s, "f", "\0\0\0\0\1\0\0\0{}", 10), &file),
                TRI_ERR_FORMAT, "at most 100000000");
    CHECK_FAILS(tri_safetensors_open(scratch_file(&s, "f", "PK\3\4\0\0\0\0{}", 10), &file),
                TRI_ERR_FORMAT, "a file of torch.save, not of safetensors: write it with");
    CHECK_FAILS(
        tri_safetensors_open(make_file(&s,
                                       "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],"
                                       "\"data_offsets\":[0,4]}}",
                                       4),
                             &file),
        TRI_ERR_UNSUPPORTED, "9 dimensions");
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

/* The Python package (0.8.0) opens such files. */
static void metadata_that_is_null_is_none(void **state)
{
    static const char *const headers[] = {
        "{\"__metadata__\":null,\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"__metadata__\":null}"};
    long live = trii_alloc_live();
    tri_safetensors *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (size_t i = 0; i < TRII_COUNT_OF(headers); i++) {
        CHECK_OK(tri_safetensors_open(make_file(&s, headers[i], 4), &file));
        assert_int_equal(tri_safetensors_count(file), 1);
        assert_non_null(tri_safetensors_find(file, "a"));
        assert_null(tri_safetensors_metadata(file, "format"));
        tri_safetensors_close(file);
    }
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

/* Bits of the golden file flipped, bytes replaced, lengths cut: read or refused, and what is read
 * lies inside the file. */
static void mutated_files_are_read_or_refused(void **state)
{
    long live = trii_alloc_live();
    uint64_t random = 2;
    int refused = 0;
    char *original;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    original = scratch_read(golden_path("types.safetensors"), &n);
    for (int round = 0; round < 4000; round++) {
        char *bytes = malloc(n);
        size_t m = n;
        tri_safetensors *file;
        tri_status status;

        assert_non_null(bytes);
        memcpy(bytes, original, n);
        for (uint32_t k = 1 + scratch_random(&random) % 3; k > 0; k--) {
            size_t at = scratch_random(&random) % n;

            if (scratch_random(&random) % 2 == 0)
                bytes[at] = "0123456789[]{},:\"-e."[scratch_random(&random) % 20];
            else
                bytes[at] ^= (char)(1u << scratch_random(&random) % 8);
        }
        if (scratch_random(&random) % 8 == 0)
            m = scratch_random(&random) % n;
        status = tri_safetensors_open(scratch_file(&s, "m", bytes, m), &file);
        if (status == TRI_OK) {
            size_t sum = 0;

            for (int64_t i = 0; i < tri_safetensors_count(file); i++)
                sum += tri_safetensors_at(file, i)->bytes;
            assert_true(sum < m);
            tri_safetensors_close(file);
        } else {
            assert_true(status == TRI_ERR_FORMAT || status == TRI_ERR_UNSUPPORTED);
            refused++;
        }
        free(bytes);
    }
    assert_true(refused > 1500);
    free(original);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

static void wrong_entries_are_refused(void **state)
{
    static const float data[4];
    tri_safetensors_entry e[2] = {
        {.name = "a", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {4}, .data = data, .bytes = 16}};
    scratch s;

    (void)state;
    scratch_begin(&s);
    e[1] = e[0];
    CHECK_FAILS(tri_safetensors_write(scratch_path(&s, "t"), e, 2, NULL, 0), TRI_ERR_INVALID_ARG,
                "tensor a occurs twice");
    e[1].name = "__metadata__";
    CHECK_FAILS(tri_safetensors_write(scratch_path(&s, "t"), e, 2, NULL, 0), TRI_ERR_INVALID_ARG,
                "cannot be named");
    e[1].name = "b\xff";
    CHECK_FAILS(tri_safetensors_write(scratch_path(&s, "t"), e, 2, NULL, 0), TRI_ERR_INVALID_ARG,
                "not UTF-8");
    e[1].name = "b";
    e[1].bytes = 12;
    CHECK_FAILS(tri_safetensors_write(scratch_path(&s, "t"), e, 2, NULL, 0), TRI_ERR_INVALID_ARG,
                "16 bytes, not 12");
    e[1].dtype = TRI_DTYPE_NONE;
    CHECK_FAILS(tri_safetensors_write(scratch_path(&s, "t"), e, 2, NULL, 0), TRI_ERR_INVALID_ARG,
                "dtype 0");
    CHECK_FAILS(tri_safetensors_write(scratch_path(&s, "no/t"), e, 1, NULL, 0), TRI_ERR_NOT_FOUND,
                "no/t");
    assert_int_equal(rmdir(s.dir), 0); /* nothing was left in it */
}

/* A file that cannot grow: the old one stays, nothing is left beside it. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    static char data[100000];
    tri_safetensors_entry e = {
        .name = "a", .dtype = TRI_DTYPE_U8, .ndim = 1, .shape = {4}, .data = data, .bytes = 4};
    tri_safetensors *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_safetensors_write(scratch_path(&s, "t"), &e, 1, NULL, 0));
    scratch_limit_files(65536);
    e.shape[0] = e.bytes = sizeof(data);
    CHECK_FAILS(tri_safetensors_write(scratch_path(&s, "t"), &e, 1, NULL, 0), TRI_ERR_IO,
                "File too large");
    assert_non_null(strstr(tri_last_error(), scratch_path(&s, "t")));
    CHECK_OK(tri_safetensors_open(scratch_path(&s, "t"), &file));
    assert_int_equal(tri_safetensors_at(file, 0)->bytes, 4);
    tri_safetensors_close(file);
    assert_int_equal(unlink(scratch_path(&s, "t")), 0);
    assert_int_equal(rmdir(s.dir), 0);
}

static void every_allocation_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    tri_safetensors_entry entries[GOLDEN];
    long live = trii_alloc_live();
    char data[GOLDEN][96];
    scratch s;

    (void)state;
    make_golden(entries, data);
    scratch_begin(&s);
    for (long n = 1; status == TRI_ERR_NO_MEMORY; n++) {
        tri_safetensors *file = NULL;

        trii_alloc_fail_at(n);
        status = tri_safetensors_write(scratch_path(&s, "t"), entries, GOLDEN, NULL, 0);
        if (status == TRI_OK)
            status = tri_safetensors_open(golden_path("types.safetensors"), &file);
        trii_alloc_fail_at(0);
        tri_safetensors_close(file);
        assert_int_equal(trii_alloc_live(), live);
    }
    CHECK_OK(status);
    scratch_end(&s);
}

/* serde's way, which the Python package has: short forms where there are, else small
 * hexadecimal. */
static void control_characters_are_written_as_by_the_python_package(void **state)
{
    static const float value = 1;
    tri_safetensors_entry entry = {.name = "a\x1f\x01\n\b\\u001F\x7f\"/",
                                   .dtype = TRI_DTYPE_F32,
                                   .data = &value,
                                   .bytes = sizeof(value)};
    tri_safetensors *file;
    char *bytes;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_safetensors_write(scratch_path(&s, "f"), &entry, 1, NULL, 0));
    bytes = scratch_read(scratch_path(&s, "f"), &n);
    assert_non_null(
        strstr(bytes + 8, "{\"a\\u001f\\u0001\\n\\b\\\\u001F\x7f\\\"/\":{\"dtype\":\"F32\""));
    free(bytes);
    CHECK_OK(tri_safetensors_open(scratch_path(&s, "f"), &file));
    assert_non_null(tri_safetensors_find(file, entry.name));
    tri_safetensors_close(file);
    scratch_end(&s);
}

static void names_that_no_c_text_can_hold_are_refused(void **state)
{
    static const char header[] =
        "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}  ";
    char bytes[8 + sizeof(header) + 4] = {(char)(sizeof(header) - 1)};
    tri_safetensors *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    memcpy(bytes + 8, header, sizeof(header));
    CHECK_FAILS(
        tri_safetensors_open(scratch_file(&s, "f", bytes, 8 + sizeof(header) - 1 + 4), &file),
        TRI_ERR_UNSUPPORTED, "which no name in C can hold");
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(files_of_the_python_package_are_read),
    cmocka_unit_test(files_are_written_byte_for_byte),
    cmocka_unit_test(foreign_types_are_carried),
    cmocka_unit_test(damaged_headers_are_named),
    cmocka_unit_test(metadata_that_is_null_is_none),
    cmocka_unit_test(mutated_files_are_read_or_refused),
    cmocka_unit_test(wrong_entries_are_refused),
    cmocka_unit_test(a_full_disk_leaves_the_old_file),
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(control_characters_are_written_as_by_the_python_package),
    cmocka_unit_test(names_that_no_c_text_can_hold_are_refused),
};
TEST_MAIN(tests)
