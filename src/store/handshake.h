/*
 * handshake.h - the job key: what every connection of a job proves before any other byte is
 * parsed, if TRI_JOB_KEY_FILE names a file with a secret of at least 32 bytes that all processes
 * of the job can read and nobody else.
 *
 *   client            server
 *   magic 8, C 32  ->                    C, S: fresh random numbers
 *                 <-  magic 8, S 32, M(K, "server", purpose, C, S) 32
 *   M(K, "client", purpose, C, S) 32  ->
 *
 * M is BLAKE2b with the key K, which is a hash of the file. The server's proof comes first, so
 * that a client with another key learns it at once; a server tells a stranger nothing but that
 * it is closed. What follows on the connection is neither encrypted nor signed: the key keeps
 * strangers out, it does not hide anything from who can read the wires.
 *
 * The hash is libsodium's, loaded when a key is used; a program that needs none needs no
 * libsodium.
 */
#ifndef TRII_HANDSHAKE_H
#define TRII_HANDSHAKE_H

#include <trireme/status.h>

enum {
    TRII_KEY_BYTES = 32,
    TRII_HELLO_BYTES = 8 + 32,
    TRII_ANSWER_BYTES = 8 + 32 + 32,
    TRII_PROOF_BYTES = 32
};

/* How long a stranger may take. */
#define TRII_HANDSHAKE_MS 5000

typedef struct trii_job_key {
    bool set; /* false: there is none, and every function below succeeds at once */
    unsigned char bytes[TRII_KEY_BYTES];
} trii_job_key;

/* The key of TRI_JOB_KEY_FILE, or none if that is not set. Errors: NOT_FOUND, IO (others may read
 * the file, too short), UNSUPPORTED (no libsodium here). */
tri_status trii_job_key_load(trii_job_key *key_out) TRI_MUST_CHECK;

/* The client's side; `purpose` is at most 15 characters, such as "store". Blocks. Errors: FORMAT
 * (no handshake, or another key), TIMEOUT, END, PEER_LOST, IO. */
tri_status trii_handshake_connect(int fd, const trii_job_key *key, const char *purpose,
                                  int64_t deadline_ns) TRI_MUST_CHECK;

/* The server's side, as bytes come in; in its owner's memory, all zero at first. */
typedef struct trii_handshake {
    unsigned char in[TRII_HELLO_BYTES];
    unsigned char client[32], server[32];
    size_t got;
    bool answered, proved;
} trii_handshake;

/* Whether the client's first byte begins something else than a handshake. */
bool trii_handshake_is_other(const trii_handshake *shake, char first);

/**
 * Takes bytes of the client.
 *
 *   used_out    how many were taken; written on OK and INPROGRESS
 *   answer_out  what to send back now; *answer_bytes_out 0 = nothing
 *
 * Returns OK (proved: what follows may be parsed), INPROGRESS, FORMAT (close it).
 */
tri_status trii_handshake_feed(trii_handshake *shake, const trii_job_key *key, const char *purpose,
                               const void *data, size_t bytes, size_t *used_out,
                               unsigned char answer_out[TRII_ANSWER_BYTES],
                               size_t *answer_bytes_out) TRI_MUST_CHECK;

#endif
