/*
 * launcher_output_test.c - what workers print, through trirun: whole lines, byte by byte, to a
 * terminal, to a reader that is slow or goes; and the store that trirun serves to them.
 */
#include <signal.h>
#include <unistd.h>

#include "testing/launcher_job.h"

static void a_flood_arrives_whole_and_line_by_line(void **state)
{
    enum { WORKERS = 4, LINES = 20000 };
    static int seen[WORKERS];
    launcher_job j;

    (void)state;
    memset(seen, 0, sizeof(seen));
    TRIRUN(&j, "--nproc-per-node", "4", "awk",
           ("BEGIN { r = ENVIRON[\"RANK\"]; for (i = 0; i < 20000; i++)"
            " printf \"%d %d %080d\\n\", r, i, i }"));
    assert_int_equal(spawn_wait(&j.trirun), 0);
    for (char *line = SPAWN_OUT(&j.trirun), *next; (next = next_line(line)); line = next) {
        int rank, number, again, end = 0;

        if (sscanf(line, "%d %d %d%n", &rank, &number, &again, &end) != 3 || line[end] != '\0' ||
            rank < 0 || rank >= WORKERS || number != seen[rank] || again != number)
            fail_msg("a line that nobody wrote: %s", line);
        seen[rank]++;
    }
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(seen[i], LINES);
    trirun_end(&j, 0);
}

static void output_passes_byte_by_byte_where_nobody_else_prints(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "printf", "a\\rb\\nno end");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_int_equal(j.trirun.used[0], 10);
    assert_memory_equal(SPAWN_OUT(&j.trirun), "a\rb\nno end", 10);
    trirun_end(&j, 0);
    /* both went to the same pipe: the order stays */
    TRIRUN(&j, "sh", "-c", "exec 2>&1; echo one; echo two >&2; echo three");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "one\ntwo\nthree\n");
    trirun_end(&j, 0);
}

static void workers_see_a_terminal_where_trirun_has_one(void **state)
{
    launcher_job j;

    (void)state;
    if (!trirun_start_on_terminal(&j, "sh -c 'test -t 1 && test -t 2 && stty size <&1; echo a'",
                                  NULL))
        return;
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), " 77\r\na\r\n"); /* the terminal's own line ends, once */
    trirun_end(&j, 0);
}

static void an_unfinished_line_is_shown_and_never_joined(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "2", "--label-output", "sh", "-c",
           ("[ $RANK = 0 ] && { printf 'prompt> '; exec sleep 1000; }\n"
            "while :; do echo tick; sleep 0.05; done"));
    spawn_expect(&j.trirun, "[0]: prompt> ");
    spawn_expect(&j.trirun, "[0]: prompt> \n[1]: tick\n");
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
}

/* As if trirun were not there. */
static void a_bar_is_redrawn_in_place_while_nobody_else_prints(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "2", "sh", "-c",
           "[ $RANK = 0 ] && printf '\r 1%%\r 2%%\r 3%%\ndone\n'; exit 0");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), " 1%\r 2%\r 3%\ndone\n");
    trirun_end(&j, 0);
}

/* Two that are drawn at once cost no line for each of their states, and no other text its line. */
static void bars_of_several_workers_are_drawn_over_each_other(void **state)
{
    static const char *const styles[] = {
        "for (i = 1; i <= 2000; i++) printf \"\\r%d of 2000\", i; print \"\"", /* as tqdm */
        "for (i = 1; i <= 2000; i++) printf \"%d of 2000\\r\", i; print \"\"", /* as C programs */
        "for (i = 1; i <= 2000; i++) printf \"\\r    \\r%d of 2000\", i; print \"\"",
        "for (i = 1; i <= 2000; i++) printf \"%d of 2000\\r\", i",
    };
    static const char *const labels[] = {"-l", "--nnodes=1"};

    (void)state;
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++) {
        for (size_t k = 0; k < 2; k++) {
            char program[300];
            int lines;
            launcher_job j;

            snprintf(program, sizeof(program), "BEGIN { %s; print \"done\" }", styles[i]);
            TRIRUN(&j, "--nproc-per-node", "2", labels[k], "awk", program);
            assert_int_equal(spawn_wait(&j.trirun), 0);
            lines = count_in(SPAWN_OUT(&j.trirun), "\n");
            if (lines > 10)
                fail_msg("%d lines:\n%.2000s", lines, SPAWN_OUT(&j.trirun));
            for (int rank = 0; rank < 2 && k == 0; rank++) {
                char last[40], done[40];

                snprintf(last, sizeof(last), "\r[%d]: 2000 of 2000", rank);
                snprintf(done, sizeof(done), "[%d]: done\n", rank);
                assert_has(SPAWN_OUT(&j.trirun), last);
                assert_has(SPAWN_OUT(&j.trirun), done);
            }
            assert_int_equal(count_in(SPAWN_OUT(&j.trirun), "done\n"), 2);
            trirun_end(&j, 0);
        }
    }
}

static void a_line_beside_a_bar_stands_alone(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "2", "--label-output", "sh", "-c",
           ("[ $RANK = 0 ] && { printf '\r 1%%\r 2%%'; exec sleep 1000; }\n"
            "while :; do echo tick; sleep 0.05; done"));
    spawn_expect(&j.trirun, "[0]:  2%\n[1]: tick\n");
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
}

/* Neither has ended its line. */
static void a_bar_is_drawn_over_that_of_another_worker(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "2", "--label-output", "sh", "-c",
           ("[ $RANK = 0 ] && { printf '\r 1%%\r 2%%'; exec sleep 1000; }\n"
            "while :; do printf '\r 7%%'; sleep 0.05; done"));
    spawn_expect(&j.trirun, "[0]:  2%\r[1]: ");
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
}

static void on_a_terminal_a_bar_keeps_its_label_and_red_is_for_errors(void **state)
{
    const char *const env[] = {"NO_COLOR", NULL};
    launcher_job j;

    (void)state;
    if (!trirun_start_on_terminal(&j,
                                  "-l --nproc-per-node=2 sh -c '[ $RANK = 0 ] && stty size <&1 &&"
                                  " printf \"\\r1%%\\r2%%\\n\"; exit 0'",
                                  env))
        return;
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), " 72\r\n\033[36m[0]: \033[0m1%\r\033[36m[0]: \033[0m2%\r\n");
    trirun_end(&j, 0);
}

/* Nobody reads trirun's output: workers wait, trirun does not. */
static void trirun_hears_signals_while_its_output_is_stuck(void **state)
{
    launcher_job j;
    int n = 0, pipe_fd;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "2", "--shutdown-timeout=1", "yes");
    pipe_fd = j.trirun.fd[0];
    spawn_expect(&j.trirun, "y\n"); /* and so the pipe will be full but for a little */
    j.trirun.fd[0] = -1;            /* spawn no longer reads it */
    while (spawn_count(&j.trirun) < 4 && n++ < 100000)
        ;
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    close(pipe_fd);
    trirun_end(&j, 0);
}

static void a_reader_that_leaves_ends_the_job(void **state)
{
    const char *const argv[] = {"sh", "-c", "\"$0\" --nproc-per-node 2 yes | head -n 2",
                                spawn_bin("trirun"), NULL};
    launcher_job j;

    (void)state;
    trirun_start_by(&j, argv, NULL);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "y\ny\n");
    assert_string_equal(SPAWN_ERR(&j.trirun),
                        "trirun: the reader of stdout has ended, and so has the job\n");
    trirun_end(&j, 0);
}

static void the_agent_serves_the_store(void **state)
{
    launcher_job j;

    (void)state;
    /* only the shell's tools: something accepts connections on the port that workers are told */
    TRIRUN(&j, "--nproc-per-node", "1", "sh", "-c",
           ("port=$(printf %04X $MASTER_PORT); grep -q \"0100007F:$port 00000000:0000 0A\" "
            "/proc/net/tcp && echo listening; echo port $MASTER_PORT"));
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "listening\n");
    trirun_end(&j, 0);
}

static void a_store_that_the_network_reaches_is_warned_of_once(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "2", "--master-addr", "0.0.0.0", "--master-port", "0", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "is open to the network"), 1);
    assert_has(SPAWN_ERR(&j.trirun), "--master-addr 127.0.0.1");
    trirun_end(&j, 0);
    TRIRUN(&j, "--nproc-per-node", "2", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_ERR(&j.trirun), "");
    trirun_end(&j, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_flood_arrives_whole_and_line_by_line),
    cmocka_unit_test(output_passes_byte_by_byte_where_nobody_else_prints),
    cmocka_unit_test(workers_see_a_terminal_where_trirun_has_one),
    cmocka_unit_test(an_unfinished_line_is_shown_and_never_joined),
    cmocka_unit_test(a_bar_is_redrawn_in_place_while_nobody_else_prints),
    cmocka_unit_test(bars_of_several_workers_are_drawn_over_each_other),
    cmocka_unit_test(a_line_beside_a_bar_stands_alone),
    cmocka_unit_test(a_bar_is_drawn_over_that_of_another_worker),
    cmocka_unit_test(on_a_terminal_a_bar_keeps_its_label_and_red_is_for_errors),
    cmocka_unit_test(trirun_hears_signals_while_its_output_is_stuck),
    cmocka_unit_test(a_reader_that_leaves_ends_the_job),
    cmocka_unit_test(the_agent_serves_the_store),
    cmocka_unit_test(a_store_that_the_network_reaches_is_warned_of_once),
};

TEST_MAIN(tests)
