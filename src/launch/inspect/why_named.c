/*
 * why_named.c - which rank the record of a failed rank names as the one that aborted its group.
 */
#include <string.h>

#include "launch/inspect/why.h"

int trii_why_aborter(const char *text)
{
    static const char words[] = " aborted the group", name[] = "rank ";
    const char *end = strstr(text, words), *digits = end;
    int rank = 0;

    while (digits != NULL && digits > text && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    if (digits == end || digits - text < (ptrdiff_t)strlen(name) || end - digits > 7 ||
        memcmp(digits - strlen(name), name, strlen(name)) != 0)
        return -1;
    for (; digits < end; digits++)
        rank = 10 * rank + (*digits - '0');
    return rank;
}

/* Which rank in the job is `member` of the group, as far as records tell. */
static int rank_of_member(const trii_why_job *job, const trii_record_file *log,
                          const trii_record_group *group, int member)
{
    for (int r = 0; group != NULL && group->id != 0 && r < job->size; r++) {
        const trii_record_file *other = job->ranks[r].log;

        for (int i = 0; other != NULL && i < TRII_RECORD_GROUPS; i++) {
            const trii_record_group *g = &other->groups[i];

            if (g->number != 0 && g->id == group->id && g->size == group->size && g->rank == member)
                return r;
        }
    }
    /* It left no record, or on another host: a group of all ranks numbers them as the job does. */
    if (group == NULL || (group->size == log->size && group->rank == log->rank))
        return member;
    return -1;
}

int trii_why_named(const trii_why_job *job, int rank)
{
    const trii_record_file *log = rank < job->size ? job->ranks[rank].log : NULL;
    const trii_record_group *group;
    int member, named;

    if (log == NULL || log->failed != TRI_ERR_ABORTED)
        return -1;
    group = trii_why_group_of(log, log->failed_group);
    member = trii_why_aborter(log->failure);
    if (member < 0 || (group != NULL && member == group->rank))
        return -1;
    named = rank_of_member(job, log, group, member);
    return named != rank ? named : -1;
}
