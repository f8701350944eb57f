/*
 * ranks_agree.c - whether a step has succeeded on all ranks; see elsewhere.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/group.h>

#include "base/err.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/rank_text.h"

/* Of the group itself, where ranks do not do the same; status as it is. */
static tri_status explain(const char *call, tri_status status)
{
    char line[TRII_ERR_BYTES];

    if (call == NULL || (status != TRI_ERR_MISMATCH && status != TRI_ERR_GROUP_TIMEOUT &&
                         status != TRI_ERR_PEER_LOST))
        return status;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    return TRII_FAIL(
        status, "%s: %s (the ranks of the group take part in it: all of them call %s, or none)",
        call, line, call);
}

/* An agreement before this one has told of it already. */
static bool names_rank(const char *line)
{
    static const char world[] = " (world rank ";
    const char *end = line + strlen("rank ");

    if (strncmp(line, "rank ", strlen("rank ")) != 0)
        return false;
    end += strspn(end, "0123456789");
    if (strncmp(end, world, strlen(world)) == 0) {
        end += strlen(world);
        end += strspn(end, "0123456789");
        end += *end == ')';
    }
    return strncmp(end, ": ", 2) == 0;
}

static tri_status agree(tri_group *group, const char *call, tri_status status)
{
    int rank = group != NULL ? tri_group_rank(group) : 0, failed;
    /* The lowest rank that failed is the smallest number; no memory is needed. */
    int64_t mine = status == TRI_OK ? INT64_MAX : (int64_t)rank << 32 | (int64_t)-status;
    char line[TRII_ERR_BYTES] = "";
    tri_status told;

    if (group == NULL || tri_group_size(group) <= 1)
        return status;
    if (status != TRI_OK)
        snprintf(line, sizeof(line), "%s", tri_last_error());
    told = tri_all_reduce(group, &mine, &mine, 1, TRI_DTYPE_I64, TRI_REDOP_MIN, NULL);
    if (told != TRI_OK && status != TRI_OK) {
        trii_err_set("%s", line); /* which may be why the group has failed */
        return status;
    }
    if (told != TRI_OK || mine == INT64_MAX)
        return explain(call, told);
    failed = (int)(mine >> 32);
    told = tri_broadcast(group, line, sizeof(line), TRI_DTYPE_U8, failed, NULL);
    if (told != TRI_OK)
        return told;
    told = (tri_status) - (mine & INT32_MAX);
    return names_rank(line)
               ? TRII_FAIL(told, "%s", line)
               : TRII_FAIL(told, "%s: %s", trii_rank_text_of(group, failed).text, line);
}

tri_status trii_ranks_agree(tri_group *group, tri_status status)
{
    return agree(group, NULL, status);
}

tri_status trii_ranks_meet(tri_group *group, const char *call, tri_status status)
{
    return agree(group, call, status);
}
