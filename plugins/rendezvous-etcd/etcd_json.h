/*
 * etcd_json.h - what is said to etcd's JSON gateway, and what it answers, as text in memory: no
 * network here, so that it can be tested and fuzzed.
 *
 * Keys and values travel in base64; 64-bit numbers come as texts; fields that are 0, false or
 * empty are left out.
 */
#ifndef TRII_ETCD_JSON_H
#define TRII_ETCD_JSON_H

#include "store/wire.h"

typedef struct trii_etcd_kv {
    char *key, *value; /* with a zero byte after them; NULL if left out */
    size_t key_bytes, value_bytes;
    int64_t mod_revision;
    int op;       /* number of the operation in its transaction */
    bool deleted; /* an event: the key is gone */
} trii_etcd_kv;

#define TRII_ETCD_TEXT 200
#define TRII_ETCD_TOKEN 4096 /* a signed one (JWT) has some hundred characters */

/* One answer of any kind, or one line of a stream; what it does not say is 0. */
typedef struct trii_etcd_reply {
    int64_t revision;  /* of the whole store when it was answered */
    bool succeeded;    /* a transaction took its first branch */
    int64_t count;     /* keys in the range, or deleted ones */
    trii_etcd_kv *kvs; /* found keys of all operations, or events, in their order */
    int n_kvs;
    int64_t lease, ttl;
    bool created, canceled; /* a watch */
    int64_t compact_revision;
    bool failed; /* `code` and `message` say how; code is gRPC's */
    int code;
    char message[TRII_ETCD_TEXT];
    char token[TRII_ETCD_TOKEN];
} trii_etcd_reply;

/* Errors: FORMAT (not such an answer; nothing to free), NO_MEMORY. */
tri_status trii_etcd_reply_read(const char *text, size_t bytes,
                                trii_etcd_reply *reply_out) TRI_MUST_CHECK;
void trii_etcd_reply_fini(trii_etcd_reply *reply); /* zeroed ones allowed */

/* --- requests: appended to a buffer, which remembers a failure ------------ */

void trii_etcd_put_text(trii_wire_buffer *out, const char *text);
void trii_etcd_put_int(trii_wire_buffer *out, int64_t number);
/* "base64" in quotes. */
void trii_etcd_put_bytes(trii_wire_buffer *out, const void *data, size_t bytes);
/* A text as JSON writes it, in quotes. */
void trii_etcd_put_string(trii_wire_buffer *out, const char *text);

#endif
