/*
 * remote_tutorials_test.c - those of examples/tutorials/ whose models lie in several workers:
 * alone, under trirun, and with no more than the variables that launchers set.
 * ctest: start=first timeout=150
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing/check.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"
#include "trireme/checkpoint.h"

enum { DEADLINE_MS = 120000 };

/* The number after the text's n-th occurrence, from 0. */
static double number_after(const char *out, const char *text, int n)
{
    const char *at = strstr(out, text);

    for (int i = 0; i < n && at != NULL; i++)
        at = strstr(at + 1, text);
    if (at == NULL)
        fail_msg("\"%s\" is there fewer than %d times in:\n%s", text, n + 1, out);
    return strtod(at + strlen(text), NULL);
}

/* The texts are there, each after the one before. */
static void expect_in_order(const char *out, const char *const *texts)
{
    const char *at = out;

    for (; *texts != NULL; texts++) {
        const char *found = strstr(at, *texts);

        if (found == NULL)
            fail_msg("\"%s\" is missing, or too early, in:\n%s", *texts, out);
        at = found + strlen(*texts);
    }
}

/* --- a parameter server --------------------------------------------------- */

static void two_trainers_train_the_network_of_a_server(void **state)
{
    const char *const batches = TEST_SANITIZED ? "--batches=6" : "--batches=24";
    const char *const samples = TEST_SANITIZED ? "--test_samples=32" : "--test_samples=96";
    const char *out;
    double first = 0, last = INFINITY, accuracy = 0;
    spawn s;

    (void)state;
    spawn_start(&s,
                (const char *const[]){spawn_bin("rpc_parameter_server"), "--world_size=3", batches,
                                      samples, NULL},
                NULL);
    spawn_succeeds(&s, DEADLINE_MS);
    out = SPAWN_OUT(&s);
    expect_in_order(
        out, (const char *const[]){
                 "PS master initializing RPC\n", "RPC initialized! Running parameter server...\n",
                 "Using 0 GPUs to train\n", "Putting first 2 convs on cpu\n",
                 "Putting rest of layers on cpu\n", "RPC shutdown on parameter server.\n", NULL});
    for (int rank = 1; rank <= 2; rank++) {
        char lines[5][64];

        snprintf(lines[0], sizeof(lines[0]), "Worker rank %d initializing RPC\n", rank);
        snprintf(lines[1], sizeof(lines[1]), "Worker %d done initializing RPC\n", rank);
        snprintf(lines[2], sizeof(lines[2]), "Rank %d training batch 0 loss ", rank);
        snprintf(lines[3], sizeof(lines[3]), "Rank %d training batch 5 loss ", rank);
        snprintf(lines[4], sizeof(lines[4]), "Rank %d training batch 15 loss ", rank);
        expect_in_order(out, (const char *const[]){lines[0], lines[1], lines[2], lines[3],
                                                   "Training complete!\n", NULL});
        first = fmax(first, number_after(out, lines[2], 0));
        accuracy = fmax(accuracy, number_after(out, "\nAccuracy ", rank - 1));
        if (TEST_SANITIZED) /* a sanitizer's run need not train to the end */
            continue;
        expect_in_order(out,
                        (const char *const[]){lines[3], lines[4], "Training complete!\n", NULL});
        last = fmin(last, number_after(out, lines[4], 0));
    }
    /* Nobody waits for the other: what one has learned before the other is done is chance. */
    assert_true(fabs(first - log(10)) < 0.5); /* it knows nothing */
    assert_true(TEST_SANITIZED || last < 2.1);
    assert_true(TEST_SANITIZED || accuracy > 0.25);
    spawn_free(&s);
}

/* As in the tutorial: each process is started by itself. */
static void a_server_and_a_trainer_meet_by_hand(void **state)
{
    char port[32];
    const char *const server[] = {spawn_bin("rpc_parameter_server"), "--world_size=2", "--rank=0",
                                  port, NULL};
    const char *const trainer[] = {spawn_bin("rpc_parameter_server"),
                                   "--world_size=2",
                                   "--rank=1",
                                   port,
                                   "--batches=1",
                                   "--test_samples=32",
                                   NULL};
    spawn s[2];

    (void)state;
    snprintf(port, sizeof(port), "--master_port=%d", spawn_free_port());
    spawn_start(&s[0], server, NULL);
    spawn_start(&s[1], trainer, NULL);
    spawn_succeeds(&s[1], DEADLINE_MS);
    spawn_succeeds(&s[0], DEADLINE_MS);
    trirun_has(SPAWN_OUT(&s[1]), "Rank 1 training batch 0 loss ");
    trirun_has(SPAWN_OUT(&s[1]), "Accuracy ");
    trirun_has(SPAWN_OUT(&s[0]), "RPC shutdown on parameter server.\n");
    spawn_free(&s[0]);
    spawn_free(&s[1]);
}

/* --- a pipeline ----------------------------------------------------------- */

static const double learning_rate = 0.05;

/* All numbers of both files of trained shards are equal, but for rounding. */
static void expect_equal_shards(const char *one, const char *other)
{
    for (int shard = 1; shard <= 2; shard++) {
        tri_safetensors *file[2];
        char path[600];
        int64_t n = 0;

        snprintf(path, sizeof(path), "%s/shard%d.safetensors", one, shard);
        assert_int_equal(tri_safetensors_open(path, &file[0]), TRI_OK);
        snprintf(path, sizeof(path), "%s/shard%d.safetensors", other, shard);
        assert_int_equal(tri_safetensors_open(path, &file[1]), TRI_OK);
        assert_int_equal(tri_safetensors_count(file[0]), tri_safetensors_count(file[1]));
        for (int64_t i = 0; i < tri_safetensors_count(file[0]); i++) {
            const tri_safetensors_entry *a = tri_safetensors_at(file[0], i);
            const tri_safetensors_entry *b = tri_safetensors_find(file[1], a->name);

            assert_non_null(b);
            assert_int_equal(a->bytes, b->bytes);
            for (size_t at = 0; a->dtype == TRI_DTYPE_F64 && at < a->bytes; at += sizeof(double)) {
                double x, y;

                memcpy(&x, (const char *)a->data + at, sizeof(x));
                memcpy(&y, (const char *)b->data + at, sizeof(y));
                if (!(fabs(x - y) <= 1e-9 * learning_rate))
                    fail_msg("shard %d, %s[%zu]: %.17g and %.17g", shard, a->name,
                             at / sizeof(double), x, y);
                n++;
            }
        }
        assert_true(n > 1000);
        tri_safetensors_close(file[0]);
        tri_safetensors_close(file[1]);
    }
}

/* Parameters, which differ by a twentieth of what their gradients differ by. The batch does not
 * divide by the size of pieces. */
static void a_pipeline_trains_as_one_process(void **state)
{
    char folder[2][256], save[2][300];
    spawn s[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        spawn_make_folder(folder[i], sizeof(folder[i]));
        snprintf(save[i], sizeof(save[i]), "--save=%s", folder[i]);
        spawn_start(&s[i],
                    (const char *const[]){spawn_bin("rpc_pipeline"), "--f64", "--width=4",
                                          "--image_size=33", "--batch_size=7", "--split_size=2",
                                          "--batches=2", "--verbose", save[i],
                                          i == 1 ? "--one_process" : NULL, NULL},
                    NULL);
        spawn_succeeds(&s[i], DEADLINE_MS);
        assert_int_equal(trirun_count(SPAWN_OUT(&s[i]), "Processing batch "), 2);
    }
    for (int batch = 0; batch < 2; batch++)
        assert_true(fabs(number_after(SPAWN_OUT(&s[0]), "loss ", batch) -
                         number_after(SPAWN_OUT(&s[1]), "loss ", batch)) <= 1e-9);
    expect_equal_shards(folder[0], folder[1]);
    for (int i = 0; i < 2; i++) {
        spawn_free(&s[i]);
        spawn_remove_folder(folder[i]);
    }
}

static void a_pipeline_tries_sizes_of_pieces(void **state)
{
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--standalone", "--nproc_per_node=3", spawn_bin("rpc_pipeline"), "--width=4",
                 "--image_size=33", "--batch_size=8", "--batches=2");
    spawn_succeeds(&j.run, DEADLINE_MS);
    expect_in_order(
        SPAWN_OUT(&j.run),
        (const char *const[]){"Processing batch 0\n", "Processing batch 1\n",
                              "number of splits = 1, execution time = ", "Processing batch 0\n",
                              "number of splits = 2, execution time = ",
                              "number of splits = 4, execution time = ", "Processing batch 1\n",
                              "number of splits = 8, execution time = ", NULL});
    assert_int_equal(trirun_count(SPAWN_OUT(&j.run), "Processing batch 0\n"), 4);
    trirun_end(&j, 0);
}

/* --- a remote table beside DDP -------------------------------------------- */

/* Four processes that know their ranks, and where they meet, from torchrun's variables alone. The
 * trainers compare their replicas at the end. */
static void trainers_share_a_table_and_average_the_rest(void **state)
{
    char script[1024];
    spawn s;

    (void)state;
    snprintf(script, sizeof(script),
             "export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d\n"
             "for r in 0 1 2; do RANK=$r LOCAL_RANK=$r '%s' 3 & pids=\"$pids $!\"; done\n"
             "RANK=3 LOCAL_RANK=3 '%s' 3 || exit 1\n"
             "for p in $pids; do wait $p || exit 1; done",
             spawn_free_port(), spawn_bin("rpc_ddp"), spawn_bin("rpc_ddp"));
    spawn_start(&s, (const char *const[]){"sh", "-c", script, NULL}, NULL);
    spawn_succeeds(&s, DEADLINE_MS);
    for (int epoch = 0; epoch < 3; epoch++) {
        char line[64];

        snprintf(line, sizeof(line), "Training done for epoch %d\n", epoch);
        assert_int_equal(trirun_count(SPAWN_OUT(&s), line), 2);
    }
    trirun_has(SPAWN_OUT(&s), "Distributed RPC example completed successfully.\n");
    spawn_free(&s);
}

/* --- how they are called -------------------------------------------------- */

static void remote_tutorials_say_how_they_are_called(void **state)
{
    static const char *const programs[] = {"rpc_ddp", "rpc_pipeline", "rpc_parameter_server"};
    static const char *const cases[][3] = {
        {"rpc_ddp", "x", "EPOCHS x: must be a whole number from 1 to 2147483647 (--help"},
        {"rpc_ddp", "0", "EPOCHS 0: must be"},
        {"rpc_pipeline", "--width=0", "--width 0: must be"},
        {"rpc_pipeline", "--batch_size=600", "--batch_size: at most 256 pieces"},
        {"rpc_pipeline", "600", "600: one argument too many"},
        {"rpc_parameter_server", "--world_size=1", "--world_size 1: must be"},
        {"rpc_parameter_server", "--rank=4", "--rank must be below --world_size"},
        {"rpc_parameter_server", "--batches", "--batches needs a value"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        spawn s;

        spawn_start(&s, (const char *const[]){spawn_bin(programs[i]), "--help", NULL}, NULL);
        assert_int_equal(spawn_wait(&s), 0);
        trirun_has(SPAWN_OUT(&s), "usage: ");
        trirun_has(SPAWN_OUT(&s), programs[i]);
        spawn_free(&s);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *program = spawn_bin(cases[i][0]);
        spawn s;

        spawn_start(&s, (const char *const[]){program, cases[i][1], NULL}, NULL);
        if (spawn_wait(&s) != 2)
            fail_msg("%s %s: %d: %s", program, cases[i][1], s.status, SPAWN_ERR(&s));
        assert_string_equal(SPAWN_OUT(&s), "");
        trirun_has(SPAWN_ERR(&s), cases[i][2]);
        spawn_free(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_trainers_train_the_network_of_a_server),
    cmocka_unit_test(a_server_and_a_trainer_meet_by_hand),
    cmocka_unit_test(a_pipeline_trains_as_one_process),
    cmocka_unit_test(a_pipeline_tries_sizes_of_pieces),
    cmocka_unit_test(trainers_share_a_table_and_average_the_rest),
    cmocka_unit_test(remote_tutorials_say_how_they_are_called),
};

TEST_MAIN(tests)
