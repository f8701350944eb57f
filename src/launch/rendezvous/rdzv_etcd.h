/*
 * rdzv_etcd.h - the back end in etcd: loads the plug-in, and says what --rdzv-conf means to it.
 */
#ifndef TRII_RDZV_ETCD_H
#define TRII_RDZV_ETCD_H

#include "launch/cli/options.h"
#include "launch/rendezvous/rdzv_backend.h"

/* Blocks until etcd has answered. timeout_ms: of a call. Errors: UNSUPPORTED (no plug-in, or it
 * cannot be loaded), INVALID_ARG, TIMEOUT, IO, FORMAT (not etcd), NO_MEMORY. */
tri_status trii_rdzv_etcd_create(const trii_launch_options *options, const char *run_id,
                                 int64_t timeout_ms,
                                 trii_rdzv_backend **backend_out) TRI_MUST_CHECK;

#endif
