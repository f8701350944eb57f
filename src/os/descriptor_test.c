/*
 * descriptor_test.c - which numbers the descriptors of this library have, in a program whose
 * standard input, output and error are closed.
 */
/* ctest: threads=none */
#include "os/descriptor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/branch.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/liveness.h"
#include "os/loop.h"
#include "os/proc.h"
#include "os/shared_file.h"
#include "os/shmem.h"
#include "os/signal.h"
#include "os/socket.h"
#include "os/unix.h"
#include "testing/check.h"
#include "testing/scratch.h"

enum { CLOSED_FDS = 3 };

/* Whether nothing has the numbers 0 to 2 that are closed here. */
static bool are_free(unsigned closed)
{
    for (int fd = 0; fd < CLOSED_FDS; fd++) {
        if ((closed & 1u << fd) != 0 && fcntl(fd, F_GETFD) != -1)
            return false;
    }
    return true;
}

/* What is opened stays open; returned is the number of the step that went wrong, 0 = none. */
static int open_sockets(unsigned closed)
{
    char name[TRII_UNIX_NAME];
    int port = 0, listener = -1, ends[2], a, b, passed = -1;
    char byte = 0;

    if (trii_socket_listen("127.0.0.1", 0, &listener, &port) != TRI_OK || !are_free(closed))
        return 1;
    if (trii_socket_connect("127.0.0.1", port, trii_deadline_ms(5000), false, &a) != TRI_OK ||
        !are_free(closed))
        return 2;
    if (trii_socket_accept(listener, &b) != TRI_OK || !are_free(closed))
        return 3;
    if (trii_unix_listen(&listener, name) != TRI_OK || !are_free(closed))
        return 4;
    if (trii_unix_connect(name, trii_deadline_ms(5000), &a) != TRI_OK || !are_free(closed))
        return 5;
    if (trii_unix_accept(listener, trii_deadline_ms(5000), &b) != TRI_OK || !are_free(closed))
        return 6;
    if (trii_unix_send(a, &byte, 1, a, trii_deadline_ms(5000)) != TRI_OK ||
        trii_unix_recv(b, &byte, 1, &passed, trii_deadline_ms(5000)) != TRI_OK || passed < 0 ||
        !are_free(closed))
        return 7;
    if (trii_pair_open(&ends[0], &ends[1]) != TRI_OK || !are_free(closed))
        return 8;
    return 0;
}

static int open_files(unsigned closed, scratch *folder)
{
    trii_writer writer;
    int fd;
    void *base;

    if (trii_shared_file_open(scratch_path(folder, "shared"), true, &fd) != TRI_OK ||
        !are_free(closed))
        return 11;
    if (trii_append_open(scratch_path(folder, "lines"), &fd) != TRI_OK || !are_free(closed))
        return 12;
    if (trii_writer_open(scratch_path(folder, "whole"), &writer) != TRI_OK || !are_free(closed))
        return 13;
    if (trii_shmem_map_file(scratch_path(folder, "mapped"), 4096, &fd, &base) != TRI_OK ||
        !are_free(closed))
        return 14;
    return 0;
}

static int open_others(unsigned closed)
{
    const int numbers[] = {SIGUSR2};
    const char *const argv[] = {"true", NULL}, *const envp[] = {NULL};
    trii_process_spec spec = {
        .path = "/bin/true", .argv = argv, .envp = envp, .in_fd = -1, .out_fd = -1, .err_fd = -1};
    trii_process process;
    trii_shmem shmem;
    trii_loop *loop;
    bool is_child = false;
    int fd;

    if (trii_shmem_create("numbers", 4096, &shmem) != TRI_OK || !are_free(closed))
        return 21;
    if (trii_loop_create(&loop) != TRI_OK || !are_free(closed))
        return 22;
    if (trii_wakeup_create(&fd) != TRI_OK || !are_free(closed))
        return 23;
    if (trii_signal_open(numbers, 1, &fd) != TRI_OK || !are_free(closed))
        return 24;
    if (trii_process_start(&spec, &process) != TRI_OK || !are_free(closed))
        return 25;
    trii_process_wait(process.pid);
    if (trii_process_branch(&process, &is_child) != TRI_OK)
        return 26;
    if (is_child)
        trii_process_leave(0);
    trii_process_wait(process.pid);
    return are_free(closed) ? 0 : 27;
}

static int open_all(unsigned closed, scratch *folder)
{
    int wrong;

    for (int fd = 0; fd < CLOSED_FDS; fd++) {
        if ((closed & 1u << fd) != 0)
            close(fd);
    }
    wrong = open_sockets(closed);
    wrong = wrong != 0 ? wrong : open_files(closed, folder);
    return wrong != 0 ? wrong : open_others(closed);
}

static void no_descriptor_of_the_library_is_a_standard_one(void **state)
{
    scratch folder;

    (void)state;
    for (unsigned closed = 0; closed < 8; closed++) {
        int status = 0, pid;

        scratch_begin(&folder);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            _exit(open_all(closed, &folder));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        scratch_end(&folder);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_descriptor_of_the_library_is_a_standard_one),
};

TEST_MAIN(tests)
