/* event_file_test.c - records of event files: their bytes, the thread that writes them, and what a
 * reader makes of damaged ones. */
#include <math.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/thread.h"
#include "train/records/crc32c.h"
#include "train/records/event_encode.h"
#include "train/records/event_file.h"
#include "train/records/event_read.h"
#include "testing/scratch.h"

static const trii_event_file_options at_leisure = {
    .flush_ns = 3600 * TRII_NS_PER_S, .max_waiting = (size_t)1 << 20, .max_ns = 20 * TRII_NS_PER_S};

/* What tensorboard 2.21 writes at a wall time of 1: the first record of a file, and the scalar
 * "loss" = 0.5 at step 10. */
static const uint8_t golden[] = {0x18,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0xa3,
                                 0x7f,
                                 0x4b,
                                 0x22,
                                 0x09,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0xf0,
                                 0x3f,
                                 0x1a,
                                 0x0d,
                                 'b',
                                 'r',
                                 'a',
                                 'i',
                                 'n',
                                 '.',
                                 'E',
                                 'v',
                                 'e',
                                 'n',
                                 't',
                                 ':',
                                 '2',
                                 0x86,
                                 0xbf,
                                 0x57,
                                 0x7a,
                                 /* the scalar: */ 0x1a,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0x12,
                                 0x9b,
                                 0xd8,
                                 0x2d,
                                 0x09,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0xf0,
                                 0x3f,
                                 0x10,
                                 0x0a,
                                 0x2a,
                                 0x0d,
                                 0x0a,
                                 0x0b,
                                 0x0a,
                                 0x04,
                                 'l',
                                 'o',
                                 's',
                                 's',
                                 0x15,
                                 0,
                                 0,
                                 0,
                                 0x3f,
                                 0x4d,
                                 0x25,
                                 0xf5,
                                 0x33};

static void put_golden(trii_event_file *file)
{
    const trii_event_place place = {.wall_time = 1, .step = 10, .tag = "loss"};
    trii_proto record = {0};

    trii_event_version(&record, 1);
    CHECK_OK(trii_proto_status(&record));
    CHECK_OK(trii_event_file_put(file, record.data, record.used));
    record.used = 0;
    trii_event_scalar(&record, &place, 0.5f);
    CHECK_OK(trii_proto_status(&record));
    CHECK_OK(trii_event_file_put(file, record.data, record.used));
    trii_proto_fini(&record);
}

static void checksums_are_those_of_the_standard(void **state)
{
    static const char text[] = "123456789123456789";
    uint8_t zeros[32] = {0};

    (void)state;
    assert_int_equal(trii_crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(trii_crc32c("", 0), 0);
    assert_int_equal(trii_crc32c(zeros, 32), 0x8a9136aau); /* RFC 3720 */
    memset(zeros, 0xff, sizeof(zeros));
    assert_int_equal(trii_crc32c(zeros, 32), 0x62a8ab43u);
    for (size_t at = 0; at < 9; at++) /* eight at a time from any address */
        assert_int_equal(trii_crc32c(text + at, 9), trii_crc32c(text + at + (at == 0 ? 9 : 0), 9));
}

static void records_have_the_bytes_of_tensorboard(void **state)
{
    long live = trii_alloc_live();
    trii_event_file *file;
    char *have;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_event_file_open(scratch_path(&s, "e"), &at_leisure, &file));
    put_golden(file);
    CHECK_OK(trii_event_file_close(file));
    have = scratch_read(scratch_path(&s, "e"), &n);
    assert_int_equal(n, sizeof(golden));
    assert_memory_equal(have, golden, n);
    free(have);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

static void numbers_of_any_size_are_varints(void **state)
{
    static const struct {
        int64_t value;
        const char *bytes;
        size_t n;
    } cases[] = {{1, "\x08\x01", 2},
                 {127, "\x08\x7f", 2},
                 {128, "\x08\x80\x01", 3},
                 {INT64_MAX, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10},
                 {-1, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
                 {0, "", 0}};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        trii_proto out = {0};

        trii_proto_int(&out, 1, cases[i].value);
        assert_int_equal(out.used, cases[i].n);
        if (out.used > 0)
            assert_memory_equal(out.data, cases[i].bytes, out.used);
        trii_proto_fini(&out);
    }
}

/* A message within gets its length when it ends, in as many bytes as that takes. */
static void messages_lie_within_each_other(void **state)
{
    static char text[300];
    trii_proto out = {0};
    size_t outer, inner;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    outer = trii_proto_begin(&out, 1);
    inner = trii_proto_begin(&out, 2);
    trii_proto_text(&out, 3, text);
    trii_proto_end(&out, inner);
    trii_proto_end(&out, trii_proto_begin(&out, 4));
    trii_proto_end(&out, outer);
    CHECK_OK(trii_proto_status(&out));
    assert_memory_equal(out.data, "\x0a\xb3\x02\x12\xae\x02\x1a\xab\x02xxx", 12);
    assert_int_equal(out.used, 3 + 3 + 3 + 299 + 2);
    assert_memory_equal(out.data + out.used - 3, "x\x22\x00", 3);
    trii_proto_fini(&out);
}

static void a_record_without_memory_says_so(void **state)
{
    (void)state;
    for (int n = 1; n < 4; n++) {
        trii_proto out = {0};
        static char text[3000];

        memset(text, 'x', sizeof(text) - 1);
        trii_alloc_fail_at(n);
        for (int i = 0; i < 3; i++)
            trii_proto_end(&out, trii_proto_begin(&out, 1));
        trii_proto_text(&out, 1, text);
        trii_proto_text(&out, 1, text);
        trii_proto_text(&out, 1, text);
        trii_alloc_fail_at(0);
        CHECK_FAILS(trii_proto_status(&out), TRI_ERR_NO_MEMORY, "memory");
        trii_proto_fini(&out);
    }
}

/* --- the thread ----------------------------------------------------------- */

static size_t file_bytes(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? (size_t)info.st_size : 0;
}

static void what_is_put_is_written_soon(void **state)
{
    trii_event_file_options soon = at_leisure;
    trii_event_file *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_event_file_open(scratch_path(&s, "leisure"), &at_leisure, &file));
    put_golden(file);
    assert_int_equal(file_bytes(scratch_path(&s, "leisure")), 0); /* it has an hour */
    CHECK_OK(trii_event_file_flush(file));
    assert_int_equal(file_bytes(scratch_path(&s, "leisure")), sizeof(golden));
    CHECK_OK(trii_event_file_flush(file)); /* nothing to do */
    CHECK_OK(trii_event_file_close(file));
    soon.flush_ns = 1;
    CHECK_OK(trii_event_file_open(scratch_path(&s, "soon"), &soon, &file));
    put_golden(file);
    while (file_bytes(scratch_path(&s, "soon")) < sizeof(golden))
        trii_thread_yield();
    CHECK_OK(trii_event_file_close(file));
    CHECK_OK(trii_event_file_close(NULL));
    scratch_end(&s);
}

static void much_is_written_without_waiting_for_more(void **state)
{
    static const char data[1000];
    trii_event_file *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_event_file_open(scratch_path(&s, "e"), &at_leisure, &file));
    for (int i = 0; i < 1000; i++) /* more than may wait at a time */
        CHECK_OK(trii_event_file_put(file, data, sizeof(data)));
    while (file_bytes(scratch_path(&s, "e")) == 0)
        trii_thread_yield();
    CHECK_OK(trii_event_file_close(file));
    assert_int_equal(file_bytes(scratch_path(&s, "e")), 1000 * (1000 + 16));
    scratch_end(&s);
}

/* A FIFO that nobody reads is a disk that takes nothing. */
static void a_disk_that_takes_nothing_is_waited_for_a_while(void **state)
{
    static char data[40000], sink[65536];
    const trii_event_file_options options = {.max_waiting = 100000, .max_ns = TRII_NS_PER_MS};
    trii_event_file *file;
    tri_status status = TRI_OK;
    FILE *reader;
    int taken = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(mkfifo(scratch_path(&s, "f"), 0600), 0);
    reader = fopen(scratch_path(&s, "f"), "r+"); /* which waits for no writer */
    assert_non_null(reader);
    CHECK_OK(trii_event_file_open(scratch_path(&s, "f"), &options, &file));
    for (; taken < 20 && status == TRI_OK; taken++)
        status = trii_event_file_put(file, data, sizeof(data));
    CHECK_FAILS(status, TRI_ERR_IO, "wait for the disk");
    taken--;
    assert_in_range(taken, 2, 4); /* 100000 bytes, and what the pipe's buffer may have had before */
    for (size_t got = 0; got < (size_t)taken * (sizeof(data) + 16);) {
        ssize_t n = read(fileno(reader), sink, sizeof(sink));

        got += n > 0 ? (size_t)n : 0;
    }
    CHECK_OK(trii_event_file_put(file, data, 1)); /* it goes on */
    CHECK_FAILS(trii_event_file_close(file), TRI_ERR_IO, "1 records were not written");
    fclose(reader);
    scratch_end(&s);
}

static void a_full_disk_keeps_whole_records(void **state)
{
    static const char data[1000];
    trii_event_file_options soon = at_leisure;
    trii_event_file *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_event_file_open(scratch_path(&s, "e"), &at_leisure, &file));
    put_golden(file);
    scratch_limit_files(3000);
    for (int i = 0; i < 4; i++)
        CHECK_OK(trii_event_file_put(file, data, sizeof(data)));
    CHECK_OK(trii_event_file_put(file, data, 10)); /* fits after the second */
    CHECK_FAILS(trii_event_file_flush(file), TRI_ERR_IO, "File too large");
    assert_int_equal(file_bytes(scratch_path(&s, "e")), sizeof(golden) + 2 * 1016 + 26);
    CHECK_FAILS(trii_event_file_close(file), TRI_ERR_IO, "/e: 2 records were not written");
    soon.flush_ns = 1;
    CHECK_OK(trii_event_file_open(scratch_path(&s, "e2"), &soon, &file));
    while (trii_event_file_put(file, data, sizeof(data)) == TRI_OK)
        trii_thread_yield(); /* until the next call tells what the thread has met */
    assert_non_null(strstr(tri_last_error(), "/e2: File too large"));
    CHECK_FAILS(trii_event_file_close(file), TRI_ERR_IO, "records were not written");
    assert_int_equal(file_bytes(scratch_path(&s, "e2")), 2 * 1016);
    scratch_end(&s);
}

/* Millions may wait, and each that is tried is a call. */
static void a_full_disk_is_not_asked_for_each_record(void **state)
{
    static const char data[1000];
    trii_event_file *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_event_file_open(scratch_path(&s, "e"), &at_leisure, &file));
    scratch_limit_files(3000);
    for (int i = 0; i < 40; i++)
        CHECK_OK(trii_event_file_put(file, data, sizeof(data)));
    CHECK_OK(trii_event_file_put(file, data, 10)); /* would fit after the second */
    CHECK_FAILS(trii_event_file_flush(file), TRI_ERR_IO, "/e: File too large");
    assert_int_equal(file_bytes(scratch_path(&s, "e")), 2 * 1016);
    CHECK_OK(trii_event_file_put(file, data, 10)); /* the next ones are tried again */
    CHECK_OK(trii_event_file_flush(file));
    assert_int_equal(file_bytes(scratch_path(&s, "e")), 2 * 1016 + 26);
    CHECK_FAILS(trii_event_file_close(file), TRI_ERR_IO, "/e: 39 records were not written");
    scratch_end(&s);
}

static void a_forked_child_is_told(void **state)
{
    trii_event_file *file;
    int status = -1;
    pid_t child;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_event_file_open(scratch_path(&s, "e"), &at_leisure, &file));
    put_golden(file);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool told = trii_event_file_put(file, "x", 1) == TRI_ERR_STATE &&
                    strstr(tri_last_error(), "before a fork") != NULL &&
                    trii_event_file_flush(file) == TRI_ERR_STATE &&
                    trii_event_file_close(file) == TRI_OK;

        _exit(told ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    CHECK_OK(trii_event_file_close(file));
    assert_int_equal(file_bytes(scratch_path(&s, "e")), sizeof(golden)); /* once */
    scratch_end(&s);
}

enum { PUTS = 2000, PUTTERS = 4 };

typedef struct putter {
    trii_event_file *file;
    trii_thread thread;
    tri_status status;
    uint8_t number;
} putter;

static void put_many(void *arg)
{
    putter *p = arg;
    uint8_t data[100];

    memset(data, p->number, sizeof(data));
    for (size_t i = 0; i < PUTS && p->status == TRI_OK; i++)
        p->status = trii_event_file_put(p->file, data, i % sizeof(data));
}

static void threads_put_whole_records(void **state)
{
    putter putters[PUTTERS] = {{0}};
    size_t n, left = PUTTERS * PUTS;
    trii_event_file *file;
    uint8_t *have;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_event_file_open(scratch_path(&s, "e"), &at_leisure, &file));
    for (int i = 0; i < PUTTERS; i++) {
        putters[i] = (putter){.file = file, .number = (uint8_t)i};
        CHECK_OK(trii_thread_start(&putters[i].thread, "putter", put_many, &putters[i]));
    }
    for (int i = 0; i < 10; i++)
        CHECK_OK(trii_event_file_flush(file));
    for (int i = 0; i < PUTTERS; i++) {
        trii_thread_join(&putters[i].thread);
        CHECK_OK(putters[i].status);
    }
    CHECK_OK(trii_event_file_close(file));
    have = (uint8_t *)scratch_read(scratch_path(&s, "e"), &n);
    for (size_t at = 0; at < n; left--) {
        uint64_t bytes;

        memcpy(&bytes, have + at, sizeof(bytes));
        assert_true(bytes < 100);
        for (size_t i = 1; i < bytes; i++)
            assert_int_equal(have[at + 12 + i], have[at + 12]);
        at += 16 + (size_t)bytes;
    }
    assert_int_equal(left, 0);
    free(have);
    scratch_end(&s);
}

static void files_without_memory_leave_nothing(void **state)
{
    long live = trii_alloc_live();
    trii_event_file *file;
    tri_status status;
    scratch s;
    int n = 1;

    (void)state;
    scratch_begin(&s);
    do {
        trii_alloc_fail_at(n++);
        status = trii_event_file_open(scratch_path(&s, "e"), &at_leisure, &file);
        if (status == TRI_OK) {
            status = trii_event_file_put(file, "x", 1);
            CHECK_OK(trii_event_file_close(file));
        }
        trii_alloc_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ERR_NO_MEMORY);
        assert_int_equal(trii_alloc_live(), live);
    } while (status != TRI_OK);
    assert_true(n > 3);
    CHECK_FAILS(trii_event_file_open(scratch_path(&s, "no/e"), &at_leisure, &file),
                TRI_ERR_NOT_FOUND, "no/e");
    scratch_end(&s);
}

/* --- reading -------------------------------------------------------------- */

static trii_event_reader reader_of(const uint8_t *data, size_t bytes)
{
    return (trii_event_reader){.path = "x", .data = data, .bytes = bytes};
}

static void what_was_written_is_read(void **state)
{
    trii_event_reader reader = reader_of(golden, sizeof(golden));
    trii_event_value value;
    trii_event event;

    (void)state;
    CHECK_OK(trii_event_read(&reader, &event));
    assert_true(event.wall_time == 1 && event.step == 0 && !event.is_start);
    assert_int_equal(trii_event_value_next(&reader, &event, &value), TRI_END);
    CHECK_OK(trii_event_read(&reader, &event));
    assert_int_equal(event.step, 10);
    CHECK_OK(trii_event_value_next(&reader, &event, &value));
    assert_int_equal(value.tag_bytes, 4);
    assert_memory_equal(value.tag, "loss", 4);
    assert_true(value.is_scalar && value.value == 0.5);
    assert_int_equal(trii_event_value_next(&reader, &event, &value), TRI_END);
    assert_int_equal(trii_event_read(&reader, &event), TRI_END);
}

static void a_file_cut_short_ends_at_its_last_whole_record(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < sizeof(golden); bytes++) {
        uint8_t *copy = malloc(bytes + 1); /* so that a sanitizer sees what is read past its end */
        trii_event_reader reader = reader_of(copy, bytes);
        trii_event event;
        int n = 0;

        memcpy(copy, golden, bytes);
        while (trii_event_read(&reader, &event) == TRI_OK)
            n++;
        assert_int_equal(n, bytes >= 40);
        assert_int_equal(trii_event_read(&reader, &event), TRI_END);
        free(copy);
    }
}

static void every_damaged_byte_is_noticed(void **state)
{
    uint8_t copy[sizeof(golden)];

    (void)state;
    for (size_t at = 0; at < sizeof(golden); at++) {
        for (int bit = 0; bit < 8; bit++) {
            trii_event_reader reader = reader_of(copy, sizeof(copy));
            trii_event event;
            tri_status status;

            memcpy(copy, golden, sizeof(copy));
            copy[at] ^= (uint8_t)(1 << bit);
            do {
                status = trii_event_read(&reader, &event);
            } while (status == TRI_OK);
            CHECK_FAILS(status, TRI_ERR_FORMAT, at < 40 ? "x, byte 0: " : "x, byte 40: ");
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(checksums_are_those_of_the_standard),
    cmocka_unit_test(records_have_the_bytes_of_tensorboard),
    cmocka_unit_test(numbers_of_any_size_are_varints),
    cmocka_unit_test(messages_lie_within_each_other),
    cmocka_unit_test(a_record_without_memory_says_so),
    cmocka_unit_test(what_is_put_is_written_soon),
    cmocka_unit_test(much_is_written_without_waiting_for_more),
    cmocka_unit_test(a_disk_that_takes_nothing_is_waited_for_a_while),
    cmocka_unit_test(a_full_disk_keeps_whole_records),
    cmocka_unit_test(a_full_disk_is_not_asked_for_each_record),
    cmocka_unit_test(a_forked_child_is_told),
    cmocka_unit_test(threads_put_whole_records),
    cmocka_unit_test(files_without_memory_leave_nothing),
    cmocka_unit_test(what_was_written_is_read),
    cmocka_unit_test(a_file_cut_short_ends_at_its_last_whole_record),
    cmocka_unit_test(every_damaged_byte_is_noticed),
};
TEST_MAIN(tests)
