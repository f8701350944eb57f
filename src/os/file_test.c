/*
 * file_test.c - a writer replaces files and nothing else; a name that leads elsewhere is left
 * alone.
 */
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/secret.h"
#include "testing/check.h"
#include "testing/scratch.h"

static tri_status replace(const char *path, const char *text)
{
    trii_writer writer;
    tri_status status = trii_writer_open(path, &writer);

    if (status == TRI_OK)
        status = trii_writer_put(&writer, text, strlen(text));
    if (status == TRI_OK)
        return trii_writer_commit(&writer);
    trii_writer_abort(&writer);
    return status;
}

static void expect_text(const char *path, const char *text)
{
    size_t bytes;
    char *seen = scratch_read(path, &bytes);

    assert_string_equal(seen, text);
    free(seen);
}

static void a_link_is_followed_to_the_file_that_it_names(void **state)
{
    struct stat info;
    scratch s;

    (void)state;
    scratch_begin(&s);
    scratch_file(&s, "target", "old", 3);
    assert_int_equal(symlink("target", scratch_path(&s, "link")), 0);
    assert_int_equal(symlink("link", scratch_path(&s, "longer")), 0);
    CHECK_OK(replace(scratch_path(&s, "longer"), "new"));
    assert_int_equal(lstat(scratch_path(&s, "longer"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(lstat(scratch_path(&s, "link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    expect_text(scratch_path(&s, "target"), "new");
    assert_int_equal(scratch_count(s.dir), 3);
    scratch_end(&s);
}

static void what_is_no_file_is_never_replaced(void **state)
{
    struct stat info;
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(mkfifo(scratch_path(&s, "fifo"), 0600), 0);
    assert_int_equal(mkdir(scratch_path(&s, "folder"), 0700), 0);
    assert_int_equal(symlink("/dev/null", scratch_path(&s, "null")), 0);
    assert_int_equal(symlink("nowhere/nothing", scratch_path(&s, "dangling")), 0);
    CHECK_FAILS(replace(scratch_path(&s, "fifo"), "x"), TRI_ERR_IO, "not a file");
    CHECK_FAILS(replace(scratch_path(&s, "folder"), "x"), TRI_ERR_IO, "not a file");
    CHECK_FAILS(replace(scratch_path(&s, "null"), "x"), TRI_ERR_IO, "not a file");
    CHECK_FAILS(replace(scratch_path(&s, "dangling"), "x"), TRI_ERR_NOT_FOUND, "dangling");
    assert_int_equal(lstat(scratch_path(&s, "fifo"), &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(scratch_count(s.dir), 4);
    scratch_end(&s);
}

static mode_t mode_of(const char *path)
{
    struct stat info;

    assert_int_equal(stat(path, &info), 0);
    return info.st_mode & 07777;
}

static void a_replaced_file_leaves_its_rights(void **state)
{
    static const mode_t modes[] = {0600, 0640, 0664, 0444, 0400, 0755};
    trii_writer writer;
    struct stat info;
    mode_t mask = umask(027);
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(replace(scratch_path(&s, "file"), "new"));
    assert_int_equal(mode_of(scratch_path(&s, "file")), 0640); /* of a new file: the umask's */
    assert_int_equal(symlink("file", scratch_path(&s, "link")), 0);
    for (size_t i = 0; i < TRII_COUNT_OF(modes); i++) {
        assert_int_equal(chmod(scratch_path(&s, "file"), modes[i]), 0);
        CHECK_OK(trii_writer_open(scratch_path(&s, i % 2 == 0 ? "file" : "link"), &writer));
        assert_int_equal(mode_of(writer.temporary), modes[i]); /* before there is anything in it */
        CHECK_OK(trii_writer_put(&writer, "x", 1));
        CHECK_OK(trii_writer_commit(&writer));
        assert_int_equal(mode_of(scratch_path(&s, "file")), modes[i]);
        CHECK_OK(trii_file_replace(scratch_path(&s, "file"), "y", 1));
        assert_int_equal(mode_of(scratch_path(&s, "file")), modes[i]);
    }
    if (geteuid() == 0) { /* nobody else may give files away */
        assert_int_equal(chown(scratch_path(&s, "file"), 12345, 54321), 0);
        CHECK_OK(replace(scratch_path(&s, "file"), "new"));
        assert_int_equal(stat(scratch_path(&s, "file"), &info), 0);
        assert_int_equal(info.st_uid, 12345);
        assert_int_equal(info.st_gid, 54321);
    }
    umask(mask);
    scratch_end(&s);
}

/* Replaces a file of another user's group, as somebody who is not in it. */
static int replace_as_another(const char *path)
{
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(12346) != 0 || setuid(12346) != 0))
        return 2;
    return replace(path, "new") == TRI_OK ? 0 : 1;
}

static void a_group_that_cannot_be_kept_gets_the_rights_of_others(void **state)
{
    struct stat info;
    int status;
    bool root = geteuid() == 0;
    pid_t pid;
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(chmod(s.dir, 0777), 0);
    scratch_file(&s, "file", "old", 3);
    assert_int_equal(chown(scratch_path(&s, "file"), (uid_t)-1, root ? 54321 : getegid()), 0);
    assert_int_equal(chmod(scratch_path(&s, "file"), 0664), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(replace_as_another(scratch_path(&s, "file")));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(stat(scratch_path(&s, "file"), &info), 0);
    assert_int_equal(info.st_mode & 07777, root ? 0644 : 0664);
    expect_text(scratch_path(&s, "file"), "new");
    scratch_end(&s);
}

static void a_link_to_what_is_not_there_yet_is_followed(void **state)
{
    struct stat info;
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(mkdir(scratch_path(&s, "folder"), 0700), 0);
    assert_int_equal(symlink("folder/later", scratch_path(&s, "link")), 0);
    assert_int_equal(symlink("link", scratch_path(&s, "longer")), 0);
    assert_int_equal(symlink("circle", scratch_path(&s, "circle")), 0);
    CHECK_OK(replace(scratch_path(&s, "longer"), "new"));
    expect_text(scratch_path(&s, "folder/later"), "new");
    assert_int_equal(lstat(scratch_path(&s, "link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    CHECK_FAILS(replace(scratch_path(&s, "circle"), "x"), TRI_ERR_IO, "circle");
    assert_int_equal(scratch_count(s.dir), 4);
    assert_int_equal(scratch_count(scratch_path(&s, "folder")), 1);
    scratch_end(&s);
}

/* The name while it is written is longer. */
static void names_may_be_as_long_as_the_system_allows(void **state)
{
    char name[300], path[512];
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int length = 1; length <= 255; length += length < 200 ? 40 : 1) {
        memset(name, 'n', sizeof(name));
        name[length] = '\0';
        snprintf(path, sizeof(path), "%s/%s", s.dir, name);
        CHECK_OK(replace(path, "x"));
        expect_text(path, "x");
        assert_int_equal(unlink(path), 0);
    }
    snprintf(path, sizeof(path), "%s/%s", s.dir, "n");
    CHECK_OK(replace(path, "x"));
    assert_int_equal(scratch_count(s.dir), 1);
    scratch_end(&s);
}

/* A writer on another host that shares the disk may have the same process number. */
static void a_temporary_file_of_somebody_else_is_left_alone(void **state)
{
    trii_writer first, second;
    char theirs[256];
    unsigned n;
    char *dash;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_writer_open(scratch_path(&s, "file"), &first));
    snprintf(theirs, sizeof(theirs), "%s", first.temporary);
    trii_writer_abort(&first);
    dash = strrchr(theirs, '-') + 1;
    n = (unsigned)strtoul(dash, NULL, 10);
    for (unsigned i = 1; i <= 3; i++) {
        snprintf(dash, 12, "%u", n + i);
        scratch_file(&s, strrchr(theirs, '/') + 1, "theirs", 6);
    }
    CHECK_OK(trii_writer_open(scratch_path(&s, "file"), &second));
    CHECK_OK(trii_writer_put(&second, "ours", 4));
    CHECK_OK(trii_writer_commit(&second));
    expect_text(scratch_path(&s, "file"), "ours");
    expect_text(theirs, "theirs");
    assert_int_equal(scratch_count(s.dir), 4);
    scratch_end(&s);
}

/* It came there while the file was written. */
static void what_takes_the_name_meanwhile_stays(void **state)
{
    trii_writer writer;
    struct stat info;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_writer_open(scratch_path(&s, "name"), &writer));
    CHECK_OK(trii_writer_put(&writer, "x", 1));
    assert_int_equal(symlink("/dev/null", scratch_path(&s, "name")), 0);
    CHECK_FAILS(trii_writer_commit(&writer), TRI_ERR_IO, "not a file");
    assert_int_equal(lstat(scratch_path(&s, "name"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(scratch_count(s.dir), 1);
    scratch_end(&s);
}

/* As /dev/stdout is, where the shell sent it to a file. */
static void a_file_that_is_our_own_output_is_not_replaced(void **state)
{
    int saved = dup(1), fd;
    tri_status status;
    char why[512];
    scratch s;

    (void)state;
    scratch_begin(&s);
    fd = open(scratch_file(&s, "out", "mine\n", 5), O_WRONLY | O_APPEND);
    assert_true(fd >= 0 && saved >= 0);
    fflush(stdout);
    dup2(fd, 1);
    status = replace("/proc/self/fd/1", "x");
    dup2(saved, 1);
    close(saved);
    close(fd);
    snprintf(why, sizeof(why), "%s", tri_last_error());
    expect_text(scratch_path(&s, "out"), "mine\n");
    assert_int_equal(status, TRI_ERR_IO);
    assert_non_null(strstr(why, "is this program's own output"));
    scratch_end(&s);
}

static void a_fifo_is_refused_and_not_waited_for(void **state)
{
    trii_mapping mapping;
    char key[64];
    size_t bytes;
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(mkfifo(scratch_path(&s, "fifo"), 0600), 0);
    CHECK_FAILS(trii_mapping_open(scratch_path(&s, "fifo"), &mapping), TRI_ERR_IO, "not a file");
    CHECK_FAILS(trii_secret_read(scratch_path(&s, "fifo"), key, sizeof(key), &bytes), TRI_ERR_IO,
                "not a plain file");
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_link_is_followed_to_the_file_that_it_names),
    cmocka_unit_test(what_is_no_file_is_never_replaced),
    cmocka_unit_test(a_replaced_file_leaves_its_rights),
    cmocka_unit_test(a_group_that_cannot_be_kept_gets_the_rights_of_others),
    cmocka_unit_test(a_link_to_what_is_not_there_yet_is_followed),
    cmocka_unit_test(names_may_be_as_long_as_the_system_allows),
    cmocka_unit_test(a_temporary_file_of_somebody_else_is_left_alone),
    cmocka_unit_test(what_takes_the_name_meanwhile_stays),
    cmocka_unit_test(a_file_that_is_our_own_output_is_not_replaced),
    cmocka_unit_test(a_fifo_is_refused_and_not_waited_for),
};

TEST_MAIN(tests)
