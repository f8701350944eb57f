/*
 * tcp_server_internal.h - what the two halves of the TCP store's server share: connections
 * (tcp_server.c) and what clients ask for over them (tcp_requests.c).
 */
#ifndef TRII_TCP_SERVER_INTERNAL_H
#define TRII_TCP_SERVER_INTERNAL_H

#include "os/thread.h"
#include "os/unforked.h"
#include "store/tcp_server.h"
#include "store/wire.h"

#define TRII_SERVER_MAX_WAITS 64 /* of one connection */

typedef struct trii_connection {
    trii_watch watch;       /* first: callbacks get its address */
    unsigned events;        /* that are watched */
    trii_unforked unforked; /* a forked child that has it too would hide this process's end */
    trii_tcp_server *server;
    struct trii_connection *prev, *next;
    trii_wire_parser parser;
    trii_wire_buffer out; /* replies; the first out_done bytes are sent */
    size_t out_done;
    char *unread; /* received, not parsed yet: replies had piled up */
    size_t unread_bytes;
    trii_kv_wait *waits[TRII_SERVER_MAX_WAITS];
    int n_waits;
    trii_handshake shake;
    size_t held;    /* of the server's `held` */
    bool knows_key; /* it has proved the job key, or need not */
    bool validated;
    bool dirty; /* in the list of connections with new replies */
    struct trii_connection *next_dirty;
    int64_t accepted_ns;
} trii_connection;

struct trii_tcp_server {
    trii_loop *loop;
    bool own_control; /* took the control thread */
    trii_watch listener;
    trii_unforked
        unforked; /* the listener: a client of a child that does not serve would wait for ever */
    trii_timer resume; /* accepting */
    trii_timer sweep;  /* silent connections */
    bool sweeping;
    trii_job_key key;
    bool key_optional;
    bool open;                      /* the network reaches us, and no key protects us */
    int n_strangers, max_strangers; /* connections that are not validated */
    int n_connections, max_connections;
    int64_t complained_ns;
    int64_t patience_ms;
    size_t max_held;
    size_t held; /* memory of unfinished requests and unread replies */
    int port;
    trii_kv *kv;
    trii_connection *connections; /* oldest last */
    trii_connection *dirty;
    char *scratch; /* READ_BYTES */
    trii_mutex join_mutex;
    trii_cond join_cond;
    int64_t joined; /* guarded by join_mutex */
};

/* Does what the request asks for; its reply, if there is one, goes to c->out. A failure closes
 * the connection. */
tri_status trii_server_handle(trii_connection *c, const trii_wire_request *request) TRI_MUST_CHECK;
/* Forgets what the connection waits for. */
void trii_server_cancel_waits(trii_connection *c);
/* Sends all replies. */
void trii_server_flush(trii_tcp_server *server);
/* Counts what the connection holds now into the server's `held`. */
void trii_server_account(trii_connection *c);
/* Replies are sent once per batch of requests. */
void trii_server_mark_dirty(trii_connection *c);

#endif
