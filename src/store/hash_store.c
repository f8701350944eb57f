/*
 * hash_store.c - a store inside one process, for ranks that are threads; one table (kv.h) under one
 * lock. Made by tri_store_hash; most tests run on it.
 */
/* build: leaf */
#include "store/store_ops.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/thread.h"
#include "store/kv.h"

typedef struct hash_store {
    tri_store base;
    trii_mutex mutex;
    trii_cond changed; /* a key was written */
    trii_kv *kv;       /* guarded by mutex */
} hash_store;

static trii_slice slice_of(const char *key)
{
    return (trii_slice){key, strlen(key)};
}

static hash_store *enter(tri_store *self)
{
    hash_store *store = (hash_store *)self;

    trii_mutex_lock(&store->mutex);
    return store;
}

static tri_status leave(hash_store *store, bool wrote, tri_status status)
{
    if (wrote)
        trii_cond_broadcast(&store->changed);
    trii_mutex_unlock(&store->mutex);
    return status;
}

static void hash_destroy(tri_store *self)
{
    hash_store *store = (hash_store *)self;

    trii_kv_destroy(store->kv);
    trii_cond_fini(&store->changed);
    trii_mutex_fini(&store->mutex);
    trii_free(store);
}

static tri_status hash_set(tri_store *self, const char *key, const void *value, size_t bytes)
{
    hash_store *store = enter(self);

    return leave(store, true, trii_kv_set(store->kv, slice_of(key), (trii_slice){value, bytes}));
}

static tri_status hash_append(tri_store *self, const char *key, const void *value, size_t bytes)
{
    hash_store *store = enter(self);

    return leave(store, true, trii_kv_append(store->kv, slice_of(key), (trii_slice){value, bytes}));
}

static tri_status hash_add(tri_store *self, const char *key, int64_t delta, int64_t *sum_out)
{
    hash_store *store = enter(self);

    return leave(store, true, trii_kv_add(store->kv, slice_of(key), delta, sum_out));
}

static tri_status hash_compare_set(tri_store *self, const char *key, const void *expected,
                                   size_t expected_bytes, const void *desired, size_t desired_bytes,
                                   void **value_out, size_t *bytes_out)
{
    hash_store *store = enter(self);
    trii_slice reply = {0};
    void *copy = NULL;
    tri_status status =
        trii_kv_compare_set(store->kv, slice_of(key), (trii_slice){expected, expected_bytes},
                            (trii_slice){desired, desired_bytes}, &reply);

    if (status == TRI_OK) {
        copy = trii_store_copy(reply.data, reply.bytes);
        status = copy != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status == TRI_OK) {
        *value_out = copy;
        *bytes_out = reply.bytes;
    }
    return leave(store, true, status);
}

static bool all_present(const hash_store *store, const char *const *keys, int n_keys)
{
    for (int i = 0; i < n_keys; i++) {
        if (!trii_kv_has(store->kv, slice_of(keys[i])))
            return false;
    }
    return true;
}

static tri_status wait_locked(hash_store *store, const char *const *keys, int n_keys,
                              int64_t deadline_ns)
{
    bool in_time = true;

    while (!all_present(store, keys, n_keys)) {
        if (!in_time)
            return TRI_ERR_TIMEOUT; /* the front names the keys */
        in_time = trii_cond_wait_until(&store->changed, &store->mutex, deadline_ns);
    }
    return TRI_OK;
}

static tri_status hash_wait(tri_store *self, const char *const *keys, int n_keys,
                            int64_t deadline_ns)
{
    hash_store *store = enter(self);

    return leave(store, false, wait_locked(store, keys, n_keys, deadline_ns));
}

static tri_status hash_multi_get(tri_store *self, const char *const *keys, int n_keys,
                                 int64_t deadline_ns, void **values_out, size_t *bytes_out)
{
    hash_store *store = enter(self);
    tri_status status = wait_locked(store, keys, n_keys, deadline_ns);
    int n = 0;

    for (; status == TRI_OK && n < n_keys; n++) {
        trii_slice value = {"", 0};

        (void)trii_kv_get(store->kv, slice_of(keys[n]), &value);
        values_out[n] = trii_store_copy(value.data, value.bytes);
        bytes_out[n] = value.bytes;
        if (values_out[n] == NULL) {
            status = TRI_ERR_NO_MEMORY;
            while (--n >= 0)
                trii_free(values_out[n]);
            break;
        }
    }
    return leave(store, false, status);
}

static tri_status hash_check(tri_store *self, const char *const *keys, int n_keys,
                             bool *present_out)
{
    hash_store *store = enter(self);

    *present_out = all_present(store, keys, n_keys);
    return leave(store, false, TRI_OK);
}

static tri_status hash_remove(tri_store *self, const char *key, bool *existed_out)
{
    hash_store *store = enter(self);

    *existed_out = trii_kv_delete(store->kv, slice_of(key));
    return leave(store, false, TRI_OK);
}

static tri_status hash_num_keys(tri_store *self, int64_t *n_out)
{
    hash_store *store = enter(self);

    *n_out = trii_kv_count(store->kv);
    return leave(store, false, TRI_OK);
}

typedef struct listing {
    trii_key_list *list;
    tri_status status;
} listing;

static bool list_one(void *arg, trii_slice key)
{
    listing *l = arg;

    l->status = trii_key_list_add(l->list, key.data, key.bytes);
    return l->status == TRI_OK;
}

static tri_status hash_list(tri_store *self, trii_key_list *list)
{
    hash_store *store = enter(self);
    listing l = {list, TRI_OK};

    trii_kv_each(store->kv, list_one, &l);
    return leave(store, false, l.status);
}

static tri_status hash_push(tri_store *self, const char *key, const void *value, size_t bytes)
{
    hash_store *store = enter(self);

    return leave(store, true, trii_kv_push(store->kv, slice_of(key), (trii_slice){value, bytes}));
}

static tri_status hash_pop(tri_store *self, const char *key, int64_t deadline_ns, void **value_out,
                           size_t *bytes_out)
{
    hash_store *store = enter(self);
    bool in_time = deadline_ns > 0;
    char *data = NULL;

    while (trii_kv_queue_length(store->kv, slice_of(key)) == 0) {
        if (!in_time)
            return leave(store, false, TRI_INPROGRESS);
        in_time = trii_cond_wait_until(&store->changed, &store->mutex, deadline_ns);
    }
    (void)trii_kv_pop(store->kv, slice_of(key), &data, bytes_out);
    *value_out = data; /* not a copy: without memory for that the value would be lost */
    return leave(store, false, TRI_OK);
}

static tri_status hash_queue_length(tri_store *self, const char *key, int64_t *n_out)
{
    hash_store *store = enter(self);

    *n_out = trii_kv_queue_length(store->kv, slice_of(key));
    return leave(store, false, TRI_OK);
}

static const trii_store_ops hash_ops = {
    .abi = TRII_STORE_ABI,
    .size = sizeof(trii_store_ops),
    .name = "hash",
    .destroy = hash_destroy,
    .set = hash_set,
    .multi_get = hash_multi_get,
    .add = hash_add,
    .compare_set = hash_compare_set,
    .append = hash_append,
    .wait = hash_wait,
    .check = hash_check,
    .remove = hash_remove,
    .num_keys = hash_num_keys,
    .list = hash_list,
    .push = hash_push,
    .pop = hash_pop,
    .queue_length = hash_queue_length,
};

tri_status tri_store_hash(tri_store **store_out)
{
    tri_status status = trii_need(store_out, "store_hash", "store_out");
    hash_store *store;

    if (status != TRI_OK)
        return status;
    store = trii_alloc(1, sizeof(*store), "hash store");
    if (store == NULL)
        return TRI_ERR_NO_MEMORY;
    if (trii_kv_create(&store->kv) != TRI_OK) {
        trii_free(store);
        return TRI_ERR_NO_MEMORY;
    }
    trii_store_init(&store->base, &hash_ops, 0);
    trii_mutex_init(&store->mutex);
    trii_cond_init(&store->changed);
    *store_out = &store->base;
    return TRI_OK;
}
