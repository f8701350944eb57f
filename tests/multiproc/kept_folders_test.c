/*
 * kept_folders_test.c - the run folders of jobs: each has one of its own, also where two triruns
 * have one process id, and which of them stay after a failure, also where the clock was set back.
 * flock is replaced by one that can fail.
 */
/* ctest: program=own */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "launch/inspect/jobs.h"
#include "launch/run_folder.h"
#include "os/folder.h"
#include "testing/check.h"
#include "testing/spawn.h"

static char home[256];
static int flock_errno; /* what the file system says of locks; 0 = it has them */

/* In the C library's place. */
int flock(int fd, int operation)
{
    if (flock_errno == 0)
        return (int)syscall(SYS_flock, fd, operation);
    errno = flock_errno;
    return -1;
}

static int make_home(void **state)
{
    (void)state;
    flock_errno = 0;
    spawn_make_folder(home, sizeof(home));
    assert_int_equal(chmod(home, 0700), 0);
    return setenv("XDG_RUNTIME_DIR", home, 1);
}

static int remove_home(void **state)
{
    (void)state;
    unsetenv("XDG_RUNTIME_DIR");
    spawn_remove_folder(home);
    return 0;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* In a container trirun is process 1, and /tmp may be shared. */
static void two_jobs_of_one_process_id_have_two_folders(void **state)
{
    trii_run_folder first, second;
    char file[600];

    (void)state;
    for (int i = 0; i < 3; i++) { /* a second may begin between the two */
        CHECK_OK(trii_run_folder_create(&first));
        snprintf(file, sizeof(file), "%s/rank-0.rec", first.path);
        close(open(file, O_WRONLY | O_CREAT, 0600));
        CHECK_OK(trii_run_folder_create(&second));
        assert_string_not_equal(first.path, second.path);
        assert_true(is_there(file));
        trii_run_folder_remove(&second);
        assert_true(is_there(file));
        trii_run_folder_remove(&first);
        assert_false(is_there(first.path));
    }
}

/* Somebody's folder of a failed job, whose newest entry was made at that time. */
static void old_job(const trii_run_folder *beside, const char *name, time_t at)
{
    const struct timespec times[2] = {{.tv_sec = at}, {.tv_sec = at}};
    char path[600];

    snprintf(path, sizeof(path), "%s/%s", beside->parent, name);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool has(const trii_run_folder *beside, const char *name)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/%s", beside->parent, name);
    return is_there(path);
}

static void what_has_just_failed_is_kept_after_the_clock_was_set_back(void **state)
{
    static const char *const ahead[] = {"20990101-000000-1", "20990101-000000-2",
                                        "20990101-000000-3", "20990101-000000-4",
                                        "20990101-000000-7"};
    trii_run_folder folder;
    time_t now = time(NULL);

    (void)state;
    CHECK_OK(trii_run_folder_create(&folder));
    for (int i = 0; i < 5; i++)
        old_job(&folder, ahead[i], now + 1000000 + i);
    old_job(&folder, "20200101-000000-5", now - 1000);
    old_job(&folder, "20200101-000000-6", now - 2000);
    trii_run_folder_keep(&folder);
    assert_true(is_there(folder.path));
    assert_true(has(&folder, "20200101-000000-5"));
    assert_true(has(&folder, "20200101-000000-6"));
    assert_true(has(&folder, ahead[0])); /* the last two places are left to them */
    assert_true(has(&folder, ahead[1]));
    for (int i = 2; i < 5; i++)
        assert_false(has(&folder, ahead[i]));
}

static void a_job_has_a_folder_where_the_file_system_has_no_locks(void **state)
{
    static const int errnos[] = {ENOLCK, ENOSYS, EOPNOTSUPP, 524};
    trii_run_folder folder;

    (void)state;
    for (size_t i = 0; i < sizeof(errnos) / sizeof(*errnos); i++) {
        flock_errno = errnos[i];
        CHECK_OK(trii_run_folder_create(&folder));
        assert_true(is_there(folder.path));
        assert_int_equal(folder.lock_fd, -1);
        trii_run_folder_keep(&folder);
        assert_true(is_there(folder.path));
        trii_run_folder_remove(&folder);
        assert_false(is_there(folder.path));
    }
}

/* As many stay where no locks tell which jobs are over. */
static void the_newest_of_thousands_of_folders_is_found(void **state)
{
    enum { OLD = 1100 };
    trii_run_folder newest;
    char path[600], **names;
    int n;

    (void)state;
    CHECK_OK(trii_run_folder_create(&newest));
    for (int i = 0; i < OLD; i++) {
        struct utimbuf past = {1000 + i, 1000 + i};

        snprintf(path, sizeof(path), "%s/20200101-000000-%d", newest.parent, i);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(utime(path, &past), 0);
    }
    n = trii_jobs_by_age(newest.parent, &names);
    assert_int_equal(n, OLD + 1);
    assert_string_equal(names[0], strrchr(newest.path, '/') + 1);
    trii_folder_free_names(names, n);
    trii_run_folder_remove(&newest);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(the_newest_of_thousands_of_folders_is_found, make_home,
                                    remove_home),
    cmocka_unit_test_setup_teardown(two_jobs_of_one_process_id_have_two_folders, make_home,
                                    remove_home),
    cmocka_unit_test_setup_teardown(what_has_just_failed_is_kept_after_the_clock_was_set_back,
                                    make_home, remove_home),
    cmocka_unit_test_setup_teardown(a_job_has_a_folder_where_the_file_system_has_no_locks,
                                    make_home, remove_home),
};

TEST_MAIN(tests)
