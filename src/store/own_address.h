/*
 * own_address.h - whether the address that all processes of a job were given leads to the store
 * that this process serves.
 *
 * It serves on all interfaces and is its own client over loopback, so a wrong address shows only
 * in that nobody comes. An address of no interface of this host may still be right (NAT, a load
 * balancer, a Kubernetes service), and one that cannot be resolved yet may be soon: so what counts
 * is whether we find our own store there, and what is found meanwhile is a warning, never an end.
 * Another store that answers there is: the job has two processes that serve.
 */
#ifndef TRII_OWN_ADDRESS_H
#define TRII_OWN_ADDRESS_H

#include <trireme/store.h>

typedef struct trii_own_address trii_own_address;

typedef enum trii_own_verdict {
    TRII_OWN_UNKNOWN, /* we look */
    TRII_OWN_OURS,
    TRII_OWN_NOBODY, /* and the log says so; the search continues */
    TRII_OWN_OTHER   /* a store in which somebody holds `claim_key` */
} trii_own_verdict;

typedef struct trii_own_search {
    const char *host; /* as given to all; copied, as all texts */
    int port;
    tri_store *store;      /* ours, without a prefix; used before start returns only */
    const char *proof_key; /* where we leave a mark by which it is known */
    const char *claim_key; /* in which another one that serves says who it is */
    const char *setting;   /* how the user names the address: --master-addr */
} trii_own_search;

/* Looks, on a thread of its own, unless the address is plainly ours (then *own_out is NULL).
 * Errors: NO_MEMORY, the store's. */
tri_status trii_own_address_start(const trii_own_search *search,
                                  trii_own_address **own_out) TRI_MUST_CHECK;
/* NULL: OURS. why_out: NOBODY: a clause for an error line, with what to do; OTHER: the value of
 * claim_key. */
trii_own_verdict trii_own_address_verdict(trii_own_address *own, char *why_out, size_t bytes);
/* Waits for nobody: a thread that is stuck in a resolver ends by itself, and until the process ends
 * the library stays loaded for it. NULL allowed. */
void trii_own_address_stop(trii_own_address *own);

#endif
