/*
 * peer_calls.c - see peer_calls.h.
 */
#include "launch/peers/peer_calls.h"

#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "launch/peers/peer_hello.h"
#include "os/clock.h"
#include "os/secret.h"
#include "os/socket.h"
#include "os/thread.h"

/* At least, and at most, for the connection; and for the proofs of the key behind it, which take
 * another two ways. */
#define CONNECT_MIN_MS 1000
#define CONNECT_MAX_MS 5000
#define PROVE_MS 1500
/* Who ends does not wait for hosts that are silent: a call that takes longer is left alone. */
#define END_MS 1000

typedef struct call {
    trii_peer_calls *calls;
    trii_peer_call what;
    trii_thread thread;
    struct call *next;
    int fd;
    trii_peer_answer answer;
    char why[TRII_ERR_BYTES];
    bool done; /* what stands above is written */
} call;

struct trii_peer_calls {
    trii_loop *loop;
    trii_watch watch;
    int wakeup_fd;
    trii_job_key key;
    trii_peer_call_answered *answered;
    void *arg;
    call *list;       /* the loop's */
    trii_mutex mutex; /* guards what follows, and `done` of each */
    trii_cond changed;
    int n_left; /* threads that nobody waits for any more: the last one frees this */
};

/* It took the call. */
static tri_status introduce(call *c, int fd)
{
    char hello[TRII_PEER_HELLO_BYTES];
    int64_t deadline = trii_deadline_ms(PROVE_MS);
    tri_status status = trii_handshake_connect(fd, &c->calls->key, TRII_PEER_PURPOSE, deadline);

    c->answer = status == TRI_ERR_FORMAT ? TRII_PEER_STRANGER : TRII_PEER_MUTE;
    if (status != TRI_OK)
        return status;
    trii_peer_hello_write(c->what.agent.token, c->what.round, c->what.caller_rank, hello);
    return trii_socket_send_all(fd, hello, sizeof(hello), deadline);
}

static void free_calls(trii_peer_calls *calls)
{
    trii_socket_close(calls->wakeup_fd);
    trii_secret_wipe(&calls->key, sizeof(calls->key));
    trii_cond_fini(&calls->changed);
    trii_mutex_fini(&calls->mutex);
    trii_free(calls);
}

/* Hands the result over, or drops it if nobody is there any more. */
static void finish(call *c)
{
    trii_peer_calls *calls = c->calls;
    bool last = false;

    trii_mutex_lock(&calls->mutex);
    c->done = true;
    if (calls->n_left > 0) {
        last = --calls->n_left == 0;
        trii_socket_close(c->fd);
        trii_free(c);
    } else {
        trii_wakeup_signal(calls->wakeup_fd);
        trii_cond_broadcast(&calls->changed);
    }
    trii_mutex_unlock(&calls->mutex);
    if (last)
        free_calls(calls);
}

static bool is_done(call *c)
{
    bool done;

    trii_mutex_lock(&c->calls->mutex);
    done = c->done;
    trii_mutex_unlock(&c->calls->mutex);
    return done;
}

static void call_main(void *arg)
{
    call *c = arg;
    int64_t patience_ms = c->what.patience_ms;
    int fd = -1;
    tri_status status;

    if (patience_ms < CONNECT_MIN_MS || patience_ms > CONNECT_MAX_MS)
        patience_ms = patience_ms < CONNECT_MIN_MS ? CONNECT_MIN_MS : CONNECT_MAX_MS;
    status = trii_socket_connect(c->what.agent.host, c->what.agent.port,
                                 trii_deadline_ms(patience_ms), false, &fd);
    c->answer = status == TRI_ERR_PEER_LOST ? TRII_PEER_NOBODY : TRII_PEER_SILENT;
    if (status == TRI_OK)
        status = introduce(c, fd);
    if (status == TRI_OK) {
        c->answer = TRII_PEER_CONNECTED;
        c->fd = fd;
    } else {
        snprintf(c->why, sizeof(c->why), "%s", tri_last_error());
        trii_socket_close(fd);
    }
    finish(c);
}

static void call_ready(trii_watch *watch, unsigned events)
{
    trii_peer_calls *calls = TRII_CONTAINER(watch, trii_peer_calls, watch);
    call **link = &calls->list;

    (void)events;
    trii_wakeup_clear(watch->fd);
    while (*link != NULL) {
        call *c = *link;

        if (!is_done(c)) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        trii_thread_join(&c->thread);
        calls->answered(calls->arg, &c->what, c->fd, c->answer, c->why);
        trii_free(c);
        link = &calls->list; /* it may be another now */
    }
}

tri_status trii_peer_calls_create(trii_loop *loop, const trii_job_key *key,
                                  trii_peer_call_answered *answered, void *arg,
                                  trii_peer_calls **calls_out)
{
    trii_peer_calls *calls = trii_alloc(1, sizeof(*calls), "peer agents");
    int fd = -1;
    tri_status status;

    if (calls == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_mutex_init(&calls->mutex);
    trii_cond_init(&calls->changed);
    calls->loop = loop;
    calls->key = *key;
    calls->answered = answered;
    calls->arg = arg;
    status = trii_wakeup_create(&fd);
    if (status == TRI_OK)
        status = trii_loop_watch(loop, &calls->watch, fd, TRII_READABLE, call_ready);
    calls->wakeup_fd = fd;
    if (status != TRI_OK) {
        free_calls(calls);
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

/* Waits, and gives out those that are done; returns how many are not, and go on alone. */
static int await_calls(trii_peer_calls *calls, int64_t deadline_ns, call **done_out)
{
    call *next;
    bool late = false;
    int n;

    do {
        n = 0;
        for (const call *c = calls->list; c != NULL; c = c->next)
            n += !c->done;
        late = n > 0 && !trii_cond_wait_until(&calls->changed, &calls->mutex, deadline_ns);
    } while (n > 0 && !late);
    *done_out = NULL;
    n = 0;
    for (call *c = calls->list; c != NULL; c = next) {
        next = c->next;
        if (!c->done) {
            n++;
            trii_thread_detach(&c->thread);
        } else {
            c->next = *done_out;
            *done_out = c;
        }
    }
    return n;
}

void trii_peer_calls_destroy(trii_peer_calls *calls)
{
    call *done, *next;
    int n_left;

    if (calls == NULL)
        return;
    trii_loop_unwatch(&calls->watch);
    trii_mutex_lock(&calls->mutex);
    n_left = await_calls(calls, trii_deadline_ms(END_MS), &done);
    calls->n_left = n_left;
    trii_mutex_unlock(&calls->mutex);
    for (; done != NULL; done = next) {
        next = done->next;
        trii_thread_join(&done->thread);
        trii_socket_close(done->fd);
        trii_free(done);
    }
    if (n_left == 0)
        free_calls(calls);
}
