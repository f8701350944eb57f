/*
 * peers.c - see peers.h: beginning and end, and the rounds.
 */
#include "launch/peers/peers.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/secret.h"
#include "os/socket.h"

/* --- beginning and end ------------------------------------------------------------------------ */

static void peers_main(void *arg)
{
    trii_peers *p = arg;

    while (!atomic_load(&p->stop))
        trii_loop_run_once(p->loop, TRII_NO_DEADLINE);
}

static tri_status prepare(trii_peers *p, const char *host)
{
    unsigned char random[8] = {0};
    int fd = -1;
    tri_status status = trii_job_key_load(&p->key);

    if (status == TRI_OK && !trii_random_bytes(random, sizeof(random)))
        status = TRII_FAIL(TRI_ERR_IO, "no random numbers for the token of agents");
    for (int i = 0; i < 8; i++)
        snprintf(p->token + 2 * i, 3, "%02x", random[i]);
    if (status == TRI_OK)
        status = trii_loop_create(&p->loop);
    if (status == TRI_OK)
        status = trii_peer_news_open(p);
    if (status == TRI_OK)
        status = trii_peer_calls_create(p->loop, &p->key, trii_peer_answered, p, &p->calls);
    if (status == TRI_OK)
        status = trii_socket_listen(host, 0, &fd, &p->port);
    if (status == TRI_OK)
        status = trii_loop_watch(p->loop, &p->listener, fd, TRII_READABLE, trii_peer_links_accept);
    if (status != TRI_OK) {
        trii_socket_close(fd);
        return status;
    }
    p->beat_ns = trii_now_ns();
    trii_loop_timer(p->loop, &p->beat, p->beat_ns + TRII_PEER_BEAT_MS * TRII_NS_PER_MS,
                    trii_peer_beat);
    status = trii_thread_start(&p->thread, "peers", peers_main, p);
    p->has_thread = status == TRI_OK;
    return status;
}

tri_status trii_peers_create(trii_loop *loop, const char *host, int64_t silence_ms,
                             const trii_peers_events *events, trii_peers **peers_out)
{
    trii_peers *p = trii_alloc(1, sizeof(*p), "peer agents");
    tri_status status;

    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    p->agent_loop = loop;
    p->silence_ms = silence_ms;
    p->events = *events;
    p->news_fd = -1;
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

void trii_peers_destroy(trii_peers *p, bool in_order)
{
    if (p == NULL)
        return;
    atomic_store(&p->stop, true);
    if (p->has_thread) {
        trii_loop_wake(p->loop);
        trii_thread_join(&p->thread);
    }
    while (p->links != NULL) {
        if (in_order && !p->links->dead && p->links->rank >= 0)
            trii_peer_link_say(p->links, "q");
        trii_peer_link_drop(p->links, false);
    }
    if (p->listener.loop != NULL) {
        int fd = p->listener.fd;

        trii_loop_unwatch(&p->listener);
        trii_socket_close(fd);
    }
    trii_peer_calls_destroy(p->calls);
    if (p->loop != NULL)
        trii_peer_news_close(p);
    trii_loop_destroy(p->loop);
    trii_free(p->round.agents);
    trii_free(p->seats);
    trii_secret_wipe(&p->key, sizeof(p->key));
    trii_free(p);
}

int trii_peers_port(const trii_peers *peers)
{
    return peers->port;
}

const char *trii_peers_token(const trii_peers *peers)
{
    return peers->token;
}

bool trii_peers_keyed(const trii_peers *peers)
{
    return peers->key.set;
}

/* --- rounds ----------------------------------------------------------------------------------- */

/* The seats of a new round, with what is known of its hosts; NULL: too little memory. */
static trii_peer_seat *set_seats(const trii_peers *p, const trii_rdzv_round *round)
{
    trii_peer_seat *seats = trii_alloc((size_t)round->group_size, sizeof(*seats), "peer agents");
    int64_t now = trii_now_ns();

    for (int i = 0; seats != NULL && i < round->group_size; i++) {
        const char *token = round->agents[i].token; /* "": torchrun's */

        seats[i].heard_ns = now;
        if (i == round->group_rank)
            seats[i].notice = p->own;
        for (int k = 0; i != round->group_rank && *token != '\0' && k < p->n; k++) {
            if (p->seats[k].notice.number > 0 && strcmp(token, p->round.agents[k].token) == 0)
                seats[i].notice = p->seats[k].notice;
        }
    }
    return seats;
}

static void end_round(trii_peers *p, int64_t next_number)
{
    trii_peer_link *next;

    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (l->rank < 0 || l->round >= next_number)
            continue;
        if (!l->dead)
            trii_peer_link_say(l, "q");
        trii_peer_link_drop(l, false);
    }
}

/* Those that called before we had heard of the round. */
static void seat_early_links(trii_peers *p)
{
    trii_peer_link *next;

    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        int rank = l->rank;
        bool dead = l->dead;

        next = l->next;
        if (rank < 0 || rank >= p->n || l->round != p->round.number)
            continue;
        p->seats[rank].watched = p->seats[rank].reached = true;
        if (dead) {
            trii_peer_link_drop(l, false);
            trii_peer_lost(p, rank, "is gone: its agent ended");
        } else {
            p->seats[rank].n_links++;
            trii_peer_link_say_notices(l);
        }
    }
}

void trii_peers_round(trii_peers *p, const trii_rdzv_round *round)
{
    trii_peer_seat *seats;
    int n = round->group_size;

    trii_loop_lock(p->loop);
    seats = set_seats(p, round);
    end_round(p, round->number);
    trii_free(p->round.agents);
    trii_free(p->seats);
    p->round = *round;
    p->n = 0;
    p->round.agents = trii_alloc((size_t)n, sizeof(*round->agents), "peer agents");
    p->seats = seats;
    if (p->round.agents != NULL && p->seats != NULL) { /* else the shared state tells who is dead */
        memcpy(p->round.agents, round->agents, (size_t)n * sizeof(*round->agents));
        p->n = n;
        seat_early_links(p);
        for (int i = 1; i <= TRII_PEER_NEIGHBOURS && i <= n / 2; i++)
            trii_peer_call_rank(p, (round->group_rank + i) % n);
    }
    trii_loop_unlock(p->loop);
}

void trii_peers_notice(trii_peers *p, int64_t left_ms)
{
    trii_loop_lock(p->loop);
    p->own = (trii_peer_notice){p->own.number + 1, trii_deadline_ms(left_ms)};
    if (p->n > 0) { /* else who is in the first round with us will hear of it */
        p->seats[p->round.group_rank].notice = p->own;
        trii_peer_links_spread(p, NULL, p->round.group_rank);
    }
    trii_loop_unlock(p->loop);
}

bool trii_peers_are_doubtful(trii_peers *p)
{
    bool any;

    trii_loop_lock(p->loop);
    any = p->n > 2 * TRII_PEER_NEIGHBOURS + 1;
    for (int i = 0; i < p->n; i++) {
        const trii_peer_seat *seat = &p->seats[i];

        any = any || (seat->watched && !seat->told && !seat->bye &&
                      trii_now_ns() - seat->heard_ns > 3 * TRII_PEER_BEAT_MS * TRII_NS_PER_MS);
    }
    trii_loop_unlock(p->loop);
    return any;
}
