/*
 * tcp_server.c - see tcp_server.h; the protocol is in wire.h. Accepts connections, reads requests
 * as they come, and sends replies; what a request does is in tcp_requests.c. Started by tcp_store.c
 * in a process that hosts a store, and by trirun in its own loop (launch/job_store.c).
 *
 * Nothing here blocks: a WAIT is an entry in the table, answered by the write that completes it.
 * What a client can make the server hold is limited: one request (wire.h), the table (kv.h),
 * replies (a client that does not read its replies is not read either) and waits. A malformed
 * request closes its connection and no other.
 */
/* build: leaf */
#include <string.h>

#include <trireme/store.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/limits.h"
#include "os/secret.h"
#include "os/unix.h"
#include "store/tcp_server_internal.h"

#define READ_BYTES ((size_t)64 << 10)
#define MAX_UNSENT ((size_t)1 << 20) /* replies; above it requests stay unread */
#define SILENCE_MS 60000             /* to show that it speaks our protocol */
#define MAX_STRANGERS 2048           /* that have not shown it: then the oldest one goes */
#define MAX_CONNECTIONS (1 << 17)
#define MAX_HELD ((size_t)1 << 30) /* unfinished requests of all clients together */
#define COMPLAIN_NS TRII_NS_PER_S  /* of strangers, at most so often: they may be many */
#define MAX_ACCEPTS 64             /* before those that are connected have their turn */
#define ACCEPT_PAUSE_MS 100        /* when the process is out of descriptors */

/* --- connections ---------------------------------------------------------- */

static bool may_complain(trii_tcp_server *server)
{
    int64_t now = trii_now_ns();

    if (now < server->complained_ns + COMPLAIN_NS && server->complained_ns != 0)
        return false;
    server->complained_ns = now;
    return true;
}

static void close_connection(trii_connection *c, const char *why)
{
    trii_tcp_server *server = c->server;
    char peer[TRII_ADDR_TEXT];

    if (why != NULL && (c->validated || may_complain(server))) {
        trii_socket_peer_text(c->watch.fd, peer);
        TRII_LOG(TRII_LOG_WARN, "store", "closing the connection from %s: %s", peer, why);
    }
    trii_server_cancel_waits(c);
    for (trii_connection **link = &server->dirty; c->dirty && *link != NULL;
         link = &(*link)->next_dirty) {
        if (*link == c) {
            *link = c->next_dirty;
            break;
        }
    }
    *(c->prev != NULL ? &c->prev->next : &server->connections) = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    trii_loop_unwatch(&c->watch);
    trii_unforked_drop(&c->unforked);
    trii_socket_close(c->watch.fd);
    server->n_strangers -= !c->validated;
    server->n_connections--;
    server->held -= c->held;
    trii_wire_parser_fini(&c->parser);
    trii_wire_buffer_fini(&c->out);
    trii_free(c->unread);
    trii_free(c);
}

static size_t unsent(const trii_connection *c)
{
    return c->out.used - c->out_done;
}

/* False: the connection was closed. */
static bool flush(trii_connection *c)
{
    unsigned events;

    while (unsent(c) > 0 && !c->out.failed) {
        size_t sent = 0;
        tri_status status = trii_socket_send(
            c->watch.fd, &(trii_span){c->out.data + c->out_done, unsent(c)}, 1, &sent);

        if (status == TRI_INPROGRESS)
            break;
        if (status != TRI_OK) {
            close_connection(c, NULL); /* the client is gone: its own affair */
            return false;
        }
        c->out_done += sent;
    }
    if (c->out.failed) {
        close_connection(c, tri_last_error());
        return false;
    }
    if (c->out_done > MAX_UNSENT || unsent(c) == 0) {
        if (unsent(c) > 0)
            memmove(c->out.data, c->out.data + c->out_done, unsent(c));
        c->out.used = unsent(c);
        c->out_done = 0;
    }
    if (c->out.used == 0 && c->out.room > MAX_UNSENT)
        trii_wire_buffer_fini(&c->out);
    trii_server_account(c);
    events = (unsent(c) < MAX_UNSENT && c->unread == NULL ? TRII_READABLE : 0u) |
             (unsent(c) > 0 ? TRII_WRITABLE : 0u);
    if (events != c->events)
        trii_loop_change(&c->watch, events);
    c->events = events;
    return true;
}

/* --- bytes ---------------------------------------------------------------- */

static tri_status take_handshake(trii_connection *c, const char *data, size_t bytes,
                                 size_t *used_out)
{
    unsigned char answer[TRII_ANSWER_BYTES];
    size_t answer_bytes = 0;
    tri_status status;

    if (c->server->key_optional && trii_handshake_is_other(&c->shake, *data)) {
        *used_out = 0;
        c->knows_key = true; /* need not */
        return TRI_OK;
    }
    status = trii_handshake_feed(&c->shake, &c->server->key, "store", data, bytes, used_out, answer,
                                 &answer_bytes);

    if (answer_bytes > 0) {
        trii_wire_put(&c->out, answer, answer_bytes);
        trii_server_mark_dirty(c);
    }
    c->knows_key = status == TRI_OK;
    return status;
}

/* Of too much that is unfinished the largest piece goes; it may be ours. */
static tri_status make_room(trii_connection *c)
{
    trii_tcp_server *server = c->server;

    while (server->held > server->max_held) {
        trii_connection *largest = c;

        for (trii_connection *other = server->connections; other != NULL; other = other->next)
            largest = other->held > largest->held ? other : largest;
        if (largest == c)
            return TRII_FAIL(TRI_ERR_NO_MEMORY,
                             "unfinished requests and unread replies of more than %zu bytes",
                             server->max_held);
        close_connection(largest, "unfinished requests or unread replies hold too much memory");
    }
    return TRI_OK;
}

static tri_status take_request(trii_connection *c, const char *data, size_t bytes, size_t *used_out)
{
    trii_wire_request request;
    tri_status status = trii_wire_feed(&c->parser, data, bytes, used_out, &request);

    if (status == TRI_OK) {
        status = trii_server_handle(c, &request);
        if (c->parser.room > MAX_UNSENT)
            trii_wire_parser_fini(&c->parser); /* one large request, then perhaps none */
    }
    trii_server_account(c);
    return status >= 0 ? make_room(c) : status;
}

/* Handles what is complete in the bytes, until replies pile up; the rest is kept. False: the
 * connection was closed. */
static bool take_bytes(trii_connection *c, const char *data, size_t bytes)
{
    size_t done = 0, used = 0;

    while (done < bytes && unsent(c) < MAX_UNSENT) {
        tri_status status = c->knows_key ? take_request(c, data + done, bytes - done, &used)
                                         : take_handshake(c, data + done, bytes - done, &used);

        if (status < 0) {
            close_connection(c, tri_last_error());
            return false;
        }
        done += used;
    }
    if (done < bytes) {
        char *rest = trii_alloc(bytes - done, 1, "store request");

        if (rest == NULL) {
            close_connection(c, tri_last_error());
            return false;
        }
        memcpy(rest, data + done, bytes - done);
        trii_free(c->unread);
        c->unread = rest;
        c->unread_bytes = bytes - done;
        trii_server_mark_dirty(c);
    }
    return true;
}

/* Goes on with bytes that were left because replies had piled up. */
static bool take_unread(trii_connection *c)
{
    char *data = c->unread;
    bool open;

    c->unread = NULL;
    open = take_bytes(c, data, c->unread_bytes);
    trii_free(data);
    if (open)
        trii_server_mark_dirty(c); /* to read again */
    return open;
}

void trii_server_flush(trii_tcp_server *server)
{
    while (server->dirty != NULL) {
        trii_connection *c = server->dirty;

        server->dirty = c->next_dirty;
        c->dirty = false;
        if (flush(c) && c->unread != NULL && unsent(c) < MAX_UNSENT)
            (void)take_unread(c);
    }
}

static bool receive(trii_connection *c)
{
    size_t got = 0;
    tri_status status = trii_socket_recv(c->watch.fd, c->server->scratch, READ_BYTES, &got);

    if (status == TRI_INPROGRESS)
        return true;
    if (status != TRI_OK) {
        close_connection(c, NULL);
        return false;
    }
    return take_bytes(c, c->server->scratch, got);
}

static void on_ready(trii_watch *watch, unsigned events)
{
    trii_connection *c = (trii_connection *)watch;
    trii_tcp_server *server = c->server;
    bool open = true;

    if (events & TRII_WRITABLE)
        open = flush(c);
    if (open && c->unread != NULL && unsent(c) < MAX_UNSENT)
        take_unread(c);
    else if (open && c->unread == NULL && (events & (TRII_READABLE | TRII_HANGUP)))
        receive(c);
    else if (open && (events & TRII_HANGUP))
        close_connection(c, NULL); /* nobody will read what piled up */
    trii_server_flush(server);
}

/* --- accepting ------------------------------------------------------------ */

/* The stranger that has been here longest; the list begins with the newest connection. */
static trii_connection *oldest_stranger(const trii_tcp_server *server)
{
    trii_connection *oldest = NULL;

    for (trii_connection *c = server->connections; c != NULL; c = c->next)
        oldest = c->validated ? oldest : c;
    return oldest;
}

/* Closes connections that never said who they are. */
static void on_sweep(trii_timer *timer)
{
    trii_tcp_server *server = (trii_tcp_server *)((char *)timer - offsetof(trii_tcp_server, sweep));
    int64_t limit = trii_now_ns() - server->patience_ms * TRII_NS_PER_MS;
    int64_t oldest = TRII_NO_DEADLINE;
    trii_connection *next;

    for (trii_connection *c = server->connections; c != NULL; c = next) {
        next = c->next;
        if (!c->validated && c->accepted_ns <= limit)
            close_connection(c, "no handshake");
        else if (!c->validated && c->accepted_ns < oldest)
            oldest = c->accepted_ns;
    }
    server->sweeping = oldest != TRII_NO_DEADLINE;
    if (server->sweeping)
        trii_loop_timer(server->loop, timer, oldest + server->patience_ms * TRII_NS_PER_MS,
                        on_sweep);
}

static void on_resume(trii_timer *timer)
{
    trii_tcp_server *server =
        (trii_tcp_server *)((char *)timer - offsetof(trii_tcp_server, resume));

    trii_loop_change(&server->listener, TRII_READABLE);
}

/* A place for one more: that of a stranger, if there is one. */
static tri_status make_place(trii_tcp_server *server)
{
    if (server->n_connections < server->max_connections)
        return TRI_OK;
    if (server->n_strangers == 0)
        return TRII_FAIL(TRI_ERR_STATE,
                         "%d clients are connected, as many as the limit of descriptors allows "
                         "beside everything else: raise it (ulimit -n)",
                         server->n_connections);
    close_connection(oldest_stranger(server), "too many connections");
    return TRI_OK;
}

static tri_status add_connection(trii_tcp_server *server, int fd)
{
    trii_connection *c;
    tri_status status = make_place(server);

    if (status != TRI_OK)
        return status;
    c = trii_alloc(1, sizeof(*c), "store connection");
    if (c == NULL)
        return TRI_ERR_NO_MEMORY;
    c->server = server;
    c->accepted_ns = trii_now_ns();
    trii_wire_parser_init(&c->parser);
    c->events = TRII_READABLE;
    status = trii_loop_watch(server->loop, &c->watch, fd, c->events, on_ready);
    if (status != TRI_OK) {
        trii_free(c);
        return status;
    }
    trii_unforked_hold(&c->unforked, fd);
    c->next = server->connections;
    if (c->next != NULL)
        c->next->prev = c;
    server->connections = c;
    server->n_strangers++;
    server->n_connections++;
    /* a user's own socket: the system has told us who it is */
    c->knows_key = !server->key.set || trii_unix_is_unix(fd);
    if (server->n_strangers > server->max_strangers)
        close_connection(oldest_stranger(server), "too many that have not said who they are");
    if (!server->sweeping) {
        server->sweeping = true;
        trii_loop_timer(server->loop, &server->sweep, trii_deadline_ms(server->patience_ms),
                        on_sweep);
    }
    return TRI_OK;
}

static void on_accept(trii_watch *watch, unsigned events)
{
    trii_tcp_server *server =
        (trii_tcp_server *)((char *)watch - offsetof(trii_tcp_server, listener));
    tri_status status;
    int fd = -1, left = MAX_ACCEPTS;

    (void)events;
    do {
        status = trii_socket_accept(watch->fd, &fd);
        if (status == TRI_OK && add_connection(server, fd) != TRI_OK) {
            if (may_complain(server))
                TRII_LOG(TRII_LOG_WARN, "store", "refused a client: %s", tri_last_error());
            trii_socket_close(fd);
        }
        /* strangers must not use up the descriptors that clients need */
        if (status < 0 && server->n_strangers > 0) {
            close_connection(oldest_stranger(server), "no descriptors left");
            status = TRI_OK;
        }
    } while (status == TRI_OK && --left > 0);
    if (status < 0) {
        /* out of descriptors: the listener stays readable and would spin */
        TRII_LOG(TRII_LOG_WARN, "store", "%s", tri_last_error());
        trii_loop_change(&server->listener, 0);
        trii_loop_timer(server->loop, &server->resume, trii_deadline_ms(ACCEPT_PAUSE_MS),
                        on_resume);
    }
}

/* --- life ----------------------------------------------------------------- */

/* A job has one server, so it says this once. */
static void check_open(trii_tcp_server *server, int fd, bool no_warning)
{
    char host[TRII_ADDR_TEXT];

    server->open = !server->key.set && !trii_unix_is_unix(fd) &&
                   trii_socket_local_host(fd, host) == TRI_OK && !trii_socket_is_loopback(host);
    if (!server->open || no_warning)
        return;
    TRII_LOG(
        TRII_LOG_WARN, "store",
        "port %d is open to the network, and no job key protects it: any process that reaches it "
        "can read and change the job's keys; for one host name a loopback address (127.0.0.1), for "
        "several set TRI_JOB_KEY_FILE or use a network that you trust",
        server->port);
}

static tri_status open_listener(trii_tcp_server *server, const trii_tcp_server_options *opt)
{
    int fd = -1;
    tri_status status;

    if (opt->listen_fd > 0) {
        fd = opt->listen_fd;
        status = trii_socket_adopt(fd, &server->port);
    } else {
        status = trii_socket_listen(opt->host, opt->port, &fd, &server->port);
    }
    if (status == TRI_OK) {
        trii_socket_keep_alive(fd); /* so are those that it accepts; hosts vanish without a word */
        status = trii_loop_watch(server->loop, &server->listener, fd, TRII_READABLE, on_accept);
    }
    if (status != TRI_OK) {
        trii_socket_close(fd);
        return status;
    }
    trii_unforked_hold(&server->unforked, fd);
    check_open(server, fd, opt->no_open_warning);
    return TRI_OK;
}

/* A flood of clients leaves a quarter of the process's descriptors for everything else, and memory:
 * a connection takes some 3 KiB before it asks for anything. */
static int max_connections(const trii_tcp_server_options *opt)
{
    int n = opt->max_connections > 0 ? opt->max_connections : trii_descriptors_share(3, 0, 1);

    return n < MAX_CONNECTIONS ? n : MAX_CONNECTIONS;
}

tri_status trii_tcp_server_create(const trii_tcp_server_options *opt, trii_tcp_server **server_out)
{
    trii_tcp_server *server = trii_alloc(1, sizeof(*server), "store server");
    tri_status status = TRI_ERR_NO_MEMORY;

    if (server == NULL)
        goto err_fd;
    trii_mutex_init(&server->join_mutex);
    trii_cond_init(&server->join_cond);
    server->scratch = trii_alloc(READ_BYTES, 1, "store server");
    if (server->scratch == NULL)
        goto err_server;
    status = trii_kv_create(&server->kv);
    if (status != TRI_OK)
        goto err_server;
    server->loop = opt->loop;
    server->max_strangers = opt->max_strangers > 0 ? opt->max_strangers : MAX_STRANGERS;
    server->max_connections = max_connections(opt);
    server->max_held = opt->max_held > 0 ? opt->max_held : MAX_HELD;
    if (opt->key != NULL)
        server->key = *opt->key;
    server->key_optional = opt->key_optional;
    server->patience_ms = opt->patience_ms > 0 ? opt->patience_ms
                          : server->key.set    ? TRII_HANDSHAKE_MS
                                               : SILENCE_MS;
    if (opt->loop == NULL) {
        status = trii_control_take(&server->loop);
        if (status != TRI_OK)
            goto err_server;
        server->own_control = true;
    }
    status = open_listener(server, opt);
    if (status != TRI_OK) {
        trii_tcp_server_destroy(server);
        return TRII_FAIL_CTX(status, "store server");
    }
    *server_out = server;
    return TRI_OK;

err_server:
    trii_tcp_server_destroy(server);
err_fd:
    if (opt->listen_fd > 0)
        trii_socket_close(opt->listen_fd);
    return status;
}

void trii_tcp_server_destroy(trii_tcp_server *server)
{
    if (server == NULL)
        return;
    if (server->loop != NULL) {
        trii_loop_lock(server->loop);
        if (server->listener.loop != NULL) {
            trii_loop_unwatch(&server->listener);
            trii_unforked_drop(&server->unforked);
            trii_socket_close(server->listener.fd);
        }
        while (server->connections != NULL)
            close_connection(server->connections, NULL);
        trii_loop_timer_stop(server->loop, &server->resume);
        trii_loop_timer_stop(server->loop, &server->sweep);
        trii_loop_unlock(server->loop);
    }
    if (server->own_control)
        trii_control_release(server->loop);
    trii_kv_destroy(server->kv);
    trii_secret_wipe(&server->key, sizeof(server->key));
    trii_free(server->scratch);
    trii_cond_fini(&server->join_cond);
    trii_mutex_fini(&server->join_mutex);
    trii_free(server);
}

int trii_tcp_server_port(const trii_tcp_server *server)
{
    return server->port;
}

bool trii_tcp_server_is_open(const trii_tcp_server *server)
{
    return server->open;
}

int trii_tcp_server_clients(trii_tcp_server *server)
{
    int n;

    trii_loop_lock(server->loop);
    n = server->n_connections - server->n_strangers;
    trii_loop_unlock(server->loop);
    return n;
}

tri_status trii_tcp_server_tell(trii_tcp_server *server, const char *key, const char *text)
{
    char name[TRI_STORE_MAX_KEY + 2]; /* clients put a slash before theirs, as PyTorch's do */
    tri_status status;

    snprintf(name, sizeof(name), "/%s", key);
    trii_loop_lock(server->loop);
    status =
        trii_kv_set(server->kv, (trii_slice){name, strlen(name)}, (trii_slice){text, strlen(text)});
    trii_loop_unlock(server->loop);
    return status;
}

tri_status trii_tcp_server_wait_joined(trii_tcp_server *server, int n, int64_t deadline_ns)
{
    int64_t joined;
    bool in_time = true;

    trii_mutex_lock(&server->join_mutex);
    while (server->joined < n && in_time)
        in_time = trii_cond_wait_until(&server->join_cond, &server->join_mutex, deadline_ns);
    joined = server->joined;
    trii_mutex_unlock(&server->join_mutex);
    if (joined < n)
        return TRII_FAIL(TRI_ERR_TIMEOUT, "store server: %d of %d clients joined in time",
                         (int)joined, n);
    return TRI_OK;
}
