/*
 * shmem.c - see shmem.h.
 */
/* build: leaf */
#include "os/shmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/descriptor.h"
#include "os/limits.h"
#include "os/liveness.h"
#include "os/thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define SMALL_PAGE ((size_t)4096)

/* What this process has mapped, by file. */
typedef struct mapping {
    struct mapping *next;
    dev_t device;
    ino_t inode;
    char *base;
    size_t bytes;
    int users;
} mapping;

static trii_mutex mappings_lock = TRII_MUTEX_INITIALIZER;
static mapping *mappings; /* guard: mappings_lock */

/* Aligned to large pages, so that the file can be mapped with them. */
static char *map_aligned(int fd, size_t bytes)
{
    size_t room = bytes + HUGE_PAGE;
    char *area = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *base;
    size_t before;

    if (area == MAP_FAILED)
        return NULL;
    before = (HUGE_PAGE - (uintptr_t)area % HUGE_PAGE) % HUGE_PAGE;
    base = area + before;
    if (before > 0)
        munmap(area, before);
    if (room - before > bytes)
        munmap(base + bytes, room - before - bytes);
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(base, bytes);
        return NULL;
    }
    return base;
}

/* Finds or makes the mapping of fd and counts a user. */
static tri_status map_once(int fd, const struct stat *info, size_t bytes, trii_shmem *shmem_out)
{
    char hint[40];
    mapping *m;
    tri_status st = TRI_OK;

    trii_mutex_lock(&mappings_lock);
    for (m = mappings; m != NULL; m = m->next) {
        if (m->device == info->st_dev && m->inode == info->st_ino)
            break;
    }
    if (m == NULL) {
        m = trii_alloc(1, sizeof(*m), "shared memory");
        if (m == NULL) {
            st = TRI_ERR_NO_MEMORY;
            goto out;
        }
        m->base = map_aligned(fd, bytes);
        if (m->base == NULL) {
            st = TRII_FAIL(TRI_ERR_NO_MEMORY, "shared memory: cannot map %zu bytes: %s%s", bytes,
                           strerror(errno), trii_address_space_hint(errno, hint));
            trii_free(m);
            goto out;
        }
        m->device = info->st_dev;
        m->inode = info->st_ino;
        m->bytes = bytes;
        m->next = mappings;
        mappings = m;
    }
    m->users++;
    shmem_out->base = m->base;
    shmem_out->bytes = m->bytes;
out:
    trii_mutex_unlock(&mappings_lock);
    return st;
}

tri_status trii_shmem_create(const char *name, size_t bytes, trii_shmem *shmem_out)
{
    trii_shmem shmem = {.fd = -1};
    struct stat info;
    tri_status st;

    bytes = (bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
    shmem.fd = trii_fd_above_standard(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (shmem.fd < 0)
        return TRII_FAIL(TRI_ERR_IO, "shared memory %s: memfd_create: %s", name, strerror(errno));
    if (ftruncate(shmem.fd, (off_t)bytes) != 0 ||
        fcntl(shmem.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        fstat(shmem.fd, &info) != 0) {
        st = TRII_FAIL(TRI_ERR_IO, "shared memory %s of %zu bytes: %s", name, bytes,
                       strerror(errno));
        close(shmem.fd);
        return st;
    }
    st = map_once(shmem.fd, &info, bytes, &shmem);
    if (st != TRI_OK) {
        close(shmem.fd);
        return st;
    }
    *shmem_out = shmem;
    return TRI_OK;
}

tri_status trii_shmem_attach(int fd, size_t min_bytes, trii_shmem *shmem_out)
{
    trii_shmem shmem = {.fd = -1};
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;
    tri_status st;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &info) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "shared memory: a peer's file is not sealed");
    if ((size_t)info.st_size < min_bytes)
        return TRII_FAIL(TRI_ERR_FORMAT, "shared memory: a peer's file has %zu bytes, not %zu",
                         (size_t)info.st_size, min_bytes);
    st = map_once(fd, &info, (size_t)info.st_size, &shmem);
    if (st == TRI_OK)
        *shmem_out = shmem;
    return st;
}

void trii_shmem_close_fd(trii_shmem *shmem)
{
    if (shmem->base != NULL && shmem->fd >= 0)
        close(shmem->fd);
    shmem->fd = -1;
}

void trii_shmem_release(trii_shmem *shmem)
{
    if (shmem->base == NULL)
        return;
    trii_shmem_close_fd(shmem);
    trii_mutex_lock(&mappings_lock);
    for (mapping **at = &mappings; *at != NULL; at = &(*at)->next) {
        mapping *m = *at;

        if (m->base != (char *)shmem->base)
            continue;
        if (--m->users == 0) {
            munmap(m->base, m->bytes);
            *at = m->next;
            trii_free(m);
        }
        break;
    }
    trii_mutex_unlock(&mappings_lock);
    shmem->base = NULL;
}

/* Large pages where the range covers them whole: one touch makes a page to start from, and
 * the kernel fills the rest of its 2 MiB. A refusal costs nothing but speed. */
static void collapse(char *start, size_t bytes)
{
    uintptr_t from = ((uintptr_t)start + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t to = ((uintptr_t)start + bytes) / HUGE_PAGE * HUGE_PAGE;

    for (uintptr_t at = from; at < to; at += HUGE_PAGE) {
        char *page = start + (at - (uintptr_t)start);

        if (madvise(page, 1, MADV_POPULATE_WRITE) != 0 ||
            madvise(page, HUGE_PAGE, MADV_COLLAPSE) != 0)
            return;
    }
}

tri_status trii_shmem_populate(void *start, size_t bytes)
{
    char *from = (char *)start - (uintptr_t)start % SMALL_PAGE;
    size_t whole = (size_t)((char *)start + bytes - from);

    if (bytes == 0)
        return TRI_OK;
    collapse(from, whole);
    if (madvise(from, (whole + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE, MADV_POPULATE_WRITE) == 0)
        return TRI_OK;
    if (errno != EINVAL)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "shared memory: cannot take %zu bytes: %s", bytes,
                         strerror(errno));
    /* A kernel before 5.14: touch each page, keeping what a peer may have written. */
    for (size_t at = 0; at < whole; at += SMALL_PAGE)
        __atomic_fetch_add(from + at, 0, __ATOMIC_RELAXED);
    return TRI_OK;
}

bool trii_shmem_drop(void *start, size_t bytes)
{
    return (uintptr_t)start % SMALL_PAGE == 0 && bytes % SMALL_PAGE == 0 &&
           madvise(start, bytes, MADV_REMOVE) == 0;
}

tri_status trii_shmem_map_file(const char *path, size_t bytes, int *fd_out, void **base_out)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    void *base;
    int fd = trii_fd_above_standard(open(path, flags, 0600));

    if (fd < 0 && errno == EEXIST && unlink(path) == 0)
        fd = trii_fd_above_standard(open(path, flags, 0600));
    if (fd < 0)
        return TRII_FAIL(TRI_ERR_IO, "%s: %s", path, strerror(errno));
    /* The space is taken now: a full disk must be an error here, not a signal later. */
    errno = posix_fallocate(fd, 0, (off_t)bytes);
    base = errno == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0)
                      : MAP_FAILED;
    if (base == MAP_FAILED) {
        tri_status st = TRII_FAIL(TRI_ERR_IO, "%s, %zu bytes: %s", path, bytes, strerror(errno));

        close(fd);
        return st;
    }
    (void)trii_liveness_hold(fd); /* without it a reader takes us for gone */
    *fd_out = fd;
    *base_out = base;
    return TRI_OK;
}

/* Unless there is one of the name: that is errno EEXIST. */
static bool rename_new(const char *path, const char *wanted)
{
    if (renameat2(AT_FDCWD, path, AT_FDCWD, wanted, RENAME_NOREPLACE) == 0)
        return true;
    if (errno == EEXIST || link(path, wanted) != 0) /* some network file systems can only link */
        return false;
    (void)unlink(path);
    return true;
}

void trii_shmem_name_file(const char *path, const char *wanted)
{
    int pid = 0;

    if (rename_new(path, wanted))
        return;
    if (errno != EEXIST || trii_liveness_look(wanted, &pid) == TRII_LIVENESS_GONE)
        (void)rename(path, wanted);
}

void trii_shmem_unmap_file(int fd, void *base, size_t bytes)
{
    munmap(base, bytes);
    close(fd);
}
