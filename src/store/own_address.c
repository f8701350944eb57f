/*
 * own_address.c - see own_address.h. Called by every server of a job's store: the agents'
 * rendezvous (launch/rendezvous/rdzv_server.c) and rank 0 of a world without a launcher.
 */
/* build: leaf */
#include "store/own_address.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/library.h"
#include "os/random.h"
#include "os/socket.h"
#include "os/thread.h"

#define TRY_MS 1000   /* for one connection */
#define PAUSE_MS 250  /* between two */
#define SOON_MS 2000  /* then the user is warned, and we look less often */
#define LATER_MS 2000 /* ... so often */
#define MARK_BYTES 33
#define KEY_BYTES 400
#define NAMED_ADDRESSES 2

struct trii_own_address {
    trii_mutex mutex;
    trii_cond changed;
    int refs; /* guarded by mutex, as all down to `why`: callers that wait, and the thread */
    bool stop;
    bool done; /* the thread does no more than end */
    trii_own_verdict verdict;
    char why[TRII_ERR_BYTES];

    trii_thread thread;
    int port;
    char mark[MARK_BYTES];
    char host[256], setting[32], proof_key[KEY_BYTES], claim_key[KEY_BYTES];
};

static void release(trii_own_address *own)
{
    bool last;

    trii_mutex_lock(&own->mutex);
    last = --own->refs == 0;
    trii_mutex_unlock(&own->mutex);
    if (!last)
        return;
    trii_cond_fini(&own->changed);
    trii_mutex_fini(&own->mutex);
    trii_free(own);
}

/* Whether an interface of this host has it. */
static bool is_of_this_host(const char *host)
{
    int fd, port;

    if (trii_socket_is_loopback(host))
        return true;
    if (trii_socket_listen(host, 0, &fd, &port) != TRI_OK)
        return false;
    trii_socket_close(fd);
    return true;
}

static bool is_number(const char *host)
{
    return strchr(host, ':') != NULL || strspn(host, "0123456789.") == strlen(host);
}

/* The value of a key that is there. false: it is not. */
static bool read_key(tri_store *store, const char *key, char *text_out, size_t bytes)
{
    bool present = false;
    void *value = NULL;

    if (tri_store_check(store, &key, 1, &present) != TRI_OK || !present ||
        tri_store_get(store, key, TRY_MS, &value, NULL) != TRI_OK)
        return false;
    snprintf(text_out, bytes, "%s", (const char *)value);
    tri_store_free(value);
    return true;
}

/* NOBODY also of a store in which nobody has said yet who it is. what_out: how it is with the
 * address, or who has claimed that store. */
static trii_own_verdict ask(const trii_own_address *own, char *what_out, size_t bytes)
{
    const tri_store_tcp_options options = {.timeout_ms = TRY_MS};
    trii_own_verdict verdict = TRII_OWN_NOBODY;
    char mark[MARK_BYTES];
    tri_store *store;
    int fd = -1;
    /* first by hand: the store's client would say in the log that it still tries */
    tri_status status =
        trii_socket_connect(own->host, own->port, trii_deadline_ms(TRY_MS), false, &fd);

    if (status == TRI_OK) {
        trii_socket_close(fd);
        status = tri_store_tcp(own->host, own->port, &options, &store);
    }
    if (status != TRI_OK) {
        snprintf(what_out, bytes, "%s",
                 status == TRI_ERR_NOT_FOUND ? "is not a name that is known here"
                                             : "is not an address of this host");
        return TRII_OWN_NOBODY;
    }
    snprintf(what_out, bytes, "leads to another host's store");
    if (read_key(store, own->proof_key, mark, sizeof(mark)) && strcmp(mark, own->mark) == 0)
        verdict = TRII_OWN_OURS;
    else if (read_key(store, own->claim_key, what_out, bytes))
        verdict = TRII_OWN_OTHER;
    tri_store_unref(store);
    return verdict;
}

/* A clause for the log and for an error line. */
static void word_nobody(const trii_own_address *own, const char *what, char *why_out, size_t bytes)
{
    char hosts[NAMED_ADDRESSES][TRII_ADDR_TEXT], has[NAMED_ADDRESSES * TRII_ADDR_TEXT] = "none";
    int n = trii_socket_addresses(hosts, NAMED_ADDRESSES);

    for (int i = 0, used = 0; i < n; i++)
        used +=
            snprintf(has + used, sizeof(has) - (size_t)used, "%s%s", i > 0 ? ", " : "", hosts[i]);
    snprintf(why_out, bytes, "%s %s: give %s one of its own (%s)", own->host, what, own->setting,
             has);
}

/* For who asks. False: nobody wants to know any more. */
static bool judge(trii_own_address *own, trii_own_verdict verdict, const char *why)
{
    bool stop;

    trii_mutex_lock(&own->mutex);
    own->verdict = verdict;
    snprintf(own->why, sizeof(own->why), "%s", why);
    stop = own->stop;
    trii_mutex_unlock(&own->mutex);
    return !stop;
}

/* False: nobody wants to know any more. */
static bool sleep_until(trii_own_address *own, int64_t deadline_ns)
{
    bool stop;

    trii_mutex_lock(&own->mutex);
    while (!own->stop && trii_cond_wait_until(&own->changed, &own->mutex, deadline_ns))
        ;
    stop = own->stop;
    trii_mutex_unlock(&own->mutex);
    return !stop;
}

/* What is found at first may be about to change: a name that is not known yet, a service that still
 * leads to who was here before us. */
static void look_there(trii_own_address *own)
{
    int64_t soon_ns = trii_now_ns() + SOON_MS * TRII_NS_PER_MS;
    bool warned = false, soon;

    do {
        char what[TRII_ERR_BYTES], why[TRII_ERR_BYTES];
        trii_own_verdict verdict = ask(own, what, sizeof(what));

        soon = trii_now_ns() < soon_ns;
        if (verdict == TRII_OWN_OURS || (verdict == TRII_OWN_OTHER && !soon)) {
            judge(own, verdict, what);
            return;
        }
        if (soon)
            continue;
        word_nobody(own, what, why, sizeof(why));
        if (judge(own, verdict, why) && !warned)
            TRII_LOG(TRII_LOG_WARN, "store",
                     "%s (unless the others get here through it: NAT, a service)", why);
        warned = true;
    } while (sleep_until(own, trii_deadline_ms(soon ? PAUSE_MS : LATER_MS)));
}

static void look(void *arg)
{
    trii_own_address *own = arg;

    if (is_of_this_host(own->host))
        judge(own, TRII_OWN_OURS, "");
    else
        look_there(own);
    trii_mutex_lock(&own->mutex);
    own->done = true;
    trii_mutex_unlock(&own->mutex);
    release(own);
}

static tri_status prepare(trii_own_address *own, const trii_own_search *s)
{
    unsigned char random[(MARK_BYTES - 1) / 2] = {0};

    (void)trii_random_bytes(random, sizeof(random)); /* to tell stores apart, not a secret */
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(own->mark + 2 * i, 3, "%02x", random[i]);
    snprintf(own->host, sizeof(own->host), "%s", s->host);
    snprintf(own->setting, sizeof(own->setting), "%s", s->setting);
    snprintf(own->proof_key, sizeof(own->proof_key), "%s", s->proof_key);
    snprintf(own->claim_key, sizeof(own->claim_key), "%s", s->claim_key);
    own->port = s->port;
    own->refs = 2;
    return tri_store_set(s->store, own->proof_key, own->mark, strlen(own->mark));
}

tri_status trii_own_address_start(const trii_own_search *search, trii_own_address **own_out)
{
    trii_own_address *own;
    tri_status status;

    *own_out = NULL;
    if (trii_socket_is_loopback(search->host) ||
        (is_number(search->host) && is_of_this_host(search->host)))
        return TRI_OK;
    own = trii_alloc(1, sizeof(*own), "own address");
    if (own == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_mutex_init(&own->mutex);
    trii_cond_init(&own->changed);
    status = prepare(own, search);
    if (status == TRI_OK)
        status = trii_thread_start(&own->thread, "own-address", look, own);
    if (status != TRI_OK) {
        own->refs = 1;
        release(own);
        return status;
    }
    *own_out = own;
    return TRI_OK;
}

trii_own_verdict trii_own_address_verdict(trii_own_address *own, char *why_out, size_t bytes)
{
    trii_own_verdict verdict;

    if (own == NULL)
        return TRII_OWN_OURS;
    trii_mutex_lock(&own->mutex);
    verdict = own->verdict;
    snprintf(why_out, bytes, "%s", own->why);
    trii_mutex_unlock(&own->mutex);
    return verdict;
}

void trii_own_address_stop(trii_own_address *own)
{
    static const char own_code[] = "lies in the same file";
    bool done;

    if (own == NULL)
        return;
    trii_mutex_lock(&own->mutex);
    own->stop = true;
    done = own->done;
    trii_cond_broadcast(&own->changed);
    trii_mutex_unlock(&own->mutex);
    if (done) {
        trii_thread_join(&own->thread);
    } else { /* a resolver may hold it for long, and then it comes back to this code */
        trii_library_stay(own_code);
        trii_thread_detach(&own->thread);
    }
    release(own);
}
