/*
 * peer_links.c - connections between agents: they are dialed or accepted, the dialer identifies
 * itself, then frames (peer_frame.h) go both ways. What that says of an agent is noted in its
 * state; peer_liveness.c judges it.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/log.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/secret.h"
#include "os/socket.h"

#define MAX_LINKS 256
#define HEAR_MAX 64 /* reads of a connection in a row: far more than an agent ever says */
/* At least, and at most, for the connection; and for the proofs of the key after it, which take
 * another two round trips. */
#define CONNECT_MIN_MS 1000
#define CONNECT_MAX_MS 5000
#define PROVE_MS 1500

/* NULL: it has not identified itself, or is not of the round that is watched. */
static trii_peer_state *state_of(const trii_peer_link *l)
{
    const trii_peers *p = l->peers;

    return l->rank >= 0 && l->rank < p->n && l->round == p->round.number ? &p->states[l->rank]
                                                                         : NULL;
}

/* Has the agents judged now, not with the next heartbeat. */
static void judge_soon(trii_peers *p)
{
    trii_loop_timer(p->loop, &p->heartbeat, trii_now_ns(), p->heartbeat.fire);
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

/* --- sending -------------------------------------------------------------- */

/* The last bytes of a frame that has begun; true: nothing is left of it. */
static bool send_rest(trii_peer_link *l)
{
    const char *end = l->out + l->out_bytes;
    size_t sent;

    while (l->unsent > 0 && trii_socket_send(l->watch.fd, &(trii_span){end - l->unsent, l->unsent},
                                             1, &sent) == TRI_OK)
        l->unsent -= sent;
    return l->unsent == 0;
}

/* What a full connection does not take is dropped: its agent is about to be declared dead. Only a
 * frame that has begun must end. */
static void send_with_text(trii_peer_link *l, const trii_peer_frame *frame, const char *text)
{
    trii_peer_frame whole = *frame;
    size_t bytes = strlen(text);

    if (!send_rest(l))
        return;
    whole.magic = TRII_PEER_MAGIC;
    memcpy(l->out, &whole, sizeof(whole));
    memcpy(l->out + sizeof(whole), text, bytes);
    l->out_bytes = l->unsent = sizeof(whole) + bytes;
    if (!send_rest(l) && l->unsent == l->out_bytes)
        l->unsent = 0;
}

void trii_peer_link_send(trii_peer_link *l, const trii_peer_frame *frame)
{
    send_with_text(l, frame, "");
}

static void send_news(trii_peer_link *l, const trii_rdzv_news *news)
{
    const trii_peer_frame frame = {
        .kind = TRII_PEER_NEWS,
        .rank = news->gone,
        .number = TRII_PEER_OVER * news->over + TRII_PEER_COUNTS * news->counts +
                  TRII_PEER_LEFT * news->left + TRII_PEER_HUNG * news->hung +
                  TRII_PEER_FINISHED * news->finished,
        .value = (int64_t)strlen(news->why)};

    send_with_text(l, &frame, news->why);
}

/* Whether it says something that none before it has said. */
static bool is_new(const trii_peers *p, const trii_rdzv_news *news)
{
    bool any = false, over = false, finished = false, gone = news->gone < 0;

    for (const trii_peer_item *item = p->news; item != NULL; item = item->next) {
        any = true;
        over = over || item->news.over;
        finished = finished || item->news.finished;
        gone = gone || item->news.gone == news->gone;
    }
    return !any || !gone || (news->over && !over) || (news->finished && !finished);
}

bool trii_peer_links_spread(trii_peers *p, const trii_peer_link *from, const trii_rdzv_news *news,
                            bool own)
{
    trii_peer_item **end = &p->news, *item = NULL;

    if (is_new(p, news))
        item = trii_alloc(1, sizeof(*item), "news of agents");
    if (item == NULL)
        return false;
    item->news = *news;
    item->reported = own;
    while (*end != NULL)
        end = &(*end)->next;
    *end = item;
    for (trii_peer_link *l = p->links; l != NULL; l = l->next) {
        if (l != from && state_of(l) != NULL)
            send_news(l, news);
    }
    return true;
}

/* A deadline that is over is of no use to anybody. */
static void send_preemption(trii_peer_link *l, int rank)
{
    const trii_peer_preemption *n = &l->peers->states[rank].preemption;
    trii_peer_frame frame = {
        .kind = TRII_PEER_PREEMPTION, .rank = rank, .number = n->number, .value = -1};

    if (n->number == 0 || n->deadline_ns <= trii_now_ns())
        return;
    if (n->deadline_ns != TRII_NO_DEADLINE)
        frame.value = trii_deadline_left_ms(n->deadline_ns);
    trii_peer_link_send(l, &frame);
}

void trii_peer_links_forward_preemption(trii_peers *p, const trii_peer_link *from, int rank)
{
    for (trii_peer_link *l = p->links; l != NULL; l = l->next) {
        if (l != from && state_of(l) != NULL)
            send_preemption(l, rank);
    }
}

/* --- receiving ------------------------------------------------------------ */

static void handle_preemption(const trii_peer_link *l, const trii_peer_frame *frame)
{
    trii_peers *p = l->peers;
    trii_peer_preemption *known = &p->states[frame->rank].preemption;

    if (frame->rank == p->round.group_rank || known->number >= frame->number)
        return;
    *known = (trii_peer_preemption){.number = frame->number,
                                    .deadline_ns = trii_deadline_ms(frame->value)};
    trii_peer_links_forward_preemption(p, l, frame->rank);
    trii_wakeup_signal(p->events_fd);
}

static void handle_news(const trii_peer_link *l, const trii_peer_frame *frame)
{
    trii_rdzv_news news = {.over = (frame->number & TRII_PEER_OVER) != 0,
                           .counts = (frame->number & TRII_PEER_COUNTS) != 0,
                           .left = (frame->number & TRII_PEER_LEFT) != 0,
                           .hung = (frame->number & TRII_PEER_HUNG) != 0,
                           .finished = (frame->number & TRII_PEER_FINISHED) != 0,
                           .gone = frame->rank};

    snprintf(news.why, sizeof(news.why), "%s", l->in.text);
    if (frame->rank < l->peers->n && trii_peer_links_spread(l->peers, l, &news, false))
        trii_wakeup_signal(l->peers->events_fd);
}

static void handle_heartbeat(const trii_peer_link *l, trii_peer_state *state,
                             const trii_peer_frame *frame)
{
    trii_peers *p = l->peers;
    trii_peer_progress progress = {.rank = frame->rank,
                                   .at_ns = state->heard_ns - frame->number * TRII_NS_PER_MS};

    state->stalled_ms = frame->value;
    memcpy(&progress.theirs_ns, frame->token, sizeof(progress.theirs_ns));
    if (frame->rank < 0 || frame->rank >= p->n || frame->rank == p->round.group_rank ||
        progress.theirs_ns <= p->states[frame->rank].progress_ns)
        return; /* the same again, later by the time that it took */
    p->states[frame->rank].progress_ns = progress.theirs_ns;
    if (progress.at_ns > p->others.at_ns)
        p->others = progress;
}

static void handle_frame(const trii_peer_link *l, const trii_peer_frame *frame)
{
    trii_peer_state *state = state_of(l);

    if (state == NULL)
        return;
    state->heard_ns = trii_now_ns();
    if (frame->kind == TRII_PEER_PREEMPTION && frame->rank < l->peers->n)
        handle_preemption(l, frame);
    else if (frame->kind == TRII_PEER_GOODBYE)
        state->left = true;
    else if (frame->kind == TRII_PEER_HEARTBEAT)
        handle_heartbeat(l, state, frame);
    else if (frame->kind == TRII_PEER_NEWS)
        handle_news(l, frame);
}

/* Of an agent that has not identified itself yet. False: it is not an agent of this job, or of an
 * earlier round. */
static bool handle_hello(trii_peer_link *l, const trii_peer_frame *hello)
{
    static const trii_peer_frame goodbye = {.kind = TRII_PEER_GOODBYE};
    const trii_peers *p = l->peers;

    if (hello->kind != TRII_PEER_HELLO || memcmp(hello->token, p->token, sizeof(hello->token)) != 0)
        return false;
    if (hello->value < p->round.number) {
        trii_peer_link_send(l, &goodbye); /* we are in a round that it has not heard of yet */
        return false;
    }
    l->rank = hello->rank;
    l->round = hello->value;
    trii_peer_link_enter_round(l);
    handle_frame(l, hello); /* it has been heard */
    return true;
}

static bool send_answer(const trii_peer_link *l, const unsigned char *answer, size_t bytes)
{
    size_t sent;

    return bytes == 0 || /* else the first that we send: there is room */
           (trii_socket_send(l->watch.fd, &(trii_span){answer, bytes}, 1, &sent) == TRI_OK &&
            sent == bytes);
}

/* Its agent is in a round that we have not heard of yet, and what it says is about that. */
static bool is_early(const trii_peer_link *l)
{
    return l->rank >= 0 && l->round > l->peers->round.number;
}

/* What came with its hello; the rest stays unread until we enter its round. */
static void keep_early(trii_peer_link *l, const char *data, size_t bytes)
{
    memcpy(l->early, data, bytes);
    l->early_bytes = bytes;
    l->muted = true;
    trii_loop_mute(&l->watch); /* also if it breaks: what has come can still be read */
}

/* False: close it. Frames of an agent that are wrong have no effect. */
static bool handle_bytes(trii_peer_link *l, const char *data, size_t bytes)
{
    unsigned char answer[TRII_ANSWER_BYTES];
    size_t used = 0, answer_bytes;
    bool is_ours = true;

    for (; bytes > 0 && is_ours && !is_early(l); data += used, bytes -= used) {
        tri_status status = trii_peer_reader_feed(&l->in, &l->peers->key, data, bytes, &used,
                                                  answer, &answer_bytes);

        if (status == TRI_INPROGRESS)
            is_ours = send_answer(l, answer, answer_bytes);
        else if (l->rank < 0)
            is_ours = status == TRI_OK && handle_hello(l, &l->in.frame);
        else if (status == TRI_OK)
            handle_frame(l, &l->in.frame);
    }
    if (is_ours && is_early(l))
        keep_early(l, data, bytes);
    return is_ours;
}

static void link_ready(trii_watch *watch, unsigned events);

/* What it has said already, and from now on. If it cannot be watched it is silent. */
static void hear(trii_peer_link *l)
{
    int fd = l->watch.fd;
    tri_status status;

    l->muted = false;
    (void)handle_bytes(l, l->early, l->early_bytes);
    trii_loop_unwatch(&l->watch);
    status = trii_loop_watch(l->peers->loop, &l->watch, fd, TRII_READABLE, link_ready);
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_WARN, "launch", "rank %d is not heard: %s", l->rank, tri_last_error());
}

void trii_peer_link_enter_round(trii_peer_link *l)
{
    trii_peer_state *state = state_of(l);

    if (state == NULL)
        return;
    state->watched = state->reached = true;
    state->n_links++;
    for (const trii_peer_item *item = l->peers->news; item != NULL; item = item->next)
        send_news(l, &item->news);
    for (int i = 0; i < l->peers->n; i++)
        send_preemption(l, i);
    trii_wakeup_signal(l->peers->events_fd); /* trii_peers_have_met */
    if (l->muted)
        hear(l);
}

/* What has come over it, some bytes at a time. False: nothing is left for now, or it is gone. */
static bool read_link(trii_peer_link *l)
{
    trii_peers *p = l->peers;
    trii_peer_state *state = state_of(l);
    char data[TRII_PEER_READ_BYTES];
    size_t got;
    tri_status status =
        l->muted ? TRI_INPROGRESS : trii_socket_recv(l->watch.fd, data, sizeof(data), &got);

    if (status == TRI_INPROGRESS)
        return false;
    if (status == TRI_OK && handle_bytes(l, data, got))
        return true;
    trii_peer_link_drop(l, l->rank >= 0);
    if (state != NULL)
        judge_soon(p);
    return false;
}

static void link_ready(trii_watch *watch, unsigned events)
{
    (void)events;
    (void)read_link(TRII_CONTAINER(watch, trii_peer_link, watch));
}

/* --- links that come ------------------------------------------------------ */

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

/* Takes the descriptor. rank -1: it has to identify itself. */
static void add_link(trii_peers *p, int fd, int rank)
{
    trii_peer_link *l = NULL;

    if (p->n_links < MAX_LINKS || drop_unidentified(p))
        l = trii_alloc(1, sizeof(*l), "peer agent");
    if (l == NULL || trii_loop_watch(p->loop, &l->watch, fd, TRII_READABLE, link_ready) != TRI_OK) {
        trii_free(l);
        trii_socket_close(fd);
        return;
    }
    trii_socket_prefer(fd);
    l->peers = p;
    l->rank = rank;
    l->round = p->round.number;
    l->came_ns = trii_now_ns();
    l->in.shake.proved = rank >= 0;
    l->next = p->links;
    p->links = l;
    p->n_links++;
    trii_peer_link_enter_round(l);
}

/* False: none waits. */
static bool accept_link(trii_peers *p)
{
    int fd;
    tri_status status = trii_socket_accept(p->listener.fd, &fd);

    if (status == TRI_OK) {
        add_link(p, fd, -1);
    } else if (status != TRI_INPROGRESS && !drop_unidentified(p)) {
        p->accept_paused = true; /* it stays ready: the loop would spin */
        trii_loop_change(&p->listener, 0);
    }
    return status == TRI_OK;
}

void trii_peer_links_accept(trii_watch *watch, unsigned events)
{
    (void)events;
    (void)accept_link(TRII_CONTAINER(watch, trii_peers, listener));
}

/* Bounded, since strangers may send for ever. */
void trii_peer_links_hear(trii_peers *p)
{
    trii_peer_link *next;

    for (int i = 0; i < MAX_LINKS && accept_link(p);)
        i++;
    for (trii_peer_link *l = p->links; l != NULL; l = next) {
        next = l->next;
        for (int i = 0; i < HEAR_MAX && read_link(l);)
            i++;
    }
}

/* --- links that we dial --------------------------------------------------- */

/* A host that drops packets, and a resolver, may take minutes to fail: with a thread for each dial
 * no agent waits for it, least of all the loop that sends the heartbeats. */
typedef struct dial {
    trii_peers *peers;
    trii_rdzv_agent agent;
    int rank;
    trii_peer_frame hello;
    int64_t patience_ms; /* for its host to answer */
} dial;

void trii_peers_unref(trii_peers *p)
{
    if (atomic_fetch_sub(&p->n_users, 1) > 1)
        return;
    trii_loop_destroy(p->loop);
    trii_socket_close(p->events_fd);
    trii_free(p->round.agents);
    trii_free(p->states);
    trii_secret_wipe(&p->key, sizeof(p->key));
    trii_free(p);
}

/* CONNECTED: *fd_out is the caller's, and the hello was sent. */
static trii_peer_dial_result connect_to(const dial *d, int *fd_out)
{
    int64_t patience_ms = d->patience_ms < CONNECT_MIN_MS ? CONNECT_MIN_MS : d->patience_ms;
    int64_t deadline_ns =
        trii_deadline_ms(patience_ms < CONNECT_MAX_MS ? patience_ms : CONNECT_MAX_MS);
    int fd;
    tri_status status = trii_socket_connect(d->agent.host, d->agent.port, deadline_ns, false, &fd);

    if (status != TRI_OK)
        return status == TRI_ERR_PEER_LOST ? TRII_PEER_NO_AGENT : TRII_PEER_UNREACHABLE;
    deadline_ns = trii_deadline_ms(PROVE_MS);
    status = trii_handshake_connect(fd, &d->peers->key, TRII_PEER_PURPOSE, deadline_ns);
    if (status == TRI_OK && !atomic_load(&d->peers->closed))
        status = trii_socket_send_all(fd, &d->hello, sizeof(d->hello), deadline_ns);
    if (status == TRI_OK) {
        *fd_out = fd;
        return TRII_PEER_CONNECTED;
    }
    trii_socket_close(fd);
    return status == TRI_ERR_FORMAT ? TRII_PEER_FOREIGN : TRII_PEER_NO_ANSWER;
}

/* Of a round that is over, which the other agent may not know yet: it has had our hello. */
static void leave_round(int fd)
{
    trii_peer_frame goodbye = {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_GOODBYE};
    size_t sent;
    tri_status status =
        fd >= 0 ? trii_socket_send(fd, &(trii_span){&goodbye, sizeof(goodbye)}, 1, &sent) : TRI_END;

    (void)status; /* what it does not take has no effect */
    trii_socket_close(fd);
}

static void dial_main(void *arg)
{
    dial *d = arg;
    trii_peers *p = d->peers;
    int fd = -1;
    trii_peer_dial_result result = connect_to(d, &fd);

    trii_loop_lock(p->loop);
    if (atomic_load(&p->closed) || d->hello.value != p->round.number || d->rank >= p->n) {
        leave_round(fd);
    } else {
        trii_peer_state *state = &p->states[d->rank];

        state->dialing = false;
        state->dialed = result;
        snprintf(state->why, sizeof(state->why), "%s", fd < 0 ? tri_last_error() : "");
        if (fd >= 0)
            add_link(p, fd, d->rank);
        if (result == TRII_PEER_NO_AGENT)
            trii_peer_links_hear(p); /* it may have told us why it ended */
        judge_soon(p);
    }
    trii_loop_unlock(p->loop);
    trii_free(d);
    trii_peers_unref(p);
}

void trii_peer_dial(trii_peers *p, int rank, int64_t patience_ms)
{
    dial *d = trii_alloc(1, sizeof(*d), "peer agents");
    trii_thread thread;

    if (d == NULL)
        return;
    *d = (dial){p, p->round.agents[rank], rank, .patience_ms = patience_ms};
    d->hello = (trii_peer_frame){.magic = TRII_PEER_MAGIC,
                                 .kind = TRII_PEER_HELLO,
                                 .rank = p->round.group_rank,
                                 .value = p->round.number};
    memcpy(d->hello.token, d->agent.token, sizeof(d->hello.token));
    atomic_fetch_add(&p->n_users, 1);
    if (trii_thread_start(&thread, "peer-dial", dial_main, d) == TRI_OK) {
        p->states[rank].dialing = true;
        trii_thread_detach(&thread);
        return;
    }
    TRII_LOG(TRII_LOG_WARN, "launch", "cannot connect to host %s: %s", d->agent.name,
             tri_last_error());
    atomic_fetch_sub(&p->n_users, 1);
    trii_free(d);
}
