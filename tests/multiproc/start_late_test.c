/*
 * start_late_test.c - starts that do not go as planned, in real processes: a place to meet that
 * does not exist, ranks that do not come, and a store that has outlived other lives of the job.
 */
#include <signal.h>

#include <trireme/comm.h>

#include "testing/check.h"
#include "testing/spawn.h"

enum { MAX_RANKS = 4, MAX_ENTRIES = 12 };

static const char *own_path; /* of this program */

/* What this program does as a worker: joins, says so, and leaves when all have; with "stay" it
 * waits to be killed. */
static int worker(bool stay)
{
    float x = 1;

    TRI_TRY(tri_init(NULL));
    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    printf("rank %d of %d: %g\n", tri_rank(), tri_world_size(), x);
    fflush(stdout);
    while (stay)
        raise(SIGSTOP);
    tri_finalize();
    return 0;
}

/* Entries are "NAME=value", the last NULL. */
static void start_rank(spawn *s, int rank, int size, int port, const char *mode,
                       const char *const *entries)
{
    const char *const argv[] = {own_path, mode, NULL};
    const char *env[MAX_ENTRIES + 1] = {0};
    char who[3][64];
    int n = 0;

    snprintf(who[0], sizeof(who[0]), "RANK=%d", rank);
    snprintf(who[1], sizeof(who[1]), "WORLD_SIZE=%d", size);
    snprintf(who[2], sizeof(who[2]), "MASTER_PORT=%d", port);
    for (int i = 0; i < 3; i++)
        env[n++] = who[i];
    while (*entries != NULL && n < MAX_ENTRIES)
        env[n++] = *entries++;
    spawn_start_bare(s, argv, env);
}

static int count_text(const char *text, const char *part)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        n++;
    return n;
}

static void check_text(const spawn *s, const char *want)
{
    if (strstr(SPAWN_ERR(s), want) == NULL)
        fail_msg("not \"%s\" in: %s", want, SPAWN_ERR(s));
}

/* Runs one rank that fails, and has said several times before why it waits; where a resolver is
 * slow to answer or the machine to run, it gets twice the time. */
static void check_failure(int rank, const char *place, const char *note, const char *failure,
                          const char *remedy)
{
    spawn s;

    for (int ms = 1500;; ms *= 2) {
        char patience[32];
        const char *const env[] = {place, patience, "TRI_NOTE_MS=200", NULL};

        snprintf(patience, sizeof(patience), "TRI_TIMEOUT_MS=%d", ms);
        start_rank(&s, rank, 3, spawn_free_port(), "join", env);
        assert_int_equal(spawn_wait(&s), 1);
        if (count_text(SPAWN_ERR(&s), note) >= 3)
            break;
        if (ms > 10000)
            fail_msg("less than three times \"%s\" in: %s", note, SPAWN_ERR(&s));
        spawn_free(&s);
    }
    check_text(&s, failure);
    check_text(&s, remedy);
    spawn_free(&s);
}

static void a_place_that_does_not_exist_is_told_while_it_is_tried(void **state)
{
    (void)state;
    check_failure(1, "MASTER_ADDR=no.such.host.invalid", "Name or service not known (tried for",
                  "TIMEOUT: init: store at no.such.host", "is the name spelt right");
    check_failure(1, "MASTER_ADDR=127.0.0.1", "Connection refused (tried for",
                  "TIMEOUT: init: store at 127.0.0.1 port", "nothing serves there");
}

static void ranks_that_do_not_come_are_told_while_they_are_waited_for(void **state)
{
    (void)state;
    check_failure(0, "MASTER_ADDR=127.0.0.1", "s for ranks 1, 2 to join",
                  "TIMEOUT: init: world: rank 0 of 3 waited ",
                  "do they run, with this MASTER_ADDR and MASTER_PORT, and does no firewall stop "
                  "them? Other hosts cannot reach this address");
}

static void a_program_that_gave_a_url_is_not_told_of_variables(void **state)
{
    char place[64];

    (void)state;
    snprintf(place, sizeof(place), "TRI_INIT=tcp://127.0.0.1:%d", spawn_free_port());
    check_failure(0, place, "s for ranks 1, 2 to join", "TIMEOUT: init: world: rank 0 of 3 waited ",
                  "do they run, with this URL, and does no firewall stop them?");
}

/* Whether a line is more than that it waits for one that comes late. */
static bool complains(const char *log)
{
    for (; *log != '\0'; log += strcspn(log, "\n"), log += *log == '\n') {
        const char *waits = strstr(log, " has waited ");

        if (waits == NULL || memchr(log, '\n', (size_t)(waits - log)) != NULL)
            return true;
    }
    return false;
}

static void check_rank(spawn *s, int rank, int size)
{
    char want[64];

    if (spawn_wait(s) != 0)
        fail_msg("rank %d: status %d: %s", rank, s->status, SPAWN_ERR(s));
    snprintf(want, sizeof(want), "rank %d of %d: %d\n", rank, size, size);
    assert_string_equal(SPAWN_OUT(s), want);
    if (complains(SPAWN_ERR(s)))
        fail_msg("rank %d says: %s", rank, SPAWN_ERR(s));
    spawn_free(s);
}

/* As under torchrun when a worker is replaced: the agent kills all, and starts them again with the
 * same restart count, the same store and perhaps another number of ranks. */
static void a_store_may_have_served_other_lives_of_the_job(void **state)
{
    static const char *const env[] = {
        "MASTER_ADDR=127.0.0.1",        "TORCHELASTIC_USE_AGENT_STORE=True",
        "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_RUN_ID=job",
        "TRI_TIMEOUT_MS=20000",         NULL};
    const tri_store_tcp_options options = {.serve = true};
    int port = spawn_free_port();
    tri_store *agent = NULL;
    spawn s[MAX_RANKS];

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", port, &options, &agent));
    for (int rank = 0; rank < 3; rank++)
        start_rank(&s[rank], rank, 3, port, "stay", env);
    for (int rank = 0; rank < 3; rank++)
        spawn_expect(&s[rank], "of 3: 3");
    for (int rank = 0; rank < 3; rank++) {
        spawn_signal(&s[rank], SIGKILL);
        assert_int_equal(spawn_wait(&s[rank]), -SIGKILL);
        spawn_free(&s[rank]);
    }
    for (int size = 4; size >= 2; size--) { /* rank 0 comes last, first, last */
        for (int i = 0; i < size; i++) {
            int rank = size % 2 == 0 ? size - 1 - i : i;

            start_rank(&s[rank], rank, size, port, "join", env);
        }
        for (int rank = 0; rank < size; rank++)
            check_rank(&s[rank], rank, size);
    }
    tri_store_unref(agent);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_place_that_does_not_exist_is_told_while_it_is_tried),
    cmocka_unit_test(ranks_that_do_not_come_are_told_while_they_are_waited_for),
    cmocka_unit_test(a_program_that_gave_a_url_is_not_told_of_variables),
    cmocka_unit_test(a_store_may_have_served_other_lives_of_the_job),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && (strcmp(argv[1], "join") == 0 || strcmp(argv[1], "stay") == 0))
        return worker(strcmp(argv[1], "stay") == 0);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
