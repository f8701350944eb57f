/*
 * order_check.c - TRI_CHECK=order: whether the ranks start the same recorded operations, in one
 * order. Calls that differ in kind, type or length are found out anyway when they meet; this finds
 * two of equal length that have changed places, and names the operations, not the calls that they
 * are made of.
 *
 * The first rank that comes to the n-th operation of a group writes "order/n" into its store, the
 * others compare, and the last one deletes it. So nobody waits for anybody.
 */
#include <inttypes.h>
#include <string.h>

#include <trireme/store.h>

#include "base/err.h"
#include "group/front.h"
#include "group/world.h"

/* "rank 1: all_reduce(f32 [8]) at train.c:12"; what stands behind " at " may differ. */
static bool is_same(const char *ours, const char *theirs)
{
    const char *a = strchr(ours, ':'), *b = strchr(theirs, ':');
    const char *a_end, *b_end;

    if (a == NULL || b == NULL)
        return false;
    a_end = strstr(a, " at ");
    b_end = strstr(b, " at ");
    a_end = a_end != NULL ? a_end : a + strlen(a);
    b_end = b_end != NULL ? b_end : b + strlen(b);
    return a_end - a == b_end - b && memcmp(a, b, (size_t)(a_end - a)) == 0;
}

/* Gone when all ranks have looked. */
static tri_status forget(tri_group *group, const char *key)
{
    char seen[64];
    int64_t n = 0;
    bool existed;
    tri_status st;

    snprintf(seen, sizeof(seen), "%s/seen", key);
    st = tri_store_add(group->store, seen, 1, &n);
    if (st == TRI_OK && n == group->size)
        st = tri_store_delete(group->store, key, &existed);
    if (st == TRI_OK && n == group->size)
        st = tri_store_delete(group->store, seen, &existed);
    return st;
}

tri_status trii_group_compare_order(tri_group *group, const char *what, const char *where)
{
    char ours[256], key[32];
    char *theirs = NULL;
    uint64_t n;
    tri_status st;

    if (group->size == 1 || group->store == NULL)
        return TRI_OK;
    n = atomic_fetch_add(&group->order_seq, 1) + 1;
    snprintf(key, sizeof(key), "order/%" PRIu64, n);
    snprintf(ours, sizeof(ours), "rank %d: %s%s%s", group->rank, what,
             where[0] != '\0' ? " at " : "", where);
    st =
        tri_store_compare_set(group->store, key, "", 0, ours, strlen(ours), (void **)&theirs, NULL);
    if (st != TRI_OK)
        return TRII_FAIL_CTX(st, "TRI_CHECK=order, operation %" PRIu64 " of group %s", n,
                             group->name);
    if (is_same(ours, theirs))
        st = forget(group, key);
    else
        st = TRII_FAIL(TRI_ERR_MISMATCH,
                       "operation %" PRIu64 " of group %s is not the same on all ranks: %s; %s", n,
                       group->name, ours, theirs);
    tri_store_free(theirs);
    return st;
}
