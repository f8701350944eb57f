/*
 * socket.h - TCP sockets, IPv4 and IPv6. A socket is a plain descriptor, non-blocking,
 * closed on exec, with TCP_NODELAY and (best effort) cubic congestion control: the default
 * of some systems, bbr, is slow for short bursts between neighbours.
 *
 * Statuses: INPROGRESS would block, END the peer closed its side, PEER_LOST the connection
 * broke, TIMEOUT, IO anything else; the line names host, port and the system's words.
 */
#ifndef TRII_SOCKET_H
#define TRII_SOCKET_H

#include <trireme/status.h>

#define TRII_ADDR_TEXT 64
#define TRII_READABLE 1u
#define TRII_WRITABLE 2u
#define TRII_HANGUP 4u /* the peer closed or the connection broke */

/* A piece of memory to send. */
typedef struct trii_span {
    const void *data;
    size_t bytes;
} trii_span;

/**
 * Listening socket.
 *
 *   host  NULL = all interfaces (IPv6 and IPv4 in one socket where the system can); else a
 *         name or address whose first usable address is bound. "localhost" is 127.0.0.1.
 *         "@NAME" is an AF_UNIX socket of this host and user instead; port 0.
 *   port  0 = any free one
 *
 * Errors: STATE (port in use), NOT_FOUND (no such host), IO.
 */
tri_status trii_socket_listen(const char *host, int port, int *fd_out,
                              int *port_out) TRI_MUST_CHECK;
/* Makes an inherited listening socket ours (flags) and reads its port. Errors: INVALID_ARG. */
tri_status trii_socket_adopt(int fd, int *port_out) TRI_MUST_CHECK;
/* The next waiting connection, or INPROGRESS. */
tri_status trii_socket_accept(int listen_fd, int *fd_out) TRI_MUST_CHECK;
/**
 * Connects to the first address of host that answers; "a,b,c" are several names of one host (its
 * interfaces: not all may be reachable), "@NAME" as for listen. With `retry`, a host that is
 * unknown, refuses or is silent is tried again until the deadline (then TIMEOUT says which it was).
 * Blocks until the deadline at most, beside the time that the system's resolver takes.
 * Errors: TIMEOUT; without retry also NOT_FOUND (unknown host), PEER_LOST (the host refuses: nobody
 * listens there), IO (anything else, such as no way to it).
 */
tri_status trii_socket_connect(const char *host, int port, int64_t deadline_ns, bool retry,
                               int *fd_out) TRI_MUST_CHECK;
/* For a few small messages whose delay means something: what is lost is sent again without pauses
 * that grow, and they go before bulk data where a queue knows priorities. Best effort. */
void trii_socket_prefer(int fd);
/* For a connection on which nothing may be said for long: after a minute or so without any answer
 * of the other end's system it breaks. A process over there may be stopped for as long as it
 * likes. */
void trii_socket_keep_alive(int fd);
void trii_socket_close(int fd); /* negative: nothing */
/* Sends what was written and closes our side; the peer reads END. */
void trii_socket_shutdown(int fd);
/* What a network or a peer may do to it: breaks both directions (half: only what we send). */
void trii_socket_sever(int fd, bool half);
/* Close, but first wait up to `linger_s` seconds until the peer's system has our bytes. */
void trii_socket_close_linger(int fd, int linger_s);

/* One attempt; *sent_out may be less than all, and is at least 1 on TRI_OK. Up to 16 spans. */
tri_status trii_socket_send(int fd, const trii_span *spans, int n_spans,
                            size_t *sent_out) TRI_MUST_CHECK;
tri_status trii_socket_recv(int fd, void *buf, size_t bytes, size_t *got_out) TRI_MUST_CHECK;
/* All of it, or a failure; blocks until the deadline. END if the peer closed. */
tri_status trii_socket_send_all(int fd, const void *data, size_t bytes,
                                int64_t deadline_ns) TRI_MUST_CHECK;
tri_status trii_socket_recv_all(int fd, void *buf, size_t bytes,
                                int64_t deadline_ns) TRI_MUST_CHECK;
/* Blocks until one of `events` (or a hang-up) is there; TIMEOUT after the deadline. */
tri_status trii_socket_wait(int fd, unsigned events, int64_t deadline_ns) TRI_MUST_CHECK;
/* As poll: ready[i] gets what is there of events[i]; descriptors below 0 are left out.
 * Returns how many are ready, 0 after the deadline. At most TRII_POLL_MAX descriptors. */
#define TRII_POLL_MAX 1024
int trii_socket_poll(const int *fds, const unsigned *events, unsigned *ready, int n,
                     int64_t deadline_ns);

/* What the peer's system makes of what we sent, which does not depend on the peer's process. */
typedef struct trii_socket_health {
    bool owed;             /* bytes that we sent are not acknowledged */
    int64_t last_ack_ms;   /* since anything was acknowledged */
    int unanswered_probes; /* asked a full peer for room so many times without an answer */
    bool full;             /* the peer has no room: nothing is on its way */
    int64_t last_data_ms;  /* since anything came */
} trii_socket_health;
bool trii_socket_health_get(int fd, trii_socket_health *health_out); /* false: no such facts */
/* Whether the peer's host has fallen silent, by looks at a connection now and then: silence_ns
 * without an acknowledgement, 0 = never. *unacked_since_ns: of the connection, 0 at first. */
bool trii_socket_is_silent(const trii_socket_health *health, int64_t now_ns, int64_t silence_ns,
                           int64_t *unacked_since_ns);
/* The default of TRI_HEARTBEAT_MS: twice an outage of ten seconds, and a pause. */
#define TRII_SILENCE_MS 21000
/* Whether both ends are addresses of this host. */
bool trii_socket_is_local(int fd);

/* "127.0.0.1 port 4711" of the other end, or "unconnected". */
void trii_socket_peer_text(int fd, char text[TRII_ADDR_TEXT]);
/* Address (no port) of our end and of the peer's. */
tri_status trii_socket_local_host(int fd, char host_out[TRII_ADDR_TEXT]) TRI_MUST_CHECK;
/* Whether the text itself is an address of the loopback interface, "localhost", or "@NAME"; no
 * resolver is asked. On Debian it gives a loopback address for the host's own name, which means
 * another address everywhere else. */
bool trii_socket_is_loopback(const char *host);
/* Text that is the same for all processes that share one loopback interface: the boot and the
 * network namespace. */
void trii_socket_network_id(char text_out[96]);
/* Addresses of this host's interfaces that are up, loopback and link-local left out; IPv4
 * first. Returns how many were written. */
int trii_socket_addresses(char (*hosts)[TRII_ADDR_TEXT], int max);

#endif
