/*
 * remote_optimizer_group.c - several trainers whose gradients become one update at each owner.
 *
 * Each rank's gradients are in an account of its own. Rank 0 asks and tells the owners for all of
 * them, by a list of the accounts with their weights: a rank's share of the samples. What decides a
 * step (whether all have run it, whether all owners agree, whether all have updated here) is
 * decided by all ranks together, so each of these is followed by an exchange.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/parallel/rpc/remote_optimizer_internal.h"
#include "comm/rpc/rpc_standing.h"

#define LOOK_MS 250 /* at the other ranks, while they are waited for */

/* What a rank says in an exchange; its members follow. */
typedef struct standing {
    tri_status status;
    char line[TRII_REMOTE_LINE];
    double squares;
    int64_t samples;
} standing;

static size_t bytes_of(const tri_remote_optimizer *o)
{
    return sizeof(standing) + (size_t)o->n * sizeof(trii_account_member);
}

/* Of this rank at the end; first those of all ranks. */
static standing *standing_of(const tri_remote_optimizer *o, int rank)
{
    return (standing *)(void *)(o->standings + (size_t)rank * bytes_of(o));
}

tri_status trii_remote_group_join(tri_remote_optimizer *o)
{
    tri_group *group = o->options.group;
    size_t size;

    if (!o->options.average)
        return TRI_OK;
    o->rank = group != NULL ? tri_group_rank(group) : tri_rank();
    o->size = group != NULL ? tri_group_size(group) : tri_world_size();
    if (o->rank < 0 || o->size > TRII_ACCOUNT_MEMBERS)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "average: rank %d of a group of %d; it must be a member of one of at most %d", o->rank,
            o->size, TRII_ACCOUNT_MEMBERS);
    size = (size_t)o->size;
    o->standings = trii_alloc(size + 1, bytes_of(o), "standings of trainers");
    o->members = trii_alloc(size * (size_t)o->n, sizeof(*o->members), "accounts of trainers");
    if (o->standings == NULL || o->members == NULL)
        return TRI_ERR_NO_MEMORY;
    (void)tri_group_ref(group);
    return TRI_OK;
}

void trii_remote_group_leave(tri_remote_optimizer *o)
{
    if (o->members != NULL)
        tri_group_unref(o->options.group);
    trii_free(o->members);
    trii_free(o->standings);
}

/* STATE: ranks of the group are workers that take no steps. */
static tri_status check_members(const tri_remote_optimizer *o)
{
    char name[TRI_RPC_MAX_NAME + 1], text[300] = "";
    size_t used = 0;

    for (int rank = 0; rank < o->size; rank++) {
        int of_world =
            o->options.group != NULL ? tri_group_world_rank(o->options.group, rank) : rank;

        if (rank != o->rank && used < sizeof(text) / 2 &&
            trii_rpc_is_in_join(o->owners[0].remote->rpc, of_world, name))
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d (%s)",
                                     used > 0 ? ", " : "", rank, name);
    }
    if (used == 0)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_STATE,
                     "average: these ranks of the group are in tri_rpc_join and take no step: %s; "
                     "give the options a group of the trainers alone (tri_group_new)",
                     text);
}

/* Waits for all ranks, but not for one that will not come: the group is of no use then. */
static tri_status gather(const tri_remote_optimizer *o)
{
    tri_work *work = NULL;
    int n_looks = 0;
    tri_status status, members = TRI_OK;

    status = (tri_all_gather)(o->options.group, standing_of(o, o->size), o->standings, bytes_of(o),
                              TRI_DTYPE_U8, &work);
    if (status != TRI_OK)
        return status;
    while ((status = tri_work_wait(work, LOOK_MS)) == TRI_ERR_TIMEOUT && n_looks < 2) {
        members = check_members(o);
        n_looks = members != TRI_OK ? n_looks + 1 : 0; /* it may have come just before it joined */
    }
    if (status == TRI_ERR_TIMEOUT) {
        tri_group_abort(o->options.group, tri_last_error());
        status = tri_work_wait(work, 0);
    }
    if (status != TRI_OK) /* or another rank has found it first */
        members = check_members(o);
    tri_work_destroy(work);
    return members != TRI_OK ? members : status;
}

static tri_status exchange(tri_remote_optimizer *o, tri_status own)
{
    standing *mine = standing_of(o, o->size);
    tri_status status;

    mine->status = own;
    snprintf(mine->line, sizeof(mine->line), "%s", own != TRI_OK ? tri_last_error() : "");
    status = gather(o);
    if (own != TRI_OK)
        return TRII_FAIL(own, "%s", mine->line);
    for (int rank = 0; rank < o->size && status == TRI_OK; rank++) {
        const standing *other = standing_of(o, rank);

        if (other->status != TRI_OK)
            status = TRII_FAIL(other->status, "rank %d of the trainers: %.*s", rank,
                               (int)sizeof(other->line) - 1, other->line);
    }
    return status;
}

tri_status trii_remote_agree(tri_remote_optimizer *o, tri_status status, double *squares_io)
{
    if (o->members == NULL)
        return status;
    standing_of(o, o->size)->squares = squares_io != NULL ? *squares_io : 0;
    status = exchange(o, status);
    if (status == TRI_OK && squares_io != NULL)
        *squares_io = standing_of(o, 0)->squares;
    return status;
}

/* Each rank's share of the samples; equal shares if there are none. */
static void weigh(tri_remote_optimizer *o)
{
    int64_t all = 0;

    for (int rank = 0; rank < o->size; rank++)
        all += standing_of(o, rank)->samples;
    for (int rank = 0; rank < o->size; rank++) {
        const standing *other = standing_of(o, rank);
        const trii_account_member *from = (const trii_account_member *)(const void *)(other + 1);

        for (int i = 0; i < o->n; i++) {
            trii_account_member *to = &o->members[(size_t)rank * (size_t)o->n + (size_t)i];

            *to = from[i];
            to->weight = all > 0 ? (double)other->samples / (double)all : 1.0 / o->size;
        }
    }
}

tri_status trii_remote_agree_first(tri_remote_optimizer *o, tri_status status, int64_t samples)
{
    standing *mine;
    trii_account_member *members;

    if (o->members == NULL)
        return status;
    mine = standing_of(o, o->size);
    members = (trii_account_member *)(void *)(mine + 1);
    mine->samples = samples;
    for (int i = 0; i < o->n; i++) {
        members[i] =
            (trii_account_member){.n_backwards = trii_remote_backwards(o->owners[i].remote)};
        trii_remote_key_now(o, &members[i].key);
    }
    status = exchange(o, status);
    if (status == TRI_OK)
        weigh(o);
    return status;
}
