/*
 * rdzv_wait.c - waiting for what other members of a round write, while agents that are lost are
 * dropped and the round may be over. Called by rdzv_exchange.c, by the handlers while they form a
 * round, and by the thread for agents that are lost.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "store/exchange.h"

/* Ranks of the round in which it was lost may be others by now, so it goes by its name. Who was
 * stopped for a while and is alone for that reason does not harm a round that is on without it. */
tri_status trii_rdzv_drop(trii_rendezvous *r, const trii_rdzv_order *o, trii_rdzv_news *news_out)
{
    int64_t n;
    tri_status status;

    *news_out = (trii_rdzv_news){.gone = o->number};
    snprintf(news_out->why, sizeof(news_out->why), "%s", o->why);
    if (o->round == r->round.number)
        r->gone = o->number;
    status = r->handler->drop(r, o, news_out);
    if (status == TRI_OK && r->kv != NULL && news_out->gone >= 0) {
        trii_rdzv_broadcast(r->kv, r->round.number, r->round.group_size, news_out);
        status = tri_store_num_keys(r->base, &n);
    }
    return status;
}

void trii_rdzv_drop_lost(trii_rendezvous *r)
{
    trii_rdzv_order lost;
    trii_rdzv_news news;

    for (;;) {
        trii_mutex_lock(&r->mutex);
        lost.kind = TRII_ORDER_NONE;
        for (int i = 0; i < r->n_orders && lost.kind == TRII_ORDER_NONE; i++) {
            if (r->orders[i].kind != TRII_ORDER_LOST)
                continue;
            lost = r->orders[i];
            memmove(r->orders + i, r->orders + i + 1,
                    (size_t)(--r->n_orders - i) * sizeof(*r->orders));
        }
        trii_mutex_unlock(&r->mutex);
        if (lost.kind == TRII_ORDER_NONE)
            return;
        /* Without the store all ends anyway, as whoever needs it next will see. */
        if (!lost.serves && trii_rdzv_drop(r, &lost, &news) == TRI_OK)
            trii_rdzv_answered(r);
    }
}

/* The keys and the news of the round, in one exchange. */
static tri_status look_once(trii_rendezvous *r, const char *const *keys, int n, char **values_out,
                            bool *over_out)
{
    trii_store_call *calls = trii_alloc((size_t)n + 1, sizeof(*calls), "rendezvous");
    trii_rdzv_news news;
    char news_name[64];
    tri_status status;

    if (calls == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < n; i++)
        calls[i] = (trii_store_call){.kind = TRII_STORE_READ, .key = keys[i]};
    trii_rdzv_news_key(news_name, sizeof(news_name), r->round.number, -1);
    calls[n] = (trii_store_call){.kind = TRII_STORE_READ, .key = news_name};
    status =
        trii_store_exchange(r->kv, calls, n + !r->handler->fixed_hosts, NULL, 0, 0, NULL, NULL);
    *over_out = status == TRI_OK && calls[n].value != NULL;
    if (*over_out)
        trii_rdzv_take_news(r, calls[n].value, &news);
    for (int i = 0; i < n; i++)
        values_out[i] = status == TRI_OK ? calls[i].value : NULL;
    tri_store_free(calls[n].value);
    trii_free(calls);
    return status;
}

static void free_values(char **values, int n)
{
    for (int i = 0; i < n; i++) {
        tri_store_free(values[i]);
        values[i] = NULL;
    }
}

static bool are_there(char *const *values, int n)
{
    int there = 0;

    while (there < n && values[there] != NULL)
        there++;
    return there == n;
}

/* Of many keys those that are needed are waited for one by one: each look costs the store all that
 * it reads. */
#define MANY_KEYS 64

tri_status trii_rdzv_read_keys(trii_rendezvous *r, const char *const *keys, int n, int n_needed,
                               int64_t deadline_ns, char **values_out,
                               void (*waits)(trii_rendezvous *r, int key))
{
    r->members_ns = trii_rdzv_now(r);
    for (int i = 0; n > MANY_KEYS && i < n_needed; i++) {
        char *value = NULL;
        tri_status status;

        if (waits != NULL)
            waits(r, i);
        status = trii_rdzv_read_keys(r, &keys[i], 1, 1, deadline_ns, &value, NULL);

        tri_store_free(value);
        if (status != TRI_OK)
            return status;
    }
    for (;;) {
        bool over;
        tri_status status = look_once(r, keys, n, values_out, &over);

        if (status != TRI_OK)
            return status;
        trii_rdzv_answered(r);
        if (are_there(values_out, n_needed))
            return TRI_OK;
        for (int i = 0; i < n_needed && waits != NULL; i++) {
            if (values_out[i] == NULL) {
                waits(r, i);
                break;
            }
        }
        free_values(values_out, n);
        if (trii_rdzv_now(r) > deadline_ns)
            return TRI_ERR_TIMEOUT;
        if (trii_rdzv_interrupted(r))
            return TRI_ERR_STATE;
        if (over)
            return TRI_INPROGRESS; /* the round is over already */
        status = trii_rdzv_check_own(r);
        if (status != TRI_OK)
            return status;
        trii_rdzv_drop_lost(r);
        status = r->handler->check_members(r);
        if (status != TRI_OK)
            return status;
        trii_rdzv_pause_about(r, 5 + r->round.group_size / 4);
    }
}
