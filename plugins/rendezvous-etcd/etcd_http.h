/*
 * etcd_http.h - one HTTP connection for etcd's gateway, through libcurl.
 */
#ifndef TRII_ETCD_HTTP_H
#define TRII_ETCD_HTTP_H

#include <stdatomic.h>

#include "launch/rendezvous/etcd.h"

#define TRII_ETCD_MAX_ANSWER ((size_t)256 << 20)
#define TRII_ETCD_WHY 300

/* One thread at a time. */
typedef struct trii_etcd_http trii_etcd_http;

/* settings: those of TLS are read; they stay while it lives. Errors: NO_MEMORY. */
tri_status trii_etcd_http_create(const trii_etcd_settings *settings,
                                 trii_etcd_http **http_out) TRI_MUST_CHECK;
void trii_etcd_http_destroy(trii_etcd_http *http); /* NULL allowed */

typedef struct trii_etcd_post {
    const char *url;
    const char *token; /* NULL or "": none */
    const char *body;
    size_t bytes;
    int64_t deadline_ns;
    const atomic_bool *stop; /* once it is set the call ends within a second */
    /* For an answer that does not end: each line of it; false ends the call. NULL = the answer is
     * handed out as a whole. */
    bool (*line)(void *arg, const char *text, size_t bytes);
    void *arg;
} trii_etcd_post;

typedef struct trii_etcd_answer {
    int code;                /* HTTP's; 0 = none came */
    trii_wire_buffer body;   /* the caller's */
    char local[64];          /* our end's address; "" = there was no connection */
    char why[TRII_ETCD_WHY]; /* after a failure: what the network says */
} trii_etcd_answer;

/* Errors: IO (no connection, or it broke), TIMEOUT, INVALID_ARG (a certificate is not accepted),
 * STATE (stopped), NO_MEMORY. OK also if `line` ended it. answer_out is written in any case; no
 * error line. */
tri_status trii_etcd_http_post(trii_etcd_http *http, const trii_etcd_post *post,
                               trii_etcd_answer *answer_out) TRI_MUST_CHECK;

#endif
