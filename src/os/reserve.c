/*
 * reserve.c - see reserve.h: private mappings, whose protection changes.
 */
/* build: leaf train */
#include "os/reserve.h"

#include <sys/mman.h>

#include "base/err.h"

static size_t length_of(size_t bytes)
{
    return bytes > 0 ? bytes : 1;
}

tri_status trii_reserve(size_t bytes, void **start_out)
{
    void *start =
        mmap(NULL, length_of(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (start == MAP_FAILED)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "%zu bytes of addresses cannot be reserved", bytes);
    *start_out = start;
    return TRI_OK;
}

void trii_reserve_free(void *start, size_t bytes)
{
    if (start != NULL)
        (void)munmap(start, length_of(bytes));
}

tri_status trii_reserve_open(void *start, size_t bytes)
{
    if (mprotect(start, length_of(bytes), PROT_READ | PROT_WRITE) == 0)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_NO_MEMORY, "%zu reserved bytes cannot be used", bytes);
}

void trii_reserve_close(void *start, size_t bytes)
{
    /* Both fail only where the range was never reserved. */
    (void)madvise(start, length_of(bytes), MADV_DONTNEED);
    (void)mprotect(start, length_of(bytes), PROT_NONE);
}
