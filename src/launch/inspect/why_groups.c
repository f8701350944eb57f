/*
 * why_groups.c - who waits for whom in a group. It takes the first call that has not ended on some
 * rank and looks at all ranks: which of them are in it, made another call or are missing, and what
 * those do instead. Then it looks at sends and receives, and at ranks that still form the group.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "launch/inspect/why_internal.h"

/* One group as all of its ranks saw it. */
typedef struct view {
    uint64_t id;
    const char *name, *engine;
    int size;
    int *world;       /* [size] rank in the job; -1 = no record */
    uint16_t *number; /* [size] the group's number there */
} view;

static void append_seconds(char *text, size_t size, double seconds)
{
    if (seconds >= 0.1)
        trii_why_append(text, size, " for %.1f s", seconds);
}

/* What a rank that others wait for does instead; group: its own number of the group in which they
 * wait, 0 = its record does not list that. */
static void append_doing(const trii_why_job *job, int r, uint16_t group, char *text, size_t size)
{
    const trii_why_rank *rank = &job->ranks[r];
    const trii_record *in = rank->log != NULL ? trii_why_last(rank->log, true) : NULL;
    const trii_record *last = rank->log != NULL ? trii_why_last(rank->log, false) : NULL;
    const char *is = rank->state == TRII_WHY_DEAD ? "was" : "is";
    const trii_record_group *other;
    char call[256];

    switch (rank->state) {
    case TRII_WHY_ABSENT:
        trii_why_append(text, size, " (no record here: on another host, or it never joined)");
        return;
    case TRII_WHY_LEFT:
        trii_why_append(text, size, " (left the job)");
        return;
    case TRII_WHY_DEAD:
        if (!trii_why_is_over(job))
            trii_why_append(text, size, " (dead)");
        break;
    case TRII_WHY_STOPPED:
        trii_why_append(text, size, " (stopped)");
        break;
    case TRII_WHY_RUNNING:
        break;
    }
    if (in != NULL) {
        other = trii_why_group_of(rank->log, in->group);
        trii_why_describe(rank->log, in, call, sizeof(call));
        trii_why_append(text, size, ", which %s in %s", is, call);
        if (other != NULL && in->group != group)
            trii_why_append(text, size, " of group %s", other->name);
    } else if (last != NULL) {
        trii_why_describe(rank->log, last, call, sizeof(call));
        trii_why_append(text, size, ", which %s in its own code after %s", is, call);
    } else {
        trii_why_append(text, size,
                        rank->state == TRII_WHY_DEAD ? ", which had called nothing yet"
                                                     : ", which has called nothing yet");
    }
    if (rank->state != TRII_WHY_DEAD && rank->pid != 0)
        trii_why_append(text, size, " (rank %d: pid %d)", r, rank->pid);
    if (rank->log != NULL && rank->log->lost > 0)
        trii_why_append(text, size, "; its record has lost calls, so it may be in one of those");
}

/* --- one group ------------------------------------------------------------ */

static bool is_pair(const trii_record *record)
{
    return trii_kind_in((trii_kind)record->kind, TRII_KINDS_PAIR);
}

/* The collective number `seq` of a group; NULL = not called, or no longer in the ring. */
static const trii_record *call_of(const trii_record_file *log, uint16_t group, uint64_t seq)
{
    for (int i = 0; i < TRII_RECORDS; i++) {
        const trii_record *record = &log->records[i];

        if (record->number != 0 && record->group == group && record->seq == seq && !is_pair(record))
            return record;
    }
    return NULL;
}

/* The rank's newest collective in the group, or its oldest that has not ended well. */
static const trii_record *edge_of(const trii_record_file *log, uint16_t group, bool open)
{
    const trii_record *edge = NULL;

    for (int i = 0; i < TRII_RECORDS; i++) {
        const trii_record *record = &log->records[i];

        if (record->number == 0 || record->group != group || is_pair(record))
            continue;
        if (open && record->state == TRII_RECORD_DONE)
            continue;
        if (edge == NULL || (open ? record->seq < edge->seq : record->seq > edge->seq))
            edge = record;
    }
    return edge;
}

static const trii_record_file *log_of(const trii_why_job *job, const view *v, int member)
{
    return v->world[member] >= 0 ? job->ranks[v->world[member]].log : NULL;
}

/* Two ranks that made different calls of one number. */
static tri_status find_mismatch(trii_why_job *job, const view *v, uint64_t seq, bool *found_out)
{
    const trii_record *first = NULL;
    int first_rank = 0;

    *found_out = false;
    for (int m = 0; m < v->size; m++) {
        const trii_record_file *log = log_of(job, v, m);
        const trii_record *record = log != NULL ? call_of(log, v->number[m], seq) : NULL;
        trii_collective mine, theirs;
        char one[256], other[256];
        trii_why_finding *f;

        if (record == NULL)
            continue;
        if (first == NULL) {
            first = record;
            first_rank = v->world[m];
            continue;
        }
        mine = trii_why_call_of(job->ranks[first_rank].log, first);
        theirs = trii_why_call_of(log, record);
        if (trii_collective_agree(&mine, &theirs))
            continue;
        f = trii_why_add(job, WEIGHT_MISMATCH, "mismatch", v->name);
        if (f == NULL)
            return TRI_ERR_NO_MEMORY;
        trii_why_set_ranks(f, (const int[]){first_rank, v->world[m]}, 2, NULL, 0);
        trii_collective_describe(&mine, one, sizeof(one));
        trii_collective_describe(&theirs, other, sizeof(other));
        trii_why_append(f->text, sizeof(f->text),
                        "group %s: call #%" PRIu64 " differs: rank %d made %s, rank %d made %s",
                        v->name, seq, first_rank, one, v->world[m], other);
        *found_out = true;
        return TRI_OK;
    }
    return TRI_OK;
}

static bool lists_all_groups(const trii_why_job *job)
{
    for (int r = 0; r < job->size; r++) {
        if (job->ranks[r].log != NULL && job->ranks[r].log->unlisted > 0)
            return false;
    }
    return true;
}

/* Which ranks are in call `seq`, and which have not made it. */
static tri_status find_missing(trii_why_job *job, const view *v, uint64_t seq, int *waiting,
                               int *missing)
{
    int n_waiting = 0, n_missing = 0, n_stopped = 0, n_unlisted = 0;
    uint16_t number = 0; /* of the group, at the first that is missing */
    const trii_record *call = NULL;
    double longest = -1.0;
    char words[256];
    trii_why_finding *f;

    for (int m = 0; m < v->size; m++) {
        const trii_record_file *log = log_of(job, v, m);
        const trii_record *record = log != NULL ? call_of(log, v->number[m], seq) : NULL;
        const trii_record *newest = log != NULL ? edge_of(log, v->number[m], false) : NULL;
        int r = v->world[m];

        if (record != NULL && record->state == TRII_RECORD_RUNNING) {
            double seconds = trii_why_seconds(job, &job->ranks[r], record->began_ns);

            if (job->ranks[r].state == TRII_WHY_STOPPED)
                n_stopped++;
            waiting[n_waiting++] = r;
            longest = seconds > longest ? seconds : longest;
            call = call != NULL ? call : record;
        } else if (record == NULL && r >= 0 && (newest == NULL || newest->seq < seq)) {
            number = n_missing == 0 ? v->number[m] : number;
            missing[n_missing++] = r;
        }
        n_unlisted += r < 0;
    }
    if (n_waiting == 0 || n_waiting == n_stopped)
        return TRI_OK;
    f = trii_why_add(job, n_missing > 0 ? WEIGHT_MISSING : WEIGHT_INSIDE,
                     n_missing > 0 ? "missing" : "inside", v->name);
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_why_set_ranks(f, waiting, n_waiting, missing, n_missing);
    trii_why_describe(job->ranks[waiting[0]].log, call, words, sizeof(words));
    trii_why_append_ranks(f->text, sizeof(f->text), waiting, n_waiting);
    if (job->ranks[waiting[0]].state == TRII_WHY_DEAD)
        trii_why_append(f->text, sizeof(f->text), " waited");
    else
        trii_why_append(f->text, sizeof(f->text), n_waiting == 1 ? " waits" : " wait");
    append_seconds(f->text, sizeof(f->text), longest);
    f->seconds = longest;
    trii_why_append(f->text, sizeof(f->text), " in group %s, %s", v->name, words);
    if (n_missing > 0) {
        trii_why_append(f->text, sizeof(f->text), ", for ");
        trii_why_append_ranks(f->text, sizeof(f->text), missing, n_missing);
        append_doing(job, missing[0], number, f->text, sizeof(f->text));
    } else {
        trii_why_append(
            f->text, sizeof(f->text),
            ": all that have a record here made this call (engine %s moves its data, or hangs)",
            v->engine);
        if (n_unlisted > 0 && !lists_all_groups(job))
            trii_why_append(
                f->text, sizeof(f->text),
                "; of the other %d nothing can be told, since records list %d groups at most",
                n_unlisted, TRII_RECORD_GROUPS);
    }
    return TRI_OK;
}

static tri_status find_in_group(trii_why_job *job, const view *v)
{
    int *ranks = trii_alloc(2 * (size_t)v->size, sizeof(*ranks), "ranks");
    uint64_t seq = UINT64_MAX;
    bool mismatch = false;
    tri_status status = ranks != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int m = 0; m < v->size; m++) {
        const trii_record_file *log = log_of(job, v, m);
        const trii_record *open = log != NULL ? edge_of(log, v->number[m], true) : NULL;

        if (open != NULL && open->seq < seq)
            seq = open->seq;
    }
    if (status == TRI_OK && seq != UINT64_MAX)
        status = find_mismatch(job, v, seq, &mismatch);
    if (status == TRI_OK && seq != UINT64_MAX && !mismatch)
        status = find_missing(job, v, seq, ranks, ranks + v->size);
    trii_free(ranks);
    return status;
}

/* Whether what the rank has not ended is a wait: a rank that died in a call of a job that still
 * runs is reported as dead. */
static bool can_wait(const trii_why_job *job, int r)
{
    return job->ranks[r].state == TRII_WHY_RUNNING ||
           (job->ranks[r].state == TRII_WHY_DEAD && trii_why_is_over(job));
}

/* Sends and receives that have not ended. */
static tri_status find_pairs(trii_why_job *job, const view *v)
{
    for (int m = 0; m < v->size; m++) {
        const trii_record_file *log = log_of(job, v, m);
        int r = v->world[m];

        for (int i = 0; log != NULL && i < TRII_RECORDS; i++) {
            const trii_record *record = &log->records[i];
            int peer;
            char words[256];
            trii_why_finding *f;

            if (record->number == 0 || record->group != v->number[m] || !is_pair(record) ||
                record->state != TRII_RECORD_RUNNING || !can_wait(job, r))
                continue;
            peer = record->root >= 0 && record->root < v->size ? v->world[record->root] : -1;
            f = trii_why_add(job, WEIGHT_PAIR, "pair", v->name);
            if (f == NULL)
                return TRI_ERR_NO_MEMORY;
            trii_why_set_ranks(f, &r, 1, &peer, peer >= 0 ? 1 : 0);
            trii_why_describe(log, record, words, sizeof(words));
            trii_why_append(
                f->text, sizeof(f->text),
                job->ranks[r].state == TRII_WHY_DEAD ? "rank %d waited" : "rank %d waits", r);
            f->seconds = trii_why_seconds(job, &job->ranks[r], record->began_ns);
            append_seconds(f->text, sizeof(f->text), f->seconds);
            trii_why_append(f->text, sizeof(f->text), " in group %s, %s", v->name, words);
            if (peer >= 0) {
                trii_why_append(f->text, sizeof(f->text), ", for rank %d", peer);
                append_doing(job, peer, v->number[record->root], f->text, sizeof(f->text));
            }
        }
    }
    return TRI_OK;
}

/* What the rank's record has no room for: calls of groups that it does not list, and calls that it
 * has lost. */
tri_status trii_why_find_untold(trii_why_job *job, int r)
{
    const trii_record_file *log = job->ranks[r].log;
    const trii_record *oldest = NULL;
    trii_why_finding *f;
    char words[256];
    int n = 0;

    for (int i = 0; i < TRII_RECORDS; i++) {
        const trii_record *record = &log->records[i];

        if (record->number == 0 || record->state != TRII_RECORD_RUNNING ||
            trii_why_group_of(log, record->group) != NULL)
            continue;
        n++;
        if (oldest == NULL || record->began_ns < oldest->began_ns)
            oldest = record;
    }
    if (!can_wait(job, r) || (n == 0 && log->lost == 0))
        return TRI_OK;
    f = trii_why_add(job, WEIGHT_UNTOLD, "untold", NULL);
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_why_set_ranks(f, &r, 1, NULL, 0);
    trii_why_append(f->text, sizeof(f->text), "rank %d", r);
    if (n > 0) {
        f->seconds = trii_why_seconds(job, &job->ranks[r], oldest->began_ns);
        trii_why_describe(log, oldest, words, sizeof(words));
        trii_why_append(f->text, sizeof(f->text),
                        job->ranks[r].state == TRII_WHY_DEAD ? " waited" : " waits");
        append_seconds(f->text, sizeof(f->text), f->seconds);
        trii_why_append(f->text, sizeof(f->text), " in %s", words);
        if (n > 1)
            trii_why_append(f->text, sizeof(f->text), " and %d more", n - 1);
        trii_why_append(
            f->text, sizeof(f->text),
            " of a group that its record does not list (more than %d at once): for whom, "
            "cannot be told",
            TRII_RECORD_GROUPS);
    }
    if (log->lost > 0)
        trii_why_append(
            f->text, sizeof(f->text),
            "%s has lost %llu calls from its record, since too many ran at once: whether they "
            "still run cannot be told",
            n > 0 ? "; it" : "", (unsigned long long)log->lost);
    return TRI_OK;
}

/* Ranks that are still forming the group, and those that are not there. */
static tri_status find_forming(trii_why_job *job, const view *v)
{
    int *forming = trii_alloc(2 * (size_t)v->size, sizeof(*forming), "ranks");
    int *absent = forming + v->size;
    int n_forming = 0, n_absent = 0;
    double longest = -1.0;
    trii_why_finding *f;

    if (forming == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int m = 0; m < v->size; m++) {
        const trii_record_file *log = log_of(job, v, m);
        const trii_record_group *group = log != NULL ? trii_why_group_of(log, v->number[m]) : NULL;

        if (group == NULL)
            absent[n_absent++] = m;
        else if (group->state == TRII_RECORD_GROUP_FORMING && can_wait(job, v->world[m])) {
            double seconds = trii_why_seconds(job, &job->ranks[v->world[m]], group->since_ns);

            forming[n_forming++] = v->world[m];
            longest = seconds > longest ? seconds : longest;
        }
    }
    if (n_forming > 0) {
        f = trii_why_add(job, WEIGHT_FORMING, "forming", v->name);
        if (f != NULL) {
            trii_why_set_ranks(f, forming, n_forming, absent, n_absent);
            trii_why_append_ranks(f->text, sizeof(f->text), forming, n_forming);
            if (job->ranks[forming[0]].state == TRII_WHY_DEAD)
                trii_why_append(f->text, sizeof(f->text), " formed");
            else
                trii_why_append(f->text, sizeof(f->text), n_forming == 1 ? " forms" : " form");
            trii_why_append(f->text, sizeof(f->text), " group %s of %d", v->name, v->size);
            if (v->id == TRII_RECORD_MEETING)
                trii_why_append(f->text, sizeof(f->text), " (in tri_init)");
            if (n_absent > 0) {
                trii_why_append(f->text, sizeof(f->text), ": not there yet: ");
                trii_why_append_ranks(f->text, sizeof(f->text), absent, n_absent);
                trii_why_append(f->text, sizeof(f->text), " of the group");
            }
            f->seconds = longest;
            if (longest >= 0.1)
                trii_why_append(f->text, sizeof(f->text), " (waiting for %.1f s)", longest);
        }
    }
    trii_free(forming);
    return TRI_OK;
}

/* --- all groups ----------------------------------------------------------- */

/* Which ranks are in the group that rank r calls `group`. False if a lower rank has shown it
 * already. */
static bool view_fill(const trii_why_job *job, int r, const trii_record_group *group, view *v)
{
    for (int m = 0; m < v->size; m++)
        v->world[m] = -1;
    v->id = group->id;
    v->name = group->name;
    v->engine = group->engine[0] != '\0' ? group->engine : "none yet";
    for (int i = 0; i < job->size; i++) {
        const trii_record_file *log = job->ranks[i].log;

        for (int k = 0; log != NULL && k < TRII_RECORD_GROUPS; k++) {
            const trii_record_group *other = &log->groups[k];

            if (other->number == 0 || other->id != group->id || other->size != group->size ||
                (group->id == 0 && i != r))
                continue;
            if (i < r)
                return false;
            v->world[other->rank] = i;
            v->number[other->rank] = other->number;
        }
    }
    return true;
}

tri_status trii_why_find_in_groups(trii_why_job *job, int r)
{
    tri_status status = TRI_OK;

    for (int k = 0; k < TRII_RECORD_GROUPS && status == TRI_OK; k++) {
        const trii_record_group *group = &job->ranks[r].log->groups[k];
        view v = {.size = group->size};

        if (group->number == 0)
            continue;
        v.world = trii_alloc((size_t)v.size, sizeof(*v.world), "group");
        v.number = trii_alloc((size_t)v.size, sizeof(*v.number), "group");
        if (v.world == NULL || v.number == NULL)
            status = TRI_ERR_NO_MEMORY;
        else if (view_fill(job, r, group, &v)) {
            status = find_in_group(job, &v);
            if (status == TRI_OK)
                status = find_pairs(job, &v);
            if (status == TRI_OK)
                status = find_forming(job, &v);
        }
        trii_free(v.world);
        trii_free(v.number);
    }
    return status;
}
