/*
 * peer_links.c - connections between agents: who calls says who it is, then words go both ways.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/socket.h"

#define MAX_LINKS 256

bool trii_peer_link_is_of_round(const trii_peer_link *l)
{
    const trii_peers *p = l->peers;

    return l->rank >= 0 && l->rank < p->n && !l->dead && l->round == p->round.number;
}

static trii_peer_seat *seat_of(const trii_peer_link *l)
{
    return trii_peer_link_is_of_round(l) ? &l->peers->seats[l->rank] : NULL;
}

void trii_peer_link_say(const trii_peer_link *l, const char *words)
{
    size_t sent;
    tri_status status = trii_socket_send(l->watch.fd, &(trii_span){words, strlen(words)}, 1, &sent);

    (void)status; /* one that takes nothing is about to be taken for dead */
}

void trii_peer_link_drop(trii_peer_link *l, bool reset)
{
    trii_peer_link **at = &l->peers->links;
    trii_peer_seat *seat = seat_of(l);

    if (seat != NULL)
        seat->n_links--;
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
        if (trii_peer_link_is_of_round(l) && l->rank == rank)
            trii_peer_link_drop(l, true);
    }
}

/* It has ended or broken. One of a round that we have not heard of yet is kept, to be told then.
 * While there is another one with the same agent, that agent may live. */
static void end(trii_peer_link *l)
{
    trii_peers *p = l->peers;
    trii_peer_seat *seat = seat_of(l);
    int rank = l->rank;

    if (rank >= 0 && l->round > p->round.number) {
        trii_loop_unwatch(&l->watch);
        l->dead = true;
        return;
    }
    trii_peer_link_drop(l, true);
    if (seat != NULL && seat->n_links == 0 && !seat->bye)
        trii_peer_lost(p, rank, "is gone: its agent ended");
}

/* --- words ------------------------------------------------------------------------------------ */

/* One that is past is of no use to anybody. */
static void say_notice(const trii_peer_link *l, int rank)
{
    const trii_peer_notice *n = &l->peers->seats[rank].notice;
    trii_peer_message word = {TRII_PEER_NOTICE, rank, n->number, -1};
    char text[TRII_PEER_NOTICE_BYTES];

    if (n->number == 0 || n->deadline_ns <= trii_now_ns())
        return;
    if (n->deadline_ns != TRII_NO_DEADLINE)
        word.left_ms = trii_deadline_left_ms(n->deadline_ns);
    trii_peer_messages_preemption(&word, text);
    trii_peer_link_say(l, text);
}

void trii_peer_link_say_notices(const trii_peer_link *l)
{
    for (int i = 0; trii_peer_link_is_of_round(l) && i < l->peers->n; i++)
        say_notice(l, i);
}

void trii_peer_links_spread(trii_peers *p, const trii_peer_link *from, int rank)
{
    for (const trii_peer_link *l = p->links; l != NULL; l = l->next) {
        if (l != from && trii_peer_link_is_of_round(l))
            say_notice(l, rank);
    }
}

static void take_notice(const trii_peer_link *l, const trii_peer_message *word)
{
    trii_peers *p = l->peers;
    int rank = word->rank;

    if (!trii_peer_link_is_of_round(l) || rank >= p->n || rank == p->round.group_rank ||
        p->seats[rank].notice.number >= word->number)
        return;
    p->seats[rank].notice = (trii_peer_notice){word->number, trii_deadline_ms(word->left_ms)};
    trii_peer_links_spread(p, l, rank);
    trii_peer_news_post(p, TRII_PEER_NOTICED, rank, word->left_ms, "");
}

/* What it says once it is no stranger any more. */
static void take_words(const trii_peer_link *l, const char *data, size_t bytes,
                       trii_peer_messages *words)
{
    trii_peer_seat *seat = seat_of(l);
    trii_peer_message word;

    if (seat != NULL)
        seat->heard_ns = trii_now_ns();
    while (trii_peer_messages_next(words, &data, &bytes, &word)) {
        if (word.kind == TRII_PEER_NOTICE)
            take_notice(l, &word);
        else if (seat != NULL && word.kind == TRII_PEER_BYE)
            seat->bye = true;
        else if (seat != NULL)
            seat->held_up_ms = word.kind == TRII_PEER_HELD_UP ? word.left_ms : 0;
    }
}

/* --- strangers -------------------------------------------------------------------------------- */

/* It has said who it is. */
static void seat_link(trii_peer_link *l, int rank, int64_t round)
{
    trii_peer_seat *seat;

    l->rank = rank;
    l->round = round;
    seat = seat_of(l);
    if (seat != NULL) {
        seat->watched = seat->reached = true;
        seat->n_links++;
        trii_peer_link_say_notices(l);
    }
}

/* Bytes of a stranger. False: it is none of ours. */
static bool take_hello(trii_peer_link *l, const char *data, size_t bytes)
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
        trii_peer_link_say(l, "q"); /* we live, in a round that it has not heard of yet */
    if (status != TRI_OK || l->hello.round < p->round.number)
        return false;
    seat_link(l, l->hello.rank, l->hello.round);
    take_words(l, data + at, bytes - at, &l->words);
    return true;
}

static void link_ready(trii_watch *watch, unsigned events)
{
    trii_peer_link *l = TRII_CONTAINER(watch, trii_peer_link, watch);
    char words[256];
    size_t got;
    tri_status status = trii_socket_recv(watch->fd, words, sizeof(words), &got);

    (void)events;
    if (status == TRI_INPROGRESS)
        return;
    if (l->rank < 0) {
        if (status != TRI_OK || !take_hello(l, words, got))
            trii_peer_link_drop(l, false);
    } else if (status == TRI_OK) {
        take_words(l, words, got, &l->words);
    } else {
        end(l);
    }
}

/* Strangers must not keep out those who belong here: the one that came first goes. False: there is
 * none. */
static bool drop_stranger(trii_peers *p)
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

    if (p->n_links < MAX_LINKS || drop_stranger(p))
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
        seat_link(l, rank, round);
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
    } else if (status != TRI_INPROGRESS && !drop_stranger(p)) {
        p->deaf = true; /* it stays ready: we would ask without end */
        trii_loop_change(watch, 0);
    }
}
