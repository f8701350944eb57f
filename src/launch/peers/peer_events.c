/*
 * peer_events.c - from the peers' thread to the agent: events wait in a queue until the agent's
 * loop delivers them; and in the other direction the ticks that show that this loop runs.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/socket.h"

struct trii_peer_event {
    trii_peer_event_kind kind;
    int rank;
    int64_t round, left_ms;
    char text[TRII_ERR_BYTES];
    trii_peer_event *next;
};

const char *trii_peer_name(const trii_rdzv_agent *agent, char text_out[TRII_PEER_NAME_BYTES])
{
    snprintf(text_out, TRII_PEER_NAME_BYTES, "host %s (pid %lld)", agent->name,
             (long long)agent->node.pid);
    return text_out;
}

void trii_peer_events_post(trii_peers *p, trii_peer_event_kind kind, int rank, int64_t left_ms,
                           const char *text)
{
    trii_peer_event *n = trii_alloc(1, sizeof(*n), "peer agents"), **link = &p->queue;

    if (n == NULL)
        return; /* so much memory is always there, or nothing works */
    n->kind = kind;
    n->rank = rank;
    n->round = p->round.number;
    n->left_ms = left_ms;
    snprintf(n->text, sizeof(n->text), "%s", text);
    while (*link != NULL)
        link = &(*link)->next;
    *link = n;
    trii_wakeup_signal(p->events_fd);
}

void trii_peer_lost(trii_peers *p, int rank, const char *why)
{
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (p->states[rank].reported)
        return;
    p->states[rank].reported = true;
    snprintf(text, sizeof(text), "%s %s", trii_peer_name(&p->round.agents[rank], name), why);
    trii_peer_events_post(p, TRII_PEER_LOST, rank, -1, text);
}

static trii_peer_event *take_event(trii_peers *p)
{
    trii_peer_event *n;

    trii_loop_lock(p->loop);
    n = p->queue;
    if (n != NULL)
        p->queue = n->next;
    trii_loop_unlock(p->loop);
    return n;
}

/* The round is changed by this thread only. */
static void deliver_event(trii_peers *p, const trii_peer_event *n)
{
    const trii_peers_callbacks *c = &p->callbacks;
    bool is_current = n->round == p->round.number;

    if (n->kind == TRII_PEER_WARNING)
        c->warning(c->arg, n->text);
    else if (n->kind == TRII_PEER_INCOMPATIBLE && is_current)
        c->incompatible(c->arg, n->text);
    else if (n->kind == TRII_PEER_LOST && is_current)
        c->lost(c->arg, &p->round, n->rank, n->text);
    else if (n->kind == TRII_PEER_PREEMPTED && is_current)
        c->preempted(c->arg, n->rank, &p->round.agents[n->rank], n->left_ms);
}

static void events_ready(trii_watch *watch, unsigned events)
{
    trii_peers *p = TRII_CONTAINER(watch, trii_peers, events_watch);
    trii_peer_event *n;

    (void)events;
    trii_wakeup_clear(watch->fd);
    while ((n = take_event(p)) != NULL) {
        deliver_event(p, n);
        trii_free(n);
    }
}

static void agent_ticked(trii_timer *timer)
{
    trii_peers *p = TRII_CONTAINER(timer, trii_peers, tick);
    int64_t now = trii_now_ns();

    atomic_store(&p->ticked_ns, now);
    trii_loop_timer(p->agent_loop, timer, now + TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS,
                    agent_ticked);
}

tri_status trii_peer_events_open(trii_peers *p)
{
    int fd = -1;
    tri_status status = trii_wakeup_create(&fd);

    p->events_fd = fd;
    if (status == TRI_OK)
        status = trii_loop_watch(p->agent_loop, &p->events_watch, fd, TRII_READABLE, events_ready);
    if (status == TRI_OK)
        agent_ticked(&p->tick);
    return status;
}

void trii_peer_events_close(trii_peers *p)
{
    trii_peer_event *n;

    trii_loop_timer_stop(p->agent_loop, &p->tick);
    trii_loop_unwatch(&p->events_watch);
    trii_socket_close(p->events_fd);
    while ((n = take_event(p)) != NULL)
        trii_free(n);
}
