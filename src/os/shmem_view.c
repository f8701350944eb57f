/*
 * shmem_view.c - see shmem.h: files of peers, mapped for reading. Apart, since the room rpc alone
 * has a use for it.
 */
/* build: leaf hidden */
#include "os/shmem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/err.h"
#include "os/limits.h"

tri_status trii_shmem_view(int fd, size_t bytes, const void **base_out)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;
    char hint[40];
    void *base;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &info) != 0 ||
        (size_t)info.st_size < bytes)
        return TRII_FAIL(TRI_ERR_FORMAT, "shared memory: a peer's file is not sealed, or short");
    base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "shared memory: cannot map %zu bytes: %s%s", bytes,
                         strerror(errno), trii_address_space_hint(errno, hint));
    *base_out = base;
    return TRI_OK;
}

void trii_shmem_unview(const void *base, size_t bytes)
{
    if (base != NULL)
        munmap((void *)(uintptr_t)base, bytes);
}
