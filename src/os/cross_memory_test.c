/*
 * cross_memory_test.c - memory of other processes: reading it, and what a refusal is called.
 */
#include "testing/check.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/cross_memory.h"

static void memory_that_is_not_there_is_called_so(void **state)
{
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char byte = 1;
    int error = 0;

    (void)state;
    p[5] = 42;
    assert_true(trii_cross_memory_read(getpid(), (uint64_t)(uintptr_t)p + 5, &byte, 1, &error));
    assert_int_equal(byte, 42);
    munmap(p, 4096);
    assert_false(trii_cross_memory_read(getpid(), (uint64_t)(uintptr_t)p, &byte, 1, &error));
    assert_non_null(strstr(trii_cross_memory_why(error), "freed"));
    assert_false(trii_cross_memory_is_gone(error));
}

/* Process 1 belongs to another user, or we give up our rights to read it. */
static void a_refusal_is_not_called_a_freed_buffer(void **state)
{
    pid_t child = fork();
    int ended = 0;

    (void)state;
    if (child == 0) {
        char byte;
        int error = 0;
        bool refused;

        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(2);
        refused = !trii_cross_memory_read(1, 4096, &byte, 1, &error);
        _exit(refused && error == EPERM &&
                      strstr(trii_cross_memory_why(error), "PR_SET_DUMPABLE") != NULL
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_that_is_not_there_is_called_so),
    cmocka_unit_test(a_refusal_is_not_called_a_freed_buffer),
};

TEST_MAIN(tests)
