/*
 * flight_recorder_test.c - the record of a process that was killed tells what it did last,
 * read by the byte table of flight_recorder.h and nothing else.
 */
#include <dirent.h>

#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/run_dir.h"
#include "testing/spawn.h"

#include "base/alloc.h"
#include "comm/group/watch/flight_recorder.h"
#include "launch/inspect/why.h"
#include "os/clock.h"
#include "os/liveness.h"

enum { GROUP_BYTES = 80, RECORDS_AT = 640 + GROUP_BYTES * TRII_RECORD_GROUPS };

/* The whole file of a rank; the caller frees it. */
static unsigned char *read_record(int rank, size_t *bytes_out)
{
    unsigned char *data = malloc((size_t)1 << 20);
    char path[300];
    FILE *file;

    snprintf(path, sizeof(path), "%s/rank-%d.rec", folder, rank);
    file = fopen(path, "rb");
    assert_non_null(file);
    *bytes_out = fread(data, 1, (size_t)1 << 20, file);
    fclose(file);
    return data;
}

static uint64_t number_at(const unsigned char *p, size_t bytes)
{
    uint64_t value = 0;

    memcpy(&value, p, bytes); /* little-endian, as the machine that wrote it */
    return value;
}

static const char *rank_1_is_killed_in_a_recv(rank_env *env)
{
    tri_group *group = NULL;
    tri_work *work = NULL;
    float x[5] = {0};

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int i = 0; i < 3; i++)
        RANK_TRY(env, tri_all_reduce(group, x, x, 5, TRI_DTYPE_F32, TRI_REDOP_MAX, NULL));
    if (env->rank == 1) {
        void *posted;

        RANK_TRY(env, tri_recv(group, x, 2, TRI_DTYPE_F64, 0, 77, &work)); /* of what never comes */
        RANK_TRY(env, tri_store_get(env->store, "posted", 0, &posted, NULL));
        (void)raise(SIGKILL);
    }
    /* Posted before rank 1 dies: a call on a group that has failed already is not recorded. */
    RANK_TRY(env, tri_barrier(group, &work));
    RANK_TRY(env, tri_store_set(env->store, "posted", "", 1));
    RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_PEER_LOST, "rank 1");
    tri_work_destroy(work);
    tri_group_unref(group);
    return NULL;
}

static void a_killed_rank_leaves_its_last_calls(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000, .name = "recorded"};
    rank_end ends[] = {{0}, {.signal = SIGKILL}};
    unsigned char *data, *record;
    size_t bytes, n;
    uint64_t id;

    (void)state;
    run_processes(2, &options, rank_1_is_killed_in_a_recv, NULL, ends, 30);
    data = read_record(1, &bytes);
    assert_string_equal((char *)data, TRII_RECORD_MAGIC);
    assert_int_equal(number_at(data + 8, 4), 1);
    assert_int_equal(number_at(data + 12, 4), 2);
    n = number_at(data + 20, 4);
    assert_int_equal(bytes, RECORDS_AT + 64 * n + TRII_RECORD_FILES * TRII_RECORD_FILE_BYTES);
    assert_int_equal(number_at(data + 24, 8), 4);

    record = data + RECORDS_AT + 64 * 2; /* the third all_reduce */
    assert_int_equal(number_at(record, 8), 3);
    assert_int_equal(number_at(record + 16, 8), 3);
    assert_int_equal(number_at(record + 24, 8), 5);
    assert_int_equal(record[48], TRII_KIND_ALL_REDUCE);
    assert_int_equal(record[49], TRI_DTYPE_F32);
    assert_int_equal(record[50], TRI_REDOP_MAX);
    assert_int_equal(record[51], 2);
    assert_string_equal((char *)data + RECORDS_AT + 64 * n + 64 * number_at(record + 46, 2),
                        "flight_recorder_test.c");

    record += 64; /* the recv, unfinished */
    assert_int_equal(number_at(record, 8), 4);
    assert_int_equal(number_at(record + 24, 8), 2);
    assert_int_equal(record[48], TRII_KIND_RECV);
    assert_int_equal(number_at(record + 40, 4), 77);
    assert_int_equal(record[51], 1);
    /* The clock of records may be a tick behind. */
    assert_true(number_at(record + 8, 8) + 20000000 > number_at(data + 32, 8));
    assert_int_equal(number_at(record + 44, 2), 1); /* of group 1, which is: */
    assert_int_equal(number_at(data + 640 + 8, 4), 1);
    assert_int_equal(number_at(data + 640 + 12, 4), 2);
    assert_int_equal(number_at(data + 640 + 16, 2), 1);
    assert_int_equal(data[640 + 18], 2);
    assert_string_equal((char *)data + 640 + 20, "shm");
    assert_string_equal((char *)data + 640 + 32, "recorded");
    assert_int_equal(number_at(data + 640 + 72, 4), 0); /* in its first epoch */
    assert_int_equal(number_at(data + 48, 4), 1);       /* it did not leave in order */
    id = number_at(data + 640, 8);
    free(data);

    data = read_record(0, &bytes); /* the survivor: a barrier that failed */
    record = data + RECORDS_AT + 64 * 3;
    assert_int_equal(record[48], TRII_KIND_BARRIER);
    assert_int_equal(record[51], 3);
    assert_int_equal((int32_t)number_at(record + 52, 4), TRI_ERR_PEER_LOST);
    assert_int_equal(number_at(data + 640, 8), id);
    assert_int_equal(number_at(data + 48, 4), 2);
    assert_int_equal((int32_t)number_at(data + 52, 4), TRI_ERR_PEER_LOST);
    assert_non_null(strstr((char *)data + 128, "flight_recorder_test"));
    assert_non_null(strstr((char *)data + 192, "rank 1"));
    free(data);
}

/* Rank 1 waits in one call while rank 0 gives up, tries again, and rank 2 comes. Until rank 1 is
 * there, rank 0 gives up because of both. */
static const char *rank_0_tries_again(rank_env *env)
{
    tri_group_options brief = *env->options;
    const char *key = "gave up";
    tri_group *first = NULL, *second = NULL;
    tri_status status = TRI_ERR_TIMEOUT;

    brief.timeout_ms = 100;
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &first));
    if (env->rank == 2)
        RANK_TRY(env, tri_store_wait(env->store, &key, 1, 20000));
    if (env->rank == 0) {
        do {
            brief.timeout_ms *= 2;
            status = tri_group_create(env->store, 0, env->size, &brief, &second);
        } while (status == TRI_ERR_TIMEOUT && strstr(tri_last_error(), "for rank 2 to") == NULL &&
                 brief.timeout_ms < 4000);
        RANK_FAILS(env, status, TRI_ERR_TIMEOUT, "for rank 2 to join");
        RANK_TRY(env, tri_store_set(env->store, key, "", 0));
    }
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &second));
    tri_group_unref(second);
    tri_group_unref(first);
    return NULL;
}

static void a_rank_that_waits_on_when_another_gives_up_has_not_failed(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};
    rank_end ends[3] = {{0}};
    unsigned char *data;
    size_t bytes;

    (void)state;
    run_processes(3, &options, rank_0_tries_again, NULL, ends, 30);
    data = read_record(1, &bytes);
    assert_string_equal((char *)data + 192, "");
    assert_int_equal(number_at(data + 52, 4), 0);
    for (int i = 0; i < TRII_RECORD_GROUPS; i++)
        assert_int_not_equal(data[640 + GROUP_BYTES * i + 18], TRII_RECORD_GROUP_FORMING);
    free(data);
}

static void the_ring_keeps_the_newest(void **state)
{
    tri_group *group = NULL;
    unsigned char *data;
    size_t bytes;

    (void)state;
    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    for (int i = 0; i < TRII_RECORDS + 10; i++)
        CHECK_OK(tri_barrier(group, NULL));
    data = read_record(0, &bytes);
    assert_int_equal(number_at(data + 24, 8), TRII_RECORDS + 10);
    assert_int_equal(number_at(data + RECORDS_AT + 64 * 9, 8), TRII_RECORDS + 10);
    assert_int_equal(number_at(data + RECORDS_AT + 64 * 10, 8), 11);
    free(data);
    tri_group_unref(group);
    assert_int_equal(trii_alloc_live(), 0);
}

static void a_call_that_runs_is_not_overwritten(void **state)
{
    trii_collective call = {.kind = TRII_KIND_BARRIER, .site = {__FILE__, __LINE__}};
    trii_recorder *recorder = trii_recorder_open(0, 1);
    uint64_t number, n = 1;
    unsigned char *data;
    size_t bytes;

    (void)state;
    assert_non_null(recorder);
    number = trii_recorder_begin(recorder, &call, 1);
    for (int i = 0; i < 2 * TRII_RECORDS; i++, n++)
        trii_recorder_end(recorder, trii_recorder_begin(recorder, &call, 1), TRI_OK);
    data = read_record(0, &bytes);
    assert_int_equal(number_at(data + RECORDS_AT, 8), number);
    assert_int_equal(data[RECORDS_AT + 51], 1);
    assert_int_equal(number_at(data + 24, 8) - number_at(data + 624, 8), n); /* calls are counted */
    assert_int_equal(number_at(data + 632, 8), 0);
    free(data);
    trii_recorder_end(recorder, number, TRI_OK);

    /* So many that run, one after the other, are not all passed over: that is said. */
    for (int i = 0; i < 2 * TRII_RECORDS; i++, n++)
        (void)trii_recorder_begin(recorder, &call, 1);
    data = read_record(0, &bytes);
    assert_int_equal(number_at(data + 24, 8) - number_at(data + 624, 8), n);
    assert_true(number_at(data + 632, 8) > 0);
    free(data);
    trii_recorder_close(recorder);
}

static void groups_without_a_place_in_the_table_are_counted(void **state)
{
    const trii_record_group facts = {.id = 7, .size = 1, .name = "many"};
    trii_recorder *recorder = trii_recorder_open(0, 1);
    uint16_t last = 0;
    unsigned char *data;
    size_t bytes;

    (void)state;
    assert_non_null(recorder);
    for (int i = 0; i < TRII_RECORD_GROUPS + 2; i++)
        last = trii_recorder_group_forms(recorder, &facts);
    data = read_record(0, &bytes);
    assert_int_equal(number_at(data + 620, 4), 2);
    free(data);
    trii_recorder_group_state(recorder, last, TRII_RECORD_GROUP_LEFT, NULL);
    data = read_record(0, &bytes);
    assert_int_equal(number_at(data + 620, 4), 1);
    free(data);
    trii_recorder_close(recorder);
}

static void a_group_that_is_left_twice_was_not_without_a_place(void **state)
{
    const trii_record_group facts = {.id = 7, .size = 1, .name = "many"};
    trii_recorder *recorder = trii_recorder_open(0, 1);
    uint16_t first = 0;
    unsigned char *data;
    size_t bytes;

    (void)state;
    assert_non_null(recorder);
    first = trii_recorder_group_forms(recorder, &facts);
    for (int i = 1; i < TRII_RECORD_GROUPS; i++)
        trii_recorder_group_forms(recorder, &facts);
    trii_recorder_group_state(recorder, first, TRII_RECORD_GROUP_LEFT, NULL); /* tri_finalize */
    for (int i = 0; i < 2; i++)
        trii_recorder_group_forms(recorder, &facts); /* in its place, and without one */
    trii_recorder_group_state(recorder, first, TRII_RECORD_GROUP_LEFT, NULL); /* destroyed */
    data = read_record(0, &bytes);
    assert_int_equal(number_at(data + 620, 4), 1);
    free(data);
    trii_recorder_close(recorder);
}

static void a_number_that_a_listed_group_has_is_not_given_again(void **state)
{
    const trii_record_group facts = {.id = 7, .size = 1, .name = "long"};
    trii_recorder *recorder = trii_recorder_open(0, 1);
    uint16_t first;

    (void)state;
    assert_non_null(recorder);
    first = trii_recorder_group_forms(recorder, &facts);
    for (int i = 0; i < UINT16_MAX + 2; i++) {
        uint16_t other = trii_recorder_group_forms(recorder, &facts);

        assert_int_not_equal(other, first);
        trii_recorder_group_state(recorder, other, TRII_RECORD_GROUP_LEFT, NULL);
    }
    trii_recorder_close(recorder);
}

static void a_group_is_recorded_with_its_epoch(void **state)
{
    const trii_record_group first = {.id = 8, .size = 1, .name = "group"},
                            second = {.id = 9, .size = 1, .name = "group", .epoch = 1};
    trii_recorder *recorder = trii_recorder_open(0, 1);
    unsigned char *data;
    size_t bytes;

    (void)state;
    assert_non_null(recorder);
    assert_int_equal(trii_recorder_group_forms(recorder, &first), 1);
    assert_int_equal(trii_recorder_group_forms(recorder, &second), 2);
    data = read_record(0, &bytes);
    assert_int_equal(number_at(data + 640 + 72, 4), 0);
    assert_int_equal(number_at(data + 640 + GROUP_BYTES + 72, 4), 1);
    free(data);
    trii_recorder_close(recorder);
}

static void a_record_costs_some_nanoseconds(void **state)
{
    enum { N = 200000 };
    trii_collective call = {.kind = TRII_KIND_BARRIER, .site = {__FILE__, __LINE__}};
    trii_recorder *recorder = trii_recorder_open(0, 1);
    double best = 1e9;

    (void)state;
    assert_non_null(recorder);
    for (int round = 0; round < 10; round++) {
        int64_t start = trii_now_ns();

        for (int i = 0; i < N; i++)
            trii_recorder_end(recorder, trii_recorder_begin(recorder, &call, 1), TRI_OK);
        if ((double)(trii_now_ns() - start) / N < best)
            best = (double)(trii_now_ns() - start) / N;
    }
    printf("a record costs %.1f ns\n", best);
    trii_recorder_close(recorder);
}

static void a_record_shows_whether_its_writer_lives(void **state)
{
    char path[300];
    int tell[2], pid, held_by, status;

    (void)state;
    snprintf(path, sizeof(path), "%s/rank-0.rec", folder);
    assert_int_equal(trii_liveness_look(path, &held_by), TRII_LIVENESS_GONE); /* no file yet */
    assert_int_equal(pipe(tell), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(30);
        _exit(trii_recorder_open(0, 1) == NULL || write(tell[1], "", 1) != 1 || pause() == 0);
    }
    assert_int_equal(read(tell[0], path + 120, 1), 1);
    assert_int_equal(trii_liveness_look(path, &held_by), TRII_LIVENESS_RUNS);
    assert_int_equal(held_by, pid);
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_int_equal(trii_liveness_look(path, &held_by), TRII_LIVENESS_STOPPED);
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT), 0); /* a zombie is gone */
    assert_int_equal(trii_liveness_look(path, &held_by), TRII_LIVENESS_GONE);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(tell[0]);
    close(tell[1]);
}

static void without_a_folder_nothing_is_recorded(void **state)
{
    tri_group *group = NULL;

    (void)state;
    setenv("TRI_RUN_DIR", "/nonexistent/folder", 1); /* a warning, no failure */
    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    CHECK_OK(tri_barrier(group, NULL));
    tri_group_unref(group);
    unsetenv("TRI_RUN_DIR");
    assert_null(trii_recorder_open(0, 1));
    assert_int_equal(trii_alloc_live(), 0);
}

/* A program that a rank starts is rank 0 of a world of its own, in the same folder. Below it, the
 * rank goes on recording. */
static const char *rank_0_starts_another_program(rank_env *env)
{
    tri_group *group = NULL;
    int status = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_barrier(group, NULL));
    if (env->rank == 0) {
        const char *const argv[] = {"/proc/self/exe", "--alone", NULL};
        pid_t child = fork();

        if (child == 0) {
            execv(argv[0], (char *const *)(uintptr_t)argv);
            _exit(127);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return RANK_FAIL(env, "the other program: status %#x", (unsigned)status);
    }
    for (int i = 0; i < 2000; i++) /* all of the record is written once more */
        RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static int be_alone(void)
{
    tri_group *own = NULL;
    tri_store *store = NULL;

    TRI_TRY(tri_store_hash(&store));
    TRI_TRY(tri_group_create(store, 0, 1, NULL, &own));
    TRI_TRY(tri_barrier(own, NULL));
    tri_group_unref(own);
    tri_store_unref(store);
    return 0;
}

static void another_program_of_a_rank_leaves_its_record_whole(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};
    trii_why_job job;
    size_t bytes = 0;
    unsigned char *data;

    (void)state;
    run_processes(2, &options, rank_0_starts_another_program, NULL, NULL, 30);
    assert_int_equal(spawn_count_entries(folder), 3); /* and that of the other program */
    data = read_record(0, &bytes);
    assert_int_equal(bytes, sizeof(trii_record_file));
    assert_int_equal(((const trii_record_file *)(const void *)data)->size, 2);
    assert_int_equal(((const trii_record_file *)(const void *)data)->begun, 2001);
    free(data);
    CHECK_OK(trii_why_read(folder, &job));
    assert_int_equal(job.size, 2);
    assert_int_equal(job.ranks[0].log->size, 2);
    trii_why_free(&job);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_killed_rank_leaves_its_last_calls, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(a_rank_that_waits_on_when_another_gives_up_has_not_failed,
                                    make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(the_ring_keeps_the_newest, make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(a_call_that_runs_is_not_overwritten, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(a_group_that_is_left_twice_was_not_without_a_place, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(a_number_that_a_listed_group_has_is_not_given_again,
                                    make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(groups_without_a_place_in_the_table_are_counted, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(a_group_is_recorded_with_its_epoch, make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(a_record_costs_some_nanoseconds, make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(a_record_shows_whether_its_writer_lives, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(another_program_of_a_rank_leaves_its_record_whole, make_folder,
                                    remove_folder),
    cmocka_unit_test(without_a_folder_nothing_is_recorded),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--alone") == 0)
        return be_alone();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
