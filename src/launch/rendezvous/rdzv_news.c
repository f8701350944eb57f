/*
 * rdzv_news.c - what the members of a round tell each other while it is on, or being prepared: the
 * first news of a round count, and a second thread waits for them. Who is gone is not in the news
 * alone, since more than one agent may be.
 *
 *   trireme/ROUND/news        OVER COUNTS GONE LEFT WHY
 *   trireme/ROUND/wake/RANK   1: there are news
 *   trireme/ROUND/gone        RANK RANK ...
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "store/exchange.h"

#define NOTIFY_AT_ONCE 64
#define WATCH_MS 3000 /* of one wait for the key */

tri_status trii_rdzv_round_store(trii_rendezvous *r, int64_t round, tri_store **kv_out)
{
    char prefix[sizeof(r->id) + 64];

    snprintf(prefix, sizeof(prefix), "torch.rendezvous.%s.%lld", r->id, (long long)round);
    return tri_store_prefix(prefix, r->base, kv_out);
}

void trii_rdzv_news_key(char *key, size_t bytes, int64_t number, int rank)
{
    if (rank < 0)
        snprintf(key, bytes, "trireme/%lld/news", (long long)number);
    else
        snprintf(key, bytes, "trireme/%lld/wake/%d", (long long)number, rank);
}

/* Has all n members look, some in one exchange. */
static tri_status notify_members(tri_store *kv, int64_t number, int n)
{
    tri_status status = TRI_OK;

    for (int from = 0; from < n && status == TRI_OK; from += NOTIFY_AT_ONCE) {
        trii_store_call calls[NOTIFY_AT_ONCE];
        char keys[NOTIFY_AT_ONCE][64];
        int k = n - from < NOTIFY_AT_ONCE ? n - from : NOTIFY_AT_ONCE;

        for (int i = 0; i < k; i++) {
            trii_rdzv_news_key(keys[i], sizeof(keys[i]), number, from + i);
            calls[i] = (trii_store_call){.kind = TRII_STORE_SET, .key = keys[i], .text = "1"};
        }
        status = trii_store_exchange(kv, calls, k, NULL, 0, 0, NULL, NULL);
    }
    return status;
}

/* Who is not the first has nothing to add: the first notifies all. */
void trii_rdzv_broadcast(tri_store *kv, int64_t number, int n, const trii_rdzv_news *news)
{
    char key[64], text[TRII_ERR_BYTES];
    void *value;
    size_t bytes;
    bool first = false;
    tri_status status;

    snprintf(text, sizeof(text), "%d %d %d %d %s", news->over, news->counts, news->gone, news->left,
             news->why);
    trii_rdzv_news_key(key, sizeof(key), number, -1);
    status = tri_store_compare_set(kv, key, "", 0, text, strlen(text), &value, &bytes);
    if (status == TRI_OK) {
        first = bytes == strlen(text) && memcmp(value, text, bytes) == 0;
        tri_store_free(value);
    }
    if (first)
        status = notify_members(kv, number, n);
    /* A store that is gone is noticed by whoever needs it next. */
    (void)status;
}

tri_status trii_rdzv_notify_all(trii_rendezvous *r)
{
    return notify_members(r->kv, r->round.number, r->round.group_size);
}

void trii_rdzv_take_news(trii_rendezvous *r, const char *text, trii_rdzv_news *news_out)
{
    int over = 0, counts = 0, left = 0, used = 0;

    memset(news_out, 0, sizeof(*news_out));
    if (sscanf(text, "%d %d %d %d %n", &over, &counts, &news_out->gone, &left, &used) < 4 ||
        used == 0)
        over = counts = used = 0;
    if (used == 0 || news_out->gone < 0 || news_out->gone >= r->round.group_size)
        news_out->gone = -1;
    else if (r->nodes != NULL)
        r->nodes[news_out->gone].addr[0] = '\0';
    news_out->over = over != 0;
    news_out->counts = counts != 0;
    news_out->left = left != 0;
    snprintf(news_out->why, sizeof(news_out->why), "%s", text + used);
}

tri_status trii_rdzv_read_news(trii_rendezvous *r, trii_rdzv_news *news_out, bool *there_out)
{
    char key[64];
    trii_store_call call = {.kind = TRII_STORE_READ, .key = key};
    tri_status status;

    trii_rdzv_news_key(key, sizeof(key), r->round.number, -1);
    status = trii_store_exchange(r->kv, &call, 1, NULL, 0, 0, NULL, NULL);
    *there_out = status == TRI_OK && call.value != NULL;
    if (*there_out)
        trii_rdzv_take_news(r, call.value, news_out);
    trii_store_calls_free(&call, 1);
    return status;
}

/* --- who is gone ---------------------------------------------------------- */

void trii_rdzv_gone_key(char *key, size_t bytes, int64_t number)
{
    snprintf(key, bytes, "trireme/%lld/gone", (long long)number);
}

void trii_rdzv_mark_gone(trii_rendezvous *r, int rank)
{
    char key[64], text[16];
    tri_store *kv;
    tri_status status = trii_rdzv_round_store(r, r->round.number, &kv);

    if (status != TRI_OK)
        return;
    trii_rdzv_gone_key(key, sizeof(key), r->round.number);
    snprintf(text, sizeof(text), "%d ", rank);
    status = tri_store_append(kv, key, text, strlen(text));
    (void)status; /* then the others wait for them until the last call ends */
    tri_store_unref(kv);
}

bool trii_rdzv_read_gone(trii_rendezvous *r)
{
    char key[64], *at, *end;
    trii_store_call call = {.kind = TRII_STORE_READ, .key = key};
    tri_store *kv;
    bool any = false;

    if (trii_rdzv_round_store(r, r->round.number, &kv) != TRI_OK)
        return false;
    trii_rdzv_gone_key(key, sizeof(key), r->round.number);
    if (trii_store_exchange(kv, &call, 1, NULL, 0, 0, NULL, NULL) == TRI_OK) {
        for (at = call.value; at != NULL && *at != '\0'; at = end) {
            long rank = strtol(at, &end, 10);

            if (end == at)
                break;
            any = any || (rank >= 0 && rank < r->round.group_size);
            if (rank >= 0 && rank < r->round.group_size)
                r->nodes[rank].addr[0] = '\0';
            end += *end == ' ';
        }
        trii_store_calls_free(&call, 1);
    }
    tri_store_unref(kv);
    return any;
}

/* --- the second thread ---------------------------------------------------- */

/* Until the key is there, the store fails or the round is over. A store that is broken says TIMEOUT
 * too: at once, and for ever. */
static void await_key(trii_rendezvous *r)
{
    const char *keys[] = {r->watch_key};
    tri_store *own = NULL; /* a connection that may wait */
    bool again = true;
    tri_status status;

    trii_mutex_unlock(&r->mutex);
    status = tri_store_clone(r->watch_kv, &own);
    if (status == TRI_OK)
        TRII_LOG(TRII_LOG_DEBUG, "launch", "waiting for news of this round");
    trii_mutex_lock(&r->mutex);
    while (again && status == TRI_OK) {
        int64_t began = trii_rdzv_now(r);

        trii_mutex_unlock(&r->mutex);
        status = tri_store_wait(own, keys, 1, WATCH_MS);
        trii_mutex_lock(&r->mutex);
        again = status == TRI_ERR_TIMEOUT && r->watch == TRII_WATCH_WAITING &&
                trii_rdzv_now(r) - began >= WATCH_MS / 2 * TRII_NS_PER_MS;
        status = again ? TRI_OK : status;
    }
    trii_mutex_unlock(&r->mutex);
    tri_store_unref(own);
    trii_mutex_lock(&r->mutex);
}

void trii_rdzv_watch_main(void *arg)
{
    trii_rendezvous *r = arg;

    trii_mutex_lock(&r->mutex);
    while (r->watch != TRII_WATCH_QUIT) {
        if (r->watch != TRII_WATCH_WAITING) {
            r->time->wait_until(&r->changed, &r->mutex, TRII_NO_DEADLINE);
            continue;
        }
        await_key(r);
        /* news also after a failure: then the first thread looks, and sees it */
        r->watch = r->watch == TRII_WATCH_STOPPING ? TRII_WATCH_IDLE : TRII_WATCH_NEWS;
        r->time->notify(&r->changed);
    }
    trii_mutex_unlock(&r->mutex);
}

void trii_rdzv_watch_stop(trii_rendezvous *r)
{
    tri_status status;

    if (r->watch_kv == NULL)
        return;
    trii_mutex_lock(&r->mutex);
    if (r->watch == TRII_WATCH_WAITING)
        r->watch = TRII_WATCH_STOPPING;
    trii_mutex_unlock(&r->mutex);
    status = tri_store_set(r->kv, r->watch_key, "1", 1);
    (void)status; /* without a store its wait ends by itself */
    trii_mutex_lock(&r->mutex);
    while (r->watch == TRII_WATCH_STOPPING)
        r->time->wait_until(&r->changed, &r->mutex, TRII_NO_DEADLINE);
    r->watch = TRII_WATCH_IDLE;
    trii_mutex_unlock(&r->mutex);
    tri_store_unref(r->watch_kv);
    r->watch_kv = NULL;
}

void trii_rdzv_watch_start(trii_rendezvous *r)
{
    trii_rdzv_news_key(r->watch_key, sizeof(r->watch_key), r->round.number, r->round.group_rank);
    r->watch_kv = tri_store_ref(r->kv);
    trii_mutex_lock(&r->mutex);
    r->watch = TRII_WATCH_WAITING;
    r->time->notify(&r->changed);
    trii_mutex_unlock(&r->mutex);
}

void trii_rdzv_end_round(trii_rendezvous *r)
{
    trii_rdzv_watch_stop(r);
    tri_store_unref(r->kv);
    r->kv = NULL;
}
