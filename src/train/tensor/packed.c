/*
 * packed.c - see packed.h.
 */
#include "train/tensor/packed.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "train/tensor/persistent.h"

typedef struct packed_copy {
    trii_packed_kind kind;
    int32_t version; /* that was asked for last */
    int asked;       /* how often: 0, 1, or 2 and more */
    bool worth;      /* the version before was asked for more than once */
    bool complete;   /* the storage has the contents of `version` */
    trii_storage *storage;
} packed_copy;

typedef struct trii_packed {
    packed_copy copy[TRII_PACKED_COPIES];
    int n;
} packed;

static atomic_size_t n_bytes;

size_t trii_packed_bytes(void)
{
    return atomic_load_explicit(&n_bytes, memory_order_relaxed);
}

/* Returns the reference to what it had: to free it may take long. */
static trii_storage *set_storage(packed_copy *c, trii_storage *storage)
{
    trii_storage *old = c->storage;

    if (old != NULL)
        atomic_fetch_sub_explicit(&n_bytes, old->bytes, memory_order_relaxed);
    c->storage = storage != NULL ? trii_storage_ref(storage) : NULL;
    if (storage != NULL)
        atomic_fetch_add_explicit(&n_bytes, storage->bytes, memory_order_relaxed);
    return old;
}

static packed *of(const tri_tensor *tensor)
{
    return atomic_load_explicit(&tensor->packed, memory_order_relaxed);
}

/* Versions wrap around. */
static bool is_older(int32_t version, int32_t than)
{
    return (((uint32_t)version - (uint32_t)than) & INT32_MAX) > INT32_MAX / 2;
}

static packed_copy *find(const tri_tensor *tensor, const trii_packed_kind *kind)
{
    packed *p = of(tensor);

    for (int i = 0; p != NULL && i < p->n; i++) {
        const trii_packed_kind *k = &p->copy[i].kind;

        if (k->layout == kind->layout && k->device == kind->device && k->bytes == kind->bytes)
            return &p->copy[i];
    }
    return NULL;
}

/* A new one; NULL = no place, or no memory. Where there is no room it takes the place of another
 * that nobody has asked for since the last write. */
static packed_copy *add(tri_tensor *tensor, const trii_packed_kind *kind, int32_t version,
                        trii_storage **dropped_out)
{
    packed *p = of(tensor);
    packed_copy *place = NULL;

    if (p == NULL) {
        p = trii_alloc(1, sizeof(*p), "copies of a parameter");
        if (p == NULL)
            return NULL;
        atomic_store_explicit(&tensor->packed, p, memory_order_relaxed);
    }
    if (p->n < TRII_PACKED_COPIES)
        place = &p->copy[p->n++];
    for (int i = 0; i < p->n && place == NULL; i++) {
        if (p->copy[i].asked == 0)
            place = &p->copy[i];
    }
    if (place == NULL)
        return NULL;
    *dropped_out = set_storage(place, NULL);
    *place = (packed_copy){.kind = *kind, .version = version};
    return place;
}

trii_packed_use trii_packed_take(tri_tensor *tensor, const trii_packed_kind *kind, int32_t version)
{
    packed_copy *c = find(tensor, kind);
    trii_packed_use use = {0};

    if (c == NULL)
        c = add(tensor, kind, version, &use.dropped);
    /* a step that keeps older contents (train/graph/values/keep_read.c) does not take the place of
     * newer ones */
    if (c == NULL || is_older(version, c->version))
        return use;
    if (c->version != version) {
        c->version = version;
        c->complete = false;
        c->asked = 0;
    }
    c->asked += c->asked < 2;
    use.ready = c->complete;
    if (!c->complete && !c->worth && c->asked < 2)
        return use;
    if (c->storage == NULL)
        use.wanted = true;
    /* else somebody fills it just now, or reads the version before */
    else if (use.ready || atomic_load_explicit(&c->storage->refs, memory_order_acquire) == 1)
        use.storage = trii_storage_ref(c->storage);
    return use;
}

trii_storage *trii_packed_keep(tri_tensor *tensor, const trii_packed_kind *kind, int32_t version,
                               trii_storage *storage)
{
    packed_copy *c = find(tensor, kind);

    if (c == NULL || c->version != version || c->complete)
        return NULL;
    c->complete = true;
    return c->storage != storage ? set_storage(c, storage) : NULL;
}

trii_packed_dropped trii_packed_written(tri_tensor *tensor)
{
    packed *p = of(tensor);
    trii_packed_dropped dropped = {0};

    for (int i = 0; p != NULL && i < p->n; i++) {
        packed_copy *c = &p->copy[i];

        c->worth = c->asked > 1;
        c->asked = 0;
        c->complete = false;
        if (!c->worth)
            dropped.storage[i] = set_storage(c, NULL);
    }
    return dropped;
}

void trii_packed_release(const trii_packed_dropped *dropped)
{
    for (int i = 0; i < TRII_PACKED_COPIES; i++)
        trii_storage_unref(dropped->storage[i]);
}

void trii_packed_free(struct trii_packed *p)
{
    for (int i = 0; p != NULL && i < p->n; i++)
        trii_storage_unref(set_storage(&p->copy[i], NULL));
    trii_free(p);
}
