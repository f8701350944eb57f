/*
 * rdzv_pickle.h - the state of a dynamic rendezvous as PyTorch writes it down: a pickle, in
 * base64. What is read comes from the network: only the few operations that such a state needs are
 * understood, nothing is called, imported or constructed, and everything is bounded.
 */
#ifndef TRII_RDZV_PICKLE_H
#define TRII_RDZV_PICKLE_H

#include "launch/rendezvous/rdzv_state.h"
#include "store/wire.h"

/* A state of more bytes is refused. */
#define TRII_RDZV_MAX_PICKLE ((size_t)4 << 20)

/* state_out: as trii_rdzv_state_init left it; keeps it so after a failure. Errors: FORMAT,
 * NO_MEMORY. */
tri_status trii_rdzv_pickle_read(const void *data, size_t bytes,
                                 trii_rdzv_state *state_out) TRI_MUST_CHECK;
/* Appends; check out->failed. */
void trii_rdzv_pickle_write(const trii_rdzv_state *state, trii_wire_buffer *out);

/* Standard base64 with padding. */
void trii_base64_write(const void *data, size_t bytes, trii_wire_buffer *out);
/* Appends. Errors: FORMAT. */
tri_status trii_base64_read(const char *text, size_t bytes, trii_wire_buffer *out) TRI_MUST_CHECK;

#endif
