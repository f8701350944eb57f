/* torch_file_test.c - files of torch.save of several versions and protocols: tensors and values;
 * damaged, foreign and malicious ones refused by name. Golden files:
 * tests/golden/make_torch_files.py. */
/* ctest: threads=none */
#include <inttypes.h>

#include <trireme/torch_file.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "testing/memory_file.h"
#include "testing/scratch.h"

static const char *golden_path(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/tests/golden/torch/%s", getenv("TRI_TEST_SOURCE"), name);
    return path;
}

static tri_status read_named(tri_torch_file *file, const char *name, void *data, size_t bytes)
{
    for (int64_t i = 0; i < tri_torch_count(file); i++)
        if (strcmp(tri_torch_at(file, i)->name, name) == 0)
            return tri_torch_read(file, i, data, bytes);
    return TRI_ERR_NOT_FOUND;
}

/* Element i of a golden tensor. */
static int value_of(int key, int64_t i)
{
    return (int)((key * 37 + i * 11) % 100 - 50);
}

static void expect_f32(tri_torch_file *file, const char *name, int key, const int64_t *index,
                       int64_t n)
{
    const tri_torch_tensor *t = tri_torch_find(file, name);
    float data[64];

    assert_non_null(t);
    assert_int_equal(t->dtype, TRI_DTYPE_F32);
    assert_int_equal(t->bytes, (size_t)n * 4);
    CHECK_OK(read_named(file, name, data, (size_t)n * 4));
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(data[i], (float)value_of(key, index != NULL ? index[i] : i), 0);
}

static void expect_shape(tri_torch_file *file, const char *name, int ndim, int64_t a, int64_t b)
{
    const tri_torch_tensor *t = tri_torch_find(file, name);

    assert_non_null(t);
    assert_int_equal(t->ndim, ndim);
    if (ndim > 0)
        assert_int_equal(t->shape[0], a);
    if (ndim > 1)
        assert_int_equal(t->shape[1], b);
}

/* --- tensors and values --------------------------------------------------- */

static void expect_state(const char *name)
{
    tri_torch_file *file;

    CHECK_OK(tri_torch_open(golden_path(name), &file));
    assert_int_equal(tri_torch_count(file), 2);
    assert_string_equal(tri_torch_at(file, 0)->name, "weight");
    assert_null(tri_torch_at(file, 2));
    assert_null(tri_torch_at(file, -1));
    assert_null(tri_torch_find(file, "weigh"));
    expect_shape(file, "weight", 2, 2, 3);
    expect_f32(file, "weight", 1, NULL, 6);
    expect_f32(file, "bias", 2, NULL, 2);
    tri_torch_close(file);
}

static void state_dictionaries_are_read(void **state)
{
    long live = trii_alloc_live();

    (void)state;
    expect_state("state-2.13.pth");
    expect_state("state-legacy-2.13.pth");
    expect_state("state-1.13.pth");
    expect_state("state-legacy-1.13.pth");
    expect_state("unchecked-2.13.pth");
    assert_int_equal(trii_alloc_live(), live);
}

static const struct {
    const char *name;
    tri_dtype dtype;
    size_t size;
} types[] = {{"float32", TRI_DTYPE_F32, 4},
             {"float64", TRI_DTYPE_F64, 8},
             {"float16", TRI_DTYPE_F16, 2},
             {"bfloat16", TRI_DTYPE_BF16, 2},
             {"int64", TRI_DTYPE_I64, 8},
             {"int32", TRI_DTYPE_I32, 4},
             {"int16", TRI_DTYPE_I16, 2},
             {"int8", TRI_DTYPE_I8, 1},
             {"uint8", TRI_DTYPE_U8, 1},
             {"bool", TRI_DTYPE_BOOL, 1},
             {"float8_e4m3fn", TRI_DTYPE_F8_E4M3, 1},
             {"float8_e5m2", TRI_DTYPE_F8_E5M2, 1},
             {"uint16", TRI_DTYPE_NONE, 2},
             {"uint32", TRI_DTYPE_NONE, 4},
             {"uint64", TRI_DTYPE_NONE, 8},
             {"complex64", TRI_DTYPE_NONE, 8}};

/* The number that an element is, of the types that hold those of the golden files exactly. */
static double number_at(const char *type, const void *data, int i)
{
    const char *at = data;
    union {
        float f;
        double d;
        uint16_t h;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
        uint32_t u32;
    } v = {.i64 = 0};
    size_t size = 0;

    for (size_t k = 0; k < TRII_COUNT_OF(types); k++)
        if (strcmp(types[k].name, type) == 0)
            size = types[k].size;
    memcpy(&v, at + (size_t)i * size, size);
    if (strcmp(type, "float32") == 0 || strcmp(type, "complex64") == 0)
        return (double)v.f;
    if (strcmp(type, "float64") == 0)
        return v.d;
    if (strcmp(type, "float16") == 0)
        return (double)trii_f16_to_f32(v.h);
    if (strcmp(type, "bfloat16") == 0)
        return (double)trii_bf16_to_f32(v.h);
    if (strcmp(type, "int8") == 0)
        return v.i8;
    if (strcmp(type, "int16") == 0)
        return v.i16;
    if (strcmp(type, "int32") == 0)
        return v.i32;
    return (double)v.i64; /* not negative */
}

static void expect_types(tri_torch_file *file)
{
    for (int k = 0; k < (int)TRII_COUNT_OF(types); k++) {
        const char *type = types[k].name;
        const tri_torch_tensor *t;
        char name[64], data[64];

        snprintf(name, sizeof(name), "types.%s", type);
        t = tri_torch_find(file, name);
        assert_non_null(t);
        assert_int_equal(t->dtype, types[k].dtype);
        assert_string_equal(t->type_name, type);
        assert_int_equal(t->bytes, 3 * types[k].size);
        CHECK_OK(read_named(file, name, data, 3 * types[k].size));
        for (int i = 0; i < 3 && strncmp(type, "float8", 6) != 0; i++) {
            int v = value_of(k, i);
            bool is_signed = types[k].dtype != TRI_DTYPE_U8 && type[0] != 'u';

            CHECK_NEAR(number_at(type, data, i),
                       strcmp(type, "bool") == 0 ? v > 0
                       : is_signed               ? v
                                                 : abs(v),
                       0);
        }
    }
}

static void expect_values(const tri_torch_value *root)
{
    const tri_torch_value *v;

    assert_int_equal(root->kind, TRI_TORCH_DICT);
    assert_int_equal(tri_torch_item(root, "epoch")->integer, 3);
    assert_string_equal(tri_torch_item(root, "arch")->text, "größe");
    CHECK_NEAR(tri_torch_item(root, "best")->real, 0.5, 0);
    assert_int_equal(tri_torch_item(root, "negative")->integer, -70000);
    v = tri_torch_item(root, "huge"); /* no number of 64 bits */
    assert_int_equal(v->kind, TRI_TORCH_BYTES);
    assert_int_equal(v->bytes, 11);
    v = tri_torch_item(root, "flag");
    assert_int_equal(v->kind, TRI_TORCH_BOOL);
    assert_int_equal(v->integer, 1);
    assert_int_equal(tri_torch_item(root, "none")->kind, TRI_TORCH_NONE);
    v = tri_torch_item(root, "bytes");
    assert_int_equal(v->kind, TRI_TORCH_BYTES);
    assert_int_equal(v->bytes, 2);
    assert_memory_equal(v->text, "\0\xff", 2);
    v = tri_torch_item(root, "set");
    assert_int_equal(v->kind, TRI_TORCH_SET);
    assert_int_equal(v->n, 1);
    v = tri_torch_item(root, "device");
    assert_int_equal(v->kind, TRI_TORCH_OBJECT);
    assert_string_equal(v->text, "torch.device");
    assert_string_equal(v->arguments->items[0]->text, "cpu");
    assert_string_equal(tri_torch_item(root, "dtype")->text, "torch.bfloat16");
    v = tri_torch_item(root, "size");
    assert_int_equal(v->kind, TRI_TORCH_TUPLE);
    assert_int_equal(v->items[1]->integer, 6);
    v = tri_torch_item(root, "pair");
    CHECK_NEAR(v->items[0]->real, 1.5, 0);
    assert_string_equal(v->items[1]->text, "x");
    assert_null(tri_torch_item(root, "no"));
    assert_null(tri_torch_item(v, "x"));
    v = tri_torch_item(tri_torch_item(root, "state_dict"), "parameter");
    assert_int_equal(v->kind, TRI_TORCH_TENSOR);
    assert_true(v->tensor->requires_grad);
    assert_string_equal(v->tensor->name, "state_dict.parameter");
}

static void expect_everything(const char *name)
{
    static const int64_t turned[] = {0, 6, 12, 18, 1, 7,  13, 19, 2, 8,  14, 20,
                                     3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23};
    static const int64_t part[] = {6, 8, 10, 12, 14, 16}, spread[] = {0, 0, 0};
    tri_torch_file *file;
    const tri_torch_tensor *plain, *tied;

    CHECK_OK(tri_torch_open(golden_path(name), &file));
    expect_values(tri_torch_root(file));
    expect_types(file);
    plain = tri_torch_find(file, "state_dict.plain");
    tied = tri_torch_find(file, "state_dict.tied");
    assert_string_equal(plain->storage, tied->storage);
    assert_int_equal(plain->file_offset, tied->file_offset);
    expect_f32(file, "state_dict.plain", 20, NULL, 24);
    expect_f32(file, "state_dict.tied", 20, NULL, 24);
    expect_shape(file, "state_dict.turned", 2, 6, 4);
    expect_f32(file, "state_dict.turned", 20, turned, 24);
    expect_shape(file, "state_dict.part", 2, 2, 3);
    expect_f32(file, "state_dict.part", 20, part, 6);
    expect_f32(file, "state_dict.spread", 20, spread, 3);
    expect_shape(file, "state_dict.empty", 2, 0, 4);
    CHECK_OK(read_named(file, "state_dict.empty", NULL, 0));
    expect_shape(file, "state_dict.scalar", 0, 0, 0);
    expect_f32(file, "state_dict.parameter", 21, NULL, 3);
    expect_f32(file, "list.0", 22, NULL, 2);
    expect_f32(file, "5", 23, NULL, 1);
    tri_torch_close(file);
}

static void every_kind_of_value_is_read_in_every_protocol(void **state)
{
    long live = trii_alloc_live();

    (void)state;
    expect_everything("everything-2.13.pth");
    expect_everything("everything-legacy-2.13.pth");
    expect_everything("everything-protocol3-2.13.pth");
    expect_everything("everything-protocol4-2.13.pth");
    expect_everything("everything-protocol5-2.13.pth");
    assert_int_equal(trii_alloc_live(), live);
}

static void a_tensor_can_be_all_of_a_file(void **state)
{
    tri_torch_file *file;
    tri_tensor *t;
    float data[24];

    (void)state;
    CHECK_OK(tri_torch_open(golden_path("alone-2.13.pth"), &file));
    assert_int_equal(tri_torch_count(file), 1);
    expect_f32(file, "tensor", 20, NULL, 24);
    t = tri_torch_tensor_named(file, "tensor");
    CHECK_OK(tri_tensor_status(t));
    CHECK_OK(tri_tensor_copy_out(t, data, sizeof(data)));
    CHECK_NEAR(data[23], (float)value_of(20, 23), 0);
    tri_tensor_unref(t);
    t = tri_torch_tensor_named(file, "tenso");
    CHECK_FAILS(tri_tensor_status(t), TRI_ERR_NOT_FOUND, "no tensor tenso");
    tri_tensor_unref(t);
    CHECK_FAILS(tri_torch_read(file, 0, data, 95), TRI_ERR_INVALID_ARG,
                "room for 95 bytes, tensor tensor has 96");
    tri_torch_close(file);
}

static void tensors_of_views_and_of_other_types(void **state)
{
    tri_torch_file *file;
    tri_tensor *t;
    float data[24];

    (void)state;
    CHECK_OK(tri_torch_open(golden_path("everything-2.13.pth"), &file));
    t = tri_torch_tensor_named(file, "state_dict.turned");
    CHECK_OK(tri_tensor_copy_out(t, data, sizeof(data)));
    CHECK_NEAR(data[1], (float)value_of(20, 6), 0);
    tri_tensor_unref(t);
    t = tri_torch_tensor_named(file, "types.complex64");
    CHECK_FAILS(tri_tensor_status(t), TRI_ERR_UNSUPPORTED,
                "tensor types.complex64 is of complex64");
    tri_tensor_unref(t);
    tri_torch_close(file);
}

/* --- refused files -------------------------------------------------------- */

static void refuse(const char *name, tri_status want, const char *text)
{
    long live = trii_alloc_live();
    tri_torch_file *file = NULL;

    CHECK_FAILS(tri_torch_open(golden_path(name), &file), want, text);
    assert_null(file);
    assert_int_equal(trii_alloc_live(), live);
}

static void programs_are_refused(void **state)
{
    (void)state;
    refuse(
        "whole-2.13.pth", TRI_ERR_UNSUPPORTED,
        "an object of class torch.nn.modules.linear.Linear, whose code is in a program: save its "
        "state_dict() instead");
    refuse("script-2.13.pth", TRI_ERR_UNSUPPORTED, "a program of TorchScript");
    refuse("../make_torch_files.py", TRI_ERR_FORMAT, "not a file of torch.save");
    refuse("none.pth", TRI_ERR_NOT_FOUND, "none.pth");
    refuse("../torch", TRI_ERR_IO, "torch");
    CHECK_FAILS(tri_torch_open(NULL, &(tri_torch_file *){NULL}), TRI_ERR_INVALID_ARG, "path");
    tri_torch_close(NULL);
}

/* A file with these bytes. */
static tri_status open_bytes(const memory_file *m, const void *data, size_t bytes,
                             tri_torch_file **file)
{
    memory_file_write(m, data, bytes);
    return tri_torch_open(m->path, file);
}

/* Whether a file has the tensors of another, name for name and bit for bit. */
static bool same_tensors(tri_torch_file *a, tri_torch_file *b, tri_status *status_out)
{
    bool same = tri_torch_count(a) == tri_torch_count(b);

    for (int64_t i = 0; same && i < tri_torch_count(a); i++) {
        const tri_torch_tensor *x = tri_torch_at(a, i), *y = tri_torch_at(b, i);
        char left[256], right[256];

        same = strcmp(x->name, y->name) == 0 && strcmp(x->type_name, y->type_name) == 0 &&
               x->ndim == y->ndim && memcmp(x->shape, y->shape, sizeof(x->shape)) == 0;
        if (!same)
            return false;
        assert_true(x->bytes <= sizeof(left));
        CHECK_OK(tri_torch_read(a, i, left, (size_t)x->bytes));
        *status_out = tri_torch_read(b, i, right, (size_t)y->bytes);
        if (*status_out != TRI_OK)
            return false;
        same = memcmp(left, right, (size_t)x->bytes) == 0;
    }
    return same;
}

/* A damaged file has the tensors of the whole one, or fails with an offset. */
static void expect_told(tri_torch_file *whole, const memory_file *m, const unsigned char *data,
                        size_t bytes, size_t at)
{
    tri_torch_file *file = NULL;
    tri_status status = open_bytes(m, data, bytes, &file);

    if (status == TRI_OK && same_tensors(whole, file, &status)) {
        tri_torch_close(file);
        return;
    }
    tri_torch_close(file);
    if (status == TRI_OK || strstr(tri_last_error(), m->path) == NULL)
        fail_msg("byte %zu: %s", at, status == TRI_OK ? "other tensors" : tri_last_error());
}

static void damage_is_told_or_does_no_harm(void **state)
{
    static const char *const names[] = {"state-2.13.pth", "state-1.13.pth", "everything-2.13.pth"};
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    for (size_t k = 0; k < TRII_COUNT_OF(names); k++) {
        size_t n;
        unsigned char *bytes = (unsigned char *)scratch_read(golden_path(names[k]), &n);
        tri_torch_file *whole;
        long live;

        CHECK_OK(tri_torch_open(golden_path(names[k]), &whole));
        live = trii_alloc_live();
        for (size_t i = 0; i < n; i++) {
            bytes[i] ^= (unsigned char)(1u << i % 8);
            expect_told(whole, &m, bytes, n, i);
            bytes[i] ^= (unsigned char)(1u << i % 8);
            bytes[i] ^= 0xff;
            expect_told(whole, &m, bytes, n, i);
            bytes[i] ^= 0xff;
            expect_told(whole, &m, bytes, i, i); /* cut off */
        }
        assert_int_equal(trii_alloc_live(), live);
        tri_torch_close(whole);
        free(bytes);
    }
    memory_file_end(&m);
}

/* Legacy files have no checksums: a wrong number cannot be told, but nothing else may happen. */
static void damaged_legacy_files_do_no_harm(void **state)
{
    size_t n;
    unsigned char *bytes =
        (unsigned char *)scratch_read(golden_path("everything-legacy-2.13.pth"), &n);
    long live = trii_alloc_live();
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    for (size_t i = 0; i < n; i++) {
        tri_torch_file *file = NULL;

        if (open_bytes(&m, bytes, i, &file) == TRI_OK)
            fail_msg("a file of %zu of %zu bytes is read", i, n);
        bytes[i] ^= 0xff;
        if (open_bytes(&m, bytes, n, &file) == TRI_OK) {
            for (int64_t t = 0; t < tri_torch_count(file); t++) {
                char data[256];
                const tri_torch_tensor *tensor = tri_torch_at(file, t);

                if (tensor->bytes <= sizeof(data))
                    CHECK_OK(tri_torch_read(file, t, data, (size_t)tensor->bytes));
            }
            tri_torch_close(file);
        }
        bytes[i] ^= 0xff;
    }
    memory_file_end(&m);
    free(bytes);
    assert_int_equal(trii_alloc_live(), live);
}

/* --- directories ---------------------------------------------------------- */

static unsigned char *put_number(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *at++ = (unsigned char)(i < 8 ? value >> 8 * i : 0);
    return at;
}

/* The header of an entry without checksum; with the offset of that, the directory's record of it.
 * local: -1 for the former. */
static unsigned char *put_header(unsigned char *at, const char *name, size_t bytes, int64_t local)
{
    at = put_number(at, local < 0 ? 0x04034b50 : 0x02014b50, 4);
    at = put_number(at, 0, local < 0 ? 14 : 16);
    at = put_number(at, bytes, 4);
    at = put_number(at, bytes, 4);
    at = put_number(at, strlen(name), 2);
    at = put_number(at, 0, local < 0 ? 2 : 12);
    if (local >= 0)
        at = put_number(at, (uint64_t)local, 4);
    memcpy(at, name, strlen(name));
    return at + strlen(name);
}

/* So many entries may also be what says that the number is elsewhere, in 64 bits; Python's zipfile
 * writes them without that. */
static void as_many_entries_as_sixteen_bits_count_are_read(void **state)
{
    enum { N = UINT16_MAX };
    unsigned char *bytes = malloc((size_t)N * 128), *at = bytes;
    int64_t *local = calloc(N, sizeof(*local)), directory;
    char name[16];
    memory_file m;
    tri_torch_file *file;

    (void)state;
    assert_non_null(bytes);
    assert_non_null(local);
    for (int pass = 0; pass < 2; pass++) {
        directory = at - bytes;
        for (int i = 0; i < N; i++) {
            snprintf(name, sizeof(name), i > 0 ? "%d" : "a/data.pkl", i);
            if (pass == 0)
                local[i] = at - bytes;
            at = put_header(at, name, i > 0 ? 0 : 2, pass == 0 ? -1 : local[i]);
            if (pass == 0 && i == 0) {
                memcpy(at, "}.", 2);
                at += 2;
            }
        }
    }
    memory_file_begin(&m);
    at = put_number(at, 0x06054b50, 4);
    at = put_number(at, 0, 4);
    at = put_number(at, N, 2);
    at = put_number(at, N, 2);
    at = put_number(at, (uint64_t)(at - 12 - bytes - directory), 4);
    at = put_number(at, (uint64_t)directory, 4);
    at = put_number(at, 0, 2);
    CHECK_OK(open_bytes(&m, bytes, (size_t)(at - bytes), &file));
    assert_int_equal(tri_torch_root(file)->kind, TRI_TORCH_DICT);
    tri_torch_close(file);
    memory_file_end(&m);
    free(local);
    free(bytes);
}

/* --- pickles -------------------------------------------------------------- */

#define MAGIC "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define HEAD MAGIC "M\xe9\x03.}."
#define TAIL "]."

/* A legacy file whose object is this pickle. */
static void pickle_fails(const memory_file *m, const char *pickle, size_t bytes, tri_status want,
                         const char *text)
{
    char data[4096];
    size_t head = sizeof(HEAD) - 1;
    tri_torch_file *file = NULL;

    assert_true(head + bytes + 2 < sizeof(data));
    memcpy(data, HEAD, head);
    memcpy(data + head, pickle, bytes);
    memcpy(data + head + bytes, TAIL, 2);
    CHECK_FAILS(open_bytes(m, data, head + bytes + 2, &file), want, text);
}
#define PICKLE_FAILS(pickle, want, text) pickle_fails(&m, pickle, sizeof(pickle) - 1, want, text)

static void odd_pickles_are_refused_with_opcode_and_offset(void **state)
{
    char deep[400];
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    PICKLE_FAILS("I7\n.", TRI_ERR_UNSUPPORTED,
                 "offset 21: INT: an opcode that torch.save never writes");
    PICKLE_FAILS("\x82\1.", TRI_ERR_UNSUPPORTED, "EXT1");
    PICKLE_FAILS("}\xf0.", TRI_ERR_FORMAT, "offset 22: byte 0xf0 is not an opcode");
    PICKLE_FAILS("\x80\6N.", TRI_ERR_UNSUPPORTED, "protocol 6");
    PICKLE_FAILS("h\0.", TRI_ERR_FORMAT, "the memo has no entry 0");
    PICKLE_FAILS("Nr\xff\xff\xff\x7f.", TRI_ERR_FORMAT, "of the memo, after");
    PICKLE_FAILS("X\xff\xff\xff\x7f"
                 "abc.",
                 TRI_ERR_FORMAT, "too early");
    PICKLE_FAILS("t.", TRI_ERR_FORMAT, "no mark");
    PICKLE_FAILS("}(Nu.", TRI_ERR_FORMAT, "a key without a value");
    PICKLE_FAILS("((N1u.", TRI_ERR_FORMAT, "nothing on the stack takes these items");
    PICKLE_FAILS("N(NNu.", TRI_ERR_FORMAT, "takes no such items");
    PICKLE_FAILS(".", TRI_ERR_FORMAT, "0 values are on the stack, it takes 1");
    PICKLE_FAILS("NNR.", TRI_ERR_FORMAT, "not a tuple");
    PICKLE_FAILS("N)R.", TRI_ERR_FORMAT, "not a class");
    PICKLE_FAILS("NQ.", TRI_ERR_FORMAT, "not the id of a storage");
    PICKLE_FAILS("cos\nsystem\n(X\2\0\0\0lstR.", TRI_ERR_UNSUPPORTED,
                 "an object of class os.system, whose code is in a program");
    PICKLE_FAILS("]q\0h\0a.", TRI_ERR_FORMAT, "more than 64 deep");
    for (int k = 1; k < 40; k++) { /* 2 to the 39 ways to the innermost */
        const char list[] = {']', '(', 'h', (char)(k - 1), 'h', (char)(k - 1), 'e', 'q', (char)k};

        memcpy(deep + 3 + 9 * (k - 1), list, sizeof(list));
    }
    memcpy(deep, "]q", 3);
    deep[3 + 9 * 39] = '.';
    pickle_fails(&m, deep, 4 + 9 * 39, TRI_ERR_FORMAT, "lead to each other without end");
    memset(deep, ']', 100);
    memset(deep + 100, 'a', 99);
    deep[199] = '.';
    pickle_fails(&m, deep, 200, TRI_ERR_FORMAT, "values within values, more than 64 deep");
    memory_file_end(&m);
}

/* A tensor of the arguments, in a pickle whose storage has four numbers. */
#define STORAGE                                                                                    \
    "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"         \
    "0X\3\0\0\0cpuK\4tQ"

/* 2000 keys lead to one list of 200 numbers: as many values as that are no bomb. */
static void values_may_be_shared_many_times(void **state)
{
    static char pickle[16384];
    size_t n = 0;
    tri_torch_file *file;
    char data[sizeof(pickle) + 64];
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    memcpy(pickle, HEAD, sizeof(HEAD) - 1);
    n += sizeof(HEAD) - 1;
    memcpy(pickle + n, "](", 2);
    n += 2;
    memset(pickle + n, 'N', 200);
    n += 200;
    memcpy(pickle + n, "eq", 2);
    n += 2;
    pickle[n++] = 0;
    memcpy(pickle + n, "](", 2);
    n += 2;
    for (int i = 0; i < 2000; i++) {
        pickle[n++] = 'h';
        pickle[n++] = 0;
    }
    memcpy(pickle + n, "e.", 2);
    n += 2;
    memcpy(data, pickle, n);
    memcpy(data + n, TAIL, 2);
    CHECK_OK(open_bytes(&m, data, n + 2, &file));
    assert_int_equal(tri_torch_count(file), 0);
    assert_int_equal(tri_torch_root(file)->n, 2000);
    tri_torch_close(file);
    memory_file_end(&m);
}

static void tensors_outside_of_their_storage_are_refused(void **state)
{
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    PICKLE_FAILS(STORAGE "K\0K\5\x85K\1\x85\x89)tR.", TRI_ERR_FORMAT,
                 "a tensor of which element 4");
    PICKLE_FAILS(STORAGE "K\1K\4\x85K\1\x85\x89)tR.", TRI_ERR_FORMAT,
                 "a tensor of which element 4");
    PICKLE_FAILS(STORAGE "K\0K\2K\2\x86K\4K\1\x86\x89)tR.", TRI_ERR_FORMAT, "element 5");
    PICKLE_FAILS(STORAGE "K\0K\2\x85K\1K\1\x86\x89)tR.", TRI_ERR_FORMAT, "1 sizes and 2 strides");
    PICKLE_FAILS(STORAGE "K\0J\xff\xff\xff\xff\x85K\1\x85\x89)tR.", TRI_ERR_FORMAT, "not a size");
    PICKLE_FAILS(STORAGE "J\xff\xff\xff\xffK\1\x85K\1\x85\x89)tR.", TRI_ERR_FORMAT, "offset");
    PICKLE_FAILS(STORAGE "K\0\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85K\1\x85\x89)tR.",
                 TRI_ERR_FORMAT, "a tensor whose size no number holds");
    PICKLE_FAILS(STORAGE "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t)\x89)tR.", TRI_ERR_UNSUPPORTED,
                 "a tensor of 9 dimensions");
    PICKLE_FAILS(STORAGE "K\0K\4\x85K\1\x85\x89)tR.", TRI_ERR_FORMAT,
                 "storage 0 has 0 bytes there, and 16 by the pickle");
    memory_file_end(&m);
}

/* Elements of such a tensor are not what its storage has: torch negates them when they are read. */
static void lazily_changed_tensors_are_refused(void **state)
{
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    PICKLE_FAILS(STORAGE "K\0K\4\x85K\1\x85\x89)}X\3\0\0\0neg\x88stR.", TRI_ERR_UNSUPPORTED,
                 "REDUCE: a tensor with the neg bit set: save its resolve_neg()");
    PICKLE_FAILS(STORAGE "K\0K\4\x85K\1\x85\x89)}X\4\0\0\0conj\x88stR.", TRI_ERR_UNSUPPORTED,
                 "save its resolve_conj()");
    PICKLE_FAILS(STORAGE "K\0K\4\x85K\1\x85\x89)}X\3\0\0\0neg\x89stR.", TRI_ERR_FORMAT,
                 "storage 0 has 0 bytes there");
    memory_file_end(&m);
}

#define WIDEST "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f" /* INT64_MAX */

/* The file of such a pickle, with the four numbers. */
static void open_numbers(const memory_file *m, const char *pickle, size_t bytes,
                         tri_torch_file **file_out)
{
    static const float numbers[4] = {1, 2, 3, 4};
    static const char keys[] = "]X\1\0\0\0"
                               "0a.\4\0\0\0\0\0\0";
    char data[4096];
    size_t n = 0;

    assert_true(bytes < 2048);
    memcpy(data, HEAD, sizeof(HEAD) - 1);
    n += sizeof(HEAD) - 1;
    memcpy(data + n, pickle, bytes);
    n += bytes;
    memcpy(data + n, keys, sizeof(keys)); /* the 0 at its end is a byte of the count */
    n += sizeof(keys);
    memcpy(data + n, numbers, sizeof(numbers));
    n += sizeof(numbers);
    CHECK_OK(open_bytes(m, data, n, file_out));
}

/* No element is there that they would lead to; UBSan sees what the arithmetic does. */
static void strides_and_offsets_that_do_not_matter_may_be_any(void **state)
{
    static const char one[] = STORAGE "K\0K\2K\1\x86K\2" WIDEST "\x86\x89)tR.";
    static const char none[] = STORAGE WIDEST "K\4K\0\x86K\1K\1\x86\x89)tR.";
    float data[2];
    memory_file m;
    tri_torch_file *file;
    tri_tensor *tensor;

    (void)state;
    memory_file_begin(&m);
    open_numbers(&m, one, sizeof(one) - 1, &file);
    CHECK_OK(tri_torch_read(file, 0, data, sizeof(data)));
    CHECK_NEAR(data[0], 1, 0);
    CHECK_NEAR(data[1], 3, 0);
    tri_torch_close(file);
    open_numbers(&m, none, sizeof(none) - 1, &file);
    CHECK_OK(tri_torch_read(file, 0, NULL, 0));
    tensor = tri_torch_tensor_named(file, "tensor");
    CHECK_OK(tri_tensor_status(tensor));
    tri_tensor_unref(tensor);
    tri_torch_close(file);
    memory_file_end(&m);
}

static void an_allocation_that_fails_leaves_nothing(void **state)
{
    static const char *const names[] = {"everything-2.13.pth", "everything-legacy-2.13.pth"};
    long live = trii_alloc_live();

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(names); k++) {
        tri_status status = TRI_ERR_NO_MEMORY;

        for (long n = 1; status != TRI_OK; n++) {
            tri_torch_file *file = NULL;

            trii_alloc_fail_at(n);
            status = tri_torch_open(golden_path(names[k]), &file);
            trii_alloc_fail_at(0);
            assert_true(status == TRI_OK || status == TRI_ERR_NO_MEMORY);
            tri_torch_close(file);
            assert_int_equal(trii_alloc_live(), live);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(state_dictionaries_are_read),
    cmocka_unit_test(every_kind_of_value_is_read_in_every_protocol),
    cmocka_unit_test(a_tensor_can_be_all_of_a_file),
    cmocka_unit_test(tensors_of_views_and_of_other_types),
    cmocka_unit_test(programs_are_refused),
    cmocka_unit_test(damage_is_told_or_does_no_harm),
    cmocka_unit_test(damaged_legacy_files_do_no_harm),
    cmocka_unit_test(odd_pickles_are_refused_with_opcode_and_offset),
    cmocka_unit_test(values_may_be_shared_many_times),
    cmocka_unit_test(tensors_outside_of_their_storage_are_refused),
    cmocka_unit_test(as_many_entries_as_sixteen_bits_count_are_read),
    cmocka_unit_test(lazily_changed_tensors_are_refused),
    cmocka_unit_test(strides_and_offsets_that_do_not_matter_may_be_any),
    cmocka_unit_test(an_allocation_that_fails_leaves_nothing),
};
TEST_MAIN(tests)
