/*
 * tcp_client.h - the inside of a TCP store. tcp_store.c makes one; it opens a connection
 * (tcp_open.c) and makes its calls (tcp_calls.c), each a request and its reply (tcp_exchange.c).
 *
 * A connection carries one request at a time. When a reply does not come in time, or comes
 * damaged, what follows on the stream is unknown: the store then stays failed. Only a WAIT
 * may time out and be used again, since the protocol has a way to call it off. If the answer to
 * that is late too, as during an outage of the network, the next request takes it first.
 */
#ifndef TRII_TCP_CLIENT_H
#define TRII_TCP_CLIENT_H

#include "base/err.h"
#include "os/thread.h"
#include "os/unforked.h"
#include "store/handshake.h"
#include "store/store_ops.h"
#include "store/tcp_server.h"
#include "store/wire.h"

/* The server and what clones need to connect: shared by a store and its clones. */
typedef struct trii_tcp_endpoint {
    atomic_int refs;
    trii_job_key key;        /* what both sides prove first */
    trii_tcp_server *server; /* NULL = another process's */
    int port;
    bool everywhere; /* the server is ours and listens on all interfaces */
    char host[];
} trii_tcp_endpoint;

typedef struct trii_tcp_store {
    tri_store base;
    trii_tcp_endpoint *end;
    trii_mutex mutex;
    int fd;                 /* guarded by mutex, as all below; -1 = failed */
    trii_unforked unforked; /* a forked child that has it too would speak in between */
    bool owed;              /* the answer to the end of a wait is still to come ... */
    bool owed_wait;         /* ... perhaps after the answer to the wait itself */
    trii_wire_buffer out;
    char in[512]; /* received: several replies come at once; those to take are in_at to in_used */
    size_t in_at, in_used;
    bool sends_big;           /* the request has a value that PyTorch's libuv server refuses */
    char why[TRII_ERR_BYTES]; /* it failed */
    tri_status failed;
} trii_tcp_store;

/* Of the buffer for requests: so that a rank without memory can say so. */
#define TRII_TCP_LEAST_BYTES ((size_t)4 << 10)

/* Takes the connection for one call, with an empty request; leave gives it back and passes the
 * status on. */
trii_tcp_store *trii_tcp_enter(tri_store *self);
tri_status trii_tcp_leave(trii_tcp_store *store, tri_status status);
/* The stream is unusable from now on: closes it and sets the error line. */
tri_status trii_tcp_broken(trii_tcp_store *store, const char *op, tri_status status);
/* Takes so many bytes of what the server sends. */
tri_status trii_tcp_take(trii_tcp_store *store, void *buf, size_t bytes,
                         int64_t deadline_ns) TRI_MUST_CHECK;
int64_t trii_tcp_reply_deadline(const trii_tcp_store *store);
/* Takes the late answer to a WAIT that was cancelled, if one is due. TIMEOUT: it has not come, and
 * the connection is still usable; other failures break it. */
tri_status trii_tcp_take_late_answer(trii_tcp_store *store, const char *op,
                                     int64_t deadline_ns) TRI_MUST_CHECK;
/* Takes a late answer and sends store->out; these two break the connection if they fail. */
tri_status trii_tcp_send(trii_tcp_store *store, const char *op) TRI_MUST_CHECK;
tri_status trii_tcp_receive(trii_tcp_store *store, const char *op, void *buf,
                            size_t bytes) TRI_MUST_CHECK;
/* NO_MEMORY: the value was passed over, and the connection is whole. */
tri_status trii_tcp_receive_value(trii_tcp_store *store, const char *op, void **value_out,
                                  size_t *bytes_out) TRI_MUST_CHECK;
/* Fields of a request. */
void trii_tcp_put_key(trii_tcp_store *store, const char *key);
void trii_tcp_put_keys(trii_tcp_store *store, trii_wire_op op, const char *const *keys, int n_keys);
void trii_tcp_put_bytes(trii_tcp_store *store, const void *data, size_t bytes);

/* The address of our end of the connection. Errors: UNSUPPORTED (no TCP store), IO. */
tri_status trii_tcp_local_host(tri_store *self, char host_out[TRII_ADDR_TEXT]) TRI_MUST_CHECK;

/* A connected store; `own_end` is taken, on failure too. */
tri_status trii_tcp_open(trii_tcp_endpoint *own_end, const trii_store_ops *ops, int64_t timeout_ms,
                         int64_t deadline_ns, trii_tcp_store **store_out) TRI_MUST_CHECK;
void trii_tcp_endpoint_unref(trii_tcp_endpoint *end); /* NULL allowed */
/* The failure, with which server it was and what to do. */
tri_status trii_tcp_hint(tri_status status, const trii_tcp_endpoint *end, const char *what);

/* The table of the calls, and those entries that are not of tcp_calls.c. */
extern const trii_store_ops trii_tcp_ops;
void trii_tcp_destroy(tri_store *self);
tri_status trii_tcp_clone(tri_store *self, tri_store **store_out);
int trii_tcp_port(const tri_store *self);
int trii_tcp_others(tri_store *self);

#endif
