/*
 * unload_test.c - a program that loads the library, leaves the world and unloads it again, while a
 * thread that looked where the master's address leads is still held by the resolver.
 */
/* ctest: program=own */
#include <dirent.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <trireme/group.h>

#include "testing/check.h"
#include "testing/spawn.h"

#define SLOW "slow.example"

static int asked[2], answer[2];

/* In front of the system's: a resolver that takes its time, as one without a server does. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **result)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    char byte = 0;

    if (node == NULL || strcmp(node, SLOW) != 0) {
        *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
        return next(node, service, hints, result);
    }
    if (gettid() != getpid() && (write(asked[1], &byte, 1) != 1 || read(answer[0], &byte, 1) != 1))
        return EAI_SYSTEM;
    return EAI_NONAME;
}

static const char *join_and_leave(int rank, const char *master, int port)
{
    const char *(*line)(void);
    tri_status (*init)(const tri_init_options *);
    void (*finalize)(void);
    char path[300], number[16], byte;
    void *library;

    snprintf(number, sizeof(number), "%d", port);
    setenv("MASTER_PORT", number, 1);
    setenv("MASTER_ADDR", master, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", rank == 0 ? "0" : "1", 1);
    setenv("TRI_TIMEOUT_MS", "40000", 1);
    snprintf(path, sizeof(path), "%s/../lib/libtrireme-comm.so", getenv("TRI_TEST_BIN"));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return dlerror();
    *(void **)&line = dlsym(library, "tri_last_error");
    *(void **)&init = dlsym(library, "tri_init");
    *(void **)&finalize = dlsym(library, "tri_finalize");
    if (init(NULL) != TRI_OK)
        return line();
    if (rank == 0 && read(asked[0], &byte, 1) != 1)
        return "nobody asked the resolver";
    finalize();
    return dlclose(library) == 0 ? NULL : dlerror();
}

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = -2; /* . and .. */

    assert_non_null(tasks);
    while (readdir(tasks) != NULL)
        n++;
    closedir(tasks);
    return n;
}

static void a_resolver_may_hold_a_thread_while_the_library_is_unloaded(void **state)
{
    int port = spawn_free_port(), status = 0, before;
    const char *why;
    pid_t other;

    (void)state;
    assert_int_equal(pipe(asked), 0);
    assert_int_equal(pipe(answer), 0);
    before = count_threads();
    other = fork();
    if (other == 0)
        _exit(join_and_leave(1, "127.0.0.1", port) == NULL ? 0 : 1);
    why = join_and_leave(0, SLOW, port);
    if (why != NULL)
        fail_msg("%s", why);
    /* twice: whether it is an address of this host, and where it leads */
    assert_int_equal(write(answer[1], "12", 2), 2);
    while (count_threads() > before + TEST_TSAN) /* which keeps one of its own from the first on */
        sched_yield();
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_resolver_may_hold_a_thread_while_the_library_is_unloaded),
};

TEST_MAIN(tests)
