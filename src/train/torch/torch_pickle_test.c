/* torch_pickle_test.c - files of torch.save that are made by hand: pickles and directories that are
 * legal and rare, wrong, or malicious. Golden files are in torch_file_test.c. */
/* ctest: threads=none */
#include <inttypes.h>

#include "testing/scratch.h"
#include "testing/torch_files.h"

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

static void pickle_fails(const memory_file *m, const char *pickle, size_t bytes, tri_status want,
                         const char *text)
{
    tri_torch_file *file = NULL;

    write_pickle(m, pickle, bytes);
    CHECK_FAILS(tri_torch_open(m->path, &file), want, text);
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
    memcpy(pickle, TORCH_HEAD, sizeof(TORCH_HEAD) - 1);
    n += sizeof(TORCH_HEAD) - 1;
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
    memcpy(data + n, TORCH_TAIL, 2);
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
    PICKLE_FAILS(STORAGE "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t)\x89)tR.", TRI_ERR_FORMAT,
                 "9 sizes and 0 strides");
    PICKLE_FAILS(STORAGE "K\0K\4\x85K\1\x85\x89)tR.", TRI_ERR_FORMAT,
                 "storage 0 has 0 bytes there, and 16 by the pickle");
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
    memcpy(data, TORCH_HEAD, sizeof(TORCH_HEAD) - 1);
    n += sizeof(TORCH_HEAD) - 1;
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(as_many_entries_as_sixteen_bits_count_are_read),
    cmocka_unit_test(odd_pickles_are_refused_with_opcode_and_offset),
    cmocka_unit_test(values_may_be_shared_many_times),
    cmocka_unit_test(tensors_outside_of_their_storage_are_refused),
    cmocka_unit_test(strides_and_offsets_that_do_not_matter_may_be_any),
};
TEST_MAIN(tests)
