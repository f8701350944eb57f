/*
 * escape_test.c - texts that users gave as JSON, Prometheus and terminals take them.
 */
#include "launch/output/escape.h"

#include "testing/check.h"

static void json_is_json_whatever_the_bytes(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"a\"\\\n", "\"a\\\"\\\\\\u000a\""},
        {"Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x9a\xa2",
         "\"Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x9a\xa2\""},
        {"Gr\xfc\xdf\x65", "\"Gr\xef\xbf\xbd\xef\xbf\xbd\x65\""}, /* Latin 1 */
        {"\xc3", "\"\xef\xbf\xbd\""},                             /* cut */
        {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},             /* overlong */
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"", "\"\""},
    };
    char out[100];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(trii_json_quote(cases[i].text, out, sizeof(out)), cases[i].expected);
}

static void no_character_is_cut_in_two(void **state)
{
    char out[64];

    (void)state;
    for (size_t room = 16; room < 40; room++) {
        size_t length;

        memset(out, 'x', sizeof(out));
        trii_json_quote("\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
                        "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac",
                        out, room);
        length = strlen(out);
        assert_true(length < room);
        assert_true(length % 3 == 2 && out[0] == '"' && out[length - 1] == '"');
        assert_true(length + 3 >= room || length == 32);
    }
    trii_json_quote("a long text that does not fit into it", out, 24);
    assert_string_equal(out, "\"a long text that does\"");
}

static void a_label_of_prometheus_has_three_escapes(void **state)
{
    char out[100];

    (void)state;
    assert_string_equal(trii_metrics_quote("a\n\"\\\t\x01\xfc", out, sizeof(out)),
                        "\"a\\n\\\"\\\\\t\x01\xef\xbf\xbd\"");
}

static void a_terminal_gets_no_control_characters(void **state)
{
    char out[100];

    (void)state;
    assert_string_equal(trii_text_plain("a\033[2J\n\t\x7f\xfc\xc2\x9b\xc3\xbc", out, sizeof(out)),
                        "a\\x1b[2J\\n\\t\\x7f\\xfc\\xc2\\x9b\xc3\xbc");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(json_is_json_whatever_the_bytes),
    cmocka_unit_test(no_character_is_cut_in_two),
    cmocka_unit_test(a_label_of_prometheus_has_three_escapes),
    cmocka_unit_test(a_terminal_gets_no_control_characters),
};

TEST_MAIN(tests)
