/*
 * kv.c - see kv.h. A hash table with chains; an entry lives while it has a value, a queue or
 * waiters. It serves hash_store.c, file_store.c (through file_log.c) and the TCP server
 * (tcp_requests.c), which therefore agree on what every operation means.
 */
/* build: leaf */
#include "store/kv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/siphash.h"
#include "os/clock.h"
#include "os/random.h"

typedef struct queue_item {
    struct queue_item *next;
    char *data;
    size_t bytes;
} queue_item;

/* One missing key of one wait; linked at the entry, oldest first. */
typedef struct wait_link {
    struct wait_link *prev, *next;
    struct kv_entry *entry; /* NULL = no longer waited for */
    trii_kv_wait *wait;
} wait_link;

typedef struct kv_entry {
    struct kv_entry *next;
    uint64_t hash;
    char *key;
    size_t key_bytes;
    char *value; /* NULL = no value */
    size_t value_bytes;
    size_t value_room;
    queue_item *queue_head, *queue_tail;
    int64_t queue_length;
    wait_link *first_wait, *last_wait;
} kv_entry;

struct trii_kv_wait {
    void *owner;
    trii_kv_ready ready;
    size_t n_missing;
    size_t n_links;
    size_t room; /* of links */
    wait_link links[];
};

struct trii_kv {
    kv_entry **buckets;
    size_t n_buckets; /* a power of two */
    size_t n_entries;
    int64_t n_values;
    size_t bytes; /* of entries, keys, room of values, queues and waits */
    trii_siphash_key secret;
};

/* Clients choose the keys, so the hash has a key that they do not know: chains stay short. */
static uint64_t hash_key(const trii_kv *kv, trii_slice key)
{
    return trii_siphash(kv->secret, key.data, key.bytes);
}

tri_status trii_kv_create(trii_kv **kv_out)
{
    trii_kv *kv = trii_alloc(1, sizeof(*kv), "store table");

    if (kv == NULL)
        return TRI_ERR_NO_MEMORY;
    if (!trii_random_bytes(&kv->secret, sizeof(kv->secret)))
        kv->secret.low = (uint64_t)trii_now_ns(); /* better than none */
    kv->n_buckets = 64;
    kv->buckets = trii_alloc(kv->n_buckets, sizeof(*kv->buckets), "store table");
    if (kv->buckets == NULL) {
        trii_free(kv);
        return TRI_ERR_NO_MEMORY;
    }
    *kv_out = kv;
    return TRI_OK;
}

static void free_entry(kv_entry *entry)
{
    while (entry->queue_head != NULL) {
        queue_item *item = entry->queue_head;

        entry->queue_head = item->next;
        trii_free(item->data);
        trii_free(item);
    }
    trii_free(entry->value);
    trii_free(entry->key);
    trii_free(entry);
}

void trii_kv_destroy(trii_kv *kv)
{
    if (kv == NULL)
        return;
    for (size_t i = 0; i < kv->n_buckets; i++) {
        while (kv->buckets[i] != NULL) {
            kv_entry *entry = kv->buckets[i];

            kv->buckets[i] = entry->next;
            free_entry(entry);
        }
    }
    trii_free(kv->buckets);
    trii_free(kv);
}

static kv_entry **find_link(const trii_kv *kv, trii_slice key, uint64_t hash)
{
    kv_entry **link = &kv->buckets[hash & (kv->n_buckets - 1)];

    while (*link != NULL && ((*link)->hash != hash || (*link)->key_bytes != key.bytes ||
                             memcmp((*link)->key, key.data, key.bytes) != 0))
        link = &(*link)->next;
    return link;
}

static kv_entry *find(const trii_kv *kv, trii_slice key)
{
    return *find_link(kv, key, hash_key(kv, key));
}

/* Best effort: a table that could not grow is only slower. */
static void grow(trii_kv *kv)
{
    size_t n = kv->n_buckets * 2;
    kv_entry **buckets = trii_alloc(n, sizeof(*buckets), "store table");

    if (buckets == NULL)
        return;
    for (size_t i = 0; i < kv->n_buckets; i++) {
        while (kv->buckets[i] != NULL) {
            kv_entry *entry = kv->buckets[i];

            kv->buckets[i] = entry->next;
            entry->next = buckets[entry->hash & (n - 1)];
            buckets[entry->hash & (n - 1)] = entry;
        }
    }
    trii_free(kv->buckets);
    kv->buckets = buckets;
    kv->n_buckets = n;
}

static bool has_room(const trii_kv *kv, size_t bytes)
{
    if (bytes <= TRII_KV_MAX_BYTES && kv->bytes <= TRII_KV_MAX_BYTES - bytes)
        return true;
    trii_err_set("store: %zu more bytes would exceed the limit of %zu", bytes, TRII_KV_MAX_BYTES);
    return false;
}

/* The entry, made if missing; NULL = no memory, or above TRII_KV_MAX_BYTES. */
static kv_entry *obtain(trii_kv *kv, trii_slice key)
{
    uint64_t hash = hash_key(kv, key);
    kv_entry *entry = *find_link(kv, key, hash);

    if (entry != NULL || !has_room(kv, key.bytes + sizeof(*entry)))
        return entry;
    entry = trii_alloc(1, sizeof(*entry), "store entry");
    if (entry == NULL)
        return NULL;
    entry->key = trii_alloc(key.bytes, 1, "store key");
    if (entry->key == NULL) {
        trii_free(entry);
        return NULL;
    }
    memcpy(entry->key, key.data, key.bytes);
    entry->key_bytes = key.bytes;
    entry->hash = hash;
    if (kv->n_entries >= kv->n_buckets)
        grow(kv);
    entry->next = kv->buckets[hash & (kv->n_buckets - 1)];
    kv->buckets[hash & (kv->n_buckets - 1)] = entry;
    kv->n_entries++;
    kv->bytes += key.bytes + sizeof(*entry);
    return entry;
}

/* Removes the entry if nothing is left in it. */
static void tidy(trii_kv *kv, kv_entry *entry)
{
    kv_entry **link;

    if (entry->value != NULL || entry->queue_head != NULL || entry->first_wait != NULL)
        return;
    link = &kv->buckets[entry->hash & (kv->n_buckets - 1)];
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    kv->n_entries--;
    kv->bytes -= entry->key_bytes + sizeof(*entry);
    free_entry(entry);
}

/* --- waits ---------------------------------------------------------------- */

static void unlink_wait(wait_link *link)
{
    kv_entry *entry = link->entry;

    assert(entry != NULL);
    *(link->prev != NULL ? &link->prev->next : &entry->first_wait) = link->next;
    *(link->next != NULL ? &link->next->prev : &entry->last_wait) = link->prev;
    link->entry = NULL;
}

static size_t wait_bytes(size_t n_links)
{
    return sizeof(trii_kv_wait) + n_links * sizeof(wait_link);
}

static void free_wait(trii_kv *kv, trii_kv_wait *wait)
{
    kv->bytes -= wait_bytes(wait->room);
    trii_free(wait);
}

/* One key of the wait has come; the last one ends it. */
static void satisfy(trii_kv *kv, wait_link *link)
{
    trii_kv_wait *wait = link->wait;

    unlink_wait(link);
    if (--wait->n_missing == 0) {
        wait->ready(wait->owner, wait);
        free_wait(kv, wait);
    }
}

static void wake_all(trii_kv *kv, kv_entry *entry)
{
    while (entry->first_wait != NULL)
        satisfy(kv, entry->first_wait);
}

void trii_kv_wake(trii_kv *kv, trii_slice key)
{
    kv_entry *entry = find(kv, key);

    if (entry != NULL) {
        wake_all(kv, entry);
        tidy(kv, entry);
    }
}

void trii_kv_cancel(trii_kv *kv, trii_kv_wait *wait)
{
    for (size_t i = 0; i < wait->n_links; i++) {
        kv_entry *entry = wait->links[i].entry;

        if (entry != NULL) {
            unlink_wait(&wait->links[i]);
            tidy(kv, entry);
        }
    }
    free_wait(kv, wait);
}

tri_status trii_kv_wait_for(trii_kv *kv, const trii_slice *keys, size_t n_keys, bool barrier,
                            void *owner, trii_kv_ready ready, trii_kv_wait **wait_out)
{
    trii_kv_wait *wait;
    size_t n_missing = 0;

    for (size_t i = 0; i < n_keys; i++)
        n_missing += barrier || !trii_kv_has(kv, keys[i]);
    if (n_missing == 0) {
        *wait_out = NULL;
        return TRI_OK;
    }
    if (!has_room(kv, wait_bytes(n_missing)))
        return TRI_ERR_NO_MEMORY;
    wait = trii_alloc(1, wait_bytes(n_missing), "store wait");
    if (wait == NULL)
        return TRI_ERR_NO_MEMORY;
    kv->bytes += wait_bytes(n_missing);
    wait->room = n_missing;
    wait->owner = owner;
    wait->ready = ready;
    wait->n_missing = n_missing;
    for (size_t i = 0; i < n_keys; i++) {
        wait_link *link = &wait->links[wait->n_links];
        kv_entry *entry;

        if (!barrier && trii_kv_has(kv, keys[i]))
            continue;
        entry = obtain(kv, keys[i]);
        if (entry == NULL) {
            trii_kv_cancel(kv, wait);
            return TRI_ERR_NO_MEMORY;
        }
        link->wait = wait;
        link->entry = entry;
        link->prev = entry->last_wait;
        *(entry->last_wait != NULL ? &entry->last_wait->next : &entry->first_wait) = link;
        entry->last_wait = link;
        wait->n_links++;
    }
    *wait_out = wait;
    return TRI_OK;
}

/* --- values --------------------------------------------------------------- */

/* How much room the value shall have: appending doubles, so that many small pieces stay linear, and
 * a small value does not keep the memory of a large one. */
static size_t choose_room(const trii_kv *kv, const kv_entry *entry, size_t bytes, bool append)
{
    const size_t room = entry->value_room;

    if (bytes <= room)
        return append || bytes >= room / 2 ? room : bytes;
    return append && bytes < 2 * room && room <= TRII_KV_MAX_BYTES - kv->bytes ? 2 * room : bytes;
}

/* Replaces or extends the value; wakes nobody. */
static tri_status write_value(trii_kv *kv, kv_entry *entry, trii_slice value, bool append)
{
    size_t kept = append ? entry->value_bytes : 0;
    size_t bytes = kept + value.bytes, room = choose_room(kv, entry, bytes, append);

    if (room > entry->value_room && !has_room(kv, room - entry->value_room))
        return TRI_ERR_NO_MEMORY;
    if (entry->value == NULL || room != entry->value_room) {
        char *data = trii_realloc(entry->value, room, 1, "store value");

        if (data == NULL)
            return TRI_ERR_NO_MEMORY;
        kv->n_values += entry->value == NULL;
        kv->bytes = kv->bytes - entry->value_room + room;
        entry->value = data;
        entry->value_room = room;
    }
    memcpy(entry->value + kept, value.data, value.bytes);
    entry->value_bytes = bytes;
    return TRI_OK;
}

static tri_status write_and_wake(trii_kv *kv, trii_slice key, trii_slice value, bool append)
{
    kv_entry *entry = obtain(kv, key);
    tri_status status;

    if (entry == NULL)
        return TRI_ERR_NO_MEMORY;
    status = write_value(kv, entry, value, append);
    if (status == TRI_OK)
        wake_all(kv, entry);
    else
        tidy(kv, entry);
    return status;
}

tri_status trii_kv_set(trii_kv *kv, trii_slice key, trii_slice value)
{
    return write_and_wake(kv, key, value, false);
}

tri_status trii_kv_append(trii_kv *kv, trii_slice key, trii_slice value)
{
    return write_and_wake(kv, key, value, true);
}

/* Computes the counter plus delta, also as text; writes nothing. */
static tri_status next_sum(const kv_entry *entry, int64_t delta, char text[24], int64_t *sum_out)
{
    char old[64] = "0", *end;
    int64_t sum;

    if (entry != NULL && entry->value != NULL) {
        size_t bytes = entry->value_bytes < sizeof(old) - 1 ? entry->value_bytes : sizeof(old) - 1;

        memcpy(old, entry->value, bytes);
        old[bytes] = '\0';
    }
    sum = strtoll(old, &end, 10);
    if (end == old)
        return TRII_FAIL(TRI_ERR_FORMAT, "store: add to \"%.*s\", which does not hold a number",
                         (int)(entry->key_bytes < 64 ? entry->key_bytes : 64), entry->key);
    *sum_out = (int64_t)((uint64_t)sum + (uint64_t)delta);
    snprintf(text, 24, "%" PRId64, *sum_out);
    return TRI_OK;
}

tri_status trii_kv_add(trii_kv *kv, trii_slice key, int64_t delta, int64_t *sum_out)
{
    char text[24];
    int64_t sum;
    tri_status status = next_sum(find(kv, key), delta, text, &sum);

    if (status == TRI_OK)
        status = trii_kv_set(kv, key, (trii_slice){text, strlen(text)});
    if (status == TRI_OK)
        *sum_out = sum;
    return status;
}

tri_status trii_kv_arrive(trii_kv *kv, trii_slice key, int64_t *sum_out)
{
    kv_entry *entry = obtain(kv, key);
    char text[24];
    int64_t sum;
    tri_status status;

    if (entry == NULL)
        return TRI_ERR_NO_MEMORY;
    status = next_sum(entry, 1, text, &sum);
    if (status == TRI_OK)
        status = write_value(kv, entry, (trii_slice){text, strlen(text)}, false);
    if (status == TRI_OK)
        *sum_out = sum;
    else
        tidy(kv, entry);
    return status;
}

tri_status trii_kv_compare_set(trii_kv *kv, trii_slice key, trii_slice expected, trii_slice desired,
                               trii_slice *reply_out)
{
    const kv_entry *entry = find(kv, key);
    tri_status status;

    if (entry != NULL && entry->value != NULL) {
        if (entry->value_bytes != expected.bytes ||
            memcmp(entry->value, expected.data, expected.bytes) != 0) {
            *reply_out = (trii_slice){entry->value, entry->value_bytes};
            return TRI_OK;
        }
    } else if (expected.bytes != 0) {
        *reply_out = expected;
        return TRI_OK;
    }
    status = trii_kv_set(kv, key, desired);
    if (status == TRI_OK)
        *reply_out = desired;
    return status;
}

bool trii_kv_get(const trii_kv *kv, trii_slice key, trii_slice *value_out)
{
    const kv_entry *entry = find(kv, key);

    if (entry == NULL || entry->value == NULL)
        return false;
    *value_out = (trii_slice){entry->value, entry->value_bytes};
    return true;
}

bool trii_kv_has(const trii_kv *kv, trii_slice key)
{
    const kv_entry *entry = find(kv, key);

    return entry != NULL && (entry->value != NULL || entry->queue_head != NULL);
}

bool trii_kv_delete(trii_kv *kv, trii_slice key)
{
    kv_entry *entry = find(kv, key);

    if (entry == NULL || entry->value == NULL)
        return false;
    kv->bytes -= entry->value_room;
    kv->n_values--;
    trii_free(entry->value);
    entry->value = NULL;
    entry->value_bytes = entry->value_room = 0;
    tidy(kv, entry);
    return true;
}

int64_t trii_kv_count(const trii_kv *kv)
{
    return kv->n_values;
}

void trii_kv_each(const trii_kv *kv, bool (*visit)(void *arg, trii_slice key), void *arg)
{
    for (size_t i = 0; i < kv->n_buckets; i++) {
        for (const kv_entry *entry = kv->buckets[i]; entry != NULL; entry = entry->next) {
            if (entry->value != NULL && !visit(arg, (trii_slice){entry->key, entry->key_bytes}))
                return;
        }
    }
}

/* --- queues --------------------------------------------------------------- */

/* There is something to pop: ends the oldest wait that is for no other key as well. One that still
 * misses a key does not pop now, and a client that waits after it would never learn of the value.
 */
static void offer(trii_kv *kv, kv_entry *entry)
{
    wait_link *next;
    bool ends = false;

    for (wait_link *link = entry->first_wait; link != NULL && !ends; link = next) {
        next = link->next;
        ends = link->wait->n_missing == 1;
        satisfy(kv, link);
    }
}

tri_status trii_kv_push(trii_kv *kv, trii_slice key, trii_slice value)
{
    kv_entry *entry;
    queue_item *item;

    if (!has_room(kv, value.bytes + sizeof(*item)))
        return TRI_ERR_NO_MEMORY;
    item = trii_alloc(1, sizeof(*item), "store queue");
    if (item == NULL)
        return TRI_ERR_NO_MEMORY;
    item->data = trii_alloc(value.bytes + 1, 1, "store queue"); /* a zero byte follows it */
    entry = item->data != NULL ? obtain(kv, key) : NULL;
    if (entry == NULL) {
        trii_free(item->data);
        trii_free(item);
        return TRI_ERR_NO_MEMORY;
    }
    memcpy(item->data, value.data, value.bytes);
    item->bytes = value.bytes;
    *(entry->queue_tail != NULL ? &entry->queue_tail->next : &entry->queue_head) = item;
    entry->queue_tail = item;
    entry->queue_length++;
    kv->bytes += value.bytes + sizeof(*item);
    offer(kv, entry);
    return TRI_OK;
}

bool trii_kv_pop(trii_kv *kv, trii_slice key, char **own_value_out, size_t *bytes_out)
{
    kv_entry *entry = find(kv, key);
    queue_item *item = entry != NULL ? entry->queue_head : NULL;

    if (item == NULL)
        return false;
    entry->queue_head = item->next;
    if (item->next == NULL)
        entry->queue_tail = NULL;
    entry->queue_length--;
    kv->bytes -= item->bytes + sizeof(*item);
    *own_value_out = item->data;
    *bytes_out = item->bytes;
    trii_free(item);
    tidy(kv, entry);
    return true;
}

int64_t trii_kv_queue_length(const trii_kv *kv, trii_slice key)
{
    const kv_entry *entry = find(kv, key);

    return entry != NULL ? entry->queue_length : 0;
}
