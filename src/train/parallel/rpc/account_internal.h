/*
 * account_internal.h - what account.c, account_sum.c and account_update.c share.
 */
#ifndef TRII_ACCOUNT_INTERNAL_H
#define TRII_ACCOUNT_INTERNAL_H

#include "train/optim/optimizer.h"
#include "train/parallel/rpc/account.h"

/* A gradient for each parameter. */
typedef struct trii_sums {
    struct trii_sums *next; /* among those that nobody uses */
    tri_tensor **tensor;    /* [n]; owned; NULL = not needed yet */
    bool *has;              /* [n] whether it has contents */
} trii_sums;

/* A backward whose turn has not come. */
typedef struct trii_late {
    struct trii_late *next; /* in their order */
    trii_remote_order order;
    trii_sums *sums;
    bool added; /* by the step that is recorded now */
} trii_late;

/* Of one remote optimizer of one trainer. */
typedef struct trii_account {
    struct trii_account *next;
    char trainer[TRII_REMOTE_NAME];
    uint64_t incarnation, optimizer, used;
    int64_t last; /* number of its last step that was committed; 0 = none */

    int64_t step;            /* the key's; 0 = no account is open */
    trii_sums *pass, *total; /* of the backward pass `pass_now`, and of those before; NULL = none */
    uint32_t n_direct;       /* direct backwards that are in them: 0 to n_direct - 1 */
    uint32_t pass_now;       /* of the last of these */
    trii_late *late;
    bool prepared, merged; /* merged: it is a part of another one */
    bool has_lr;
    double lr;
    tri_status status; /* not OK: spoilt */
    char *why;         /* NULL: no memory for the line */
} trii_account;

struct trii_accounts {
    tri_tensor *const *params; /* [n], borrowed */
    int n;
    tri_optimizer *optimizer;
    tri_remote_versions versions;
    tri_context *context; /* of sums and updates */
    trii_account *first;
    int n_accounts;
    uint64_t clock;
    trii_sums *idle;
    int n_idle;
    trii_vid *vids;        /* [n] */
    int *place;            /* [optimizer->n_params]: which of params it is; -1 = none */
    tri_tensor **given;    /* [optimizer->n_params] */
    trii_renewed *renewed; /* likewise */
    tri_tensor *factor[2]; /* scalars, f32 and f64 */
};

/* account.c */
trii_account *trii_account_find(const trii_accounts *accounts, const trii_remote_key *key);
/* The account of the key, opened if it is a new one; NULL: the key is not wanted. NO_MEMORY. */
tri_status trii_account_open(trii_accounts *accounts, const trii_remote_key *key,
                             trii_account **account_out) TRI_MUST_CHECK;
/* Nothing more comes of its step. */
void trii_account_close(trii_accounts *accounts, trii_account *account);
/* Drops what it has, and keeps the error line. */
void trii_account_ruin(trii_accounts *accounts, trii_account *account, tri_status status);

/* account_memory.c */
trii_sums *trii_sums_take(trii_accounts *accounts);                 /* empty; NULL: no memory */
void trii_sums_give_back(trii_accounts *accounts, trii_sums *sums); /* NULL allowed */
tri_status trii_accounts_make_room(trii_accounts *accounts) TRI_MUST_CHECK;
void trii_accounts_drop_room(trii_accounts *accounts);

/* account_sum.c */
/* All that has come becomes `total`, in the order of the backwards: in the accounts' context. */
tri_status trii_account_finish(trii_accounts *accounts, trii_account *account) TRI_MUST_CHECK;
/* The weighted sum of n accounts becomes the total of the first one; the others are closed, but for
 * their numbers. Each is finished. */
tri_status trii_accounts_merge(trii_accounts *accounts, trii_account *const *members,
                               const double *weights, int n) TRI_MUST_CHECK;

#endif
