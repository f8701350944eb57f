/* error_file_test.c - error files of torchelastic, of its older versions, and what is none. */
#include "launch/report/error_file.h"

#include "testing/check.h"
#include "testing/spawn.h"

static char folder[256], path[300], copy[300];

static int make_folder(void **state)
{
    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/error.json", folder);
    snprintf(copy, sizeof(copy), "%s/copy.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    spawn_remove_folder(folder);
    return 0;
}

static void write_file(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static void read_copy(char *text, size_t bytes)
{
    FILE *file = fopen(copy, "r");

    assert_non_null(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

static const char whole[] =
    "{\"message\": {\"extraInfo\": {\"timestamp\": \"1700000000\", \"py_callstack\": "
    "\"Traceback\\n\\tx \\u00e4\\u20ac\\ud83d \\ud83d\\ude00\\u0000.\"}, \"message\": \"E: "
    "\\\"q\\\" \\\\\"}, \"x\": [1, "
    "{}]}";

static void both_forms_are_understood(void **state)
{
    trii_error_file error;
    char text[1024];

    (void)state;
    assert_false(trii_error_file_read(path, &error));
    write_file(whole, sizeof(whole) - 1);
    assert_true(trii_error_file_read(path, &error));
    assert_string_equal(error.message, "E: \"q\" \\");
    assert_string_equal(error.traceback, "Traceback\n\tx \xc3\xa4\xe2\x82\xac? \xf0\x9f\x98\x80?.");
    assert_int_equal(error.timestamp, 1700000000);
    CHECK_OK(trii_error_file_copy(path, copy, -11));
    read_copy(text, sizeof(text));
    assert_ptr_equal(strstr(text, "{\"message\": {\"extraInfo\": {\"timestamp\": \"1700000000\", "),
                     text);
    assert_non_null(strstr(text, ", \"errorCode\": -11}, \"x\": [1, {}]}"));
    write_file("{\"timestamp\": 12, \"message\": \"old\"}", 35);
    assert_true(trii_error_file_read(path, &error));
    assert_string_equal(error.message, "old");
    assert_int_equal(error.timestamp, 12);
    CHECK_OK(trii_error_file_copy(path, copy, 1));
    read_copy(text, sizeof(text));
    assert_string_equal(text, "{\"timestamp\": 12, \"message\": \"old\"}");
}

/* What Python's json would not write, but others do. */
static void texts_that_are_not_quite_json_are_read(void **state)
{
    static const char *const texts[][2] = {
        {"{\"message\": \"caf\xe9\"}", "caf?"},
        {"{\"message\": \"cut \xe2\x82\"}", "cut ??"},
        {"{\"message\": \"\xc3\xa4 \xff \xf0\x9f\x98\x80 \xed\xa0\xbd\"}",
         "\xc3\xa4 ? \xf0\x9f\x98\x80 ???"},
        {"{\"message\": \"\\uD83d \\ud83D\\uDe00\"}", "? \xf0\x9f\x98\x80"},
        {"{\"message\": \"\\ud83d C:\\\\uda\"}", "? C:\\uda"},
    };
    trii_error_file error;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        write_file(texts[i][0], strlen(texts[i][0]));
        assert_true(trii_error_file_read(path, &error));
        assert_string_equal(error.message, texts[i][1]);
    }
    write_file("{\"timestamp\": 1700000000.25, \"message\": \"old\"}", 46);
    assert_true(trii_error_file_read(path, &error));
    assert_int_equal(error.timestamp, 1700000000);
}

/* Python's json writes and reads them; the message is not lost with them, and our own parent gets
 * them as texts. */
static void values_that_json_does_not_have_do_no_harm(void **state)
{
    static const char *const values[] = {"NaN", "Infinity", "-Infinity", "123456789012345678901234",
                                         "-9223372036854775809"};
    char text[512], wanted[128];
    trii_error_file error;

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        write_file(text,
                   (size_t)snprintf(text, sizeof(text),
                                    "{\"message\": {\"message\": \"loss: \\\"NaN, \\\\\", "
                                    "\"extraInfo\": {\"timestamp\": \"17\", \"loss\": [%s,%s], "
                                    "\"n\": 0.12345678901234567}}}",
                                    values[i], values[i]));
        assert_true(trii_error_file_read(path, &error));
        assert_string_equal(error.message, "loss: \"NaN, \\");
        assert_int_equal(error.timestamp, 17);
        CHECK_OK(trii_error_file_copy(path, copy, 3));
        read_copy(text, sizeof(text));
        snprintf(wanted, sizeof(wanted), "[\"%s\", \"%s\"], \"n\": 0.1234567890123456", values[i],
                 values[i]);
        assert_non_null(strstr(text, wanted));
        assert_non_null(strstr(text, "\"errorCode\": 3"));
    }
}

/* Every beginning of a file, and every file with one byte changed: no crash (ASan), no endless
 * loop, texts that end. */
static void what_is_no_error_file_does_no_harm(void **state)
{
    char changed[sizeof(whole)];
    trii_error_file error;

    (void)state;
    for (size_t n = 0; n < sizeof(whole) - 1; n++) {
        write_file(whole, n);
        trii_error_file_read(path, &error);
        for (size_t c = 0; c < 5; c++) {
            memcpy(changed, whole, sizeof(whole));
            changed[n] = "\"\\{}\0"[c];
            write_file(changed, sizeof(whole) - 1);
            trii_error_file_read(path, &error);
            assert_true(strlen(error.message) < sizeof(error.message));
        }
    }
    memset(changed, '[', sizeof(changed));
    write_file(changed, sizeof(changed));
    assert_false(trii_error_file_read(path, &error));
}

/* Of the message the beginning, of the traceback the end, and no character in part. */
static void a_long_text_is_cut_between_characters(void **state)
{
    static const char begin[] = "{\"message\": {\"extraInfo\": {\"py_callstack\": \"";
    enum { CHARACTERS = 3000 };
    static char text[2 * (CHARACTERS + 2) * 6 + 200];
    trii_error_file error;
    size_t used = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s",
                                 i == 0 ? begin : "\"}, \"message\": \"");
        for (int k = 0; k < CHARACTERS; k++)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "\\u%04x",
                                     k < CHARACTERS / 2 ? 0x20ac : 0x20ad);
    }
    used += (size_t)snprintf(text + used, sizeof(text) - used, "\"}}");
    write_file(text, used);
    assert_true(trii_error_file_read(path, &error));
    assert_int_equal(strlen(error.message), (sizeof(error.message) - 1) / 3 * 3);
    assert_int_equal(strncmp(error.message, "\xe2\x82\xac", 3), 0);
    assert_int_equal(strlen(error.traceback), (sizeof(error.traceback) - 1) / 3 * 3);
    assert_int_equal(strncmp(error.traceback, "\xe2\x82\xad", 3), 0);
}

/* The largest is read; one byte more is not, however right it is. */
static void a_file_that_is_too_large_is_not_read(void **state)
{
    char *text = calloc(1, TRII_ERROR_FILE_BYTES + 1);
    trii_error_file error;

    (void)state;
    assert_non_null(text);
    memset(text, ' ', TRII_ERROR_FILE_BYTES + 1);
    memcpy(text, whole, sizeof(whole) - 1);
    write_file(text, TRII_ERROR_FILE_BYTES);
    assert_true(trii_error_file_read(path, &error));
    assert_false(error.too_large);
    CHECK_OK(trii_error_file_copy(path, copy, 3));
    write_file(text, TRII_ERROR_FILE_BYTES + 1);
    assert_false(trii_error_file_read(path, &error));
    assert_true(error.too_large);
    assert_string_equal(error.message, "");
    CHECK_FAILS(trii_error_file_copy(path, copy, 3), TRI_ERR_FORMAT,
                "error.json has 1048577 bytes; at most 1048576 are read");
    free(text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(both_forms_are_understood, make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(texts_that_are_not_quite_json_are_read, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(values_that_json_does_not_have_do_no_harm, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(what_is_no_error_file_does_no_harm, make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(a_file_that_is_too_large_is_not_read, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(a_long_text_is_cut_between_characters, make_folder,
                                    remove_folder),
};

TEST_MAIN(tests)
