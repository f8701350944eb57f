/*
 * rdzv_c10d.c - the state of a rendezvous in a TCP store, as PyTorch's C10dRendezvousBackend keeps
 * it: the key torch.rendezvous.ID holds the base64 of the state, which is also the token that a
 * writer must know; a word of its own says that there is none yet.
 */
#include "launch/rendezvous/rdzv_backend.h"

#include <string.h>

#include "base/alloc.h"
#include "launch/rendezvous/rdzv_pickle.h"

static const char nothing[] = "Y2FuaW1hZGFt"; /* PyTorch's word for it */

typedef struct c10d {
    trii_rdzv_backend base;
    char *token; /* what was there at the last load, */
    size_t token_bytes;
    trii_wire_buffer state; /* ... and what it means: agents that wait read the same often */
    char key[];
} c10d;

static void keep(c10d *self, void *value, size_t bytes)
{
    trii_free(self->token);
    self->token = value;
    self->token_bytes = bytes;
}

/* A failure leaves nothing. */
static tri_status decode(c10d *self, const char *value, size_t bytes)
{
    tri_status status = TRI_OK;

    self->state.used = 0;
    if (bytes != sizeof(nothing) - 1 || memcmp(value, nothing, bytes) != 0)
        status = trii_base64_read(value, bytes, &self->state);
    if (status != TRI_OK)
        trii_wire_buffer_fini(&self->state);
    return status;
}

static tri_status load(trii_rdzv_backend *base, trii_wire_buffer *state_out)
{
    c10d *self = (c10d *)base;
    void *value;
    size_t bytes;
    tri_status status;

    if (self->token == NULL)
        status = tri_store_compare_set(base->store, self->key, "", 0, nothing, sizeof(nothing) - 1,
                                       &value, &bytes);
    else
        status = tri_store_get(base->store, self->key, 0, &value, &bytes);
    if (status != TRI_OK)
        return status;
    if (self->token == NULL || bytes != self->token_bytes || memcmp(value, self->token, bytes) != 0)
        status = decode(self, value, bytes);
    if (status != TRI_OK) {
        tri_store_free(value); /* so that the next load fails likewise */
        return status;
    }
    keep(self, value, bytes);
    trii_wire_put(state_out, self->state.data, self->state.used);
    return state_out->failed ? TRI_ERR_NO_MEMORY : TRI_OK;
}

static tri_status swap(trii_rdzv_backend *base, const void *state, size_t bytes, bool *won_out)
{
    c10d *self = (c10d *)base;
    trii_wire_buffer text = {0};
    void *value;
    size_t value_bytes;
    tri_status status;

    trii_base64_write(state, bytes, &text);
    if (text.failed) {
        trii_wire_buffer_fini(&text);
        return TRI_ERR_NO_MEMORY;
    }
    status = tri_store_compare_set(base->store, self->key, self->token, self->token_bytes,
                                   text.data, text.used, &value, &value_bytes);
    if (status == TRI_OK) {
        *won_out = value_bytes == text.used && memcmp(value, text.data, text.used) == 0;
        status = decode(self, value, value_bytes);
        if (status == TRI_OK)
            keep(self, value, value_bytes);
        else
            tri_store_free(value);
    }
    trii_wire_buffer_fini(&text);
    return status;
}

static void destroy(trii_rdzv_backend *base)
{
    c10d *self = (c10d *)base;

    tri_store_unref(base->store);
    trii_free(self->token);
    trii_wire_buffer_fini(&self->state);
    trii_free(self);
}

static const trii_rdzv_backend_ops ops = {
    .name = "c10d", .load = load, .swap = swap, .destroy = destroy};

tri_status trii_rdzv_c10d_create(tri_store *store, const char *run_id,
                                 trii_rdzv_backend **backend_out)
{
    size_t bytes = strlen(run_id) + sizeof("torch.rendezvous.");
    c10d *self = trii_alloc(1, sizeof(*self) + bytes, "rendezvous");

    if (self == NULL)
        return TRI_ERR_NO_MEMORY;
    self->base.ops = &ops;
    self->base.store = tri_store_ref(store);
    snprintf(self->key, bytes, "torch.rendezvous.%s", run_id);
    *backend_out = &self->base;
    return TRI_OK;
}
