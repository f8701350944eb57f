/*
 * tcp_server_inside.h - what the two halves of the TCP store's server share: connections
 * (tcp_server.c) and what clients ask for over them (tcp_requests.c).
 */
#ifndef TRII_TCP_SERVER_INSIDE_H
#define TRII_TCP_SERVER_INSIDE_H

#include "os/thread.h"
#include "os/unforked.h"
#include "store/tcp_server.h"
#include "store/wire.h"

#define TRII_SERVER_MAX_WAITS 64 /* of one connection */

/* What a connection waits for; with keys, it wants their values then: one such at a time, so that
 * one write of another cannot make the server answer very much at once. Where all are there they
 * are read a little later: what others had written before this was asked for lies in the sockets
 * now, and each that has something is read once more first (READ_BYTES). So a value is not older
 * than what its reader may know, as it would not be if it had waited first and then asked. */
typedef struct trii_server_wait {
    trii_kv_wait *wait; /* NULL: all are there */
    trii_slice *keys;   /* in one block with their bytes; NULL = it was a WAIT */
    size_t n_keys;
    uint64_t sweeps; /* of the loop when they were */
} trii_server_wait;

typedef struct trii_connection {
    trii_watch watch;       /* first: callbacks get its address */
    trii_unforked unforked; /* a forked child that has it too would hide this process's end */
    trii_tcp_server *server;
    struct trii_connection *prev, *next;
    trii_wire_parser parser;
    trii_wire_buffer out; /* replies; the first out_done bytes are sent */
    size_t out_done;
    char *unread; /* received, not parsed yet: replies had piled up */
    size_t unread_bytes;
    trii_server_wait waits[TRII_SERVER_MAX_WAITS];
    int n_waits;
    trii_handshake shake;
    size_t held;    /* of the server's `held` */
    size_t kept;    /* of `held`: the keys of the wait that has some */
    bool knows_key; /* it has proved the job key, or need not */
    bool validated;
    bool dirty; /* in the list of connections with new replies */
    struct trii_connection *next_dirty;
    bool late; /* in the list of connections whose keys are all there */
    struct trii_connection *next_late;
    int64_t accepted_ns;
} trii_connection;

struct trii_tcp_server {
    trii_loop *loop;
    bool own_control; /* took the control thread */
    trii_watch listener;
    trii_unforked unforked; /* the listener: who asks a child that does not serve waits for ever */
    trii_timer resume;      /* accepting */
    trii_timer sweep;       /* silent connections */
    bool sweeping;
    trii_job_key key;
    bool key_optional;
    bool open;                      /* the network reaches us, and no key protects us */
    int n_strangers, max_strangers; /* connections that are not validated */
    int n_connections, max_connections;
    int64_t complained_ns;
    int64_t patience_ms;
    size_t max_held;
    size_t held; /* memory of unfinished requests, unread replies and keys that are waited for */
    int port;
    trii_kv *kv;
    trii_connection *connections; /* oldest last */
    trii_connection *dirty;
    trii_connection *late;
    trii_timer read_late;
    char *scratch; /* READ_BYTES */
    trii_mutex join_mutex;
    trii_cond join_cond;
    int64_t joined; /* guarded by join_mutex */
};

/* Does what the request asks for; its reply, if there is one, goes to c->out. A failure closes
 * the connection. */
tri_status trii_server_handle(trii_connection *c, const trii_wire_request *request) TRI_MUST_CHECK;
/* Due when the sockets have been read once more. */
void trii_server_read_late(trii_timer *timer);
/* Forgets what the connection waits for. */
void trii_server_cancel_waits(trii_connection *c);
/* Sends all replies. */
void trii_server_flush(trii_tcp_server *server);
/* Counts what the connection holds now into the server's `held`. */
void trii_server_account(trii_connection *c);
/* Replies are sent once per batch of requests. */
void trii_server_mark_dirty(trii_connection *c);

#endif
