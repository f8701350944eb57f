/*
 * rdzv_join.c - how a dynamic round is formed: every node reads the shared state, decides what it
 * should do next, and tries to write the changed state, until the round is complete.
 *
 * In most jobs one node does so for the others (rdzv_lead.c), and they only take what was formed.
 *
 * The decisions are PyTorch's, so that its agents may take part, with two additions. A round after
 * the first does not wait for the end of the last call once all members that live have come back
 * and nobody else waits. And a node counts as dead when this host has not seen its heartbeat change
 * for too long: the clocks of two hosts are never compared.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "launch/rendezvous/rdzv_pickle.h"

#define POLL_MS 30       /* while a round is being formed, at first */
#define POLL_LED_MS 10   /* ... where a leader forms it: followers read one small key */
#define POLL_LONG_MS 250 /* ... after SOON_MS */
#define SOON_MS 10000
#define POLL_EACH_MS 2    /* ... and for each node that is there, */
#define POLL_MOST_MS 2000 /* ... but no more than this */
#define STEP_MS 2500      /* no agent waits longer between two looks */

static int64_t wall_us(const trii_rendezvous *r)
{
    return r->time->wall_ns() / 1000;
}

void trii_rdzv_forget(trii_rendezvous *r, const trii_rdzv_node *node)
{
    for (int i = 0; r->nodes != NULL && i < r->round.group_size; i++) {
        if (trii_rdzv_node_same(&r->nodes[i], node))
            r->nodes[i].addr[0] = '\0';
    }
}

/* --- the shared state ----------------------------------------------------- */

/* What we know of a node, which is new to us if need be; NULL: too little memory. The state keeps
 * its order from look to look, so it is mostly where the last search ended. */
static trii_rdzv_observed *observed_of(trii_rendezvous *r, const trii_rdzv_entry *e)
{
    for (int i = 0; i < r->n_observed; i++) {
        int at = (r->observed_next + i) % r->n_observed;

        if (trii_rdzv_node_same(&r->observed[at].node, &e->node)) {
            r->observed_next = at + 1;
            return &r->observed[at];
        }
    }
    if (trii_array_grow(&r->observed, &r->observed_room, r->n_observed, 64, sizeof(*r->observed),
                        "rendezvous") != TRI_OK)
        return NULL;
    r->observed_next = r->n_observed + 1;
    r->observed[r->n_observed] = (trii_rdzv_observed){.node = e->node, .beat_us = e->beat_us};
    return &r->observed[r->n_observed++];
}

/* step_ns: since our last look. */
static bool is_silent(trii_rendezvous *r, const trii_rdzv_entry *e, int64_t step_ns)
{
    trii_rdzv_observed *w = observed_of(r, e);

    if (w == NULL)
        return false;
    w->silent_ns = w->beat_us == e->beat_us && w->look != 0 ? w->silent_ns + step_ns : 0;
    w->beat_us = e->beat_us;
    w->look = r->n_looks;
    return w->silent_ns > r->dead_ms * TRII_NS_PER_MS;
}

/* Those that were not in the state this time. */
static void forget_gone(trii_rendezvous *r)
{
    for (int i = 0; i < r->n_observed; i++) {
        if (r->observed[i].look != r->n_looks)
            r->observed[i--] = r->observed[--r->n_observed];
    }
}

/* The state is mostly what it was at the last look. */
static tri_status read_state(trii_rendezvous *r, trii_rdzv_state *state_out)
{
    trii_wire_buffer raw = {0};
    tri_status status = r->backend->ops->load(r->backend, &raw);

    if (status == TRI_OK && (raw.used != r->raw.used || raw.used == 0 ||
                             memcmp(raw.data, r->raw.data, raw.used) != 0)) {
        trii_rdzv_state_fini(&r->state);
        if (raw.used > 0)
            status = trii_rdzv_pickle_read(raw.data, raw.used, &r->state);
        trii_wire_buffer_fini(&r->raw);
        if (status == TRI_OK) {
            r->raw = raw;
            raw = (trii_wire_buffer){0};
        }
    }
    trii_wire_buffer_fini(&raw);
    return status == TRI_OK ? trii_rdzv_state_copy(&r->state, state_out) : status;
}

/* Reads it and takes out the silent nodes. dirty_out: it was changed. */
static tri_status load(trii_rendezvous *r, trii_rdzv_state *state, bool *dirty_out)
{
    tri_status status;
    int64_t now, step_ns;

    trii_rdzv_state_init(state);
    status = read_state(r, state);
    now = trii_rdzv_now(r);
    step_ns = now - r->looked_ns;

    /* The store did not answer for a while, or we did not run: then nobody was silent. */
    if (step_ns > STEP_MS * TRII_NS_PER_MS)
        step_ns = 0;
    r->looked_ns = now;
    *dirty_out = false;
    if (status != TRI_OK)
        return status;
    trii_rdzv_answered(r);
    r->n_looks++;
    r->observed_next = 0;
    for (int i = 0; i < state->n; i++) {
        trii_rdzv_node node = state->entries[i].node;

        if (trii_rdzv_node_same(&node, &r->self) || !is_silent(r, &state->entries[i], step_ns))
            continue;
        trii_rdzv_remove(state, &node, r->options->min_nodes);
        trii_rdzv_forget(r, &node);
        *dirty_out = true;
        i--; /* another is there now */
    }
    forget_gone(r);
    return TRI_OK;
}

static tri_status save(trii_rendezvous *r, const trii_rdzv_state *state, bool *won_out)
{
    trii_wire_buffer raw = {0};
    tri_status status = TRI_ERR_NO_MEMORY;

    trii_rdzv_pickle_write(state, &raw);
    if (!raw.failed)
        status = r->backend->ops->swap(r->backend, raw.data, raw.used, won_out);
    trii_wire_buffer_fini(&raw);
    return status;
}

static bool beat_if_due(trii_rendezvous *r, trii_rdzv_state *state)
{
    trii_rdzv_entry *self = trii_rdzv_find(state, &r->self);

    if (self == NULL || trii_rdzv_now(r) - r->beat_ns < r->beat_ms * TRII_NS_PER_MS)
        return false;
    self->beats = true;
    self->beat_us = wall_us(r);
    return true;
}

/* The state may still be about a node that was in that round. */
static bool is_recent(const trii_rdzv_state *s, int64_t round)
{
    return s->complete ? s->round <= round : s->round <= round + 1;
}

tri_status trii_rdzv_change(trii_rendezvous *r, const trii_rdzv_node *remove, int64_t round,
                            bool close)
{
    trii_rdzv_state state;
    tri_status status = TRI_OK;
    bool won = false;

    while (status == TRI_OK && !won) {
        const trii_rdzv_entry *e;
        bool dirty;

        status = load(r, &state, &dirty);
        if (status != TRI_OK)
            break;
        e = remove != NULL ? trii_rdzv_find(&state, remove) : NULL;
        if (e != NULL && is_recent(&state, round) && !trii_rdzv_is_left_to_end(&state, e)) {
            trii_rdzv_remove(&state, remove, r->options->min_nodes);
            dirty = true;
        }
        if (close && !state.closed) {
            state.closed = true;
            dirty = true;
        }
        won = !dirty;
        if (dirty)
            status = save(r, &state, &won);
        if (status == TRI_OK && won && r->lead.leads)
            status = trii_rdzv_lead_publish(r, &state);
        trii_rdzv_state_fini(&state);
    }
    return status;
}

/* --- deciding ------------------------------------------------------------- */

static bool have_all_come(const trii_rendezvous *r, const trii_rdzv_state *state)
{
    for (int i = 0; i < r->round.group_size; i++) {
        const trii_rdzv_entry *e = trii_rdzv_find(state, &r->nodes[i]);

        /* An empty address: known to be gone. A node that comes back is not there for a moment. */
        if (r->nodes[i].addr[0] != '\0' && (e == NULL || !e->participant))
            return false;
    }
    return true;
}

/* All members of the round before this one that live are here again, and nobody else wants to join.
 * Only a member of that round can know. */
static bool is_reunion(const trii_rendezvous *r, const trii_rdzv_state *state)
{
    return r->nodes != NULL && state->round == r->round.number + 1 &&
           trii_rdzv_count_waiting(state) == 0 && have_all_come(r, state);
}

/* Whether the last call is over. The state says when it ends, by the clock of the host that set it.
 * If by our own clock that is in the past, or farther away than a whole last call, the clocks
 * differ: then it ends a whole last call after we first saw it. */
static bool is_last_call_over(trii_rendezvous *r, const trii_rdzv_state *s)
{
    int64_t now = trii_rdzv_now(r), left_us;

    if (!s->has_deadline)
        return false;
    if (s->deadline_us != r->call_us || r->call_ns == 0) {
        left_us = s->deadline_us - wall_us(r);
        if (left_us < 0 || left_us > r->last_call_ms * 1000)
            left_us = r->last_call_ms * 1000;
        r->call_us = s->deadline_us;
        r->call_ns = now + left_us * 1000;
    }
    return now > r->call_ns;
}

/* What we do now, if we join, and a leader for its followers. */
static tri_status decide(trii_rendezvous *r, trii_rdzv_state *s, bool joins, bool *dirty)
{
    const trii_rdzv_entry *self = trii_rdzv_find(s, &r->self);
    bool was_in = !s->complete && (r->lead.leads || (self != NULL && self->participant));
    tri_status status =
        joins ? trii_rdzv_want(s, &r->self, r->lead.left, &r->rules, wall_us(r), dirty) : TRI_OK;

    if (status == TRI_OK && r->lead.leads)
        status = trii_rdzv_lead_decide(r, s, dirty);
    if (status == TRI_OK && was_in && !s->complete &&
        trii_rdzv_count_participants(s) >= r->options->min_nodes &&
        (is_last_call_over(r, s) || is_reunion(r, s))) {
        trii_rdzv_complete(s);
        *dirty = true;
    }
    return status;
}

/* Writes into the state that we live, what we want if we join, and what followers want. *won_out
 * false: another agent was faster, and nothing of it counts. */
static tri_status act(trii_rendezvous *r, trii_rdzv_state *s, bool joins, bool dirty, bool *won_out)
{
    bool beat;
    tri_status status = r->lead.leads ? trii_rdzv_lead_read(r) : TRI_OK;

    *won_out = true;
    if (status == TRI_OK)
        status = decide(r, s, joins, &dirty);
    beat = status == TRI_OK && beat_if_due(r, s);
    if (status == TRI_OK && (dirty || beat))
        status = save(r, s, won_out);
    if (status != TRI_OK || !*won_out)
        return status;
    if (beat)
        r->beat_ns = trii_rdzv_now(r);
    if (r->lead.leads) {
        trii_rdzv_lead_written(r);
        status = trii_rdzv_lead_publish(r, s);
    }
    return status;
}

tri_status trii_rdzv_look(trii_rendezvous *r, trii_rdzv_state *state_out)
{
    trii_rdzv_state state;
    bool dirty, won;
    tri_status status = load(r, &state, &dirty);

    if (status == TRI_OK)
        status = act(r, &state, false, dirty, &won);
    if (status == TRI_OK)
        *state_out = state;
    else
        trii_rdzv_state_fini(&state);
    return status;
}

/* --- joining -------------------------------------------------------------- */

static void note_full(trii_rendezvous *r, const trii_rdzv_state *s)
{
    char text[TRII_ERR_BYTES];

    snprintf(text, sizeof(text), "job %s has its %d hosts; waiting for a place", r->id,
             trii_rdzv_count_participants(s));
    trii_rdzv_emit_kind(r, TRII_RDZV_NOTE, text);
}

static tri_status too_late(trii_rendezvous *r, const trii_rdzv_state *s)
{
    int n = trii_rdzv_count_participants(s);
    char why[TRII_ERR_BYTES] = "";
    bool found = trii_own_address_verdict(r->own, why, sizeof(why)) != TRII_OWN_NOBODY;
    tri_status status = r->lead.follows ? trii_rdzv_unfollow(r)
                                        : trii_rdzv_change(r, &r->self, TRII_RDZV_ANY_ROUND, false);

    (void)status; /* the store is gone too: they will see it */
    if (s->complete)
        return TRII_FAIL(TRI_ERR_TIMEOUT,
                         "rendezvous of job %s: its %d hosts did not let us in within %g s", r->id,
                         n, (double)r->join_ms / 1000);
    return TRII_FAIL(TRI_ERR_TIMEOUT,
                     "rendezvous of job %s: %d of at least %d hosts joined within %g s%s%s", r->id,
                     n, r->options->min_nodes, (double)r->join_ms / 1000, found ? "" : "; ",
                     found ? "" : why);
}

/* We want a round after that one. */
static tri_status leave_round(trii_rendezvous *r, int64_t round)
{
    r->lead.left = round;
    return r->lead.follows ? trii_rdzv_ask(r) : TRI_OK;
}

/* The round is complete and we are in: its members, and our rank. INPROGRESS: one of them
 * has left already, since it is over before we saw that it began; so have we now. */
static tri_status take_round(trii_rendezvous *r, const trii_rdzv_state *s)
{
    int n = trii_rdzv_count_participants(s), rank = 0;
    trii_rdzv_node *nodes = trii_alloc((size_t)n, sizeof(*nodes), "rendezvous");

    if (nodes == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < s->n; i++) {
        const trii_rdzv_entry *e = &s->entries[i];

        if (!e->participant)
            continue;
        if (e->rank < 0 || e->rank >= n) {
            tri_status status = leave_round(r, s->round);

            trii_free(nodes);
            return status == TRI_OK ? TRI_INPROGRESS : status;
        }
        nodes[e->rank] = e->node;
        if (trii_rdzv_node_same(&e->node, &r->self))
            rank = (int)e->rank;
    }
    trii_free(r->nodes);
    r->nodes = nodes;
    r->round.group_rank = rank;
    r->round.number = s->round;
    r->round.group_size = n;
    return TRI_OK;
}

static tri_status act_and_take(trii_rendezvous *r, trii_rdzv_state *s, bool dirty)
{
    const trii_rdzv_entry *self;
    bool won;
    tri_status status =
        r->phase == TRII_RDZV_APPLYING && !r->lead.leads ? trii_rdzv_agrees_with_all(r, s) : TRI_OK;

    if (status == TRI_OK)
        status = act(r, s, true, dirty, &won);
    if (status != TRI_OK)
        return status;
    self = trii_rdzv_find(s, &r->self);
    atomic_store(&r->came,
                 self != NULL && self->participant ? trii_rdzv_count_participants(s) : -1);
    if (!won)
        return TRI_INPROGRESS;
    /* agents that come later find us there */
    trii_rdzv_enter(r, TRII_RDZV_JOINING);
    return s->complete && self != NULL && trii_rdzv_is_in(s, self, r->lead.left) ? take_round(r, s)
                                                                                 : TRI_INPROGRESS;
}

/* One look, and unless we follow, one attempt to write. INPROGRESS: not yet. */
static tri_status step(trii_rendezvous *r, int64_t *deadline)
{
    trii_rdzv_state s;
    bool dirty, was_redundant = r->redundant;
    const trii_rdzv_entry *self;
    tri_status status = load(r, &s, &dirty);

    if (status != TRI_OK)
        return status;
    self = trii_rdzv_find(&s, &r->self);
    r->redundant = self != NULL && self->redundant;
    if (r->redundant) /* however long it takes until there is a place */
        *deadline = trii_rdzv_deadline(r, r->join_ms);
    if (r->redundant && !was_redundant)
        note_full(r, &s);
    if (s.closed)
        status = r->redundant
                     ? TRII_FAIL(TRI_END, "job %s is over; it had enough hosts without us", r->id)
                     : TRII_FAIL(TRI_ERR_STATE, "rendezvous of job %s is closed: the job is over",
                                 r->id);
    else if (self != NULL && trii_rdzv_is_in(&s, self, r->lead.left))
        status = take_round(r, &s);
    else if (trii_rdzv_now(r) > *deadline)
        status = too_late(r, &s);
    else
        status = r->lead.follows ? TRI_INPROGRESS : act_and_take(r, &s, dirty);
    trii_rdzv_state_fini(&s);
    return status;
}

/* The leader says when there is something for us in the state. */
static tri_status follow(trii_rendezvous *r, int64_t *deadline)
{
    trii_rdzv_led led;
    tri_status status = trii_rdzv_follow(r, &led);

    if (status != TRI_OK)
        return status;
    r->lead.n_nodes = led.nodes;
    if (led.participants > 0)
        atomic_store(&r->came, r->redundant ? -1 : led.participants);
    if (r->redundant)
        *deadline = trii_rdzv_deadline(r, r->join_ms);
    if ((led.is_new && (led.closed || (led.complete && led.round != r->lead.left))) ||
        trii_rdzv_now(r) > *deadline)
        return step(r, deadline);
    return TRI_INPROGRESS;
}

/* The store of many agents would be asked more often than it can answer. */
static int64_t poll_ms(const trii_rendezvous *r, int64_t start_ns)
{
    bool soon = trii_rdzv_now(r) - start_ns < SOON_MS * TRII_NS_PER_MS;
    bool led = r->lead.leads || r->lead.follows;
    int64_t least = !soon ? POLL_LONG_MS : led ? POLL_LED_MS : POLL_MS;
    int64_t most = r->lead.leads ? POLL_LONG_MS : POLL_MOST_MS;
    int64_t many = POLL_EACH_MS * (r->lead.follows ? r->lead.n_nodes : r->n_observed);

    if (many < least)
        return least;
    return many < most ? many : most;
}

tri_status trii_rdzv_join_dynamic(trii_rendezvous *r)
{
    int64_t start = trii_rdzv_now(r), deadline = trii_rdzv_deadline(r, r->join_ms);
    tri_status status;

    tri_store_unref(r->kv);
    r->kv = NULL;
    r->redundant = false;
    r->lead.text[0] = r->lead.follows ? '\0' : r->lead.text[0]; /* whatever it says is new */
    status = leave_round(r, r->nodes != NULL ? r->round.number : TRII_RDZV_NO_ROUND);
    if (status == TRI_OK && r->lead.follows)
        trii_rdzv_enter(r, TRII_RDZV_JOINING); /* from now on others may see us */
    atomic_store(&r->met, 0);
    while (status == TRI_OK || status == TRI_INPROGRESS) {
        if (trii_rdzv_interrupted(r))
            return TRI_ERR_STATE;
        status = trii_rdzv_check_own(r);
        if (status == TRI_OK)
            status = r->lead.follows ? follow(r, &deadline) : step(r, &deadline);
        if (status != TRI_INPROGRESS)
            break;
        trii_rdzv_pause_about(r, poll_ms(r, start));
        trii_rdzv_take_losses(r);
    }
    return status == TRI_OK ? trii_rdzv_round_store(r, r->round.number, &r->kv) : status;
}
