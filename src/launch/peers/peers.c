/*
 * peers.c - see peers.h: the thread, its rounds, its beginning and end. Called by agent_hosts.c
 * only; everything that happens on the thread is in peer_links.c, peer_liveness.c and
 * peer_events.c.
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

/* --- beginning and end ---------------------------------------------------- */

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
        status = TRII_FAIL(TRI_ERR_IO,
                           "cannot make the token of this agent: the system has no random numbers");
    for (int i = 0; i < 8; i++)
        snprintf(p->token + 2 * i, 3, "%02x", random[i]);
    if (status == TRI_OK)
        status = trii_loop_create(&p->loop);
    if (status == TRI_OK)
        status = trii_peer_events_open(p);
    if (status == TRI_OK)
        status = trii_peer_dialer_create(p->loop, &p->key, trii_peer_dial_done, p, &p->dialer);
    if (status == TRI_OK)
        status = trii_socket_listen(host, 0, &fd, &p->port);
    if (status == TRI_OK)
        status = trii_loop_watch(p->loop, &p->listener, fd, TRII_READABLE, trii_peer_links_accept);
    if (status != TRI_OK) {
        trii_socket_close(fd);
        return status;
    }
    p->heartbeat_ns = trii_now_ns();
    trii_loop_timer(p->loop, &p->heartbeat,
                    p->heartbeat_ns + TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS, trii_peer_heartbeat);
    status = trii_thread_start(&p->thread, "peers", peers_main, p);
    p->has_thread = status == TRI_OK;
    return status;
}

tri_status trii_peers_create(trii_loop *loop, const char *host, int64_t silence_ms,
                             const trii_peers_callbacks *callbacks, trii_peers **peers_out)
{
    trii_peers *p = trii_alloc(1, sizeof(*p), "peer agents");
    tri_status status;

    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    p->agent_loop = loop;
    p->silence_ms = silence_ms;
    p->callbacks = *callbacks;
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
            trii_peer_link_send(p->links, "q");
        trii_peer_link_drop(p->links, false);
    }
    if (p->listener.loop != NULL) {
        int fd = p->listener.fd;

        trii_loop_unwatch(&p->listener);
        trii_socket_close(fd);
    }
    trii_peer_dialer_destroy(p->dialer);
    if (p->loop != NULL)
        trii_peer_events_close(p);
    trii_loop_destroy(p->loop);
    trii_free(p->round.agents);
    trii_free(p->states);
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

static void end_round(trii_peers *p, int64_t next_number)
{
    trii_peer_link *next;

    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (l->rank < 0 || l->round >= next_number)
            continue;
        if (!l->dead)
            trii_peer_link_send(l, "q");
        trii_peer_link_drop(l, false);
    }
}

/* Of agents that dialed us before we had heard of the round. */
static void adopt_early_links(trii_peers *p)
{
    trii_peer_link *next;

    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        int rank = l->rank;
        bool dead = l->dead;

        next = l->next;
        if (rank < 0 || rank >= p->n || l->round != p->round.number)
            continue;
        p->states[rank].watched = p->states[rank].reached = true;
        if (dead) {
            trii_peer_link_drop(l, false);
            trii_peer_lost(p, rank, "is gone: its agent ended");
        } else {
            p->states[rank].n_links++;
            trii_peer_link_send_preemptions(l);
        }
    }
}

void trii_peers_watch_round(trii_peers *p, const trii_rdzv_round *round)
{
    trii_peer_state *states;
    int n = round->group_size;

    trii_loop_lock(p->loop);
    states = make_states(p, round);
    end_round(p, round->number);
    trii_free(p->round.agents);
    trii_free(p->states);
    p->round = *round;
    p->n = 0;
    p->round.agents = trii_alloc((size_t)n, sizeof(*round->agents), "peer agents");
    p->states = states;
    if (p->round.agents != NULL &&
        p->states != NULL) { /* else the shared state shows who is dead */
        memcpy(p->round.agents, round->agents, (size_t)n * sizeof(*round->agents));
        p->n = n;
        adopt_early_links(p);
        for (int i = 1; i <= TRII_PEER_NEIGHBOURS && i <= n / 2; i++)
            trii_peer_dial_rank(p, (round->group_rank + i) % n);
    }
    trii_loop_unlock(p->loop);
}

void trii_peers_announce_preemption(trii_peers *p, int64_t left_ms)
{
    trii_loop_lock(p->loop);
    p->own = (trii_peer_preemption){p->own.number + 1, trii_deadline_ms(left_ms)};
    if (p->n > 0) { /* else the agents of our first round will be notified */
        p->states[p->round.group_rank].preemption = p->own;
        trii_peer_links_forward_preemption(p, NULL, p->round.group_rank);
    }
    trii_loop_unlock(p->loop);
}

bool trii_peers_have_suspect(trii_peers *p)
{
    bool any;

    trii_loop_lock(p->loop);
    any = p->n > 2 * TRII_PEER_NEIGHBOURS + 1;
    for (int i = 0; i < p->n; i++) {
        const trii_peer_state *state = &p->states[i];

        any =
            any || (state->watched && !state->reported && !state->left &&
                    trii_now_ns() - state->heard_ns > 3 * TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS);
    }
    trii_loop_unlock(p->loop);
    return any;
}
