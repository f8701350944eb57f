/* csv_test.c - metrics as a table. */
/* ctest: threads=none */
#include <math.h>

#include <trireme/records.h>

#include "base/alloc.h"
#include "train/records/csv_read.h"
#include "testing/scratch.h"

#define MARK "\xef\xbb\xbf" /* of UTF-8 */

#define WRITE(csv, ...)                                                                            \
    tri_csv_write(csv, (const tri_metric[]){__VA_ARGS__},                                          \
                  (int)(sizeof((const tri_metric[]){__VA_ARGS__}) / sizeof(tri_metric)))

static void check_file(const char *path, const char *want)
{
    size_t n;
    char *have = scratch_read(path, &n);

    assert_string_equal(have, want);
    free(have);
}

static void columns_come_in_the_order_of_their_first_value(void **state)
{
    long live = trii_alloc_live();
    const char *path;
    tri_csv *csv;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "a/m.csv");
    CHECK_OK(tri_csv_open(path, -1, &csv));
    check_file(path, "");
    CHECK_OK(WRITE(csv, {"step", 1}, {"loss", 0.5}));
    CHECK_OK(WRITE(csv, {"loss", (double)NAN}, {"step", 2}));
    check_file(path, "step,loss\n1,0.5\n2,nan\n");
    CHECK_OK(WRITE(csv, {"step", 3}, {"accuracy", 0.25}, {"b", INFINITY}));
    CHECK_OK(WRITE(csv, {"b", -(double)INFINITY}));
    check_file(path, "step,loss,accuracy,b\n1,0.5,,\n2,nan,,\n3,,0.25,inf\n,,,-inf\n");
    assert_int_equal(scratch_count(scratch_path(&s, "a")), 1);
    tri_csv_close(csv);
    tri_csv_close(NULL);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

static void names_are_quoted_where_they_have_to_be(void **state)
{
    static const char *const bad[] = {"", "a\nb", "\xff", "\x7f", NULL, "step"};
    const char *path;
    tri_csv *csv;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "m.csv");
    CHECK_OK(tri_csv_open(path, -1, &csv));
    CHECK_OK(WRITE(csv, {"step", 1}, {"a,b", 2}, {"say \"x\"", 3}, {" ", 4}, {"\xc3\xbc", 5}));
    for (size_t i = 0; i < TRII_COUNT_OF(bad); i++)
        CHECK_FAILS(WRITE(csv, {"step", 1}, {bad[i], 2}), TRI_ERR_INVALID_ARG, "metric 2 has key");
    tri_csv_close(csv);
    check_file(path, "step,\"a,b\",\"say \"\"x\"\"\",\" \",\xc3\xbc\n1,2,3,4,5\n");
    CHECK_OK(tri_csv_open(path, 5, &csv)); /* and are the same ones when they are read */
    CHECK_OK(WRITE(csv, {"\xc3\xbc", 1}, {"say \"x\"", 2}, {"a,b", 3}, {"step", 4}, {" ", 5}));
    tri_csv_close(csv);
    check_file(path, "step,\"a,b\",\"say \"\"x\"\"\",\" \",\xc3\xbc\n1,2,3,4,5\n4,3,2,5,1\n");
    scratch_end(&s);
}

static void a_resumed_table_keeps_what_lies_before_it(void **state)
{
    static const char text[] = "loss,\"step\",note\r\n3,1,\"a\r\n\"\"b\"\"\"\r\n2,2\n1,3,\n,,\n"
                               "7,x,\n8,0.5,\n9,2";
    const char *path;
    tri_csv *csv;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_file(&s, "m.csv", text, sizeof(text) - 1);
    CHECK_OK(tri_csv_open(path, 2, &csv));
    check_file(path, "loss,step,note\n3,1,\"a\r\n\"\"b\"\"\"\n2,2,\n8,0.5,\n");
    CHECK_OK(WRITE(csv, {"step", 3}, {"new", 1}));
    tri_csv_close(csv);
    check_file(path, "loss,step,note,new\n3,1,\"a\r\n\"\"b\"\"\",\n2,2,,\n8,0.5,,\n,3,,1\n");
    CHECK_OK(tri_csv_open(path, -1, &csv));
    tri_csv_close(csv);
    check_file(path, "");
    scratch_file(&s, "m.csv", MARK "step,a\r\n1,5\r\n2,6\r\n", 22); /* saved by Excel */
    CHECK_OK(tri_csv_open(path, 1, &csv));
    CHECK_OK(WRITE(csv, {"step", 2}, {"a", 7}));
    tri_csv_close(csv);
    check_file(path, "step,a\n1,5\n2,7\n");
    CHECK_OK(tri_csv_open(scratch_path(&s, "none"), 2, &csv));
    tri_csv_close(csv);
    path = scratch_file(&s, "other", "a,b\n1,2\n", 8);
    CHECK_OK(tri_csv_open(path, 9, &csv)); /* no step: none is known to lie before */
    tri_csv_close(csv);
    check_file(path, "a,b\n");
    scratch_end(&s);
}

static void a_full_disk_leaves_whole_records(void **state)
{
    tri_status status = TRI_OK;
    const char *path;
    tri_csv *csv;
    scratch s;
    size_t n;
    char *have;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "m.csv");
    CHECK_OK(tri_csv_open(path, -1, &csv));
    scratch_limit_files(100);
    for (int i = 0; i < 100 && status == TRI_OK; i++)
        status = WRITE(csv, {"step", 100000 + i}, {"loss", 0.125});
    CHECK_FAILS(status, TRI_ERR_IO, "m.csv: File too large");
    have = scratch_read(path, &n);
    assert_true(n > 80 && have[n - 1] == '\n');
    free(have);
    CHECK_FAILS(WRITE(csv, {"another", 1}), TRI_ERR_IO, "File too large"); /* to be rewritten */
    have = scratch_read(path, &n);
    assert_memory_equal(have, "step,loss\n100000,0.125\n", 23);
    free(have);
    assert_int_equal(scratch_count(s.dir), 1);
    tri_csv_close(csv);
    scratch_end(&s);
}

static void arguments_that_cannot_be_are_named(void **state)
{
    tri_csv *csv;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_FAILS(tri_csv_open(NULL, -1, &csv), TRI_ERR_INVALID_ARG, "path is NULL");
    CHECK_FAILS(tri_csv_open("x", -1, NULL), TRI_ERR_INVALID_ARG, "csv_out is NULL");
    CHECK_FAILS(tri_csv_open("/dev/full", -1, &csv), TRI_ERR_IO, "not a file");
    CHECK_OK(tri_csv_open(scratch_path(&s, "m"), -1, &csv));
    CHECK_FAILS(tri_csv_write(NULL, NULL, 1), TRI_ERR_INVALID_ARG, "csv is NULL");
    CHECK_FAILS(tri_csv_write(csv, NULL, 1), TRI_ERR_INVALID_ARG, "values is NULL");
    CHECK_FAILS(tri_csv_write(csv, NULL, 0), TRI_ERR_INVALID_ARG, "n is 0");
    tri_csv_close(csv);
    scratch_end(&s);
}

static void tables_without_memory_leave_nothing(void **state)
{
    long live = trii_alloc_live();
    tri_status status;
    scratch s;
    int n = 1;

    (void)state;
    scratch_begin(&s);
    do {
        tri_csv *csv;

        scratch_file(&s, "m", "step,a\n1,2\n", 11);
        trii_alloc_fail_at(n++);
        status = tri_csv_open(scratch_path(&s, "m"), 5, &csv);
        if (status == TRI_OK) {
            status = WRITE(csv, {"step", 1}, {"new", 2});
            tri_csv_close(csv);
        }
        trii_alloc_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ERR_NO_MEMORY);
        assert_int_equal(trii_alloc_live(), live);
        assert_int_equal(scratch_count(s.dir), 1);
    } while (status != TRI_OK);
    check_file(scratch_path(&s, "m"), "step,a,new\n1,2,\n1,,2\n");
    scratch_end(&s);
}

/* Cells of a record one after the other, joined by bars. */
static void cells_of(const char *text, char out[64])
{
    const char *at = text;
    trii_csv_record record;

    snprintf(out, 64, "none");
    if (!trii_csv_next(&at, text + strlen(text), &record))
        return;
    *out = '\0';
    while (record.start != NULL) {
        char cell[16];

        trii_csv_cell(&record, cell, sizeof(cell));
        snprintf(out + strlen(out), 64 - strlen(out), "%s|", cell);
    }
}

static void cells_are_those_of_the_standard(void **state)
{
    static const char *const cases[][2] = {{"a,b\n", "a|b|"},
                                           {"a,b\r\n", "a|b|"},
                                           {"\n", "|"},
                                           {",\n", "||"},
                                           {"\"a,b\",c\n", "a,b|c|"},
                                           {"\"a\nb\"\n", "a\nb|"},
                                           {"\"\"\"\"\n", "\"|"},
                                           {"\"\",x\n", "|x|"},
                                           {"\"a\"\"b\"\n", "a\"b|"},
                                           {"a", "none"},
                                           {"\"a\n", "none"},
                                           {"", "none"},
                                           {"0123456789abcdefgh,x\n", "0123456789abcde|x|"}};
    double value;

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        char have[64];

        cells_of(cases[i][0], have);
        assert_string_equal(have, cases[i][1]);
    }
    assert_true(trii_csv_number(" 1.5 ", &value) && value == 1.5);
    assert_true(trii_csv_number("nan", &value) && isnan(value));
    assert_false(trii_csv_number("", &value));
    assert_false(trii_csv_number("1x", &value));
    assert_false(trii_csv_number("  ", &value));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(columns_come_in_the_order_of_their_first_value),
    cmocka_unit_test(names_are_quoted_where_they_have_to_be),
    cmocka_unit_test(a_resumed_table_keeps_what_lies_before_it),
    cmocka_unit_test(a_full_disk_leaves_whole_records),
    cmocka_unit_test(arguments_that_cannot_be_are_named),
    cmocka_unit_test(tables_without_memory_leave_nothing),
    cmocka_unit_test(cells_are_those_of_the_standard),
};
TEST_MAIN(tests)
