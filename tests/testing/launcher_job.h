/*
 * launcher_job.h - trirun with real workers in a home of its own, so that what it leaves behind
 * can be counted. Tests only.
 *
 * Workers are shell scripts. In their text $$ reaches the shell as $, as with torchrun.
 */
#ifndef TEST_LAUNCHER_JOB_H
#define TEST_LAUNCHER_JOB_H

#include <stdio.h>
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

/* env: more variables of its environment, at most 8, ends with NULL; NULL = none. */
static inline void trirun_start(launcher_job *j, const char *const *args, const char *const *env)
{
    const char *argv[48] = {spawn_bin("trirun")};
    char home[300], temporary[300];
    const char *all[16] = {home, temporary, "OMP_NUM_THREADS", "TRI_NUM_THREADS", "TRI_RUN_DIR"};

    for (int i = 0; args[i] != NULL; i++)
        argv[i + 1] = args[i];
    for (int i = 0; env != NULL && env[i] != NULL; i++)
        all[i + 5] = env[i];
    spawn_make_folder(j->home, sizeof(j->home));
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", j->home);
    snprintf(temporary, sizeof(temporary), "TMPDIR=%s", j->home);
    snprintf(j->folder, sizeof(j->folder), "%s/trireme-%d", j->home, (int)getuid());
    spawn_start(&j->trirun, argv, all);
}
#define TRIRUN(j, ...) trirun_start(j, (const char *const[]){__VA_ARGS__, NULL}, NULL)
#define TRIRUN_ENV(j, env, ...)                                                                    \
    trirun_start(j, (const char *const[]){__VA_ARGS__, NULL}, (const char *const[]){env, NULL})

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
