/*
 * shmem.h - memory that several processes map: anonymous files (memfd) that nobody can name,
 * shrink, and none that stays. A process maps each file once, however many of its threads ask, so
 * that ranks that are threads of one process share addresses too.
 */
#ifndef TRII_SHMEM_H
#define TRII_SHMEM_H

#include <trireme/status.h>

typedef struct trii_shmem {
    void *base; /* 2 MiB aligned; NULL = not mapped */
    size_t bytes;
    int fd; /* of the creator until trii_shmem_close_fd; else -1 */
} trii_shmem;

/* A new file of `bytes` zeroes (rounded up to pages), mapped here; no memory is taken before
 * it is touched. Sealed: its size stays. Errors: NO_MEMORY, IO (descriptors, limits). */
tri_status trii_shmem_create(const char *name, size_t bytes, trii_shmem *shmem_out) TRI_MUST_CHECK;
/* Maps a file that a peer created; fd stays the caller's. Errors: FORMAT (not sealed, or
 * smaller than min_bytes), NO_MEMORY, IO. */
tri_status trii_shmem_attach(int fd, size_t min_bytes, trii_shmem *shmem_out) TRI_MUST_CHECK;
void trii_shmem_close_fd(trii_shmem *shmem);
/* Unmaps when the last user in this process has released it. Unmapped: nothing. */
void trii_shmem_release(trii_shmem *shmem);

/* Maps a file that a peer created for reading alone; fd stays the caller's. Errors: as of attach.
 */
tri_status trii_shmem_view(int fd, size_t bytes, const void **base_out) TRI_MUST_CHECK;
void trii_shmem_unview(const void *base, size_t bytes); /* NULL allowed */

/* Takes the memory of a range now, in large pages where the system gives them: a first touch
 * later would run at a tenth of the speed. Errors: NO_MEMORY. */
tri_status trii_shmem_populate(void *start, size_t bytes) TRI_MUST_CHECK;

/* Copies to `dst`, a multiple of 16, what another process reads next: up to 128 KiB past the
 * caches, since a line that has to be taken from the cache of the core that read it last costs much
 * (64 KiB there, read and answered, on a Zen 4: 10 us and so 7). More than that a plain copy moves
 * faster, above all if it is not read. */
void trii_shmem_write(void *dst, const void *src, size_t bytes);

/* Gives the memory of a range back to the system, for all who map it: it reads as zeros, until it
 * is allocated again. False: not, or not all of it. */
bool trii_shmem_drop(void *start, size_t bytes);

/**
 * A new file of `bytes` that is created at `path`, in place of any that is there, and mapped: what
 * is written there survives the death of the process, without a system call. The lock of
 * os/liveness.h is taken on it until it is unmapped, where the file system has locks. A file that
 * another process has mapped must never become shorter, so nothing is emptied. Errors: IO.
 */
tri_status trii_shmem_map_file(const char *path, size_t bytes, int *fd_out,
                               void **base_out) TRI_MUST_CHECK;
void trii_shmem_unmap_file(int fd, void *base, size_t bytes);
/* Gives the file the name `wanted` of the same folder, unless a living process holds the file that
 * has it. */
void trii_shmem_name_file(const char *path, const char *wanted);

#endif
