/* data_parallel_example_test.c - the example prints what PyTorch's tutorial of DataParallel
 * does. */
#include "testing/check.h"
#include "testing/spawn.h"

static void expect_with(const char *variable, const char *devices, const char *data_size,
                        const char *batch_size, const char *lines)
{
    const char *const env[] = {variable, NULL};
    const char *const argv[] = {spawn_bin("data_parallel"),
                                "--devices",
                                devices,
                                "--data-size",
                                data_size,
                                "--batch-size",
                                batch_size,
                                NULL};
    spawn s;

    spawn_start(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 0);
    assert_string_equal(SPAWN_OUT(&s), lines);
    assert_string_equal(SPAWN_ERR(&s), "");
    spawn_free(&s);
}

static void expect(const char *devices, const char *data_size, const char *batch_size,
                   const char *lines)
{
    expect_with("TRI_VISIBLE_DEVICES", devices, data_size, batch_size, lines); /* is not set */
}

#define MODEL                                                                                      \
    "DataParallel(\n"                                                                              \
    "  (module): Model(\n"                                                                         \
    "    (fc): Linear(in_features=5, out_features=2, bias=True)\n"                                 \
    "  )\n"                                                                                        \
    ")\n"
#define IN(n) "\tIn Model: input size [" #n ", 5] output size [" #n ", 2]\n"
#define OUT(n) "Outside: input size [" #n ", 5] output_size [" #n ", 2]\n"
#define BATCH_30 IN(8) IN(8) IN(8) IN(6) OUT(30)

static void pieces_are_those_of_the_tutorial(void **state)
{
    (void)state;
    expect("4", "100", "30",
           "Let's use 4 devices!\n" MODEL BATCH_30 BATCH_30 BATCH_30 IN(3) IN(3) IN(3) IN(1)
               OUT(10));
    expect("2", "40", "30",
           "Let's use 2 devices!\n" MODEL IN(15) IN(15) OUT(30) IN(5) IN(5) OUT(10));
    expect("3", "10", "30", "Let's use 3 devices!\n" MODEL IN(4) IN(4) IN(2) OUT(10));
    expect("8", "10", "30", "Let's use 8 devices!\n" MODEL IN(2) IN(2) IN(2) IN(2) IN(2) OUT(10));
    expect("4", "64", "64", "Let's use 4 devices!\n" MODEL IN(16) IN(16) IN(16) IN(16) OUT(64));
}

static void one_device_is_the_plain_module(void **state)
{
    static const char lines[] = "Model(\n"
                                "  (fc): Linear(in_features=5, out_features=2, bias=True)\n"
                                ")\n" IN(30) OUT(30) IN(10) OUT(10);

    (void)state;
    expect("1", "40", "30", lines);
    expect_with("TRI_VISIBLE_DEVICES=cpu:2", "4", "40", "30", lines);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_are_those_of_the_tutorial),
    cmocka_unit_test(one_device_is_the_plain_module),
};

TEST_MAIN(tests)
