/*
 * rdzv_wait.c - what the rendezvous thread waits for: orders of the agent, news, and keys that
 * other members of a round write, while agents that are lost are dropped and the round may be over;
 * and what it says, in events. Called by every file of the room that waits or has something to say.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "store/exchange.h"

void trii_rdzv_enter(trii_rendezvous *r, trii_rdzv_phase phase)
{
    trii_rdzv_phase from = r->phase;

    if (from == phase)
        return;
    assert(trii_rdzv_phase_may(from, phase));
    TRII_LOG(TRII_LOG_TRACE, "launch", "rendezvous: %s, was %s", trii_rdzv_phase_name(phase),
             trii_rdzv_phase_name(from));
    r->phase = phase;
}

bool trii_rdzv_next_order(trii_rendezvous *r, trii_rdzv_order *order_out)
{
    bool any;

    trii_mutex_lock(&r->mutex);
    any = r->n_orders > 0;
    if (any) {
        *order_out = r->orders[0];
        memmove(r->orders, r->orders + 1, (size_t)--r->n_orders * sizeof(*r->orders));
    }
    trii_mutex_unlock(&r->mutex);
    return any;
}

void trii_rdzv_emit(trii_rendezvous *r, const trii_rdzv_event *event)
{
    trii_rdzv_event_list *item = trii_alloc(1, sizeof(*item), "rendezvous");
    trii_rdzv_event_list **link;

    if (item == NULL)
        return; /* so much memory is always there, or nothing works */
    item->event = *event;
    trii_mutex_lock(&r->mutex);
    for (link = &r->events; *link != NULL;)
        link = &(*link)->next;
    *link = item;
    r->time->notify(&r->changed);
    trii_mutex_unlock(&r->mutex);
    trii_wakeup_signal(r->event_fd);
}

void trii_rdzv_emit_kind(trii_rendezvous *r, trii_rdzv_event_kind kind, bool counts,
                         const char *why)
{
    trii_rdzv_event event = {.kind = kind, .counts = counts, .gone = -1};

    snprintf(event.why, sizeof(event.why), "%s", why);
    trii_rdzv_emit(r, &event);
}

void trii_rdzv_note(trii_rendezvous *r, const char *text)
{
    trii_rdzv_emit_kind(r, TRII_RDZV_NOTE, false, text);
}

bool trii_rdzv_pause(trii_rendezvous *r, int64_t deadline_ns)
{
    bool notified;

    trii_mutex_lock(&r->mutex);
    while (r->n_orders == 0 && r->watch != TRII_WATCH_NEWS &&
           r->time->wait_until(&r->changed, &r->mutex, deadline_ns))
        ;
    notified = r->n_orders > 0 || r->watch == TRII_WATCH_NEWS;
    trii_mutex_unlock(&r->mutex);
    return notified;
}

void trii_rdzv_pause_about(trii_rendezvous *r, int64_t ms)
{
    if (r->jitter == 0) {
        r->jitter = (uint64_t)r->self.pid * 31 + (uint64_t)r->self.local_id;
        for (const char *c = r->self.addr; *c != '\0'; c++)
            r->jitter = r->jitter * 31 + (unsigned char)*c;
    }
    r->jitter = r->jitter * 6364136223846793005u + 1442695040888963407u;
    ms = ms * 9 / 10 + (int64_t)((r->jitter >> 33) % (uint64_t)(ms / 5 + 1));
    trii_rdzv_pause(r, trii_rdzv_deadline(r, ms));
}

bool trii_rdzv_interrupted(trii_rendezvous *r)
{
    bool is = false;

    trii_mutex_lock(&r->mutex);
    for (int i = 0; i < r->n_orders; i++)
        is = is || r->orders[i].kind == TRII_ORDER_LEAVE || r->orders[i].kind == TRII_ORDER_CLOSE ||
             r->orders[i].kind == TRII_ORDER_QUIT;
    trii_mutex_unlock(&r->mutex);
    return is;
}

/* --- agents that are lost ------------------------------------------------- */

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

/* --- keys of a round ------------------------------------------------------ */

/* PyTorch's server ends the waits of torchrun's agents for a key that we find missing; ours and
 * etcd do not. */
static bool may_torch_serve(const trii_rendezvous *r)
{
    return r->handler->server != NULL && !r->ours_serves;
}

/* The keys and the news of the round, in one exchange where that is safe. */
static tri_status look_once(trii_rendezvous *r, const char *const *keys, int n, char **values_out,
                            bool *over_out)
{
    trii_store_call *calls =
        trii_alloc((size_t)n + 1, sizeof(*calls) + sizeof(*keys), "rendezvous");
    const char **names = (const char **)(calls + n + 1); /* theirs, and that of the news */
    int n_names = n + !r->handler->fixed_hosts;
    trii_rdzv_news news;
    char news_name[64];
    tri_status status;

    if (calls == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(names, keys, (size_t)n * sizeof(*keys));
    trii_rdzv_news_key(news_name, sizeof(news_name), r->round.number, -1);
    names[n] = news_name;
    for (int i = 0; i <= n; i++)
        calls[i] = (trii_store_call){.kind = TRII_STORE_READ, .key = names[i]};
    status = may_torch_serve(r)
                 ? trii_store_peek(r->kv, names, calls, n_names)
                 : trii_store_exchange(r->kv, calls, n_names, NULL, 0, 0, NULL, NULL);
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

/* Until the first n_needed are there. */
static tri_status await_keys(trii_rendezvous *r, const char *const *keys, int n, int n_needed,
                             int64_t deadline_ns, char **values_out,
                             void (*waits)(trii_rendezvous *r, int key))
{
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
        status = await_keys(r, &keys[i], 1, 1, deadline_ns, &value, NULL);
        tri_store_free(value);
        if (status != TRI_OK)
            return status;
    }
    return await_keys(r, keys, n, n_needed, deadline_ns, values_out, waits);
}
