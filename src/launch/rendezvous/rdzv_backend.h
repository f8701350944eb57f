/*
 * rdzv_backend.h - where the agents of a dynamic rendezvous keep their state and their keys: a TCP
 * store (c10d), or etcd, which is a plug-in.
 */
#ifndef TRII_RDZV_BACKEND_H
#define TRII_RDZV_BACKEND_H

#include <trireme/store.h>

#include "launch/cli/options.h"
#include "store/wire.h"

typedef struct trii_rdzv_backend trii_rdzv_backend;

typedef struct trii_rdzv_backend_ops {
    const char *name;
    /* The state as it is now, appended; nothing if there is none yet. Errors: the store's. */
    tri_status (*load)(trii_rdzv_backend *self, trii_wire_buffer *state_out);
    /* Replaces what the last load gave. *won_out false: another agent was faster. */
    tri_status (*swap)(trii_rdzv_backend *self, const void *state, size_t bytes, bool *won_out);
    void (*destroy)(trii_rdzv_backend *self);
} trii_rdzv_backend_ops;

struct trii_rdzv_backend {
    const trii_rdzv_backend_ops *ops;
    tri_store *store; /* for the keys of rounds */
    char address[64]; /* by which we reach it, and others us; "": not known */
};

/* PyTorch's: base64 text under one key. store: a reference is taken. Errors: NO_MEMORY. */
tri_status trii_rdzv_c10d_create(tri_store *store, const char *run_id,
                                 trii_rdzv_backend **backend_out) TRI_MUST_CHECK;
/* In etcd: loads the plug-in, which blocks until etcd has answered. timeout_ms: of a call. Errors:
 * UNSUPPORTED (no plug-in, or it cannot be loaded), INVALID_ARG, TIMEOUT, IO, FORMAT (not etcd),
 * NO_MEMORY. */
tri_status trii_rdzv_etcd_create(const trii_launch_options *options, const char *run_id,
                                 int64_t timeout_ms,
                                 trii_rdzv_backend **backend_out) TRI_MUST_CHECK;

#endif
