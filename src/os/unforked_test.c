/*
 * unforked_test.c - what a forked child finds under the numbers of descriptors that it must not
 * have.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing/check.h"

#include "os/unforked.h"

/* Whether a child of this process holds the socket. */
static bool child_has(int fd)
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct stat facts;

        _exit(fstat(fd, &facts) == 0 ? (S_ISSOCK(facts.st_mode) ? 1 : 2) : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), 3); /* the number is taken */
    return WEXITSTATUS(status) == 1;
}

static void a_child_gets_none_that_are_held(void **state)
{
    trii_unforked own[2] = {{0}, {0}};
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(child_has(pair[0]));
    trii_unforked_hold(&own[0], pair[0]);
    trii_unforked_hold(&own[1], pair[1]);
    assert_false(child_has(pair[0]));
    assert_false(child_has(pair[1]));
    trii_unforked_drop(&own[0]);
    trii_unforked_drop(&own[0]);
    assert_true(child_has(pair[0]));
    assert_false(child_has(pair[1]));
    trii_unforked_drop(&own[1]);
    assert_true(child_has(pair[1]));
    close(pair[0]);
    close(pair[1]);
}

/* The parent's own stay as they are. */
static void a_connection_ends_with_its_process_though_a_child_lives(void **state)
{
    int pair[2], gate[2], status = 0;
    pid_t child;
    char byte = 0;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pipe(gate), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        trii_unforked own = {0};
        pid_t grandchild;

        alarm(30);
        close(pair[0]);
        close(gate[1]);
        trii_unforked_hold(&own, pair[1]);
        grandchild = fork();
        if (grandchild == 0) {
            alarm(30);
            (void)!read(gate[0], &byte, 1); /* until the test is over */
            _exit(0);
        }
        _exit(grandchild < 0 || write(pair[1], "x", 1) != 1);
    }
    close(pair[1]);
    close(gate[0]);
    assert_int_equal(read(pair[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(read(pair[0], &byte, 1), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(gate[1]);
    close(pair[0]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_child_gets_none_that_are_held),
    cmocka_unit_test(a_connection_ends_with_its_process_though_a_child_lives),
};

TEST_MAIN(tests)
