/*
 * rdzv_thread.c - the rendezvous thread: its orders, and a round that is on. Orders come from
 * rendezvous.c through rdzv_wait.c, rounds from rdzv_join.c and rdzv_exchange.c.
 *
 * While a round is on, the thread mostly sleeps. Now and then it looks at the shared state, since
 * agents of torchrun do not tell what happens to them, and shows there that this one lives.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include "base/alloc.h"
#include "base/log.h"

#define LOOK_MS 1000
#define LEAD_MS 250 /* of the leader: another host may want to join */
#define BARRIER_LOOK_MS 100
#define CAUSE_MS 500    /* for the cause of an end that was seen first */
#define GOODBYE_MS 3000 /* the server of the store waits so long for the others */
#define GOODBYE_MIXED_MS 1000

/* --- orders, and a round that is on --------------------------------------- */

/* Until the next order. */
static void stop_round(trii_rendezvous *r)
{
    if (trii_rdzv_phase_is_on(r->phase))
        trii_rdzv_enter(r, TRII_RDZV_STOPPED);
}

static void end_round(trii_rendezvous *r)
{
    tri_store_unref(r->kv);
    r->kv = NULL;
}

/* An agent of torchrun that serves the store ends as soon as all have succeeded, whether or not the
 * others have seen that. */
static void fail(trii_rendezvous *r, bool finishing)
{
    if (finishing && r->round.mixed)
        trii_rdzv_emit_kind(r, TRII_RDZV_FINISHED, "");
    else
        trii_rdzv_emit_kind(r, TRII_RDZV_FAILED, tri_last_error());
    stop_round(r);
}

static void join(trii_rendezvous *r, const trii_rdzv_order *o)
{
    trii_rdzv_event event = {.kind = TRII_RDZV_JOINED};
    tri_status status;

    r->worker_port = o->port;
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
    }
    if (status == TRI_ERR_STATE && trii_rdzv_interrupted(r))
        return; /* the order that is there says what to do */
    if (status != TRI_OK) {
        trii_rdzv_emit_kind(r, status == TRI_END ? TRII_RDZV_UNNEEDED : TRII_RDZV_FAILED,
                            tri_last_error());
        trii_rdzv_enter(r, TRII_RDZV_BROKEN);
        return;
    }
    trii_rdzv_enter(r, TRII_RDZV_RUNNING);
    r->gone = -1;
    event.round = r->round;
    trii_rdzv_emit(r, &event);
    r->round.agents = NULL; /* the agent's now */
}

/* We know how the round ended, and need its store no more. */
static void count_us_out(trii_rendezvous *r)
{
    int64_t n;
    tri_status status = r->kv != NULL && r->phase != TRII_RDZV_JOB_ENDED
                            ? tri_store_add(r->kv, "trireme/left", 1, &n)
                            : TRI_OK;

    (void)status; /* then the server of the store waits a little longer */
}

/* The server of the store stays until the others know how the job ended. */
static void say_goodbye(trii_rendezvous *r)
{
    int64_t deadline = trii_rdzv_deadline(r, r->round.mixed ? GOODBYE_MIXED_MS : GOODBYE_MS), n = 0;
    int others = r->round.group_size - (r->gone >= 0); /* the dead say nothing */
    tri_status status = TRI_OK;

    count_us_out(r);
    if (r->redundant && r->state.closed) { /* we were not in the job's last round */
        others = trii_rdzv_count_participants(&r->state);
        status = trii_rdzv_round_store(r, r->state.round, &r->kv);
    } else if (r->round.world_size == 0) {
        return; /* there never was a round */
    }
    while (r->server != NULL && r->kv != NULL && status == TRI_OK && trii_rdzv_now(r) < deadline) {
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

    if (r->handler->leave != NULL)
        status = r->handler->leave(r, o->kind == TRII_ORDER_CLOSE);
    if (o->kind == TRII_ORDER_CLOSE || r->server != NULL)
        say_goodbye(r);
    else
        count_us_out(r); /* the server of the store waits for that */
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "launch", "leaving the rendezvous: %s", tri_last_error());
    end_round(r);
    trii_rdzv_enter(r, TRII_RDZV_GONE);
    trii_rdzv_emit_kind(r, TRII_RDZV_LEFT, "");
}

/* The workers of all hosts have succeeded. */
static void all_finished(trii_rendezvous *r)
{
    count_us_out(r);
    trii_rdzv_enter(r, TRII_RDZV_JOB_ENDED);
    trii_rdzv_emit_kind(r, TRII_RDZV_FINISHED, "");
}

/* The barrier is torchrun's. */
static void finish(trii_rendezvous *r)
{
    static const char last[] = "torchelastic/agent/terminal_state/last_member";
    int64_t n = 0;
    tri_status status =
        tri_store_add(r->kv, "torchelastic/agent/terminal_state/num_members", 1, &n);

    if (status == TRI_OK && n >= r->round.group_size)
        status = tri_store_set(r->kv, last, "<val_ignored>", 13);
    if (r->phase == TRII_RDZV_RUNNING)
        trii_rdzv_enter(r, TRII_RDZV_FINISHING);
    if (status != TRI_OK)
        fail(r, true);
    else if (n >= r->round.group_size && r->phase == TRII_RDZV_FINISHING)
        all_finished(r);
}

static void lost(trii_rendezvous *r, const trii_rdzv_order *o)
{
    trii_rdzv_event event = {.kind = o->news.over ? TRII_RDZV_ENDED : TRII_RDZV_AGAIN,
                             .news = o->news};
    int64_t n;
    tri_status status;

    if (trii_rdzv_phase_is_on(r->phase) && o->round != r->round.number)
        return; /* the round that is on has links of its own */
    /* If its store answers it lives, and this host is the one that was not heard. */
    status = o->gone.serves ? tri_store_num_keys(r->base, &n) : trii_rdzv_drop(r, o);
    if (status == TRI_OK)
        trii_rdzv_answered(r);
    if (!trii_rdzv_phase_is_on(r->phase))
        return; /* it is over already */
    if (o->gone.serves)
        event = trii_rdzv_taken_for_dead();
    if (status == TRI_OK)
        trii_rdzv_emit(r, &event);
    else
        fail(r, r->phase == TRII_RDZV_FINISHING);
    stop_round(r);
}

static tri_status is_barrier_passed(trii_rendezvous *r, bool *passed_out)
{
    const char *keys[] = {"torchelastic/agent/terminal_state/last_member"};

    return tri_store_check(r->kv, keys, 1, passed_out);
}

/* An agent that closes the job has told the others of its round why, but they may see the end
 * before they read that. Agents of torchrun tell nothing. */
static bool waits_for_cause(trii_rendezvous *r)
{
    int64_t now = trii_rdzv_now(r);

    if (r->closed_ns == 0)
        r->closed_ns = now;
    return !r->round.mixed && now - r->closed_ns < CAUSE_MS * TRII_NS_PER_MS;
}

/* What all share may end the round that is on. */
static tri_status look_at_state(trii_rendezvous *r)
{
    trii_rdzv_event event;
    bool passed = false;
    tri_status status = r->handler->watch(r, &event);

    if (status != TRI_OK || event.kind == TRII_RDZV_NOTHING)
        return status;
    if (event.kind == TRII_RDZV_ENDED && r->phase == TRII_RDZV_FINISHING)
        status = is_barrier_passed(r, &passed); /* all may have succeeded since we asked for that */
    if (status != TRI_OK)
        return status;
    if (passed)
        trii_rdzv_emit_kind(r, TRII_RDZV_FINISHED, "");
    else if (event.kind == TRII_RDZV_ENDED && waits_for_cause(r))
        return TRI_OK;
    else
        trii_rdzv_emit(r, &event);
    stop_round(r);
    return TRI_OK;
}

/* With given ranks this shows at least whether the store answers. */
static void look(trii_rendezvous *r)
{
    bool passed = false, finishing = r->phase == TRII_RDZV_FINISHING;
    tri_status status =
        finishing || r->handler->watch == NULL ? is_barrier_passed(r, &passed) : TRI_OK;

    if (status == TRI_OK && finishing && passed) {
        all_finished(r);
        return;
    }
    if (status == TRI_OK && r->handler->watch != NULL)
        status = look_at_state(r);
    if (status != TRI_OK)
        fail(r, finishing);
}

static void heard(trii_rendezvous *r, const trii_rdzv_order *o)
{
    trii_rdzv_take_news(r, o->round, &o->news);
    if (!trii_rdzv_phase_is_on(r->phase) || o->round != r->round.number)
        return;
    if (o->news.finished) {
        look(r);
        return;
    }
    if (o->news.over)
        count_us_out(r);
    trii_rdzv_enter(r, o->news.over ? TRII_RDZV_JOB_ENDED : TRII_RDZV_STOPPED);
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
    case TRII_ORDER_HEARD:
        heard(r, o);
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
        end_round(r);
        return false;
    }
    return true;
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
        trii_rdzv_emit_kind(r, TRII_RDZV_LEFT, "");
    return o->kind != TRII_ORDER_QUIT;
}

static int64_t look_ms(const trii_rendezvous *r)
{
    int64_t ms = r->lead.leads ? LEAD_MS : LOOK_MS, most = r->beat_ms / 2 + 1;

    if (r->phase == TRII_RDZV_FINISHING && r->round.mixed)
        return BARRIER_LOOK_MS; /* torchrun's agents do not say which was the last */
    if (r->closed_ns != 0)
        return CAUSE_MS;
    if (r->lead.follows && r->round_serves >= 0)
        return trii_rdzv_follow_ms(r); /* the leader is in the round, and tells us what happens */
    return r->handler->watch != NULL && ms > most ? most : ms;
}

static void look_if_due(trii_rendezvous *r)
{
    bool is_on = trii_rdzv_phase_is_on(r->phase);
    bool is_member = r->handler->watch != NULL && trii_rdzv_phase_is_member(r->phase);

    if (is_on || is_member ? trii_rdzv_pause_about(r, look_ms(r))
                           : trii_rdzv_pause(r, TRII_NO_DEADLINE))
        return; /* there is an order */
    if (is_on)
        look(r);
    else if (is_member)
        keep_alive(r);
}

void trii_rdzv_main(void *arg)
{
    trii_rendezvous *r = arg;
    bool alive = true;
    tri_status status = r->handler->open(r);

    trii_rdzv_enter(r, status == TRI_OK ? TRII_RDZV_CONNECTED : TRII_RDZV_NO_STORE);
    if (status != TRI_OK)
        fail(r, false);
    while (alive) {
        trii_rdzv_order o;

        if (trii_rdzv_next_order(r, false, &o))
            alive = status == TRI_OK ? handle(r, &o) : handle_without_store(r, &o);
        else
            look_if_due(r);
    }
    if (r->backend != NULL)
        r->backend->ops->destroy(r->backend);
    trii_own_address_stop(r->own);
    tri_store_unref(r->base);
    trii_free(r->nodes);
    trii_wire_buffer_fini(&r->raw);
    trii_rdzv_state_fini(&r->state);
    trii_free(r->observed);
    trii_free(r->lead.requests);
    trii_free(r->round.agents);
    trii_rdzv_enter(r, TRII_RDZV_DONE);
}
