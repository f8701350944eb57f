/*
 * template_test.c - what Python's string.Template.safe_substitute makes of the same texts.
 */
#include "launch/worker/template.h"

#include <string.h>

#include "testing/check.h"

static const trii_template_variable variables[] = {{"rank", "12"}, {"role_name", "a$rank"}};

static void variables_are_filled_in_and_the_rest_stays(void **state)
{
    static const struct {
        const char *text, *filled;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"$rank", "12"},
        {"${rank}", "12"},
        {"[$rank/${rank}0]$rank-", "[12/120]12-"},
        {"$role_name", "a$rank"}, /* a value is not looked at again */
        {"$$rank $$$rank $$", "$rank $12 $"},
        {"$ranks $rank_ $rank1 $ran", "$ranks $rank_ $rank1 $ran"},
        {"${rank ${rank1} ${} ${", "${rank ${rank1} ${} ${"},
        {"$ $- $", "$ $- $"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[64];

        assert_int_equal(trii_template_fill(cases[i].text, variables, 2, out, sizeof(out)),
                         strlen(cases[i].filled));
        assert_string_equal(out, cases[i].filled);
        assert_int_equal(trii_template_fill(cases[i].text, variables, 2, NULL, 0),
                         strlen(cases[i].filled));
    }
}

static void what_does_not_fit_is_cut(void **state)
{
    char out[8] = "xxxxxxx";

    (void)state;
    assert_int_equal(trii_template_fill("ab$role_name-$rank", variables, 2, out, 5), 11);
    assert_string_equal(out, "aba$");
    assert_int_equal(out[5], 'x');
    assert_int_equal(trii_template_fill("ab", variables, 2, out, 1), 2);
    assert_string_equal(out, "");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(variables_are_filled_in_and_the_rest_stays),
    cmocka_unit_test(what_does_not_fit_is_cut),
};

TEST_MAIN(tests)
