/*
 * shrink.c - the ranks that are left of a group that failed, as a new group.
 *
 * Everybody who is left says so in the store of the old group. Whoever sees that all are there but
 * those who are known to be lost, or that nobody came for a while, proposes who they are; the first
 * proposal holds for all. A rank that comes too late for it is told so.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "group/front.h"
#include "os/clock.h"

#define GRACE_MS 1000 /* after the last one came */
#define LOOK_MS 2     /* between two looks at first; doubled until it is LOOK_MAX_MS */
#define LOOK_MAX_MS 50

typedef struct survivors {
    tri_store *store; /* this shrinking's own keys */
    const tri_group *group;
    bool *here; /* [size] */
    int n_here;
} survivors;

static tri_status look_who_is_here(survivors *s)
{
    s->n_here = 0;
    for (int r = 0; r < s->group->size; r++) {
        char key[32];
        const char *keys[1] = {key};
        tri_status st = TRI_OK;

        snprintf(key, sizeof(key), "alive/%d", r);
        if (!s->here[r])
            st = tri_store_check(s->store, keys, 1, &s->here[r]);
        if (st != TRI_OK)
            return st;
        s->n_here += s->here[r];
    }
    return TRI_OK;
}

/* Until all but the known lost ones are here, somebody proposed, or nobody came for a while. */
static tri_status wait_for_all(survivors *s, int64_t deadline_ns)
{
    static const char *const decided[] = {"members"};
    int lost = atomic_load(&s->group->fault.lost_rank); /* + 1 */
    int64_t quiet_ns = trii_deadline_ms(GRACE_MS);
    int64_t pause_ms = LOOK_MS;

    for (;;) {
        int before = s->n_here;
        bool is_decided = false;
        tri_status st = look_who_is_here(s);

        if (st == TRI_OK)
            st = tri_store_check(s->store, decided, 1, &is_decided);
        if (st != TRI_OK || is_decided)
            return st;
        if (s->n_here == s->group->size - (lost > 0 && !s->here[lost - 1]))
            return TRI_OK;
        if (s->n_here > before)
            quiet_ns = trii_deadline_ms(GRACE_MS);
        if (trii_now_ns() >= quiet_ns || trii_now_ns() >= deadline_ns)
            return TRI_OK;
        st = tri_store_wait(s->store, decided, 1, pause_ms); /* a nap that a decision ends */
        if (st != TRI_OK && st != TRI_ERR_TIMEOUT)
            return st;
        pause_ms = pause_ms * 2 < LOOK_MAX_MS ? pause_ms * 2 : LOOK_MAX_MS;
    }
}

/* Proposes who is here; *members_out: the proposal that holds, '1' or '0' for each rank. */
static tri_status decide(const survivors *s, char **members_out)
{
    size_t size = (size_t)s->group->size;
    char *mine = trii_alloc(size + 1, 1, "group_shrink");
    void *held = NULL;
    size_t bytes = 0;
    tri_status st;

    if (mine == NULL)
        return TRI_ERR_NO_MEMORY;
    for (size_t r = 0; r < size; r++)
        mine[r] = s->here[r] ? '1' : '0';
    st = tri_store_compare_set(s->store, "members", "", 0, mine, size, &held, &bytes);
    trii_free(mine);
    if (st == TRI_OK && bytes != size) {
        tri_store_free(held);
        return TRII_FAIL(TRI_ERR_FORMAT, "group_shrink: %zu bytes of members, not %zu", bytes,
                         size);
    }
    if (st == TRI_OK)
        *members_out = held;
    return st;
}

static tri_status make(tri_group *g, const char *members, const char *key,
                       const tri_group_options *opt, tri_group **group_out)
{
    trii_subgroup sub = {.key = key};

    if (members[g->rank] != '1')
        return TRII_FAIL(TRI_ERR_PEER_LOST,
                         "group_shrink, rank %d: the others went on without this rank, it came too "
                         "late",
                         g->rank);
    sub.own_world_ranks = trii_alloc((size_t)g->size, sizeof(int), "group_shrink");
    if (sub.own_world_ranks == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int r = 0; r < g->size; r++) {
        if (members[r] != '1')
            continue;
        sub.rank = r == g->rank ? sub.size : sub.rank;
        sub.own_world_ranks[sub.size++] = tri_group_world_rank(g, r);
    }
    return trii_group_make(g, &sub, opt, group_out);
}

static tri_status shrink(tri_group *g, const tri_group_options *opt, tri_group **group_out)
{
    survivors s = {.group = g};
    tri_store *clone = NULL;
    char *members = NULL;
    char key[32], alive[32];
    tri_status st;

    snprintf(key, sizeof(key), "shrink/%d", atomic_fetch_add(&g->n_shrinks, 1) + 1);
    snprintf(alive, sizeof(alive), "alive/%d", g->rank);
    s.here = trii_alloc((size_t)g->size, sizeof(bool), "group_shrink");
    if (s.here == NULL)
        return TRI_ERR_NO_MEMORY;
    st = tri_store_clone(g->store, &clone);
    if (st == TRI_OK)
        st = tri_store_prefix(key, clone, &s.store);
    if (st == TRI_OK)
        st = tri_store_set(s.store, alive, "", 0);
    if (st == TRI_OK)
        st = wait_for_all(&s, trii_deadline_after(trii_now_ns(), trii_group_timeout_ns(g)));
    if (st == TRI_OK)
        st = decide(&s, &members);
    if (st == TRI_OK)
        st = make(g, members, key, opt, group_out);
    if (members != NULL)
        tri_store_free(members);
    tri_store_unref(s.store);
    tri_store_unref(clone);
    trii_free(s.here);
    return st;
}

tri_status tri_group_shrink(tri_group *group, const tri_group_options *opt, tri_group **group_out)
{
    tri_status st;

    if (group == NULL)
        group = trii_group_get_world();
    if (group == NULL || group_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_shrink: %s is NULL",
                         group == NULL ? "the group" : "group_out");
    if (group->size == 1 || group->store == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_shrink: nobody is left of a group of one");
    if (trii_fault_status(&group->fault) == TRI_OK)
        tri_group_abort(group, "it shrinks");
    st = shrink(group, opt, group_out);
    return st == TRI_OK ? TRI_OK : TRII_FAIL_CTX(st, "group_shrink, rank %d", group->rank);
}
