/*
 * choose_test.c - what a user may say about the engine of a group, and what is wrong with what he
 * may not.
 */
#include "testing/check.h"

#include <string.h>

#include "comm/group/form/choose.h"

static void expect_choice(const char *text, const char *engine, trii_buffers buffers)
{
    trii_choice choice = {"none", TRII_BUFFERS_CUDA};

    CHECK_OK(trii_choice_parse(text, &choice));
    assert_string_equal(choice.engine, engine);
    assert_int_equal(choice.buffers, buffers);
}

static void one_engine_is_for_everything(void **state)
{
    (void)state;
    expect_choice(NULL, "", TRII_BUFFERS_ANY);
    expect_choice("", "", TRII_BUFFERS_ANY);
    expect_choice("auto", "", TRII_BUFFERS_ANY);
    expect_choice("tcp", "tcp", TRII_BUFFERS_ANY);
}

static void a_type_of_device_may_stand_before_it(void **state)
{
    (void)state;
    expect_choice("cpu:gloo", "gloo", TRII_BUFFERS_CPU);
    expect_choice("cpu:auto", "", TRII_BUFFERS_CPU);
    expect_choice("cuda:nccl", "nccl", TRII_BUFFERS_CUDA);
}

static tri_device a_gpu(const void *self)
{
    (void)self;
    return TRI_CUDA(0);
}

static void an_engine_is_for_one_type_of_device(void **state)
{
    const trii_engine host = {.name = "gloo"}, device = {.name = "nccl", .device = a_gpu};
    const trii_choice any = {"", TRII_BUFFERS_ANY}, cpu = {"", TRII_BUFFERS_CPU},
                      cuda = {"", TRII_BUFFERS_CUDA};

    (void)state;
    CHECK_OK(trii_choice_fits(&any, &host));
    CHECK_OK(trii_choice_fits(&any, &device));
    CHECK_OK(trii_choice_fits(&cpu, &host));
    CHECK_OK(trii_choice_fits(&cuda, &device));
    CHECK_FAILS(trii_choice_fits(&cuda, &host), TRI_ERR_INVALID_ARG,
                "\"cuda:gloo\" (tri_group_options or TRI_ENGINE): gloo is for buffers in the "
                "host's memory");
    CHECK_FAILS(trii_choice_fits(&cpu, &device), TRI_ERR_INVALID_ARG, "in a GPU's memory");
}

static void what_is_wrong_is_named_with_what_is_allowed(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"cpu:gloo,cuda:nccl", "\"cpu:gloo,cuda:nccl\" (tri_group_options or TRI_ENGINE): a group "
                               "has one engine"},
        {"auto,all_reduce>=1M:tcp", "one engine for all its calls"},
        {"all_reduce>=1M:tcp", "one engine for all its calls"},
        {"dp@tcp", "one engine for all its calls"},
        {"shm,", "one engine for all its calls"},
        {"send:tcp", "not a type of device"},
        {":tcp", "not a type of device"},
        {"cpu:", "no engine is named"},
        {"cuda:auto", "name a plug-in"},
        {"a_name_that_is_too_long", "the name of an engine is shorter"},
    };
    trii_choice choice = {.buffers = TRII_BUFFERS_CUDA};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        CHECK_FAILS(trii_choice_parse(cases[i].text, &choice), TRI_ERR_INVALID_ARG, cases[i].says);
        assert_non_null(strstr(tri_last_error(), "allowed are ENGINE, cpu:ENGINE and cuda:ENGINE"));
    }
    assert_int_equal(choice.buffers, TRII_BUFFERS_CUDA);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_engine_is_for_everything),
    cmocka_unit_test(a_type_of_device_may_stand_before_it),
    cmocka_unit_test(an_engine_is_for_one_type_of_device),
    cmocka_unit_test(what_is_wrong_is_named_with_what_is_allowed),
};

TEST_MAIN(tests)
