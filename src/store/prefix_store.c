/*
 * prefix_store.c - a view of another store in which every key begins with "prefix/".
 */
/* build: leaf */
#include "store/store_ops.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/hash.h"
#include "os/clock.h"

typedef struct prefix_store {
    tri_store base;
    tri_store *under;
    trii_key_list *names; /* of keys that were written; NULL = nobody asks for them */
    size_t prefix_bytes;  /* with its slash */
    char prefix[];
} prefix_store;

static tri_status too_long(const prefix_store *store, size_t bytes)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "store: key \"%.40s...\" has %zu bytes, at most %d",
                     store->prefix, bytes, TRI_STORE_MAX_KEY);
}

static void note(const tri_store *self, const char *key)
{
    const prefix_store *store = (const prefix_store *)self;
    bool noted =
        store->names == NULL || trii_key_list_add(store->names, key, strlen(key)) == TRI_OK;

    (void)noted; /* else the caller does not learn of this key, which is as good as there */
}

/* n_keys prefixed keys in one block, which the caller frees; NULL with the line set. */
static const char **prefixed(const tri_store *self, const char *const *keys, int n_keys,
                             tri_status *status_out)
{
    const prefix_store *store = (const prefix_store *)self;
    size_t bytes = 0;
    const char **copies;
    char *next;

    for (int i = 0; i < n_keys; i++) {
        size_t length = store->prefix_bytes + strlen(keys[i]);

        if (length > TRI_STORE_MAX_KEY) {
            *status_out = too_long(store, length);
            return NULL;
        }
        bytes += length + 1;
    }
    copies = trii_alloc(1, (size_t)n_keys * sizeof(*copies) + bytes, "store keys");
    if (copies == NULL) {
        *status_out = TRI_ERR_NO_MEMORY;
        return NULL;
    }
    next = (char *)(copies + n_keys);
    for (int i = 0; i < n_keys; i++) {
        size_t length = strlen(keys[i]) + 1;

        copies[i] = next;
        memcpy(next, store->prefix, store->prefix_bytes);
        memcpy(next + store->prefix_bytes, keys[i], length);
        next += store->prefix_bytes + length;
    }
    *status_out = TRI_OK;
    return copies;
}

/* One key that is written, on the caller's stack: what a rank says when it has no memory goes
 * through here. */
static tri_status with_prefix(const tri_store *self, const char *key,
                              char full_out[TRI_STORE_MAX_KEY + 1])
{
    const prefix_store *store = (const prefix_store *)self;
    size_t bytes = strlen(key);

    if (store->prefix_bytes + bytes > TRI_STORE_MAX_KEY)
        return too_long(store, store->prefix_bytes + bytes);
    memcpy(full_out, store->prefix, store->prefix_bytes);
    memcpy(full_out + store->prefix_bytes, key, bytes + 1);
    note(self, key);
    return TRI_OK;
}

static tri_store *under_of(const tri_store *self)
{
    return ((const prefix_store *)self)->under;
}

static void prefix_destroy(tri_store *self)
{
    tri_store_unref(under_of(self));
    trii_free(self);
}

static int prefix_port(const tri_store *self)
{
    return tri_store_port(under_of(self));
}

static int prefix_others(tri_store *self)
{
    return trii_store_others(under_of(self));
}

static bool prefix_is_silent(tri_store *self)
{
    return trii_store_is_silent(under_of(self));
}

static tri_status prefix_set(tri_store *self, const char *key, const void *value, size_t bytes)
{
    tri_store *under = under_of(self);
    char full[TRI_STORE_MAX_KEY + 1];
    tri_status status = with_prefix(self, key, full);

    if (status == TRI_OK)
        status = under->ops->set(under, full, value, bytes);
    return status;
}

static tri_status prefix_append(tri_store *self, const char *key, const void *value, size_t bytes)
{
    tri_store *under = under_of(self);
    char full[TRI_STORE_MAX_KEY + 1];
    tri_status status = with_prefix(self, key, full);

    if (status == TRI_OK)
        status = under->ops->append(under, full, value, bytes);
    return status;
}

static tri_status prefix_add(tri_store *self, const char *key, int64_t delta, int64_t *sum_out)
{
    tri_store *under = under_of(self);
    char full[TRI_STORE_MAX_KEY + 1];
    tri_status status = with_prefix(self, key, full);

    if (status == TRI_OK)
        status = under->ops->add(under, full, delta, sum_out);
    return status;
}

static tri_status prefix_compare_set(tri_store *self, const char *key, const void *expected,
                                     size_t expected_bytes, const void *desired,
                                     size_t desired_bytes, void **value_out, size_t *bytes_out)
{
    tri_store *under = under_of(self);
    char full[TRI_STORE_MAX_KEY + 1];
    tri_status status = with_prefix(self, key, full);

    if (status == TRI_OK)
        status = under->ops->compare_set(under, full, expected, expected_bytes, desired,
                                         desired_bytes, value_out, bytes_out);
    return status;
}

static tri_status prefix_multi_get(tri_store *self, const char *const *keys, int n_keys,
                                   int64_t deadline_ns, void **values_out, size_t *bytes_out)
{
    tri_store *under = under_of(self);
    tri_status status;
    const char **full = prefixed(self, keys, n_keys, &status);

    if (full != NULL)
        status = under->ops->multi_get(under, full, n_keys, deadline_ns, values_out, bytes_out);
    trii_free(full);
    return status;
}

static tri_status prefix_wait(tri_store *self, const char *const *keys, int n_keys,
                              int64_t deadline_ns)
{
    tri_store *under = under_of(self);
    tri_status status;
    const char **full = prefixed(self, keys, n_keys, &status);

    if (full != NULL)
        status = under->ops->wait(under, full, n_keys, deadline_ns);
    trii_free(full);
    return status;
}

static tri_status prefix_check(tri_store *self, const char *const *keys, int n_keys,
                               bool *present_out)
{
    tri_store *under = under_of(self);
    tri_status status;
    const char **full = prefixed(self, keys, n_keys, &status);

    if (full != NULL)
        status = under->ops->check(under, full, n_keys, present_out);
    trii_free(full);
    return status;
}

static tri_status prefix_remove(tri_store *self, const char *key, bool *existed_out)
{
    tri_store *under = under_of(self);
    char full[TRI_STORE_MAX_KEY + 1];
    tri_status status = with_prefix(self, key, full);

    if (status == TRI_OK)
        status = under->ops->remove(under, full, existed_out);
    return status;
}

/* Of the whole store: c10d's PrefixStore counts so too. */
static tri_status prefix_num_keys(tri_store *self, int64_t *n_out)
{
    return tri_store_num_keys(under_of(self), n_out);
}

static tri_status prefix_multi_set(tri_store *self, const char *const *keys,
                                   const void *const *values, const size_t *bytes, int n_keys)
{
    tri_status status;
    const char **full = prefixed(self, keys, n_keys, &status);

    for (int i = 0; full != NULL && i < n_keys; i++)
        note(self, keys[i]);
    if (full != NULL)
        status = tri_store_multi_set(under_of(self), full, values, bytes, n_keys);
    trii_free(full);
    return status;
}

static tri_status prefix_exchange(tri_store *self, trii_store_call *calls, int n_calls,
                                  const char *const *keys, int n_keys, int64_t deadline_ns,
                                  void **values_out, size_t *bytes_out)
{
    int64_t left_ms = trii_deadline_left_ms(deadline_ns);
    tri_status status = TRI_ERR_NO_MEMORY;
    const char **all = trii_alloc((size_t)n_calls + (size_t)n_keys, sizeof(*all), "store keys");
    const char **full = NULL;

    if (all == NULL)
        return status;
    for (int i = 0; i < n_calls + n_keys; i++)
        all[i] = i < n_calls ? calls[i].key : keys[i - n_calls];
    full = prefixed(self, all, n_calls + n_keys, &status);
    if (full != NULL) {
        for (int i = 0; i < n_calls; i++) {
            calls[i].key = full[i];
            if (calls[i].kind != TRII_STORE_READ && calls[i].kind != TRII_STORE_CHECK)
                note(self, all[i]);
        }
        status = trii_store_exchange(under_of(self), calls, n_calls, full + n_calls, n_keys,
                                     left_ms != 0 ? left_ms : 1, values_out, bytes_out);
        for (int i = 0; i < n_calls; i++)
            calls[i].key = all[i];
    }
    trii_free(full);
    trii_free(all);
    return status;
}

static tri_status prefix_list(tri_store *self, trii_key_list *list)
{
    const prefix_store *store = (const prefix_store *)self;
    trii_key_list all = {0};
    tri_status status = store->under->ops->list(store->under, &all);
    const char *key = all.text;

    for (int64_t i = 0; i < all.n && status == TRI_OK; i++) {
        size_t bytes = strlen(key);

        if (bytes >= store->prefix_bytes && memcmp(key, store->prefix, store->prefix_bytes) == 0)
            status =
                trii_key_list_add(list, key + store->prefix_bytes, bytes - store->prefix_bytes);
        key += bytes + 1;
    }
    trii_free(all.text);
    return status;
}

static tri_status prefix_push(tri_store *self, const char *key, const void *value, size_t bytes)
{
    char full[TRI_STORE_MAX_KEY + 1];
    tri_status status = with_prefix(self, key, full);

    if (status == TRI_OK)
        status = tri_store_queue_push(under_of(self), full, value, bytes);
    return status;
}

static tri_status prefix_pop(tri_store *self, const char *key, int64_t deadline_ns,
                             void **value_out, size_t *bytes_out)
{
    tri_store *under = under_of(self);
    char full[TRI_STORE_MAX_KEY + 1];
    tri_status status = with_prefix(self, key, full);

    if (status == TRI_OK)
        status = under->ops->pop != NULL
                     ? under->ops->pop(under, full, deadline_ns, value_out, bytes_out)
                     : tri_store_queue_try_pop(under, full, value_out, bytes_out); /* says why */
    return status;
}

static tri_status prefix_queue_length(tri_store *self, const char *key, int64_t *n_out)
{
    char full[TRI_STORE_MAX_KEY + 1];
    tri_status status = with_prefix(self, key, full);

    if (status == TRI_OK)
        status = tri_store_queue_length(under_of(self), full, n_out);
    return status;
}

static tri_status prefix_clone(tri_store *self, tri_store **store_out);

static const trii_store_ops prefix_ops = {
    .abi = TRII_STORE_ABI,
    .size = sizeof(trii_store_ops),
    .name = "prefix",
    .destroy = prefix_destroy,
    .clone = prefix_clone,
    .port = prefix_port,
    .set = prefix_set,
    .multi_get = prefix_multi_get,
    .add = prefix_add,
    .compare_set = prefix_compare_set,
    .append = prefix_append,
    .wait = prefix_wait,
    .check = prefix_check,
    .remove = prefix_remove,
    .num_keys = prefix_num_keys,
    .list = prefix_list,
    .multi_set = prefix_multi_set,
    .exchange = prefix_exchange,
    .push = prefix_push,
    .pop = prefix_pop,
    .queue_length = prefix_queue_length,
    .others = prefix_others,
    .is_silent = prefix_is_silent,
};

/* `own_under` is taken, on failure too; the text ends with a slash. */
static tri_status create(const char *prefix, size_t bytes, tri_store *own_under,
                         tri_store **store_out)
{
    prefix_store *store = trii_alloc(1, sizeof(*store) + bytes + 2, "prefix store");

    if (store == NULL) {
        tri_store_unref(own_under);
        return TRI_ERR_NO_MEMORY;
    }
    trii_store_init(&store->base, &prefix_ops, own_under->timeout_ms);
    store->under = own_under;
    memcpy(store->prefix, prefix, bytes);
    store->prefix[bytes] = '/';
    store->prefix_bytes = bytes + 1;
    *store_out = &store->base;
    return TRI_OK;
}

static tri_status prefix_clone(tri_store *self, tri_store **store_out)
{
    const prefix_store *store = (const prefix_store *)self;
    tri_store *under = NULL;
    tri_status status = tri_store_clone(store->under, &under);

    if (status != TRI_OK)
        return status;
    return create(store->prefix, store->prefix_bytes - 1, under, store_out);
}

tri_status tri_store_prefix(const char *prefix, tri_store *base, tri_store **store_out)
{
    tri_status status = trii_need(prefix, "store_prefix", "prefix");

    if (status == TRI_OK)
        status = trii_need(base, "store_prefix", "base");
    if (status == TRI_OK)
        status = trii_need(store_out, "store_prefix", "store_out");
    if (status != TRI_OK)
        return status;
    return create(prefix, strlen(prefix), tri_store_ref(base), store_out);
}

uint64_t trii_store_path_hash(const tri_store *store)
{
    uint64_t hash = TRII_HASH_SEED;

    while (store->ops == &prefix_ops) {
        const prefix_store *prefix = (const prefix_store *)store;

        hash = trii_hash(hash, prefix->prefix, prefix->prefix_bytes);
        store = prefix->under;
    }
    return hash;
}

void trii_store_note_keys(tri_store *store, trii_key_list *names)
{
    assert(store->ops == &prefix_ops);
    ((prefix_store *)store)->names = names;
}

void trii_store_hurry(tri_store *store, int64_t timeout_ms)
{
    while (store->ops == &prefix_ops)
        store = under_of(store);
    if (store->ops->clone != NULL) /* else others use it, too, and nobody waits for replies */
        store->timeout_ms = timeout_ms;
}
