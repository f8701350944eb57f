/*
 * pages.h - large blocks of memory straight from the system, in huge pages where it has them.
 */
#ifndef TRII_PAGES_H
#define TRII_PAGES_H

#include <stddef.h>

#include <trireme/status.h>

/* Zeroed, page-aligned; not touched yet. bytes 0 gives NULL. Errors: NO_MEMORY. */
tri_status trii_pages_alloc(size_t bytes, void **data_out) TRI_MUST_CHECK;
/* With the bytes of the allocation; NULL allowed. */
void trii_pages_free(void *data, size_t bytes);

#endif
