/*
 * exchange.h - several calls of a store in one exchange: between hosts each exchange may take 0.2
 * s, and most steps of starting a job are a few keys that are written and a few that are waited
 * for.
 */
#ifndef TRII_STORE_EXCHANGE_H
#define TRII_STORE_EXCHANGE_H

#include <trireme/store.h>

typedef enum trii_store_kind {
    TRII_STORE_SET,    /* key becomes text */
    TRII_STORE_ADD,    /* number is added to key, and becomes the sum */
    TRII_STORE_READ,   /* value is what key has now; waits for nothing. Where it has none, PyTorch's
                          libuv server ends waits for it, too: trii_store_peek does not */
    TRII_STORE_CHECK,  /* number is 1 if key is there, else 0 */
    TRII_STORE_DELETE, /* number is 1 if key was there, else 0 */
    TRII_STORE_CLAIM   /* key becomes text unless it has a value; value is what it has then */
} trii_store_kind;

/* What TRII_STORE_READ takes for no value, wherever it occurs. */
#define TRII_STORE_ABSENT "?absent"

typedef struct trii_store_call {
    trii_store_kind kind;
    const char *key;
    const char *text; /* SET, CLAIM */
    int64_t number;   /* ADD, CHECK, DELETE */
    char *value;      /* out, READ and CLAIM: tri_store_free; NULL = READ found none */
    size_t bytes;     /* out: of value */
} trii_store_call;

/**
 * Does the calls in their order, and then waits for n_keys keys (0: for nothing), as
 * tri_store_wait does, and hands out their values if they are asked for. One exchange over TCP, two
 * with values (WAIT, then MULTI_GET); other kinds of stores do one call after the other.
 *
 *   values_out  [n_keys], written on OK only; NULL = the values are not asked for
 *   bytes_out   likewise
 *
 * Errors: as of the single calls. After any of them there are no values, so nothing is to be freed,
 * and nothing is known of the calls: none, some or all may have been done, and an ADD has the sum
 * in its number only if the answer came. INVALID_ARG (a key of either kind that is too long): none
 * were.
 */
tri_status trii_store_exchange(tri_store *store, trii_store_call *calls, int n_calls,
                               const char *const *keys, int n_keys, int64_t timeout_ms,
                               void **values_out, size_t *bytes_out) TRI_MUST_CHECK;
/* The same for calls alone: waits for nothing. */
tri_status trii_store_calls(tri_store *store, trii_store_call *calls, int n_calls) TRI_MUST_CHECK;
/* One READ: *value_out is NULL where there is none, else freed by tri_store_free. */
tri_status trii_store_read(tri_store *store, const char *key, char **value_out) TRI_MUST_CHECK;
/* Reads keys that others may wait for, in two exchanges: calls, [n], are written. On TRI_OK the
 * caller frees their values, as after READ. */
tri_status trii_store_peek(tri_store *store, const char *const *keys, trii_store_call *calls,
                           int n) TRI_MUST_CHECK;
/* Frees their values. */
void trii_store_calls_free(trii_store_call *calls, int n_calls);

#endif
