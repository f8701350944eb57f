/*
 * sharing.c - see sharing.h.
 */
#include "train/tensor/sharing.h"

/* Of all lists of sharers. They are short, and change when models are made. */
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) {
    }
}

static void unlock(void)
{
    atomic_flag_clear_explicit(&busy, memory_order_release);
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
    lock();
    add(tensor);
    unlock();
}

void trii_sharing_enter(tri_tensor *tensor)
{
    lock();
    if (tensor->storage->sharers != NULL)
        add(tensor);
    unlock();
}

void trii_sharing_leave(tri_tensor *tensor)
{
    tri_tensor **at;

    if (!tensor->shares)
        return;
    lock();
    for (at = &tensor->storage->sharers; *at != tensor; at = &(*at)->next_sharer) {
    }
    *at = tensor->next_sharer;
    tensor->next_sharer = NULL;
    tensor->shares = false;
    unlock();
}

void trii_overlaps_visit(const tri_tensor *tensor, void (*see)(void *arg, tri_tensor *other),
                         void *arg)
{
    lock();
    for (tri_tensor *t = tensor->storage->sharers; t != NULL; t = t->next_sharer) {
        if (t != tensor && trii_tensors_overlap(t, tensor))
            see(arg, t);
    }
    unlock();
}
