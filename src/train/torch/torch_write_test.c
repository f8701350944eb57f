/* torch_write_test.c - what tri_torch_write and tri_torch_save write, read back; that torch.load
 * takes it is in tests/peers/torch_files.py. */
/* ctest: threads=none */
#include <trireme/nn.h>
#include <trireme/torch_file.h>

#include "base/alloc.h"
#include "testing/scratch.h"

static const tri_dtype dtypes[] = {TRI_DTYPE_U8,   TRI_DTYPE_I8,      TRI_DTYPE_I16,
                                   TRI_DTYPE_I32,  TRI_DTYPE_I64,     TRI_DTYPE_F16,
                                   TRI_DTYPE_BF16, TRI_DTYPE_F32,     TRI_DTYPE_F64,
                                   TRI_DTYPE_BOOL, TRI_DTYPE_F8_E4M3, TRI_DTYPE_F8_E5M2};
enum { DTYPES = TRII_COUNT_OF(dtypes) };

/* One tensor of [2, 3] of each type, whose bytes count up; then an empty one and a scalar. */
static int make_entries(tri_safetensors_entry *entries, char names[][32])
{
    static char data[64];
    int n = 0;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i + 1);
    for (; n < DTYPES; n++) {
        snprintf(names[n], 32, "größe.%s", tri_dtype_name(dtypes[n]));
        entries[n] = (tri_safetensors_entry){.name = names[n],
                                             .dtype = dtypes[n],
                                             .ndim = 2,
                                             .shape = {2, 3},
                                             .data = data,
                                             .bytes = 6 * tri_dtype_size(dtypes[n])};
    }
    entries[n++] = (tri_safetensors_entry){
        .name = "empty", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {0, 300}};
    entries[n++] =
        (tri_safetensors_entry){.name = "scalar", .dtype = TRI_DTYPE_I64, .data = data, .bytes = 8};
    return n;
}

static void what_is_written_is_read_back(void **state)
{
    tri_safetensors_entry entries[DTYPES + 2];
    char names[DTYPES + 2][32], data[64];
    int n = make_entries(entries, names);
    long live = trii_alloc_live();
    tri_torch_file *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_torch_write(scratch_path(&s, "a.pth"), entries, n));
    CHECK_OK(tri_torch_open(scratch_path(&s, "a.pth"), &file));
    assert_int_equal(tri_torch_count(file), n);
    for (int i = 0; i < n; i++) {
        const tri_torch_tensor *t = tri_torch_at(file, i);

        assert_string_equal(t->name, entries[i].name);
        assert_int_equal(t->dtype, entries[i].dtype);
        assert_int_equal(t->ndim, entries[i].ndim);
        assert_memory_equal(t->shape, entries[i].shape, sizeof(t->shape));
        assert_int_equal(t->bytes, entries[i].bytes);
        assert_int_equal(t->file_offset % 64, 0); /* torch.load maps it */
        CHECK_OK(tri_torch_read(file, i, data, entries[i].bytes));
        assert_memory_equal(data, entries[i].data != NULL ? entries[i].data : "", entries[i].bytes);
    }
    tri_torch_close(file);
    CHECK_OK(tri_torch_write(scratch_path(&s, "none.pth"), NULL, 0));
    CHECK_OK(tri_torch_open(scratch_path(&s, "none.pth"), &file));
    assert_int_equal(tri_torch_count(file), 0);
    tri_torch_close(file);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

static void modules_are_saved_and_loaded(void **state)
{
    tri_module *net =
                   tri_nn_sequential(tri_nn_linear(30, 200, NULL), tri_nn_batch_norm1d(200, NULL)),
               *other =
                   tri_nn_sequential(tri_nn_linear(30, 200, NULL), tri_nn_batch_norm1d(200, NULL));
    uint64_t a, b;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_torch_save(net, scratch_path(&s, "net.bin")));
    CHECK_OK(tri_load(other, scratch_path(&s, "net.bin"), NULL));
    CHECK_OK(tri_module_hash(net, &a));
    CHECK_OK(tri_module_hash(other, &b));
    assert_int_equal(a, b);
    CHECK_FAILS(tri_torch_save(net, scratch_path(&s, "no/net.bin")), TRI_ERR_NOT_FOUND,
                "no/net.bin");
    CHECK_FAILS(tri_torch_save(NULL, "net.bin"), TRI_ERR_INVALID_ARG, "the module is NULL");
    CHECK_FAILS(tri_torch_save(net, NULL), TRI_ERR_INVALID_ARG, "tri_torch_save: path is NULL");
    tri_module_destroy(net);
    tri_module_destroy(other);
    scratch_end(&s);
}

/* As torch.save has it: a model that is loaded has one tensor, not two. */
static void elements_with_two_names_are_one_storage(void **state)
{
    static const float x[] = {1, 2, 3, 4};
    static const double y[] = {1, 2};
    const tri_safetensors_entry entries[] = {
        {.name = "wte", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {4}, .data = x, .bytes = 16},
        {.name = "other", .dtype = TRI_DTYPE_F64, .ndim = 1, .shape = {2}, .data = y, .bytes = 16},
        {.name = "head",
         .dtype = TRI_DTYPE_F32,
         .ndim = 2,
         .shape = {2, 2},
         .data = x,
         .bytes = 16},
        {.name = "half", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = x, .bytes = 8},
        {.name = "none", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {0}},
        {.name = "nor this", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {0}}};
    tri_torch_file *file = NULL;
    const tri_torch_tensor *t[6];
    float read[4];
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_torch_write(scratch_path(&s, "a.pth"), entries, 6));
    CHECK_OK(tri_torch_open(scratch_path(&s, "a.pth"), &file));
    for (int i = 0; i < 6; i++)
        t[i] = tri_torch_find(file, entries[i].name);
    assert_string_equal(t[0]->storage, t[2]->storage);
    assert_int_equal(t[2]->ndim, 2);
    CHECK_OK(tri_torch_read(file, 2, read, sizeof(read)));
    assert_memory_equal(read, x, sizeof(x));
    assert_string_not_equal(t[0]->storage, t[1]->storage);
    assert_string_not_equal(t[0]->storage, t[3]->storage);
    assert_string_not_equal(t[4]->storage, t[5]->storage);
    tri_torch_close(file);
    scratch_end(&s);
}

static void wrong_entries_are_refused(void **state)
{
    static const float one[1] = {1};
    const tri_safetensors_entry good = {
        .name = "a", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {1}, .data = one, .bytes = 4};
    tri_safetensors_entry two[2] = {good, good};

    (void)state;
    CHECK_FAILS(tri_torch_write("x", two, 2), TRI_ERR_INVALID_ARG, "tensor a occurs twice");
    two[1].name = NULL;
    CHECK_FAILS(tri_torch_write("x", two, 2), TRI_ERR_INVALID_ARG, "entry 1 has no name");
    two[1].name = "\xff";
    CHECK_FAILS(tri_torch_write("x", two, 2), TRI_ERR_INVALID_ARG, "entry 1 is not UTF-8");
    two[1] = good;
    two[1].bytes = 8;
    CHECK_FAILS(tri_torch_write("x", two, 2), TRI_ERR_INVALID_ARG, "its shape is 4 bytes, not 8");
    two[1] = good;
    two[1].dtype = TRI_DTYPE_C64;
    CHECK_FAILS(tri_torch_write("x", two, 2), TRI_ERR_INVALID_ARG, "dtype");
    two[1] = good;
    two[1].shape[0] = -1;
    CHECK_FAILS(tri_torch_write("x", two, 2), TRI_ERR_INVALID_ARG, "size -1 of dimension 0");
    CHECK_FAILS(tri_torch_write("x", two, -1), TRI_ERR_INVALID_ARG, "-1 entries");
    CHECK_FAILS(tri_torch_write("x", NULL, 1), TRI_ERR_INVALID_ARG, "entries is NULL");
}

static void a_failure_leaves_no_file(void **state)
{
    tri_safetensors_entry entries[DTYPES + 2];
    char names[DTYPES + 2][32];
    int n = make_entries(entries, names);
    long live = trii_alloc_live();
    tri_status status = TRI_ERR_NO_MEMORY;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (long at = 1; status != TRI_OK; at++) {
        trii_alloc_fail_at(at);
        status = tri_torch_write(scratch_path(&s, "a.pth"), entries, n);
        trii_alloc_fail_at(0);
        assert_int_equal(scratch_count(s.dir), status == TRI_OK ? 1 : 0);
        if (trii_alloc_live() != live)
            fail_msg("allocation %ld: %ld blocks are left, status %d", at, trii_alloc_live() - live,
                     (int)status);
    }
    CHECK_FAILS(tri_torch_write("/dev/full", entries, n), TRI_ERR_IO, "/dev/full");
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_written_is_read_back),
    cmocka_unit_test(modules_are_saved_and_loaded),
    cmocka_unit_test(elements_with_two_names_are_one_storage),
    cmocka_unit_test(wrong_entries_are_refused),
    cmocka_unit_test(a_failure_leaves_no_file),
};
TEST_MAIN(tests)
