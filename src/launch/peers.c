/*
 * peers.c - see peers.h.
 */
#include "launch/peers.h"

#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/log.h"
#include "launch/peer_calls.h"
#include "launch/peer_hello.h"
#include "launch/peer_words.h"
#include "os/clock.h"
#include "os/secret.h"
#include "os/socket.h"
#include "os/unix.h"

#define HELLO_MS 5000 /* for a stranger to say who it is */
#define MAX_LINKS 256
/* An agent that is there, and that we could not reach in so many rounds, is a matter of the
 * network, not of that agent. The higher rank of two goes first; who serves the store goes last,
 * since that ends the job. */
#define UNREACHED_MAX 3
#define UNREACHED_MAX_SERVES 6

typedef struct link {
    trii_watch watch;
    trii_peers *peers;
    struct link *next;
    int64_t round;
    int rank; /* -1: it has not said who it is */
    bool dead, bye;
    trii_peer_hello hello; /* of a stranger */
    int64_t heard_ns;      /* of a stranger: when it came */
    trii_peer_words words; /* of one that is none any more */
} link;

/* That a host will be taken away: its last one. */
typedef struct notice {
    int number; /* 0: none */
    int64_t deadline_ns;
} notice;

typedef struct unreached {
    char token[TRII_PEER_TOKEN_BYTES];
    int64_t round; /* the last in which it was called in vain */
    int n;
} unreached;

struct trii_peers {
    trii_loop *loop;
    trii_watch listener;
    trii_timer beat;
    int port;
    char token[TRII_PEER_TOKEN_BYTES];
    trii_job_key key;
    trii_peers_events events;
    trii_peer_calls *calls;
    link *links;
    int n_links;
    int64_t beat_ns;       /* of the last beat */
    trii_rdzv_round round; /* number -1: none yet */
    int n;                 /* agents that are watched: its group_size, or 0 */
    bool *told;            /* that it is lost */
    notice *notices;       /* by rank */
    notice own;
    unreached unreached[TRII_PEER_NEIGHBOURS];
};

static void say(const link *l, const char *words)
{
    size_t sent;
    tri_status status = trii_socket_send(l->watch.fd, &(trii_span){words, strlen(words)}, 1, &sent);

    (void)status; /* one that takes nothing is about to be taken for dead */
}

/* reset: at once, whatever has not been taken yet, so that who still hears us learns of it. */
static void drop(link *l, bool reset)
{
    link **at = &l->peers->links;

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

/* As everywhere: its rank is another one in the next round. */
static const char *name_of(const trii_rdzv_agent *agent, char text_out[TRII_RDZV_ADDR_BYTES + 40])
{
    snprintf(text_out, TRII_RDZV_ADDR_BYTES + 40, "host %s (pid %lld)", agent->name,
             (long long)agent->node.pid);
    return text_out;
}

static void tell_lost(trii_peers *p, int rank, const char *why)
{
    char text[TRII_RDZV_ADDR_BYTES + 104], name[TRII_RDZV_ADDR_BYTES + 40];

    if (rank < 0 || rank >= p->n || p->told[rank])
        return;
    p->told[rank] = true;
    snprintf(text, sizeof(text), "%s %s", name_of(&p->round.agents[rank], name), why);
    p->events.lost(p->events.arg, &p->round, rank, text);
}

/* The link is of no use any more. One of a round that we have not heard of yet is kept, to be told
 * then. */
static void fail(link *l, const char *why)
{
    trii_peers *p = l->peers;
    int rank = l->rank;

    if (!l->bye && rank >= 0 && l->round > p->round.number) {
        trii_loop_unwatch(&l->watch);
        l->dead = true;
        return;
    }
    if (l->bye || l->round != p->round.number)
        rank = -1;
    drop(l, true);
    tell_lost(p, rank, why);
}

/* One that is past is of no use to anybody. */
static void say_notice(const link *l, int rank)
{
    const notice *n = &l->peers->notices[rank];
    trii_peer_word word = {TRII_PEER_NOTICE, rank, n->number, -1};
    char text[TRII_PEER_NOTICE_BYTES];

    if (n->number == 0 || n->deadline_ns <= trii_now_ns())
        return;
    if (n->deadline_ns != TRII_NO_DEADLINE)
        word.left_ms = trii_deadline_left_ms(n->deadline_ns);
    trii_peer_words_notice(&word, text);
    say(l, text);
}

/* It has said who it is, and that it is in our round. */
static bool is_of_round(const link *l)
{
    return l->rank >= 0 && !l->dead && l->round == l->peers->round.number;
}

/* What we know of the hosts, to who is new to us. */
static void say_notices(const link *l)
{
    for (int i = 0; is_of_round(l) && i < l->peers->n; i++)
        say_notice(l, i);
}

/* To all agents that we have a connection with, but the one that told us. */
static void spread(trii_peers *p, const link *from, int rank)
{
    for (const link *l = p->links; l != NULL; l = l->next) {
        if (l != from && is_of_round(l))
            say_notice(l, rank);
    }
}

static void take_notice(link *l, const trii_peer_word *word)
{
    trii_peers *p = l->peers;
    int rank = word->rank;

    if (!is_of_round(l) || rank >= p->n || rank == p->round.group_rank ||
        p->notices[rank].number >= word->number)
        return;
    p->notices[rank] = (notice){word->number, trii_deadline_ms(word->left_ms)};
    spread(p, l, rank);
    p->events.noticed(p->events.arg, rank, &p->round.agents[rank], word->left_ms);
}

/* What it says once it is no stranger any more. */
static void take_words(link *l, const char *data, size_t bytes)
{
    trii_peer_word word;

    l->heard_ns = trii_now_ns();
    while (trii_peer_words_next(&l->words, &data, &bytes, &word)) {
        l->bye = l->bye || word.kind == TRII_PEER_BYE;
        if (word.kind == TRII_PEER_NOTICE)
            take_notice(l, &word);
    }
}

/* Bytes of a stranger. False: it is none of ours. */
static bool take_hello(link *l, const char *data, size_t bytes)
{
    unsigned char answer[TRII_ANSWER_BYTES];
    tri_status status = TRI_INPROGRESS;
    size_t at = 0;

    while (status == TRI_INPROGRESS && at < bytes) {
        size_t used = 0, answer_bytes = 0, sent = 0;

        status = trii_peer_hello_feed(&l->hello, &l->peers->key, l->peers->token, data + at,
                                      bytes - at, &used, answer, &answer_bytes);
        at += used;
        if (answer_bytes > 0 && /* the first that we send: there is room */
            (trii_socket_send(l->watch.fd, &(trii_span){answer, answer_bytes}, 1, &sent) !=
                 TRI_OK ||
             sent != answer_bytes))
            return false;
    }
    if (status == TRI_INPROGRESS)
        return true;
    if (status == TRI_OK && l->hello.round < l->peers->round.number)
        say(l, "q"); /* we live, in a round that it has not heard of yet */
    if (status != TRI_OK || l->hello.round < l->peers->round.number)
        return false;
    l->round = l->hello.round;
    l->rank = l->hello.rank;
    say_notices(l);
    take_words(l, data + at, bytes - at);
    return true;
}

static void link_ready(trii_watch *watch, unsigned events)
{
    link *l = TRII_CONTAINER(watch, link, watch);
    char words[256];
    size_t got;
    tri_status status = trii_socket_recv(watch->fd, words, sizeof(words), &got);

    (void)events;
    if (status == TRI_INPROGRESS)
        return;
    if (l->rank < 0) {
        if (status != TRI_OK || !take_hello(l, words, got))
            drop(l, false);
    } else if (status == TRI_OK) {
        take_words(l, words, got);
    } else {
        fail(l, "is gone: its agent ended");
    }
}

/* Strangers must not keep out those who belong here: the one that came first goes. */
static void make_room(trii_peers *p)
{
    link *oldest = NULL;

    for (link *l = p->links; l != NULL && p->n_links >= MAX_LINKS; l = l->next) {
        if (l->rank < 0)
            oldest = l; /* new ones are in front */
    }
    if (oldest != NULL)
        drop(oldest, false);
}

static link *add_link(trii_peers *p, int fd)
{
    link *l;

    make_room(p);
    l = p->n_links < MAX_LINKS ? trii_alloc(1, sizeof(*l), "peer agent") : NULL;
    if (l == NULL || trii_loop_watch(p->loop, &l->watch, fd, TRII_READABLE, link_ready) != TRI_OK) {
        trii_free(l);
        trii_socket_close(fd);
        return NULL;
    }
    trii_socket_prefer(fd);
    l->peers = p;
    l->rank = -1;
    l->heard_ns = trii_now_ns();
    l->next = p->links;
    p->links = l;
    p->n_links++;
    return l;
}

static void accept_ready(trii_watch *watch, unsigned events)
{
    trii_peers *p = TRII_CONTAINER(watch, trii_peers, listener);
    int fd;

    (void)events;
    if (trii_socket_accept(watch->fd, &fd) == TRI_OK)
        (void)add_link(p, fd);
}

static void beat(trii_timer *timer)
{
    trii_peers *p = TRII_CONTAINER(timer, trii_peers, beat);
    int64_t now = trii_now_ns();
    /* We were held up ourselves: what the others said meanwhile has not been read yet. */
    bool late = now - p->beat_ns > 3 * TRII_PEER_BEAT_MS * TRII_NS_PER_MS;
    link *next;

    p->beat_ns = now;
    for (link *l = p->links; l != NULL; l = next) {
        int64_t silent_ms = (now - l->heard_ns) / TRII_NS_PER_MS;

        next = l->next;
        if (l->dead)
            continue;
        if (late)
            l->heard_ns = now;
        if (l->rank >= 0)
            say(l, "h");
        if (late)
            continue;
        if (l->rank < 0 && silent_ms > HELLO_MS) {
            drop(l, false);
        } else if (l->rank >= 0 && silent_ms > TRII_PEER_SILENCE_MS) {
            fail(l, "is silent: dead, stopped or cut off");
            next = p->links; /* the list may be another now */
        }
    }
    trii_loop_timer(p->loop, timer, now + TRII_PEER_BEAT_MS * TRII_NS_PER_MS, beat);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* In how many rounds it was called in vain since it answered last; the oldest entry makes room. */
static int count_unreached(trii_peers *p, const trii_peer_call *call)
{
    unreached *u = &p->unreached[0];

    for (int i = 0; i < TRII_PEER_NEIGHBOURS; i++) {
        if (strcmp(p->unreached[i].token, call->agent.token) == 0) {
            u = &p->unreached[i];
            break;
        }
        if (p->unreached[i].round < u->round)
            u = &p->unreached[i];
    }
    if (strcmp(u->token, call->agent.token) != 0)
        u->n = 0;
    snprintf(u->token, sizeof(u->token), "%s", call->agent.token);
    u->round = call->round;
    return ++u->n;
}

static void forget_unreached(trii_peers *p, const char *token)
{
    for (int i = 0; i < TRII_PEER_NEIGHBOURS; i++) {
        if (strcmp(p->unreached[i].token, token) == 0)
            memset(&p->unreached[i], 0, sizeof(p->unreached[i]));
    }
}

static void answered(void *arg, const trii_peer_call *call, int fd, bool refused, const char *why)
{
    trii_peers *p = arg;
    const trii_rdzv_agent *agent = &call->agent;
    int max = UNREACHED_MAX + (p->round.group_rank < call->rank);
    char text[TRII_ERR_BYTES], name[TRII_RDZV_ADDR_BYTES + 40];

    if (call->round != p->round.number || call->rank >= p->n) {
        trii_socket_close(fd); /* of a round that is over */
    } else if (fd >= 0) {
        link *l = add_link(p, fd);

        forget_unreached(p, agent->token);
        if (l != NULL) {
            l->rank = call->rank;
            l->round = call->round;
            say_notices(l);
        }
    } else if (refused) {
        snprintf(text, sizeof(text), "%s: %s", name_of(agent, name), why);
        p->events.refused(p->events.arg, text);
    } else if (count_unreached(p, call) >=
               (p->round.agents[p->round.group_rank].serves ? UNREACHED_MAX_SERVES : max)) {
        snprintf(
            text, sizeof(text),
            "%s takes part in the job, but this host cannot reach its agent: %s; is a firewall "
            "between, or --local-addr wrong there?",
            name_of(agent, name), why);
        p->events.refused(p->events.arg, text);
    } else {
        tell_lost(p, call->rank, "is gone: its agent does not answer");
    }
}

static void call_agent(trii_peers *p, int rank)
{
    const trii_peer_call call = {.agent = p->round.agents[rank],
                                 .round = p->round.number,
                                 .rank = rank,
                                 .caller_rank = p->round.group_rank};
    char text[TRII_ERR_BYTES], name[TRII_RDZV_ADDR_BYTES + 40];

    if (call.agent.port == 0)
        return; /* torchrun's */
    if (call.agent.keyed != p->key.set) {
        snprintf(text, sizeof(text), "%s has %s job key (TRI_JOB_KEY_FILE), and this one %s",
                 name_of(&call.agent, name), p->key.set ? "no" : "a",
                 p->key.set ? "has" : "has none");
        p->events.refused(p->events.arg, text);
        return;
    }
    if (trii_peer_calls_start(p->calls, &call) != TRI_OK)
        TRII_LOG(TRII_LOG_WARN, "launch", "%s is not watched: %s", name_of(&call.agent, name),
                 tri_last_error());
}

/* --- beginning and end ------------------------------------------------------------------------ */

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
        status = trii_peer_calls_create(p->loop, &p->key, answered, p, &p->calls);
    if (status == TRI_OK)
        status = trii_socket_listen(host, 0, &fd, &p->port);
    if (status == TRI_OK)
        status = trii_loop_watch(p->loop, &p->listener, fd, TRII_READABLE, accept_ready);
    if (status != TRI_OK)
        trii_socket_close(fd);
    return status;
}

tri_status trii_peers_create(trii_loop *loop, const char *host, const trii_peers_events *events,
                             trii_peers **peers_out)
{
    trii_peers *p = trii_alloc(1, sizeof(*p), "peer agents");
    tri_status status;

    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    p->loop = loop;
    p->events = *events;
    p->round.number = -1;
    status = prepare(p, host);
    if (status != TRI_OK) {
        trii_peer_calls_destroy(p->calls);
        trii_secret_wipe(&p->key, sizeof(p->key));
        trii_free(p);
        return status;
    }
    p->beat_ns = trii_now_ns();
    trii_loop_timer(loop, &p->beat, p->beat_ns + TRII_PEER_BEAT_MS * TRII_NS_PER_MS, beat);
    *peers_out = p;
    return TRI_OK;
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

/* What is known of the hosts of a new round, by its ranks; NULL: too little memory. */
static notice *carry_notices(const trii_peers *p, const trii_rdzv_round *round)
{
    notice *notices = trii_alloc((size_t)round->group_size, sizeof(*notices), "peer agents");

    for (int i = 0; notices != NULL && i < round->group_size; i++) {
        const char *token = round->agents[i].token; /* "": torchrun's */

        if (i == round->group_rank)
            notices[i] = p->own;
        for (int k = 0; i != round->group_rank && *token != '\0' && k < p->n; k++) {
            if (p->notices[k].number > 0 && strcmp(token, p->round.agents[k].token) == 0)
                notices[i] = p->notices[k];
        }
    }
    return notices;
}

void trii_peers_round(trii_peers *p, const trii_rdzv_round *round)
{
    notice *notices = carry_notices(p, round);
    link *next;
    int n = round->group_size;

    for (link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (l->rank < 0 || l->round >= round->number)
            continue;
        if (!l->dead)
            say(l, "q");
        drop(l, false);
    }
    trii_free(p->round.agents);
    trii_free(p->told);
    trii_free(p->notices);
    p->round = *round;
    p->n = 0;
    p->round.agents = trii_alloc((size_t)n, sizeof(*round->agents), "peer agents");
    p->told = trii_alloc((size_t)n, sizeof(*p->told), "peer agents");
    p->notices = notices;
    if (p->round.agents == NULL || p->told == NULL || p->notices == NULL)
        return; /* nobody is watched; the shared state still tells who is dead */
    memcpy(p->round.agents, round->agents, (size_t)n * sizeof(*round->agents));
    p->n = n;
    for (link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (l->dead && l->round == p->round.number) {
            int rank = l->rank;

            drop(l, false);
            tell_lost(p, rank, "is gone: its agent ended");
            next = p->links;
        }
    }
    for (link *l = p->links; l != NULL; l = l->next)
        say_notices(l);
    for (int i = 1; i <= TRII_PEER_NEIGHBOURS && i <= n / 2; i++)
        call_agent(p, (p->round.group_rank + i) % n);
}

void trii_peers_notice(trii_peers *p, int64_t left_ms)
{
    p->own = (notice){p->own.number + 1, trii_deadline_ms(left_ms)};
    if (p->n == 0)
        return; /* who is in the first round with us will hear of it */
    p->notices[p->round.group_rank] = p->own;
    spread(p, NULL, p->round.group_rank);
}

void trii_peers_destroy(trii_peers *p, bool in_order)
{
    int fd;

    if (p == NULL)
        return;
    while (p->links != NULL) {
        if (in_order && !p->links->dead && p->links->rank >= 0)
            say(p->links, "q");
        drop(p->links, false);
    }
    trii_loop_timer_stop(p->loop, &p->beat);
    fd = p->listener.fd;
    trii_loop_unwatch(&p->listener);
    trii_socket_close(fd);
    trii_peer_calls_destroy(p->calls);
    trii_free(p->round.agents);
    trii_free(p->told);
    trii_free(p->notices);
    trii_secret_wipe(&p->key, sizeof(p->key));
    trii_free(p);
}
