/*
 * store.h - key-value rendezvous between the processes of a job.
 *
 * The semantics are those of torch.distributed's stores, and the tcp store speaks
 * PyTorch's wire protocol in both directions. Keys are text, values are bytes.
 * All functions may be called from any thread; one store serialises its calls, so a
 * blocked wait blocks the other threads that use the same object (take a clone).
 */
#ifndef TRIREME_STORE_H
#define TRIREME_STORE_H

#include <trireme/status.h>

TRI_BEGIN_DECLS

typedef struct tri_store tri_store; /* shared: tri_store_ref/unref */

#define TRI_STORE_TIMEOUT_MS INT64_C(300000)
#define TRI_STORE_PORT 29500
/* PyTorch's server refuses more keys and longer ones, so every store does. Its libuv server also
 * closes the connection of whoever sends a value of more than 8 MiB; ours does not. */
#define TRI_STORE_MAX_KEY 8191          /* bytes, prefixes included */
#define TRI_STORE_MAX_VALUE (64u << 20) /* bytes in one call; appending may build more */
#define TRI_STORE_MAX_KEYS 131072       /* in one call */

/* All functions: NULL or too long keys and values are INVALID_ARG. A tcp store also fails with IO
 * (the connection broke, its server ended) and TIMEOUT (no reply within the store's timeout);
 * after these it stays failed. */

/* Zero means default. */
typedef struct tri_store_tcp_options {
    bool serve;         /* host the server in this process (one control thread) */
    bool serve_if_free; /* serve, but become a client if the port is taken */
    int world_size;     /* > 0: joins `init/`; the server waits for this many */
    int64_t timeout_ms; /* connect and wait deadline; 0 = TRI_STORE_TIMEOUT_MS */
    int listen_fd;      /* > 0: an already bound and listening socket to serve on; adopted */
} tri_store_tcp_options;

/**
 * Client of a TCP store, and its server if opt->serve. If TRI_JOB_KEY_FILE names a job key, both
 * sides prove it to each other first.
 *
 *   host  name or address (IPv4, IPv6), or several of one host with commas between; a server binds
 *         all interfaces unless host is loopback. "@NAME": an AF_UNIX socket of this host and
 *         user instead (abstract: no file, no port)
 *   port  0 = any free port (server only; read it with tri_store_port)
 *
 * Blocks: until connected (and until opt->world_size joined, on the server), at most the timeout.
 * Errors: INVALID_ARG, TIMEOUT (says whether refused, unresolved or silent), IO (port in use).
 */
TRI_API TRI_MUST_CHECK tri_status tri_store_tcp(const char *host, int port,
                                                const tri_store_tcp_options *opt,
                                                tri_store **store_out);
/* Zero means default. */
typedef struct tri_store_file_options {
    int world_size;     /* > 0: the file is removed when so many have closed it and none is left */
    int64_t timeout_ms; /* of waits, and for the file's lock; 0 = TRI_STORE_TIMEOUT_MS */
} tri_store_file_options;

/**
 * A store in one file that all processes reach, in the format of PyTorch's FileStore, which may
 * share it; safe on NFS. Made if it is not there; what an earlier run left in it is read. What a
 * process that died left unfinished is skipped, and cut off by the next that writes. num_keys
 * counts the user's keys only.
 *
 * Errors: NOT_FOUND (no such folder), IO, FORMAT (not such a file), TIMEOUT (its lock is held).
 */
TRI_API TRI_MUST_CHECK tri_status tri_store_file(const char *path,
                                                 const tri_store_file_options *opt,
                                                 tri_store **store_out);
/* In-process store, for ranks that are threads of one process. */
TRI_API TRI_MUST_CHECK tri_status tri_store_hash(tri_store **store_out);
/* A view of `base` in which every key is prefixed by "prefix/". Takes a reference on base. */
TRI_API TRI_MUST_CHECK tri_status tri_store_prefix(const char *prefix, tri_store *base,
                                                   tri_store **store_out);

/* The same keys through a connection of its own, for another thread that waits long. */
TRI_API TRI_MUST_CHECK tri_status tri_store_clone(tri_store *store, tri_store **store_out);

TRI_API tri_store *tri_store_ref(tri_store *store);
TRI_API void tri_store_unref(tri_store *store); /* NULL allowed */
/* Port of a tcp store, else 0. */
TRI_API int tri_store_port(const tri_store *store);

TRI_API TRI_MUST_CHECK tri_status tri_store_set(tri_store *store, const char *key,
                                                const void *value, size_t bytes);
/* Waits for the key (timeout_ms 0 = the store's), then hands out a copy with a zero byte
 * behind it: release with tri_store_free. bytes_out may be NULL. */
TRI_API TRI_MUST_CHECK tri_status tri_store_get(tri_store *store, const char *key,
                                                int64_t timeout_ms, void **value_out,
                                                size_t *bytes_out);
TRI_API void tri_store_free(void *value);
/* Adds delta to a decimal counter (missing = 0) and returns the sum; wraps on overflow.
 * Errors: FORMAT (the value is not a number; a tcp store's server closes the connection: IO). */
TRI_API TRI_MUST_CHECK tri_status tri_store_add(tri_store *store, const char *key, int64_t delta,
                                                int64_t *sum_out);
/* c10d's truth table: stored if missing and expected is empty, or if equal; the reply is the
 * value that is now there (or `expected` if the key is missing and expected was not empty). */
TRI_API TRI_MUST_CHECK tri_status tri_store_compare_set(tri_store *store, const char *key,
                                                        const void *expected, size_t expected_bytes,
                                                        const void *desired, size_t desired_bytes,
                                                        void **value_out, size_t *bytes_out);
/* As get for n_keys keys in one exchange: values_out[i] belongs to keys[i] and is released
 * with tri_store_free; bytes_out may be NULL. */
TRI_API TRI_MUST_CHECK tri_status tri_store_multi_get(tri_store *store, const char *const *keys,
                                                      int n_keys, int64_t timeout_ms,
                                                      void **values_out, size_t *bytes_out);
/* As set for n_keys keys in one exchange; bytes[i] may be 0. */
TRI_API TRI_MUST_CHECK tri_status tri_store_multi_set(tri_store *store, const char *const *keys,
                                                      const void *const *values,
                                                      const size_t *bytes, int n_keys);
TRI_API TRI_MUST_CHECK tri_status tri_store_append(tri_store *store, const char *key,
                                                   const void *value, size_t bytes);
/* Until all keys exist. A TIMEOUT names keys that are missing, or says that the store itself did
 * not answer, which is known three seconds after the deadline; the store stays usable. */
TRI_API TRI_MUST_CHECK tri_status tri_store_wait(tri_store *store, const char *const *keys,
                                                 int n_keys, int64_t timeout_ms);
/* Until `size` callers have come to the barrier of this name, each once; whoever comes later
 * passes. The same barriers as PyTorch 2.13's, on every kind of store; a PyTorch server before 2.12
 * closes the connection: IO. A TIMEOUT says how many came; they stay counted. */
TRI_API TRI_MUST_CHECK tri_status tri_store_barrier(tri_store *store, const char *key, int64_t size,
                                                    int64_t timeout_ms);
/* Whether all keys exist now. */
TRI_API TRI_MUST_CHECK tri_status tri_store_check(tri_store *store, const char *const *keys,
                                                  int n_keys, bool *present_out);
TRI_API TRI_MUST_CHECK tri_status tri_store_delete(tri_store *store, const char *key,
                                                   bool *existed_out);
TRI_API TRI_MUST_CHECK tri_status tri_store_num_keys(tri_store *store, int64_t *n_out);
/* Keys that have values now, in no order: an array of *n_out texts in one block that is released
 * with tri_store_free. A prefix store lists its own, without the prefix. */
TRI_API TRI_MUST_CHECK tri_status tri_store_list_keys(tri_store *store, char ***keys_out,
                                                      int64_t *n_out);

/* --- queues: beside the value of a key, a queue of the same name -------------
 * Values come out in the order in which they went in, each once, whoever takes it. wait and
 * check take a queue that is not empty for a present key. Errors: UNSUPPORTED (a file store);
 * PyTorch's server without libuv knows none and closes the connection: IO. */

TRI_API TRI_MUST_CHECK tri_status tri_store_queue_push(tri_store *store, const char *key,
                                                       const void *value, size_t bytes);
/* Waits for a value and takes it. */
TRI_API TRI_MUST_CHECK tri_status tri_store_queue_pop(tri_store *store, const char *key,
                                                      int64_t timeout_ms, void **value_out,
                                                      size_t *bytes_out);
/* Takes a value if there is one, else INPROGRESS. */
TRI_API TRI_MUST_CHECK tri_status tri_store_queue_try_pop(tri_store *store, const char *key,
                                                          void **value_out, size_t *bytes_out);
TRI_API TRI_MUST_CHECK tri_status tri_store_queue_length(tri_store *store, const char *key,
                                                         int64_t *n_out);

TRI_END_DECLS

#endif
