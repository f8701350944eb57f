/*
 * rdzv_wait.c - what the rendezvous thread waits for: orders of the agent, and keys that other
 * members of a round write, while agents that are lost are taken out and the round may be over; and
 * its events. Called by every file of the room that waits or has an event.
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

bool trii_rdzv_next_order(trii_rendezvous *r, bool only_losses, trii_rdzv_order *order_out)
{
    trii_rdzv_order *o = r->orders;
    bool any;

    trii_mutex_lock(&r->mutex);
    while (o < r->orders + r->n_orders && only_losses && o->kind != TRII_ORDER_LOST &&
           o->kind != TRII_ORDER_HEARD)
        o++;
    any = o < r->orders + r->n_orders;
    if (any) {
        *order_out = *o;
        memmove(o, o + 1, (size_t)(r->orders + --r->n_orders - o) * sizeof(*o));
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

void trii_rdzv_emit_kind(trii_rendezvous *r, trii_rdzv_event_kind kind, const char *why)
{
    trii_rdzv_event event = {.kind = kind, .news.gone = -1};

    snprintf(event.news.why, sizeof(event.news.why), "%s", why);
    trii_rdzv_emit(r, &event);
}

bool trii_rdzv_pause(trii_rendezvous *r, int64_t deadline_ns)
{
    bool ordered;

    trii_mutex_lock(&r->mutex);
    while (r->n_orders == 0 && r->time->wait_until(&r->changed, &r->mutex, deadline_ns))
        ;
    ordered = r->n_orders > 0;
    trii_mutex_unlock(&r->mutex);
    return ordered;
}

bool trii_rdzv_pause_about(trii_rendezvous *r, int64_t ms)
{
    if (r->jitter == 0) {
        r->jitter = (uint64_t)r->self.pid * 31 + (uint64_t)r->self.local_id;
        for (const char *c = r->self.addr; *c != '\0'; c++)
            r->jitter = r->jitter * 31 + (unsigned char)*c;
    }
    r->jitter = r->jitter * 6364136223846793005u + 1442695040888963407u;
    ms = ms * 9 / 10 + (int64_t)((r->jitter >> 33) % (uint64_t)(ms / 5 + 1));
    return trii_rdzv_pause(r, trii_rdzv_deadline(r, ms));
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

tri_status trii_rdzv_drop(trii_rendezvous *r, const trii_rdzv_order *o)
{
    trii_rdzv_take_news(r, o->round, &o->news);
    return r->handler->drop(r, o);
}

void trii_rdzv_take_news(trii_rendezvous *r, int64_t round, const trii_rdzv_news *news)
{
    int gone = round == r->round.number && news->gone < r->round.group_size ? news->gone : -1;

    if (gone < 0 || gone == r->round.group_rank)
        return;
    if (!news->left)
        r->gone = gone;
    if (r->nodes != NULL)
        r->nodes[gone].addr[0] = '\0';
}

void trii_rdzv_take_losses(trii_rendezvous *r)
{
    trii_rdzv_order o;

    while (trii_rdzv_next_order(r, true, &o)) {
        if (o.kind == TRII_ORDER_HEARD)
            trii_rdzv_take_news(r, o.round, &o.news);
        /* Without the store all ends anyway: the next call to it fails. */
        else if (!o.gone.serves && trii_rdzv_drop(r, &o) == TRI_OK)
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

static tri_status look_once(trii_rendezvous *r, const char *const *keys, int n, char **values_out)
{
    trii_store_call *calls = trii_alloc((size_t)n, sizeof(*calls), "rendezvous");
    tri_status status;

    if (calls == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < n; i++)
        calls[i] = (trii_store_call){.kind = TRII_STORE_READ, .key = keys[i]};
    status = may_torch_serve(r) ? trii_store_peek(r->kv, keys, calls, n)
                                : trii_store_calls(r->kv, calls, n);
    for (int i = 0; i < n; i++)
        values_out[i] = status == TRI_OK ? calls[i].value : NULL;
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

/* n: all are there. */
static int find_missing(char *const *values, int n)
{
    int there = 0;

    while (there < n && values[there] != NULL)
        there++;
    return there;
}

/* Until the first n_needed are there. */
static tri_status await_keys(trii_rendezvous *r, const char *const *keys, int n, int n_needed,
                             int64_t deadline_ns, char **values_out,
                             void (*waits)(trii_rendezvous *r, int key))
{
    for (;;) {
        tri_status status = look_once(r, keys, n, values_out);
        int missing;

        if (status != TRI_OK)
            return status;
        trii_rdzv_answered(r);
        missing = find_missing(values_out, n_needed);
        if (missing == n_needed)
            return TRI_OK;
        if (waits != NULL)
            waits(r, missing);
        free_values(values_out, n);
        if (trii_rdzv_now(r) > deadline_ns)
            return TRI_ERR_TIMEOUT;
        if (trii_rdzv_interrupted(r))
            return TRI_ERR_STATE;
        status = trii_rdzv_check_own(r);
        if (status != TRI_OK)
            return status;
        trii_rdzv_take_losses(r);
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
