/*
 * start_test.c - the ways to join a world without trirun, in real processes.
 */
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <trireme/comm.h>

#include "testing/check.h"
#include "testing/scratch.h"
#include "testing/spawn.h"

enum { MAX_RANKS = 8, MAX_ENTRIES = 12, TWICE_MS = TEST_SANITIZED ? 12000 : 3000 };

static const char *own_path; /* of this program */

/* What this program does as a worker: a sum over the ranks, and what it knows of itself. */
static int worker(const char *timeout_ms)
{
    const tri_init_options options = {
        .group.timeout_ms = timeout_ms != NULL ? strtol(timeout_ms, NULL, 10) : 20000};
    float x;

    TRI_TRY(tri_init(&options));
    x = (float)(1 << tri_rank());
    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    printf("rank %d of %d, local %d of %d: %g\n", tri_rank(), tri_world_size(), tri_local_rank(),
           tri_local_world_size(), x);
    fflush(stdout);
    if (getenv("NO_WORD") != NULL)
        _exit(0);
    if (getenv("STAYS") != NULL)
        raise(SIGSTOP);
    tri_finalize();
    return 0;
}

/* One rank with an environment of nothing but these entries ("" = none). */
static void start_rank(spawn *s, char entries[MAX_ENTRIES][200], const char *timeout_ms)
{
    const char *const argv[] = {own_path, "worker", timeout_ms, NULL};
    const char *env[MAX_ENTRIES + 1] = {0};
    int n = 0;

    for (int i = 0; i < MAX_ENTRIES; i++) {
        if (entries[i][0] != '\0')
            env[n++] = entries[i];
    }
    spawn_start_bare(s, argv, env);
}

static void check_rank(spawn *s, int rank, int size, int local_rank, int local_size)
{
    char want[100];

    if (spawn_wait(s) != 0)
        fail_msg("rank %d: status %d: %s", rank, s->status, SPAWN_ERR(s));
    snprintf(want, sizeof(want), "rank %d of %d, local %d of %d: %d\n", rank, size, local_rank,
             local_size, (1 << size) - 1);
    assert_string_equal(SPAWN_OUT(s), want);
    spawn_free(s);
}

/* Until somebody serves there: the ranks that come next have little patience. */
static void wait_for_server(int port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                        .sin_port = htons((uint16_t)port)};
    int failed = 1;

    while (failed != 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        failed = connect(fd, (const struct sockaddr *)&address, sizeof(address));
        close(fd);
        sched_yield();
    }
}

/* --- file:// -------------------------------------------------------------- */

static void start_file(spawn *s, const char *path, int rank, int size, const char *timeout_ms)
{
    char entries[MAX_ENTRIES][200] = {""};

    snprintf(entries[0], sizeof(entries[0]), "TRI_INIT=file://%s?rank=%d&world_size=%d", path, rank,
             size);
    start_rank(s, entries, timeout_ms);
}

/* How often the file has the text. */
static int count_text(const char *path, const char *text)
{
    size_t bytes;
    char *data = scratch_read(path, &bytes);
    const char *at = data;
    int n = 0;

    while ((at = memmem(at, bytes - (size_t)(at - data), text, strlen(text))) != NULL) {
        at += strlen(text);
        n++;
    }
    free(data);
    return n;
}

/* Until the file has the text n times; the case's own deadline bounds it. */
static void wait_for_count(const char *path, const char *text, int n)
{
    while (access(path, F_OK) != 0 || count_text(path, text) < n)
        sched_yield();
}

static void wait_for_text(const char *path, const char *text)
{
    wait_for_count(path, text, 1);
}

static void a_file_is_enough_and_does_not_stay(void **state)
{
    spawn s[3];
    scratch folder;

    (void)state;
    scratch_begin(&folder);
    for (int run = 0; run < 3; run++) { /* in any order of arrival */
        for (int i = 0; i < 3; i++)
            start_file(&s[(i + run) % 3], scratch_path(&folder, "meet"), (i + run) % 3, 3, NULL);
        for (int rank = 0; rank < 3; rank++)
            check_rank(&s[rank], rank, 3, rank, 3);
        assert_int_equal(scratch_count(folder.dir), 0);
    }
    scratch_end(&folder);
}

/* Whatever a run that was killed half way left in the file does not confuse the next one. */
static void a_file_of_a_run_that_crashed_does_no_harm(void **state)
{
    spawn s[3];
    scratch folder;
    int identities;

    (void)state;
    scratch_begin(&folder);
    for (int crashed = 0; crashed < 3; crashed++) {
        const char *path = scratch_path(&folder, "meet");
        char key[16];

        snprintf(key, sizeof(key), "rank/%d", crashed);
        start_file(&s[crashed], path, crashed, 3, NULL);
        wait_for_text(path, key);
        spawn_signal(&s[crashed], SIGKILL);
        assert_int_equal(spawn_wait(&s[crashed]), -SIGKILL);
        spawn_free(&s[crashed]);
    }
    /* two of them had found each other */
    for (int rank = 0; rank < 2; rank++)
        start_file(&s[rank], scratch_path(&folder, "meet"), rank, 3, NULL);
    wait_for_text(scratch_path(&folder, "meet"), "/come/1");
    for (int rank = 0; rank < 2; rank++) {
        spawn_signal(&s[rank], SIGKILL);
        assert_int_equal(spawn_wait(&s[rank]), -SIGKILL);
        spawn_free(&s[rank]);
    }
    assert_int_equal(scratch_count(folder.dir), 1);
    /* the others see what the dead rank 0 wrote before another one comes */
    identities = count_text(scratch_path(&folder, "meet"), "|");
    for (int rank = 1; rank < 3; rank++)
        start_file(&s[rank], scratch_path(&folder, "meet"), rank, 3, NULL);
    wait_for_count(scratch_path(&folder, "meet"), "|", identities + 2);
    start_file(&s[0], scratch_path(&folder, "meet"), 0, 3, NULL);
    for (int rank = 0; rank < 3; rank++)
        check_rank(&s[rank], rank, 3, rank, 3);
    assert_int_equal(scratch_count(folder.dir), 0);
    scratch_end(&folder);
}

static void ranks_that_do_not_come_are_named(void **state)
{
    spawn s[2];
    scratch folder;

    (void)state;
    scratch_begin(&folder);
    start_file(&s[1], scratch_path(&folder, "meet"), 2, 4, "3000");
    wait_for_text(scratch_path(&folder, "meet"), "rank/");
    start_file(&s[0], scratch_path(&folder, "meet"), 0, 4, "1000");
    assert_int_equal(spawn_wait(&s[0]), 1);
    if (strstr(SPAWN_ERR(&s[0]), "s for ranks 1, 3 to join") == NULL)
        fail_msg("%s", SPAWN_ERR(&s[0]));
    assert_int_equal(spawn_wait(&s[1]), 1);
    assert_non_null(strstr(SPAWN_ERR(&s[1]), "s for ranks 1, 3 to join"));
    spawn_free(&s[0]);
    spawn_free(&s[1]);
    start_file(&s[0], scratch_path(&folder, "other"), 1, 2, "100");
    assert_int_equal(spawn_wait(&s[0]), 1);
    assert_non_null(strstr(SPAWN_ERR(&s[0]), "rank 1 of 2 waited "));
    spawn_free(&s[0]);
    scratch_end(&folder);
}

static void one_rank_twice_is_an_error(void **state)
{
    spawn s[2];
    scratch folder;

    (void)state;
    scratch_begin(&folder);
    for (int rank = 0; rank < 2; rank++) {
        start_file(&s[0], scratch_path(&folder, "meet"), rank, 2, "5000");
        wait_for_text(scratch_path(&folder, "meet"), "rank/");
        start_file(&s[1], scratch_path(&folder, "meet"), rank, 2, "5000");
        /* the first one sees the second; the second may only time out or see it too */
        for (int i = 0; i < 2; i++) {
            char text[64];

            snprintf(text, sizeof(text), "rank %d has already joined (process ", rank);
            spawn_expect(&s[i], i == 0 ? text : "");
        }
        for (int i = 0; i < 2; i++)
            spawn_free(&s[i]);
        remove(scratch_path(&folder, "meet"));
    }
    scratch_end(&folder);
}

/* --- launchers of others -------------------------------------------------- */

static void mpirun_starts_it_unchanged(void **state)
{
    const char *const argv[] = {
        "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", own_path, "worker", NULL};
    spawn s;

    (void)state;
    spawn_start(&s, argv, NULL);
    if (spawn_wait(&s) != 0)
        fail_msg("status %d: %s", s.status, SPAWN_ERR(&s));
    for (int rank = 0; rank < 3; rank++) {
        char want[64];

        snprintf(want, sizeof(want), "rank %d of 3, local %d of 3: 7\n", rank, rank);
        assert_non_null(strstr(SPAWN_OUT(&s), want));
    }
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

/* Two nodes with two tasks each, on this one host: what srun sets is all that they have. */
static void sruns_variables_are_enough(void **state)
{
    spawn s[4];

    (void)state;
    for (int one_node = 0; one_node < 2; one_node++) {
        for (int rank = 3; rank >= 0; rank--) {
            char entries[MAX_ENTRIES][200] = {""};
            int n = 0;

            snprintf(entries[n++], 200, "SLURM_PROCID=%d", rank);
            snprintf(entries[n++], 200, "SLURM_NTASKS=4");
            snprintf(entries[n++], 200, "SLURM_LOCALID=%d", one_node ? rank : rank % 2);
            snprintf(entries[n++], 200, "SLURM_NODEID=%d", one_node ? 0 : rank / 2);
            snprintf(entries[n++], 200, "SLURM_STEP_TASKS_PER_NODE=%s", one_node ? "4" : "2(x2)");
            snprintf(entries[n++], 200, "SLURM_STEP_NODELIST=localhost,other[1-3]");
            snprintf(entries[n++], 200, "SLURM_JOB_ID=%d", (int)getpid());
            snprintf(entries[n++], 200, "SLURM_STEP_ID=%d", one_node);
            start_rank(&s[rank], entries, NULL);
        }
        for (int rank = 0; rank < 4; rank++)
            check_rank(&s[rank], rank, 4, one_node ? rank : rank % 2, one_node ? 4 : 2);
    }
}

/* --- two jobs, one place -------------------------------------------------- */

/* Rank 0 of job A serves; rank 1 of job B comes to its port. */
static void another_jobs_store_is_named(void **state)
{
    char a[MAX_ENTRIES][200] = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "",
                                "TORCHELASTIC_RUN_ID=job-a"};
    char b[MAX_ENTRIES][200] = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "",
                                "TORCHELASTIC_RUN_ID=job-b"};
    spawn s[2];

    (void)state;
    snprintf(a[3], sizeof(a[3]), "MASTER_PORT=%d", spawn_free_port());
    snprintf(b[3], sizeof(b[3]), "%s", a[3]);
    start_rank(&s[0], a, "5000");
    start_rank(&s[1], b, "5000");
    assert_int_equal(spawn_wait(&s[1]), 1);
    if (strstr(SPAWN_ERR(&s[1]), "serves another job (run job-a, 2 ranks), this is run job-b, "
                                 "2 ranks: give each job a port of its own") == NULL)
        fail_msg("%s", SPAWN_ERR(&s[1]));
    spawn_free(&s[0]);
    spawn_free(&s[1]);
}

/* It serves the store and would leave last. */
static void rank_0_says_for_whom_it_waits_in_the_end(void **state)
{
    char env[2][MAX_ENTRIES][200] = {
        {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "", ""},
        {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "", "STAYS=1"}};
    int port = spawn_free_port();
    spawn s[2];

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        snprintf(env[rank][3], sizeof(env[rank][3]), "MASTER_PORT=%d", port);
        start_rank(&s[rank], env[rank], "4000");
    }
    assert_int_equal(spawn_wait(&s[0]), 0);
    if (strstr(SPAWN_ERR(&s[0]), "waited 4.0 s for rank 1 to call tri_finalize, and leaves now") ==
        NULL)
        fail_msg("%s", SPAWN_ERR(&s[0]));
    spawn_free(&s[0]);
    spawn_free(&s[1]);
}

/* Nobody else is connected to the store any more. */
static void rank_0_does_not_wait_for_those_that_have_ended(void **state)
{
    char env[4][MAX_ENTRIES][200] = {
        {"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "", ""},
        {"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "", "NO_WORD=1"},
        {"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "", ""},
        {"RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "", "NO_WORD=1"}};
    int port = spawn_free_port();
    spawn s[4];

    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        snprintf(env[rank][3], sizeof(env[rank][3]), "MASTER_PORT=%d", port);
        start_rank(&s[rank], env[rank], "20000");
    }
    for (int rank = 1; rank < 4; rank++)
        check_rank(&s[rank], rank, 4, rank, 4);
    assert_int_equal(spawn_wait(&s[0]), 0);
    if (strstr(SPAWN_ERR(&s[0]), "finalize: ranks 1, 3 ended without tri_finalize") == NULL)
        fail_msg("%s", SPAWN_ERR(&s[0]));
    spawn_free(&s[0]);
}

/* Says as rank 2 of 3 that it has come. */
static void only_come(tri_store *store)
{
    static const char me[] = "0 name 3 process 1 on nowhere|";
    char world[17] = "", come[64];
    void *answer = NULL;

    CHECK_OK(tri_store_set(store, "trireme/0/rank/2", me, strlen(me)));
    CHECK_OK(tri_store_get(store, "trireme/0/world/name", 20000, &answer, NULL));
    assert_int_equal(sscanf(answer, "0 %16s ", world), 1);
    tri_store_free(answer);
    snprintf(come, sizeof(come), "trireme/0/%s/come/2", world);
    CHECK_OK(tri_store_set(store, come, "0 name", 6));
}

/* It ends before the group is formed. */
static void a_rank_that_ends_while_the_world_forms_is_not_waited_for(void **state)
{
    char env[2][MAX_ENTRIES][200] = {{"RANK=0", "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", ""},
                                     {"RANK=1", "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", ""}};
    int port = spawn_free_port();
    tri_store *store = NULL;
    spawn s[2];

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        snprintf(env[rank][3], sizeof(env[rank][3]), "MASTER_PORT=%d", port);
        start_rank(&s[rank], env[rank], "300000");
    }
    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &store));
    only_come(store);
    tri_store_unref(store);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(spawn_wait(&s[rank]), 1);
        if (strstr(SPAWN_ERR(&s[rank]), "PEER_LOST: init: ") == NULL ||
            strstr(SPAWN_ERR(&s[rank]), "a rank ended while the group was formed") == NULL)
            fail_msg("rank %d: %s", rank, SPAWN_ERR(&s[rank]));
        spawn_free(&s[rank]);
    }
}

static void a_rank_that_comes_twice_is_named(void **state)
{
    char a[MAX_ENTRIES][200] = {"RANK=0", "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", ""};
    char b[MAX_ENTRIES][200] = {"RANK=1", "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", ""};
    spawn s[3];
    int failed = 0, port = spawn_free_port();

    (void)state;
    snprintf(a[3], sizeof(a[3]), "MASTER_PORT=%d", port);
    snprintf(b[3], sizeof(b[3]), "%s", a[3]);
    start_rank(&s[0], a, "20000");
    wait_for_server(port);
    start_rank(&s[1], b, "2000");
    start_rank(&s[2], b, "2000");
    for (int i = 1; i < 3; i++) {
        assert_int_equal(spawn_wait(&s[i]), 1);
        failed += strstr(SPAWN_ERR(&s[i]), "rank 1 has already joined (process ") != NULL;
    }
    assert_int_equal(failed, 1); /* the other one waits for rank 2, which does not come */
    for (int i = 0; i < 3; i++)
        spawn_free(&s[i]);
}

/* --- trirun, whose store is new ------------------------------------------- */

static void start_script(spawn *s, const char *n, const char *script)
{
    const char *const argv[] = {
        spawn_bin("trirun"), "--nproc-per-node", n, "sh", "-c", script, own_path, NULL};

    spawn_start(s, argv, NULL);
}

static int count_lines(const char *text, const char *line)
{
    int n = 0;

    for (; (text = strstr(text, line)) != NULL; text += strlen(line))
        n++;
    return n;
}

static void programs_of_a_script_join_one_after_the_other(void **state)
{
    spawn s;

    (void)state;
    start_script(&s, "2", "\"$0\" worker && \"$0\" worker && exec \"$0\" worker");
    if (spawn_wait(&s) != 0)
        fail_msg("%s", SPAWN_ERR(&s));
    assert_int_equal(count_lines(SPAWN_OUT(&s), "rank 0 of 2, local 0 of 2: 3\n"), 3);
    assert_int_equal(count_lines(SPAWN_OUT(&s), "rank 1 of 2, local 1 of 2: 3\n"), 3);
    spawn_free(&s);
}

/* Ranks 0 and 1 time out twice before rank 2 comes; it comes once both have. */
static void ranks_that_try_again_meet(void **state)
{
    spawn s;

    (void)state;
    start_script(
        &s, "3",
        "[ $RANK = 2 ] || { \"$0\" worker 300; echo >\"$TRI_RUN_DIR/a$RANK\"; \"$0\" worker "
        "300; echo >\"$TRI_RUN_DIR/b$RANK\"; }; until [ -e \"$TRI_RUN_DIR/b0\" ] && [ -e "
        "\"$TRI_RUN_DIR/b1\" ]; do sleep 0.01; done; exec \"$0\" worker");
    if (spawn_wait(&s) != 0)
        fail_msg("%s", SPAWN_ERR(&s));
    for (int rank = 0; rank < 3; rank++) {
        char line[60];

        snprintf(line, sizeof(line), "rank %d of 3, local %d of 3: 7\n", rank, rank);
        assert_int_equal(count_lines(SPAWN_OUT(&s), line), 1);
    }
    spawn_free(&s);
}

/* The first of the two still waits for rank 2 when the second joins, late as it may be. */
static void a_worker_that_joins_twice_at_once_is_named(void **state)
{
    char script[200];
    spawn s;

    (void)state;
    snprintf(script, sizeof(script),
             "[ $RANK = 2 ] && exec sleep 1000; [ $RANK = 0 ] && exec \"$0\" worker 60000; "
             "\"$0\" worker %d & \"$0\" worker %d; wait; exit 1",
             TWICE_MS, TWICE_MS);
    start_script(&s, "3", script);
    assert_int_equal(spawn_wait(&s), 1);
    if (count_lines(SPAWN_ERR(&s), "rank 1 has already joined (process ") == 0)
        fail_msg("%s", SPAWN_ERR(&s));
    spawn_free(&s);
}

/* --- the job key ---------------------------------------------------------- */

static void make_key(scratch *folder, const char *name, const char *text)
{
    assert_int_equal(chmod(scratch_file(folder, name, text, strlen(text)), 0600), 0);
}

/* Store and tcp engine both prove it; a rank with another key, or none, is told so. */
static void a_job_key_is_asked_of_every_rank(void **state)
{
    static const char *const keys[] = {"right", "wrong", ""};
    scratch folder;
    spawn s[2];

    (void)state;
    scratch_begin(&folder);
    make_key(&folder, "right", "the secret of this job, which is long enough");
    make_key(&folder, "wrong", "the secret of another job, also long enough");
    for (int i = 0; i < 3; i++) {
        int port = spawn_free_port();

        for (int rank = 0; rank < 2; rank++) {
            char e[MAX_ENTRIES][200] = {"WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "TRI_ENGINE=tcp"};
            const char *key = rank == 0 ? keys[0] : keys[i];

            snprintf(e[3], sizeof(e[3]), "MASTER_PORT=%d", port);
            snprintf(e[4], sizeof(e[4]), "RANK=%d", rank);
            if (*key != '\0')
                snprintf(e[5], sizeof(e[5]), "TRI_JOB_KEY_FILE=%s", scratch_path(&folder, key));
            start_rank(&s[rank], e, i == 0 || rank == 0 ? NULL : "2000");
            if (rank == 0)
                wait_for_server(port);
        }
        for (int rank = 0; i == 0 && rank < 2; rank++)
            check_rank(&s[rank], rank, 2, rank, 2);
        if (i == 0)
            continue;
        assert_int_equal(spawn_wait(&s[1]), 1);
        if (strstr(SPAWN_ERR(&s[1]), "give all processes of the job the same TRI_JOB_KEY_FILE") ==
            NULL)
            fail_msg("%s", SPAWN_ERR(&s[1]));
        spawn_free(&s[0]);
        spawn_free(&s[1]);
    }
    scratch_end(&folder);
}

static void trirun_requires_a_key_if_it_shall(void **state)
{
    const char *const argv[] = {
        spawn_bin("trirun"), "--require-key", "--nproc-per-node", "2", own_path, "worker", NULL};
    char variable[300];
    const char *const without[] = {"TRI_JOB_KEY_FILE", NULL}, *const with[] = {variable, NULL};
    scratch folder;
    spawn s;

    (void)state;
    scratch_begin(&folder);
    spawn_start(&s, argv, without);
    assert_int_not_equal(spawn_wait(&s), 0);
    assert_non_null(
        strstr(SPAWN_ERR(&s), "trirun: --require-key: TRI_JOB_KEY_FILE does not name a file"));
    spawn_free(&s);
    make_key(&folder, "key", "the secret of this job, which is long enough");
    snprintf(variable, sizeof(variable), "TRI_JOB_KEY_FILE=%s", scratch_path(&folder, "key"));
    spawn_start(&s, argv, with);
    if (spawn_wait(&s) != 0)
        fail_msg("%s", SPAWN_ERR(&s));
    assert_non_null(strstr(SPAWN_OUT(&s), "rank 1 of 2, local 1 of 2: 3"));
    spawn_free(&s);
    scratch_end(&folder);
}

/* As plug-ins and Python do: there is little room then for what is thread-local. */
static void a_running_program_can_load_the_library(void **state)
{
    char path[512];
    void *library;

    (void)state;
    snprintf(path, sizeof(path), "%s/../lib/libtrireme-comm.so", getenv("TRI_TEST_BIN"));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail_msg("%s", dlerror());
    assert_non_null(dlsym(library, "tri_init"));
    assert_int_equal(dlclose(library), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_file_is_enough_and_does_not_stay),
    cmocka_unit_test(a_file_of_a_run_that_crashed_does_no_harm),
    cmocka_unit_test(ranks_that_do_not_come_are_named),
    cmocka_unit_test(one_rank_twice_is_an_error),
    cmocka_unit_test(mpirun_starts_it_unchanged),
    cmocka_unit_test(sruns_variables_are_enough),
    cmocka_unit_test(another_jobs_store_is_named),
    cmocka_unit_test(rank_0_says_for_whom_it_waits_in_the_end),
    cmocka_unit_test(rank_0_does_not_wait_for_those_that_have_ended),
    cmocka_unit_test(a_rank_that_ends_while_the_world_forms_is_not_waited_for),
    cmocka_unit_test(a_rank_that_comes_twice_is_named),
    cmocka_unit_test(programs_of_a_script_join_one_after_the_other),
    cmocka_unit_test(ranks_that_try_again_meet),
    cmocka_unit_test(a_worker_that_joins_twice_at_once_is_named),
    cmocka_unit_test(a_job_key_is_asked_of_every_rank),
    cmocka_unit_test(trirun_requires_a_key_if_it_shall),
    cmocka_unit_test(a_running_program_can_load_the_library),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return worker(argc > 2 ? argv[2] : NULL);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
