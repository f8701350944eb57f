/*
 * choose_test.c - what a user may say about engines, and what is wrong with what he may not.
 */
#include "testing/check.h"

#include <string.h>

#include "group/form/choose.h"

/* The engine that a text gives a call of group "world"; "" = by layout. */
static const char *chosen(const char *text, trii_kind kind, size_t bytes)
{
    static trii_choice choice;
    const trii_collective call = {.kind = kind, .bytes = bytes};
    int rule;

    CHECK_OK(trii_choice_parse(text, "world", &choice));
    rule = trii_choice_rule(&choice, &call);
    return rule >= 0 ? choice.rules[rule].engine : choice.engine;
}

static void one_engine_is_for_everything(void **state)
{
    (void)state;
    assert_string_equal(chosen(NULL, TRII_KIND_SEND, 4), "");
    assert_string_equal(chosen("auto", TRII_KIND_SEND, 4), "");
    assert_string_equal(chosen("tcp", TRII_KIND_SEND, 4), "tcp");
    assert_string_equal(chosen("tcp", TRII_KIND_ALL_TO_ALL_V, 0), "tcp");
    assert_string_equal(chosen("cpu:gloo", TRII_KIND_BARRIER, 0), "gloo");
}

static void rules_are_by_operation_and_size(void **state)
{
    static const char text[] = "shm,all_reduce>=1M:hierarchy,all_reduce<1k:tcp,send:mpi,:gloo";

    (void)state;
    assert_string_equal(chosen(text, TRII_KIND_ALL_REDUCE, (1 << 20) - 1), "gloo");
    assert_string_equal(chosen(text, TRII_KIND_ALL_REDUCE, 1 << 20), "hierarchy");
    assert_string_equal(chosen(text, TRII_KIND_ALL_REDUCE, 1023), "tcp");
    assert_string_equal(chosen(text, TRII_KIND_RECV_ANY, 1023), "mpi");
    assert_string_equal(chosen(text, TRII_KIND_BROADCAST, 1023), "gloo");
    assert_string_equal(chosen("shm,all_to_all:tcp", TRII_KIND_ALL_TO_ALL_V, 0), "tcp");
    assert_string_equal(chosen("shm,all_to_all<1G:tcp", TRII_KIND_ALL_TO_ALL_V, 0), "shm");
    assert_string_equal(chosen("shm,all_to_all<1G:tcp", TRII_KIND_ALL_TO_ALL, 8), "tcp");
    assert_string_equal(chosen("shm,gather>=1<3:tcp", TRII_KIND_GATHER, 2), "tcp");
    assert_string_equal(chosen("shm,gather>=1<3:tcp", TRII_KIND_GATHER, 3), "shm");
}

static void items_are_for_groups(void **state)
{
    (void)state;
    assert_string_equal(chosen("tcp,other@shm", TRII_KIND_SEND, 4), "tcp");
    assert_string_equal(chosen("tcp,world@shm", TRII_KIND_SEND, 4), "shm");
    assert_string_equal(chosen("tcp,wor*@send:shm", TRII_KIND_SEND, 4), "shm");
    assert_string_equal(chosen("tcp,wort*@send:shm", TRII_KIND_SEND, 4), "tcp");
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"shm,allreduce:tcp", "\"allreduce:tcp\" (tri_group_options or TRI_ENGINE): there is no "
                              "such operation"},
        {"all_reduce>1M:tcp", "a size is >=BYTES or <BYTES"},
        {"all_reduce>=x:tcp", "not a number of bytes"},
        {"all_reduce<0:tcp", "not a number of bytes"},
        {"all_reduce>=99999999999999999999:tcp", "not a number of bytes"},
        {"all_reduce>=2K<1K:tcp", "no size fits"},
        {"send>=2K:tcp", "whatever their size"},
        {"all_reduce:", "not the name of an engine"},
        {"shm,,tcp", "not the name of an engine"},
        {"cpu:gloo,cuda:nccl", "\"cuda:nccl\" (tri_group_options or TRI_ENGINE): what is in a GPU"},
        {"a_name_that_is_too_long", "not the name of an engine"},
        {"other@all_reduce>1M:tcp", "a size is"},
    };
    char long_text[TRII_ENGINE_TEXT + 1];
    trii_choice choice = {.n_rules = 77};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++)
        CHECK_FAILS(trii_choice_parse(cases[i].text, "world", &choice), TRI_ERR_INVALID_ARG,
                    cases[i].says);
    memset(long_text, 'a', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    CHECK_FAILS(trii_choice_parse(long_text, "world", &choice), TRI_ERR_INVALID_ARG,
                "256 bytes of text, at most 255");
    CHECK_FAILS(trii_choice_parse("a:b,gather:b,gather:b,gather:b,gather:b,gather:b,gather:b,"
                                  "gather:b,gather:b,gather:b",
                                  "world", &choice),
                TRI_ERR_INVALID_ARG, "no such operation");
    CHECK_FAILS(trii_choice_parse("gather:b,gather:b,gather:b,gather:b,gather:b,gather:b,gather:b,"
                                  "gather:b,gather:b",
                                  "world", &choice),
                TRI_ERR_INVALID_ARG, "too many");
    assert_int_equal(choice.n_rules, 77);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_engine_is_for_everything),
    cmocka_unit_test(rules_are_by_operation_and_size),
    cmocka_unit_test(items_are_for_groups),
    cmocka_unit_test(what_is_wrong_is_named),
};

TEST_MAIN(tests)
