/*
 * sharing.c - see sharing.h.
 */
#include "train/tensor/sharing.h"

#include "base/compiler.h"

/* Of the storage's list. Lists are short, and change when models are made; only contexts that share
 * the storage meet here. */
static void lock(trii_storage *storage)
{
    while (atomic_exchange_explicit(&storage->sharers_busy, true, memory_order_acquire)) {
    }
}

static void unlock(trii_storage *storage)
{
    atomic_store_explicit(&storage->sharers_busy, false, memory_order_release);
}

/* Under the lock. */
static void add(tri_tensor *tensor)
{
    trii_storage *storage = tensor->storage;

    if (tensor->shares)
        return;
    for (const tri_tensor *t = storage->sharers; t != NULL; t = t->next_sharer)
        tensor->address_lent |= t->address_lent && trii_tensors_overlap(t, tensor);
    tensor->shares = true;
    tensor->next_sharer = storage->sharers;
    storage->sharers = tensor;
}

void trii_sharing_begin(tri_tensor *tensor)
{
    lock(tensor->storage);
    add(tensor);
    unlock(tensor->storage);
}

void trii_sharing_enter(tri_tensor *tensor)
{
    lock(tensor->storage);
    if (tensor->storage->sharers != NULL)
        add(tensor);
    unlock(tensor->storage);
}

void trii_sharing_leave(tri_tensor *tensor)
{
    tri_tensor **at;

    if (!tensor->shares)
        return;
    lock(tensor->storage);
    for (at = &tensor->storage->sharers; *at != tensor; at = &(*at)->next_sharer) {
    }
    *at = tensor->next_sharer;
    tensor->next_sharer = NULL;
    tensor->shares = false;
    unlock(tensor->storage);
}

/* Whether tensors that are not lost have all bytes of this one between them. Under the lock. */
static bool is_whole(const tri_tensor *tensor)
{
    size_t at = tensor->offset, end = at + trii_tensor_bytes(tensor), before;

    do {
        before = at;
        for (const tri_tensor *t = tensor->storage->sharers; t != NULL; t = t->next_sharer) {
            size_t t_end = t->offset + trii_tensor_bytes(t);

            if (!trii_tensor_is_lost(t) && t->offset <= at && t_end > at)
                at = t_end;
        }
    } while (at > before && at < end);
    return at >= end;
}

void trii_tensor_rewritten(tri_tensor *tensor)
{
    if (TRII_UNLIKELY(trii_tensor_is_lost(tensor)))
        trii_tensor_mend(tensor);
    if (!tensor->shares)
        return;
    lock(tensor->storage);
    for (tri_tensor *t = tensor->storage->sharers; t != NULL; t = t->next_sharer) {
        if (TRII_UNLIKELY(trii_tensor_is_lost(t)) && trii_tensors_overlap(t, tensor) && is_whole(t))
            trii_tensor_mend(t);
    }
    unlock(tensor->storage);
}

void trii_overlaps_visit(const tri_tensor *tensor, void (*see)(void *arg, tri_tensor *other),
                         void *arg)
{
    lock(tensor->storage);
    for (tri_tensor *t = tensor->storage->sharers; t != NULL; t = t->next_sharer) {
        if (t != tensor && trii_tensors_overlap(t, tensor))
            see(arg, t);
    }
    unlock(tensor->storage);
}
