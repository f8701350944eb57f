/*
 * account_update.c - PREPARE, COMMIT and DROP: an account is complete, its gradients update the
 * parameters, or it is thrown away.
 *
 * PREPARE does all that can fail for other reasons than memory. COMMIT is a step of the optimizer
 * with the account's gradients in the place of the parameters' own. Parameters that graphs still
 * read get new memory in it (train/graph/values/keep_read.c); where the update fails they get the
 * old one back.
 */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "train/parallel/rpc/account_internal.h"

/* --- messages ------------------------------------------------------------- */

/* A request, and the accounts that it names. */
typedef struct update {
    trii_account_request request;
    trii_account_member alone; /* where the message lists none */
    const trii_account_member *members;
    int n;
} update;

static tri_status damaged(void)
{
    return TRII_FAIL(TRI_ERR_FORMAT, "a damaged message of a remote optimizer");
}

static bool is_ended(const trii_remote_key *key)
{
    return memchr(key->trainer, '\0', sizeof(key->trainer)) != NULL;
}

static tri_status read_update(const trii_remote_update *head, size_t bytes, update *u)
{
    if (bytes < sizeof(*head) || !is_ended(&head->key))
        return damaged();
    u->request = (trii_account_request){.head = *head};
    u->alone = (trii_account_member){head->key, head->n_backwards, 1};
    u->members = &u->alone;
    u->n = 1;
    if (bytes == sizeof(*head))
        return TRI_OK;
    if (bytes < sizeof(u->request))
        return damaged();
    memcpy(&u->request, head, sizeof(u->request));
    if (u->request.n_members > TRII_ACCOUNT_MEMBERS ||
        bytes != sizeof(u->request) + u->request.n_members * sizeof(u->alone))
        return damaged();
    if (u->request.n_members == 0)
        return TRI_OK;
    u->n = (int)u->request.n_members;
    u->members =
        (const trii_account_member *)(const void *)((const char *)head + sizeof(u->request));
    for (int i = 0; i < u->n; i++) {
        if (!is_ended(&u->members[i].key) || !isfinite(u->members[i].weight))
            return damaged();
    }
    return TRI_OK;
}

static bool is_done(const trii_accounts *a, const trii_remote_key *key)
{
    const trii_account *account = trii_account_find(a, key);

    return account != NULL && TRII_ACCOUNT_NUMBER(key->step) <= account->last;
}

/* --- PREPARE -------------------------------------------------------------- */

/* Its account, all of whose direct backwards have come. */
static tri_status complete(trii_accounts *a, const trii_account_member *member,
                           trii_account **account_out)
{
    trii_account *account;
    tri_status status = trii_account_open(a, &member->key, &account);

    if (status == TRI_OK && account == NULL)
        status = TRII_FAIL(TRI_ERR_STATE, "the step of %s has been given up already",
                           member->key.trainer);
    if (status != TRI_OK)
        return status;
    *account_out = account;
    if (account->status != TRI_OK)
        return trii_account_check(a, &member->key);
    if (account->n_direct != member->n_backwards)
        return TRII_FAIL(
            TRI_ERR_STATE,
            "gradients of %u of %llu backwards of %s are here (a worker in between was "
            "lost, or they were released)",
            account->n_direct, (unsigned long long)member->n_backwards, member->key.trainer);
    return TRI_OK;
}

/* The sum of the squares of all its gradients. */
static tri_status measure(trii_accounts *a, const trii_account *account, double *squares_out)
{
    trii_step *step = trii_step_current();
    trii_vid total = TRII_NO_VALUE;
    tri_status status = step != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    *squares_out = 0;
    if (account->total == NULL)
        return status;
    for (int i = 0; i < a->n && status == TRI_OK; i++) {
        a->vids[i] = TRII_NO_VALUE;
        if (account->total->has[i])
            status = trii_resolve(step, account->total->tensor[i], &a->vids[i]);
    }
    if (status == TRI_OK)
        status = trii_optim_square_sum(step, a->vids, a->n, &total);
    if (status != TRI_OK || total == TRII_NO_VALUE)
        return status;
    return tri_item_status(trii_handle_recorded(step, total), squares_out);
}

static tri_status finish_all(trii_accounts *a, const update *u, trii_remote_updated *reply)
{
    trii_account *members[TRII_ACCOUNT_MEMBERS];
    double weights[TRII_ACCOUNT_MEMBERS];
    tri_status status = u->n > 0 ? TRI_OK : damaged();

    for (int i = 0; i < u->n && status == TRI_OK; i++) {
        status = complete(a, &u->members[i], &members[i]);
        weights[i] = u->members[i].weight;
        for (int k = 0; k < i && status == TRI_OK; k++) {
            if (members[k] == members[i])
                status = damaged();
        }
    }
    for (int i = 0; i < u->n && status == TRI_OK; i++) {
        status = trii_account_finish(a, members[i]);
        if (status != TRI_OK)
            trii_account_ruin(a, members[i], status);
    }
    if (status == TRI_OK && (u->n > 1 || u->members[0].weight != 1))
        status = trii_accounts_merge(a, members, weights, u->n);
    if (status == TRI_OK && (u->request.flags & TRII_ACCOUNT_NORM) != 0)
        status = measure(a, members[0], &reply->squares);
    for (int i = 0; i < u->n && status == TRI_OK; i++)
        members[i]->prepared = true;
    if (status == TRI_OK && u->n > 0) {
        members[0]->has_lr = (u->request.flags & TRII_ACCOUNT_LR) != 0;
        members[0]->lr = u->request.lr;
    }
    return status;
}

/* Runs in the accounts' context, whose step begins and ends here. */
static tri_status in_context(trii_accounts *a,
                             tri_status (*run)(trii_accounts *, const update *,
                                               trii_remote_updated *),
                             const update *u, trii_remote_updated *reply)
{
    char line[TRII_ERR_BYTES];
    tri_status status = tri_context_enter(a->context), end;

    if (status != TRI_OK)
        return status;
    status = run(a, u, reply);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    end = tri_step_end_status();
    if (status != TRI_OK)
        trii_err_set("%s", line);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    (void)!tri_context_leave(); /* entered above */
    status = status != TRI_OK ? status : end;
    if (status != TRI_OK)
        trii_err_set("%s", line);
    return status;
}

static tri_status run_prepare(trii_accounts *a, const update *u, trii_remote_updated *reply)
{
    tri_status status = tri_optimizer_status(a->optimizer);

    if (status == TRI_OK && (u->request.flags & TRII_ACCOUNT_LR) != 0 &&
        !(isfinite(u->request.lr) && u->request.lr >= 0))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "a learning rate of %g", u->request.lr);
    if (status == TRI_OK && is_done(a, &u->members[0].key)) {
        reply->done = 1;
        return TRI_OK;
    }
    return status == TRI_OK ? in_context(a, finish_all, u, reply) : status;
}

/* --- COMMIT --------------------------------------------------------------- */

/* Memory for the new contents of parameters that graphs still read. */
static tri_status renew(trii_accounts *a)
{
    trii_step *step = trii_step_current();
    tri_status status = step != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int i = 0; i < a->optimizer->n_params && status == TRI_OK; i++) {
        if (a->given[i] != NULL)
            status = trii_tensor_renew(step, a->optimizer->params[i].tensor, &a->renewed[i]);
    }
    return status;
}

static tri_status give(trii_accounts *a, const trii_account *account, const double factor[2],
                       trii_given *given)
{
    const float narrow = (float)factor[0];
    tri_status status = TRI_OK;

    *given = (trii_given){.grads = a->given};
    for (int i = 0; i < a->optimizer->n_params; i++) {
        int place = a->place[i];

        a->given[i] = account->total != NULL && place >= 0 && account->total->has[place]
                          ? account->total->tensor[place]
                          : NULL;
        a->renewed[i] = (trii_renewed){0};
    }
    for (int k = 0; k < 2 && status == TRI_OK; k++) {
        if (factor[k] == 0 || factor[k] == 1)
            continue;
        status = k == 0 ? tri_tensor_copy_in(a->factor[0], &narrow, sizeof(narrow))
                        : tri_tensor_copy_in(a->factor[1], &factor[1], sizeof(factor[1]));
        given->factor[k] = a->factor[k];
    }
    return status;
}

static tri_status apply(trii_accounts *a, const update *u, trii_remote_updated *reply)
{
    const trii_account *account = trii_account_find(a, &u->members[0].key);
    trii_given given;
    tri_status status = give(a, account, u->request.factor, &given);

    (void)reply;
    if (account->has_lr)
        tri_optimizer_set_lr(a->optimizer, account->lr);
    if (status == TRI_OK && account->total == NULL)
        return TRI_OK; /* the loss does not reach it */
    if (status == TRI_OK && a->versions == TRI_REMOTE_COPY)
        status = renew(a);
    if (status == TRI_OK)
        status = trii_optimizer_step_given(a->optimizer, &given);
    for (int i = 0; i < a->optimizer->n_params; i++)
        trii_tensor_renew_end(a->optimizer->params[i].tensor, &a->renewed[i], status == TRI_OK);
    return status;
}

static tri_status run_commit(trii_accounts *a, const update *u, trii_remote_updated *reply)
{
    tri_status status = TRI_OK;

    if (is_done(a, &u->members[0].key)) {
        reply->done = 1;
        return TRI_OK;
    }
    for (int i = 0; i < u->n && status == TRI_OK; i++) {
        const trii_account *account = trii_account_find(a, &u->members[i].key);

        if (account == NULL || account->step != u->members[i].key.step || !account->prepared)
            status = TRII_FAIL(TRI_ERR_STATE, "no gradients of %s are ready to be used",
                               u->members[i].key.trainer);
    }
    if (status == TRI_OK)
        status = in_context(a, apply, u, reply);
    for (int i = 0; i < u->n && status == TRI_OK; i++) {
        trii_account *account = trii_account_find(a, &u->members[i].key);

        account->last = TRII_ACCOUNT_NUMBER(account->step);
        trii_account_close(a, account);
    }
    return status;
}

/* --- all ------------------------------------------------------------------ */

static void run_drop(trii_accounts *a, const update *u)
{
    for (int i = 0; i < u->n; i++) {
        trii_account *account = trii_account_find(a, &u->members[i].key);

        /* its attempt stays known, so that nothing more of it is accepted */
        if (account != NULL && account->step == u->members[i].key.step) {
            (void)TRII_FAIL(TRI_ERR_STATE, "%s has given up the step", account->trainer);
            trii_account_ruin(a, account, TRI_ERR_STATE);
        }
    }
}

tri_status trii_account_update(trii_accounts *a, const trii_remote_update *head, size_t bytes,
                               trii_remote_updated *reply_out)
{
    update u;
    tri_status status = read_update(head, bytes, &u);

    *reply_out = (trii_remote_updated){.magic = TRII_REMOTE_MAGIC};
    if (status != TRI_OK)
        return status;
    switch (head->kind) {
    case TRII_REMOTE_PREPARE:
        return run_prepare(a, &u, reply_out);
    case TRII_REMOTE_COMMIT:
        return run_commit(a, &u, reply_out);
    case TRII_REMOTE_DROP:
        run_drop(a, &u);
        return TRI_OK;
    default:
        return damaged();
    }
}
