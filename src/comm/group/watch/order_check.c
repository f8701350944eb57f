/*
 * order_check.c - TRI_CHECK=order: whether the ranks start the same recorded operations, in one
 * order. Calls that differ in kind, type or length are found anyway when the engine compares them;
 * this finds two of equal length that have changed places, and names the operations, not the calls
 * that they are made of.
 *
 * The first rank that reaches the n-th operation of a group writes "order/n" into its store, the
 * others compare, and the last one deletes it. So nobody waits for anybody. Messages have an order
 * for each pair and tag: whichever comes first, sender or receiver, writes "order/FROM>TO/TAG/n",
 * and the other deletes it. What stays has no counterpart.
 */
/* build: leaf */
#include <inttypes.h>
#include <string.h>

#include <trireme/store.h>

#include "base/err.h"
#include "comm/group/group_internal.h"
#include "comm/group/join/world.h"
#include "store/store_ops.h"

#define MOST_NAMED 3
#define LOOK_MS 1000 /* it may be deleted just now */

/* What is written is "WHAT\nrank 1: .. at train.c:12": what must be the same, and the line about
 * it. */
typedef struct comparison {
    char ours[384];
    char *theirs; /* tri_store_free */
} comparison;

static const char *line_of(const char *text)
{
    const char *end = strchr(text, '\n');

    return end != NULL ? end + 1 : text;
}

static bool is_same(const comparison *s)
{
    size_t n = strcspn(s->ours, "\n") + 1;

    return strncmp(s->ours, s->theirs, n) == 0;
}

static tri_status exchange(tri_group *group, const char *key, comparison *s)
{
    return tri_store_compare_set(group->store, key, "", 0, s->ours, strlen(s->ours),
                                 (void **)&s->theirs, NULL);
}

/* The end of a comparison of `what`. One that differs fails the group: all ranks get the reason,
 * not only that this one gave up. */
static tri_status end(tri_group *group, tri_status status, comparison *s, const char *what,
                      const char *whom)
{
    if (status != TRI_OK) {
        status = TRII_FAIL_CTX(status, "TRI_CHECK=order, %s", what);
    } else if (!is_same(s)) {
        status = TRII_FAIL(TRI_ERR_MISMATCH, "%s is not the same on %s: %s; %s", what, whom,
                           line_of(s->ours), line_of(s->theirs));
        trii_fault_raise(&group->fault, status, "%s", tri_last_error());
        group->engine->abort(group->self);
    }
    tri_store_free(s->theirs);
    return status;
}

/* Gone when all ranks have looked. */
static tri_status forget(tri_group *group, const char *key)
{
    char seen[64];
    int64_t n = 0;
    bool existed;
    tri_status status;

    snprintf(seen, sizeof(seen), "%s/seen", key);
    status = tri_store_add(group->store, seen, 1, &n);
    if (status == TRI_OK && n == group->size)
        status = tri_store_delete(group->store, key, &existed);
    if (status == TRI_OK && n == group->size)
        status = tri_store_delete(group->store, seen, &existed);
    return status;
}

tri_status trii_group_compare_order(tri_group *group, const char *what, const char *where)
{
    comparison s = {.theirs = NULL};
    char key[32], operation[TRII_GROUP_NAME + 48];
    uint64_t n;
    tri_status status;

    if (group->size == 1 || group->store == NULL)
        return TRI_OK;
    n = atomic_fetch_add(&group->order_seq, 1) + 1;
    snprintf(key, sizeof(key), "order/%" PRIu64, n);
    snprintf(s.ours, sizeof(s.ours), "%s\nrank %d: %s%s%s", what, group->rank, what,
             where[0] != '\0' ? " at " : "", where);
    snprintf(operation, sizeof(operation), "operation %" PRIu64 " of group %s", n, group->name);
    status = exchange(group, key, &s);
    if (status == TRI_OK && is_same(&s))
        status = forget(group, key);
    return end(group, status, &s, operation, "all ranks");
}

/* --- messages ------------------------------------------------------------- */

tri_status trii_group_compare_message(tri_group *group, const trii_compared_message *m)
{
    comparison s = {.theirs = NULL};
    char pair[128], key[160], message[TRII_GROUP_NAME + 192];
    int from = m->sends ? group->rank : m->peer, to = m->sends ? m->peer : group->rank;
    int64_t n = 0;
    bool existed;
    tri_status status;

    if (group->size == 1 || group->store == NULL)
        return TRI_OK;
    snprintf(pair, sizeof(pair), "order/%d>%d/%s", from, to, m->tag);
    snprintf(s.ours, sizeof(s.ours), "%s\nrank %d: %s(%s, rank %d, %s)%s%s", m->what, group->rank,
             m->sends ? "send" : "recv", m->what, m->peer, m->tag,
             m->where[0] != '\0' ? " at " : "", m->where);
    snprintf(key, sizeof(key), "%s/%s", pair, m->sends ? "sent" : "received");
    status = tri_store_add(group->store, key, 1, &n);
    snprintf(key, sizeof(key), "%s/%" PRId64, pair, n);
    if (status == TRI_OK)
        status = exchange(group, key, &s);
    snprintf(message, sizeof(message),
             "message %" PRId64 " from rank %d to rank %d of group %s, %s,", n, from, to,
             group->name, m->tag);
    if (status == TRI_OK && strcmp(s.ours, s.theirs) != 0 && is_same(&s)) /* the other came first */
        status = tri_store_delete(group->store, key, &existed);
    return end(group, status, &s, message, "both");
}

/* "order/0>1/tag 7/3", of this rank, and not a count of them. */
static bool concerns(const tri_group *group, const char *key)
{
    int from = -1, to = -1;
    const char *number = strrchr(key, '/');

    return sscanf(key, "order/%d>%d/", &from, &to) == 2 &&
           (from == group->rank || to == group->rank) && number[1] >= '0' && number[1] <= '9';
}

void trii_group_name_unmet(tri_group *group, char *text, size_t size)
{
    static const char *const nothing[] = {"nothing"};
    char **keys = NULL;
    int64_t n = 0;
    int named = 0;
    size_t used = 0;

    text[0] = '\0';
    if (group->size == 1 || group->store == NULL)
        return;
    /* The deadline has passed: nobody waits once more for a store that does not answer. */
    if (tri_store_wait(group->store, nothing, 1, 1) != TRI_ERR_TIMEOUT ||
        trii_store_is_silent(group->store) ||
        tri_store_list_keys(group->store, &keys, &n) != TRI_OK)
        return;
    for (int64_t i = 0; i < n && named < MOST_NAMED && used < size; i++) {
        void *line = NULL;
        bool there = false;

        if (!concerns(group, keys[i]) ||
            tri_store_check(group->store, (const char *const *)&keys[i], 1, &there) != TRI_OK ||
            !there || tri_store_get(group->store, keys[i], LOOK_MS, &line, NULL) != TRI_OK)
            continue;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s",
                             named == 0 ? "; messages that have not met: " : "; ", line_of(line));
        named++;
        tri_store_free(line);
    }
    tri_store_free(keys);
}
