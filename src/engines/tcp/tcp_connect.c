/*
 * tcp_connect.c - forming the mesh. Keys in the group's part of the store:
 *
 *   net/R   "BUILD NET": the build that rank R runs, and which loopback interface it sees; if all
 *           see the same, nothing listens beyond
 *   addr/R  "TOKEN PORT HOST HOST ...": where rank R listens, and a secret
 *   failed  somebody gave up: do not wait for it
 *
 * Rank R connects to all ranks below it, then accepts those above. Each side proves with the
 * other's token that it read the same store: a port scanner, or a process that now has the
 * address of one that ended, is no peer. Of several addresses the first that answers so is
 * taken, and told so: one whose answer came too late was given up, and is not waited for. With a
 * job key both prove that first (store/handshake.h). Strangers are listened to side by side, each
 * for a moment, so that many of them keep nobody out.
 */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "engines/tcp/tcp.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/secret.h"
#include "os/socket.h"
#include "store/handshake.h"

#define MAX_HOSTS 8
#define TOKEN_TEXT 33
#define ADDRESS_TEXT (TOKEN_TEXT + 8 + MAX_HOSTS * TRII_ADDR_TEXT)
#define HELLO_MAGIC 0x54524933u /* "TRI3" */
#define TAKEN_MAGIC 0x54524932u /* "TRI2" */
#define STRANGER_MS 2000        /* for a connection to say who it is */
#define MAX_STRANGERS 1000      /* at once; others wait until one of them has spoken or gone */
#define CANDIDATE_MS 3000       /* for an address to say who is there, the first time */
#define CANDIDATE_MAX_MS 12000  /* twice as long each time, on a slow wire */
#define REACH_MS 200            /* for one of several to be reached; then twice as long */
#define LOOK_MS 200             /* how often a waiting rank looks whether another gave up */

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

/* --- connecting ------------------------------------------------------------------------------- */

static tri_status greet(int fd, tcp_group *g, const trii_job_key *key, int peer,
                        const char *peer_token, const char *own_token, int64_t deadline_ns)
{
    hello out = {.magic = HELLO_MAGIC, .rank = g->rank, .size = g->size, .process = g->process}, in;
    const uint32_t taken = TAKEN_MAGIC;
    tri_status status = trii_handshake_connect(fd, key, "tcp", deadline_ns);

    snprintf(out.token, sizeof(out.token), "%s", peer_token);
    if (status == TRI_OK)
        status = trii_socket_send_all(fd, &out, sizeof(out), deadline_ns);
    if (status == TRI_OK)
        status = trii_socket_recv_all(fd, &in, sizeof(in), deadline_ns);
    if (status == TRI_END)
        return TRII_FAIL(TRI_ERR_PEER_LOST, "it closed the connection instead of answering%s",
                         key->set ? " (has it another job key?)" : "");
    if (status != TRI_OK)
        return status;
    in.token[TOKEN_TEXT - 1] = '\0';
    if (in.magic != HELLO_MAGIC || in.rank != peer || in.size != g->size ||
        strcmp(in.token, own_token) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "somebody else answers there");
    g->conns[peer].process = in.process;
    return trii_socket_send_all(fd, &taken, sizeof(taken), deadline_ns);
}

/* On a wire that loses packets what we said may have come after the peer's patience, or its answer
 * after ours. Closed at once means something else: another key, or another program. */
static bool was_too_slow(tri_status status, bool reached, int64_t start_ns)
{
    return status == TRI_ERR_TIMEOUT ||
           (status == TRI_ERR_PEER_LOST && reached &&
            trii_now_ns() - start_ns >= STRANGER_MS / 2 * TRII_NS_PER_MS);
}

/* Whether somebody has given up. */
static tri_status look(const trii_group_args *args)
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

/* Tries the peer's addresses in turn until one answers as it must. Some of them may be swallowed by
 * a network. *hint_inout: which one to begin with; hosts often have the same interfaces. */
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
        return TRII_FAIL(TRI_ERR_FORMAT, "rank %d published no address: %s", peer, address);
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
            status = greet(fd, g, key, peer, token, own_token, until);
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
        status = look(args);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "connecting to rank %d at %s", peer, hosts[i]);
        status = TRI_INPROGRESS;
        if (i < last)
            continue;
        reach_ms = reach_ms < CANDIDATE_MS ? 2 * reach_ms : reach_ms;
        trii_sleep_until(sooner(args->deadline_ns, trii_now_ns() + pause)); /* all may refuse */
        pause = pause < LOOK_MS * TRII_NS_PER_MS ? 2 * pause : pause;
    }
    return TRI_OK;
}

/* --- accepting -------------------------------------------------------------------------------- */

/* A connection that has not said yet who it is. */
typedef struct stranger {
    int fd;
    trii_handshake shake;
    bool knows_key;
    hello in;
    size_t got;
    bool welcome; /* a rank that is missing, and was told so: it may have gone meanwhile */
    uint32_t taken;
    size_t taken_got;
    int64_t deadline_ns;
} stranger;

typedef struct door {
    tcp_group *g;
    const trii_job_key *key;
    const char *own_token;
    char (*tokens)[TOKEN_TEXT];
    int64_t deadline_ns;               /* of the group's making */
    stranger strangers[MAX_STRANGERS]; /* oldest first */
    int64_t closed_until_ns;           /* nobody is let in until then: no descriptor was left */
    int n;
} door;

/* Answers if it is one of the ranks above us that is still missing. */
static tri_status welcome(const door *d, stranger *s)
{
    tcp_group *g = d->g;
    hello out = {.magic = HELLO_MAGIC, .rank = g->rank, .size = g->size, .process = g->process};

    s->in.token[TOKEN_TEXT - 1] = '\0';
    if (s->in.magic != HELLO_MAGIC || s->in.size != g->size || s->in.rank <= g->rank ||
        s->in.rank >= g->size || g->conns[s->in.rank].fd >= 0 ||
        strcmp(s->in.token, d->own_token) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "no rank that is missing");
    memcpy(out.token, d->tokens[s->in.rank], TOKEN_TEXT);
    s->welcome = true;
    /* It is a rank: it may be slow to take this as it may be slow to come. If it gave this
     * connection up, it closes it. */
    s->deadline_ns = d->deadline_ns;
    return trii_socket_send_all(s->fd, &out, sizeof(out), trii_deadline_ms(STRANGER_MS));
}

/* The rank has taken our answer: the connection is the one. */
static tri_status take_in(const door *d, const stranger *s)
{
    tcp_conn *c = &d->g->conns[s->in.rank];

    if (s->taken != TAKEN_MAGIC || c->fd >= 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "no rank that is missing");
    c->process = s->in.process;
    take_conn(c, s->fd);
    return TRI_OK;
}

static tri_status hear_key(const door *d, stranger *s)
{
    unsigned char data[TRII_HELLO_BYTES], answer[TRII_ANSWER_BYTES];
    size_t want = (s->shake.answered ? TRII_PROOF_BYTES : TRII_HELLO_BYTES) - s->shake.got;
    size_t got = 0, used = 0, answer_bytes = 0;
    tri_status status = trii_socket_recv(s->fd, data, want, &got), sent = TRI_OK;

    if (status != TRI_OK)
        return status;
    status = trii_handshake_feed(&s->shake, d->key, "tcp", data, got, &used, answer, &answer_bytes);
    if (answer_bytes > 0)
        sent = trii_socket_send_all(s->fd, answer, answer_bytes, s->deadline_ns);
    s->knows_key = status == TRI_OK;
    if (status == TRI_INPROGRESS && sent == TRI_OK)
        return hear_key(d, s); /* at most as often as it has parts */
    return sent == TRI_OK ? status : sent;
}

/* More of a part that it has to say, never a byte too much. */
static tri_status hear_more(int fd, void *part, size_t bytes, size_t *got)
{
    tri_status status = TRI_OK;

    while (status == TRI_OK && *got < bytes) {
        size_t more = 0;

        status = trii_socket_recv(fd, (char *)part + *got, bytes - *got, &more);
        *got += more;
    }
    return status;
}

/* What has come of it; behind it begins what the peer sends as a rank. OK: it is a rank now;
 * INPROGRESS; anything else: close it. */
static tri_status hear(const door *d, stranger *s)
{
    tri_status status = s->knows_key ? TRI_OK : hear_key(d, s);

    if (status == TRI_OK)
        status = hear_more(s->fd, &s->in, sizeof(s->in), &s->got);
    if (status == TRI_OK && !s->welcome)
        status = welcome(d, s);
    if (status == TRI_OK)
        status = hear_more(s->fd, &s->taken, sizeof(s->taken), &s->taken_got);
    return status == TRI_OK ? take_in(d, s) : status;
}

static void forget_stranger(door *d, int i)
{
    d->n--;
    memmove(&d->strangers[i], &d->strangers[i + 1], (size_t)(d->n - i) * sizeof(d->strangers[0]));
}

/* Returns how many ranks came. */
static int hear_all(door *d, const unsigned *ready)
{
    int came = 0;

    for (int i = d->n - 1; i >= 0; i--) {
        stranger *s = &d->strangers[i];
        tri_status status = TRI_INPROGRESS;

        if (ready[i] != 0)
            status = hear(d, s);
        if (status == TRI_INPROGRESS && trii_now_ns() < s->deadline_ns)
            continue;
        if (status == TRI_OK)
            came++;
        else
            trii_socket_close(s->fd);
        forget_stranger(d, i);
    }
    return came;
}

static tri_status let_in(door *d, int listener)
{
    tri_status status = TRI_OK;

    while (status == TRI_OK && d->n < MAX_STRANGERS) {
        int fd = -1;

        status = trii_socket_accept(listener, &fd);
        if (status < 0 && d->n > 0) { /* out of descriptors: whoever has kept one longest in vain */
            trii_socket_close(d->strangers[0].fd);
            forget_stranger(d, 0);
            status = TRI_OK;
            continue;
        }
        if (status < 0) { /* nobody to send away: others of this process may give some back */
            TRII_LOG(TRII_LOG_WARN, "tcp", "%s", tri_last_error());
            d->closed_until_ns = trii_deadline_ms(LOOK_MS);
            return TRI_OK;
        }
        if (status != TRI_OK)
            break;
        d->strangers[d->n++] = (stranger){
            .fd = fd, .knows_key = !d->key->set, .deadline_ns = trii_deadline_ms(STRANGER_MS)};
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

/* Waits for strangers to speak or to come, a moment at most; *came_out ranks have come. */
static tri_status open_door(door *d, int listener, int64_t deadline_ns, int *came_out)
{
    int fds[MAX_STRANGERS + 1];
    unsigned events[MAX_STRANGERS + 1], ready[MAX_STRANGERS + 1];
    int64_t until = sooner(deadline_ns, trii_deadline_ms(LOOK_MS));

    for (int i = 0; i <= d->n; i++) {
        fds[i] = i < d->n ? d->strangers[i].fd : listener;
        events[i] = i < d->n || (d->n < MAX_STRANGERS && trii_now_ns() >= d->closed_until_ns)
                        ? TRII_READABLE
                        : 0u;
        ready[i] = 0;
        if (i < d->n)
            until = sooner(until, d->strangers[i].deadline_ns);
    }
    (void)trii_socket_poll(fds, events, ready, d->n + 1, until);
    events[0] = ready[d->n]; /* of the listener: hear_all may shorten the list */
    *came_out = hear_all(d, ready);
    return (events[0] & TRII_READABLE) != 0 ? let_in(d, listener) : TRI_OK;
}

static tri_status check_failed(const tcp_group *g, const trii_group_args *args)
{
    return trii_now_ns() >= args->deadline_ns ? missing_rank(g) : look(args);
}

static tri_status accept_rest(tcp_group *g, const trii_group_args *args, const trii_job_key *key,
                              int listener, const char *own_token, char (*tokens)[TOKEN_TEXT])
{
    int missing = g->size - 1 - g->rank;
    int64_t look = trii_deadline_ms(LOOK_MS);
    tri_status status = TRI_OK;
    door *d;

    if (missing == 0)
        return TRI_OK;
    d = trii_alloc(1, sizeof(*d), "tcp strangers");
    if (d == NULL)
        return TRI_ERR_NO_MEMORY;
    d->g = g;
    d->key = key;
    d->own_token = own_token;
    d->tokens = tokens;
    d->deadline_ns = args->deadline_ns;
    while (missing > 0 && status == TRI_OK) {
        int came = 0;

        status = open_door(d, listener, args->deadline_ns, &came);
        missing -= came;
        if (status == TRI_OK && missing > 0 && trii_now_ns() >= look) {
            status = check_failed(g, args);
            look = trii_deadline_ms(LOOK_MS);
        }
    }
    for (int i = 0; i < d->n; i++)
        trii_socket_close(d->strangers[i].fd);
    trii_free(d);
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

        /* so that nobody waits for us; if the store is gone too, they time out */
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

static void own_build(char text_out[TRII_BUILD_TEXT])
{
    static const size_t sizes[] = {sizeof(tcp_frame), sizeof(hello)};

    trii_build_text(sizes, TRII_COUNT_OF(sizes), text_out);
}

/* Compares the builds, and cuts them off. */
static tri_status check_builds(const trii_group_args *args, const char *build, char **nets)
{
    for (int r = 0; r < args->size; r++) {
        size_t length = strcspn(nets[r], " ");
        bool more = nets[r][length] != '\0';
        tri_status status;

        nets[r][length] = '\0';
        status = trii_build_check(args, r, nets[r], build);
        if (status != TRI_OK)
            return status;
        memmove(nets[r], nets[r] + length + more, strlen(nets[r] + length + more) + 1);
    }
    return TRI_OK;
}

tri_status tcp_connect_all(tcp_group *g, const trii_group_args *args, tri_status status,
                           bool *agreed_out)
{
    char build[TRII_BUILD_TEXT], net[96], told[sizeof(build) + sizeof(net)], token[TOKEN_TEXT],
        address[ADDRESS_TEXT];
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
    own_build(build);
    snprintf(told, sizeof(told), "%s %s", build, net);
    status = trii_group_gather(args, "net", status, told, nets);
    if (status == TRI_OK && nets != NULL)
        status = check_builds(args, build, nets);
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
