/*
 * etcd_client.h - a job's keys in an etcd cluster: calls that find a server that answers, writes
 * that happen once, leases that stay alive, watches.
 *
 * All functions may be called from any thread; writes go one after the other, a watch disturbs
 * nobody. Failures name the cluster, the cause and what can be done.
 */
#ifndef TRII_ETCD_CLIENT_H
#define TRII_ETCD_CLIENT_H

#include "launch/rendezvous/etcd.h"
#include "rendezvous-etcd/etcd_json.h"

typedef struct trii_etcd_client trii_etcd_client; /* shared: ref/unref */

/* Blocks until a server answered. Errors: those of trii_etcd_create. */
tri_status trii_etcd_client_create(const trii_etcd_settings *settings,
                                   trii_etcd_client **client_out) TRI_MUST_CHECK;
trii_etcd_client *trii_etcd_client_ref(trii_etcd_client *client);
/* The last one ends our leases, and the store's keys if no other agent is left. NULL allowed. */
void trii_etcd_client_unref(trii_etcd_client *client);

/* "PREFIX/ID/": every key below begins with it. */
const char *trii_etcd_client_root(const trii_etcd_client *client);
/* By which we reach the server that was asked last, and others us. */
void trii_etcd_client_address(trii_etcd_client *client, char *text_out, size_t bytes);
int64_t trii_etcd_client_timeout_ms(const trii_etcd_client *client);

/* POSTs the body until a server has taken it. deadline_ns is cut to the client's timeout.
 * Errors: TIMEOUT (no server answers), IO (one refuses), FORMAT, NO_MEMORY, NOT_FOUND (gRPC's). */
tri_status trii_etcd_call(trii_etcd_client *client, const char *path, const trii_wire_buffer *body,
                          int64_t deadline_ns, trii_etcd_reply *reply_out) TRI_MUST_CHECK;

/* How many operations one transaction may have. */
#define TRII_ETCD_MAX_OPS 100

/* One key; reply_out has one kv or none, and the revision. */
tri_status trii_etcd_read(trii_etcd_client *client, const char *key,
                          trii_etcd_reply *reply_out) TRI_MUST_CHECK;

typedef enum trii_etcd_when {
    TRII_ETCD_ALWAYS,
    TRII_ETCD_IF_SAME /* the key's mod_revision is `revision`; 0 = there is no such key */
} trii_etcd_when;

typedef struct trii_etcd_write {
    const char *key;
    bool remove; /* else put */
    const void *value;
    size_t bytes;
    trii_etcd_when when;
    int64_t revision;
} trii_etcd_write;

/* Once, whatever becomes of its answers. *done_out false: the condition did not hold, and
 * reply_out has what is there now. reply_out->revision: after the write. */
tri_status trii_etcd_write_once(trii_etcd_client *client, const trii_etcd_write *write,
                                bool *done_out, trii_etcd_reply *reply_out) TRI_MUST_CHECK;

/* Hands out every event of keys in [first, last] after `revision`, until `event` says false (OK),
 * the deadline (TIMEOUT), or the watch is over for another reason: INPROGRESS, read again. */
tri_status trii_etcd_watch(trii_etcd_client *client, const char *first, const char *last,
                           int64_t revision, int64_t deadline_ns,
                           bool (*event)(void *arg, const trii_etcd_kv *kv),
                           void *arg) TRI_MUST_CHECK;

/* A store whose keys lie below kv/. Takes a reference. */
tri_status trii_etcd_store_create(trii_etcd_client *client, tri_store **store_out) TRI_MUST_CHECK;

#endif
