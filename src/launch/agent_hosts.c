/*
 * agent_hosts.c - see agent_hosts.h.
 */
#include "launch/agent_hosts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/note.h"
#include "launch/agent_internal.h"
#include "launch/report/host_events.h"
#include "launch/peers/peers.h"
#include "os/clock.h"
#include "os/signal.h"

/* A worker that complains of a lost peer may be right: so long its host is given to be noticed;
 * and, behind the silence that is allowed, while one is silent. */
#define VICTIM_MS 1600
#define VICTIM_MORE_MS (3 * TRII_PEER_BEAT_MS)
/* For the store to show that it lives although its agent's connection broke. */
#define VERDICT_MS INT64_C(500)
/* The store may be seen to be gone before the agent that served it. */
#define FAILED_MS INT64_C(200)
/* For leaving in order. */
#define LEAVE_MS 5000

/* For the rendezvous thread to end; where the network is dead it will not. */
#define QUIT_MS 3000
#define CUT_MS 50
/* Who waits for hosts no longer is not seen by `trireme ps`; then how often it is brought up to
 * date. */
#define SHOW_FIRST_MS 100
#define SHOW_MS 1000

struct trii_agent_hosts {
    struct trii_agent *agent;
    trii_rendezvous *rdzv;
    trii_peers *peers;
    trii_watch watch;
    trii_rdzv_round round;
    trii_rdzv_agent *before; /* n_before agents of the round before it */
    int n_before;
    int lost_rank;      /* whose store may be gone, in `round` */
    trii_timer verdict; /* whether the agents' store is gone */
    bool joined, finished, left;
    bool cut;                  /* it is, or cannot be reached */
    bool told;                 /* the others know of our failure */
    trii_rdzv_event_kind news; /* NOTHING, AGAIN or an end: the first of this round */
    bool counts;
    char why[TRII_ERR_BYTES];
    int64_t lost_ns; /* when the agent that serves the store was lost, and why; "" = it was not */
    char lost[TRII_ERR_BYTES / 2];
    trii_timer failure;          /* until then its agent may be told to be lost */
    char failed[TRII_ERR_BYTES]; /* why the rendezvous failed */
};

static bool has_given_ranks(const trii_agent_hosts *m)
{
    return strcmp(m->agent->options->rdzv_backend, "static") == 0;
}

/* What is on is over; workers that run are stopped. */
static void hear(trii_agent_hosts *m, trii_rdzv_event_kind kind, bool counts, const char *why)
{
    trii_agent *a = m->agent;

    if (m->news != TRII_RDZV_NOTHING)
        return;
    m->news = kind;
    m->counts = counts;
    snprintf(m->why, sizeof(m->why), "%s", why);
    if (a->phase != TRII_PHASE_RUN)
        return;
    trii_sink_print(a->err_sink, "trirun: %s; stopping %d worker%s\n", why, a->n_live,
                    a->n_live == 1 ? "" : "s");
    trii_shutdown_begin(a, SIGTERM);
}

/* A line of --events. */
static void say_gone(trii_agent_hosts *m, int rank, bool left, const char *why)
{
    trii_host_events_gone(&m->agent->monitor.events, m->agent->restarts, &m->round, rank, left,
                          why);
}

static void store_lost(trii_agent_hosts *m)
{
    char text[TRII_ERR_BYTES];

    if (m->news == TRII_RDZV_NOTHING || m->news == TRII_RDZV_FAILED)
        m->cut = true;
    say_gone(m, m->lost_rank, false, m->lost);
    snprintf(text, sizeof(text), "%s, and the agents' store with it: the job cannot go on",
             m->lost);
    hear(m, TRII_RDZV_ENDED, false, text);
}

/* Whether the store has answered anything since the connection to its agent broke. */
static void verdict_due(trii_timer *timer)
{
    trii_agent_hosts *m = TRII_CONTAINER(timer, trii_agent_hosts, verdict);

    if (trii_rendezvous_answered_ns(m->rdzv) < m->lost_ns)
        store_lost(m);
    else
        m->lost[0] = '\0';
}

static void failure_due(trii_timer *timer)
{
    trii_agent_hosts *m = TRII_CONTAINER(timer, trii_agent_hosts, failure);

    hear(m, TRII_RDZV_FAILED, false, m->failed);
}

/* What is known of the end of its agent says more than what a call to the store met. */
static void rdzv_failed(trii_agent_hosts *m, const char *why)
{
    bool served = false; /* by another agent that we may hear of */

    for (int i = 0; m->joined && i < m->round.group_size; i++)
        served = served || (m->round.agents[i].serves && i != m->round.group_rank);
    if (m->lost[0] != '\0' && m->news == TRII_RDZV_NOTHING) {
        store_lost(m);
    } else if (served && m->news == TRII_RDZV_NOTHING) {
        snprintf(m->failed, sizeof(m->failed), "%s", why);
        trii_loop_timer(m->agent->loop, &m->failure, trii_deadline_ms(FAILED_MS), failure_due);
    } else {
        hear(m, TRII_RDZV_FAILED, false, why);
    }
}

static void rdzv_ready(trii_watch *watch, unsigned events)
{
    trii_agent_hosts *m = TRII_CONTAINER(watch, trii_agent_hosts, watch);
    trii_rdzv_event event;

    (void)events;
    for (;;) {
        trii_rendezvous_next(m->rdzv, &event);
        switch (event.kind) {
        case TRII_RDZV_NOTHING:
            return;
        case TRII_RDZV_NOTE:
            trii_sink_print(m->agent->err_sink, "trirun: %s\n", event.why);
            break;
        case TRII_RDZV_JOINED:
            trii_free(m->before);
            m->before = m->round.agents;
            m->n_before = m->round.group_size;
            m->round = event.round;
            if (m->news == TRII_RDZV_AGAIN)
                m->news = TRII_RDZV_NOTHING; /* of an earlier round */
            m->joined = true;
            break;
        case TRII_RDZV_FINISHED:
            m->finished = true;
            break;
        case TRII_RDZV_LEFT:
            m->left = true;
            break;
        case TRII_RDZV_FAILED:
            rdzv_failed(m, event.why);
            break;
        case TRII_RDZV_AGAIN:
        case TRII_RDZV_ENDED:
        case TRII_RDZV_UNNEEDED:
            say_gone(m, event.gone, event.left, event.why);
            hear(m, event.kind, event.counts, event.why);
            break;
        }
    }
}

/* Of the agent that serves the store the store itself tells whether it lives: perhaps it was us who
 * were not heard for a while. The round is that of the peers: another one may be forming. */
static void peer_lost(void *arg, const trii_rdzv_round *round, int rank, const char *why)
{
    trii_agent_hosts *m = arg;
    trii_agent *a = m->agent;
    bool given = has_given_ranks(m);
    bool ends = given && (round->mixed || a->restarts >= a->options->max_restarts);

    if (m->finished || m->left)
        return;
    trii_rendezvous_lost(m->rdzv, round, rank, why);
    if (round->agents[rank].serves) {
        m->lost_ns = trii_now_ns();
        m->lost_rank = round->number == m->round.number ? rank : -1;
        snprintf(m->lost, sizeof(m->lost), "%s", why);
        if (m->failed[0] != '\0')
            store_lost(m);
        else
            trii_loop_timer(a->loop, &m->verdict, trii_deadline_ms(VERDICT_MS), verdict_due);
        return;
    }
    if (round->number == m->round.number)
        say_gone(m, rank, false, why);
    if (m->joined && m->lost[0] == '\0') {
        hear(m, ends ? TRII_RDZV_ENDED : TRII_RDZV_AGAIN, given, why);
    }
}

/* There is an agent with which ours cannot work, and never will. */
static void peer_refused(void *arg, const char *why)
{
    trii_agent_hosts *m = arg;

    if (!m->finished && !m->left)
        hear(m, TRII_RDZV_FAILED, false, why);
}

static void peer_remarked(void *arg, const char *text)
{
    trii_sink_print(((trii_agent_hosts *)arg)->agent->err_sink, "trirun: %s\n", text);
}

/* Where peers call us: nobody else, if all agents are on this host. */
static const char *peer_host(const trii_launch_options *o)
{
    const char *host = o->local_addr != NULL ? o->local_addr : o->rdzv_host;

    return trii_socket_is_loopback_text(host) ? host : NULL;
}

static void peer_noticed(void *arg, int rank, const trii_rdzv_agent *agent, int64_t left_ms)
{
    (void)rank;
    trii_preemption_of_host(((trii_agent_hosts *)arg)->agent, agent->name, agent->node.pid,
                            left_ms);
}

void trii_agent_hosts_preempted(trii_agent_hosts *m, int64_t left_ms)
{
    if (m->peers != NULL) /* else we are about to go, or have not begun */
        trii_peers_notice(m->peers, left_ms);
}

tri_status trii_agent_hosts_open(trii_agent *a)
{
    trii_peers_events events = {.lost = peer_lost,
                                .refused = peer_refused,
                                .noticed = peer_noticed,
                                .remarked = peer_remarked};
    trii_rdzv_setup setup = {.options = a->options, .loop = a->loop};
    trii_agent_hosts *m;
    tri_status status;

    if (a->options->max_nodes == 1)
        return TRI_OK;
    m = trii_alloc(1, sizeof(*m), "other hosts");
    if (m == NULL)
        return TRI_ERR_NO_MEMORY;
    m->agent = a;
    a->hosts = m;
    events.arg = m;
    status = trii_peers_create(a->loop, peer_host(a->options), a->options->host_timeout_ms, &events,
                               &m->peers);
    if (status == TRI_OK)
        status = trii_job_key_check(a, trii_peers_keyed(m->peers));
    if (status != TRI_OK)
        return status;
    setup.peer_port = trii_peers_port(m->peers);
    snprintf(setup.token, sizeof(setup.token), "%s", trii_peers_token(m->peers));
    setup.keyed = trii_peers_keyed(m->peers);
    status = trii_rendezvous_create(&setup, &m->rdzv);
    if (status == TRI_OK)
        status = trii_loop_watch(a->loop, &m->watch, trii_rendezvous_fd(m->rdzv), TRII_READABLE,
                                 rdzv_ready);
    return status;
}

/* In order, while the others may go on. */
static void leave(trii_agent *a, bool close, const char *why)
{
    trii_agent_hosts *m = a->hosts;
    int64_t deadline = trii_deadline_ms(LEAVE_MS);

    m->cut = m->cut || !trii_rendezvous_has_begun(m->rdzv);
    if (m->cut)
        return;
    if (close)
        trii_rendezvous_close(m->rdzv);
    else
        trii_rendezvous_leave(m->rdzv, why);
    while (!m->left && !a->hurry && trii_now_ns() < deadline)
        trii_loop_run_once(a->loop, deadline);
    m->cut = !m->left && a->hurry; /* the others see that our links end */
}

static void leave_for_signal(trii_agent *a)
{
    char host[256], why[320];

    trii_process_host(host, sizeof(host));
    snprintf(why, sizeof(why), "host %s (pid %d) was told to stop by %s", host, trii_process_id(),
             trii_signal_name(a->stop_signal));
    leave(a, false, why);
}

/* A store that only the master's agent keeps. Agents of torchrun go on to use the address that they
 * were told first, so then it stays. */
static tri_status open_worker_store(trii_agent *a)
{
    trii_agent_hosts *m = a->hosts;
    const trii_launch_options *o = a->options;
    const char *host = o->local_addr != NULL ? o->local_addr : o->rdzv_host;
    int port = m->round.mixed && m->round.master ? m->round.master_port : 0;

    if (has_given_ranks(m))
        return TRI_OK;
    return trii_job_store_open(a, trii_socket_is_loopback_text(host) ? host : "0.0.0.0", port);
}

void trii_agent_hosts_describe(const trii_agent_hosts *m, trii_launch_job *job)
{
    job->world_size = m->round.world_size;
    job->first_rank = m->round.first_rank;
    job->group_rank = m->round.group_rank;
    job->group_size = m->round.group_size;
    job->first_role_rank = m->round.first_role_rank;
    job->role_size = m->round.role_size;
    job->master_addr = m->round.master_addr;
    job->master_port = m->round.master_port;
    job->new_store = !has_given_ranks(m) && !m->round.mixed;
}

static void tell_failure(trii_agent *a, const char *words)
{
    char host[256], why[TRII_ERR_BYTES];
    bool more = a->restarts < a->options->max_restarts;

    trii_process_host(host, sizeof(host));
    snprintf(why, sizeof(why), "rank %d on host %s %s", a->cause->rank, host, words);
    a->hosts->told = true;
    trii_rendezvous_tell(a->hosts->rdzv, !more, true, why);
}

void trii_agent_hosts_failure(trii_agent *a)
{
    char words[80];

    trii_worker_describe(a->cause, words, sizeof(words));
    if (trii_worker_blame(a->cause) > 0)
        tell_failure(a, words);
}

/* Runs the loop until there is news, a signal, or it is late. */
static void wait_for_news(trii_agent *a, int64_t deadline_ns)
{
    trii_agent_hosts *m = a->hosts;

    while (m->news == TRII_RDZV_NOTHING && !m->finished && a->stop_signal == 0 &&
           trii_now_ns() < deadline_ns)
        trii_loop_run_once(a->loop, deadline_ns);
}

/* Until it is known who was the cause of a failure here, or that nobody else was. */
static void wait_for_culprit(trii_agent *a)
{
    int64_t late = trii_deadline_ms(a->options->host_timeout_ms + VICTIM_MORE_MS);
    const trii_agent_hosts *m = a->hosts;

    wait_for_news(a, trii_deadline_ms(VICTIM_MS));
    while (m->news == TRII_RDZV_NOTHING && !m->finished && a->stop_signal == 0 &&
           trii_now_ns() < late && trii_peers_are_doubtful(m->peers))
        wait_for_news(a, trii_deadline_ms(TRII_PEER_BEAT_MS));
}

/* All have ended, and who was seen first may be the victim of another one here. One that complains
 * of a lost peer is told of late: another host may know better. */
static void tell_settled(trii_agent *a)
{
    const trii_failure *failure = trii_attempt_settle(a);
    char words[120];

    if (trii_worker_blame(a->cause) == 0 ||
        (failure->culprit.rank >= 0 && failure->culprit.rank != a->cause->rank))
        wait_for_culprit(a);
    trii_failure_describe(failure, words, sizeof(words));
    if (a->hosts->news == TRII_RDZV_NOTHING && a->stop_signal == 0)
        tell_failure(a, words);
}

/* What the others say counts. */
static trii_outcome settle_news(trii_agent *a)
{
    trii_agent_hosts *m = a->hosts;

    trii_attempt_quiet(a);
    if (m->news == TRII_RDZV_AGAIN) {
        a->cause = NULL; /* a victim */
        if (m->counts)
            a->restarts++;
        if (has_given_ranks(m))
            trii_sink_print(a->err_sink,
                            "trirun: %s; starting again once all %d hosts are there (restart %d of "
                            "%d)\n",
                            m->why, m->round.group_size, a->restarts, a->options->max_restarts);
        else
            trii_sink_print(a->err_sink,
                            "trirun: %s; starting again with the hosts that are there\n", m->why);
        return TRII_OUTCOME_AGAIN;
    }
    trii_sink_print(a->err_sink, "trirun: the job is over: %s\n", m->why);
    a->failed_elsewhere = true;
    leave(a, false, m->why);
    return TRII_OUTCOME_OVER;
}

/* Until the hosts have met; says now and then who is waited for. */
static void wait_for_round(trii_agent *a)
{
    trii_agent_hosts *m = a->hosts;
    int64_t note_ns = trii_now_ns() + TRII_NOTE_FIRST_NS, show_ns = trii_deadline_ms(SHOW_FIRST_MS);
    char text[TRII_ERR_BYTES];

    while (!m->joined && a->stop_signal == 0 && m->news <= TRII_RDZV_AGAIN) {
        m->news = TRII_RDZV_NOTHING; /* AGAIN is what we do */
        trii_loop_run_once(a->loop, show_ns < note_ns ? show_ns : note_ns);
        if (m->joined || trii_now_ns() < show_ns)
            continue;
        trii_rendezvous_describe(m->rdzv, text, sizeof(text));
        trii_monitor_waits(&a->monitor, text);
        show_ns = trii_deadline_ms(SHOW_MS);
        if (trii_now_ns() < note_ns)
            continue;
        trii_sink_print(a->err_sink, "trirun: %s\n", text);
        note_ns = trii_note_next(trii_now_ns());
    }
}

/* A round, or why there is none. */
static tri_status join_once(trii_agent *a)
{
    trii_agent_hosts *m = a->hosts;
    tri_status status;

    trii_attempt_dispose(a);
    status = open_worker_store(a);
    if (status != TRI_OK)
        return status;
    m->joined = m->told = false;
    m->news = TRII_RDZV_NOTHING;
    trii_loop_timer_stop(a->loop, &m->failure);
    m->failed[0] = '\0';
    trii_rendezvous_join(m->rdzv, a->store != NULL ? trii_tcp_server_port(a->store) : 0,
                         a->restarts);
    wait_for_round(a);
    if (!m->joined)
        return TRI_OK;
    if (!m->round.master)
        trii_job_store_close(a);
    trii_job_store_warn(a, trii_rendezvous_open_port(m->rdzv));
    if (a->restarts < m->round.restarts)
        a->restarts = m->round.restarts;
    trii_host_events_round(&a->monitor.events, a->restarts, m->before, m->n_before, &m->round);
    trii_peers_round(m->peers, &m->round);
    return TRI_OK;
}

tri_status trii_agent_hosts_join(trii_agent *a)
{
    trii_agent_hosts *m = a->hosts;
    tri_status status;

    a->phase = TRII_PHASE_MEET;
    a->cause = NULL;
    do {
        status = join_once(a);
        if (status != TRI_OK)
            return status;
        if (m->news == TRII_RDZV_AGAIN && m->counts)
            a->restarts++; /* it failed before we had begun */
    } while (m->news == TRII_RDZV_AGAIN && a->stop_signal == 0);
    if (a->stop_signal != 0) {
        if (!trii_rendezvous_has_begun(m->rdzv))
            trii_log_end(); /* its thread is left behind */
        trii_sink_print(a->err_sink,
                        "trirun: received %s while waiting for other hosts: stopping\n",
                        trii_signal_name(a->stop_signal));
        leave_for_signal(a);
        return TRI_END;
    }
    switch (m->news) {
    case TRII_RDZV_NOTHING:
        return TRI_OK;
    case TRII_RDZV_UNNEEDED:
        trii_sink_print(a->err_sink, "trirun: %s\n", m->why);
        leave(a, false, "");
        return TRI_END;
    case TRII_RDZV_ENDED:
        settle_news(a);
        return TRI_END;
    default:
        return TRII_FAIL(TRI_ERR_STATE, "%s", m->why);
    }
}

/* All of ours ended well, by themselves. */
static bool have_succeeded(const trii_agent *a)
{
    for (int i = 0; i < a->n_workers; i++) {
        if (a->workers[i].told || trii_worker_failed(&a->workers[i]))
            return false;
    }
    return true;
}

trii_outcome trii_agent_hosts_conclude(trii_agent *a)
{
    trii_agent_hosts *m = a->hosts;

    a->phase = TRII_PHASE_MEET;
    if (a->stop_signal == 0 && m->news == TRII_RDZV_NOTHING && a->cause != NULL && !m->told)
        tell_settled(a);
    if (a->stop_signal != 0) {
        trii_attempt_report(a, false);
        leave_for_signal(a);
        return TRII_OUTCOME_OVER;
    }
    if (a->hung) {
        trii_attempt_report(a, false);
        leave(a, false, "the job stood still and was stopped");
        return TRII_OUTCOME_OVER;
    }
    if (a->cause != NULL && m->told) {
        bool more = a->restarts < a->options->max_restarts && !a->gave_up;

        trii_attempt_report(a, more);
        if (more) {
            a->restarts++;
            return TRII_OUTCOME_AGAIN;
        }
        leave(a, true, "");
        return TRII_OUTCOME_OVER;
    }
    /* torchrun, with the store, goes once all have succeeded, and does not wait for us */
    if (m->news == TRII_RDZV_FAILED && m->round.mixed && have_succeeded(a))
        m->finished = true;
    if (m->news == TRII_RDZV_NOTHING) {
        trii_rendezvous_finish(m->rdzv);
        wait_for_news(a, TRII_NO_DEADLINE);
    }
    if (m->finished || a->stop_signal != 0) {
        trii_attempt_quiet(a);
        leave(a, m->finished, "");
        return m->finished ? TRII_OUTCOME_SUCCESS : TRII_OUTCOME_OVER;
    }
    return settle_news(a);
}

void trii_agent_hosts_close(trii_agent *a)
{
    trii_agent_hosts *m = a->hosts;

    if (m == NULL)
        return;
    trii_peers_destroy(m->peers, m->left || m->cut || m->finished);
    m->peers = NULL; /* the loop still runs below, and signals come */
    m->left = true;
    trii_loop_unwatch(&m->watch);
    trii_loop_timer_stop(a->loop, &m->verdict);
    trii_loop_timer_stop(a->loop, &m->failure);
    trii_rendezvous_destroy(m->rdzv, m->cut ? CUT_MS : QUIT_MS);
    trii_free(m->round.agents);
    trii_free(m->before);
    trii_free(m);
    a->hosts = NULL;
}
