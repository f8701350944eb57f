/*
 * subgroup.c - groups made of ranks of another group, through the store of that group: by colour
 * (all ranks give theirs) or by a list (only its ranks take part).
 *
 * Every creation has a connection of its own to the store, so that threads which make different
 * groups do not wait for each other.
 */
/* build: leaf */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "base/siphash.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"

enum { KEY_BYTES = 64 };

static tri_status resolve(tri_group **group, const char *what, tri_group **group_out)
{
    tri_status status = trii_group_resolve(group, what);

    if (status != TRI_OK)
        return status;
    if (group_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: group_out is NULL", what);
    return TRI_OK;
}

/* A group that forms, and the one that its ranks are of. */
typedef struct watched {
    tri_group *of;
    const trii_subgroup *sub;
} watched;

/* The first that has ended, by its rank in the old group; -1 = none. */
static int lost_rank(const watched *w)
{
    for (int i = 0; w->sub->own_world_ranks != NULL && i < w->sub->size; i++) {
        int rank = tri_group_find_rank(w->of, w->sub->own_world_ranks[i]);

        if (rank >= 0 && trii_group_loss(w->of, rank) == TRII_LOSS_ENDED)
            return rank;
    }
    return -1;
}

static bool has_lost_one(void *arg)
{
    return lost_rank(arg) >= 0;
}

tri_status trii_group_make(tri_group *g, const trii_subgroup *sub, const tri_group_options *opt,
                           tri_group **group_out)
{
    tri_group_options options = opt != NULL ? *opt : (tri_group_options){0};
    watched w = {.of = g, .sub = sub};
    const bool has_store = g->store != NULL && sub->size > 1;
    const trii_forming forming = {.is_over = has_lost_one,
                                  .arg = &w,
                                  .timeout_ns = sub->timeout_ns,
                                  .no_memory = sub->own_world_ranks == NULL,
                                  .own_view = sub->own_key,
                                  .own_store = has_store};
    tri_store *clone = NULL, *view = NULL;
    tri_group *made = NULL;
    char name[TRII_GROUP_NAME];
    tri_status status = TRI_OK;

    /* Its ranks may be on one host, or each on a host of its own, where no hierarchy is. */
    if (options.engine == NULL && strcmp(g->engine->name, "hierarchy") == 0)
        options.engine = "auto";
    /* Alone, a rank needs no engine, but "self" reads and writes memory of the host. */
    if (options.engine == NULL && g->engine_asked[0] != '\0' &&
        (sub->size > 1 || g->engine->device != NULL))
        options.engine = g->engine_asked;
    if (options.timeout_ms == 0)
        options.timeout_ms = trii_group_timeout_ns(g) == TRII_NO_DEADLINE
                                 ? TRI_FOREVER
                                 : trii_group_timeout_ns(g) / TRII_NS_PER_MS;
    if (options.bind_host == NULL && g->bind_host[0] != '\0')
        options.bind_host = g->bind_host;
    snprintf(name, sizeof(name), "%.15s/%s", g->name, sub->key);
    if (options.name == NULL)
        options.name = name;
    if (g->left)
        status = TRII_FAIL(TRI_ERR_ABORTED, "rank %d left the group", g->rank);
    else if (has_store) {
        status = tri_store_clone(g->store, &clone);
        if (status == TRI_ERR_NO_MEMORY) { /* others wait there: the store itself may do */
            clone = tri_store_ref(g->store);
            status = TRI_OK;
        }
        if (status == TRI_OK)
            status = trii_group_view(sub->key, clone, &view);
    }
    if (status == TRI_OK)
        status = trii_group_form(view, sub->rank, sub->size, &options, &forming, &made);
    tri_store_unref(view);
    tri_store_unref(clone);
    if (status != TRI_OK) {
        int lost = status == TRI_ERR_PEER_LOST ? lost_rank(&w) : -1;

        if (lost >= 0) /* the new group does not know whom it has missed */
            trii_err_prepend("rank %d of %s has ended", lost, g->name);
        trii_free(sub->own_world_ranks);
        return status;
    }
    made->world_ranks = sub->own_world_ranks;
    made->outermost = g->outermost;
    *group_out = made;
    return TRI_OK;
}

typedef struct wish {
    int64_t color, key;
} wish;

/* Whether rank a comes before rank b of the same colour. */
static bool before(const wish *wishes, int a, int b)
{
    return wishes[a].key != wishes[b].key ? wishes[a].key < wishes[b].key : a < b;
}

/* Ranks of our colour, by key: their numbers in the outermost group. */
static void choose(const tri_group *g, const wish *wishes, trii_subgroup *sub)
{
    for (int r = 0; r < g->size; r++) {
        int at = 0;

        if (wishes[r].color != wishes[g->rank].color)
            continue;
        for (int other = 0; other < g->size; other++)
            at += wishes[other].color == wishes[r].color && before(wishes, other, r);
        sub->own_world_ranks[at] = tri_group_world_rank(g, r);
        sub->size++;
        if (r == g->rank)
            sub->rank = at;
    }
}

/* A rank without room for the colours would leave the others waiting in the exchange of them. */
static tri_status meet_with_room(tri_group *g, bool has_room)
{
    int64_t poor = has_room ? g->size : g->rank;
    tri_status status = (tri_all_reduce)(g, &poor, &poor, 1, TRI_DTYPE_I64, TRI_REDOP_MIN, NULL);

    if (status != TRI_OK || poor == g->size)
        return status;
    return TRII_FAIL(TRI_ERR_NO_MEMORY, "rank %d has no memory for the colours of %d ranks",
                     (int)poor, g->size);
}

tri_status(tri_group_split)(tri_group *group, int color, int key, const tri_group_options *opt,
                            tri_group **group_out)
{
    wish mine = {color < 0 ? -1 : color, key};
    trii_subgroup sub = {0};
    char text[64];
    wish *wishes;
    int n;
    tri_status status = resolve(&group, "group_split", group_out);

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_group_options, opt);
    if (status != TRI_OK)
        return status;
    if (group->engine->device != NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "group_split: engine %s moves memory of a device only, and colors are "
                         "memory of the host: list the ranks (tri_group_new)",
                         group->engine->name);
    wishes = trii_alloc((size_t)group->size, sizeof(*wishes), "group_split");
    sub.own_world_ranks = trii_alloc((size_t)group->size, sizeof(int), "group_split");
    status = meet_with_room(group, wishes != NULL && sub.own_world_ranks != NULL);
    if (status == TRI_OK)
        status = (tri_all_gather)(group, &mine, wishes, 2, TRI_DTYPE_I64, NULL);
    if (status != TRI_OK) {
        trii_free(wishes);
        trii_free(sub.own_world_ranks);
        return TRII_FAIL_CTX(status, "group_split");
    }
    n = atomic_fetch_add(&group->n_splits, 1) + 1; /* as on all ranks, which have met */
    if (color < 0) {
        trii_free(wishes);
        trii_free(sub.own_world_ranks);
        *group_out = trii_group_non_member();
        return TRI_OK;
    }
    assert(wishes != NULL && sub.own_world_ranks != NULL); /* else meet_with_room fails */
    choose(group, wishes, &sub);
    trii_free(wishes);
    snprintf(text, sizeof(text), "split/%d/%d", n, color);
    sub.key = text;
    sub.own_key = true;
    status = trii_group_make(group, &sub, opt, group_out);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "group_split, colour %d", color);
}

/* Checks the list; *own_out: our place in it, -1 = none. */
static tri_status check_list(const tri_group *g, const int *ranks, int n, int *own_out)
{
    *own_out = -1;
    if (ranks == NULL || n < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_new: %s",
                         ranks == NULL ? "ranks is NULL" : "a group has one rank at least");
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= g->size)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_new: rank %d is out of range, of %d",
                             ranks[i], g->size);
        for (int j = 0; j < i; j++) {
            if (ranks[j] == ranks[i])
                return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_new: rank %d is listed twice",
                                 ranks[i]);
        }
        *own_out = ranks[i] == g->rank ? i : *own_out;
    }
    return TRI_OK;
}

/* Where its ranks meet: the list itself, or, if that is long, its length and two hashes, which
 * together no two lists share. The same list again is told apart by how often it was made. */
static void name_list(const int *ranks, int n, char text[KEY_BYTES])
{
    size_t used = (size_t)snprintf(text, KEY_BYTES, "new/%d", ranks[0]), bytes = sizeof(*ranks);

    for (int i = 1; i < n && used < KEY_BYTES; i++)
        used += (size_t)snprintf(text + used, KEY_BYTES - used, ".%d", ranks[i]);
    if (used >= KEY_BYTES)
        snprintf(text, KEY_BYTES, "new/%d:%016" PRIx64 "%016" PRIx64, n,
                 trii_siphash((trii_siphash_key){1, 0}, ranks, (size_t)n * bytes),
                 trii_siphash((trii_siphash_key){2, 0}, ranks, (size_t)n * bytes));
}

tri_status(tri_group_new)(tri_group *group, const int *ranks, int n, const tri_group_options *opt,
                          tri_group **group_out)
{
    trii_subgroup sub = {.size = n};
    char text[KEY_BYTES];
    tri_status status = resolve(&group, "group_new", group_out);

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_group_options, opt);
    if (status == TRI_OK)
        status = check_list(group, ranks, n, &sub.rank);
    if (status != TRI_OK)
        return status;
    if (sub.rank < 0) {
        *group_out = trii_group_non_member();
        return TRI_OK;
    }
    sub.own_world_ranks = trii_alloc((size_t)n, sizeof(int), "group_new");
    for (int i = 0; sub.own_world_ranks != NULL && i < n; i++)
        sub.own_world_ranks[i] = tri_group_world_rank(group, ranks[i]);
    name_list(ranks, n, text);
    sub.key = text;
    status = trii_group_make(group, &sub, opt, group_out);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "group_new of %d ranks", n);
}
