/*
 * peer_liveness.c - the failure detector: heartbeats, which agents to dial, and which are dead. It
 * judges by what peer_links.c has noted of each agent, five times a second and when a connection
 * has ended.
 */
#include <string.h>

#include "base/compiler.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"

#define HELLO_MS 5000 /* for the dialer to identify itself */
#define REDIAL_MS 500 /* between two dials */
/* A loop that is blocked for less is not reported to the other agents; nor, for less, to users. */
#define STALLED_MS 1000
#define WARN_MS 10000
/* An agent that takes part, and that we could not reach in so many rounds, is a fault of the
 * network, not of that agent. The higher rank of two gives up first, the server of the store last,
 * since that ends the job. */
#define UNREACHABLE_MAX 3
#define UNREACHABLE_MAX_SERVES 6
#define UNREACHABLE_MORE 2 /* the higher one may still be in the next round when it has ended */

#define NAME_BYTES (TRII_RDZV_ADDR_BYTES + 40)

/* "host NAME (pid N)": its rank is another one in the next round. */
static const char *name_of(const trii_peers *p, int rank, char text_out[NAME_BYTES])
{
    const trii_rdzv_agent *agent = &p->round.agents[rank];

    snprintf(text_out, NAME_BYTES, "host %s (pid %lld)", agent->name, (long long)agent->node.pid);
    return text_out;
}

/* For our agent, in the place of an older one of that rank. */
static void report(trii_peers *p, int rank, trii_peer_event_kind kind)
{
    trii_peer_state *state = &p->states[rank];

    state->unreported = kind;
    state->event_ns = trii_now_ns();
    if (kind != TRII_PEER_WARNING)
        state->judgement = kind;
    trii_wakeup_signal(p->events_fd);
}

static void report_lost(trii_peers *p, int rank, const char *why)
{
    char name[NAME_BYTES];

    snprintf(p->states[rank].text, TRII_ERR_BYTES, "%s %s", name_of(p, rank, name), why);
    report(p, rank, TRII_PEER_LOST);
}

/* --- agents that cannot be reached ---------------------------------------- */

/* In how many rounds it could not be reached since it last answered. */
static int count_unreachable(trii_peers *p, const char *token)
{
    trii_peer_unreachable *u = p->unreachable;

    while (u < p->unreachable + TRII_PEER_NEIGHBOURS && strcmp(u->token, token) != 0)
        u++;
    if (u == p->unreachable + TRII_PEER_NEIGHBOURS) {
        u = &p->unreachable[p->n_unreachable++ % TRII_PEER_NEIGHBOURS];
        u->n = 0;
        snprintf(u->token, sizeof(u->token), "%s", token);
    }
    return ++u->n;
}

static void forget_unreachable(trii_peers *p, const char *token)
{
    for (int i = 0; i < TRII_PEER_NEIGHBOURS; i++) {
        if (strcmp(p->unreachable[i].token, token) == 0)
            p->unreachable[i].n = 0;
    }
}

/* How long an agent may be silent that was never reached in this round. Both count rounds, and the
 * first to judge ends a round for both: so the one that is to give up first must judge first. */
static int64_t unreached_ms(const trii_peers *p, int rank)
{
    return p->round.group_rank < rank ? p->silence_ms * 3 / 2 : p->silence_ms;
}

/* There was no connection in this round. */
static void judge_unreachable(trii_peers *p, int rank)
{
    const trii_peer_state *state = &p->states[rank];
    int max = UNREACHABLE_MAX + (p->round.group_rank < rank ? UNREACHABLE_MORE : 0);
    char name[NAME_BYTES], own[NAME_BYTES];

    if (p->round.agents[p->round.group_rank].serves)
        max = UNREACHABLE_MAX_SERVES;
    if (count_unreachable(p, p->round.agents[rank].token) < max) {
        report_lost(p, rank, "is gone: its agent does not answer");
        return;
    }
    /* Another host may print it: no "this host". */
    snprintf(p->states[rank].text, TRII_ERR_BYTES,
             "%s takes part in the job, but %s cannot reach its agent: %s; check for a firewall "
             "between the two, and --local-addr there",
             name_of(p, rank, name), name_of(p, p->round.group_rank, own),
             state->why[0] != '\0' ? state->why : "it does not answer");
    report(p, rank, TRII_PEER_INCOMPATIBLE);
}

/* --- judging -------------------------------------------------------------- */

static void judge_silence(trii_peers *p, int rank)
{
    const trii_peer_state *state = &p->states[rank];
    bool answers = state->dialed == TRII_PEER_CONNECTED || state->dialed == TRII_PEER_NO_ANSWER;
    char why[96];

    snprintf(why, sizeof(why), "was silent for %g s: %s", (double)p->silence_ms / 1000,
             answers ? "its host answers, so its agent is stopped or frozen"
                     : "dead, frozen or cut off");
    report_lost(p, rank, why);
}

/* Its agent is alive, but its loop does not run. */
static void warn_if_stalled(trii_peers *p, int rank)
{
    trii_peer_state *state = &p->states[rank];
    char name[NAME_BYTES];

    if (state->stalled_ms == 0)
        state->warned_ms = 0;
    if (state->stalled_ms < WARN_MS || state->stalled_ms < 2 * state->warned_ms)
        return;
    state->warned_ms = state->stalled_ms;
    snprintf(state->text, sizeof(state->text),
             "%s is alive, but its agent has been blocked for %lld s: check whether a disk or a "
             "file system there does not respond",
             name_of(p, rank, name), (long long)state->stalled_ms / 1000);
    report(p, rank, TRII_PEER_WARNING);
}

static void dial(trii_peers *p, int rank, int64_t silent_ms)
{
    trii_peer_state *state = &p->states[rank];
    char name[NAME_BYTES], other[NAME_BYTES];
    const int own = p->round.group_rank;

    if (p->round.agents[rank].keyed != p->key.set) { /* the same words on all hosts, see above */
        int without = p->key.set ? rank : own, with = p->key.set ? own : rank;

        snprintf(state->text, sizeof(state->text),
                 "%s has no job key (TRI_JOB_KEY_FILE), but %s has one", name_of(p, without, name),
                 name_of(p, with, other));
        report(p, rank, TRII_PEER_INCOMPATIBLE);
        return;
    }
    state->retry_ns = trii_deadline_ms(REDIAL_MS);
    state->dialed = TRII_PEER_NOT_DIALED; /* how the last one ended says nothing of this one */
    trii_peer_dial(p, rank, p->silence_ms - silent_ms);
}

/* Resets what is left of our connections, so that the agent learns what we think, if it lives. */
static void drop_links(trii_peers *p, int rank)
{
    trii_peer_link *next;

    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (l->rank == rank && l->round == p->round.number)
            trii_peer_link_drop(l, true);
    }
}

static void judge(trii_peers *p, int rank, int64_t now)
{
    trii_peer_state *state = &p->states[rank];
    int64_t silent_ms = (now - state->heard_ns) / TRII_NS_PER_MS;
    char name[NAME_BYTES];

    if (!state->watched || state->judgement != TRII_PEER_NOTHING || state->left)
        return;
    if (state->reached)
        forget_unreachable(p, p->round.agents[rank].token);
    warn_if_stalled(p, rank);
    if (state->dialed == TRII_PEER_FOREIGN) {
        snprintf(state->text, sizeof(state->text), "%s: %s", name_of(p, rank, name), state->why);
        report(p, rank, TRII_PEER_INCOMPATIBLE);
        return;
    }
    if (state->reached && (state->n_links == 0 || state->dialed == TRII_PEER_NO_AGENT))
        report_lost(p, rank, "is gone: its agent ended");
    else if (state->reached && silent_ms > p->silence_ms)
        judge_silence(p, rank);
    else if (!state->reached &&
             (silent_ms > unreached_ms(p, rank) || state->dialed == TRII_PEER_NO_AGENT))
        judge_unreachable(p, rank);
    else if (!state->dialing && now >= state->retry_ns &&
             (state->n_links == 0 || (state->n_links < 3 && silent_ms > p->silence_ms / 2)))
        dial(p, rank, silent_ms);
    if (state->judgement == TRII_PEER_LOST)
        drop_links(p, rank);
}

/* --- heartbeats ----------------------------------------------------------- */

/* The last of any host; an agent that does not watch its workers says that they make some now. */
static trii_peer_progress last_progress(trii_peers *p, int64_t now)
{
    int64_t own_ns = atomic_load(&p->progress_ns);

    own_ns = own_ns != 0 ? own_ns : now;
    return own_ns > p->others.at_ns ? (trii_peer_progress){p->round.group_rank, own_ns, own_ns}
                                    : p->others;
}

static void send_heartbeats(trii_peers *p, int64_t now)
{
    int64_t stalled_ms =
        (now - atomic_load(&p->ticked_ns)) / TRII_NS_PER_MS - TRII_PEER_HEARTBEAT_MS;
    const trii_peer_progress last = last_progress(p, now);
    int64_t quiet_ms = last.at_ns < now ? (now - last.at_ns) / TRII_NS_PER_MS : 0;
    trii_peer_frame frame = {.kind = TRII_PEER_HEARTBEAT,
                             .value = stalled_ms > STALLED_MS ? stalled_ms : 0,
                             .rank = last.rank,
                             .number = quiet_ms < INT32_MAX ? (int32_t)quiet_ms : INT32_MAX};

    memcpy(frame.token, &last.theirs_ns, sizeof(last.theirs_ns));
    for (trii_peer_link *l = p->links; l != NULL; l = l->next) {
        if (l->rank >= 0)
            trii_peer_link_send(l, &frame);
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
            judge(p, i, now);
    }
    trii_loop_timer(p->loop, timer, now + TRII_PEER_HEARTBEAT_MS * TRII_NS_PER_MS,
                    trii_peer_heartbeat);
}
