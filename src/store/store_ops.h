/*
 * store_ops.h - what every kind of store provides. store.c checks arguments, turns
 * timeouts into deadlines and dispatches; a kind is one const table and a struct that
 * begins with tri_store.
 */
#ifndef TRII_STORE_OPS_H
#define TRII_STORE_OPS_H

#include <stdatomic.h>

#include <trireme/store.h>

#include "store/exchange.h"

#define TRII_STORE_ABI 5u

/* Texts one after the other, each with its zero byte. */
typedef struct trii_key_list {
    char *text;
    size_t used, room;
    int64_t n;
} trii_key_list;

/* Errors: NO_MEMORY. */
tri_status trii_key_list_add(trii_key_list *list, const char *key, size_t bytes) TRI_MUST_CHECK;

/* All required unless it says otherwise. Keys are at most TRI_STORE_MAX_KEY bytes and never
 * NULL, values are never NULL, n_keys is 0 to TRI_STORE_MAX_KEYS. Values that are handed out
 * are allocated with one zero byte after them; the caller frees them. Any thread. */
typedef struct trii_store_ops {
    uint32_t abi;
    uint32_t size;
    const char *name;
    void (*destroy)(tri_store *self);
    /* Optional: NULL = a reference will do, since waiting blocks nobody else. */
    tri_status (*clone)(tri_store *self, tri_store **store_out);
    int (*port)(const tri_store *self); /* optional: NULL = 0 */
    tri_status (*set)(tri_store *self, const char *key, const void *value, size_t bytes);
    /* Waits for all keys, then hands out their values; on a failure it frees what it wrote
     * into the arrays. */
    tri_status (*multi_get)(tri_store *self, const char *const *keys, int n_keys,
                            int64_t deadline_ns, void **values_out, size_t *bytes_out);
    tri_status (*add)(tri_store *self, const char *key, int64_t delta, int64_t *sum_out);
    tri_status (*compare_set)(tri_store *self, const char *key, const void *expected,
                              size_t expected_bytes, const void *desired, size_t desired_bytes,
                              void **value_out, size_t *bytes_out);
    tri_status (*append)(tri_store *self, const char *key, const void *value, size_t bytes);
    /* TIMEOUT after the deadline; store.c then names the missing keys. */
    tri_status (*wait)(tri_store *self, const char *const *keys, int n_keys, int64_t deadline_ns);
    /* Optional: NULL = a counter KEY/num_members, and KEY/last_member. With it the counter is
     * KEY. */
    tri_status (*barrier)(tri_store *self, const char *key, int64_t size, int64_t deadline_ns);
    tri_status (*check)(tri_store *self, const char *const *keys, int n_keys, bool *present_out);
    tri_status (*remove)(tri_store *self, const char *key, bool *existed_out);
    tri_status (*num_keys)(tri_store *self, int64_t *n_out);
    tri_status (*list)(tri_store *self, trii_key_list *list);
    /* Optional: NULL = one set after the other. */
    tri_status (*multi_set)(tri_store *self, const char *const *keys, const void *const *values,
                            const size_t *bytes, int n_keys);
    /* Optional: NULL = one call after the other. exchange.h; the results of calls that were done
     * are left there on a failure. values_out and bytes_out: as multi_get, NULL if n_keys is 0. */
    tri_status (*exchange)(tri_store *self, trii_store_call *calls, int n_calls,
                           const char *const *keys, int n_keys, int64_t deadline_ns,
                           void **values_out, size_t *bytes_out);
    /* Optional, all or none: NULL = no queues. pop: INPROGRESS if the queue is still empty at the
     * deadline (0 = do not wait). */
    tri_status (*push)(tri_store *self, const char *key, const void *value, size_t bytes);
    tri_status (*pop)(tri_store *self, const char *key, int64_t deadline_ns, void **value_out,
                      size_t *bytes_out);
    tri_status (*queue_length)(tri_store *self, const char *key, int64_t *n_out);
    int (*others)(tri_store *self); /* optional: NULL = -1 */
    /* Optional: NULL = false. After a wait: its server was not heard, asking on may take long. */
    bool (*is_silent)(tri_store *self);
} trii_store_ops;

struct tri_store {
    const trii_store_ops *ops;
    atomic_int refs;
    int64_t timeout_ms; /* when a call says 0 */
};

void trii_store_init(tri_store *store, const trii_store_ops *ops, int64_t timeout_ms);
/* The same for equal prefixes on whatever store, in every process; another one for others. */
uint64_t trii_store_path_hash(const tri_store *store);
/* From now on adds to `names` which keys are written through a prefix store, some of them more than
 * once, and none for which memory is short; NULL = no longer. Guard: as of a store that one thread
 * uses. */
void trii_store_note_keys(tri_store *prefix_store, trii_key_list *names);
/* From now on a store that has a connection of its own waits so long for replies. */
void trii_store_hurry(tri_store *store, int64_t timeout_ms);
/* Of a store that this process serves: connections of others to it; -1 = it does not. */
int trii_store_others(tri_store *store);
/* After a TIMEOUT: the store itself did not answer. */
bool trii_store_is_silent(tri_store *store);
/* A copy with a zero byte after it, or NULL. */
void *trii_store_copy(const void *data, size_t bytes);

#endif
