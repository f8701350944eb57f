/*
 * rpc_rnn_test.c - examples/tutorials/rpc_rnn.c: a network over two workers prints what the
 * tutorial prints however they are started, and trains as in one process.
 * ctest: timeout=150
 */
#include <stdlib.h>

#include "testing/check.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"

enum { DEADLINE_MS = 120000 };

static const char epochs[] =
    "Training epoch 0\nTraining epoch 1\nTraining epoch 2\nTraining epoch 3\nTraining epoch 4\n"
    "Training epoch 5\nTraining epoch 6\nTraining epoch 7\nTraining epoch 8\nTraining epoch 9\n";

static void the_program_starts_its_two_workers(void **state)
{
    spawn s;

    (void)state;
    spawn_start(&s, (const char *const[]){spawn_bin("rpc_rnn"), NULL}, NULL);
    spawn_succeeds(&s, DEADLINE_MS);
    assert_string_equal(SPAWN_OUT(&s), epochs);
    spawn_free(&s);
}

/* As torchrun does; rank 1 is the trainer. */
static void the_environment_names_its_two_workers(void **state)
{
    char rank[16], port[32];
    const char *const env[] = {rank, "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", port, NULL};
    spawn s[2];

    (void)state;
    snprintf(port, sizeof(port), "MASTER_PORT=%d", spawn_free_port());
    for (int r = 0; r < 2; r++) {
        snprintf(rank, sizeof(rank), "RANK=%d", r);
        spawn_start(&s[r], (const char *const[]){spawn_bin("rpc_rnn"), NULL}, env);
    }
    for (int r = 0; r < 2; r++) {
        spawn_succeeds(&s[r], DEADLINE_MS);
        assert_string_equal(SPAWN_OUT(&s[r]), r == 1 ? epochs : "");
        spawn_free(&s[r]);
    }
}

/* The lines that begin so. */
static void lines_of(const char *text, const char *begin, char *lines_out, size_t bytes)
{
    size_t used = 0;

    for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        if (strncmp(text, begin, strlen(begin)) != 0)
            continue;
        assert_true(used + (size_t)(end + 1 - text) < bytes);
        memcpy(lines_out + used, text, (size_t)(end + 1 - text));
        used += (size_t)(end + 1 - text);
    }
    lines_out[used] = '\0';
}

/* Under trirun, bit for bit: nine digits tell any two floats apart. */
static void two_workers_train_as_one_process(void **state)
{
    const char *const argv[] = {spawn_bin("rpc_rnn"), "--verbose", "--dropout=0", "--one-process",
                                NULL};
    char one_losses[2048], losses[2048], told[512];
    trirun_job j;
    spawn one;

    (void)state;
    spawn_start(&one, argv, NULL);
    spawn_succeeds(&one, DEADLINE_MS);
    lines_of(SPAWN_OUT(&one), "loss ", one_losses, sizeof(one_losses));
    assert_int_equal(trirun_count(one_losses, "loss "), 50);
    trirun_has(SPAWN_OUT(&one), "all: 414 parameters\n");

    TRIRUN_START(&j, "--standalone", "--nproc_per_node=2", spawn_bin("rpc_rnn"), "--verbose",
                 "--dropout=0");
    spawn_succeeds(&j.run, DEADLINE_MS);
    lines_of(SPAWN_OUT(&j.run), "loss ", losses, sizeof(losses));
    assert_string_equal(losses, one_losses);
    lines_of(SPAWN_OUT(&j.run), "Training epoch ", told, sizeof(told));
    assert_string_equal(told, epochs);
    trirun_has(SPAWN_OUT(&j.run), "LSTM on trainer: 372 parameters\n");
    trirun_has(SPAWN_OUT(&j.run), "embedding table on ps: 14 parameters\n");
    trirun_has(SPAWN_OUT(&j.run), "decoder on ps: 28 parameters\n");
    trirun_end(&j, 0);
    spawn_free(&one);
}

static void the_program_says_how_it_is_called(void **state)
{
    static const char *const mistakes[][2] = {
        {"5", "rpc_rnn: 5: one argument too many"},
        {"--dropout=1", "rpc_rnn: --dropout must be below 1"},
        {"--dropout=x", "rpc_rnn: --dropout x: must be a number from 0 to 1"}};
    spawn s;

    (void)state;
    spawn_start(&s, (const char *const[]){spawn_bin("rpc_rnn"), "--help", NULL}, NULL);
    assert_int_equal(spawn_wait(&s), 0);
    trirun_has(SPAWN_OUT(&s), "usage: rpc_rnn ");
    spawn_free(&s);
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        spawn_start(&s, (const char *const[]){spawn_bin("rpc_rnn"), mistakes[i][0], NULL}, NULL);
        assert_int_equal(spawn_wait(&s), 2);
        trirun_has(SPAWN_ERR(&s), mistakes[i][1]);
        spawn_free(&s);
    }
    /* One worker cannot be both. */
    spawn_start(&s,
                (const char *const[]){spawn_bin("trirun"), "--standalone", "--nproc_per_node=1",
                                      spawn_bin("rpc_rnn"), NULL},
                NULL);
    assert_int_not_equal(spawn_wait(&s), 0);
    trirun_has(SPAWN_ERR(&s), "rpc_rnn: 1 processes: start two");
    spawn_free(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_program_starts_its_two_workers),
    cmocka_unit_test(the_environment_names_its_two_workers),
    cmocka_unit_test(two_workers_train_as_one_process),
    cmocka_unit_test(the_program_says_how_it_is_called),
};

TEST_MAIN(tests)
