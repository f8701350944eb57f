/*
 * test_program.c - main() of a program that holds several test files: linking one for each file
 * takes longer than compiling it. The program has a name for each file, and runs the one it was
 * started as; started by its own name it wants that as its first argument. TEST_FILES is the list
 * of the files, one TEST_FILE(x_test) each, whose main() was compiled as x_test_main.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST_FILE(name) int name##_main(int argc, char **argv);
#include TEST_FILES
#undef TEST_FILE

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} files[] = {
#define TEST_FILE(name) {#name, name##_main},
#include TEST_FILES
#undef TEST_FILE
};

/* Files that say threads=none are linked with this: it fails where one starts a thread. */
#ifdef TEST_WITHOUT_THREADS
#include "testing/check.h"

#include <pthread.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    (void)thread, (void)attr, (void)run, (void)arg;
    fail_msg("a thread starts in a test that says threads=none");
    return 1;
}
#endif

/* main() of the file whose name ends the path; NULL: none. */
static int (*find_file(const char *path))(int, char **)
{
    const char *slash = strrchr(path, '/');

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (strcmp(slash != NULL ? slash + 1 : path, files[i].name) == 0)
            return files[i].run;
    }
    return NULL;
}

/* What ctest says in the environment, for cases that somebody runs by hand: BUILD/test/x_test has
 * the programs in BUILD/bin, and BUILD is somewhere below the sources. */
static void find_folders(const char *program)
{
    char folder[4096], file[4200];
    char *slash;

    snprintf(folder, sizeof(folder), "%s", program);
    for (int above = 1; (slash = strrchr(folder, '/')) != NULL; above++) {
        *slash = '\0';
        snprintf(file, sizeof(file), "%s/bin", folder);
        if (above == 2)
            setenv("TRI_TEST_BIN", file, 0);
        snprintf(file, sizeof(file), "%s/tests/testing/program/test_program.c", folder);
        if (access(file, R_OK) == 0) {
            setenv("TRI_TEST_SOURCE", folder, 0);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    static const char gone[] = " (deleted)"; /* the kernel's word for a file without a name */
    char path[4096];
    /* Not by argv[0]: tests start themselves as /proc/self/exe. */
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    int (*run)(int, char **);

    path[n > 0 ? n : 0] = '\0';
    if (n > (ssize_t)strlen(gone) && strcmp(path + n - strlen(gone), gone) == 0)
        path[n - (ssize_t)strlen(gone)] = '\0';
    if (getenv("TRI_TEST_SOURCE") == NULL)
        find_folders(path);
    run = find_file(path);
    if (run != NULL)
        return run(argc, argv);
    run = argc > 1 ? find_file(argv[1]) : NULL;
    if (run != NULL)
        return run(argc - 1, argv + 1);
    fprintf(stderr, "usage: %s FILE [CASE]; it has:", argv[0]);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        fprintf(stderr, " %s", files[i].name);
    fprintf(stderr, "\n");
    return 2;
}
