/* torch_odd_tensors_test.c - tensors that are no plain numbers in a storage: each is listed and
 * refused by name with a remedy, and the others of its file are read. Golden files:
 * tests/golden/make_torch_files.py. */
/* ctest: threads=none */
#include "base/alloc.h"
#include "testing/torch_files.h"

static const struct row {
    const char *name, *type;
    int ndim;
    int64_t size; /* of dimension 0 */
    const char *text;
} rows[] = {
    {"quantized", "qint8", 2, 4, "tensor quantized: quantized: save its dequantize()"},
    {"quarters", "quint4x2", 2, 4, "quantized: save its dequantize()"},
    {"sparse", "sparse", 2, 3, "sparse: save its to_dense()"},
    {"rows", "sparse", 2, 3, "sparse: save its to_dense()"},
    {"nested", "nested", 0, 0, "nested: save the list that its unbind() is"},
    {"jagged", "NestedTensor", 0, 0, "NestedTensor, whose code is in a program"},
    {"meta", "meta float32", 2, 3, "on the meta device, where tensors have no elements"},
    {"parameter", "meta float32", 1, 5, "on the meta device"},
    {"nine", "float32 of 9 dimensions", 0, 0, "of 9 dimensions, at most 8 are allowed"},
    {"conj", "conj of complex64", 1, 12, "with the conj bit set: save its resolve_conj()"},
    {"neg", "neg of float32", 1, 12, "with the neg bit set: save its resolve_neg()"},
    {"sharded", "DTensor float32", 2, 4, "a rank's part of a DTensor: save its full_tensor()"},
};

static void expect_refused(tri_torch_file *file, const struct row *row)
{
    const tri_torch_tensor *t = tri_torch_find(file, row->name);
    tri_tensor *tensor = tri_torch_tensor_named(file, row->name);

    assert_non_null(t);
    assert_non_null(t->refused);
    assert_int_equal(t->dtype, TRI_DTYPE_NONE);
    assert_string_equal(t->type_name, row->type);
    assert_int_equal(t->bytes, 0);
    assert_int_equal(t->ndim, row->ndim);
    if (row->ndim > 0)
        assert_int_equal(t->shape[0], row->size);
    CHECK_FAILS(read_named(file, row->name, NULL, 0), TRI_ERR_UNSUPPORTED, row->text);
    CHECK_FAILS(tri_tensor_status(tensor), TRI_ERR_UNSUPPORTED, row->text);
    tri_tensor_unref(tensor);
}

static void odd_tensors_are_refused_and_others_read(void **state)
{
    static const char *const names[] = {"odd-tensors-2.13.pth", "odd-tensors-legacy-2.13.pth"};
    long live = trii_alloc_live();

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(names); k++) {
        tri_torch_file *file;
        char bits[8];

        CHECK_OK(tri_torch_open(golden_path(names[k]), &file));
        assert_int_equal(tri_torch_count(file), TRII_COUNT_OF(rows) + 3);
        for (size_t i = 0; i < TRII_COUNT_OF(rows); i++)
            expect_refused(file, &rows[i]);
        expect_f32(file, "weight", 1, NULL, 6);
        expect_f32(file, "bias", 2, NULL, 2);
        assert_string_equal(tri_torch_find(file, "bits")->type_name, "bits8");
        CHECK_OK(read_named(file, "bits", bits, sizeof(bits)));
        assert_memory_equal(bits, "\0\0\x20\xc1\0\0\x80\x3f", sizeof(bits));
        tri_torch_close(file);
    }
    assert_int_equal(trii_alloc_live(), live);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(odd_tensors_are_refused_and_others_read),
};
TEST_MAIN(tests)
