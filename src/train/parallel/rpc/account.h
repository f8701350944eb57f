/*
 * account.h - gradients at the owner of a served module, from the backwards of a trainer's step
 * until its optimizer uses them. All is called by the thread of the served module, in no context of
 * its own unless it says so.
 *
 * Each step of a remote optimizer has one account, into which all its backwards are added,
 * whichever worker calls them. PREPARE asks whether it is complete, and makes the sum final; COMMIT
 * updates the parameters with it; DROP throws it away. No tensor's own gradient is touched, and
 * parameters are written by COMMIT alone.
 *
 * `step` of a key is two numbers: TRII_ACCOUNT_NUMBER rises with each step that ended well, and the
 * rest with each attempt at one that did not. A later attempt replaces an earlier one, of which
 * nothing is accepted any more. A number that was committed here is not applied again: a later
 * attempt, after another owner was lost, is told that it is done.
 */
#ifndef TRII_ACCOUNT_H
#define TRII_ACCOUNT_H

#include "train/parallel/rpc/remote_internal.h"

#define TRII_ACCOUNT_ATTEMPT_BITS 20
#define TRII_ACCOUNT_NUMBER(step) ((int64_t)(step) >> TRII_ACCOUNT_ATTEMPT_BITS)
#define TRII_ACCOUNT_FIRST ((int64_t)1 << TRII_ACCOUNT_ATTEMPT_BITS) /* the first step of all */

#define TRII_ACCOUNT_MEMBERS 256

/* PREPARE: the squares of all gradients are wanted. */
#define TRII_ACCOUNT_NORM 1u
/* PREPARE: the optimizer gets this learning rate with the update. */
#define TRII_ACCOUNT_LR 2u
/* What a trii_remote_update of PREPARE, COMMIT or DROP may go on with; then n_members of
 * trii_account_member follow. */
typedef struct trii_account_request {
    trii_remote_update head;
    uint32_t flags;
    /* PREPARE: not 0: the accounts of all these, of which the head's is the first, become one, and
     * COMMIT updates with it. DROP: are dropped. */
    uint32_t n_members;
    double lr;        /* with TRII_ACCOUNT_LR */
    double factor[2]; /* COMMIT: what f32 and f64 gradients are multiplied by; 0 = 1 */
} trii_account_request;

typedef struct trii_account_member {
    trii_remote_key key;
    uint64_t n_backwards;
    double weight;
} trii_account_member;

typedef struct trii_remote_updated {
    uint32_t magic;
    uint32_t done;  /* PREPARE, COMMIT: an earlier attempt at this step has been committed */
    double squares; /* PREPARE, with TRII_ACCOUNT_NORM: the sum over all gradients */
} trii_remote_updated;

/* params[n]: what backwards find gradients of, in the order of trii_account_add; borrowed, as the
 * optimizer is, until destroy. Any thread. */
tri_status trii_accounts_create(tri_tensor *const *params, int n, tri_optimizer *optimizer,
                                tri_remote_versions versions,
                                trii_accounts **accounts_out) TRI_MUST_CHECK;
void trii_accounts_destroy(trii_accounts *accounts); /* any thread, the last call; NULL allowed */

/* Whether the gradients of a backward with this key are of use. If not, they need not be computed:
 * the module is in no remote optimizer, the step has been applied, or has failed here. */
bool trii_account_wants(const trii_accounts *accounts, const trii_remote_key *key);
/* Why the account is spoilt, if this step's is. */
tri_status trii_account_check(const trii_accounts *accounts,
                              const trii_remote_key *key) TRI_MUST_CHECK;
/* Within the context of a backward, before anything of it is recorded, if it is wanted: where
 * another pass begins, the sums of the one before are added first, so that the new gradients may be
 * written where those lie, and nothing is copied. May be left out. Errors: as of trii_account_add;
 * trii_account_added is told of them. */
tri_status trii_account_expect(trii_accounts *accounts, const trii_remote_key *key,
                               const trii_remote_order *order, trii_step *step) TRI_MUST_CHECK;
/**
 * Within the context of a backward, while its step is recorded: records what adds grads[n]
 * (NO_VALUE: the loss does not reach it) to the account, by values that are bound to tensors of the
 * account. Then the step is run, and trii_account_added says how that went; there is nothing else
 * of these accounts in between. OK, too, where the key is not wanted.
 *
 * Errors: INVALID_ARG (an order twice), NO_MEMORY, those of recording. The account is spoilt then,
 * and PREPARE says why.
 */
tri_status trii_account_add(trii_accounts *accounts, const trii_remote_key *key,
                            const trii_remote_order *order, trii_step *step,
                            const trii_vid *grads) TRI_MUST_CHECK;
/* status: of the run; if it is not OK, the account is spoilt, with the current error line. Called
 * after a failed trii_account_add, too. */
void trii_account_added(trii_accounts *accounts, const trii_remote_key *key, tri_status status);
/* A backward of this step fails before it gets that far. Keeps the current error line. */
void trii_account_spoil(trii_accounts *accounts, const trii_remote_key *key, tri_status status);

/* Within the context of a forward whose graph is kept, after its run: what its step has read of the
 * parameters stays as it is, with TRI_REMOTE_COPY. Costs a reference for each. */
void trii_accounts_keep_read(const trii_accounts *accounts, trii_step *step);
/* Within that context, before its backward runs: for TRI_REMOTE_STALE. */
void trii_accounts_read_again(const trii_accounts *accounts, trii_step *step);

/* What the requests do: message[bytes] is a trii_remote_update of this kind, and *reply_out what is
 * sent back. Errors of PREPARE: STATE (a backward is missing), why the account is spoilt; of
 * COMMIT: STATE (not prepared), those of the update, after which nothing has changed. */
tri_status trii_account_update(trii_accounts *accounts, const trii_remote_update *update,
                               size_t bytes, trii_remote_updated *reply_out) TRI_MUST_CHECK;
/* The trainer is lost: its accounts go, the number of its last step stays. */
void trii_accounts_forget(trii_accounts *accounts, const char *trainer, uint64_t incarnation);
/* The number of the trainer's last step that was committed here; 0 = none. */
int64_t trii_accounts_last_step(const trii_accounts *accounts, const char *trainer,
                                uint64_t incarnation, uint64_t optimizer);

#endif
