/*
 * agent_hosts.c - see agent_hosts.h: joins the agents of the other hosts through the rendezvous
 * thread (rendezvous.h), listens to them (peers/peers.h), and turns what either reports into the
 * states of agent_state.h.
 *
 * Called by agent.c only, which skips this file in a job of one host. A new round begins and ends
 * attempts (attempt.c); the events of the hosts go to report/host_events.h.
 */
#include "launch/agent_hosts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/note.h"
#include "launch/agent_internal.h"
#include "launch/peers/peers.h"
#include "launch/rendezvous/rendezvous.h"
#include "launch/report/host_events.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/signal.h"

/* A worker that reports a lost peer may be right: so long to wait for the news of that host; and,
 * beyond the silence that is allowed, while a host is silent. */
#define VICTIM_MS 1600
#define VICTIM_MORE_MS (3 * TRII_PEER_HEARTBEAT_MS)
/* How long the store has to answer after the connection to its agent broke, and that connection to
 * break after the store has failed. */
#define STORE_CHECK_MS INT64_C(500)
/* For leaving in order. */
#define LEAVE_MS 5000
/* For the rendezvous thread to end; where the network is dead it will not. */
#define DESTROY_MS 3000
#define DESTROY_CUT_MS 50
/* A shorter wait for hosts is not shown by `trireme ps`; then how often what it shows is
 * refreshed. */
#define STATUS_FIRST_MS 100
#define STATUS_MS 1000

struct trii_agent_hosts {
    trii_agent *agent;
    trii_rendezvous *rdzv;
    trii_peers *peers;
    trii_watch rdzv_watch, peers_watch; /* of their events */
    trii_hosts_state state;
    trii_rdzv_round round;    /* the last that there was */
    trii_rdzv_event_kind end; /* what ended it for this host, first: AGAIN, or an end of the job */
    trii_rdzv_news news;      /* ... and why */
    bool store_cut;           /* it is gone, or cannot be reached: no call to it is made any more */

    /* The agent that serves the agents' store was lost, and perhaps the store with it; or the
     * rendezvous failed, and that agent may be about to be lost. */
    char server_lost[TRII_ERR_BYTES / 2], rdzv_failed[TRII_ERR_BYTES]; /* why; "" = not */
    int64_t server_lost_ns;
    int server_rank; /* in `round`; -1 = it was of another one */
    trii_timer store_check;
};

static bool is_in_round(const trii_agent_hosts *h)
{
    return h->state >= TRII_HOSTS_JOINED && h->state <= TRII_HOSTS_FINISHED;
}

/* All hosts have succeeded, or this one has left. */
static bool is_over(const trii_agent_hosts *h)
{
    return h->state >= TRII_HOSTS_FINISHED;
}

static bool has_given_ranks(const trii_agent_hosts *h)
{
    return h->agent->options->rdzv == TRII_RDZV_STATIC;
}

static trii_rdzv_news because(const char *why)
{
    trii_rdzv_news news = {.gone = -1};

    snprintf(news.why, sizeof(news.why), "%s", why);
    return news;
}

/* The round is over for this host; workers that run are stopped. */
static void end_round(trii_agent_hosts *h, trii_rdzv_event_kind kind, const trii_rdzv_news *news)
{
    trii_agent *a = h->agent;
    bool ends_more = h->end == TRII_RDZV_AGAIN && kind == TRII_RDZV_ENDED; /* the job */

    if (h->end != TRII_RDZV_NOTHING && !ends_more)
        return;
    h->end = kind;
    h->news = *news;
    if (ends_more || a->state != TRII_AGENT_RUNNING)
        return;
    if (news->hung) {
        trii_monitor_hung(&a->monitor, news->why);
        return;
    }
    TRII_SAY(a, "%s; stopping %d worker%s\n", news->why, a->n_live, a->n_live == 1 ? "" : "s");
    trii_shutdown_begin(a, SIGTERM);
}

/* Tells the other agents of this round, if there has been one, and the rendezvous. */
static void tell(trii_agent_hosts *h, const trii_rdzv_news *news)
{
    if (h->round.agents == NULL)
        return;
    trii_peers_tell(h->peers, news);
    trii_rendezvous_heard(h->rdzv, h->round.number, news);
}

/* A line of --events. */
static void log_gone(trii_agent_hosts *h, int rank, bool left, const char *why)
{
    trii_host_events_gone(&h->agent->monitor.events, h->agent->restarts, &h->round, rank, left,
                          why);
}

static void store_lost(trii_agent_hosts *h)
{
    trii_rdzv_news news = {.over = true, .gone = -1};

    if (h->end == TRII_RDZV_NOTHING || h->end == TRII_RDZV_FAILED)
        h->store_cut = true;
    log_gone(h, h->server_rank, false, h->server_lost);
    snprintf(news.why, sizeof(news.why),
             "%s, and the agents' store with it: the job cannot continue", h->server_lost);
    end_round(h, TRII_RDZV_ENDED, &news);
}

static void store_check_due(trii_timer *timer)
{
    trii_agent_hosts *h = TRII_CONTAINER(timer, trii_agent_hosts, store_check);
    trii_rdzv_news news;

    if (h->server_lost[0] != '\0' && trii_rendezvous_answered_ns(h->rdzv) < h->server_lost_ns) {
        store_lost(h);
        return;
    }
    h->server_lost[0] = '\0'; /* it has answered since the connection to its agent broke */
    news = because(h->rdzv_failed);
    if (h->rdzv_failed[0] != '\0')
        end_round(h, TRII_RDZV_FAILED, &news);
}

/* The end of the agent that serves the store explains more than the error of a call to the store:
 * of the two one may be seen before the other. */
static void check_store(trii_agent_hosts *h)
{
    bool both = h->server_lost[0] != '\0' && h->rdzv_failed[0] != '\0';

    trii_loop_timer(h->agent->loop, &h->store_check, trii_deadline_ms(both ? 0 : STORE_CHECK_MS),
                    store_check_due);
}

static void rdzv_failed(trii_agent_hosts *h, const trii_rdzv_news *news)
{
    if (h->round.agents == NULL || h->end != TRII_RDZV_NOTHING) { /* nobody may explain it */
        end_round(h, TRII_RDZV_FAILED, news);
        return;
    }
    snprintf(h->rdzv_failed, sizeof(h->rdzv_failed), "%s", news->why);
    check_store(h);
}

/* Takes its agents. */
static void begin_round(trii_agent_hosts *h, const trii_rdzv_round *round)
{
    trii_agent *a = h->agent;

    if (a->restarts < round->restarts)
        a->restarts = round->restarts;
    trii_host_events_round(&a->monitor.events, a->restarts, h->round.agents, h->round.group_size,
                           round);
    trii_free(h->round.agents);
    h->round = *round;
    if (h->end == TRII_RDZV_AGAIN)
        h->end = TRII_RDZV_NOTHING; /* of an earlier round */
    trii_hosts_state_enter(&h->state, TRII_HOSTS_JOINED);
    trii_peers_watch_round(h->peers, &h->round);
}

static void rdzv_ready(trii_watch *watch, unsigned events)
{
    trii_agent_hosts *h = TRII_CONTAINER(watch, trii_agent_hosts, rdzv_watch);
    trii_rdzv_event event;

    (void)events;
    for (;;) {
        trii_rendezvous_next(h->rdzv, &event);
        switch (event.kind) {
        case TRII_RDZV_NOTHING:
            return;
        case TRII_RDZV_NOTE:
            TRII_SAY(h->agent, "%s\n", event.news.why);
            break;
        case TRII_RDZV_JOINED:
            begin_round(h, &event.round);
            break;
        case TRII_RDZV_FINISHED:
            if (h->state == TRII_HOSTS_JOINED)
                trii_hosts_state_enter(&h->state, TRII_HOSTS_FINISHED);
            trii_peers_tell(h->peers, &(trii_rdzv_news){.finished = true, .gone = -1});
            break;
        case TRII_RDZV_LEFT:
            trii_hosts_state_enter(&h->state, TRII_HOSTS_LEFT);
            break;
        case TRII_RDZV_FAILED:
            rdzv_failed(h, &event.news);
            break;
        case TRII_RDZV_AGAIN:
        case TRII_RDZV_ENDED:
            if (!event.alone && is_in_round(h))
                trii_peers_tell(h->peers, &event.news);
            log_gone(h, event.news.gone, event.news.left, event.news.why);
            end_round(h, event.kind, &event.news);
            break;
        case TRII_RDZV_UNNEEDED:
            end_round(h, event.kind, &event.news);
            break;
        }
    }
}

/* Whether the agent that serves the store is alive is decided by the store: it may be this agent
 * that was cut off for a while. The round is that of the peers: another one may be forming. */
static void peer_lost(trii_agent_hosts *h, const trii_rdzv_round *round, int rank, const char *why)
{
    trii_agent *a = h->agent;
    bool given = has_given_ranks(h);
    bool ends = given && (round->mixed || a->restarts >= a->options->max_restarts);
    trii_rdzv_news news = because(why);
    int64_t now_ns = trii_now_ns();

    news.over = ends;
    news.counts = given;
    news.gone = rank;
    trii_rendezvous_lost(h->rdzv, round, &news);
    if (round->agents[rank].serves) {
        h->server_lost_ns = now_ns;
        h->server_rank = round->number == h->round.number ? rank : -1;
        snprintf(h->server_lost, sizeof(h->server_lost), "%s", why);
        check_store(h);
        return;
    }
    trii_peers_tell(h->peers, &news);
    log_gone(h, rank, false, why);
    if (is_in_round(h) && h->server_lost[0] == '\0')
        end_round(h, ends ? TRII_RDZV_ENDED : TRII_RDZV_AGAIN, &news);
}

/* Another agent has told it, perhaps of a round that this host has left already. */
static void news_came(trii_agent_hosts *h, const trii_peer_event *event)
{
    const trii_rdzv_news *news = &event->news;

    trii_rendezvous_heard(h->rdzv, event->round->number, news);
    if (news->finished || is_over(h))
        return;
    log_gone(h, news->gone, news->left, news->why);
    if (is_in_round(h) || (news->over && h->state == TRII_HOSTS_JOINING))
        end_round(h, news->over ? TRII_RDZV_ENDED : TRII_RDZV_AGAIN, news);
}

static void peers_ready(trii_watch *watch, unsigned events)
{
    trii_agent_hosts *h = TRII_CONTAINER(watch, trii_agent_hosts, peers_watch);
    trii_peer_event event;

    (void)events;
    for (;;) {
        trii_peers_next(h->peers, &event);
        switch (event.kind) {
        case TRII_PEER_NOTHING:
            return;
        case TRII_PEER_WARNING:
            TRII_SAY(h->agent, "%s\n", event.text);
            break;
        case TRII_PEER_PREEMPTED:
            trii_preemption_of_host(h->agent, event.round->agents[event.rank].name,
                                    event.round->agents[event.rank].node.pid, event.left_ms);
            break;
        case TRII_PEER_NEWS_CAME:
            news_came(h, &event);
            break;
        case TRII_PEER_LOST:
            if (!is_over(h))
                peer_lost(h, event.round, event.rank, event.text);
            break;
        case TRII_PEER_INCOMPATIBLE:
            event.news = because(event.text);
            if (!is_over(h))
                end_round(h, TRII_RDZV_FAILED, &event.news);
            break;
        }
    }
}

static int64_t progressed(trii_agent *a, int64_t own_ns)
{
    return trii_peers_progress(a->hosts->peers, own_ns);
}

static void host_preempted(trii_agent *a, int64_t left_ms)
{
    trii_peers_announce_preemption(a->hosts->peers, left_ms);
}

/* In order. why: for the others, which continue; NULL: the job is over for everybody. */
static void leave_job(trii_agent *a, const char *why)
{
    trii_agent_hosts *h = a->hosts;
    int64_t deadline = trii_deadline_ms(LEAVE_MS);
    trii_rdzv_news news = because(why != NULL ? why : "");

    news.over = has_given_ranks(h);
    news.gone = h->round.group_rank;
    news.left = true;
    h->store_cut = h->store_cut || !trii_rendezvous_has_begun(h->rdzv);
    if (h->store_cut) /* others may still reach it, or find out by themselves that they do not */
        return;
    if (why != NULL)
        tell(h, &news);
    trii_peers_meet(h->peers); /* else they only see that this agent is gone */
    while (!trii_peers_have_met(h->peers) && !a->second_signal && trii_now_ns() < deadline)
        trii_loop_run_once(a->loop, deadline);
    if (why != NULL)
        trii_rendezvous_leave(h->rdzv);
    else
        trii_rendezvous_close(h->rdzv);
    while (h->state != TRII_HOSTS_LEFT && !a->second_signal && trii_now_ns() < deadline)
        trii_loop_run_once(a->loop, deadline);
    h->store_cut =
        h->state != TRII_HOSTS_LEFT && a->second_signal; /* the others see that our links end */
}

static void leave_for_signal(trii_agent *a)
{
    char host[256], why[320];

    trii_host_name(host, sizeof(host));
    snprintf(why, sizeof(why), "host %s (pid %d) was stopped by %s", host, trii_process_id(),
             trii_signal_name(a->stop_signal));
    leave_job(a, why);
}

/* Where others reach us if all agents are on this host; NULL: everywhere. */
static const char *loopback_host(const trii_launch_options *o)
{
    const char *host = o->local_addr != NULL ? o->local_addr : o->rdzv_host;

    return trii_socket_is_loopback(host) ? host : NULL;
}

/* A store that only the master's agent keeps. Agents of torchrun keep using the address that they
 * got first, so then it stays. */
static tri_status open_worker_store(trii_agent *a)
{
    const trii_rdzv_round *round = &a->hosts->round;
    const char *host = loopback_host(a->options);

    if (has_given_ranks(a->hosts))
        return TRI_OK;
    return trii_job_store_open(a, host != NULL ? host : "0.0.0.0",
                               round->mixed && round->master ? round->master_port : 0);
}

static void describe_round(const trii_agent *a, trii_launch_job *job)
{
    const trii_agent_hosts *h = a->hosts;

    job->world_size = h->round.world_size;
    job->first_rank = h->round.first_rank;
    job->group_rank = h->round.group_rank;
    job->group_size = h->round.group_size;
    job->first_role_rank = h->round.first_role_rank;
    job->role_size = h->round.role_size;
    job->master_addr = h->round.master_addr;
    job->master_port = h->round.master_port;
    job->new_store = !has_given_ranks(h) && !h->round.mixed;
}

static bool may_restart(const trii_agent *a)
{
    return a->restarts < a->options->max_restarts;
}

static void report_failure(trii_agent *a, const char *what)
{
    trii_rdzv_news news = {.over = !may_restart(a), .counts = true, .gone = -1};
    char host[256];

    trii_host_name(host, sizeof(host));
    snprintf(news.why, sizeof(news.why), "rank %d on host %s %s", a->cause->rank, host, what);
    trii_hosts_state_enter(&a->hosts->state, TRII_HOSTS_REPORTED);
    tell(a->hosts, &news);
}

/* Ends the job on all hosts. */
static void end_job(trii_agent *a, bool hung, const char *what)
{
    trii_rdzv_news news = {.over = true, .hung = hung, .gone = -1};
    char host[256];

    trii_host_name(host, sizeof(host));
    snprintf(news.why, sizeof(news.why), "host %s (pid %d) %s", host, trii_process_id(), what);
    tell(a->hosts, &news);
    a->hosts->end = TRII_RDZV_ENDED; /* what others say of it is no news */
}

/* Peers drop what another host has told before. */
static void job_hung(trii_agent *a)
{
    end_job(a, true, "saw no rank of any host make progress (--hang-timeout): the job hangs");
}

static void worker_failed(trii_agent *a)
{
    char what[80];

    trii_worker_describe(a->cause, what, sizeof(what));
    report_failure(a, what);
}

/* No news have come, nor a signal. */
static bool is_quiet(const trii_agent *a)
{
    return a->hosts->end == TRII_RDZV_NOTHING && a->stop_signal == 0;
}

static bool must_wait(const trii_agent *a)
{
    return is_quiet(a) && a->hosts->state != TRII_HOSTS_FINISHED;
}

/* Until the cause of a failure here is known, or that it was on no other host. */
static void wait_for_other_cause(trii_agent *a)
{
    int64_t soon = trii_deadline_ms(VICTIM_MS);
    int64_t late = trii_deadline_ms(a->options->host_timeout_ms + VICTIM_MORE_MS);

    while (must_wait(a) && trii_now_ns() < (trii_peers_have_suspect(a->hosts->peers) ? late : soon))
        trii_loop_run_once(a->loop, trii_deadline_ms(TRII_PEER_HEARTBEAT_MS));
}

/* All have ended, and the first that was seen to fail may be the victim of another one here. The
 * failure of one that lost a peer is reported late: another host may have the cause. */
static void report_cause(trii_agent *a)
{
    const trii_failure *failure = trii_attempt_find_cause(a);
    char what[120];

    if (failure->blame == TRII_BLAME_VICTIM ||
        (failure->culprit.rank >= 0 && failure->culprit.rank != a->cause->rank))
        wait_for_other_cause(a);
    trii_failure_describe(failure, what, sizeof(what));
    if (is_quiet(a))
        report_failure(a, what);
}

/* What the other hosts have reported decides. */
static bool conclude_by_news(trii_agent *a)
{
    trii_agent_hosts *h = a->hosts;

    trii_attempt_close_streams(a);
    if (h->end != TRII_RDZV_AGAIN) {
        TRII_SAY(a, "the job is over: %s\n", h->news.why);
        if (a->verdict == TRII_VERDICT_NONE)
            a->verdict = TRII_VERDICT_ELSEWHERE;
        leave_job(a, h->news.why);
        return false;
    }
    a->cause = NULL; /* a victim */
    a->restarts += h->news.counts;
    if (has_given_ranks(h))
        TRII_SAY(a, "%s; restarting once all %d hosts have joined (restart %d of %d)\n",
                 h->news.why, h->round.group_size, a->restarts, a->options->max_restarts);
    else
        TRII_SAY(a, "%s; restarting with the hosts that are left\n", h->news.why);
    return true;
}

/* Until a round is formed; prints now and then which hosts are waited for. */
static void wait_for_round(trii_agent *a)
{
    trii_agent_hosts *h = a->hosts;
    int64_t note_ns = trii_now_ns() + TRII_NOTE_FIRST_NS,
            show_ns = trii_deadline_ms(STATUS_FIRST_MS);
    char text[TRII_ERR_BYTES];

    while (h->state == TRII_HOSTS_JOINING && a->stop_signal == 0 && h->end <= TRII_RDZV_AGAIN) {
        h->end = TRII_RDZV_NOTHING; /* AGAIN is what we do */
        trii_loop_run_once(a->loop, show_ns < note_ns ? show_ns : note_ns);
        if (h->state != TRII_HOSTS_JOINING || trii_now_ns() < show_ns)
            continue;
        trii_rendezvous_describe(h->rdzv, text, sizeof(text));
        trii_monitor_waits(&a->monitor, text);
        show_ns = trii_deadline_ms(STATUS_MS);
        if (trii_now_ns() < note_ns)
            continue;
        TRII_SAY(a, "%s\n", text);
        note_ns = trii_note_next(trii_now_ns());
    }
}

/* A round, or why there is none. */
static tri_status join_once(trii_agent *a)
{
    trii_agent_hosts *h = a->hosts;
    tri_status status;

    trii_attempt_dispose(a);
    status = open_worker_store(a);
    if (status != TRI_OK)
        return status;
    trii_hosts_state_enter(&h->state, TRII_HOSTS_JOINING);
    h->end = TRII_RDZV_NOTHING;
    h->rdzv_failed[0] = '\0';
    if (h->server_lost[0] == '\0')
        trii_loop_timer_stop(a->loop, &h->store_check);
    trii_rendezvous_join(h->rdzv, a->store != NULL ? trii_tcp_server_port(a->store) : 0,
                         a->restarts);
    wait_for_round(a);
    if (h->state != TRII_HOSTS_JOINED)
        return TRI_OK;
    if (!h->round.master)
        trii_job_store_close(a);
    trii_job_store_warn(a, trii_rendezvous_open_port(h->rdzv));
    return TRI_OK;
}

tri_status trii_agent_hosts_join(trii_agent *a)
{
    trii_agent_hosts *h = a->hosts;
    tri_status status;

    trii_agent_state_enter(&a->state, TRII_AGENT_JOINING);
    a->cause = NULL;
    do {
        status = join_once(a);
        if (status != TRI_OK)
            return status;
        if (h->end == TRII_RDZV_AGAIN && h->news.counts)
            a->restarts++; /* it failed before we had begun */
    } while (h->end == TRII_RDZV_AGAIN && a->stop_signal == 0);
    if (a->stop_signal != 0) {
        if (!trii_rendezvous_has_begun(h->rdzv))
            trii_log_end(); /* its thread is left behind */
        TRII_SAY(a, "received %s while waiting for other hosts: stopping\n",
                 trii_signal_name(a->stop_signal));
        leave_for_signal(a);
        return TRI_END;
    }
    switch (h->end) {
    case TRII_RDZV_NOTHING:
        return TRI_OK;
    case TRII_RDZV_UNNEEDED:
        TRII_SAY(a, "%s\n", h->news.why);
        leave_job(a, "");
        return TRI_END;
    case TRII_RDZV_ENDED:
        (void)conclude_by_news(a);
        return TRI_END;
    default:
        return TRII_FAIL(TRI_ERR_STATE, "%s", h->news.why);
    }
}

/* All workers of this host ended well, by themselves. */
static bool have_succeeded(const trii_agent *a)
{
    for (int i = 0; i < a->n_workers; i++) {
        if (a->workers[i].signalled || trii_worker_failed(&a->workers[i]))
            return false;
    }
    return true;
}

/* A worker failed here, and the others know. */
static bool conclude_failure(trii_agent *a)
{
    bool may = may_restart(a) && a->verdict == TRII_VERDICT_NONE;
    bool more = may && a->hosts->end != TRII_RDZV_ENDED;

    trii_attempt_report(a, more);
    if (may && !more)
        TRII_SAY(a, "the job is over: %s\n", a->hosts->news.why);
    a->restarts += more;
    if (!more)
        leave_job(a, NULL);
    return more;
}

bool trii_agent_hosts_conclude(trii_agent *a)
{
    trii_agent_hosts *h = a->hosts;

    trii_agent_state_enter(&a->state, TRII_AGENT_CONCLUDING);
    if (is_quiet(a) && a->cause != NULL && h->state != TRII_HOSTS_REPORTED)
        report_cause(a);
    if (a->stop_signal != 0 || a->verdict == TRII_VERDICT_HUNG) {
        trii_attempt_report(a, false);
        if (a->stop_signal != 0)
            leave_for_signal(a);
        else
            leave_job(a, NULL);
        return false;
    }
    if (h->state == TRII_HOSTS_REPORTED)
        return conclude_failure(a);
    /* torchrun, with the store, ends once all have succeeded, and does not wait for us */
    if (h->end == TRII_RDZV_FAILED && h->round.mixed && h->state == TRII_HOSTS_JOINED &&
        have_succeeded(a))
        trii_hosts_state_enter(&h->state, TRII_HOSTS_FINISHED);
    if (h->end == TRII_RDZV_NOTHING) {
        trii_rendezvous_finish(h->rdzv);
        while (must_wait(a))
            trii_loop_run_once(a->loop, TRII_NO_DEADLINE);
    }
    if (h->state != TRII_HOSTS_FINISHED && a->stop_signal == 0)
        return conclude_by_news(a);
    trii_attempt_close_streams(a);
    if (h->state == TRII_HOSTS_FINISHED)
        leave_job(a, NULL);
    else
        leave_for_signal(a);
    return false;
}

void trii_agent_hosts_cannot_start(trii_agent *a, const char *why)
{
    char what[TRII_ERR_BYTES];

    snprintf(what, sizeof(what), "cannot start its workers: %s", why);
    end_job(a, false, what);
    leave_job(a, NULL);
}

/* --- life ----------------------------------------------------------------- */

tri_status trii_agent_hosts_open(trii_agent *a)
{
    static const trii_agent_callbacks callbacks = {.describe_round = describe_round,
                                                   .worker_failed = worker_failed,
                                                   .job_hung = job_hung,
                                                   .progressed = progressed,
                                                   .host_preempted = host_preempted};
    trii_rdzv_setup setup = {.options = a->options, .loop = a->loop};
    trii_agent_hosts *h;
    tri_status status;

    if (a->options->max_nodes == 1)
        return TRI_OK;
    h = trii_alloc(1, sizeof(*h), "other hosts");
    if (h == NULL)
        return TRI_ERR_NO_MEMORY;
    h->agent = a;
    a->hosts = h;
    status = trii_peers_create(a->loop, loopback_host(a->options), a->options->host_timeout_ms,
                               &h->peers);
    if (status == TRI_OK)
        trii_peers_describe(h->peers, &setup.self);
    if (status == TRI_OK)
        status = trii_job_key_check(a, setup.self.keyed);
    if (status == TRI_OK)
        status = trii_rendezvous_create(&setup, &h->rdzv);
    if (status == TRI_OK)
        status = trii_loop_watch(a->loop, &h->rdzv_watch, trii_rendezvous_fd(h->rdzv),
                                 TRII_READABLE, rdzv_ready);
    if (status == TRI_OK)
        status = trii_loop_watch(a->loop, &h->peers_watch, trii_peers_fd(h->peers), TRII_READABLE,
                                 peers_ready);
    if (status == TRI_OK)
        a->callbacks = &callbacks;
    return status;
}

void trii_agent_hosts_close(trii_agent *a)
{
    trii_agent_hosts *h = a->hosts;

    if (h == NULL)
        return;
    trii_loop_unwatch(&h->peers_watch);
    trii_peers_destroy(h->peers, is_over(h) || h->store_cut);
    if (h->state != TRII_HOSTS_LEFT)
        trii_hosts_state_enter(&h->state, TRII_HOSTS_LEFT);
    trii_loop_unwatch(&h->rdzv_watch);
    trii_loop_timer_stop(a->loop, &h->store_check);
    trii_rendezvous_destroy(h->rdzv, h->store_cut ? DESTROY_CUT_MS : DESTROY_MS);
    trii_free(h->round.agents);
    trii_free(h);
    a->hosts = NULL;
    a->callbacks = NULL;
}
