/*
 * connect.c - forming a group: each rank makes its block, publishes the name of a socket and a
 * nonce through the store, connects to the lower ranks and accepts the higher ones. Blocks are
 * passed as file descriptors. That two ranks share a host is never guessed: each reads the others'
 * nonces through the mappings. From then on the control thread watches the peers' sockets, which
 * close when they die, and their processes, as a forked child may keep a socket open.
 */
/* build: leaf */
#include "comm/engines/shm/connect.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "comm/engines/shm/arena.h"
#include "comm/engines/shm/fault.h"
#include "comm/engines/shm/paths.h"
#include "os/clock.h"
#include "os/process.h"
#include "os/random.h"
#include "os/socket.h"
#include "os/unix.h"

#define STRANGERS 64 /* connections at once that are not from a rank, while a group forms */

/* What a rank publishes: "<network> <socket> <nonce>". Abstract sockets belong to a network
 * namespace, and there may be several of those on one host. */
typedef struct shm_address {
    char net[96];
    char socket[TRII_UNIX_NAME];
    uint64_t nonce;
} shm_address;

typedef struct hello {
    uint64_t magic;
    int32_t rank;
    int32_t size;
} hello;

static size_t block_bytes(int size)
{
    return sizeof(shm_block) + (size_t)size * sizeof(shm_pair);
}

/* --- the end of a peer, on the control thread ----------------------------- */

static void watched_peer_ended(shm_peer *peer, const char *how)
{
    shm_group *g = peer->group;

    trii_loop_unwatch(&peer->socket_watch);
    trii_loop_unwatch(&peer->process_watch);
    if (!shm_peer_ended(g, peer->rank, how))
        shm_check_peers(g);
    atomic_thread_fence(memory_order_seq_cst);
    shm_wake_rank(g, g->rank); /* if the peer left, calls that wait for it fail now */
}

static void socket_ready(trii_watch *watch, unsigned events)
{
    shm_peer *peer = (shm_peer *)((char *)watch - offsetof(shm_peer, socket_watch));

    if (atomic_load(&peer->group->end_published) !=
        0) /* we closed it: that says nothing of the peer */
        trii_loop_unwatch(watch);
    else if (events & TRII_HANGUP)
        watched_peer_ended(peer, "is gone: its connection closed");
}

static void process_ready(trii_watch *watch, unsigned events)
{
    (void)events;
    watched_peer_ended((shm_peer *)((char *)watch - offsetof(shm_peer, process_watch)),
                       "has ended");
}

/* On the control thread, as soon as it runs. */
static void hold_death_mark(trii_timer *timer)
{
    shm_group *g = (shm_group *)((char *)timer - offsetof(shm_group, death_mark_timer));

    trii_robust_futex_hold(&g->block->head.death_mark);
}

static tri_status watch_peers(shm_group *g)
{
    tri_status status = TRI_OK;

    trii_loop_timer(g->loop, &g->death_mark_timer, 0, hold_death_mark);
    for (int r = 0; r < g->size && status == TRI_OK; r++) {
        shm_peer *peer = &g->peers[r];

        if (r == g->rank)
            continue;
        status =
            trii_loop_watch(g->loop, &peer->socket_watch, peer->socket, TRII_HANGUP, socket_ready);
        if (status == TRI_OK && peer->pidfd >= 0)
            status = trii_loop_watch(g->loop, &peer->process_watch, peer->pidfd, TRII_READABLE,
                                     process_ready);
    }
    return status;
}

/* --- forming the group ---------------------------------------------------- */

static tri_status make_block(shm_group *g, uint64_t *nonce_out)
{
    shm_peer *self = &g->peers[g->rank];
    shm_head *head;
    tri_status status;

    status = trii_shmem_create("trireme-group", block_bytes(g->size), &self->memory);
    if (status != TRI_OK)
        return status;
    g->block = self->block = self->memory.base;
    head = &g->block->head;
    head->magic = SHM_MAGIC;
    if (!trii_random_bytes(&head->nonce, sizeof(head->nonce)))
        return TRII_FAIL(TRI_ERR_IO, "this system gives no random numbers");
    head->rank = g->rank;
    head->size = g->size;
    head->pid = trii_process_id();
    trii_cpu_allowed(&head->cpus);
    atomic_store(&head->core, -1);
    head->quota = trii_cpu_quota_own();
    g->cma_probe = head->nonce;
    head->cma_probe_at = (uint64_t)(uintptr_t)&g->cma_probe;
    *nonce_out = head->nonce;
    /* What small calls touch; the rest is populated when it is first used. */
    return trii_shmem_populate(g->block, offsetof(shm_block, one_shot));
}

/* Publishes whether we can read the others' memory: the value of TRI_SHM_CMA if so. */
static tri_status publish_cma(shm_group *g)
{
    int64_t allowed = 1;
    tri_status status = trii_param_i64(TRII_PARAM_SHM_CMA, 1, &allowed);

    if (status == TRI_OK && allowed > 0 && shm_cma_works(g))
        atomic_store(&g->block->head.cma, (int)allowed);
    return status;
}

/* All have published it: what all can do is done. */
static void agree_on_cma(shm_group *g)
{
    g->cma = 2;
    for (int r = 0; r < g->size; r++) {
        int cma = atomic_load(&g->peers[r].block->head.cma);

        g->cma = cma < g->cma ? cma : g->cma;
    }
}

/* Gathers the addresses of all ranks. If one has none, all ranks fail with its reason. */
static tri_status gather_addresses(const trii_group_args *args, tri_status status,
                                   shm_address *addresses)
{
    static const size_t sizes[] = {sizeof(shm_block), sizeof(shm_pair), sizeof(hello)};
    const trii_engine_id id = {"engine shm", sizes, TRII_COUNT_OF(sizes)};
    char mine[sizeof(shm_address) + 32] = "";
    char **texts = NULL;

    if (status == TRI_OK) {
        const shm_address *own = &addresses[args->rank];

        snprintf(mine, sizeof(mine), "%s %s %" PRIu64, own->net, own->socket, own->nonce);
        texts = trii_alloc((size_t)args->size, sizeof(*texts), "shm addresses");
        status = texts != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    status = trii_group_begin(args, &id, status, mine, texts);
    for (int r = 0; r < args->size && status == TRI_OK && texts != NULL; r++) {
        shm_address *a = &addresses[r];

        if (sscanf(texts[r], "%95s %63s %" SCNu64, a->net, a->socket, &a->nonce) < 3)
            status = TRII_FAIL(TRI_ERR_FORMAT, "rank %d published no address: %s",
                               trii_rank_name(args->names, r), texts[r]);
        if (status != TRI_OK)
            break;
    }
    for (int r = 0; r < args->size && texts != NULL; r++)
        tri_store_free(texts[r]);
    trii_free(texts);
    return status;
}

static tri_status send_hello(shm_group *g, int fd, int64_t deadline_ns)
{
    hello mine = {.magic = SHM_MAGIC, .rank = g->rank, .size = g->size};

    return trii_unix_send(fd, &mine, sizeof(mine), g->peers[g->rank].memory.fd, deadline_ns);
}

static bool is_hello(const shm_group *g, const hello *h)
{
    return h->magic == SHM_MAGIC && h->size == g->size && h->rank >= 0 && h->rank < g->size &&
           h->rank != g->rank;
}

/* Receives a peer's block: maps it and compares its nonce with the one in the store. */
static tri_status receive_hello(shm_group *g, int fd, const shm_address *addresses,
                                int64_t deadline_ns, int *rank_out)
{
    hello theirs;
    int block_fd = -1;
    trii_shmem memory = {.fd = -1};
    const shm_head *head;
    tri_status status;

    status = trii_unix_recv(fd, &theirs, sizeof(theirs), &block_fd, deadline_ns);
    if (status != TRI_OK)
        return status;
    if (!is_hello(g, &theirs) || block_fd < 0 || g->peers[theirs.rank].block != NULL) {
        trii_unix_close(block_fd);
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "a stranger connected");
    }
    status = trii_shmem_attach(block_fd, block_bytes(g->size), &memory);
    trii_unix_close(block_fd);
    if (status != TRI_OK)
        return status;
    head = memory.base;
    if (head->magic != SHM_MAGIC || head->nonce != addresses[theirs.rank].nonce) {
        trii_shmem_release(&memory);
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "rank %d: its memory is not what it published",
                         shm_name(g, theirs.rank));
    }
    g->peers[theirs.rank].memory = memory;
    g->peers[theirs.rank].block = memory.base;
    *rank_out = theirs.rank;
    return TRI_OK;
}

/* Accepts on the control thread while this rank connects and waits for the others: the queue of a
 * listening socket may be shorter than the group. Guarded by the loop's lock. */
typedef struct acceptor {
    trii_watch watch;
    const shm_group *group;
    int *fds; /* accepted, oldest first: from ranks and from other processes of our user */
    int n_fds, room;
    bool failed; /* with the error below */
    char error[TRII_ERR_BYTES];
} acceptor;

/* The system lists our sockets, and any process of our user may connect: closes the oldest
 * connection that has not sent a rank's hello. False: all have. */
static bool close_stranger(acceptor *a)
{
    for (int i = 0; i < a->n_fds; i++) {
        hello theirs;

        if (trii_unix_peek(a->fds[i], &theirs, sizeof(theirs)) == (int)sizeof(theirs) &&
            is_hello(a->group, &theirs))
            continue;
        trii_unix_close(a->fds[i]);
        a->n_fds--;
        memmove(&a->fds[i], &a->fds[i + 1], (size_t)(a->n_fds - i) * sizeof(*a->fds));
        return true;
    }
    return false;
}

static void acceptor_ready(trii_watch *watch, unsigned events)
{
    acceptor *a = (acceptor *)watch;

    (void)events;
    while (!a->failed) {
        int fd = -1;
        tri_status status = trii_unix_accept(watch->fd, 0, &fd);

        if (status == TRI_ERR_TIMEOUT)
            return;
        a->failed = status != TRI_OK;
        if (a->failed)
            snprintf(a->error, sizeof(a->error), "%s", tri_last_error());
        else
            a->fds[a->n_fds++] = fd;
        if (a->n_fds == a->room && !close_stranger(a))
            break;
    }
    trii_loop_change(watch, 0); /* there is no room for another */
}

static tri_status acceptor_start(acceptor *a, shm_group *g, int listen_fd)
{
    tri_status status;

    int callers = g->size - 1 - g->rank;

    a->group = g;
    a->room = callers + STRANGERS;
    a->fds = trii_alloc((size_t)a->room, sizeof(*a->fds), "shm connections");
    if (a->fds == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_control_take(&g->loop);
    if (status == TRI_OK && callers > 0)
        status = trii_loop_watch(g->loop, &a->watch, listen_fd, TRII_READABLE, acceptor_ready);
    return status;
}

/* Ends accepting on the control thread: the caller accepts from now on. */
static tri_status acceptor_stop(acceptor *a)
{
    trii_loop_unwatch(&a->watch);
    return a->failed ? TRII_FAIL(TRI_ERR_IO, "%s", a->error) : TRI_OK;
}

static void acceptor_fini(acceptor *a)
{
    trii_loop_unwatch(&a->watch);
    for (int i = 0; i < a->n_fds; i++)
        trii_unix_close(a->fds[i]);
    trii_free(a->fds);
    a->fds = NULL;
    a->n_fds = 0;
}

/* The next connection, accepted already or not. */
static tri_status acceptor_next(acceptor *a, int listen_fd, int64_t deadline_ns, int *fd_out)
{
    if (a->n_fds == 0)
        return trii_unix_accept(listen_fd, deadline_ns, fd_out);
    *fd_out = a->fds[--a->n_fds];
    return TRI_OK;
}

/* Connects to the lower ranks; that succeeds soon or never. */
static tri_status connect_lower_ranks(shm_group *g, const shm_address *addresses,
                                      const trii_group_args *args)
{
    for (int r = 0; r < g->rank; r++) {
        tri_status status =
            trii_unix_connect(addresses[r].socket, args->deadline_ns, &g->peers[r].socket);

        if (status == TRI_OK)
            status = send_hello(g, g->peers[r].socket, args->deadline_ns);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "rank %d", shm_name(g, r));
    }
    return TRI_OK;
}

/* All ranks reach the same result: where two differ, every rank differs from one of them. */
static tri_status check_same_host(const shm_group *g, const shm_address *addresses)
{
    for (int r = 0; r < g->size; r++) {
        if (strcmp(addresses[r].net, addresses[g->rank].net) != 0)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "rank %d is on another host", shm_name(g, r));
    }
    return TRI_OK;
}

/* Whether a hello failed because its sender is not a rank. */
static bool is_from_stranger(tri_status status)
{
    return status == TRI_ERR_UNSUPPORTED || status == TRI_ERR_TIMEOUT ||
           status == TRI_ERR_PEER_LOST || status == TRI_ERR_FORMAT;
}

static tri_status accept_higher_ranks(shm_group *g, acceptor *a, int listen_fd,
                                      const shm_address *addresses, const trii_group_args *args)
{
    tri_status status;
    int rank;

    for (int n = g->rank + 1; n < g->size;) {
        int fd = -1;

        status = acceptor_next(a, listen_fd, args->deadline_ns, &fd);
        if (status != TRI_OK)
            return status;
        /* no waiting: all ranks have connected and sent theirs */
        status = receive_hello(g, fd, addresses, 0, &rank);
        if (is_from_stranger(status)) {
            TRII_LOG(TRII_LOG_DEBUG, "shm", "closed a connection that is not a rank's: %s",
                     tri_last_error());
            trii_unix_close(fd);
            continue;
        }
        if (status == TRI_OK)
            status = send_hello(g, fd, args->deadline_ns);
        if (status != TRI_OK) {
            trii_unix_close(fd);
            return status;
        }
        g->peers[rank].socket = fd;
        n++;
    }
    for (int r = 0; r < g->rank; r++) {
        status = receive_hello(g, g->peers[r].socket, addresses, args->deadline_ns, &rank);
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

/* Cores that all ranks may use together, by their affinity and their control groups' quotas. */
static tri_status count_cores(const shm_group *g, int *cores_out)
{
    trii_cpu_quota *quotas = trii_alloc((size_t)g->size, sizeof(*quotas), "shm quotas");
    trii_cpu_set cpus = {0};

    if (quotas == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int r = 0; r < g->size; r++) {
        trii_cpu_set_unite(&cpus, &g->peers[r].block->head.cpus);
        quotas[r] = g->peers[r].block->head.quota;
    }
    *cores_out = trii_cpu_quota_share(trii_cpu_set_count(&cpus), quotas, g->size);
    trii_free(quotas);
    return TRI_OK;
}

/* With a core for every rank, ranks spin. Otherwise they yield the core to the next rank that can
 * run, while that is cheaper than a sleep and a wake (spin.h). */
static tri_status choose_spin(shm_group *g)
{
    int64_t us = 50;
    int cores;
    tri_status status = count_cores(g, &cores);

    if (status != TRI_OK)
        return status;
    g->crowded = g->size > cores;
    status = trii_param_i64(TRII_PARAM_SPIN_US, us, &us);
    shm_spin_init(&g->spin, us);
    return status;
}

/* Closes all connections, so that no peer waits for our hello while we wait for all ranks in the
 * store. */
static void close_connections(shm_group *g, acceptor *a, int *listen_fd)
{
    acceptor_fini(a);
    trii_unix_close(*listen_fd);
    *listen_fd = -1;
    for (int r = 0; r < g->size; r++)
        trii_socket_sever(g->peers[r].socket, false);
}

static tri_status connect_ranks(shm_group *g, const trii_group_args *args, shm_address *addresses)
{
    shm_address *mine = &addresses[g->rank];
    acceptor incoming = {.fds = NULL};
    int listen_fd = -1;
    char *gap;
    tri_status status;

    status = make_block(g, &mine->nonce);
    if (g->size == 1)
        return status == TRI_OK ? choose_spin(g) : status;
    trii_socket_network_id(mine->net); /* "BOOT NAMESPACE" */
    gap = strchr(mine->net, ' ');
    if (status == TRI_OK && (gap == NULL || gap == mine->net))
        status = TRII_FAIL(TRI_ERR_UNSUPPORTED, "this system has no boot id");
    else if (gap != NULL)
        *gap = '/';
    if (status == TRI_OK)
        status = trii_unix_listen(&listen_fd, mine->socket);
    if (status == TRI_OK)
        status = acceptor_start(&incoming, g, listen_fd);
    status = gather_addresses(args, status, addresses);
    if (status == TRI_OK)
        status = check_same_host(g, addresses);
    if (status != TRI_OK)
        goto out;
    status = trii_group_agree(args, "connected", connect_lower_ranks(g, addresses, args));
    if (status == TRI_OK) {
        status = acceptor_stop(&incoming);
        if (status == TRI_OK)
            status = accept_higher_ranks(g, &incoming, listen_fd, addresses, args);
        if (status ==
            TRI_ERR_PEER_LOST) /* the rank that closed it has published why, unless it died */
            status = TRII_FAIL_CTX(TRI_ERR_ABORTED, "another rank gave up");
        for (int r = 0; r < g->size && status == TRI_OK; r++) {
            if (r != g->rank)
                g->peers[r].pidfd = trii_unix_peer_process(g->peers[r].socket);
        }
        if (status == TRI_OK)
            status = watch_peers(g);
        if (status == TRI_OK)
            status = publish_cma(g);
        if (status == TRI_OK)
            status = choose_spin(g);
        if (status != TRI_OK)
            close_connections(g, &incoming, &listen_fd);
        status = trii_group_agree(args, "mapped", status);
    }
out:
    acceptor_fini(&incoming);
    trii_unix_close(listen_fd);
    trii_shmem_close_fd(&g->peers[g->rank].memory);
    return status;
}

/* --- creation ------------------------------------------------------------- */

tri_status shm_create(const trii_group_args *args, void **self_out)
{
    shm_address *addresses = NULL;
    shm_group *g;
    tri_status status;

    if (args->size > TRII_HOST_MAX_RANKS)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "engine shm: %d ranks, at most %d", args->size,
                         TRII_HOST_MAX_RANKS);
    g = trii_alloc(1, sizeof(*g), "shm group");
    if (g == NULL) /* the peers must learn of it */
        return args->size > 1 ? gather_addresses(args, TRI_ERR_NO_MEMORY, NULL) : TRI_ERR_NO_MEMORY;
    g->rank = args->rank;
    g->size = args->size;
    g->name = args->name;
    g->fault = args->fault;
    g->names = args->names;
    g->arena = g;
    g->timeout_ns = args->timeout_ns;
    g->queue_tail = &g->queue;
    trii_mutex_init(&g->arena_lock);
    g->scratch = trii_alloc(1, SHM_SCRATCH_BYTES, "shm scratch");
    g->peers = trii_alloc((size_t)g->size, sizeof(*g->peers), "shm peers");
    addresses = trii_alloc((size_t)g->size, sizeof(*addresses), "shm addresses");
    for (int r = 0; g->peers != NULL && r < g->size; r++) {
        g->peers[r].group = g;
        g->peers[r].rank = r;
        g->peers[r].socket = g->peers[r].pidfd = -1;
    }
    status = shm_arena_init(g);
    if (status != TRI_OK || g->scratch == NULL || g->peers == NULL || addresses == NULL) {
        status = TRI_ERR_NO_MEMORY;
        if (g->size > 1) /* the peers must learn of it */
            status = gather_addresses(args, status, NULL);
        assert(status != TRI_OK); /* all fail with us */
    } else {
        status = connect_ranks(g, args, addresses);
    }
    if (status == TRI_OK)
        agree_on_cma(g);
    trii_free(addresses);
    if (status != TRI_OK) {
        shm_release(g);
        return status;
    }
    *self_out = g;
    return TRI_OK;
}

void shm_release(shm_group *g)
{
    for (int r = 0; g->peers != NULL && r < g->size; r++) {
        trii_loop_unwatch(&g->peers[r].socket_watch);
        trii_loop_unwatch(&g->peers[r].process_watch);
    }
    if (g->loop != NULL) {
        /* A callback that removed its own watch may still be running. */
        trii_loop_lock(g->loop);
        trii_loop_timer_stop(g->loop, &g->death_mark_timer);
        trii_robust_futex_release(&g->block->head.death_mark);
        trii_loop_unlock(g->loop);
        trii_control_release(g->loop);
    }
    shm_arena_release(g);
    for (int r = 0; g->peers != NULL && r < g->size; r++) {
        trii_unix_close(g->peers[r].socket);
        trii_unix_close(g->peers[r].pidfd);
        trii_shmem_release(&g->peers[r].memory);
    }
    trii_mutex_fini(&g->arena_lock);
    trii_free(g->peers);
    trii_free(g->scratch);
    trii_free(g);
}
