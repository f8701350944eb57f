/*
 * etcd_backend.c - the state of a rendezvous as one key of etcd: what a load has seen is replaced,
 * or nothing is, by the revision of the key.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "rendezvous-etcd/etcd_client.h"

typedef struct backend {
    trii_rdzv_backend base;
    trii_etcd_client *client;
    int64_t revision; /* of the key at the last load; 0 = there was none */
    char key[];
} backend;

static tri_status load(trii_rdzv_backend *base, trii_wire_buffer *state_out)
{
    backend *self = (backend *)base;
    trii_etcd_reply reply = {0};
    tri_status status = trii_etcd_read(self->client, self->key, &reply);

    if (status != TRI_OK)
        return status;
    self->revision = reply.n_kvs > 0 ? reply.kvs[0].mod_revision : 0;
    if (reply.n_kvs > 0)
        trii_wire_put(state_out, reply.kvs[0].value, reply.kvs[0].value_bytes);
    trii_etcd_reply_fini(&reply);
    return state_out->failed ? TRI_ERR_NO_MEMORY : TRI_OK;
}

static tri_status swap(trii_rdzv_backend *base, const void *state, size_t bytes, bool *won_out)
{
    backend *self = (backend *)base;
    trii_etcd_reply reply = {0};
    const trii_etcd_write write = {.key = self->key,
                                   .value = state,
                                   .bytes = bytes,
                                   .when = TRII_ETCD_IF_SAME,
                                   .revision = self->revision};
    bool won = false;
    tri_status status = trii_etcd_write_once(self->client, &write, &won, &reply);

    trii_etcd_reply_fini(&reply);
    if (status == TRI_OK)
        *won_out = won;
    return status;
}

static void destroy(trii_rdzv_backend *base)
{
    backend *self = (backend *)base;

    tri_store_unref(base->store);
    trii_etcd_client_unref(self->client);
    trii_free(self);
}

static const trii_rdzv_backend_ops ops = {
    .name = "etcd", .load = load, .swap = swap, .destroy = destroy};

tri_status trii_etcd_create(const trii_etcd_settings *settings, trii_rdzv_backend **backend_out)
{
    trii_etcd_client *client = NULL;
    backend *self;
    size_t bytes;
    tri_status status = trii_etcd_client_create(settings, &client);

    if (status != TRI_OK)
        return status;
    bytes = strlen(trii_etcd_client_root(client)) + sizeof("state");
    self = trii_alloc(1, sizeof(*self) + bytes, "etcd back end");
    status = self != NULL ? trii_etcd_store_create(client, &self->base.store) : TRI_ERR_NO_MEMORY;
    if (status != TRI_OK) {
        trii_etcd_client_unref(client);
        trii_free(self);
        return status;
    }
    self->base.ops = &ops;
    self->client = client;
    trii_etcd_client_address(client, self->base.address, sizeof(self->base.address));
    snprintf(self->key, bytes, "%sstate", trii_etcd_client_root(client));
    *backend_out = &self->base;
    return TRI_OK;
}
