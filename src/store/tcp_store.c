/*
 * tcp_store.c - client of a TCP store (ours or PyTorch's), and the process's server if it
 * hosts one. Protocol: wire.h.
 *
 * A connection carries one request at a time. When a reply does not come in time, or comes
 * damaged, what follows on the stream is unknown: the store then stays failed. Only a WAIT
 * may time out and go on, since the protocol has a way to call it off.
 */
#include "store/store_ops.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/thread.h"
#include "store/tcp_server.h"
#include "store/wire.h"

#define CANCEL_MS 5000                /* for the answer that calls a wait off */
#define MAX_REPLY ((uint64_t)1 << 30) /* of one value: appending may build more than 8 MiB */

/* The server and what clones need to connect: shared by a store and its clones. */
typedef struct endpoint {
    atomic_int refs;
    trii_tcp_server *server; /* NULL = another process's */
    int port;
    bool everywhere; /* the server is ours and listens on all interfaces */
    char host[];
} endpoint;

typedef struct tcp_store {
    tri_store base;
    endpoint *end;
    trii_mutex mutex;
    int fd; /* guarded by mutex, as all below; -1 = failed */
    trii_wire_buffer out;
    char why[TRII_ERR_BYTES]; /* it failed */
    tri_status failed;
} tcp_store;

/* --- one exchange ----------------------------------------------------------------------- */

static tcp_store *enter(tri_store *self)
{
    tcp_store *store = (tcp_store *)self;

    trii_mutex_lock(&store->mutex);
    store->out.used = 0;
    return store;
}

static tri_status leave(tcp_store *store, tri_status status)
{
    trii_mutex_unlock(&store->mutex);
    return status;
}

/* The stream is of no use any more. */
static tri_status broken(tcp_store *store, const char *op, tri_status status)
{
    if (status == TRI_END)
        trii_err_set("the connection was closed; did the process that serves it end?");
    trii_err_prepend("store at %s port %d: %s", store->end->host, store->end->port, op);
    store->failed =
        status == TRI_ERR_TIMEOUT || status == TRI_ERR_FORMAT || status == TRI_ERR_NO_MEMORY
            ? status
            : TRI_ERR_IO;
    memcpy(store->why, tri_last_error(), sizeof(store->why) - 1);
    trii_socket_close(store->fd);
    store->fd = -1;
    return store->failed;
}

static int64_t reply_deadline(const tcp_store *store)
{
    return trii_deadline_ms(store->base.timeout_ms);
}

static tri_status send_request(tcp_store *store, const char *op)
{
    tri_status status;

    if (store->fd < 0)
        return TRII_FAIL(store->failed, "%s", store->why);
    if (store->out.failed) {
        store->out.failed = false; /* nothing was sent: the stream is whole */
        return TRI_ERR_NO_MEMORY;
    }
    status =
        trii_socket_send_all(store->fd, store->out.data, store->out.used, reply_deadline(store));
    return status == TRI_OK ? TRI_OK : broken(store, op, status);
}

static tri_status receive(tcp_store *store, const char *op, void *buf, size_t bytes)
{
    tri_status status = trii_socket_recv_all(store->fd, buf, bytes, reply_deadline(store));

    return status == TRI_OK ? TRI_OK : broken(store, op, status);
}

static tri_status receive_value(tcp_store *store, const char *op, void **value_out,
                                size_t *bytes_out)
{
    uint64_t bytes = 0;
    tri_status status = receive(store, op, &bytes, sizeof(bytes));
    char *value;

    if (status != TRI_OK)
        return status;
    if (bytes > MAX_REPLY)
        return broken(
            store, op,
            TRII_FAIL(TRI_ERR_FORMAT, "a reply of %llu bytes", (unsigned long long)bytes));
    value = trii_alloc((size_t)bytes + 1, 1, "store value");
    if (value == NULL)
        return broken(store, op, TRI_ERR_NO_MEMORY);
    status = receive(store, op, value, (size_t)bytes);
    if (status != TRI_OK) {
        trii_free(value);
        return status;
    }
    *value_out = value;
    *bytes_out = (size_t)bytes;
    return TRI_OK;
}

static void put_key(tcp_store *store, const char *key)
{
    size_t bytes = strlen(key);

    trii_wire_put_u64(&store->out, bytes + 1);
    trii_wire_put_u8(&store->out, '/');
    trii_wire_put(&store->out, key, bytes);
}

static void put_keys(tcp_store *store, trii_wire_op op, const char *const *keys, int n_keys)
{
    trii_wire_put_u8(&store->out, op);
    trii_wire_put_u64(&store->out, (uint64_t)n_keys);
    for (int i = 0; i < n_keys; i++)
        put_key(store, keys[i]);
}

static void put_bytes(tcp_store *store, const void *data, size_t bytes)
{
    trii_wire_put_slice(&store->out, (trii_slice){data, bytes});
}

/* --- operations ------------------------------------------------------------------------- */

static tri_status tcp_set(tri_store *self, const char *key, const void *value, size_t bytes)
{
    tcp_store *store = enter(self);

    trii_wire_put_u8(&store->out, TRII_WIRE_SET);
    put_key(store, key);
    put_bytes(store, value, bytes);
    return leave(store, send_request(store, "set"));
}

static tri_status tcp_append(tri_store *self, const char *key, const void *value, size_t bytes)
{
    tcp_store *store = enter(self);

    trii_wire_put_u8(&store->out, TRII_WIRE_APPEND);
    put_key(store, key);
    put_bytes(store, value, bytes);
    return leave(store, send_request(store, "append"));
}

static tri_status tcp_add(tri_store *self, const char *key, int64_t delta, int64_t *sum_out)
{
    tcp_store *store = enter(self);
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_ADD);
    put_key(store, key);
    trii_wire_put_i64(&store->out, delta);
    status = send_request(store, "add");
    if (status == TRI_OK)
        status = receive(store, "add", sum_out, sizeof(*sum_out));
    return leave(store, status);
}

static tri_status tcp_compare_set(tri_store *self, const char *key, const void *expected,
                                  size_t expected_bytes, const void *desired, size_t desired_bytes,
                                  void **value_out, size_t *bytes_out)
{
    tcp_store *store = enter(self);
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_COMPARE_SET);
    put_key(store, key);
    put_bytes(store, expected, expected_bytes);
    put_bytes(store, desired, desired_bytes);
    status = send_request(store, "compare_set");
    if (status == TRI_OK)
        status = receive_value(store, "compare_set", value_out, bytes_out);
    return leave(store, status);
}

/* The deadline of a wait has passed: call it off, so that the stream can go on. */
static tri_status cancel_wait(tcp_store *store)
{
    const uint8_t cancel = TRII_WIRE_CANCEL_WAIT;
    int64_t deadline = trii_deadline_ms(CANCEL_MS);
    uint8_t answer = 0;
    tri_status status = trii_socket_send_all(store->fd, &cancel, 1, deadline);

    if (status == TRI_OK)
        status = trii_socket_recv_all(store->fd, &answer, 1, deadline);
    if (status == TRI_OK && answer == 1)
        return TRI_ERR_TIMEOUT;
    /* 0: the keys came at the last moment, and the answer to the cancel follows */
    if (status == TRI_OK)
        status = trii_socket_recv_all(store->fd, &answer, 1, deadline);
    if (status == TRI_OK && answer != 1)
        status = TRII_FAIL(TRI_ERR_FORMAT, "answer %u to a cancelled wait", answer);
    return status == TRI_OK ? TRI_OK : broken(store, "wait", status);
}

static tri_status wait_for(tcp_store *store, const char *const *keys, int n_keys,
                           int64_t deadline_ns)
{
    uint8_t answer = 0;
    tri_status status;

    put_keys(store, TRII_WIRE_WAIT, keys, n_keys);
    status = send_request(store, "wait");
    if (status != TRI_OK)
        return status;
    status = trii_socket_recv_all(store->fd, &answer, 1, deadline_ns);
    if (status == TRI_ERR_TIMEOUT)
        return cancel_wait(store);
    if (status == TRI_OK && answer != 0)
        status = TRII_FAIL(TRI_ERR_FORMAT, "answer %u", answer);
    return status == TRI_OK ? TRI_OK : broken(store, "wait", status);
}

static tri_status tcp_wait(tri_store *self, const char *const *keys, int n_keys,
                           int64_t deadline_ns)
{
    tcp_store *store = enter(self);

    return leave(store, wait_for(store, keys, n_keys, deadline_ns));
}

static tri_status tcp_multi_get(tri_store *self, const char *const *keys, int n_keys,
                                int64_t deadline_ns, void **values_out, size_t *bytes_out)
{
    tcp_store *store = enter(self);
    tri_status status = wait_for(store, keys, n_keys, deadline_ns);
    size_t bytes = 0;
    int n = 0;

    if (status == TRI_OK) {
        store->out.used = 0;
        put_keys(store, TRII_WIRE_MULTI_GET, keys, n_keys);
        status = send_request(store, "get");
    }
    while (status == TRI_OK && n < n_keys) {
        status = receive_value(store, "get", &values_out[n], &bytes);
        bytes_out[n] = bytes;
        n += status == TRI_OK;
    }
    while (status != TRI_OK && n > 0)
        trii_free(values_out[--n]);
    return leave(store, status);
}

static tri_status tcp_check(tri_store *self, const char *const *keys, int n_keys, bool *present_out)
{
    tcp_store *store = enter(self);
    uint8_t answer = 0;
    tri_status status;

    put_keys(store, TRII_WIRE_CHECK, keys, n_keys);
    status = send_request(store, "check");
    if (status == TRI_OK)
        status = receive(store, "check", &answer, sizeof(answer));
    if (status == TRI_OK && answer > 1)
        status = broken(store, "check", TRII_FAIL(TRI_ERR_FORMAT, "answer %u", answer));
    if (status == TRI_OK)
        *present_out = answer == 0;
    return leave(store, status);
}

static tri_status tcp_remove(tri_store *self, const char *key, bool *existed_out)
{
    tcp_store *store = enter(self);
    int64_t answer = 0;
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_DELETE_KEY);
    put_key(store, key);
    status = send_request(store, "delete");
    if (status == TRI_OK)
        status = receive(store, "delete", &answer, sizeof(answer));
    if (status == TRI_OK)
        *existed_out = answer != 0;
    return leave(store, status);
}

static tri_status tcp_num_keys(tri_store *self, int64_t *n_out)
{
    tcp_store *store = enter(self);
    int64_t answer = 0;
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_GETNUMKEYS);
    status = send_request(store, "num_keys");
    if (status == TRI_OK)
        status = receive(store, "num_keys", &answer, sizeof(answer));
    if (status == TRI_OK)
        *n_out = answer;
    return leave(store, status);
}

static int tcp_port(const tri_store *self)
{
    return ((const tcp_store *)self)->end->port;
}

/* --- life ------------------------------------------------------------------------------- */

static void endpoint_unref(endpoint *end)
{
    if (end != NULL && atomic_fetch_sub(&end->refs, 1) == 1) {
        trii_tcp_server_destroy(end->server);
        trii_free(end);
    }
}

static void tcp_destroy(tri_store *self)
{
    tcp_store *store = (tcp_store *)self;

    trii_socket_close(store->fd);
    endpoint_unref(store->end);
    trii_wire_buffer_fini(&store->out);
    trii_mutex_fini(&store->mutex);
    trii_free(store);
}

/* The handshake: VALIDATE, then PING as a second message, since PyTorch's libuv server wants
 * the first to be complete in one segment. */
static tri_status greet(tcp_store *store, int64_t deadline_ns)
{
    const uint32_t magic = TRII_WIRE_MAGIC;
    const uint32_t nonce = (uint32_t)trii_now_ns();
    char validate[5] = {TRII_WIRE_VALIDATE}, ping[5] = {TRII_WIRE_PING};
    uint32_t echo = 0;
    tri_status status;

    memcpy(validate + 1, &magic, sizeof(magic));
    memcpy(ping + 1, &nonce, sizeof(nonce));
    status = trii_socket_send_all(store->fd, validate, sizeof(validate), deadline_ns);
    if (status == TRI_OK)
        status = trii_socket_send_all(store->fd, ping, sizeof(ping), deadline_ns);
    if (status == TRI_OK)
        status = trii_socket_recv_all(store->fd, &echo, sizeof(echo), deadline_ns);
    if (status == TRI_END)
        status = TRII_FAIL(TRI_ERR_IO, "closed during the handshake");
    if (status == TRI_OK && echo != nonce)
        status = TRII_FAIL(TRI_ERR_FORMAT, "ping answered with %u instead of %u", echo, nonce);
    return status;
}

/* The connection may be accepted by a server that is just ending: so the handshake is part
 * of what is tried again until the deadline. */
static tri_status connect_store(tcp_store *store, int64_t deadline_ns)
{
    const endpoint *end = store->end;
    int64_t pause_ms = 5;
    tri_status status;

    for (;;) {
        int64_t now;

        status = trii_socket_connect(end->everywhere ? "localhost" : end->host, end->port,
                                     deadline_ns, true, &store->fd);
        if (status == TRI_OK)
            status = greet(store, deadline_ns);
        now = trii_now_ns();
        if (status == TRI_OK)
            return TRI_OK;
        trii_socket_close(store->fd);
        store->fd = -1;
        if (status == TRI_ERR_FORMAT || status == TRI_ERR_INVALID_ARG || now >= deadline_ns)
            return TRII_FAIL_CTX(status == TRI_ERR_FORMAT || status == TRI_ERR_INVALID_ARG
                                     ? status
                                     : TRI_ERR_TIMEOUT,
                                 "store at %s port %d", end->host, end->port);
        trii_sleep_until(now + pause_ms * TRII_NS_PER_MS < deadline_ns
                             ? now + pause_ms * TRII_NS_PER_MS
                             : deadline_ns);
        pause_ms = pause_ms < 500 ? pause_ms * 2 : pause_ms;
    }
}

static const trii_store_ops tcp_ops;

/* A connected store; `own_end` is taken, on failure too. */
static tri_status open_store(endpoint *own_end, int64_t timeout_ms, int64_t deadline_ns,
                             tcp_store **store_out)
{
    tcp_store *store = trii_alloc(1, sizeof(*store), "tcp store");
    tri_status status;

    if (store == NULL) {
        endpoint_unref(own_end);
        return TRI_ERR_NO_MEMORY;
    }
    trii_store_init(&store->base, &tcp_ops, timeout_ms);
    trii_mutex_init(&store->mutex);
    store->end = own_end;
    store->fd = -1;
    status = connect_store(store, deadline_ns);
    if (status != TRI_OK) {
        tcp_destroy(&store->base);
        return status;
    }
    *store_out = store;
    return TRI_OK;
}

static tri_status tcp_clone(tri_store *self, tri_store **store_out)
{
    tcp_store *store = (tcp_store *)self;
    tcp_store *copy = NULL;
    tri_status status;

    atomic_fetch_add(&store->end->refs, 1);
    status = open_store(store->end, self->timeout_ms, reply_deadline(store), &copy);
    if (status == TRI_OK)
        *store_out = &copy->base;
    return status;
}

static const trii_store_ops tcp_ops = {
    .abi = TRII_STORE_ABI,
    .size = sizeof(trii_store_ops),
    .name = "tcp",
    .destroy = tcp_destroy,
    .clone = tcp_clone,
    .port = tcp_port,
    .set = tcp_set,
    .multi_get = tcp_multi_get,
    .add = tcp_add,
    .compare_set = tcp_compare_set,
    .append = tcp_append,
    .wait = tcp_wait,
    .check = tcp_check,
    .remove = tcp_remove,
    .num_keys = tcp_num_keys,
};

/* Counts this client as arrived, and on the server waits for the others. */
static tri_status join(tcp_store *store, int world_size, int64_t deadline_ns)
{
    static const char key[] = "init/"; /* the one key without a slash in front */
    int64_t joined = 0;
    tri_status status;

    store->out.used = 0;
    trii_wire_put_u8(&store->out, TRII_WIRE_ADD);
    put_bytes(store, key, sizeof(key) - 1);
    trii_wire_put_i64(&store->out, 1);
    status = send_request(store, "join");
    if (status == TRI_OK)
        status = receive(store, "join", &joined, sizeof(joined));
    if (status == TRI_OK && store->end->server != NULL)
        status = trii_tcp_server_wait_joined(store->end->server, world_size, deadline_ns);
    return status;
}

/* Starts the server where asked for, and fills in where to connect. */
static tri_status serve(endpoint *end, const tri_store_tcp_options *opt)
{
    bool loopback = trii_socket_is_loopback(end->host);
    const trii_tcp_server_options server = {
        .host = loopback ? end->host : NULL, .port = end->port, .listen_fd = opt->listen_fd};
    tri_status status = trii_tcp_server_create(&server, &end->server);

    if (status == TRI_ERR_STATE) {
        if (opt->serve_if_free)
            return TRI_OK; /* whoever has the port serves */
        status = TRI_ERR_IO;
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
    tcp_store *store = NULL;
    int64_t timeout_ms, deadline;
    endpoint *end;
    tri_status status = TRI_OK;

    opt = opt != NULL ? opt : &defaults;
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
    if (opt->serve || opt->serve_if_free || opt->listen_fd > 0)
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
