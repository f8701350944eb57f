/*
 * rdzv_thread.c - the rendezvous thread: its orders, and a round that is on. Orders come from
 * rendezvous.c by rdzv_wait.c, rounds from rdzv_join.c and rdzv_exchange.c.
 *
 * While a round is on, the thread sleeps. A second one waits in the store for a key that others
 * write when something happened (the store wakes it at once); now and then the shared state is
 * looked at, since torchrun's agents write no such key; who follows a leader shows that it lives.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include "base/alloc.h"
#include "base/log.h"

#define LOOK_MS 1000
#define LEAD_MS 250 /* who leads: somebody may want to join */
#define BARRIER_LOOK_MS 100
#define GOODBYE_MS 3000 /* who serves the store waits so long for the others */
#define GOODBYE_MIXED_MS 1000

/* --- a round that is on --------------------------------------------------- */

/* Until the next order. */
static void stop_round(trii_rendezvous *r)
{
    if (trii_rdzv_phase_is_on(r->phase))
        trii_rdzv_enter(r, TRII_RDZV_STOPPED);
}

/* An agent of torchrun that serves the store goes as soon as everybody has succeeded, whether or
 * not the others have seen that. */
static void fail(trii_rendezvous *r, bool finishing)
{
    if (finishing && r->round.mixed)
        trii_rdzv_emit_kind(r, TRII_RDZV_FINISHED, false, "");
    else
        trii_rdzv_emit_kind(r, TRII_RDZV_FAILED, false, tri_last_error());
    stop_round(r);
}

static void join(trii_rendezvous *r, const trii_rdzv_order *o)
{
    trii_rdzv_event event = {.kind = TRII_RDZV_JOINED};
    tri_status status;

    r->worker_port = o->number;
    r->restarts = o->restarts;
    trii_rdzv_enter(r, r->phase == TRII_RDZV_CONNECTED ? TRII_RDZV_APPLYING : TRII_RDZV_JOINING);
    do {
        status = r->handler->join(r);
        if (status == TRI_OK)
            status = trii_rdzv_exchange(r);
    } while (status == TRI_INPROGRESS);
    atomic_store(&r->met, 0);
    if (status == TRI_OK) { /* we were found */
        trii_own_address_stop(r->own);
        r->own = NULL;
        trii_rdzv_watch_start(r);
    }
    if (status == TRI_ERR_STATE && trii_rdzv_interrupted(r))
        return; /* the order that is there says what to do */
    if (status != TRI_OK) {
        trii_rdzv_emit_kind(r, status == TRI_END ? TRII_RDZV_UNNEEDED : TRII_RDZV_FAILED, false,
                            tri_last_error());
        trii_rdzv_enter(r, TRII_RDZV_BROKEN);
        return;
    }
    trii_rdzv_enter(r, TRII_RDZV_RUNNING);
    r->gone = -1;
    event.round = r->round;
    trii_rdzv_emit(r, &event);
    r->round.agents = NULL; /* the agent's now */
    trii_rdzv_take_back(r);
}

static void tell(trii_rendezvous *r, const trii_rdzv_order *o, int gone)
{
    trii_rdzv_news news = {.over = o->over || (gone >= 0 && r->handler->fixed_hosts),
                           .counts = o->counts,
                           .gone = gone,
                           .left = true};

    if (r->kv == NULL)
        return;
    snprintf(news.why, sizeof(news.why), "%s", o->why);
    trii_rdzv_broadcast(r->kv, r->round.number, r->round.group_size, &news);
    stop_round(r); /* we know our own news */
}

/* We know how the round ended, and need its store no more. */
static void count_us_out(trii_rendezvous *r)
{
    int64_t n;
    tri_status status = r->kv != NULL && r->phase != TRII_RDZV_JOB_ENDED
                            ? tri_store_add(r->kv, "trireme/left", 1, &n)
                            : TRI_OK;

    (void)status; /* then whoever waits for it waits a little in vain */
}

/* Who serves the store stays until the others know how it ended. */
static void say_goodbye(trii_rendezvous *r)
{
    int64_t deadline = trii_rdzv_deadline(r, r->round.mixed ? GOODBYE_MIXED_MS : GOODBYE_MS), n = 0;
    int others = r->round.group_size - (r->gone >= 0); /* the dead say nothing */
    tri_status status = TRI_OK;

    count_us_out(r);
    if (r->redundant && r->state.closed) { /* we have no part in the round that it ended with */
        others = r->seen_size;
        status = trii_rdzv_round_store(r, r->seen_round, &r->kv);
    } else if (r->round.world_size == 0) {
        return; /* there never was a round */
    }
    while (trii_rdzv_serves(r) && r->kv != NULL && status == TRI_OK &&
           trii_rdzv_now(r) < deadline) {
        status = tri_store_add(r->kv, "trireme/left", 0, &n);
        if (status == TRI_OK && n >= others &&
            (r->handler->is_awaited == NULL || !r->handler->is_awaited(r)))
            break;
        trii_mutex_lock(&r->mutex); /* orders wait */
        r->time->wait_until(&r->changed, &r->mutex, trii_rdzv_deadline(r, 5));
        trii_mutex_unlock(&r->mutex);
    }
}

static void leave(trii_rendezvous *r, const trii_rdzv_order *o)
{
    tri_status status = TRI_OK;

    if (o->kind == TRII_ORDER_LEAVE)
        tell(r, o, r->round.group_rank);
    if (r->handler->leave != NULL)
        status = r->handler->leave(r, o->kind == TRII_ORDER_CLOSE);
    if (o->kind == TRII_ORDER_CLOSE || trii_rdzv_serves(r))
        say_goodbye(r);
    else
        count_us_out(r); /* who serves the store waits for that */
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "launch", "leaving the rendezvous: %s", tri_last_error());
    trii_rdzv_end_round(r);
    trii_rdzv_enter(r, TRII_RDZV_GONE);
    trii_rdzv_emit_kind(r, TRII_RDZV_LEFT, false, "");
}

static void finish(trii_rendezvous *r)
{
    static const char last[] = "torchelastic/agent/terminal_state/last_member";
    int64_t n = 0;
    tri_status status =
        tri_store_add(r->kv, "torchelastic/agent/terminal_state/num_members", 1, &n);

    if (status == TRI_OK && n >= r->round.group_size) {
        status = tri_store_set(r->kv, last, "<val_ignored>", 13);
        if (status == TRI_OK)
            status = trii_rdzv_notify_all(r);
    }
    if (r->phase == TRII_RDZV_RUNNING)
        trii_rdzv_enter(r, TRII_RDZV_FINISHING);
    if (status != TRI_OK)
        fail(r, true);
}

static void lost(trii_rendezvous *r, const trii_rdzv_order *o)
{
    trii_rdzv_event event = {.kind = TRII_RDZV_AGAIN, .gone = -1};
    trii_rdzv_news news = {.gone = -1};
    int64_t n;
    tri_status status;

    if (trii_rdzv_phase_is_on(r->phase) && o->round != r->round.number)
        return; /* the round that is on has links of its own */
    /* If its store answers it lives, and it was us who was not heard. */
    status = o->serves ? tri_store_num_keys(r->base, &n) : trii_rdzv_drop(r, o, &news);
    if (status == TRI_OK)
        trii_rdzv_answered(r);
    if (!trii_rdzv_phase_is_on(r->phase))
        return; /* it is over already */
    if (o->serves) {
        snprintf(event.why, sizeof(event.why), "this host was taken for dead");
    } else {
        event.kind = news.over ? TRII_RDZV_ENDED : TRII_RDZV_AGAIN;
        event.counts = news.counts;
        event.gone = o->number;
        snprintf(event.why, sizeof(event.why), "%s", o->why);
    }
    if (status == TRI_OK)
        trii_rdzv_emit(r, &event);
    else
        fail(r, r->phase == TRII_RDZV_FINISHING);
    stop_round(r);
}

static bool handle(trii_rendezvous *r, const trii_rdzv_order *o)
{
    switch (o->kind) {
    case TRII_ORDER_JOIN:
        join(r, o);
        break;
    case TRII_ORDER_FINISH:
        if (r->kv != NULL)
            finish(r);
        break;
    case TRII_ORDER_TELL:
        tell(r, o, -1);
        break;
    case TRII_ORDER_LOST:
        lost(r, o);
        break;
    case TRII_ORDER_LEAVE:
    case TRII_ORDER_CLOSE:
        leave(r, o);
        break;
    case TRII_ORDER_QUIT:
    case TRII_ORDER_NONE:
        trii_rdzv_end_round(r);
        return false;
    }
    return true;
}

static tri_status is_barrier_passed(trii_rendezvous *r, bool *passed_out)
{
    const char *keys[] = {"torchelastic/agent/terminal_state/last_member"};

    return tri_store_check(r->kv, keys, 1, passed_out);
}

/* What all share may end the round that is on. */
static tri_status look_at_state(trii_rendezvous *r)
{
    trii_rdzv_event event = {.gone = -1};
    bool passed = false;
    tri_status status = r->handler->watch(r, &event);

    if (status != TRI_OK || event.kind == TRII_RDZV_NOTHING)
        return status;
    if (event.kind == TRII_RDZV_ENDED && r->phase == TRII_RDZV_FINISHING)
        status = is_barrier_passed(r, &passed); /* all may have succeeded since we asked for that */
    if (status != TRI_OK)
        return status;
    if (passed)
        trii_rdzv_emit_kind(r, TRII_RDZV_FINISHED, false, "");
    else
        trii_rdzv_emit(r, &event);
    stop_round(r);
    return TRI_OK;
}

static void look(trii_rendezvous *r)
{
    trii_rdzv_news news;
    bool there = false, passed = false, finishing = r->phase == TRII_RDZV_FINISHING;
    tri_status status;

    trii_mutex_lock(&r->mutex);
    if (r->watch == TRII_WATCH_NEWS)
        r->watch = TRII_WATCH_IDLE;
    trii_mutex_unlock(&r->mutex);
    status = finishing ? is_barrier_passed(r, &passed) : TRI_OK;
    if (status == TRI_OK && passed) {
        count_us_out(r);
        trii_rdzv_enter(r, TRII_RDZV_JOB_ENDED);
        trii_rdzv_emit_kind(r, TRII_RDZV_FINISHED, false, "");
        return;
    }
    if (status == TRI_OK)
        status = trii_rdzv_read_news(r, &news, &there);
    if (status == TRI_OK && there) {
        trii_rdzv_event event = {.kind = news.over ? TRII_RDZV_ENDED : TRII_RDZV_AGAIN,
                                 .counts = news.counts,
                                 .gone = news.gone,
                                 .left = news.left};

        if (news.over)
            count_us_out(r);
        trii_rdzv_enter(r, news.over ? TRII_RDZV_JOB_ENDED : TRII_RDZV_STOPPED);
        snprintf(event.why, sizeof(event.why), "%s", news.why);
        trii_rdzv_emit(r, &event);
        return;
    }
    if (status == TRI_OK && r->handler->watch != NULL)
        status = look_at_state(r);
    if (status != TRI_OK)
        fail(r, finishing);
}

/* No round is on, but we are in the state: our workers are ending, or have not begun. */
static void keep_alive(trii_rendezvous *r)
{
    trii_rdzv_event event;

    if (r->handler->watch(r, &event) != TRI_OK)
        trii_rdzv_enter(r, TRII_RDZV_BROKEN); /* the next order fails likewise, and says so */
}

static bool handle_without_store(trii_rendezvous *r, const trii_rdzv_order *o)
{
    if (o->kind == TRII_ORDER_LEAVE || o->kind == TRII_ORDER_CLOSE)
        trii_rdzv_emit_kind(r, TRII_RDZV_LEFT, false, "");
    return o->kind != TRII_ORDER_QUIT;
}

static int64_t look_ms(const trii_rendezvous *r)
{
    /* The last of ours to succeed notifies all; torchrun's does not. */
    bool barrier = r->phase == TRII_RDZV_FINISHING && r->round.mixed;
    int64_t ms = r->lead.leads ? LEAD_MS : LOOK_MS, most = r->beat_ms / 2 + 1;

    if (barrier)
        return BARRIER_LOOK_MS;
    if (r->lead.follows)
        return trii_rdzv_follow_ms(r);
    return r->handler->watch != NULL && ms > most ? most : ms;
}

static void look_if_due(trii_rendezvous *r)
{
    bool ordered, is_on = trii_rdzv_phase_is_on(r->phase);
    bool is_member = r->handler->watch != NULL && trii_rdzv_phase_is_member(r->phase);

    if (is_on || is_member)
        trii_rdzv_pause_about(r, look_ms(r));
    else
        trii_rdzv_pause(r, TRII_NO_DEADLINE);
    trii_mutex_lock(&r->mutex);
    ordered = r->n_orders > 0;
    if (r->watch == TRII_WATCH_NEWS && !is_on)
        r->watch = TRII_WATCH_IDLE; /* it is about nothing that is on */
    trii_mutex_unlock(&r->mutex);
    if (is_on && !ordered)
        look(r);
    else if (is_member && !ordered)
        keep_alive(r);
}

void trii_rdzv_main(void *arg)
{
    trii_rendezvous *r = arg;
    bool alive = true;
    tri_status status = r->time->start(&r->watcher, "rdzv-watch", trii_rdzv_watch_main, r);
    bool has_watcher = status == TRI_OK;

    if (status == TRI_OK)
        status = r->handler->open(r);
    trii_rdzv_enter(r, status == TRI_OK ? TRII_RDZV_CONNECTED : TRII_RDZV_NO_STORE);
    if (status != TRI_OK)
        fail(r, false);
    while (alive) {
        trii_rdzv_order o;

        if (trii_rdzv_next_order(r, &o))
            alive = status == TRI_OK ? handle(r, &o) : handle_without_store(r, &o);
        else
            look_if_due(r);
    }
    trii_mutex_lock(&r->mutex);
    r->watch = TRII_WATCH_QUIT;
    r->time->notify(&r->changed);
    trii_mutex_unlock(&r->mutex);
    if (has_watcher)
        r->time->join(&r->watcher);
    if (r->backend != NULL)
        r->backend->ops->destroy(r->backend);
    trii_own_address_stop(r->own);
    tri_store_unref(r->base);
    trii_free(r->nodes);
    trii_free(r->past.nodes);
    trii_wire_buffer_fini(&r->raw);
    trii_rdzv_state_fini(&r->state);
    trii_free(r->observed);
    trii_free(r->lead.requests);
    trii_free(r->round.agents);
    trii_rdzv_enter(r, TRII_RDZV_DONE);
}
