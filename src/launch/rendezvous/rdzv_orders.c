/*
 * rdzv_orders.c - between the agent's thread and the rendezvous thread: orders wait here for the
 * one, events for the other. Called by every file of the room that waits or has something to say.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

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
