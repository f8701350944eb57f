/*
 * tcp_store.c - client of a TCP store (ours or PyTorch's), and the process's server if it
 * hosts one. Protocol: wire.h.
 */
#include "store/tcp_client.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/note.h"
#include "os/clock.h"
#include "os/secret.h"

#define MAX_REPLY ((uint64_t)1 << 30)     /* of one value: appending may build large ones */
#define KEPT_BYTES ((size_t)1 << 20)      /* of the buffer for requests, after a larger one */
#define LEAST_BYTES ((size_t)4 << 10)     /* so that a rank without memory can say so */
#define LIBUV_MAX ((size_t)8 << 20)       /* PyTorch's libuv server takes no larger value */
#define STANDSTILL_NS (TRII_NS_PER_S / 4) /* schedulers are rarely that late */

/* --- one exchange ----------------------------------------------------------------------- */

trii_tcp_store *trii_tcp_enter(tri_store *self)
{
    trii_tcp_store *store = (trii_tcp_store *)self;

    trii_mutex_lock(&store->mutex);
    store->out.used = 0;
    store->sends_big = false;
    return store;
}

tri_status trii_tcp_leave(trii_tcp_store *store, tri_status status)
{
    if (store->out.room > KEPT_BYTES)
        (void)trii_wire_buffer_keep(&store->out, LEAST_BYTES); /* else it stays large */
    trii_mutex_unlock(&store->mutex);
    return status;
}

/* The stream is of no use any more. */
tri_status trii_tcp_broken(trii_tcp_store *store, const char *op, tri_status status)
{
    if (status == TRI_END || (status == TRI_ERR_PEER_LOST && store->sends_big))
        trii_err_set("the connection was closed; %s",
                     store->sends_big ? "PyTorch's libuv server does that with values above 8 MiB"
                                      : "did the process that serves it end?");
    trii_err_prepend("store at %s port %d: %s", store->end->host, store->end->port, op);
    store->failed =
        status == TRI_ERR_TIMEOUT || status == TRI_ERR_FORMAT || status == TRI_ERR_NO_MEMORY
            ? status
            : TRI_ERR_IO;
    memcpy(store->why, tri_last_error(), sizeof(store->why) - 1);
    trii_unforked_drop(&store->unforked);
    trii_socket_close(store->fd);
    store->fd = -1;
    return store->failed;
}

int64_t trii_tcp_reply_deadline(const trii_tcp_store *store)
{
    return trii_deadline_ms(store->base.timeout_ms);
}

tri_status trii_tcp_settle(trii_tcp_store *store, const char *op, int64_t deadline_ns)
{
    while (store->owed && store->fd >= 0) {
        uint8_t answer = 0;
        tri_status status = trii_socket_recv_all(store->fd, &answer, 1, deadline_ns);

        if (status == TRI_ERR_TIMEOUT)
            return status;
        if (status == TRI_OK && (answer > 1 || (answer == 0 && store->owed_values < 0)))
            status = TRII_FAIL(TRI_ERR_FORMAT, "answer %u to a cancelled wait", answer);
        if (status != TRI_OK)
            return trii_tcp_broken(store, op, status);
        store->owed = answer == 0;
        for (int i = store->owed ? store->owed_values : 0; i > 0; i--) {
            void *value = NULL;
            size_t bytes = 0;

            status = trii_tcp_receive_value(store, op, &value, &bytes);
            if (store->fd < 0)
                return status;
            trii_free(value);
        }
        store->owed_values = -1;
    }
    return TRI_OK;
}

tri_status trii_tcp_send(trii_tcp_store *store, const char *op)
{
    tri_status status;

    if (store->fd < 0)
        return TRII_FAIL(store->failed, "%s", store->why);
    status = trii_tcp_settle(store, op, trii_tcp_reply_deadline(store));
    if (status != TRI_OK)
        return store->fd >= 0 ? trii_tcp_broken(store, op, status) : status;
    if (store->out.failed) {
        store->out.failed = false; /* nothing was sent: the stream is whole */
        return TRI_ERR_NO_MEMORY;
    }
    status = trii_socket_send_all(store->fd, store->out.data, store->out.used,
                                  trii_tcp_reply_deadline(store));
    return status == TRI_OK ? TRI_OK : trii_tcp_broken(store, op, status);
}

tri_status trii_tcp_receive(trii_tcp_store *store, const char *op, void *buf, size_t bytes)
{
    tri_status status = trii_socket_recv_all(store->fd, buf, bytes, trii_tcp_reply_deadline(store));

    return status == TRI_OK ? TRI_OK : trii_tcp_broken(store, op, status);
}

/* There is no room for what comes: the connection shall not be lost with it. */
static tri_status pass_over(trii_tcp_store *store, const char *op, uint64_t bytes)
{
    char line[TRII_ERR_BYTES], rest[1024];
    tri_status status = TRI_OK;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    while (bytes > 0 && status == TRI_OK) {
        size_t n = bytes < sizeof(rest) ? (size_t)bytes : sizeof(rest);

        status = trii_tcp_receive(store, op, rest, n);
        bytes -= n;
    }
    return status == TRI_OK ? TRII_FAIL(TRI_ERR_NO_MEMORY, "%s", line) : status;
}

tri_status trii_tcp_receive_value(trii_tcp_store *store, const char *op, void **value_out,
                                  size_t *bytes_out)
{
    uint64_t bytes = 0;
    tri_status status = trii_tcp_receive(store, op, &bytes, sizeof(bytes));
    char *value;

    if (status != TRI_OK)
        return status;
    if (bytes > MAX_REPLY)
        return trii_tcp_broken(
            store, op,
            TRII_FAIL(TRI_ERR_FORMAT, "a reply of %llu bytes", (unsigned long long)bytes));
    value = trii_alloc((size_t)bytes + 1, 1, "store value");
    if (value == NULL)
        return pass_over(store, op, bytes);
    status = trii_tcp_receive(store, op, value, (size_t)bytes);
    if (status != TRI_OK) {
        trii_free(value);
        return status;
    }
    *value_out = value;
    *bytes_out = (size_t)bytes;
    return TRI_OK;
}

void trii_tcp_put_key(trii_tcp_store *store, const char *key)
{
    size_t bytes = strlen(key);

    trii_wire_put_u64(&store->out, bytes + 1);
    trii_wire_put_u8(&store->out, '/');
    trii_wire_put(&store->out, key, bytes);
}

void trii_tcp_put_keys(trii_tcp_store *store, trii_wire_op op, const char *const *keys, int n_keys)
{
    trii_wire_put_u8(&store->out, op);
    trii_wire_put_u64(&store->out, (uint64_t)n_keys);
    for (int i = 0; i < n_keys; i++)
        trii_tcp_put_key(store, keys[i]);
}

void trii_tcp_put_bytes(trii_tcp_store *store, const void *data, size_t bytes)
{
    store->sends_big = store->sends_big || bytes > LIBUV_MAX;
    trii_wire_put_slice(&store->out, (trii_slice){data, bytes});
}

int trii_tcp_port(const tri_store *self)
{
    return ((const trii_tcp_store *)self)->end->port;
}

/* Each reference of the endpoint is a connection of ours. */
int trii_tcp_others(tri_store *self)
{
    const trii_tcp_endpoint *end = ((const trii_tcp_store *)self)->end;
    int others =
        end->server != NULL ? trii_tcp_server_clients(end->server) - atomic_load(&end->refs) : -1;

    return end->server != NULL && others < 0 ? 0 : others;
}

tri_status trii_tcp_local_host(tri_store *self, char host_out[TRII_ADDR_TEXT])
{
    trii_tcp_store *store = (trii_tcp_store *)self;
    tri_status status;

    if (self->ops != &trii_tcp_ops)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "a %s store has no address", self->ops->name);
    trii_mutex_lock(&store->mutex);
    status = store->fd >= 0 ? trii_socket_local_host(store->fd, host_out)
                            : TRII_FAIL(store->failed, "%s", store->why);
    trii_mutex_unlock(&store->mutex);
    return status;
}

/* --- life ------------------------------------------------------------------------------- */

static void endpoint_unref(trii_tcp_endpoint *end)
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
    endpoint_unref(store->end);
    trii_wire_buffer_fini(&store->out);
    trii_mutex_fini(&store->mutex);
    trii_free(store);
}

/* The handshake: VALIDATE, then PING as a second message, since PyTorch's libuv server wants
 * the first to be complete in one segment; with it the question whose server it is. */
static tri_status greet(trii_tcp_store *store, int64_t deadline_ns)
{
    const uint32_t magic = TRII_WIRE_MAGIC;
    const uint32_t nonce = (uint32_t)trii_now_ns();
    const uint64_t n_keys = 1, key_bytes = sizeof(TRII_WIRE_OURS) - 1;
    char validate[5] = {TRII_WIRE_VALIDATE};
    char ping[5 + 17 + sizeof(TRII_WIRE_OURS) - 1] = {TRII_WIRE_PING};
    unsigned char answer[5] = {0}; /* the nonce, and whether the key is there */
    uint32_t echo = 0;
    tri_status status;

    memcpy(validate + 1, &magic, sizeof(magic));
    memcpy(ping + 1, &nonce, sizeof(nonce));
    ping[5] = TRII_WIRE_CHECK;
    memcpy(ping + 6, &n_keys, sizeof(n_keys));
    memcpy(ping + 14, &key_bytes, sizeof(key_bytes));
    memcpy(ping + 22, TRII_WIRE_OURS, sizeof(TRII_WIRE_OURS) - 1);
    status = trii_handshake_connect(store->fd, &store->end->key, "store", deadline_ns);
    if (status == TRI_OK)
        status = trii_socket_send_all(store->fd, validate, sizeof(validate), deadline_ns);
    if (status == TRI_OK)
        status = trii_socket_send_all(store->fd, ping, sizeof(ping), deadline_ns);
    if (status == TRI_OK)
        status = trii_socket_recv_all(store->fd, answer, sizeof(answer), deadline_ns);
    memcpy(&echo, answer, sizeof(echo));
    store->ours = status == TRI_OK && answer[4] == 0;
    if (status == TRI_END)
        status = TRII_FAIL(TRI_ERR_IO, "closed during the handshake; does the server ask for a job "
                                       "key (TRI_JOB_KEY_FILE)?");
    if (status == TRI_OK && echo != nonce)
        status = TRII_FAIL(TRI_ERR_FORMAT, "ping answered with %u instead of %u", echo, nonce);
    return status;
}

/* Adds what the reader may do about it. */
static tri_status hint(tri_status status, const trii_tcp_endpoint *end, const char *what)
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
        return "somebody has this port who does not answer as a store: another program (choose a "
               "free port), or a store that is stopped";
    if (status == TRI_ERR_NOT_FOUND)
        return "is the name spelt right, and can this host resolve it? An address needs no name "
               "service";
    if (strstr(why, "refused") != NULL)
        return "nobody serves there: has the process that serves (rank 0) started, and are "
               "address and port its own?";
    /* nothing but this host is between it and itself */
    if (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0)
        return "is the loopback interface up (`ip link set lo up`)?";
    if (strstr(why, "Network is unreachable") != NULL)
        return "this host has no route there: is its network up?";
    return "is this the address of the host that serves (rank 0's), and does a network or a "
           "firewall let us through?";
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
 * server, and does not count. Before the connection a resolver may take any time, and that counts.
 */
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
    TRII_LOG(TRII_LOG_WARN, "store", "at %s port %d: %s%s, and goes on; %s", end->host, end->port,
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

/* A connected store; `own_end` is taken, on failure too. */
static tri_status open_store(trii_tcp_endpoint *own_end, int64_t timeout_ms, int64_t deadline_ns,
                             trii_tcp_store **store_out)
{
    trii_tcp_store *store = trii_alloc(1, sizeof(*store), "tcp store");
    tri_status status;

    if (store == NULL) {
        endpoint_unref(own_end);
        return TRI_ERR_NO_MEMORY;
    }
    trii_store_init(&store->base, &trii_tcp_ops, timeout_ms);
    trii_mutex_init(&store->mutex);
    store->end = own_end;
    store->fd = -1;
    status = trii_wire_buffer_keep(&store->out, LEAST_BYTES) ? connect_store(store, deadline_ns)
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
    status = open_store(store->end, self->timeout_ms, trii_tcp_reply_deadline(store), &copy);
    if (status == TRI_OK)
        *store_out = &copy->base;
    return status;
}

/* Counts this client as arrived, and on the server waits for the others. */
static tri_status join(trii_tcp_store *store, int world_size, int64_t deadline_ns)
{
    static const char key[] = "init/"; /* the one key without a slash in front */
    int64_t joined = 0;
    tri_status status;

    store->out.used = 0;
    trii_wire_put_u8(&store->out, TRII_WIRE_ADD);
    trii_tcp_put_bytes(store, key, sizeof(key) - 1);
    trii_wire_put_i64(&store->out, 1);
    status = trii_tcp_send(store, "join");
    if (status == TRI_OK)
        status = trii_tcp_receive(store, "join", &joined, sizeof(joined));
    if (status == TRI_OK && store->end->server != NULL)
        status = trii_tcp_server_wait_joined(store->end->server, world_size, deadline_ns);
    return status;
}

/* Starts the server where asked for, and fills in where to connect. */
static tri_status serve(trii_tcp_endpoint *end, const tri_store_tcp_options *opt)
{
    bool loopback = trii_socket_is_loopback(end->host);
    const trii_tcp_server_options server = {.host = loopback ? end->host : NULL,
                                            .port = end->port,
                                            .listen_fd = opt->listen_fd,
                                            .key = &end->key};
    tri_status status = trii_tcp_server_create(&server, &end->server);

    if (status == TRI_ERR_STATE) {
        if (opt->serve_if_free)
            return TRI_OK; /* whoever has the port serves */
        status = hint(TRI_ERR_IO, end,
                      "another program or another job serves there: choose a "
                      "free port");
    }
    if (status == TRI_OK) {
        end->port = trii_tcp_server_port(end->server);
        end->everywhere = !loopback && opt->listen_fd <= 0;
    }
    return status;
}

tri_status tri_store_tcp(const char *host, int port, const tri_store_tcp_options *opt,
                         tri_store **store_out)
{
    static const tri_store_tcp_options defaults = {0};
    trii_tcp_store *store = NULL;
    int64_t timeout_ms, deadline;
    trii_tcp_endpoint *end;
    tri_status status = trii_need(store_out, "store_tcp", "store_out");

    opt = opt != NULL ? opt : &defaults;
    if (status != TRI_OK)
        return status;
    if (host == NULL || port < 0 || port > 65535)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "store_tcp: host %s port %d",
                         host != NULL ? host : "NULL", port);
    if (port == 0 && host[0] != '@' && !opt->serve && !opt->serve_if_free && opt->listen_fd <= 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "store_tcp: port 0 is for servers only");
    timeout_ms = opt->timeout_ms != 0 ? opt->timeout_ms : TRI_STORE_TIMEOUT_MS;
    deadline = trii_deadline_ms(timeout_ms);
    end = trii_alloc(1, sizeof(*end) + strlen(host) + 1, "tcp store");
    if (end == NULL)
        return TRI_ERR_NO_MEMORY;
    atomic_init(&end->refs, 1);
    end->port = port;
    memcpy(end->host, host, strlen(host));
    if (host[0] != '@') /* there the system tells who it is */
        status = trii_job_key_load(&end->key);
    if (status != TRI_OK && opt->listen_fd > 0)
        trii_socket_close(opt->listen_fd);
    if (status == TRI_OK && (opt->serve || opt->serve_if_free || opt->listen_fd > 0))
        status = serve(end, opt);
    if (status != TRI_OK) {
        endpoint_unref(end);
        return status;
    }
    status = open_store(end, timeout_ms, deadline, &store);
    if (status != TRI_OK)
        return status;
    if (opt->world_size > 0)
        status = join(store, opt->world_size, deadline);
    if (status != TRI_OK) {
        tri_store_unref(&store->base);
        return status;
    }
    *store_out = &store->base;
    return TRI_OK;
}
