/*
 * tcp_store.c - tri_store_tcp: a client of a TCP store (ours or PyTorch's), and the process's
 * server if it hosts one. Protocol: wire.h.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "os/clock.h"
#include "store/tcp_client.h"

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

/* Starts the server where asked for, and fills in where to connect. Only a text that is a loopback
 * address itself is served on loopback alone: a name that resolves to one here may mean another
 * address elsewhere. */
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
            return TRI_OK; /* the process that has the port serves */
        status = trii_tcp_hint(TRI_ERR_IO, end,
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
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_store_tcp_options, opt);
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
        trii_tcp_endpoint_unref(end);
        return status;
    }
    status = trii_tcp_open(end, &trii_tcp_ops, timeout_ms, deadline, &store);
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
