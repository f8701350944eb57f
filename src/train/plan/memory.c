/*
 * memory.c - see memory.h. Called by schedule.c with every buffer of a plan. Largest first, lowest
 * fit: within a few percent of the lower bound on training graphs.
 *
 * Up to 512 buffers each is compared with all that are placed, which is quicker for so few; beyond
 * that occupied.c finds the same places. Comparing all took 32 s for a step of 100,000 operations.
 */
#include "train/plan/memory.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "train/plan/occupied.h"

#define FEW 512

static int by_size(const void *a, const void *b)
{
    const trii_interval *x = *(const trii_interval *const *)a;
    const trii_interval *y = *(const trii_interval *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y; /* ties by number: every rank must plan the same */
}

static size_t rounded(size_t bytes)
{
    return (bytes + TRII_MEMORY_ALIGN - 1) / TRII_MEMORY_ALIGN * TRII_MEMORY_ALIGN;
}

/* The lowest gap among placed intervals (ascending by offset) that are alive together with it. */
static size_t lowest_fit(const trii_interval *it, trii_interval *const *placed, int32_t n)
{
    size_t at = 0, bytes = rounded(it->bytes);

    for (int32_t i = 0; i < n; i++) {
        const trii_interval *other = placed[i];

        if (other->first > it->last || other->last < it->first)
            continue;
        if (at + bytes <= other->offset)
            break;
        if (other->offset + rounded(other->bytes) > at)
            at = other->offset + rounded(other->bytes);
    }
    return at;
}

/* Each interval looks at all others: quick for few. */
static void place_few(trii_interval **order, int32_t n, trii_interval **placed)
{
    for (int32_t i = 0; i < n; i++) {
        trii_interval *it = order[i];
        int32_t at = i;

        it->offset = lowest_fit(it, placed, i);
        for (; at > 0 && placed[at - 1]->offset > it->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = it;
    }
}

/* The same places by a tree. */
static tri_status place_many(trii_interval **order, int32_t n)
{
    trii_occupied o;
    int32_t end = 0;
    tri_status status;

    for (int32_t i = 0; i < n; i++)
        end = order[i]->last > end ? order[i]->last : end;
    status = trii_occupied_init(&o, end + 1);
    for (int32_t i = 0; i < n && status == TRI_OK; i++) {
        trii_interval *it = order[i];

        it->offset = trii_occupied_lowest(&o, it->first, it->last, rounded(it->bytes));
        status = trii_occupied_take(&o, it->first, it->last, it->offset, rounded(it->bytes));
    }
    trii_occupied_fini(&o);
    return status;
}

tri_status trii_memory_plan(trii_interval *intervals, int32_t n, size_t *bytes_out)
{
    trii_interval **order = trii_alloc((size_t)n * 2, sizeof(*order), "memory plan");
    tri_status status = TRI_OK;
    size_t total = 0;

    if (order == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t i = 0; i < n; i++)
        order[i] = &intervals[i];
    qsort(order, (size_t)n, sizeof(*order), by_size);
    if (n <= FEW)
        place_few(order, n, order + n);
    else
        status = place_many(order, n);
    for (int32_t i = 0; i < n; i++) {
        if (order[i]->offset + rounded(order[i]->bytes) > total)
            total = order[i]->offset + rounded(order[i]->bytes);
    }
    trii_free(order);
    if (status == TRI_OK)
        *bytes_out = total;
    return status;
}
