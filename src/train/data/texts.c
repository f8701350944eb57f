/*
 * texts.c - see texts.h.
 */
#include "train/data/texts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

void trii_texts_fini(trii_texts *texts)
{
    trii_free(texts->bytes);
    trii_free(texts->at);
    *texts = (trii_texts){0};
}

static tri_status grow(trii_texts *t, size_t more)
{
    void *grown;

    if (t->used + more > t->room) {
        size_t room = 2 * t->room > t->used + more ? 2 * t->room : t->used + more + 256;

        grown = trii_realloc(t->bytes, room, 1, "list of names");
        if (grown == NULL)
            return TRI_ERR_NO_MEMORY;
        t->bytes = grown;
        t->room = room;
    }
    if (t->n == t->n_room) {
        int64_t n_room = t->n_room > 0 ? 2 * t->n_room : 16;

        grown = trii_realloc(t->at, (size_t)n_room, sizeof(*t->at), "list of names");
        if (grown == NULL)
            return TRI_ERR_NO_MEMORY;
        t->at = grown;
        t->n_room = n_room;
    }
    return TRI_OK;
}

tri_status trii_texts_add(trii_texts *texts, const char *text)
{
    size_t bytes = strlen(text) + 1;
    tri_status status;

    if (bytes > UINT32_MAX - texts->used)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "more than 4 GB of names");
    status = grow(texts, bytes);
    if (status != TRI_OK)
        return status;
    memcpy(texts->bytes + texts->used, text, bytes);
    texts->at[texts->n++] = (uint32_t)texts->used;
    texts->used += bytes;
    return TRI_OK;
}

void trii_texts_trim(trii_texts *texts)
{
    void *less = trii_realloc(texts->bytes, texts->used > 0 ? texts->used : 1, 1, "list of names");

    if (less != NULL) {
        texts->bytes = less;
        texts->room = texts->used;
    }
    less = trii_realloc(texts->at, texts->n > 0 ? (size_t)texts->n : 1, sizeof(*texts->at),
                        "list of names");
    if (less != NULL) {
        texts->at = less;
        texts->n_room = texts->n;
    }
}

/* Heap sort: a list of a million names needs no second one, and names that come sorted, as they
 * often do, are no worst case. */
static void sink(const trii_texts *t, uint32_t *at, int64_t root, int64_t n)
{
    uint32_t moved = at[root];

    for (int64_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
        if (child + 1 < n && strcmp(t->bytes + at[child], t->bytes + at[child + 1]) < 0)
            child++;
        if (strcmp(t->bytes + moved, t->bytes + at[child]) >= 0)
            break;
        at[root] = at[child];
        root = child;
    }
    at[root] = moved;
}

void trii_texts_sort(trii_texts *texts, int64_t first, int64_t end)
{
    uint32_t *at = texts->at + first;
    int64_t n = end - first;

    for (int64_t root = n / 2 - 1; root >= 0; root--)
        sink(texts, at, root, n);
    for (int64_t last = n - 1; last > 0; last--) {
        uint32_t largest = at[0];

        at[0] = at[last];
        at[last] = largest;
        sink(texts, at, 0, last);
    }
}

int64_t trii_texts_find(const trii_texts *texts, const char *text)
{
    int64_t low = 0, high = texts->n;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(trii_texts_get(texts, middle), text);

        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}
