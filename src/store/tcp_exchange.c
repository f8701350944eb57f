/*
 * tcp_exchange.c - one request and its reply over the connection of a TCP store, within the call's
 * deadline. Called by tcp_calls.c for operations and by tcp_open.c to greet the server.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "store/tcp_client.h"

#define MAX_REPLY ((uint64_t)1 << 30) /* of one value: appending may build large ones */
#define KEPT_BYTES ((size_t)1 << 20)  /* of the buffer for requests, after a larger one */
#define LIBUV_MAX ((size_t)8 << 20)   /* PyTorch's libuv server takes no larger value */

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
        (void)trii_wire_buffer_keep(&store->out, TRII_TCP_LEAST_BYTES); /* else it stays large */
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

tri_status trii_tcp_take(trii_tcp_store *store, void *buf, size_t bytes, int64_t deadline_ns)
{
    char *p = buf;
    tri_status status = TRI_OK;

    while (bytes > 0 && status == TRI_OK) {
        size_t n = store->in_used - store->in_at;

        if (n == 0 && bytes >= sizeof(store->in))
            return trii_socket_recv_all(store->fd, p, bytes, deadline_ns);
        if (n == 0) {
            store->in_at = store->in_used = 0;
            status = trii_socket_recv(store->fd, store->in, sizeof(store->in), &store->in_used);
            if (status == TRI_INPROGRESS)
                status = trii_socket_wait(store->fd, TRII_READABLE, deadline_ns);
            continue;
        }
        n = n < bytes ? n : bytes;
        memcpy(p, store->in + store->in_at, n);
        store->in_at += n;
        p += n;
        bytes -= n;
    }
    return status;
}

int64_t trii_tcp_reply_deadline(const trii_tcp_store *store)
{
    return trii_deadline_ms(store->base.timeout_ms);
}

tri_status trii_tcp_take_late_answer(trii_tcp_store *store, const char *op, int64_t deadline_ns)
{
    while (store->owed && store->fd >= 0) {
        uint8_t answer = 0;
        tri_status status = trii_tcp_take(store, &answer, 1, deadline_ns);

        if (status == TRI_ERR_TIMEOUT)
            return status;
        if (status == TRI_OK && (answer > 1 || (answer == 0 && !store->owed_wait)))
            status = TRII_FAIL(TRI_ERR_FORMAT, "answer %u to a cancelled wait", answer);
        if (status != TRI_OK)
            return trii_tcp_broken(store, op, status);
        store->owed = answer == 0;
        store->owed_wait = false;
    }
    return TRI_OK;
}

tri_status trii_tcp_send(trii_tcp_store *store, const char *op)
{
    tri_status status;

    if (store->fd < 0)
        return TRII_FAIL(store->failed, "%s", store->why);
    status = trii_tcp_take_late_answer(store, op, trii_tcp_reply_deadline(store));
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
    tri_status status = trii_tcp_take(store, buf, bytes, trii_tcp_reply_deadline(store));

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

/* Each reference to the endpoint is one connection of this client. */
int trii_tcp_others(tri_store *self)
{
    const trii_tcp_endpoint *end = ((const trii_tcp_store *)self)->end;
    int others =
        end->server != NULL ? trii_tcp_server_clients(end->server) - atomic_load(&end->refs) : -1;

    return end->server != NULL && others < 0 ? 0 : others;
}
