/*
 * tcp_open.c - the connection of a TCP store's client: made, tried again until the deadline (the
 * server may start later), greeted, and closed. Called by tcp_store.c, and by tcp_calls.c when a
 * connection has to be made again.
 */
/* build: leaf */
#include "store/tcp_client.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/note.h"
#include "os/clock.h"
#include "os/secret.h"

#define STANDSTILL_NS (TRII_NS_PER_S / 4) /* schedulers are rarely that late */

void trii_tcp_endpoint_unref(trii_tcp_endpoint *end)
{
    if (end != NULL && atomic_fetch_sub(&end->refs, 1) == 1) {
        trii_tcp_server_destroy(end->server);
        trii_secret_wipe(&end->key, sizeof(end->key));
        trii_free(end);
    }
}

void trii_tcp_destroy(tri_store *self)
{
    trii_tcp_store *store = (trii_tcp_store *)self;

    trii_unforked_drop(&store->unforked);
    trii_socket_close(store->fd);
    trii_tcp_endpoint_unref(store->end);
    trii_wire_buffer_fini(&store->out);
    trii_mutex_fini(&store->mutex);
    trii_free(store);
}

/* The handshake: VALIDATE, and PING to hear whether a store answers. In one message, since
 * PyTorch's libuv server wants VALIDATE to be complete in one segment, and takes what follows it.
 */
static tri_status greet(trii_tcp_store *store, int64_t deadline_ns)
{
    const uint32_t magic = TRII_WIRE_MAGIC;
    const uint32_t nonce = (uint32_t)trii_now_ns();
    char hello[10] = {TRII_WIRE_VALIDATE};
    uint32_t echo = 0;
    tri_status status;

    store->in_at = store->in_used = 0;
    memcpy(hello + 1, &magic, sizeof(magic));
    hello[5] = TRII_WIRE_PING;
    memcpy(hello + 6, &nonce, sizeof(nonce));
    status = trii_handshake_connect(store->fd, &store->end->key, "store", deadline_ns);
    if (status == TRI_OK)
        status = trii_socket_send_all(store->fd, hello, sizeof(hello), deadline_ns);
    if (status == TRI_OK)
        status = trii_tcp_take(store, &echo, sizeof(echo), deadline_ns);
    if (status == TRI_END)
        status = TRII_FAIL(TRI_ERR_IO, "closed during the handshake; does the server ask for a job "
                                       "key (TRI_JOB_KEY_FILE)?");
    if (status == TRI_OK && echo != nonce)
        status = TRII_FAIL(TRI_ERR_FORMAT, "ping answered with %u instead of %u", echo, nonce);
    return status;
}

/* Adds what the reader may do about it. */
tri_status trii_tcp_hint(tri_status status, const trii_tcp_endpoint *end, const char *what)
{
    char line[TRII_ERR_BYTES];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    return TRII_FAIL(status, "store at %s port %d: %s; %s", end->host, end->port, line, what);
}

/* What the reader may do about a store that cannot be reached, or does not answer as one. */
static const char *remedy(const char *host, tri_status status, bool connected, const char *why)
{
    if (strstr(why, "job key") != NULL)
        return connected && status != TRI_ERR_FORMAT
                   ? "give all processes of the job the same TRI_JOB_KEY_FILE"
                   : "give all processes of the job the same TRI_JOB_KEY_FILE, or choose a free "
                     "port";
    if (status == TRI_ERR_FORMAT)
        return "another program has this port: choose a free one";
    if (connected)
        return "the process at this port does not answer as a store: another program (choose a "
               "free port), or a store that is stopped";
    if (status == TRI_ERR_NOT_FOUND)
        return "is the name spelt right, and can this host resolve it? An address needs no name "
               "service";
    if (strstr(why, "refused") != NULL)
        return "nothing serves there: has the process that serves (rank 0, or its launcher) "
               "started, and are address and port its own?";
    /* nothing but this host is between it and itself */
    if (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0)
        return "is the loopback interface up (`ip link set lo up`)?";
    if (strstr(why, "Network is unreachable") != NULL)
        return "this host has no route there: is its network up?";
    return "is this the address of the host that serves (rank 0's), and does a network or a "
           "firewall let this host through?";
}

/* What is tried again and again. */
typedef struct attempts {
    int64_t start_ns, deadline_ns, note_ns; /* note: when the log says next that we still try */
    int64_t until_ns;                       /* how long the present one may take */
    int64_t pause_ns;
    char closed[TRII_ERR_BYTES]; /* how it was closed: says more than the last time-out */
} attempts;

static tri_status connect_once(trii_tcp_store *store, attempts *a, bool *connected_out)
{
    const trii_tcp_endpoint *end = store->end;
    int64_t least = trii_now_ns() + TRII_NOTE_FIRST_NS; /* however often the log says so */
    int64_t until = a->note_ns > least ? a->note_ns : least;
    tri_status status;

    until = until < a->deadline_ns ? until : a->deadline_ns;
    a->until_ns = until;
    status = trii_socket_connect(end->everywhere ? "127.0.0.1,::1" : end->host, end->port, until,
                                 false, &store->fd);

    *connected_out = status == TRI_OK;
    if (status == TRI_OK)
        trii_unforked_hold(&store->unforked, store->fd);
    if (status == TRI_OK)
        trii_socket_keep_alive(store->fd);
    if (status == TRI_OK)
        status = greet(store, until);
    if (status == TRI_OK)
        return TRI_OK;
    trii_unforked_drop(&store->unforked);
    trii_socket_close(store->fd);
    store->fd = -1;
    if (*connected_out && status != TRI_ERR_TIMEOUT)
        snprintf(a->closed, sizeof(a->closed), "%s", tri_last_error());
    else if (*connected_out && a->closed[0] != '\0')
        trii_err_set("%s", a->closed);
    return status;
}

/* An attempt that got as far as a connection ends at its own deadline within milliseconds, unless
 * this process did not run (SIGSTOP, a frozen virtual machine). That time tells nothing of the
 * server, and does not count. Before the connection a resolver may take any time, and that
 * counts. */
static void forgive_standstill(attempts *a, bool connected)
{
    int64_t late_ns = trii_now_ns() - a->until_ns;

    if (!connected || late_ns < STANDSTILL_NS)
        return;
    a->start_ns += late_ns;
    a->deadline_ns += late_ns;
    a->note_ns = trii_now_ns() + TRII_NOTE_FIRST_NS;
}

/* The line of an attempt that failed, which the log shows if it is time for that, and the end
 * if there will be no other. */
static tri_status attempt_failed(const trii_tcp_endpoint *end, attempts *a, tri_status status,
                                 bool connected)
{
    int64_t now = trii_now_ns();
    bool last = status == TRI_ERR_FORMAT || status == TRI_ERR_INVALID_ARG || now >= a->deadline_ns;
    char why[TRII_ERR_BYTES], where[TRII_ERR_BYTES], waited[48] = "";
    const char *what, *cause = why;

    if (status == TRI_ERR_INVALID_ARG)
        return TRII_FAIL_CTX(status, "store at %s port %d", end->host, end->port);
    if (!last && now < a->note_ns)
        return TRI_INPROGRESS;
    snprintf(why, sizeof(why), "%s", tri_last_error());
    snprintf(where, sizeof(where), "connect: host %s port %d: ", end->host, end->port);
    if (strncmp(why, where, strlen(where)) == 0)
        cause += strlen(where); /* said once */
    what = remedy(end->host, status, connected, why);
    if (status != TRI_ERR_FORMAT)
        snprintf(waited, sizeof(waited), " (tried for %.1f s)",
                 (double)(now - a->start_ns) / (double)TRII_NS_PER_S);
    if (last)
        return TRII_FAIL(status == TRI_ERR_FORMAT ? status : TRI_ERR_TIMEOUT,
                         "store at %s port %d: %s%s; %s", end->host, end->port, cause, waited,
                         what);
    TRII_LOG(TRII_LOG_WARN, "store", "at %s port %d: %s%s, still trying; %s", end->host, end->port,
             cause, waited, what);
    a->note_ns = trii_note_next(now);
    return TRI_INPROGRESS;
}

/* The connection may be accepted by a server that is just ending: so the handshake is part
 * of what is tried again until the deadline. */
static tri_status connect_store(trii_tcp_store *store, int64_t deadline_ns)
{
    attempts a = {
        .start_ns = trii_now_ns(), .deadline_ns = deadline_ns, .pause_ns = 2 * TRII_NS_PER_MS};
    bool connected;
    tri_status status;

    a.note_ns = a.start_ns + TRII_NOTE_FIRST_NS;
    while ((status = connect_once(store, &a, &connected)) != TRI_OK) {
        int64_t next = trii_now_ns() + a.pause_ns;

        forgive_standstill(&a, connected);
        status = attempt_failed(store->end, &a, status, connected);
        if (status != TRI_INPROGRESS)
            return status;
        trii_sleep_until(next < a.deadline_ns ? next : a.deadline_ns);
        a.pause_ns = a.pause_ns < TRII_NS_PER_S / 2 ? a.pause_ns * 3 / 2 : a.pause_ns;
    }
    return TRI_OK;
}

tri_status trii_tcp_open(trii_tcp_endpoint *own_end, const trii_store_ops *ops, int64_t timeout_ms,
                         int64_t deadline_ns, trii_tcp_store **store_out)
{
    trii_tcp_store *store = trii_alloc(1, sizeof(*store), "tcp store");
    tri_status status;

    if (store == NULL) {
        trii_tcp_endpoint_unref(own_end);
        return TRI_ERR_NO_MEMORY;
    }
    trii_store_init(&store->base, ops, timeout_ms);
    trii_mutex_init(&store->mutex);
    store->end = own_end;
    store->fd = -1;
    status = trii_wire_buffer_keep(&store->out, TRII_TCP_LEAST_BYTES)
                 ? connect_store(store, deadline_ns)
                 : TRI_ERR_NO_MEMORY;
    if (status != TRI_OK) {
        trii_tcp_destroy(&store->base);
        return status;
    }
    *store_out = store;
    return TRI_OK;
}

tri_status trii_tcp_clone(tri_store *self, tri_store **store_out)
{
    trii_tcp_store *store = (trii_tcp_store *)self;
    trii_tcp_store *copy = NULL;
    tri_status status;

    atomic_fetch_add(&store->end->refs, 1);
    status = trii_tcp_open(store->end, self->ops, self->timeout_ms, trii_tcp_reply_deadline(store),
                           &copy);
    if (status == TRI_OK)
        *store_out = &copy->base;
    return status;
}
