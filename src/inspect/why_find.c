/*
 * why_find.c - turns the ranks' records into findings. For each group it takes the first call that
 * has not ended on some rank and looks at all ranks: who is in it, who made another call, who is
 * missing, and what those do instead. Then it looks at sends and receives, and at ranks whose
 * process is gone or stopped.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/ranks_text.h"
#include "base/utf8.h"
#include "inspect/why.h"

/* The heaviest finding is the likeliest cause. */
enum {
    WEIGHT_CAUSE = 100,
    WEIGHT_NAMED_DEAD = 90,
    WEIGHT_DEAD = 80,
    WEIGHT_STOPPED = 70,
    WEIGHT_MISMATCH = 60,
    WEIGHT_FORMING = 50,
    WEIGHT_MISSING = 40,
    WEIGHT_PAIR = 30,
    WEIGHT_FAILURE = 20,
    WEIGHT_INSIDE = 10,
    WEIGHT_ALL_DEAD = 5
};

/* Ranks of a healthy job wait for each other too, but not for so long. */
#define TROUBLE_S 1.5

/* One group as all of its ranks saw it. */
typedef struct view {
    uint64_t id;
    const char *name, *engine;
    int size;
    int *world;       /* [size] rank in the job; -1 = no record */
    uint16_t *number; /* [size] the group's number there */
} view;

/* --- text ----------------------------------------------------------------- */

static void append(char *text, size_t size, const char *format, ...) TRII_PRINTF(3, 4);

static void append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

static void append_ranks(char *text, size_t size, const int *ranks, int n)
{
    size_t used = strlen(text);

    (void)trii_ranks_text(ranks, n, text + used, size - used);
}

static void append_seconds(char *text, size_t size, double seconds)
{
    if (seconds >= 0.1)
        append(text, size, " for %.1f s", seconds);
}

static const trii_record *call_of(const trii_record_file *log, uint16_t group, uint64_t seq);

/* Nobody who has a record here goes on. */
static bool is_over(const trii_why_job *job)
{
    for (int r = 0; r < job->size; r++) {
        if (job->ranks[r].state == TRII_WHY_RUNNING || job->ranks[r].state == TRII_WHY_STOPPED)
            return false;
    }
    return true;
}

/* What a rank that others wait for does instead; group 0 = whichever. */
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
        append(text, size, " (no record here: on another host, or it never joined)");
        return;
    case TRII_WHY_LEFT:
        append(text, size, " (left the job)");
        return;
    case TRII_WHY_DEAD:
        if (!is_over(job))
            append(text, size, " (dead)");
        break;
    case TRII_WHY_STOPPED:
        append(text, size, " (stopped)");
        break;
    case TRII_WHY_RUNNING:
        break;
    }
    if (in != NULL) {
        other = trii_why_group_of(rank->log, in->group);
        trii_why_describe(rank->log, in, call, sizeof(call));
        append(text, size, ", which %s in %s", is, call);
        if (other != NULL && in->group != group)
            append(text, size, " of group %s", other->name);
    } else if (last != NULL) {
        trii_why_describe(rank->log, last, call, sizeof(call));
        append(text, size, ", which %s in its own code after %s", is, call);
    } else {
        append(text, size,
               rank->state == TRII_WHY_DEAD ? ", which had called nothing yet"
                                            : ", which has called nothing yet");
    }
    if (rank->state != TRII_WHY_DEAD && rank->pid != 0)
        append(text, size, " (rank %d: pid %d)", r, rank->pid);
}

/* --- findings ------------------------------------------------------------- */

static trii_why_finding *add(trii_why_job *job, int weight, const char *kind, const char *group)
{
    trii_why_finding *f;

    if (trii_array_grow(&job->findings, &job->room, job->n_findings, 16, sizeof(*f), "findings") !=
        TRI_OK)
        return NULL;
    f = &job->findings[job->n_findings++];
    *f = (trii_why_finding){.weight = weight, .kind = kind};
    snprintf(f->group, sizeof(f->group), "%s", group != NULL ? group : "");
    return f;
}

static int *ranks_copy(const int *ranks, int n)
{
    int *copy = n > 0 ? trii_alloc((size_t)n, sizeof(*copy), "ranks") : NULL;

    if (copy != NULL)
        memcpy(copy, ranks, sizeof(*copy) * (size_t)n);
    return copy;
}

static void set_ranks(trii_why_finding *f, const int *waiting, int n_waiting, const int *whom,
                      int n_whom)
{
    f->waiting = ranks_copy(waiting, n_waiting);
    f->n_waiting = f->waiting != NULL ? n_waiting : 0;
    f->for_whom = ranks_copy(whom, n_whom);
    f->n_for_whom = f->for_whom != NULL ? n_whom : 0;
}

/* Whether another rank's failure line names this one. */
static bool named_by_others(const trii_why_job *job, int r)
{
    char name[24];
    size_t length = (size_t)snprintf(name, sizeof(name), "rank %d", r);

    for (int i = 0; i < job->size; i++) {
        const trii_record_file *log = job->ranks[i].log;
        const char *at = i != r && log != NULL ? log->failure : NULL;

        while (at != NULL && (at = strstr(at, name)) != NULL) {
            if (at[length] < '0' || at[length] > '9')
                return true;
            at += length;
        }
    }
    return false;
}

/* Gone, and not because of an error of the group: that is a consequence, told by find_failures. */
static bool is_lost(const trii_why_rank *rank)
{
    return rank->state == TRII_WHY_DEAD && rank->log->failed == 0;
}

/* A job that was ended as a whole: its ranks' deaths say nothing one by one. */
static tri_status find_all_lost(trii_why_job *job, bool *found_out)
{
    int *lost = trii_alloc((size_t)job->size, sizeof(*lost), "ranks");
    int n = 0, alive = 0;
    trii_why_finding *f;

    *found_out = false;
    if (lost == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int r = 0; r < job->size; r++) {
        if (job->ranks[r].log != NULL && is_lost(&job->ranks[r]))
            lost[n++] = r;
        else
            alive += job->ranks[r].log != NULL;
    }
    if (n > 1 && alive == 0) {
        f = add(job, WEIGHT_ALL_DEAD, "dead", NULL);
        if (f != NULL) {
            set_ranks(f, NULL, 0, lost, n);
            append_ranks(f->text, sizeof(f->text), lost, n);
            append(f->text, sizeof(f->text),
                   " are gone, all without leaving: the job was killed as a whole");
            *found_out = true;
        }
    }
    trii_free(lost);
    return TRI_OK;
}

/* By somebody's signal to trirun, by trirun's own end, or because it hung: who waited for whom then
 * is the news. */
static tri_status find_stop(trii_why_job *job)
{
    trii_why_finding *f = add(job, WEIGHT_ALL_DEAD, "ended", NULL);

    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    append(f->text, sizeof(f->text), "%s", job->stopped_words);
    return TRI_OK;
}

/* " in all_reduce ..." or " in its own code after ...": where a rank was. */
static void append_where(const trii_record_file *log, char *text, size_t size)
{
    const trii_record *in = trii_why_last(log, true);
    const trii_record *last = in != NULL ? in : trii_why_last(log, false);
    char call[256];

    if (last == NULL) {
        append(text, size, " before its first call");
        return;
    }
    trii_why_describe(log, last, call, sizeof(call));
    append(text, size, in != NULL ? " in %s" : " in its own code after %s", call);
}

static tri_status find_lost(trii_why_job *job, int r)
{
    const trii_why_rank *rank = &job->ranks[r];
    bool dead = is_lost(rank);
    trii_why_finding *f;
    int weight = WEIGHT_STOPPED;

    /* Once trirun saw a failure it ended the others. */
    if ((!dead && rank->state != TRII_WHY_STOPPED) || (dead && job->cause >= 0))
        return TRI_OK;
    if (dead)
        weight = named_by_others(job, r) ? WEIGHT_NAMED_DEAD : WEIGHT_DEAD;
    f = add(job, weight, dead ? "dead" : "stopped", NULL);
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    set_ranks(f, NULL, 0, &r, 1);
    append(f->text, sizeof(f->text), "rank %d (pid %d) %s", r, rank->pid,
           dead ? "is dead: it was killed, crashed or exited"
                : "is stopped (a signal or a debugger)");
    append_where(rank->log, f->text, sizeof(f->text));
    return TRI_OK;
}

/* What trirun saw first. */
static tri_status find_cause(trii_why_job *job)
{
    const trii_why_rank *rank;
    trii_why_finding *f;

    if (job->cause < 0)
        return TRI_OK;
    rank = &job->ranks[job->cause];
    f = add(job, WEIGHT_CAUSE, "cause", NULL);
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    set_ranks(f, NULL, 0, &job->cause, 1);
    append(f->text, sizeof(f->text), "rank %d (pid %d) %s: the first failure%s; it was", job->cause,
           rank->pid, job->cause_words,
           trii_why_named(job, job->cause) >= 0 ? " on this host" : "");
    if (rank->log != NULL)
        append_where(rank->log, f->text, sizeof(f->text));
    else
        append(f->text, sizeof(f->text), " without a record: it had not joined");
    return TRI_OK;
}

/* One line for all ranks that failed with the same words. */
static tri_status find_failures(trii_why_job *job)
{
    int *same = trii_alloc((size_t)job->size, sizeof(*same), "ranks");
    tri_status status = same != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int r = 0; r < job->size && status == TRI_OK; r++) {
        const trii_record_file *log = job->ranks[r].log;
        bool reported = false;
        trii_why_finding *f;
        int n = 0;

        if (log == NULL || log->failed == 0)
            continue;
        for (int i = 0; i < job->size; i++) {
            const trii_record_file *other = job->ranks[i].log;

            if (other == NULL || other->failed == 0 || strcmp(other->failure, log->failure) != 0)
                continue;
            reported = reported || i < r;
            same[n++] = i;
        }
        if (reported)
            continue;
        f = add(job, WEIGHT_FAILURE, "failure", NULL);
        if (f == NULL) {
            status = TRI_ERR_NO_MEMORY;
            break;
        }
        set_ranks(f, same, n, NULL, 0);
        append_ranks(f->text, sizeof(f->text), same, n);
        append(f->text, sizeof(f->text), " failed: %s: %s",
               tri_status_name((tri_status)log->failed), log->failure);
    }
    trii_free(same);
    return status;
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
        f = add(job, WEIGHT_MISMATCH, "mismatch", v->name);
        if (f == NULL)
            return TRI_ERR_NO_MEMORY;
        set_ranks(f, (const int[]){first_rank, v->world[m]}, 2, NULL, 0);
        trii_collective_describe(&mine, one, sizeof(one));
        trii_collective_describe(&theirs, other, sizeof(other));
        append(f->text, sizeof(f->text),
               "group %s: call #%" PRIu64 " differs: rank %d made %s, rank %d made %s", v->name,
               seq, first_rank, one, v->world[m], other);
        *found_out = true;
        return TRI_OK;
    }
    return TRI_OK;
}

/* Who is in call `seq` and who has not made it. */
static tri_status find_missing(trii_why_job *job, const view *v, uint64_t seq, int *waiting,
                               int *missing)
{
    int n_waiting = 0, n_missing = 0, n_stopped = 0;
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
            double seconds = trii_why_seconds(job, &job->ranks[r], record);

            if (job->ranks[r].state == TRII_WHY_STOPPED)
                n_stopped++;
            waiting[n_waiting++] = r;
            longest = seconds > longest ? seconds : longest;
            call = call != NULL ? call : record;
        } else if (record == NULL && r >= 0 && (newest == NULL || newest->seq < seq)) {
            missing[n_missing++] = r;
        }
    }
    if (n_waiting == 0 || n_waiting == n_stopped)
        return TRI_OK;
    f = add(job, n_missing > 0 ? WEIGHT_MISSING : WEIGHT_INSIDE,
            n_missing > 0 ? "missing" : "inside", v->name);
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    set_ranks(f, waiting, n_waiting, missing, n_missing);
    trii_why_describe(job->ranks[waiting[0]].log, call, words, sizeof(words));
    append_ranks(f->text, sizeof(f->text), waiting, n_waiting);
    if (job->ranks[waiting[0]].state == TRII_WHY_DEAD)
        append(f->text, sizeof(f->text), " waited");
    else
        append(f->text, sizeof(f->text), n_waiting == 1 ? " waits" : " wait");
    append_seconds(f->text, sizeof(f->text), longest);
    f->seconds = longest;
    append(f->text, sizeof(f->text), " in group %s, %s", v->name, words);
    if (n_missing > 0) {
        append(f->text, sizeof(f->text), ", for ");
        append_ranks(f->text, sizeof(f->text), missing, n_missing);
        append_doing(job, missing[0], v->number[0], f->text, sizeof(f->text));
    } else {
        append(f->text, sizeof(f->text),
               ": all that have a record here made this call (engine %s moves its data, or hangs)",
               v->engine);
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

/* Whether what the rank has not ended is a wait: a rank that died in a call of a job that goes on
 * is told of by its death. */
static bool can_wait(const trii_why_job *job, int r)
{
    return job->ranks[r].state == TRII_WHY_RUNNING ||
           (job->ranks[r].state == TRII_WHY_DEAD && is_over(job));
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
            f = add(job, WEIGHT_PAIR, "pair", v->name);
            if (f == NULL)
                return TRI_ERR_NO_MEMORY;
            set_ranks(f, &r, 1, &peer, peer >= 0 ? 1 : 0);
            trii_why_describe(log, record, words, sizeof(words));
            append(f->text, sizeof(f->text),
                   job->ranks[r].state == TRII_WHY_DEAD ? "rank %d waited" : "rank %d waits", r);
            f->seconds = trii_why_seconds(job, &job->ranks[r], record);
            append_seconds(f->text, sizeof(f->text), f->seconds);
            append(f->text, sizeof(f->text), " in group %s, %s", v->name, words);
            if (peer >= 0) {
                append(f->text, sizeof(f->text), ", for rank %d", peer);
                append_doing(job, peer, v->number[m], f->text, sizeof(f->text));
            }
        }
    }
    return TRI_OK;
}

/* Ranks that are still forming the group, and those that are not there. */
static tri_status find_forming(trii_why_job *job, const view *v)
{
    int *forming = trii_alloc(2 * (size_t)v->size, sizeof(*forming), "ranks");
    int *absent = forming + v->size;
    int n_forming = 0, n_absent = 0;
    trii_why_finding *f;

    if (forming == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int m = 0; m < v->size; m++) {
        const trii_record_file *log = log_of(job, v, m);
        const trii_record_group *group = log != NULL ? trii_why_group_of(log, v->number[m]) : NULL;

        if (group == NULL)
            absent[n_absent++] = m;
        else if (group->state == TRII_RECORD_GROUP_FORMING &&
                 job->ranks[v->world[m]].state == TRII_WHY_RUNNING)
            forming[n_forming++] = v->world[m];
    }
    if (n_forming > 0) {
        f = add(job, WEIGHT_FORMING, "forming", v->name);
        if (f != NULL) {
            set_ranks(f, forming, n_forming, absent, n_absent);
            append_ranks(f->text, sizeof(f->text), forming, n_forming);
            append(f->text, sizeof(f->text), n_forming == 1 ? " forms" : " form");
            append(f->text, sizeof(f->text), " group %s of %d", v->name, v->size);
            if (n_absent > 0) {
                append(f->text, sizeof(f->text), ": not there yet: ");
                append_ranks(f->text, sizeof(f->text), absent, n_absent);
                append(f->text, sizeof(f->text), n_absent == 1 ? " of it" : " of them");
            }
        }
    }
    trii_free(forming);
    return TRI_OK;
}

/* --- all groups ----------------------------------------------------------- */

/* Who is in the group that rank r calls `group`. False if a lower rank has shown it already. */
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

static tri_status find_in_groups(trii_why_job *job, int r)
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

static int heavier_first(const void *a, const void *b)
{
    const trii_why_finding *x = a, *y = b;

    return (x->weight < y->weight) - (x->weight > y->weight);
}

bool trii_why_in_trouble(const trii_why_job *job)
{
    static const char *const waits[] = {"missing", "inside", "pair", "forming"};

    for (int i = 0; i < job->n_findings; i++) {
        const trii_why_finding *f = &job->findings[i];
        bool usual = f->seconds < TROUBLE_S;

        for (size_t k = 0; k < TRII_COUNT_OF(waits) && usual; k++) {
            if (strcmp(f->kind, waits[k]) == 0)
                break;
            usual = k + 1 < TRII_COUNT_OF(waits);
        }
        if (!usual)
            return true;
    }
    return false;
}

tri_status trii_why_find(trii_why_job *job)
{
    bool all_lost = false;
    tri_status status = find_cause(job);

    if (status == TRI_OK && job->stopped_ns > 0 && is_over(job)) {
        status = find_stop(job);
        all_lost = true;
    } else if (status == TRI_OK && job->cause < 0) {
        status = find_all_lost(job, &all_lost);
    }
    for (int r = 0; r < job->size && status == TRI_OK; r++) {
        if (job->ranks[r].log == NULL)
            continue;
        if (!all_lost)
            status = find_lost(job, r);
        if (status == TRI_OK)
            status = find_in_groups(job, r);
    }
    if (status == TRI_OK)
        status = find_failures(job);
    for (int i = 0; i < job->n_findings; i++)
        trii_utf8_repair(job->findings[i].text); /* a long one is cut */
    if (job->n_findings > 1)
        qsort(job->findings, (size_t)job->n_findings, sizeof(*job->findings), heavier_first);
    return status;
}
