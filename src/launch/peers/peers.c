/*
 * peers.c - see peers.h: the thread, its rounds, what it reports, its beginning and end. Called by
 * agent_hosts.c only; everything that happens on the thread is in peer_liveness.c and peer_links.c.
 */
#include "launch/peers/peers.h"

#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/socket.h"

/* --- beginning and end ---------------------------------------------------- */

static void peers_main(void *arg)
{
    trii_peers *p = arg;

    while (!atomic_load(&p->closed))
        trii_loop_run_once(p->loop, TRII_NO_DEADLINE);
}

/* On the agent's loop: shows that it runs. */
static void agent_ticked(trii_timer *timer)
{
    trii_peers *p = TRII_CONTAINER(timer, trii_peers, tick);
    int64_t now = trii_now_ns();

    atomic_store(&p->ticked_ns, now);
    trii_loop_timer(p->agent_loop, timer, now + TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS,
                    agent_ticked);
}

static tri_status make_token(trii_peers *p)
{
    unsigned char random[TRII_PEER_TOKEN_BYTES / 2];

    if (!trii_random_bytes(random, sizeof(random)))
        return TRII_FAIL(TRI_ERR_IO,
                         "cannot make the token of this agent: the system has no random numbers");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(p->token + 2 * i, 3, "%02x", random[i]);
    return TRI_OK;
}

static tri_status prepare(trii_peers *p, const char *host)
{
    int fd = -1;
    tri_status status = trii_job_key_load(&p->key);

    if (status == TRI_OK)
        status = make_token(p);
    if (status == TRI_OK)
        status = trii_loop_create(&p->loop);
    if (status == TRI_OK)
        status = trii_wakeup_create(&p->events_fd);
    if (status == TRI_OK)
        status = trii_socket_listen(host, 0, &fd, &p->port);
    if (status == TRI_OK)
        status = trii_loop_watch(p->loop, &p->listener, fd, TRII_READABLE, trii_peer_links_accept);
    if (status != TRI_OK) {
        trii_socket_close(fd);
        return status;
    }
    agent_ticked(&p->tick);
    p->heartbeat_ns = trii_now_ns();
    trii_loop_timer(p->loop, &p->heartbeat,
                    p->heartbeat_ns + TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS, trii_peer_heartbeat);
    status = trii_thread_start(&p->thread, "peers", peers_main, p);
    p->has_thread = status == TRI_OK;
    return status;
}

tri_status trii_peers_create(trii_loop *loop, const char *host, int64_t silence_ms,
                             trii_peers **peers_out)
{
    trii_peers *p = trii_alloc(1, sizeof(*p), "peer agents");
    tri_status status;

    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    atomic_store(&p->n_users, 1);
    p->agent_loop = loop;
    p->silence_ms = silence_ms;
    p->events_fd = -1;
    p->round.number = -1;
    status = prepare(p, host);
    if (status != TRI_OK) {
        char why[TRII_ERR_BYTES];

        snprintf(why, sizeof(why), "%s", tri_last_error());
        trii_peers_destroy(p, false);
        return TRII_FAIL(status, "%s", why);
    }
    *peers_out = p;
    return TRI_OK;
}

static const trii_peer_frame goodbye = {.kind = TRII_PEER_GOODBYE};

/* Those with agents, of rounds before this one. */
static void end_links(trii_peers *p, int64_t round, bool in_order)
{
    trii_peer_link *next;

    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (l->round >= round || l->rank < 0)
            continue;
        if (in_order)
            trii_peer_link_send(l, &goodbye);
        trii_peer_link_drop(l, false);
    }
}

static void forget_news(trii_peers *p)
{
    while (p->news != NULL) {
        trii_peer_item *next = p->news->next;

        trii_free(p->news);
        p->news = next;
    }
}

void trii_peers_destroy(trii_peers *p, bool in_order)
{
    if (p == NULL)
        return;
    atomic_store(&p->closed, true);
    trii_loop_timer_stop(p->agent_loop, &p->tick);
    if (p->has_thread) {
        trii_loop_wake(p->loop);
        trii_thread_join(&p->thread);
    }
    if (p->loop != NULL) {
        trii_loop_lock(p->loop);
        if (in_order)
            trii_peer_links_hear(p);
        end_links(p, INT64_MAX, in_order);
        while (p->links != NULL) { /* who has not said yet who it is */
            if (in_order && !p->key.set)
                trii_peer_link_send(p->links, &goodbye);
            trii_peer_link_drop(p->links, false);
        }
        forget_news(p);
        if (p->listener.loop != NULL) {
            trii_loop_unwatch(&p->listener);
            trii_socket_close(p->listener.fd);
        }
        trii_loop_unlock(p->loop);
    }
    trii_peers_unref(p);
}

void trii_peers_describe(const trii_peers *peers, trii_rdzv_agent *agent)
{
    agent->port = peers->port;
    agent->keyed = peers->key.set;
    snprintf(agent->token, sizeof(agent->token), "%s", peers->token);
}

/* --- rounds --------------------------------------------------------------- */

/* For a new round, with what is known of its hosts; NULL: too little memory. */
static trii_peer_state *make_states(const trii_peers *p, const trii_rdzv_round *round)
{
    trii_peer_state *states = trii_alloc((size_t)round->group_size, sizeof(*states), "peer agents");
    int64_t now = trii_now_ns();

    for (int i = 0; states != NULL && i < round->group_size; i++) {
        const char *token = round->agents[i].token; /* "": torchrun's */

        states[i].heard_ns = now;
        if (i == round->group_rank)
            states[i].preemption = p->own;
        for (int k = 0; i != round->group_rank && *token != '\0' && k < p->n; k++) {
            if (p->states[k].preemption.number > 0 && strcmp(token, p->round.agents[k].token) == 0)
                states[i].preemption = p->states[k].preemption;
        }
    }
    return states;
}

/* Has the next few by rank dialed; step -1: those before us, which dial us. Agents of torchrun
 * (port 0) are passed over, so that those of trirun are connected whatever their ranks. */
static void watch_few(trii_peers *p, int step)
{
    int n_ours = 0, n_watched = 0;

    for (int i = 0; i < p->n; i++)
        n_ours += i == p->round.group_rank || p->round.agents[i].port != 0;
    for (int i = 1; i < p->n && n_watched < TRII_PEER_NEIGHBOURS && n_watched < n_ours / 2; i++) {
        int rank = (p->round.group_rank + step * i + p->n) % p->n;

        if (p->round.agents[rank].port == 0)
            continue;
        if (!p->states[rank].watched)
            p->states[rank].heard_ns = trii_now_ns();
        p->states[rank].watched = true;
        n_watched++;
    }
}

/* Adopts the links of those that dialed us before we had heard of the round. */
static void begin_round(trii_peers *p)
{
    watch_few(p, 1);
    for (trii_peer_link *l = p->links; l != NULL; l = l->next)
        trii_peer_link_enter_round(l);
    trii_peer_heartbeat(&p->heartbeat); /* dials those that did not dial us */
}

void trii_peers_meet(trii_peers *p)
{
    trii_loop_lock(p->loop);
    watch_few(p, -1);
    trii_peer_heartbeat(&p->heartbeat);
    trii_loop_unlock(p->loop);
}

void trii_peers_watch_round(trii_peers *p, const trii_rdzv_round *round)
{
    size_t n = (size_t)round->group_size;
    trii_rdzv_agent *agents = trii_alloc(n, sizeof(*agents), "peer agents");
    trii_peer_state *states;

    trii_loop_lock(p->loop);
    states = make_states(p, round);
    end_links(p, round->number, true);
    forget_news(p);
    p->others = (trii_peer_progress){.at_ns = 0}; /* by the ranks of the last round */
    trii_free(p->round.agents);
    trii_free(p->states);
    p->round = *round;
    p->round.agents = agents;
    p->states = states;
    p->n = 0;
    if (agents != NULL && states != NULL) { /* else the shared state shows who is dead */
        memcpy(agents, round->agents, n * sizeof(*agents));
        p->n = round->group_size;
        begin_round(p);
    }
    trii_loop_unlock(p->loop);
}

void trii_peers_announce_preemption(trii_peers *p, int64_t left_ms)
{
    trii_loop_lock(p->loop);
    p->own = (trii_peer_preemption){p->own.number + 1, trii_deadline_ms(left_ms), true};
    if (p->n > 0) { /* else the agents of our first round will be notified */
        p->states[p->round.group_rank].preemption = p->own;
        trii_peer_links_forward_preemption(p, NULL, p->round.group_rank);
    }
    trii_loop_unlock(p->loop);
}

void trii_peers_tell(trii_peers *p, const trii_rdzv_news *news)
{
    trii_loop_lock(p->loop);
    (void)trii_peer_links_spread(p, NULL, news, true);
    trii_loop_unlock(p->loop);
}

int64_t trii_peers_progress(trii_peers *p, int64_t own_ns)
{
    int64_t hops, others_ns;

    atomic_store(&p->progress_ns, own_ns);
    trii_loop_lock(p->loop);
    hops = p->n / (2 * TRII_PEER_NEIGHBOURS) + 1;
    others_ns = p->others.at_ns + hops * TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS;
    trii_loop_unlock(p->loop);
    return own_ns > others_ns ? own_ns : others_ns;
}

bool trii_peers_have_met(trii_peers *p)
{
    int n_ours = 0, n_met = 0;

    trii_loop_lock(p->loop);
    for (int i = 0; i < p->n; i++) {
        const trii_peer_state *s = &p->states[i];

        if (i == p->round.group_rank || p->round.agents[i].port == 0)
            continue;
        n_ours++;
        n_met += s->reached || s->judgement != TRII_PEER_NOTHING;
    }
    trii_loop_unlock(p->loop);
    return n_met >= n_ours || n_met >= 2 * TRII_PEER_NEIGHBOURS;
}

bool trii_peers_have_suspect(trii_peers *p)
{
    int64_t since_ns = trii_now_ns() - 3 * TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS;
    bool any;

    trii_loop_lock(p->loop);
    any = p->n > 2 * TRII_PEER_NEIGHBOURS + 1;
    for (int i = 0; i < p->n; i++) {
        const trii_peer_state *s = &p->states[i];

        any = any || (s->watched && s->judgement == TRII_PEER_NOTHING && !s->left &&
                      s->heard_ns < since_ns);
    }
    trii_loop_unlock(p->loop);
    return any;
}

/* --- events --------------------------------------------------------------- */

int trii_peers_fd(const trii_peers *peers)
{
    return peers->events_fd;
}

/* The oldest. */
static int find_event(const trii_peers *p)
{
    int found = -1;

    for (int i = 0; i < p->n; i++) {
        if (p->states[i].unreported != TRII_PEER_NOTHING &&
            (found < 0 || p->states[i].event_ns < p->states[found].event_ns))
            found = i;
    }
    return found;
}

static int find_preemption(const trii_peers *p)
{
    for (int i = 0; i < p->n; i++) {
        if (p->states[i].preemption.number > 0 && !p->states[i].preemption.reported)
            return i;
    }
    return -1;
}

static trii_peer_item *find_news(const trii_peers *p)
{
    trii_peer_item *item = p->news;

    while (item != NULL && item->reported)
        item = item->next;
    return item;
}

void trii_peers_next(trii_peers *p, trii_peer_event *event)
{
    trii_peer_preemption *preemption;
    trii_peer_item *item;

    *event = (trii_peer_event){.kind = TRII_PEER_NOTHING, .round = &p->round};
    trii_wakeup_clear(p->events_fd);
    trii_loop_lock(p->loop);
    item = find_news(p);
    event->rank = find_preemption(p);
    if (item != NULL) {
        event->kind = TRII_PEER_NEWS_CAME;
        event->rank = item->news.gone;
        event->news = item->news;
        item->reported = true;
    } else if (event->rank >= 0) {
        event->kind = TRII_PEER_PREEMPTED;
        preemption = &p->states[event->rank].preemption;
        preemption->reported = true;
        event->left_ms = preemption->deadline_ns == TRII_NO_DEADLINE
                             ? -1
                             : trii_deadline_left_ms(preemption->deadline_ns);
    } else if ((event->rank = find_event(p)) >= 0) {
        event->kind = p->states[event->rank].unreported;
        p->states[event->rank].unreported = TRII_PEER_NOTHING;
        snprintf(event->text, sizeof(event->text), "%s", p->states[event->rank].text);
    }
    trii_loop_unlock(p->loop);
}
