/*
 * rdzv_lead.c - how very many agents join at a cost that grows with their number: one of them, the
 * leader, reads and writes the shared state for all (rdzv_join.c). The others ask for that by a key
 * of their own, show by it that they live, and see in the leader's key when to look at the state:
 * once, when the round is formed.
 *
 *   trireme/ID/leader        STATE PRIORITY FROM BEAT NODES MIN MAX LOCAL_ID PID ADDR
 *   trireme/ID/requests      how many there were so far
 *   trireme/ID/request/N     ROUND MIN MAX LOCAL_ID PID BEAT ADDR: takes part, after it left ROUND
 *
 * Requests up to FROM are of earlier rounds. Who finds no leader, or a silent one, becomes it; so
 * does a member of the last round where the leader was not in it, and of those one of the first
 * ranks, which know who has been silent (rdzv_beats.c). Whoever does not agree with the leader's
 * --nnodes acts on its own, and so do all agents of a small job and torchrun's.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "store/exchange.h"

enum {
    SMALL_JOB = 16, /* hosts: so many may act on their own */
    SILENT_MS = 4000,
    KEY_BYTES = sizeof(((trii_rendezvous *)NULL)->id) + 48,
    READ_PERCENT = 50, /* of keep_alive_interval: how often all requests are read for their beats */
    BEAT_PERCENT = 80  /* ... and how often an agent that waits beats */
};

/* The leader's key. */
typedef enum leader_state {
    LEADER_NONE = 0,
    LEADER_FORMING = 'L',
    LEADER_FORMED = 'F', /* look at the state */
    LEADER_LEFT = 'V'    /* somebody else may go on */
} leader_state;

typedef struct leader_line {
    char state;
    long long priority, from;
    int nodes, min, max;
} leader_line;

bool trii_rdzv_is_led(const trii_rendezvous *r)
{
    return r->options->max_nodes > SMALL_JOB;
}

static void base_key(const trii_rendezvous *r, const char *name, char *key)
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

void trii_rdzv_lead_begin(trii_rendezvous *r)
{
    trii_rdzv_lead *l = &r->lead;

    l->leads = false;
    l->text[0] = '\0';
    l->own = 0;
    l->n = 0;
    l->checked = false;
    l->n_nodes = 0;
    l->left = r->nodes != NULL && trii_rdzv_is_led(r) ? r->round.number : TRII_RDZV_NO_ROUND;
}

/* --- the leader's key ----------------------------------------------------- */

static long long priority_of(const trii_rendezvous *r)
{
    if (r->lead.left == TRII_RDZV_NO_ROUND)
        return 0;
    return 2 * (r->lead.left + 1) + (r->round.group_rank < TRII_RDZV_WATCHERS);
}

static leader_line parse_leader(const char *text)
{
    leader_line line = {.state = LEADER_NONE};
    long long beat;

    if (sscanf(text, "%c %lld %lld %lld %d %d %d", &line.state, &line.priority, &line.from, &beat,
               &line.nodes, &line.min, &line.max) != 7)
        line.state = LEADER_NONE;
    return line;
}

static void take_leader(trii_rendezvous *r, const char *text)
{
    trii_rdzv_lead *l = &r->lead;

    if (strcmp(text, l->text) == 0)
        return;
    snprintf(l->text, sizeof(l->text), "%s", text);
    l->seen_ns = trii_rdzv_now(r);
}

/* Replaces what was there at the last look; *won_out false: somebody else did. */
static tri_status write_leader(trii_rendezvous *r, leader_state state, bool *won_out)
{
    trii_rdzv_lead *l = &r->lead;
    char key[KEY_BYTES], text[sizeof(l->text)];
    const leader_line before = parse_leader(l->text);
    void *value;
    tri_status status;

    snprintf(text, sizeof(text), "%c %lld %lld %lld %d %d %d %lld %lld %s", state, priority_of(r),
             (long long)l->from, (long long)++r->n_beats, l->leads ? l->n_nodes : before.nodes,
             r->options->min_nodes, r->options->max_nodes, (long long)r->self.local_id,
             (long long)r->self.pid, r->self.addr);
    base_key(r, "leader", key);
    status = tri_store_compare_set(r->base, key, l->text, strlen(l->text), text, strlen(text),
                                   &value, NULL);
    if (status != TRI_OK)
        return status;
    *won_out = strcmp(value, text) == 0;
    take_leader(r, value);
    tri_store_free(value);
    return TRI_OK;
}

/* --- who leads ------------------------------------------------------------ */

static void take_request(trii_rendezvous *r, trii_rdzv_request *q, const char *text)
{
    long long round, local_id, pid, beat;
    trii_rdzv_node node = {0};
    int min, max;

    if (text == NULL) {
        q->withdrawn = q->node.addr[0] != '\0'; /* else it is being written */
        return;
    }
    q->withdrawn = false; /* it lives, and has written its request again */
    if (sscanf(text, "%lld %d %d %lld %lld %lld %255s", &round, &min, &max, &local_id, &pid, &beat,
               node.addr) != 7 ||
        min != r->options->min_nodes || max != r->options->max_nodes)
        return;
    node.pid = pid;
    node.local_id = local_id;
    if (q->node.addr[0] != '\0' && beat != q->beat) {
        q->beats = true;
        q->carried = false; /* if it was taken for dead, it is not */
    }
    q->node = node;
    q->left = round;
    q->beat = beat;
}

/* Reads all that `which` is true of. */
static tri_status read_some(trii_rendezvous *r, bool (*which)(const trii_rdzv_request *q))
{
    trii_rdzv_lead *l = &r->lead;
    trii_store_call *calls =
        trii_alloc((size_t)l->n + 1, sizeof(*calls) + KEY_BYTES, "rendezvous requests");
    char(*keys)[KEY_BYTES] = (char(*)[KEY_BYTES])(calls + l->n + 1);
    tri_status status = TRI_OK;
    int n = 0, at = 0;

    if (calls == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < l->n; i++) {
        if (!which(&l->requests[i]))
            continue;
        request_key(r, l->requests[i].number, keys[n]);
        calls[n] = (trii_store_call){.kind = TRII_STORE_READ, .key = keys[n]};
        n++;
    }
    if (n > 0)
        status = trii_store_exchange(r->base, calls, n, NULL, 0, 0, NULL, NULL);
    for (int i = 0; i < l->n && n > 0 && status == TRI_OK; i++) {
        if (which(&l->requests[i]))
            take_request(r, &l->requests[i], calls[at++].value);
    }
    if (status == TRI_OK)
        trii_store_calls_free(calls, n);
    trii_free(calls);
    return status;
}

static bool is_any(const trii_rdzv_request *q)
{
    (void)q;
    return true;
}

static bool is_unread(const trii_rdzv_request *q)
{
    return q->node.addr[0] == '\0';
}

static bool is_added(const trii_rdzv_request *q)
{
    return q->added;
}

/* Adds those that came since the last look, and reads them; now and then all, for their beats. */
static tri_status read_requests(trii_rendezvous *r)
{
    trii_rdzv_lead *l = &r->lead;
    char key[KEY_BYTES];
    trii_store_call call = {.kind = TRII_STORE_READ, .key = key};
    bool all = is_percent_past(r, l->read_ns, READ_PERCENT);
    int64_t requests;
    tri_status status;

    base_key(r, "requests", key);
    status = trii_store_exchange(r->base, &call, 1, NULL, 0, 0, NULL, NULL);
    if (status != TRI_OK)
        return status;
    requests = call.value != NULL ? strtoll(call.value, NULL, 10) : 0;
    trii_store_calls_free(&call, 1);
    while (l->n_known < requests) {
        if (trii_array_grow(&l->requests, &l->room, l->n, 64, sizeof(*l->requests), "rendezvous") !=
            TRI_OK)
            return TRI_ERR_NO_MEMORY;
        l->requests[l->n++] = (trii_rdzv_request){.number = ++l->n_known};
    }
    if (all)
        l->read_ns = trii_rdzv_now(r);
    return read_some(r, all ? is_any : is_unread);
}

tri_status trii_rdzv_lead_drop(trii_rendezvous *r, trii_rdzv_request *q)
{
    char key[KEY_BYTES];
    bool existed;

    q->withdrawn = true;
    request_key(r, q->number, key);
    return tri_store_delete(r->base, key, &existed);
}

tri_status trii_rdzv_lead_check(trii_rendezvous *r)
{
    return read_some(r, is_added);
}

/* --- who follows ---------------------------------------------------------- */

static void request_text(const trii_rendezvous *r, char *text, size_t bytes)
{
    snprintf(text, bytes, "%lld %d %d %lld %lld %lld %s", (long long)r->lead.left,
             r->options->min_nodes, r->options->max_nodes, (long long)r->self.local_id,
             (long long)r->self.pid, (long long)r->n_beats, r->self.addr);
}

/* Takes our request back, if there is one. */
static tri_status withdraw_request(trii_rendezvous *r)
{
    char key[KEY_BYTES];
    bool existed;

    if (r->lead.own == 0)
        return TRI_OK;
    request_key(r, r->lead.own, key);
    r->lead.own = 0;
    return tri_store_delete(r->base, key, &existed);
}

static tri_status request(trii_rendezvous *r)
{
    trii_rdzv_lead *l = &r->lead;
    char key[KEY_BYTES], text[TRII_RDZV_ADDR_BYTES + 120];
    int64_t number;
    tri_status status;

    base_key(r, "requests", key);
    status = tri_store_add(r->base, key, 1, &number);
    if (status != TRI_OK)
        return status;
    request_key(r, number, key);
    request_text(r, text, sizeof(text));
    status = tri_store_set(r->base, key, text, strlen(text));
    if (status != TRI_OK)
        return status;
    l->own = number;
    l->own_ns = trii_rdzv_now(r);
    trii_rdzv_enter(r, TRII_RDZV_JOINING); /* from now on others may see us */
    return TRI_OK;
}

/* What the leader has said, and in the same exchange we show that we live. */
static tri_status read_leader(trii_rendezvous *r, int64_t *requests_out)
{
    trii_rdzv_lead *l = &r->lead;
    char leader[KEY_BYTES], counter[KEY_BYTES], own[KEY_BYTES], text[TRII_RDZV_ADDR_BYTES + 120];
    trii_store_call calls[] = {{.kind = TRII_STORE_READ, .key = leader},
                               {.kind = TRII_STORE_READ, .key = counter},
                               {.kind = TRII_STORE_SET, .key = own, .text = text}};
    bool beats = l->own > 0 && is_percent_past(r, l->own_ns, BEAT_PERCENT);
    tri_status status;

    base_key(r, "leader", leader);
    base_key(r, "requests", counter);
    request_key(r, l->own, own);
    r->n_beats += beats;
    request_text(r, text, sizeof(text));
    status = trii_store_exchange(r->base, calls, 2 + beats, NULL, 0, 0, NULL, NULL);
    if (status != TRI_OK)
        return status;
    if (beats)
        l->own_ns = trii_rdzv_now(r);
    *requests_out = calls[1].value != NULL ? strtoll(calls[1].value, NULL, 10) : 0;
    take_leader(r, calls[0].value != NULL ? calls[0].value : "");
    trii_store_calls_free(calls, 2);
    return TRI_OK;
}

/* requests: how many there are. Whoever is as fast as we are may win. */
static tri_status become_leader(trii_rendezvous *r, int64_t from, trii_rdzv_turn *turn_out)
{
    trii_rdzv_lead *l = &r->lead;
    tri_status status;

    l->from = l->n_known = from;
    l->n = 0;
    l->read_ns = 0;
    l->met = false;
    status = write_leader(r, LEADER_FORMING, &l->leads);
    if (status != TRI_OK || !l->leads)
        return status;
    *turn_out = TRII_RDZV_WRITES;
    return withdraw_request(r); /* the next leader would add us, even if we were gone by then */
}

static tri_status follow(trii_rendezvous *r, trii_rdzv_turn *turn_out)
{
    trii_rdzv_lead *l = &r->lead;
    leader_line line;
    int64_t requests = 0;
    tri_status status = read_leader(r, &requests);

    if (status != TRI_OK)
        return status;
    line = parse_leader(l->text);
    if (l->own > 0 && (line.state == LEADER_FORMED || l->own <= line.from)) {
        *turn_out = TRII_RDZV_READS; /* are we in it? */
        return withdraw_request(r);
    }
    if (line.state == LEADER_NONE || line.state == LEADER_FORMED)
        return become_leader(r, requests, turn_out);
    if (trii_rdzv_now(r) - l->seen_ns > SILENT_MS * TRII_NS_PER_MS && !l->checked) {
        *turn_out = TRII_RDZV_READS; /* it may have formed the round, and died */
        l->checked = true;
        return TRI_OK;
    }
    if (line.state == LEADER_LEFT || line.priority < priority_of(r) ||
        trii_rdzv_now(r) - l->seen_ns > SILENT_MS * TRII_NS_PER_MS)
        return become_leader(r, line.from, turn_out);
    l->checked = false;
    l->n_nodes = line.nodes;
    if (line.min != r->options->min_nodes || line.max != r->options->max_nodes)
        *turn_out = TRII_RDZV_WRITES; /* finds out by itself what is wrong */
    else if (l->own == 0)
        status = request(r);
    return status;
}

/* --- one look ------------------------------------------------------------- */

tri_status trii_rdzv_lead_look(trii_rendezvous *r, trii_rdzv_turn *turn_out)
{
    trii_rdzv_lead *l = &r->lead;
    tri_status status = TRI_OK;

    *turn_out = TRII_RDZV_WAITS;
    if (l->leads && l->met) { /* all who have asked look, and ask again if they are not in it */
        l->from = l->n_known;
        l->n = 0;
        l->met = false;
    }
    if (r->lead.leads)
        status = write_leader(r, LEADER_FORMING, &r->lead.leads);
    if (status == TRI_OK && !r->lead.leads)
        return follow(r, turn_out);
    *turn_out = TRII_RDZV_WRITES;
    return status == TRI_OK ? read_requests(r) : status;
}

void trii_rdzv_lead_end(trii_rendezvous *r, bool formed)
{
    bool won;
    tri_status status = r->lead.leads ? write_leader(r, formed ? LEADER_FORMED : LEADER_LEFT, &won)
                                      : withdraw_request(r);

    (void)status; /* a leader that says nothing is replaced */
    r->lead.leads = false;
}
