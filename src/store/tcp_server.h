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
    const char *host;        /* NULL = all interfaces */
    int port;                /* 0 = any free one */
    int listen_fd;           /* > 0: serve on this bound and listening socket instead; adopted,
                                on failure too */
    const trii_job_key *key; /* what clients prove first; NULL or not set = nothing; copied */
    bool key_optional;       /* clients without a key are served too: for PyTorch's workers, where
                                nobody but this host reaches us */
    int max_strangers;       /* connections that have not shown that they are clients; 0 = 2048 */
    int max_connections;     /* of clients and strangers; 0 = three quarters of the limit of
                                descriptors, which is raised as far as it goes; at most 131,072 */
    size_t max_held;         /* bytes of unfinished requests and unread replies, all clients
                                together; 0 = 1 GiB */
    int64_t
        patience_ms; /* for a connection to show that it is a client; 0 = 60 s, with a key 5 s */
    bool no_open_warning; /* the caller warns itself if no key protects us */
    trii_loop *loop;      /* NULL = the control thread's, taken for the server's life */
} trii_tcp_server_options;

/* Errors: STATE (port in use), NOT_FOUND, IO, INVALID_ARG, NO_MEMORY. */
tri_status trii_tcp_server_create(const trii_tcp_server_options *opt,
                                  trii_tcp_server **server_out) TRI_MUST_CHECK;
/* Closes all connections. On any thread that holds no lock; not from a callback. */
void trii_tcp_server_destroy(trii_tcp_server *server); /* NULL allowed */
int trii_tcp_server_port(const trii_tcp_server *server);
/* Whether the network reaches it, and no job key protects it. */
bool trii_tcp_server_is_open(const trii_tcp_server *server);
/* Connections of clients, this process's among them. Holding no lock. */
int trii_tcp_server_clients(trii_tcp_server *server);
/* Sets a key from outside: for who serves the store and knows what clients want to know. Those who
 * look find it; nobody may wait for it. Holding no lock, or on the loop's thread. */
tri_status trii_tcp_server_tell(trii_tcp_server *server, const char *key,
                                const char *text) TRI_MUST_CHECK;
/* Blocks until n clients joined (ADD init/ 1); TIMEOUT says how many did. */
tri_status trii_tcp_server_wait_joined(trii_tcp_server *server, int n,
                                       int64_t deadline_ns) TRI_MUST_CHECK;

#endif
