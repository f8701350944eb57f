/*
 * rdzv_lead.c - how many agents join and live at a cost that grows with their number and not with
 * its square. torch's agents read the whole shared state and write their own part of it every few
 * seconds. An agent of trirun that serves the agents' store is the leader, and does that for all
 * others of trirun, its followers; it lives as long as the store. torchrun's agents may take part.
 * Where one of them serves the store, or the state is in etcd, each agent reads and writes itself.
 *
 * A follower has a key of its own, its request: from the time it first joins until it leaves and
 * deletes it, the key says that it takes part and lives. The leader deletes that of a follower that
 * is taken for dead; one that lives finds that out and makes another request. The leader's key
 * shows when to look at the state, which is once, when a round is formed, and what ends a round:
 * agents that have no links to the leader see it there.
 *
 *   trireme/ID/leader       ROUND COMPLETE CLOSED PARTICIPANTS WAITING NODES of the state
 *   trireme/ID/requests     how many there were so far
 *   trireme/ID/request/N    LEFT BEAT LOCAL_ID PID ADDR: takes part in each round after LEFT; the
 *                           leader reads them often, so LOCAL_ID and PID are hexadecimal
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "store/exchange.h"

enum {
    KEY_BYTES = sizeof(((trii_rendezvous *)NULL)->id) + 48,
    TEXT_BYTES = TRII_RDZV_ADDR_BYTES + 120,
    /* Of keep_alive_interval: how often heartbeats are carried into the state, how often a follower
     * looks whether one is due (a tenth sooner or later), and since when it is. Two carries and one
     * beat fit into twice the interval. */
    CARRY_PERCENT = 50,
    BEAT_PERCENT = 80,
    DUE_PERCENT = 70
};

static void job_key(const trii_rendezvous *r, const char *name, char *key)
{
    snprintf(key, KEY_BYTES, "trireme/%s/%s", r->id, name);
}

static void request_key(const trii_rendezvous *r, int64_t number, char *key)
{
    snprintf(key, KEY_BYTES, "trireme/%s/request/%lld", r->id, (long long)number);
}

static bool is_percent_past(const trii_rendezvous *r, int64_t since_ns, int percent)
{
    return trii_rdzv_now(r) - since_ns >= r->beat_ms * TRII_NS_PER_MS * percent / 100;
}

/* --- the leader ----------------------------------------------------------- */

static void take_request(trii_rdzv_request *q, const char *text)
{
    long long left, beat;
    unsigned long long local_id, pid;
    trii_rdzv_node node = {0};

    if (text == NULL) {
        q->withdrawn = q->node.addr[0] != '\0'; /* else it is being written */
        return;
    }
    if (sscanf(text, "%lld %lld %llx %llx %255s", &left, &beat, &local_id, &pid, node.addr) != 5)
        return;
    node.pid = (int64_t)pid;
    node.local_id = (int64_t)local_id;
    q->asked = left != q->left;
    q->node = node;
    q->left = left;
    q->beat = beat;
}

/* Adds those that came since the last look. */
static tri_status count_requests(trii_rendezvous *r)
{
    trii_rdzv_lead *l = &r->lead;
    char key[KEY_BYTES];
    char *value;
    int64_t requests;
    tri_status status;

    job_key(r, "requests", key);
    status = trii_store_read(r->base, key, &value);
    if (status != TRI_OK)
        return status;
    requests = value != NULL ? strtoll(value, NULL, 10) : 0;
    tri_store_free(value);
    while (l->n_known < requests) {
        if (trii_array_grow(&l->requests, &l->room, l->n, 64, sizeof(*l->requests), "rendezvous") !=
            TRI_OK)
            return TRI_ERR_NO_MEMORY;
        l->requests[l->n++] = (trii_rdzv_request){.number = ++l->n_known};
    }
    return TRI_OK;
}

tri_status trii_rdzv_lead_read(trii_rendezvous *r)
{
    trii_rdzv_lead *l = &r->lead;
    tri_status status = count_requests(r);
    trii_store_call *calls;
    char(*keys)[KEY_BYTES];

    if (status != TRI_OK || l->n == 0)
        return status;
    calls = trii_alloc((size_t)l->n, sizeof(*calls) + KEY_BYTES, "rendezvous requests");
    if (calls == NULL)
        return TRI_ERR_NO_MEMORY;
    keys = (char(*)[KEY_BYTES])(calls + l->n);
    for (int i = 0; i < l->n; i++) {
        request_key(r, l->requests[i].number, keys[i]);
        calls[i] = (trii_store_call){.kind = TRII_STORE_READ, .key = keys[i]};
    }
    status = trii_store_calls(r->base, calls, l->n);
    for (int i = 0; i < l->n && status == TRI_OK; i++)
        take_request(&l->requests[i], calls[i].value);
    if (status == TRI_OK)
        trii_store_calls_free(calls, l->n);
    trii_free(calls);
    return status;
}

static tri_status delete_request(trii_rendezvous *r, int64_t number)
{
    char key[KEY_BYTES];
    bool existed;

    request_key(r, number, key);
    return tri_store_delete(r->base, key, &existed);
}

tri_status trii_rdzv_lead_decide(trii_rendezvous *r, trii_rdzv_state *s, bool *dirty)
{
    trii_rdzv_lead *l = &r->lead;
    int64_t now_us = r->time->wall_ns() / 1000;
    tri_status status = TRI_OK;

    l->carries = is_percent_past(r, l->carried_ns, CARRY_PERCENT);
    for (int i = 0; i < l->n && status == TRI_OK; i++) {
        trii_rdzv_request *q = &l->requests[i];
        trii_rdzv_entry *e = trii_rdzv_find(s, &q->node);

        if (q->node.addr[0] == '\0')
            continue; /* not written yet */
        if (q->withdrawn && (q->dead || e == NULL || trii_rdzv_is_left_to_end(s, e))) {
            *q = l->requests[--l->n];
            i--;
            continue;
        }
        if (q->withdrawn) {
            trii_rdzv_remove(s, &q->node, r->options->min_nodes);
            *dirty = true;
            continue;
        }
        if (q->dead || (q->carried && e == NULL && !q->asked)) {
            /* A beat may be from before that, or be written at this moment: a request that is there
             * again is deleted again, or none would read it. */
            q->dead = true;
            status = delete_request(r, q->number);
            continue;
        }
        q->carried = e != NULL; /* what we decide now may never be written */
        status = trii_rdzv_want(s, &q->node, q->left, &r->rules, now_us, dirty);
        e = trii_rdzv_find(s, &q->node);
        q->carrying = e != NULL;
        if (!l->carries || e == NULL || q->beat == q->written)
            continue;
        q->writing = q->beat;
        e->beats = true;
        e->beat_us = now_us;
        *dirty = true;
    }
    return status;
}

void trii_rdzv_lead_written(trii_rendezvous *r)
{
    if (r->lead.carries)
        r->lead.carried_ns = trii_rdzv_now(r);
    for (int i = 0; i < r->lead.n; i++) {
        trii_rdzv_request *q = &r->lead.requests[i];

        q->written = q->writing;
        q->carried = q->carrying;
    }
}

tri_status trii_rdzv_lead_publish(trii_rendezvous *r, const trii_rdzv_state *s)
{
    char key[KEY_BYTES], text[sizeof(r->lead.text)];

    snprintf(text, sizeof(text), "%lld %d %d %d %d %d", (long long)s->round, s->complete, s->closed,
             trii_rdzv_count_participants(s), trii_rdzv_count_waiting(s), s->n);
    if (strcmp(text, r->lead.text) == 0)
        return TRI_OK;
    snprintf(r->lead.text, sizeof(r->lead.text), "%s", text);
    job_key(r, "leader", key);
    return tri_store_set(r->base, key, text, strlen(text));
}

/* --- a follower ----------------------------------------------------------- */

static void request_text(trii_rendezvous *r, char *text)
{
    snprintf(text, TEXT_BYTES, "%lld %lld %llx %llx %s", (long long)r->lead.left,
             (long long)++r->lead.beat, (unsigned long long)r->self.local_id,
             (unsigned long long)r->self.pid, r->self.addr);
}

/* A follower that is taken for dead has no request any more (was_there false): it makes another
 * one, under a new number. */
static tri_status ask_again(trii_rendezvous *r, bool was_there)
{
    char key[KEY_BYTES], text[TEXT_BYTES];
    tri_status status = was_there ? TRI_OK : trii_rdzv_unfollow(r);

    job_key(r, "requests", key);
    if (status == TRI_OK && !was_there)
        status = tri_store_add(r->base, key, 1, &r->lead.own);
    request_key(r, r->lead.own, key);
    request_text(r, text);
    if (status == TRI_OK && !was_there)
        status = tri_store_set(r->base, key, text, strlen(text));
    if (status == TRI_OK)
        r->lead.beat_ns = trii_rdzv_now(r);
    return status;
}

tri_status trii_rdzv_ask(trii_rendezvous *r)
{
    char key[KEY_BYTES], text[TEXT_BYTES];
    trii_store_call calls[] = {{.kind = TRII_STORE_CHECK, .key = key},
                               {.kind = TRII_STORE_SET, .key = key, .text = text}};
    tri_status status = TRI_OK;

    if (r->lead.own > 0) {
        request_key(r, r->lead.own, key);
        request_text(r, text);
        status = trii_store_calls(r->base, calls, 2);
    }
    return status == TRI_OK ? ask_again(r, calls[0].number != 0) : status;
}

tri_status trii_rdzv_follow(trii_rendezvous *r, trii_rdzv_led *led_out)
{
    trii_rdzv_lead *l = &r->lead;
    char leader[KEY_BYTES], own[KEY_BYTES], text[TEXT_BYTES];
    trii_store_call calls[] = {{.kind = TRII_STORE_READ, .key = leader},
                               {.kind = TRII_STORE_CHECK, .key = own},
                               {.kind = TRII_STORE_SET, .key = own, .text = text}};
    bool beats = trii_rdzv_beat_is_due(r);
    int complete = 0, closed = 0;
    long long round = TRII_RDZV_NO_ROUND;
    tri_status status;

    *led_out = (trii_rdzv_led){.is_new = false};
    job_key(r, "leader", leader);
    request_key(r, l->own, own);
    if (beats)
        request_text(r, text);
    status = trii_store_calls(r->base, calls, beats ? 3 : 1);
    if (status != TRI_OK)
        return status;
    if (calls[0].value != NULL) {
        sscanf(calls[0].value, "%lld %d %d %d %d %d", &round, &complete, &closed,
               &led_out->participants, &led_out->waiting, &led_out->nodes);
        led_out->is_new = strcmp(calls[0].value, l->text) != 0;
        snprintf(l->text, sizeof(l->text), "%s", calls[0].value);
    }
    led_out->round = round;
    led_out->complete = complete != 0;
    led_out->closed = closed != 0;
    trii_store_calls_free(calls, 1);
    trii_rdzv_answered(r);
    return beats ? ask_again(r, calls[1].number != 0) : TRI_OK;
}

bool trii_rdzv_beat_is_due(const trii_rendezvous *r)
{
    return r->lead.own > 0 && is_percent_past(r, r->lead.beat_ns, DUE_PERCENT);
}

int64_t trii_rdzv_follow_ms(const trii_rendezvous *r)
{
    return r->beat_ms * BEAT_PERCENT / 100 + 1;
}

tri_status trii_rdzv_unfollow(trii_rendezvous *r)
{
    int64_t own = r->lead.own;

    r->lead.own = 0;
    return own > 0 ? delete_request(r, own) : TRI_OK;
}
