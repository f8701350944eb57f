/* saved_test.c - folders of checkpoints: what is ours in them, which is the newest, who may
 * save. */
/* ctest: program=own */
#include <errno.h>
#include <inttypes.h>

#include "base/alloc.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/format.h"
#include "os/folder.h"
#include "testing/scratch.h"

static int syncs_until_failure; /* the n-th fsync from now fails; 0 = none */

/* In place of libc's: a disk that fails when it is told to keep what it took. */
int fsync(int fd)
{
    if (syncs_until_failure > 0 && --syncs_until_failure == 0) {
        errno = EIO;
        return -1;
    }
    return fdatasync(fd);
}

static int entries_until_failure = -1; /* so many entries of folders are read; -1 = all */

static const char *changes; /* this folder, once it has been read so often: a quick saver */
static int reads_until_change;
static tri_status commit(const char *folder, int64_t n, int keep);

/* In place of libc's: a network file system that loses its server in the middle of a folder. */
struct dirent *readdir(DIR *dir)
{
    struct dirent *entry;

    if (entries_until_failure == 0) {
        errno = EIO;
        return NULL;
    }
    entries_until_failure -= entries_until_failure > 0;
    entry = (struct dirent *)readdir64(dir);
    if (entry == NULL && changes != NULL && --reads_until_change == 0) {
        const char *folder = changes;

        changes = NULL;
        if (commit(folder, 2, 1) != TRI_OK)
            abort();
    }
    errno = 0;
    return entry;
}

static tri_status commit(const char *folder, int64_t n, int keep)
{
    static const trii_random_state random;
    float value = (float)n;
    tri_safetensors_entry e = {
        .name = "w", .dtype = TRI_DTYPE_F32, .data = &value, .bytes = sizeof(value)};

    return trii_checkpoint_commit(folder,
                                  &(trii_save){.info = &(tri_checkpoint_info){.step = n},
                                               .random = &random,
                                               .parts = &(trii_part){TRII_MODEL_FILE, &e, 1},
                                               .n_parts = 1,
                                               .keep = keep});
}

static int64_t newest(const char *folder)
{
    trii_manifest m;
    int64_t step;
    char *dir;

    CHECK_OK(trii_checkpoint_find(folder, &dir, &m));
    step = m.info.step;
    trii_free(dir);
    trii_manifest_fini(&m);
    return step;
}

static bool exists(scratch *s, const char *name)
{
    return access(scratch_path(s, name), F_OK) == 0;
}

static void make_folder(scratch *s, const char *name)
{
    assert_int_equal(mkdir(scratch_path(s, name), 0777), 0);
}

static void files_of_the_user_stay(void **state)
{
    static const char *const folders[] = {".tmp-notes",
                                          ".tmp-step-5",
                                          ".tmp-step-000000000009-mine",
                                          "step-100-best",
                                          "step-7",
                                          "step-0000000000001",
                                          "step--00000000005",
                                          "step-000000000008",
                                          ".tmp-step-000000000008",
                                          "step-99999999999999999999"};
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (size_t i = 0; i < TRII_COUNT_OF(folders); i++) {
        char name[96];

        make_folder(&s, folders[i]);
        snprintf(name, sizeof(name), "%s/notes.txt", folders[i]);
        scratch_file(&s, name, "mine", 4);
    }
    scratch_file(&s, "step-000000000004", "a file", 6);
    CHECK_OK(commit(s.dir, 50, 1));
    /* A copy that somebody put aside, of a later step than what follows. */
    assert_int_equal(rename(scratch_path(&s, "step-000000000050"), scratch_path(&s, "step-zbest")),
                     0);
    for (int64_t n = 10; n < 13; n++) {
        CHECK_OK(commit(s.dir, n, 1));
        assert_int_equal(newest(s.dir), n);
    }
    assert_int_equal(newest(scratch_path(&s, "step-zbest")), 50);
    for (size_t i = 0; i < TRII_COUNT_OF(folders); i++) {
        char name[96];

        snprintf(name, sizeof(name), "%s/notes.txt", folders[i]);
        if (!exists(&s, name))
            fail_msg("%s is gone", name);
    }
    assert_true(exists(&s, "step-000000000004"));
    assert_int_equal(scratch_count(s.dir), TRII_COUNT_OF(folders) + 3);
    /* Nor is the user's folder replaced that has the name of a checkpoint. */
    CHECK_FAILS(commit(s.dir, 8, 1), TRI_ERR_IO, "step-000000000008 is there already");
    CHECK_FAILS(commit(s.dir, 4, 1), TRI_ERR_IO, "step-000000000004 is there already");
    assert_true(exists(&s, "step-000000000008/notes.txt"));
    assert_int_equal(newest(s.dir), 12);
    scratch_end(&s);
}

static void a_foreign_manifest_hides_nothing(void **state)
{
    static const char web[] = "{\"name\":\"my page\",\"version\":3}";
    scratch s;

    (void)state;
    scratch_begin(&s);
    scratch_file(&s, "manifest.json", web, sizeof(web) - 1);
    scratch_file(&s, "index.html", "", 0);
    CHECK_OK(commit(s.dir, 3, 1));
    assert_int_equal(newest(s.dir), 3);
    assert_true(exists(&s, "manifest.json"));
    scratch_end(&s);
}

static void steps_of_any_length_are_in_order(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, INT64_C(999999999999), 2));
    CHECK_OK(commit(s.dir, INT64_C(1000000000000), 2));
    assert_int_equal(newest(s.dir), INT64_C(1000000000000));
    CHECK_OK(commit(s.dir, INT64_MAX, 2));
    assert_int_equal(newest(s.dir), INT64_MAX);
    assert_int_equal(scratch_count(s.dir), 2);
    assert_false(exists(&s, "step-999999999999"));
    scratch_end(&s);
}

/* A run that goes back to step 100 and on from there: what it saves is the newest, and stays. */
static void the_branch_that_is_saved_last_is_kept(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int64_t n = 100; n <= 300; n += 100)
        CHECK_OK(commit(s.dir, n, 3));
    for (int64_t n = 110; n <= 130; n += 10) {
        CHECK_OK(commit(s.dir, n, 3));
        assert_int_equal(newest(s.dir), n);
        assert_int_equal(scratch_count(s.dir), 3);
    }
    assert_false(exists(&s, "step-000000000300"));
    assert_true(exists(&s, "step-000000000110"));
    scratch_end(&s);
}

static void two_savers_at_once_are_refused(void **state)
{
    int lock, ready[2], status;
    char c = 0;
    pid_t pid;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 1, 3));
    assert_int_equal(pipe(ready), 0);
    CHECK_OK(trii_folder_lock(s.dir, &lock)); /* somebody saves, and a child is forked meanwhile */
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ready[1]);
        _exit(read(ready[0], &c, 1) == 0 ? 0 : 1); /* until we are done */
    }
    close(ready[0]);
    CHECK_FAILS(commit(s.dir, 2, 3), TRI_ERR_STATE, "is being written by another");
    assert_int_equal(newest(s.dir), 1);
    trii_folder_unlock(lock);
    CHECK_OK(commit(s.dir, 2, 3));
    assert_int_equal(newest(s.dir), 2);
    close(ready[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    scratch_end(&s);
}

/* Every process of a job saves, which only one should: whole checkpoints or an error, no
 * mixture. */
static void many_savers_leave_whole_checkpoints(void **state)
{
    enum { SAVERS = 4 };
    pid_t pids[SAVERS];
    int status;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < SAVERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            for (int n = 0; n < 20; n++) {
                tri_status st = commit(s.dir, n, 2);

                if (st != TRI_OK && st != TRI_ERR_STATE)
                    _exit(1);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < SAVERS; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_true(newest(s.dir) >= 0);
    CHECK_OK(commit(s.dir, 50, 2));
    assert_int_equal(newest(s.dir), 50);
    assert_int_equal(scratch_count(s.dir), 2);
    scratch_end(&s);
}

static void a_disk_that_cannot_keep_data_loses_no_checkpoint(void **state)
{
    tri_status status;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 1, 1));
    for (int n = 1;; n++) {
        syncs_until_failure = n;
        status = commit(s.dir, 2, 1);
        if (syncs_until_failure > 0)
            break; /* it took fewer */
        CHECK_FAILS(status, TRI_ERR_IO, "Input/output error");
        assert_non_null(strstr(tri_last_error(), "step-000000000002"));
        assert_true(newest(s.dir) >= 1);
    }
    syncs_until_failure = 0;
    CHECK_OK(status);
    assert_int_equal(newest(s.dir), 2);
    assert_int_equal(scratch_count(s.dir), 1);
    scratch_end(&s);
}

static tri_status find(const char *folder)
{
    trii_manifest m;
    char *dir;
    tri_status status = trii_checkpoint_find(folder, &dir, &m);

    if (status == TRI_OK) {
        trii_free(dir);
        trii_manifest_fini(&m);
    }
    return status;
}

/* As a user whom modes concern, in a process of its own. Returns whether it ended with the status
 * and a line that holds the text. */
static bool finds_as_user(const char *folder, tri_status want, const char *text)
{
    int ending;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 && setuid(12345) != 0)
            _exit(2);
        _exit(find(folder) == want && strstr(tri_last_error(), text) != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &ending, 0), pid);
    return ending == 0;
}

/* "There is none" would make a program start from the beginning. */
static void a_checkpoint_that_may_not_be_read_is_not_taken_for_none(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(chmod(s.dir, 0755), 0);
    CHECK_OK(commit(s.dir, 1, 3));
    assert_int_equal(chmod(scratch_path(&s, "step-000000000001"), 0), 0);
    assert_true(finds_as_user(s.dir, TRI_ERR_IO, "step-000000000001/manifest.json: Permission"));
    assert_true(finds_as_user(scratch_path(&s, "step-000000000001"), TRI_ERR_IO, "Permission"));
    assert_int_equal(chmod(scratch_path(&s, "step-000000000001"), 0755), 0);
    assert_int_equal(chmod(scratch_path(&s, "step-000000000001/model.safetensors"), 0), 0);
    assert_true(finds_as_user(s.dir, TRI_ERR_IO, "model.safetensors: Permission"));
    assert_int_equal(chmod(s.dir, 0744), 0); /* it can be listed, and nothing in it looked at */
    assert_true(finds_as_user(s.dir, TRI_ERR_IO, "Permission"));
    assert_int_equal(chmod(s.dir, 0755), 0);
    CHECK_OK(commit(s.dir, 2, 3));
    assert_true(finds_as_user(s.dir, TRI_OK, ""));
    scratch_end(&s);
}

/* A disk that fails now and then must not cost the newest checkpoint. */
static void a_checkpoint_whose_manifest_cannot_be_read_stays(void **state)
{
    scratch s;
    const char *manifest;

    (void)state;
    scratch_begin(&s);
    for (int n = 1; n < 4; n++)
        CHECK_OK(commit(s.dir, n, 3));
    manifest = scratch_path(&s, "step-000000000003/manifest.json");
    assert_int_equal(unlink(manifest), 0);
    assert_int_equal(symlink("manifest.json", manifest), 0); /* ELOOP */
    CHECK_OK(commit(s.dir, 4, 1));
    assert_true(exists(&s, "step-000000000003/model.safetensors"));
    assert_false(exists(&s, "step-000000000002"));
    scratch_end(&s);
}

static void a_folder_that_cannot_be_read_to_its_end_is_not_an_empty_one(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 1, 1));
    for (int n = 0; n < 4; n++) {
        entries_until_failure = n;
        CHECK_FAILS(find(s.dir), TRI_ERR_IO, "cannot read folder");
        assert_non_null(strstr(tri_last_error(), s.dir));
        entries_until_failure = n;
        CHECK_FAILS(commit(s.dir, 2, 1), TRI_ERR_IO, "cannot read folder");
        entries_until_failure = -1;
        assert_int_equal(newest(s.dir), 1);
    }
    scratch_end(&s);
}

/* An evaluation beside the training: what it had listed is gone, and there is a newer one. */
static void a_checkpoint_that_is_removed_meanwhile_is_not_taken_for_none(void **state)
{
    (void)state;
    for (int n = 1; n < 5; n++) {
        scratch s;

        scratch_begin(&s);
        CHECK_OK(commit(s.dir, 1, 1));
        changes = s.dir;
        reads_until_change = n;
        assert_in_range(newest(s.dir), 1, 2);
        changes = NULL;
        scratch_end(&s);
    }
}

static void a_damaged_checkpoint_with_a_file_of_the_user_is_damaged_and_stays(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 1, 1));
    scratch_file(&s, "step-000000000001/manifest.json", "{\"format\":", 10);
    scratch_file(&s, "step-000000000001/.nfs0001", "", 0);
    CHECK_FAILS(find(s.dir), TRI_ERR_FORMAT, "none of 1 checkpoints");
    CHECK_FAILS(find(scratch_path(&s, "step-000000000001")), TRI_ERR_FORMAT, "manifest.json");
    CHECK_OK(commit(s.dir, 2, 1));
    CHECK_OK(commit(s.dir, 3, 1));
    assert_int_equal(newest(s.dir), 3);
    assert_true(exists(&s, "step-000000000001/model.safetensors"));
    assert_int_equal(scratch_count(s.dir), 2);
    scratch_end(&s);
}

static void a_link_to_a_checkpoint_leads_to_it_and_stays(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    make_folder(&s, "a");
    make_folder(&s, "b");
    CHECK_OK(commit(scratch_path(&s, "a"), 1, 1));
    assert_int_equal(symlink("a/step-000000000001", scratch_path(&s, "best")), 0);
    assert_int_equal(symlink("../a/step-000000000001", scratch_path(&s, "b/step-000000000001")), 0);
    assert_int_equal(newest(scratch_path(&s, "best")), 1);
    assert_int_equal(newest(scratch_path(&s, "b")), 1);
    CHECK_OK(commit(scratch_path(&s, "b"), 2, 1));
    CHECK_OK(commit(scratch_path(&s, "b"), 3, 1));
    assert_int_equal(newest(scratch_path(&s, "b")), 3);
    assert_int_equal(newest(scratch_path(&s, "b/step-000000000001")), 1);
    scratch_end(&s);
}

/* Its own checksum tells that nobody wrote such a number. */
static void the_sequence_of_a_damaged_manifest_counts_for_nothing(void **state)
{
    static const char high[] = "{\"format\":\"trireme checkpoint\",\"version\":2,"
                               "\"sequence\":9223372036854775807,\"step\":1}";
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 1, 2));
    scratch_file(&s, "step-000000000001/manifest.json", high, sizeof(high) - 1);
    for (int64_t n = 2; n < 6; n++) {
        CHECK_OK(commit(s.dir, n, 1));
        assert_int_equal(newest(s.dir), n);
    }
    assert_int_equal(scratch_count(s.dir), 1);
    scratch_end(&s);
}

/* Writes a whole manifest of a checkpoint that does not exist. */
static void write_sequence(scratch *s, const char *name, int64_t sequence)
{
    char text[256], whole[320];

    snprintf(text, sizeof(text),
             "{\"format\":\"trireme checkpoint\",\"version\":2,\"sequence\":%" PRId64 "}",
             sequence);
    snprintf(whole, sizeof(whole), "%.*s,\"xxh3\":\"%016" PRIx64 "\"}", (int)strlen(text) - 1, text,
             trii_checksum_of(text, strlen(text)));
    scratch_file(s, name, whole, strlen(whole));
}

static void after_the_last_sequence_nothing_is_saved_and_nothing_lost(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 1, 1));
    make_folder(&s, "step-000000000009");
    write_sequence(&s, "step-000000000009/manifest.json", INT64_MAX - 1);
    CHECK_OK(commit(s.dir, 2, 1));
    assert_int_equal(newest(s.dir), 2);
    CHECK_FAILS(commit(s.dir, 3, 1), TRI_ERR_IO, "step-000000000002: its manifest says sequence");
    assert_int_equal(newest(s.dir), 2);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_checkpoint_that_may_not_be_read_is_not_taken_for_none),
    cmocka_unit_test(a_checkpoint_whose_manifest_cannot_be_read_stays),
    cmocka_unit_test(a_folder_that_cannot_be_read_to_its_end_is_not_an_empty_one),
    cmocka_unit_test(a_checkpoint_that_is_removed_meanwhile_is_not_taken_for_none),
    cmocka_unit_test(a_damaged_checkpoint_with_a_file_of_the_user_is_damaged_and_stays),
    cmocka_unit_test(a_link_to_a_checkpoint_leads_to_it_and_stays),
    cmocka_unit_test(the_sequence_of_a_damaged_manifest_counts_for_nothing),
    cmocka_unit_test(after_the_last_sequence_nothing_is_saved_and_nothing_lost),
    cmocka_unit_test(files_of_the_user_stay),
    cmocka_unit_test(a_foreign_manifest_hides_nothing),
    cmocka_unit_test(steps_of_any_length_are_in_order),
    cmocka_unit_test(the_branch_that_is_saved_last_is_kept),
    cmocka_unit_test(two_savers_at_once_are_refused),
    cmocka_unit_test(many_savers_leave_whole_checkpoints),
    cmocka_unit_test(a_disk_that_cannot_keep_data_loses_no_checkpoint),
};
TEST_MAIN(tests)
