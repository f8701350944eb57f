/*
 * launcher_job.h - trirun with real workers in a home of its own, so that what it leaves behind
 * can be counted. Tests only.
 *
 * Workers are shell scripts. In their text $$ reaches the shell as $, as with torchrun.
 */
#ifndef TEST_LAUNCHER_JOB_H
#define TEST_LAUNCHER_JOB_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing/check.h"
#include "testing/spawn.h"

typedef struct launcher_job {
    spawn trirun;
    char home[256]; /* its XDG_RUNTIME_DIR and TMPDIR */
    char folder[320];
} launcher_job;

/* Starts argv, which starts trirun, in a home of its own. env: more variables of its environment,
 * at most 8, ends with NULL; NULL = none. */
static inline void trirun_start_by(launcher_job *j, const char *const *argv, const char *const *env)
{
    char own[sizeof(j->home)], home[300], temporary[300];
    const char *all[16] = {home, temporary, "OMP_NUM_THREADS", "TRI_NUM_THREADS", "TRI_RUN_DIR"};

    for (int i = 0; env != NULL && env[i] != NULL; i++)
        all[i + 5] = env[i];
    spawn_make_folder(own, sizeof(own));
    memcpy(j->home, own, sizeof(own));
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", own);
    snprintf(temporary, sizeof(temporary), "TMPDIR=%s", own);
    snprintf(j->folder, sizeof(j->folder), "%s/trireme-%d", own, (int)getuid());
    spawn_start(&j->trirun, argv, all);
}

static inline void trirun_start(launcher_job *j, const char *const *args, const char *const *env)
{
    const char *argv[48] = {spawn_bin("trirun")};

    for (int i = 0; args[i] != NULL; i++)
        argv[i + 1] = args[i];
    trirun_start_by(j, argv, env);
}
#define TRIRUN(j, ...) trirun_start(j, (const char *const[]){__VA_ARGS__, NULL}, NULL)
#define TRIRUN_ENV(j, env, ...)                                                                    \
    trirun_start(j, (const char *const[]){__VA_ARGS__, NULL}, (const char *const[]){env, NULL})

/* `trirun WORDS`, in a shell, on a terminal of 77 columns, which util-linux' script gives. False: a
 * bare chroot has no pseudo-terminals; then nobody has one, and there is nothing to see. */
static inline bool trirun_start_on_terminal(launcher_job *j, const char *words,
                                            const char *const *env)
{
    char command[4200];
    const char *const argv[] = {"script", "-qec", command, "/dev/null", NULL};
    int fd = posix_openpt(O_RDWR | O_NOCTTY), other = -1;

    if (fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0 && ptsname(fd) != NULL)
        other = open(ptsname(fd), O_RDWR | O_NOCTTY);
    if (other >= 0)
        close(other);
    if (fd >= 0)
        close(fd);
    if (other < 0)
        return false;
    snprintf(command, sizeof(command), "stty cols 77; %s %s", spawn_bin("trirun"), words);
    trirun_start_by(j, argv, env);
    return true;
}

/* Nothing of the job is left but `n_folders` run folders, and then not those either. */
static inline void trirun_end(launcher_job *j, int n_folders)
{
    spawn_expect_no_process(&j->trirun);
    assert_int_equal(spawn_count_entries(j->folder), n_folders);
    spawn_free(&j->trirun);
    spawn_remove_folder(j->home);
}

static inline void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is missing in:\n%s", part, text);
}

static inline void assert_has_not(const char *text, const char *part)
{
    if (strstr(text, part) != NULL)
        fail_msg("\"%s\" should not be in:\n%s", part, text);
}

static inline int count_in(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

/* Ends the line at `line` with a zero; where the next begins, NULL if this is none. */
static inline char *next_line(char *line)
{
    char *end = strchr(line, '\n');

    if (end == NULL)
        return NULL;
    *end = '\0';
    return end + 1;
}

/* The whole file as text; "" and false if there is none. */
static inline bool slurp(const char *path, char *out, size_t bytes)
{
    FILE *file = fopen(path, "r");

    out[0] = '\0';
    if (file == NULL)
        return false;
    out[fread(out, 1, bytes - 1, file)] = '\0';
    fclose(file);
    return true;
}

static inline void write_text(const char *path, const char *text, unsigned mode)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

#endif
