/*
 * scratch.h - a folder of the test's own, and files in it. Tests only.
 */
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing/check.h"

typedef struct scratch {
    char dir[64];
    char path[8][192]; /* what scratch_path returned last */
    int next;
} scratch;

static inline void scratch_begin(scratch *s)
{
    const char *tmp = getenv("TMPDIR");

    memset(s, 0, sizeof(*s));
    snprintf(s->dir, sizeof(s->dir), "%s/tri-test-XXXXXX",
             tmp != NULL && strlen(tmp) < 40 ? tmp : "/tmp");
    assert_non_null(mkdtemp(s->dir));
}

static inline int scratch_remove_one(const char *path, const struct stat *info, int type,
                                     struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

static inline void scratch_end(scratch *s)
{
    assert_int_equal(nftw(s->dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* The path of `name` in the folder; good for the next seven calls. */
static inline const char *scratch_path(scratch *s, const char *name)
{
    char *path = s->path[s->next++ % 8];

    assert_true(strlen(s->dir) + strlen(name) + 2 < sizeof(s->path[0]));
    memcpy(path, s->dir, strlen(s->dir));
    snprintf(path + strlen(s->dir), 128, "/%s", name);
    return path;
}

static inline const char *scratch_file(scratch *s, const char *name, const void *data, size_t bytes)
{
    const char *path = scratch_path(s, name);
    FILE *file;

    remove(path); /* some file systems sync a file that is truncated and rewritten */
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* The whole file; release with free. A byte 0 follows it. */
static inline char *scratch_read(const char *path, size_t *bytes_out)
{
    FILE *file = fopen(path, "rb");
    char *data;
    long bytes;

    if (file == NULL)
        fail_msg("cannot read %s", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    bytes = ftell(file);
    rewind(file);
    data = malloc((size_t)bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)bytes, file), bytes);
    data[bytes] = '\0';
    fclose(file);
    *bytes_out = (size_t)bytes;
    return data;
}

/* Entries of a folder, hidden ones too. */
static inline int scratch_count(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *e;
    int n = 0;

    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

/* From now on a write past so many bytes of a file fails: a disk that is full. */
static inline void scratch_limit_files(size_t bytes)
{
    struct rlimit limit = {bytes, RLIM_INFINITY};

    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Deterministic draws for mutations. */
static inline uint32_t scratch_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 32);
}

#endif
