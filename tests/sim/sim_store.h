/*
 * sim_store.h - a store for agents in virtual time: one table in memory, reached over a network
 * whose latency the seed decides, and from which a host can be cut off. Counts what it is asked
 * for.
 */
#ifndef TRII_SIM_STORE_H
#define TRII_SIM_STORE_H

#include "base/alloc.h"
#include "base/err.h"
#include "sim_clock.h"
#include "store/kv.h"
#include "store/store_ops.h"

enum {
    SIM_LATENCY_US = 200, /* at least; at most four times that */
    SIM_TIMEOUT_MS = 60000,
    SIM_WAIT_MS = 3000 /* of a wait for a key, whose deadline is a real one */
};

/* A host's way to the store. */
typedef struct sim_link {
    bool dead, cut, broken;
} sim_link;

typedef struct sim_store {
    tri_store base;
    sim_link *link;
} sim_store;

static struct {
    trii_kv *kv;
    int64_t requests, bytes;
    int64_t ended_waits; /* for keys that torchrun's agents wait for, if its store was asked */
} sim_shared;

static inline trii_slice sim_text(const char *text)
{
    return (trii_slice){.data = text, .bytes = strlen(text)};
}

/* A task that waits for a key waits for this address. */
static inline const void *sim_channel_of(const char *key)
{
    uintptr_t hash = 5381;

    while (*key != '\0')
        hash = hash * 33 + (unsigned char)*key++;
    return (const void *)(hash | 1); /* never a task or a condition variable */
}

/* The request reaches the store, or does not. */
static inline tri_status sim_request(sim_store *self, size_t bytes)
{
    sim_link *link = self->link;
    int64_t begin = sim_now();
    int64_t latency_us = SIM_LATENCY_US + (int64_t)sim_random(3 * SIM_LATENCY_US);

    if (!link->dead && !link->broken)
        sim_wait(NULL, NULL, begin + latency_us * 1000 + (int64_t)bytes);
    while (link->cut && !link->dead && !link->broken) {
        sim_wait(link, NULL, begin + SIM_TIMEOUT_MS * TRII_NS_PER_MS);
        link->broken = sim_now() - begin >= SIM_TIMEOUT_MS * TRII_NS_PER_MS;
    }
    if (link->dead || link->broken)
        return TRII_FAIL(TRI_ERR_TIMEOUT, "the store does not answer");
    sim_shared.requests++;
    sim_shared.bytes += (int64_t)bytes;
    return TRI_OK;
}

static inline tri_status sim_hand_out(trii_slice value, void **value_out, size_t *bytes_out)
{
    *value_out = trii_store_copy(value.data, value.bytes);
    *bytes_out = value.bytes;
    sim_shared.bytes += (int64_t)value.bytes;
    return *value_out != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static inline void sim_store_destroy(tri_store *base)
{
    free(base);
}

static inline tri_status sim_store_set(tri_store *base, const char *key, const void *value,
                                       size_t bytes)
{
    tri_status status = sim_request((sim_store *)base, bytes);

    if (status == TRI_OK)
        status = trii_kv_set(sim_shared.kv, sim_text(key), (trii_slice){value, bytes});
    if (status == TRI_OK)
        sim_notify(sim_channel_of(key));
    return status;
}

static inline tri_status sim_store_append(tri_store *base, const char *key, const void *value,
                                          size_t bytes)
{
    tri_status status = sim_request((sim_store *)base, bytes);

    if (status == TRI_OK)
        status = trii_kv_append(sim_shared.kv, sim_text(key), (trii_slice){value, bytes});
    if (status == TRI_OK)
        sim_notify(sim_channel_of(key));
    return status;
}

static inline tri_status sim_store_add(tri_store *base, const char *key, int64_t delta,
                                       int64_t *sum_out)
{
    tri_status status = sim_request((sim_store *)base, 8);

    if (status == TRI_OK)
        status = trii_kv_add(sim_shared.kv, sim_text(key), delta, sum_out);
    if (status == TRI_OK)
        sim_notify(sim_channel_of(key));
    return status;
}

static inline tri_status sim_compare_set(const char *key, trii_slice expected, trii_slice desired,
                                         void **value_out, size_t *bytes_out)
{
    trii_slice reply;
    tri_status status =
        trii_kv_compare_set(sim_shared.kv, sim_text(key), expected, desired, &reply);

    if (status == TRI_OK && reply.bytes == desired.bytes &&
        memcmp(reply.data, desired.data, desired.bytes) == 0)
        sim_notify(sim_channel_of(key));
    return status == TRI_OK ? sim_hand_out(reply, value_out, bytes_out) : status;
}

static inline tri_status sim_store_compare_set(tri_store *base, const char *key,
                                               const void *expected, size_t expected_bytes,
                                               const void *desired, size_t desired_bytes,
                                               void **value_out, size_t *bytes_out)
{
    tri_status status = sim_request((sim_store *)base, expected_bytes + desired_bytes);

    return status == TRI_OK
               ? sim_compare_set(key, (trii_slice){expected, expected_bytes},
                                 (trii_slice){desired, desired_bytes}, value_out, bytes_out)
               : status;
}

static inline tri_status sim_await(sim_store *self, const char *key, int64_t deadline_ns)
{
    while (!trii_kv_has(sim_shared.kv, sim_text(key))) {
        if (self->link->dead || self->link->broken || sim_now() >= deadline_ns)
            return TRII_FAIL(TRI_ERR_TIMEOUT, "no key %s", key);
        sim_wait(sim_channel_of(key), self->link, deadline_ns);
    }
    return TRI_OK;
}

static inline tri_status sim_store_wait(tri_store *base, const char *const *keys, int n_keys,
                                        int64_t deadline_ns)
{
    tri_status status = sim_request((sim_store *)base, 0);

    (void)deadline_ns;
    for (int i = 0; i < n_keys && status == TRI_OK; i++)
        status = sim_await((sim_store *)base, keys[i], sim_now() + SIM_WAIT_MS * TRII_NS_PER_MS);
    return status;
}

static inline tri_status sim_store_multi_get(tri_store *base, const char *const *keys, int n_keys,
                                             int64_t deadline_ns, void **values_out,
                                             size_t *bytes_out)
{
    tri_status status = sim_request((sim_store *)base, 0);
    trii_slice value;

    (void)deadline_ns;
    for (int i = 0; i < n_keys && status == TRI_OK; i++) {
        status = sim_await((sim_store *)base, keys[i], sim_now() + SIM_TIMEOUT_MS * TRII_NS_PER_MS);
        if (status == TRI_OK && trii_kv_get(sim_shared.kv, sim_text(keys[i]), &value))
            status = sim_hand_out(value, &values_out[i], &bytes_out[i]);
        for (int k = 0; k < i && status != TRI_OK; k++)
            trii_free(values_out[k]);
    }
    return status;
}

static inline tri_status sim_store_check(tri_store *base, const char *const *keys, int n_keys,
                                         bool *present_out)
{
    tri_status status = sim_request((sim_store *)base, 0);

    *present_out = true;
    for (int i = 0; i < n_keys && status == TRI_OK; i++)
        *present_out = *present_out && trii_kv_has(sim_shared.kv, sim_text(keys[i]));
    return status;
}

static inline tri_status sim_store_remove(tri_store *base, const char *key, bool *existed_out)
{
    tri_status status = sim_request((sim_store *)base, 0);

    if (status == TRI_OK)
        *existed_out = trii_kv_delete(sim_shared.kv, sim_text(key));
    return status;
}

static inline tri_status sim_store_num_keys(tri_store *base, int64_t *n_out)
{
    tri_status status = sim_request((sim_store *)base, 0);

    *n_out = trii_kv_count(sim_shared.kv);
    return status;
}

typedef struct sim_listing {
    trii_key_list list;
    tri_status status;
} sim_listing;

static inline bool sim_list_one(void *arg, trii_slice key)
{
    sim_listing *listing = arg;

    listing->status = trii_key_list_add(&listing->list, key.data, key.bytes);
    return listing->status == TRI_OK;
}

static inline tri_status sim_store_list_keys(tri_store *base, trii_key_list *list)
{
    sim_listing listing = {.list = *list};
    tri_status status = sim_request((sim_store *)base, 0);

    if (status == TRI_OK)
        trii_kv_each(sim_shared.kv, sim_list_one, &listing);
    *list = listing.list;
    return status == TRI_OK ? listing.status : status;
}

/* One request, as with this library's server. */
static inline tri_status sim_store_exchange(tri_store *base, trii_store_call *calls, int n_calls,
                                            const char *const *keys, int n_keys,
                                            int64_t deadline_ns, void **values_out,
                                            size_t *bytes_out)
{
    tri_status status = sim_request((sim_store *)base, 0);

    for (int i = 0; i < n_calls && status == TRI_OK; i++) {
        trii_store_call *call = &calls[i];
        trii_slice key = sim_text(call->key), value;

        if (call->kind == TRII_STORE_SET) {
            status = trii_kv_set(sim_shared.kv, key, sim_text(call->text));
            sim_notify(sim_channel_of(call->key));
        } else if (call->kind == TRII_STORE_CHECK) {
            call->number = trii_kv_has(sim_shared.kv, key);
        } else if (call->kind == TRII_STORE_DELETE) {
            call->number = trii_kv_delete(sim_shared.kv, key);
        } else if (call->kind == TRII_STORE_READ) {
            if (trii_kv_get(sim_shared.kv, key, &value))
                status = sim_hand_out(value, (void **)&call->value, &call->bytes);
            else
                sim_shared.ended_waits += strstr(call->key, "trireme/") == NULL;
        } else if (call->kind == TRII_STORE_CLAIM) {
            status = sim_compare_set(call->key, sim_text(""), sim_text(call->text),
                                     (void **)&call->value, &call->bytes);
        }
    }
    return status == TRI_OK && n_keys > 0
               ? sim_store_multi_get(base, keys, n_keys, deadline_ns, values_out, bytes_out)
               : status;
}

static inline tri_status sim_store_clone(tri_store *base, tri_store **store_out);

static const trii_store_ops sim_store_ops = {
    .abi = TRII_STORE_ABI,
    .size = sizeof(trii_store_ops),
    .name = "sim",
    .destroy = sim_store_destroy,
    .clone = sim_store_clone,
    .set = sim_store_set,
    .multi_get = sim_store_multi_get,
    .append = sim_store_append,
    .add = sim_store_add,
    .compare_set = sim_store_compare_set,
    .wait = sim_store_wait,
    .check = sim_store_check,
    .remove = sim_store_remove,
    .num_keys = sim_store_num_keys,
    .list = sim_store_list_keys,
    .exchange = sim_store_exchange,
};

static inline tri_store *sim_store_create(sim_link *link)
{
    sim_store *self = calloc(1, sizeof(*self));

    if (self == NULL)
        abort();
    trii_store_init(&self->base, &sim_store_ops, 0);
    self->link = link;
    return &self->base;
}

static inline tri_status sim_store_clone(tri_store *base, tri_store **store_out)
{
    *store_out = sim_store_create(((sim_store *)base)->link);
    return TRI_OK;
}

#endif
