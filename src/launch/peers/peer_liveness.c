/*
 * peer_liveness.c - the failure detector: heartbeats, whom to dial, and who is declared dead.
 */
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/log.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/socket.h"

#define HELLO_MS 5000 /* for the dialer to identify itself */
#define REDIAL_MS 500 /* between two dials */
/* A loop that is blocked for less is not reported to the other agents; nor, for less, to users. */
#define STALLED_MS 1000
#define WARN_MS 10000
/* An agent that takes part, and that we could not reach in so many rounds, is a fault of the
 * network, not of that agent. The higher rank of two gives up first; who serves the store last,
 * since that ends the job. */
#define UNREACHABLE_MAX 3
#define UNREACHABLE_MAX_SERVES 6
#define UNREACHABLE_MORE 2 /* the higher one may still be in the next round when it has ended */

/* --- agents that cannot be reached ---------------------------------------- */

/* In how many rounds it could not be reached since it last answered; the oldest entry makes
 * room. */
static int count_unreachable(trii_peers *p, const trii_rdzv_agent *agent)
{
    trii_peer_unreachable *u = &p->unreachable[0];

    for (int i = 0; i < TRII_PEER_NEIGHBOURS; i++) {
        if (strcmp(p->unreachable[i].token, agent->token) == 0) {
            u = &p->unreachable[i];
            break;
        }
        if (p->unreachable[i].round < u->round)
            u = &p->unreachable[i];
    }
    if (strcmp(u->token, agent->token) != 0)
        u->n = 0;
    snprintf(u->token, sizeof(u->token), "%s", agent->token);
    u->round = p->round.number;
    return ++u->n;
}

static void forget_unreachable(trii_peers *p, const char *token)
{
    for (int i = 0; i < TRII_PEER_NEIGHBOURS; i++) {
        if (strcmp(p->unreachable[i].token, token) == 0)
            memset(&p->unreachable[i], 0, sizeof(p->unreachable[i]));
    }
}

/* There was no connection in this round. */
static void handle_unreachable(trii_peers *p, int rank, const char *why)
{
    const trii_rdzv_agent *agent = &p->round.agents[rank];
    int max = UNREACHABLE_MAX + (p->round.group_rank < rank ? UNREACHABLE_MORE : 0);
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (p->round.agents[p->round.group_rank].serves)
        max = UNREACHABLE_MAX_SERVES;
    if (p->states[rank].reported)
        return;
    if (count_unreachable(p, agent) < max) {
        trii_peer_lost(p, rank, "is gone: its agent does not answer");
        return;
    }
    p->states[rank].reported = true;
    snprintf(text, sizeof(text),
             "%s takes part in the job, but this host cannot reach its agent: %s; check for a "
             "firewall between the two, and --local-addr there",
             trii_peer_name(agent, name), why);
    trii_peer_events_post(p, TRII_PEER_INCOMPATIBLE, -1, -1, text);
}

/* --- dialing -------------------------------------------------------------- */

void trii_peer_dial_done(void *arg, const trii_peer_dial *dial, int fd,
                         trii_peer_dial_result result, const char *why)
{
    trii_peers *p = arg;
    trii_peer_state *state;
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (dial->round != p->round.number || dial->rank >= p->n) {
        trii_socket_close(fd); /* of a round that is over */
        return;
    }
    state = &p->states[dial->rank];
    state->dialing = false;
    state->retry_ns = trii_deadline_ms(REDIAL_MS);
    state->host_answers = result == TRII_PEER_CONNECTED || result == TRII_PEER_NO_ANSWER;
    snprintf(state->why, sizeof(state->why), "%s", why);
    switch (result) {
    case TRII_PEER_CONNECTED:
        forget_unreachable(p, dial->agent.token);
        (void)trii_peer_link_add(p, fd, dial->rank, dial->round);
        break;
    case TRII_PEER_FOREIGN:
        snprintf(text, sizeof(text), "%s: %s", trii_peer_name(&dial->agent, name), why);
        trii_peer_events_post(p, TRII_PEER_INCOMPATIBLE, -1, -1, text);
        state->reported = true;
        break;
    case TRII_PEER_NO_AGENT:
        trii_peer_links_drop(p, dial->rank);
        if (state->reached)
            trii_peer_lost(p, dial->rank, "is gone: its agent ended");
        else
            handle_unreachable(p, dial->rank, why);
        break;
    case TRII_PEER_UNREACHABLE:
    case TRII_PEER_NO_ANSWER:
        break; /* it is dialed again while its silence is allowed */
    }
}

void trii_peer_dial_rank(trii_peers *p, int rank)
{
    trii_peer_state *state = &p->states[rank];
    int64_t silent_ms = (trii_now_ns() - state->heard_ns) / TRII_NS_PER_MS;
    const trii_peer_dial dial = {.agent = p->round.agents[rank],
                                 .round = p->round.number,
                                 .rank = rank,
                                 .own_rank = p->round.group_rank,
                                 .patience_ms = p->silence_ms - silent_ms};
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (dial.agent.port == 0)
        return; /* torchrun's */
    if (dial.agent.keyed != p->key.set) {
        snprintf(text, sizeof(text), "%s has %s job key (TRI_JOB_KEY_FILE), but this host has %s",
                 trii_peer_name(&dial.agent, name), p->key.set ? "no" : "a",
                 p->key.set ? "one" : "none");
        trii_peer_events_post(p, TRII_PEER_INCOMPATIBLE, -1, -1, text);
        return;
    }
    state->retry_ns = trii_deadline_ms(REDIAL_MS);
    state->dialing = trii_peer_dialer_start(p->dialer, &dial) == TRI_OK;
    if (state->dialing)
        state->watched = true;
    else
        TRII_LOG(TRII_LOG_WARN, "launch", "cannot connect to %s: %s",
                 trii_peer_name(&dial.agent, name), tri_last_error());
}

/* --- heartbeats ----------------------------------------------------------- */

static void handle_silence(trii_peers *p, int rank)
{
    trii_peer_state *state = &p->states[rank];
    double seconds = (double)p->silence_ms / 1000;
    char why[96];

    trii_peer_links_drop(p, rank);
    if (!state->reached) {
        handle_unreachable(p, rank, state->why[0] != '\0' ? state->why : "it does not answer");
        return;
    }
    if (state->host_answers)
        snprintf(why, sizeof(why),
                 "was silent for %g s: its host answers, so its agent is stopped or frozen",
                 seconds);
    else
        snprintf(why, sizeof(why), "was silent for %g s: dead, frozen or cut off", seconds);
    trii_peer_lost(p, rank, why);
}

/* Its agent is alive, but its loop does not run. */
static void warn_if_stalled(trii_peers *p, int rank)
{
    trii_peer_state *state = &p->states[rank];
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (state->stalled_ms == 0)
        state->warn_at_ms = WARN_MS;
    if (state->stalled_ms < state->warn_at_ms)
        return;
    state->warn_at_ms = 2 * state->stalled_ms;
    snprintf(text, sizeof(text),
             "%s is alive, but its agent has been blocked for %lld s: check whether a disk or a "
             "file system there does not respond",
             trii_peer_name(&p->round.agents[rank], name), (long long)state->stalled_ms / 1000);
    trii_peer_events_post(p, TRII_PEER_WARNING, -1, -1, text);
}

static void check_agent(trii_peers *p, int rank, int64_t now)
{
    trii_peer_state *state = &p->states[rank];
    int64_t silent_ms = (now - state->heard_ns) / TRII_NS_PER_MS;

    if (!state->watched || state->reported || state->left)
        return;
    warn_if_stalled(p, rank);
    if (silent_ms > p->silence_ms)
        handle_silence(p, rank);
    else if (!state->dialing && now >= state->retry_ns &&
             (state->n_links == 0 || (state->n_links < 3 && silent_ms > p->silence_ms / 2)))
        trii_peer_dial_rank(p, rank);
}

static void send_heartbeats(trii_peers *p, int64_t now)
{
    int64_t stalled_ms =
        (now - atomic_load(&p->ticked_ns)) / TRII_NS_PER_MS - TRII_PEER_HEARTBEAT_MS;
    char text[TRII_PEER_MESSAGE_BYTES] = "h";

    if (stalled_ms > STALLED_MS)
        trii_peer_messages_stalled(stalled_ms, text);
    for (trii_peer_link *l = p->links; l != NULL; l = l->next) {
        if (l->rank >= 0 && !l->dead)
            trii_peer_link_send(l, text);
    }
}

void trii_peer_heartbeat(trii_timer *timer)
{
    trii_peers *p = TRII_CONTAINER(timer, trii_peers, heartbeat);
    int64_t now = trii_now_ns();
    /* We did not run ourselves: what the others sent meanwhile has not been read yet. */
    bool late = now - p->heartbeat_ns > 3 * TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS;
    trii_peer_link *next;

    p->heartbeat_ns = now;
    if (p->accept_paused)
        trii_loop_change(&p->listener, TRII_READABLE);
    p->accept_paused = false;
    send_heartbeats(p, now);
    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (late)
            l->came_ns = now;
        else if (l->rank < 0 && now - l->came_ns > HELLO_MS * TRII_NS_PER_MS)
            trii_peer_link_drop(l, false);
    }
    for (int i = 0; i < p->n; i++) {
        if (late)
            p->states[i].heard_ns = now;
        else
            check_agent(p, i, now);
    }
    trii_loop_timer(p->loop, timer, now + TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS,
                    trii_peer_heartbeat);
}
