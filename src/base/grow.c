/*
 * grow.c - see grow.h.
 */
/* build: leaf */
#include "base/grow.h"

#include <string.h>

#include "base/alloc.h"

tri_status trii_array_grow(void *array, int *room, int n, int first, size_t size, const char *what)
{
    int wanted = *room > 0 ? 2 * *room : first;
    void *items;

    if (n < *room)
        return TRI_OK;
    memcpy(&items, array, sizeof(items)); /* a T *, whatever T is */
    items = trii_realloc(items, (size_t)wanted, size, what);
    if (items == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(array, &items, sizeof(items));
    *room = wanted;
    return TRI_OK;
}
