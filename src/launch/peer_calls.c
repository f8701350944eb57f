/*
 * peer_calls.c - see peer_calls.h.
 */
#include "launch/peer_calls.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "launch/peer_hello.h"
#include "os/clock.h"
#include "os/secret.h"
#include "os/socket.h"
#include "os/thread.h"

/* For the connection: as long as silence is suffered. For the proofs of the key behind it, which
 * take another two ways. */
#define CONNECT_MS 1200
#define PROVE_MS 1500

typedef struct call {
    trii_peer_calls *calls;
    trii_peer_call what;
    trii_thread thread;
    struct call *next;
    int fd;
    bool refused;
    char why[TRII_ERR_BYTES];
    atomic_bool done; /* what stands above is written */
} call;

struct trii_peer_calls {
    trii_loop *loop;
    trii_watch watch;
    trii_job_key key;
    trii_peer_answered *answered;
    void *arg;
    call *list; /* the loop's */
};

static tri_status introduce(const call *c, int fd, bool *refused_out)
{
    char hello[TRII_PEER_HELLO_BYTES];
    int64_t deadline = trii_deadline_ms(PROVE_MS);
    tri_status status = trii_handshake_connect(fd, &c->calls->key, TRII_PEER_PURPOSE, deadline);

    if (status == TRI_ERR_FORMAT) {
        *refused_out = true;
        return status;
    }
    trii_peer_hello_write(c->what.agent.token, c->what.round, c->what.caller_rank, hello);
    return status == TRI_OK ? trii_socket_send_all(fd, hello, sizeof(hello), deadline) : status;
}

static void call_main(void *arg)
{
    call *c = arg;
    int fd = -1;
    tri_status status = trii_socket_connect(c->what.agent.host, c->what.agent.port,
                                            trii_deadline_ms(CONNECT_MS), false, &fd);

    if (status == TRI_OK)
        status = introduce(c, fd, &c->refused);
    if (status != TRI_OK) {
        snprintf(c->why, sizeof(c->why), "%s", tri_last_error());
        trii_socket_close(fd);
        fd = -1;
    }
    c->fd = fd;
    atomic_store(&c->done, true);
    trii_wakeup_signal(c->calls->watch.fd);
}

static void call_ready(trii_watch *watch, unsigned events)
{
    trii_peer_calls *calls = TRII_CONTAINER(watch, trii_peer_calls, watch);
    call **link = &calls->list;

    (void)events;
    trii_wakeup_clear(watch->fd);
    while (*link != NULL) {
        call *c = *link;

        if (!atomic_load(&c->done)) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        trii_thread_join(&c->thread);
        calls->answered(calls->arg, &c->what, c->fd, c->refused, c->why);
        trii_free(c);
        link = &calls->list; /* it may be another now */
    }
}

tri_status trii_peer_calls_create(trii_loop *loop, const trii_job_key *key,
                                  trii_peer_answered *answered, void *arg,
                                  trii_peer_calls **calls_out)
{
    trii_peer_calls *calls = trii_alloc(1, sizeof(*calls), "peer agents");
    int fd = -1;
    tri_status status;

    if (calls == NULL)
        return TRI_ERR_NO_MEMORY;
    calls->loop = loop;
    calls->key = *key;
    calls->answered = answered;
    calls->arg = arg;
    status = trii_wakeup_create(&fd);
    if (status == TRI_OK)
        status = trii_loop_watch(loop, &calls->watch, fd, TRII_READABLE, call_ready);
    if (status != TRI_OK) {
        trii_socket_close(fd);
        trii_free(calls);
        return status;
    }
    *calls_out = calls;
    return TRI_OK;
}

tri_status trii_peer_calls_start(trii_peer_calls *calls, const trii_peer_call *what)
{
    call *c = trii_alloc(1, sizeof(*c), "peer agents");
    tri_status status;

    if (c == NULL)
        return TRI_ERR_NO_MEMORY;
    c->calls = calls;
    c->what = *what;
    c->fd = -1;
    trii_loop_lock(calls->loop);
    status = trii_thread_start(&c->thread, "peer-call", call_main, c);
    if (status == TRI_OK) {
        c->next = calls->list;
        calls->list = c;
    } else {
        trii_free(c);
    }
    trii_loop_unlock(calls->loop);
    return status;
}

void trii_peer_calls_destroy(trii_peer_calls *calls)
{
    int fd;

    if (calls == NULL)
        return;
    fd = calls->watch.fd;
    trii_loop_unwatch(&calls->watch);
    while (calls->list != NULL) {
        call *c = calls->list;

        calls->list = c->next;
        trii_thread_join(&c->thread);
        trii_socket_close(c->fd);
        trii_free(c);
    }
    trii_socket_close(fd);
    trii_secret_wipe(&calls->key, sizeof(calls->key));
    trii_free(calls);
}
