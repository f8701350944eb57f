/*
 * tool_test.c - the trireme tool from outside: `info` and `perf`.
 */
#include <unistd.h>

#include "testing/check.h"
#include "testing/spawn.h"

static void run(spawn *s, const char *const *args, int status)
{
    const char *argv[20] = {spawn_bin("trireme")};

    for (int i = 0; args[i] != NULL; i++)
        argv[i + 1] = args[i];
    spawn_start(s, argv, NULL);
    if (spawn_wait(s) != status)
        fail_msg("trireme %s: status %d instead of %d\n%s\n%s", args[0], s->status, status,
                 SPAWN_OUT(s), SPAWN_ERR(s));
}
#define RUN(s, status, ...) run(s, (const char *const[]){__VA_ARGS__, NULL}, status)

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is missing in:\n%s", part, text);
}

static void info_says_what_is_here_and_where_settings_come_from(void **state)
{
    const char *const argv[] = {spawn_bin("trireme"), "info", NULL};
    const char *const env[] = {"TRI_TIMEOUT_MS=1234",       "TRI_ENGINE",
                               "TRI_CHECK=bogus",           "OMP_NUM_THREADS=7",
                               "LOCAL_WORLD_SIZE=two",      "TRI_NUM_THREADS=x",
                               "TRI_TIMEOTU_MS=5",          "TRI_PLUGIN_PATH=/no/such/folder",
                               "TRI_LOG=group:loud,louder", NULL};
    spawn s;

    (void)state;
    spawn_start(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 0);
    assert_has(SPAWN_OUT(&s), "trireme       ");
    assert_has(SPAWN_OUT(&s), "\nkernels       ");
    assert_has(SPAWN_OUT(&s), "\nself          yes\n");
    assert_has(SPAWN_OUT(&s), "\nshm           yes\n");
    assert_has(SPAWN_OUT(&s), "\nhierarchy     yes\n");
    assert_has(SPAWN_OUT(&s),
               "\nnccl          no: install NCCL and CUDA and build again (looked for ");
    assert_has(SPAWN_OUT(&s), "\nTRI_TIMEOUT_MS     1234                 environment  600000 ");
    assert_has(SPAWN_OUT(&s), "\nTRI_ENGINE         -                    default ");
    assert_has(SPAWN_OUT(&s), "\nOMP_NUM_THREADS    7                    environment ");
    assert_has(SPAWN_OUT(&s), "\nLOCAL_WORLD_SIZE   two                  environment ");
    assert_has(SPAWN_OUT(&s), "not understood: TRI_CHECK=bogus must be nan or order\n");
    assert_has(SPAWN_OUT(&s),
               "not understood: TRI_NUM_THREADS=x must be an integer from 1 to 1024");
    assert_has(SPAWN_OUT(&s),
               "TRI_TIMEOTU_MS is not a setting of Trireme (did you mean TRI_TIMEOUT_MS");
    assert_has(SPAWN_ERR(&s), "TRI_LOG: louder is not a level");
    assert_has(SPAWN_ERR(&s), "TRI_LOG: group:loud must end with error, warn, info, debug or ");
    spawn_free(&s);
}

static void info_says_what_the_keys_of_a_deepspeed_file_do(void **state)
{
    char path[] = "/tmp/tri-test-XXXXXX";
    const char *const argv[] = {spawn_bin("trireme"), "info", "deepspeed", path, NULL};
    static const char *const texts[] = {
        "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true},"
        " \"wandb\": {\"enabled\": false}}",
        "{\n\"zero_optimisation\": {}}"};
    spawn s;

    (void)state;
    close(mkstemp(path));
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(path, "w");

        assert_non_null(file);
        fputs(texts[i], file);
        fclose(file);
        spawn_start(&s, argv, NULL);
        assert_int_equal(spawn_wait(&s), i);
        if (i == 0) {
            assert_has(SPAWN_OUT(&s),
                       "zero_optimization.stage                                  2 ");
            assert_has(SPAWN_OUT(&s), "true         no effect: buckets are summed while backward");
            assert_has(SPAWN_OUT(&s), "{..}         off\n");
        } else {
            assert_has(SPAWN_ERR(&s), ":2: zero_optimisation: not a key: did you mean");
        }
        spawn_free(&s);
    }
    remove(path);
}

static void help_is_there_after_what_a_command_is_to_do(void **state)
{
    static const char *const cases[][3] = {{"ckpt", "show", "--help"},
                                           {"info", "deepspeed", "--help"},
                                           {"store", "serve", "-h"},
                                           {"perf", "--help"}};
    char usage[64];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const argv[] = {spawn_bin("trireme"), cases[i][0], cases[i][1], cases[i][2],
                                    NULL};
        spawn s;

        spawn_start(&s, argv, NULL);
        assert_int_equal(spawn_wait(&s), 0);
        snprintf(usage, sizeof(usage), "usage: trireme %s", cases[i][0]);
        assert_has(SPAWN_OUT(&s), usage);
        assert_string_equal(SPAWN_ERR(&s), "");
        spawn_free(&s);
    }
}

static void wrong_usage_ends_with_status_2(void **state)
{
    static const char *const cases[][5] = {
        {NULL},
        {"no-such-command"},
        {"info", "x"},
        {"info", "deepspeed"},
        {"perf"},
        {"perf", "all_to_nobody"},
        {"perf", "all_reduce", "--bytes", "4,x"},
        {"perf", "all_reduce", "--nproc"},
        {"perf", "all_reduce", "--bytes=3"},
        {"perf", "all_gather", "--bytes=4"},
        {"perf", "all_reduce", "--dtype=u4"},
        {"perf", "all_reduce", "--what", "1"},
        {"perf", "all_reduce", "--outstanding", "2"},
        {"perf", "send_recv", "--outstanding", "0"},
        {"perf", "all_reduce", "--engine", "foo"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        spawn s;

        run(&s, cases[i], 2);
        assert_string_equal(SPAWN_OUT(&s), "");
        assert_has(SPAWN_ERR(&s), "trireme");
        assert_null(strstr(SPAWN_ERR(&s), "trirun"));
        spawn_free(&s);
    }
}

static void a_slip_gets_the_nearest_word(void **state)
{
    static const char *const cases[][7] = {
        /* what comes, and the words before it */
        {"no command named prf; did you mean perf?", "prf"},
        {"no command named wyh; did you mean why?", "wyh"},
        {"no operation named allreduce; did you mean all_reduce?", "perf", "allreduce"},
        {"unknown option --nporc; did you mean --nproc?", "perf", "all_reduce", "--nporc", "2"},
        {"unknown option --chekc; did you mean --check?", "perf", "all_reduce", "--chekc"},
        {"unknown option --byte=4; did you mean --bytes?", "perf", "all_reduce", "--byte=4"},
        {"unknown option --al; did you mean --all?", "ps", "--al"},
        {"unknown option --jsno; did you mean --json?", "why", "--jsno"},
        {"unknown option --ouput; did you mean --output?", "plot", "x", "--ouput", "y"},
        {"unknown option --endpont; did you mean --endpoint?", "store", "--endpont", "a:1", "keys"},
        {"no action named kesy; did you mean keys?", "store", "kesy"},
        {"no command named something-else\n", "something-else"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        spawn s;

        run(&s, cases[i] + 1, 2);
        assert_string_equal(SPAWN_OUT(&s), "");
        assert_has(SPAWN_ERR(&s), cases[i][0]);
        assert_has(SPAWN_ERR(&s), "--help` ");
        spawn_free(&s);
    }
}

static void perf_times_right_results(void **state)
{
    static const char *const operations[] = {"all_reduce", "broadcast", "all_gather",
                                             "reduce_scatter"};
    static const char *const engines[] = {"shm", "tcp"};
    static const char *const dtypes[] = {"f32", "f64", "i32", "i64", "f16", "bf16"};

    (void)state;
    for (size_t i = 0; i < 12; i++) {
        spawn s;

        RUN(&s, 0, "perf", operations[i % 4], "--engine", engines[i / 4 % 2], "--nproc=3",
            "--bytes", "24,6K", "--seconds=0.01", "--check", "--dtype", dtypes[i / 2], "--buffers",
            i % 3 == 0 ? "heap" : "arena");
        assert_has(SPAWN_OUT(&s), "3 ranks");
        assert_has(SPAWN_OUT(&s), "results are right\n");
        spawn_expect_no_process(&s);
        spawn_free(&s);
    }
}

/* Every message is sent before any is received, and the last one is received first. */
static void perf_has_many_messages_under_way(void **state)
{
    static const char *const engines[] = {"shm", "tcp"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        spawn s;

        RUN(&s, 0, "perf", "send_recv", "--engine", engines[i % 2], "--nproc=3", "--bytes",
            "4,6K,300000", "--seconds=0.01", "--check", "--outstanding", i < 2 ? "64" : "1",
            "--buffers", i < 2 ? "heap" : "arena");
        if (i < 2)
            assert_has(SPAWN_OUT(&s), "64 messages at a time\n");
        assert_has(SPAWN_OUT(&s), "results are right\n");
        spawn_free(&s);
    }
}

static void perf_writes_its_table_as_json(void **state)
{
    char folder[256], path[300], text[4096];
    FILE *file;
    size_t got;
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/perf.json", folder);
    RUN(&s, 0, "perf", "all_reduce", "--bytes=16,32", "--check", "--json", path);
    assert_has(SPAWN_OUT(&s), "results are right\n");
    file = fopen(path, "r");
    assert_non_null(file);
    got = fread(text, 1, sizeof(text) - 1, file);
    text[got] = '\0';
    fclose(file);
    assert_has(text, "[\n  {\"op\": \"all_reduce\", \"engine\": \"shm\", \"ranks\": 2, ");
    assert_has(text, "\"bytes\": 32, ");
    assert_has(text, "}\n]\n");
    spawn_free(&s);
    RUN(&s, 0, "perf", "all_reduce", "--bytes=16,32", "--check", "--seconds=0.01", "--json", "-");
    assert_memory_equal(SPAWN_OUT(&s), "[\n  {\"op\": ", 11);
    assert_has(SPAWN_OUT(&s), "}\n]\n");
    assert_null(strstr(SPAWN_OUT(&s), "results"));
    assert_has(SPAWN_ERR(&s), "results are right\n");
    assert_false(access("-", F_OK) == 0);
    spawn_free(&s);
    RUN(&s, 1, "perf", "all_reduce", "--nproc=1", "--bytes=16", "--json", "/nowhere/x");
    assert_has(SPAWN_ERR(&s), "cannot write /nowhere/x");
    spawn_free(&s);
    spawn_remove_folder(folder);
}

/* A status alone would be a riddle. */
static void an_output_that_is_full_is_told(void **state)
{
    static const char *const cases[][2] = {
        {"info", "info"},
        {"ps", "ps"},
        {"ps --json", "ps"},
        {"why --jobs", "why"},
        {"why --help", "why"},
        {"--help", "--help"},
        {"--version", "--version"},
        {"perf all_reduce --nproc=1 --bytes=16 --seconds=0.01", "perf"},
        {"store serve --endpoint 127.0.0.1:0", "store"},
    };
    char folder[256], home[300], words[300], line[100];
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", folder);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const argv[] = {"sh", "-c", words, spawn_bin("trireme"), NULL};
        const char *const env[] = {home, NULL};

        snprintf(words, sizeof(words), "exec \"$0\" %s >/dev/full", cases[i][0]);
        snprintf(line, sizeof(line), "trireme %s: cannot write to stdout", cases[i][1]);
        spawn_start(&s, argv, env);
        if (spawn_wait(&s) != 1 || strstr(SPAWN_ERR(&s), line) == NULL)
            fail_msg("%s: %d: %s", cases[i][0], s.status, SPAWN_ERR(&s));
        if (i < 2)
            assert_has(SPAWN_ERR(&s), ": No space left on device\n");
        spawn_free(&s);
    }
    for (int n = 1; n <= 2; n++) {
        snprintf(words, sizeof(words), "--nproc=%d", n);
        RUN(&s, 1, "perf", "all_reduce", words, "--bytes=16", "--json", "/dev/full");
        snprintf(line, sizeof(line), "trireme perf: %scannot write /dev/full: No space left on ",
                 n > 1 ? "rank 0: " : "");
        assert_has(SPAWN_ERR(&s), line);
        spawn_free(&s);
    }
    spawn_remove_folder(folder);
}

/* Rank 0 prints; it is the ranks' parent who has the exit status. */
static void a_full_output_of_one_rank_of_several_is_told(void **state)
{
    static const char *const options[] = {"", "--check", "--json -"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        char words[200];
        const char *const argv[] = {"sh", "-c", words, spawn_bin("trireme"), NULL};
        spawn s;

        snprintf(words, sizeof(words),
                 "exec \"$0\" perf all_reduce --nproc 2 --bytes 16 --seconds 0.01 %s >/dev/full",
                 options[i]);
        spawn_start(&s, argv, NULL);
        if (spawn_wait(&s) != 1)
            fail_msg("%s: status %d\n%s", options[i], s.status, SPAWN_ERR(&s));
        assert_has(SPAWN_ERR(&s),
                   "trireme perf: rank 0: cannot write to stdout: No space left on device\n");
        spawn_expect_no_process(&s);
        spawn_free(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(info_says_what_is_here_and_where_settings_come_from),
    cmocka_unit_test(info_says_what_the_keys_of_a_deepspeed_file_do),
    cmocka_unit_test(help_is_there_after_what_a_command_is_to_do),
    cmocka_unit_test(wrong_usage_ends_with_status_2),
    cmocka_unit_test(a_slip_gets_the_nearest_word),
    cmocka_unit_test(perf_times_right_results),
    cmocka_unit_test(perf_has_many_messages_under_way),
    cmocka_unit_test(perf_writes_its_table_as_json),
    cmocka_unit_test(an_output_that_is_full_is_told),
    cmocka_unit_test(a_full_output_of_one_rank_of_several_is_told),
};

TEST_MAIN(tests)
