/*
 * tcp_server.h - a TCP store server that PyTorch clients and ours can use. It has no
 * thread of its own: it lives in the process's control thread, or in the loop it is given.
 */
#ifndef TRII_TCP_SERVER_H
#define TRII_TCP_SERVER_H

#include "os/loop.h"
#include "store/handshake.h"

typedef struct trii_tcp_server trii_tcp_server;

typedef struct trii_tcp_server_options {
    const char *host; /* NULL = all interfaces */
    int port;         /* 0 = any free one */
    /* > 0: serve on this bound and listening socket instead; owned by the server, even if create
     * fails */
    int listen_fd;
    /* Clients must prove that they have it. NULL, or a key that is not set: nothing to prove.
     * Copied. */
    const trii_job_key *key;
    /* Clients without a key are served too: for PyTorch's workers, where only this host can reach
     * the server. */
    bool key_optional;
    int max_strangers; /* connections that have not shown that they are clients; 0 = 2048 */
    /* of clients and strangers; 0 = three quarters of RLIMIT_NOFILE, raised to its hard limit
     * first; at most 131,072 */
    int max_connections;
    /* bytes of unfinished requests and unread replies, all clients together; 0 = 1 GiB */
    size_t max_held;
    /* how long a connection may take to show that it is a client; 0 = 60 s, with a key 5 s */
    int64_t patience_ms;
    bool no_open_warning; /* the caller warns by itself when no key protects us */
    trii_loop *loop;      /* NULL = the control thread's, which the server keeps while it lives */
} trii_tcp_server_options;

/* Errors: STATE (port in use), NOT_FOUND, IO, INVALID_ARG, NO_MEMORY. */
tri_status trii_tcp_server_create(const trii_tcp_server_options *opt,
                                  trii_tcp_server **server_out) TRI_MUST_CHECK;
/* Closes all connections. Call without holding a lock, on any thread, not from a callback. */
void trii_tcp_server_destroy(trii_tcp_server *server); /* NULL allowed */
int trii_tcp_server_port(const trii_tcp_server *server);
/* Whether the network reaches it, and no job key protects it. */
bool trii_tcp_server_is_open(const trii_tcp_server *server);
/* The number of connections of clients, this process's among them. Call without holding a lock. */
int trii_tcp_server_clients(trii_tcp_server *server);
/* Sets a key without a client. Readers find it; waiters are not woken. Call without holding a lock,
 * or on the loop's thread. */
tri_status trii_tcp_server_tell(trii_tcp_server *server, const char *key,
                                const char *text) TRI_MUST_CHECK;
/* Blocks until n clients joined (ADD init/ 1); TIMEOUT says how many did. */
tri_status trii_tcp_server_wait_joined(trii_tcp_server *server, int n,
                                       int64_t deadline_ns) TRI_MUST_CHECK;

#endif
