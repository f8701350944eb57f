/*
 * trirun_job.h - one trirun with its own XDG_RUNTIME_DIR, for tests that look at what it leaves.
 * Tests only.
 */
#ifndef TEST_TRIRUN_JOB_H
#define TEST_TRIRUN_JOB_H

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "testing/check.h"
#include "testing/spawn.h"

typedef struct trirun_job {
    spawn run;
    char home[256]; /* its XDG_RUNTIME_DIR */
    char folder[320];
} trirun_job;

/* argv[0] is the program, else trirun's arguments follow `head` (a wrapper, or nothing). */
static inline void trirun_start_behind(trirun_job *j, const char *const *head,
                                       const char *const *args, const char *extra)
{
    const char *argv[64];
    char own[sizeof(j->home)], home[300];
    const char *env[] = {home, "OMP_NUM_THREADS", "TRI_NUM_THREADS", "TRI_RUN_DIR", extra, NULL};
    int n = 0;

    for (; head != NULL && *head != NULL; head++)
        argv[n++] = *head;
    argv[n++] = spawn_bin("trirun");
    for (; *args != NULL; args++) {
        assert_true(n < 62);
        argv[n++] = *args;
    }
    argv[n] = NULL;
    spawn_make_folder(own, sizeof(own));
    memcpy(j->home, own, sizeof(own));
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", own);
    snprintf(j->folder, sizeof(j->folder), "%s/trireme-%d", own, (int)getuid());
    spawn_start(&j->run, argv, env);
}

static inline void trirun_start(trirun_job *j, const char *const *args)
{
    trirun_start_behind(j, NULL, args, NULL);
}
#define TRIRUN_START(j, ...) trirun_start(j, (const char *const[]){__VA_ARGS__, NULL})

/* Nothing of the job is left but `n_folders` run folders. */
static inline void trirun_end(trirun_job *j, int n_folders)
{
    spawn_expect_no_process(&j->run);
    assert_int_equal(spawn_count_entries(j->folder), n_folders);
    spawn_free(&j->run);
    spawn_remove_folder(j->home);
}

static inline void trirun_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is missing in:\n%s", part, text);
}

static inline int trirun_count(const char *text, const char *part)
{
    int n = 0;

    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        n++;
    }
    return n;
}

static inline double trirun_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
