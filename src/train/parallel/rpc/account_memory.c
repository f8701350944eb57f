/*
 * account_memory.c - memory of the accounts of a served module. Tensors of sums are used again, by
 * whichever account needs some next.
 */
#include <string.h>

#include "base/alloc.h"
#include "train/parallel/rpc/account_internal.h"

#define MAX_IDLE 4 /* sums that are kept for later */

/* --- sums ----------------------------------------------------------------- */

static void sums_free(trii_sums *s, int n)
{
    for (int i = 0; s->tensor != NULL && i < n; i++)
        tri_tensor_unref(s->tensor[i]);
    trii_free(s->tensor);
    trii_free(s->has);
    trii_free(s);
}

void trii_sums_give_back(trii_accounts *a, trii_sums *s)
{
    if (s == NULL)
        return;
    if (a->n_idle == MAX_IDLE) {
        sums_free(s, a->n);
        return;
    }
    memset(s->has, 0, (size_t)a->n * sizeof(*s->has));
    s->next = a->idle;
    a->idle = s;
    a->n_idle++;
}

static void free_idle(trii_accounts *a)
{
    while (a->idle != NULL) {
        trii_sums *s = a->idle;

        a->idle = s->next;
        sums_free(s, a->n);
    }
    a->n_idle = 0;
}

trii_sums *trii_sums_take(trii_accounts *a)
{
    trii_sums *s = a->idle;

    if (s != NULL) {
        a->idle = s->next;
        a->n_idle--;
        s->next = NULL;
        return s;
    }
    s = trii_alloc(1, sizeof(*s), "sums of gradients");
    if (s == NULL)
        return NULL;
    s->tensor = trii_alloc((size_t)a->n, sizeof(tri_tensor *), "sums of gradients");
    s->has = trii_alloc((size_t)a->n, sizeof(*s->has), "sums of gradients");
    if (s->tensor != NULL && s->has != NULL)
        return s;
    sums_free(s, a->n);
    return NULL;
}

/* --- the rest ------------------------------------------------------------- */

static int place_of(const trii_accounts *a, const tri_tensor *param)
{
    for (int i = 0; i < a->n; i++) {
        if (a->params[i] == param)
            return i;
    }
    return -1;
}

tri_status trii_accounts_make_room(trii_accounts *a)
{
    size_t n = (size_t)a->optimizer->n_params;
    tri_status status = TRI_OK;

    a->vids = trii_alloc((size_t)a->n, sizeof(*a->vids), "accounts of gradients");
    a->place = trii_alloc(n, sizeof(*a->place), "accounts of gradients");
    a->given = trii_alloc(n, sizeof(tri_tensor *), "accounts of gradients");
    a->renewed = trii_alloc(n, sizeof(*a->renewed), "accounts of gradients");
    if (a->vids == NULL || a->place == NULL || a->given == NULL || a->renewed == NULL)
        return TRI_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        a->place[i] = place_of(a, a->optimizer->params[i].tensor);
    for (int k = 0; k < 2 && status == TRI_OK; k++)
        status = trii_tensor_create(k == 0 ? TRI_DTYPE_F32 : TRI_DTYPE_F64, NULL, 0, TRI_CPU(0),
                                    &a->factor[k]);
    return status;
}

void trii_accounts_drop_room(trii_accounts *a)
{
    free_idle(a);
    for (int k = 0; k < 2; k++)
        tri_tensor_unref(a->factor[k]);
    trii_free(a->vids);
    trii_free(a->place);
    trii_free(a->given);
    trii_free(a->renewed);
}
