/*
 * occupied.c - the tree of occupied.h. Called by memory.c for plans of more than 512 buffers.
 */
#include "train/plan/occupied.h"

#include <string.h>

/* What a search visits: four nodes on each of 31 levels, and some to spare. */
#define MAX_SETS 256

tri_status trii_occupied_init(trii_occupied *o, int32_t times)
{
    *o = (trii_occupied){.n_leaves = 1};
    while (o->n_leaves < times)
        o->n_leaves *= 2;
    o->any = trii_pool_alloc(&o->pool, (size_t)o->n_leaves * 2, sizeof(*o->any));
    o->whole = trii_pool_alloc(&o->pool, (size_t)o->n_leaves * 2, sizeof(*o->whole));
    return o->any != NULL && o->whole != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

void trii_occupied_fini(trii_occupied *o)
{
    trii_pool_fini(&o->pool);
}

/* --- one set -------------------------------------------------------------- */

/* The first range from number `from` on that ends after `at`; near ones are tried first. */
static int32_t range_behind(trii_occupied *o, const trii_byte_ranges *s, int32_t from, size_t at)
{
    int32_t step = 1, low = from, high = from;

    while (high < s->n && s->at[high].end <= at) {
        low = high + 1;
        high += step;
        step *= 2;
        o->n_looks++;
    }
    if (high > s->n)
        high = s->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;

        o->n_looks++;
        if (s->at[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static tri_status add_range(trii_occupied *o, trii_byte_ranges *s, size_t begin, size_t end)
{
    int32_t first = range_behind(o, s, 0, begin), last;

    if (first > 0 && s->at[first - 1].end == begin)
        first--;
    for (last = first; last < s->n && s->at[last].begin <= end; last++) {
        if (s->at[last].begin < begin)
            begin = s->at[last].begin;
        if (s->at[last].end > end)
            end = s->at[last].end;
    }
    if (last == first && s->n == s->room) {
        int32_t room = s->room > 0 ? s->room * 2 : 4;
        trii_byte_range *at = trii_pool_alloc(&o->pool, (size_t)room, sizeof(*at));

        if (at == NULL)
            return TRI_ERR_NO_MEMORY;
        if (s->n > 0)
            memcpy(at, s->at, (size_t)s->n * sizeof(*at));
        s->at = at;
        s->room = room;
    }
    if (last != first + 1 && last < s->n)
        memmove(&s->at[first + 1], &s->at[last], (size_t)(s->n - last) * sizeof(*s->at));
    s->n += first + 1 - last;
    s->at[first] = (trii_byte_range){begin, end};
    return TRI_OK;
}

/* --- the tree ------------------------------------------------------------- */

/* Calls visit for each node that [first, last] touches, but not for nodes below one that it
 * spans. */
typedef struct walk {
    trii_occupied *o;
    int32_t first, last;
    tri_status (*visit)(struct walk *w, int32_t node, bool spanned);
    /* used by a search */
    const trii_byte_ranges *set[MAX_SETS];
    int32_t n_sets;
    /* used by taking */
    size_t begin, end;
} walk;

static tri_status walk_node(walk *w, int32_t node, int32_t begin, int32_t n)
{
    bool spanned = w->first <= begin && begin + n - 1 <= w->last;
    tri_status status;

    if (w->last < begin || begin + n - 1 < w->first)
        return TRI_OK;
    status = w->visit(w, node, spanned);
    if (spanned || status != TRI_OK)
        return status;
    status = walk_node(w, 2 * node, begin, n / 2);
    return status == TRI_OK ? walk_node(w, 2 * node + 1, begin + n / 2, n / 2) : status;
}

static tri_status list_set(walk *w, int32_t node, bool spanned)
{
    const trii_byte_ranges *s = spanned ? &w->o->any[node] : &w->o->whole[node];

    if (s->n > 0)
        w->set[w->n_sets++] = s;
    return TRI_OK;
}

size_t trii_occupied_lowest(trii_occupied *o, int32_t first, int32_t last, size_t bytes)
{
    walk w = {.o = o, .first = first, .last = last, .visit = list_set};
    int32_t cursor[MAX_SETS] = {0};
    size_t at = 0;

    if (walk_node(&w, 1, 0, o->n_leaves) != TRI_OK)
        return 0; /* listing cannot fail */
    for (int32_t i = 0, agreed = 0; agreed < w.n_sets; i = i + 1 < w.n_sets ? i + 1 : 0) {
        const trii_byte_ranges *s = w.set[i];

        agreed++;
        for (;;) {
            cursor[i] = range_behind(o, s, cursor[i], at);
            o->n_looks++;
            if (cursor[i] == s->n || s->at[cursor[i]].begin >= at + bytes)
                break;
            at = s->at[cursor[i]].end;
            agreed = 1; /* ranges that agree so far: the first with itself */
        }
    }
    return at;
}

static tri_status add_to_node(walk *w, int32_t node, bool spanned)
{
    tri_status status = add_range(w->o, &w->o->any[node], w->begin, w->end);

    if (status == TRI_OK && spanned)
        status = add_range(w->o, &w->o->whole[node], w->begin, w->end);
    return status;
}

tri_status trii_occupied_take(trii_occupied *o, int32_t first, int32_t last, size_t at,
                              size_t bytes)
{
    walk w = {
        .o = o, .first = first, .last = last, .visit = add_to_node, .begin = at, .end = at + bytes};

    return bytes > 0 ? walk_node(&w, 1, 0, o->n_leaves) : TRI_OK;
}
