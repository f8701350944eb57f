/*
 * rendezvous.c - see rendezvous.h: the thread, its orders, and a round that is on.
 *
 * While a round is on, the thread sleeps. A second one waits in the store for a key that others
 * write when something happened (the store wakes it at once); every LOOK_MS the shared state is
 * looked at, since torchrun's agents write no such key.
 */
#include "launch/rendezvous/rdzv_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "os/clock.h"

#define LOOK_MS 1000
#define COUNT_MS 500
#define BARRIER_LOOK_MS 100
#define WAKER_MS 5000   /* of one wait for the key */
#define GOODBYE_MS 3000 /* who serves the store waits so long for the others */
#define GOODBYE_MIXED_MS 1000

/* --- between the threads --- */

static bool next_order(trii_rendezvous *r, trii_rdzv_order *order_out)
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

static void emit(trii_rendezvous *r, const trii_rdzv_event *event)
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
    trii_mutex_unlock(&r->mutex);
    trii_wakeup_signal(r->event_fd);
}

static void emit_simple(trii_rendezvous *r, trii_rdzv_event_kind kind, bool counts, const char *why)
{
    trii_rdzv_event event = {.kind = kind, .counts = counts};

    snprintf(event.why, sizeof(event.why), "%s", why);
    emit(r, &event);
}

void trii_rdzv_note(trii_rendezvous *r, const char *text)
{
    emit_simple(r, TRII_RDZV_NOTE, false, text);
}

bool trii_rdzv_pause(trii_rendezvous *r, int64_t deadline_ns)
{
    bool told;

    trii_mutex_lock(&r->mutex);
    while (r->n_orders == 0 && !r->poked &&
           trii_cond_wait_until(&r->changed, &r->mutex, deadline_ns))
        ;
    told = r->n_orders > 0 || r->poked;
    trii_mutex_unlock(&r->mutex);
    return told;
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

static void bury(trii_rendezvous *r, int rank, const char *why)
{
    trii_rdzv_news news = {.gone = rank};
    trii_rdzv_node node;
    tri_status status = TRI_OK;

    if (rank < 0 || rank >= r->round.group_size)
        return;
    snprintf(news.why, sizeof(news.why), "%s", why);
    if (r->nodes != NULL) {
        node = r->nodes[rank];
        trii_rdzv_forget(r, &node);
        if (node.addr[0] != '\0')
            status = trii_rdzv_change(r, &node, false);
    } else {
        news.over = true; /* given ranks: nobody can take its place */
    }
    if (status == TRI_OK && r->kv != NULL)
        trii_rdzv_broadcast(r, r->kv, r->round.number, r->round.group_size, &news);
}

void trii_rdzv_bury(trii_rendezvous *r)
{
    trii_rdzv_order lost;

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
        bury(r, lost.number, lost.why);
    }
}

/* --- news ---------------------------------------------------------------------------------------
 */

static void news_key(char *key, size_t bytes, int64_t number, int rank)
{
    if (rank < 0)
        snprintf(key, bytes, "trireme/%lld/news", (long long)number);
    else
        snprintf(key, bytes, "trireme/%lld/wake/%d", (long long)number, rank);
}

void trii_rdzv_broadcast(trii_rendezvous *r, tri_store *kv, int64_t number, int n,
                         const trii_rdzv_news *news)
{
    char key[64], text[TRII_ERR_BYTES];
    void *value;
    size_t bytes;
    tri_status status;

    (void)r;
    snprintf(text, sizeof(text), "%d %d %d %s", news->over, news->counts, news->gone, news->why);
    news_key(key, sizeof(key), number, -1);
    status = tri_store_compare_set(kv, key, "", 0, text, strlen(text), &value, &bytes);
    if (status == TRI_OK)
        tri_store_free(value);
    for (int i = 0; i < n && status == TRI_OK; i++) {
        news_key(key, sizeof(key), number, i);
        status = tri_store_set(kv, key, "1", 1);
    }
    /* A store that is gone is noticed by whoever needs it next. */
    (void)status;
}

/* What was told in this round; false: nothing yet. */
static tri_status read_news(trii_rendezvous *r, trii_rdzv_news *news_out, bool *there_out)
{
    char key[64];
    const char *keys[] = {key};
    int over = 0, counts = 0, used = 0;
    void *value;
    size_t bytes;
    tri_status status;

    news_key(key, sizeof(key), r->round.number, -1);
    status = tri_store_check(r->kv, keys, 1, there_out);
    if (status != TRI_OK || !*there_out)
        return status;
    status = tri_store_get(r->kv, key, 0, &value, &bytes);
    if (status != TRI_OK)
        return status;
    memset(news_out, 0, sizeof(*news_out));
    if (sscanf(value, "%d %d %d %n", &over, &counts, &news_out->gone, &used) < 3 || used == 0) {
        over = counts = 0;
        news_out->gone = -1;
    }
    news_out->over = over != 0;
    news_out->counts = counts != 0;
    snprintf(news_out->why, sizeof(news_out->why), "%s", (const char *)value + used);
    tri_store_free(value);
    return TRI_OK;
}

/* --- the second thread --------------------------------------------------------------------------
 */

static void waker_main(void *arg)
{
    trii_rendezvous *r = arg;

    trii_mutex_lock(&r->mutex);
    while (!r->waker_quit) {
        const char *keys[] = {r->waker_key};
        tri_status status;

        if (!r->waking) {
            trii_cond_wait(&r->changed, &r->mutex);
            continue;
        }
        trii_mutex_unlock(&r->mutex);
        do {
            status = tri_store_wait(r->waker_kv, keys, 1, WAKER_MS);
        } while (status == TRI_ERR_TIMEOUT);
        /* also after a failure: then the first thread looks, and sees it */
        trii_mutex_lock(&r->mutex);
        r->waking = false;
        r->poked = true;
        trii_cond_broadcast(&r->changed);
    }
    trii_mutex_unlock(&r->mutex);
}

void trii_rdzv_stop_waker(trii_rendezvous *r)
{
    tri_status status;

    if (r->waker_kv == NULL)
        return;
    status = tri_store_set(r->kv, r->waker_key, "1", 1);
    (void)status; /* without a store its wait fails, too */
    trii_mutex_lock(&r->mutex);
    while (r->waking)
        trii_cond_wait(&r->changed, &r->mutex);
    r->poked = false;
    trii_mutex_unlock(&r->mutex);
    tri_store_unref(r->waker_kv);
    r->waker_kv = NULL;
}

static tri_status start_waker(trii_rendezvous *r)
{
    tri_status status = tri_store_clone(r->kv, &r->waker_kv);

    if (status != TRI_OK)
        return status;
    news_key(r->waker_key, sizeof(r->waker_key), r->round.number, r->round.group_rank);
    trii_mutex_lock(&r->mutex);
    r->poked = false;
    r->waking = true;
    trii_cond_broadcast(&r->changed);
    trii_mutex_unlock(&r->mutex);
    return TRI_OK;
}

/* Who waits says how many are there; with given ranks nothing else counts them. */
static void count_now_and_then(trii_rendezvous *r)
{
    int64_t now = trii_now_ns();
    int missing;

    if (!r->is_static || now - r->counted_ns < COUNT_MS * TRII_NS_PER_MS)
        return;
    r->counted_ns = now;
    atomic_store(&r->came, trii_rdzv_count_came(r, &missing));
}

tri_status trii_rdzv_wait_keys(trii_rendezvous *r, const char *const *keys, int n,
                               int64_t deadline_ns)
{
    for (;;) {
        bool present;
        tri_status status = tri_store_check(r->kv, keys, n, &present);

        if (status != TRI_OK || present)
            return status;
        if (trii_now_ns() > deadline_ns)
            return TRI_ERR_TIMEOUT;
        if (trii_rdzv_interrupted(r))
            return TRI_ERR_STATE;
        trii_rdzv_bury(r);
        count_now_and_then(r);
        if (r->nodes != NULL) {
            trii_rdzv_news news;

            status = read_news(r, &news, &present);
            if (status == TRI_OK && present)
                return TRI_INPROGRESS; /* the round is over already */
            if (status != TRI_OK)
                return status;
        }
        trii_rdzv_pause(r, trii_now_ns() + 5 * TRII_NS_PER_MS);
    }
}

/* --- a round that is on --- */

static void end_round(trii_rendezvous *r)
{
    trii_rdzv_stop_waker(r);
    tri_store_unref(r->kv);
    r->kv = NULL;
    r->on = r->finishing = false;
    trii_mutex_lock(&r->mutex);
    r->poked = false;
    trii_mutex_unlock(&r->mutex);
}

/* An agent of torchrun that serves the store goes as soon as everybody has succeeded, whether or
 * not the others have seen that. */
static void fail(trii_rendezvous *r)
{
    if (r->finishing && r->round.mixed) {
        emit_simple(r, TRII_RDZV_FINISHED, false, "");
        return;
    }
    emit_simple(r, TRII_RDZV_FAILED, false, tri_last_error());
}

static void join(trii_rendezvous *r, const trii_rdzv_order *o)
{
    trii_rdzv_event event = {.kind = TRII_RDZV_JOINED};
    tri_status status;

    r->worker_port = o->number;
    r->restarts = o->restarts;
    do {
        if (!r->is_static)
            end_round(r);
        status = r->is_static ? trii_rdzv_join_static(r) : trii_rdzv_join_dynamic(r);
        if (status == TRI_OK && !r->is_static)
            status = trii_rdzv_round_store(r, r->round.number, &r->kv);
        if (status == TRI_OK)
            status = trii_rdzv_exchange(r);
    } while (status == TRI_INPROGRESS);
    if (status == TRI_OK)
        status = start_waker(r);
    if (status == TRI_ERR_STATE && trii_rdzv_interrupted(r))
        return; /* the order that is there says what to do */
    if (status != TRI_OK) {
        emit_simple(r, status == TRI_END ? TRII_RDZV_UNNEEDED : TRII_RDZV_FAILED, false,
                    tri_last_error());
        return;
    }
    r->on = true;
    r->knows_end = false;
    event.round = r->round;
    emit(r, &event);
    r->round.agents = NULL; /* the agent's now */
}

static void tell(trii_rendezvous *r, const trii_rdzv_order *o, int gone)
{
    trii_rdzv_news news = {
        .over = o->over || (gone >= 0 && r->is_static), .counts = o->counts, .gone = gone};

    if (r->kv == NULL)
        return;
    snprintf(news.why, sizeof(news.why), "%s", o->why);
    trii_rdzv_broadcast(r, r->kv, r->round.number, r->round.group_size, &news);
    r->on = false; /* we know what was told */
}

/* We know how the round ended, and need its store no more. */
static void know_end(trii_rendezvous *r)
{
    int64_t n;
    tri_status status =
        r->kv != NULL && !r->knows_end ? tri_store_add(r->kv, "trireme/left", 1, &n) : TRI_OK;

    r->knows_end = true;
    (void)status; /* then whoever waits for it waits a little in vain */
}

/* Nobody waits for a place any more. */
static bool is_unwanted(trii_rendezvous *r)
{
    trii_rdzv_state s;
    bool any = false;

    if (r->is_static || trii_rdzv_look(r, &s) != TRI_OK)
        return true;
    for (int i = 0; i < s.n; i++)
        any = any || s.entries[i].waiting || s.entries[i].redundant;
    trii_rdzv_state_fini(&s);
    return !any;
}

/* Who serves the store stays until the others know how it ended. */
static void say_goodbye(trii_rendezvous *r)
{
    int64_t deadline = trii_deadline_ms(r->round.mixed ? GOODBYE_MIXED_MS : GOODBYE_MS), n = 0;
    tri_status status = TRI_OK;

    know_end(r);
    if (r->round.world_size == 0)
        return; /* there never was a round */
    while (r->serves && r->kv != NULL && status == TRI_OK && trii_now_ns() < deadline) {
        status = tri_store_add(r->kv, "trireme/left", 0, &n);
        if (status == TRI_OK && n >= r->round.group_size && is_unwanted(r))
            break;
        trii_sleep_until(trii_now_ns() + 5 * TRII_NS_PER_MS);
    }
}

static void leave(trii_rendezvous *r, const trii_rdzv_order *o)
{
    tri_status status = TRI_OK;

    if (o->kind == TRII_ORDER_LEAVE)
        tell(r, o, r->round.group_rank);
    if (!r->is_static && r->backend != NULL)
        status = trii_rdzv_change(r, &r->self, o->kind == TRII_ORDER_CLOSE);
    if (o->kind == TRII_ORDER_CLOSE || r->serves)
        say_goodbye(r);
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "launch", "leaving the rendezvous: %s", tri_last_error());
    end_round(r);
    emit_simple(r, TRII_RDZV_LEFT, false, "");
}

static void finish(trii_rendezvous *r)
{
    static const char last[] = "torchelastic/agent/terminal_state/last_member";
    int64_t n = 0;
    tri_status status =
        tri_store_add(r->kv, "torchelastic/agent/terminal_state/num_members", 1, &n);

    if (status == TRI_OK && n >= r->round.group_size) {
        status = tri_store_set(r->kv, last, "<val_ignored>", 13);
        for (int i = 0; i < r->round.group_size && status == TRI_OK; i++) {
            char key[64];

            news_key(key, sizeof(key), r->round.number, i);
            status = tri_store_set(r->kv, key, "1", 1);
        }
    }
    r->finishing = true;
    if (status != TRI_OK)
        fail(r);
}

static void lost(trii_rendezvous *r, const trii_rdzv_order *o)
{
    int64_t n;
    bool serves = r->round_serves == o->number;

    if (!serves) {
        bury(r, o->number, o->why);
        r->on = false;
        return;
    }
    /* Its store answers, so it lives, and it was us who was not heard. */
    if (tri_store_num_keys(r->base, &n) == TRI_OK)
        emit_simple(r, TRII_RDZV_AGAIN, false, "this host was taken for dead");
    else
        fail(r);
    r->on = false;
}

static bool obey(trii_rendezvous *r, const trii_rdzv_order *o)
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
        end_round(r);
        return false;
    }
    return true;
}

static tri_status is_barrier_passed(trii_rendezvous *r, bool *passed_out)
{
    const char *keys[] = {"torchelastic/agent/terminal_state/last_member"};

    return tri_store_check(r->kv, keys, 1, passed_out);
}

/* Whether the shared state still has us in it, alone with those that we know. */
static tri_status look_at_state(trii_rendezvous *r)
{
    trii_rdzv_state s;
    const trii_rdzv_entry *self;
    bool passed = false;
    tri_status status = trii_rdzv_look(r, &s);

    if (status != TRI_OK)
        return status;
    self = trii_rdzv_find(&s, &r->self);
    r->on = false;
    if (s.closed && r->finishing) /* all may have succeeded since we asked for that */
        status = is_barrier_passed(r, &passed);
    if (status != TRI_OK)
        r->on = true;
    else if (passed)
        emit_simple(r, TRII_RDZV_FINISHED, false, "");
    else if (s.closed)
        emit_simple(r, TRII_RDZV_ENDED, false, "another host has closed the job");
    else if (self == NULL || !self->participant || s.round != r->round.number)
        emit_simple(r, TRII_RDZV_AGAIN, false, "this host was taken for dead");
    else if (trii_rdzv_count_waiting(&s) > 0)
        emit_simple(r, TRII_RDZV_AGAIN, false, "a host joins");
    else if (trii_rdzv_count_participants(&s) < r->round.group_size)
        emit_simple(r, TRII_RDZV_AGAIN, false, "a host is gone");
    else
        r->on = true;
    trii_rdzv_state_fini(&s);
    return status;
}

static void look(trii_rendezvous *r)
{
    trii_rdzv_news news;
    bool there = false, passed = false;
    tri_status status;

    trii_mutex_lock(&r->mutex);
    r->poked = false;
    trii_mutex_unlock(&r->mutex);
    status = r->finishing ? is_barrier_passed(r, &passed) : TRI_OK;
    if (status == TRI_OK && passed) {
        r->on = false;
        know_end(r);
        emit_simple(r, TRII_RDZV_FINISHED, false, "");
        return;
    }
    if (status == TRI_OK)
        status = read_news(r, &news, &there);
    if (status == TRI_OK && there) {
        r->on = false;
        if (news.gone >= 0 && news.gone < r->round.group_size && r->nodes != NULL)
            r->nodes[news.gone].addr[0] = '\0';
        if (news.over)
            know_end(r);
        emit_simple(r, news.over ? TRII_RDZV_ENDED : TRII_RDZV_AGAIN, news.counts, news.why);
        return;
    }
    if (status == TRI_OK && !r->is_static)
        status = look_at_state(r);
    if (status != TRI_OK) {
        r->on = false;
        fail(r);
    }
}

static bool obey_without_store(trii_rendezvous *r, const trii_rdzv_order *o)
{
    if (o->kind == TRII_ORDER_LEAVE || o->kind == TRII_ORDER_CLOSE)
        emit_simple(r, TRII_RDZV_LEFT, false, "");
    return o->kind != TRII_ORDER_QUIT;
}

void trii_rdzv_main(void *arg)
{
    trii_rendezvous *r = arg;
    bool alive = true, ordered;
    tri_status status = trii_thread_start(&r->waker, "rdzv-waker", waker_main, r);
    bool has_waker = status == TRI_OK;

    if (status == TRI_OK)
        status = trii_rdzv_begin(r);
    if (status != TRI_OK)
        fail(r);
    while (alive) {
        trii_rdzv_order o;
        int64_t look_ms = r->finishing ? BARRIER_LOOK_MS : LOOK_MS;

        if (next_order(r, &o)) {
            alive = status == TRI_OK ? obey(r, &o) : obey_without_store(r, &o);
            continue;
        }
        trii_rdzv_pause(r, r->on ? trii_now_ns() + look_ms * TRII_NS_PER_MS : TRII_NO_DEADLINE);
        trii_mutex_lock(&r->mutex);
        ordered = r->n_orders > 0;
        r->poked = r->poked && r->on; /* else it is about nothing that is on */
        trii_mutex_unlock(&r->mutex);
        if (r->on && !ordered)
            look(r);
    }
    trii_mutex_lock(&r->mutex);
    r->waker_quit = true;
    trii_cond_broadcast(&r->changed);
    trii_mutex_unlock(&r->mutex);
    if (has_waker)
        trii_thread_join(&r->waker);
    if (r->backend != NULL)
        r->backend->ops->destroy(r->backend);
    tri_store_unref(r->base);
    trii_free(r->nodes);
    trii_free(r->round.agents);
    trii_mutex_lock(&r->mutex);
    r->done = true;
    trii_cond_broadcast(&r->changed);
    trii_mutex_unlock(&r->mutex);
}
