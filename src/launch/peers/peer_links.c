/*
 * peer_links.c - connections between agents: the dialer identifies itself, then messages go both
 * ways.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/socket.h"

#define MAX_LINKS 256

bool trii_peer_link_is_in_round(const trii_peer_link *l)
{
    const trii_peers *p = l->peers;

    return l->rank >= 0 && l->rank < p->n && !l->dead && l->round == p->round.number;
}

static trii_peer_state *state_of(const trii_peer_link *l)
{
    return trii_peer_link_is_in_round(l) ? &l->peers->states[l->rank] : NULL;
}

void trii_peer_link_send(const trii_peer_link *l, const char *messages)
{
    size_t sent;
    tri_status status =
        trii_socket_send(l->watch.fd, &(trii_span){messages, strlen(messages)}, 1, &sent);

    (void)status; /* one that takes nothing is about to be declared dead */
}

void trii_peer_link_drop(trii_peer_link *l, bool reset)
{
    trii_peer_link **at = &l->peers->links;
    trii_peer_state *state = state_of(l);

    if (state != NULL)
        state->n_links--;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    l->peers->n_links--;
    trii_loop_unwatch(&l->watch);
    if (reset)
        trii_socket_close_linger(l->watch.fd, 0);
    else
        trii_socket_close(l->watch.fd);
    trii_free(l);
}

void trii_peer_links_drop(trii_peers *p, int rank)
{
    trii_peer_link *next;

    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (trii_peer_link_is_in_round(l) && l->rank == rank)
            trii_peer_link_drop(l, true);
    }
}

/* It has ended or broken. One of a round that we have not heard of yet is kept, to be reported
 * then. While there is another one with the same agent, that agent may live. */
static void end_link(trii_peer_link *l)
{
    trii_peers *p = l->peers;
    trii_peer_state *state = state_of(l);
    int rank = l->rank;

    if (rank >= 0 && l->round > p->round.number) {
        trii_loop_unwatch(&l->watch);
        l->dead = true;
        return;
    }
    trii_peer_link_drop(l, true);
    if (state != NULL && state->n_links == 0 && !state->left)
        trii_peer_lost(p, rank, "is gone: its agent ended");
}

/* --- messages ------------------------------------------------------------- */

/* A deadline that is over is of no use to anybody. */
static void send_preemption(const trii_peer_link *l, int rank)
{
    const trii_peer_preemption *n = &l->peers->states[rank].preemption;
    trii_peer_message message = {TRII_PEER_PREEMPTION, rank, n->number, -1};
    char text[TRII_PEER_MESSAGE_BYTES];

    if (n->number == 0 || n->deadline_ns <= trii_now_ns())
        return;
    if (n->deadline_ns != TRII_NO_DEADLINE)
        message.left_ms = trii_deadline_left_ms(n->deadline_ns);
    trii_peer_messages_preemption(&message, text);
    trii_peer_link_send(l, text);
}

void trii_peer_link_send_preemptions(const trii_peer_link *l)
{
    for (int i = 0; trii_peer_link_is_in_round(l) && i < l->peers->n; i++)
        send_preemption(l, i);
}

void trii_peer_links_forward_preemption(trii_peers *p, const trii_peer_link *from, int rank)
{
    for (const trii_peer_link *l = p->links; l != NULL; l = l->next) {
        if (l != from && trii_peer_link_is_in_round(l))
            send_preemption(l, rank);
    }
}

static void handle_preemption(const trii_peer_link *l, const trii_peer_message *message)
{
    trii_peers *p = l->peers;
    int rank = message->rank;

    if (!trii_peer_link_is_in_round(l) || rank >= p->n || rank == p->round.group_rank ||
        p->states[rank].preemption.number >= message->number)
        return;
    p->states[rank].preemption =
        (trii_peer_preemption){message->number, trii_deadline_ms(message->left_ms)};
    trii_peer_links_forward_preemption(p, l, rank);
    trii_peer_events_post(p, TRII_PEER_PREEMPTED, rank, message->left_ms, "");
}

/* Of an agent that has identified itself. */
static void handle_messages(const trii_peer_link *l, const char *data, size_t bytes,
                            trii_peer_messages *messages)
{
    trii_peer_state *state = state_of(l);
    trii_peer_message message;

    if (state != NULL)
        state->heard_ns = trii_now_ns();
    while (trii_peer_messages_next(messages, &data, &bytes, &message)) {
        if (message.kind == TRII_PEER_PREEMPTION)
            handle_preemption(l, &message);
        else if (state != NULL && message.kind == TRII_PEER_GOODBYE)
            state->left = true;
        else if (state != NULL)
            state->stalled_ms = message.kind == TRII_PEER_STALLED ? message.left_ms : 0;
    }
}

/* --- identification ------------------------------------------------------- */

/* It has identified itself. */
static void identify_link(trii_peer_link *l, int rank, int64_t round)
{
    trii_peer_state *state;

    l->rank = rank;
    l->round = round;
    state = state_of(l);
    if (state != NULL) {
        state->watched = state->reached = true;
        state->n_links++;
        trii_peer_link_send_preemptions(l);
    }
}

/* Of who has not identified itself yet. False: it is not an agent of this job. */
static bool handle_hello(trii_peer_link *l, const char *data, size_t bytes)
{
    const trii_peers *p = l->peers;
    unsigned char answer[TRII_ANSWER_BYTES];
    tri_status status = TRI_INPROGRESS;
    size_t at = 0;

    while (status == TRI_INPROGRESS && at < bytes) {
        size_t used = 0, answer_bytes = 0, sent = 0;

        status = trii_peer_hello_feed(&l->hello, &p->key, p->token, data + at, bytes - at, &used,
                                      answer, &answer_bytes);
        at += used;
        if (answer_bytes > 0 && /* the first that we send: there is room */
            (trii_socket_send(l->watch.fd, &(trii_span){answer, answer_bytes}, 1, &sent) !=
                 TRI_OK ||
             sent != answer_bytes))
            return false;
    }
    if (status == TRI_INPROGRESS)
        return true;
    if (status == TRI_OK && l->hello.round < p->round.number)
        trii_peer_link_send(l, "q"); /* in order: we are in a round that it has not heard of yet */
    if (status != TRI_OK || l->hello.round < p->round.number)
        return false;
    identify_link(l, l->hello.rank, l->hello.round);
    handle_messages(l, data + at, bytes - at, &l->messages);
    return true;
}

static void link_ready(trii_watch *watch, unsigned events)
{
    trii_peer_link *l = TRII_CONTAINER(watch, trii_peer_link, watch);
    char data[256];
    size_t got;
    tri_status status = trii_socket_recv(watch->fd, data, sizeof(data), &got);

    (void)events;
    if (status == TRI_INPROGRESS)
        return;
    if (l->rank < 0) {
        if (status != TRI_OK || !handle_hello(l, data, got))
            trii_peer_link_drop(l, false);
    } else if (status == TRI_OK) {
        handle_messages(l, data, got, &l->messages);
    } else {
        end_link(l);
    }
}

/* Connections that do not identify themselves must not keep out those that do: the oldest one goes.
 * False: there is none. */
static bool drop_unidentified(trii_peers *p)
{
    trii_peer_link *oldest = NULL;

    for (trii_peer_link *l = p->links; l != NULL; l = l->next) {
        if (l->rank < 0)
            oldest = l; /* new ones are in front */
    }
    if (oldest != NULL)
        trii_peer_link_drop(oldest, false);
    return oldest != NULL;
}

trii_peer_link *trii_peer_link_add(trii_peers *p, int fd, int rank, int64_t round)
{
    trii_peer_link *l = NULL;

    if (p->n_links < MAX_LINKS || drop_unidentified(p))
        l = trii_alloc(1, sizeof(*l), "peer agent");
    if (l == NULL || trii_loop_watch(p->loop, &l->watch, fd, TRII_READABLE, link_ready) != TRI_OK) {
        trii_free(l);
        trii_socket_close(fd);
        return NULL;
    }
    trii_socket_prefer(fd);
    l->peers = p;
    l->rank = -1;
    l->came_ns = trii_now_ns();
    l->next = p->links;
    p->links = l;
    p->n_links++;
    if (rank >= 0)
        identify_link(l, rank, round);
    return l;
}

void trii_peer_links_accept(trii_watch *watch, unsigned events)
{
    trii_peers *p = TRII_CONTAINER(watch, trii_peers, listener);
    int fd;
    tri_status status = trii_socket_accept(watch->fd, &fd);

    (void)events;
    if (status == TRI_OK) {
        (void)trii_peer_link_add(p, fd, -1, -1);
    } else if (status != TRI_INPROGRESS && !drop_unidentified(p)) {
        p->accept_paused = true; /* it stays ready: the loop would spin */
        trii_loop_change(watch, 0);
    }
}
