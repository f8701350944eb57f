/*
 * etcd_internal.h - the state of a client, shared by etcd_call.c (servers, connections, one call),
 * etcd_lease.c (leases, beginning and end) and etcd_keys.c (reads, writes, watches).
 */
#ifndef TRII_ETCD_INTERNAL_H
#define TRII_ETCD_INTERNAL_H

#include <stdatomic.h>

#include "rendezvous-etcd/etcd_client.h"
#include "rendezvous-etcd/etcd_http.h"
#include "rendezvous-etcd/etcd_json.h"
#include "os/thread.h"

#define TRII_ETCD_MAX_ENDPOINTS 16
#define TRII_ETCD_IDLE 4

struct trii_etcd_client {
    trii_etcd_settings settings; /* texts are in `texts` */
    char *texts, *root, *agent_key, *lease_key;
    char endpoints[TRII_ETCD_MAX_ENDPOINTS][300]; /* "http://HOST:PORT" */
    bool has_scheme[TRII_ETCD_MAX_ENDPOINTS];     /* by --rdzv-endpoint, not by protocol */
    int n_endpoints;
    char where[160]; /* all of them, for people */
    atomic_int refs;
    atomic_bool stop; /* calls end */

    trii_mutex mutex; /* guards what follows */
    int current;      /* the server that is asked first */
    trii_etcd_http *idle[TRII_ETCD_IDLE];
    int n_idle;
    char token[TRII_ETCD_TOKEN]; /* "" = not logged in */
    char local[64];              /* our end of the last connection */

    trii_mutex write_mutex; /* guards what follows */
    int64_t serial;         /* of our last write, also if it failed: no two have the same */
    char seen[24];          /* what agent/NAME holds as far as we know */

    trii_mutex lease_mutex; /* guards the making of leases */
    atomic_llong job_lease, own_lease;
    trii_mutex beat_mutex;
    trii_cond beat_stop;
    bool beating; /* the thread runs */
    trii_thread beat;
};

/* --- etcd_call.c ---------------------------------------------------------- */
/* "HOST[:PORT],..." into endpoints. Errors: INVALID_ARG. */
tri_status trii_etcd_read_endpoints(trii_etcd_client *client) TRI_MUST_CHECK;
/* One attempt at one server. */
tri_status trii_etcd_attempt(trii_etcd_client *client, int endpoint, const char *path,
                             trii_etcd_post *post, trii_etcd_answer *answer_out) TRI_MUST_CHECK;
/* The server that is asked first, and giving it up if it is still that one. */
int trii_etcd_endpoint(trii_etcd_client *client);
void trii_etcd_avoid(trii_etcd_client *client, int endpoint);

/* --- etcd_lease.c --------------------------------------------------------- */
/* The job's lease `seen` is gone: another one. */
tri_status trii_etcd_lease_renew(trii_etcd_client *client, int64_t seen,
                                 int64_t deadline_ns) TRI_MUST_CHECK;
/* Puts agent/NAME, with our own lease. With write_mutex held. */
tri_status trii_etcd_register(trii_etcd_client *client, int64_t deadline_ns) TRI_MUST_CHECK;

#endif
