/*
 * tcp_connect.c - forms the mesh of connections. Keys in the group's part of the store:
 *
 *   engine/R  "ID|NET": what trii_group_begin compares, and which loopback interface rank R sees;
 *             if all see the same, they listen on that interface only
 *   addr/R    "TOKEN PORT HOST HOST ...": where rank R listens, and a secret
 *   failed    some rank could not connect: do not wait for it
 *
 * Rank R connects to all ranks below it, then accepts those above. Each side proves with the
 * other's token that it read the same store: a port scanner, or a process that now has the address
 * of one that ended, is not a peer. Of several addresses the first one that answers correctly is
 * used, and that is confirmed: an answer that came too late belongs to a connection that was closed
 * again, and the peer must not wait on it. With a job key both sides prove that first
 * (store/handshake.h).
 *
 * A peer that connects is unidentified until its hello has come. Such connections are read side by
 * side, each for a limited time, so that no number of them keeps a rank out.
 */
/* build: leaf */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "comm/engines/tcp/tcp.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/secret.h"
#include "os/socket.h"
#include "store/handshake.h"

#define MAX_HOSTS 8
#define TOKEN_TEXT 33
#define ADDRESS_TEXT (TOKEN_TEXT + 8 + MAX_HOSTS * TRII_ADDR_TEXT)
#define HELLO_MAGIC 0x54524933u   /* "TRI3" */
#define CONFIRM_MAGIC 0x54524932u /* "TRI2" */
#define HELLO_MS 2000             /* for a connection to identify itself */
#define MAX_PENDING 1000       /* unidentified connections; others stay in the listener's queue */
#define CANDIDATE_MS 3000      /* for the process at an address to answer, the first time */
#define CANDIDATE_MAX_MS 12000 /* twice as long each time, on a slow network */
#define REACH_MS 200           /* for one of several addresses to be reached; then twice as long */
#define CHECK_MS 200           /* how often a waiting rank checks whether another gave up */

typedef struct hello {
    uint32_t magic;
    int32_t rank;
    int32_t size;
    char token[TOKEN_TEXT]; /* of the receiver */
    trii_proc_id process;
} hello;

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Where to listen: NULL = on all interfaces. */
static const char *listen_host(const trii_group_args *args, char **nets)
{
    if (args->bind_host != NULL)
        return strcmp(args->bind_host, "0.0.0.0") == 0 || strcmp(args->bind_host, "::") == 0
                   ? NULL
                   : args->bind_host;
    for (int r = 0; r < args->size; r++) {
        if (strcmp(nets[r], nets[0]) != 0)
            return NULL;
    }
    return "localhost";
}

static tri_status open_listener(const char *host, int *fd_out, char token[TOKEN_TEXT],
                                char address[ADDRESS_TEXT])
{
    char hosts[MAX_HOSTS][TRII_ADDR_TEXT];
    unsigned char random[TOKEN_TEXT / 2];
    int port = 0, n;
    size_t used;
    tri_status status = trii_socket_listen(host, 0, fd_out, &port);

    if (status != TRI_OK)
        return status;
    if (!trii_random_bytes(random, sizeof(random)))
        return TRII_FAIL(TRI_ERR_IO, "this system gives no random numbers");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    used = (size_t)snprintf(address, ADDRESS_TEXT, "%s %d", token, port);
    if (host != NULL) {
        snprintf(address + used, ADDRESS_TEXT - used, " %s",
                 strcmp(host, "localhost") == 0 ? "127.0.0.1" : host);
        return TRI_OK;
    }
    n = trii_socket_addresses(hosts, MAX_HOSTS);
    for (int i = 0; i < n && used < ADDRESS_TEXT; i++)
        used += (size_t)snprintf(address + used, ADDRESS_TEXT - used, " %s", hosts[i]);
    return TRI_OK;
}

/* The connection is the group's from now on. */
static void take_conn(tcp_conn *c, int fd)
{
    c->fd = fd;
    trii_unforked_hold(&c->unforked, fd);
}

/* --- connecting ----------------------------------------------------------- */

static tri_status exchange_hello(int fd, tcp_group *g, const trii_job_key *key, int peer,
                                 const char *peer_token, const char *own_token, int64_t deadline_ns)
{
    hello out = {.magic = HELLO_MAGIC, .rank = g->rank, .size = g->size, .process = g->process}, in;
    const uint32_t confirm = CONFIRM_MAGIC;
    tri_status status = trii_handshake_connect(fd, key, "tcp", deadline_ns);

    snprintf(out.token, sizeof(out.token), "%s", peer_token);
    if (status == TRI_OK)
        status = trii_socket_send_all(fd, &out, sizeof(out), deadline_ns);
    if (status == TRI_OK)
        status = trii_socket_recv_all(fd, &in, sizeof(in), deadline_ns);
    if (status == TRI_END)
        return TRII_FAIL(TRI_ERR_PEER_LOST, "it closed the connection instead of answering%s",
                         key->set ? " (does it have another job key?)" : "");
    if (status != TRI_OK)
        return status;
    in.token[TOKEN_TEXT - 1] = '\0';
    if (in.magic != HELLO_MAGIC || in.rank != peer || in.size != g->size ||
        strcmp(in.token, own_token) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "another program answers there");
    g->conns[peer].process = in.process;
    return trii_socket_send_all(fd, &confirm, sizeof(confirm), deadline_ns);
}

/* On a network that loses packets our hello may have come after the peer's deadline, or its answer
 * after ours. Closed at once means something else: another key, or another program. */
static bool was_too_slow(tri_status status, bool reached, int64_t start_ns)
{
    return status == TRI_ERR_TIMEOUT || (status == TRI_ERR_PEER_LOST && reached &&
                                         trii_now_ns() - start_ns >= HELLO_MS / 2 * TRII_NS_PER_MS);
}

/* Fails if another rank gave up. */
static tri_status check_abandoned(const trii_group_args *args)
{
    const char *key = "failed";
    bool failed = false;
    tri_status status;

    if (args->is_over != NULL && args->is_over(args->is_over_arg))
        return trii_group_is_over(args);
    status = tri_store_check(args->store, &key, 1, &failed);
    if (status == TRI_OK && failed)
        return TRII_FAIL(TRI_ERR_ABORTED, "another rank could not connect");
    return status;
}

/* Tries the peer's addresses in turn until one answers as it must. A network may silently drop what
 * is sent to some of them. *hint_inout: which one to begin with; hosts often have the same
 * interfaces. */
static tri_status connect_to(tcp_group *g, const trii_group_args *args, const trii_job_key *key,
                             int peer, const char *address, const char *own_token, bool same_net,
                             int *hint_inout)
{
    char text[ADDRESS_TEXT], *save = NULL, *token, *port, *host, *hosts[MAX_HOSTS + 1];
    tri_status status = TRII_FAIL(TRI_ERR_IO, "no address");
    char loopback[] = "127.0.0.1";
    int64_t number = 0, reach_ms = REACH_MS, candidate_ms = CANDIDATE_MS, pause = TRII_NS_PER_MS;
    int n = 0, last, i;

    snprintf(text, sizeof(text), "%s", address);
    token = strtok_r(text, " ", &save);
    port = strtok_r(NULL, " ", &save);
    while (n < MAX_HOSTS && (host = strtok_r(NULL, " ", &save)) != NULL)
        hosts[n++] = host;
    if (token == NULL || port == NULL || n == 0 ||
        trii_parse_i64(port, "port", 1, 65535, &number) != TRI_OK)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "rank %d published \"%s\", which is not TOKEN PORT HOST ...", peer,
                         address);
    if (same_net && n > 1)
        hosts[0] = loopback;
    last = n - 1;
    for (i = *hint_inout < n ? *hint_inout : 0; status != TRI_OK; i = i < last ? i + 1 : 0) {
        int64_t start = trii_now_ns();
        int64_t until = sooner(args->deadline_ns, trii_deadline_ms(candidate_ms));
        int64_t reach = last > 0 ? sooner(until, trii_deadline_ms(reach_ms)) : until;
        bool reached;
        int fd = -1;

        status = trii_socket_connect(hosts[i], (int)number, reach, false, &fd);
        reached = status == TRI_OK;
        if (reached)
            status = exchange_hello(fd, g, key, peer, token, own_token, until);
        if (status == TRI_OK) {
            take_conn(&g->conns[peer], fd);
            *hint_inout = i;
            return TRI_OK;
        }
        trii_socket_close(fd);
        if ((last == 0 && !was_too_slow(status, reached, start)) ||
            trii_now_ns() >= args->deadline_ns)
            return TRII_FAIL_CTX(status, "connecting to rank %d at %s", peer, hosts[i]);
        if (status == TRI_ERR_TIMEOUT && reached && candidate_ms < CANDIDATE_MAX_MS)
            candidate_ms *= 2;
        status = check_abandoned(args);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "connecting to rank %d at %s", peer, hosts[i]);
        status = TRI_INPROGRESS;
        if (i < last)
            continue;
        reach_ms = reach_ms < CANDIDATE_MS ? 2 * reach_ms : reach_ms;
        trii_sleep_until(sooner(args->deadline_ns, trii_now_ns() + pause)); /* all may refuse */
        pause = pause < CHECK_MS * TRII_NS_PER_MS ? 2 * pause : pause;
    }
    return TRI_OK;
}

/* --- accepting ------------------------------------------------------------ */

/* An unidentified connection. */
typedef struct pending_conn {
    int fd;
    trii_handshake shake;
    bool key_proved;
    hello in;
    size_t got;
    bool answered; /* it is a missing rank, and our hello was sent: it may have left meanwhile */
    uint32_t confirm;
    size_t confirm_got;
    int64_t deadline_ns;
} pending_conn;

typedef struct acceptor {
    tcp_group *g;
    const trii_job_key *key;
    const char *own_token;
    char (*tokens)[TOKEN_TEXT];
    int64_t deadline_ns;               /* of the group's making */
    pending_conn pending[MAX_PENDING]; /* oldest first */
    int64_t paused_until_ns;           /* accepts none until then: no descriptor was left */
    int n;
} acceptor;

/* Sends our hello if it is one of the ranks above us that are still missing. */
static tri_status answer_hello(const acceptor *a, pending_conn *p)
{
    tcp_group *g = a->g;
    hello out = {.magic = HELLO_MAGIC, .rank = g->rank, .size = g->size, .process = g->process};

    p->in.token[TOKEN_TEXT - 1] = '\0';
    if (p->in.magic != HELLO_MAGIC || p->in.size != g->size || p->in.rank <= g->rank ||
        p->in.rank >= g->size || g->conns[p->in.rank].fd >= 0 ||
        strcmp(p->in.token, a->own_token) != 0)
        return TRI_ERR_FORMAT; /* not a rank that is still missing */
    memcpy(out.token, a->tokens[p->in.rank], TOKEN_TEXT);
    p->answered = true;
    /* It is a rank: it may be as slow to confirm as it was to connect. If it gave up on this
     * connection, it closes it. */
    p->deadline_ns = a->deadline_ns;
    return trii_socket_send_all(p->fd, &out, sizeof(out), trii_deadline_ms(HELLO_MS));
}

/* The rank has confirmed: this is the connection. */
static tri_status take_rank(const acceptor *a, const pending_conn *p)
{
    tcp_conn *c = &a->g->conns[p->in.rank];

    if (p->confirm != CONFIRM_MAGIC || c->fd >= 0)
        return TRI_ERR_FORMAT; /* not a rank that is still missing */
    c->process = p->in.process;
    take_conn(c, p->fd);
    return TRI_OK;
}

static tri_status receive_key_proof(const acceptor *a, pending_conn *p)
{
    unsigned char data[TRII_HELLO_BYTES], answer[TRII_ANSWER_BYTES];
    size_t want = (p->shake.answered ? TRII_PROOF_BYTES : TRII_HELLO_BYTES) - p->shake.got;
    size_t got = 0, used = 0, answer_bytes = 0;
    tri_status status = trii_socket_recv(p->fd, data, want, &got), sent = TRI_OK;

    if (status != TRI_OK)
        return status;
    status = trii_handshake_feed(&p->shake, a->key, "tcp", data, got, &used, answer, &answer_bytes);
    if (answer_bytes > 0)
        sent = trii_socket_send_all(p->fd, answer, answer_bytes, p->deadline_ns);
    p->key_proved = status == TRI_OK;
    if (status == TRI_INPROGRESS && sent == TRI_OK)
        return receive_key_proof(a, p); /* at most as often as it has parts */
    return sent == TRI_OK ? status : sent;
}

/* More of a part of its hello, never a byte too much. */
static tri_status receive_part(int fd, void *part, size_t bytes, size_t *got)
{
    tri_status status = TRI_OK;

    while (status == TRI_OK && *got < bytes) {
        size_t more = 0;

        status = trii_socket_recv(fd, (char *)part + *got, bytes - *got, &more);
        *got += more;
    }
    return status;
}

/* Reads what has come; after the hello begins what the peer sends as a rank. OK: it is a rank now;
 * INPROGRESS; anything else: close it. */
static tri_status receive_hello(const acceptor *a, pending_conn *p)
{
    tri_status status = p->key_proved ? TRI_OK : receive_key_proof(a, p);

    if (status == TRI_OK)
        status = receive_part(p->fd, &p->in, sizeof(p->in), &p->got);
    if (status == TRI_OK && !p->answered)
        status = answer_hello(a, p);
    if (status == TRI_OK)
        status = receive_part(p->fd, &p->confirm, sizeof(p->confirm), &p->confirm_got);
    return status == TRI_OK ? take_rank(a, p) : status;
}

static void remove_pending(acceptor *a, int i)
{
    a->n--;
    memmove(&a->pending[i], &a->pending[i + 1], (size_t)(a->n - i) * sizeof(a->pending[0]));
}

/* Returns how many ranks came. */
static int receive_all(acceptor *a, const unsigned *ready)
{
    int came = 0;

    for (int i = a->n - 1; i >= 0; i--) {
        pending_conn *p = &a->pending[i];
        tri_status status = TRI_INPROGRESS;

        if (ready[i] != 0)
            status = receive_hello(a, p);
        if (status == TRI_INPROGRESS && trii_now_ns() < p->deadline_ns)
            continue;
        if (status == TRI_OK)
            came++;
        else
            trii_socket_close(p->fd);
        remove_pending(a, i);
    }
    return came;
}

static tri_status accept_pending(acceptor *a, int listener)
{
    tri_status status = TRI_OK;

    while (status == TRI_OK && a->n < MAX_PENDING) {
        int fd = -1;

        status = trii_socket_accept(listener, &fd);
        if (status < 0 && a->n > 0) { /* out of descriptors: close the oldest */
            trii_socket_close(a->pending[0].fd);
            remove_pending(a, 0);
            status = TRI_OK;
            continue;
        }
        if (status < 0) { /* none to close: others of this process may close some */
            TRII_LOG(TRII_LOG_WARN, "tcp", "%s", tri_last_error());
            a->paused_until_ns = trii_deadline_ms(CHECK_MS);
            return TRI_OK;
        }
        if (status != TRI_OK)
            break;
        a->pending[a->n++] = (pending_conn){
            .fd = fd, .key_proved = !a->key->set, .deadline_ns = trii_deadline_ms(HELLO_MS)};
    }
    return status == TRI_INPROGRESS ? TRI_OK : status;
}

static tri_status missing_rank(const tcp_group *g)
{
    int r = g->rank + 1;

    while (r < g->size && g->conns[r].fd >= 0)
        r++;
    return TRII_FAIL(TRI_ERR_TIMEOUT, "rank %d waited for rank %d to connect", g->rank, r);
}

/* Waits for hellos and connections, CHECK_MS at most; *came_out ranks have come. */
static tri_status poll_pending(acceptor *a, int listener, int64_t deadline_ns, int *came_out)
{
    int fds[MAX_PENDING + 1];
    unsigned events[MAX_PENDING + 1], ready[MAX_PENDING + 1];
    int64_t until = sooner(deadline_ns, trii_deadline_ms(CHECK_MS));

    for (int i = 0; i <= a->n; i++) {
        fds[i] = i < a->n ? a->pending[i].fd : listener;
        events[i] = i < a->n || (a->n < MAX_PENDING && trii_now_ns() >= a->paused_until_ns)
                        ? TRII_READABLE
                        : 0u;
        ready[i] = 0;
        if (i < a->n)
            until = sooner(until, a->pending[i].deadline_ns);
    }
    (void)trii_socket_poll(fds, events, ready, a->n + 1, until);
    events[0] = ready[a->n]; /* of the listener: receive_all may shorten the list */
    *came_out = receive_all(a, ready);
    return (events[0] & TRII_READABLE) != 0 ? accept_pending(a, listener) : TRI_OK;
}

static tri_status check_still_forming(const tcp_group *g, const trii_group_args *args)
{
    return trii_now_ns() >= args->deadline_ns ? missing_rank(g) : check_abandoned(args);
}

static tri_status accept_rest(tcp_group *g, const trii_group_args *args, const trii_job_key *key,
                              int listener, const char *own_token, char (*tokens)[TOKEN_TEXT])
{
    int missing = g->size - 1 - g->rank;
    int64_t next_check = trii_deadline_ms(CHECK_MS);
    tri_status status = TRI_OK;
    acceptor *a;

    if (missing == 0)
        return TRI_OK;
    a = trii_alloc(1, sizeof(*a), "tcp accept");
    if (a == NULL)
        return TRI_ERR_NO_MEMORY;
    a->g = g;
    a->key = key;
    a->own_token = own_token;
    a->tokens = tokens;
    a->deadline_ns = args->deadline_ns;
    while (missing > 0 && status == TRI_OK) {
        int came = 0;

        status = poll_pending(a, listener, args->deadline_ns, &came);
        missing -= came;
        if (status == TRI_OK && missing > 0 && trii_now_ns() >= next_check) {
            status = check_still_forming(g, args);
            next_check = trii_deadline_ms(CHECK_MS);
        }
    }
    for (int i = 0; i < a->n; i++)
        trii_socket_close(a->pending[i].fd);
    trii_free(a);
    return status;
}

static tri_status connect_mesh(tcp_group *g, const trii_group_args *args, const trii_job_key *key,
                               int listener, const char *own_token, char **addresses, char **nets)
{
    char(*tokens)[TOKEN_TEXT] = trii_alloc((size_t)g->size, TOKEN_TEXT, "tcp tokens");
    tri_status status = tokens != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    int hint = 0;

    assert(addresses != NULL && nets != NULL);
    for (int r = 0; status == TRI_OK && r < g->size; r++)
        snprintf(tokens[r], TOKEN_TEXT, "%s", addresses[r]);
    for (int r = 0; status == TRI_OK && r < g->rank; r++)
        status = connect_to(g, args, key, r, addresses[r], own_token,
                            strcmp(nets[r], nets[g->rank]) == 0, &hint);
    if (status == TRI_OK)
        status = accept_rest(g, args, key, listener, own_token, tokens);
    trii_free(tokens);
    if (status != TRI_OK) {
        char line[TRII_ERR_BYTES];

        /* so that no rank waits for us; without the store they time out */
        snprintf(line, sizeof(line), "%s", tri_last_error());
        if (tri_store_set(args->store, "failed", "", 0) != TRI_OK)
            trii_err_set("%s", line);
        trii_err_set("%s", line);
    }
    return status;
}

static void free_values(char **values, int n)
{
    for (int r = 0; values != NULL && r < n; r++)
        tri_store_free(values[r]);
    trii_free(values);
}

tri_status tcp_connect_all(tcp_group *g, const trii_group_args *args, tri_status status,
                           bool *agreed_out)
{
    static const size_t sizes[] = {sizeof(tcp_frame), sizeof(hello)};
    const trii_engine_id id = {"engine tcp", sizes, TRII_COUNT_OF(sizes)};
    char net[96], token[TOKEN_TEXT], address[ADDRESS_TEXT];
    char **nets = NULL, **addresses = NULL;
    trii_job_key key = {0};
    int listener = -1;

    *agreed_out = true;
    if (args->size == 1)
        return status;
    if (status == TRI_OK) {
        nets = trii_alloc((size_t)args->size, sizeof(*nets), "tcp group");
        addresses = trii_alloc((size_t)args->size, sizeof(*addresses), "tcp group");
        status = nets != NULL && addresses != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    trii_socket_network_id(net);
    if (status == TRI_OK)
        status = trii_job_key_load(&key);
    status = trii_group_begin(args, &id, status, net, nets);
    if (status != TRI_OK || nets == NULL || addresses == NULL)
        goto out;
    status = open_listener(listen_host(args, nets), &listener, token, address);
    status = trii_group_gather(args, "addr", status, address, addresses);
    if (status != TRI_OK)
        goto out;

    *agreed_out = false;
    status = connect_mesh(g, args, &key, listener, token, addresses, nets);
out:
    trii_secret_wipe(&key, sizeof(key));
    trii_socket_close(listener);
    free_values(nets, args->size);
    free_values(addresses, args->size);
    return status;
}
