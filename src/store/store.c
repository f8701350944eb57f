/*
 * store.c - the public functions of all stores: they check arguments, count references, turn
 * timeouts into deadlines, and call the kind's table (store_ops.h). Messages that are the same for
 * every kind are written here.
 */
/* build: leaf */
#include "store/store_ops.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"

#define NAMED_KEYS 3    /* how many missing keys a message shows */
#define COUNTED_KEYS 64 /* and counts */

void trii_store_init(tri_store *store, const trii_store_ops *ops, int64_t timeout_ms)
{
    assert(ops->abi == TRII_STORE_ABI && ops->size == sizeof(*ops));
    store->ops = ops;
    store->timeout_ms = timeout_ms != 0 ? timeout_ms : TRI_STORE_TIMEOUT_MS;
    atomic_init(&store->refs, 1);
}

void *trii_store_copy(const void *data, size_t bytes)
{
    char *copy = trii_alloc(bytes + 1, 1, "store value");

    if (copy != NULL && bytes > 0)
        memcpy(copy, data, bytes);
    return copy;
}

tri_status trii_key_list_add(trii_key_list *list, const char *key, size_t bytes)
{
    if (bytes + 1 > list->room - list->used) {
        size_t room = 2 * (list->room + bytes + 64);
        char *text = trii_realloc(list->text, room, 1, "store keys");

        if (text == NULL)
            return TRI_ERR_NO_MEMORY;
        list->text = text;
        list->room = room;
    }
    memcpy(list->text + list->used, key, bytes);
    list->text[list->used + bytes] = '\0';
    list->used += bytes + 1;
    list->n++;
    return TRI_OK;
}

static tri_status check_keys(const tri_store *store, const char *call, const char *const *keys,
                             int n_keys)
{
    if (store == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: store is NULL", call);
    if (n_keys < 0 || n_keys > TRI_STORE_MAX_KEYS || (n_keys > 0 && keys == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %d keys at %s, at most %d", call, n_keys,
                         keys != NULL ? "an address" : "NULL", TRI_STORE_MAX_KEYS);
    for (int i = 0; i < n_keys; i++) {
        if (keys[i] == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: key %d is NULL", call, i);
        if (strlen(keys[i]) > TRI_STORE_MAX_KEY)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: key \"%.40s...\" has %zu bytes, at most %d",
                             call, keys[i], strlen(keys[i]), TRI_STORE_MAX_KEY);
    }
    return TRI_OK;
}

static tri_status check_value(const char *call, const char *key, const void *value, size_t bytes)
{
    if (value == NULL && bytes > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %s: value is NULL", call, key);
    if (bytes > TRI_STORE_MAX_VALUE)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %s: value of %zu bytes, at most %u", call, key,
                         bytes, TRI_STORE_MAX_VALUE);
    return TRI_OK;
}

int trii_store_others(tri_store *store)
{
    return store->ops->others != NULL ? store->ops->others(store) : -1;
}

bool trii_store_is_silent(tri_store *store)
{
    return store->ops->is_silent != NULL && store->ops->is_silent(store);
}

static tri_status no_answer(const char *call, int64_t waited_ns)
{
    return TRII_FAIL(TRI_ERR_TIMEOUT,
                     "%s: no answer from the store for %.1f s: does its process run, and the "
                     "network between?",
                     call, (double)waited_ns / (double)TRII_NS_PER_S);
}

static int64_t deadline_of(const tri_store *store, int64_t timeout_ms)
{
    return trii_deadline_ms(timeout_ms != 0 ? timeout_ms : store->timeout_ms);
}

typedef struct missing_keys {
    int n;
    size_t used;
    char names[256];
} missing_keys;

/* By halves, up to COUNTED_KEYS: each question is a round trip, and there may be 100,000 keys. */
static tri_status find_missing(tri_store *store, const char *const *keys, int n_keys,
                               missing_keys *found)
{
    const int half = n_keys / 2;
    bool present = false;
    tri_status status = store->ops->check(store, keys, n_keys, &present);

    if (status != TRI_OK || present)
        return status;
    if (n_keys > 1) {
        status = find_missing(store, keys, half, found);
        if (status == TRI_OK && found->n < COUNTED_KEYS)
            status = find_missing(store, keys + half, n_keys - half, found);
        return status;
    }
    if (found->n++ < NAMED_KEYS && found->used < sizeof(found->names))
        found->used +=
            (size_t)snprintf(found->names + found->used, sizeof(found->names) - found->used,
                             "%s%.60s", found->n > 1 ? ", " : "", keys[0]);
    return TRI_OK;
}

/* Says which keys are missing, instead of a bare timeout. */
static tri_status name_missing(tri_store *store, const char *call, const char *const *keys,
                               int n_keys, int64_t waited_ns)
{
    missing_keys found = {0};

    if (trii_store_is_silent(store))
        return no_answer(call, waited_ns);
    /* the store may be gone meanwhile: its own line says so */
    if (find_missing(store, keys, n_keys, &found) != TRI_OK)
        return TRI_ERR_TIMEOUT;
    return TRII_FAIL(TRI_ERR_TIMEOUT, "%s: %s%d of %d keys still missing after %.1f s: %s%s", call,
                     found.n < COUNTED_KEYS || found.n == n_keys ? "" : "at least ", found.n,
                     n_keys, (double)waited_ns / (double)TRII_NS_PER_S, found.names,
                     found.n > NAMED_KEYS ? ", ..." : "");
}

tri_store *tri_store_ref(tri_store *store)
{
    if (store != NULL)
        atomic_fetch_add(&store->refs, 1);
    return store;
}

void tri_store_unref(tri_store *store)
{
    if (store != NULL && atomic_fetch_sub(&store->refs, 1) == 1)
        store->ops->destroy(store);
}

tri_status tri_store_clone(tri_store *store, tri_store **store_out)
{
    tri_status status = trii_need(store, "store_clone", "store");

    if (status == TRI_OK)
        status = trii_need(store_out, "store_clone", "store_out");
    if (status != TRI_OK)
        return status;
    if (store->ops->clone != NULL)
        return store->ops->clone(store, store_out);
    *store_out = tri_store_ref(store);
    return TRI_OK;
}

int tri_store_port(const tri_store *store)
{
    return store != NULL && store->ops->port != NULL ? store->ops->port(store) : 0;
}

void tri_store_free(void *value)
{
    trii_free(value);
}

tri_status tri_store_set(tri_store *store, const char *key, const void *value, size_t bytes)
{
    tri_status status = check_keys(store, "store_set", &key, 1);

    if (status == TRI_OK)
        status = check_value("store_set", key, value, bytes);
    return status == TRI_OK ? store->ops->set(store, key, value != NULL ? value : "", bytes)
                            : status;
}

static tri_status get_keys(tri_store *store, const char *call, const char *const *keys, int n_keys,
                           int64_t timeout_ms, void **values_out, size_t *bytes_out)
{
    int64_t start = trii_now_ns();
    tri_status status = check_keys(store, call, keys, n_keys);
    void **values; /* aside, so that a failure leaves the caller's array alone */
    size_t *bytes;

    if (status != TRI_OK || n_keys == 0)
        return status;
    values = trii_alloc((size_t)n_keys, sizeof(*values) + sizeof(*bytes), "store values");
    if (values == NULL)
        return TRI_ERR_NO_MEMORY;
    bytes = (size_t *)(values + n_keys);
    status =
        store->ops->multi_get(store, keys, n_keys, deadline_of(store, timeout_ms), values, bytes);
    if (status == TRI_ERR_TIMEOUT)
        status = name_missing(store, call, keys, n_keys, trii_now_ns() - start);
    for (int i = 0; status == TRI_OK && i < n_keys; i++) {
        values_out[i] = values[i];
        if (bytes_out != NULL)
            bytes_out[i] = bytes[i];
    }
    trii_free(values);
    return status;
}

tri_status tri_store_get(tri_store *store, const char *key, int64_t timeout_ms, void **value_out,
                         size_t *bytes_out)
{
    tri_status status = trii_need(value_out, "store_get", "value_out");

    return status == TRI_OK
               ? get_keys(store, "store_get", &key, 1, timeout_ms, value_out, bytes_out)
               : status;
}

tri_status tri_store_multi_get(tri_store *store, const char *const *keys, int n_keys,
                               int64_t timeout_ms, void **values_out, size_t *bytes_out)
{
    tri_status status =
        n_keys == 0 ? TRI_OK : trii_need(values_out, "store_multi_get", "values_out");

    return status == TRI_OK
               ? get_keys(store, "store_multi_get", keys, n_keys, timeout_ms, values_out, bytes_out)
               : status;
}

tri_status tri_store_add(tri_store *store, const char *key, int64_t delta, int64_t *sum_out)
{
    tri_status status = check_keys(store, "store_add", &key, 1);
    int64_t sum = 0;

    if (status == TRI_OK)
        status = store->ops->add(store, key, delta, &sum);
    if (status == TRI_OK && sum_out != NULL)
        *sum_out = sum;
    return status;
}

tri_status tri_store_compare_set(tri_store *store, const char *key, const void *expected,
                                 size_t expected_bytes, const void *desired, size_t desired_bytes,
                                 void **value_out, size_t *bytes_out)
{
    tri_status status = check_keys(store, "store_compare_set", &key, 1);
    void *value = NULL;
    size_t bytes = 0;

    if (status == TRI_OK)
        status = check_value("store_compare_set", key, expected, expected_bytes);
    if (status == TRI_OK)
        status = check_value("store_compare_set", key, desired, desired_bytes);
    if (status == TRI_OK)
        status =
            store->ops->compare_set(store, key, expected != NULL ? expected : "", expected_bytes,
                                    desired != NULL ? desired : "", desired_bytes, &value, &bytes);
    if (status != TRI_OK)
        return status;
    if (bytes_out != NULL)
        *bytes_out = bytes;
    if (value_out != NULL)
        *value_out = value;
    else
        trii_free(value);
    return TRI_OK;
}

tri_status tri_store_append(tri_store *store, const char *key, const void *value, size_t bytes)
{
    tri_status status = check_keys(store, "store_append", &key, 1);

    if (status == TRI_OK)
        status = check_value("store_append", key, value, bytes);
    return status == TRI_OK ? store->ops->append(store, key, value != NULL ? value : "", bytes)
                            : status;
}

tri_status tri_store_wait(tri_store *store, const char *const *keys, int n_keys, int64_t timeout_ms)
{
    int64_t start = trii_now_ns();
    tri_status status = check_keys(store, "store_wait", keys, n_keys);

    if (status != TRI_OK || n_keys == 0)
        return status;
    status = store->ops->wait(store, keys, n_keys, deadline_of(store, timeout_ms));
    if (status == TRI_ERR_TIMEOUT)
        status = name_missing(store, "store_wait", keys, n_keys, trii_now_ns() - start);
    return status;
}

/* Where the kind of store has no barrier of its own: keys of these names, as PyTorch's. */
static tri_status barrier_of_keys(tri_store *store, const char *counter, const char *last,
                                  int64_t size, int64_t timeout_ms)
{
    int64_t n = 0;
    tri_status status = tri_store_add(store, counter, 1, &n);

    if (status == TRI_OK && n == size)
        status = tri_store_set(store, last, "1", 1);
    return status == TRI_OK ? tri_store_wait(store, &last, 1, timeout_ms) : status;
}

tri_status tri_store_barrier(tri_store *store, const char *key, int64_t size, int64_t timeout_ms)
{
    char counter[TRI_STORE_MAX_KEY + 16], last[TRI_STORE_MAX_KEY + 16];
    int64_t start = trii_now_ns(), n = 0;
    tri_status status = check_keys(store, "store_barrier", &key, 1);
    bool own = status == TRI_OK && store->ops->barrier != NULL;

    if (status == TRI_OK && size < 1)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "store_barrier: size %lld: must be at least 1",
                           (long long)size);
    if (status != TRI_OK)
        return status;
    snprintf(counter, sizeof(counter), "%s%s", key, own ? "" : "/num_members");
    snprintf(last, sizeof(last), "%s/last_member", key);
    status = own ? store->ops->barrier(store, key, size, deadline_of(store, timeout_ms))
                 : barrier_of_keys(store, counter, last, size, timeout_ms);
    if (status == TRI_ERR_TIMEOUT && trii_store_is_silent(store))
        return no_answer("store_barrier", trii_now_ns() - start);
    if (status == TRI_ERR_TIMEOUT && tri_store_add(store, counter, 0, &n) == TRI_OK)
        return TRII_FAIL(status, "store_barrier: %lld of %lld came to %.80s in %.1f s",
                         (long long)n, (long long)size, key,
                         (double)(trii_now_ns() - start) / (double)TRII_NS_PER_S);
    return status;
}

tri_status tri_store_check(tri_store *store, const char *const *keys, int n_keys, bool *present_out)
{
    tri_status status = check_keys(store, "store_check", keys, n_keys);

    if (status == TRI_OK)
        status = trii_need(present_out, "store_check", "present_out");
    return status == TRI_OK ? store->ops->check(store, keys, n_keys, present_out) : status;
}

tri_status tri_store_delete(tri_store *store, const char *key, bool *existed_out)
{
    tri_status status = check_keys(store, "store_delete", &key, 1);
    bool existed = false;

    if (status == TRI_OK)
        status = store->ops->remove(store, key, &existed);
    if (status == TRI_OK && existed_out != NULL)
        *existed_out = existed;
    return status;
}

tri_status tri_store_num_keys(tri_store *store, int64_t *n_out)
{
    tri_status status = check_keys(store, "store_num_keys", NULL, 0);

    if (status == TRI_OK)
        status = trii_need(n_out, "store_num_keys", "n_out");
    return status == TRI_OK ? store->ops->num_keys(store, n_out) : status;
}

tri_status tri_store_multi_set(tri_store *store, const char *const *keys, const void *const *values,
                               const size_t *bytes, int n_keys)
{
    tri_status status = check_keys(store, "store_multi_set", keys, n_keys);

    if (status == TRI_OK && n_keys > 0 && (values == NULL || bytes == NULL))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "store_multi_set: %s is NULL",
                           values == NULL ? "values" : "bytes");
    for (int i = 0; i < n_keys && status == TRI_OK; i++)
        status = check_value("store_multi_set", keys[i], values[i], bytes[i]);
    if (status != TRI_OK || n_keys == 0)
        return status;
    if (store->ops->multi_set != NULL)
        return store->ops->multi_set(store, keys, values, bytes, n_keys);
    for (int i = 0; i < n_keys && status == TRI_OK; i++)
        status = store->ops->set(store, keys[i], values[i] != NULL ? values[i] : "", bytes[i]);
    return status;
}

tri_status tri_store_list_keys(tri_store *store, char ***keys_out, int64_t *n_out)
{
    tri_status status = check_keys(store, "store_list_keys", NULL, 0);
    trii_key_list list = {0};
    char **keys = NULL, *text;

    if (status == TRI_OK)
        status = trii_need(keys_out, "store_list_keys", "keys_out");
    if (status == TRI_OK)
        status = trii_need(n_out, "store_list_keys", "n_out");
    if (status == TRI_OK)
        status = store->ops->list(store, &list);
    if (status == TRI_OK) {
        keys = trii_alloc(1, (size_t)list.n * sizeof(*keys) + list.used + 1, "store keys");
        status = keys != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status == TRI_OK) {
        text = (char *)(keys + list.n);
        if (list.used > 0)
            memcpy(text, list.text, list.used);
        for (int64_t i = 0; i < list.n; i++) {
            keys[i] = text;
            text += strlen(text) + 1;
        }
        *keys_out = keys;
        *n_out = list.n;
    }
    trii_free(list.text);
    return status;
}

/* --- queues --------------------------------------------------------------- */

static tri_status check_queue(const tri_store *store, const char *call, const char *key)
{
    tri_status status = check_keys(store, call, &key, 1);

    if (status == TRI_OK && store->ops->push == NULL)
        status = TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: a %s store has no queues; a tcp store has",
                           call, store->ops->name);
    return status;
}

tri_status tri_store_queue_push(tri_store *store, const char *key, const void *value, size_t bytes)
{
    tri_status status = check_queue(store, "store_queue_push", key);

    if (status == TRI_OK)
        status = check_value("store_queue_push", key, value, bytes);
    return status == TRI_OK ? store->ops->push(store, key, value != NULL ? value : "", bytes)
                            : status;
}

static tri_status pop(tri_store *store, const char *key, int64_t deadline_ns, void **value_out,
                      size_t *bytes_out)
{
    void *value = NULL;
    size_t bytes = 0;
    tri_status status = store->ops->pop(store, key, deadline_ns, &value, &bytes);

    if (status != TRI_OK)
        return status;
    *value_out = value;
    if (bytes_out != NULL)
        *bytes_out = bytes;
    return TRI_OK;
}

tri_status tri_store_queue_pop(tri_store *store, const char *key, int64_t timeout_ms,
                               void **value_out, size_t *bytes_out)
{
    int64_t start = trii_now_ns();
    tri_status status = check_queue(store, "store_queue_pop", key);

    if (status == TRI_OK)
        status = trii_need(value_out, "store_queue_pop", "value_out");
    if (status != TRI_OK)
        return status;
    status = pop(store, key, deadline_of(store, timeout_ms), value_out, bytes_out);
    if (status == TRI_INPROGRESS)
        status = TRII_FAIL(TRI_ERR_TIMEOUT, "store_queue_pop: queue %s is still empty after %.1f s",
                           key, (double)(trii_now_ns() - start) / (double)TRII_NS_PER_S);
    return status;
}

tri_status tri_store_queue_try_pop(tri_store *store, const char *key, void **value_out,
                                   size_t *bytes_out)
{
    tri_status status = check_queue(store, "store_queue_try_pop", key);

    if (status == TRI_OK)
        status = trii_need(value_out, "store_queue_try_pop", "value_out");
    return status == TRI_OK ? pop(store, key, 0, value_out, bytes_out) : status;
}

tri_status tri_store_queue_length(tri_store *store, const char *key, int64_t *n_out)
{
    tri_status status = check_queue(store, "store_queue_length", key);

    if (status == TRI_OK)
        status = trii_need(n_out, "store_queue_length", "n_out");
    return status == TRI_OK ? store->ops->queue_length(store, key, n_out) : status;
}
