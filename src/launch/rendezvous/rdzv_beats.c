/*
 * rdzv_beats.c - how the members of a round that is on show that they live, and see what others do,
 * at a cost that grows with their number and not with its square.
 *
 * torch's agents read the whole shared state and write their own heartbeat into it every few
 * seconds. Of ours, the first ranks do: the watchers. All others are followers: each says that it
 * lives in a key of its own, which watchers carry into the state (torchrun's agents that come later
 * judge by it), and hears as news what watchers see there. A follower that sees no watcher for a
 * while becomes one, until it sees one of a lower rank. Where torchrun's agents are in the round,
 * all are watchers.
 *
 *   trireme/ROUND/beat/RANK   a follower's: a number that grows
 *   trireme/ROUND/watched     RANK NUMBER of the watcher that looked last
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { WATCHERS = TRII_RDZV_WATCHERS, KEY_BYTES = 64 };

/* In percent of keep_alive_interval: a follower beats and a watcher carries so often, and for so
 * long the one may not see the other. Two carries and one beat fit into what makes a node dead. */
enum { FOLLOW = 80, CARRY = 50, UNWATCHED = 150 };

int64_t trii_rdzv_jitter_ms(trii_rendezvous *r, int64_t ms)
{
    if (r->jitter == 0) {
        r->jitter = (uint64_t)r->self.pid * 31 + (uint64_t)r->self.local_id;
        for (const char *c = r->self.addr; *c != '\0'; c++)
            r->jitter = r->jitter * 31 + (unsigned char)*c;
    }
    r->jitter = r->jitter * 6364136223846793005u + 1442695040888963407u;
    return ms * 9 / 10 + (int64_t)((r->jitter >> 33) % (uint64_t)(ms / 5 + 1));
}

static bool has_followers(const trii_rendezvous *r)
{
    return trii_rdzv_phase_is_on(r->phase) && r->nodes != NULL && !r->round.mixed &&
           r->round.group_size > WATCHERS;
}

static bool may_follow(const trii_rendezvous *r)
{
    return has_followers(r) && r->round.group_rank >= WATCHERS;
}

bool trii_rdzv_follows(const trii_rendezvous *r)
{
    return may_follow(r) &&
           trii_rdzv_now(r) - r->watched_seen_ns < r->beat_ms * TRII_NS_PER_MS * UNWATCHED / 100;
}

bool trii_rdzv_leads(const trii_rendezvous *r)
{
    return has_followers(r) && !trii_rdzv_follows(r);
}

int64_t trii_rdzv_follow_ms(const trii_rendezvous *r)
{
    return r->beat_ms * FOLLOW / 100 + 1;
}

void trii_rdzv_beats_begin(trii_rendezvous *r)
{
    r->watched[0] = '\0';
    r->watched_seen_ns = trii_rdzv_now(r);
    r->carried_ns = 0;
    trii_free(r->beats);
    r->beats = NULL;
}

static void beat_key(const trii_rendezvous *r, int rank, char *key)
{
    snprintf(key, KEY_BYTES, "trireme/%lld/beat/%d", (long long)r->round.number, rank);
}

static void watched_key(const trii_rendezvous *r, char *key)
{
    snprintf(key, KEY_BYTES, "trireme/%lld/watched", (long long)r->round.number);
}

tri_status trii_rdzv_follow(trii_rendezvous *r, trii_store_call *news)
{
    char beat[KEY_BYTES], watched[KEY_BYTES], number[32];
    trii_store_call calls[] = {*news,
                               {.kind = TRII_STORE_SET, .key = beat, .text = number},
                               {.kind = TRII_STORE_READ, .key = watched}};
    bool follower = may_follow(r);
    tri_status status;

    beat_key(r, r->round.group_rank, beat);
    watched_key(r, watched);
    snprintf(number, sizeof(number), "%lld", (long long)++r->n_beats);
    status = trii_store_exchange(r->kv, calls, follower ? 3 : 1, NULL, 0, 0, NULL, NULL);
    *news = calls[0];
    if (status != TRI_OK || !follower || calls[2].value == NULL)
        return status;
    /* Of several that took over, the first rank stays. */
    if (strcmp(calls[2].value, r->watched) != 0 &&
        (trii_rdzv_follows(r) || strtol(calls[2].value, NULL, 10) < r->round.group_rank)) {
        snprintf(r->watched, sizeof(r->watched), "%s", calls[2].value);
        r->watched_seen_ns = trii_rdzv_now(r);
    }
    trii_store_calls_free(&calls[2], 1);
    return TRI_OK;
}

/* --- what watchers do ----------------------------------------------------- */

/* Of each member: the number that is in the state, and behind those, what its key has now. */
static tri_status read_beats(trii_rendezvous *r)
{
    int n = r->round.group_size;
    trii_store_call *calls = trii_alloc((size_t)n, sizeof(*calls) + KEY_BYTES, "rendezvous");
    char(*keys)[KEY_BYTES] = (char(*)[KEY_BYTES])(calls + n), text[48];
    tri_status status = TRI_ERR_NO_MEMORY;

    if (r->beats == NULL) {
        r->beats = trii_alloc((size_t)n, 2 * sizeof(*r->beats), "rendezvous");
        r->beats_of = n;
    }
    if (calls != NULL && r->beats != NULL) {
        snprintf(text, sizeof(text), "%d %lld", r->round.group_rank, (long long)++r->n_beats);
        watched_key(r, keys[0]);
        calls[0] = (trii_store_call){.kind = TRII_STORE_SET, .key = keys[0], .text = text};
        for (int i = WATCHERS; i < n; i++) {
            beat_key(r, i, keys[i]);
            calls[i - WATCHERS + 1] = (trii_store_call){.kind = TRII_STORE_READ, .key = keys[i]};
        }
        status = trii_store_exchange(r->kv, calls, n - WATCHERS + 1, NULL, 0, 0, NULL, NULL);
        for (int i = WATCHERS; i < n && status == TRI_OK; i++) {
            const char *value = calls[i - WATCHERS + 1].value;

            r->beats[n + i] = value != NULL ? strtoll(value, NULL, 10) : 0;
        }
        if (status == TRI_OK)
            trii_store_calls_free(calls, n - WATCHERS + 1);
    }
    trii_free(calls);
    return status;
}

/* Another watcher may have been first, which is seen by the age of what is there. */
static bool is_stale(const trii_rendezvous *r, const trii_rdzv_entry *e, int64_t now_us)
{
    int64_t age_us = now_us > e->beat_us ? now_us - e->beat_us : e->beat_us - now_us;

    return age_us >= r->beat_ms * 1000 * CARRY / 100;
}

tri_status trii_rdzv_carry_beats(trii_rendezvous *r, trii_rdzv_state *state, bool *dirty)
{
    int64_t now = trii_rdzv_now(r), now_us = r->time->wall_ns() / 1000;
    int n = r->round.group_size;
    tri_status status;

    if (!trii_rdzv_leads(r) || now - r->carried_ns < r->beat_ms * TRII_NS_PER_MS * CARRY / 100)
        return TRI_OK;
    r->carried_ns = now;
    status = read_beats(r);
    for (int i = WATCHERS; i < n && status == TRI_OK; i++) {
        trii_rdzv_entry *e =
            r->beats[i] != r->beats[n + i] ? trii_rdzv_find(state, &r->nodes[i]) : NULL;

        if (e == NULL || !e->participant || !is_stale(r, e, now_us))
            continue;
        e->beats = true;
        e->beat_us = now_us;
        *dirty = true;
    }
    return status;
}

/* The next round may have been agreed on in between, and have another size. */
void trii_rdzv_beats_carried(trii_rendezvous *r)
{
    size_t n = (size_t)r->beats_of;

    if (r->beats != NULL)
        memcpy(r->beats, r->beats + n, n * sizeof(*r->beats));
}
