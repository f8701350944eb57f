/*
 * rpc_connect.c - this side of a connection, which the worker that has something to send makes.
 * Within a host over AF_UNIX, with a file of two rings that travels along; else over tcp, after the
 * job key.
 *
 *   connector                  acceptor
 *   [handshake of the job key, tcp only]
 *   rpc_hello (file)       ->            proves with the acceptor's token that it reads the store
 *                          <-  rpc_hello whose verdict is WELCOME, and frames may follow, or BUSY:
 *                                        the acceptor itself connects, or has a connection already;
 *                                        HERE to one that only asks whether its worker lives
 *
 * If two connect to each other at once, the connection of the lower incarnation stays. One that has
 * lost its connection connects again, whether or not the other has noticed: `ended` tells the two
 * cases apart.
 */
/* build: leaf */
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "os/host.h"
#include "os/process.h"
#include "os/socket.h"
#include "os/unix.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"

#define MEMBER_MS 1000 /* for one to answer while tri_rpc_create or tri_rpc_join waits */
#define OTHERS_MS 50   /* for those to connect whose part that is; then this side does */

void rpc_fill_hello(const tri_rpc *rpc, rpc_hello *hello)
{
    memset(hello, 0, sizeof(*hello));
    hello->magic = RPC_HELLO_MAGIC;
    hello->ended = atomic_load(&rpc->n_ended);
    hello->from = rpc->incarnation;
    hello->window_bytes = rpc->options.window_bytes;
    hello->window_calls = rpc->options.window_calls;
    hello->pid = trii_process_id();
    trii_host_name(hello->host, sizeof(hello->host));
    snprintf(hello->name, sizeof(hello->name), "%s", rpc->name);
}

void rpc_peer_meet(rpc_peer *peer, const rpc_hello *hello)
{
    peer->window_bytes = (size_t)hello->window_bytes;
    peer->window_calls = hello->window_calls;
    peer->ended = hello->ended;
    snprintf(peer->where, sizeof(peer->where), " (host %.60s, pid %d)", hello->host, hello->pid);
    rpc_heartbeat_begin(peer);
}

tri_status rpc_peer_watch(rpc_peer *peer)
{
    return trii_loop_watch(peer->rpc->loop, &peer->watch, peer->fd,
                           TRII_READABLE | (peer->is_unix ? TRII_HANGUP : 0u), rpc_peer_ready);
}

/* --- one attempt ---------------------------------------------------------- */

typedef struct attempt {
    int fd;
    bool is_unix, probes;
    unsigned ended; /* connections of this worker, when it began */
    trii_shmem shm;
    rpc_hello answer;
} attempt;

static tri_status greet(const tri_rpc *rpc, const rpc_address *a, attempt *at, int64_t deadline_ns)
{
    rpc_hello hello;
    tri_status status;

    rpc_fill_hello(rpc, &hello);
    hello.to = a->incarnation;
    hello.has_rings = at->is_unix;
    hello.probes = at->probes;
    hello.ended = at->ended;
    memcpy(hello.token, a->token, sizeof(hello.token));
    status = at->is_unix ? trii_unix_send(at->fd, &hello, sizeof(hello), at->shm.fd, deadline_ns)
                         : trii_socket_send_all(at->fd, &hello, sizeof(hello), deadline_ns);
    if (status == TRI_OK)
        status = at->is_unix
                     ? trii_unix_recv(at->fd, &at->answer, sizeof(hello), NULL, deadline_ns)
                     : trii_socket_recv_all(at->fd, &at->answer, sizeof(hello), deadline_ns);
    if (status == TRI_END)
        status = TRII_FAIL(TRI_ERR_PEER_LOST, "it closed the connection");
    if (status == TRI_OK &&
        (at->answer.magic != RPC_HELLO_MAGIC || at->answer.from != a->incarnation))
        status = TRII_FAIL(TRI_ERR_FORMAT, "another program answers there");
    return status;
}

static tri_status try_unix(const tri_rpc *rpc, const rpc_address *a, attempt *at,
                           int64_t deadline_ns)
{
    char boot[40];
    tri_status status;

    trii_boot_id(boot);
    if (rpc->options.tcp_only || strcmp(boot, a->boot) != 0)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "it is on another host");
    status = trii_unix_connect(a->unix_name, deadline_ns, &at->fd);
    if (status != TRI_OK)
        return status;
    at->is_unix = true;
    status = trii_shmem_create("trireme-rpc-rings", 2 * sizeof(rpc_ring), &at->shm);
    if (status == TRI_OK)
        status = greet(rpc, a, at, deadline_ns);
    trii_shmem_close_fd(&at->shm);
    return status;
}

static tri_status try_tcp(const tri_rpc *rpc, const rpc_address *a, attempt *at,
                          int64_t deadline_ns)
{
    tri_status status;

    at->is_unix = false;
    status = trii_socket_connect(a->hosts, a->port, deadline_ns, false, &at->fd);
    if (status == TRI_OK)
        status = trii_handshake_connect(at->fd, &rpc->job_key, "rpc", deadline_ns);
    if (status == TRI_OK)
        status = greet(rpc, a, at, deadline_ns);
    if (status == TRI_OK)
        trii_socket_keep_alive(at->fd);
    return status != TRI_OK ? TRII_FAIL_CTX(status, "%s port %d", a->hosts, a->port) : status;
}

/* Its port may be another's by now; one that is stopped does not answer. */
bool rpc_probe(tri_rpc *rpc, const rpc_address *a, int64_t deadline_ns)
{
    attempt at = {.fd = -1, .probes = true, .shm = {.fd = -1}};
    tri_status status = try_tcp(rpc, a, &at, deadline_ns);
    bool answers = at.fd >= 0;

    trii_socket_close(at.fd);
    return status == TRI_OK || (answers && status == TRI_ERR_TIMEOUT);
}

/* Nobody listens at its addresses. */
static tri_status name_refusal(tri_rpc *rpc, const rpc_peer *peer, const rpc_address *a,
                               int64_t deadline_ns)
{
    char boot[40], now[640];

    /* its record may be an old one */
    if (peer->record[0] != '\0' &&
        rpc_read_record(rpc, peer->name, false, deadline_ns, now) == TRI_ERR_NOT_FOUND)
        return TRI_ERR_NOT_FOUND;
    trii_boot_id(boot);
    if (strcmp(boot, a->boot) == 0)
        return TRII_FAIL(TRI_ERR_PEER_LOST, "its process has ended (host %s, pid %d)", a->host,
                         a->pid);
    return TRII_FAIL(TRI_ERR_PEER_LOST,
                     "%s port %d: connection refused: its process (host %s, pid %d) has ended, or "
                     "a firewall refuses",
                     a->hosts, a->port, a->host, a->pid);
}

static tri_status attempt_both(rpc_peer *peer, attempt *at, int64_t deadline_ns)
{
    tri_rpc *rpc = peer->rpc;
    char record[640];
    rpc_address a = {0};
    tri_status status;

    if (peer->record[0] != '\0') {
        snprintf(record, sizeof(record), "%s", peer->record);
        status = TRI_OK;
    } else {
        status = rpc_read_record(rpc, peer->name, false, deadline_ns, record);
    }
    if (status == TRI_OK)
        status = rpc_parse_record(record, &a);
    if (status == TRI_OK && a.incarnation != peer->incarnation)
        status = TRII_FAIL(TRI_ERR_PEER_LOST, "it has been restarted");
    if (status != TRI_OK)
        return status;
    status = try_unix(rpc, &a, at, deadline_ns);
    if (status == TRI_ERR_UNSUPPORTED && at->fd < 0)
        status = try_tcp(rpc, &a, at, deadline_ns);
    if (status == TRI_ERR_PEER_LOST && at->fd < 0)
        status = name_refusal(rpc, peer, &a, deadline_ns);
    return status;
}

static bool is_decided(void *arg)
{
    const rpc_peer *peer = arg;

    return peer->state == RPC_PEER_UP || peer->state == RPC_PEER_LOST;
}

/* Locked: the state after somebody else's attempt. */
static tri_status wait_decided(rpc_peer *peer, int64_t deadline_ns)
{
    while (!is_decided(peer)) {
        if (!rpc_sleep(peer->rpc, &peer->rpc->changed, deadline_ns) && !is_decided(peer))
            return TRII_FAIL(TRI_ERR_TIMEOUT, "%s: no connection in time", peer->name);
    }
    return peer->state == RPC_PEER_UP ? TRI_OK : TRII_FAIL(TRI_ERR_PEER_LOST, "%s", peer->why);
}

/* One that was stopped may take our hello later, and us for connected: the next hello tells it that
 * we are not. */
static void give_up(tri_rpc *rpc, attempt *at)
{
    if (at->fd >= 0 && at->answer.verdict != RPC_BUSY)
        (void)atomic_fetch_add(&rpc->n_ended, 1);
    trii_socket_close(at->fd);
    trii_shmem_release(&at->shm);
}

/* Locked. That a member of a closed set has gone before it was met is news, too; those who count
 * workers count it twice. */
static void lose_unmet(rpc_peer *peer, tri_status why)
{
    bool is_news = peer->is_member && peer->state != RPC_PEER_LOST;
    bool left = why == TRI_ERR_NOT_FOUND;
    char text[RPC_NAME + 16];

    rpc_peer_lose(peer, left, "it cannot be reached: %s", tri_last_error());
    if (!is_news || (why != TRI_ERR_PEER_LOST && !left))
        return;
    TRII_LOG(left ? TRII_LOG_DEBUG : TRII_LOG_INFO, "rpc", "%s", peer->why);
    snprintf(text, sizeof(text), "%s has come", peer->name);
    rpc_tell(peer->rpc, TRI_RPC_CAME, peer->name, text);
    rpc_tell(peer->rpc, left ? TRI_RPC_LEFT : TRI_RPC_LOST, peer->name, peer->why);
}

tri_status rpc_connect(rpc_peer *peer, int64_t deadline_ns)
{
    tri_rpc *rpc = peer->rpc;
    attempt at = {.fd = -1, .shm = {.fd = -1}};
    tri_status status;

    rpc_lock(rpc);
    if (peer->state != RPC_PEER_KNOWN) {
        status = wait_decided(peer, deadline_ns);
        rpc_unlock(rpc);
        return status;
    }
    peer->state = RPC_PEER_CONNECTING;
    at.ended = atomic_load(&rpc->n_ended);
    rpc_peer_use(peer);
    rpc_unlock(rpc);
    status = attempt_both(peer, &at, deadline_ns);
    rpc_lock(rpc);
    if (status == TRI_OK)
        status = rpc_check_on(rpc);
    if (status == TRI_OK && at.answer.verdict == RPC_WELCOME &&
        peer->state == RPC_PEER_CONNECTING) {
        rpc_peer_take(peer, at.fd, at.is_unix, &at.shm, true);
        rpc_unlock(rpc);
        status = rpc_peer_watch(peer);
        rpc_lock(rpc);
        if (status != TRI_OK)
            rpc_peer_give_back(peer);
        rpc_peer_meet(peer, &at.answer);
        if (status == TRI_OK && peer->state == RPC_PEER_CONNECTING)
            rpc_peer_up(peer);
        else if (status == TRI_OK) /* it was lost meanwhile: the loop closes it */
            status = TRII_FAIL(TRI_ERR_PEER_LOST, "%s", peer->why);
    } else {
        give_up(rpc, &at);
        if (status == TRI_OK)
            status = wait_decided(peer, deadline_ns); /* it connects to us, or was lost */
    }
    if (status != TRI_OK)
        lose_unmet(peer, status);
    rpc_peer_unuse(peer);
    rpc_unlock(rpc);
    return status;
}

/* --- all of a closed set -------------------------------------------------- */

void rpc_peer_is_early(rpc_peer *peer)
{
    if (peer->rpc->size > 0 && !peer->rpc->has_met_all && !peer->is_early) {
        peer->is_early = true;
        peer->rpc->n_met++;
        rpc_peer_use(peer);
    }
}

void rpc_end_meeting(tri_rpc *rpc)
{
    rpc_lock(rpc);
    rpc->has_met_all = true;
    for (rpc_peer *p = rpc->peers, *next; p != NULL; p = next) {
        next = p->next;
        if (p->is_early) {
            p->is_early = false;
            rpc_peer_unuse(p);
        }
    }
    rpc_unlock(rpc);
}

/* Used; NULL: it has come by itself, or is gone already; or there is no memory. */
static rpc_peer *add_member(tri_rpc *rpc, const char *name, const char *record)
{
    rpc_peer *peer = NULL;
    rpc_address a;

    if (rpc_parse_record(record, &a) != TRI_OK)
        return NULL;
    rpc_lock(rpc);
    for (peer = rpc->peers; peer != NULL && peer->incarnation != a.incarnation;)
        peer = peer->next;
    if (peer == NULL) {
        peer = rpc_peer_of(rpc, name, a.incarnation);
        if (peer != NULL) {
            peer->is_member = true;
            snprintf(peer->record, sizeof(peer->record), "%s", record);
            rpc_peer_use(peer);
            rpc->n_met++;
        }
    } else {
        peer = NULL;
    }
    rpc_unlock(rpc);
    return peer;
}

int64_t rpc_member_deadline(int64_t deadline_ns)
{
    int64_t soon_ns = trii_deadline_ms(MEMBER_MS);

    return soon_ns < deadline_ns ? soon_ns : deadline_ns;
}

void rpc_meet_later(tri_rpc *rpc, const char *name, const char *record)
{
    rpc_address a;
    rpc_peer *peer;

    if (rpc_parse_record(record, &a) != TRI_OK)
        return;
    rpc_lock(rpc);
    peer = rpc_peer_of(rpc, name, a.incarnation);
    if (peer != NULL && peer->state < RPC_PEER_UP)
        peer->is_member = true;
    if (peer != NULL && peer->state == RPC_PEER_KNOWN) {
        snprintf(peer->record, sizeof(peer->record), "%s", record);
        rpc_peer_use(peer);
        rpc_connect_later(peer);
        rpc_peer_unuse(peer);
    }
    rpc_unlock(rpc);
}

static void connect_member(tri_rpc *rpc, const char *name, const char *record, int64_t deadline_ns)
{
    rpc_peer *peer = add_member(rpc, name, record);

    if (peer == NULL)
        return;
    if (rpc_connect(peer, rpc_member_deadline(deadline_ns)) == TRI_ERR_TIMEOUT)
        rpc_meet_later(rpc, name, record);
    rpc_lock(rpc);
    rpc_peer_unuse(peer);
    rpc_unlock(rpc);
}

/* Of two members, one connects: if both did, one of the two connections would be for nothing. */
static bool is_ours(const tri_rpc *rpc, int rank)
{
    int distance = (rank - rpc->rank + rpc->size) % rpc->size;

    return 2 * distance < rpc->size || (2 * distance == rpc->size && rpc->rank < rank);
}

void rpc_connect_all(tri_rpc *rpc, char *const *records, int64_t deadline_ns)
{
    int64_t soon_ns;

    for (int k = 1; k < rpc->size; k++) { /* not all with the same at once */
        int r = (rpc->rank + k) % rpc->size;

        if (is_ours(rpc, r))
            connect_member(rpc, rpc->names[r], records[r], deadline_ns);
    }
    soon_ns = trii_deadline_ms(OTHERS_MS);
    soon_ns = soon_ns < deadline_ns ? soon_ns : deadline_ns;
    rpc_lock(rpc);
    while (rpc->n_met < rpc->size - 1 && rpc_sleep(rpc, &rpc->changed, soon_ns))
        ;
    rpc_unlock(rpc);
    for (int r = 0; r < rpc->size; r++) { /* those that are late, or have ended */
        if (r != rpc->rank && !is_ours(rpc, r))
            connect_member(rpc, rpc->names[r], records[r], deadline_ns);
    }
    trii_err_set("%s", "");
}

/* --- later ---------------------------------------------------------------- */

static void connect_main(void *arg)
{
    rpc_peer *peer = arg;
    tri_rpc *rpc = peer->rpc;

    if (rpc_connect(peer, trii_deadline_ms(rpc->options.timeout_ms)) != TRI_OK)
        trii_err_set("%s", ""); /* the peer keeps it */
    rpc_lock(rpc);
    peer->is_promised = false;
    rpc_peer_unuse(peer);
    rpc_unlock(rpc);
}

void rpc_connect_later(rpc_peer *peer)
{
    if (peer->is_promised)
        return;
    peer->is_promised = true;
    rpc_peer_use(peer);
    if (rpc_start_job(peer->rpc, connect_main, peer) == TRI_OK)
        return;
    peer->is_promised = false;
    rpc_peer_lose_by_error(peer);
    rpc_peer_unuse(peer);
}
