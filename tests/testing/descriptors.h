/*
 * descriptors.h - a process that has no descriptor left. Tests only; the limit stays lowered, so
 * use it in a case of its own.
 */
#ifndef TEST_DESCRIPTORS_H
#define TEST_DESCRIPTORS_H

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "testing/check.h"

#define DESCRIPTORS_MOST 1024

typedef struct descriptors {
    int fds[DESCRIPTORS_MOST];
    int n;
} descriptors;

/* At most so many from now on, for good. */
static inline void descriptors_limit(int most)
{
    const struct rlimit limit = {(rlim_t)most, (rlim_t)most};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* How many are open. */
static inline int descriptors_open(void)
{
    int n = 0;

    for (int fd = 0; fd < DESCRIPTORS_MOST; fd++)
        n += fcntl(fd, F_GETFD) != -1;
    return n;
}

/* Takes all that are left but `spare`. */
static inline void descriptors_take(descriptors *d, int spare)
{
    d->n = 0;
    while (d->n < DESCRIPTORS_MOST && (d->fds[d->n] = dup(0)) >= 0)
        d->n++;
    assert_in_range(d->n, spare, DESCRIPTORS_MOST - 1);
    while (spare-- > 0)
        close(d->fds[--d->n]);
}

static inline void descriptors_give_back(descriptors *d)
{
    while (d->n > 0)
        close(d->fds[--d->n]);
}

#endif
