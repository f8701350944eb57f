/*
 * why_find.c - turns the ranks' records into findings: how ranks ended, and who waits for whom in
 * their groups (why_groups.c).
 */
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "base/ranks_text.h"
#include "base/utf8.h"
#include "launch/inspect/why_internal.h"

/* Ranks of a healthy job wait for each other too, but not for so long. */
#define TROUBLE_S 1.5

/* --- text ----------------------------------------------------------------- */

void trii_why_append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

void trii_why_append_ranks(char *text, size_t size, const int *ranks, int n)
{
    size_t used = strlen(text);

    (void)trii_ranks_text(ranks, n, text + used, size - used);
}

bool trii_why_is_over(const trii_why_job *job)
{
    for (int r = 0; r < job->size; r++) {
        if (job->ranks[r].state == TRII_WHY_RUNNING || job->ranks[r].state == TRII_WHY_STOPPED)
            return false;
    }
    return true;
}

/* --- findings ------------------------------------------------------------- */

trii_why_finding *trii_why_add(trii_why_job *job, int weight, const char *kind, const char *group)
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

void trii_why_set_ranks(trii_why_finding *f, const int *waiting, int n_waiting, const int *whom,
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

/* Gone, and not because of an error of the group: that is a consequence, see find_failures. */
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
        f = trii_why_add(job, WEIGHT_ALL_DEAD, "dead", NULL);
        if (f != NULL) {
            trii_why_set_ranks(f, NULL, 0, lost, n);
            trii_why_append_ranks(f->text, sizeof(f->text), lost, n);
            trii_why_append(f->text, sizeof(f->text),
                            " are gone, all without leaving: the job was killed as a whole");
            *found_out = true;
        }
    }
    trii_free(lost);
    return TRI_OK;
}

/* By a signal to trirun, by trirun's own end, or because it hung: who waited for whom then
 * is the news. */
static tri_status find_stop(trii_why_job *job)
{
    trii_why_finding *f = trii_why_add(job, WEIGHT_ALL_DEAD, "ended", NULL);

    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_why_append(f->text, sizeof(f->text), "%s", job->stopped_words);
    return TRI_OK;
}

/* " in all_reduce ..." or " in its own code after ...": where a rank was. */
static void append_where(const trii_why_job *job, int r, char *text, size_t size)
{
    const trii_record_file *log = job->ranks[r].log;
    const trii_record *in = trii_why_last(log, true);
    const trii_record *last = in != NULL ? in : trii_why_last(log, false);
    char call[256];

    if (last == NULL) {
        if (!trii_why_append_worker(job, job->ranks[r].pid, text, size))
            trii_why_append(text, size, " before its first call");
        return;
    }
    trii_why_describe(log, last, call, sizeof(call));
    trii_why_append(text, size, in != NULL ? " in %s" : " in its own code after %s", call);
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
    f = trii_why_add(job, weight, dead ? "dead" : "stopped", NULL);
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_why_set_ranks(f, NULL, 0, &r, 1);
    trii_why_append(f->text, sizeof(f->text), "rank %d (pid %d) %s", r, rank->pid,
                    dead ? "is dead: it was killed, crashed or exited"
                         : "is stopped (a signal or a debugger)");
    append_where(job, r, f->text, sizeof(f->text));
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
    f = trii_why_add(job, WEIGHT_CAUSE, "cause", NULL);
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_why_set_ranks(f, NULL, 0, &job->cause, 1);
    trii_why_append(f->text, sizeof(f->text), "rank %d (pid %d) %s: the first failure%s; it was",
                    job->cause, rank->pid, job->cause_words,
                    trii_why_named(job, job->cause) >= 0 ? " on this host" : "");
    if (rank->log != NULL && trii_why_has_joined(rank->log))
        append_where(job, job->cause, f->text, sizeof(f->text));
    else
        trii_why_append(f->text, sizeof(f->text), " not in the job yet: it had not joined");
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
        f = trii_why_add(job, WEIGHT_FAILURE, "failure", NULL);
        if (f == NULL) {
            status = TRI_ERR_NO_MEMORY;
            break;
        }
        trii_why_set_ranks(f, same, n, NULL, 0);
        trii_why_append_ranks(f->text, sizeof(f->text), same, n);
        trii_why_append(f->text, sizeof(f->text), " failed: %s: %s",
                        tri_status_name((tri_status)log->failed), log->failure);
    }
    trii_free(same);
    return status;
}

static int heavier_first(const void *a, const void *b)
{
    const trii_why_finding *x = a, *y = b;

    return (x->weight < y->weight) - (x->weight > y->weight);
}

bool trii_why_in_trouble(const trii_why_job *job)
{
    static const char *const waits[] = {"missing", "inside", "pair", "forming", "untold"};

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

    if (status == TRI_OK && job->stopped_ns > 0 && trii_why_is_over(job)) {
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
            status = trii_why_find_in_groups(job, r);
        if (status == TRI_OK)
            status = trii_why_find_untold(job, r);
    }
    if (status == TRI_OK)
        status = trii_why_find_calls(job);
    if (status == TRI_OK)
        status = find_failures(job);
    for (int i = 0; i < job->n_findings; i++)
        trii_utf8_repair(job->findings[i].text); /* a long one is cut */
    if (job->n_findings > 1)
        qsort(job->findings, (size_t)job->n_findings, sizeof(*job->findings), heavier_first);
    return status;
}
