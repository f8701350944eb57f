/*
 * gloo_shim.h - gloo, which is C++, as C functions. Nothing throws across this border: a function
 * that fails returns false and leaves gloo's words in `why`.
 */
#ifndef TRII_GLOO_SHIM_H
#define TRII_GLOO_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GLOO_WHY_BYTES 256

typedef struct gloo_shim gloo_shim;       /* a full mesh of connections */
typedef struct gloo_message gloo_message; /* a send or a receive under way */

/* Our store. get: waits, writes at most room bytes, returns how many there are; negative =
 * failed. */
typedef struct gloo_store {
    void *arg;
    bool (*set)(void *arg, const char *key, const void *data, size_t bytes);
    int64_t (*get)(void *arg, const char *key, void *data, size_t room);
} gloo_store;

/* Blocks until all are connected. host: of our own address. */
gloo_shim *gloo_shim_create(int rank, int size, const gloo_store *store, const char *host,
                            int64_t connect_ms, char *why);
/* Breaks the connections: waiting threads get a failure. Any thread. */
void gloo_shim_close(gloo_shim *shim);
void gloo_shim_destroy(gloo_shim *shim); /* NULL allowed; nobody waits any more */

/* These block until done. Places are in elements of elem_bytes, [size + 1]. One at a time. */
bool gloo_shim_barrier(gloo_shim *shim, char *why);
bool gloo_shim_broadcast(gloo_shim *shim, void *data, size_t bytes, int root, char *why);
/* src NULL: our part is in dst already. */
bool gloo_shim_all_gather(gloo_shim *shim, const void *src, void *dst, const size_t *dst_at,
                          size_t elem_bytes, char *why);
/* Bytes for and of each rank, one part after the other. */
bool gloo_shim_all_to_all(gloo_shim *shim, const void *src, const int64_t *src_bytes, void *dst,
                          const int64_t *dst_bytes, char *why);

/* Starts a message; never blocks. peer -1: a receive from anybody. */
gloo_message *gloo_shim_send(gloo_shim *shim, const void *src, size_t bytes, int peer, int tag,
                             char *why);
gloo_message *gloo_shim_recv(gloo_shim *shim, void *dst, size_t bytes, int peer, int tag,
                             char *why);
/* Blocks until it is over, and frees it; from_out: whose it was (receives). */
bool gloo_message_wait(gloo_message *own_message, int *from_out, char *why);

#ifdef __cplusplus
}
#endif

#endif
