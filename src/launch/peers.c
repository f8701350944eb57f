/*
 * peers.c - see peers.h.
 */
#include "launch/peers.h"

#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "os/clock.h"
#include "os/socket.h"
#include "os/unix.h"

#define HELLO_BYTES 64
#define HELLO_MS 5000  /* for a stranger to say who it is */
#define CONNECT_MS 500 /* to an agent that was there a moment ago */
#define MAX_LINKS 256

typedef struct link {
    trii_watch watch;
    trii_peers *peers;
    struct link *next;
    int64_t round;
    int rank; /* -1: it has not said who it is */
    bool dead, bye;
    char hello[HELLO_BYTES];
    size_t got;
    int64_t heard_ns;
} link;

struct trii_peers {
    trii_loop *loop;
    trii_watch listener;
    trii_timer beat;
    int port;
    char token[17];
    void (*lost)(void *arg, int rank, const char *why);
    void *arg;
    link *links;
    int n_links;
    int64_t beat_ns; /* of the last beat */
    int64_t round;
    int rank, n;
    trii_rdzv_agent *agents; /* n */
    bool *told;              /* that it is lost */
};

static void say(const link *l, char word)
{
    size_t sent;
    tri_status status = trii_socket_send(l->watch.fd, &(trii_span){&word, 1}, 1, &sent);

    (void)status; /* one that takes nothing is about to be taken for dead */
}

static void drop(link *l)
{
    link **at = &l->peers->links;

    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    l->peers->n_links--;
    trii_loop_unwatch(&l->watch);
    trii_socket_close(l->watch.fd);
    trii_free(l);
}

static void tell_lost(trii_peers *p, int rank, const char *why)
{
    char text[TRII_RDZV_ADDR_BYTES + 64];

    if (rank < 0 || rank >= p->n || p->told[rank])
        return;
    p->told[rank] = true;
    snprintf(text, sizeof(text), "host %s (%d) %s", p->agents[rank].name, rank, why);
    p->lost(p->arg, rank, text);
}

/* The link is of no use any more. One of a round that we have not heard of yet is kept, to be told
 * then. */
static void fail(link *l, const char *why)
{
    trii_peers *p = l->peers;
    int rank = l->rank;

    if (!l->bye && rank >= 0 && l->round > p->round) {
        trii_loop_unwatch(&l->watch);
        l->dead = true;
        return;
    }
    if (l->bye || l->round != p->round)
        rank = -1;
    drop(l);
    tell_lost(p, rank, why);
}

static bool take_hello(link *l)
{
    long long round;
    char token[17];
    int rank;

    if (memchr(l->hello, 0, sizeof(l->hello)) != NULL)
        return false;
    l->hello[HELLO_BYTES - 1] = '\0';
    if (sscanf(l->hello, "TRA1 %16s %lld %d", token, &round, &rank) != 3 ||
        strcmp(token, l->peers->token) != 0 || rank < 0 || round < l->peers->round)
        return false;
    l->round = round;
    l->rank = rank;
    return true;
}

static void link_ready(trii_watch *watch, unsigned events)
{
    link *l = TRII_CONTAINER(watch, link, watch);
    char words[256];
    size_t got;
    tri_status status;

    (void)events;
    if (l->rank < 0) {
        status = trii_socket_recv(watch->fd, l->hello + l->got, HELLO_BYTES - l->got, &got);
        if (status == TRI_OK) {
            l->got += got;
            if (l->got < HELLO_BYTES || take_hello(l))
                return;
        }
        if (status != TRI_INPROGRESS)
            drop(l);
        return;
    }
    status = trii_socket_recv(watch->fd, words, sizeof(words), &got);
    if (status == TRI_INPROGRESS)
        return;
    if (status != TRI_OK) {
        fail(l, "is gone: its agent ended");
        return;
    }
    l->heard_ns = trii_now_ns();
    l->bye = l->bye || memchr(words, 'q', got) != NULL;
}

static link *add_link(trii_peers *p, int fd)
{
    link *l = p->n_links < MAX_LINKS ? trii_alloc(1, sizeof(*l), "peer agent") : NULL;

    if (l == NULL || trii_loop_watch(p->loop, &l->watch, fd, TRII_READABLE, link_ready) != TRI_OK) {
        trii_free(l);
        trii_socket_close(fd);
        return NULL;
    }
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
            say(l, 'h');
        if (late)
            continue;
        if (l->rank < 0 && silent_ms > HELLO_MS) {
            drop(l);
        } else if (l->rank >= 0 && silent_ms > TRII_PEER_SILENCE_MS) {
            fail(l, "is silent: dead, stopped or cut off");
            next = p->links; /* the list may be another now */
        }
    }
    trii_loop_timer(p->loop, timer, now + TRII_PEER_BEAT_MS * TRII_NS_PER_MS, beat);
}

tri_status trii_peers_create(trii_loop *loop, void (*lost)(void *arg, int rank, const char *why),
                             void *arg, trii_peers **peers_out)
{
    trii_peers *p = trii_alloc(1, sizeof(*p), "peer agents");
    unsigned char random[8] = {0};
    tri_status status;
    int fd = -1;

    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    p->loop = loop;
    p->lost = lost;
    p->arg = arg;
    p->round = -1;
    if (!trii_random_bytes(random, sizeof(random))) {
        trii_free(p);
        return TRII_FAIL(TRI_ERR_IO, "no random numbers for the token of agents");
    }
    for (int i = 0; i < 8; i++)
        snprintf(p->token + 2 * i, 3, "%02x", random[i]);
    status = trii_socket_listen(NULL, 0, &fd, &p->port);
    if (status == TRI_OK)
        status = trii_loop_watch(loop, &p->listener, fd, TRII_READABLE, accept_ready);
    if (status != TRI_OK) {
        trii_socket_close(fd);
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

static void connect_to(trii_peers *p, int rank)
{
    const trii_rdzv_agent *agent = &p->agents[rank];
    char hello[HELLO_BYTES + 1], text[HELLO_BYTES + 64];
    size_t sent = 0;
    link *l;
    int fd;

    if (agent->port == 0)
        return; /* torchrun's */
    if (trii_socket_connect(agent->host, agent->port, trii_deadline_ms(CONNECT_MS), false, &fd) !=
        TRI_OK) {
        tell_lost(p, rank, "is gone: its agent does not answer");
        return;
    }
    l = add_link(p, fd);
    if (l == NULL)
        return;
    snprintf(text, sizeof(text), "TRA1 %s %lld %d", agent->token, (long long)p->round, p->rank);
    snprintf(hello, sizeof(hello), "%-64s", text);
    l->rank = rank;
    l->round = p->round;
    if (trii_socket_send(fd, &(trii_span){hello, HELLO_BYTES}, 1, &sent) != TRI_OK ||
        sent != HELLO_BYTES)
        fail(l, "is gone: its agent does not answer");
}

void trii_peers_round(trii_peers *p, const trii_rdzv_round *round)
{
    link *next;
    int n = round->group_size;

    for (link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (l->rank < 0 || l->round >= round->number)
            continue;
        if (!l->dead)
            say(l, 'q');
        drop(l);
    }
    trii_free(p->agents);
    trii_free(p->told);
    p->round = round->number;
    p->rank = round->group_rank;
    p->n = 0;
    p->agents = trii_alloc((size_t)n, sizeof(*p->agents), "peer agents");
    p->told = trii_alloc((size_t)n, sizeof(*p->told), "peer agents");
    if (p->agents == NULL || p->told == NULL)
        return; /* nobody is watched; the shared state still tells who is dead */
    memcpy(p->agents, round->agents, (size_t)n * sizeof(*p->agents));
    p->n = n;
    for (link *l = p->links; l != NULL; l = next) {
        next = l->next;
        if (l->dead && l->round == p->round) {
            int rank = l->rank;

            drop(l);
            tell_lost(p, rank, "is gone: its agent ended");
            next = p->links;
        }
    }
    for (int i = 1; i <= TRII_PEER_NEIGHBOURS && i <= n / 2; i++)
        connect_to(p, (p->rank + i) % n);
}

void trii_peers_destroy(trii_peers *p)
{
    int fd;

    if (p == NULL)
        return;
    while (p->links != NULL) {
        if (!p->links->dead && p->links->rank >= 0)
            say(p->links, 'q');
        drop(p->links);
    }
    trii_loop_timer_stop(p->loop, &p->beat);
    fd = p->listener.fd;
    trii_loop_unwatch(&p->listener);
    trii_socket_close(fd);
    trii_free(p->agents);
    trii_free(p->told);
    trii_free(p);
}
