/*
 * peer_dialer.c - see peer_dialer.h. peers.c and peer_liveness.c order a connection and get a
 * descriptor on which the hello (peer_hello.h) is done. A connect to a host that drops packets
 * takes minutes to fail, and with a thread for each of them nobody waits for it.
 */
#include "launch/peers/peer_dialer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "launch/peers/peer_hello.h"
#include "os/clock.h"
#include "os/secret.h"
#include "os/socket.h"
#include "os/thread.h"

/* At least, and at most, for the connection; and for the proofs of the key behind it, which take
 * another two round trips. */
#define CONNECT_MIN_MS 1000
#define CONNECT_MAX_MS 5000
#define PROVE_MS 1500
/* Hosts that are silent do not delay the end: a thread that takes longer is left alone. */
#define DESTROY_MS 1000

typedef struct dial {
    trii_peer_dialer *dialer;
    trii_peer_dial what;
    trii_thread thread;
    struct dial *next;
    int fd;
    trii_peer_dial_result result;
    char why[TRII_ERR_BYTES];
    bool done; /* the fields above are written */
} dial;

struct trii_peer_dialer {
    trii_loop *loop;
    trii_watch watch;
    int wakeup_fd;
    trii_job_key key;
    trii_peer_dialed *done;
    void *arg;
    dial *list;       /* the loop's */
    trii_mutex mutex; /* guards what follows, and `done` of each */
    trii_cond changed;
    int n_left; /* threads that nobody waits for any more: the last one frees this */
};

/* Its host accepted the connection. */
static tri_status send_hello(dial *c, int fd)
{
    char hello[TRII_PEER_HELLO_BYTES];
    int64_t deadline = trii_deadline_ms(PROVE_MS);
    tri_status status = trii_handshake_connect(fd, &c->dialer->key, TRII_PEER_PURPOSE, deadline);

    c->result = status == TRI_ERR_FORMAT ? TRII_PEER_FOREIGN : TRII_PEER_NO_ANSWER;
    if (status != TRI_OK)
        return status;
    trii_peer_hello_write(c->what.agent.token, c->what.round, c->what.own_rank, hello);
    return trii_socket_send_all(fd, hello, sizeof(hello), deadline);
}

static void free_dialer(trii_peer_dialer *dialer)
{
    trii_socket_close(dialer->wakeup_fd);
    trii_secret_wipe(&dialer->key, sizeof(dialer->key));
    trii_cond_fini(&dialer->changed);
    trii_mutex_fini(&dialer->mutex);
    trii_free(dialer);
}

/* Hands the result over, or drops it if the dialer is gone. */
static void finish_dial(dial *c)
{
    trii_peer_dialer *dialer = c->dialer;
    bool last = false;

    trii_mutex_lock(&dialer->mutex);
    c->done = true;
    if (dialer->n_left > 0) {
        last = --dialer->n_left == 0;
        trii_socket_close(c->fd);
        trii_free(c);
    } else {
        trii_wakeup_signal(dialer->wakeup_fd);
        trii_cond_broadcast(&dialer->changed);
    }
    trii_mutex_unlock(&dialer->mutex);
    if (last)
        free_dialer(dialer);
}

static bool is_done(dial *c)
{
    bool done;

    trii_mutex_lock(&c->dialer->mutex);
    done = c->done;
    trii_mutex_unlock(&c->dialer->mutex);
    return done;
}

static void dial_main(void *arg)
{
    dial *c = arg;
    int64_t patience_ms = c->what.patience_ms;
    int fd = -1;
    tri_status status;

    if (patience_ms < CONNECT_MIN_MS || patience_ms > CONNECT_MAX_MS)
        patience_ms = patience_ms < CONNECT_MIN_MS ? CONNECT_MIN_MS : CONNECT_MAX_MS;
    status = trii_socket_connect(c->what.agent.host, c->what.agent.port,
                                 trii_deadline_ms(patience_ms), false, &fd);
    c->result = status == TRI_ERR_PEER_LOST ? TRII_PEER_NO_AGENT : TRII_PEER_UNREACHABLE;
    if (status == TRI_OK)
        status = send_hello(c, fd);
    if (status == TRI_OK) {
        c->result = TRII_PEER_CONNECTED;
        c->fd = fd;
    } else {
        snprintf(c->why, sizeof(c->why), "%s", tri_last_error());
        trii_socket_close(fd);
    }
    finish_dial(c);
}

static void dial_ready(trii_watch *watch, unsigned events)
{
    trii_peer_dialer *dialer = TRII_CONTAINER(watch, trii_peer_dialer, watch);
    dial **link = &dialer->list;

    (void)events;
    trii_wakeup_clear(watch->fd);
    while (*link != NULL) {
        dial *c = *link;

        if (!is_done(c)) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        trii_thread_join(&c->thread);
        dialer->done(dialer->arg, &c->what, c->fd, c->result, c->why);
        trii_free(c);
        link = &dialer->list; /* it may be another now */
    }
}

tri_status trii_peer_dialer_create(trii_loop *loop, const trii_job_key *key, trii_peer_dialed *done,
                                   void *arg, trii_peer_dialer **dialer_out)
{
    trii_peer_dialer *dialer = trii_alloc(1, sizeof(*dialer), "peer agents");
    int fd = -1;
    tri_status status;

    if (dialer == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_mutex_init(&dialer->mutex);
    trii_cond_init(&dialer->changed);
    dialer->loop = loop;
    dialer->key = *key;
    dialer->done = done;
    dialer->arg = arg;
    status = trii_wakeup_create(&fd);
    if (status == TRI_OK)
        status = trii_loop_watch(loop, &dialer->watch, fd, TRII_READABLE, dial_ready);
    dialer->wakeup_fd = fd;
    if (status != TRI_OK) {
        free_dialer(dialer);
        return status;
    }
    *dialer_out = dialer;
    return TRI_OK;
}

tri_status trii_peer_dialer_start(trii_peer_dialer *dialer, const trii_peer_dial *what)
{
    dial *c = trii_alloc(1, sizeof(*c), "peer agents");
    tri_status status;

    if (c == NULL)
        return TRI_ERR_NO_MEMORY;
    c->dialer = dialer;
    c->what = *what;
    c->fd = -1;
    trii_loop_lock(dialer->loop);
    status = trii_thread_start(&c->thread, "peer-dial", dial_main, c);
    if (status == TRI_OK) {
        c->next = dialer->list;
        dialer->list = c;
    } else {
        trii_free(c);
    }
    trii_loop_unlock(dialer->loop);
    return status;
}

/* Waits, and returns those that are done; how many are not, and go on alone, is the result. */
static int await_dials(trii_peer_dialer *dialer, int64_t deadline_ns, dial **done_out)
{
    dial *next;
    bool late = false;
    int n;

    do {
        n = 0;
        for (const dial *c = dialer->list; c != NULL; c = c->next)
            n += !c->done;
        late = n > 0 && !trii_cond_wait_until(&dialer->changed, &dialer->mutex, deadline_ns);
    } while (n > 0 && !late);
    *done_out = NULL;
    n = 0;
    for (dial *c = dialer->list; c != NULL; c = next) {
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

void trii_peer_dialer_destroy(trii_peer_dialer *dialer)
{
    dial *done, *next;
    int n_left;

    if (dialer == NULL)
        return;
    trii_loop_unwatch(&dialer->watch);
    trii_mutex_lock(&dialer->mutex);
    n_left = await_dials(dialer, trii_deadline_ms(DESTROY_MS), &done);
    dialer->n_left = n_left;
    trii_mutex_unlock(&dialer->mutex);
    for (; done != NULL; done = next) {
        next = done->next;
        trii_thread_join(&done->thread);
        trii_socket_close(done->fd);
        trii_free(done);
    }
    if (n_left == 0)
        free_dialer(dialer);
}
