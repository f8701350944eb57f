/*
 * memory_file.h - a file with a path that is on no disk: thousands of damaged ones take minutes
 * there. Tests only.
 */
#ifndef TEST_MEMORY_FILE_H
#define TEST_MEMORY_FILE_H

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "testing/check.h"

typedef struct memory_file {
    int fd;
    char path[64];
} memory_file;

static inline void memory_file_begin(memory_file *m)
{
    m->fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(m->fd >= 0);
    snprintf(m->path, sizeof(m->path), "/proc/self/fd/%d", m->fd);
}

static inline void memory_file_end(memory_file *m)
{
    assert_int_equal(close(m->fd), 0);
}

/* In place of what it had. */
static inline void memory_file_write(const memory_file *m, const void *data, size_t bytes)
{
    assert_int_equal(ftruncate(m->fd, 0), 0);
    assert_int_equal(pwrite(m->fd, data, bytes, 0), bytes);
}

#endif
