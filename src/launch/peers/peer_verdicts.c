/*
 * peer_verdicts.c - who lives: the beat, whom to call and what comes of that, and the verdict.
 */
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/log.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/socket.h"

#define HELLO_MS 5000 /* for a stranger to say who it is */
#define AGAIN_MS 500  /* between two calls */
/* A loop that stands still for so long is not told; nor, for so long, to people. */
#define HELD_UP_MS 1000
#define REMARK_MS 10000
/* An agent that is there, and that we could not reach in so many rounds, is a matter of the
 * network, not of that agent. The higher rank of two goes first; who serves the store goes last,
 * since that ends the job. */
#define UNREACHED_MAX 3
#define UNREACHED_MAX_SERVES 6
#define UNREACHED_MORE 2 /* the higher one may still be in the next round when it has ended */

void trii_peer_lost(trii_peers *p, int rank, const char *why)
{
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (p->seats[rank].told)
        return;
    p->seats[rank].told = true;
    snprintf(text, sizeof(text), "%s %s", trii_peer_name(&p->round.agents[rank], name), why);
    trii_peer_news_post(p, TRII_PEER_LOST, rank, -1, text);
}

/* --- who cannot be reached -------------------------------------------------------------------- */

/* In how many rounds it was called in vain since it answered last; the oldest entry makes room. */
static int count_unreached(trii_peers *p, const trii_rdzv_agent *agent)
{
    trii_peer_unreached *u = &p->unreached[0];

    for (int i = 0; i < TRII_PEER_NEIGHBOURS; i++) {
        if (strcmp(p->unreached[i].token, agent->token) == 0) {
            u = &p->unreached[i];
            break;
        }
        if (p->unreached[i].round < u->round)
            u = &p->unreached[i];
    }
    if (strcmp(u->token, agent->token) != 0)
        u->n = 0;
    snprintf(u->token, sizeof(u->token), "%s", agent->token);
    u->round = p->round.number;
    return ++u->n;
}

static void forget_unreached(trii_peers *p, const char *token)
{
    for (int i = 0; i < TRII_PEER_NEIGHBOURS; i++) {
        if (strcmp(p->unreached[i].token, token) == 0)
            memset(&p->unreached[i], 0, sizeof(p->unreached[i]));
    }
}

/* There was no connection in this round. */
static void not_reached(trii_peers *p, int rank, const char *why)
{
    const trii_rdzv_agent *agent = &p->round.agents[rank];
    int max = UNREACHED_MAX + (p->round.group_rank < rank ? UNREACHED_MORE : 0);
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (p->round.agents[p->round.group_rank].serves)
        max = UNREACHED_MAX_SERVES;
    if (p->seats[rank].told)
        return;
    if (count_unreached(p, agent) < max) {
        trii_peer_lost(p, rank, "is gone: its agent does not answer");
        return;
    }
    p->seats[rank].told = true;
    snprintf(text, sizeof(text),
             "%s takes part in the job, but this host cannot reach its agent: %s; is a firewall "
             "between, or --local-addr wrong there?",
             trii_peer_name(agent, name), why);
    trii_peer_news_post(p, TRII_PEER_REFUSED, -1, -1, text);
}

/* --- calls ------------------------------------------------------------------------------------ */

void trii_peer_answered(void *arg, const trii_peer_call *call, int fd, trii_peer_answer answer,
                        const char *why)
{
    trii_peers *p = arg;
    trii_peer_seat *seat;
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (call->round != p->round.number || call->rank >= p->n) {
        trii_socket_close(fd); /* of a round that is over */
        return;
    }
    seat = &p->seats[call->rank];
    seat->calling = false;
    seat->again_ns = trii_deadline_ms(AGAIN_MS);
    seat->host_answers = answer == TRII_PEER_CONNECTED || answer == TRII_PEER_MUTE;
    snprintf(seat->why, sizeof(seat->why), "%s", why);
    switch (answer) {
    case TRII_PEER_CONNECTED:
        forget_unreached(p, call->agent.token);
        (void)trii_peer_link_add(p, fd, call->rank, call->round);
        break;
    case TRII_PEER_STRANGER:
        snprintf(text, sizeof(text), "%s: %s", trii_peer_name(&call->agent, name), why);
        trii_peer_news_post(p, TRII_PEER_REFUSED, -1, -1, text);
        seat->told = true;
        break;
    case TRII_PEER_NOBODY:
        trii_peer_links_drop(p, call->rank);
        if (seat->reached)
            trii_peer_lost(p, call->rank, "is gone: its agent ended");
        else
            not_reached(p, call->rank, why);
        break;
    case TRII_PEER_SILENT:
    case TRII_PEER_MUTE:
        break; /* it is called again while its silence is allowed */
    }
}

void trii_peer_call_rank(trii_peers *p, int rank)
{
    trii_peer_seat *seat = &p->seats[rank];
    int64_t silent_ms = (trii_now_ns() - seat->heard_ns) / TRII_NS_PER_MS;
    const trii_peer_call call = {.agent = p->round.agents[rank],
                                 .round = p->round.number,
                                 .rank = rank,
                                 .caller_rank = p->round.group_rank,
                                 .patience_ms = p->silence_ms - silent_ms};
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (call.agent.port == 0)
        return; /* torchrun's */
    if (call.agent.keyed != p->key.set) {
        snprintf(text, sizeof(text), "%s has %s job key (TRI_JOB_KEY_FILE), and this one %s",
                 trii_peer_name(&call.agent, name), p->key.set ? "no" : "a",
                 p->key.set ? "has" : "has none");
        trii_peer_news_post(p, TRII_PEER_REFUSED, -1, -1, text);
        return;
    }
    seat->again_ns = trii_deadline_ms(AGAIN_MS);
    seat->calling = trii_peer_calls_start(p->calls, &call) == TRI_OK;
    if (seat->calling)
        seat->watched = true;
    else
        TRII_LOG(TRII_LOG_WARN, "launch", "%s is not called: %s", trii_peer_name(&call.agent, name),
                 tri_last_error());
}

/* --- the beat --------------------------------------------------------------------------------- */

static void is_silent(trii_peers *p, int rank)
{
    trii_peer_seat *seat = &p->seats[rank];
    double seconds = (double)p->silence_ms / 1000;
    char why[96];

    trii_peer_links_drop(p, rank);
    if (!seat->reached) {
        not_reached(p, rank, seat->why[0] != '\0' ? seat->why : "it says nothing");
        return;
    }
    if (seat->host_answers)
        snprintf(why, sizeof(why),
                 "was silent for %g s: its host answers, so its agent is stopped or frozen",
                 seconds);
    else
        snprintf(why, sizeof(why), "was silent for %g s: dead, frozen or cut off", seconds);
    trii_peer_lost(p, rank, why);
}

/* Its agent lives and does nothing. */
static void remark(trii_peers *p, int rank)
{
    trii_peer_seat *seat = &p->seats[rank];
    char text[TRII_ERR_BYTES], name[TRII_PEER_NAME_BYTES];

    if (seat->held_up_ms == 0)
        seat->remark_ms = REMARK_MS;
    if (seat->held_up_ms < seat->remark_ms)
        return;
    seat->remark_ms = 2 * seat->held_up_ms;
    snprintf(text, sizeof(text),
             "%s lives, but its agent has been held up for %lld s: does a disk or a file system "
             "not answer there?",
             trii_peer_name(&p->round.agents[rank], name), (long long)seat->held_up_ms / 1000);
    trii_peer_news_post(p, TRII_PEER_REMARKED, -1, -1, text);
}

static void judge(trii_peers *p, int rank, int64_t now)
{
    trii_peer_seat *seat = &p->seats[rank];
    int64_t silent_ms = (now - seat->heard_ns) / TRII_NS_PER_MS;

    if (!seat->watched || seat->told || seat->bye)
        return;
    remark(p, rank);
    if (silent_ms > p->silence_ms)
        is_silent(p, rank);
    else if (!seat->calling && now >= seat->again_ns &&
             (seat->n_links == 0 || (seat->n_links < 3 && silent_ms > p->silence_ms / 2)))
        trii_peer_call_rank(p, rank);
}

static void say_alive(trii_peers *p, int64_t now)
{
    int64_t held_up_ms = (now - atomic_load(&p->ticked_ns)) / TRII_NS_PER_MS - TRII_PEER_BEAT_MS;
    char text[TRII_PEER_NOTICE_BYTES] = "h";

    if (held_up_ms > HELD_UP_MS)
        trii_peer_messages_stalled(held_up_ms, text);
    for (trii_peer_link *l = p->links; l != NULL; l = l->next) {
        if (l->rank >= 0 && !l->dead)
            trii_peer_link_say(l, text);
    }
}

void trii_peer_beat(trii_timer *timer)
{
    trii_peers *p = TRII_CONTAINER(timer, trii_peers, beat);
    int64_t now = trii_now_ns();
    /* We did not run ourselves: what the others said meanwhile has not been read yet. */
    bool late = now - p->beat_ns > 3 * TRII_PEER_BEAT_MS * TRII_NS_PER_MS;
    trii_peer_link *next;

    p->beat_ns = now;
    if (p->deaf)
        trii_loop_change(&p->listener, TRII_READABLE);
    p->deaf = false;
    say_alive(p, now);
    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (late)
            l->came_ns = now;
        else if (l->rank < 0 && now - l->came_ns > HELLO_MS * TRII_NS_PER_MS)
            trii_peer_link_drop(l, false);
    }
    for (int i = 0; i < p->n; i++) {
        if (late)
            p->seats[i].heard_ns = now;
        else
            judge(p, i, now);
    }
    trii_loop_timer(p->loop, timer, now + TRII_PEER_BEAT_MS * TRII_NS_PER_MS, trii_peer_beat);
}
