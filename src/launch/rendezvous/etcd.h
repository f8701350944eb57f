/*
 * etcd.h - the rendezvous in etcd, as a plug-in: $libdir/trireme/rendezvous-etcd.so, loaded when
 * --rdzv-backend asks for it, since libcurl costs more to load than trirun itself.
 *
 * A job is a folder of keys, PREFIX/ID/:
 *
 *   state         the rendezvous' own, one value
 *   kv/KEY        a store for the agents (etcd_store.c)
 *   lease         the number of the lease that all of these have, kept alive by all agents
 *   agent/NAME    one for each client, with a lease of its own: how many writes it has made
 *
 * Every write is one transaction that also counts agent/NAME up, so that a write whose answer was
 * lost is recognised when it is said again, and happens once. What a dead job leaves ends with
 * its lease.
 */
#ifndef TRII_ETCD_H
#define TRII_ETCD_H

#include "base/log.h"
#include "launch/cli/options.h" /* TRII_ETCD_PORT */
#include "launch/rendezvous/rdzv_backend.h"
#include "store/store_ops.h"

#define TRII_ETCD_ABI 1u
#define TRII_ETCD_PLUGIN "rendezvous-etcd.so"
#define TRII_ETCD_ENTRY "trii_etcd_plugin"

typedef struct trii_etcd_settings {
    const char *endpoints;       /* HOST[:PORT],...; [V6] in brackets */
    const char *protocol;        /* "http" or "https" */
    const char *ca_cert;         /* files, PEM; NULL = the system's, and no own certificate */
    const char *cert, *key;      /* ... */
    const char *user, *password; /* NULL = none */
    const char *prefix;          /* "/trireme" */
    const char *run_id;
    const char *name;        /* of this client: unique in the job, forever */
    int64_t timeout_ms;      /* of one call, however many servers are asked */
    int64_t open_timeout_ms; /* of the first one */
    int64_t lease_s;         /* how long the job's keys outlive its last agent */
} trii_etcd_settings;

/* Texts are copied. Blocks until etcd has answered. Errors: INVALID_ARG, TIMEOUT (no server
 * answers), IO (refused, for good), NO_MEMORY. */
tri_status trii_etcd_create(const trii_etcd_settings *settings,
                            trii_rdzv_backend **backend_out) TRI_MUST_CHECK;

/* --- between trirun and the plug-in --------------------------------------- */

/* What the plug-in may use, with the contracts of the functions that they are named after. */
typedef struct trii_etcd_host {
    uint32_t abi, size;
    void *(*alloc)(size_t n, size_t size, const char *what);
    void *(*realloc)(void *p, size_t n, size_t size, const char *what);
    void (*free)(void *p);
    void (*err_set)(const char *format, ...) TRI_PRINTF(1, 2);
    void (*err_prepend)(const char *format, ...) TRI_PRINTF(1, 2);
    bool (*log_enabled)(trii_log_level level, const char *component);
    void (*log_write)(trii_log_level level, const char *component, const char *format, ...)
        TRI_PRINTF(3, 4);
    void (*store_init)(tri_store *store, const trii_store_ops *ops, int64_t timeout_ms);
    void *(*store_copy)(const void *data, size_t bytes);
    void (*store_unref)(tri_store *store);
    tri_status (*key_list_add)(trii_key_list *list, const char *key, size_t bytes);
} trii_etcd_host;

typedef tri_status (*trii_etcd_entry)(const trii_etcd_host *host,
                                      const trii_etcd_settings *settings,
                                      trii_rdzv_backend **backend_out);
/* Errors: those of trii_etcd_create; UNSUPPORTED: it does not fit this trirun. */
tri_status trii_etcd_plugin(const trii_etcd_host *host, const trii_etcd_settings *settings,
                            trii_rdzv_backend **backend_out) TRI_MUST_CHECK;

#endif
