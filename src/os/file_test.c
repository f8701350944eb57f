/*
 * file_test.c - a writer replaces files and nothing else; a name that leads elsewhere is left
 * alone.
 */
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
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
    assert_int_equal(symlink("nothing", scratch_path(&s, "dangling")), 0);
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
    cmocka_unit_test(what_takes_the_name_meanwhile_stays),
    cmocka_unit_test(a_file_that_is_our_own_output_is_not_replaced),
    cmocka_unit_test(a_fifo_is_refused_and_not_waited_for),
};

TEST_MAIN(tests)
