/*
 * spawn_call_test.c - tri_spawn with real workers, and what a worker learns of its launcher. This
 * program is also the worker: with an argument it runs that scene.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "os/clock.h"
#include "testing/launcher_job.h"

/* --- scenes: what a started program does ---------------------------------- */

static tri_status sum_of_ranks(int rank, void *arg)
{
    float x = (float)(rank + *(int *)arg);
    tri_status status = tri_init(NULL);

    if (status == TRI_OK)
        status = tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (status == TRI_OK)
        printf("%s %d of %d: %g\n", tri_launcher(), tri_rank(), tri_world_size(), (double)x);
    return status;
}

static tri_status second_fails(int rank, void *arg)
{
    tri_store *store;

    (void)arg;
    if (rank != 1)
        pause();
    return tri_store_tcp("127.0.0.1", 70000, NULL, &store);
}

static tri_status first_crashes(int rank, void *arg)
{
    (void)arg;
    if (rank == 0)
        raise(SIGKILL);
    pause();
    return TRI_OK;
}

/* Memory that only its descriptor holds: freeing it is a part of the process's end, for which its
 * peers do not wait. */
static void grow_old(void)
{
    static char page[1 << 20];
    int fd = memfd_create("slow to close", MFD_CLOEXEC);

    memset(page, 1, sizeof(page));
    for (int i = 0; fd >= 0 && i < 96; i++) {
        if (write(fd, page, sizeof(page)) < 0)
            return;
    }
}

/* Its files are closed, which its peers see at once, long before it has ended. */
static tri_status dies_slowly(int rank, void *arg)
{
    float x = 1;
    tri_status status;

    (void)arg;
    if (rank == 1)
        grow_old();
    status = tri_init(NULL);
    if (rank == 1)
        grow_old();
    if (status == TRI_OK)
        status = tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (rank == 1)
        raise(SIGKILL);
    return status == TRI_OK ? tri_recv(NULL, &x, 1, TRI_DTYPE_F32, 1, 0, NULL) : status;
}

static tri_status waits(int rank, void *arg)
{
    (void)arg;
    printf("rank %d waits\n", rank);
    fflush(stdout);
    pause();
    return TRI_OK;
}

/* What it is told by its parent is not the first signal that it gets itself. */
static tri_status stops(int rank, void *arg)
{
    tri_status status = tri_stop_watch();
    int told;

    (void)arg;
    if (status != TRI_OK)
        return status;
    printf("rank %d ready\n", rank);
    fflush(stdout);
    while ((told = tri_stop_signal()) == 0)
        sched_yield();
    raise(SIGTERM);
    printf("rank %d told %d\n", rank, told);
    return TRI_OK;
}

static tri_status fails_at_once(int rank, void *arg)
{
    (void)arg;
    if (rank == 1) {
        puts("fails");
        fflush(stdout);
        return TRI_ERR_FORMAT;
    }
    for (;;)
        pause();
}

static void *sleep_for_ever(void *arg)
{
    (void)arg;
    pause();
    return NULL;
}

static int show(tri_status status)
{
    printf("%s: %s\n", tri_status_name(status), status == TRI_OK ? "" : tri_last_error());
    fflush(stdout);
    return status == TRI_OK ? 0 : 1;
}

static int spawn_scene(const char *name)
{
    const tri_spawn_options fresh = {.how = TRI_SPAWN_ANEW};
    const tri_spawn_options at_once = {.grace_ms = TRI_SET(0)};
    int base = 10, other = 1000;
    pthread_t thread;

    if (strcmp(name, "sum") == 0)
        return show(tri_spawn(sum_of_ranks, &base, 3, NULL));
    if (strcmp(name, "twice") == 0) /* a thread makes copies unsafe: workers begin at main */
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
    if (strcmp(name, "twice") == 0 && show(tri_spawn(sum_of_ranks, &base, 2, NULL)) == 0)
        return show(tri_spawn(sum_of_ranks, &other, 2, &fresh));
    if (strcmp(name, "fails") == 0)
        return show(tri_spawn(second_fails, NULL, 3, NULL));
    if (strcmp(name, "crashes") == 0)
        return show(tri_spawn(first_crashes, NULL, 2, &fresh));
    if (strcmp(name, "dies slowly") == 0)
        return show(tri_spawn(dies_slowly, NULL, 3, &fresh));
    if (strcmp(name, "no grace") == 0) {
        signal(SIGTERM, SIG_IGN); /* of the workers, too */
        return show(tri_spawn(fails_at_once, NULL, 2, &at_once));
    }
    if (strcmp(name, "waits") == 0)
        return show(tri_spawn(waits, NULL, 2, NULL));
    if (strncmp(name, "stops", 5) == 0)
        return tri_stop_watch() == TRI_OK
                   ? show(tri_spawn(stops, NULL, 2, strcmp(name, "stops") == 0 ? NULL : &fresh))
                   : 9;
    return 9;
}

/* The second one of a kind ends the process. */
static int twice_scene(int number)
{
    if (tri_stop_watch() != TRI_OK)
        return 9;
    raise(number);
    raise(number == SIGINT ? SIGTERM : SIGINT);
    raise(SIGUSR1);
    printf("noted %d\n", tri_stop_signal());
    fflush(stdout);
    raise(number);
    return 8;
}

static int stop_scene(void)
{
    sigset_t none, term;

    sigemptyset(&none);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (tri_stop_watch() != TRI_OK || tri_stop_signal() != 0 || tri_stop_left_ms() != TRI_FOREVER)
        return 9;
    printf("%s %d\n", tri_launcher(), tri_restart_count());
    printf("ready\n");
    fflush(stdout);
    while (tri_stop_signal() == 0)
        sigsuspend(&none); /* the signal comes here only, so none is missed */
    printf("signal %d left %s\n", tri_stop_signal(),
           tri_stop_left_ms() > 0 && tri_stop_left_ms() <= 7000 ? "in time" : "wrong");
    return 0;
}

/* --- tests ---------------------------------------------------------------- */

static void start_scene(spawn *s, const char *name)
{
    static char self[4096];
    const char *argv[] = {self, name, NULL};
    const char *env[] = {"RANK", "WORLD_SIZE", "TRI_RUN_DIR", NULL};

    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    spawn_start(s, argv, env);
}

static void workers_form_a_world_and_see_our_memory(void **state)
{
    spawn s;

    (void)state;
    start_scene(&s, "sum");
    assert_int_equal(spawn_wait(&s), 0);
    for (int rank = 0; rank < 3; rank++) {
        char line[40];

        snprintf(line, sizeof(line), "spawn %d of 3: 33\n", rank);
        assert_has(SPAWN_OUT(&s), line);
    }
    assert_int_equal(count_in(SPAWN_OUT(&s), "OK: \n"), 1);
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

static void a_program_with_threads_starts_its_workers_anew(void **state)
{
    spawn s;

    (void)state;
    start_scene(&s, "twice");
    assert_int_equal(spawn_wait(&s), 0);
    assert_int_equal(count_in(SPAWN_OUT(&s), " of 2: 21\n"), 2);
    assert_int_equal(count_in(SPAWN_OUT(&s), " of 2: 2001\n"), 2);
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

static void a_failure_is_carried_to_the_parent_and_ends_the_others(void **state)
{
    spawn s;

    (void)state;
    start_scene(&s, "fails");
    assert_int_equal(spawn_wait(&s), 1);
    assert_has(SPAWN_OUT(&s), "INVALID_ARG: rank 1: ");
    assert_has(SPAWN_OUT(&s), "70000");
    spawn_expect_no_process(&s);
    spawn_free(&s);
    start_scene(&s, "crashes");
    assert_int_equal(spawn_wait(&s), 1);
    assert_has(SPAWN_OUT(&s), "PEER_LOST: rank 0 was killed by SIGKILL\n");
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

/* They ignore SIGTERM; the default would be 5 s, as long as a busy machine may take at times. */
static void without_a_grace_the_others_are_killed_at_once(void **state)
{
    int64_t took_ns = INT64_MAX;

    (void)state;
    for (int i = 0; i < 3 && took_ns >= 5000 * TRII_NS_PER_MS; i++) {
        spawn s;

        start_scene(&s, "no grace");
        spawn_expect(&s, "fails\n");
        took_ns = trii_now_ns();
        assert_int_equal(spawn_wait(&s), 1);
        took_ns = trii_now_ns() - took_ns;
        assert_has(SPAWN_OUT(&s), "FORMAT: rank 1");
        spawn_expect_no_process(&s);
        spawn_free(&s);
    }
    assert_true(took_ns < 5000 * TRII_NS_PER_MS);
}

static void the_cause_is_told_and_not_who_was_faster(void **state)
{
    spawn s;

    (void)state;
    for (int i = 0; i < 5; i++) {
        start_scene(&s, "dies slowly");
        assert_int_equal(spawn_wait(&s), 1);
        assert_has(SPAWN_OUT(&s), "PEER_LOST: rank 1 was killed by SIGKILL\n");
        spawn_expect_no_process(&s);
        spawn_free(&s);
    }
}

static void workers_die_with_their_parent(void **state)
{
    spawn s;

    (void)state;
    start_scene(&s, "waits");
    spawn_expect(&s, "rank 0 waits");
    spawn_expect(&s, "rank 1 waits");
    spawn_signal(&s, SIGKILL);
    spawn_wait(&s);
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

static void a_signal_reaches_workers_under_its_own_name(void **state)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};

    (void)state;
    for (int i = 0; i < 6; i++) {
        char line[40];
        spawn s;

        start_scene(&s, i < 3 ? "stops" : "stops, and begins anew");
        spawn_expect(&s, "rank 0 ready");
        spawn_expect(&s, "rank 1 ready");
        spawn_signal(&s, numbers[i % 3]);
        assert_int_equal(spawn_wait(&s), 0);
        for (int rank = 0; rank < 2; rank++) {
            snprintf(line, sizeof(line), "rank %d told %d\n", rank, numbers[i % 3]);
            assert_has(SPAWN_OUT(&s), line);
        }
        spawn_expect_no_process(&s);
        spawn_free(&s);
    }
}

static tri_status never(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    return TRI_ERR_INTERNAL;
}

static void wrong_calls_are_refused(void **state)
{
    const tri_spawn_options wrong = {.how = (tri_spawn_how)7}, negative = {.grace_ms = TRI_SET(-1)};

    (void)state;
    CHECK_FAILS(tri_spawn(never, NULL, 0, NULL), TRI_ERR_INVALID_ARG, "nprocs is 0");
    CHECK_FAILS(tri_spawn(never, NULL, 1, &wrong), TRI_ERR_INVALID_ARG, "options");
    CHECK_FAILS(tri_spawn(never, NULL, 1, &negative), TRI_ERR_INVALID_ARG, "grace_ms -1");
}

static void a_worker_learns_who_started_it_and_how_long_it_has(void **state)
{
    char self[4096] = "";
    launcher_job j;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRIRUN(&j, "--nproc-per-node=1", "--shutdown-timeout=7", self, "stop");
    spawn_expect(&j.trirun, "trirun 0\nready\n");
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_OUT(&j.trirun), "signal 15 left in time\n");
    trirun_end(&j, 0);
}

static void the_second_signal_of_a_kind_ends_a_process(void **state)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    static const char *const names[] = {"SIGTERM twice", "SIGINT twice"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        char line[40];
        spawn s;

        start_scene(&s, names[i]);
        assert_int_equal(spawn_wait(&s), -numbers[i]);
        snprintf(line, sizeof(line), "noted %d\n", numbers[i]);
        assert_string_equal(SPAWN_OUT(&s), line);
        spawn_free(&s);
    }
}

static void launchers_are_told_apart(void **state)
{
    static const struct {
        const char *set, *name;
    } cases[] = {
        {"PMI_RANK", "pmi"},       {"OMPI_COMM_WORLD_RANK", "openmpi"},
        {"RANK", "environment"},   {"TORCHELASTIC_RUN_ID", "torchrun"},
        {"TRI_RUN_DIR", "trirun"},
    };

    (void)state;
    clearenv();
    assert_string_equal(tri_launcher(), "none");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        setenv(cases[i].set, "1", 1); /* each is stronger than those before */
        assert_string_equal(tri_launcher(), cases[i].name);
    }
    assert_int_equal(tri_restart_count(), 0);
    setenv("TORCHELASTIC_RESTART_COUNT", "4", 1);
    assert_int_equal(tri_restart_count(), 4);
}

static tri_status says_no_line(int rank, void *arg)
{
    (void)arg;
    return rank == 1 ? TRI_ERR_FORMAT : TRI_OK;
}

static tri_status says_it_goes_on(int rank, void *arg)
{
    (void)arg;
    return rank == 1 ? TRI_INPROGRESS : TRI_OK;
}

static void a_status_alone_is_told_in_words(void **state)
{
    (void)state;
    CHECK_FAILS(tri_spawn(NULL, NULL, 1, NULL), TRI_ERR_INVALID_ARG,
                ""); /* not the workers' line */
    CHECK_FAILS(tri_spawn(says_no_line, NULL, 2, NULL), TRI_ERR_FORMAT,
                "rank 1: fn returned this status and no line");
    CHECK_FAILS(tri_spawn(says_it_goes_on, NULL, 2, NULL), TRI_ERR_STATE, "INPROGRESS");
}

static ssize_t write_for_ever(void *cookie, const char *bytes, size_t n)
{
    (void)cookie;
    (void)bytes;
    pause(); /* until the parent ends us */
    return (ssize_t)n;
}

/* Rank 0 fails and leaves the group, and does not come to an end while anybody else lives: its
 * output waits for ever. What the others say is `*arg`, or what they saw. */
static tri_status first_fails_and_lingers(int rank, void *arg)
{
    tri_status said = *(const tri_status *)arg, status = tri_init(NULL);
    tri_store *store;
    float x;

    if (status != TRI_OK)
        return status;
    if (rank == 0) {
        FILE *slow = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_for_ever});

        if (slow == NULL || fputc('x', slow) == EOF)
            return TRI_ERR_NO_MEMORY;
        return tri_store_tcp("127.0.0.1", 70000, NULL, &store);
    }
    status = tri_recv(NULL, &x, 1, TRI_DTYPE_F32, 0, 0, NULL);
    return status == TRI_OK || said == TRI_OK ? status : said;
}

static void a_cause_is_told_also_while_it_is_still_leaving(void **state)
{
    tri_status said[] = {TRI_OK, TRI_ERR_FORMAT};

    (void)state;
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(tri_spawn(first_fails_and_lingers, &said[i], 3, NULL), TRI_ERR_INVALID_ARG,
                    "rank 0: store_tcp: host 127.0.0.1 port 70000");
}

static tri_status calls_itself(int rank, void *arg)
{
    (void)rank;
    return tri_spawn(calls_itself, arg, 1, arg);
}

static void workers_of_workers_without_end_are_refused(void **state)
{
    tri_spawn_options copies = {.how = TRI_SPAWN_COPY};

    (void)state;
    CHECK_FAILS(tri_spawn(calls_itself, &copies, 1, &copies), TRI_ERR_STATE, "8 deep");
}

static tri_status starts_anew(int rank, void *arg)
{
    (void)rank;
    return tri_spawn(starts_anew, arg, 1, &(tri_spawn_options){.how = TRI_SPAWN_ANEW});
}

/* They would begin at main, whose call of tri_spawn is not theirs. */
static void workers_cannot_start_workers_anew(void **state)
{
    (void)state;
    CHECK_FAILS(tri_spawn(starts_anew, NULL, 1, &(tri_spawn_options){.how = TRI_SPAWN_COPY}),
                TRI_ERR_STATE, "TRI_SPAWN_COPY");
}

static tri_status does_nothing(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    return TRI_OK;
}

static tri_status second_returns_at_once(int rank, void *arg)
{
    (void)arg;
    return rank == 1 ? TRI_OK : tri_init(NULL);
}

static tri_status second_leaves(int rank, void *arg)
{
    (void)arg;
    if (rank == 1)
        _exit(0);
    return tri_init(NULL);
}

static tri_status second_joins_once(int rank, void *arg)
{
    tri_status status = tri_init(NULL);

    (void)arg;
    tri_finalize();
    return status != TRI_OK || rank == 1 ? status : tri_init(NULL);
}

/* The others would wait for it until their deadline. */
static void one_that_ends_before_it_joined_is_not_waited_for(void **state)
{
    (void)state;
    CHECK_FAILS(tri_spawn(second_returns_at_once, NULL, 3, NULL), TRI_ERR_PEER_LOST,
                "rank 1 of 3 ended with status 0 before it joined the group");
    CHECK_FAILS(tri_spawn(second_leaves, NULL, 3, NULL), TRI_ERR_PEER_LOST,
                "rank 1 of 3 ended with status 0 before it joined the group");
    CHECK_FAILS(tri_spawn(second_joins_once, NULL, 3, NULL), TRI_ERR_PEER_LOST,
                "rank 1 of 3 ended with status 0 before it joined the group");
    CHECK_FAILS(tri_spawn(second_leaves, NULL, 40, NULL), TRI_ERR_PEER_LOST,
                "rank 1 of 40 ended with status 0 before it joined the group");
}

/* As a parent may have left it: (trap '' CHLD; ./program). */
static void ignored_ends_of_children_are_seen_all_the_same(void **state)
{
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    CHECK_OK(tri_spawn(does_nothing, NULL, 2, NULL));
    CHECK_FAILS(tri_spawn(says_no_line, NULL, 2, NULL), TRI_ERR_FORMAT, "rank 1");
    signal(SIGCHLD, SIG_DFL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(workers_form_a_world_and_see_our_memory),
    cmocka_unit_test(a_program_with_threads_starts_its_workers_anew),
    cmocka_unit_test(a_failure_is_carried_to_the_parent_and_ends_the_others),
    cmocka_unit_test(without_a_grace_the_others_are_killed_at_once),
    cmocka_unit_test(the_cause_is_told_and_not_who_was_faster),
    cmocka_unit_test(workers_die_with_their_parent),
    cmocka_unit_test(a_signal_reaches_workers_under_its_own_name),
    cmocka_unit_test(wrong_calls_are_refused),
    cmocka_unit_test(a_status_alone_is_told_in_words),
    cmocka_unit_test(a_cause_is_told_also_while_it_is_still_leaving),
    cmocka_unit_test(workers_of_workers_without_end_are_refused),
    cmocka_unit_test(workers_cannot_start_workers_anew),
    cmocka_unit_test(one_that_ends_before_it_joined_is_not_waited_for),
    cmocka_unit_test(ignored_ends_of_children_are_seen_all_the_same),
    cmocka_unit_test(a_worker_learns_who_started_it_and_how_long_it_has),
    cmocka_unit_test(the_second_signal_of_a_kind_ends_a_process),
    cmocka_unit_test(launchers_are_told_apart),
};

int main(int argc, char **argv)
{
    static const char *const scenes[] = {"sum",     "twice",       "fails",
                                         "crashes", "dies slowly", "no grace",
                                         "waits",   "stops",       "stops, and begins anew"};

    for (size_t i = 0; argc > 1 && i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        if (strcmp(argv[1], scenes[i]) == 0)
            return spawn_scene(argv[1]);
    }
    if (argc > 1 && strcmp(argv[1], "stop") == 0)
        return stop_scene();
    if (argc > 1 && strstr(argv[1], " twice") != NULL)
        return twice_scene(argv[1][3] == 'T' ? SIGTERM : SIGINT);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
