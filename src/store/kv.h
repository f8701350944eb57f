/*
 * kv.h - the table of the in-process store and the TCP server: keys to values and
 * queues, and who waits for which key. No locks and no clocks: the owner serialises.
 *
 * A name has a value, a queue, both, or only waiters. c10d semantics: counters are decimal
 * text, deleting a value leaves the queue, queues are not counted as keys.
 */
#ifndef TRII_KV_H
#define TRII_KV_H

#include <trireme/status.h>

/* Bytes that somebody else owns; keys may contain zero bytes. */
typedef struct trii_slice {
    const char *data;
    size_t bytes;
} trii_slice;

/* All keys, values and queues together; more is refused, so that clients cannot exhaust the
 * machine that serves them. */
#define TRII_KV_MAX_BYTES ((size_t)1 << 30)

typedef struct trii_kv trii_kv;
typedef struct trii_kv_wait trii_kv_wait;

tri_status trii_kv_create(trii_kv **kv_out) TRI_MUST_CHECK;
void trii_kv_destroy(trii_kv *kv); /* NULL allowed; no wait may be left */

/* set, add, append and compare_set end the waits for the key; writes fail with NO_MEMORY. */
tri_status trii_kv_set(trii_kv *kv, trii_slice key, trii_slice value) TRI_MUST_CHECK;
tri_status trii_kv_append(trii_kv *kv, trii_slice key, trii_slice value) TRI_MUST_CHECK;
/* Parsed as strtoll does, wraps on overflow; FORMAT if the text has no leading number. */
tri_status trii_kv_add(trii_kv *kv, trii_slice key, int64_t delta, int64_t *sum_out) TRI_MUST_CHECK;
/* *reply_out: c10d's answer; it may be `expected` or lie in the table until the next write. */
tri_status trii_kv_compare_set(trii_kv *kv, trii_slice key, trii_slice expected, trii_slice desired,
                               trii_slice *reply_out) TRI_MUST_CHECK;
/* Adds 1 without ending any wait: an early arrival at a barrier wakes nobody. */
tri_status trii_kv_arrive(trii_kv *kv, trii_slice key, int64_t *sum_out) TRI_MUST_CHECK;
/* Borrowed until the next write; false if there is no value (a queue is none). */
bool trii_kv_get(const trii_kv *kv, trii_slice key, trii_slice *value_out);
/* A value or a queue that is not empty. */
bool trii_kv_has(const trii_kv *kv, trii_slice key);
bool trii_kv_delete(trii_kv *kv, trii_slice key);
int64_t trii_kv_count(const trii_kv *kv);
/* Keys with values, in no order; stops when `visit` returns false. */
void trii_kv_each(const trii_kv *kv, bool (*visit)(void *arg, trii_slice key), void *arg);

/* Ends the oldest wait that this completes: as in PyTorch, whose clients pop once they are woken,
 * and fail if they find nothing. */
tri_status trii_kv_push(trii_kv *kv, trii_slice key, trii_slice value) TRI_MUST_CHECK;
/* Takes the oldest, which a zero byte follows; the caller frees *own_value_out (trii_free). False
 * if empty. */
bool trii_kv_pop(trii_kv *kv, trii_slice key, char **own_value_out, size_t *bytes_out);
int64_t trii_kv_queue_length(const trii_kv *kv, trii_slice key);

/* --- waits ---------------------------------------------------------------- */

/* `ready(owner, wait)` is called once, from the write that completes the wait, which is then
 * freed; the callback must not touch the table. */
typedef void (*trii_kv_ready)(void *owner, trii_kv_wait *wait);

/**
 * Waits for all keys that are missing now; *wait_out is NULL if none is. With `barrier`, the
 * (one) key is waited for although it exists: until somebody writes it or calls
 * trii_kv_wake. Errors: NO_MEMORY.
 */
tri_status trii_kv_wait_for(trii_kv *kv, const trii_slice *keys, size_t n_keys, bool barrier,
                            void *owner, trii_kv_ready ready,
                            trii_kv_wait **wait_out) TRI_MUST_CHECK;
void trii_kv_cancel(trii_kv *kv, trii_kv_wait *wait);
/* Ends the waits for a key as a write would. */
void trii_kv_wake(trii_kv *kv, trii_slice key);

#endif
