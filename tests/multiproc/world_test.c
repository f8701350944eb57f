/*
 * world_test.c - tri_init in real processes, whatever started them, with examples/plain_mlp.c as
 * the program: its losses must be the same for every number of workers.
 */
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <trireme/comm.h>

#include "testing/check.h"
#include "testing/launcher_job.h"
#include "testing/scratch.h"

static const char *own_path; /* of this program */

enum { N_LINES = 6, N_ENTRIES = 5 };

typedef struct losses {
    double total[N_LINES];
    double parts[N_LINES]; /* summed over the ranks */
    int seen[N_LINES];     /* ranks that printed the line */
} losses;

static void read_losses(const char *text, int size, losses *l)
{
    int step, rank, of, n = 0;
    double total, part;

    for (; sscanf(text, "step %d loss %lf (%lf of it from rank %d of %d)", &step, &total, &part,
                  &rank, &of) == 5;
         text = strchr(text, '\n') + 1) {
        int i = step / 50 - 1;

        assert_true(i >= 0 && i < N_LINES);
        assert_int_equal(of, size);
        if (l->seen[i] > 0)
            assert_true(total == l->total[i]); /* all ranks print the same digits */
        l->total[i] = total;
        l->parts[i] += part;
        l->seen[i]++;
        n++;
    }
    assert_string_equal(text, ""); /* nothing else was printed */
    assert_true(n > 0);
}

static void check_losses(const losses *l, const losses *alone, int size)
{
    for (int i = 0; i < N_LINES; i++) {
        assert_int_equal(l->seen[i], size);
        assert_true(l->total[i] == alone->total[i]);
        assert_true(l->parts[i] - l->total[i] < 1e-8 * size);
        assert_true(l->total[i] - l->parts[i] < 1e-8 * size);
    }
}

static losses run_alone(void)
{
    const char *const argv[] = {spawn_bin("plain_mlp"), NULL};
    const char *const env[] = {"RANK", "WORLD_SIZE", NULL};
    losses l = {0};
    spawn s;

    spawn_start(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 0);
    read_losses(SPAWN_OUT(&s), 1, &l);
    assert_true(l.total[N_LINES - 1] < 0.5 * l.total[0]); /* it learns */
    spawn_free(&s);
    return l;
}

static void any_number_of_workers_trains_the_same_network(void **state)
{
    losses alone = run_alone();

    (void)state;
    for (int size = 1; size <= 4; size++) {
        char number[16];
        const char *const argv[] = {spawn_bin("trirun"), "--nproc-per-node", number,
                                    spawn_bin("plain_mlp"), NULL};
        losses l = {0};
        spawn s;

        snprintf(number, sizeof(number), "%d", size);
        spawn_start(&s, argv, NULL);
        if (spawn_wait(&s) != 0)
            fail_msg("%d workers: status %d: %s", size, s.status, SPAWN_ERR(&s));
        read_losses(SPAWN_OUT(&s), size, &l);
        check_losses(&l, &alone, size);
        spawn_expect_no_process(&s);
        spawn_free(&s);
    }
}

/* Three workers, each with its own environment; rank 0 serves the store. */
static void check_three(char env[3][N_ENTRIES][160])
{
    losses alone = run_alone(), l = {0};
    const char *const argv[] = {spawn_bin("plain_mlp"), NULL};
    spawn s[3];

    for (int rank = 2; rank >= 0; rank--) { /* the one that serves comes last */
        const char *entries[N_ENTRIES + 1] = {0};

        for (int i = 0; i < N_ENTRIES; i++)
            entries[i] = env[rank][i];
        spawn_start_bare(&s[rank], argv, entries);
    }
    for (int rank = 0; rank < 3; rank++) {
        if (spawn_wait(&s[rank]) != 0)
            fail_msg("rank %d: status %d: %s", rank, s[rank].status, SPAWN_ERR(&s[rank]));
        read_losses(SPAWN_OUT(&s[rank]), 3, &l);
        spawn_free(&s[rank]);
    }
    check_losses(&l, &alone, 3);
}

static void four_variables_are_enough(void **state)
{
    char env[3][N_ENTRIES][160];
    int port = spawn_free_port();

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        snprintf(env[rank][0], sizeof(env[rank][0]), "RANK=%d", rank);
        snprintf(env[rank][1], sizeof(env[rank][0]), "WORLD_SIZE=3");
        snprintf(env[rank][2], sizeof(env[rank][0]), "MASTER_ADDR=127.0.0.1");
        snprintf(env[rank][3], sizeof(env[rank][0]), "MASTER_PORT=%d", port);
        snprintf(env[rank][4], sizeof(env[rank][0]), "UNUSED=");
    }
    check_three(env);
}

static void a_url_is_enough(void **state)
{
    char env[3][N_ENTRIES][160];
    int port = spawn_free_port();

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        snprintf(env[rank][0], sizeof(env[rank][0]),
                 "TRI_INIT=tcp://localhost:%d?rank=%d&world_size=3", port, rank);
        for (int i = 1; i < N_ENTRIES; i++)
            snprintf(env[rank][i], sizeof(env[rank][i]), "UNUSED%d=", i);
    }
    check_three(env);
}

static void mpiruns_variables_are_enough(void **state)
{
    char env[3][N_ENTRIES][160];

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        snprintf(env[rank][0], sizeof(env[rank][0]), "OMPI_COMM_WORLD_RANK=%d", rank);
        snprintf(env[rank][1], sizeof(env[rank][0]), "OMPI_COMM_WORLD_SIZE=3");
        snprintf(env[rank][2], sizeof(env[rank][0]), "OMPI_COMM_WORLD_LOCAL_RANK=%d", rank);
        snprintf(env[rank][3], sizeof(env[rank][0]), "PMIX_NAMESPACE=test-%d", (int)getpid());
        snprintf(env[rank][4], sizeof(env[rank][0]), "OMPI_COMM_WORLD_LOCAL_SIZE=3");
    }
    check_three(env);
}

/* What this program does under trirun: rank 1 ends without a word while the others reduce. It
 * is large, so that its peers have given up long before it has ended. */
static int worker(void)
{
    size_t bytes = (size_t)100 << 20;
    char *large;
    float x = 1;

    TRI_TRY(tri_init(NULL));
    large = malloc(bytes);
    assert_non_null(large);
    memset(large, tri_rank() + 1, tri_rank() == 1 ? bytes : 1);
    for (int i = 0;; i++) {
        if (tri_rank() == 1 && i == 100 && large[0] == 2)
            raise(SIGKILL);
        TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_MAX, NULL));
    }
}

static void a_worker_that_dies_is_named_before_its_peers(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "3", own_path, "worker");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "failed: rank 1 was killed by SIGKILL");
    trirun_end(&j, 1);
}

/* In a pipe, and in a file. */
static void a_line_that_a_worker_printed_is_not_lost_when_it_is_killed(void **state)
{
    launcher_job j;
    char *printed;
    size_t bytes;
    scratch s;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "2", own_path, "killed");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_OUT(&j.trirun), "line of rank 1\n");
    trirun_end(&j, 1);
    scratch_begin(&s);
    TRIRUN(&j, "--nproc-per-node", "2", "sh", "-c", "exec \"$0\" killed >\"$1/out.$RANK\"",
           own_path, s.dir);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    printed = scratch_read(scratch_path(&s, "out.1"), &bytes);
    assert_string_equal(printed, "line of rank 1\n");
    free(printed);
    trirun_end(&j, 1);
    scratch_end(&s);
}

/* A buffer that holds text, or has held some. */
static void lines_after_others_that_were_printed_before_joining_are_not_lost(void **state)
{
    static const char *const modes[] = {"printed", "flushed"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        launcher_job j;

        TRIRUN(&j, "--nproc-per-node", "2", own_path, modes[i]);
        assert_int_equal(spawn_wait(&j.trirun), 1);
        assert_has(SPAWN_OUT(&j.trirun), "rank 1 before\n");
        assert_has(SPAWN_OUT(&j.trirun), "line of rank 1\n");
        trirun_end(&j, 1);
    }
}

/* A program that has chosen so itself: tri_init does not buffer what was not. */
static void stdout_that_a_worker_made_unbuffered_stays_so(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "2", own_path, "unbuffered");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_OUT(&j.trirun), "half a line of rank 1");
    trirun_end(&j, 1);
}

static void a_worker_whose_stdout_is_closed_joins(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "2", "sh", "-c", "exec \"$0\" closed >&-", own_path);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_ERR(&j.trirun), "rank 1 joined");
    trirun_end(&j, 0);
}

/* A rank that comes back at once still finds the store of the world that it has left. */
static int worker_again(void)
{
    for (int i = 0; i < 30; i++) {
        TRI_TRY(tri_init(NULL));
        tri_finalize();
    }
    return 0;
}

/* Rank 0 serves the store; all do this. */
static void run_three(const char *mode)
{
    const char *const argv[] = {own_path, mode, NULL};
    char rank[16], port[32];
    const char *const env[] = {rank,         port, "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1",
                               "LOCAL_RANK", NULL};
    spawn s[3];

    snprintf(port, sizeof(port), "MASTER_PORT=%d", spawn_free_port());
    for (int r = 0; r < 3; r++) {
        snprintf(rank, sizeof(rank), "RANK=%d", r);
        spawn_start(&s[r], argv, env);
    }
    for (int r = 0; r < 3; r++) {
        int status = spawn_wait(&s[r]);

        if (status != 0)
            fail_msg("rank %d: %s", r, SPAWN_ERR(&s[r]));
        spawn_free(&s[r]);
    }
}

static void ranks_join_again_and_again_where_rank_0_serves(void **state)
{
    (void)state;
    run_three("again");
}

/* The process that has each rank, in the store of rank 0. */
static void read_holders(tri_store *store, char *holders_out[3])
{
    for (int r = 1; r < 3; r++) {
        char key[32];

        snprintf(key, sizeof(key), "trireme/0/rank/%d", r);
        TRI_TRY(tri_store_get(store, key, 20000, (void **)&holders_out[r], NULL));
    }
}

/* Rank 0, until all others have ended and their next programs are here. */
static void stay(void)
{
    char *before[3] = {NULL}, *now[3] = {NULL};
    tri_store *store = NULL;
    bool same = true;
    int port = (int)strtol(getenv("MASTER_PORT"), NULL, 10);

    TRI_TRY(tri_store_tcp("127.0.0.1", port, NULL, &store));
    read_holders(store, before);
    TRI_TRY(tri_barrier(NULL, NULL));
    while (same) {
        read_holders(store, now);
        same = strcmp(now[1], before[1]) == 0 || strcmp(now[2], before[2]) == 0;
        for (int r = 1; r < 3; r++)
            tri_store_free(now[r]);
    }
    for (int r = 1; r < 3; r++)
        tri_store_free(before[r]);
    tri_store_unref(store);
}

/* A worker that runs two programs, of which that of rank 0 ends late. */
static int run_program(bool first)
{
    TRI_TRY(tri_init(NULL));
    if (first && tri_rank() == 0)
        stay();
    else
        TRI_TRY(tri_barrier(NULL, NULL));
    tri_finalize();
    if (first)
        execl(own_path, own_path, "second", NULL);
    return first;
}

static void programs_follow_each_other_though_rank_0_is_late(void **state)
{
    (void)state;
    run_three("first");
}

static void a_bad_environment_is_one_clear_line(void **state)
{
    const char *const argv[] = {spawn_bin("plain_mlp"), NULL};
    const char *const env[] = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", NULL};
    spawn s;

    (void)state;
    spawn_start_bare(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 1);
    assert_non_null(strstr(SPAWN_ERR(&s), "INVALID_ARG: init: env:// needs RANK, WORLD_SIZE, "
                                          "MASTER_ADDR and MASTER_PORT: the environment variable "
                                          "MASTER_PORT is not set\n"));
    spawn_free(&s);
}

static void a_setting_that_nobody_reads_is_told_once(void **state)
{
    const char *const argv[] = {spawn_bin("trirun"), "--nproc-per-node", "3",
                                spawn_bin("plain_mlp"), NULL};
    const char *const unknown[] = {"TRI_TIMEOTU_MS=5", "TRI_LOG=loud", NULL};
    const char *const bad[] = {"TRI_SPIN_US=often", NULL};
    const char *at;
    spawn s;

    (void)state;
    spawn_start(&s, argv, unknown);
    assert_int_equal(spawn_wait(&s), 0);
    at = strstr(SPAWN_ERR(&s),
                "TRI_TIMEOTU_MS is not a setting of Trireme (did you mean TRI_TIMEOUT");
    assert_non_null(at);
    assert_null(strstr(at + 1, "TRI_TIMEOTU_MS"));
    assert_non_null(strstr(SPAWN_ERR(&s), "TRI_LOG: loud is not a level"));
    spawn_free(&s);
    spawn_start(&s, argv, bad);
    assert_int_equal(spawn_wait(&s), 1);
    assert_non_null(strstr(SPAWN_ERR(&s),
                           "INVALID_ARG: init: TRI_SPIN_US=often must be an integer (us) "
                           "from 0 to 1000000"));
    spawn_free(&s);
}

static void a_world_is_joined_once_and_left(void **state)
{
    (void)state;
    clearenv();
    assert_false(tri_is_initialized());
    assert_int_equal(tri_world_size(), 1);
    for (int i = 0; i < 3; i++) {
        float x = 3;

        CHECK_OK(tri_init(NULL));
        assert_true(tri_is_initialized());
        CHECK_FAILS(tri_init(NULL), TRI_ERR_STATE, "joined the world already");
        CHECK_OK(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        assert_true(x == 3);
        tri_finalize();
        tri_finalize();
        assert_false(tri_is_initialized());
    }
    CHECK_FAILS(tri_init(&(tri_init_options){.url = "tcp://h"}), TRI_ERR_INVALID_ARG,
                "port number missing");
    assert_false(tri_is_initialized());
}

static void a_missing_rank_ends_in_a_timeout(void **state)
{
    tri_init_options options = {.group.timeout_ms = 200};

    (void)state;
    clearenv();
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    {
        char port[16];

        snprintf(port, sizeof(port), "%d", spawn_free_port());
        setenv("MASTER_PORT", port, 1);
    }
    CHECK_FAILS(tri_init(&options), TRI_ERR_TIMEOUT, "init");
    assert_false(tri_is_initialized());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_line_that_a_worker_printed_is_not_lost_when_it_is_killed),
    cmocka_unit_test(lines_after_others_that_were_printed_before_joining_are_not_lost),
    cmocka_unit_test(stdout_that_a_worker_made_unbuffered_stays_so),
    cmocka_unit_test(a_worker_whose_stdout_is_closed_joins),
    cmocka_unit_test(any_number_of_workers_trains_the_same_network),
    cmocka_unit_test(four_variables_are_enough),
    cmocka_unit_test(a_url_is_enough),
    cmocka_unit_test(mpiruns_variables_are_enough),
    cmocka_unit_test(a_worker_that_dies_is_named_before_its_peers),
    cmocka_unit_test(ranks_join_again_and_again_where_rank_0_serves),
    cmocka_unit_test(programs_follow_each_other_though_rank_0_is_late),
    cmocka_unit_test(a_bad_environment_is_one_clear_line),
    cmocka_unit_test(a_setting_that_nobody_reads_is_told_once),
    cmocka_unit_test(a_world_is_joined_once_and_left),
    cmocka_unit_test(a_missing_rank_ends_in_a_timeout),
};

/* What it prints is in no buffer when it is killed. */
static int worker_that_is_killed(const char *mode)
{
    const bool unbuffered = strcmp(mode, "unbuffered") == 0;

    if (unbuffered)
        (void)setvbuf(stdout, NULL, _IONBF, 0);
    if (strcmp(mode, "printed") == 0 || strcmp(mode, "flushed") == 0)
        printf("rank %s before\n", getenv("RANK"));
    if (strcmp(mode, "flushed") == 0)
        (void)fflush(stdout);
    TRI_TRY(tri_init(NULL));
    if (unbuffered) {
        printf("half a line of rank %d", tri_rank());
    } else {
        printf("line of rank %d", tri_rank());
        putchar('\n');
    }
    if (tri_rank() == 1)
        (void)raise(SIGKILL);
    TRI_TRY(tri_barrier(NULL, NULL));
    return 0;
}

static int worker_without_stdout(void)
{
    TRI_TRY(tri_init(NULL));
    printf("lost\n");
    fprintf(stderr, "rank %d joined\n", tri_rank());
    tri_finalize();
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const killed[] = {"killed", "unbuffered", "printed", "flushed"};

    own_path = argv[0];
    for (size_t i = 0; argc > 1 && i < sizeof(killed) / sizeof(killed[0]); i++) {
        if (strcmp(argv[1], killed[i]) == 0)
            return worker_that_is_killed(argv[1]);
    }
    if (argc > 1 && strcmp(argv[1], "closed") == 0)
        return worker_without_stdout();
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return worker();
    if (argc > 1 && (strcmp(argv[1], "first") == 0 || strcmp(argv[1], "second") == 0))
        return run_program(argv[1][0] == 'f');
    if (argc > 1 && strcmp(argv[1], "again") == 0)
        return worker_again();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
