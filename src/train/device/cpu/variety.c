/*
 * variety.c - see variety.h: a table of the sizes that were seen of each kind. Used by products.c
 * and onednn/pieces.c.
 */
#include "train/device/cpu/variety.h"

#include "base/alloc.h"
#include "os/thread.h"

#define MOST_KINDS 8192
#define BUCKETS 256

typedef struct seen {
    struct seen *next;
    uint64_t kind;
    int n, few;
    int64_t size[];
} seen;

static trii_mutex mutex = TRII_MUTEX_INITIALIZER;
static seen *buckets[BUCKETS]; /* guarded by mutex; never freed */
static int n_kinds;            /* guarded by mutex */

uint64_t trii_kind_add(uint64_t kind, int64_t property)
{
    uint64_t x = kind * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)property + 1;

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* NULL: too many, or no memory; then every size is compiled. */
static seen *find(uint64_t kind, int few)
{
    seen *s = buckets[kind % BUCKETS];

    while (s != NULL && s->kind != kind)
        s = s->next;
    if (s != NULL || n_kinds == MOST_KINDS)
        return s;
    s = trii_alloc(1, sizeof(*s) + (size_t)few * sizeof(int64_t), "sizes seen");
    if (s == NULL)
        return NULL;
    s->kind = kind;
    s->few = few;
    s->next = buckets[kind % BUCKETS];
    buckets[kind % BUCKETS] = s;
    n_kinds++;
    return s;
}

bool trii_kind_varies(uint64_t kind, int64_t size, int few)
{
    bool known = false;
    seen *s;

    trii_mutex_lock(&mutex);
    s = find(kind, few);
    for (int i = 0; s != NULL && i < s->n && !known; i++)
        known = s->size[i] == size;
    if (s != NULL && !known && s->n < s->few) {
        s->size[s->n++] = size;
        known = true;
    }
    trii_mutex_unlock(&mutex);
    return s != NULL && !known;
}
