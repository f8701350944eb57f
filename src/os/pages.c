/*
 * pages.c - see pages.h.
 */
/* build: train */
#include "os/pages.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/err.h"

#define HUGE_BYTES ((size_t)2 << 20)

tri_status trii_pages_alloc(size_t bytes, void **data_out)
{
    void *data;

    if (bytes == 0) {
        *data_out = NULL;
        return TRI_OK;
    }
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
#ifdef MADV_HUGEPAGE
    /* Only a hint: fewer page faults and misses in the page tables. */
    if (bytes >= HUGE_BYTES) {
        int refused = madvise(data, bytes, MADV_HUGEPAGE);

        (void)refused; /* small pages do, too */
    }
#endif
    *data_out = data;
    return TRI_OK;
}

void trii_pages_free(void *data, size_t bytes)
{
    if (data != NULL)
        munmap(data, bytes);
}
