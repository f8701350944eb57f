/*
 * why_jobs_test.c - what `trireme why` and `trireme ps` read: files that are no record, programs by
 * their command lines, and one job of several.
 */
#include <sys/stat.h>

#include "comm/group/watch/flight_recorder.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/run_dir.h"
#include "testing/spawn.h"

#define TEXT_BYTES 8192

/* --- what is no record ---------------------------------------------------- */

static void run_tool(spawn *s, const char *job, int status)
{
    spawn_start(s, (const char *const[]){spawn_bin("trireme"), "why", job, NULL}, NULL);
    if (spawn_wait(s) != status)
        fail_msg("status %d instead of %d: %s%s", s->status, status, SPAWN_OUT(s), SPAWN_ERR(s));
}

static void what_is_no_record_is_refused(void **state)
{
    static const size_t cuts[] = {0, 1, 8, 639, 5000};
    char path[300], *whole = malloc(1 << 20);
    tri_group *group = NULL;
    size_t bytes;
    uint64_t random = 7;
    FILE *file;
    spawn s;

    (void)state;
    run_tool(&s, folder, 1);
    assert_non_null(strstr(SPAWN_ERR(&s), "there are no flight records"));
    spawn_free(&s);
    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    for (int i = 0; i < 1100; i++)
        CHECK_OK(tri_barrier(group, NULL));
    tri_group_unref(group);
    run_tool(&s, folder, 0);
    assert_non_null(strstr(SPAWN_OUT(&s), "1 rank on "));
    assert_non_null(strstr(SPAWN_OUT(&s), ": 1 left"));
    spawn_free(&s);

    /* listed, and gone when it is opened: trirun takes records away when it starts again */
    snprintf(path, sizeof(path), "%s/rank-1.rec", folder);
    assert_int_equal(symlink("gone", path), 0);
    run_tool(&s, folder, 0);
    assert_non_null(strstr(SPAWN_OUT(&s), ": 1 left"));
    spawn_free(&s);
    assert_int_equal(unlink(path), 0);

    snprintf(path, sizeof(path), "%s/cause", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    run_tool(&s, folder, 0);
    assert_non_null(strstr(SPAWN_OUT(&s), ": 1 left"));
    spawn_free(&s);
    assert_int_equal(unlink(path), 0);

    snprintf(path, sizeof(path), "%s/rank-0.rec", folder);
    file = fopen(path, "rb");
    assert_non_null(file);
    bytes = fread(whole, 1, 1 << 20, file);
    fclose(file);
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        file = fopen(path, "wb");
        assert_int_equal(fwrite(whole, 1, cuts[i], file), cuts[i]);
        fclose(file);
        run_tool(&s, folder, 1);
        assert_non_null(strstr(SPAWN_ERR(&s), "not a flight record of this version"));
        spawn_free(&s);
    }
    /* Bytes that lie: whatever it says, it says it and ends. */
    for (int round = 0; round < 40; round++) {
        char *damaged = malloc(bytes);

        memcpy(damaged, whole, bytes);
        for (int i = 0; i < 3000; i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            damaged[24 + (random >> 20) % (bytes - 24)] = (char)(random >> 56);
        }
        file = fopen(path, "wb");
        assert_int_equal(fwrite(damaged, 1, bytes, file), bytes);
        fclose(file);
        free(damaged);
        run_tool(&s, folder, 0);
        assert_true(lines_of(SPAWN_OUT(&s)) <= 10);
        spawn_free(&s);
    }
    free(whole);
}

/* --- which job ------------------------------------------------------------ */

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("no \"%s\" in:\n%s", part, text);
}

/* A record of the test's folder, of a program with that command line. */
static void record_program(const char line[64])
{
    char path[300];
    tri_group *group = NULL;
    FILE *file;

    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    tri_group_unref(group);
    snprintf(path, sizeof(path), "%s/rank-0.rec", folder);
    file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offsetof(trii_record_file, program), SEEK_SET), 0);
    assert_int_equal(fwrite(line, 1, 64, file), 64);
    assert_int_equal(fclose(file), 0);
}

/* Records have 63 bytes of it. */
static void a_command_line_that_was_cut_says_so(void **state)
{
    char line[64] = "train ", shown[80];

    (void)state;
    memset(line + 6, 'a', sizeof(line) - 7);
    for (int cut = 1; cut >= 0; cut--) {
        spawn s;

        line[62] = cut ? 'a' : '\0';
        record_program(line);
        run_tool(&s, folder, 0);
        snprintf(shown, sizeof(shown), ", %.*s%s, started ", cut ? 60 : 62, line, cut ? "..." : "");
        assert_says(SPAWN_OUT(&s), shown);
        spawn_free(&s);
    }
}

/* Jansson takes no byte that is none. */
static void a_command_line_that_is_no_utf8_is_told_in_json(void **state)
{
    char line[64] = "caf\xe9", shown[80];

    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        spawn s;

        for (int i = 0; i < 31 && cut; i++) /* "x", and 31 characters of two bytes */
            memcpy(line + 1 + 2 * i, "\xc3\xa9", 2);
        line[0] = cut ? 'x' : 'c';
        record_program(line);
        spawn_start(&s, (const char *const[]){spawn_bin("trireme"), "why", "--json", folder, NULL},
                    NULL);
        assert_int_equal(spawn_wait(&s), 0);
        snprintf(shown, sizeof(shown), "\"program\": \"%.*s%s\"", cut ? 59 : 3, line,
                 cut ? "..." : "?");
        assert_says(SPAWN_OUT(&s), shown);
        spawn_free(&s);
    }
}

/* What `trireme why ARGUMENT` prints of the jobs below `home`. */
static void why_at(const char *home, const char *argument, char *text)
{
    const char *argv[] = {spawn_bin("trireme"), "why", argument, NULL};
    const char *const env[] = {home, "TRI_RUN_DIR", NULL};
    spawn s;

    spawn_start(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 0);
    snprintf(text, TEXT_BYTES, "%s", SPAWN_OUT(&s));
    spawn_free(&s);
}

static void jobs_are_told_apart(void **state)
{
    char home[256], variable[300], text[TEXT_BYTES], size[8], head[32];
    const char *const argv[] = {spawn_bin("trirun"), "--nproc-per-node", size,
                                spawn_bin("plain_mlp"), NULL};
    const char *const env[] = {variable, "TRI_CHAOS=kill=1,rank=1", "TRI_RUN_DIR", NULL};

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", home);
    for (int n = 1; n <= 2; n++) {
        spawn s;

        snprintf(size, sizeof(size), "%d", 1 + n);
        snprintf(head, sizeof(head), "%s ranks on ", size);
        spawn_start(&s, argv, env);
        assert_int_equal(spawn_wait(&s), 1);
        spawn_free(&s);
        why_at(variable, NULL, text);
        assert_says(text, head);
        assert_says(text, ", plain_mlp, started ");
        assert_says(text, " s ago: ");
        assert_says(text, "rank 1 (pid ");
        if (n == 1)
            assert_null(strstr(text, "this is the newest"));
    }
    assert_says(text, "this is the newest of 2 jobs; `trireme why --jobs` lists them");
    why_at(variable, "--jobs", text);
    assert_int_equal(lines_of(text), 2);
    assert_says(strchr(text, '\n'), ", plain_mlp, started ");
    spawn_remove_folder(home);
}

static void ps_shows_a_rank_that_waits_in_tri_init(void **state)
{
    char home[256], variable[300];
    const char *const argv[] = {
        spawn_bin("trirun"),
        "--nproc-per-node",
        "2",
        "sh",
        "-c",
        "[ $RANK = 0 ] || until \"$1\" ps | grep 'in tri_init'; do :; done; exec \"$0\"",
        spawn_bin("plain_mlp"),
        spawn_bin("trireme"),
        NULL};
    spawn s;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", home);
    spawn_start(&s, argv, (const char *const[]){variable, "TRI_RUN_DIR", NULL});
    assert_int_equal(spawn_wait(&s), 0);
    assert_says(SPAWN_OUT(&s), "-  in tri_init\n");
    spawn_free(&s);
    spawn_remove_folder(home);
}

/* Jobs that are over are not all that is told while another one runs and has no records yet. */
static void a_job_that_runs_without_records_comes_before_the_dead(void **state)
{
    char home[256], variable[300];
    const char *const dead[] = {spawn_bin("trirun"), "--nproc-per-node", "2",
                                spawn_bin("plain_mlp"), NULL};
    const char *const live[] = {spawn_bin("trirun"),
                                "sh",
                                "-c",
                                "job=$${TRI_RUN_DIR##*/}; unset TRI_RUN_DIR; echo job $$job; "
                                "\"$$0\" why; \"$$0\" why $$job",
                                spawn_bin("trireme"),
                                NULL};
    const char *const env[] = {variable, "TRI_CHAOS=kill=1,rank=1", "TRI_RUN_DIR", NULL};
    char job[64], line[128];
    const char *at;
    spawn s;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", home);
    spawn_start(&s, dead, env);
    assert_int_equal(spawn_wait(&s), 1);
    spawn_free(&s);
    spawn_start(&s, live, env);
    assert_int_equal(spawn_wait(&s), 1);
    assert_int_equal(sscanf(SPAWN_OUT(&s), "job %63s", job), 1);
    snprintf(line, sizeof(line), "trireme why: job %s runs, and has no flight records: ", job);
    assert_says(SPAWN_ERR(&s), line);
    at = strstr(SPAWN_ERR(&s), line);
    assert_says(at + 1, line); /* and of the second command */
    assert_says(SPAWN_OUT(&s), "2 ranks on ");
    spawn_free(&s);
    spawn_remove_folder(home);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_command_line_that_was_cut_says_so, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(a_command_line_that_is_no_utf8_is_told_in_json, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(what_is_no_record_is_refused, make_folder, remove_folder),
    cmocka_unit_test(jobs_are_told_apart),
    cmocka_unit_test(ps_shows_a_rank_that_waits_in_tri_init),
    cmocka_unit_test(a_job_that_runs_without_records_comes_before_the_dead),
};

TEST_MAIN(tests)
