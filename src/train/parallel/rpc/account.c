/*
 * account.c - the accounts of a served module: which are open, what becomes of them. Sums are
 * account_sum.c's, and updates account_update.c's.
 *
 * An entry stays when its account is gone, since it has the number of the trainer's last step;
 * beyond MAX_TRAINERS of them the one that was used longest ago goes.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/parallel/rpc/account_internal.h"

#define MAX_TRAINERS 1024

/* --- life ----------------------------------------------------------------- */

tri_status trii_accounts_create(tri_tensor *const *params, int n, tri_optimizer *optimizer,
                                tri_remote_versions versions, trii_accounts **accounts_out)
{
    trii_accounts *a = trii_alloc(1, sizeof(*a), "accounts of gradients");
    tri_status status;

    if (a == NULL)
        return TRI_ERR_NO_MEMORY;
    a->params = params;
    a->n = n;
    a->optimizer = optimizer;
    a->versions = versions;
    status = trii_accounts_make_room(a);
    if (status == TRI_OK)
        status = tri_context_create(&a->context);
    if (status != TRI_OK) {
        trii_accounts_destroy(a);
        return status;
    }
    *accounts_out = a;
    return TRI_OK;
}

static void forget_why(trii_account *account)
{
    trii_free(account->why);
    account->why = NULL;
    account->status = TRI_OK;
}

/* The account is as when nothing of a step has come. */
static void empty(trii_accounts *a, trii_account *account)
{
    while (account->late != NULL) {
        trii_late *late = account->late;

        account->late = late->next;
        trii_sums_give_back(a, late->sums);
        trii_free(late);
    }
    trii_sums_give_back(a, account->pass);
    trii_sums_give_back(a, account->total);
    account->pass = account->total = NULL;
    account->n_direct = 0;
    account->prepared = account->merged = false;
    account->has_lr = false;
    forget_why(account);
}

void trii_account_close(trii_accounts *a, trii_account *account)
{
    empty(a, account);
    account->step = 0;
}

void trii_accounts_destroy(trii_accounts *a)
{
    if (a == NULL)
        return;
    while (a->first != NULL) {
        trii_account *account = a->first;

        a->first = account->next;
        empty(a, account);
        trii_free(account);
    }
    trii_accounts_drop_room(a);
    tri_context_destroy(a->context);
    trii_free(a);
}

/* --- finding -------------------------------------------------------------- */

static bool belongs(const trii_account *account, const char *trainer, uint64_t incarnation)
{
    return account->incarnation == incarnation && strcmp(account->trainer, trainer) == 0;
}

trii_account *trii_account_find(const trii_accounts *a, const trii_remote_key *key)
{
    for (trii_account *account = a->first; account != NULL; account = account->next) {
        if (account->optimizer == key->optimizer &&
            belongs(account, key->trainer, key->incarnation))
            return account;
    }
    return NULL;
}

/* Not in the list any more. */
static void evict(trii_accounts *a)
{
    trii_account **oldest = NULL, *out;

    for (trii_account **at = &a->first; *at != NULL; at = &(*at)->next) {
        if (oldest == NULL || (*at)->used < (*oldest)->used)
            oldest = at;
    }
    if (oldest == NULL)
        return;
    out = *oldest;
    *oldest = out->next;
    a->n_accounts--;
    empty(a, out);
    trii_free(out);
}

static trii_account *add(trii_accounts *a, const trii_remote_key *key)
{
    trii_account *account = trii_alloc(1, sizeof(*account), "account of gradients");

    if (account == NULL)
        return NULL;
    if (a->n_accounts == MAX_TRAINERS)
        evict(a);
    snprintf(account->trainer, sizeof(account->trainer), "%.*s", (int)sizeof(key->trainer) - 1,
             key->trainer);
    account->incarnation = key->incarnation;
    account->optimizer = key->optimizer;
    account->next = a->first;
    a->first = account;
    a->n_accounts++;
    return account;
}

/* A later attempt, or a later step, takes the place of what is open. */
tri_status trii_account_open(trii_accounts *a, const trii_remote_key *key,
                             trii_account **account_out)
{
    trii_account *account = trii_account_find(a, key);

    *account_out = NULL;
    if (key->optimizer == 0 || TRII_ACCOUNT_NUMBER(key->step) < 1)
        return TRI_OK;
    if (account == NULL)
        account = add(a, key);
    if (account == NULL)
        return TRI_ERR_NO_MEMORY;
    account->used = ++a->clock;
    if (TRII_ACCOUNT_NUMBER(key->step) <= account->last || key->step < account->step)
        return TRI_OK;
    if (key->step > account->step) {
        empty(a, account);
        account->step = key->step;
    }
    *account_out = account;
    return TRI_OK;
}

bool trii_account_wants(const trii_accounts *a, const trii_remote_key *key)
{
    const trii_account *account = trii_account_find(a, key);

    if (key->optimizer == 0 || TRII_ACCOUNT_NUMBER(key->step) < 1)
        return false;
    if (account == NULL || key->step > account->step)
        return account == NULL || TRII_ACCOUNT_NUMBER(key->step) > account->last;
    return key->step == account->step && account->status == TRI_OK;
}

/* --- what goes wrong ------------------------------------------------------ */

tri_status trii_account_check(const trii_accounts *a, const trii_remote_key *key)
{
    const trii_account *account = trii_account_find(a, key);

    if (account == NULL || account->step != key->step || account->status == TRI_OK)
        return TRI_OK;
    return TRII_FAIL(account->status, "%s", account->why != NULL ? account->why : "out of memory");
}

void trii_account_ruin(trii_accounts *a, trii_account *account, tri_status status)
{
    char *why;

    if (account->status != TRI_OK)
        return;
    why = trii_strdup(tri_last_error(), "error line");
    empty(a, account);
    account->status = status;
    account->why = why;
}

void trii_account_spoil(trii_accounts *a, const trii_remote_key *key, tri_status status)
{
    char line[TRII_ERR_BYTES];
    trii_account *account;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    /* without memory there is no account, which PREPARE will miss */
    if (trii_account_open(a, key, &account) == TRI_OK && account != NULL) {
        trii_err_set("%s", line);
        trii_account_ruin(a, account, status);
    }
    trii_err_set("%s", line);
}

void trii_accounts_forget(trii_accounts *a, const char *trainer, uint64_t incarnation)
{
    for (trii_account *account = a->first; account != NULL; account = account->next) {
        if (belongs(account, trainer, incarnation))
            trii_account_close(a, account);
    }
}

int64_t trii_accounts_last_step(const trii_accounts *a, const char *trainer, uint64_t incarnation,
                                uint64_t optimizer)
{
    for (const trii_account *account = a->first; account != NULL; account = account->next) {
        if (account->optimizer == optimizer && belongs(account, trainer, incarnation))
            return account->last;
    }
    return 0;
}

/* --- what graphs have read ------------------------------------------------ */

void trii_accounts_keep_read(const trii_accounts *a, trii_step *step)
{
    for (int i = 0; i < a->n && a->versions == TRI_REMOTE_COPY; i++)
        trii_step_keep_read(step, a->params[i]);
}

void trii_accounts_read_again(const trii_accounts *a, trii_step *step)
{
    for (int i = 0; i < a->n && a->versions == TRI_REMOTE_STALE; i++)
        trii_step_read_again(step, a->params[i]);
}
