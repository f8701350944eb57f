/*
 * hooked_store.h - a view of a store that asks before its owner reads or waits: a test holds a rank
 * up there, or takes its store away. Tests only.
 */
#ifndef TEST_HOOKED_STORE_H
#define TEST_HOOKED_STORE_H

#include <trireme/comm.h>

#include "store/store_ops.h"

/* key: the first that is read or waited for. Not OK: so does that end. */
typedef tri_status (*hooked_before)(void *arg, const char *key);

typedef struct hooked_store {
    tri_store base;
    tri_store *under;
    hooked_before before;
    void *arg;
} hooked_store;

static inline tri_store *hooked_under(tri_store *self)
{
    return ((hooked_store *)self)->under;
}

static inline void hooked_destroy(tri_store *self)
{
    (void)self; /* the test's */
}

static inline tri_status hooked_set(tri_store *self, const char *key, const void *value,
                                    size_t bytes)
{
    return tri_store_set(hooked_under(self), key, value, bytes);
}

static inline tri_status hooked_multi_get(tri_store *self, const char *const *keys, int n_keys,
                                          int64_t deadline_ns, void **values_out, size_t *bytes_out)
{
    const hooked_store *h = (hooked_store *)self;
    tri_status status = h->before(h->arg, keys[0]);

    return status == TRI_OK ? h->under->ops->multi_get(h->under, keys, n_keys, deadline_ns,
                                                       values_out, bytes_out)
                            : status;
}

static inline tri_status hooked_add(tri_store *self, const char *key, int64_t delta,
                                    int64_t *sum_out)
{
    return tri_store_add(hooked_under(self), key, delta, sum_out);
}

static inline tri_status hooked_compare_set(tri_store *self, const char *key, const void *expected,
                                            size_t expected_bytes, const void *desired,
                                            size_t desired_bytes, void **value_out,
                                            size_t *bytes_out)
{
    return tri_store_compare_set(hooked_under(self), key, expected, expected_bytes, desired,
                                 desired_bytes, value_out, bytes_out);
}

static inline tri_status hooked_wait(tri_store *self, const char *const *keys, int n_keys,
                                     int64_t deadline_ns)
{
    const hooked_store *h = (hooked_store *)self;
    tri_status status = h->before(h->arg, keys[0]);

    return status == TRI_OK ? h->under->ops->wait(h->under, keys, n_keys, deadline_ns) : status;
}

static inline tri_status hooked_check(tri_store *self, const char *const *keys, int n_keys,
                                      bool *present_out)
{
    return tri_store_check(hooked_under(self), keys, n_keys, present_out);
}

static inline tri_status hooked_remove(tri_store *self, const char *key, bool *existed_out)
{
    return tri_store_delete(hooked_under(self), key, existed_out);
}

static inline void hooked_store_init(hooked_store *h, tri_store *under, hooked_before before,
                                     void *arg)
{
    static const trii_store_ops ops = {
        .abi = TRII_STORE_ABI,
        .size = sizeof(trii_store_ops),
        .name = "hooked",
        .destroy = hooked_destroy,
        .set = hooked_set,
        .multi_get = hooked_multi_get,
        .add = hooked_add,
        .compare_set = hooked_compare_set,
        .wait = hooked_wait,
        .check = hooked_check,
        .remove = hooked_remove,
    };

    trii_store_init(&h->base, &ops, 20000);
    h->under = under;
    h->before = before;
    h->arg = arg;
}

#endif
