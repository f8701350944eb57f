/*
 * peer_news.c - from the peers' thread to the agent: what happened waits in a queue until the
 * agent's loop comes to tell it; and the sign of life of that loop, in the other direction.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/socket.h"

struct trii_peer_news {
    trii_peer_news_kind kind;
    int rank;
    int64_t round, left_ms;
    char text[TRII_ERR_BYTES];
    trii_peer_news *next;
};

const char *trii_peer_name(const trii_rdzv_agent *agent, char text_out[TRII_PEER_NAME_BYTES])
{
    snprintf(text_out, TRII_PEER_NAME_BYTES, "host %s (pid %lld)", agent->name,
             (long long)agent->node.pid);
    return text_out;
}

void trii_peer_news_post(trii_peers *p, trii_peer_news_kind kind, int rank, int64_t left_ms,
                         const char *text)
{
    trii_peer_news *n = trii_alloc(1, sizeof(*n), "peer agents"), **link = &p->news;

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
    trii_wakeup_signal(p->news_fd);
}

static trii_peer_news *take(trii_peers *p)
{
    trii_peer_news *n;

    trii_loop_lock(p->loop);
    n = p->news;
    if (n != NULL)
        p->news = n->next;
    trii_loop_unlock(p->loop);
    return n;
}

/* The round is changed by this thread only. */
static void tell(trii_peers *p, const trii_peer_news *n)
{
    const trii_peers_events *e = &p->events;
    bool holds = n->round == p->round.number;

    if (n->kind == TRII_PEER_REMARKED)
        e->remarked(e->arg, n->text);
    else if (n->kind == TRII_PEER_REFUSED && holds)
        e->refused(e->arg, n->text);
    else if (n->kind == TRII_PEER_LOST && holds)
        e->lost(e->arg, &p->round, n->rank, n->text);
    else if (n->kind == TRII_PEER_NOTICED && holds)
        e->noticed(e->arg, n->rank, &p->round.agents[n->rank], n->left_ms);
}

static void news_ready(trii_watch *watch, unsigned events)
{
    trii_peers *p = TRII_CONTAINER(watch, trii_peers, news_watch);
    trii_peer_news *n;

    (void)events;
    trii_wakeup_clear(watch->fd);
    while ((n = take(p)) != NULL) {
        tell(p, n);
        trii_free(n);
    }
}

static void ticked(trii_timer *timer)
{
    trii_peers *p = TRII_CONTAINER(timer, trii_peers, tick);
    int64_t now = trii_now_ns();

    atomic_store(&p->ticked_ns, now);
    trii_loop_timer(p->agent_loop, timer, now + TRII_PEER_BEAT_MS * TRII_NS_PER_MS, ticked);
}

tri_status trii_peer_news_open(trii_peers *p)
{
    int fd = -1;
    tri_status status = trii_wakeup_create(&fd);

    p->news_fd = fd;
    if (status == TRI_OK)
        status = trii_loop_watch(p->agent_loop, &p->news_watch, fd, TRII_READABLE, news_ready);
    if (status == TRI_OK)
        ticked(&p->tick);
    return status;
}

void trii_peer_news_close(trii_peers *p)
{
    trii_peer_news *n;

    trii_loop_timer_stop(p->agent_loop, &p->tick);
    trii_loop_unwatch(&p->news_watch);
    trii_socket_close(p->news_fd);
    while ((n = take(p)) != NULL)
        trii_free(n);
}
