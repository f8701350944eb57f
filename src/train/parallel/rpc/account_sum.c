/*
 * account_sum.c - adds gradients in the order of their backwards.
 *
 * A direct backward whose turn it is adds within its own step: the value is bound to a tensor of
 * the account, so that the first one is written there by the kernel that computes it, and nothing
 * is copied. What comes early, and what comes through other workers, whose number nobody knows
 * before the end, is kept apart until it can be added.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/ops/rules.h"
#include "train/graph/ops/table.h"
#include "train/parallel/rpc/account_internal.h"

/* --- sums ----------------------------------------------------------------- */

/* The tensor in which the sum of parameter i is, on its device. */
static tri_status prepare(const trii_accounts *a, trii_sums *s, int i)
{
    const tri_tensor *param = a->params[i];
    tri_status status;

    if (s->tensor[i] != NULL && s->tensor[i]->device != param->device) {
        tri_tensor_unref(s->tensor[i]);
        s->tensor[i] = NULL;
    }
    if (s->tensor[i] != NULL)
        return TRI_OK;
    status =
        trii_tensor_create(param->dtype, param->shape, param->ndim, param->device, &s->tensor[i]);
    if (status == TRI_OK)
        s->tensor[i]->is_grad = true;
    return status;
}

/* The sum as a value of this step, whichever step has written it. */
static tri_status read_sum(trii_step *step, tri_tensor *sum, trii_vid *value_out)
{
    trii_step_read_again(step, sum);
    return trii_resolve(step, sum, value_out);
}

/* Records the sum of parameter i plus the value. */
static tri_status put(const trii_accounts *a, trii_step *step, trii_sums *s, int i, trii_vid value)
{
    trii_vid old = TRII_NO_VALUE;
    tri_status status = prepare(a, s, i);

    if (status == TRI_OK && s->has[i])
        status = read_sum(step, s->tensor[i], &old);
    if (status == TRI_OK && s->has[i])
        status = trii_rec2(step, &trii_op_add, old, value, &value);
    if (status != TRI_OK)
        return status;
    trii_step_read_again(step, s->tensor[i]);
    status = trii_bind(step, value, s->tensor[i]);
    s->has[i] = s->has[i] || status == TRI_OK;
    return status;
}

/* Adds sums to others, or takes their place. They are gone afterwards; what was recorded still
 * reads their tensors before anybody writes these. */
static tri_status absorb(trii_accounts *a, trii_step *step, trii_sums **into_io,
                         trii_sums **from_io)
{
    trii_sums *from = *from_io;
    tri_status status = TRI_OK;

    if (from == NULL)
        return TRI_OK;
    if (*into_io == NULL) {
        *into_io = from;
        *from_io = NULL;
        return TRI_OK;
    }
    for (int i = 0; i < a->n && status == TRI_OK; i++) {
        trii_vid value;

        if (!from->has[i])
            continue;
        status = read_sum(step, from->tensor[i], &value);
        if (status == TRI_OK)
            status = put(a, step, *into_io, i, value);
    }
    if (status == TRI_OK) {
        trii_sums_give_back(a, from);
        *from_io = NULL;
    }
    return status;
}

/* --- the order ------------------------------------------------------------ */

static int by_number(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

/* Direct ones first. */
static int compare(const trii_remote_order *a, const trii_remote_order *b)
{
    int order = by_number(a->n_nested > 0, b->n_nested > 0);

    if (order == 0 && a->n_nested == 0)
        return by_number(a->seq, b->seq);
    order = order != 0 ? order : by_number(a->pass, b->pass);
    order = order != 0 ? order : by_number(a->module, b->module);
    order = order != 0 ? order : by_number(a->seq, b->seq);
    for (uint32_t i = 0; order == 0 && i < a->n_nested && i < b->n_nested; i++)
        order = by_number(a->nested[i], b->nested[i]);
    return order != 0 ? order : by_number(a->n_nested, b->n_nested);
}

static tri_status twice(const trii_remote_order *order)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "backward %u of a step came twice (pass %u, module %u, %u calls deep)",
                     order->seq, order->pass, order->module, order->n_nested + 1);
}

static tri_status put_all(const trii_accounts *a, trii_step *step, trii_sums *s,
                          const trii_vid *grads)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < a->n && status == TRI_OK; i++) {
        if (grads[i] != TRII_NO_VALUE)
            status = put(a, step, s, i, grads[i]);
    }
    return status;
}

static tri_status keep(trii_accounts *a, trii_account *account, const trii_remote_order *order,
                       trii_step *step, const trii_vid *grads)
{
    trii_late **at = &account->late, *late;
    int where = 1;

    while (*at != NULL && (where = compare(order, &(*at)->order)) > 0)
        at = &(*at)->next;
    if (*at != NULL && where == 0)
        return twice(order);
    late = trii_alloc(1, sizeof(*late), "a gradient that is early");
    if (late == NULL)
        return TRI_ERR_NO_MEMORY;
    late->sums = trii_sums_take(a);
    if (late->sums == NULL) {
        trii_free(late);
        return TRI_ERR_NO_MEMORY;
    }
    late->order = *order;
    late->next = *at;
    *at = late;
    return put_all(a, step, late->sums, grads);
}

/* What one pass has added up joins those before it. */
static tri_status end_pass(trii_accounts *a, trii_account *account, uint32_t pass, trii_step *step)
{
    return account->pass != NULL && pass != account->pass_now
               ? absorb(a, step, &account->total, &account->pass)
               : TRI_OK;
}

/* The next direct one. */
static tri_status add_next(trii_accounts *a, trii_account *account, uint32_t pass, trii_step *step,
                           const trii_vid *grads)
{
    tri_status status = end_pass(a, account, pass, step);

    if (status == TRI_OK && account->pass == NULL)
        account->pass = trii_sums_take(a);
    if (status == TRI_OK && account->pass == NULL)
        status = TRI_ERR_NO_MEMORY;
    if (status != TRI_OK)
        return status;
    account->pass_now = pass;
    account->n_direct++;
    return put_all(a, step, account->pass, grads);
}

/* Those that were early and whose turn it is now. */
static tri_status add_early(trii_accounts *a, trii_account *account, trii_step *step)
{
    tri_status status = TRI_OK;

    for (trii_late *late = account->late; late != NULL && status == TRI_OK; late = late->next) {
        if (late->order.n_nested > 0 || late->order.seq != account->n_direct)
            break;
        for (int i = 0; i < a->n && status == TRI_OK; i++) {
            a->vids[i] = TRII_NO_VALUE;
            if (late->sums->has[i])
                status = read_sum(step, late->sums->tensor[i], &a->vids[i]);
        }
        late->added = true;
        if (status == TRI_OK)
            status = add_next(a, account, late->order.pass, step, a->vids);
    }
    return status;
}

tri_status trii_account_expect(trii_accounts *a, const trii_remote_key *key,
                               const trii_remote_order *order, trii_step *step)
{
    trii_account *account;
    tri_status status = trii_account_open(a, key, &account);

    if (status != TRI_OK || account == NULL || account->status != TRI_OK || account->prepared ||
        order->n_nested > 0 || order->seq != account->n_direct)
        return status;
    tri_no_grad_begin();
    status = end_pass(a, account, order->pass, step);
    tri_no_grad_end();
    return status;
}

static tri_status add(trii_accounts *a, trii_account *account, const trii_remote_order *order,
                      trii_step *step, const trii_vid *grads)
{
    tri_status status;

    if (account->prepared)
        return TRII_FAIL(TRI_ERR_STATE, "a backward came after the end of its step");
    if (order->n_nested > TRII_REMOTE_LEVELS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "a backward is %u calls deep", order->n_nested + 1);
    if (order->n_nested > 0 || order->seq > account->n_direct)
        return keep(a, account, order, step, grads);
    if (order->seq < account->n_direct)
        return twice(order);
    status = add_next(a, account, order->pass, step, grads);
    return status == TRI_OK ? add_early(a, account, step) : status;
}

tri_status trii_account_add(trii_accounts *a, const trii_remote_key *key,
                            const trii_remote_order *order, trii_step *step, const trii_vid *grads)
{
    trii_account *account;
    tri_status status = trii_account_open(a, key, &account);

    if (status != TRI_OK || account == NULL || account->status != TRI_OK)
        return status;
    tri_no_grad_begin();
    status = add(a, account, order, step, grads);
    tri_no_grad_end();
    if (status != TRI_OK)
        trii_account_ruin(a, account, status);
    return status;
}

void trii_account_added(trii_accounts *a, const trii_remote_key *key, tri_status status)
{
    trii_account *account = trii_account_find(a, key);

    if (account == NULL || account->step != key->step)
        return;
    if (status != TRI_OK) {
        trii_account_ruin(a, account, status);
        return;
    }
    while (account->late != NULL && account->late->added) {
        trii_late *late = account->late;

        account->late = late->next;
        trii_sums_give_back(a, late->sums);
        trii_free(late);
    }
}

/* --- the end -------------------------------------------------------------- */

tri_status trii_account_finish(trii_accounts *a, trii_account *account)
{
    trii_step *step = trii_step_current();
    tri_status status = step != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    tri_no_grad_begin();
    if (status == TRI_OK)
        status = absorb(a, step, &account->total, &account->pass);
    while (status == TRI_OK && account->late != NULL) {
        trii_late *late = account->late;

        status = absorb(a, step, &account->total, &late->sums);
        if (status != TRI_OK)
            break;
        account->late = late->next;
        trii_free(late);
    }
    tri_no_grad_end();
    return status == TRI_OK ? trii_step_run(step) : status;
}

/* What a sum over members needs. */
typedef struct merger {
    trii_step *step;
    trii_account *const *members;
    const double *weights;
    int i; /* the parameter */
} merger;

static tri_status weighted(const merger *m, int r, trii_vid *value_out)
{
    const trii_sums *total = m->members[r]->total;
    tri_status status;

    *value_out = TRII_NO_VALUE;
    if (total == NULL || !total->has[m->i])
        return TRI_OK;
    status = read_sum(m->step, total->tensor[m->i], value_out);
    if (status == TRI_OK && m->weights[r] != 1)
        status = trii_rec_scaled(m->step, *value_out, m->weights[r], value_out);
    return status;
}

/* The canonical order of sums over ranks: a balanced tree, of members [first, first + n). */
static tri_status tree(const merger *m, int first, int n, trii_vid *value_out)
{
    trii_vid left, right;
    int half = 1;
    tri_status status;

    if (n == 1)
        return weighted(m, first, value_out);
    while (half * 2 < n)
        half *= 2;
    status =
        tree(m, first, half, &left); // NOLINT(misc-no-recursion): as deep as the logarithm of n
    if (status == TRI_OK)
        status = tree(m, first + half, n - half, &right); // NOLINT(misc-no-recursion)
    if (status != TRI_OK)
        return status;
    *value_out = left != TRII_NO_VALUE ? left : right;
    if (left != TRII_NO_VALUE && right != TRII_NO_VALUE)
        status = trii_rec2(m->step, &trii_op_add, left, right, value_out);
    return status;
}

tri_status trii_accounts_merge(trii_accounts *a, trii_account *const *members,
                               const double *weights, int n)
{
    merger m = {.step = trii_step_current(), .members = members, .weights = weights};
    trii_sums *sum = m.step != NULL ? trii_sums_take(a) : NULL;
    tri_status status = sum != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    tri_no_grad_begin();
    for (m.i = 0; m.i < a->n && status == TRI_OK; m.i++) {
        trii_vid value;

        status = tree(&m, 0, n, &value);
        if (status == TRI_OK && value != TRII_NO_VALUE)
            status = put(a, m.step, sum, m.i, value);
    }
    tri_no_grad_end();
    if (status == TRI_OK)
        status = trii_step_run(m.step);
    if (status != TRI_OK) {
        trii_sums_give_back(a, sum);
        return status;
    }
    for (int r = 0; r < n; r++) {
        trii_sums_give_back(a, members[r]->total);
        members[r]->total = r == 0 ? sum : NULL;
    }
    return TRI_OK;
}
