/*
 * etcd_store.c - a store over etcd: KEY lies at PREFIX/ID/kv/KEY. Waiting is a watch, which ends
 * with the write that it waits for.
 *
 * A watch begins at the revision of the read that missed the key, so nothing falls between the two.
 * Since a watch can go mute (a network that swallows), it is looked after every LOOK_MS.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "rendezvous-etcd/etcd_client.h"
#include "os/clock.h"
#include "store/store_ops.h"

#define LOOK_MS 10000
#define AGAIN_MS 50                 /* between a watch that broke and the next */
#define AT_LEAST_MS 2000            /* for a look at what is there, however short the wait */
#define MAX_BYTES ((size_t)1 << 20) /* of a value: etcd takes requests of 1.5 MiB, in base64 */

typedef struct etcd_store {
    tri_store base;
    trii_etcd_client *client;
    size_t root_bytes; /* of "PREFIX/ID/kv/" */
} etcd_store;

static void store_destroy(tri_store *self)
{
    etcd_store *store = (etcd_store *)self;

    trii_etcd_client_unref(store->client);
    trii_free(store);
}

/* --- keys ----------------------------------------------------------------- */

/* The keys' full names, one after the other, in one block that is freed with trii_free. */
static const char **full_keys(const etcd_store *store, const char *const *keys, int n_keys)
{
    const char *root = trii_etcd_client_root(store->client);
    size_t bytes = 0;
    const char **full;
    char *text;

    for (int i = 0; i < n_keys; i++)
        bytes += store->root_bytes + strlen(keys[i]) + 1;
    full = trii_alloc(1, (size_t)n_keys * sizeof(*full) + bytes, "etcd keys");
    if (full == NULL)
        return NULL;
    text = (char *)(full + n_keys);
    for (int i = 0; i < n_keys; i++) {
        size_t room = store->root_bytes + strlen(keys[i]) + 1;

        snprintf(text, room, "%skv/%s", root, keys[i]);
        full[i] = text;
        text += room;
    }
    return full;
}

static tri_status too_large(const char *key, size_t bytes)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "store %s: a value of %zu bytes; a store in etcd takes %zu at most (a tcp "
                     "store takes more)",
                     key, bytes, MAX_BYTES);
}

/* --- writes --------------------------------------------------------------- */

/* What a write makes of what is there (NULL = no key). A new value, or nothing to be done. */
typedef struct change {
    int64_t delta, sum;           /* add */
    const void *data, *expected;  /* append, compare_set */
    size_t bytes, expected_bytes; /* ... */
    void *own_value;              /* what is to be written, or was found */
    size_t value_bytes;
    bool nothing; /* is written */
} change;

typedef tri_status (*change_fn)(const char *key, const trii_etcd_kv *there, change *c);

static tri_status keep_value(change *c, const void *data, size_t bytes)
{
    c->own_value = trii_store_copy(data, bytes);
    c->value_bytes = bytes;
    return c->own_value != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

/* Reads, and writes if nobody wrote in between; what was there instead comes with the refusal. */
static tri_status modify(tri_store *self, const char *key, change_fn make, change *c)
{
    etcd_store *store = (etcd_store *)self;
    const char **full = full_keys(store, &key, 1);
    trii_etcd_reply reply = {0};
    bool done = false;
    tri_status status =
        full != NULL ? trii_etcd_read(store->client, *full, &reply) : TRI_ERR_NO_MEMORY;

    while (status == TRI_OK && !done) {
        const trii_etcd_kv *there = reply.n_kvs > 0 ? &reply.kvs[0] : NULL;
        trii_etcd_write write = {.key = *full, .when = TRII_ETCD_IF_SAME};

        trii_free(c->own_value);
        c->own_value = NULL;
        c->nothing = false;
        status = make(key, there, c);
        if (status == TRI_OK && c->nothing)
            break;
        if (status == TRI_OK && c->value_bytes > MAX_BYTES)
            status = too_large(key, c->value_bytes);
        if (status != TRI_OK)
            break;
        write.value = c->own_value;
        write.bytes = c->value_bytes;
        write.revision = there != NULL ? there->mod_revision : 0;
        trii_etcd_reply_fini(&reply);
        status = trii_etcd_write_once(store->client, &write, &done, &reply);
    }
    trii_etcd_reply_fini(&reply);
    trii_free(full);
    return status;
}

static tri_status store_set(tri_store *self, const char *key, const void *value, size_t bytes)
{
    etcd_store *store = (etcd_store *)self;
    const char **full;
    trii_etcd_reply reply = {0};
    trii_etcd_write write = {.value = value, .bytes = bytes};
    bool done;
    tri_status status;

    if (bytes > MAX_BYTES)
        return too_large(key, bytes);
    full = full_keys(store, &key, 1);
    if (full == NULL)
        return TRI_ERR_NO_MEMORY;
    write.key = *full;
    status = trii_etcd_write_once(store->client, &write, &done, &reply);
    trii_etcd_reply_fini(&reply);
    trii_free(full);
    return status;
}

/* As the other stores count: what strtoll reads, and wraps. */
static tri_status make_sum(const char *key, const trii_etcd_kv *there, change *c)
{
    char text[24], *end = NULL;
    long long before = 0;

    if (there != NULL) {
        before = strtoll(there->value, &end, 10);
        if (end == there->value)
            return TRII_FAIL(TRI_ERR_FORMAT, "store_add %s: \"%.40s\" is not a number", key,
                             there->value);
    }
    c->sum = (int64_t)((uint64_t)before + (uint64_t)c->delta);
    snprintf(text, sizeof(text), "%lld", (long long)c->sum);
    return keep_value(c, text, strlen(text));
}

static tri_status store_add(tri_store *self, const char *key, int64_t delta, int64_t *sum_out)
{
    change c = {.delta = delta};
    tri_status status = modify(self, key, make_sum, &c);

    trii_free(c.own_value);
    if (status == TRI_OK)
        *sum_out = c.sum;
    return status;
}

static tri_status make_longer(const char *key, const trii_etcd_kv *there, change *c)
{
    size_t before = there != NULL ? there->value_bytes : 0;
    char *value = trii_alloc(before + c->bytes + 1, 1, "store value");

    (void)key;
    if (value == NULL)
        return TRI_ERR_NO_MEMORY;
    if (before > 0)
        memcpy(value, there->value, before);
    memcpy(value + before, c->data, c->bytes);
    c->own_value = value;
    c->value_bytes = before + c->bytes;
    return TRI_OK;
}

static tri_status store_append(tri_store *self, const char *key, const void *value, size_t bytes)
{
    change c = {.data = value, .bytes = bytes};
    tri_status status = modify(self, key, make_longer, &c);

    trii_free(c.own_value);
    return status;
}

static tri_status make_desired(const char *key, const trii_etcd_kv *there, change *c)
{
    bool equal = there != NULL ? there->value_bytes == c->expected_bytes &&
                                     memcmp(there->value, c->expected, c->expected_bytes) == 0
                               : c->expected_bytes == 0;

    (void)key;
    c->nothing = !equal;
    if (equal)
        return keep_value(c, c->data, c->bytes);
    return there != NULL ? keep_value(c, there->value, there->value_bytes)
                         : keep_value(c, c->expected, c->expected_bytes);
}

static tri_status store_compare_set(tri_store *self, const char *key, const void *expected,
                                    size_t expected_bytes, const void *desired,
                                    size_t desired_bytes, void **value_out, size_t *bytes_out)
{
    change c = {.data = desired,
                .bytes = desired_bytes,
                .expected = expected,
                .expected_bytes = expected_bytes};
    tri_status status = modify(self, key, make_desired, &c);

    if (status != TRI_OK) {
        trii_free(c.own_value);
        return status;
    }
    *value_out = c.own_value;
    *bytes_out = c.value_bytes;
    return TRI_OK;
}

static tri_status store_remove(tri_store *self, const char *key, bool *existed_out)
{
    etcd_store *store = (etcd_store *)self;
    const char **full = full_keys(store, &key, 1);
    trii_etcd_reply reply = {0};
    bool done = false, existed = false;
    tri_status status =
        full != NULL ? trii_etcd_read(store->client, *full, &reply) : TRI_ERR_NO_MEMORY;

    while (status == TRI_OK && !done) {
        trii_etcd_write write = {.remove = true, .when = TRII_ETCD_IF_SAME};

        existed = reply.n_kvs > 0;
        if (!existed)
            break;
        write.key = *full;
        write.revision = reply.kvs[0].mod_revision;
        trii_etcd_reply_fini(&reply);
        status = trii_etcd_write_once(store->client, &write, &done, &reply);
    }
    if (status == TRI_OK)
        *existed_out = existed;
    trii_etcd_reply_fini(&reply);
    trii_free(full);
    return status;
}

/* --- reads ---------------------------------------------------------------- */

/* Keys that are looked up together, and what is known of each. */
typedef struct lookup {
    etcd_store *store;
    const char **full; /* n */
    int n, n_missing;
    bool *present;
    void **values; /* NULL = not asked for */
    size_t *bytes;
    int64_t revision; /* of the oldest read */
} lookup;

static void release_values(lookup *l)
{
    for (int i = 0; i < l->n && l->values != NULL; i++) {
        trii_free(l->values[i]);
        l->values[i] = NULL;
    }
}

static void take_found(lookup *l, int first, trii_etcd_reply *reply)
{
    for (int i = 0; i < reply->n_kvs; i++) {
        trii_etcd_kv *kv = &reply->kvs[i];
        int k = first + kv->op;

        if (k >= l->n || l->present[k])
            continue;
        l->present[k] = true;
        l->n_missing--;
        if (l->values != NULL) {
            l->values[k] = kv->value;
            l->bytes[k] = kv->value_bytes;
            kv->value = NULL;
        }
    }
}

/* All at once, as many as a transaction takes. */
static tri_status look(lookup *l, int64_t deadline_ns)
{
    tri_status status = TRI_OK;

    release_values(l);
    memset(l->present, 0, (size_t)l->n);
    l->n_missing = l->n;
    l->revision = 0;
    for (int first = 0; first < l->n && status == TRI_OK; first += TRII_ETCD_MAX_OPS) {
        trii_wire_buffer body = {0};
        trii_etcd_reply reply = {0};

        trii_etcd_put_text(&body, "{\"success\":[");
        for (int i = first; i < l->n && i < first + TRII_ETCD_MAX_OPS; i++) {
            trii_etcd_put_text(&body, i > first ? ",{\"request_range\":{\"key\":"
                                                : "{\"request_range\":{\"key\":");
            trii_etcd_put_bytes(&body, l->full[i], strlen(l->full[i]));
            trii_etcd_put_text(&body, l->values != NULL ? "}}" : ",\"keys_only\":true}}");
        }
        trii_etcd_put_text(&body, "]}");
        status = trii_etcd_call(l->store->client, "/v3/kv/txn", &body, deadline_ns, &reply);
        if (status == TRI_OK) {
            take_found(l, first, &reply);
            l->revision = first == 0 ? reply.revision : l->revision;
        }
        trii_etcd_reply_fini(&reply);
        trii_wire_buffer_fini(&body);
    }
    if (status != TRI_OK)
        release_values(l);
    return status;
}

/* An event of a key between the first and the last that are missing. */
static bool on_event(void *arg, const trii_etcd_kv *kv)
{
    lookup *l = arg;

    for (int i = 0; i < l->n; i++) {
        if (strcmp(l->full[i], kv->key) != 0 || l->present[i] != kv->deleted)
            continue;
        l->present[i] = !kv->deleted;
        l->n_missing += kv->deleted ? 1 : -1;
    }
    return l->n_missing > 0;
}

static tri_status await(lookup *l, int64_t deadline_ns)
{
    tri_status status;

    for (;;) {
        int64_t now = trii_now_ns(), slice = trii_deadline_ms(LOOK_MS);
        int64_t soon = now + AT_LEAST_MS * TRII_NS_PER_MS;
        const char *first = NULL, *last = NULL;

        status = look(l, deadline_ns > soon ? deadline_ns : soon);
        if (status != TRI_OK || l->n_missing == 0)
            return status;
        if (trii_now_ns() >= deadline_ns)
            return TRI_ERR_TIMEOUT; /* the front names the keys */
        for (int i = 0; i < l->n; i++) {
            if (l->present[i])
                continue;
            first = first == NULL || strcmp(l->full[i], first) < 0 ? l->full[i] : first;
            last = last == NULL || strcmp(l->full[i], last) > 0 ? l->full[i] : last;
        }
        status = trii_etcd_watch(l->store->client, first, last, l->revision,
                                 slice < deadline_ns ? slice : deadline_ns, on_event, l);
        if (status == TRI_ERR_NO_MEMORY)
            return status;
        if (status == TRI_INPROGRESS) {
            int64_t until = trii_deadline_ms(AGAIN_MS);

            trii_sleep_until(until < deadline_ns ? until : deadline_ns);
        }
    }
}

static tri_status begin(lookup *l, tri_store *self, const char *const *keys, int n_keys)
{
    l->store = (etcd_store *)self;
    l->n = n_keys;
    l->full = full_keys(l->store, keys, n_keys);
    l->present = trii_alloc((size_t)n_keys, 1, "etcd keys");
    return l->full != NULL && l->present != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static void end(lookup *l)
{
    trii_free(l->full);
    trii_free(l->present);
}

static tri_status store_wait(tri_store *self, const char *const *keys, int n_keys,
                             int64_t deadline_ns)
{
    lookup l = {0};
    tri_status status = begin(&l, self, keys, n_keys);

    if (status == TRI_OK)
        status = await(&l, deadline_ns);
    end(&l);
    return status;
}

static tri_status store_multi_get(tri_store *self, const char *const *keys, int n_keys,
                                  int64_t deadline_ns, void **values_out, size_t *bytes_out)
{
    lookup l = {.values = values_out, .bytes = bytes_out};
    tri_status status = begin(&l, self, keys, n_keys);

    memset(values_out, 0, (size_t)n_keys * sizeof(*values_out));
    if (status == TRI_OK)
        status = await(&l, deadline_ns);
    if (status != TRI_OK)
        release_values(&l);
    end(&l);
    return status;
}

static tri_status store_check(tri_store *self, const char *const *keys, int n_keys,
                              bool *present_out)
{
    lookup l = {0};
    tri_status status = begin(&l, self, keys, n_keys);

    if (status == TRI_OK)
        status = look(&l, TRII_NO_DEADLINE);
    if (status == TRI_OK)
        *present_out = l.n_missing == 0;
    end(&l);
    return status;
}

/* All keys of the store: how many, or which. */
static tri_status range(etcd_store *store, const char *what, trii_etcd_reply *reply_out)
{
    const char *empty = "";
    const char **full = full_keys(store, &empty, 1);
    trii_wire_buffer body = {0};
    tri_status status;

    if (full == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_etcd_put_text(&body, "{\"");
    trii_etcd_put_text(&body, what);
    trii_etcd_put_text(&body, "\":true,\"key\":");
    trii_etcd_put_bytes(&body, *full, store->root_bytes);
    trii_etcd_put_text(&body, ",\"range_end\":");
    ((char *)full)[sizeof(*full) + store->root_bytes - 1] = '0'; /* follows '/' */
    trii_etcd_put_bytes(&body, *full, store->root_bytes);
    trii_etcd_put_text(&body, "}");
    status = trii_etcd_call(store->client, "/v3/kv/range", &body, TRII_NO_DEADLINE, reply_out);
    trii_wire_buffer_fini(&body);
    trii_free(full);
    return status;
}

static tri_status store_num_keys(tri_store *self, int64_t *n_out)
{
    trii_etcd_reply reply = {0};
    tri_status status = range((etcd_store *)self, "count_only", &reply);

    if (status == TRI_OK)
        *n_out = reply.count;
    trii_etcd_reply_fini(&reply);
    return status;
}

static tri_status store_list(tri_store *self, trii_key_list *list)
{
    etcd_store *store = (etcd_store *)self;
    trii_etcd_reply reply = {0};
    tri_status status = range(store, "keys_only", &reply);

    for (int i = 0; i < reply.n_kvs && status == TRI_OK; i++) {
        const trii_etcd_kv *kv = &reply.kvs[i];

        if (kv->key_bytes >= store->root_bytes)
            status = trii_key_list_add(list, kv->key + store->root_bytes,
                                       kv->key_bytes - store->root_bytes);
    }
    trii_etcd_reply_fini(&reply);
    return status;
}

static const trii_store_ops etcd_ops = {
    .abi = TRII_STORE_ABI,
    .size = sizeof(trii_store_ops),
    .name = "etcd",
    .destroy = store_destroy,
    .set = store_set,
    .multi_get = store_multi_get,
    .add = store_add,
    .compare_set = store_compare_set,
    .append = store_append,
    .wait = store_wait,
    .check = store_check,
    .remove = store_remove,
    .num_keys = store_num_keys,
    .list = store_list,
};

tri_status trii_etcd_store_create(trii_etcd_client *client, tri_store **store_out)
{
    etcd_store *store = trii_alloc(1, sizeof(*store), "etcd store");

    if (store == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_store_init(&store->base, &etcd_ops, trii_etcd_client_timeout_ms(client));
    store->client = trii_etcd_client_ref(client);
    store->root_bytes = strlen(trii_etcd_client_root(client)) + 3;
    *store_out = &store->base;
    return TRI_OK;
}
