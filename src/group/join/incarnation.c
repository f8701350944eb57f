/*
 * incarnation.c - see incarnation.h.
 *
 * The key "turn/RANK" holds "TURN.TRY process PID on HOST", TRY being the process's own count, and
 * changes by compare and set: at no moment do two processes have a turn, or does one have it
 * without its name. The first program, which mostly is the only one, asks the store once.
 */
#include "group/join/incarnation.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "group/join/identity.h"

#define KEY_BYTES 48

static tri_status has(tri_store *store, int turn, const char *what, int rank, bool *there_out)
{
    char key[KEY_BYTES];
    const char *keys[] = {key};

    snprintf(key, sizeof(key), "turn/%d/%s/%d", turn, what, rank);
    return tri_store_check(store, keys, 1, there_out);
}

/* The turn after `theirs`, or the same *again_out. */
static tri_status next_turn(tri_store *store, const trii_launch_env *env, const char *theirs,
                            int *turn_out, bool *again_out)
{
    int turn = (int)strtol(theirs, NULL, 10);
    const char *who = strchr(theirs, ' ');
    bool left = false, met = false;
    tri_status status = has(store, turn, "left", env->rank, &left);

    who = who != NULL ? who + 1 : "";
    if (status == TRI_OK && !left && trii_identity_is_other(who))
        return trii_identity_is_taken(env, who);
    if (status == TRI_OK && !left)
        status = has(store, turn, "met", env->rank, &met);
    if (status == TRI_OK) {
        *again_out = !left && !met;
        *turn_out = turn + !*again_out;
    }
    return status;
}

tri_status trii_incarnation_take(tri_store *store, const trii_launch_env *env, tri_store **view_out,
                                 bool *again_out)
{
    static atomic_int tries;
    char key[KEY_BYTES], who[TRII_IDENTITY_TEXT], ours[TRII_IDENTITY_TEXT + 32];
    char *theirs = NULL; /* what is there, as far as we know */
    int turn = 1, try = atomic_fetch_add(&tries, 1);
    tri_status status = TRI_OK;

    *again_out = false;
    trii_identity_text(who);
    for (;;) {
        const char *expected = theirs != NULL ? theirs : "";
        void *value = NULL;
        bool taken;

        snprintf(key, sizeof(key), "turn/%d", env->rank);
        snprintf(ours, sizeof(ours), "%d.%d %s", turn, try, who);
        status = tri_store_compare_set(store, key, expected, strlen(expected), ours, strlen(ours),
                                       &value, NULL);
        tri_store_free(theirs);
        theirs = value;
        taken = status == TRI_OK && strcmp(theirs, ours) != 0;
        if (taken)
            status = next_turn(store, env, theirs, &turn, again_out);
        if (status != TRI_OK || !taken)
            break;
    }
    tri_store_free(theirs);
    if (status != TRI_OK)
        return status;
    snprintf(key, sizeof(key), "turn/%d", turn);
    return tri_store_prefix(key, store, view_out);
}

static tri_status mark(tri_store *view, const char *what, int rank)
{
    char key[KEY_BYTES];

    snprintf(key, sizeof(key), "%s/%d", what, rank);
    return tri_store_set(view, key, "", 0);
}

tri_status trii_incarnation_joined(tri_store *view, int rank)
{
    return mark(view, "met", rank);
}

tri_status trii_incarnation_left(tri_store *view, int rank)
{
    return mark(view, "left", rank);
}
