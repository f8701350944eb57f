/*
 * store.h - key-value rendezvous between the processes of a job.
 *
 * The semantics are those of torch.distributed's stores, and the tcp store speaks PyTorch's wire
 * protocol as a client and as a server. Keys are text, values are bytes. All functions may be
 * called from any thread. A store runs one call at a time, so a thread that waits in it blocks the
 * other threads that use it: give each a clone (tri_store_clone).
 */
#ifndef TRIREME_STORE_H
#define TRIREME_STORE_H

#include <trireme/status.h>

TRI_BEGIN_DECLS

typedef struct tri_store tri_store; /* shared: tri_store_ref/unref */

#define TRI_STORE_TIMEOUT_MS INT64_C(300000)
#define TRI_STORE_PORT 29500
/* Every store has the limits of PyTorch's server. PyTorch's libuv server also closes the connection
 * of a client that sends a value of more than 8 MiB; ours does not. */
#define TRI_STORE_MAX_KEY 8191          /* bytes, prefixes included */
#define TRI_STORE_MAX_VALUE (64u << 20) /* bytes in one call; appending may build more */
#define TRI_STORE_MAX_KEYS 131072       /* in one call */

/* Errors of all functions: INVALID_ARG if a key or value is NULL or too long. A tcp store also
 * fails with IO (the connection broke or the server ended) and TIMEOUT (no reply within the store's
 * timeout); after one of these, all its later calls fail, too. */

/* Zero means default. */
typedef struct tri_store_tcp_options {
    bool serve;         /* run the server in this process (one control thread) */
    bool serve_if_free; /* serve, but become a client if the port is taken */
    int world_size;     /* > 0: counted in under the key `init/`; the server waits for so many */
    int64_t timeout_ms; /* of connecting and of waits; 0 = TRI_STORE_TIMEOUT_MS */
    int listen_fd;      /* > 0: a listening socket to serve on; the store closes it */
    TRI_RESERVED(4);
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
 * Blocks until it is connected (the server: until opt->world_size processes have joined), at most
 * for the timeout. Errors: INVALID_ARG, TIMEOUT (says whether the host refused, has no address or
 * did not answer), IO (the port is in use).
 */
TRI_API TRI_MUST_CHECK tri_status tri_store_tcp(const char *host, int port,
                                                const tri_store_tcp_options *opt,
                                                tri_store **store_out);
/* Zero means default. */
typedef struct tri_store_file_options {
    int world_size; /* > 0: the file is removed once so many have closed it and nobody uses it */
    int64_t timeout_ms; /* of waits, also for the file's lock; 0 = TRI_STORE_TIMEOUT_MS */
    TRI_RESERVED(4);
} tri_store_file_options;

/**
 * A store in one file that all processes reach. Its format is that of PyTorch's FileStore, which
 * may share it; it is safe on NFS. The file is created if it does not exist; if it does, what an
 * earlier run left in it is read. A record that a process left unfinished when it died is skipped,
 * and the next writer cuts it off. num_keys counts the user's keys only.
 *
 * Errors: NOT_FOUND (the folder does not exist), IO, FORMAT (the file is not a store), TIMEOUT
 * (another process holds its lock).
 */
TRI_API TRI_MUST_CHECK tri_status tri_store_file(const char *path,
                                                 const tri_store_file_options *opt,
                                                 tri_store **store_out);
/* In-process store, for ranks that are threads of one process. */
TRI_API TRI_MUST_CHECK tri_status tri_store_hash(tri_store **store_out);
/* A view of `base` in which every key is prefixed by "prefix/". Takes a reference on base. */
TRI_API TRI_MUST_CHECK tri_status tri_store_prefix(const char *prefix, tri_store *base,
                                                   tri_store **store_out);

/* A store with the same keys but its own connection, for another thread that may wait long. */
TRI_API TRI_MUST_CHECK tri_status tri_store_clone(tri_store *store, tri_store **store_out);

TRI_API tri_store *tri_store_ref(tri_store *store);
TRI_API void tri_store_unref(tri_store *store); /* NULL allowed */
/* The port of a tcp store; 0 for other stores. */
TRI_API int tri_store_port(const tri_store *store);

TRI_API TRI_MUST_CHECK tri_status tri_store_set(tri_store *store, const char *key,
                                                const void *value, size_t bytes);
/* Waits for the key (timeout_ms 0 = the store's), then returns a copy of its value with a zero byte
 * after it, to be released with tri_store_free. bytes_out may be NULL. */
TRI_API TRI_MUST_CHECK tri_status tri_store_get(tri_store *store, const char *key,
                                                int64_t timeout_ms, void **value_out,
                                                size_t *bytes_out);
TRI_API void tri_store_free(void *value);
/* Adds delta to a decimal counter, which is 0 if the key is missing, and returns the sum, which
 * wraps on overflow. Errors: FORMAT (the value is not a number); IO in a tcp store, since the
 * server then closes the connection. */
TRI_API TRI_MUST_CHECK tri_status tri_store_add(tri_store *store, const char *key, int64_t delta,
                                                int64_t *sum_out);
/* As c10d does it: stores `desired` if the value equals `expected`, or if the key is missing and
 * `expected` is empty. *value_out is the value that is now there, or `expected` if the key is
 * still missing. */
TRI_API TRI_MUST_CHECK tri_status tri_store_compare_set(tri_store *store, const char *key,
                                                        const void *expected, size_t expected_bytes,
                                                        const void *desired, size_t desired_bytes,
                                                        void **value_out, size_t *bytes_out);
/* tri_store_get for n_keys keys in one exchange: values_out[i] is the value of keys[i], to be
 * released with tri_store_free; bytes_out may be NULL. */
TRI_API TRI_MUST_CHECK tri_status tri_store_multi_get(tri_store *store, const char *const *keys,
                                                      int n_keys, int64_t timeout_ms,
                                                      void **values_out, size_t *bytes_out);
/* tri_store_set for n_keys keys in one exchange; bytes[i] may be 0. */
TRI_API TRI_MUST_CHECK tri_status tri_store_multi_set(tri_store *store, const char *const *keys,
                                                      const void *const *values,
                                                      const size_t *bytes, int n_keys);
TRI_API TRI_MUST_CHECK tri_status tri_store_append(tri_store *store, const char *key,
                                                   const void *value, size_t bytes);
/* Waits until all keys exist. A TIMEOUT names keys that are missing, or says that the store itself
 * did not answer, which is known three seconds after the deadline; the store stays usable. */
TRI_API TRI_MUST_CHECK tri_status tri_store_wait(tri_store *store, const char *const *keys,
                                                 int n_keys, int64_t timeout_ms);
/* Waits until `size` callers have come to the barrier of this name, each once; those that come
 * later pass. Every kind of store has it, and shares barriers with PyTorch 2.13. A PyTorch server
 * before 2.12 closes the connection: IO. A TIMEOUT says how many came; they stay counted. */
TRI_API TRI_MUST_CHECK tri_status tri_store_barrier(tri_store *store, const char *key, int64_t size,
                                                    int64_t timeout_ms);
/* Whether all keys exist now. */
TRI_API TRI_MUST_CHECK tri_status tri_store_check(tri_store *store, const char *const *keys,
                                                  int n_keys, bool *present_out);
TRI_API TRI_MUST_CHECK tri_status tri_store_delete(tri_store *store, const char *key,
                                                   bool *existed_out);
TRI_API TRI_MUST_CHECK tri_status tri_store_num_keys(tri_store *store, int64_t *n_out);
/* Lists the keys that have values now, in any order: an array of *n_out texts in one block, to be
 * released with tri_store_free. A prefix store lists its own keys, without the prefix. */
TRI_API TRI_MUST_CHECK tri_status tri_store_list_keys(tri_store *store, char ***keys_out,
                                                      int64_t *n_out);

/* --- queues: beside the value of a key, a queue of the same name -------------
 * Values come out in the order in which they went in, each once, whichever client pops it. For
 * tri_store_wait and tri_store_check a key exists if its queue is not empty. Errors: UNSUPPORTED (a
 * file store); IO with PyTorch's server without libuv, which has no queues and closes the
 * connection. */

TRI_API TRI_MUST_CHECK tri_status tri_store_queue_push(tri_store *store, const char *key,
                                                       const void *value, size_t bytes);
/* Waits for a value and removes it from the queue. */
TRI_API TRI_MUST_CHECK tri_status tri_store_queue_pop(tri_store *store, const char *key,
                                                      int64_t timeout_ms, void **value_out,
                                                      size_t *bytes_out);
/* The same without waiting: INPROGRESS if the queue is empty. */
TRI_API TRI_MUST_CHECK tri_status tri_store_queue_try_pop(tri_store *store, const char *key,
                                                          void **value_out, size_t *bytes_out);
TRI_API TRI_MUST_CHECK tri_status tri_store_queue_length(tri_store *store, const char *key,
                                                         int64_t *n_out);

TRI_END_DECLS

#endif
