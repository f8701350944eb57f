/*
 * tcp_requests.c - what a request to the TCP store's server does to the table (kv.h), and the reply
 * (wire.h). Called by tcp_server.c with whole requests. A WAIT is an entry in the table, answered
 * by the write that completes it: nothing here blocks.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "store/tcp_server_internal.h"

#define MAX_REPLY ((size_t)256 << 20) /* one reply; only MULTI_GET and LIST_KEYS come near */
#define UNCOUNTED ((size_t)4 << 10)   /* a reply that is let through however full the server is */

/* Whether there is room for a reply of so many bytes beside what all clients hold already. */
static tri_status check_reply(const trii_connection *c, size_t bytes)
{
    const trii_tcp_server *server = c->server;

    if (bytes > MAX_REPLY)
        return TRII_FAIL(TRI_ERR_FORMAT, "a reply of more than %zu bytes", MAX_REPLY);
    if (bytes > UNCOUNTED && server->held + bytes > server->max_held)
        return TRII_FAIL(TRI_ERR_NO_MEMORY,
                         "a reply of %zu bytes beside %zu that clients hold, of %zu", bytes,
                         server->held, server->max_held);
    return TRI_OK;
}

static tri_status do_multi_get(trii_connection *c, const trii_slice *keys, size_t n_keys)
{
    trii_slice value;
    size_t bytes = 0;
    tri_status status;

    for (size_t i = 0; i < n_keys; i++) {
        if (trii_kv_get(c->server->kv, keys[i], &value))
            bytes += value.bytes;
    }
    status = check_reply(c, bytes);
    for (size_t i = 0; i < n_keys && status == TRI_OK; i++) {
        value = (trii_slice){"", 0};
        (void)trii_kv_get(c->server->kv, keys[i], &value);
        trii_wire_put_slice(&c->out, value);
    }
    trii_server_account(c);
    return status;
}

static bool all_present(const trii_kv *kv, const trii_slice *keys, size_t n_keys)
{
    for (size_t i = 0; i < n_keys; i++) {
        if (!trii_kv_has(kv, keys[i]))
            return false;
    }
    return true;
}

/* --- waits ---------------------------------------------------------------- */

static void on_wait_ready(void *owner, trii_kv_wait *wait)
{
    trii_connection *c = owner;
    int i = 0;

    while (c->waits[i] != wait)
        i++;
    c->waits[i] = c->waits[--c->n_waits];
    trii_wire_put_u8(&c->out, 0);
    trii_server_mark_dirty(c);
}

static tri_status start_wait(trii_connection *c, const trii_slice *keys, size_t n_keys,
                             bool barrier)
{
    trii_kv_wait *wait = NULL;
    tri_status status;

    if (c->n_waits == TRII_SERVER_MAX_WAITS)
        return TRII_FAIL(TRI_ERR_FORMAT, "more than %d waits at once", TRII_SERVER_MAX_WAITS);
    status = trii_kv_wait_for(c->server->kv, keys, n_keys, barrier, c, on_wait_ready, &wait);
    if (status != TRI_OK)
        return status;
    if (wait == NULL)
        trii_wire_put_u8(&c->out, 0);
    else
        c->waits[c->n_waits++] = wait;
    return TRI_OK;
}

static void cancel_waits(trii_connection *c)
{
    trii_server_cancel_waits(c);
    trii_wire_put_u8(&c->out, 1);
}

/* --- the rest ------------------------------------------------------------- */

static tri_status do_barrier(trii_connection *c, trii_slice key, int64_t size)
{
    int64_t arrived;
    tri_status status = trii_kv_arrive(c->server->kv, key, &arrived);

    if (status != TRI_OK)
        return status;
    if (arrived < size)
        return start_wait(c, &key, 1, true);
    trii_kv_wake(c->server->kv, key);
    trii_wire_put_u8(&c->out, 0);
    return TRI_OK;
}

static void note_joined(trii_tcp_server *server, int64_t joined)
{
    trii_mutex_lock(&server->join_mutex);
    server->joined = joined;
    trii_cond_broadcast(&server->join_cond);
    trii_mutex_unlock(&server->join_mutex);
}

static tri_status do_add(trii_connection *c, trii_slice key, int64_t delta)
{
    int64_t sum;
    tri_status status = trii_kv_add(c->server->kv, key, delta, &sum);

    if (status != TRI_OK)
        return status;
    trii_wire_put_i64(&c->out, sum);
    if (key.bytes == 5 && memcmp(key.data, "init/", 5) == 0)
        note_joined(c->server, sum);
    return TRI_OK;
}

static void do_pop(trii_connection *c, trii_slice key)
{
    int64_t length = trii_kv_queue_length(c->server->kv, key);
    char *data = NULL;
    size_t bytes = 0;

    trii_wire_put_i64(&c->out, length);
    if (trii_kv_pop(c->server->kv, key, &data, &bytes))
        trii_wire_put_slice(&c->out, (trii_slice){data, bytes});
    trii_free(data);
}

static bool put_key(void *arg, trii_slice key)
{
    trii_connection *c = arg;

    trii_wire_put_slice(&c->out, key);
    return !c->out.failed;
}

static bool count_key(void *arg, trii_slice key)
{
    *(size_t *)arg += sizeof(uint64_t) + key.bytes;
    return true;
}

static tri_status do_list_keys(trii_connection *c)
{
    size_t bytes = sizeof(int64_t);
    tri_status status;

    trii_kv_each(c->server->kv, count_key, &bytes);
    status = check_reply(c, bytes);
    if (status != TRI_OK)
        return status;
    trii_wire_put_i64(&c->out, trii_kv_count(c->server->kv));
    trii_kv_each(c->server->kv, put_key, c);
    trii_server_account(c);
    return TRI_OK;
}

static tri_status do_compare_set(trii_connection *c, const trii_slice *parts)
{
    trii_slice reply;
    tri_status status = trii_kv_compare_set(c->server->kv, parts[0], parts[1], parts[2], &reply);

    if (status == TRI_OK)
        trii_wire_put_slice(&c->out, reply);
    return status;
}

static tri_status do_multi_set(trii_connection *c, const trii_slice *parts, size_t n_parts)
{
    tri_status status = TRI_OK;

    for (size_t i = 0; i + 1 < n_parts && status == TRI_OK; i += 2)
        status = trii_kv_set(c->server->kv, parts[i], parts[i + 1]);
    return status;
}

tri_status trii_server_handle(trii_connection *c, const trii_wire_request *r)
{
    trii_kv *kv = c->server->kv;
    const trii_slice *parts = r->parts;

    if (c->validated == (r->op == TRII_WIRE_VALIDATE))
        return TRII_FAIL(TRI_ERR_FORMAT, c->validated ? "a second handshake"
                                                      : "the first request is not a handshake");
    trii_server_mark_dirty(c);
    switch (r->op) {
    case TRII_WIRE_VALIDATE:
        if (r->word != TRII_WIRE_MAGIC)
            return TRII_FAIL(TRI_ERR_FORMAT, "handshake with 0x%08x", (unsigned)r->word);
        c->validated = true;
        c->server->n_strangers--;
        return TRI_OK;
    case TRII_WIRE_SET:
        return trii_kv_set(kv, parts[0], parts[1]);
    case TRII_WIRE_COMPARE_SET:
        return do_compare_set(c, parts);
    case TRII_WIRE_GET:
    case TRII_WIRE_MULTI_GET:
        return do_multi_get(c, parts, r->n_parts);
    case TRII_WIRE_ADD:
        return do_add(c, parts[0], r->number);
    case TRII_WIRE_CHECK:
        trii_wire_put_u8(&c->out, all_present(kv, parts, r->n_parts) ? 0 : 1);
        return TRI_OK;
    case TRII_WIRE_WAIT:
        return start_wait(c, parts, r->n_parts, false);
    case TRII_WIRE_GETNUMKEYS:
        trii_wire_put_i64(&c->out, trii_kv_count(kv));
        return TRI_OK;
    case TRII_WIRE_DELETE_KEY:
        trii_wire_put_i64(&c->out, trii_kv_delete(kv, parts[0]));
        return TRI_OK;
    case TRII_WIRE_APPEND:
        return trii_kv_append(kv, parts[0], parts[1]);
    case TRII_WIRE_MULTI_SET:
        return do_multi_set(c, parts, r->n_parts);
    case TRII_WIRE_CANCEL_WAIT:
        cancel_waits(c);
        return TRI_OK;
    case TRII_WIRE_PING:
        trii_wire_put_u32(&c->out, r->word);
        return TRI_OK;
    case TRII_WIRE_QUEUE_PUSH:
        return trii_kv_push(kv, parts[0], parts[1]);
    case TRII_WIRE_QUEUE_POP:
        do_pop(c, parts[0]);
        return TRI_OK;
    case TRII_WIRE_QUEUE_LEN:
        trii_wire_put_i64(&c->out, trii_kv_queue_length(kv, parts[0]));
        return TRI_OK;
    case TRII_WIRE_LIST_KEYS:
        return do_list_keys(c);
    case TRII_WIRE_BARRIER:
        return do_barrier(c, parts[0], r->number);
    case TRII_WIRE_OP_COUNT:
        break;
    }
    return TRII_FAIL(TRI_ERR_FORMAT, "unknown op");
}
