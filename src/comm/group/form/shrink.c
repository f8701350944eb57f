/*
 * shrink.c - the ranks that are left of a group that failed, as a new group.
 *
 * They agree in the store of the old group, in rounds, and every round ends for all of them in one
 * way, so that there are never two groups. Keys of round N, below shrink/N/:
 *
 *   alive/R  rank R is here
 *   members  who is in the new group, '1' or '0' for each rank. A rank that sees that all are here
 *            but the lost ones, or that nobody came for long, proposes it, and the first proposal
 *            holds. All '0': too few are left
 *   formed   how many members have the new group
 *   outcome  "made": all have it; "again": one of them is lost, and the members that are left go on
 *            with the next round; "failed": it cannot be made. Written by the rank that knows first
 */
/* build: leaf */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"

#define LOOK_MS 2 /* between two looks at first; doubled until it is LOOK_MAX_MS */
#define LOOK_MAX_MS 50
#define FORM_MS 30000 /* all members wait for nothing else */

typedef struct shrinking {
    tri_group *group;
    tri_store *clone;
    tri_store *store; /* this round's keys */
    char key[32];     /* where they are */
    int round;
    int min_size;
    int64_t grace_ns, deadline_ns;
    bool *may, *here; /* [size]: be in the group; said so */
    int n_may;
} shrinking;

static tri_status is_there(const shrinking *s, const char *key, bool *there_out)
{
    const char *const keys[] = {key};

    return tri_store_check(s->store, keys, 1, there_out);
}

static bool is_over(const shrinking *s)
{
    return trii_now_ns() >= s->deadline_ns;
}

/* --- who is here ---------------------------------------------------------- */

/* *n_open_out: those that may still come. */
static tri_status look_who_is_here(shrinking *s, int *n_here_out, int *n_open_out)
{
    *n_here_out = *n_open_out = 0;
    for (int r = 0; r < s->group->size; r++) {
        char key[32];
        tri_status status = TRI_OK;
        trii_loss loss;

        if (!s->may[r])
            continue;
        snprintf(key, sizeof(key), "alive/%d", r);
        if (!s->here[r])
            status = is_there(s, key, &s->here[r]);
        if (status != TRI_OK)
            return status;
        loss = trii_group_loss(s->group, r);
        if (loss == TRII_LOSS_ENDED)
            s->here[r] = false;
        *n_here_out += s->here[r];
        *n_open_out += !s->here[r] && loss == TRII_LOSS_NONE;
    }
    return TRI_OK;
}

/* Until all that can come are here, somebody proposed, or nobody came for too long. */
static tri_status wait_for_all(shrinking *s, int *n_here_out)
{
    static const char *const decided[] = {"members"};
    /* a rank in a second round was here a moment ago */
    int64_t grace_ns = s->round > 1 && s->grace_ns > FORM_MS * TRII_NS_PER_MS
                           ? FORM_MS * TRII_NS_PER_MS
                           : s->grace_ns;
    int64_t quiet_ns = trii_deadline_after(trii_now_ns(), grace_ns), pause_ms = LOOK_MS;
    int before = 0;

    for (;;) {
        int n_open = 0;
        bool is_decided = false;
        tri_status status = look_who_is_here(s, n_here_out, &n_open);

        if (status == TRI_OK)
            status = is_there(s, decided[0], &is_decided);
        if (status != TRI_OK || is_decided || n_open == 0)
            return status;
        if (*n_here_out > before)
            quiet_ns = trii_deadline_after(trii_now_ns(), grace_ns);
        before = *n_here_out;
        if (trii_now_ns() >= quiet_ns || is_over(s))
            return TRI_OK;
        status = tri_store_wait(s->store, decided, 1, pause_ms); /* a nap that a decision ends */
        if (status != TRI_OK && status != TRI_ERR_TIMEOUT)
            return status;
        pause_ms = pause_ms * 2 < LOOK_MAX_MS ? pause_ms * 2 : LOOK_MAX_MS;
    }
}

/* Proposes who is here; then s->may and n_may are those of the proposal that holds. */
static tri_status decide(shrinking *s, int n_here)
{
    size_t size = (size_t)s->group->size, bytes = 0;
    char *mine = trii_alloc(size + 1, 1, "group_shrink"), *held = NULL;
    tri_status status;

    if (mine == NULL)
        return TRI_ERR_NO_MEMORY;
    for (size_t r = 0; r < size; r++)
        mine[r] = s->here[r] && n_here >= s->min_size ? '1' : '0';
    status = tri_store_compare_set(s->store, "members", "", 0, mine, size, (void **)&held, &bytes);
    trii_free(mine);
    if (status == TRI_OK && bytes != size)
        status = TRII_FAIL(TRI_ERR_FORMAT, "%zu bytes of members, not %zu", bytes, size);
    s->n_may = 0;
    for (size_t r = 0; r < size && status == TRI_OK; r++) {
        s->may[r] = held[r] == '1';
        s->n_may += s->may[r];
    }
    tri_store_free(held);
    if (status != TRI_OK || s->may[s->group->rank])
        return status;
    if (s->n_may == 0)
        return TRII_FAIL(TRI_ERR_PEER_LOST,
                         "of %d ranks %d are left, fewer than min_size, which is %d",
                         s->group->size, n_here, s->min_size);
    return TRII_FAIL(
        TRI_ERR_PEER_LOST,
        "the others continued without this rank, since it came too late (grace_ms is %" PRId64 ")",
        s->grace_ns / TRII_NS_PER_MS);
}

/* --- the group ------------------------------------------------------------ */

static bool has_lost_member(const shrinking *s)
{
    for (int r = 0; r < s->group->size; r++) {
        if (s->may[r] && trii_group_loss(s->group, r) == TRII_LOSS_ENDED)
            return true;
    }
    return false;
}

static tri_status make(const shrinking *s, const tri_group_options *opt, tri_group **group_out)
{
    tri_group *g = s->group;
    trii_subgroup sub = {.key = s->key, .own_key = true, .timeout_ns = FORM_MS * TRII_NS_PER_MS};

    sub.own_world_ranks = trii_alloc((size_t)g->size, sizeof(int), "group_shrink");
    for (int r = 0; r < g->size; r++) {
        if (!s->may[r])
            continue;
        sub.rank = r == g->rank ? sub.size : sub.rank;
        if (sub.own_world_ranks != NULL)
            sub.own_world_ranks[sub.size] = tri_group_world_rank(g, r);
        sub.size++;
    }
    return trii_group_make(g, &sub, opt, group_out);
}

static tri_status write_outcome(const shrinking *s, const char *outcome)
{
    void *held = NULL;
    tri_status status =
        tri_store_compare_set(s->store, "outcome", "", 0, outcome, strlen(outcome), &held, NULL);

    tri_store_free(held);
    return status;
}

/* Until somebody has said it, which every rank that sees a member's end does. */
static tri_status await_outcome(const shrinking *s, char text_out[8])
{
    static const char *const keys[] = {"outcome"};
    size_t bytes = 0;
    void *value = NULL;
    tri_status status;

    while ((status = tri_store_wait(s->store, keys, 1, LOOK_MAX_MS)) == TRI_ERR_TIMEOUT) {
        if (has_lost_member(s) || is_over(s))
            status = write_outcome(s, "again");
        if (status != TRI_OK && status != TRI_ERR_TIMEOUT)
            return status;
    }
    if (status == TRI_OK)
        status = tri_store_get(s->store, keys[0], 0, &value, &bytes);
    if (status != TRI_OK)
        return status;
    snprintf(text_out, 8, "%.*s", (int)(bytes < 7 ? bytes : 7), (const char *)value);
    tri_store_free(value);
    return TRI_OK;
}

/* Forms the group of those that may; INPROGRESS: the next round will. */
static tri_status form(const shrinking *s, const tri_group_options *opt, tri_group **group_out)
{
    tri_group *made = NULL;
    char outcome[8] = "", line[TRII_ERR_BYTES];
    int64_t n = 0;
    tri_status mine = make(s, opt, &made), status = TRI_OK;

    snprintf(line, sizeof(line), "%s",
             mine != TRI_OK ? tri_last_error() : "another rank could not form the group");
    if (mine == TRI_OK)
        status = tri_store_add(s->store, "formed", 1, &n);
    if (mine != TRI_OK)
        status =
            write_outcome(s, mine == TRI_ERR_TIMEOUT || has_lost_member(s) ? "again" : "failed");
    else if (status == TRI_OK && n == s->n_may)
        status = write_outcome(s, "made");
    if (status == TRI_OK)
        status = await_outcome(s, outcome);
    if (status == TRI_OK && mine == TRI_OK && strcmp(outcome, "made") == 0) {
        *group_out = made;
        return TRI_OK;
    }
    tri_group_unref(made);
    if (status != TRI_OK)
        return status;
    if (strcmp(outcome, "again") == 0 && !is_over(s))
        return TRI_INPROGRESS;
    return TRII_FAIL(mine != TRI_OK ? mine : TRI_ERR_ABORTED, "%s", line);
}

/* --- rounds --------------------------------------------------------------- */

/* Another call of this rank may have been here: then its round is over. */
static tri_status one_round(shrinking *s, const tri_group_options *opt, tri_group **group_out)
{
    char alive[32], outcome[8];
    bool has_ended = false;
    int n_here = 0;
    tri_status status = is_there(s, "outcome", &has_ended);

    snprintf(alive, sizeof(alive), "alive/%d", s->group->rank);
    memset(s->here, 0, (size_t)s->group->size * sizeof(*s->here));
    if (status == TRI_OK && !has_ended)
        status = tri_store_set(s->store, alive, "", 0);
    if (status == TRI_OK && !has_ended)
        status = wait_for_all(s, &n_here);
    if (status == TRI_OK)
        status = decide(s, n_here);
    if (status != TRI_OK || !has_ended)
        return status == TRI_OK ? form(s, opt, group_out) : status;
    status = await_outcome(s, outcome);
    if (status == TRI_OK && strcmp(outcome, "made") == 0)
        return TRII_FAIL(TRI_ERR_STATE, "this group has shrunk already");
    return status == TRI_OK ? TRI_INPROGRESS : status;
}

static tri_status all_rounds(shrinking *s, const tri_group_options *opt, tri_group **group_out)
{
    tri_status status = TRI_INPROGRESS;

    for (s->round = 1; status == TRI_INPROGRESS; s->round++) {
        snprintf(s->key, sizeof(s->key), "shrink/%d", s->round);
        status = tri_store_prefix(s->key, s->clone, &s->store);
        if (status == TRI_OK)
            status = one_round(s, opt, group_out);
        tri_store_unref(s->store);
        s->store = NULL;
    }
    return status;
}

static tri_status shrink(tri_group *g, const tri_group_shrink_options *opt, tri_group **group_out)
{
    shrinking s = {.group = g, .min_size = opt->min_size};
    int64_t timeout_ns = trii_group_timeout_ns(g);
    tri_status status = TRI_ERR_NO_MEMORY;

    s.grace_ns = opt->grace_ms == 0 ? timeout_ns
                 : opt->grace_ms < 0 || opt->grace_ms > INT64_MAX / TRII_NS_PER_MS
                     ? TRII_NO_DEADLINE
                     : opt->grace_ms * TRII_NS_PER_MS;
    s.deadline_ns = trii_deadline_after(trii_now_ns(), s.grace_ns);
    s.deadline_ns = trii_deadline_after(s.deadline_ns, timeout_ns);
    s.may = trii_alloc((size_t)g->size, sizeof(*s.may), "group_shrink");
    s.here = trii_alloc((size_t)g->size, sizeof(*s.here), "group_shrink");
    if (s.may != NULL && s.here != NULL) {
        memset(s.may, true, (size_t)g->size * sizeof(*s.may));
        status = tri_store_clone(g->store, &s.clone);
    }
    if (status == TRI_OK)
        status = all_rounds(&s, &opt->group, group_out);
    tri_store_unref(s.clone);
    trii_free(s.may);
    trii_free(s.here);
    return status;
}

tri_status tri_group_shrink(tri_group *group, const tri_group_shrink_options *opt,
                            tri_group **group_out)
{
    static const tri_group_shrink_options defaults = {0};
    tri_status status;

    if (group_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_shrink: group_out is NULL");
    opt = opt != NULL ? opt : &defaults;
    status = TRII_CHECK_RESERVED(tri_group_shrink_options, opt);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_group_options, &opt->group);
    if (status == TRI_OK)
        status = trii_group_resolve(&group, "group_shrink");
    if (status != TRI_OK)
        return status;
    if (group->left)
        return TRII_FAIL(TRI_ERR_ABORTED, "group_shrink: rank %d left the group", group->rank);
    if (group->size == 1 || group->store == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_shrink: no rank is left of a group of one");
    if (opt->min_size < 0 || opt->min_size > group->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_shrink: min_size %d is out of range (0 to %d)",
                         opt->min_size, group->size);
    if (trii_fault_status(&group->fault) == TRI_OK)
        tri_group_abort(group, "it shrinks");
    status = shrink(group, opt, group_out);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "group_shrink, rank %d", group->rank);
}
